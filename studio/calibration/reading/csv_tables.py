"""CSV files of measured collectives: one row a size, one or many tables a file.

The columns of `MeasuredTable` are all known, and the usual spellings of size, time and number of ranks with their units in
brackets or after an underscore. What a file has no column for, the user may say.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from studio.calibration.reading.benchmarks import infer_ranks
from studio.calibration.reading.given import (
    COLLECTIVES,
    Given,
    Tables,
    infer_shape,
    match_collective,
    note_grouped_launches,
    quote_text,
)
from studio.calibration.tables import MeasuredTable, get_gpus_per_thread, parse_machine
from studio.errors import TraceFormatError
from studio.units import format_counted

_SIZE = re.compile(r"(?:message|msg|buffer)?(?:size|bytes)(bytes|b|kib|kb|mib|mb|gib|gb)?")
_TIME = re.compile(r"(?:time|latency|duration|avgtime|outofplacetime)(us|µs|ns|ms|s)?")
_BYTES = {
    "": 1,
    "bytes": 1,
    "b": 1,
    "kb": 1e3,
    "mb": 1e6,
    "gb": 1e9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}
_MICROSECONDS = {"": 1.0, "us": 1.0, "µs": 1.0, "ns": 1e-3, "ms": 1e3, "s": 1e6}
_OTHER = {
    "tableid": "table_id", "table": "table_id", "run": "table_id",
    "source": "source", "hardware": "hardware", "gpu": "hardware", "machine": "machine",
    "gpuspernode": "gpus_per_node", "gpusperthread": "gpus_per_thread", "nodes": "nodes", "numnodes": "nodes",
    "ranks": "ranks", "nranks": "ranks", "numgpus": "ranks", "gpus": "ranks",
    "interconnect": "interconnect", "nominalgbytespers": "nominal_gbytes_per_s",
    "libraryversion": "library_version", "ncclversion": "library_version",
    "collective": "collective", "operation": "collective", "op": "collective", "coll": "collective",
    "dtype": "dtype", "type": "dtype", "datatype": "dtype",
    "algbwgbps": "algbw", "algbw": "algbw", "algbwgbs": "algbw", "busbwgbps": "busbw", "busbw": "busbw", "busbwgbs": "busbw",
}  # fmt: skip
_SAYS_TABLE = (
    "table_id", "source", "hardware", "gpus_per_node", "nodes", "ranks", "interconnect", "nominal_gbytes_per_s",
    "library_version", "collective", "dtype", "machine", "gpus_per_thread",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Columns:
    """Which column holds what: places by meaning, and what turns size and time into bytes and microseconds."""

    at: Mapping[str, int]
    bytes_each: float
    us_each: float
    count: int


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    texts: Mapping[str, str]
    size: float
    time_us: float
    algbw: float
    busbw: float


def is_csv(text: str) -> bool:
    """Whether the first line of a text names columns for sizes and times."""
    return _match_columns(_split_cells(text.split("\n", 1)[0])) is not None


def read_csv_tables(name: str, text: str, given: Given) -> Tables:
    """Read every table of a CSV file.

    Args:
        name: The file.
        text: Its content.
        given: What the user says of tables that do not say it.

    Raises:
        TraceFormatError: A value is none, or the file does not say what was measured, and neither does the user.
    """
    columns = _match_columns(_split_cells(text.split("\n", 1)[0]))
    assert columns is not None
    empty = 0
    rows: dict[tuple[str, ...], list[_Row]] = {}
    for row in _iterate_rows(name, text, columns):
        if row.size == 0:
            empty += 1
        else:
            # Rows of one name are one table; without names, rows that agree in all else that is said.
            key = (row.texts["table_id"],) if row.texts.get("table_id") else tuple(row.texts.values())
            rows.setdefault(key, []).append(row)
    if not rows:
        raise TraceFormatError(
            f"{name}: names of columns, and no row; expected one row a size",
            hint="Add a row for each size, or leave the file out.",
        )
    tables = _name_tables([_build_table(name, group, given) for group in rows.values()], name)
    notes = []
    if empty:
        notes.append(
            f"{name}: {format_counted(empty, 'line')} left out: rows of size 0, in which nothing is sent."
        )
    notes += note_grouped_launches(name, tables)
    return Tables(tuple(tables), tuple(notes))


def _split_cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line.lstrip("\ufeff")], delimiter=_choose_delimiter(line)), [])
    except csv.Error:
        # A field longer than any name of a column.
        return []


def _choose_delimiter(line: str) -> str:
    return max((",", ";", "\t"), key=line.count)


def _match_columns(names: Sequence[str]) -> _Columns | None:
    """Return the meaning of each column; None where sizes or times are missing."""
    at: dict[str, int] = {}
    units = {"size": 1.0, "time": 1.0}
    for place, column in enumerate(names):
        word = re.sub(r"[\s_()\[\]./#-]", "", column.strip().lower())
        for meaning, pattern, scale in (("size", _SIZE, _BYTES), ("time", _TIME, _MICROSECONDS)):
            match = pattern.fullmatch(word)
            # The first of a kind counts: times out of place stand before those in place.
            if match and meaning not in at:
                at[meaning], units[meaning] = place, scale[match[1] or ""]
        if word in _OTHER:
            at.setdefault(_OTHER[word], place)
    return _Columns(at, units["size"], units["time"], len(names)) if {"size", "time"} <= set(at) else None


def _iterate_rows(name: str, text: str, columns: _Columns) -> Iterator[_Row]:
    reader = csv.reader(text.splitlines(keepends=True), delimiter=_choose_delimiter(text.split("\n", 1)[0]))
    next(reader)
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise TraceFormatError(
                f"{name}: line {line}: {error}", hint="Correct that line, or write the table as CSV again."
            ) from error
        if cells is None:
            return
        if any(cell.strip() for cell in cells):
            yield _parse_row(f"{name}: line {line}", line, cells, columns)


def _parse_row(place: str, line: int, cells: Sequence[str], columns: _Columns) -> _Row:
    if len(cells) != columns.count:
        raise TraceFormatError(
            f"{place}: {format_counted(len(cells), 'value')}; allowed: {columns.count}, as the first line has names"
        )
    stated = {key: cells[columns.at[key]].strip() for key in _SAYS_TABLE if key in columns.at}
    size = _parse_number(place, "size", cells[columns.at["size"]]) * columns.bytes_each
    time_us = _parse_number(place, "time", cells[columns.at["time"]]) * columns.us_each
    if time_us <= 0:
        time_text = quote_text(cells[columns.at["time"]])
        raise TraceFormatError(f"{place}: time {time_text}; allowed: a number above 0")
    rates = (
        _parse_number(place, key, cells[columns.at[key]] or "0") if key in columns.at else 0.0
        for key in ("algbw", "busbw")
    )
    return _Row(line, stated, size, time_us, *rates)


def _parse_number(place: str, column: str, text: str) -> float:
    try:
        value = float(text.replace("_", "x"))
    except ValueError:
        value = float("nan")
    if not 0 <= value < float("inf"):
        raise TraceFormatError(f"{place}: {column} {quote_text(text)}; allowed: a number, not negative")
    return value


def _build_table(name: str, rows: Sequence[_Row], given: Given) -> MeasuredTable:
    first = rows[0]
    place = f"{name}: line {first.line}"
    for row in rows:
        for key, value in row.texts.items():
            if value != first.texts[key]:
                raise TraceFormatError(
                    f"{name}: line {row.line}: {key} {quote_text(value)} in table {quote_text(first.texts['table_id'])}; "
                    f"allowed: {quote_text(first.texts[key])}, as in line {first.line}",
                    hint="All rows of a table are of one machine, collective and element type.",
                )
    stated = first.texts
    named = stated.get("collective", "")
    collective = match_collective(named) if named else given.collective
    if not collective:
        raise TraceFormatError(
            f"{place}: collective {quote_text(named)}; allowed: {', '.join(COLLECTIVES)}",
            hint="" if named else "Give --collective, such as --collective all_reduce.",
        )
    per_node, nodes = _infer_shape(place, rows, collective, given)
    table_id = stated.get("table_id", "")
    hardware = stated.get("hardware", "")
    rate = stated.get("nominal_gbytes_per_s", "")
    source = stated.get("source") or name
    per_thread = _parse_count(place, stated, "gpus_per_thread") or get_gpus_per_thread(source, per_node)
    if per_thread > per_node:
        raise TraceFormatError(
            f"{place}: gpus_per_thread {per_thread}; allowed: 1 to {per_node}, as a node has GPUs"
        )
    return MeasuredTable(
        table_id=table_id,
        source=source,
        hardware=hardware,
        gpus_per_node=per_node,
        nodes=nodes,
        interconnect=stated.get("interconnect", ""),
        nominal_gbytes_per_s=_parse_number(place, "nominal_gbytes_per_s", rate) if rate else float("nan"),
        library_version=stated.get("library_version", ""),
        collective=collective,
        dtype=stated.get("dtype", ""),
        size_bytes=np.array([row.size for row in rows]),
        time_us=np.array([row.time_us for row in rows]),
        machine=stated.get("machine") or (parse_machine(table_id) if table_id else hardware),
        gpus_per_thread=per_thread,
    )


def _infer_shape(place: str, rows: Sequence[_Row], collective: str, given: Given) -> tuple[int, int]:
    """Return GPUs per node and nodes, from columns, else from the user with the ranks that the bandwidths tell."""
    stated = rows[0].texts
    per_node, nodes, ranks = (_parse_count(place, stated, key) for key in ("gpus_per_node", "nodes", "ranks"))
    if per_node is not None and nodes is not None:
        return per_node, nodes
    if ranks is None:
        own = [row.algbw or row.size / row.time_us / 1e3 for row in rows]
        ranks = infer_ranks(collective, own, [row.busbw for row in rows])
    given = replace(
        given,
        gpus_per_node=per_node or given.gpus_per_node,
        nodes=nodes or given.nodes,
    )
    return infer_shape(place, given, ranks)


def _parse_count(place: str, stated: Mapping[str, str], key: str) -> int | None:
    text = stated.get(key, "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 2**24):
        raise TraceFormatError(f"{place}: {key} {quote_text(text)}; allowed: a whole number from 1")
    return int(text)


def _name_tables(tables: Sequence[MeasuredTable], name: str) -> list[MeasuredTable]:
    """Return the tables, those without names with names from the file."""
    stem = name.rsplit("/", 1)[-1].rsplit(".", 1)[0]
    names = (f"{stem}_n{table.nodes}_g{table.gpus_per_node}_{table.collective}" for table in tables)
    return [
        table if table.table_id else replace(table, table_id=own)
        for table, own in zip(tables, names, strict=True)
    ]


COLUMNS = (
    "table_id", "source", "hardware", "gpus_per_node", "nodes", "interconnect", "nominal_gbytes_per_s",
    "library_version", "collective", "dtype", "machine", "gpus_per_thread", "size_bytes", "time_us",
)  # fmt: skip
"""The columns that are written."""


def write_csv(tables: Sequence[MeasuredTable]) -> str:
    """Return tables as CSV, which `read_csv_tables` reads."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for table in tables:
        rate = table.nominal_gbytes_per_s
        cells = [getattr(table, name) for name in COLUMNS[:-2]]
        cells[COLUMNS.index("nominal_gbytes_per_s")] = "" if np.isnan(rate) else f"{rate:g}"
        for size, time_us in zip(table.size_bytes.tolist(), table.time_us.tolist(), strict=True):
            writer.writerow([*cells, f"{size:.0f}", repr(time_us)])
    return stream.getvalue()
