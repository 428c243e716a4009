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


def build_graph(nodes: Sequence[NodeDict]) -> tuple[Graph, tuple[int | str, ...]]:
    """Return the graph of some nodes, and the values of its slots.

    Integers become int64 values except for attributes that have a customary kind. Peers and comm groups
    become slots, numbered as they appear, so that ranks which differ in nothing else get equal graphs.

    Example:
        >>> graph, slots = build_graph([
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
    columns = _build_attributes(nodes, pool, slots)
    graph = Graph(
        id=np.array([node["id"] for node in nodes], np.uint64),
        type=np.array([_parse_type(node["type"]) for node in nodes], np.int32),
        name=np.array([_intern_text(pool, node.get("name", f"n{node['id']}")) for node in nodes], np.int32),
        start_ns=np.array(
            [_convert_to_ns(node["start_micros"]) if "start_micros" in node else NONE for node in nodes],
            np.int64,
        ),
        duration_ns=np.array([_convert_to_ns(node.get("duration_micros", 0)) for node in nodes], np.int64),
        ctrl=_build_dependencies(nodes, "ctrl_deps", rows),
        data=_build_dependencies(nodes, "data_deps", rows),
        io=np.empty((0, 6), np.int32),
        attrs=columns,
        slot_key=np.array([_intern_text(pool, key) for key, _ in slots], np.int32),
        extra_row=np.empty(0, np.int32),
        extra=np.empty(0, np.int32),
        strings=Strings.of(pool),
    )
    return graph, tuple(value for _, value in slots)


def _convert_to_ns(micros: float) -> int:
    return micros * 1000 if isinstance(micros, int) else round(micros * 1000)


def _parse_type(name: str) -> int:
    return int(NodeType[name.removesuffix("_NODE")])


def _intern_text(pool: dict[str, int], text: str) -> int:
    return pool.setdefault(text, len(pool))


class _Forms:
    """What follows of an attribute from its key and type, each worked out once.

    Attributes:
        known: The form of a key and a type, and whether a value of it is kept as it is.
        key, kind, slot: Of each form its name, an index into the pool, a ValueKind, and whether values are the rank's.
    """

    def __init__(self) -> None:
        self.known: dict[tuple[str, type], tuple[int, bool]] = {}
        self.key: list[int] = []
        self.kind: list[int] = []
        self.slot: list[bool] = []
        self._numbers: dict[tuple[str, int], int] = {}

    def of(self, key: str, value: object, pool: dict[str, int]) -> int:
        """Return the form of an attribute, whose value is in the pool already if it belongs there."""
        kind = _infer_kind(key, value)
        is_list = value.__class__ is list or value.__class__ is tuple
        number = self._numbers.setdefault((key, kind), len(self.key))
        if number == len(self.key):
            self.key.append(pool.setdefault(key, len(pool)))
            self.kind.append(int(kind))
            self.slot.append(key in SLOT_KEYS and not is_list)
        # Of lists the kind follows from what they hold.
        if not kind.is_list:
            plain = key not in SLOT_KEYS and kind not in {ValueKind.STRING, ValueKind.DOUBLE}
            self.known[key, value.__class__] = (number, plain)
        return number


def _build_attributes(
    nodes: Sequence[NodeDict], pool: dict[str, int], slots: dict[tuple[str, int | str], int]
) -> Attributes:
    offsets = [0]
    of_form: list[int] = []
    values: list[int] = []
    items: list[int] = []
    lists: list[int] = []
    forms = _Forms()
    known = forms.known
    for node in nodes:
        for key, value in node.get("attrs", {}).items():
            form, plain = known.get((key, value.__class__), (NONE, False))
            if plain:
                bits = value
            elif value.__class__ is list or value.__class__ is tuple:
                lists.append(len(values))
                bits = len(items)
                items.extend(int(item) for item in value)
            elif key in SLOT_KEYS:
                bits = slots.setdefault((key, value), len(slots))
            elif isinstance(value, str):
                bits = pool.setdefault(value, len(pool))
            elif isinstance(value, float):
                bits = int(np.float64(value).view(np.int64))
            else:
                bits = value
            of_form.append(forms.of(key, value, pool) if form == NONE else form)
            values.append(bits)
        offsets.append(len(values))
    at, value = np.array(of_form, np.intp), _convert_to_int64(values)
    length = np.zeros(len(values), np.int32)
    length[lists] = np.diff(value[lists], append=len(items))
    return Attributes(
        offsets=np.array(offsets, np.int64),
        key=np.array(forms.key, np.int32)[at],
        doc=np.full(len(values), NONE, np.int32),
        kind=np.array(forms.kind, np.uint8)[at],
        value=value,
        length=length,
        slot=np.array(forms.slot, np.bool_)[at],
        items=np.array(items, np.int64),
    )


def _convert_to_int64(values: list[int]) -> Int64:
    """Return numbers below 2^64 as int64, those from 2^63 on as the negative ones with the same bits."""
    try:
        return np.array(values, np.int64)
    except OverflowError:
        return np.array([value - 2**64 if value >= 2**63 else value for value in values], np.int64)


def _infer_kind(key: str, value: object) -> ValueKind:
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


def _build_dependencies(nodes: Sequence[NodeDict], key: str, rows: Mapping[int, int]) -> Dependencies:
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
