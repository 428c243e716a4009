"""Figures of requests that are served: what they see over the load, and how the memory fills over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from studio.figures.theme import build_figure_layout, build_small_font, choose_axis_unit, choose_palette
from studio.units import format_ns

LATENCIES = {
    "ttft_ns": "time to first token",
    "tpot_ns": "time per output token",
    "latency_ns": "whole request",
}
_FRAME: dict[str, Any] = {
    "height": 260,
    # On the left: the tools of a figure lie over its right.
    "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
    "margin": {"l": 10, "r": 10, "t": 26, "b": 10},
}
_DASHES = {"p50": "solid", "p90": "dash", "p99": "dot"}


def draw_latency(loads: Sequence[Mapping[str, Any]], key: str, *, dark: bool) -> Any:
    """Return percentiles of a latency over the load, on a logarithmic axis.

    Args:
        loads: Figures of each load (`studio.generation.inference.serving.summarise_outcome`).
        key: One of `LATENCIES`.
        dark: Whether for a dark background.
    """
    import plotly.graph_objects as go

    colours = choose_palette(dark)
    shown = sorted((load for load in loads if load[key]["p50"] is not None), key=lambda load: load["load"])
    offered = all(load["offered_per_s"] is not None for load in shown)
    figure = go.Figure(layout=build_figure_layout(dark, hovermode="x unified", **_FRAME))
    for name, dash in _DASHES.items():
        figure.add_trace(
            go.Scatter(
                x=[load["offered_per_s"] if offered else load["load"] for load in shown],
                y=[load[key][name] / 1e9 for load in shown],
                mode="lines+markers",
                name=name,
                line={"color": colours.compute, "dash": dash, "width": 1.5},
                marker={"size": 6},
                text=[format_ns(load[key][name]) for load in shown],
                hovertemplate="%{text}",
            )
        )
    figure.update_xaxes(title_text="requests arriving per second" if offered else "load", rangemode="tozero")
    ticks = _compute_decade_ticks([load[key][name] for load in shown for name in _DASHES])
    figure.update_yaxes(
        title_text=LATENCIES[key],
        type="log",
        tickvals=[tick / 1e9 for tick in ticks],
        ticktext=[format_ns(tick) for tick in ticks],
    )
    return figure


def _compute_decade_ticks(values: Sequence[int]) -> list[int]:
    """Return 1, 2 and 5 of every decade that the values lie in, in nanoseconds."""
    known = [value for value in values if value > 0]
    if not known:
        return []
    powers = range(math.floor(math.log10(min(known))), math.floor(math.log10(max(known))) + 1)
    return [factor * 10**power for power in powers for factor in (1, 2, 5)]


def draw_memory(over_time: Sequence[Mapping[str, Any]], *, dark: bool) -> Any:
    """Return how full the KV cache is over time, and how many requests run and wait.

    Args:
        over_time: Samples (`studio.generation.inference.serving.sample_memory`).
        dark: Whether for a dark background.
    """
    import plotly.graph_objects as go

    colours = choose_palette(dark)
    unit, length = choose_axis_unit(over_time[-1]["time_ns"] if over_time else 0)
    times = [sample["time_ns"] / length for sample in over_time]
    base = build_figure_layout(dark, hovermode="x unified", **_FRAME)
    figure = go.Figure(
        layout={
            **base,
            "yaxis": {**base["yaxis"], "title": {"text": "KV cache", "font": build_small_font(colours)}, "tickformat": ".0%", "rangemode": "tozero"},
            "yaxis2": {
                **base["yaxis"], "title": {"text": "requests", "font": build_small_font(colours)}, "overlaying": "y", "side": "right", "rangemode": "tozero",
                "showgrid": False, "tickmode": "auto", "tickformat": ",.3~s", "nticks": 5,
            },
        }
    )  # fmt: skip
    for key, name, colour, axis in (
        ("kv_cache_share", "KV cache in use", colours.memory, "y"),
        ("running", "running", colours.compute, "y2"),
        ("waiting", "waiting", colours.p2p, "y2"),
    ):
        figure.add_trace(
            go.Scatter(
                x=times, y=[sample[key] for sample in over_time], mode="lines", name=name, yaxis=axis,
                line={"color": colour, "width": 1.5, "shape": "hv"},
                fill="tozeroy" if axis == "y" else None,
            )
        )  # fmt: skip
    figure.update_xaxes(title_text=f"time, {unit}")
    return figure
