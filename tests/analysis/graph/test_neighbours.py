"""Neighbourhoods against the plainest search there is, and their bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from studio.analysis.graph.neighbours import (
    build_adjacency,
    collect_edges,
    find_neighbourhood,
    list_predecessors,
    list_successors,
    select_whole_graph,
)
from studio.trace import Dependencies
from tests.graphs import graph


@st.composite
def graphs(draw):
    """Up to 12 nodes, with loops, cycles, repeated and dangling dependencies of both kinds."""
    count = draw(st.integers(1, 12))
    pair = st.tuples(st.integers(-1, count - 1), st.integers(0, count - 1))
    data, ctrl = draw(st.lists(pair, max_size=20)), draw(st.lists(pair, max_size=20))
    return count, data, ctrl


def reached(pairs, row, depth, direction):
    """The nodes within `depth` dependencies, node by node."""
    distance, frontier = {row: 0}, [row]
    for step in range(1, depth + 1):
        ups = [a for a, b in pairs if b in frontier and a >= 0] if direction != "down" else []
        downs = [b for a, b in pairs if a in frontier] if direction != "up" else []
        frontier = [one for one in {*ups, *downs} if one not in distance]
        distance |= dict.fromkeys(frontier, step)
    return distance


def pairs_of(part):
    return list(
        zip(part.edges.before.tolist(), part.edges.after.tolist(), part.edges.is_data.tolist(), strict=True)
    )


@given(
    graphs(),
    st.integers(0, 11),
    st.integers(0, 5),
    st.sampled_from(["up", "down", "both"]),
    st.integers(1, 40),
)
def test_a_neighbourhood_is_what_a_plain_search_finds_nearest_first(drawn, row, depth, direction, most):
    count, data, ctrl = drawn
    row %= count
    near = build_adjacency(graph(count, data, ctrl))
    distance = reached([*data, *ctrl], row, depth, direction)
    part = find_neighbourhood(near, row, depth, direction=direction, most=10**6)
    assert part.rows.tolist() == sorted(distance)
    assert part.left_out == 0
    wanted = {(a, b, True) for a, b in data} | {(a, b, False) for a, b in ctrl}
    assert sorted(pairs_of(part)) == sorted(one for one in wanted if {one[0], one[1]} <= set(distance))

    few = find_neighbourhood(near, row, depth, direction=direction, most=most)
    kept = set(few.rows.tolist())
    assert row in kept
    assert kept <= set(distance)
    assert few.left_out == len(distance) - len(kept)
    # One node alone is drawn with its loops, however few elements are allowed.
    assert few.elements <= most or len(kept) == 1
    if few.left_out:
        nearest_left = min(distance[one] for one in set(distance) - kept)
        assert max(distance[one] for one in kept) <= nearest_left


@given(graphs(), st.sampled_from([("data",), ("ctrl",), ("data", "ctrl"), ()]))
def test_the_whole_graph_has_every_distinct_dependency_once(drawn, kinds):
    count, data, ctrl = drawn
    part = select_whole_graph(build_adjacency(graph(count, data, ctrl), kinds))
    wanted = {(a, b, True) for a, b in data if a >= 0 and "data" in kinds}
    wanted |= {(a, b, False) for a, b in ctrl if a >= 0 and "ctrl" in kinds}
    assert sorted(pairs_of(part)) == sorted(wanted)
    assert part.rows.tolist() == list(range(count))
    assert part.elements == count + len(wanted)


@given(graphs())
def test_both_directions_tell_the_same(drawn):
    count, data, ctrl = drawn
    found = graph(count, data, ctrl)
    up = sorted(
        (one, row, kind) for row in range(count) for one, kind in list_predecessors(found, row) if one >= 0
    )
    down = sorted((row, one, kind) for row in range(count) for one, kind in list_successors(found, row))
    written = collect_edges(found)
    assert up == down
    assert up == sorted(
        zip(written.before.tolist(), written.after.tolist(), written.is_data.tolist(), strict=True)
    )


@pytest.mark.parametrize("fan", [2_000, 300_000])
def test_a_node_that_many_wait_for_has_a_bounded_neighbourhood(fan):
    part = find_neighbourhood(build_adjacency(star(fan)), 0, 3)
    assert part.elements <= 1500
    assert part.elements > 1490
    assert len(part.rows) + part.left_out == fan + 1


def star(fan):
    """One node that `fan` others wait for."""
    count = fan + 1
    offsets = np.concatenate(([0], np.arange(count))).astype(np.int64)
    nothing = Dependencies(np.zeros(count + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.uint64))
    data = Dependencies(offsets, np.zeros(fan, np.int32), np.empty(0, np.uint64))
    return replace(graph(0), id=np.arange(count, dtype=np.uint64), data=data, ctrl=nothing)
