"""Routes of related bars: peers on other ranks, chains of dependencies, and hits of a search."""

from __future__ import annotations

from typing import Any

import numpy as np
from flask import Blueprint, Response, request
from numpy.typing import NDArray

from studio.analysis.timeline.chains import chain_of, list_chain_boxes
from studio.analysis.timeline.gantt import Bar
from studio.analysis.timeline.hits import find_hits
from studio.analysis.timeline.peers import find_peers
from studio.server.answers import as_json
from studio.server.bars import convert_bar, find_bar, get_gantt
from studio.server.packed import pack_arrays
from studio.trace import Int64


def add_relations(routes: Blueprint) -> None:
    """Add the routes to those of the timeline."""

    @routes.get("/<job>/timeline/peers")
    def serve_peers(job: str) -> Response:
        gantt = get_gantt(job)
        bar = find_bar(gantt)
        peers_found = None if bar is None else find_peers(gantt, bar)
        if bar is None or peers_found is None:
            return as_json({"peers": []})
        columns = [
            (peer.rank.number, peer.row, peer.start_ns, peer.end_ns, peer.node) for peer in peers_found.bars
        ]
        answer: dict[str, Any] = {
            "group": peers_found.group,
            "position": peers_found.position,
            "members": peers_found.members,
            "last": _find_last_rank(peers_found.bars),
        }
        return as_json({**answer, "bar": convert_bar(gantt, bar), "peers": columns})

    @routes.get("/<job>/timeline/search")
    def search(job: str) -> Response:
        gantt = get_gantt(job)
        hits = find_hits(gantt, request.args.get("q", "")[:300])
        bars = {} if hits.bars is None else _convert_bars(hits.bars)
        columns: dict[str, NDArray[Any]] = {
            "row": hits.row.astype(np.int32),
            "node": hits.node.astype(np.int32),
            "start": hits.start_ns.astype(np.float64),
            "end": hits.end_ns.astype(np.float64),
            **bars,
        }
        return pack_arrays({"count": hits.count}, columns)

    @routes.get("/<job>/timeline/chain")
    def serve_chain(job: str) -> Response:
        gantt = get_gantt(job)
        bar = find_bar(gantt)
        if bar is None:
            return as_json({"bars": [], "edges": [], "more": False})
        whole_chain = chain_of(gantt, bar)
        bars, edges = list_chain_boxes(gantt, whole_chain)
        answer = {"rank": bar.rank.number, "bars": bars, "edges": edges, "more": whole_chain.more}
        return as_json({**answer, "nodes": len(whole_chain.bars)} if gantt.calls else answer)


def _convert_bars(bars: Int64) -> dict[str, NDArray[Any]]:
    row, start, end = bars
    return {
        "bar_row": row.astype(np.int32),
        "bar_start": start.astype(np.float64),
        "bar_end": end.astype(np.float64),
    }


def _find_last_rank(bars: tuple[Bar, ...]) -> int:
    """Return the number of the rank that waits least of all, so the others wait for it; -1 where there is none."""
    return min(bars, key=lambda bar: (bar.waits_ns, -bar.start_ns)).rank.number if bars else -1
