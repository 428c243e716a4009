"""Results of a sweep as a Parquet file: the same bytes for the same sweep, however often it was interrupted."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from studio.arrow import convert_optional_lists, convert_optional_numbers, convert_optional_texts
from studio.decoding import build_decoder
from studio.errors import StudioError
from studio.files import open_private
from studio.sweep.running import MEANS, Row
from studio.sweep.space import Axis, Space

_DOUBTFUL = build_decoder(dict[str, str])


def build_columns(space: Space, rows: Sequence[Row]) -> dict[str, list[Any]]:
    """Return results as columns: the point, varied keys, finish, means of parts, ranks, model, cost, error, doubt, and what is doubtful.

    That is a JSON object, a sentence by the code of the doubt.

    Keys whose values are all whole numbers are int64, or else float64 where all are numbers; others are text.
    """
    points = [space.point(row.index) for row in rows]
    columns: dict[str, list[Any]] = {"index": [row.index for row in rows]}
    for axis in space.axes:
        kind = _infer_kind(axis)
        columns[axis.key] = [kind(point[axis.key]) for point in points]
    columns["finish_ns"] = [row.finish_ns for row in rows]
    for part in MEANS:
        columns[f"{part}_ns"] = [row.parts_ns.get(part) for row in rows]
    columns["ranks"] = [row.ranks or None for row in rows]
    columns["system_npus"] = [row.npus or None for row in rows]
    columns["run_model"] = [row.model or None for row in rows]
    columns["port_gb_per_s"] = [list(row.port_gb_per_s) or None for row in rows]
    columns["cost"] = [row.cost for row in rows]
    columns["error"] = [row.error or None for row in rows]
    columns["doubt"] = [row.doubt or None for row in rows]
    columns["doubtful"] = [
        json.dumps(dict(row.doubtful), ensure_ascii=False) if row.doubtful else None for row in rows
    ]
    return columns


def _infer_kind(axis: Axis) -> type[int] | type[float] | type[str]:
    for kind in (int, float):
        try:
            for value in axis.values:
                kind(value)
        except ValueError:
            continue
        return kind
    return str


def _build_array(kind: type, values: list[Any]) -> Any:
    """Return a column for Arrow, made without pandas: see `studio.arrow`."""
    if kind is str:
        return convert_optional_texts(values)
    if kind is list:
        return convert_optional_lists(values)
    return convert_optional_numbers(values, whole=kind is int)


def write_parquet(path: Path, space: Space, rows: Sequence[Row]) -> None:
    """Write results; the file appears whole, in place of an earlier one.

    Raises:
        StudioError: It cannot be written.
    """
    columns = build_columns(space, rows)
    kinds: dict[str, type] = {axis.key: _infer_kind(axis) for axis in space.axes}
    kinds |= dict.fromkeys(("index", "finish_ns", "ranks", "system_npus"), int)
    kinds |= dict.fromkeys(("run_model", "error", "doubt", "doubtful"), str) | {"port_gb_per_s": list}
    write_columns(
        path, {name: _build_array(kinds.get(name, float), values) for name, values in columns.items()}
    )


def write_columns(path: Path, columns: Mapping[str, Any]) -> None:
    """Write columns of Arrow as a Parquet file, which appears whole, in place of an earlier one.

    Raises:
        StudioError: It cannot be written.
    """
    import pyarrow as pa
    from pyarrow import parquet

    table = pa.Table.from_arrays(list(columns.values()), names=list(columns))
    aside = path.with_name(f"{path.name}.tmp")
    try:
        with open_private(aside) as file:
            parquet.write_table(table, file, compression="zstd", version="2.6", store_schema=False)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise StudioError(
            f"{path} cannot be written: {error.strerror or error}", hint="Name another file."
        ) from error


def read_rows(path: Path) -> list[Row]:
    """Read the results that `write_parquet` wrote.

    Raises:
        StudioError: The file cannot be read, or is none of a sweep.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            table = file.read()
        wanted = (*(f"{part}_ns" for part in MEANS), *_TOLD)
        columns = {name: table.column(name).to_pylist() for name in wanted}
        # Sweeps of earlier releases say nothing of doubts.
        doubts, doubtful = (
            table.column(name).to_pylist() if name in table.column_names else [None] * len(table)
            for name in ("doubt", "doubtful")
        )
        why = [_DOUBTFUL(text) if text else {} for text in doubtful]
    except (OSError, pa.ArrowException, KeyError, msgspec.MsgspecError) as error:
        raise StudioError(
            f"{path.name} is no file of results: {str(error)[:120]}", hint="Run the sweep again."
        ) from error
    return [
        Row(
            index,
            columns["finish_ns"][at],
            {part: value for part in MEANS if (value := columns[f"{part}_ns"][at]) is not None},
            columns["ranks"][at] or 0,
            columns["system_npus"][at] or 0,
            columns["run_model"][at] or "",
            tuple(columns["port_gb_per_s"][at] or ()),
            columns["cost"][at],
            columns["error"][at] or "",
            doubts[at] or "",
            why[at],
        )
        for at, index in enumerate(columns["index"])
    ]


_TOLD = ("index", "finish_ns", "ranks", "system_npus", "run_model", "port_gb_per_s", "cost", "error")
