"""Search the nodes of a graph: by part of a name, regular expression, id, type or comm group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from studio.analysis.graph.nameparts import NameParts
from studio.analysis.job.kinds import infer_counted_types
from studio.arrow import from_arrow, to_arrow
from studio.errors import TraceError
from studio.trace import Bool, Graph, Int64, communicates, group_slots, read_int_column

HELP = "A part of the name or an id; /…/ is a regular expression; type:all-reduce, group:tp0, id:118 look in one place."


def find_rows(
    graph: Graph,
    parts: NameParts,
    kinds: Kinds,
    text: str,
    kind_of: Callable[[int, int], str],
    groups: Sequence[str],
) -> Int64:
    """Return the rows that match a text, sorted.

    Args:
        graph: The graph.
        parts: Its names.
        kinds: The kinds of its nodes.
        text: What was typed; see `HELP`.
        kind_of: What a node of a type, and of a collective or -1, is called.
        groups: Names of comm groups by slot.

    Raises:
        TraceError: A regular expression cannot be read.
    """
    key, _, value = text.partition(":")
    wanted = value.strip().lower()
    if wanted and key == "id":
        return np.flatnonzero(_match_ids(graph, wanted))
    if wanted and key == "type":
        return np.flatnonzero(_match_kinds(kinds, wanted, kind_of))
    if wanted and key == "group":
        return np.flatnonzero(_match_groups(graph, wanted, groups))
    if len(text) > 2 and text[0] == text[-1] == "/":
        return np.flatnonzero(_match_names(parts, text[1:-1]))
    return np.flatnonzero(
        parts.containing(text) | _match_ids(graph, text) | _match_kinds(kinds, text.lower(), kind_of)
    )


def _match_names(parts: NameParts, pattern: str) -> Bool:
    try:
        return parts.matching(f"(?i){pattern}")
    except pa.ArrowInvalid as error:
        reason = str(error).rpartition(": ")[2]
        raise TraceError(
            f"/{pattern[:60]}/ is not a regular expression: {reason[:80]}.",
            hint="Write special characters with a backslash before them, or remove the slashes.",
        ) from error


def _match_ids(graph: Graph, text: str) -> Bool:
    if not (text.isascii() and text.isdigit() and int(text) < 2**64):
        return np.zeros(len(graph), np.bool_)
    return np.asarray(graph.id == np.uint64(int(text)), np.bool_)


@dataclass(frozen=True, slots=True)
class Kinds:
    """The kind of each node.

    N nodes, K kinds.

    Attributes:
        distinct: (K,) the kinds: type and collective, -1 for none.
        of: (N,) index into them.
    """

    distinct: tuple[tuple[int, int], ...]
    of: Int64


def number_kinds(graph: Graph) -> Kinds:
    """Return the kinds of a graph's nodes."""
    collective = np.full(len(graph), -1, np.int64)
    is_communication = communicates(graph)
    rows, values = read_int_column(graph, "comm_type", among=np.flatnonzero(is_communication))
    collective[rows] = values
    coded = to_arrow((infer_counted_types(graph).astype(np.int64) << 32) + collective + 1).dictionary_encode()
    codes, of = coded.dictionary.to_pylist(), from_arrow(coded.indices)
    return Kinds(tuple((code >> 32, (code & 0xFFFFFFFF) - 1) for code in codes), of.astype(np.int64))


def _match_kinds(kinds: Kinds, wanted: str, kind_of: Callable[[int, int], str]) -> Bool:
    """Return (N,) whether the kind's name contains a text."""
    # The drawing says all-reduce, PyTorch and other searches all_reduce.
    names = [kind_of(*kind).replace("_", "-") for kind in kinds.distinct]
    fits = np.array([wanted.replace("_", "-") in name for name in names], np.bool_)
    fits_kind: Bool = fits[kinds.of] if len(fits) else np.zeros(len(kinds.of), np.bool_)
    return fits_kind


def _match_groups(graph: Graph, wanted: str, groups: Sequence[str]) -> Bool:
    fits = [slot for slot, name in enumerate(groups) if wanted in name.lower()]
    in_group: Bool = np.isin(group_slots(graph), fits)
    return in_group
