"""Ask jobs and runs by SQL: their tables, made when a query names them, and DuckDB, held to reading.

`columns.py` says which tables there are, `sources.py` what they are of; `graphs.py`, `times.py` and `stored.py` make them;
`database.py` says what a query may do and answers it by DuckDB, which runs in a process of its own (`process.py`, in it `child.py`)
that can be ended at any time; `answers.py` writes answers and whole tables; `values.py` asks what a program holds. DuckDB is optional.
"""
