"""The order in which nodes without times are issued: by its rule, compiled and interpreted alike."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from studio.analysis.collectives import matching
from studio.analysis.graph import issuing
from tests.examples import examples
from tests.handmade import node, trace_of


@pytest.fixture(params=[True, False], ids=["compiled", "interpreted"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "worth_compiling", lambda _nodes: request.param)


@st.composite
def ranks(draw: st.DrawFn) -> list[Any]:
    """Nodes with ids in any order, which wait for any others: some cycles are among them, and nodes that wait for themselves."""
    ids = draw(st.permutations(range(1, draw(st.integers(1, 12)) + 1)))
    nodes = []
    for place, number in enumerate(ids):
        others = ids if draw(st.integers(0, 9)) == 0 else ids[:place]
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
        place = matching.issue_order(graph)
        assert sorted(
            graph.id.tolist(), key=dict(zip(graph.id.tolist(), place, strict=True)).__getitem__
        ) == (order_by_rule(nodes))

    check()


def test_large_graphs_are_worth_compiling_sooner_once_machine_code_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for kept, least in ((True, issuing.INTERPRETED_NODES), (False, issuing.INTERPRETED_COLD_NODES)):
        monkeypatch.setattr(issuing.Kernel, "is_cached", lambda _kernel, kept=kept: kept)
        assert not issuing.worth_compiling(least)
        assert issuing.worth_compiling(least + 1)
