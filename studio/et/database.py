"""Read the tables of a database (SQLite) that somebody else wrote.

The database is opened in memory; only its plain tables are read, by selecting columns, so that nothing that a file defines
(views, triggers, virtual tables) is carried out.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from studio.errors import TraceFormatError
from studio.et.format import Reading
from studio.et.records import clean
from studio.trace import Finding
from studio.units import format_counted

MAGIC = b"SQLite format 3\0"

_STEPS_PER_CALL = 100_000
_STEPS_PER_BYTE, _LEAST_STEPS = 200, 1_000_000_000


class Database:
    """A database being read.

    Attributes:
        name: Its file, for messages.
        tables: Its plain tables.
        damage: What is wrong with tables that could not be read to their end, by table.
    """

    def __init__(self, connection: sqlite3.Connection, name: str, hint: str) -> None:
        self._connection, self.name, self._hint = connection, name, hint
        schema = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
        )
        self.tables = {
            str(name)
            for name, sql in schema
            if isinstance(sql, str) and sql.lstrip()[:12].upper() == "CREATE TABLE" and '"' not in str(name)
        }
        self._columns: dict[str, set[str]] = {}
        self.damage: dict[str, str] = {}

    def list_columns(self, table: str) -> set[str]:
        """Return the columns of a table; none where it is not there."""
        if table not in self._columns:
            rows = self._connection.execute(f'PRAGMA table_info("{table}")') if table in self.tables else ()
            self._columns[table] = {str(row[1]) for row in rows}
        return self._columns[table]

    def iterate_rows(self, table: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a table, None for columns that it does not have; what is damaged ends it, and is noted."""
        known = self.list_columns(table)
        if not known:
            return
        chosen = ", ".join(f'"{column}"' if column in known else "NULL" for column in columns)
        done = 0
        try:
            for row in self._connection.execute(f'SELECT {chosen} FROM "{table}"'):  # noqa: S608 - names of tables and of readers
                done += 1
                yield row
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            self.damage[table] = f"table {table} is damaged after {format_counted(done, 'row')} ({error})"

    def count_rows(self, table: str) -> int:
        """Return how many rows a table has."""
        try:
            return int(self._connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0])  # noqa: S608 - of the database itself
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            self.damage[table] = f"table {table} is damaged ({error})"
            return 0

    def build_findings(self) -> Iterator[Finding]:
        """Yield what was lost with damaged tables."""
        for damage in self.damage.values():
            message = f"{self.name}: {clean(damage)}; what comes before was read, the rest is lost."
            yield Finding("error", "damaged-file", message, self._hint, file=self.name)


@contextmanager
def open_database(reading: Reading, hint: str) -> Iterator[Database]:
    """Open a database in memory, allowed to be read only.

    Args:
        reading: The file.
        hint: What to do where it is damaged.

    Raises:
        TraceFormatError: It is damaged.
    """
    data = bytearray(reading.data)
    # A journal beside it, which a finished file has none of, would be asked for.
    if data[18:20] == b"\2\2":
        data[18:20] = b"\1\1"
    connection = sqlite3.connect(":memory:")
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    steps = 0

    def look() -> int:
        nonlocal steps
        steps += _STEPS_PER_CALL
        return int(steps > max(_STEPS_PER_BYTE * len(data), _LEAST_STEPS))

    try:
        connection.deserialize(bytes(data))
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("PRAGMA cell_size_check=ON")
        connection.execute("PRAGMA query_only=ON")
        connection.set_progress_handler(look, _STEPS_PER_CALL)
        yield Database(connection, reading.name, hint)
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        raise TraceFormatError(f"{reading.name}: a damaged database: {error}.", hint=hint) from error
    finally:
        connection.close()
