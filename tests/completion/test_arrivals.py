"""Copies come to collectives as late as the known rank, which waited inside them, saw others come."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import studio
from studio.analysis.compare.sides import build_recorded_side
from studio.analysis.job.blame import compute_blame, describe_assumed_host, sum_assumed_ns
from studio.analysis.job.summary import summarise
from studio.analysis.path.critical import find_critical_path
from studio.analysis.path.words import compute_path_shares
from studio.completion import Spread, complete
from studio.et.write import write_with_copies
from studio.figures.ranks import draw_rank_times
from studio.pages.base.rank_table import rank_table
from studio.sim import simulate
from studio.sim.presets import preset
from studio.sim.result import compute_ledger
from studio.timeline import collect_node_times
from studio.timeline import recorded as timeline
from studio.trace import NodeType, Trace, are_assumed_arrivals
from tests.handmade import collective, node, trace_of

TOGETHER = Spread(arrivals="together")


def recorded(times: dict[int, list[int]], members: int = 2) -> Trace:
    """Ranks that compute for 20 µs before each all-reduce, of which the times (in µs) are given."""
    ranks: dict[int, list[object]] = {}
    for rank, micros in times.items():
        made = ranks.setdefault(rank, [])
        for at, time in enumerate(micros):
            made.append(node(2 * at + 1, "COMP", *([2 * at] if at else []), micros=20))
            made.append(collective(2 * at + 2, "ALL_REDUCE", 640, 2 * at + 1, group="tp"))
            made[-1].duration_micros = time
            made[-1].name = "all_reduce"
    trace = trace_of(ranks, groups={"tp": list(range(members))})
    begun = [
        replace(graph, start_ns=np.cumsum(graph.duration_ns) - graph.duration_ns) for graph in trace.graphs
    ]
    return replace(trace, graphs=tuple(begun))


def added(trace: Trace, rank: int) -> list[int]:
    graph = trace.graph_of(rank)
    return graph.duration_ns[are_assumed_arrivals(graph)].tolist()


def finish(trace: Trace) -> int:
    return simulate(trace, preset("hgx-h100", len(trace.ranks)).config).makespan_ns


def test_what_a_rank_waited_beyond_the_usual_is_host_time_of_its_copies(tmp_path):
    known = recorded({0: [10, 10, 60, 10, 40]})
    made = complete(known, ranks=2)
    assert added(made, 0) == []
    assert added(made, 1) == [50_000, 30_000]
    graph = made.graph_of(1)
    moves = graph.type == NodeType.COMM_COLL
    # A copy ends its collectives when the known rank does, and waits in none.
    assert graph.duration_ns[moves].tolist() == [10_000] * 5
    assert (graph.start_ns + graph.duration_ns)[moves].tolist() == [30_000, 60_000, 140_000, 170_000, 230_000]
    together = complete(known, ranks=2, spread=TOGETHER)
    assert finish(made) - finish(together) == 80_000
    [told] = [finding for finding in made.findings if finding.code == "late-arrivals"]
    assert told.message.startswith(
        "Rank 0 may have waited 80.0 µs inside 2 collectives, for ranks that were not recorded. This is assumed:"
    )
    assert len(together.graphs) == 1
    assert [finding.code for finding in together.findings] == ["ranks-assumed"]
    # As files and back.
    write_with_copies(made, tmp_path / "job", "job")
    assert added(studio.read(tmp_path / "job"), 1) == [50_000, 30_000]


def test_an_assumed_arrival_is_told_apart_from_time_of_the_host_that_was_recorded():
    made = complete(recorded({0: [10, 10, 60, 10, 40]}), ranks=2)
    side = build_recorded_side(made, collect_node_times(made, timeline(made)))
    account = side.ledger()
    told = compute_blame(made, side.times, account)
    assert (told.ns.tolist(), told.assumed_ns.tolist()) == ([80_000], [80_000])
    assert told.mostly(np.array([0])) == ("assumed", 1.0)
    shares = compute_path_shares(made, side.times, account, find_critical_path(made, side.times, account))
    assert {share.what: share.ns for share in shares}["assumed arrivals of rank 1"] == 80_000
    types = {share.name: share.nodes for share in summarise(made).types}
    assert (types["assumed arrival"], types.get("host gap")) == (2, None)


def test_what_nobody_recorded_is_drawn_apart_from_the_time_of_the_host():
    """In a simulation, as in a recording: of each rank by itself, and the figure adds up to the finish."""
    made = complete(recorded({0: [10, 10, 60, 10, 40]}), ranks=2)
    result = simulate(made, preset("hgx-h100", 2).config)
    account = compute_ledger(result)
    arriving = sum_assumed_ns(made, result.node_times(), account)
    assert arriving.tolist() == [0, 80_000]
    assert "80.0 µs host" not in describe_assumed_host(account, arriving)
    assert "40.0 µs is assumed arrival" in describe_assumed_host(account, arriving)
    bars = {bar.name: bar.y for bar in draw_rank_times(account, dark=False, assumed_ns=arriving).data}
    assert bars["assumed arrival"][1] > 0
    assert sum(bars.values()).tolist() == pytest.approx([bar / 1000 for bar in account.finish_ns.tolist()])
    assert rank_table(account, arriving).head[-1] == "assumed_arrival_ns"
    whole = complete(recorded({0: [10, 10, 60], 1: [10, 10, 10]}), ranks=2)
    alike = simulate(whole, preset("hgx-h100", 2).config)
    nothing = sum_assumed_ns(whole, alike.node_times(), compute_ledger(alike))
    assert describe_assumed_host(compute_ledger(alike), nothing) == ""
    assert rank_table(compute_ledger(alike), nothing) == rank_table(compute_ledger(alike))


def test_who_of_several_known_ranks_came_last_tells():
    # Rank 0 waited for rank 1 in the third, and both for another one in the fourth.
    known = recorded({0: [10, 10, 60, 50, 10], 1: [10, 10, 10, 30, 10]}, members=4)
    made = complete(known, ranks=4)
    assert [added(made, rank) for rank in range(4)] == [[], [], [20_000], [20_000]]
    # All of them are known: nobody else was late.
    assert complete(recorded({0: [10, 10, 60], 1: [10, 10, 10]}), ranks=2).findings == ()


@pytest.mark.parametrize("times", [[10, 60], [30, 30, 30], [30, 31, 33]])
def test_without_evidence_all_come_at_once(times):
    assert added(complete(recorded({0: times}), ranks=2), 1) == []


def test_where_imbalance_is_given_it_tells_how_ranks_differ():
    known = recorded({0: [10, 10, 60, 10]})
    assert added(complete(known, ranks=2, spread=Spread(imbalance=0.1)), 1) == []
    # Asked for, both hold; drawn factors are of what a rank computes.
    both = complete(known, ranks=2, spread=Spread(imbalance=0.1, arrivals="recorded"))
    assert added(both, 1) == [50_000]
    assert set(both.graph_of(1).duration_ns[[0, 2, 4, 6]].tolist()) != {20_000}


def test_a_recorded_job_is_not_faster_than_the_rank_it_is_made_of(shared: Path):
    whole = studio.read(shared / "traces/torch/tp_mlp_2r")
    known = replace(whole, ranks=whole.ranks[:1])
    error = {
        name: finish(complete(known, first=True, spread=Spread(arrivals=name))) / finish(whole) - 1
        for name in ("recorded", "together")
    }
    assert abs(error["recorded"]) < 0.05 < abs(error["together"])
