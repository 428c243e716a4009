"""Promises of a drawing: downwards, nothing on top of anything else, and about the shape of a screen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from studio.analysis.graph.layout import compute_layered_layout


@st.composite
def drawings(draw, *, acyclic):
    count = draw(st.integers(1, 40))
    node = st.integers(0, count - 1)
    pairs = draw(st.lists(st.tuples(node, node), max_size=80))
    if acyclic:
        pairs = [(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]]
    # Rows of a file are in no special order.
    shuffled = draw(st.permutations(range(count)))
    return count, [(shuffled[a], shuffled[b]) for a, b in pairs], draw(st.sampled_from([0.3, 1.0, 3.0]))


def lay(count, pairs, aspect=1.0):
    before, after = np.array(pairs, np.int64).reshape(-1, 2).T
    return compute_layered_layout(count, before, after, aspect=aspect)


def assert_apart(layout):
    """No two nodes are closer than a step in both directions."""
    for row in np.unique(layout.y):
        assert (np.diff(np.sort(layout.x[layout.y == row])) >= 1 - 1e-9).all()
    assert (layout.y == layout.y.round()).all()
    assert np.isfinite(layout.x).all()


@given(drawings(acyclic=True))
@settings(deadline=None)
def test_dependencies_go_down_or_to_a_later_column_and_nodes_do_not_overlap(drawn):
    count, pairs, aspect = drawn
    layout = lay(count, pairs, aspect)
    assert_apart(layout)
    assert len(layout.x) == count
    for before, after in pairs:
        assert layout.layer[before] < layout.layer[after]
        if layout.column[before] == layout.column[after]:
            assert layout.y[before] < layout.y[after]
        else:
            assert layout.column[before] < layout.column[after]


@given(drawings(acyclic=False))
@settings(deadline=None)
def test_cycles_and_loops_are_drawn(drawn):
    count, pairs, aspect = drawn
    layout = lay(count, pairs, aspect)
    assert_apart(layout)
    assert len(layout.y) == count


def test_columns_stand_beside_each_other():
    layout = lay(100, [(one, one + 1) for one in range(99)])
    assert layout.column.max() > 3
    for column in range(int(layout.column.max())):
        assert layout.x[layout.column == column].max() + 1 <= layout.x[layout.column == column + 1].min()


@pytest.mark.parametrize(
    ("count", "pairs"),
    [
        (300, [(one, one + 1) for one in range(299)]),
        (300, [(0, one) for one in range(1, 300)]),
        (300, [(one, one + 4) for one in range(296)]),
        (300, []),
    ],
    ids=["chain", "fan", "four chains", "no dependencies"],
)
def test_long_chains_and_wide_layers_are_folded_to_the_shape_asked_for(count, pairs):
    layout = lay(count, pairs, 1.0)
    wide, high = np.ptp(layout.x) + 1, np.ptp(layout.y) + 1
    assert 1 / 3 < wide / high < 3
    assert wide * high < 4 * count


def test_nothing_is_drawn_of_nothing():
    assert len(lay(0, []).x) == 0


def test_the_same_graph_is_drawn_the_same_way():
    pairs = [(one, 3 * one % 50) for one in range(50)]
    assert (lay(50, pairs).x == lay(50, pairs).x).all()
