"""What several commands use: options, output, names of jobs and runs, timelines for other tools, ASTRA-sim's limits.

`forms.py` says which suffix asks which command for what, `timelines.py` which forms timelines have, `astra_job.py` and
`for_astra_sim.py` what ASTRA-sim takes, `astra_folder.py` where it finds that, `backends.py` and `engine.py` run its program beside
ours, `engine_run.py` reads what that said, `baseline.py`, `suite_file.py` and `suite_cases.py` what continuous integration
compares, `generate_cases.py` small jobs with known content.
"""
