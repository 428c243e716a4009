"""Heatmap of comm groups × ranks: who communicates where, and how much."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from studio.analysis.collectives.groups import GroupUse
from studio.figures.theme import SEQUENTIAL, layout, palette
from studio.units import format_bytes, format_counted

_ROW_PX, _LEAST_PX, _MOST_PX = 18, 150, 560
_CELL_PX, _BESIDE_PX, _WIDEST_PX = 44, 210, 1200


def widest_px(use: GroupUse) -> int:
    """Return the largest width of the matrix of groups and ranks, so that few ranks do not get huge cells."""
    return min(_WIDEST_PX, max(_CELL_PX * 8, _CELL_PX * len(use.ranks)) + _BESIDE_PX)


def group_matrix(use: GroupUse, *, dark: bool, notes: Sequence[str] = ()) -> Any:
    """Return the heatmap of bytes by comm group and rank, at full width; None where there is nothing to show.

    Cells are blank where a rank is no member, and faintest where a member moves nothing. Colour is linear in the
    bytes, so that members of a group that differ by a part of what they move look different.

    Args:
        use: Who communicates where.
        dark: Which theme.
        notes: What to say of each group besides its name.
    """
    import plotly.graph_objects as go

    if not len(use.group):
        return None
    shape = len(use.groups), len(use.ranks)
    size = np.full(shape, np.nan)
    size[use.group, use.rank] = use.bytes
    hover = np.full(shape, "", object)
    cells = zip(use.group, use.rank, use.count, use.bytes, use.sized, strict=True)
    for group, rank, count, amount, sized in cells:
        said = (
            f"{format_bytes(float(amount))} ({amount:,} bytes)"
            if sized or not count
            else "sizes not recorded"
        )
        hover[group, rank] = f"{format_counted(count, 'node')}, {said}"
    most = int(use.bytes.max())
    # Nothing of a size that is not recorded is no size of 0.
    known = bool((use.sized[use.bytes == 0] > 0).any()) or bool((use.count[use.bytes == 0] == 0).any())
    zero = ("0 B" if known else "not recorded") if (use.bytes == 0).any() else ""
    labels = [
        name if len(name) <= 24 else f"{name[:23]}…"
        for name in (group or "(all ranks)" for group in use.groups)
    ]
    labels = [f"{name}  {note}" for name, note in zip(labels, notes, strict=True)] if notes else labels
    colours = palette(dark)
    steps = [step * most // 4 for step in range(1, 5)] if most else []
    ticks = {
        "tickvals": [*([0] if zero else []), *steps],
        "ticktext": [*([zero] if zero else []), *(format_bytes(step) for step in steps)],
    }
    heat = go.Heatmap(
        z=size,
        x=[str(rank) for rank in use.ranks],
        y=[f"{index}" for index in range(len(labels))],
        customdata=hover,
        hovertemplate="group %{text} · rank %{x}<br>%{customdata}<extra></extra>",
        text=np.repeat(np.array(labels, object)[:, None], shape[1], axis=1),
        texttemplate="",
        # The background stands for nothing, so the strongest colour is the one farthest from it.
        colorscale=list(SEQUENTIAL["dark" if dark else "light"]),
        zmin=0,
        zmax=max(most, 1),
        xgap=1 if shape[1] <= 200 else 0,
        ygap=1 if shape[0] <= 60 else 0,
        hoverongaps=False,
        colorbar={
            "title": {"text": "bytes", "side": "right"},
            **ticks,
            "thickness": 10,
            "outlinewidth": 0,
            "tickfont": {"color": colours.dim},
        },
    )
    height = int(min(_MOST_PX, max(_LEAST_PX, 60 + _ROW_PX * shape[0])))
    figure = go.Figure(heat, layout(dark, height=height))
    every = max(1, -(-len(labels) // ((height - 60) // 14)))
    shown = list(range(0, len(labels), every))
    figure.update_xaxes(
        title="rank", type="category", showgrid=False, nticks=min(32, shape[1]), title_standoff=6
    )
    figure.update_yaxes(
        title="comm group",
        tickvals=[str(index) for index in shown],
        ticktext=[labels[index] for index in shown],
        type="category",
        autorange="reversed",
        showgrid=False,
    )
    return figure
