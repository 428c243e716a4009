"""Keep what is only inferred, or was never recorded, from being the ground of an error."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from studio.analysis.job.completeness import is_recording
from studio.doctor.diagnosis import Case, Found, NodeAt
from studio.trace import Level, NodeType, node_attributes

_INFERRED = "comm_inferred"
"""The attribute in which linking says what of a communication no file wrote."""


_WORDS = {
    "group": "The recording names no comm group there: it was inferred, and may be another one.",
    "size": "The recording gives no size there: it was inferred, and may be another one.",
}
_ELSEWHERE = (
    "The recording names no comm group of what the rank that has none did: it was inferred, and what seems to be missing may be in "
    "another one."
)
_UNTIMED = (
    "The recording has no time of some calls there, as of those on threads of the script that were not recorded: in which order "
    "they were made is not known."
)


def hedge(case: Case, found: Found) -> Found:
    """Return the result of a check, as a warning where it rests on groups or sizes that were inferred, or on calls without a time."""
    if found.level != "error":
        return found
    differ = dict(found.evidence).get("they differ in")
    for fact in ("group", "size") if differ == "size" else ("group",):
        if any(_is_inferred(case, node, fact) for node in found.nodes):
            return replace(found, level="warning", message=f"{found.message} {_WORDS[fact]}")
    lacking = set(found.ranks) - {node.rank for node in found.nodes} if differ else ()
    if any(_infers_groups(case, number) for number in lacking):
        return replace(found, level="warning", message=f"{found.message} {_ELSEWHERE}")
    if any(_is_untimed(case, node) for node in found.nodes):
        return replace(found, level="warning", message=f"{found.message} {_UNTIMED}")
    return found


def level_of_missing(case: Case, *, everywhere: bool) -> Level:
    """Return how bad it is that nodes lack a fact: no error where a job ran and its recorder never writes that fact."""
    return "warning" if everywhere and is_recording(case.trace) else "error"


def _infers_groups(case: Case, number: int) -> bool:
    """Whether the comm group of any communication of a rank was inferred."""
    rank = case.trace.rank(number)
    if rank is None:
        return False
    rows, _ = case.trace.graph_of(rank).rows_with(_INFERRED)
    return any(_is_inferred(case, NodeAt(number, row), "group") for row in rows.tolist())


def _is_inferred(case: Case, node: NodeAt, fact: str) -> bool:
    rank = case.trace.rank(node.rank)
    if rank is None:
        return False
    graph = case.trace.graph_of(rank)
    if graph.strings.find(_INFERRED) < 0:
        return False
    told = {attr.name: attr.value for attr in node_attributes(graph, node.row, rank.slots)}
    inferred = told.get(_INFERRED)
    return isinstance(inferred, list) and fact in inferred


def _is_untimed(case: Case, node: NodeAt) -> bool:
    """Whether a node communicates on a rank of which some communication was recorded without a time, though the rank has times."""
    rank = case.trace.rank(node.rank)
    if rank is None or node.row < 0:
        return False
    graph = case.trace.graph_of(rank)
    talks = np.isin(graph.type, (NodeType.COMM_SEND, NodeType.COMM_RECV, NodeType.COMM_COLL))
    is_timed = bool((graph.start_ns[~talks] >= 0).any())
    return bool(talks[node.row] and is_timed and (graph.start_ns[talks] < 0).any())
