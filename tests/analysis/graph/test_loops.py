"""The loops over dependencies do as they say, compiled and interpreted alike."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from studio.analysis.graph import compiled, loops
from studio.analysis.graph.compiled import LOADED
from studio.analysis.graph.depth import compute_depths
from studio.analysis.graph.digraph import order_topologically
from studio.analysis.graph.neighbours import collect_edges
from tests.examples import examples
from tests.graphs import graph

ROWS = 12
PAIRS = st.lists(st.tuples(st.integers(0, ROWS - 1), st.integers(0, ROWS - 1)), max_size=30)


@pytest.fixture(params=[True, False], ids=["compiled", "interpreted"])
def either(request, monkeypatch):
    asked = []
    monkeypatch.setattr(loops, "_is_worth_compiling", lambda count: asked.append(count) or request.param)
    yield
    assert asked


def test_layers_are_longest_chains(either) -> None:
    @settings(max_examples=examples(60))
    @given(PAIRS)
    def check(pairs) -> None:
        down = sorted({(one, other) for one, other in pairs if one < other}, key=lambda pair: pair[1])
        longest = [0] * ROWS
        for one, other in down:
            longest[other] = max(longest[other], longest[one] + 1)
        before, after = (
            (np.array(column, np.int64) for column in zip(*down, strict=True)) if down else ([],) * 2
        )
        found = loops.find_layers(ROWS, np.array(before, np.int64), np.array(after, np.int64))
        assert found.tolist() == longest

    check()


def test_an_order_has_each_row_behind_all_it_waits_for_as_soon_as_they_are_there(either) -> None:
    @settings(max_examples=examples(60))
    @given(PAIRS)
    def check(pairs) -> None:
        before, after = np.array(pairs, np.int64).reshape(-1, 2).T
        missing = [sum(other == row for _, other in pairs) for row in range(ROWS)]
        # As it was said before there were kernels: a queue, those that wait for the same by number.
        queue = [row for row in range(ROWS) if not missing[row]]
        for row in queue:
            for _, other in sorted(pair for pair in pairs if pair[0] == row):
                missing[other] -= 1
                if not missing[other]:
                    queue.append(other)
        assert order_topologically(ROWS, before, after).tolist() == queue

    check()


def test_depths_are_the_same_in_both_forms_also_against_the_order_of_the_file(monkeypatch) -> None:
    count = 400
    place = np.random.default_rng(3).permutation(count)
    pairs = [
        (int(place[one]), int(place[other]))
        for one in range(count)
        for other in (one + 1, one + 7)
        if other < count
    ]
    found = []
    for is_compiled in (True, False):
        monkeypatch.setattr(loops, "_is_worth_compiling", lambda _count, answer=is_compiled: answer)
        found.append(compute_depths(count, collect_edges(graph(count, data=pairs))))
    compiled, interpreted = found
    assert compiled.layer.tolist() == interpreted.layer.tolist()
    assert compiled.place.tolist() == interpreted.place.tolist()
    assert sorted(compiled.layer.tolist()) == list(range(count))
    assert [int(compiled.layer[row]) for row in place.tolist()] == list(range(count))


@pytest.mark.parametrize(
    ("count", "known", "worth"),
    [(LOADED, "loaded", True), (LOADED - 1, "loaded", False), (50_000, "kept", True), (49_999, "kept", False),
     (900_000, "cold", True), (899_999, "cold", False)],
)  # fmt: skip
def test_large_graphs_run_compiled_once_the_installation_has_compiled(monkeypatch, count, known, worth):
    monkeypatch.setattr(compiled.KERNEL, "loaded", compiled.k if known == "loaded" else None)
    monkeypatch.setattr(type(compiled.KERNEL), "is_cached", lambda _kernel: known != "cold")
    assert compiled.is_faster_compiled(count, kept=50_000, cold=900_000) is worth
