"""Attributes of the nodes of a graph: one node's as a list, one name's as a column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from studio.distinct import find_distinct
from studio.notebook import format_record
from studio.trace.graph import Attributes, Graph
from studio.trace.strings import Strings
from studio.trace.vocabulary import (
    GROUP_KEYS,
    INT_KINDS,
    NONE,
    ROOT_KEYS,
    UNSIGNED_KINDS,
    Bool,
    Int32,
    Int64,
    Scalar,
    Value,
    ValueKind,
    build_kind_table,
    label_stream,
)


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute as readers of a trace use it: name, kind, value, doc string."""

    name: str
    kind: ValueKind
    value: Value
    doc: str = ""

    __repr__ = format_record


def decode_scalar(kind: ValueKind, bits: int, strings: Strings) -> Scalar:
    """Return the value that `bits` encode in a column of `kind`."""
    base = ValueKind(kind - 1) if kind.is_list else kind
    if base == ValueKind.STRING:
        return strings[bits]
    if base == ValueKind.BYTES:
        return strings.raw(bits)
    if base == ValueKind.BOOL:
        return bool(bits)
    if base == ValueKind.DOUBLE:
        return float(np.int64(bits).view(np.float64))
    if base == ValueKind.FLOAT:
        return float(np.uint32(bits & 0xFFFFFFFF).view(np.float32))
    return bits & 0xFFFF_FFFF_FFFF_FFFF if base in UNSIGNED_KINDS else bits


def decode_value(attrs: Attributes, index: int, strings: Strings, slots: Sequence[int | str]) -> Value:
    """Return the value of attribute `index` for the rank whose slot values are `slots`."""
    kind, bits = ValueKind(int(attrs.kind[index])), int(attrs.value[index])
    if kind == ValueKind.NONE:
        return None
    if attrs.slot[index]:
        return slots[bits]
    if kind.is_list:
        items = attrs.items[bits : bits + int(attrs.length[index])].tolist()
        return [decode_scalar(kind, item, strings) for item in items]
    return decode_scalar(kind, bits, strings)


def list_node_attributes(graph: Graph, row: int, slots: Sequence[int | str] = ()) -> list[Attribute]:
    """Return the attributes of node `row`, in file order, with the rank's values in the slots."""
    attrs, strings, attributes = graph.attrs, graph.strings, []
    for index in range(int(attrs.offsets[row]), int(attrs.offsets[row + 1])):
        doc = int(attrs.doc[index])
        attributes.append(
            Attribute(
                strings[int(attrs.key[index])],
                ValueKind(int(attrs.kind[index])),
                decode_value(attrs, index, strings, slots),
                strings[doc] if doc >= 0 else "",
            )
        )
    return attributes


def read_int_column(
    graph: Graph, key: str, slots: Sequence[int | str] = (), among: Int64 | None = None
) -> tuple[Int32, Int64]:
    """Return the integer values of attribute `key`, whatever integer width the file uses.

    Where a node carries the attribute more than once the last one counts; lists and texts do not. `among` is as in
    `Graph.rows_with`.

    Returns:
        (M,) node rows, rising and distinct, and (M,) values.
    """
    rows, where = find_int_column(graph, key, among)
    values = graph.attrs.value[where]
    bound = graph.attrs.slot[where]
    if bound.any():
        table = np.array([v - 2**64 if v >= 2**63 else v for v in map(_convert_to_int, slots)], np.int64)
        values[bound] = table[values[bound]]
    return rows, values


def find_int_column(graph: Graph, key: str, among: Int64 | None = None) -> tuple[Int32, Int64]:
    """Return where the integer values of attribute `key` stand: as `read_int_column`, with positions in place of values.

    Returns:
        (M,) node rows, rising and distinct, and (M,) positions in the attribute columns.
    """
    rows, where = graph.rows_with(key, among)
    keep = build_kind_table((*INT_KINDS, ValueKind.BOOL))[graph.attrs.kind[where]]
    rows, where = rows[keep], where[keep]
    last = np.append(rows[1:] != rows[:-1], True) if len(rows) else np.zeros(0, bool)
    return rows[last], where[last]


def read_named_lanes(graph: Graph, key: str) -> tuple[Int32, Int64, list[str]]:
    """Return the rows that name a thread or a stream, (R,) which of those named it is, and their names.

    Args:
        graph: The graph.
        key: `tid` or `stream`, which are numbers, or `thread`, which is a text: profilers name threads, PyTorch's recorder numbers them.
            Where a rank has several devices, streams are named with theirs.
    """
    if key == "thread":
        rows, where = graph.rows_with(key)
        distinct, number = np.unique(graph.attrs.value[where], return_inverse=True)
        return rows, number, [graph.strings[text] for text in distinct.tolist()]
    rows, values = read_int_column(graph, key)
    device = (
        read_dense_column(graph, "device", NONE)[rows]
        if key == "stream"
        else np.full(len(rows), NONE, np.int64)
    )
    if len(find_distinct(device[device != NONE])) < 2:
        device[:] = NONE
    distinct, number = np.unique(np.stack([values, device]), axis=1, return_inverse=True)
    return rows, number, [label_stream(*lane) for lane in distinct.T.tolist()]


def _convert_to_int(value: int | str) -> int:
    return value if isinstance(value, int) else 0


def read_dense_column(graph: Graph, key: str, missing: int) -> Int64:
    """Return the (N,) integer values of attribute `key`, `missing` where a node has none."""
    column = np.full(len(graph), missing, np.int64)
    rows, values = read_int_column(graph, key)
    column[rows] = values
    return column


def is_flagged(graph: Graph, key: str) -> Bool:
    """Return (N,) which nodes have the attribute `key` with a value other than 0, such as `is_cpu_op`."""
    return np.asarray(read_dense_column(graph, key, 0) != 0)


def read_roots(graph: Graph) -> Int64:
    """Return (N,) the root each node names, -1 where it names none."""
    roots = np.full(len(graph), NONE, np.int64)
    for key in reversed(ROOT_KEYS):
        rows, values = read_int_column(graph, key)
        roots[rows] = values
    return roots


def group_slots(graph: Graph) -> Int64:
    """Return (N,) the slot that holds the name of each node's comm group, -1 where the node names none."""
    slots = np.full(len(graph), NONE, np.int64)
    for key in reversed(GROUP_KEYS):
        rows, where = graph.rows_with(key)
        bound = graph.attrs.slot[where]
        slots[rows[bound]] = graph.attrs.value[where[bound]]
    return slots
