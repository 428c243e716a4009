"""Finding nodes of a graph by what people type: part of a name, a regular expression, an id, a type, a comm group."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from studio.analysis.communication import comm_nodes
from studio.analysis.nameparts import NameParts
from studio.errors import TraceError
from studio.trace import Bool, Graph, Int64, group_slots

HELP = "A part of the name or an id; /…/ is a regular expression; type:all-reduce, group:tp0, id:118 look in one place."


def found_rows(
    graph: Graph, parts: NameParts, text: str, kind_of: Callable[[int, int], str], groups: Sequence[str]
) -> Int64:
    """Return the rows that a text finds, rising.

    Args:
        graph: The graph.
        parts: Its names.
        text: What was typed; see `HELP`.
        kind_of: What a node of a type, and of a collective or -1, is called.
        groups: Names of comm groups by slot.

    Raises:
        TraceError: A regular expression cannot be read.
    """
    key, _, value = text.partition(":")
    wanted = value.strip().lower()
    if wanted and key == "id":
        return np.flatnonzero(_ids(graph, wanted))
    if wanted and key == "type":
        return np.flatnonzero(_kinds(graph, wanted, kind_of))
    if wanted and key == "group":
        return np.flatnonzero(_groups(graph, wanted, groups))
    if len(text) > 2 and text[0] == text[-1] == "/":
        return np.flatnonzero(_matching(parts, text[1:-1]))
    return np.flatnonzero(parts.containing(text) | _ids(graph, text) | _kinds(graph, text.lower(), kind_of))


def _matching(parts: NameParts, pattern: str) -> Bool:
    try:
        return parts.matching(f"(?i){pattern}")
    except pa.ArrowInvalid as error:
        reason = str(error).rpartition(": ")[2]
        raise TraceError(
            f"/{pattern[:60]}/ is no regular expression: {reason[:80]}.",
            hint="Write special characters with a backslash before them, or leave the slashes away.",
        ) from error


def _ids(graph: Graph, text: str) -> Bool:
    if not (text.isascii() and text.isdigit() and int(text) < 2**64):
        return np.zeros(len(graph), np.bool_)
    return np.asarray(graph.id == np.uint64(int(text)), np.bool_)


def _kinds(graph: Graph, wanted: str, kind_of: Callable[[int, int], str]) -> Bool:
    """Return (N,) which nodes are of a kind whose name contains a text."""
    numbers = np.unique(graph.type)
    fits = numbers[[wanted in kind_of(number, -1) for number in numbers.tolist()]]
    found: Bool = np.isin(graph.type, fits)
    nodes = comm_nodes(graph)
    pairs = nodes.type.astype(np.int64) << 32 | (nodes.collective + 1)
    for pair in np.unique(pairs).tolist():
        if wanted in kind_of(pair >> 32, (pair & 0xFFFFFFFF) - 1):
            found[nodes.rows[pairs == pair]] = True
    return found


def _groups(graph: Graph, wanted: str, groups: Sequence[str]) -> Bool:
    fits = [slot for slot, name in enumerate(groups) if wanted in name.lower()]
    found: Bool = np.isin(group_slots(graph), fits)
    return found
