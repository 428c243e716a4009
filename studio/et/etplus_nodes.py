"""The nodes of a merged trace (ET+) in columns, from the kernel or, where a file is not written as usual, decoded one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import compress
from typing import Any, Literal

import msgspec
import numpy as np

from studio.decoding import build_decoder
from studio.errors import TraceFormatError
from studio.et import node_kernel as k
from studio.et import pytorch
from studio.et.damaged_json import decode_or_recover
from studio.et.event_columns import EventRows
from studio.et.format import Reading
from studio.et.node_columns import is_worth_compiling, read_nodes
from studio.et.records import LARGEST_ID
from studio.et.wire import CompiledInterner
from studio.trace import NONE, Bool, Finding, Int32, Int64

_LARGEST_US = 2**53
_EMPTY_LIST = b"[]"


@dataclass(frozen=True, slots=True)
class Head:
    """What a file says of itself; values of any kind, None where they are missing."""

    schema: Any
    pid: Any
    time: Any
    start_ts: Any
    finish_ts: Any


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes of a file, sorted by id, each id once.

    N nodes.

    Attributes:
        ids: Their ids.
        names: Their names.
        callers: Ids of their callers; what is no id where there is none.
        start_ns: (N,) -1 where a node has no time; durations likewise.
        inclusive_ns: (N,) with what a node called.
        exclusive_ns: (N,) without.
        device: (N,) whether a node ran on a device.
        categories: Of each node of a device, in their order, of what kind it is.
        streams: Of each node of a device, its stream; of any kind.
        threads: Of each node, its thread; of any kind, equal for equal threads.
        thread_waits: Of nodes of the host, by row, the dependencies between threads.
        sync_waits: Of nodes of the host, by row, what they waited for.
        io_texts: The distinct values of inputs and outputs, as the file has them.
        io: (N, 6) which of them are values, shapes and types of inputs, then of outputs.
        numbers: Rows and values of attributes that are whole numbers, by name.
        schemas: Rows and texts of schemas of operators.
        attributes_of: Returns the attributes of a row by name.
        group_of: Returns the comm group that a row names; of any kind.
    """

    ids: list[int]
    names: list[str]
    callers: list[Any]
    start_ns: Int64
    inclusive_ns: Int64
    exclusive_ns: Int64
    device: Bool
    categories: list[str]
    streams: list[Any]
    threads: list[Any]
    thread_waits: dict[int, Any]
    sync_waits: dict[int, Any]
    io_texts: list[bytes]
    io: Int32
    numbers: Mapping[str, tuple[Int64, Int64]]
    schemas: tuple[list[int], list[str]]
    attributes_of: Callable[[int], dict[str, Any]]
    group_of: Callable[[int], Any]

    def __len__(self) -> int:
        return len(self.ids)


def read_merged(reading: Reading, lost: Counter[str]) -> tuple[Nodes, Head, tuple[Finding, ...]]:
    """Read the nodes of a file.

    Args:
        reading: The file.
        lost: Told what was left out, by what it was.

    Returns:
        The nodes, what the file says of itself, and what is wrong with it.

    Raises:
        TraceFormatError: It is no JSON, or has no list of nodes.
    """
    if is_worth_compiling(len(reading.data)):
        known = _read_rows(reading.data)
        if known is not None:
            return *known, ()
    content, findings = _read_content(reading, lost)
    return _build_nodes(_select_distinct(content.nodes or [], lost)), _build_head(content), findings


def _build_head(content: _Content | _Loose) -> Head:
    return Head(content.schema, content.pid, content.time, content.start_ts, content.finish_ts)


# ---------------------------------------------------------------------------------------------------
# Decoded one by one


class _Io(msgspec.Struct, frozen=True, gc=False):
    values: msgspec.Raw = msgspec.Raw(b"[]")
    shapes: msgspec.Raw = msgspec.Raw(b"[]")
    types: msgspec.Raw = msgspec.Raw(b"[]")


class _Attr(msgspec.Struct, gc=False):
    name: Any = None
    value: Any = None


class _Node(msgspec.Struct, gc=False):
    id: Any = None
    name: Any = ""
    ctrl_deps: Any = None
    inputs: _Io = _Io()
    outputs: _Io = _Io()
    attrs: list[_Attr] = []
    ts: Any = None
    inclusive_dur: Any = None
    exclusive_dur: Any = None
    inter_thread_dep: Any = None
    sync_dep: Any = None
    cat: Any = None
    stream: Any = None
    pg_name: Any = None


class _KnownAttr(msgspec.Struct, gc=False):
    # Names that are listed need no text each, of which there would be ten to a node.
    name: Literal[pytorch.KNOWN_NAMES] = ""  # type: ignore[valid-type]
    value: Any = None


class _KnownNode(_Node, gc=False):
    attrs: list[_KnownAttr] = []  # type: ignore[assignment]


class _Content(msgspec.Struct):
    nodes: list[_Node] | None = None
    schema: Any = ""
    pid: Any = None
    time: Any = None
    start_ts: Any = None
    finish_ts: Any = None


class _KnownContent(_Content):
    nodes: list[_KnownNode] | None = None  # type: ignore[assignment]


class _Loose(msgspec.Struct):
    nodes: Any = None
    schema: Any = ""
    pid: Any = None
    time: Any = None
    start_ts: Any = None
    finish_ts: Any = None


_known = build_decoder(_KnownContent)
_typed = build_decoder(_Content)
_untyped = build_decoder(_Loose)
_node = build_decoder(_Node)


_anything = build_decoder(Any)
_attributes = build_decoder(list[_Attr])
_words = build_decoder(str)


def _decode_content(reading: Reading) -> tuple[_Content, tuple[Finding, ...]]:
    try:
        return decode_or_recover(reading.data, _known, reading.name)
    except msgspec.ValidationError:
        return decode_or_recover(reading.data, _typed, reading.name)


def _read_content(reading: Reading, lost: Counter[str]) -> tuple[_Content, tuple[Finding, ...]]:
    try:
        content, findings = _decode_content(reading)
    except msgspec.ValidationError:
        # Some node is of another shape: slower, node by node.
        decode: Callable[[bytes | memoryview], _Loose] = _untyped
        try:
            loose, findings = decode_or_recover(reading.data, decode, reading.name)
        except msgspec.ValidationError:
            loose, findings = _Loose(), ()
        content = _Content(None, loose.schema, loose.pid, loose.time, loose.start_ts, loose.finish_ts)
        if isinstance(loose.nodes, list):
            content.nodes = [
                decoded for node in loose.nodes if (decoded := _decode_by_hand(node, lost)) is not None
            ]
    if content.nodes is None:
        raise TraceFormatError(f"{reading.name}: no list 'nodes'.", hint="Link the traces again.")
    return content, findings


def _decode_by_hand(node: Any, lost: Counter[str]) -> _Node | None:
    try:
        return _node(msgspec.json.encode(node))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        lost["malformed nodes"] += 1
        return None


def _select_distinct(nodes: Sequence[_Node], lost: Counter[str]) -> list[_Node]:
    """Return the nodes that have a usable id of their own, sorted by id."""
    nodes_by_id: dict[int, _Node] = {}
    for node in nodes:
        number = node.id
        if type(number) is not int or not 0 <= number <= LARGEST_ID or number in nodes_by_id:
            lost["nodes without an id of their own"] += 1
        else:
            nodes_by_id[number] = node
    return [nodes_by_id[number] for number in sorted(nodes_by_id)]


def _convert_to_ns(value: Any) -> int:
    """Return microseconds as ns, -1 where they are none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LARGEST_US:
        return NONE
    return round(value * 1000)


def _convert_all_to_ns(values: list[Any]) -> Int64:
    """Return microseconds (N,) as ns, each as `_convert_to_ns` has it."""
    kinds = set(map(type, values))
    if kinds <= _PLAIN_TIMES:
        with suppress(OverflowError):
            times_us = np.array(values, np.float64)
            good = (times_us >= 0) & (times_us < _LARGEST_US)
            # Beyond this a whole number times a thousand is not always one of floating point.
            if int not in kinds or (times_us[good] < _EXACT_US).all():
                return np.where(good, np.rint(np.where(good, times_us, 0) * 1000), NONE).astype(np.int64)
    return np.array(list(map(_convert_to_ns, values)), np.int64)


_PLAIN_TIMES = frozenset((float, int, type(None)))
_EXACT_US = 2**53 // 1000


def _build_nodes(nodes: Sequence[_Node]) -> Nodes:
    """Return nodes that were decoded, in columns."""
    device = np.array([node.cat is not None for node in nodes], np.bool_)
    on_device = list(compress(nodes, device))
    hosts = np.flatnonzero(~device).tolist()
    callers = [node.ctrl_deps for node in nodes]
    attributes = [_index_attributes(node.attrs) for node in nodes]
    sides = (side for node in nodes for side in (node.inputs, node.outputs))
    raws = [bytes(raw) for side in sides for raw in (side.values, side.shapes, side.types)]
    codes = {raw: code for code, raw in enumerate(dict.fromkeys(raws))}
    return Nodes(
        ids=[node.id for node in nodes],
        names=[node.name if isinstance(node.name, str) else str(node.name)[:1000] for node in nodes],
        callers=[caller[0] if isinstance(caller, list) and caller else caller for caller in callers],
        start_ns=_convert_all_to_ns([node.ts for node in nodes]),
        inclusive_ns=_convert_all_to_ns([node.inclusive_dur for node in nodes]),
        exclusive_ns=_convert_all_to_ns([node.exclusive_dur for node in nodes]),
        device=device,
        categories=[str(node.cat)[:80] for node in on_device],
        streams=[node.stream for node in on_device],
        threads=[named.get("tid") for named in attributes],
        thread_waits={row: value for row in hosts if (value := nodes[row].inter_thread_dep) is not None},
        sync_waits={row: value for row in hosts if (value := nodes[row].sync_dep) is not None},
        io_texts=list(codes),
        io=np.array(list(map(codes.__getitem__, raws)), np.int32).reshape(-1, 6),
        numbers={key: _select_whole_numbers([named.get(key) for named in attributes]) for key in k.NUMBERS},
        schemas=_select_texts([named.get("op_schema") for named in attributes]),
        attributes_of=attributes.__getitem__,
        group_of=lambda row: nodes[row].pg_name,
    )


def _select_texts(values: Sequence[Any]) -> tuple[list[int], list[str]]:
    """Return the rows whose value is a text that is not empty, and these."""
    filled = [(row, value) for row, value in enumerate(values) if isinstance(value, str) and value]
    return [row for row, _ in filled], [value for _, value in filled]


def _index_attributes(attrs: Sequence[_Attr]) -> dict[str, Any]:
    return {attr.name: attr.value for attr in attrs if isinstance(attr.name, str)}


def _select_whole_numbers(values: list[Any]) -> tuple[Int64, Int64]:
    """Return the rows (M,) that have a whole number of 64 bits, and these."""
    if set(map(type, values)) == {int}:
        with suppress(OverflowError):
            return np.arange(len(values)), np.array(values, np.int64)
    rows = [row for row, value in enumerate(values) if type(value) is int and -(2**63) <= value < 2**63]
    return np.array(rows, np.int64), np.array([values[row] for row in rows], np.int64)


# ---------------------------------------------------------------------------------------------------
# By the kernel


def _read_rows(data: bytes | memoryview) -> tuple[Nodes, Head] | None:
    """Return nodes that the kernel put down, and the head; None where the file is not written as usual."""
    known = read_nodes(data)
    if known is None:
        return None
    rows, rest = known
    # The list may be another's, or there may be a second one, which counts instead.
    if rest.count(b'"nodes"') != 1:
        return None
    try:
        content = _untyped(rest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    ids = rows.columns[k.ID]
    times = [rows.columns[column : column + 2] for column in (k.START, k.INCLUSIVE, k.EXCLUSIVE)]
    is_odd = (
        content.nodes != []
        or int(ids.min()) < 0
        or int(ids.max()) > LARGEST_ID
        or any(((digits >= _EXACT_US) & (behind == 0)).any() for digits, behind in times)
        or (rows.columns[k.NAME + 1] < 0).any()
    )
    if is_odd:
        return None
    order = np.argsort(ids, kind="stable")
    if (np.diff(ids[order]) == 0).any():
        return None
    return _build_nodes_from_rows(EventRows(rows.data, rows.columns[:, order])), _build_head(content)


def _build_nodes_from_rows(rows: EventRows) -> Nodes:
    """Return nodes that the kernel put down, sorted by id."""
    device = rows.columns[k.CATEGORY + 1] >= 0
    hosts, devices = np.flatnonzero(~device), np.flatnonzero(device)
    on_device = rows.take(devices)
    callers, threads = rows.columns[k.CALLER], rows.columns[k.FIRST_NUMBER + k.NUMBERS.index("tid")]
    words, names = rows.texts(k.NAME)
    decoded_names = [_words(raw) if raw else "" for raw in words]
    io_texts, io = _number_io(rows)

    def read_attributes(row: int) -> dict[str, Any]:
        [raw] = rows.content(k.ATTRIBUTES, np.array([row]))
        return _index_attributes(_attributes(raw)) if raw else {}

    def group_of(row: int) -> Any:
        [raw] = rows.content(k.GROUP, np.array([row]))
        return _anything(raw) if raw else None

    start_ns, inclusive_ns, exclusive_ns = (
        _read_row_times(rows, column) for column in (k.START, k.INCLUSIVE, k.EXCLUSIVE)
    )
    return Nodes(
        ids=rows.columns[k.ID].tolist(),
        names=[decoded_names[code] for code in names.tolist()],
        callers=np.where(callers == k.MISSING, NONE, callers).tolist(),
        start_ns=start_ns,
        inclusive_ns=inclusive_ns,
        exclusive_ns=exclusive_ns,
        device=device,
        categories=[str(value)[:80] for value in _read_values(on_device, k.CATEGORY)],
        streams=_read_values(on_device, k.STREAM),
        threads=threads.tolist(),
        thread_waits=_read_waits(rows, hosts, k.THREAD_WAITS),
        sync_waits=_read_waits(rows, hosts, k.SYNC_WAITS),
        io_texts=io_texts,
        io=io,
        numbers={
            key: _select_present(rows.columns[k.FIRST_NUMBER + place]) for place, key in enumerate(k.NUMBERS)
        },
        schemas=_select_texts(_read_values(rows, k.SCHEMA)),
        attributes_of=read_attributes,
        group_of=group_of,
    )


def _read_row_times(rows: EventRows, column: int) -> Int64:
    """Return times (N,) in ns, -1 where they are none."""
    times_us, is_present = rows.microseconds(column)
    good = is_present & (times_us >= 0) & (times_us < _LARGEST_US)
    return np.where(good, np.rint(np.where(good, times_us, 0) * 1000.0), NONE).astype(np.int64)


def _select_present(column: Int64) -> tuple[Int64, Int64]:
    """Return the rows that have a whole number, and these."""
    present = np.flatnonzero(column != k.MISSING)
    return present, column[present]


def _read_values(rows: EventRows, column: int) -> list[Any]:
    """Return the value of a field of each node, None where it is missing."""
    raws, codes = rows.texts(column)
    values = [_anything(raw) if raw else None for raw in raws]
    return [values[code] for code in codes.tolist()]


def _read_waits(rows: EventRows, hosts: Int64, column: int) -> dict[int, Any]:
    """Return what is told in a field of nodes of the host, by row."""
    waiting = hosts[rows.columns[column + 1, hosts] >= 0]
    return dict(zip(waiting.tolist(), map(_anything, rows.content(column, waiting)), strict=True))


def _number_io(rows: EventRows) -> tuple[list[bytes], Int32]:
    """Return the distinct values of inputs and outputs, and (N, 6) which each is."""
    starts = np.maximum(rows.columns[k.IO : k.IO + 12 : 2].T, 0).ravel()
    lengths = np.maximum(rows.columns[k.IO + 1 : k.IO + 12 : 2].T, 0).ravel().astype(np.int32)
    interner = CompiledInterner()
    codes = interner.codes(rows.data, starts, lengths)
    strings = interner.strings()
    # What is missing is without text.
    texts = [strings.raw(code) or _EMPTY_LIST for code in range(len(strings))]
    return texts, codes.reshape(-1, 6)
