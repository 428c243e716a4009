"""How the inspector, Overview and commands tell waiting where members of a collective are recorded to begin together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from studio.analysis.collectives.meeting import find_meeting
from studio.analysis.collectives.members import begin_together, collect_members
from studio.analysis.compare.sides import build_recorded_side
from studio.analysis.job.together import describe_ready_waits
from studio.pages.frame.node_facts import _describe_waiting
from studio.timeline import collect_node_times, recorded
from tests.handmade import collective, node, trace_of


def two_ranks(*starts: int, second: bool = False) -> Any:
    """Ranks 0 and 1 are ready at 10 and 30 µs; the all-reduce begins as given, and ends at 50."""
    ranks = []
    for works, start in zip((10, 30), starts, strict=True):
        nodes = [node(1, "COMP", micros=works), collective(2, "ALL_REDUCE", 8, 1)]
        nodes[0].start_time_micros, nodes[1].start_time_micros = 100, 100 + start
        nodes[1].duration_micros = 50 - start
        if second:
            nodes.append(collective(3, "ALL_REDUCE", 8, 2))
            nodes[2].start_time_micros, nodes[2].duration_micros = 150 + works, 50 - works
        ranks.append(nodes)
    trace = trace_of(ranks)
    return build_recorded_side(trace, collect_node_times(trace, recorded(trace)))


def words(side: Any, place: int) -> str:
    account, trace = side.ledger(), side.trace
    rank = trace.ranks[place]
    met = find_meeting(trace, side.times, account.arrivals, rank, 1)
    assert met is not None
    told = _describe_waiting(trace, account, met, rank, 1, {"job": "j"})
    return told if isinstance(told, str) else "".join(getattr(one, "children", one) for one in told)


def test_a_wait_before_a_collective_was_noted_is_told_by_when_ranks_were_ready():
    side = two_ranks(30, 30)
    assert words(side, 0) == (
        "20.0 µs for rank 1, which was ready last: all are recorded to begin together, so that this is from when each was ready"
    )
    assert words(side, 1) == "for nobody: it was ready last, and all are recorded to begin together"
    assert begin_together(collect_members(side.trace, side.times))
    assert describe_ready_waits(side.ledger()) == (
        "Members of collectives are recorded to begin together here, so that their starts tell no waiting and no skew: "
        "20.0 µs of waiting, all ranks together, is told by when each was ready."
    )


def test_in_a_simulation_nothing_is_recorded_to_begin_together():
    side = replace(two_ranks(30, 30), is_recording=False)
    assert words(side, 1) == "for nobody: all began together"


def test_a_wait_by_starts_is_told_as_before():
    side = two_ranks(10, 30)
    assert words(side, 0) == "20.0 µs for rank 1, which began later"
    assert words(side, 1) == "for nobody: it began last"
    assert not begin_together(collect_members(side.trace, side.times))
    assert describe_ready_waits(side.ledger()) == ""


def test_collectives_whose_starts_do_tell_are_counted():
    assert describe_ready_waits(two_ranks(30, 30, second=True).ledger()).startswith(
        "Members of 1 of 2 collectives "
    )
