"""The order in which a rank is certain to begin what takes turns: by its rule, compiled and interpreted alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from studio.doctor import issue
from studio.doctor.diagnosis import Case
from studio.trace import Dependencies, Graph, NodeType
from tests.examples import examples
from tests.handmade import node, trace_of

COMPUTE, TURN, RECEIVE = "COMP", "COMM_SEND", "COMM_RECV"


@pytest.fixture(params=[True, False], ids=["compiled", "interpreted"])
def native(request: pytest.FixtureRequest) -> bool:
    compiled: bool = request.param
    return compiled


@st.composite
def ranks(draw: st.DrawFn) -> list[Any]:
    """Nodes with ids in any order: most in chains, some behind several, now and then one behind a later one."""
    count = draw(st.integers(1, 14))
    ids = draw(st.permutations(range(1, count + 1)))
    nodes = []
    for place, number in enumerate(ids):
        kind = draw(st.sampled_from([COMPUTE, TURN, TURN, TURN, RECEIVE]))
        deps = draw(st.lists(st.sampled_from(ids[max(place - 3, 0) : place] or ids), max_size=3))
        deps = deps or ids[max(place - 1, 0) : place]
        nodes.append(node(number, kind, *deps))
    return nodes


def order_by_rule(nodes: list[Any]) -> list[int]:
    """The ids of nodes that take turns, in the order in which they begin, as far as it is certain."""
    turns = {one.id for one in nodes if one.type == NodeType[TURN]}
    waits = {one.id: set(one.data_deps) for one in nodes}
    done: set[int] = set()
    order: list[int] = []
    while True:
        while passed := {one for one in waits if one not in done | turns and waits[one] <= done}:
            done |= passed
        ready = {one for one in turns - done if waits[one] <= done}
        sure = {one for one in ready if waits[one] <= turns}
        unsure = ready - sure
        if sure and (not order or min(sure) < min(unsure, default=min(sure) + 1)):
            order.append(min(sure))
        elif not sure and len(unsure) == 1:
            order.append(min(unsure))
        else:
            return order
        done.add(order[-1])


def test_the_order_is_that_of_the_rule(native: bool) -> None:
    @settings(max_examples=examples(80), deadline=None)
    @given(ranks())
    def check(nodes: list[Any]) -> None:
        [case] = Case(trace_of([nodes])).graphs
        found = issue.find_issue_order(case, native=native)
        expected = order_by_rule(nodes)
        assert case.graph.id[found.rows].tolist() == expected
        assert found.complete == (len(expected) == sum(one.type == NodeType[TURN] for one in nodes))

    check()


def test_of_equal_ids_the_first_row_begins(native: bool) -> None:
    """Two files' nodes in one: the ids say nothing of their order, which has to be the same each time all the same."""
    trace = trace_of([[node(number, TURN) for number in (5, 4, 6, 7)]])
    graph = replace(trace.graphs[0], id=np.array([5, 4, 4, 5], np.uint64))
    [case] = Case(replace(trace, graphs=(graph,))).graphs
    assert issue.find_issue_order(case, native=native).rows.tolist() == [1, 2, 0, 3]


def among_others(graph: Graph, count: int) -> Graph:
    """The graph with as many compute nodes more, which wait for nothing."""

    def behind(deps: Dependencies) -> Dependencies:
        return replace(deps, offsets=np.append(deps.offsets, np.full(count, deps.offsets[-1])))

    return replace(
        graph,
        id=np.append(graph.id, np.arange(1000, 1000 + count).astype(np.uint64)),
        type=np.append(graph.type, np.full(count, NodeType.COMP, np.int32)),
        name=np.append(graph.name, np.zeros(count, np.int32)),
        start_ns=np.append(graph.start_ns, np.full(count, -1)),
        duration_ns=np.append(graph.duration_ns, np.full(count, 1000)),
        ctrl=behind(graph.ctrl),
        data=behind(graph.data),
        attrs=replace(
            graph.attrs, offsets=np.append(graph.attrs.offsets, np.full(count, graph.attrs.offsets[-1]))
        ),
    )


def test_the_order_in_large_graphs_is_told_too(native: bool) -> None:
    """Beside more computation than was looked at once."""
    trace = trace_of([[node(2, TURN), node(1, TURN), node(3, TURN, 2)]])
    [case] = Case(replace(trace, graphs=(among_others(trace.graphs[0], 200_001),))).graphs
    found = issue.find_issue_order(case, native=native)
    assert found.rows.tolist() == [1, 0, 2]
    assert found.complete
