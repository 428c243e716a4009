"""Heatmap of comm groups × ranks: who communicates where, and how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from studio.analysis.collectives.groups import GroupUse
from studio.figures.theme import SEQUENTIAL, Palette, build_figure_layout, build_small_font, choose_palette
from studio.trace import Int64
from studio.units import format_bytes, format_counted

_ROW_PX, _LEAST_PX, _MOST_PX = 18, 150, 560
_CELL_PX, _BESIDE_PX, _WIDEST_PX = 44, 210, 1200
_NAMED, _NAMED_OF_MANY = 16, 4
"""Ranks that are all named below the matrix, and how many of more are, at most: as a narrow window has room for."""
MOST_CELLS = 200
"""Rows and columns up to which each group and rank has one of its own: more are narrower than can be told apart."""


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Cells of the matrix: C of them that have a member.

    Attributes:
        shape: Rows and columns.
        rows, columns: Groups to a row, and ranks to a column.
        row, column: (C,) where each cell is.
        members: (C,) members in it: of each group there, each rank there.
        count, sized: (C,) nodes of all of them, and how many of those say how much they move.
        bytes: (C,) of the member that moves most.
    """

    shape: tuple[int, int]
    rows: int
    columns: int
    row: Int64
    column: Int64
    members: Int64
    count: Int64
    bytes: Int64
    sized: Int64

    @property
    def are_shared(self) -> bool:
        """Whether several groups or ranks share a cell."""
        return self.rows * self.columns > 1


def _build_blocks(use: GroupUse) -> _Blocks:
    """Return the cells of the matrix, each of as many neighbours as have to share one."""
    rows = max(1, -(-len(use.groups) // MOST_CELLS))
    # Nodes and groups of neighbours have powers of two of ranks: cells of others would lie across them.
    columns = _compute_power_of_two(-(-len(use.ranks) // MOST_CELLS))
    shape = -(-len(use.groups) // rows), -(-len(use.ranks) // columns)
    cell, where = np.unique((use.group // rows) * shape[1] + use.rank // columns, return_inverse=True)
    sums = [np.zeros(len(cell), np.int64) for _ in range(4)]
    members, count, sized, most = sums
    np.add.at(members, where, 1)
    np.add.at(count, where, use.count)
    np.add.at(sized, where, use.sized)
    np.maximum.at(most, where, use.bytes)
    return _Blocks(shape, rows, columns, cell // shape[1], cell % shape[1], members, count, most, sized)


def _compute_power_of_two(least: int) -> int:
    """Return the least power of two that is not less.

    Example:
        >>> [_compute_power_of_two(least) for least in (0, 1, 3, 8, 9)]
        [1, 1, 4, 8, 16]
    """
    return 1 << max(0, least - 1).bit_length()


def _label_columns(ranks: Sequence[int], each: int) -> list[str]:
    """Return the names of columns of so many ranks."""
    starts = range(0, len(ranks), each)
    ends = [min(start + each, len(ranks)) - 1 for start in starts]
    return [
        str(ranks[start]) if start == end else f"{ranks[start]}–{ranks[end]}"
        for start, end in zip(starts, ends, strict=True)
    ]


def _label_rows(groups: Sequence[str], notes: Sequence[str], each: int) -> list[str]:
    """Return the names of rows of so many groups, with what is said of a group that has a row of its own."""
    most = 24 if each == 1 else 14
    names = [
        name if len(name) <= most else f"{name[: most - 1]}…"
        for name in (group or "(all ranks)" for group in groups)
    ]
    if each == 1:
        return [f"{name}  {note}" for name, note in zip(names, notes, strict=True)] if notes else names
    starts = range(0, len(names), each)
    ends = [min(start + each, len(names)) - 1 for start in starts]
    return [
        names[start] if start == end else f"{names[start]} … {names[end]}"
        for start, end in zip(starts, ends, strict=True)
    ]


def _label_axis(what: str, each: int) -> str:
    """Name an axis, and how many share a place on it."""
    return what if each == 1 else f"{what}s, {each} to a cell"


def compute_widest_px(use: GroupUse) -> int:
    """Return the largest width of the matrix of groups and ranks, so that few ranks do not get huge cells."""
    return min(_WIDEST_PX, max(_CELL_PX * 8, _CELL_PX * len(use.ranks)) + _BESIDE_PX)


def draw_group_matrix(use: GroupUse, *, dark: bool, notes: Sequence[str] = ()) -> Any:
    """Return the heatmap of bytes by comm group and rank, at full width; None where there is nothing to show.

    Cells are blank where a rank is no member, and faintest where a member moves nothing. Colour is linear in the
    bytes, so that members of a group that differ by a part of what they move look different. Beyond `MOST_CELLS` groups or
    ranks, neighbours share a cell, which has the colour of the member that moves most; axes and cells say so.

    Args:
        use: Who communicates where.
        dark: Which theme.
        notes: What to say of each group besides its name.
    """
    import plotly.graph_objects as go

    if not len(use.group):
        return None
    blocks = _build_blocks(use)
    shape = blocks.shape
    size = np.full(shape, np.nan)
    size[blocks.row, blocks.column] = blocks.bytes
    labels = _label_rows(use.groups, notes, blocks.rows)
    columns = _label_columns(use.ranks, blocks.columns)
    # Blank cells say nothing, so that a thousand ranks do not repeat the name of each row in hundreds of columns.
    hover, text = np.full(shape, "", object), np.full(shape, "", object)
    hover[blocks.row, blocks.column] = np.array(_describe_cells(blocks), object)
    text[blocks.row, blocks.column] = np.array(labels, object)[blocks.row]
    heat = go.Heatmap(
        z=size,
        x=columns,
        y=[f"{index}" for index in range(len(labels))],
        customdata=hover,
        hovertemplate="group %{text} · rank %{x}<br>%{customdata}<extra></extra>",
        text=text,
        texttemplate="",
        # The background stands for nothing, so the strongest colour is the one farthest from it.
        colorscale=list(SEQUENTIAL["dark" if dark else "light"]),
        zmin=0,
        zmax=max(int(use.bytes.max()), 1),
        xgap=1 if shape[1] <= 200 else 0,
        ygap=1 if shape[0] <= 60 else 0,
        hoverongaps=False,
        colorbar=_build_scale(use, choose_palette(dark), are_shared=blocks.are_shared),
    )
    height = int(min(_MOST_PX, max(_LEAST_PX, 60 + _ROW_PX * shape[0])))
    figure = go.Figure(heat, build_figure_layout(dark, height=height))
    step = 1 if len(columns) <= _NAMED else _compute_power_of_two(-(-len(columns) // _NAMED_OF_MANY))
    figure.update_xaxes(
        title_text=_label_axis("rank", blocks.columns),
        type="category",
        showgrid=False,
        # Of ranges the first rank: more would overprint.
        tickvals=columns[::step],
        ticktext=[name.partition("–")[0] for name in columns[::step]],
        tickangle=0,
        title_standoff=6,
    )
    every = max(1, -(-len(labels) // ((height - 60) // 14)))
    shown = list(range(0, len(labels), every))
    figure.update_yaxes(
        title_text=_label_axis("comm group", blocks.rows),
        tickvals=[str(index) for index in shown],
        ticktext=[labels[index] for index in shown],
        type="category",
        autorange="reversed",
        showgrid=False,
    )
    return figure


def _describe_cells(blocks: _Blocks) -> list[str]:
    """Return what is said of each cell that has a member."""
    words = []
    cells = (blocks.count, blocks.bytes, blocks.sized, blocks.members)
    for count, amount, sized, members in zip(*(cell.tolist() for cell in cells), strict=True):
        amount_words = (
            f"{format_bytes(float(amount))} ({format_counted(amount, 'byte')})"
            if sized or not count
            else "sizes not recorded"
        )
        places = f"{format_counted(members, 'member')} of groups here, " if blocks.are_shared else ""
        most_of = "the most of one member " if blocks.are_shared else ""
        words.append(f"{places}{format_counted(count, 'node')}, {most_of}{amount_words}")
    return words


def _build_scale(use: GroupUse, colours: Palette, *, are_shared: bool) -> dict[str, Any]:
    """Return the scale of colours: quarters of the most that a member moves, and what nothing means."""
    most = int(use.bytes.max())
    nothing = use.bytes == 0
    # Nothing of a size that is not recorded is no size of 0.
    is_recorded = bool((use.sized[nothing] > 0).any()) or bool((use.count[nothing] == 0).any())
    zero = ("0 B" if is_recorded else "not recorded") if nothing.any() else ""
    steps = [step * most // 4 for step in range(1, 5)] if most else []
    return {
        "title": {
            "text": "most bytes of a member" if are_shared else "bytes",
            "side": "right",
            "font": build_small_font(colours),
        },
        "tickvals": [*([0] if zero else []), *steps],
        "ticktext": [*([zero] if zero else []), *(format_bytes(step) for step in steps)],
        "thickness": 10,
        "outlinewidth": 0,
        "tickfont": {"color": colours.dim},
    }
