"""What the search of the timeline finds, against the nodes themselves."""

from __future__ import annotations

import re

import numpy as np
import pytest

import studio
from studio.analysis.timeline.gantt import Gantt
from studio.analysis.timeline.hits import find_hits
from studio.errors import TraceError
from studio.samples import sample_path
from studio.timeline import recorded
from studio.trace import CollectiveType, NodeType, read_int_column


@pytest.fixture(scope="module")
def gantt() -> Gantt:
    trace = studio.read(sample_path("transformer_8r"))
    timeline = recorded(trace)
    return Gantt(trace, timeline, origin_ns=int(timeline.start_ns.min()))


def nodes(gantt: Gantt, fits) -> set[tuple[int, int]]:
    """(rank, row) of every node of the job that fits."""
    return {
        (rank.number, row)
        for rank in gantt.trace.ranks
        for graph in (gantt.trace.graph_of(rank),)
        for row in range(len(graph))
        if fits(rank, graph, row)
    }


def test_what_is_found_is_what_fits_in_order_of_start(gantt: Gantt) -> None:
    def name(graph, row) -> str:
        return graph.strings[int(graph.name[row])]

    reduces = {
        index: set(rows[values == CollectiveType.ALL_REDUCE].tolist())
        for index, graph in enumerate(gantt.trace.graphs)
        for rows, values in [read_int_column(graph, "comm_type")]
    }
    cases = {
        "ATTN.scores": lambda _rank, graph, row: "attn.scores" in name(graph, row).lower(),
        "/layer[02].*bwd$/": lambda _rank, graph, row: re.search("layer[02].*bwd$", name(graph, row)),
        "id:60": lambda _rank, graph, row: graph.id[row] == 60,
        "type: comm_send": lambda _rank, graph, row: graph.type[row] == NodeType.COMM_SEND,
        "type:all_reduce": lambda rank, _graph, row: row in reduces[rank.graph],
        "no such name": lambda *_: False,
    }
    for text, fits in cases.items():
        found = find_hits(gantt, text)
        ranks = gantt.rows.rank[found.row].tolist()
        assert set(zip(ranks, found.node.tolist(), strict=True)) == nodes(gantt, fits), text
        assert found.count == len(found.row)
        assert (np.diff(found.start_ns) >= 0).all()
    lanes = gantt.rows.rank[find_hits(gantt, "group:tp1").row]
    assert set(lanes.tolist()) == set(next(one for one in gantt.trace.groups if one.name == "tp1").ranks)


@pytest.mark.parametrize("text", ["/(/", "id:", "id:-1", f"id:{1 << 64}"])
def test_what_cannot_be_looked_for_is_refused(gantt: Gantt, text: str) -> None:
    with pytest.raises(TraceError):
        find_hits(gantt, text)
