"""The order in which nodes without times are issued, and what comes before them: by rule, compiled and interpreted alike."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from studio.analysis.collectives import matching
from studio.analysis.graph import issuing
from studio.doctor import streams
from studio.trace import Graph
from tests.examples import examples
from tests.handmade import node, trace_of


@pytest.fixture(params=[True, False], ids=["compiled", "interpreted"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for caller in (matching, streams):
        monkeypatch.setattr(caller, "is_worth_compiling", lambda _nodes: request.param)


@st.composite
def ranks(draw: st.DrawFn, *, cyclic: bool = True) -> list[Any]:
    """Nodes with ids in any order, which wait for any others: some cycles are among them, and nodes that wait for themselves."""
    ids = draw(st.permutations(range(1, draw(st.integers(1, 12)) + 1)))
    nodes = []
    for place, number in enumerate(ids):
        others = ids if cyclic and draw(st.integers(0, 9)) == 0 else ids[:place]
        deps = draw(st.lists(st.sampled_from(others), max_size=3)) if others else []
        nodes.append(node(number, "COMP", *deps))
    return nodes


def order_by_rule(nodes: list[Any]) -> list[int]:
    """The ids in order of issue; those that are never ready come last."""
    waits = {one.id: set(one.data_deps) for one in nodes}
    order: list[int] = []
    while ready := [one for one in waits if one not in order and waits[one] <= set(order)]:
        order.append(min(ready))
    return order + sorted(set(waits) - set(order))


def test_the_order_is_that_of_the_rule(either: None) -> None:
    @settings(max_examples=examples(80), deadline=None)
    @given(ranks())
    def check(nodes: list[Any]) -> None:
        [graph] = trace_of([nodes]).graphs
        place = matching.compute_issue_order(graph)
        assert sorted(
            graph.id.tolist(), key=dict(zip(graph.id.tolist(), place, strict=True)).__getitem__
        ) == (order_by_rule(nodes))

    check()


def seen_before(graph: Graph, rows: list[int], lane: list[int]) -> list[int]:
    """What `find_last_before` returns."""
    pairs = matching.list_dependency_pairs(graph)
    return streams.find_last_on_stream(
        graph, pairs, np.array(rows, np.int64), np.array(lane, np.int64)
    ).tolist()


def lanes_of(draw: Any, count: int) -> tuple[list[int], list[int]]:
    """Some of so many rows, in any order, and the lane of each."""
    rows = draw(st.lists(st.sampled_from(range(count)), unique=True))
    return rows, sorted(draw(st.lists(st.integers(0, 4), min_size=len(rows), max_size=len(rows))))


def test_the_last_before_on_a_lane_is_the_last_of_all_that_come_before(
    monkeypatch: pytest.MonkeyPatch, either: None
) -> None:
    monkeypatch.setattr(issuing, "_LANES", 2)

    @settings(max_examples=examples(80), deadline=None)
    @given(ranks(cyclic=False), st.data())
    def check(nodes: list[Any], data: st.DataObject) -> None:
        [graph] = trace_of([nodes]).graphs
        rows, lane = lanes_of(data.draw, len(nodes))
        before: list[set[int]] = []
        for one in nodes:
            waited = {graph.id.tolist().index(other) for other in one.data_deps}
            before.append(waited.union(*(before[row] for row in waited)))
        expected = [
            max(
                (place for place, row in enumerate(rows) if row in before[own] and lane[place] == lane[at]),
                default=-1,
            )
            for at, own in enumerate(rows)
        ]
        assert seen_before(graph, rows, lane) == expected

    check()


def test_behind_cycles_both_see_what_is_known_by_then(monkeypatch: pytest.MonkeyPatch) -> None:
    @settings(max_examples=examples(80), deadline=None)
    @given(ranks(), st.data())
    def check(nodes: list[Any], data: st.DataObject) -> None:
        [graph] = trace_of([nodes]).graphs
        rows, lane = lanes_of(data.draw, len(nodes))
        found = []
        for compiled in (True, False):
            monkeypatch.setattr(streams, "is_worth_compiling", lambda _nodes, compiled=compiled: compiled)
            found.append(seen_before(graph, rows, lane))
        assert found[0] == found[1]

    check()
