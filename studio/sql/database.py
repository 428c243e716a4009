"""Answer queries by DuckDB, held to reading: no files, no network, no settings, limits of time, rows and memory."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from studio.errors import ConfigError, StudioError
from studio.machine_code import find_release
from studio.machine_memory import read_machine_bytes
from studio.sql import process
from studio.sql.columns import BY_NAME, TABLES
from studio.sql.sources import Sources
from studio.sql.views import Views
from studio.sql.wrong import convert_error, parse_facts
from studio.units import format_bytes

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_SHOWN: Final = 1000
"""Rows of an answer that is shown, unless another number is asked for."""
ROWS_WRITTEN: Final = 1_000_000
"""Rows of an answer that is written into a file, likewise."""
TIME_S: Final = 60.0
"""How long a query may take, likewise."""
ANSWER_BYTES: Final = 64 << 20
"""How large an answer that is shown may be; one that is written into a file may take all of the query's memory."""
LEAST_BYTES: Final = 64 << 20
"""The least memory that a query may be held to."""
_DUCKDB_AT_LEAST = 2
"""Older ones name two columns of an answer alike, and before 1.5 they lack a setting."""
_INSTALL = "pip install 'chakra-studio[sql]'"
_SHARE_OF_MEMORY = 4
_USUAL_LEAST_BYTES, _UNKNOWN_BYTES = 1 << 30, 4 << 30
_LESS_MEMORY = "Ask for fewer columns or rows, such as those of one rank: WHERE rank = 0. --limit-memory of the command sql allows more memory."
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


def _compute_default_memory() -> int:
    """Return how much memory a query may take unless more is allowed: a quarter of the machine's."""
    room = (read_machine_bytes() or _SHARE_OF_MEMORY * _UNKNOWN_BYTES) // _SHARE_OF_MEMORY
    return max(room, _USUAL_LEAST_BYTES)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a query may take.

    Attributes:
        rows: Most rows of the answer; None for all.
        time_s: How long it may take, reading of traces not counted.
        answer_bytes: How large its answer may be; None for as much as its memory.
    """

    rows: int | None = ROWS_SHOWN
    time_s: float = TIME_S
    answer_bytes: int | None = ANSWER_BYTES


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


def require_duckdb() -> None:
    """Refuse where DuckDB is missing or too old.

    Raises:
        StudioError: It cannot be used.
    """
    if not is_installed():
        raise StudioError("SQL needs DuckDB, which is not installed.", hint=f"Install it: {_INSTALL}")
    try:
        installed = find_release("duckdb")
    except ImportError:
        return  # not installed as a package: whoever put it there knows which it is
    if int(installed.split(".")[0]) < _DUCKDB_AT_LEAST:
        raise StudioError(
            f"SQL needs DuckDB {_DUCKDB_AT_LEAST} or newer; {installed} is installed.",
            hint=f"Install it: {_INSTALL}",
        )


def is_installed() -> bool:
    """Return whether DuckDB is there."""
    try:
        return sys.modules.get("duckdb") is not None or importlib.util.find_spec("duckdb") is not None
    except ValueError:
        return False


class Database:
    """The tables of some jobs and runs, to be asked by SQL in a process that can be ended."""

    def __init__(self, sources: Sources, memory_bytes: int | None = None) -> None:
        """Start a process that answers.

        Args:
            sources: The jobs and runs.
            memory_bytes: Memory that a query may take, its tables not counted; None for a quarter of the machine's.

        Raises:
            StudioError: DuckDB is not installed, or too old.
        """
        require_duckdb()
        self._sources = sources
        self._memory_bytes = memory_bytes or _compute_default_memory()
        self._process: process.Process | None = None
        self._views = Views(self, sources)
        self._cancelled = threading.Event()
        process.start_ahead()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            process.give_back(self._process)

    def cancel(self) -> None:
        """End the query that is being answered, from another thread; what is asked later is refused."""
        self._cancelled.set()
        if self._process is not None:
            self._process.end()

    def ask(self, query: str, limits: Limits = Limits()) -> Answer:
        """Answer a query.

        Raises:
            ConfigError: It is no query, names what there is not, takes more than it may, or was cancelled.
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
        import pyarrow as pa

        self._make(name)
        ordered = f" ORDER BY {order}" if order else ""
        pieces = self._iterate_pieces(f"SELECT * FROM {name}{ordered}")
        schema = next(pieces).schema
        return pa.RecordBatchReader.from_batches(
            schema, (batch for piece in pieces for batch in piece.to_batches())
        )

    def count(self, name: str) -> int:
        """Return how many rows one of our tables has."""
        self._make(name)
        return int(
            sum(
                piece.column(0)[0].as_py()
                for piece in self._iterate_pieces(f"SELECT count(*) FROM {name}")
                if len(piece)
            )
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know of the tables made so far."""
        return tuple(note for notes in self._views.notes.values() for note in notes)

    def register(self, name: str, table: pa.Table) -> None:
        """Hand an Arrow table over under a name."""
        self._do("register", table, name=name)

    def execute(self, query: str) -> None:
        """Carry out a statement of ours."""
        self._do("execute", query=query)

    def _forget(self) -> None:
        """Leave the process: the next question begins with a new one, without tables."""
        if self._process is not None:
            self._process.close()
        self._process, self._views = None, Views(self, self._sources)

    def _start_process(self) -> process.Process:
        """Return the process, with a connection that is held to reading."""
        if self._cancelled.is_set():
            raise _build_cancelled_error()
        if self._process is None:
            settings = {**_CLOSED, "threads": str(os.cpu_count() or 1)}
            self._process = process.open_process(settings, self._memory_bytes)
            # Whoever cancels meanwhile has no process to end yet.
            if self._cancelled.is_set():
                raise _build_cancelled_error()
        return self._process

    def _do(self, verb: str, table: pa.Table | None = None, **asked: Any) -> list[pa.Table]:
        """Ask for something; returns the pieces of the answer.

        Raises:
            ConfigError: It was cancelled, or took too much memory.
            process.Failed: It could not be done.
        """
        try:
            return self._start_process().do(verb, table, **asked)
        except process.Ended as ended:
            raise self._build_end_error(ended) from ended

    def _iterate_pieces(self, query: str) -> Iterator[pa.Table]:
        """Yield the rows of a query of ours."""
        try:
            yield from self._start_process().each("pieces", query=query)
        except process.Ended as ended:
            raise self._build_end_error(ended) from ended
        except process.Failed as failed:
            raise self._build_query_error(failed, query, []) from failed

    def _build_end_error(self, ended: process.Ended) -> ConfigError:
        """Return why a process is gone that nothing here has ended, unless it was cancelled."""
        self._forget()
        if self._cancelled.is_set():
            return _build_cancelled_error()
        return ConfigError(
            f"The process that answers the query has ended with status {ended.status}: it took more memory than there is, or DuckDB failed",
            hint=_LESS_MEMORY,
        )

    def _make(self, name: str) -> None:
        if BY_NAME[name].of != "workspace" and not self._has_jobs:
            raise ConfigError(
                f"The query asks for {name}, which are of a job or a run, and none is named",
                hint="Name traces, or a job or run of the workspace; on the page, open one. jobs and runs can be asked for without.",
            )
        self._views.make(name)

    @cached_property
    def _has_jobs(self) -> bool:
        return bool(self._sources.jobs)

    def _check(self, query: str) -> list[str]:
        """Return which of our tables a query names.

        Raises:
            ConfigError: It is no query, or asks for what is not allowed.
        """
        try:
            query.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(
                f"The query holds bytes that are no UTF-8, at letter {error.start + 1}",
                hint="Write the query in UTF-8.",
            ) from error
        [parsed] = self._do("parse", query=query)
        try:
            tree = json.loads(parsed.column(0)[0].as_py())
        except RecursionError as error:
            raise ConfigError("The query is nested too deeply", hint="Take it apart by WITH.") from error
        if tree["error"]:
            if tree.get("error_type") == "not implemented":
                raise ConfigError("The query is no question", hint=f"Allowed: {_QUERIES}.")
            raise convert_error(query, tree)
        if len(tree["statements"]) != 1:
            raise ConfigError(f"The query holds {len(tree['statements'])} statements; allowed: {_QUERIES}")
        tables, functions = _collect_names(tree["statements"])
        for function in functions:
            if function not in _FUNCTIONS:
                raise ConfigError(
                    f"The query takes rows from {function[:80]}(), which is not allowed",
                    hint=f"Rows come from tables: {', '.join(table.name for table in TABLES)}.",
                )
        return [name for name in BY_NAME if name in tables]

    def _answer(self, query: str, limits: Limits, named: list[str]) -> Answer:
        began = time.monotonic()
        most = self._memory_bytes if limits.answer_bytes is None else limits.answer_bytes
        with self._end_after(limits.time_s) as late:
            try:
                [table] = self._do("ask", query=query, rows=limits.rows, answer_bytes=most)
            except process.Failed as failed:
                raise self._build_query_error(failed, query, named, most) from failed
            except ConfigError as error:
                if not late.is_set():
                    raise
                raise ConfigError(
                    f"The query was stopped: it takes more than {limits.time_s:g} s",
                    hint="Ask for fewer rows. --limit-time of the command sql allows more time.",
                ) from error
        more = limits.rows is not None and table.num_rows > limits.rows
        shown = table.slice(0, limits.rows) if more else table
        notes = tuple(note for name in named for note in self._views.notes.get(name, ()))
        return Answer(_narrow_sums(shown), more, time.monotonic() - began, notes)

    def _build_query_error(
        self, failed: process.Failed, query: str, named: list[str], most: int = 0
    ) -> Exception:
        """Return what is wrong, in words."""
        failure = failed.facts
        if failure["kind"] == "broken":
            return RuntimeError(failure["text"])
        if failure["kind"] == "answer":
            return ConfigError(
                f"The answer was stopped: it is larger than {format_bytes(most)}",
                hint="Ask for fewer or shorter values. Answers that the command sql writes by -o FILE may be as large as the memory of the query.",
            )
        facts = parse_facts(failure.get("text", ""))
        if failure["kind"] == "memory" or str(facts.get("exception_type", "")).lower() == "out of memory":
            return ConfigError(
                f"The query was stopped: it takes more than {format_bytes(self._memory_bytes)} of memory",
                hint=_LESS_MEMORY,
            )
        if failure["kind"] == "running":
            # Its place is of the query as it was planned, not as it was written.
            facts = {key: value for key, value in facts.items() if key != "position"}
            return convert_error(query, facts, named)
        if str(facts.get("position", "")).isdecimal():
            facts["position"] = int(facts["position"]) - failure["shift"]
        missing = str(facts.get("name", "")).lower()
        if facts.get("type") == "Table" and missing in BY_NAME and missing not in self._views.names:
            return _MissingTable(missing)
        return convert_error(query, facts, named)

    @contextmanager
    def _end_after(self, time_s: float) -> Iterator[threading.Event]:
        """End the process after a time; yields what tells whether that was so."""
        late, asked = threading.Event(), self._start_process()

        def stop() -> None:
            late.set()
            asked.end()

        # A timer of more than the system can count ends at once, with an error of its own.
        timer = threading.Timer(min(time_s, threading.TIMEOUT_MAX), stop)
        timer.daemon = True
        timer.start()
        try:
            yield late
        finally:
            timer.cancel()


def _build_cancelled_error() -> ConfigError:
    return ConfigError("The query was cancelled", hint="Ask again for its answer.")


class _MissingTable(Exception):  # noqa: N818 - never leaves the module
    """A query names one of our tables that is not made yet."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def _collect_names(tree: object) -> tuple[set[str], set[str]]:
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


def _narrow_sums(table: pa.Table) -> pa.Table:
    """Return an answer with its sums, which DuckDB makes 128 bits wide, as usual whole numbers where all fit."""
    import pyarrow as pa

    for index, column in enumerate(table.columns):
        if column.type == pa.decimal128(38, 0):
            try:
                table = table.set_column(index, table.field(index).name, column.cast(pa.int64()))
            except pa.ArrowInvalid:
                continue
    return table
