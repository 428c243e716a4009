"""Storage on disk: jobs, runs, imports, and background tasks.

`workspace.py` keeps jobs and runs, `runs.py` and `run_infos.py` say what of a run, `arrays.py` how arrays lie on the disk, `imports/`
what is being uploaded, `tasks.py` what is under way (start, progress, cancel), `awaited.py` who gives way to whom, and `access.py` the
token of the workspace.
"""
