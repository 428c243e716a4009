"""Read PyTorch execution traces (JSON): the operators a process called, with their tensors, without times.

Files with the same schema string differ in their fields, so a file is read by the keys that are there. In flat
files (1.0.1) everything is a key of the node; since 1.0.2 the call parent is `ctrl_deps`, inputs and outputs are
objects, and the rest is a list of attributes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import Any, Literal

import msgspec
import numpy as np

from studio.decoding import build_decoder
from studio.errors import TraceFormatError
from studio.et.collector import pause_collector
from studio.et.damaged_json import decode_or_recover
from studio.et.format import HostPart, Part, Reading
from studio.et.recording import HostTrace
from studio.trace import NONE, Finding, Int32, Int64

NUMBERS = {"rf_id": 0, "fw_parent": 0, "seq_id": NONE, "scope": 0, "tid": 0, "fw_tid": 0}
"""Numbers every node has, with what they are where a file leaves them out."""

COMM_KEYS = (
    "collective_name",
    "dtype",
    "in_msg_nelems",
    "out_msg_nelems",
    "in_split_size",
    "out_split_size",
    "global_rank_start",
    "global_rank_stride",
    "pg_name",
    "pg_desc",
    "pg_size",
    "seq",
    "src_rank",
    "dst_rank",
)
"""Attributes of `record_param_comms` that describe a collective, where recorded."""

KNOWN_NAMES = (
    "",
    *NUMBERS,
    "op_schema",
    *COMM_KEYS,
    "kernel_backend",
    "kernel_file",
    "tensor_range",
    "kernel_hash",
)

_HEAD = re.compile(rb"\s*\{")
_LARGEST_ID = 2**62


def sniff(head: bytes) -> bool:
    """Whether `head` starts a PyTorch execution trace."""
    if not _HEAD.match(head) or b'"traceEvents"' in head or b'"schemaVersion"' in head:
        return False
    named = re.search(rb'"schema"\s*:\s*"', head) is not None
    return (named and (b'"nodes"' in head or b'"pid"' in head)) or (
        b'"nodes"' in head and re.search(rb'"(ctrl_deps|rf_id|fw_parent)"', head) is not None
    )


def read(reading: Reading) -> list[Part]:
    """Read one execution trace.

    Raises:
        TraceFormatError: It is no JSON, or has no list of nodes.
    """
    with pause_collector():
        return _read(reading)


def _read(reading: Reading) -> list[Part]:
    content, findings = _decode_content(reading.data, reading.name)
    reading.tick(len(reading.data))
    nodes = content.nodes
    if not isinstance(nodes, list):
        raise TraceFormatError(
            f"{reading.name}: no list 'nodes'; a PyTorch execution trace has one.",
            hint="Record it with torch.profiler.ExecutionTraceObserver.",
        )
    try:
        host, lost = _build_trace(content, nodes, reading.name)
    except msgspec.ValidationError:
        content, findings = decode_or_recover(reading.data, _decode_by_hand, reading.name)
        host, lost = _build_trace(content, content.nodes or [], reading.name)
    noticed = [*reading.findings, *findings]
    if lost:
        message = f"{reading.name}: nodes without a usable id, or repeating one, left out: {lost:,}."
        noticed.append(Finding("error", "damaged-node", message, file=reading.name))
    if content.finish_ts is None and not any(f.code == "damaged-file" for f in noticed):
        message = (
            f"{reading.name}: the recording was not closed (no finish_ts); its last operators may be missing."
        )
        noticed.append(Finding("warning", "unfinished", message, file=reading.name))
    damaged = any(finding.level == "error" for finding in noticed)
    return [HostPart(replace(host, damaged=damaged), tuple(noticed))]


# ---------------------------------------------------------------------------------------------------
# Decoding


class _Io(msgspec.Struct, frozen=True, gc=False):
    values: msgspec.Raw = msgspec.Raw(b"[]")
    shapes: msgspec.Raw = msgspec.Raw(b"[]")
    types: msgspec.Raw = msgspec.Raw(b"[]")


class _Attr(msgspec.Struct, gc=False):
    name: Any = ""
    value: Any = None


class _KnownAttr(msgspec.Struct, gc=False):
    # Names that are listed need no text each, of which there would be ten to a node.
    name: Literal[KNOWN_NAMES] = ""  # type: ignore[valid-type]
    value: Any = None


class _Node(msgspec.Struct, gc=False):
    id: Any = None
    name: Any = ""
    ctrl_deps: Any = None
    inputs: msgspec.Raw = msgspec.Raw(b"{}")
    outputs: msgspec.Raw = msgspec.Raw(b"{}")
    attrs: list[_Attr] = []


class _KnownNode(_Node, gc=False):
    attrs: list[_KnownAttr] = []  # type: ignore[assignment]


class _FlatNode(msgspec.Struct, gc=False):
    id: Any = None
    name: Any = ""
    parent: Any = None
    inputs: msgspec.Raw = msgspec.Raw(b"[]")
    input_shapes: msgspec.Raw = msgspec.Raw(b"[]")
    input_types: msgspec.Raw = msgspec.Raw(b"[]")
    outputs: msgspec.Raw = msgspec.Raw(b"[]")
    output_shapes: msgspec.Raw = msgspec.Raw(b"[]")
    output_types: msgspec.Raw = msgspec.Raw(b"[]")
    rf_id: Any = None
    fw_parent: Any = None
    seq_id: Any = None
    scope: Any = None
    tid: Any = None
    fw_tid: Any = None
    op_schema: Any = None


class _Content(msgspec.Struct):
    schema: Any = ""
    pid: Any = None
    time: Any = None
    start_ts: Any = None
    finish_ts: Any = None
    nodes: Any = None


class _Nested(_Content):
    nodes: list[_Node] | None = None


class _Known(_Content):
    nodes: list[_KnownNode] | None = None


class _Flat(_Content):
    nodes: list[_FlatNode] | None = None


_known = build_decoder(_Known)
_nested = build_decoder(_Nested)
_side = build_decoder(_Io)
_flat = build_decoder(_Flat)
_anything = build_decoder(Any)


def _decode_content(data: bytes | memoryview, name: str) -> tuple[_Content, tuple[Finding, ...]]:
    head = bytes(data[: 1 << 16])
    is_flat = b'"ctrl_deps"' not in head and b'"parent"' in head
    ways: tuple[Callable[[bytes | memoryview], _Content], ...] = (_flat,) if is_flat else (_known, _nested)
    for decode in ways:
        try:
            return decode_or_recover(data, decode, name)
        except msgspec.ValidationError:
            pass
    # Some node is of another shape: slower, node by node.
    return decode_or_recover(data, _decode_by_hand, name)


def _decode_by_hand(raw: bytes | memoryview) -> _Content:
    """Decode a file whose nodes have several shapes, some of them damaged."""
    value = _anything(raw)
    if not isinstance(value, dict):
        return _Content()
    head = _Content(**{key: value.get(key) for key in ("schema", "pid", "time", "start_ts", "finish_ts")})
    nodes = value.get("nodes")
    if isinstance(nodes, list):
        head.nodes = [_build_node(node) for node in nodes if isinstance(node, dict)]
    return head


def _build_node(node: dict[str, Any]) -> _Node:
    attrs = [
        _Attr(attr.get("name"), attr.get("value"))
        for attr in (node["attrs"] if isinstance(node.get("attrs"), list) else ())
        if isinstance(attr, dict)
    ]
    attrs += [_Attr(key, node[key]) for key in (*NUMBERS, "op_schema", *COMM_KEYS) if key in node]
    parent = node.get("ctrl_deps", node.get("parent"))
    return _Node(
        node.get("id"),
        node.get("name"),
        parent,
        _build_io(node, "input"),
        _build_io(node, "output"),
        attrs,
    )


def _build_io(node: dict[str, Any], side: str) -> msgspec.Raw:
    values = node.get(f"{side}s", [])
    if isinstance(values, dict):
        parts = {key: values.get(key, []) for key in ("values", "shapes", "types")}
    else:
        parts = {key: node.get(f"{side}_{key}", []) for key in ("shapes", "types")} | {"values": values}
    return msgspec.Raw(msgspec.json.encode(parts))


# ---------------------------------------------------------------------------------------------------
# Columns


def _build_trace(content: _Content, nodes: list[Any], name: str) -> tuple[HostTrace, int]:
    """Return the trace by rising id, and how many nodes had to be left out."""
    ids, good = parse_integers([node.id for node in nodes])
    good &= (ids >= 0) & (ids < _LARGEST_ID)
    order = np.flatnonzero(good)[np.argsort(ids[good], kind="stable")]
    if len(order):
        fresh = np.append(True, np.diff(ids[order]) > 0)
        order = order[fresh]
    lost = len(nodes) - len(order)
    chosen = [nodes[index] for index in order.tolist()]
    flat = bool(chosen) and isinstance(chosen[0], _FlatNode)
    parents = [node.parent for node in chosen] if flat else [_get_parent(node.ctrl_deps) for node in chosen]
    parent, has_parent = parse_integers(parents)
    attrs = _collect_flat_attributes(chosen) if flat else _collect_attributes(chosen)
    count = len(chosen)
    numbers = {}
    for key, missing in NUMBERS.items():
        column = np.full(count, missing, np.int64)
        rows, values = attrs.pop(key, ([], []))
        integral, usable = parse_integers(values)
        column[np.array(rows, np.int64)[usable]] = integral[usable]
        numbers[key] = column
    schemas = [""] * count
    for row, value in zip(*attrs.pop("op_schema", ([], [])), strict=True):
        schemas[row] = value if isinstance(value, str) else ""
    io, texts = _collect_io_texts(chosen, flat)
    comm: dict[int, dict[str, Any]] = {}
    for key in COMM_KEYS:
        for row, value in zip(*attrs.pop(key, ([], [])), strict=True):
            comm.setdefault(row, {})[key] = value
    pids, known = parse_integers([content.pid])
    pid = int(pids[0]) if known[0] and not isinstance(content.pid, bool) else NONE
    header = {
        key: value
        for key in ("time", "start_ts", "finish_ts")
        if isinstance(value := getattr(content, key), int | str) and not isinstance(value, bool)
    }
    return HostTrace(
        file=name,
        schema=content.schema if isinstance(content.schema, str) else "",
        pid=pid,
        header=header,
        id=ids[order],
        parent=np.where(has_parent, parent, NONE),
        numbers=numbers,
        names=[node.name if isinstance(node.name, str) else str(node.name) for node in chosen],
        op_schema=schemas,
        io=io,
        texts=texts,
        comm=comm,
        extra=_select_nonempty(attrs),
    ), lost


def _get_parent(value: Any) -> Any:
    """Return the call parent: `ctrl_deps` is one number, in some files a list of one."""
    return value[0] if isinstance(value, list) and value else value


def parse_integers(values: Sequence[Any]) -> tuple[Int64, np.ndarray[Any, np.dtype[np.bool_]]]:
    """Return numbers of any JSON type as (M,) int64, and which of them (M,) are whole and fit."""
    try:
        column = np.array(values)
        if column.dtype == np.int64 and column.ndim == 1:
            return column, np.ones(len(column), np.bool_)
    except (ValueError, OverflowError):
        pass
    numbers, good = np.zeros(len(values), np.int64), np.zeros(len(values), np.bool_)
    for index, value in enumerate(values):
        number = _parse_integer(value)
        if number is not None and -(2**63) <= number < 2**63:
            numbers[index], good[index] = number, True
    return numbers, good


def _parse_integer(value: Any) -> int | None:
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and len(value) < 20 and re.fullmatch(r"\s*-?[0-9]+\s*", value):
        return int(value)
    return None


_Lists = dict[str, tuple[list[int], list[Any]]]


def _collect_attributes(nodes: Sequence[_Node]) -> _Lists:
    """Return rows and values by attribute, rows rising, attributes by first appearance.

    Recorders write the same attributes in the same order for most nodes, so nodes with equally many are taken together
    and an attribute's values are every n-th.
    """
    sizes = np.array([len(node.attrs) for node in nodes], np.int64)
    order = np.argsort(sizes, kind="stable")
    by_key: dict[str, list[tuple[int, Int64, list[Any]]]] = {}
    for rows in np.split(order, np.flatnonzero(np.diff(sizes[order])) + 1):
        size = int(sizes[rows[0]]) if len(rows) else 0
        flat = [attr for row in rows.tolist() for attr in nodes[row].attrs]
        # In the order they lie in memory, and only then every n-th.
        names, values = [attr.name for attr in flat], [attr.value for attr in flat]
        for index in range(size):
            for key, here, key_values in _group_by_name(names[index::size], rows, values[index::size]):
                by_key.setdefault(key, []).append((index, here, key_values))
    merged = {key: _merge_parts(parts) for key, parts in by_key.items()}
    return {key: merged[key][1] for key in sorted(merged, key=lambda key: merged[key][0])}


def _group_by_name(
    names: list[Any], rows: Int64, values: list[Any]
) -> Iterator[tuple[str, Int64, list[Any]]]:
    """Yield the rows and values of each name; most often there is one."""
    if type(names[0]) is str and names.count(names[0]) == len(names):
        yield names[0], rows, values
        return
    places: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        places.setdefault(str(name), []).append(index)
    for key, chosen in places.items():
        yield key, rows[chosen], [values[index] for index in chosen]


def _merge_parts(
    parts: list[tuple[int, Int64, list[Any]]],
) -> tuple[tuple[int, int], tuple[list[int], list[Any]]]:
    """Return where an attribute first appears, and its rows with their values."""
    if len(parts) == 1:
        [(first, rows, values)] = parts
        return (int(rows[0]), first), (rows.tolist(), values)
    part_of = np.repeat([part[0] for part in parts], [len(part[1]) for part in parts])
    rows = np.concatenate([part[1] for part in parts])
    values = [value for part in parts for value in part[2]]
    order = np.lexsort((part_of, rows))
    merged_values = [values[place] for place in order.tolist()]
    return (int(rows[order[0]]), int(part_of[order[0]])), (rows[order].tolist(), merged_values)


def _collect_flat_attributes(nodes: Sequence[_FlatNode]) -> _Lists:
    lists: _Lists = {}
    for key in (*NUMBERS, "op_schema"):
        values = [getattr(node, key) for node in nodes]
        rows = [row for row, value in enumerate(values) if value is not None]
        lists[key] = (rows, [values[row] for row in rows])
    return lists


def _select_nonempty(attrs: _Lists) -> _Lists:
    """Return the attributes without empty values: recorders write many as empty texts."""
    kept: _Lists = {}
    for key, (rows, values) in attrs.items():
        useful = [index for index, value in enumerate(values) if value not in ("", None)]
        if useful and key:
            kept[key] = ([rows[index] for index in useful], [values[index] for index in useful])
    return kept


def _collect_io_texts(nodes: Sequence[Any], flat: bool) -> tuple[Int32, list[str]]:
    """Return inputs and outputs written like Python lists, each distinct text once.

    Raises:
        msgspec.ValidationError: Some are of another shape.
    """
    codes: dict[bytes, int] = {}
    if flat:
        keys = ("inputs", "input_shapes", "input_types", "outputs", "output_shapes", "output_types")
        columns = [
            [codes.setdefault(bytes(raw), len(codes)) for raw in map(attrgetter(key), nodes)] for key in keys
        ]
        return np.array(columns, np.int32).T.copy(), [format_as_python(raw) for raw in codes]
    sides = [list(map(bytes, map(attrgetter(side), nodes))) for side in ("inputs", "outputs")]
    whole = {raw: index for index, raw in enumerate(dict.fromkeys(chain.from_iterable(sides)))}
    text_codes: list[int] = []
    for io in map(_side, whole):
        text_codes += [codes.setdefault(bytes(part), len(codes)) for part in (io.values, io.shapes, io.types)]
    parts = np.array(text_codes, np.int32).reshape(-1, 3)
    chosen = [parts[np.fromiter(map(whole.__getitem__, side), np.int64, len(side))] for side in sides]
    return np.concatenate(chosen, axis=1), [format_as_python(raw) for raw in codes]


def format_as_python(raw: bytes) -> str:
    """Return a JSON value as Python would write it.

    Example:
        >>> format_as_python(b'[[1, 2], "cpu", true]')
        "[[1, 2], 'cpu', True]"
    """
    # Written out: of a hundred thousand texts most have none of them.
    if b"rue" in raw or b"alse" in raw or b"ull" in raw or b"'" in raw or b"\\" in raw:
        try:
            return repr(_anything(raw))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return raw.decode("utf-8", "replace")
    return raw.replace(b'"', b"'").decode("utf-8", "replace")
