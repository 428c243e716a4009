"""Directed graphs: order, reach and cycles, as networkx has them or as their definitions say."""

import networkx as nx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from studio.analysis.graph.digraph import (
    build_network,
    find_feedback_edges,
    find_reachable,
    find_shortest_cycle,
    find_shortest_path,
    find_strong_components,
    order_topologically,
)

SIZE = 9
ROWS = st.integers(0, SIZE - 1)
PAIRS = st.lists(st.tuples(ROWS, ROWS), max_size=24)


def columns(pairs):
    ends = np.array(pairs, np.int64).reshape(-1, 2)
    return ends[:, 0], ends[:, 1]


def known(pairs):
    graph = nx.DiGraph(pairs)
    graph.add_nodes_from(range(SIZE))
    return graph


@given(PAIRS, ROWS, ROWS)
def test_reach_and_shortest_paths(pairs, start, end):
    network, graph = build_network(SIZE, *columns(pairs)), known(pairs)
    assert sorted(find_reachable(network, start)) == sorted({start} | nx.descendants(graph, start))
    assert sorted(find_reachable(network, start, backwards=True)) == sorted(
        {start} | nx.ancestors(graph, start)
    )
    path = find_shortest_path(network, start, end)
    assert bool(path) == nx.has_path(graph, start, end)
    if path:
        assert (path[0], path[-1]) == (start, end)
        assert nx.is_path(graph, path)
        assert len(path) == nx.shortest_path_length(graph, start, end) + 1


@given(PAIRS)
def test_order_leaves_out_what_is_on_cycles_or_behind_them(pairs):
    order, graph = order_topologically(SIZE, *columns(pairs)), known(pairs)
    place = {row: at for at, row in enumerate(order)}
    assert all(one in place and place[one] < place[other] for one, other in pairs if other in place)
    on_cycles = {row for row in graph if nx.has_path(graph, row, row) and graph.has_edge(row, row)}
    on_cycles |= {row for part in nx.strongly_connected_components(graph) if len(part) > 1 for row in part}
    behind = on_cycles.union(*(nx.descendants(graph, row) for row in on_cycles))
    assert set(range(SIZE)) - set(place) == behind


@given(PAIRS, st.randoms())
def test_components_rise_along_edges_in_whatever_order_these_are_given(pairs, random):
    component = find_strong_components(SIZE, *columns(pairs))
    parts = {frozenset(np.flatnonzero(component == number).tolist()) for number in set(component.tolist())}
    assert parts == set(map(frozenset, nx.strongly_connected_components(known(pairs))))
    assert all(component[one] <= component[other] for one, other in pairs)
    random.shuffle(pairs)
    assert find_strong_components(SIZE, *columns(pairs)).tolist() == component.tolist()


@given(PAIRS)
def test_the_shortest_cycle(pairs):
    pairs = [(one, other) for one, other in pairs if one != other]
    cycle, graph = find_shortest_cycle(SIZE, *columns(pairs), starts=SIZE), known(pairs)
    lengths = [
        nx.shortest_path_length(graph, other, one) + 1
        for one, other in pairs
        if nx.has_path(graph, other, one)
    ]
    assert len(cycle) == min(lengths, default=0)
    assert all(graph.has_edge(one, cycle[at - len(cycle) + 1]) for at, one in enumerate(cycle))


@given(PAIRS, st.data())
def test_without_its_feedback_edges_a_graph_has_no_cycles(pairs, data):
    weight = data.draw(st.lists(st.integers(1, 5), min_size=len(pairs), max_size=len(pairs)))
    removed = find_feedback_edges(SIZE, *columns(pairs), np.array(weight, np.int64)).tolist()
    kept = [pair for at, pair in enumerate(pairs) if at not in removed]
    assert nx.is_directed_acyclic_graph(known(kept))
    if nx.is_directed_acyclic_graph(known(pairs)):
        assert removed == []


def test_of_two_ways_to_open_a_cycle_the_lighter_is_taken():
    pairs = columns([(0, 1), (1, 2), (2, 0)])
    for light in range(3):
        weight = np.full(3, 5)
        weight[light] = 1
        assert find_feedback_edges(3, *pairs, weight).tolist() == [light]
