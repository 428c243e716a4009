"""The route of the critical path through all ranks, as the Timeline outlines it."""

from __future__ import annotations

import numpy as np
from flask import Blueprint, Response, request

from studio.analysis.path.segments import CAUSES, CriticalPath
from studio.analysis.path.words import describe_path
from studio.analysis.timeline.gantt import Gantt
from studio.columns import group_places
from studio.server.answers import get_session
from studio.server.bars import get_gantt
from studio.server.packed import pack_arrays
from studio.trace import NONE, Int64

_MOST = 20_000
"""Pieces that are sent; of more those that follow each other in a row are joined, and then the longest are sent."""


def add_path(routes: Blueprint) -> None:
    """Add the route to those of the timeline."""

    @routes.get("/<job>/timeline/path")
    def serve_path(job: str) -> Response:
        gantt = get_gantt(job)
        whole = get_session().whole_path(job, request.args.get("run", ""))
        pieces, dropped = build_outline(gantt, whole.path)
        rank, row, start, end, cause, gap = pieces
        header = {
            "sentence": describe_path(whole.shares),
            "length": whole.path.length_ns,
            "dropped": dropped,
            "causes": CAUSES,
        }
        columns = {
            "rank": rank.astype(np.int32),
            "row": row.astype(np.int32),
            "start": start.astype(np.float64),
            "end": end.astype(np.float64),
            "cause": cause.astype(np.uint8),
            "gap": gap.astype(np.uint8),
        }
        return pack_arrays(header, columns)


def build_outline(gantt: Gantt, path: CriticalPath) -> tuple[Int64, int]:
    """Return the pieces of a path to draw, by time, and how many are left out because there are too many.

    Returns:
        (6, P) number of the rank, row, start and end after the timeline's beginning, cause, and whether the piece is a gap
        before its node. What has no bar is not among them.
    """
    row, begun = np.full(len(path), NONE, np.int64), np.zeros(len(path), np.int64)
    shift = path.shift_ns[path.rank]
    numbers = np.array([rank.number for rank in gantt.trace.ranks], np.int64)
    for place, segments in group_places(path.rank):
        rank = gantt.trace.ranks[place]
        of_nodes = segments[path.row[segments] != NONE]
        places = gantt.places(rank)[path.row[of_nodes]].astype(np.int64)
        has_bar = places != NONE
        row[of_nodes[has_bar]] = gantt.rows_at(rank, places[has_bar])
        begun[of_nodes[has_bar]] = gantt.coverage.start_ns[places[has_bar]] - gantt.origin_ns
    start = path.start_ns + shift
    columns = (numbers[path.rank], row, start, path.end_ns + shift, path.cause, start < begun)
    pieces = np.stack([column.astype(np.int64) for column in columns])[:, row != NONE]
    if pieces.shape[1] <= _MOST:
        return pieces, 0
    pieces = _join_pieces(pieces)
    dropped = max(pieces.shape[1] - _MOST, 0)
    if dropped:
        longest = np.argsort(pieces[2] - pieces[3], kind="stable")[:_MOST]
        pieces = pieces[:, np.sort(longest)]
    return pieces, dropped


def _join_pieces(pieces: Int64) -> Int64:
    """Return pieces that follow each other in a row as one."""
    opens = np.flatnonzero(
        np.append(True, (pieces[1, 1:] != pieces[1, :-1]) | (pieces[2, 1:] != pieces[3, :-1]))
    )
    joined = pieces[:, opens].copy()
    joined[3] = pieces[3, np.append(opens[1:], pieces.shape[1]) - 1]
    return joined
