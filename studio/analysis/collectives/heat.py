"""The heatmap of collectives × ranks: order of rows, a window of them, bins where they are too many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from studio.analysis.collectives.imbalance import (
    WORLD_TITLE,
    Grouping,
    Measure,
    Metric,
    Offender,
    Rows,
    Spread,
    build_matrix,
    build_rows,
    compute_own_means,
    compute_ratios,
    compute_spread,
    find_worst_rows,
    order_rows,
)
from studio.analysis.collectives.members import Members
from studio.analysis.job.function_names import shorten_function_name
from studio.trace import NONE, WORLD_NAMES, Float32, Float64, Int64, Trace, label_collective

CELLS = 1 << 21
"""How many cells a picture has at most: 1,024 ranks × 2,048 rows."""
LINES, COLUMNS = 4096, 2048
Sort = Literal["time", Measure]
SORTS: tuple[Sort, ...] = ("time", *get_args(Measure))
RankOrder = Literal["number", "load"]


@dataclass(frozen=True, slots=True)
class Look:
    """What the heatmap shows of collectives.

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
    """A heatmap: lines in drawing order, columns from the left.

    L rows of which N lines are drawn, R ranks, C collectives.

    Attributes:
        members: The collectives.
        rows: What the rows are.
        table: (L, R) figures by row and place of the rank.
        spread: How uneven each row is.
        lines: (N,) the row of each line, -1 for a line that stays empty.
        columns: (R,) place of the rank of each column.
        nth, alike: (L,) which row of its name it is, counted from 0, and how many there are.
        mixed: Names, as places in `members.titles`, of collectives of several types: NCCL has one kernel for gathers and scatters, say.
    """

    members: Members
    rows: Rows
    table: Float64
    spread: Spread
    lines: Int64
    columns: Int64
    nth: Int64
    alike: Int64
    mixed: frozenset[int]

    def find(self, rank: int, row: int) -> tuple[int, int] | None:
        """Return line and column of a rank's node; None where it is no collective, or not shown."""
        members = self.members
        places = np.flatnonzero((members.row == row) & (members.rank == rank))
        if not len(places):
            return None
        which = int(np.searchsorted(members.offsets, places[0], side="right")) - 1
        line = np.flatnonzero(self.lines == self.rows.of[which])
        return (int(line[0]), int(np.flatnonzero(self.columns == rank)[0])) if len(line) else None

    def cells(self, line: int, column: int) -> Int64:
        """Return the members summed up in a cell."""
        members, row = self.members, int(self.lines[line])
        collectives = np.flatnonzero(self.rows.of == row) if row != NONE else np.zeros(0, np.int64)
        first = members.offsets[collectives]
        count = members.offsets[collectives + 1] - first
        places = np.repeat(first - np.cumsum(count) + count, count) + np.arange(int(count.sum()))
        cells: Int64 = places[members.rank[places] == self.columns[column]]
        return cells

    def own_mean(self, row: int, rank: int) -> float:
        """Return the mean of a rank's own group in a row."""
        own = self.spread.own[row]
        return float(own[rank if len(own) > 1 else 0])

    def key(self, row: int) -> tuple[object, ...]:
        """Return what identifies a row across runs and jobs: its section, or type, name and number."""
        members, first = self.members, int(self.rows.first[row])
        if self.rows.folded:
            return (self.rows.sections[int(self.rows.section[row])],)
        group = members.groups[int(members.group[first])] if len(self.rows) == len(members) else ""
        return group, int(members.type[first]), members.titles[int(members.title[first])], int(self.nth[row])


def build_heat(members: Members, look: Look) -> Heat:
    """Return the heatmap of collectives."""
    rows = build_rows(members, look.by, fold=look.fold)
    table = build_matrix(members, rows, look.metric)
    spread = compute_spread(table, compute_own_means(members, rows, table))
    lines = order_rows(spread, rows.section, look.sort)
    # Nodes may call the group of all ranks "0"; here it has but one name.
    only = WORLD_TITLE if look.by == "group" and look.only in WORLD_NAMES else look.only
    if look.only and (only in rows.sections or look.only in rows.sections):
        wanted = look.only if look.only in rows.sections else only
        lines = lines[rows.section[lines] == rows.sections.index(wanted)]
    columns = np.arange(members.ranks)
    if look.ranks == "load" and len(lines):
        columns = np.argsort(
            -np.nan_to_num(compute_load(table[lines], spread.own[lines]), nan=-1.0), kind="stable"
        )
    kinds = np.unique(np.stack([members.title, members.type]), axis=1)[0]
    titles, types = np.unique(kinds, return_counts=True)
    mixed = frozenset(titles[types > 1].tolist())
    return Heat(members, rows, table, spread, lines, columns, *_number_repeats(members, rows), mixed)


def compute_load(table: Float64, own: Float64) -> Float64:
    """Return (R,) each rank's average load by the means of its groups: 1 is an equal share."""
    ratio = compute_ratios(table, own)
    is_known = ~np.isnan(ratio)
    count = is_known.sum(axis=0)
    total = np.where(is_known, ratio, 0.0).sum(axis=0)
    means: Float64 = np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)
    return means


def _number_repeats(members: Members, rows: Rows) -> tuple[Int64, Int64]:
    """Return (L,) how many earlier rows have the same type and name, and how many there are in all."""
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


def align_lines(heat: Heat, like: Heat) -> Heat:
    """Return a heatmap with its lines in the order of another's; unmatched lines follow at the end."""
    row_of = {heat.key(row): row for row in heat.lines[heat.lines >= 0].tolist()}
    taken = [row_of.pop(like.key(row), NONE) for row in like.lines.tolist()]
    rest = set(row_of.values())
    others = [row for row in heat.lines.tolist() if row in rest]
    columns = like.columns if len(like.columns) == len(heat.columns) else heat.columns
    return replace(heat, lines=np.array([*taken, *others], np.int64), columns=columns)


@dataclass(frozen=True, slots=True)
class Shown:
    """A heatmap and its source.

    Attributes:
        trace: The job.
        heat: The heatmap.
        look: What it shows.
        relative: Whether figures are given by the mean of their group.
        origin_ns: What times are counted from.
    """

    trace: Trace
    heat: Heat
    look: Look
    relative: bool
    origin_ns: int = 0


@dataclass(frozen=True, slots=True)
class Tile:
    """A window of a heatmap, binned where it has too many cells to draw.

    H × W bins.

    Attributes:
        low, high, left, right: The window in lines and columns, ends exclusive.
        down, across: Lines and columns of a bin.
        values: (H, W) the largest figure of each bin; of ratios the one farthest from 1. NaN where there is none.
        figures: (H, W) of ratios the figures that they are of, in the unit of the metric; else None.
    """

    low: int
    high: int
    left: int
    right: int
    down: int
    across: int
    values: Float32
    figures: Float32 | None = None


def build_tile(
    heat: Heat, window: tuple[int, int, int, int], *, relative: bool = False, cells: int = CELLS
) -> Tile:
    """Return a window (low, high, left, right) of a heatmap, clipped to it.

    Args:
        heat: The heatmap.
        window: Lines and columns, ends exclusive.
        relative: Whether figures are given by the mean of their group.
        cells: How many bins there may be.
    """
    low, high = _clip_window(window[0], window[1], len(heat.lines))
    left, right = _clip_window(window[2], window[3], len(heat.columns))
    rows = heat.lines[low:high]
    table = _arrange_cells(heat, heat.table, rows, left, right)
    if not relative:
        return _make_tile(table, (low, high, left, right), cells=cells)
    by_mean = compute_ratios(table, _select_own_means(heat, rows, left, right))
    return _make_tile(by_mean, (low, high, left, right), cells=cells, ratios_of=table)


def _select_own_means(heat: Heat, rows: Int64, left: int, right: int) -> Float64:
    """Return the means of the groups that cells belong to, in drawing order."""
    own = heat.spread.own
    return own[np.maximum(rows, 0)] if own.shape[1] == 1 else _arrange_cells(heat, own, rows, left, right)


def _arrange_cells(heat: Heat, figures: Float64, rows: Int64, left: int, right: int) -> Float64:
    """Return rows of figures in drawing order, NaN for empty cells."""
    table = figures[np.maximum(rows, 0)]
    columns = heat.columns[left:right]
    if len(columns) != table.shape[1] or (np.diff(columns) != 1).any():
        table = table[:, columns]
    table[rows == NONE] = np.nan
    return table


def build_plain_tile(table: Float64, window: tuple[int, int, int, int]) -> Tile:
    """Return a window (low, high, left, right) of any table, like `build_tile`."""
    low, high = _clip_window(window[0], window[1], table.shape[0])
    left, right = _clip_window(window[2], window[3], table.shape[1])
    return _make_tile(table[low:high, left:right], (low, high, left, right), cells=CELLS)


def _make_tile(
    table: Float64, window: tuple[int, int, int, int], *, cells: int, ratios_of: Float64 | None = None
) -> Tile:
    lines, columns = table.shape
    across = max(1, -(-columns // COLUMNS))
    wide = -(-columns // across)
    down = max(1, -(-lines // LINES), -(-lines * wide // cells))
    if ratios_of is None:
        [values] = _select_bin_values(table, (table,), down, across)
        return Tile(*window, down, across, values)
    values, figures = _select_bin_values(np.abs(table - 1), (table, ratios_of), down, across)
    return Tile(*window, down, across, values, figures)


def _clip_window(low: int, high: int, most: int) -> tuple[int, int]:
    low = min(max(low, 0), max(most - 1, 0))
    return low, min(max(high, low + 1), most)


def _select_bin_values(weight: Float64, tables: Sequence[Float64], down: int, across: int) -> list[Float32]:
    """Return of each table what it holds where the weight of a bin is largest."""
    if down == across == 1:
        return [table.astype(np.float32) for table in tables]
    bins = _split_bins(weight, down, across)
    place = np.where(np.isnan(bins), -np.inf, bins).argmax(axis=2)[:, :, None]
    return [
        np.take_along_axis(_split_bins(table, down, across), place, axis=2)[:, :, 0].astype(np.float32)
        for table in tables
    ]


def _split_bins(table: Float64, down: int, across: int) -> Float64:
    """Return (H, W, down * across) the cells of each bin; those beyond the table are NaN."""
    high, wide = -(-table.shape[0] // down), -(-table.shape[1] // across)
    padded = np.full((high * down, wide * across), np.nan)
    padded[: table.shape[0], : table.shape[1]] = table
    return padded.reshape(high, down, wide, across).transpose(0, 2, 1, 3).reshape(high, wide, -1)


def find_strongest(
    heat: Heat, window: tuple[int, int, int, int], *, relative: bool = False
) -> tuple[int, int]:
    """Return line and column of the value that a bin shows."""
    low, high = _clip_window(window[0], window[1], len(heat.lines))
    left, right = _clip_window(window[2], window[3], len(heat.columns))
    rows = heat.lines[low:high]
    table = _arrange_cells(heat, heat.table, rows, left, right)
    if relative:
        table = np.abs(compute_ratios(table, _select_own_means(heat, rows, left, right)) - 1)
    place = int(np.where(np.isnan(table), -np.inf, table).argmax())
    return low + place // table.shape[1], left + place % table.shape[1]


def find_worst_lines(shown: Shown, most: int | None = None) -> list[tuple[int, Offender]]:
    """Return the most uneven rows with their lines, the worst first, by the sorting measure."""
    heat, sort = shown.heat, shown.look.sort
    drawn = {int(row): line for line, row in enumerate(heat.lines.tolist()) if row >= 0}
    offenders = find_worst_rows(heat.table, heat.spread, "excess" if sort == "time" else sort, most)
    return [(drawn[offender.row], offender) for offender in offenders if offender.row in drawn]


def label_line(heat: Heat, line: int, *, whole: bool = False) -> str:
    """Return a line's name: that of its nodes, numbered if repeated, or of its section.

    Collectives of several types that share a name have their type before it.

    Args:
        heat: The heatmap.
        line: The line.
        whole: Whether C++ signatures stay as they were recorded.
    """
    row = int(heat.lines[line])
    if row == NONE:
        return ""
    if heat.rows.folded:
        return heat.rows.sections[int(heat.rows.section[row])] or "all collectives"
    members, first = heat.members, int(heat.rows.first[row])
    name = label_nodes(heat, int(members.title[first]), int(members.type[first]), whole=whole)
    return f"{name} #{int(heat.nth[row]) + 1}" if heat.alike[row] > 1 else name


def label_nodes(heat: Heat, title: int, kind: int, *, whole: bool = False) -> str:
    """Return what nodes of a title and type are called: the type comes first where the title alone tells of several.

    Args:
        heat: The heatmap.
        title: The title, a place in `members.titles`.
        kind: The CollectiveType.
        whole: Whether C++ signatures stay as they were recorded.
    """
    text = heat.members.titles[title]
    name = (text if whole else shorten_function_name(text)) or label_collective(kind)
    return f"{label_collective(kind)} · {name}" if text and title in heat.mixed else name
