"""Read merged host and device traces (ET+, JSON), as Chakra's trace linker writes them.

A PyTorch execution trace with new ids in which operators have times, each followed by copies of itself that stand for
what it ran on the device: those have `cat`. The file has call parents (`ctrl_deps`), `inter_thread_dep` and `sync_dep`; the order of
operators on a thread, launches and the order on a stream follow from it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, compress
from typing import Any, Literal

import msgspec
import numpy as np

from studio.decoding import decoder
from studio.errors import TraceFormatError
from studio.et import chakra, pytorch
from studio.et.columns import AttributeColumns, NodeColumns, Texts, build_graph, dependencies
from studio.et.format import Part, Reading
from studio.et.link.communication import INIT, is_timeless
from studio.et.link.literals import parse_literal, tensor_bytes
from studio.et.link.names import KERNEL, RECEIVE, SEND, element_bytes, kernel_kind, node_type, operator_kind
from studio.et.link.options import DEP_KINDS, DepKind
from studio.et.mend import collector_paused, decode_mended
from studio.et.records import LARGEST_ID, clean, fits, write_metadata
from studio.trace import NONE, Attribute, CollectiveType, Finding, Graph, Int32, Int64, NodeType, ValueKind
from studio.units import format_counted

_MARKS = (b'"exclusive_dur"', b'"inclusive_dur"', b'"inter_thread_dep"')
_HOST_NUMBERS = ("rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid")
_DEVICE_KINDS = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
_LARGEST_US = 2**53
_FIRST_TENSOR = {CollectiveType.ALL_REDUCE, CollectiveType.BROADCAST, CollectiveType.REDUCE, SEND, RECEIVE}
_SEND_RECV = re.compile(r"sendrecv", re.IGNORECASE)
_STEPS_UP = 3


def sniff(head: bytes) -> bool:
    """Whether `head` starts an execution trace whose nodes have times."""
    return pytorch.sniff(head) and any(mark in head for mark in _MARKS)


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


_known = decoder(_KnownContent)
_typed = decoder(_Content)
_untyped = decoder(_Loose)
_node = decoder(_Node)


def read(reading: Reading) -> list[Part]:
    """Read one merged trace.

    Raises:
        TraceFormatError: It is no JSON, or has no list of nodes.
    """
    with collector_paused():
        lost: Counter[str] = Counter()
        content, damage = _content(reading, lost)
        reading.tick(len(reading.data) // 2)
        trace = _Merged(_distinct(content.nodes or [], lost))
        trace.depend()
        graph, slots = trace.graph()
        findings = (*reading.findings, *damage, *_findings(trace, lost, reading.name))
        head = chakra.read_metadata(write_metadata("0.0.4", _metadata(content)), reading.name)
        nodes = chakra.Nodes(graph, slots)
        return [chakra.rank_part(replace(reading, findings=findings), head, nodes)]


def _decoded(reading: Reading) -> tuple[_Content, tuple[Finding, ...]]:
    try:
        return decode_mended(reading.data, _known, reading.name)
    except msgspec.ValidationError:
        return decode_mended(reading.data, _typed, reading.name)


def _content(reading: Reading, lost: Counter[str]) -> tuple[_Content, tuple[Finding, ...]]:
    try:
        content, findings = _decoded(reading)
    except msgspec.ValidationError:
        # Some node is of another shape: slower, node by node.
        decode: Callable[[bytes | memoryview], _Loose] = _untyped
        try:
            loose, findings = decode_mended(reading.data, decode, reading.name)
        except msgspec.ValidationError:
            loose, findings = _Loose(), ()
        content = _Content(None, loose.schema, loose.pid, loose.time, loose.start_ts, loose.finish_ts)
        if isinstance(loose.nodes, list):
            content.nodes = [made for node in loose.nodes if (made := _by_hand(node, lost)) is not None]
    if content.nodes is None:
        raise TraceFormatError(f"{reading.name}: no list 'nodes'.", hint="Link the traces again.")
    return content, findings


def _by_hand(node: Any, lost: Counter[str]) -> _Node | None:
    try:
        return _node(msgspec.json.encode(node))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        lost["malformed nodes"] += 1
        return None


def _distinct(nodes: Sequence[_Node], lost: Counter[str]) -> list[_Node]:
    """Return the nodes that have a usable id of their own, sorted by id."""
    nodes_by_id: dict[int, _Node] = {}
    for node in nodes:
        number = node.id
        if type(number) is not int or not 0 <= number <= LARGEST_ID or number in nodes_by_id:
            lost["nodes without an id of their own"] += 1
        else:
            nodes_by_id[number] = node
    return [nodes_by_id[number] for number in sorted(nodes_by_id)]


def _metadata(content: _Content) -> list[Attribute]:
    attributes = []
    for key in ("schema", "pid", "time", "start_ts", "finish_ts"):
        value = getattr(content, key)
        if isinstance(value, str):
            attributes.append(Attribute(key, ValueKind.STRING, value))
        elif type(value) is int and fits(ValueKind.UINT64, value):
            attributes.append(Attribute(key, ValueKind.UINT64, value))
    return attributes


def _nanoseconds(value: Any) -> int:
    """Return microseconds as ns, -1 where they are none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LARGEST_US:
        return NONE
    return round(value * 1000)


def _all_nanoseconds(values: list[Any]) -> Int64:
    """Return microseconds (N,) as ns, each as `_nanoseconds` has it."""
    kinds = set(map(type, values))
    if kinds <= _PLAIN_TIMES:
        with suppress(OverflowError):
            times_us = np.array(values, np.float64)
            good = (times_us >= 0) & (times_us < _LARGEST_US)
            # Beyond this a whole number times a thousand is not always one of floating point.
            if int not in kinds or (times_us[good] < _EXACT_US).all():
                return np.where(good, np.rint(np.where(good, times_us, 0) * 1000), NONE).astype(np.int64)
    return np.array(list(map(_nanoseconds, values)), np.int64)


_PLAIN_TIMES = frozenset((float, int, type(None)))
_EXACT_US = 2**53 // 1000


@dataclass(slots=True)
class _Comm:
    """The communication of a node."""

    kind: int
    size_bytes: int
    group: str
    inferred: tuple[str, ...]


@dataclass(slots=True)
class _Merged:
    """The nodes of a file sorted by id, and what is derived from them.

    Attributes:
        nodes: The nodes.
        row: Where each id stands.
        parent: Row of the caller, -1 where there is none.
        start_ns: -1 where a node has no time.
        attrs: Attributes by name.
        waits: Per node, the rows it waits for and why.
        comm: What nodes communicate, by row.
        lost: What was left out, by what it was.
        unknown: Names of collectives that are not known.
        names: Names of the nodes.
        device: Whether each ran on a device.
    """

    nodes: list[_Node]
    row: dict[int, int] = field(default_factory=dict)
    parent: list[int] = field(default_factory=list)
    start_ns: list[int] = field(default_factory=list)
    attrs: list[dict[str, Any]] = field(default_factory=list)
    waits: list[dict[int, int]] = field(default_factory=list)
    comm: dict[int, _Comm] = field(default_factory=dict)
    lost: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    names: list[str] = field(default_factory=list)
    device: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.names = [
            node.name if isinstance(node.name, str) else str(node.name)[:1000] for node in self.nodes
        ]
        self.device = [node.cat is not None for node in self.nodes]
        self.row = {node.id: row for row, node in enumerate(self.nodes)}
        self.start_ns = _all_nanoseconds([node.ts for node in self.nodes]).tolist()
        self.attrs = [_attributes_by_name(node.attrs) for node in self.nodes]
        for row, node in enumerate(self.nodes):
            caller = (
                node.ctrl_deps[0] if isinstance(node.ctrl_deps, list) and node.ctrl_deps else node.ctrl_deps
            )
            above = self.row.get(caller, NONE) if type(caller) is int else NONE
            # The process is its own caller; a caller is recorded, and so numbered, before what it calls, but for roots.
            self.parent.append(NONE if above == row else above)
        self.waits = [{} for _ in self.nodes]

    # -----------------------------------------------------------------------------------------------
    # Dependencies

    def depend(self) -> None:
        """Derive dependencies and communication."""
        host = NONE
        threads = [named.get("tid") for named in self.attrs]
        streams: dict[Any, int] = {}
        for row in self._walk():
            if self.device[row]:
                self._wait(row, host, DepKind.LAUNCH)
            else:
                if host >= 0 and threads[row] == threads[host]:
                    self._wait(row, host, DepKind.ORDER)
                host = row
        for row in sorted(
            compress(range(len(self.nodes)), self.device), key=lambda row: (self.start_ns[row], row)
        ):
            stream = self.nodes[row].stream
            if isinstance(stream, int | str):
                self._wait(row, streams.get(stream, NONE), DepKind.STREAM)
                streams[stream] = row
        for row, node in enumerate(self.nodes):
            # What ran on a device is a copy of its operator, which has these itself.
            if not self.device[row]:
                self._add_dependencies(row, node.inter_thread_dep, DepKind.THREAD)
                self._add_dependencies(row, node.sync_dep, DepKind.SYNC)
        self._communicate()

    def _add_dependencies(self, row: int, value: Any, kind: DepKind) -> None:
        if value is None:
            return
        for number in value if isinstance(value, list) else [value]:
            other = self.row.get(number, NONE) if type(number) is int else NONE
            if number is not None and other < 0:
                self.lost["dependencies on missing nodes"] += 1
            self._wait(row, other, kind)

    def _wait(self, row: int, other: int, kind: DepKind) -> None:
        if other < 0 or other == row:
            return
        backwards = 0 <= self.start_ns[row] < self.start_ns[other]
        if backwards and kind not in (DepKind.ORDER, DepKind.LAUNCH):
            self.lost["dependencies that the times contradict"] += 1
            return
        waits = self.waits[row]
        waits[other] = waits.get(other, 0) | int(kind)

    def _walk(self) -> list[int]:
        """Return all rows, callers before what they call, siblings by id; threads one after another."""
        children: list[list[int]] = [[] for _ in self.nodes]
        roots: list[int] = []
        for row, above in enumerate(self.parent):
            (roots if above < 0 else children[above]).append(row)
        seen = [False] * len(self.nodes)
        order: list[int] = []
        # What is not reached from a root is in a circle of callers, entered at its lowest id.
        for start in (*roots, *range(len(self.nodes))):
            stack = [start]
            while stack:
                row = stack.pop()
                if not seen[row]:
                    seen[row] = True
                    order.append(row)
                    stack += reversed(children[row])
        return order

    # -----------------------------------------------------------------------------------------------
    # Communication

    def _communicate(self) -> None:
        carried: set[int] = set()
        names = set(self.names)
        kernels = {name for name in names if KERNEL.search(name)}
        for row, name in enumerate(self.names):
            if self.device[row] and name in kernels:
                comm = self._of_kernel(row)
                if comm is None:
                    self.unknown[name.split("(")[0][:80]] += 1
                else:
                    self.comm[row] = comm
                    carried.update(self._above(row))
        calls = {name: operator_kind(name) for name in names if name.startswith("c10d::")}
        for row, name in enumerate(self.names) if calls else ():
            if not self.device[row] and row not in carried:
                kind = calls.get(name)
                if kind is not None:
                    self.comm[row] = self._of_operator(row, kind)

    def _above(self, row: int) -> list[int]:
        """Return the callers, nearest first."""
        callers = []
        for _ in range(_STEPS_UP):
            row = self.parent[row]
            if row < 0:
                break
            callers.append(row)
        return callers

    def _of_kernel(self, row: int) -> _Comm | None:
        """Return the communication of a kernel: from its arguments, the operators above it, or its name."""
        callers = [row, *self._above(row)]
        said: dict[str, Any] = {}
        for caller in reversed(callers):
            if self.attrs[caller].get("collective_name"):
                said |= {key: value for key, value in self.attrs[caller].items() if value is not None}
        kind, inferred = operator_kind(str(said.get("collective_name", ""))), []
        if kind is None:
            named = [
                operator_kind(self.names[row]) for row in callers[1:] if self.names[row].startswith("c10d::")
            ]
            kind = next((kind_named for kind_named in named if kind_named is not None), None)
        if kind is None:
            kind = kernel_kind(self.names[row])
            inferred.append("type")
            if kind is None and _SEND_RECV.search(self.names[row]):
                kind = self._send_or_receive(callers)
        if kind is None:
            return None
        size_bytes = _argument_bytes(said)
        if size_bytes < 0:
            size_bytes = max(self._tensor_bytes(row), 0)
            inferred.append("size")
        group = said.get("pg_name") or self.nodes[row].pg_name
        return _Comm(kind, size_bytes, str(group) if isinstance(group, str | int) else "", tuple(inferred))

    def _send_or_receive(self, callers: Sequence[int]) -> int:
        names = " ".join(self.names[row] for row in callers[1:]).lower()
        return SEND if "send" in names else RECEIVE if "recv" in names else int(CollectiveType.ALL_TO_ALL)

    def _tensor_bytes(self, row: int) -> int:
        return tensor_bytes(parse_literal(_text(self.nodes[row].inputs.values)))

    def _of_operator(self, row: int, kind: int) -> _Comm:
        values = parse_literal(_text(self.nodes[row].inputs.values))
        first = 0 if kind in _FIRST_TENSOR else 1
        given = tensor_bytes(values[first]) if isinstance(values, list) and len(values) > first else NONE
        # What a member of a scatter receives is not among what is recorded, only what its root gives.
        unknown = given < 0 or (kind == CollectiveType.SCATTER and not given)
        return _Comm(kind, max(given, 0), "", ("size",) if unknown else ())

    # -----------------------------------------------------------------------------------------------
    # Nodes

    def graph(self) -> tuple[Graph, tuple[int | str, ...]]:
        """Return the graph, and the values of its slots."""
        texts = Texts()
        columns = AttributeColumns(texts)
        every = np.arange(len(self.nodes))
        device, start_ns = np.array(self.device, np.bool_), np.array(self.start_ns, np.int64)
        own_ns = _all_nanoseconds([node.exclusive_dur for node in self.nodes])
        whole_ns = _all_nanoseconds([node.inclusive_dur for node in self.nodes])
        communicates = np.zeros(len(every), np.bool_)
        communicates[list(self.comm)] = True
        columns.numbers("is_cpu_op", every, (~(device | communicates)).astype(np.int64), ValueKind.BOOL)
        self._add_host_attributes(columns)
        self._add_device_attributes(columns)
        outer = np.flatnonzero(~device & (whole_ns > own_ns) & (own_ns >= 0))
        columns.numbers("inclusive_ns", outer, whole_ns[outer])
        _add_comm_attributes(columns, self.comm)
        counts = np.array([len(waits) for waits in self.waits], np.int64)
        waiting = np.flatnonzero(counts)
        kinds = _chained(waits.values() for waits in self.waits)
        columns.ragged(DEP_KINDS, waiting, counts[waiting], kinds, ValueKind.INT32_LIST)
        above = np.array(self.parent, np.int64)
        called = np.flatnonzero(above >= 0)
        return build_graph(
            NodeColumns(
                ids=np.array([node.id for node in self.nodes], np.uint64),
                types=self._types(),
                names=texts.of(map(clean, self.names)),
                start_ns=start_ns,
                duration_ns=np.maximum(np.where(device, whole_ns, own_ns), 0),
                ctrl=dependencies(above[called], called, len(every)),
                data=dependencies(_chained(self.waits), np.repeat(every, counts), len(every)),
                io=self._io(texts),
            ),
            columns,
        )

    def _io(self, texts: Texts) -> Int32:
        """Return the texts of inputs and outputs; many recur, as device nodes repeat their operator's."""
        sides = (side for node in self.nodes for side in (node.inputs, node.outputs))
        raws = [bytes(raw) for side in sides for raw in (side.values, side.shapes, side.types)]
        codes = {raw: texts.code(clean(pytorch.python_text(raw))) for raw in dict.fromkeys(raws)}
        return np.array(list(map(codes.__getitem__, raws)), np.int32).reshape(-1, 6)

    def _types(self) -> Int32:
        types = np.array(
            [NodeType.METADATA if INIT in name else NodeType.COMP for name in self.names], np.int32
        )
        for row, comm in self.comm.items():
            types[row] = node_type(comm.kind)
        return types

    def _add_host_attributes(self, columns: AttributeColumns) -> None:
        for key in _HOST_NUMBERS:
            columns.numbers(key, *_whole_numbers([named.get(key) for named in self.attrs]))
        schemas = [named.get("op_schema") for named in self.attrs]
        rows = [row for row, schema in enumerate(schemas) if isinstance(schema, str) and schema]
        columns.words("op_schema", np.array(rows, np.int64), [clean(str(schemas[row])) for row in rows])

    def _add_device_attributes(self, columns: AttributeColumns) -> None:
        rows = list(compress(range(len(self.nodes)), self.device))
        categories = [str(self.nodes[row].cat)[:80] for row in rows]
        kinds = [clean(_DEVICE_KINDS.get(category, category)) for category in categories]
        columns.words("device_kind", np.array(rows, np.int64), kinds)
        streams = [(row, self.nodes[row].stream) for row in rows]
        placed = [
            (row, stream) for row, stream in streams if type(stream) is int and fits(ValueKind.INT64, stream)
        ]
        pairs = np.array(placed, np.int64).reshape(-1, 2)
        columns.numbers("stream", pairs[:, 0], pairs[:, 1])


def _whole_numbers(values: list[Any]) -> tuple[Int64, Int64]:
    """Return the rows (M,) that have a whole number of 64 bits, and these."""
    if set(map(type, values)) == {int}:
        with suppress(OverflowError):
            return np.arange(len(values)), np.array(values, np.int64)
    rows = [row for row, value in enumerate(values) if type(value) is int and -(2**63) <= value < 2**63]
    return np.array(rows, np.int64), np.array([values[row] for row in rows], np.int64)


def _text(raw: msgspec.Raw) -> str:
    """Return a JSON value as Python would write it."""
    return pytorch.python_text(bytes(raw))


def _chained(parts: Iterable[Iterable[int]]) -> Int64:
    return np.fromiter(chain.from_iterable(parts), np.int64)


def _attributes_by_name(attrs: Sequence[_Attr]) -> dict[str, Any]:
    return {attr.name: attr.value for attr in attrs if isinstance(attr.name, str)}


def _argument_bytes(said: Mapping[str, Any]) -> int:
    """Return the bytes given by recorded arguments, -1 where there are none."""
    count, size = said.get("in_msg_nelems"), element_bytes(str(said.get("dtype", "")))
    known = type(count) is int and 0 <= count < 2**56 and size > 0
    return count * size if known and isinstance(count, int) else NONE


def _add_comm_attributes(columns: AttributeColumns, comms: Mapping[int, _Comm]) -> None:
    known = sorted(comms.items())
    typed = [(row, comm) for row, comm in known if comm.kind not in (SEND, RECEIVE)]
    columns.numbers("comm_type", _rows(typed), np.array([comm.kind for _, comm in typed], np.int64))
    columns.numbers("comm_size", _rows(known), np.array([comm.size_bytes for _, comm in known], np.int64))
    named = [(row, comm) for row, comm in known if comm.group]
    columns.words("pg_name", _rows(named), [clean(comm.group) for _, comm in named])
    inferred = [(row, comm) for row, comm in known if comm.inferred]
    columns.word_lists("comm_inferred", _rows(inferred), [comm.inferred for _, comm in inferred])


def _rows(known: Sequence[tuple[int, _Comm]]) -> Int64:
    return np.array([row for row, _ in known], np.int64)


def _findings(trace: _Merged, lost: Counter[str], name: str) -> list[Finding]:
    findings = []
    if lost:
        what = ", ".join(f"{key} ({count:,})" for key, count in lost.items())
        findings.append(Finding("error", "damaged-node", f"{name}: left out: {what}.", file=name))
    if trace.lost:
        what = ", ".join(f"{key} ({count:,})" for key, count in trace.lost.items())
        findings.append(Finding("info", "contradicted-dependency", f"{name}: left out: {what}.", file=name))
    if trace.unknown:
        what = ", ".join(f"{key} ({count:,})" for key, count in list(trace.unknown.items())[:6])
        message = f"{name}: unknown collectives, kept as computation: {what}."
        hint = "They send nothing in a simulation."
        findings.append(Finding("warning", "unknown-collective", message, hint, file=name))
    untimed = sum(start < 0 and not is_timeless(trace.names[row]) for row, start in enumerate(trace.start_ns))
    if untimed:
        message = f"{name}: {untimed:,} of {format_counted(len(trace.nodes), 'node')} {'has' if untimed == 1 else 'have'} no times: they were not linked."
        findings.append(
            Finding("warning", "unlinked", message, "Open the two traces it was made of instead.", file=name)
        )
    return findings
