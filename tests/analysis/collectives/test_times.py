from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import studio
from studio.analysis.collectives.arrivals import find_arrivals
from studio.analysis.collectives.meeting import find_meeting
from studio.analysis.collectives.nccl_tests import compute_bus_factor, compute_bus_factors, count_inputs
from studio.analysis.collectives.times import as_rows, compute_collective_times, compute_distinct_times
from studio.analysis.job.alike import find_first_alike
from studio.sim import simulate
from studio.sim.astra import from_parts
from studio.timeline import collect_node_times, read_recorded_times, recorded
from studio.trace import CollectiveType
from tests.handmade import collective, node, trace_of
from tests.kernels import compiled

NETWORK = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [0]}
SYSTEM = {
    "scheduling-policy": "LIFO",
    "collective-optimization": "baseline",
    "preferred-dataset-splits": 1,
    "endpoint-delay": 0,
    "all-reduce-implementation": ["ring"],
    "all-gather-implementation": ["ring"],
}


def at(start: int, micros: int, number: int, kind: str, size: int, *deps: int, **more):
    """A collective with recorded times, in µs."""
    made = collective(number, kind, size, *deps, **more)
    made.start_time_micros, made.duration_micros = start, micros
    return made


def told(trace, ranks=None):
    return as_rows(
        found := compute_collective_times(trace, collect_node_times(trace, recorded(trace, ranks))),
        np.arange(len(found)),
    )


def test_a_recorded_all_reduce_is_told_by_nccls_definitions():
    """Rank 1 comes 3 µs late and all end at 13 µs: 10 µs for 40,000 bytes are 4 B/ns, on a bus of two ranks as many."""
    [one] = told(trace_of([[at(1, 12, 7, "ALL_REDUCE", 40_000)], [at(4, 9, 8, "ALL_REDUCE", 40_000)]]))
    one.pop("last_row")
    assert one == {
        "group": "", "position": 0, "type": CollectiveType.ALL_REDUCE, "members": 2, "present": 2,
        "bytes": 40_000, "whole_bytes": 40_000, "start_ns": 1000, "arrived_ns": 4000, "end_ns": 13_000,
        "duration_ns": 12_000, "skew_ns": 3000, "last_rank": 1, "algorithm_bytes_per_ns": 40_000 / 9000,
        "bus_bytes_per_ns": 40_000 / 9000 * 2 * (2 - 1) / 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "whole", "factor"),
    [
        ("ALL_REDUCE", 1, 2 * 3 / 4),
        ("ALL_GATHER", 4, 3 / 4),
        ("REDUCE_SCATTER", 1, 3 / 4),
        ("REDUCE_SCATTER_BLOCK", 1, 3 / 4),
        ("ALL_TO_ALL", 1, 3 / 4),
        ("GATHER", 4, 3 / 4),
        ("SCATTER", 1, 3 / 4),
        ("BROADCAST", 1, 1),
        ("REDUCE", 1, 1),
    ],
)
def test_sizes_and_factors_are_those_of_nccl_tests(kind, whole, factor):
    """Four ranks put in 8,000 bytes each for 2 µs: of gathering collectives NCCL counts what comes out."""
    [one] = told(trace_of([[at(5, 2, 1, kind, 8000)]] * 4))
    assert one["whole_bytes"] == 8000 * whole
    assert one["algorithm_bytes_per_ns"] == 4 * whole
    assert one["bus_bytes_per_ns"] == pytest.approx(4 * whole * factor)
    # Tables and cost models, which name kinds, count alike.
    assert (count_inputs(kind.lower(), 4), compute_bus_factor(kind.lower(), 4)) == (whole, factor)


def test_a_barrier_has_times_and_no_bandwidth():
    [one] = told(trace_of([[at(5, 2, 1, "BARRIER", 0)]] * 4))
    assert (one["duration_ns"], one["algorithm_bytes_per_ns"], one["bus_bytes_per_ns"]) == (2000, None, None)
    assert math.isnan(compute_bus_factors(np.array([42]), np.array([4]))[0])


def test_members_are_matched_by_the_order_they_begin_in_not_by_ids():
    """Rank 1 runs node 2 before node 1; each is matched with what its partner does at that time."""
    one = [at(1, 1, 1, "ALL_REDUCE", 100), at(5, 1, 2, "ALL_GATHER", 200)]
    other = [at(5, 2, 1, "ALL_GATHER", 200), at(1, 2, 2, "ALL_REDUCE", 100)]
    found = [
        (row["type"], row["bytes"], row["start_ns"], row["end_ns"]) for row in told(trace_of([one, other]))
    ]
    assert found == [(0, 100, 1000, 3000), (2, 200, 5000, 7000)]


def test_the_largest_member_counts_where_members_put_in_different_sizes():
    """Of 2, 6, 10 and 14 KiB; bandwidths are those of 14 KiB in 10 µs. The next collective is of equal ones."""
    ranks = [
        [at(100, 10, 1, "ALL_TO_ALL", kib << 10), at(200, 10, 2, "ALL_TO_ALL", 1 << 10)]
        for kib in (2, 6, 14, 10)
    ]
    trace = trace_of(ranks)
    uneven, even = told(trace)
    assert (uneven["bytes"], uneven["whole_bytes"]) == (14 << 10, 14 << 10)
    assert (even["bytes"], even["whole_bytes"]) == (1 << 10, 1 << 10)
    assert uneven["algorithm_bytes_per_ns"] == (14 << 10) / 1e4
    times = read_recorded_times(trace)
    met = find_arrivals(trace, times, is_recording=True)
    rates = [find_meeting(trace, times, met, rank, 0).algorithm_bytes_per_ns for rank in trace.ranks]
    assert rates == [(14 << 10) / 1e4] * 4


def test_what_has_no_times_keeps_its_place():
    """Rank 1 tells no time of its first collective: its second is matched with the second of rank 0."""
    one = [at(1, 1, 1, "ALL_REDUCE", 100), at(5, 1, 2, "ALL_REDUCE", 200, 1)]
    other = [collective(1, "ALL_REDUCE", 100), at(6, 2, 2, "ALL_REDUCE", 200, 1)]
    found = [
        (row["position"], row["present"], row["start_ns"], row["end_ns"])
        for row in told(trace_of([one, other]))
    ]
    assert found == [(0, 1, 1000, 2000), (1, 2, 5000, 8000)]


def test_groups_are_told_apart_and_ranks_without_times_are_not_present():
    def nodes(group, start):
        return [at(start, 1, 1, "ALL_REDUCE", 10, group=group)]

    trace = trace_of([nodes("b", 3), nodes("b", 4), nodes("a", 1), nodes("a", 1)], {"a": [2, 3], "b": [0, 1]})
    assert [(row["group"], row["present"], row["last_rank"]) for row in told(trace)] == [
        ("a", 2, 2),
        ("b", 2, 1),
    ]
    assert [(row["group"], row["present"], row["members"]) for row in told(trace, [1])] == [("b", 1, 2)]
    assert told(trace_of([[node(1, "COMP")]])) == []


def test_a_simulated_ring_uses_the_whole_link():
    """No latency, no delays: a ring all-reduce moves 2 (n-1)/n of its bytes over each link, so busbw is the link's."""
    trace = trace_of([[collective(1, "ALL_REDUCE", 1 << 30), collective(2, "ALL_GATHER", 1 << 28, 1)]] * 4)
    config = from_parts(NETWORK, SYSTEM)
    result = simulate(trace, config, native=compiled())
    found = compute_collective_times(trace, result.node_times())
    assert found.bus_bytes_per_ns == pytest.approx([config.topology.dims[0].bytes_per_ns] * 2, rel=1e-6)
    assert found.end_ns.tolist() == [found.start_ns[1], result.makespan_ns]
    assert found.skew_ns.tolist() == [0, 0]


def test_groups_of_ranks_that_share_their_times_are_told_each_for_itself():
    """Ranks 0 and 1 stand for 2 and 3: both groups ran alike, and each names its own last member."""

    def nodes(group, start):
        return [at(start, 1, 1, "ALL_REDUCE", 10, group=group)]

    trace = trace_of([nodes("a", 1), nodes("a", 2), nodes("b", 1), nodes("b", 2)], {"a": [0, 1], "b": [2, 3]})
    times = collect_node_times(trace, recorded(trace))
    folded = replace(times, first=times.first[[0, 1, 0, 1]])
    alike, full = compute_collective_times(trace, folded), compute_collective_times(trace, times)
    assert as_rows(alike, np.arange(2)) == as_rows(full, np.arange(2))
    assert [alike.groups[at] for at in alike.group] == ["a", "b"]
    assert alike.last_rank.tolist() == [1, 3]


def test_collectives_that_are_alike_are_told_once_with_their_number():
    """Of a folded job: each kind of collective as often as in the list of all, and the first of its kind stands for it."""
    trace = studio.generate("llama3-8b", ranks=32, tp=4, pp=2, zero=1, batch=8, sequence=512)
    result = simulate(trace, studio.preset("hgx-h100", npus=32).config)
    assert result.unfolded == ""
    every = compute_collective_times(trace, result.node_times())
    found, count = compute_distinct_times(trace, result.node_times())
    assert len(found) < len(every) == count.sum()

    def kinds(times, counts):
        columns = (times.type, times.members, times.bytes, times.start_ns, times.arrived_ns, times.end_ns)
        total, first = Counter(), {}
        for place, kind in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            total[kind] += int(counts[place])
            first.setdefault(kind, (times.groups[int(times.group[place])], int(times.position[place])))
        return total, first

    assert kinds(every, np.ones(len(every), np.int64)) == kinds(found, count)
    # Groups that are told apart are not alike.
    apart, ones = compute_distinct_times(trace, result.node_times(), besides=lambda name: name)
    assert len(apart) == len(every)
    assert (ones == 1).all()
    assert apart.end_ns.tolist() == every.end_ns.tolist()


def test_rows_that_stand_for_several_count_as_many():
    first, count = find_first_alike(np.array([5, 7, 5]), count=np.array([10, 1, 3]))
    assert (first.tolist(), count.tolist()) == ([0, 1], [13, 1])
