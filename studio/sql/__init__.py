"""Ask jobs and runs by SQL: their tables, made when a query names them, and DuckDB, held to reading.

`columns.py` says which tables there are, `sources.py` what they are of; `graphs.py`, `times.py` and `stored.py` make them;
`database.py` answers a query, `answers.py` writes answers and whole tables. DuckDB is optional and imported by the first query.
"""
