"""Results of a sweep as a Parquet file: the same bytes for the same sweep, however often it was interrupted."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from studio.errors import StudioError
from studio.files import open_private
from studio.sweep.running import MEANS, Row
from studio.sweep.space import Axis, Space


def columns_of(space: Space, rows: Sequence[Row]) -> dict[str, list[Any]]:
    """Return results as columns: the point, varied keys, finish, means of parts, ranks, model, cost, error.

    Keys whose values are all whole numbers are int64, or else float64 where all are numbers; others are text.
    """
    points = [space.point(row.index) for row in rows]
    columns: dict[str, list[Any]] = {"index": [row.index for row in rows]}
    for axis in space.axes:
        kind = _kind(axis)
        columns[axis.key] = [kind(point[axis.key]) for point in points]
    columns["finish_ns"] = [row.finish_ns for row in rows]
    for part in MEANS:
        columns[f"{part}_ns"] = [row.parts_ns.get(part) for row in rows]
    columns["ranks"] = [row.ranks or None for row in rows]
    columns["run_model"] = [row.model or None for row in rows]
    columns["cost"] = [row.cost for row in rows]
    columns["error"] = [row.error or None for row in rows]
    return columns


def _kind(axis: Axis) -> type[int] | type[float] | type[str]:
    for kind in (int, float):
        try:
            for value in axis.values:
                kind(value)
        except ValueError:
            continue
        return kind
    return str


def write_parquet(path: Path, space: Space, rows: Sequence[Row]) -> None:
    """Write results; the file appears whole, in place of an earlier one.

    Raises:
        StudioError: It cannot be written.
    """
    import pyarrow as pa
    from pyarrow import parquet

    whole, real, text = pa.int64(), pa.float64(), pa.string()
    types = {int: whole, float: real, str: text}
    fields = [pa.field("index", whole, nullable=False)]
    fields += [pa.field(axis.key, types[_kind(axis)]) for axis in space.axes]
    fields += [pa.field("finish_ns", whole)]
    fields += [pa.field(f"{part}_ns", real) for part in MEANS]
    fields += [
        pa.field("ranks", whole),
        pa.field("run_model", text),
        pa.field("cost", real),
        pa.field("error", text),
    ]
    table = pa.Table.from_pydict(columns_of(space, rows), schema=pa.schema(fields))
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
