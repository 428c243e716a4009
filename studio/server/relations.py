"""Routes of what belongs together: peers on other ranks, the chain of dependencies, bars that fit a text."""

from __future__ import annotations

from typing import Any

import numpy as np
from flask import Blueprint, Response, request
from numpy.typing import NDArray

from studio.analysis.timeline.chains import chain_of
from studio.analysis.timeline.hits import find_hits
from studio.analysis.timeline.peers import peers_of
from studio.server.answers import as_json
from studio.server.bars import bar_as_json, bar_asked_for, gantt_asked_for
from studio.server.packed import packed


def add_relations(routes: Blueprint) -> None:
    """Add the routes to those of the timeline."""

    @routes.get("/<job>/timeline/peers")
    def peers(job: str) -> Response:
        gantt = gantt_asked_for(job)
        bar = bar_asked_for(gantt)
        found = None if bar is None else peers_of(gantt, bar)
        if bar is None or found is None:
            return as_json({"peers": []})
        columns = [(one.rank.number, one.row, one.start_ns, one.end_ns, one.node) for one in found.bars]
        answer: dict[str, Any] = {"group": found.group, "position": found.position, "members": found.members}
        return as_json({**answer, "bar": bar_as_json(gantt, bar), "peers": columns})

    @routes.get("/<job>/timeline/search")
    def search(job: str) -> Response:
        gantt = gantt_asked_for(job)
        found = find_hits(gantt, request.args.get("q", "")[:300])
        columns: dict[str, NDArray[Any]] = {
            "row": found.row.astype(np.int32),
            "node": found.node.astype(np.int32),
            "start": found.start_ns.astype(np.float64),
            "end": found.end_ns.astype(np.float64),
        }
        return packed({"count": found.count}, columns)

    @routes.get("/<job>/timeline/chain")
    def chain(job: str) -> Response:
        gantt = gantt_asked_for(job)
        bar = bar_asked_for(gantt)
        if bar is None:
            return as_json({"bars": [], "edges": [], "more": False})
        found = chain_of(gantt, bar)
        bars = [(one.row, one.start_ns, one.end_ns) for one in found.bars]
        return as_json({"rank": bar.rank.number, "bars": bars, "edges": found.edges, "more": found.more})
