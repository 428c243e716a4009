"""Where the time of each rank went: one stacked column per rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from studio.analysis.job.kinds import ASSUMED_ARRIVAL
from studio.analysis.job.ledger import Ledger
from studio.analysis.job.part_words import NAMES
from studio.figures.part_marks import STACKED, build_assumed_mark, choose_mark
from studio.figures.rank_axis import NUMBERED, is_numbered
from studio.figures.theme import (
    FIGURE_PX,
    LEGEND_ABOVE,
    build_figure_layout,
    choose_axis_unit,
    choose_palette,
)
from studio.trace import Int64
from studio.units import format_ns

_COLUMNS = 128
_ROOM = 6
"""Fewer columns are as wide as if there were so many."""


def draw_rank_times(account: Ledger, *, dark: bool, assumed_ns: Int64 | None = None) -> Any:
    """Return columns of the parts of each rank's time, up to its finish.

    Above 128 ranks a column stands for several neighbours and shows the one that finishes last.

    Args:
        account: Where the time goes, per rank.
        dark: Which theme.
        assumed_ns: (K,) how much of each rank's host time is an assumed arrival, a part of its own in the figure.
    """
    import plotly.graph_objects as go

    colours = choose_palette(dark)
    finish_ns = account.finish_ns
    numbered = is_numbered(account.numbers)
    chosen, names, places, widths = group_into_columns(finish_ns, account.numbers)
    gap = 0.15 if len(chosen) <= 64 else 0
    times = account.totals()
    parts = [(NAMES[part], times.of(part), choose_mark(part, colours)) for part in STACKED]
    if assumed_ns is not None and assumed_ns.any():
        host = STACKED.index("host")
        parts[host] = (NAMES["host"], times.of("host") - assumed_ns, choose_mark("host", colours))
        parts.insert(host + 1, (ASSUMED_ARRIVAL, assumed_ns, build_assumed_mark(colours)))
    unit, scale = choose_axis_unit(int(finish_ns.max()))
    figure = go.Figure(
        [
            go.Bar(
                x=places if numbered else list(range(len(chosen))),
                y=values[chosen] / scale,
                width=[(1 - gap) * width for width in widths] if numbered else None,
                name=name,
                marker=marker,
                customdata=[
                    f"{label} · {name} {format_ns(int(value))} ({int(value):,} ns) of {format_ns(int(end))}"
                    for label, value, end in zip(names, values[chosen], finish_ns[chosen], strict=True)
                ],
                hovertemplate="%{customdata}<extra></extra>",
            )
            for name, values, marker in parts
            if values.any()
        ],
        build_figure_layout(dark, height=FIGURE_PX, barmode="stack", bargap=gap),
    )
    figure.update_layout(
        legend={**LEGEND_ABOVE, "traceorder": "normal"},
        margin={"l": 10, "r": 10, "t": 26, "b": 10},
    )
    figure.update_xaxes(
        title_text="rank", title_standoff=4, **(NUMBERED if numbered else _build_named_axis(names))
    )
    if not numbered and len(chosen) < _ROOM:
        # One column as wide as the figure looks like an area, not like a rank.
        figure.update_xaxes(domain=[0, len(chosen) / _ROOM])
    figure.update_yaxes(title_text=unit, title_standoff=6, nticks=5, rangemode="tozero")
    return figure


def _build_named_axis(names: Sequence[str]) -> dict[str, Any]:
    """Return the axis of columns that are named one by one, up to sixteen of them."""
    every = max(1, -(-len(names) // 16))
    # Of several ranks the first: all of a range has no room below its column.
    shown = [name.removeprefix("rank ").removeprefix("ranks ").partition("–")[0] for name in names[::every]]
    return {
        "tickvals": list(range(0, len(names), every)),
        "ticktext": shown,
        "tickangle": 0,
        "showgrid": False,
    }


def group_into_columns(
    finish_ns: Int64, numbers: Sequence[int]
) -> tuple[Int64, list[str], list[float], list[int]]:
    """Return the rank and the label of each column, the middle of its ranks, and how many they are.

    Example:
        >>> group_into_columns(np.array([3, 9, 5]), [0, 1, 2])[1:]
        (['rank 0', 'rank 1', 'rank 2'], [0.0, 1.0, 2.0], [1, 1, 1])
    """
    ranks = len(finish_ns)
    edges = np.linspace(0, ranks, min(ranks, _COLUMNS) + 1).astype(np.int64)
    chosen, names, places, widths = [], [], [], []
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        chosen.append(low + int(finish_ns[low:high].argmax()))
        first, last = numbers[low], numbers[high - 1]
        names.append(f"rank {first}" if high - low == 1 else f"ranks {first}–{last}")
        places.append((first + last) / 2)
        widths.append(high - low)
    return np.array(chosen, np.int64), names, places, widths
