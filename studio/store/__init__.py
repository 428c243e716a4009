"""Storage on disk: jobs, runs, imports, and background tasks.

`workspace.py` keeps jobs and runs, `folders.py` knows where they lie and how they appear and go, `job_infos.py` and `run_infos.py` say
what lists show of them, `runs.py` what is stored of a run, `stored_traces.py` of a trace, `arrays.py` how arrays lie on the disk,
`durable_files.py` how files survive a power cut, `imports/` what is being uploaded, `tasks.py` what is under way (start, progress,
cancel), `awaited.py` who gives way to whom, and `access.py` the token of the workspace.
"""
