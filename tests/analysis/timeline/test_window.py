"""The table of a marked window, against every span looked at by itself."""

from __future__ import annotations

import numpy as np
import pytest

import studio
from studio.analysis.timeline.coverage import Category
from studio.analysis.timeline.gantt import Gantt
from studio.analysis.timeline.window import BY, By, compute_shares, compute_spreads
from studio.samples import sample_path
from studio.sim import simulate
from studio.sim.parts import Parts, interpret
from studio.timeline import LANE_KINDS, recorded
from tests.handmade import collective, node, trace_of
from tests.kernels import compiled

FROM, TO = 3_000_000, 19_000_000


@pytest.fixture(scope="module")
def gantt() -> Gantt:
    trace = studio.read(sample_path("transformer_8r"))
    timeline = recorded(trace)
    return Gantt(trace, timeline, origin_ns=int(timeline.start_ns.min()))


def headings(gantt: Gantt, rank: int, by: By) -> dict[str, list[tuple[int, int]]]:
    """Start and end, cut to the window, of what a rank ran under each heading."""
    found: dict[str, list[tuple[int, int]]] = {}
    graph = gantt.trace.graph_of(gantt.rank(rank))
    for row in gantt.rows_of(gantt.rank(rank)):
        for place in gantt.row_places(row).tolist():
            start, end = (
                int(part[place]) - gantt.origin_ns
                for part in (gantt.coverage.start_ns, gantt.coverage.end_ns)
            )
            if end <= FROM or start >= TO:
                continue
            category = Category(int(gantt.coverage.category[place]))
            talks = LANE_KINDS[int(gantt.rows.kind[row])] == "communication"
            what = {
                "category": "CPU" if category is Category.HOST else category.name.lower(),
                "group": gantt.rows.names[int(gantt.rows.name[row])] if talks else "(no communication)",
                "name": graph.strings[int(graph.name[int(gantt.coverage.row[place])])],
            }[by]
            found.setdefault(what, []).append((max(start, FROM), min(end, TO)))
    return found


def union(parts: list[tuple[int, int]]) -> int:
    """How long at least one of them runs, microsecond by microsecond: the sample knows no smaller ones."""
    busy = np.zeros((TO - FROM) // 1000, bool)
    for start, end in parts:
        busy[(start - FROM) // 1000 : (end - FROM) // 1000] = True
    return int(busy.sum()) * 1000


@pytest.mark.parametrize("by", [by for by in BY if by != "part"])
def test_times_of_a_window_are_those_of_its_spans(gantt: Gantt, by: By) -> None:
    found = {(one.rank, one.what): (one.nodes, one.time_ns) for one in compute_shares(gantt, FROM, TO, by)}
    expected = {}
    for rank in range(8):
        parts = headings(gantt, rank, by)
        expected |= {(rank, what): (len(spans), union(spans)) for what, spans in parts.items()}
        if by == "category":
            busy = union([one for what, spans in parts.items() if what != "CPU" for one in spans])
            expected[rank, "idle"] = (0, TO - FROM - busy)
    assert found == expected


def test_parts_add_up_to_the_window_on_every_rank(gantt: Gantt) -> None:
    found: dict[int, dict[str, int]] = {}
    for one in compute_shares(gantt, FROM, TO, "part"):
        found.setdefault(one.rank, {})[one.what] = one.time_ns
    assert {rank: sum(parts.values()) for rank, parts in found.items()} == dict.fromkeys(range(8), TO - FROM)
    assert sum(parts.get("communication", 0) for parts in found.values()) > 0
    assert len({tuple(parts.items()) for parts in found.values()}) > 1


def test_all_ranks_together_name_the_extremes(gantt: Gantt) -> None:
    of_rank = [
        one
        for one in compute_shares(gantt, FROM, TO, "name")
        if one.what.endswith("layer1.attn.qkv_proj.dgrad")
    ]
    found = next(one for one in compute_spreads(iter(of_rank)) if one.what == of_rank[0].what)
    mine = [one for one in of_rank if one.what == found.what]
    assert (found.ranks, found.total_ns) == (len(mine), sum(one.time_ns for one in mine))
    assert (found.most_ns, found.most_rank) == max(
        ((one.time_ns, one.rank) for one in mine), key=lambda one: one[0]
    )
    assert found.least_ns < found.mean_ns < found.most_ns


def test_ranks_that_one_stands_for_are_counted_each() -> None:
    """Four ranks of one class, in two groups: the time is that of the one simulated, the groups are their own."""
    nodes = [node(1, "COMP", micros=7), collective(2, "ALL_REDUCE", 1 << 16, 1)]
    network = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}
    system = {
        "scheduling-policy": "LIFO",
        "collective-optimization": "baseline",
        "preferred-dataset-splits": 1,
        "all-reduce-implementation": ["ring"],
    }
    result = simulate(trace_of([nodes] * 4), interpret(Parts(network, system)).config, native=compiled())
    gantt = Gantt(result.trace, result.timeline([0]), stands_for=[0] * 4)
    found = list(compute_shares(gantt, 0, result.makespan_ns, "category"))
    assert {one.rank for one in found} == {0, 1, 2, 3}
    assert {one.time_ns for one in found if one.what == "compute"} == {7000}
