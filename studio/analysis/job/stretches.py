"""Time in stretches: lines that are cut, without gaps, where what goes on in them changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from studio.distinct import find_distinct
from studio.notebook import format_record
from studio.trace import NONE, Bool, Float64, Int64, UInt8

_MOST_NS = 1 << 62


@dataclass(frozen=True, slots=True)
class Marked:
    """Intervals of some lines that bear a mark; those that overlap in a line count as one, and bear equal marks.

    S intervals in any order.

    Attributes:
        line: (S,) which line.
        start, end: (S,) end exclusive, none of them empty or below 0.
        mark: (S,) what it is.
    """

    line: Int64
    start: Int64
    end: Int64
    mark: Int64

    __repr__ = format_record


@dataclass(frozen=True, slots=True)
class Stretches:
    """What goes on in each line.

    L lines, K stretches by line and start.

    Attributes:
        bounds: (L+1,) line l has the stretches bounds[l]:bounds[l+1], one where the other ends.
        start, end: (K,) end exclusive; those of a line begin at 0.
        kind: (K,) what goes on.
    """

    bounds: Int64
    start: Int64
    end: Int64
    kind: Int64 | UInt8

    __repr__ = format_record

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def of(self, line: int) -> tuple[Int64, Int64, Int64 | UInt8]:
        """Return start, end and kind of the stretches of a line."""
        part = slice(int(self.bounds[line]), int(self.bounds[line + 1]))
        return self.start[part], self.end[part], self.kind[part]

    def sums(self, start: int, end: int, kinds: int) -> Int64:
        """Return (L, kinds) the time of each kind between two moments."""
        time = np.clip(self.end, start, end) - np.clip(self.start, start, end)
        code = np.repeat(np.arange(len(self)), np.diff(self.bounds)) * kinds + self.kind
        total = np.zeros(len(self) * kinds, np.int64)
        np.add.at(total, code, time)
        return total.reshape(len(self), kinds)

    def until(self, line: Int64, moment: Int64, kinds: int) -> Int64:
        """Return (Q, kinds) the time of each kind before a moment of a line.

        Args:
            line: (Q,) which line.
            moment: (Q,) any moment; a line has no time before 0 or after its end.
            kinds: How many kinds there are.
        """
        sums = np.zeros((len(line), kinds), np.int64)
        place = self.place(line, moment)
        inside = np.flatnonzero(place >= self.bounds[line])
        place, base = place[inside], self.bounds[line[inside]]
        part = np.minimum(moment[inside], self.end[place]) - self.start[place]
        length = self.end - self.start
        for kind in range(kinds):
            is_kind = self.kind == kind
            total = np.append(0, np.cumsum(np.where(is_kind, length, 0)))
            sums[inside, kind] = total[place] - total[base] + np.where(is_kind[place], part, 0)
        return sums

    def place(self, line: Int64, moment: Int64) -> Int64:
        """Return (Q,) the last stretch of a line that begins at a moment or before; before the line's first where none does."""
        apart = int(self.end.max(initial=0)) + 1
        moment = np.clip(moment, -1, apart - 1)
        if apart * len(self) <= _MOST_NS:
            begin = np.repeat(np.arange(len(self)) * apart, np.diff(self.bounds)) + self.start
            places: Int64 = np.searchsorted(begin, line * apart + moment, side="right") - 1
            return np.maximum(places, self.bounds[line] - 1)
        places = np.zeros(len(line), np.int64)
        for number in find_distinct(line).tolist():
            low, high = self.bounds[number : number + 2].tolist()
            asked = line == number
            places[asked] = low - 1 + np.searchsorted(self.start[low:high], moment[asked], side="right")
        return places

    def shares(self, edges: Float64, kinds: int, weight: Float64) -> Float64:
        """Return (kinds, B) how much of the bins between B + 1 rising edges each kind takes, in the mean of lines.

        Args:
            edges: (B+1,) where bins begin and end.
            kinds: How many there are.
            weight: (L,) what each line counts.
        """
        width = np.diff(edges)
        heavy = np.repeat(weight, np.diff(self.bounds))
        until = np.zeros((kinds, len(edges)))
        for kind in range(kinds):
            is_kind = self.kind == kind
            for times, sign in ((self.start[is_kind], 1), (self.end[is_kind], -1)):
                until[kind] += sign * _compute_ramps(times, heavy[is_kind], edges)
        shares: Float64 = np.diff(until, axis=1) / np.where(width > 0, width, 1) / max(float(weight.sum()), 1)
        return np.clip(shares, 0, 1)


def _compute_ramps(times: Int64, weight: Float64, edges: Float64) -> Float64:
    """Return for each edge the weighted time since those of the times that lie before it."""
    order = np.argsort(times, kind="stable")
    before = np.searchsorted(times[order], edges)
    count = np.append(0.0, np.cumsum(weight[order]))[before]
    total = np.append(0.0, np.cumsum(weight[order] * times[order]))[before]
    ramps: Float64 = edges * count - total
    return ramps


def join_stretches(
    layers: tuple[Marked, ...], finish: Int64, decide: Callable[[tuple[Int64, ...]], Int64]
) -> Stretches:
    """Return what goes on in each line from 0 to its finish.

    Args:
        layers: What may be under way.
        finish: (L,) where each line ends; nothing is after it.
        decide: Returns (K,) the kind of each stretch, given for each layer (K,) its mark there, -1 for none.
    """
    lines = len(finish)
    apart = int(finish.max(initial=0)) + 1
    if lines > 1 and apart * lines > _MOST_NS:
        return _merge_parts(_join_each_line(layers, finish, decide))
    # Each line's times are moved beyond those of the line before, so that all are cut at once.
    shift = np.arange(lines) * apart
    unions = [_merge_intervals(layer, shift) for layer in layers]
    cuts = np.concatenate([shift, shift + finish, *(side for union in unions for side in union[:2])])
    # Sorting runs that are sorted takes a tenth of the time of `np.unique`.
    cuts.sort(kind="stable")
    cuts = cuts[np.append(True, cuts[1:] != cuts[:-1])[: len(cuts)]]
    line = cuts // apart
    inside = cuts - line * apart < finish[line] if lines else cuts[:0] > 0
    following = np.append(cuts[1:], 0)[inside]
    cuts, line = cuts[inside], line[inside]
    kind = decide(tuple(_find_marks(union, cuts) for union in unions))
    opens = np.append(True, (kind[1:] != kind[:-1]) | (line[1:] != line[:-1]))[: len(kind)]
    closes = np.append(opens[1:], True)[: len(kind)]
    begin, end, line = cuts[opens] - shift[line[opens]], following[closes] - shift[line[opens]], line[opens]
    bounds = np.searchsorted(line, np.arange(lines + 1))
    return Stretches(bounds.astype(np.int64), begin, end, kind[opens])


def _join_each_line(
    layers: tuple[Marked, ...], finish: Int64, decide: Callable[[tuple[Int64, ...]], Int64]
) -> Iterator[Stretches]:
    """Yield each line for itself: together their times would leave the range of integers."""
    for line in range(len(finish)):
        masks = [layer.line == line for layer in layers]
        yield join_stretches(
            tuple(_select_marks(layer, chosen) for layer, chosen in zip(layers, masks, strict=True)),
            finish[line : line + 1],
            decide,
        )


def _select_marks(layer: Marked, chosen: Bool) -> Marked:
    line = np.zeros(int(chosen.sum()), np.int64)
    return Marked(line, layer.start[chosen], layer.end[chosen], layer.mark[chosen])


def _merge_parts(parts: Iterator[Stretches]) -> Stretches:
    pieces = list(parts)
    bounds = np.cumsum([0, *(len(part.start) for part in pieces)])
    start, end = np.concatenate([(part.start, part.end) for part in pieces], axis=1)
    return Stretches(bounds, start, end, np.concatenate([part.kind for part in pieces]))


_Union = tuple[Int64, Int64, Int64]


def _merge_intervals(layer: Marked, shift: Int64) -> _Union:
    """Return start, end and mark of the disjoint intervals that a layer covers, by start, moved by line."""
    moved = shift[layer.line]
    start, end, mark = layer.start + moved, layer.end + moved, layer.mark
    order = np.argsort(start, kind="stable")
    start, end, mark = start[order], np.maximum.accumulate(end[order]), mark[order]
    if not len(start):
        return start, end, mark
    # What begins where the other ends joins it, unless it bears another mark.
    opens = np.append(True, (start[1:] > end[:-1]) | (mark[1:] != mark[:-1]))
    return start[opens], end[np.append(opens[1:], True)], mark[opens]


def _find_marks(union: _Union, moments: Int64) -> Int64:
    start, end, mark = union
    place = np.searchsorted(start, moments, side="right") - 1
    if not len(start):
        return np.full(len(moments), NONE, np.int64)
    inside = (place >= 0) & (moments < end[place])
    return np.where(inside, mark[place], NONE)
