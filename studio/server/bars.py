"""Bars of a timeline: find the one that an address names, and write it as plain data."""

from __future__ import annotations

from typing import Any

from flask import request

from studio.analysis.job.nodes import describe_node, find_node
from studio.analysis.timeline.gantt import Bar, Gantt
from studio.server.answers import FARTHEST, NAME_AT_MOST, get_session, parse_whole
from studio.trace import Graph


def get_gantt(job: str) -> Gantt:
    """Return the timeline of a job in the run that an address names."""
    return get_session().gantt(job, request.args.get("run", ""))


def get_ghost(job: str, other: str) -> Gantt:
    """Return the times of another run in the lanes of the one that an address names."""
    return get_session().ghost(job, request.args.get("run", ""), other)


def find_bar(gantt: Gantt) -> Bar | None:
    """Return the bar an address names, by row and time or by rank and node; None where none is there."""
    if "row" in request.args:
        row = parse_whole("row", len(gantt.rows) - 1)
        return gantt.bar_at(row, parse_whole("at", FARTHEST), parse_whole("within", FARTHEST))
    rank = gantt.rank(parse_whole("rank", 2**31 - 1))
    graph = gantt.trace.graph_of(rank)
    if "index" in request.args:
        return gantt.bar(rank, parse_whole("index", len(graph) - 1))
    return gantt.bar(rank, find_node(graph, request.args.get("node", "")))


def describe_short(graph: Graph, rank: int, row: int) -> dict[str, Any]:
    """Describe a node of a rank in plain data, with as much of its name as pages show."""
    known = describe_node(graph, rank, row)
    return {**known, "name": known["name"][:NAME_AT_MOST]}


def convert_bar(gantt: Gantt, bar: Bar) -> dict[str, Any]:
    """Return a bar as plain data, with what is shown on hover."""
    graph = gantt.trace.graph_of(bar.rank)
    return {
        **describe_short(graph, bar.rank.number, bar.node),
        "index": bar.node,
        "row": bar.row,
        "start": bar.start_ns,
        "end": bar.end_ns,
        "waits": bar.waits_ns,
        "bytes": gantt.bytes_of(bar),
    }
