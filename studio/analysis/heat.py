"""Collectives × ranks as a picture is made of them: rows in an order, a window of them, bins where they are too many."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from studio.analysis.imbalance import (
    WORLD_TITLE,
    Grouping,
    Measure,
    Metric,
    Offender,
    Rows,
    Spread,
    matrix,
    order_of,
    rows_of,
    spread_of,
    worst_rows,
)
from studio.analysis.members import Members
from studio.trace import NONE, WORLD_NAMES, Float32, Float64, Int64, Trace, collective_name

CELLS = 1 << 21
"""How many cells a picture has at most: 1,024 ranks × 2,048 rows."""
LINES, COLUMNS = 4096, 2048
Sort = Literal["time", Measure]
SORTS: tuple[Sort, ...] = ("time", *get_args(Measure))
RankOrder = Literal["number", "load"]


@dataclass(frozen=True, slots=True)
class Look:
    """What is shown of the collectives.

    Attributes:
        metric: The figure.
        by, fold, only: What rows are grouped by, whether each group is one row, and the group that alone is shown.
        sort: Order of the rows; sections go by their worst row.
        ranks: Order of the ranks: by number, or those that carry most first.
    """

    metric: Metric = "size"
    by: Grouping = "none"
    fold: bool = False
    only: str = ""
    sort: Sort = "max"
    ranks: RankOrder = "number"


@dataclass(frozen=True, slots=True)
class Heat:
    """A heatmap: lines as they are drawn from the top, columns from the left.

    L rows of which N lines are drawn, R ranks, C collectives.

    Attributes:
        members: The collectives.
        rows: What the rows are.
        table: (L, R) figures by row and place of the rank.
        spread: How uneven each row is.
        lines: (N,) the row of each line, -1 for a line that stays empty.
        columns: (R,) place of the rank of each column.
        nth, alike: (L,) which row of its name it is, counted from 0, and how many there are.
    """

    members: Members
    rows: Rows
    table: Float64
    spread: Spread
    lines: Int64
    columns: Int64
    nth: Int64
    alike: Int64

    def find(self, rank: int, row: int) -> tuple[int, int] | None:
        """Return line and column of a node of the rank at a place; None where it is no collective, or not shown."""
        members = self.members
        found = np.flatnonzero((members.row == row) & (members.rank == rank))
        if not len(found):
            return None
        which = int(np.searchsorted(members.offsets, found[0], side="right")) - 1
        line = np.flatnonzero(self.lines == self.rows.of[which])
        return (int(line[0]), int(np.flatnonzero(self.columns == rank)[0])) if len(line) else None

    def cells(self, line: int, column: int) -> Int64:
        """Return the members that a cell adds up."""
        members, row = self.members, int(self.lines[line])
        collectives = np.flatnonzero(self.rows.of == row) if row != NONE else np.zeros(0, np.int64)
        first = members.offsets[collectives]
        count = members.offsets[collectives + 1] - first
        at = np.repeat(first - np.cumsum(count) + count, count) + np.arange(int(count.sum()))
        found: Int64 = at[members.rank[at] == self.columns[column]]
        return found

    def key(self, row: int) -> tuple[object, ...]:
        """Return what makes a row the same as one of another run or job: its section, or type, name and number."""
        members, first = self.members, int(self.rows.first[row])
        if self.rows.folded:
            return (self.rows.sections[int(self.rows.section[row])],)
        group = members.groups[int(members.group[first])] if len(self.rows) == len(members) else ""
        return group, int(members.type[first]), members.titles[int(members.title[first])], int(self.nth[row])


def heat_of(members: Members, look: Look) -> Heat:
    """Return the heatmap of collectives."""
    rows = rows_of(members, look.by, fold=look.fold)
    table = matrix(members, rows, look.metric)
    spread = spread_of(table)
    lines = order_of(spread, rows.section, look.sort)
    # Nodes may call the group of all ranks "0"; here it has but one name.
    only = WORLD_TITLE if look.by == "group" and look.only in WORLD_NAMES else look.only
    if look.only and (only in rows.sections or look.only in rows.sections):
        wanted = look.only if look.only in rows.sections else only
        lines = lines[rows.section[lines] == rows.sections.index(wanted)]
    columns = np.arange(members.ranks)
    if look.ranks == "load" and len(lines):
        columns = np.argsort(-np.nan_to_num(load(table[lines], spread.mean[lines]), nan=-1.0), kind="stable")
    return Heat(members, rows, table, spread, lines, columns, *_numbered(members, rows))


def load(table: Float64, mean: Float64) -> Float64:
    """Return (R,) how much of its rows' means each rank carries, on average: 1 where it carries its share."""
    ratio = np.divide(table, mean[:, None], out=np.full(table.shape, np.nan), where=(mean != 0)[:, None])
    there = ~np.isnan(ratio)
    count = there.sum(axis=0)
    total = np.where(there, ratio, 0.0).sum(axis=0)
    found: Float64 = np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)
    return found


def _numbered(members: Members, rows: Rows) -> tuple[Int64, Int64]:
    """Return (L,) how many rows of the same type and name stand before each in time, and how many there are."""
    first = rows.first
    same = np.stack([members.type[first], members.title[first]])
    if len(rows) == len(members):
        same = np.vstack([same, members.group[first]])
    if not same.shape[1]:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    _, kind, count = np.unique(same, axis=1, return_inverse=True, return_counts=True)
    order = np.lexsort((first, kind))
    starts = np.append(True, np.diff(kind[order]) != 0)
    begin = np.maximum.accumulate(np.where(starts, np.arange(len(order)), 0))
    nth = np.empty(len(order), np.int64)
    nth[order] = np.arange(len(order)) - begin
    return nth, count[kind].astype(np.int64)


def aligned(heat: Heat, like: Heat) -> Heat:
    """Return a heatmap with the lines of another one, matched by what they are; its own others follow at the end."""
    row_of = {heat.key(row): row for row in heat.lines[heat.lines >= 0].tolist()}
    taken = [row_of.pop(like.key(row), NONE) for row in like.lines.tolist()]
    rest = set(row_of.values())
    others = [row for row in heat.lines.tolist() if row in rest]
    columns = like.columns if len(like.columns) == len(heat.columns) else heat.columns
    return replace(heat, lines=np.array([*taken, *others], np.int64), columns=columns)


@dataclass(frozen=True, slots=True)
class Shown:
    """A heatmap and what it is of.

    Attributes:
        trace: The job.
        heat: The heatmap.
        look: What it shows.
        relative: Whether figures are given by the mean of their row.
        origin_ns: What times are counted from.
    """

    trace: Trace
    heat: Heat
    look: Look
    relative: bool
    origin_ns: int = 0


@dataclass(frozen=True, slots=True)
class Tile:
    """A window of a heatmap, in bins where it has too many cells to draw.

    H × W bins.

    Attributes:
        low, high, left, right: The window in lines and columns, ends exclusive.
        down, across: Lines and columns of a bin.
        values: (H, W) the largest figure of each bin; of ratios the one farthest from 1. NaN where there is none.
    """

    low: int
    high: int
    left: int
    right: int
    down: int
    across: int
    values: Float32


def tile(
    heat: Heat, window: tuple[int, int, int, int], *, relative: bool = False, cells: int = CELLS
) -> Tile:
    """Return a window (low, high, left, right) of a heatmap; it is cut to what there is.

    Args:
        heat: The heatmap.
        window: Lines and columns, ends exclusive.
        relative: Whether figures are given by the mean of their row.
        cells: How many bins there may be.
    """
    low, high = _cut(window[0], window[1], len(heat.lines))
    left, right = _cut(window[2], window[3], len(heat.columns))
    rows = heat.lines[low:high]
    table = _cells(heat, rows, left, right)
    if relative:
        mean = (
            np.where(rows == NONE, np.nan, heat.spread.mean[np.maximum(rows, 0)]) if len(heat.rows) else rows
        )
        table = np.divide(table, mean[:, None], out=np.full(table.shape, np.nan), where=(mean != 0)[:, None])
    return _tiled(table, (low, high, left, right), relative=relative, cells=cells)


def _cells(heat: Heat, rows: Int64, left: int, right: int) -> Float64:
    """Return a copy of rows of the table as lines are drawn, NaN for those that stay empty."""
    table = heat.table[np.maximum(rows, 0)]
    columns = heat.columns[left:right]
    if len(columns) != table.shape[1] or (np.diff(columns) != 1).any():
        table = table[:, columns]
    table[rows == NONE] = np.nan
    return table


def plain_tile(table: Float64, window: tuple[int, int, int, int]) -> Tile:
    """Return a window (low, high, left, right) of any table, as of a heatmap."""
    low, high = _cut(window[0], window[1], table.shape[0])
    left, right = _cut(window[2], window[3], table.shape[1])
    return _tiled(table[low:high, left:right], (low, high, left, right), relative=False, cells=CELLS)


def _tiled(table: Float64, window: tuple[int, int, int, int], *, relative: bool, cells: int) -> Tile:
    lines, columns = table.shape
    across = max(1, -(-columns // COLUMNS))
    wide = -(-columns // across)
    down = max(1, -(-lines // LINES), -(-lines * wide // cells))
    return Tile(*window, down, across, _binned(table, down, across, relative=relative).astype(np.float32))


def _cut(low: int, high: int, most: int) -> tuple[int, int]:
    low = min(max(low, 0), max(most - 1, 0))
    return low, min(max(high, low + 1), most)


def _binned(table: Float64, down: int, across: int, *, relative: bool) -> Float64:
    if down == across == 1:
        return table
    high, wide = -(-table.shape[0] // down), -(-table.shape[1] // across)
    padded = np.full((high * down, wide * across), np.nan)
    padded[: table.shape[0], : table.shape[1]] = table
    bins = padded.reshape(high, down, wide, across).transpose(0, 2, 1, 3).reshape(high, wide, -1)
    weight = np.abs(bins - 1) if relative else bins
    at = np.where(np.isnan(bins), -np.inf, weight).argmax(axis=2)
    found: Float64 = np.take_along_axis(bins, at[:, :, None], axis=2)[:, :, 0]
    return found


def strongest(heat: Heat, window: tuple[int, int, int, int], *, relative: bool = False) -> tuple[int, int]:
    """Return line and column of the figure that stands for a bin."""
    low, high = _cut(window[0], window[1], len(heat.lines))
    left, right = _cut(window[2], window[3], len(heat.columns))
    rows = heat.lines[low:high]
    table = _cells(heat, rows, left, right)
    if relative:
        mean = heat.spread.mean[np.maximum(rows, 0)]
        table = np.abs(
            np.divide(table, mean[:, None], out=np.full(table.shape, np.nan), where=(mean != 0)[:, None]) - 1
        )
    at = int(np.where(np.isnan(table), -np.inf, table).argmax())
    return low + at // table.shape[1], left + at % table.shape[1]


def worst_lines(shown: Shown, most: int | None = None) -> list[tuple[int, Offender]]:
    """Return the most uneven rows that are drawn, each with its line, the worst first, in the measure they are sorted by."""
    heat, sort = shown.heat, shown.look.sort
    drawn = {int(row): line for line, row in enumerate(heat.lines.tolist()) if row >= 0}
    found = worst_rows(heat.table, heat.spread, "excess" if sort == "time" else sort, most)
    return [(drawn[one.row], one) for one in found if one.row in drawn]


def line_name(heat: Heat, line: int) -> str:
    """Return what a line is called: the name of its nodes, numbered where several rows have it; or its section."""
    row = int(heat.lines[line])
    if row == NONE:
        return ""
    if heat.rows.folded:
        return heat.rows.sections[int(heat.rows.section[row])] or "all collectives"
    members, first = heat.members, int(heat.rows.first[row])
    name = members.titles[int(members.title[first])] or collective_name(int(members.type[first]))
    return f"{name} #{int(heat.nth[row]) + 1}" if heat.alike[row] > 1 else name
