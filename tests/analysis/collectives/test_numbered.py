"""Collectives that are numbered belong together by number everywhere, whoever begins which first."""

from __future__ import annotations

import numpy as np

from studio.analysis.collectives.arrivals import find_arrivals
from studio.analysis.collectives.matching import hold_alike, match_collectives
from studio.analysis.collectives.members import collect_members
from studio.analysis.collectives.times import compute_collective_times
from studio.analysis.timeline.gantt import Gantt
from studio.analysis.timeline.peers import order_members
from studio.timeline import collect_node_times, recorded
from tests.handmade import collective, trace_of


def crossed():
    """Rank 0 begins number 7 at 10 µs and 8 at 20; rank 1 begins 8 at 12 and 7 at 25; all end at 40."""

    def rank(*begun):
        made = []
        for at, (number, size, start) in enumerate(begun, start=1):
            one = collective(at, "ALL_REDUCE", size, comm_seq=number)
            one.start_time_micros, one.duration_micros = start, 40 - start
            made.append(one)
        return made

    return trace_of([rank((7, 100, 10), (8, 200, 20)), rank((8, 200, 12), (7, 100, 25))])


def test_times_members_arrivals_and_peers_agree():
    trace = crossed()
    timeline = recorded(trace)
    times = collect_node_times(trace, timeline)

    found = compute_collective_times(trace, times)
    assert found.bytes.tolist() == [100, 200]
    assert (found.arrived_ns // 1000).tolist() == [25, 20]
    assert found.last_rank.tolist() == [1, 0]

    members = collect_members(trace, times)
    assert members.bytes.reshape(2, 2).tolist() == [[100, 100], [200, 200]]
    assert (members.start_ns.reshape(2, 2) // 1000).tolist() == [[10, 25], [20, 12]]

    begun = find_arrivals(trace, times).begun_ns[times.first[:, None] + np.arange(2)] // 1000
    assert begun.tolist() == [[25, 20], [20, 25]]

    gantt = Gantt(trace, timeline, origin_ns=int(timeline.start_ns.min()))
    [matching] = match_collectives(trace)
    assert order_members(gantt, matching).tolist() == [[0, 1], [1, 0]]


def test_ranks_hold_the_same_whatever_the_order_and_not_where_one_lacks_a_number_or_has_another_size():
    assert hold_alike(crossed())

    def of(*numbered):
        return [
            collective(at, "ALL_REDUCE", size, comm_seq=number)
            for at, (number, size) in enumerate(numbered, 1)
        ]

    both = of((0, 8), (1, 8))
    assert hold_alike(trace_of([both, both]))
    assert not hold_alike(trace_of([both, of((1, 8))]))
    assert not hold_alike(trace_of([both, of((0, 8), (1, 4))]))
