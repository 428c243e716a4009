"""Keep what is only inferred from being the ground of an error."""

from __future__ import annotations

from dataclasses import replace

from studio.doctor.diagnosis import Case, Found, NodeAt
from studio.trace import node_attributes

_INFERRED = "comm_inferred"
"""The attribute in which linking says what of a communication no file wrote."""


def hedge(case: Case, found: Found) -> Found:
    """Return the result of a check, as a warning where it rests on comm groups that were inferred."""
    if found.level != "error" or not any(_has_inferred_group(case, node) for node in found.nodes):
        return found
    message = (
        f"{found.message} The recording names no comm group there: it was inferred, and may be another one."
    )
    return replace(found, level="warning", message=message)


def _has_inferred_group(case: Case, node: NodeAt) -> bool:
    rank = case.trace.rank(node.rank)
    if rank is None:
        return False
    graph = case.trace.graph_of(rank)
    if graph.strings.find(_INFERRED) < 0:
        return False
    told = {attr.name: attr.value for attr in node_attributes(graph, node.row, rank.slots)}
    inferred = told.get(_INFERRED)
    return isinstance(inferred, list) and "group" in inferred
