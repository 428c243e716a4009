from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from studio.analysis.job.breakdown import (
    COMMUNICATION,
    COMPUTE,
    COPY,
    CPU,
    MEMORY,
    NOTHING,
    Spans,
    breakdown,
    covered_ns,
    node_kinds,
)
from tests.handmade import collective, node, trace_of


def spans(*rows):
    """Rows of (start, end, rank, kind)."""
    return Spans(*np.array(rows, np.int64).reshape(-1, 4).T)


def test_exposed_communication_is_what_no_compute_covers():
    """Rank 0: compute 0–10, communication 5–20 and 15–30: covered from 5 to 10, exposed from 10 to 30."""
    found = breakdown(
        spans((0, 10, 0, COMPUTE), (5, 20, 0, COMMUNICATION), (15, 30, 0, COMMUNICATION), (0, 7, 1, COMPUTE)),
        np.array([40, 7]),
    )
    assert found.compute_ns.tolist() == [10, 7]
    assert found.communication_ns.tolist() == [25, 0]
    assert found.exposed_communication_ns.tolist() == [20, 0]
    assert found.idle_ns.tolist() == [10, 0]


def test_memory_and_cpu_cover_idle_time_and_no_communication():
    found = breakdown(
        spans((0, 10, 0, COMMUNICATION), (0, 10, 0, CPU), (10, 15, 0, MEMORY), (15, 16, 0, NOTHING)),
        np.array([16]),
    )
    assert (found.exposed_communication_ns[0], found.cpu_ns[0], found.memory_ns[0], found.idle_ns[0]) == (
        10,
        10,
        5,
        1,
    )


def test_copies_are_no_compute_and_show_where_nothing_hides_them():
    """Compute 0-10, a copy 5-15, communication 12-20, a copy 18-25: alone from 10 to 12 and from 20 to 25."""
    found = breakdown(
        spans((0, 10, 0, COMPUTE), (5, 15, 0, COPY), (12, 20, 0, COMMUNICATION), (18, 25, 0, COPY)),
        np.array([30]),
    )
    assert (found.compute_ns[0], found.copy_ns[0], found.exposed_copy_ns[0]) == (10, 17, 7)
    assert (found.exposed_communication_ns[0], found.idle_ns[0]) == (8, 5)


def test_nothing_ran_and_nothing_is_covered():
    found = breakdown(spans(), np.array([3]))
    assert (found.compute_ns.tolist(), found.idle_ns.tolist()) == ([0], [3])


SPANS = st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 2)).map(
    lambda span: (min(span[:2]), max(span[:2]), span[2])
)


@given(st.lists(SPANS, max_size=12), st.integers(0, 2**61))
@settings(deadline=None)
def test_the_union_is_what_counting_moments_gives(rows, origin):
    """Brute force: a moment counts once, however many spans hold it; far from zero as near it."""
    shifted = spans(*((start + origin, end + origin, rank, COMPUTE) for start, end, rank in rows))
    moments = [
        {at for start, end, rank in rows if rank == wanted for at in range(start, end)} for wanted in range(3)
    ]
    assert covered_ns(shifted, np.ones(len(rows), bool), 3).tolist() == [len(one) for one in moments]


def test_ranks_whose_times_lie_centuries_apart_are_counted_alike():
    """Three ranks over 2^61 ns: moved one beyond the other their times would leave the range of the clock."""
    far = 2**61
    found = covered_ns(
        spans((0, 10, 0, 0), (far, far + 5, 0, 0), (5, far, 1, 0), (7, 9, 2, 0)), np.ones(4, bool), 3
    )
    assert found.tolist() == [15, far - 5, 2]


def test_nodes_occupy_what_their_type_says():
    [graph] = trace_of([[
        node(1, "COMP"), node(2, "COMP", is_cpu_op=True), collective(3, "ALL_REDUCE", 8),
        node(4, "MEM_STORE"), node(5, "INVALID"), node(6, "COMM_RECV", is_cpu_op=False),
    ]]).graphs  # fmt: skip
    assert node_kinds(graph).tolist() == [COMPUTE, CPU, COMMUNICATION, MEMORY, NOTHING, COMMUNICATION]
