"""Find load imbalance: figures of collectives by rank, how uneven each row is, and what evens it out.

A row is one collective with the ranks of its group. Where parallel groups do the same side by side (every tensor
parallel group its own n-th all-reduce, say), their collectives share a row, so that a row spans all ranks. Ranks are
compared within their group only: what one group moves could not be moved by another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from studio.analysis.collectives.members import Members
from studio.analysis.collectives.nccl_tests import compute_bus_factors, compute_whole_bytes
from studio.analysis.numbering import number_by_first
from studio.trace import NONE, Bool, Float64, Int64, label_collective

Metric = Literal["size", "duration", "waiting", "lateness", "algorithm", "bus"]
METRICS: tuple[Metric, ...] = get_args(Metric)
UNTIMED: tuple[Metric, ...] = ("size",)
"""Metrics that need no times."""
SIZED: tuple[Metric, ...] = ("size", "algorithm", "bus")
"""Metrics that need sizes."""
Grouping = Literal["none", "group", "type", "step", "name"]
GROUPINGS: tuple[Grouping, ...] = get_args(Grouping)
Measure = Literal["max", "variation", "gini", "excess"]

WORLD_TITLE = "all ranks"
"""What the section of the group of all ranks is called."""
_EVEN = 0.005
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a heatmap: which collectives each stands for, and the sections they lie in.

    L rows, C collectives.

    Attributes:
        of: (C,) row of each collective.
        first: (L,) the first collective of each row: it tells type, name, group and step.
        section: (L,) index into `sections`.
        sections: What the rows are grouped by, in words; one "" where they are not.
        folded: Whether a row adds up its whole section.
    """

    of: Int64
    first: Int64
    section: Int64
    sections: tuple[str, ...]
    folded: bool = False

    def __len__(self) -> int:
        return len(self.first)


def build_rows(members: Members, by: Grouping = "none", *, fold: bool = False) -> Rows:
    """Return the rows of a job's collectives, by time.

    Args:
        members: The collectives.
        by: What puts rows into a section. By comm group, parallel groups have rows of their own.
        fold: Make one row of each section, which adds up its collectives.
    """
    if not len(members):
        return Rows(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64), (), fold)
    of = np.arange(len(members)) if by == "group" else _number_parallel(members)
    section, sections = _number_sections(members, by)
    if fold:
        of, first = section.copy(), np.unique(section, return_index=True)[1]
        return Rows(of, first, np.arange(len(first)), sections, folded=True)
    # In order of time, which is that of the collectives.
    of, first = number_by_first(of)
    return Rows(of, first, section[first], sections)


def _number_parallel(members: Members) -> Int64:
    """Return (C,) a number shared by collectives of parallel groups: the k-th of equal type and name of each."""
    family = _number_families(members)[members.group]
    what = members.type.astype(np.int64) + 1 + (int(members.type.max()) + 2) * members.title.astype(np.int64)
    again = _count_before(members.group.astype(np.int64) * (int(what.max()) + 1) + what)
    _, what = np.unique(what, return_inverse=True)
    number: Int64 = (family * (int(what.max()) + 1) + what) * (int(again.max()) + 1) + again
    return number


def _count_before(keys: Int64) -> Int64:
    """Return how many equal keys come before each."""
    order = np.argsort(keys, kind="stable")
    starts = np.append(True, np.diff(keys[order]) != 0)
    begin = np.maximum.accumulate(np.where(starts, np.arange(len(keys)), 0))
    before = np.empty(len(keys), np.int64)
    before[order] = np.arange(len(keys)) - begin
    return before


def _number_families(members: Members) -> Int64:
    """Return (G,) the family of each group: groups of equal size and rank distances that share no rank."""
    family = np.zeros(len(members.groups), np.int64)
    taken: dict[bytes, list[tuple[int, Int64]]] = {}
    count = 0
    seen, first = np.unique(members.group, return_index=True)
    for group, first_of in zip(seen.tolist(), first.tolist(), strict=True):
        ranks = members.rank[members.offsets[first_of] : members.offsets[first_of + 1]].astype(np.int64)
        listed = taken.setdefault(np.diff(ranks).tobytes() + len(ranks).to_bytes(8, "little"), [])
        free = next((family for family in listed if not family[1][ranks].any()), None)
        if free is None:
            free = (count, np.zeros(members.ranks, np.int64))
            listed.append(free)
            count += 1
        free[1][ranks] = 1
        family[group] = free[0]
    return family


def _number_sections(members: Members, by: Grouping) -> tuple[Int64, tuple[str, ...]]:
    """Return (C,) the section of each collective, and their names by first appearance."""
    if by == "none":
        return np.zeros(len(members), np.int64), ("",)
    column, name = {
        "group": (members.group, lambda code: members.groups[code] or WORLD_TITLE),
        "type": (members.type, lambda code: label_collective(code) if code != NONE else "no type"),
        "step": (members.step, lambda code: f"step {code}" if code != NONE else "outside of steps"),
        "name": (members.title, lambda code: members.titles[code] or "(no name)"),
    }[by]
    number, first = number_by_first(column)
    tell: Callable[[int], str] = name
    return number, tuple(tell(value) for value in column[first].tolist())


# ---------------------------------------------------------------------------------------------------
# Figures


def compute_amounts(members: Members, metric: Metric) -> tuple[Float64, Float64 | None]:
    """Return (M,) a figure of every member, NaN where unknown.

    Bandwidths come as two parts, what was moved and how long it took, so that they can be added up: the second is None
    for every other metric.

    Of what is no collective, as its members do different things, size and duration alone are known.

    - size: bytes the rank puts in.
    - duration: from its own beginning to its own end.
    - waiting: from its own beginning to that of the last member.
    - lateness: from the first member's beginning to its own; its maximum is the arrival skew.
    - algorithm: the whole array by the time from the last arrival to its own end.
    - bus: the same times the factor of the collective; see `analysis.collectives.times`.
    """
    if metric == "size":
        written = members.bytes.astype(np.float64)
        return (written if members.sized else np.full(len(written), np.nan)), None
    start, end, of = members.start_ns, members.end_ns, members.of
    known = start >= 0
    if not len(members):
        return np.zeros(0), None
    if metric == "duration":
        return np.where(known, end - start, np.nan), None
    known &= ~members.apart[of]
    if metric == "lateness":
        first = np.minimum.reduceat(np.where(known, start, _NEVER), members.offsets[:-1])
        return np.where(known, start - first[of], np.nan), None
    last = np.maximum.reduceat(start, members.offsets[:-1])[of]
    if metric == "waiting":
        return np.where(known, last - start, np.nan), None
    kind, size = members.type.astype(np.int64), members.size.astype(np.int64)
    moved = compute_whole_bytes(kind[of], members.bytes, size[of], members.is_open[of]).astype(np.float64)
    if metric == "bus":
        moved = moved * compute_bus_factors(kind, size, members.is_open)[of]
    valid = known & (end > last) & (moved > 0)
    return np.where(valid, moved, np.nan), np.where(valid, (end - last).astype(np.float64), np.nan)


def build_matrix(members: Members, rows: Rows, metric: Metric) -> Float64:
    """Return (L, R) the figures of rows and ranks, NaN where a rank takes no part or the figure is unknown.

    Where a row stands for several collectives of a rank they are added up; bandwidths are what was moved in all by
    the time it took in all.
    """
    value, divisor = compute_amounts(members, metric)
    shape = len(rows), members.ranks
    cell = rows.of[members.of] * members.ranks + members.rank
    total = _sum_cells(cell, value, shape)
    return total if divisor is None else total / _sum_cells(cell, divisor, shape)


def build_joined_matrix(
    members: Members, rows: Rows, metric: Literal["size", "duration", "waiting"], lines: Int64
) -> Float64:
    """Return the figures of `build_matrix` with those of neighbouring rows added up, without making all of it.

    Args:
        members: The collectives.
        rows: The rows that they stand in.
        metric: What is added up; a bandwidth cannot be.
        lines: (L,) the line, from 0 and rising, that each row goes to.
    """
    value, _ = compute_amounts(members, metric)
    shape = (int(lines.max(initial=-1)) + 1, members.ranks)
    return _sum_cells(lines[rows.of[members.of]] * members.ranks + members.rank, value, shape)


def _sum_cells(cell: Int64, value: Float64, shape: tuple[int, int]) -> Float64:
    is_known = ~np.isnan(value)
    cell, value = cell[is_known], value[is_known]
    taken = np.zeros(shape[0] * shape[1], bool)
    taken[cell] = True
    return np.where(taken, np.bincount(cell, value, minlength=len(taken)), np.nan).reshape(shape)


# ---------------------------------------------------------------------------------------------------
# How uneven


@dataclass(frozen=True, slots=True)
class Spread:
    """Imbalance of each row of a matrix, over the ranks that have a figure, each by the mean of its own group.

    L rows, R ranks. NaN where a row has no figure, or only zeros.

    Attributes:
        count: (L,) ranks with a figure.
        mean: (L,) their mean, over all groups of the row.
        own: (L, R) the mean of each rank's own group, or (L, 1) where every row has one group.
        worst: (L,) column of the figure farthest above its mean, -1 where there is none.
        max: (L,) that figure by its mean: 1 is even.
        variation: (L,) standard deviation by the mean, of all ranks rather than a sample: 0 is even.
        gini: (L,) half the mean difference of two ranks, by the mean: 0 is even, near 1 where one rank has all.
        excess: (L,) what lies above the means in all: what would have to move within the groups for all to be even.
    """

    count: Int64
    mean: Float64
    own: Float64
    worst: Int64
    max: Float64
    variation: Float64
    gini: Float64
    excess: Float64

    def measure(self, name: Measure) -> Float64:
        """Return a measure by its name."""
        values: Float64 = getattr(self, name)
        return values


def compute_own_means(members: Members, rows: Rows, table: Float64) -> Float64:
    """Return (L, R) the mean of each rank's own group in each row, or (L, 1) where every row has one group.

    A group of a row are the ranks that some collective of the row joins, directly or by way of others: ranks that have
    nothing to do with each other there are in different ones.
    """
    shape = table.shape
    groups = _group_cells(members, rows, shape[1])
    cells = np.flatnonzero((groups != NONE) & ~np.isnan(table.ravel()))
    taken = np.zeros(len(groups), bool)
    taken[groups[cells]] = True
    first = np.flatnonzero(taken)
    place = np.empty(len(groups), np.int32)
    place[first] = np.arange(len(first))
    of = place[groups[cells]]
    if (np.bincount(first // max(shape[1], 1), minlength=1) < 2).all():
        return _compute_row_means(table)[:, None]
    values = table.ravel()[cells]
    means = np.bincount(of, values) / np.maximum(np.bincount(of), 1)
    own = np.full(table.size, np.nan)
    own[cells] = means[of]
    return own.reshape(shape)


def _group_cells(members: Members, rows: Rows, ranks: int) -> Int64:
    """Return (L * R,) the first cell of each cell's group, -1 for ranks that take no part in a row."""
    cell = rows.of[members.of] * ranks + members.rank
    label = np.full(len(rows) * ranks, NONE, np.int64)
    label[cell] = cell
    if not len(cell):
        return label
    while True:
        least = np.minimum.reduceat(label[cell], members.offsets[:-1])[members.of]
        if (least == label[cell]).all():
            return label
        np.minimum.at(label, cell, least)


def _compute_row_means(table: Float64) -> Float64:
    is_known = ~np.isnan(table)
    count = is_known.sum(axis=1)
    return _divide_where(np.where(is_known, table, 0.0).sum(axis=1), count.astype(np.float64), count > 0)


def compute_ratios(table: Float64, own: Float64) -> Float64:
    """Return figures by the mean of their group; NaN where that is 0 or there is none."""
    quotient: Float64 = np.divide(
        table, own, out=np.full(table.shape, np.nan), where=np.broadcast_to(own != 0, table.shape)
    )
    return quotient


def compute_spread(table: Float64, own: Float64 | None = None) -> Spread:
    """Return the imbalance of the rows of an (L, R) table.

    Args:
        table: Figures of rows and ranks.
        own: The mean of each rank's own group; see `compute_own_means`. Without it all ranks of a row are one group.

    Example:
        >>> found = compute_spread(np.array([[20480.0, 28672, 36864, 45056], [8192, 8192, 8192, np.nan]]))
        >>> found.max.tolist(), found.worst.tolist(), found.excess.tolist()
        ([1.375, 1.0], [3, 0], [16384.0, 0.0])
        >>> apart = compute_spread(np.array([[10.0, 30, 200, 200]]), np.array([[20.0, 20, 200, 200]]))
        >>> apart.max.tolist(), apart.worst.tolist(), apart.excess.tolist()
        ([1.5], [1], [10.0])
    """
    is_known = ~np.isnan(table)
    count = is_known.sum(axis=1)
    few = (count > 0) & (2 * count <= table.shape[1])
    return (
        _compute_spread_by_parts(table, own, is_known, few)
        if few.any()
        else _compute_spread_of_all(table, own)
    )


def _compute_spread_of_all(table: Float64, own: Float64 | None) -> Spread:
    is_present = ~np.isnan(table)
    count = is_present.sum(axis=1)
    mean = _compute_row_means(table)
    own = mean[:, None] if own is None else own
    by_mean = compute_ratios(table, own)
    known = ~np.isnan(by_mean)
    compared = known.sum(axis=1)
    some, uneven = count > 0, compared > 0
    above = np.where(is_present, table - own, 0.0)
    highest = np.where(known, by_mean, np.where(is_present & ~uneven[:, None], table, -np.inf))
    worst = np.where(some, highest.argmax(axis=1) if table.shape[1] else NONE, NONE)
    apart = np.where(known, by_mean - 1, 0.0)
    return Spread(
        count,
        mean,
        own,
        worst,
        np.where(uneven, highest.max(axis=1, initial=-np.inf), np.nan),
        np.sqrt(_divide_where((apart**2).sum(axis=1), compared.astype(np.float64), uneven)),
        np.where(uneven, _compute_gini(by_mean, compared, np.where(known, by_mean, 0.0).sum(axis=1)), np.nan),
        np.where(some, np.maximum(above, 0).sum(axis=1), np.nan),
    )


def _compute_spread_by_parts(table: Float64, own: Float64 | None, is_present: Bool, few: Bool) -> Spread:
    """Return the spread of rows; where few ranks have a figure it is found from these alone, since most cells are empty."""
    parts = [(few, _compute_spread_of_few(table[few], None if own is None else own[few], is_present[few]))]
    if not few.all():
        parts.append((~few, _compute_spread_of_all(table[~few], None if own is None else own[~few])))
    joined: dict[str, Any] = {}
    for name in ("count", "mean", "worst", "max", "variation", "gini", "excess"):
        joined[name] = np.empty(len(table), np.int64 if name in ("count", "worst") else np.float64)
        for rows, part in parts:
            joined[name][rows] = getattr(part, name)
    return Spread(own=joined["mean"][:, None] if own is None else own, **joined)


def _compute_spread_of_few(table: Float64, own: Float64 | None, is_present: Bool) -> Spread:
    """Return the imbalance of rows, their figures moved together."""
    count = is_present.sum(axis=1)
    row, column = is_present.nonzero()
    place = np.arange(len(row)) - (np.cumsum(count) - count)[row]
    shape = len(table), int(count.max())
    close, columns = np.full(shape, np.nan), np.full(shape, NONE, np.int64)
    close[row, place], columns[row, place] = table[row, column], column
    close_own = own
    if own is not None and own.shape[1] > 1:
        close_own = np.full(shape, np.nan)
        close_own[row, place] = own[row, column]
    spread = _compute_spread_of_all(close, close_own)
    return replace(spread, worst=columns[np.arange(len(table)), spread.worst])


def _divide_where(value: Float64, by: Float64, where: Bool) -> Float64:
    quotient: Float64 = np.divide(value, by, out=np.full(len(value), np.nan), where=where)
    return quotient


def _compute_gini(table: Float64, count: Int64, total: Float64) -> Float64:
    """Return (L,) sum of (2i - n - 1) x_i by n times the sum of x, x rising and i counted from 1."""
    rising = np.sort(table, axis=1)  # NaN stand last
    place = np.arange(1, table.shape[1] + 1, dtype=np.float64)
    weight = 2 * place - count[:, None] - 1
    part = np.where(np.isnan(rising), 0.0, rising * weight).sum(axis=1)
    bottom = count * total
    return _divide_where(part, bottom, bottom != 0)


def order_rows(spread: Spread, section: Int64, sort: Measure | Literal["time"]) -> Int64:
    """Return the rows section by section, the most uneven first, or by time.

    Sections are ordered by their most uneven row. Of rows that are as uneven, the one that has most to move comes first: where
    one of two ranks always waits and the other never does, all ratios are 2.
    """
    if sort == "time":
        return np.argsort(section, kind="stable")
    value = np.nan_to_num(spread.measure(sort), nan=-1.0)
    sections = int(section.max(initial=-1)) + 1
    best = np.full(sections, -np.inf)
    np.maximum.at(best, section, value)
    place = np.empty(sections, np.int64)
    place[np.argsort(-best, kind="stable")] = np.arange(sections)
    return np.lexsort(
        (np.arange(len(value)), -np.nan_to_num(spread.excess, nan=-1.0), -value, place[section])
    )


@dataclass(frozen=True, slots=True)
class Offender:
    """An uneven row.

    Attributes:
        row: Its number.
        worst: Place of the rank with most.
        heavy: Places of the ranks above the mean of their group, those farthest above first.
        highest: Those of them of which `max` is true, within half a percent.
        most, mean: The figure of the worst rank, and the mean of its group.
        max, variation, gini: See `Spread`.
        excess: What would have to move within the groups for balance.
    """

    row: int
    worst: int
    heavy: tuple[int, ...]
    highest: tuple[int, ...]
    most: float
    mean: float
    max: float
    variation: float
    gini: float
    excess: float


def find_worst_rows(
    table: Float64, spread: Spread, by: Measure = "excess", most: int | None = 50
) -> list[Offender]:
    """Return the most uneven rows, the worst first, None for all of them; even rows are left out."""
    is_uneven = np.nan_to_num(spread.max, nan=1.0) > 1 + _EVEN
    order = order_rows(spread, np.zeros(len(is_uneven), np.int64), by)
    chosen = order[is_uneven[order]][:most]
    offenders = []
    for row in chosen.tolist():
        line, own = table[row], np.broadcast_to(spread.own[row], table[row].shape)
        by_mean = compute_ratios(line, own)
        heavy = np.flatnonzero(by_mean > 1 + _EVEN)
        heavy = heavy[np.argsort(-by_mean[heavy], kind="stable")]
        figures = [float(getattr(spread, name)[row]) for name in ("max", "variation", "gini", "excess")]
        worst = int(spread.worst[row])
        of_worst = float(line[worst]), float(own[worst])
        highest = heavy[by_mean[heavy] * (1 + _EVEN) >= figures[0]]
        ranks = tuple(heavy.tolist()), tuple(highest.tolist())
        offenders.append(Offender(row, worst, *ranks, *of_worst, *figures))
    return offenders
