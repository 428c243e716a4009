"""Graphs that differ in nothing but the times and operations of their nodes: plans and matches of one serve the other."""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter, is_

from studio.trace import Attributes, Graph

WORK = frozenset({"num_ops", "tensor_size"})
"""Attributes from which a roofline makes the time of a compute node."""
_LASTING = attrgetter(
    *(spec.name for spec in fields(Graph) if spec.name not in ("duration_ns", "attrs")),
    *(f"attrs.{spec.name}" for spec in fields(Attributes) if spec.name != "value"),
)


def is_retimed_graph(graph: Graph, other: Graph) -> bool:
    """Whether two graphs, of which one was made by changing the other, differ in no more; other columns are the very same ones."""
    if graph is other:
        return True
    return all(map(is_, _LASTING(graph), _LASTING(other))) and have_equal_values(graph, other)


def have_equal_values(graph: Graph, other: Graph) -> bool:
    """Whether equal attributes of two graphs have equal values, but for operations and sizes of tensors."""
    if graph.attrs.value is other.attrs.value:
        return True
    codes = set(graph.attrs.key[graph.attrs.value != other.attrs.value].tolist())
    return {graph.strings[code] for code in codes} <= WORK
