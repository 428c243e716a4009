"""What all ranks were doing over time."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from studio.analysis.job.breakdown import COMMUNICATION, COMPUTE, MEMORY
from studio.analysis.job.occupancy import LAYERS, occupancy
from studio.timeline import node_times, recorded
from tests.examples import examples
from tests.handmade import collective, node, trace_of


def job(*ranks):
    """Ranks of (kind, start, length) in µs."""

    def made(spans):
        nodes = []
        for number, (kind, start, length) in enumerate(spans, start=1):
            one = collective(number, "ALL_REDUCE", 8) if kind == "COMM_COLL" else node(number, kind)
            one.start_time_micros, one.duration_micros = 100 + start, length
            nodes.append(one)
        return nodes

    return trace_of([made(spans) for spans in ranks])


def found(trace, makespan_us: int, bins: int):
    times = node_times(trace, recorded(trace))
    return occupancy(trace, times, origin_ns=100_000, makespan_ns=makespan_us * 1000, bins=bins)


def test_what_overlaps_counts_once_and_for_compute_first():
    """Rank 0 computes 0-10 and communicates 5-20; rank 1 loads 10-20: in bins of 5 µs."""
    answer = found(job([("COMP", 0, 10), ("COMM_COLL", 5, 15)], [("MEM_LOAD", 10, 10)]), 40, 8)
    compute, exposed, copies, memory, cpu = (answer.share * 2).round(9).tolist()
    assert compute == [1, 1, 0, 0, 0, 0, 0, 0]
    assert exposed == [0, 0, 1, 1, 0, 0, 0, 0]
    assert memory == [0, 0, 1, 1, 0, 0, 0, 0]
    assert not any(copies + cpu)
    assert answer.ranks == 2
    assert answer.edges_ns[-1] == 40_000


SPANS = st.lists(
    st.tuples(st.sampled_from(["COMP", "COMM_COLL", "MEM_LOAD"]), st.integers(0, 40), st.integers(0, 30)),
    min_size=1,
    max_size=8,
)


@settings(max_examples=examples(60))
@given(st.lists(SPANS, min_size=1, max_size=4), st.integers(1, 23))
def test_shares_equal_counting_moment_by_moment(ranks, bins):
    answer = found(job(*ranks), 80, bins)
    grid = np.full((len(ranks), 80), 9)
    for rank, spans in enumerate(ranks):
        for kind, start, length in spans:
            layer = ["COMP", "COMM_COLL", "MEM_LOAD"].index(kind)
            grid[rank, start : start + length] = np.minimum(grid[rank, start : start + length], layer)
    for layer, place in enumerate((COMPUTE, COMMUNICATION, MEMORY)):
        share = answer.share[LAYERS.index(place)]
        assert np.isclose(share.mean(), (grid == layer).mean())
    assert (answer.share >= -1e-12).all()
    assert (answer.share.sum(axis=0) <= 1 + 1e-12).all()
