"""Write answers: plain values, CSV, JSON, Parquet and Arrow files; and whole tables as Parquet, piece by piece."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from studio.arrow import convert_optional_texts
from studio.errors import ConfigError
from studio.sql.columns import BY_NAME
from studio.sql.database import Database

if TYPE_CHECKING:
    import pyarrow as pa

_SORTED_AT_MOST = 5_000_000
"""Tables of more rows are written in the order in which they come: sorting them would take all of the memory."""
_PIECE_ROWS = 8192
_ORDER = ("job", "run", "rank", "node", "position", "kind", "start_ns", "link")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def iterate_plain_rows(table: pa.Table) -> Iterator[list[Any]]:
    """Yield rows as plain values: numbers, texts, truth values, lists, None."""
    for batch in table.to_batches(_PIECE_ROWS):
        columns = [list(map(convert_to_json, column.to_pylist())) for column in batch.columns]
        yield from map(list, zip(*columns, strict=True))


def convert_to_json(value: Any) -> Any:
    r"""Return a value as JSON can hold it.

    Example:
        >>> convert_to_json(Decimal("3")), convert_to_json(float("nan")), convert_to_json(b"\x01")
        (3, None, '01')
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {str(key): convert_to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return [convert_to_json(item) for item in value]
    return str(value)


def iterate_csv(table: pa.Table) -> Iterator[str]:
    """Yield an answer as CSV. Texts that a spreadsheet would take for a formula get an apostrophe before them."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\r\n")
    writer.writerow(map(_format_cell, table.column_names))
    for row in iterate_plain_rows(table):
        writer.writerow(map(_format_cell, row))
        if stream.tell() > 1 << 16:
            yield stream.getvalue()
            stream.seek(0)
            stream.truncate()
    yield stream.getvalue()


def _format_cell(value: Any) -> Any:
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else value
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def _iterate_json(table: pa.Table) -> Iterator[str]:
    names = table.column_names
    before = "[\n"
    for row in iterate_plain_rows(table):
        yield before + json.dumps(dict(zip(names, row, strict=True)))
        before = ",\n"
    yield "\n]\n" if table.num_rows else "[]\n"


def encode_parquet(table: pa.Table) -> bytes:
    """Return an answer as a Parquet file."""
    import pyarrow.parquet as pq

    stream = io.BytesIO()
    pq.write_table(_convert_intervals(table), stream)
    return stream.getvalue()


def _encode_arrow(table: pa.Table) -> bytes:
    import pyarrow as pa

    stream = io.BytesIO()
    with pa.ipc.new_file(stream, table.schema) as writer:
        writer.write_table(table)
    return stream.getvalue()


def _convert_intervals(table: pa.Table) -> pa.Table:
    """Return an answer without intervals, which Parquet does not know: they become texts."""
    import pyarrow as pa

    for index, field in enumerate(table.schema):
        if pa.types.is_interval(field.type):
            values = [None if value is None else str(value) for value in table.column(index).to_pylist()]
            table = table.set_column(index, field.name, convert_optional_texts(values))
    return table


def _encode_pieces(pieces: Callable[[pa.Table], Iterable[str]]) -> Callable[[pa.Table], Iterable[bytes]]:
    return lambda table: (piece.encode("utf-8", "replace") for piece in pieces(table))


FORMATS: Final[Mapping[str, Callable[[pa.Table], Iterable[bytes]]]] = {
    ".csv": _encode_pieces(iterate_csv),
    ".json": _encode_pieces(_iterate_json),
    ".parquet": lambda table: [encode_parquet(table)],
    ".arrow": lambda table: [_encode_arrow(table)],
}
"""How an answer is written, by the ending of the file's name."""


def choose_writer(path: Path) -> Callable[[pa.Table], Iterable[bytes]]:
    """Return what writes an answer to a file of this name.

    Raises:
        ConfigError: Nothing is written under this ending.
    """
    writer = FORMATS.get(path.suffix.lower())
    if writer is None:
        raise ConfigError(
            f"{path}: an answer is not written as {path.suffix or 'a file without an ending'!r}",
            hint=f"Allowed endings: {', '.join(FORMATS)}.",
        )
    return writer


# ---------------------------------------------------------------------------------------------------
# Whole tables


def export_parquet(
    database: Database,
    names: Sequence[str],
    folder: Path,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[Path, int]:
    """Write tables into a folder, `<table>.parquet` each, whole or not at all; returns how many rows each has.

    Args:
        database: The jobs and runs.
        names: Tables.
        folder: Where to; made where it is not there.
        progress: Told how many tables are done.
    """
    written: dict[Path, int] = {}
    # Answers need no writer of traces.
    from studio.et.write import write_together

    with write_together() as put:
        for done, name in enumerate(names):
            if progress:
                progress("writing", done, len(names))
            path = folder / f"{name}.parquet"
            written[path] = database.count(name)
            order = [column.name for column in BY_NAME[name].columns if column.name in _ORDER]
            sorted_by = ", ".join(order) if written[path] <= _SORTED_AT_MOST else ""
            put(path, _iterate_parquet(database.batches(name, order=sorted_by)))
    if progress:
        progress("writing", len(names), len(names))
    return written


def _iterate_parquet(rows: pa.RecordBatchReader) -> Iterator[bytes]:
    """Yield a Parquet file, as much as there is after each piece of rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    class _Pieces(io.RawIOBase):
        """Bytes that were written and not yet taken."""

        def __init__(self) -> None:
            self.pieces: list[bytes] = []
            self.size = 0

        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            piece = bytes(data)
            self.pieces.append(piece)
            self.size += len(piece)
            return len(piece)

        def tell(self) -> int:
            return self.size

        def take(self) -> list[bytes]:
            written, self.pieces = self.pieces, []
            return written

    pieces = _Pieces()
    with pq.ParquetWriter(pa.PythonFile(pieces, mode="w"), rows.schema) as writer:
        for batch in rows:
            writer.write_batch(batch)
            yield from pieces.take()
    yield from pieces.take()
