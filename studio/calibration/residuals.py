"""What a fitted model leaves: residual curves, and times that are out of line with their neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from studio.calibration.tables import MeasuredTable
from studio.sim.costs.curves import Curve
from studio.sim.costs.shapes import Float64, GroupShape

LEAST_SIZES = 8
"""A table of fewer sizes has no residual curve."""
_OUT_OF_LINE = 0.25
_SCATTERS = 5.0


@dataclass(frozen=True, slots=True)
class Outlier:
    """A measured time far from what its neighbours in size let expect.

    Attributes:
        table_id: The table.
        size_bytes: The size.
        factor: Measured over expected time.
    """

    table_id: str
    size_bytes: float
    factor: float


def find_outliers(tables: Sequence[MeasuredTable], modelled: Sequence[Float64]) -> tuple[Outlier, ...]:
    """Return the outliers of tables, given what the model says of them in µs.

    A time is out of line where its residual is more than 25 % and five typical scatters from the line through those of
    both neighbours, and they agree better with each other than with it.
    """
    outliers = []
    for table, times in zip(tables, modelled, strict=True):
        if len(times) < LEAST_SIZES:
            continue
        logs = np.log(table.size_bytes)
        left = np.log(table.time_us / times)
        share = (logs[1:-1] - logs[:-2]) / np.maximum(logs[2:] - logs[:-2], 1e-12)
        middle = left[:-2] + share * (left[2:] - left[:-2])
        off = left[1:-1] - middle
        limit = max(_OUT_OF_LINE, _SCATTERS * float(np.median(np.abs(off))))
        for place in np.flatnonzero(np.abs(off) > limit).tolist():
            if abs(left[place + 2] - left[place]) < abs(off[place]):
                size = float(table.size_bytes[place + 1])
                outliers.append(Outlier(table.table_id, size, float(np.exp(off[place]))))
    return tuple(outliers)


def build_curves(
    tables: Sequence[MeasuredTable],
    modelled: Sequence[Float64],
    shapes: Sequence[GroupShape],
    outliers: Sequence[Outlier],
) -> tuple[Curve, ...]:
    """Return the residual curve of each collective and group that was measured at enough sizes; outliers are left out.

    Tables of the same collective and group share a curve: the geometric mean at each size.
    """
    out = {(outlier.table_id, outlier.size_bytes) for outlier in outliers}
    left: dict[tuple[str, GroupShape], dict[float, list[float]]] = {}
    for table, times, shape in zip(tables, modelled, shapes, strict=True):
        if len(table.size_bytes) < LEAST_SIZES:
            continue
        points = left.setdefault((table.collective, shape), {})
        for size, factor in zip(table.size_bytes, np.log(table.time_us / times), strict=True):
            if (table.table_id, float(size)) not in out:
                points.setdefault(float(size), []).append(float(factor))
    curves = []
    for (kind, shape), points in left.items():
        sizes = tuple(sorted(points))
        factors = tuple(round(float(np.exp(np.mean(points[size]))), 4) for size in sizes)
        curves.append(Curve(kind, shape, sizes, factors))
    return tuple(curves)
