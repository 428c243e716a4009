"""Step time of a model's layouts against the memory that a rank holds, and the front that no layout beats in both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from studio.figures.theme import build_figure_layout, build_small_font, choose_palette
from studio.layout_search.unfit import describe_layout
from studio.units import format_ns, format_si

if TYPE_CHECKING:
    from studio.layout_search.layout_plan import LayoutPlan
    from studio.layout_search.search import Item

HEIGHT_PX = 340
_GB = 1e9


def front_figure(layout_plan: LayoutPlan, *, dark: bool) -> Any:
    """Return step time against memory per NPU of every layout that was simulated, the front, and the GPU's memory.

    Points have the layout's place in `layout_plan.items` as `customdata`; those that were left out are drawn at the least time they take.
    """
    import plotly.graph_objects as go

    colours, best = choose_palette(dark), {id(item) for item in layout_plan.front}
    place = {id(item): at for at, item in enumerate(layout_plan.items)}
    rest = [item for item in layout_plan.simulated if id(item) not in best]
    left = [item for item in layout_plan.left_out if item.bound_ns]
    base = build_figure_layout(dark, height=HEIGHT_PX, hovermode="closest")
    small = build_small_font(colours)
    figure = go.Figure(
        layout={
            **base,
            "legend": {"font": {"size": 11}, "orientation": "h", "x": 1, "xanchor": "right", "y": 1.02, "yanchor": "bottom"},
            "margin": {"l": 10, "r": 16, "t": 28, "b": 10},
            "xaxis": {**base["xaxis"], "title": {"text": "memory of an NPU in GB", "font": small}, "tickfont": small, "rangemode": "tozero"},
            "yaxis": {**base["yaxis"], "title": {"text": "step in s", "font": small}, "tickfont": small, "rangemode": "tozero"},
        }
    )  # fmt: skip
    for chosen, name, mark, mode in (
        (left, f"left out, no faster than ({len(left):,})", {"color": colours.dim, "size": 5, "symbol": "triangle-up-open"}, "markers"),
        (rest, f"beaten in both ({len(rest):,})", {"color": colours.host, "size": 6, "opacity": 0.7}, "markers"),
        (layout_plan.front, f"front ({len(best):,})", {"color": colours.compute, "size": 9}, "lines+markers"),
    ):  # fmt: skip
        if not chosen:
            continue
        figure.add_trace(
            go.Scatter(
                x=[item.held.total / _GB for item in chosen],
                y=[layout_plan.step_ns(item) / 1e9 for item in chosen],
                mode=mode,
                name=name,
                marker=mark,
                line={"color": colours.compute, "width": 1.5, "shape": "hv"},
                text=[describe_planned_layout(layout_plan, item) for item in chosen],
                customdata=[place[id(item)] for item in chosen],
                hovertemplate="%{text}<extra></extra>",
            )
        )
    figure.add_vline(
        x=layout_plan.gpu.memory_gbytes, line={"color": colours.dim, "width": 1, "dash": "dot"},
        annotation={"text": f"{layout_plan.gpu.memory_gbytes:g} GB", "font": small},
    )  # fmt: skip
    return figure


def describe_planned_layout(layout_plan: LayoutPlan, item: Item) -> str:
    """Return a layout in words for hovering."""
    step = format_ns(round(layout_plan.step_ns(item)))
    time = step if item.answer is not None else f"at least {step}"
    mfu = f" · MFU {100 * layout_plan.mfu(item):.1f} %" if item.answer is not None else ""
    return f"<b>{time}</b> · {format_si(item.held.total, 'B')}{mfu}<br>{describe_layout(item.candidate)}"
