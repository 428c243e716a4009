"""Step time of a model's layouts against the memory that a rank holds, and the front that no layout beats in both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from studio.figures.theme import layout, palette
from studio.layout_search.unfit import describe
from studio.units import format_ns, format_si

if TYPE_CHECKING:
    from studio.layout_search.layout_plan import LayoutPlan
    from studio.layout_search.search import Item

HEIGHT_PX = 340
_GB = 1e9


def front_figure(found: LayoutPlan, *, dark: bool) -> Any:
    """Return step time against memory per NPU of every layout that was simulated, the front, and the GPU's memory.

    Points have the layout's place in `found.items` as `customdata`; those that were left out are drawn at the least time they take.
    """
    import plotly.graph_objects as go

    colours, best = palette(dark), {id(item) for item in found.front}
    place = {id(item): at for at, item in enumerate(found.items)}
    rest = [item for item in found.simulated if id(item) not in best]
    left = [item for item in found.left_out if item.bound_ns]
    made = layout(dark, height=HEIGHT_PX, hovermode="closest")
    small = {"color": colours.dim, "size": 11}
    figure = go.Figure(
        layout={
            **made,
            "legend": {"font": {"size": 11}, "orientation": "h", "x": 1, "xanchor": "right", "y": 1.02, "yanchor": "bottom"},
            "margin": {"l": 10, "r": 16, "t": 28, "b": 10},
            "xaxis": {**made["xaxis"], "title": {"text": "memory of an NPU in GB", "font": small}, "tickfont": small, "rangemode": "tozero"},
            "yaxis": {**made["yaxis"], "title": {"text": "step in s", "font": small}, "tickfont": small, "rangemode": "tozero"},
        }
    )  # fmt: skip
    for chosen, name, mark, mode in (
        (left, f"left out, no faster than ({len(left):,})", {"color": colours.dim, "size": 5, "symbol": "triangle-up-open"}, "markers"),
        (rest, f"beaten in both ({len(rest):,})", {"color": colours.host, "size": 6, "opacity": 0.7}, "markers"),
        (found.front, f"front ({len(best):,})", {"color": colours.compute, "size": 9}, "lines+markers"),
    ):  # fmt: skip
        if not chosen:
            continue
        figure.add_trace(
            go.Scatter(
                x=[item.held.total / _GB for item in chosen],
                y=[found.step_ns(item) / 1e9 for item in chosen],
                mode=mode,
                name=name,
                marker=mark,
                line={"color": colours.compute, "width": 1.5, "shape": "hv"},
                text=[layout_words(found, item) for item in chosen],
                customdata=[place[id(item)] for item in chosen],
                hovertemplate="%{text}<extra></extra>",
            )
        )
    figure.add_vline(
        x=found.gpu.memory_gbytes, line={"color": colours.dim, "width": 1, "dash": "dot"},
        annotation={"text": f"{found.gpu.memory_gbytes:g} GB", "font": small},
    )  # fmt: skip
    return figure


def layout_words(found: LayoutPlan, item: Item) -> str:
    """Return a layout in words for hovering."""
    step = format_ns(round(found.step_ns(item)))
    time = step if item.answer is not None else f"at least {step}"
    mfu = f" · MFU {100 * found.mfu(item):.1f} %" if item.answer is not None else ""
    return f"<b>{time}</b> · {format_si(item.held.total, 'B')}{mfu}<br>{describe(item.candidate)}"
