"""Build graphs from lists of nodes written as dictionaries, for tests, samples and programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from studio.trace import (
    NONE,
    SLOT_KEYS,
    Attributes,
    Dependencies,
    Graph,
    Int64,
    NodeType,
    Strings,
    ValueKind,
)

NodeDict = Mapping[str, Any]
"""id, type (`COMP_NODE` …), name, data_deps, ctrl_deps, start_micros, duration_micros, attrs."""

_KINDS = {
    "is_cpu_op": ValueKind.BOOL,
    "involved_dim": ValueKind.BOOL_LIST,
    "pg_name": ValueKind.STRING,
    "comm_src": ValueKind.INT32,
    "comm_dst": ValueKind.INT32,
    "comm_tag": ValueKind.INT32,
    "comm_priority": ValueKind.INT32,
    "tensor_size": ValueKind.UINT64,
}


def graph_of_nodes(nodes: Sequence[NodeDict]) -> tuple[Graph, tuple[int | str, ...]]:
    """Return the graph of some nodes, and the values of its slots.

    Integers become int64 values except for attributes that have a customary kind. Peers and comm groups
    become slots, numbered as they appear, so that ranks which differ in nothing else get equal graphs.

    Example:
        >>> graph, slots = graph_of_nodes([
        ...     {"id": 1, "type": "COMP_NODE", "duration_micros": 5},
        ...     {"id": 2, "type": "COMM_SEND_NODE", "data_deps": [1],
        ...      "attrs": {"comm_dst": 3, "comm_size": 64, "comm_tag": 0}},
        ... ])
        >>> len(graph), slots, graph.duration_ns.tolist()
        (2, (3,), [5000, 0])
    """
    pool: dict[str, int] = {}
    slots: dict[tuple[str, int | str], int] = {}
    rows = {node["id"]: row for row, node in reversed(list(enumerate(nodes)))}
    columns = _attribute_columns(nodes, pool, slots)
    graph = Graph(
        id=np.array([node["id"] for node in nodes], np.uint64),
        type=np.array([_type(node["type"]) for node in nodes], np.int32),
        name=np.array([_text(pool, node.get("name", f"n{node['id']}")) for node in nodes], np.int32),
        start_ns=np.array(
            [_nanoseconds(node["start_micros"]) if "start_micros" in node else NONE for node in nodes],
            np.int64,
        ),
        duration_ns=np.array([_nanoseconds(node.get("duration_micros", 0)) for node in nodes], np.int64),
        ctrl=_dependencies(nodes, "ctrl_deps", rows),
        data=_dependencies(nodes, "data_deps", rows),
        io=np.empty((0, 6), np.int32),
        attrs=columns,
        slot_key=np.array([_text(pool, key) for key, _ in slots], np.int32),
        extra_row=np.empty(0, np.int32),
        extra=np.empty(0, np.int32),
        strings=Strings.of(pool),
    )
    return graph, tuple(value for _, value in slots)


def _nanoseconds(micros: float) -> int:
    return micros * 1000 if isinstance(micros, int) else round(micros * 1000)


def _type(name: str) -> int:
    return int(NodeType[name.removesuffix("_NODE")])


def _text(pool: dict[str, int], text: str) -> int:
    return pool.setdefault(text, len(pool))


def _attribute_columns(
    nodes: Sequence[NodeDict], pool: dict[str, int], slots: dict[tuple[str, int | str], int]
) -> Attributes:
    offsets = [0]
    keys: list[int] = []
    kinds: list[int] = []
    values: list[int] = []
    lengths: list[int] = []
    is_slot: list[bool] = []
    items: list[int] = []
    # What follows from key and type alone is worked out once; of lists the kind follows from what they hold.
    known: dict[tuple[str, type], ValueKind] = {}
    for node in nodes:
        for key, value in node.get("attrs", {}).items():
            kind = known.get((key, value.__class__))
            if kind is None:
                kind = _kind(key, value)
                if not kind.is_list:
                    known[key, value.__class__] = kind
            bits, length, slot = value, 0, key in SLOT_KEYS
            if value.__class__ is list or value.__class__ is tuple:
                bits, length, slot = len(items), len(value), False
                items.extend(int(item) for item in value)
            elif slot:
                bits = slots.setdefault((key, value), len(slots))
            elif kind == ValueKind.STRING:
                bits = pool.setdefault(value, len(pool))
            elif kind == ValueKind.DOUBLE:
                bits = int(np.float64(value).view(np.int64))
            keys.append(pool.setdefault(key, len(pool)))
            kinds.append(kind)
            values.append(bits)
            lengths.append(length)
            is_slot.append(slot)
        offsets.append(len(keys))
    return Attributes(
        offsets=np.array(offsets, np.int64),
        key=np.array(keys, np.int32),
        doc=np.full(len(keys), NONE, np.int32),
        kind=np.array(kinds, np.uint8),
        value=_as_int64(values),
        length=np.array(lengths, np.int32),
        slot=np.array(is_slot, np.bool_),
        items=np.array(items, np.int64),
    )


def _as_int64(values: list[int]) -> Int64:
    """Return numbers below 2^64 as int64, those from 2^63 on as the negative ones with the same bits."""
    try:
        return np.array(values, np.int64)
    except OverflowError:
        return np.array([value - 2**64 if value >= 2**63 else value for value in values], np.int64)


def _kind(key: str, value: object) -> ValueKind:
    if isinstance(value, bool):
        return ValueKind.BOOL
    if isinstance(value, int):
        kind = _KINDS.get(key, ValueKind.INT64)
        return ValueKind.INT64 if kind == ValueKind.STRING else kind
    if isinstance(value, str):
        return ValueKind.STRING
    if isinstance(value, list) and value and type(value[0]) is int:
        return ValueKind.INT64_LIST
    return ValueKind.DOUBLE if isinstance(value, float) else ValueKind.BOOL_LIST


def _dependencies(nodes: Sequence[NodeDict], key: str, rows: Mapping[int, int]) -> Dependencies:
    offsets, entries = [0], []
    dangling: dict[int, int] = {}
    for node in nodes:
        for wanted in node.get(key, ()):
            row = rows.get(wanted)
            entries.append(-1 - dangling.setdefault(wanted, len(dangling)) if row is None else row)
        offsets.append(len(entries))
    return Dependencies(
        np.array(offsets, np.int64), np.array(entries, np.int32), np.array(list(dangling), np.uint64)
    )
