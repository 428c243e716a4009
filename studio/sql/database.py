"""Answer queries by DuckDB, held to reading: no files, no network, no settings, limits of time, rows and memory."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from studio.errors import ConfigError, StudioError
from studio.et.memory import machine_bytes
from studio.sql.columns import BY_NAME, TABLES
from studio.sql.sources import Sources
from studio.sql.views import Views
from studio.sql.wrong import explained, facts_of

if TYPE_CHECKING:
    from types import ModuleType

    import pyarrow as pa

ROWS_SHOWN: Final = 1000
"""Rows of an answer that is shown, unless another number is asked for."""
ROWS_WRITTEN: Final = 1_000_000
"""Rows of an answer that is written into a file, likewise."""
TIME_S: Final = 60.0
"""How long a query may take, likewise."""
_BATCH_ROWS = 131_072
_EXPLAIN = "EXPLAIN "
_SHARE_OF_MEMORY = 4
_LEAST_BYTES, _UNKNOWN_BYTES = 1 << 30, 4 << 30
_QUERIES = "one query: SELECT, FROM, WITH, VALUES, DESCRIBE or SUMMARIZE"
_SHOW_TABLES = re.compile(r"\s*show\s+(all\s+)?tables\s*;?\s*", re.IGNORECASE)
"""Shows ours; DuckDB's own answer lists what they are made of."""
_FUNCTIONS = frozenset(
    {
        "range",
        "generate_series",
        "unnest",
        "repeat",
        "json_each",
        "json_tree",
        "duckdb_columns",
        "duckdb_functions",
        "duckdb_keywords",
        "pragma_version",
    }
)
"""Functions that may stand where a table can. Others read files, change settings, or take addresses in memory."""
_CLOSED = {
    "enable_external_access": "false",
    "python_enable_replacements": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "allow_community_extensions": "false",
    # In memory alone: nothing is written beside the studio's own files.
    "temp_directory": "",
    "errors_as_json": "true",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a query may take.

    Attributes:
        rows: Most rows of the answer; None for all.
        time_s: How long it may take, reading of traces not counted.
    """

    rows: int | None = ROWS_SHOWN
    time_s: float = TIME_S


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a query.

    Attributes:
        table: Its rows.
        more: Whether there are more than the limit.
        spent_s: How long the query took, reading of traces not counted.
        notes: What a user should know of the tables asked.
    """

    table: pa.Table
    more: bool
    spent_s: float
    notes: tuple[str, ...] = ()


class _Connection(Protocol):
    def execute(self, query: str, parameters: object = ...) -> Any: ...

    def sql(self, query: str) -> Any: ...

    def register(self, view_name: str, python_object: object) -> object: ...

    def interrupt(self) -> None: ...

    def close(self) -> None: ...


def duckdb_module() -> ModuleType:
    """Return DuckDB.

    Raises:
        StudioError: It is not installed.
    """
    try:
        import duckdb
    except ImportError as error:
        raise StudioError(
            "SQL needs DuckDB, which is not installed.", hint="Install it: pip install 'chakra-studio[sql]'"
        ) from error
    return duckdb


def is_installed() -> bool:
    """Return whether DuckDB is there."""
    try:
        duckdb_module()
    except StudioError:
        return False
    return True


class Database:
    """The tables of some jobs and runs, to be asked by SQL."""

    def __init__(self, sources: Sources) -> None:
        """Open nothing yet but DuckDB.

        Raises:
            StudioError: DuckDB is not installed.
        """
        self._duckdb = duckdb_module()
        room = (machine_bytes() or _SHARE_OF_MEMORY * _UNKNOWN_BYTES) // _SHARE_OF_MEMORY
        own = {"memory_limit": f"{max(room, _LEAST_BYTES) >> 20}MiB", "threads": str(os.cpu_count() or 1)}
        self._connection: _Connection = self._duckdb.connect(":memory:", config={**_CLOSED, **own})
        self._connection.execute("SET lock_configuration = true")
        self._views = Views(self._connection, sources)
        self._has_jobs = bool(sources.jobs)

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(self, query: str, limits: Limits = Limits()) -> Answer:
        """Answer a query.

        Raises:
            ConfigError: It is no query, names what there is not, or takes more than it may.
            StudioError: A job or run it is about cannot be read.
        """
        if _SHOW_TABLES.fullmatch(query):
            rows = ", ".join(f"('{table.name}', '{table.about}')" for table in TABLES)
            query = f"SELECT * FROM (VALUES {rows}) AS t (table_name, about)"
        named = self._check(query)
        for name in named:
            self._make(name)
        try:
            return self._answer(query, limits, named)
        except _MissingTable as missing:
            # Named in a way that the check does not see.
            self._make(missing.name)
            return self._answer(query, limits, [*named, missing.name])

    def batches(self, name: str, *, order: str = "") -> pa.RecordBatchReader:
        """Return all rows of one of our tables, a piece at a time."""
        self._make(name)
        ordered = f" ORDER BY {order}" if order else ""
        return _reader(self._connection.sql(f"SELECT * FROM {name}{ordered}"))

    def count(self, name: str) -> int:
        """Return how many rows one of our tables has."""
        self._make(name)
        [row] = self._connection.execute(f"SELECT count(*) FROM {name}").fetchall()
        return int(row[0])

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know of the tables made so far."""
        return tuple(note for notes in self._views.notes.values() for note in notes)

    def _make(self, name: str) -> None:
        if BY_NAME[name].of != "workspace" and not self._has_jobs:
            raise ConfigError(
                f"The query asks for {name}, which are of a job or a run, and none is named",
                hint="Name traces, or a job or run of the workspace; on the page, open one. jobs and runs can be asked for without.",
            )
        self._views.make(name)

    def _check(self, query: str) -> list[str]:
        """Return which of our tables a query names.

        Raises:
            ConfigError: It is no query, or asks for what is not allowed.
        """
        try:
            query.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(
                f"The query holds bytes that are no UTF-8, at letter {error.start + 1}"
            ) from error
        [row] = self._connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchall()
        try:
            tree = json.loads(row[0])
        except RecursionError as error:
            raise ConfigError("The query is nested too deeply", hint="Take it apart by WITH.") from error
        if tree["error"]:
            if tree.get("error_type") == "not implemented":
                raise ConfigError("The query is no question", hint=f"Allowed: {_QUERIES}.")
            raise explained(query, tree)
        if len(tree["statements"]) != 1:
            raise ConfigError(f"The query holds {len(tree['statements'])} statements; allowed: {_QUERIES}")
        tables, functions = _names(tree["statements"])
        for function in functions:
            if function not in _FUNCTIONS:
                raise ConfigError(
                    f"The query takes rows from {function[:80]}(), which is not allowed",
                    hint=f"Rows come from tables: {', '.join(table.name for table in TABLES)}.",
                )
        return [name for name in BY_NAME if name in tables]

    def _answer(self, query: str, limits: Limits, named: list[str]) -> Answer:
        began = time.monotonic()
        with self._interrupted_after(limits.time_s) as late:
            try:
                table = self._rows(query, limits, named)
            except self._duckdb.InterruptException as error:
                if not late.is_set():
                    raise
                raise ConfigError(
                    f"The query was stopped: it takes more than {limits.time_s:g} s",
                    hint="Ask for fewer rows. The command sql allows more time by --limit-time.",
                ) from error
        more = limits.rows is not None and table.num_rows > limits.rows
        shown = table.slice(0, limits.rows) if more else table
        notes = tuple(note for name in named for note in self._views.notes.get(name, ()))
        return Answer(_plain_sums(shown), more, time.monotonic() - began, notes)

    def _rows(self, query: str, limits: Limits, named: list[str]) -> pa.Table:
        """Return the rows of an answer, one more than the limit where there are more."""
        relation = self._planned(query, named)
        if limits.rows is not None:
            relation = relation.limit(limits.rows + 1)
        try:
            return _reader(relation).read_all()
        except self._duckdb.InterruptException:
            raise
        except self._duckdb.Error as error:
            # Its place is of the query as it was planned, not as it was written.
            facts = {key: value for key, value in facts_of(error).items() if key != "position"}
            raise explained(query, facts, named) from error

    def _planned(self, query: str, named: list[str]) -> Any:
        """Return a query with its names resolved.

        Raises:
            ConfigError: It names what there is not.
        """
        try:
            # Constants are worked out here, which may take as long as any query.
            return self._connection.sql(query)
        except self._duckdb.InterruptException:
            raise
        except self._duckdb.Error as error:
            facts = self._facts(query, error)
            missing = str(facts.get("name", "")).lower()
            if facts.get("type") == "Table" and missing in BY_NAME and missing not in self._views.made:
                raise _MissingTable(missing) from error
            raise explained(query, facts, named) from error

    def _facts(self, query: str, error: Exception) -> dict[str, Any]:
        """Return what DuckDB tells of an error in names; asked to explain the query it tells the place as well."""
        try:
            self._connection.execute(f"{_EXPLAIN}{query}")
        except self._duckdb.InterruptException:
            raise
        except self._duckdb.Error as again:
            facts = facts_of(again)
            if str(facts.get("position", "")).isdecimal():
                facts["position"] = int(facts["position"]) - len(_EXPLAIN)
            return facts
        return facts_of(error)

    @contextmanager
    def _interrupted_after(self, time_s: float) -> Iterator[threading.Event]:
        """Stop what the connection does after a time; yields what tells whether that was so."""
        late = threading.Event()

        def stop() -> None:
            late.set()
            self._connection.interrupt()

        timer = threading.Timer(time_s, stop)
        timer.daemon = True
        timer.start()
        try:
            yield late
        finally:
            timer.cancel()


class _MissingTable(Exception):  # noqa: N818 - never leaves the module
    """A query names one of our tables that is not made yet."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def _reader(relation: Any) -> pa.RecordBatchReader:
    """Return rows a piece at a time; older releases of DuckDB call that otherwise."""
    read = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
    return read(_BATCH_ROWS)


def _names(tree: object) -> tuple[set[str], set[str]]:
    """Return the tables, and the functions in place of tables, that a parsed query names, in lower case."""
    tables, functions, left = set[str](), set[str](), [tree]
    while left:
        item = left.pop()
        if isinstance(item, list):
            left += item
        elif isinstance(item, dict):
            left += item.values()
            if isinstance(item.get("table_name"), str):
                tables.add(item["table_name"].lower())
            if item.get("type") == "TABLE_FUNCTION" and isinstance(item.get("function"), dict):
                functions.add(str(item["function"].get("function_name", "")).lower())
    return tables, functions


def _plain_sums(table: pa.Table) -> pa.Table:
    """Return an answer with its sums, which DuckDB makes 128 bits wide, as usual whole numbers where all fit."""
    import pyarrow as pa

    for index, column in enumerate(table.columns):
        if column.type == pa.decimal128(38, 0):
            try:
                table = table.set_column(index, table.field(index).name, column.cast(pa.int64()))
            except pa.ArrowInvalid:
                continue
    return table
