"""Routes that compare two runs of a job on the same lanes, node by node."""

from __future__ import annotations

from typing import Any

import numpy as np
from flask import Blueprint, Response, request

from studio.analysis.timeline.differences import differences
from studio.analysis.timeline.gantt import Gantt
from studio.distinct import find_distinct
from studio.figures.graph import node_refs
from studio.server.answers import FARTHEST, NAME_AT_MOST, as_json, plain_cell, whole
from studio.server.bars import bar_asked_for, gantt_asked_for, ghost_asked_for

SHOWN_AT_MOST = 2000
_HEAD = (
    "rank", "node", "name", "time_ns", "other_ns", "difference_ns", "start_ns", "other_start_ns"
)  # fmt: skip


def add_differences(routes: Blueprint) -> None:
    """Add the routes to those of the timeline."""

    def both(job: str) -> tuple[Gantt, Gantt]:
        return gantt_asked_for(job), ghost_asked_for(job, request.args.get("ghost", ""))

    @routes.get("/<job>/timeline/ghost")
    def ghost(job: str) -> Response:
        _, other = both(job)
        return as_json({"span": other.span_ns, "bars": len(other)})

    @routes.get("/<job>/timeline/difference")
    def difference(job: str) -> Response:
        gantt, other = both(job)
        bar = bar_asked_for(gantt)
        other_bar = None if bar is None else other.bar(bar.rank, bar.node)
        if bar is None or other_bar is None:
            return as_json({"here": None, "there": None})
        return as_json({"here": (bar.start_ns, bar.end_ns), "there": (other_bar.start_ns, other_bar.end_ns)})

    @routes.get("/<job>/timeline/differences")
    def table(job: str) -> Response:
        rows, count = _table(*both(job), SHOWN_AT_MOST)
        return as_json({"head": _HEAD, "rows": rows, "count": count})

    @routes.get("/<job>/timeline/differences.tsv")
    def all_differences(job: str) -> Response:
        rows, _ = _table(*both(job), None)
        lines = ["\t".join(_HEAD), *("\t".join(map(plain_cell, row)) for row in rows)]
        return Response("\n".join(lines) + "\n", mimetype="text/tab-separated-values")


def _table(gantt: Gantt, other: Gantt, most: int | None) -> tuple[list[tuple[Any, ...]], int]:
    changes = differences(gantt, other, (whole("from", FARTHEST), whole("to", FARTHEST)))
    rank, node = changes.rank[:most], changes.node[:most]
    refs, names = np.empty(len(rank), object), np.empty(len(rank), object)
    for number in find_distinct(rank).tolist():
        of_rank = np.flatnonzero(rank == number)
        graph = gantt.trace.graph_of(gantt.rank(number))
        refs[of_rank] = node_refs(graph, node[of_rank])
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
