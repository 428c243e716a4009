"""The Workloads page.

`form.py` makes the form of the table of options, `texts.py` has its texts, `asking.py` says what is asked and what is wrong by field,
`results.py` has counts and times, `making.py` makes the job in steps, `best.py` searches for the best layout.
"""
