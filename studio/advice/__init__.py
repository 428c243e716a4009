"""Advice: what a change of a job or of its system would save, each found by simulating the changed one.

A function per kind of change yields candidates (`sizes.py`, `compute.py`, `schedule.py`, `pipeline.py`, `interleaving.py`,
`system.py`, listed in `search.py`), made of `edits.py`, of micro-batches and their order by `passes.py` and `micro_batches.py`;
`baseline.py` is the run they are compared with, `words.py` has their sentences and rows.
"""
