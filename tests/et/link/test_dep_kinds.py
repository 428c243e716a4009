"""Why nodes wait, as graphs note it: the attribute `dep_kinds`."""

from __future__ import annotations

import pytest

from studio.et.link.dep_kinds import DEP_KINDS, is_linked, read_dep_kinds
from studio.trace import Graph
from tests.handmade import node, trace_of


def graph_with(field: str, values: list[int]) -> Graph:
    """Two nodes, and a third that waits for both and notes `values` as a list of a kind."""
    last = node(3, "COMP", 2, 1)
    getattr(last.attr.add(name=DEP_KINDS), field).values.extend(values)
    return trace_of([[node(1, "COMP"), node(2, "COMP"), last]]).graphs[0]


@pytest.mark.parametrize("field", ["int32_list", "int64_list", "uint32_list", "sint64_list"])
def test_kinds_are_read_from_lists_of_whole_numbers_of_any_width(field: str):
    places, kinds = read_dep_kinds(graph_with(field, [4, 128]))
    assert (places.tolist(), kinds.tolist()) == ([0, 1], [4, 128])


@pytest.mark.parametrize(
    ("field", "values"),
    [("int32_list", [4]), ("int32_list", [4, 128, 1]), ("double_list", [4, 128]), ("bool_list", [1, 0])],
    ids=["short", "long", "floats", "flags"],
)
def test_lists_that_do_not_fit_the_dependencies_say_nothing(field: str, values: list[int]):
    graph = graph_with(field, values)
    assert [part.tolist() for part in read_dep_kinds(graph)] == [[], []]
    assert is_linked(graph)


def test_the_last_list_of_a_node_counts():
    last = node(2, "COMP", 1)
    for kind in (8, 256):
        last.attr.add(name=DEP_KINDS).int32_list.values.append(kind)
    graph = trace_of([[node(1, "COMP"), last]]).graphs[0]
    assert [part.tolist() for part in read_dep_kinds(graph)] == [[0], [256]]
