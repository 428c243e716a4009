"""Colours of the Graph page's drawing, the critical path in it, and widths by time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from studio.analysis.graph.critical import Schedule, compute_schedule
from studio.analysis.graph.levels import find_thread_lanes
from studio.analysis.path.whole import WholePath
from studio.analysis.path.words import describe_path
from studio.distinct import find_distinct
from studio.figures.graph_colours import Swatch, colour_categories, colour_differences, scale_colours
from studio.session import Session, keep_result
from studio.trace import (
    NONE,
    Float64,
    Graph,
    Int64,
    NodeType,
    Trace,
    communicates,
    group_slots,
    read_dense_column,
)
from studio.units import format_bytes, format_counted, format_ns
from studio.views.graph_fold import compute_adjacency, get_depths
from studio.views.graph_request import Request
from studio.views.graph_times import collect_node_spans

_NARROWEST, _WIDEST = 46, 96
_NAMED = 4
_NARROWEST_BLOCK, _WIDEST_BLOCK = 80, 184


@keep_result
def _schedule(session: Session, job: str, graph: int, deps: str, run: str | None, rank: int) -> Schedule:
    columns = session.trace(job).graphs[graph]
    start, end = collect_node_spans(session, job, graph, run, rank)
    return compute_schedule(
        compute_adjacency(session, job, graph, deps).edges,
        get_depths(session, job, graph, deps),
        start,
        end,
        duration_ns=columns.duration_ns,
        lane=_number_resources(columns) if run else find_thread_lanes(columns)[0],
    )


def schedule_of(asked: Request) -> Schedule:
    """Return the schedule of the requested rank in the shown run."""
    return _schedule(asked.session, asked.job, asked.graph, asked.deps, asked.run, asked.rank)


def _number_resources(graph: Graph) -> Int64:
    """Return (N,) the resource of each simulated node: the NPU, its memory, or a comm group's queue."""
    lane = np.full(len(graph), NONE, np.int64)
    lane[graph.type == NodeType.COMP] = 0
    lane[(graph.type == NodeType.MEM_LOAD) | (graph.type == NodeType.MEM_STORE)] = 1
    is_communication = communicates(graph)
    lane[is_communication] = group_slots(graph)[is_communication] + 3
    return lane


def paint(
    asked: Request, elements: list[dict[str, Any]], rows: list[Int64]
) -> tuple[list[dict[str, Any]], list[Swatch]]:
    """Add the requested hues, widths and marks to elements; also return the legend of the hues.

    Args:
        asked: What is asked for.
        elements: What Cytoscape draws; changed in place.
        rows: The nodes that each element of a node or block stands for, frames left out.
    """
    shown = [
        element["data"]
        for element in elements
        if element["group"] == "nodes" and element["data"]["kind"] != "frame"
    ]
    legend: list[Swatch] = []
    if asked.colour != "type":
        hues, legend, texts = _choose_hues(asked, rows)
        for data, hue, text in zip(shown, hues, texts, strict=True):
            data |= {"hue": hue, "value": text}
    if asked.wide:
        _widen(asked, shown, rows)
    if asked.critical:
        _mark(asked, elements, shown, rows)
    return elements, legend


def _compute_durations(asked: Request, run: str | None) -> Float64:
    graph = asked.session.trace(asked.job).graphs[asked.graph]
    start, end = collect_node_spans(asked.session, asked.job, asked.graph, run, asked.rank)
    if not (start >= 0).any() and not run:
        return graph.duration_ns.astype(float)
    return np.where(start >= 0, (end - start).astype(float), np.nan)


def _sum_rows(values: Float64, rows: list[Int64]) -> Float64:
    """Return (V,) the sum over the nodes of each element; NaN if none of them has a value."""
    return np.array(
        [
            np.nansum(values[indices]) if (values[indices] == values[indices]).any() else np.nan
            for indices in rows
        ]
    )


def _choose_hues(asked: Request, rows: list[Int64]) -> tuple[list[str], list[Swatch], list[str]]:
    """Return hue and text of each element, and the legend."""
    graph = asked.session.trace(asked.job).graphs[asked.graph]
    if asked.colour in ("group", "lane"):
        return _choose_category_hues(asked, graph, rows)
    if asked.colour == "difference":
        values = np.full(len(rows), np.nan)
        if asked.against is not None:
            values = _sum_rows(
                _compute_durations(asked, asked.against) - _compute_durations(asked, asked.run), rows
            )
        hues, legend = colour_differences(values, _format_signed)
        return (
            hues,
            legend,
            ["" if value != value else f"difference {_format_signed(value)}" for value in values.tolist()],
        )
    formatter: Callable[[float], str] = format_ns
    if asked.colour == "bytes":
        values, formatter = (
            _sum_rows(read_dense_column(graph, "comm_size", 0).astype(float), rows),
            format_bytes,
        )
    elif asked.colour == "duration":
        values = _sum_rows(_compute_durations(asked, asked.run), rows)
    else:
        plan = schedule_of(asked)
        spare = _compute_slack(asked) if plan.basis == "times" else plan.slack_ns
        slack = np.where(spare >= 0, spare.astype(float), np.nan)
        values = np.array(
            [
                np.nanmin(slack[indices]) if (slack[indices] == slack[indices]).any() else np.nan
                for indices in rows
            ]
        )
        if plan.basis == "nodes":
            formatter = _format_nodes
    hues, legend = scale_colours(values, formatter)
    return (
        hues,
        legend,
        ["" if value != value else f"{asked.colour} {formatter(value)}" for value in values.tolist()],
    )


def _compute_slack(asked: Request) -> Int64:
    """Return (N,) the slack of the drawn nodes within the whole run, -1 where they have no times."""
    trace = asked.session.trace(asked.job)
    first = int(asked.session.times(asked.job, asked.run or "").first[_list_drawn_places(asked, trace)[0]])
    return asked.session.slack(asked.job, asked.run or "")[first : first + len(trace.graphs[asked.graph])]


def _choose_category_hues(
    asked: Request, graph: Graph, rows: list[Int64]
) -> tuple[list[str], list[Swatch], list[str]]:
    if asked.colour == "group":
        codes, none = group_slots(graph), "no comm group"
        names = [f"group {name or 'of all ranks'}" for name in asked.names]
    else:
        codes, names = find_thread_lanes(graph)
        none = "no thread or stream"
    # A block has the most frequent colour of its nodes.
    most = np.array([_find_most_frequent(codes[indices]) for indices in rows], np.int64)
    hues, legend = colour_categories(most, lambda code: names[code], none)
    return hues, legend, [names[code] if code >= 0 else none for code in most.tolist()]


def _find_most_frequent(codes: Int64) -> int:
    coded = codes[codes >= 0]
    return int(np.bincount(coded).argmax()) if len(coded) else NONE


def _format_nodes(count: float) -> str:
    return format_counted(int(count), "node")


def _format_signed(ns: float) -> str:
    return f"+{format_ns(ns)}" if ns > 0 else f"−{format_ns(-ns)}" if ns < 0 else format_ns(0)


def _widen(asked: Request, shown: list[dict[str, Any]], rows: list[Int64]) -> None:
    values = np.nan_to_num(_sum_rows(_compute_durations(asked, asked.run), rows))
    for is_block in (False, True):
        chosen = [index for index, data in enumerate(shown) if (data["kind"] == "block") == is_block]
        most = values[chosen].max(initial=0.0)
        low, high = (_NARROWEST_BLOCK, _WIDEST_BLOCK) if is_block else (_NARROWEST, _WIDEST)
        for index in chosen:
            share = float(values[index] / most) ** 0.5 if most else 1.0
            shown[index]["wd"] = round(low + (high - low) * share, 1)


def _mark(
    asked: Request, elements: list[dict[str, Any]], shown: list[dict[str, Any]], rows: list[Int64]
) -> None:
    """Mark nodes, blocks and lines on the critical path."""
    path, follows = _find_path(asked)
    on_path = np.zeros(len(asked.session.trace(asked.job).graphs[asked.graph]), np.bool_)
    on_path[path] = True
    of = np.full(len(on_path), NONE, np.int64)
    for index, indices in enumerate(rows):
        of[indices] = index
        if on_path[indices].any():
            shown[index]["crit"] = 1
    steps = {
        (start, other)
        for (start, other), joined in zip(pairwise(of[path].tolist()), follows, strict=False)
        if joined and start != other and NONE not in (start, other)
    }
    names = {(shown[start]["id"], shown[other]["id"]) for start, other in steps}
    for element in elements:
        data = element["data"]
        if element["group"] == "edges" and (data["source"], data["target"]) in names:
            data["crit"] = 1


def _find_path(asked: Request) -> tuple[Int64, list[bool]]:
    """Return the nodes of the critical path in the drawn graph by time, and whether each leads to the next of them.

    It is the path through all ranks where they have times, of the ranks that are drawn; else that of the rank alone.
    """
    plan = schedule_of(asked)
    if plan.basis != "times":
        return plan.path, [True] * max(len(plan.path) - 1, 0)
    trace = asked.session.trace(asked.job)
    segment, rows = _get_whole_path(asked).visits(_list_drawn_places(asked, trace))
    return rows, (np.diff(segment) == 1).tolist()


def _get_whole_path(asked: Request) -> WholePath:
    return asked.session.whole_path(asked.job, asked.run or "")


def _list_drawn_places(asked: Request, trace: Trace) -> list[int]:
    """Return the places of the ranks that the drawn graph shows: in a recording all that share it, and so their times."""
    if asked.run:
        return [asked.rank]
    return [place for place, rank in enumerate(trace.ranks) if rank.graph == asked.graph]


def describe_critical_path(asked: Request) -> str:
    """Describe the critical path in a sentence."""
    plan = schedule_of(asked)
    if plan.basis == "times":
        return _describe_whole_path(asked)
    if not len(plan.path):
        return ""
    nodes = format_counted(len(plan.path), "node")
    if plan.basis == "nodes":
        return f" Without times or durations the critical path is the longest chain: {nodes}."
    return f" Critical path: {nodes}, {format_ns(plan.length_ns)}, with durations laid out along the dependencies."


def _describe_whole_path(asked: Request) -> str:
    """Describe the critical path through all ranks, and what of it is drawn here."""
    whole, trace = _get_whole_path(asked), asked.session.trace(asked.job)
    places = _list_drawn_places(asked, trace)
    segment, rows = whole.visits(places)
    here = format_counted(len(find_distinct(rows)), "node")
    numbers = [str(trace.ranks[place].number) for place in places[:_NAMED]]
    ranks = f"rank{'s' * (len(places) > 1)} {', '.join(numbers)}{', …' if len(places) > _NAMED else ''}"
    share = int(whole.path.ns[segment].sum())
    return (
        f" Critical path through all ranks, {format_ns(whole.path.length_ns)}: {describe_path(whole.shares)}. "
        f"{here[0].upper()}{here[1:]} of it, {format_ns(share)}, on {ranks}."
    )
