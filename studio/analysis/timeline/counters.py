"""Nodes and bytes in flight over time, exact at every zoom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from studio.analysis.job.memory import HOST_MEMORY, MemoryUse
from studio.analysis.timeline.coverage import Category, Float64
from studio.analysis.timeline.gantt import Gantt
from studio.trace import Int64

Unit = Literal["nodes", "bytes", "share"]
_PIECE = 16_384
_ROUNDING = 1e-10


@dataclass(frozen=True, slots=True)
class Extent:
    """Mean and peak of a counter within a window.

    Attributes:
        mean: Its mean over the window.
        most: The highest it gets there.
        most_from_ns, most_until_ns: The first time it is that high, within the window; end exclusive.
    """

    mean: float
    most: float
    most_from_ns: int
    most_until_ns: int


class Steps:
    """A step function of time: the sum of weights of all intervals that contain a moment."""

    def __init__(self, start_ns: Int64, end_ns: Int64, weight: Float64) -> None:
        """Add up the intervals.

        Args:
            start_ns: (N,) when each weight comes.
            end_ns: (N,) when it goes.
            weight: (N,) how much it is.
        """
        time = np.concatenate([start_ns, end_ns])
        change = np.concatenate([weight, -weight])
        order = np.argsort(time, kind="stable")
        time, first = np.unique(time[order], return_index=True)
        level = np.cumsum(np.add.reduceat(change[order], first)) if len(first) else change
        self._time = time
        # Fractions that come and go leave rounding errors behind; whole numbers do not.
        rounding = 0.0 if (weight == np.floor(weight)).all() else _ROUNDING * float(level.max(initial=0))
        self._level = np.where(level > rounding, level, 0)
        self._before = np.append(0.0, np.cumsum(self._level[:-1] * np.diff(time))) if len(time) else level

    @property
    def most(self) -> float:
        """The highest value."""
        return float(self._level.max(initial=0))

    def bins(self, start_ns: int, width_ns: int, count: int) -> tuple[Float64, Float64]:
        """Return (count,) its mean and (count,) its peak in bins of `width_ns` from `start_ns` on."""
        edges = start_ns + width_ns * np.arange(count + 1)
        if not len(self._time):
            return np.zeros(count), np.zeros(count)
        mean = np.diff(self._sum_until(edges)) / width_ns
        steps = np.searchsorted(self._time, edges, side="right") - 1
        peak = np.where(steps[:-1] < 0, 0, self._level[steps[:-1]])
        inside = np.flatnonzero(steps[1:] > steps[:-1])
        if len(inside):
            # From the last step before a bin to the last one in it; a step at its very end belongs to the next.
            low = np.maximum(steps[inside], 0)
            high = np.searchsorted(self._time, edges[inside + 1])
            bounds = np.stack([low, np.maximum(high, low + 1)], axis=1).ravel()
            padded = np.append(self._level, 0)
            peak[inside] = np.maximum.reduceat(padded, bounds)[::2]
            before = steps[inside] < 0
            peak[inside[before & (high <= low)]] = 0
        return np.maximum(mean, 0), peak

    def extent(self, start_ns: int, end_ns: int) -> Extent:
        """Return mean, peak, and the time of the first peak between `start_ns` and `end_ns`."""
        time, level = self._select_steps(start_ns, end_ns)
        peak = int(np.argmax(level))
        after = np.flatnonzero(level[peak:] != level[peak])
        until = int(time[peak + after[0]]) if len(after) else end_ns
        mean = float(self.bins(start_ns, end_ns - start_ns, 1)[0][0])
        return Extent(mean, float(level[peak]), int(time[peak]), until)

    def changes(self, start_ns: int, end_ns: int) -> Iterator[tuple[int, int, float]]:
        """Yield (from, until, value) between `start_ns` and `end_ns`, without gaps."""
        time, level = self._select_steps(start_ns, end_ns)
        # What comes as something else goes changes nothing.
        kept = np.flatnonzero(np.append(True, level[1:] != level[:-1]))
        for low in range(0, len(kept), _PIECE):
            part = kept[low : low + _PIECE]
            after = int(time[kept[low + _PIECE]]) if low + _PIECE < len(kept) else end_ns
            begin = time[part].tolist()
            yield from zip(begin, [*begin[1:], after], level[part].tolist(), strict=True)

    def _select_steps(self, start_ns: int, end_ns: int) -> tuple[Int64, Float64]:
        """Return the times of steps from `start_ns` to `end_ns`, the first at the start, and their values."""
        low = int(np.searchsorted(self._time, start_ns, side="right"))
        high = max(low, int(np.searchsorted(self._time, end_ns)))
        first = self._level[low - 1] if low else 0.0
        return np.append(start_ns, self._time[low:high]), np.append(first, self._level[low:high])

    def _sum_until(self, edges: Int64) -> Float64:
        steps = np.searchsorted(self._time, edges, side="right") - 1
        total = self._before[steps] + self._level[steps] * (edges - self._time[steps])
        return np.where(steps < 0, 0, total)


@dataclass(frozen=True, slots=True)
class Series:
    """One counter.

    Attributes:
        title: What it counts.
        about: How it is worked out.
        unit: What its values are.
        steps: The values.
    """

    title: str
    about: str
    unit: Unit
    steps: Steps


def count_in_flight(gantt: Gantt) -> tuple[Series, ...]:
    """Return how many nodes and bytes all ranks have in flight; no bytes where no size is recorded."""
    copies = np.bincount(gantt.rows.track, minlength=len(gantt.coverage))
    weight = np.repeat(copies, np.diff(gantt.coverage.bounds)).astype(np.float64)
    start, end = (time - gantt.origin_ns for time in (gantt.coverage.start_ns, gantt.coverage.end_ns))
    size = span_bytes(gantt)
    talks = size > 0
    about = "nodes of all ranks that are issued and not complete"
    if gantt.calls:
        about += "; recorded calls count while they run themselves, not while what they called does"
    nodes = Series(
        "nodes in flight",
        about,
        "nodes",
        Steps(start, end, weight),
    )
    if not talks.any():
        return (nodes,)
    return (
        nodes,
        Series(
            "bytes in flight",
            "payload of the communication nodes of all ranks that are issued and not complete",
            "bytes",
            Steps(start[talks], end[talks], (weight * size)[talks]),
        ),
    )  # fmt: skip


def sum_memory_held(uses: Sequence[MemoryUse], end_ns: int, origin_ns: int = 0) -> tuple[Series, ...]:
    """Return how much memory all ranks hold: that of their devices, else that of their processors; nothing where unknown.

    Args:
        uses: The memory of each device of each rank.
        end_ns: When the timeline ends; what is held then is held until then.
        origin_ns: The time that the timeline begins at.
    """
    devices = [use for use in uses if use.device != HOST_MEMORY]
    chosen = devices or list(uses)
    if not chosen:
        return ()
    parts = []
    for use in chosen:
        start = np.maximum(np.append(0, use.time_ns - origin_ns), 0)
        level = np.append(use.before_bytes, use.bytes)
        end = np.append(start[1:], max(end_ns - origin_ns, int(start[-1])))
        kept = (level > 0) & (end > start)
        parts.append((start[kept], end[kept], level[kept].astype(np.float64)))
    start, end, level = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    where = "device memory" if devices else "memory of the processor"
    noted = all(use.noted for use in chosen)
    how = (
        "as PyTorch's allocator counts it; what it keeps in reserve is not in it"
        if noted
        else "estimated from the storages of tensors, each from its first to its last use"
    )
    how = "counted by the formulas of a generated job" if all(use.counted for use in chosen) else how
    return (Series("memory held", f"{where} that all ranks hold, {how}", "bytes", Steps(start, end, level)),)


def span_bytes(gantt: Gantt) -> Float64:
    """Return (S,) the payload of each span of the coverage, 0 for spans that do not communicate."""
    size = np.zeros(len(gantt.coverage.row))
    row_of = np.zeros(len(gantt.coverage), np.int64)
    row_of[gantt.rows.track] = np.arange(len(gantt.rows))
    for track, row in enumerate(row_of.tolist()):
        part = slice(int(gantt.coverage.bounds[track]), int(gantt.coverage.bounds[track + 1]))
        rank = gantt.rank(int(gantt.rows.rank[row]))
        size[part] = gantt.sizes_of(rank.graph)[gantt.coverage.row[part]]
    talks = np.isin(gantt.coverage.category, (Category.COLLECTIVE, Category.SEND, Category.RECEIVE))
    return np.where(talks, size, 0.0)
