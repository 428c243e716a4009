"""Read merged host and device traces (ET+, JSON), as Chakra's trace linker writes them.

A PyTorch execution trace with new ids in which operators have times, each followed by copies of itself that stand for
what it ran on the device: those have `cat`. The file has call parents (`ctrl_deps`), `inter_thread_dep` and `sync_dep`; the order of
operators on a thread, launches and the order on a stream follow from it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, pairwise
from typing import Any

import numpy as np

from studio.et import chakra, pytorch
from studio.et.collector import pause_collector
from studio.et.columns import AttributeColumns, NodeColumns, Texts, build_dependencies, build_graph
from studio.et.etplus_nodes import Head, Nodes, read_merged
from studio.et.format import Part, Reading
from studio.et.link.dep_kinds import DEP_KINDS, DepKind
from studio.et.link.literals import parse_literal, sum_tensor_bytes
from studio.et.link.names import (
    KERNEL,
    RECEIVE,
    SEND,
    choose_node_type,
    get_element_bytes,
    infer_kernel_kind,
    infer_operator_kind,
)
from studio.et.link.process_groups import INIT, is_timeless
from studio.et.records import clean, fits, write_metadata
from studio.trace import (
    NONE,
    Attribute,
    CollectiveType,
    Finding,
    Graph,
    Int32,
    Int64,
    NodeType,
    ValueKind,
)
from studio.units import format_counted

_MARKS = (b'"exclusive_dur"', b'"inclusive_dur"', b'"inter_thread_dep"')
_DEVICE_KINDS = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
_FIRST_TENSOR = {CollectiveType.ALL_REDUCE, CollectiveType.BROADCAST, CollectiveType.REDUCE, SEND, RECEIVE}
_SEND_RECV = re.compile(r"sendrecv", re.IGNORECASE)
_STEPS_UP = 3


def sniff(head: bytes) -> bool:
    """Whether `head` starts an execution trace whose nodes have times."""
    return pytorch.sniff(head) and any(mark in head for mark in _MARKS)


def read(reading: Reading) -> list[Part]:
    """Read one merged trace.

    Raises:
        TraceFormatError: It is no JSON, or has no list of nodes.
    """
    with pause_collector():
        lost: Counter[str] = Counter()
        nodes, head_fields, damage = read_merged(reading, lost)
        reading.tick(len(reading.data) // 2)
        trace = _Merged(nodes)
        trace.depend()
        graph, slots = trace.graph()
        findings = (*reading.findings, *damage, *_build_findings(trace, lost, reading.name))
        head = chakra.read_metadata(write_metadata("0.0.4", _list_metadata(head_fields)), reading.name)
        return [chakra.build_rank_part(replace(reading, findings=findings), head, chakra.Nodes(graph, slots))]


def _list_metadata(head: Head) -> list[Attribute]:
    attributes = []
    for key in ("schema", "pid", "time", "start_ts", "finish_ts"):
        value = getattr(head, key)
        if isinstance(value, str):
            attributes.append(Attribute(key, ValueKind.STRING, value))
        elif type(value) is int and fits(ValueKind.UINT64, value):
            attributes.append(Attribute(key, ValueKind.UINT64, value))
    return attributes


@dataclass(slots=True)
class _Comm:
    """The communication of a node."""

    kind: int
    size_bytes: int
    group: str
    inferred: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Waits:
    """Dependencies between nodes: node `row` waits for `other` for reasons of `kinds`.

    W dependencies, those of a node one after another, rows ascending.

    Attributes:
        row, other, kinds: (W,) each.
    """

    row: Int64
    other: Int64
    kinds: Int64

    @staticmethod
    def of(parts: Sequence[tuple[Int64, Int64, DepKind]], count: int) -> _Waits:
        """Return dependencies of `count` nodes in the order they were found; those found again add their reason."""
        row, other = (np.concatenate([part[side] for part in parts]).astype(np.int64) for side in (0, 1))
        kinds = np.repeat([int(kind) for *_, kind in parts], [len(rows) for rows, *_ in parts])
        pair = row * count + other
        order = np.argsort(pair, kind="stable")
        begins = np.flatnonzero(np.diff(pair[order], prepend=NONE))
        first = order[begins]
        all_kinds = np.bitwise_or.reduceat(kinds[order], begins) if len(begins) else kinds
        by_row = np.lexsort((first, row[first]))
        return _Waits(row[first][by_row], other[first][by_row], all_kinds[by_row])


@dataclass(slots=True)
class _Merged:
    """The nodes of a file sorted by id, and what is derived from them.

    N nodes.

    Attributes:
        nodes: The nodes.
        row: Where each id stands.
        parent: Row of the caller of each, -1 where there is none.
        waits: What they wait for and why.
        comm: What nodes communicate, by row.
        lost: What was left out, by what it was.
        unknown: Names of collectives that are not known.
    """

    nodes: Nodes
    row: dict[int, int] = field(init=False)
    parent: list[int] = field(init=False)
    waits: _Waits = field(init=False)
    comm: dict[int, _Comm] = field(default_factory=dict)
    lost: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.row = row_of = {number: row for row, number in enumerate(self.nodes.ids)}
        above = [row_of.get(caller, NONE) if type(caller) is int else NONE for caller in self.nodes.callers]
        # The process is its own caller; a caller is recorded, and so numbered, before what it calls, but for roots.
        self.parent = [NONE if caller == row else caller for row, caller in enumerate(above)]

    # -----------------------------------------------------------------------------------------------
    # Dependencies

    def depend(self) -> None:
        """Derive dependencies and communication."""
        dependencies = [*self._follow_calls(), self._follow_streams(), *self._follow_recorded()]
        self.waits = _Waits.of(dependencies, len(self.nodes))
        self._find_communication()

    def _follow_calls(self) -> Iterator[tuple[Int64, Int64, DepKind]]:
        """Yield launches, and the order of operators on a thread."""
        walk = np.array(self._walk(), np.int64)
        on_device = self.nodes.device[walk]
        host = np.maximum.accumulate(np.where(on_device, NONE, np.arange(len(walk))))
        launched = on_device & (host >= 0)
        yield walk[launched], walk[host[launched]], DepKind.LAUNCH
        hosts = walk[~on_device].tolist()
        thread = self.nodes.threads
        same = [thread[before] == thread[row] for before, row in pairwise(hosts)]
        yield (
            np.array(list(compress(hosts[1:], same)), np.int64),
            np.array(list(compress(hosts, same)), np.int64),
            DepKind.ORDER,
        )

    def _follow_streams(self) -> tuple[Int64, Int64, DepKind]:
        """Return the order of what ran on a stream."""
        devices, start_ns = np.flatnonzero(self.nodes.device), self.nodes.start_ns
        latest: dict[Any, int] = {}
        pairs = []
        order = np.argsort(start_ns[devices], kind="stable").tolist()
        rows = devices.tolist()
        for place in order:
            row, stream = rows[place], self.nodes.streams[place]
            if isinstance(stream, int | str):
                if stream in latest:
                    pairs.append((row, latest[stream]))
                latest[stream] = row
        return *_split_columns(pairs), DepKind.STREAM

    def _follow_recorded(self) -> Iterator[tuple[Int64, Int64, DepKind]]:
        """Yield dependencies between threads and on what was waited for, as far as times do not contradict them."""
        pairs: dict[DepKind, list[tuple[int, int]]] = {DepKind.THREAD: [], DepKind.SYNC: []}
        waits = {DepKind.THREAD: self.nodes.thread_waits, DepKind.SYNC: self.nodes.sync_waits}
        for row in sorted({*self.nodes.thread_waits, *self.nodes.sync_waits}):
            for kind, recorded in waits.items():
                if row in recorded:
                    pairs[kind] += self._iterate_recorded(row, recorded[row])
        for kind, pairs_of_kind in pairs.items():
            yield *_split_columns(pairs_of_kind), kind

    def _iterate_recorded(self, row: int, value: Any) -> Iterator[tuple[int, int]]:
        for number in value if isinstance(value, list) else [value]:
            other = self.row.get(number, NONE) if type(number) is int else NONE
            if number is not None and other < 0:
                self.lost["dependencies on missing nodes"] += 1
            if other < 0 or other == row:
                continue
            if 0 <= self.nodes.start_ns[row] < self.nodes.start_ns[other]:
                self.lost["dependencies that the times contradict"] += 1
            else:
                yield row, other

    def _walk(self) -> list[int]:
        """Return all rows, callers before what they call, siblings by id; threads one after another."""
        children: list[list[int]] = [[] for _ in self.parent]
        roots: list[int] = []
        for row, above in enumerate(self.parent):
            (roots if above < 0 else children[above]).append(row)
        seen = [False] * len(self.parent)
        order: list[int] = []
        # What is not reached from a root is in a circle of callers, entered at its lowest id.
        for start in (*roots, *range(len(self.parent))):
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

    def _find_communication(self) -> None:
        carried: set[int] = set()
        names = set(self.nodes.names)
        kernels = {name for name in names if KERNEL.search(name)}
        device = self.nodes.device.tolist()
        for row, name in enumerate(self.nodes.names) if kernels else ():
            if device[row] and name in kernels:
                comm = self._find_kernel_comm(row)
                if comm is None:
                    self.unknown[name.split("(")[0][:80]] += 1
                else:
                    self.comm[row] = comm
                    carried.update(self._list_callers(row))
        calls = {name: infer_operator_kind(name) for name in names if name.startswith("c10d::")}
        for row, name in enumerate(self.nodes.names) if calls else ():
            if not device[row] and row not in carried:
                kind = calls.get(name)
                if kind is not None:
                    self.comm[row] = self._infer_operator_comm(row, kind)

    def _list_callers(self, row: int) -> list[int]:
        """Return the callers, nearest first."""
        callers = []
        for _ in range(_STEPS_UP):
            row = self.parent[row]
            if row < 0:
                break
            callers.append(row)
        return callers

    def _find_kernel_comm(self, row: int) -> _Comm | None:
        """Return the communication of a kernel: from its arguments, the operators above it, or its name."""
        callers = [row, *self._list_callers(row)]
        arguments: dict[str, Any] = {}
        for caller in reversed(callers):
            named = self.nodes.attributes_of(caller)
            if named.get("collective_name"):
                arguments |= {key: value for key, value in named.items() if value is not None}
        kind, inferred = infer_operator_kind(str(arguments.get("collective_name", ""))), []
        if kind is None:
            called = [
                infer_operator_kind(self.nodes.names[row])
                for row in callers[1:]
                if self.nodes.names[row].startswith("c10d::")
            ]
            kind = next((kind_called for kind_called in called if kind_called is not None), None)
        if kind is None:
            kind = infer_kernel_kind(self.nodes.names[row])
            inferred.append("type")
            if kind is None and _SEND_RECV.search(self.nodes.names[row]):
                kind = self._send_or_receive(callers)
        if kind is None:
            return None
        size_bytes = _compute_argument_bytes(arguments)
        if size_bytes < 0:
            size_bytes = max(self._sum_tensor_bytes(row), 0)
            inferred.append("size")
        group = arguments.get("pg_name") or self.nodes.group_of(row)
        return _Comm(kind, size_bytes, str(group) if isinstance(group, str | int) else "", tuple(inferred))

    def _send_or_receive(self, callers: Sequence[int]) -> int:
        names = " ".join(self.nodes.names[row] for row in callers[1:]).lower()
        return SEND if "send" in names else RECEIVE if "recv" in names else int(CollectiveType.ALL_TO_ALL)

    def _sum_tensor_bytes(self, row: int) -> int:
        return sum_tensor_bytes(parse_literal(self._format_input_values(row)))

    def _format_input_values(self, row: int) -> str:
        """Return the values of the inputs of a node as Python would write them."""
        return pytorch.format_as_python(self.nodes.io_texts[self.nodes.io[row, 0]])

    def _infer_operator_comm(self, row: int, kind: int) -> _Comm:
        values = parse_literal(self._format_input_values(row))
        first = 0 if kind in _FIRST_TENSOR else 1
        given = sum_tensor_bytes(values[first]) if isinstance(values, list) and len(values) > first else NONE
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
        device, waits = self.nodes.device, self.waits
        own_ns, whole_ns = self.nodes.exclusive_ns, self.nodes.inclusive_ns
        communicates = np.zeros(len(every), np.bool_)
        communicates[list(self.comm)] = True
        columns.numbers("is_cpu_op", every, (~(device | communicates)).astype(np.int64), ValueKind.BOOL)
        self._add_host_attributes(columns)
        self._add_device_attributes(columns)
        outer = np.flatnonzero(~device & (whole_ns > own_ns) & (own_ns >= 0))
        columns.numbers("inclusive_ns", outer, whole_ns[outer])
        _add_comm_attributes(columns, self.comm)
        counts = np.bincount(waits.row, minlength=len(every))
        waiting = np.flatnonzero(counts)
        columns.add_ragged(DEP_KINDS, waiting, counts[waiting], waits.kinds, ValueKind.INT32_LIST)
        above = np.array(self.parent, np.int64)
        called = np.flatnonzero(above >= 0)
        return build_graph(
            NodeColumns(
                ids=np.array(self.nodes.ids, np.uint64),
                types=self._infer_types(),
                names=texts.of(map(clean, self.nodes.names)),
                start_ns=self.nodes.start_ns,
                duration_ns=np.maximum(np.where(device, whole_ns, own_ns), 0),
                ctrl=build_dependencies(above[called], called, len(every)),
                data=build_dependencies(waits.other, waits.row, len(every)),
                io=self._number_io(texts),
            ),
            columns,
        )

    def _number_io(self, texts: Texts) -> Int32:
        """Return the texts of inputs and outputs; many recur, as device nodes repeat their operator's."""
        codes = texts.of(clean(pytorch.format_as_python(raw)) for raw in self.nodes.io_texts)
        coded: Int32 = codes[self.nodes.io]
        return coded

    def _infer_types(self) -> Int32:
        begins = {name for name in set(self.nodes.names) if INIT in name}
        types = np.full(len(self.nodes.names), NodeType.COMP, np.int32)
        types[[row for row, name in enumerate(self.nodes.names) if name in begins]] = NodeType.METADATA
        for row, comm in self.comm.items():
            types[row] = choose_node_type(comm.kind)
        return types

    def _add_host_attributes(self, columns: AttributeColumns) -> None:
        for key, (rows, values) in self.nodes.numbers.items():
            columns.numbers(key, rows, values)
        with_schema, schemas = self.nodes.schemas
        columns.words("op_schema", np.array(with_schema, np.int64), list(map(clean, schemas)))

    def _add_device_attributes(self, columns: AttributeColumns) -> None:
        rows = np.flatnonzero(self.nodes.device)
        kinds = [clean(_DEVICE_KINDS.get(category, category)) for category in self.nodes.categories]
        columns.words("device_kind", rows, kinds)
        streams = zip(rows.tolist(), self.nodes.streams, strict=True)
        placed = [
            (row, stream) for row, stream in streams if type(stream) is int and fits(ValueKind.INT64, stream)
        ]
        pairs = np.array(placed, np.int64).reshape(-1, 2)
        columns.numbers("stream", pairs[:, 0], pairs[:, 1])


def _split_columns(pairs: Sequence[tuple[int, int]]) -> tuple[Int64, Int64]:
    """Return pairs as two columns."""
    both = np.array(pairs, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _compute_argument_bytes(arguments: Mapping[str, Any]) -> int:
    """Return the bytes given by recorded arguments, -1 where there are none."""
    count, size = arguments.get("in_msg_nelems"), get_element_bytes(str(arguments.get("dtype", "")))
    known = type(count) is int and 0 <= count < 2**56 and size > 0
    return count * size if known and isinstance(count, int) else NONE


def _add_comm_attributes(columns: AttributeColumns, comms: Mapping[int, _Comm]) -> None:
    known = sorted(comms.items())
    typed = [(row, comm) for row, comm in known if comm.kind not in (SEND, RECEIVE)]
    columns.numbers("comm_type", _list_rows(typed), np.array([comm.kind for _, comm in typed], np.int64))
    columns.numbers(
        "comm_size", _list_rows(known), np.array([comm.size_bytes for _, comm in known], np.int64)
    )
    named = [(row, comm) for row, comm in known if comm.group]
    columns.words("pg_name", _list_rows(named), [clean(comm.group) for _, comm in named])
    inferred = [(row, comm) for row, comm in known if comm.inferred]
    columns.word_lists("comm_inferred", _list_rows(inferred), [comm.inferred for _, comm in inferred])


def _list_rows(known: Sequence[tuple[int, _Comm]]) -> Int64:
    return np.array([row for row, _ in known], np.int64)


def _build_findings(trace: _Merged, lost: Counter[str], name: str) -> list[Finding]:
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
    untimed = sum(
        not is_timeless(trace.nodes.names[row]) for row in np.flatnonzero(trace.nodes.start_ns < 0).tolist()
    )
    if untimed:
        message = f"{name}: {untimed:,} of {format_counted(len(trace.nodes), 'node')} {'has' if untimed == 1 else 'have'} no times: they were not linked."
        findings.append(
            Finding("warning", "unlinked", message, "Open the two traces it was made of instead.", file=name)
        )
    return findings
