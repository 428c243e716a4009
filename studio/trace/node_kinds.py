"""Which nodes of a graph communicate, copy, stand for time without work, wait for a device, or called others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from studio.trace.attributes import decode_value, read_int_column
from studio.trace.graph import Graph
from studio.trace.strings import Strings
from studio.trace.vocabulary import (
    ARRIVAL,
    COPY,
    COPY_KINDS,
    IDLE_GAPS,
    NONE,
    STEP,
    WAITS_FOR,
    Bool,
    Int32,
    Int64,
    NodeType,
)

_COPY_NAMES = (b"Memcpy", b"Memset", b"__amd_rocclr_copy", b"__amd_rocclr_fill", b"MEMORY_COPY_")
"""How profilers begin the names of copies that ran on a device."""


def communicates(graph: Graph) -> Bool:
    """Return (N,) which nodes are collectives, or halves of messages."""
    return np.asarray((graph.type >= NodeType.COMM_SEND) & (graph.type <= NodeType.COMM_COLL))


def are_copies(graph: Graph) -> Bool:
    """Return (N,) which nodes are copies on a device: written as compute, a memcpy or memset by kind or by name."""
    chosen = np.zeros(len(graph), np.bool_)
    rows, where = graph.rows_with("device_kind")
    # Most graphs have neither, and np.isin imports masked arrays.
    if len(rows):
        words = [graph.strings.find(word) for word in COPY_KINDS]
        chosen[rows[np.isin(graph.attrs.value[where], [word for word in words if word != NONE])]] = True
    names = _copy_names(graph.strings)
    if len(names):
        chosen |= np.isin(graph.name, names)
    return _are_on_device(graph, chosen)


def are_idle(graph: Graph, whys: Sequence[str] = IDLE_GAPS) -> Bool:
    """Return (N,) which nodes are time for which a stream of a device stood idle: written as compute, its `gap` being one of some words."""
    chosen = np.zeros(len(graph), np.bool_)
    rows, where = graph.rows_with("gap")
    for why in whys:
        idle = graph.strings.find(why)
        if idle != NONE:
            chosen[rows] |= graph.attrs.value[where] == idle
    return _are_on_device(graph, chosen)


def are_assumed_arrivals(graph: Graph) -> Bool:
    """Return (N,) which nodes stand for the time before an assumed rank comes to a collective: nobody recorded it."""
    chosen = np.zeros(len(graph), np.bool_)
    why = graph.strings.find(ARRIVAL)
    if why != NONE:
        rows, where = graph.rows_with("gap")
        chosen[rows] = graph.attrs.value[where] == why
    return chosen


def are_device_waits(graph: Graph) -> Bool:
    """Return (N,) which nodes are calls of the host that waited for the device, without the time they waited."""
    chosen = np.zeros(len(graph), np.bool_)
    chosen[graph.rows_with(WAITS_FOR)[0]] = True
    return chosen


def read_calls(graph: Graph) -> tuple[Int32, Int64]:
    """Return the rows of nodes that lasted longer than what of it was their own, (R,), and how long they lasted.

    That are calls with what they called, and kernels beside which the next of their stream began. Annotations of steps are none:
    they are under way for as long as somebody says, and do nothing.
    """
    rows, lasted = read_int_column(graph, "inclusive_ns")
    works = (graph.start_ns[rows] >= 0) & (graph.duration_ns[rows] > 0) & (lasted > graph.duration_ns[rows])
    if len(rows):
        works &= ~mark_steps(graph)[rows]
    return rows[works], lasted[works]


def mark_steps(graph: Graph) -> Bool:
    """Return (N,) which nodes are annotations of steps, by their names."""
    word = STEP.encode()
    codes = graph.strings.holding((word.lower(),)).tolist()
    chosen = np.zeros(len(graph.strings) + 1, np.bool_)
    chosen[[code for code in codes if graph.strings.raw(code).startswith(word)]] = True
    # Nodes without a name have the last place, which is none of a text.
    return np.asarray(chosen[graph.name])


def compute_recorded_ends(graph: Graph) -> Int64:
    """Return (N,) when each node was over in the recording; of nodes that have a start.

    The duration of a call is what it did itself. What it called ran in between, so it was over when it returned, not that long after its
    start.
    """
    ends: Int64 = graph.start_ns + np.maximum(graph.duration_ns, 0)
    rows, lasted = read_calls(graph)
    ends[rows] = np.maximum(ends[rows], graph.start_ns[rows] + lasted)
    return ends


def _are_on_device(graph: Graph, chosen: Bool) -> Bool:
    """Return (N,) which of the nodes chosen are written as compute of a device."""
    chosen = chosen & (graph.type == NodeType.COMP)
    if chosen.any():
        rows, values = read_int_column(graph, "is_cpu_op", among=np.flatnonzero(chosen))
        chosen[rows[values != 0]] = False
    return chosen


def _copy_names(strings: Strings) -> list[int]:
    """Return the texts that begin as the names of copies do."""
    starts, ends = strings.offsets[:-1], strings.offsets[1:]
    # Of the first bytes of a million texts few are those of a copy: nothing else of the texts is read.
    filled = np.flatnonzero(ends > starts)
    first = strings.data[starts[filled]]
    texts: list[int] = []
    for word in _COPY_NAMES:
        alike = filled[first == word[0]]
        alike = alike[ends[alike] - starts[alike] >= len(word)]
        for place, byte in enumerate(word):
            alike = alike[strings.data[starts[alike] + place] == byte]
        texts += alike.tolist()
    return texts


def get_shown_types(graph: Graph) -> Int32:
    """Return (N,) the types of nodes as they are shown: those of the file, but `COPY` for copies."""
    chosen = are_copies(graph)
    return np.where(chosen, np.int32(COPY), graph.type) if chosen.any() else graph.type


def get_shown_type(graph: Graph, row: int) -> int:
    """Return the type of one node as it is shown."""
    if graph.type[row] != NodeType.COMP:
        return int(graph.type[row])
    is_copy = graph.strings.raw(int(graph.name[row])).startswith(_COPY_NAMES)
    for index in range(int(graph.attrs.offsets[row]), int(graph.attrs.offsets[row + 1])):
        key = graph.strings.raw(int(graph.attrs.key[index]))
        if key == b"is_cpu_op" and graph.attrs.value[index]:
            return int(graph.type[row])
        is_copy |= key == b"device_kind" and decode_value(graph.attrs, index, graph.strings, ()) in COPY_KINDS
    return COPY if is_copy else int(graph.type[row])
