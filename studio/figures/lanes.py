"""The timeline of a run as bars: one row per track of a lane, one colour per category."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from studio.analysis.timeline.coverage import Category
from studio.analysis.timeline.gantt import Gantt
from studio.distinct import find_distinct
from studio.figures.theme import Palette, build_figure_layout, choose_axis_unit, choose_palette
from studio.timeline import LANE_KINDS
from studio.trace import Bool, Int64
from studio.units import format_counted, format_ns

_ROW_PX, _LEAST_PX = 18, 150
_MOST_BARS = 20_000
_FINEST = 1 << 40
"""Parts of the shown time: what lies closer than one of them may be one bar, first of the finest, then of coarser ones."""
_NAMES = {Category.HOST: "CPU", Category.GAP: "stream idle"}
_LANES: dict[str, str] = {
    "compute": "compute",
    "memory": "memory",
    "cpu": "CPU",
    "thread": "thread",
    "stream": "stream",
}
"""What lanes are called before their own name; those of communication have that of their comm group."""


def draw_lane_bars(gantt: Gantt, *, dark: bool) -> Any:
    """Return the bars of a timeline, in rows by rank and lane.

    Of a large one neighbours of a category share a bar, which says how many nodes it is; none is left out.

    Args:
        gantt: The timeline, in rows.
        dark: Which theme.
    """
    import plotly.graph_objects as go

    colours = choose_palette(dark)
    row, span = _list_spans(gantt)
    start = gantt.coverage.start_ns[span] - gantt.origin_ns
    end = gantt.coverage.end_ns[span] - gantt.origin_ns
    category = gantt.coverage.category[span].astype(np.int64)
    order = np.lexsort((start, category, row))
    row, span, start, end, category = (values[order] for values in (row, span, start, end, category))
    first = _find_bar_starts(row, category, start, end, gantt.span_ns)
    last = np.append(first[1:], len(row)) - 1
    until = np.maximum.reduceat(end, first) if len(first) else end
    unit, scale = choose_axis_unit(float(gantt.span_ns))
    figure = go.Figure(layout=build_figure_layout(dark, barmode="overlay"))
    for kind in Category:
        own_bars = np.flatnonzero(category[first] == kind)
        if not len(own_bars):
            continue
        at, to = first[own_bars], last[own_bars]
        figure.add_trace(
            go.Bar(
                orientation="h",
                # Else plotly makes the bars of a category as thick as its rows are apart.
                width=0.86,
                name=_NAMES.get(kind, kind.name.lower()),
                y=row[at],
                base=start[at] / scale,
                x=(until[own_bars] - start[at]) / scale,
                marker={"color": _choose_colour(kind, colours), "line": {"width": 0}},
                customdata=[
                    _describe_bar(
                        gantt,
                        int(row[begin]),
                        int(span[begin]),
                        _count_nodes(gantt, span[begin : stop + 1]),
                        int(end_ns - start[begin]),
                    )
                    for begin, stop, end_ns in zip(at, to, until[own_bars], strict=True)
                ],
                hovertemplate="%{customdata}<extra></extra>",
            )
        )
    names = [_label_row(gantt, index) for index in range(len(gantt.rows))]
    figure.update_layout(
        height=max(_LEAST_PX, 70 + _ROW_PX * len(names)),
        legend={"orientation": "h", "y": 1.01, "yanchor": "bottom", "x": 0, "xanchor": "left"},
        margin={"l": 10, "r": 10, "t": 26, "b": 10},
    )
    figure.update_xaxes(title_text=f"since the beginning, {unit}", title_standoff=4)
    figure.update_yaxes(
        tickvals=list(range(len(names))),
        ticktext=names,
        range=[len(names) - 0.5, -0.5],
        showgrid=False,
    )
    return figure


def _list_spans(gantt: Gantt) -> tuple[Int64, Int64]:
    """Return the row and the place in the coverage of every span."""
    bounds = gantt.coverage.bounds
    begin, until = bounds[gantt.rows.track], bounds[gantt.rows.track + 1]
    count = until - begin
    row = np.repeat(np.arange(len(count)), count)
    return row, np.arange(int(count.sum())) + np.repeat(begin - np.cumsum(count) + count, count)


def _find_bar_starts(row: Int64, category: Int64, start: Int64, end: Int64, span_ns: int) -> Int64:
    """Return where each bar begins among spans sorted by row, category and start: joined until there are few enough."""
    if not len(row):
        return np.zeros(0, np.int64)
    apart: Bool = np.append(True, (np.diff(row) != 0) | (np.diff(category) != 0))
    # Each row and category in a stretch of time of its own, so that no end reaches into another's.
    stretch = (np.cumsum(apart) - 1) * (int(end.max()) + 1)
    gap = np.append(0, (start + stretch)[1:] - np.maximum.accumulate(end + stretch)[:-1])
    begins = np.ones(len(row), bool)
    parts = _FINEST
    while begins.sum() > _MOST_BARS and parts:
        begins = apart | (gap > span_ns // parts)
        parts //= 2
    return np.flatnonzero(begins)


def _count_nodes(gantt: Gantt, spans: Int64) -> int:
    """Return of how many nodes the spans of a rank are."""
    return len(spans) if gantt.coverage.goes_on is None else len(find_distinct(gantt.coverage.row[spans]))


def _describe_bar(gantt: Gantt, row: int, span: int, nodes: int, length_ns: int) -> str:
    rank = gantt.rank(int(gantt.rows.rank[row]))
    graph = gantt.trace.graph_of(rank)
    name = int(graph.name[int(gantt.coverage.row[span])])
    first = _escape_text(graph.strings[name]) if name >= 0 else ""
    what = (first or "a node") if nodes == 1 else f"{format_counted(nodes, 'node')}, the first is {first}"
    own_ns = int(gantt.times_of(rank, np.array([span])).own_ns[0])
    of_own = f" of its own {format_ns(own_ns)}" if nodes == 1 and length_ns < own_ns else ""
    return f"{_label_row(gantt, row) or 'the same lane'} · {what} · {format_ns(length_ns)}{of_own}"


def _label_row(gantt: Gantt, row: int) -> str:
    """Return the name of a row, "" below the first of its lane."""
    if gantt.rows.level[row]:
        return ""
    kind = LANE_KINDS[int(gantt.rows.kind[row])]
    name = _escape_text(gantt.rows.names[int(gantt.rows.name[row])])
    word = _LANES.get(kind, "group" if name.isdecimal() else "")
    return f"rank {int(gantt.rows.rank[row])} · {word} {name}".replace("  ", " ").rstrip()


def _escape_text(text: str) -> str:
    """Return untrusted text as plotly shows it to the letter, shortened."""
    kept = "".join(letter for letter in text if letter.isprintable())
    kept = kept if len(kept) <= 60 else f"{kept[:59]}…"
    return escape(kept, quote=False)


def _choose_colour(kind: Category, colours: Palette) -> str:
    return {
        Category.COMPUTE: colours.compute,
        Category.COLLECTIVE: colours.collective,
        Category.SEND: colours.p2p,
        Category.RECEIVE: colours.p2p,
        Category.MEMORY: colours.memory,
        Category.COPY: colours.copy,
        Category.GAP: colours.border,
    }.get(kind, colours.host)
