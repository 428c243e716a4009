"""The map of a graph: depth from left to right, what lies equally deep from top to bottom."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from studio.analysis.graph.depth import compute_depths
from studio.analysis.graph.map import HEIGHT, WIDTH, build_graph_map
from studio.analysis.graph.neighbours import build_adjacency
from studio.trace import NodeType
from tests.graphs import graph


def of(count, pairs, types=None):
    found = graph(count, data=pairs, types=types)
    near = build_adjacency(found)
    return build_graph_map(compute_depths(count, near.edges), found.type)


def test_a_fork_is_wide_in_the_middle_and_its_colours_are_those_of_its_nodes():
    found = of(5, [(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4)], {2: NodeType.COMM_COLL})
    assert (found.layers, found.widest) == (3, 3)
    kind, shown = (one.reshape(HEIGHT, WIDTH) for one in (found.kind, found.shown))
    filled = (shown > 0).sum(axis=0).tolist()
    assert (filled[100], filled[WIDTH // 2], filled[-100]) == (HEIGHT // 2, HEIGHT, HEIGHT // 2)
    # Compute below, communication above, each by its share.
    assert np.bincount(kind[:, WIDTH // 2]).tolist() == [0, 0, 0, 0, 32, 0, 0, 16]
    assert found.nearest(0.5, 0.0) == 2
    assert found.nearest(0.01, 0.1) == 0
    assert found.nearest(1.0, 0.0) == 4


@given(st.integers(0, 40), st.lists(st.tuples(st.integers(0, 39), st.integers(0, 39)), max_size=60))
@settings(deadline=None)
def test_every_node_of_any_graph_is_on_the_map(count, pairs):
    pairs = [(one % count, other % count) for one, other in pairs] if count else []
    found = of(count, pairs)
    assert len(found.kind) == len(found.shown) == WIDTH * HEIGHT
    assert ((found.x >= 0) & (found.x <= 1) & (found.y >= 0) & (found.y <= 1)).all()
    at = (found.y * HEIGHT).astype(int).clip(0, HEIGHT - 1) * WIDTH + (found.x * WIDTH).astype(int).clip(
        0, WIDTH - 1
    )
    assert (found.shown[at] > 0).all()
    assert (found.shown > 0).any() == (count > 0)
    assert [found.nearest(float(x), float(y)) >= 0 for x, y in zip(found.x, found.y, strict=True)] == [
        True
    ] * count
    assert np.isfinite(found.x).all()
