"""A job as a whole: summary, where the time goes, the list of nodes, export.

The list of all nodes is `nodes.py`: what it shows of each `node_columns.py`, which of them are asked for `node_conditions.py`, their
order `node_sorting.py`; addresses name nodes by `node_refs.py`.

`ledger.py` holds where the time of a rank went, which `accounting.py` works out, `group_times.py` by comm group, `blame.py` by whom was
waited for, `windows.py` for a step or a window; `late_ranks.py` says who came last to collectives. `launches.py` has launch delays and
queues of streams, `memory.py` memory over time and who holds its peaks, `measures.py` the few numbers that Trends compares,
`completeness.py` which ranks are there, missing or assumed.
"""
