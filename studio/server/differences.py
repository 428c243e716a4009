"""Routes that compare two runs of a job on the same lanes, node by node."""

from __future__ import annotations

from typing import Any

import numpy as np
from flask import Blueprint, Response, request

from studio.analysis.timeline.differences import find_differences
from studio.analysis.timeline.gantt import Gantt
from studio.distinct import find_distinct
from studio.figures.graph import format_node_refs
from studio.server.answers import FARTHEST, NAME_AT_MOST, as_json, format_plain_cell, parse_whole
from studio.server.bars import find_bar, get_gantt, get_ghost, list_pieces

SHOWN_AT_MOST = 2000
_HEAD = (
    "rank", "node", "name", "time_ns", "other_ns", "difference_ns", "start_ns", "other_start_ns"
)  # fmt: skip


def add_differences(routes: Blueprint) -> None:
    """Add the routes to those of the timeline."""

    def get_gantts(job: str) -> tuple[Gantt, Gantt]:
        return get_gantt(job), get_ghost(job, request.args.get("ghost", ""))

    @routes.get("/<job>/timeline/ghost")
    def serve_ghost(job: str) -> Response:
        _, other = get_gantts(job)
        return as_json({"span": other.span_ns, "bars": len(other)})

    @routes.get("/<job>/timeline/difference")
    def serve_difference(job: str) -> Response:
        gantt, other = get_gantts(job)
        bar = find_bar(gantt)
        other_bar = None if bar is None else other.bar(bar.rank, bar.node)
        if bar is None or other_bar is None:
            return as_json({"here": None, "there": None})
        times = {"here": (bar.start_ns, bar.end_ns), "there": (other_bar.start_ns, other_bar.end_ns)}
        if bar.own_ns is None and other_bar.own_ns is None:
            return as_json(times)
        pieces = list_pieces(gantt, bar), list_pieces(other, other_bar)
        return as_json({**times, "own": (bar.time_ns, other_bar.time_ns), "pieces": pieces})

    @routes.get("/<job>/timeline/differences")
    def serve_differences(job: str) -> Response:
        rows, count = _list_differences(*get_gantts(job), SHOWN_AT_MOST)
        return as_json({"head": _HEAD, "rows": rows, "count": count})

    @routes.get("/<job>/timeline/differences.tsv")
    def serve_differences_tsv(job: str) -> Response:
        rows, _ = _list_differences(*get_gantts(job), None)
        lines = ["\t".join(_HEAD), *("\t".join(map(format_plain_cell, row)) for row in rows)]
        return Response("\n".join(lines) + "\n", mimetype="text/tab-separated-values")


def _list_differences(gantt: Gantt, other: Gantt, most: int | None) -> tuple[list[tuple[Any, ...]], int]:
    changes = find_differences(gantt, other, (parse_whole("from", FARTHEST), parse_whole("to", FARTHEST)))
    rank, node = changes.rank[:most], changes.node[:most]
    refs, names = np.empty(len(rank), object), np.empty(len(rank), object)
    for number in find_distinct(rank).tolist():
        of_rank = np.flatnonzero(rank == number)
        graph = gantt.trace.graph_of(gantt.rank(number))
        refs[of_rank] = format_node_refs(graph, node[of_rank])
        names[of_rank] = [graph.strings[code][:NAME_AT_MOST] for code in graph.name[node[of_rank]].tolist()]
    columns = (
        changes.time_ns,
        changes.other_ns,
        changes.time_ns - changes.other_ns,
        changes.start_ns,
        changes.other_start_ns,
    )
    cells = (rank.tolist(), refs.tolist(), names.tolist(), *(column[:most].tolist() for column in columns))
    return list(zip(*cells, strict=True)), len(changes)
