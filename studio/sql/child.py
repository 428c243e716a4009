"""Answer queries by DuckDB in a process of its own, which `process.py` starts and may end at any time.

A request is a line of JSON on stdin, followed by a stream of Arrow where it brings a table. Its answer on stdout is a line of
JSON likewise, with a stream of Arrow for each piece of rows. It imports nothing else of the studio, so that it starts fast.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

IDLE_S: Final = 60.0
"""A process that is asked for nothing ends after this time."""
_BATCH_ROWS = 131_072
_EXPLAIN = "EXPLAIN "
_SLACK_BYTES = 256 << 20
"""What threads and answers take beside what DuckDB counts."""
_STATUS = "/proc/self/status"


class _Connection(Protocol):
    def execute(self, query: str, parameters: object = ...) -> Any: ...

    def sql(self, query: str) -> Any: ...

    def register(self, view_name: str, python_object: object) -> object: ...

    def close(self) -> None: ...


class _Refused(Exception):  # noqa: N818 - becomes an answer
    """A request that failed in a way that whoever asked can explain."""

    def __init__(self, **facts: Any) -> None:
        super().__init__()
        self.facts = facts


class _Answering:
    """A connection to DuckDB, and what can be asked of it."""

    def __init__(self) -> None:
        import duckdb

        self._duckdb = duckdb
        self._connection: _Connection | None = None
        self._tables: list[pa.Table] = []
        self._memory_bytes = 0

    def open(self, asked: Mapping[str, Any], _table: pa.Table | None) -> Iterator[pa.Table]:
        """Begin anew with empty tables, settings and a limit of memory."""
        if self._connection is not None:
            self._connection.close()
        self._tables, self._memory_bytes = [], asked["memory_bytes"]
        limit = {"memory_limit": f"{self._memory_bytes >> 20}MiB"}
        self._connection = self._duckdb.connect(":memory:", config={**asked["settings"], **limit})
        self._connection.execute("SET lock_configuration = true")
        return iter(())

    def register(self, asked: Mapping[str, Any], table: pa.Table | None) -> Iterator[pa.Table]:
        """Take a table."""
        assert table is not None
        self._tables.append(table)
        self._open.register(asked["name"], table)
        return iter(())

    def execute(self, asked: Mapping[str, Any], _table: pa.Table | None) -> Iterator[pa.Table]:
        """Carry out a statement of the studio's own, such as the making of a view."""
        self._open.execute(asked["query"])
        return iter(())

    def parse(self, asked: Mapping[str, Any], _table: pa.Table | None) -> Iterator[pa.Table]:
        """Return a query as a tree."""
        import pyarrow as pa

        [row] = self._open.execute("SELECT json_serialize_sql(?::VARCHAR)", [asked["query"]]).fetchall()
        yield pa.table({"tree": [row[0]]})

    def ask(self, asked: Mapping[str, Any], _table: pa.Table | None) -> Iterator[pa.Table]:
        """Yield the rows of an answer, one more than the limit where there are more."""
        query, rows, most = asked["query"], asked["rows"], asked["answer_bytes"]
        _limit_memory(self._memory_bytes)
        relation = self._plan_query(query)
        if rows is not None:
            relation = relation.limit(rows + 1)
        taken, pieces = 0, []
        reader = _open_reader(relation)
        for batch in reader:
            taken += batch.nbytes
            if taken > most:
                raise _Refused(kind="answer")
            pieces.append(batch)
        import pyarrow as pa

        yield pa.Table.from_batches(pieces, reader.schema)

    def pieces(self, asked: Mapping[str, Any], _table: pa.Table | None) -> Iterator[pa.Table]:
        """Yield all rows of a query of the studio's own, a piece at a time, at least one for the columns."""
        import pyarrow as pa

        _limit_memory(self._memory_bytes)
        reader = _open_reader(self._open.sql(asked["query"]))
        yield pa.Table.from_batches([], reader.schema)
        for batch in reader:
            yield pa.Table.from_batches([batch])

    @property
    def _open(self) -> _Connection:
        assert self._connection is not None
        return self._connection

    def _plan_query(self, query: str) -> Any:
        """Return a query with its names resolved; constants are worked out here, which may take as long as any query."""
        try:
            return self._open.sql(query)
        except self._duckdb.Error as error:
            raise _Refused(kind="names", **self._locate_error(query, error)) from error

    def _locate_error(self, query: str, error: Exception) -> dict[str, Any]:
        """Return what DuckDB tells of an error in names; asked to explain the query it tells the place as well."""
        try:
            self._open.execute(f"{_EXPLAIN}{query}")
        except self._duckdb.Error as again:
            return {"text": str(again), "shift": len(_EXPLAIN)}
        return {"text": str(error), "shift": 0}

    def describe_error(self, error: BaseException) -> dict[str, Any]:
        """Return what to tell of an error."""
        if isinstance(error, _Refused):
            return error.facts
        if isinstance(error, MemoryError):
            return {"kind": "memory"}
        if isinstance(error, self._duckdb.Error):
            return {"kind": "running", "text": str(error)}
        return {"kind": "broken", "text": f"{type(error).__name__}: {error}"}


def _open_reader(relation: Any) -> pa.RecordBatchReader:
    """Return rows a piece at a time; older releases of DuckDB call that otherwise."""
    read = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
    return read(_BATCH_ROWS)


def _limit_memory(more_bytes: int) -> None:
    """Let the process take so much more memory than it has, and nothing beyond, where the system can hold it to that.

    DuckDB's own limit leaves out what a function takes for one value.
    """
    try:
        import resource
        from pathlib import Path

        lines = Path(_STATUS).read_text().splitlines()
    except (ImportError, OSError):
        return
    [has] = [int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:")]
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = has + more_bytes + _SLACK_BYTES
    if most != resource.RLIM_INFINITY:
        wanted = min(wanted, most)
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, most))


class _Watch:
    """Ends the process when whoever started it is gone, or asks for nothing any more."""

    def __init__(self) -> None:
        self.idle_since: float | None = time.monotonic()
        self._parent = os.getppid()

    def begin(self) -> None:
        """Look once a second."""
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while os.getppid() == self._parent:
            since = self.idle_since
            if since is not None and time.monotonic() - since > IDLE_S:
                break
            time.sleep(1)
        os._exit(0)


def serve(requests: BinaryIO, answers: BinaryIO, watch: _Watch) -> None:
    """Answer requests until there are no more."""
    import pyarrow as pa

    answering = _Answering()
    verbs: Mapping[str, Callable[[Mapping[str, Any], pa.Table | None], Iterator[pa.Table]]] = {
        verb.__name__: verb
        for verb in (
            answering.open,
            answering.register,
            answering.execute,
            answering.parse,
            answering.ask,
            answering.pieces,
        )
    }
    while line := requests.readline():
        watch.idle_since = None
        asked = json.loads(line)
        table = pa.ipc.open_stream(requests).read_all() if asked["brings_table"] else None
        try:
            for piece in verbs[asked["verb"]](asked, table):
                _write(answers, {"piece": True})
                with pa.ipc.new_stream(answers, piece.schema) as writer:
                    writer.write_table(piece)
            _write(answers, {})
        except Exception as error:  # noqa: BLE001 - whatever it is, who asked has to be told
            _write(answers, {"error": answering.describe_error(error)})
        watch.idle_since = time.monotonic()


def _write(answers: BinaryIO, message: Mapping[str, Any]) -> None:
    answers.write(json.dumps(message).encode() + b"\n")
    answers.flush()


def main() -> None:
    """Answer what comes on stdin on stdout."""
    # PyArrow and DuckDB take NumPy where it is there, and half as long to start where it is not.
    sys.modules["numpy"] = None  # type: ignore[assignment]
    # Whatever else is printed must not stand among the answers.
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        watch = _Watch()
        watch.begin()
        with suppress(BrokenPipeError, KeyboardInterrupt):
            serve(sys.stdin.buffer, answers, watch)
            answers.flush()
        # Nothing is to be kept: memory need not be given back piece by piece.
        os._exit(0)
