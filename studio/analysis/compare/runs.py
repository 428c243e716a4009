"""Compare two runs: how much longer one takes, in which part of its time, and because of which nodes.

A run is a recording or a simulation, of one job or of two. Differences are B minus A, so swapping the runs turns every
sign. What the finish grew by is shared out by a waterfall that adds up to the nanosecond: both finishes are taken apart
by `analysis.job.ledger` on one rank, the same in both, or in the mean of all ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from studio.analysis.compare.alignment import Alignment, align
from studio.analysis.compare.changes import NodeAlone, NodeChange, find_alone, find_changes
from studio.analysis.compare.operations import Operation, compare_operations
from studio.analysis.compare.sides import Carried, Side
from studio.analysis.compare.waterfall import (
    Basis,
    Use,
    Waterfall,
    build_waterfall,
    compute_share,
    compute_uses,
    find_busiest,
)
from studio.analysis.job.ledger import AFTER_FINISH, EXPOSED, IDLE, NOT_TOLD_APART, WORK, PartTimes
from studio.notebook import build_html_table, format_parts, format_record
from studio.trace import NONE, Float64, Int64
from studio.units import format_counted, format_ns


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of both runs.

    Attributes:
        key: Stable short name.
        a, b: Its values, None where a run has none.
        unit: What they count.
        share: Difference as a part of that of the finish; None for what is no time of ranks, and where the finishes are
            equal.
    """

    key: str
    a: float | None
    b: float | None
    unit: Literal["ns", "bytes", "share"] = "ns"
    share: float | None = None

    __repr__ = format_record

    @property
    def difference(self) -> float | None:
        """B minus A, None where either is missing."""
        return None if self.a is None or self.b is None else self.b - self.a


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs side by side.

    Attributes:
        a, b: The runs.
        figures: Finish, and where the time of a rank goes in the mean; of a device, where ranks have several.
        dimensions, links: Busy time, then bytes, then load, of each part of the networks; links that differ most first.
        busiest: The numbers of the ranks that wait and idle least in A and in B, -1 where none has times.
        waterfalls: From A's finish to B's, by basis; on one rank only where the same one waits least in both: the difference of
            two ranks is none of the runs.
        alignment: Which node of A is which of B.
        slower, faster: Nodes of both that changed most, at most `MOST_LISTED`.
        added, removed: Nodes that only B, and only A, has; the longest first, likewise.
        added_count, removed_count: How many there are, on all ranks that both sides have.
        operations: All operations; those that changed most first.
        has_devices: Whether ranks of A, and of B, have several devices: their times are those of devices in the mean.
    """

    a: Side
    b: Side
    figures: tuple[Figure, ...]
    dimensions: tuple[Figure, ...]
    links: tuple[Figure, ...]
    busiest: tuple[int, int]
    waterfalls: tuple[Waterfall, ...]
    alignment: Alignment
    slower: tuple[NodeChange, ...]
    faster: tuple[NodeChange, ...]
    added: tuple[NodeAlone, ...]
    removed: tuple[NodeAlone, ...]
    added_count: int
    removed_count: int
    operations: tuple[Operation, ...]
    has_devices: tuple[bool, bool] = (False, False)

    def __repr__(self) -> str:
        """Return it in a line."""
        finishes = f"finish {format_ns(self.a.makespan_ns)} → {format_ns(self.b.makespan_ns)}"
        return format_parts(
            "Comparison",
            [
                finishes,
                f"{format_counted(self.added_count, 'node')} added",
                f"{self.removed_count:,} removed",
            ],
        )

    def _repr_html_(self) -> str:
        """Return its figures, and the nodes that changed most, as tables."""

        def format_time(value: float | None) -> str:
            return "–" if value is None else format_ns(value)

        figures = [
            (
                figure.key,
                format_time(figure.a),
                format_time(figure.b),
                format_time(figure.difference),
            )
            for figure in self.figures
        ]
        return build_html_table(repr(self), (f"mean of a {self.whose}", "A", "B", "B − A"), figures)

    @property
    def whose(self) -> str:
        """Whose time is told in the mean: a rank's, or a device's where ranks have several."""
        return "device" if any(self.has_devices) else "rank"

    @property
    def unranked(self) -> str:
        """Why the sides are not ranked: they are simulations of different models; "" where they are ranked."""
        a, b = self.a.model, self.b.model
        if not a or not b or a == b:
            return ""
        return (
            f"They are of different models ({a}; {b}), so neither is said to be faster: the difference is that of the "
            "models as well. Simulate both with one model to compare them."
        )

    @property
    def difference_ns(self) -> int:
        """How much later B finishes."""
        return self.b.makespan_ns - self.a.makespan_ns

    def waterfall(self, basis: Basis) -> Waterfall:
        """Return the waterfall of a basis; that of the mean where another rank waits least in B than in A."""
        return next((fall for fall in self.waterfalls if fall.basis == basis), self.waterfalls[-1])


def compare(a: Side, b: Side) -> Comparison:
    """Compare two runs.

    Args:
        a: What is compared with.
        b: What is compared.
    """
    parts = compute_uses(a, b)
    alignment = align(a.trace, b.trace)
    grew = b.makespan_ns - a.makespan_ns
    busiest = find_busiest(a, b, parts)
    bases: tuple[Basis, ...] = ("busiest", "mean") if busiest[0] == busiest[1] != NONE else ("mean",)
    slower, faster = find_changes(a, b, alignment)
    added, added_count = find_alone(b, alignment, of_b=True)
    removed, removed_count = find_alone(a, alignment, of_b=False)
    return Comparison(
        a,
        b,
        _build_figures(a, b, parts, grew),
        _compare_carried(a.dimensions, b.dimensions),
        _compare_carried(a.links, b.links, most_changed_first=True),
        busiest,
        tuple(build_waterfall(a, b, parts, basis, busiest[0]) for basis in bases),
        alignment,
        slower,
        faster,
        added,
        removed,
        added_count,
        removed_count,
        compare_operations(a, b),
        (parts[0].has_devices, parts[1].has_devices),
    )


def _build_figures(a: Side, b: Side, parts: tuple[Use, Use], grew: int) -> tuple[Figure, ...]:
    means = [_compute_means(part.times) for part in parts]
    finish = Figure("finish", a.makespan_ns, b.makespan_ns, share=compute_share(grew, grew))
    rest = (
        Figure(key, means[0][key], means[1][key], share=compute_share(means[1][key] - means[0][key], grew))
        for key in means[0]
    )
    return finish, *rest


def _compute_means(times: PartTimes) -> dict[str, float]:
    """Return where the time of a rank goes on average, in ns: parts, each after what they add up to."""
    absent = NOT_TOLD_APART if times.is_recording else ("communication",)
    columns: dict[str, Int64] = {part: times.of(part) for part in WORK}
    columns["communicating"] = times.communicating_ns
    for key, column, parts in (("exposed", times.exposed_ns, EXPOSED), ("idle", times.idle_ns, IDLE)):
        columns[key] = column
        for part in parts:
            if part not in absent:
                columns[part] = times.of(part)
    columns[AFTER_FINISH] = times.after_finish_ns
    return {key: float(column.mean()) for key, column in columns.items()}


def _compare_carried(a: Carried, b: Carried, *, most_changed_first: bool = False) -> tuple[Figure, ...]:
    """Compare busy time, bytes and load of every part that either network has."""
    places = [{name: place for place, name in enumerate(side.names)} for side in (a, b)]
    names = list(dict.fromkeys((*a.names, *b.names)))

    def get_value(side: int, column: Int64 | Float64, name: str) -> float | None:
        place = places[side].get(name)
        return None if place is None or np.isnan(column[place]) else float(column[place])

    busy = [(name, get_value(0, a.busy_ns, name), get_value(1, b.busy_ns, name)) for name in names]
    if most_changed_first:
        busy.sort(key=lambda entry: -abs((entry[2] or 0) - (entry[1] or 0)))
    figures = []
    for name, before, after in busy:
        # Links send at the same time: their differences are no shares of that of the finish.
        figures.append(Figure(name, before, after))
        figures.append(Figure(name, get_value(0, a.bytes, name), get_value(1, b.bytes, name), "bytes"))
        figures.append(Figure(name, get_value(0, a.load, name), get_value(1, b.load, name), "share"))
    return tuple(figures)
