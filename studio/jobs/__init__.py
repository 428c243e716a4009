"""Import, repair and simulate jobs, at once or as background tasks.

All are tasks of the one queue in `studio/store/tasks.py`. A simulation is cancelled by `cancel` in `simulations.py`, which sets the
event of its task; `studio/sim/engine.py` asks for it and raises `Cancelled`. `checking.py` gives way to requests, `completing.py` and
`generating.py` make jobs, `planning.py` finds layouts, `advice_search.py` and `advising.py` find and keep advice, `watching.py` and
`places.py` say what has arrived, and where.
"""
