"""Bars of a timeline: find the one that an address names, and write it as plain data."""

from __future__ import annotations

from typing import Any

import numpy as np
from flask import request

from studio.analysis.job.node_refs import describe_node, find_node
from studio.analysis.timeline.gantt import Bar, Gantt
from studio.server.answers import FARTHEST, NAME_AT_MOST, get_session, parse_whole
from studio.trace import Graph, Int64

PIECES_AT_MOST = 2000
"""Bars of one node that are outlined: more than there are pixels on most screens."""


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


def convert_bar(gantt: Gantt, bar: Bar, *, near: bool = False) -> dict[str, Any]:
    """Return a bar as plain data, with what is shown on hover; of one that is only near to another without its pieces."""
    graph = gantt.trace.graph_of(bar.rank)
    description = {
        **describe_short(graph, bar.rank.number, bar.node),
        "index": bar.node,
        "row": bar.row,
        "start": bar.start_ns,
        "end": bar.end_ns,
        "waits": bar.waits_ns,
        "bytes": gantt.bytes_of(bar),
    }
    if bar.own_ns is None:
        return description
    return {**description, **({"own": bar.own_ns} if near else describe_own(gantt, bar))}


def describe_own(gantt: Gantt, bar: Bar) -> dict[str, Any]:
    """Return the own time of a recorded call and the bars that it is drawn in."""
    pieces = gantt.pieces_of(bar)
    return {"own": bar.own_ns, "count": pieces.shape[1], "pieces": _join_nearest(pieces).T.tolist()}


def list_pieces(gantt: Gantt, bar: Bar) -> list[list[int]]:
    """Return row, start and end of each bar that a node is drawn as."""
    pieces: list[list[int]] = _join_nearest(gantt.pieces_of(bar)).T.tolist()
    return pieces


def _join_nearest(pieces: Int64) -> Int64:
    """Return (3, P) rows, starts and ends as few as are drawn at once: with the shortest gaps closed where there are more."""
    if pieces.shape[1] <= PIECES_AT_MOST:
        return pieces
    gap = np.where(pieces[0, 1:] == pieces[0, :-1], pieces[1, 1:] - pieces[2, :-1], np.iinfo(np.int64).max)
    opens = np.sort(np.append(0, 1 + np.argsort(-gap, kind="stable")[: PIECES_AT_MOST - 1]))
    return np.stack([pieces[0, opens], pieces[1, opens], np.maximum.reduceat(pieces[2], opens)])
