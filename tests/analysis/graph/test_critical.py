"""What holds a rank up: small graphs whose answer can be seen, and what holds of any."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from studio.analysis.graph.critical import compute_schedule, list_gates
from studio.analysis.graph.depth import compute_depths
from studio.analysis.graph.neighbours import build_adjacency
from studio.analysis.graph.paths import build_walkable, find_between
from tests.graphs import graph


def of(count, pairs, spans=None, durations=None, lane=None):
    near = build_adjacency(graph(count, data=pairs))
    times = np.array(spans or [(-1, -1)] * count, np.int64).reshape(-1, 2)
    return compute_schedule(
        near.edges,
        compute_depths(count, near.edges),
        times[:, 0],
        times[:, 1],
        duration_ns=None if durations is None else np.array(durations),
        lane=None if lane is None else np.array(lane),
    )


def test_the_path_follows_what_ended_last_and_the_rest_has_slack():
    # 0 → 1 → 3 and 0 → 2 → 3; 2 ends first, 5 ns before 1 does; 4 runs by itself.
    found = of(5, [(0, 1), (0, 2), (1, 3), (2, 3)], [(0, 10), (10, 30), (10, 25), (32, 40), (0, 4)])
    assert found.path.tolist() == [0, 1, 3]
    assert found.gate.tolist() == [-1, 0, 0, 1, -1]
    assert found.slack_ns.tolist() == [2, 2, 7, 0, 36]
    assert (found.length_ns, found.busy_ns, found.basis) == (40, 38, "times")
    assert list_gates(found, 2, 9).tolist() == [0, 2]
    assert list_gates(found, 3, 2).tolist() == [1, 3]


def test_what_ran_before_in_the_lane_gates_too():
    spans = [(0, 10), (0, 50), (50, 60)]
    assert of(3, [(0, 2)], spans).path.tolist() == [0, 2]
    assert of(3, [(0, 2)], spans, lane=[1, 0, 0]).path.tolist() == [1, 2]


def test_without_times_durations_are_laid_out_and_without_those_nodes_count():
    pairs = [(0, 1), (1, 3), (0, 2), (2, 3)]
    found = of(4, pairs, durations=[1, 5, 2, 1])
    assert found.path.tolist() == [0, 1, 3]
    assert found.slack_ns.tolist() == [0, 0, 3, 0]
    assert found.basis == "durations"
    found = of(5, [*pairs, (2, 4), (4, 3)])
    assert (found.path.tolist(), found.length_ns, found.basis) == ([0, 2, 4, 3], 4, "nodes")


def test_nodes_without_times_are_left_out():
    found = of(3, [(0, 1), (1, 2)], [(0, 5), (-1, -1), (7, 9)])
    assert found.path.tolist() == [2]
    assert found.slack_ns.tolist() == [4, -1, 0]


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30),
)
def test_laid_out_durations_make_a_path_without_slack_as_long_as_the_whole(durations, pairs):
    count = len(durations)
    pairs = [(one, other) for one, other in pairs if one < other < count]
    found = of(count, pairs, durations=durations)
    assert (found.slack_ns >= 0).all()
    assert found.slack_ns[found.path].tolist() == [0] * len(found.path)
    assert found.end_ns[found.path[-1]] == found.end_ns.max()
    if found.basis == "durations":
        assert found.busy_ns == found.length_ns + found.start_ns[found.path[0]] == found.end_ns.max()


def test_what_lies_between_two_nodes():
    network = build_walkable(
        build_adjacency(graph(7, data=[(0, 1), (1, 2), (0, 3), (3, 2), (2, 4), (5, 2), (0, 6)]))
    )
    assert find_between(network, 0, 2, 9)[0].tolist() == [0, 1, 2, 3]
    assert find_between(network, 4, 0, 9)[0].tolist() == [0, 1, 2, 3, 4]
    rows, count = find_between(network, 0, 4, 4)
    assert (len(rows), count) == (4, 5)
    assert find_between(network, 5, 6, 9)[0].tolist() == []
