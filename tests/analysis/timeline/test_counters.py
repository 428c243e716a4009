"""Counters over time, against counting by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import studio
from studio.analysis.timeline.counters import Steps, count_in_flight
from studio.analysis.timeline.gantt import Gantt
from studio.samples import sample_path
from studio.sim import simulate
from studio.sim.load import compute_network_load
from studio.sim.parts import Parts, interpret
from studio.timeline import recorded
from tests.handmade import collective, node, trace_of
from tests.kernels import compiled

SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15), st.integers(1, 5)), max_size=12)


@given(spans=SPANS, start=st.integers(0, 20), width=st.integers(1, 8))
def test_means_and_peaks_are_those_of_every_nanosecond(
    spans: list[tuple[int, int, int]], start: int, width: int
) -> None:
    begin, length, weight = (np.array([one[at] for one in spans], np.int64) for at in range(3))
    steps = Steps(begin, begin + length, weight.astype(float))
    moments = np.arange(120)
    level = np.array([weight[(begin <= at) & (at < begin + length)].sum() for at in moments])
    mean, peak = steps.bins(start, width, 10)
    bins = [level[start + width * at : start + width * (at + 1)] for at in range(10)]
    np.testing.assert_allclose(mean, [part.mean() for part in bins])
    np.testing.assert_allclose(peak, [part.max() for part in bins])
    assert steps.most == level.max()


def test_after_the_last_fraction_nothing_is_left_of_rounding() -> None:
    weight = np.array([0.1, 0.2, 0.3])
    assert weight.sum() - 0.1 - 0.2 - 0.3 > 0
    steps = Steps(np.array([0, 1, 2]), np.array([5, 6, 7]), weight)
    mean, peak = steps.bins(0, 1, 10)
    assert peak.tolist()[7:] == mean.tolist()[7:] == [0, 0, 0]
    assert peak[6] > 0.29
    assert list(steps.changes(6, 9))[-1] == (7, 9, 0)
    # A byte counts beside as many as there may be.
    many = Steps(np.array([0, 1]), np.array([5, 9]), np.array([2.0**50, 1.0]))
    assert many.bins(6, 1, 1)[1].tolist() == [1]


def test_what_is_in_flight_adds_up_to_all_that_ran() -> None:
    trace = studio.read(sample_path("transformer_8r"))
    timeline = recorded(trace)
    found = Gantt(trace, timeline, origin_ns=int(timeline.start_ns.min()))
    nodes, data = count_in_flight(found)
    mean, _ = nodes.steps.bins(0, found.span_ns, 1)
    total = int((timeline.end_ns - timeline.start_ns).sum())
    np.testing.assert_allclose(mean * found.span_ns, total)
    assert data.steps.most > 0


def test_the_use_of_a_dimension_adds_up_to_what_was_sent_into_it() -> None:
    """Tensor parallel in the first dimension, a gradient across the second; folded and not."""
    nodes = [
        node(1, "COMP", micros=7),
        collective(2, "ALL_REDUCE", 1 << 20, 1, group="1"),
        node(3, "COMP", 2, micros=3),
        collective(4, "ALL_REDUCE", 1 << 22, 3),
    ]
    groups = {"1": [0, 1], "2": [2, 3]}
    ranks = [[*nodes[:1], collective(2, "ALL_REDUCE", 1 << 20, 1, group=name), *nodes[2:]] for name in "1122"]
    network = {
        "topology": ["Ring", "Switch"],
        "npus_count": [2, 2],
        "bandwidth": [50, 20],
        "latency": [500, 900],
    }
    system = {
        "scheduling-policy": "LIFO",
        "collective-optimization": "baseline",
        "preferred-dataset-splits": 1,
        "all-reduce-implementation": ["ring", "halvingDoubling"],
    }
    result = simulate(trace_of(ranks, groups), interpret(Parts(network, system)).config, native=compiled())
    stands_for = [result.trace.ranks[at].number for at in result.representative.tolist()]
    gantt = Gantt(result.trace, result.timeline(sorted(set(stands_for))), stands_for=stands_for)
    series = compute_network_load(result, gantt)
    assert [one.title for one in series] == ["offered load of dimension 0", "offered load of dimension 1"]
    for one, dimension in zip(series, result.dimensions, strict=True):
        mean, _ = one.steps.bins(0, result.makespan_ns, 1)
        np.testing.assert_allclose(mean[0], dimension.offered_load(result.makespan_ns))
    tensor = int(result.node_times().end_ns[1])
    mean, _ = series[1].steps.bins(0, tensor, 1)
    assert (
        mean[0] == 0
    )  # nothing but the tensor group has communicated so far, and that in the first dimension alone


@given(spans=SPANS, start=st.integers(0, 50), width=st.integers(1, 30))
def test_a_window_tells_mean_greatest_and_its_course(
    spans: list[tuple[int, int, int]], start: int, width: int
) -> None:
    begin, length, weight = (np.array([one[at] for one in spans], np.int64) for at in range(3))
    steps = Steps(begin, begin + length, weight.astype(float))
    level = [int(weight[(begin <= at) & (at < begin + length)].sum()) for at in range(start, start + width)]
    found = steps.extent(start, start + width)
    np.testing.assert_allclose(found.mean, np.mean(level))
    assert found.most == max(level)
    first = level.index(max(level))
    assert found.most_from_ns == start + first
    last = next((at for at in range(first, width) if level[at] != found.most), width)
    assert found.most_until_ns == start + last
    course = list(steps.changes(start, start + width))
    told = [value for low, high, value in course for _ in range(low, high)]
    assert told == level
    assert [low for low, _, _ in course[1:]] == [high for _, high, _ in course[:-1]]
    assert all(one[2] != two[2] for one, two in pairwise(course))


def test_a_long_course_is_whole_over_its_pieces() -> None:
    """More changes than are handed on at once: 0, 1, 0, 1 and so on."""
    begin = np.arange(0, 200_000, 4)
    course = list(Steps(begin, begin + 2, np.ones(len(begin))).changes(0, 200_000))
    assert [low for low, _, _ in course] == list(range(0, 200_000, 2))
    assert {high - low for low, high, _ in course} == {2}
    assert [value for _, _, value in course] == [1.0, 0.0] * len(begin)
