"""Depths: as long as the longest chain, in graphs with and without cycles."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from studio.analysis.graph.depth import compute_depths
from studio.analysis.graph.neighbours import collect_edges
from tests.graphs import graph


def of(count, pairs):
    return compute_depths(count, collect_edges(graph(count, data=pairs)))


def test_layers_are_longest_chains_and_roots_stand_where_they_are_needed():
    assert of(5, [(0, 1), (1, 2), (0, 2), (3, 2)]).layer.tolist() == [0, 1, 2, 1, 0]
    # Against the order of the file.
    assert of(3, [(2, 1), (1, 0)]).layer.tolist() == [2, 1, 0]


@given(st.integers(1, 12), st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30))
def test_every_dependency_that_counts_leads_down_and_only_cycles_have_others(count, pairs):
    pairs = [(one % count, other % count) for one, other in pairs]
    found = of(count, pairs)
    before, after = (
        np.array(pairs, np.int64).reshape(-1, 2)[np.argsort([b for _, b in pairs], kind="stable")].T
        if pairs
        else (np.zeros(0, int),) * 2
    )
    assert (found.layer[after[found.forward]] > found.layer[before[found.forward]]).all()
    assert (found.place[after[found.forward]] > found.place[before[found.forward]]).all()
    if all(one < other for one, other in pairs):
        assert found.forward.all()
