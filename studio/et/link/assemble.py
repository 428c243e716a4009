"""Turn a linked rank into a graph: operators, the gaps between them, device operations, idle times of streams."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from studio.et.columns import AttributeColumns, NodeColumns, Texts, build_dependencies, build_graph
from studio.et.format import RankPart
from studio.et.link.attribute import DeviceOperations
from studio.et.link.chains import follow_groups
from studio.et.link.clock import correct_times
from studio.et.link.dep_kinds import DEP_KINDS, DepKind
from studio.et.link.draft import RankDraft
from studio.et.link.facts import Facts
from studio.et.link.gaps import WHYS
from studio.et.link.intervals import put_attributes
from studio.et.link.memory import add_memory_attributes
from studio.et.link.names import RECEIVE, SEND, choose_node_type
from studio.et.link.options import LinkOptions
from studio.et.link.process_groups import INIT
from studio.et.recording import DeviceTrace, EventKind, Head
from studio.trace import (
    IDLE,
    LAUNCH_CALL_NS,
    LAUNCH_NS,
    LAUNCHED_BY,
    NONE,
    RECORDER,
    STALLED,
    UNRECORDED_CALLS,
    WAITS_FOR,
    WITH_STACK,
    Attribute,
    Int32,
    Int64,
    NodeType,
    Rank,
    ValueKind,
)

VERSION = "0.0.4"
_DEVICE_KINDS = {EventKind.KERNEL: "kernel", EventKind.COPY: "memcpy", EventKind.FILL: "memset"}
_LARGEST_INT32 = 2**31 - 1


def assemble(rank_draft: RankDraft, origin_ns: int, world: int, options: LinkOptions) -> RankPart:
    """Return the graph and identity of a rank.

    Args:
        rank_draft: The linked rank.
        origin_ns: Time of the common clock that becomes 0.
        world: Ranks of the job.
        options: How process groups are written.
    """
    texts = Texts()
    texts.code("")
    first_device = len(rank_draft.operations) + len(rank_draft.plan.gaps)
    plan = follow_groups(rank_draft, index_comm_rows(rank_draft, first_device), options)
    rank_draft = replace(rank_draft, plan=plan)
    nodes = _Nodes(rank_draft, options)
    columns = AttributeColumns(texts, put_attributes)
    start_ns, duration_ns = nodes.times(origin_ns)
    _add_host_attributes(columns, rank_draft)
    _add_device_attributes(columns, rank_draft, nodes.first_device)
    _add_comm_attributes(columns, rank_draft, nodes.first_device)
    _plan_attributes(columns, rank_draft)
    # Nodes come after all that they wait for: other tools read files once, from start to end.
    places = rank_draft.plan.order
    order = np.argsort(places)
    columns.move(places)
    source, target, kinds = nodes.dependencies(places)
    data = (kinds & ~int(DepKind.CALL)) != 0
    call = (kinds & int(DepKind.CALL)) != 0
    lengths = np.bincount(target[data], minlength=len(nodes))
    rows = np.flatnonzero(lengths)
    columns.add_ragged(
        DEP_KINDS,
        rows,
        lengths[rows],
        (kinds[data] & ~int(DepKind.CALL)).astype(np.int64),
        ValueKind.INT32_LIST,
    )
    io = nodes.io(texts)
    graph, slots = build_graph(
        NodeColumns(
            ids=nodes.ids()[order],
            types=nodes.types()[order],
            names=nodes.names(texts)[order],
            start_ns=start_ns[order],
            duration_ns=duration_ns[order],
            ctrl=build_dependencies(source[call], target[call], len(nodes)),
            data=build_dependencies(source[data], target[data], len(nodes)),
            io=io[order] if len(io) else io,
        ),
        columns,
    )
    rank = Rank(
        NONE, NONE, slots, VERSION, build_metadata(rank_draft, origin_ns, world), b"", rank_draft.files
    )
    return RankPart(rank, graph, rank_draft.number, tuple(rank_draft.findings))


class _Nodes:
    """The rows of the graph: N operations, G gaps, D device operations, I idle times of streams."""

    def __init__(self, rank_draft: RankDraft, options: LinkOptions) -> None:
        self.draft, self.options = rank_draft, options
        self.gaps = rank_draft.plan.gaps
        self.first_gap = len(rank_draft.operations)
        self.first_device = self.first_gap + len(self.gaps)
        self.devices = len(rank_draft.launched) if rank_draft.launched is not None else 0
        self.idles = rank_draft.plan.idles

    def __len__(self) -> int:
        return self.first_device + self.devices + len(self.idles)

    def ids(self) -> Any:
        """Return ids: operations keep theirs, other nodes get new ones."""
        own = self.draft.operations.id
        first = int(own.max()) + 1 if len(own) else 1
        added = np.arange(first, first + len(self) - len(own))
        return np.concatenate((own, added)).astype(np.uint64)

    def types(self) -> Int32:
        """Return node types."""
        types = np.full(len(self), NodeType.COMP, np.int32)
        if self.options.metadata_nodes:
            types[self.draft.operations.find_named(lambda name: INIT in name)] = NodeType.METADATA
        for row, facts in index_comm_rows(self.draft, self.first_device).items():
            types[row] = choose_node_type(facts.kind)
        return types

    def names(self, texts: Texts) -> Int32:
        """Return names as numbers of texts; a call that waited has the name of its own."""
        rank_draft = self.draft
        device, launched = rank_draft.device, rank_draft.launched
        gaps = np.full(len(self.gaps), texts.code("host gap"), np.int32)
        operations = rank_draft.operations
        parts = [texts.of(operations.names)[operations.name], gaps]
        if device is not None:
            words = texts.of(device.names)
            called = self.gaps.call >= 0
            gaps[called] = words[device.name[self.gaps.call[called]]]
            if launched is not None:
                parts.append(words[device.name[launched.event]])
        return np.concatenate((*parts, np.full(len(self.idles), texts.code("device gap"), np.int32)))

    def times(self, origin_ns: int) -> tuple[Int64, Int64]:
        """Return starts, -1 where not recorded, and the time each node took itself."""
        rank_draft = self.draft
        operations, gaps = rank_draft.operations, self.gaps
        start = [operations.start_ns, gaps.start_ns]
        duration = [np.maximum(rank_draft.plan.own_ns, 0), gaps.duration_ns]
        if rank_draft.device is not None and rank_draft.launched is not None:
            start.append(rank_draft.device.start_ns[rank_draft.launched.event])
            duration.append(rank_draft.launched.own_ns)
        start.append(self.idles.start_ns)
        duration.append(self.idles.duration_ns)
        raw = np.concatenate(start)
        timed = np.concatenate((operations.timed, np.ones(len(raw) - len(operations), np.bool_)))
        aligned = np.maximum(correct_times(raw, rank_draft.clock) - origin_ns, 0)
        return np.where(timed, aligned, NONE), np.concatenate(duration)

    def dependencies(self, places: Int64) -> tuple[Int64, Int64, Int32]:
        """Return dependencies between the places (N,) of nodes, by target, then source."""
        plan = self.draft.plan
        source, target = places[plan.source], places[plan.target]
        sort = np.lexsort((source, target))
        return source[sort], target[sort], plan.kinds[sort]

    def io(self, texts: Texts) -> Int32:
        """Return inputs and outputs; a device operation has those of its operator.

        Without an execution trace they are the inputs that the Kineto trace tells.
        """
        rank_draft = self.draft
        if rank_draft.host is not None:
            own = texts.of(rank_draft.host.texts)[rank_draft.host.io]
        elif rank_draft.device is not None and rank_draft.device.input_texts:
            own = self._number_event_inputs(rank_draft.device, texts)
        else:
            return np.empty((0, 6), np.int32)
        io = np.full((len(self), 6), NONE, np.int32)
        io[: self.first_gap] = own
        if rank_draft.launched is not None:
            attributed = np.flatnonzero(rank_draft.launched.operator >= 0)
            io[self.first_device + attributed] = own[rank_draft.launched.operator[attributed]]
        return io

    def _number_event_inputs(self, device: DeviceTrace, texts: Texts) -> Int32:
        """Return (N, 6) the inputs of operations that their events tell; nothing tells the outputs."""
        codes_of_rows = device.inputs[self.draft.operations.event]
        own = np.full((len(codes_of_rows), 6), NONE, np.int32)
        codes = texts.of(chain.from_iterable(device.input_texts)).reshape(-1, 3)
        own[codes_of_rows >= 0, :3] = codes[codes_of_rows[codes_of_rows >= 0]]
        return own


def index_comm_rows(rank_draft: RankDraft, first_device: int) -> dict[int, Facts]:
    """Return the communication facts by row of the graph."""
    by_row = dict(rank_draft.communication.operators)
    by_row |= {first_device + place: facts for place, facts in rank_draft.communication.devices.items()}
    return by_row


# ---------------------------------------------------------------------------------------------------
# Attributes


def _add_host_attributes(columns: AttributeColumns, rank_draft: RankDraft) -> None:
    operations = rank_draft.operations
    rows = np.arange(len(operations))
    communicating = np.isin(rows, list(rank_draft.communication.operators))
    columns.numbers("is_cpu_op", rows, (~communicating).astype(np.int64), ValueKind.BOOL)
    gaps = np.arange(len(operations), len(operations) + len(rank_draft.plan.gaps))
    columns.flag("is_cpu_op", gaps, True)
    between = np.flatnonzero(rank_draft.plan.gaps.call < 0)
    columns.add_coded("gap", gaps[between], rank_draft.plan.gaps.why[between], WHYS)
    if rank_draft.host is not None:
        for key, values in rank_draft.host.numbers.items():
            columns.numbers(key, rows, values)
        signed = np.array([row for row, schema in enumerate(rank_draft.host.op_schema) if schema], np.int64)
        columns.words("op_schema", signed, [rank_draft.host.op_schema[row] for row in signed.tolist()])
        for key, (where, others) in rank_draft.host.extra.items():
            columns.words(key, np.array(where, np.int64), [str(other) for other in others])
        if rank_draft.device is not None:
            loose = np.flatnonzero(~operations.timed & ~rank_draft.host.roots & ~rank_draft.host.notes)
            columns.flag("unlinked", loose, True)
    if rank_draft.device is not None:
        _add_thread_attributes(columns, rank_draft, gaps)
        _add_flops(columns, rank_draft)
        add_memory_attributes(columns, operations, rank_draft.device)


def _add_flops(columns: AttributeColumns, rank_draft: RankDraft) -> None:
    """Write the operations that the Kineto trace counts for operators."""
    assert rank_draft.device is not None
    event = rank_draft.operations.event
    rows = np.flatnonzero(event >= 0)
    flops = rank_draft.device.flops[event[rows]]
    columns.numbers("flops", rows[flops > 0], flops[flops > 0])


def _add_thread_attributes(columns: AttributeColumns, rank_draft: RankDraft, gaps: Int64) -> None:
    """Write the thread of the operating system, as the Kineto trace numbers it."""
    assert rank_draft.device is not None
    names = [thread[1] for thread in rank_draft.device.threads]
    operations = rank_draft.operations
    rows = np.flatnonzero(operations.timed)
    columns.add_coded("thread", rows, operations.thread[rows], names)
    columns.add_coded("thread", gaps, rank_draft.plan.gaps.thread, names)


def _add_device_attributes(columns: AttributeColumns, rank_draft: RankDraft, first_device: int) -> None:
    device, launched = rank_draft.device, rank_draft.launched
    if device is None or launched is None or not len(launched):
        return
    places, events = np.arange(len(launched)) + first_device, launched.event
    idles = rank_draft.plan.idles
    rows = np.arange(len(idles)) + first_device + len(launched)
    own, own_events = np.concatenate((places, rows)), np.concatenate((events, events[idles.place]))
    columns.flag("is_cpu_op", own, False)
    columns.words("gap", rows, [STALLED if queued else IDLE for queued in idles.queued.tolist()])
    for key, values in (("stream", device.stream), ("device", device.device)):
        is_known = values[own_events] >= 0
        columns.numbers(key, own[is_known], values[own_events][is_known])
    correlated = device.correlation[events] >= 0
    columns.numbers("correlation", places[correlated], device.correlation[events][correlated])
    columns.add_coded(
        "device_kind", places, device.kind[events], [_DEVICE_KINDS.get(kind, "") for kind in EventKind]
    )
    launched_with = np.flatnonzero((device.grid[events] >= 0).all(axis=1))
    columns.add_ragged(
        "grid",
        places[launched_with],
        np.full(len(launched_with), 3),
        device.grid[events[launched_with]].reshape(-1),
        ValueKind.INT32_LIST,
    )
    moved = (device.bytes[events] >= 0) & (device.kind[events] != EventKind.KERNEL)
    columns.numbers("tensor_size", places[moved], device.bytes[events][moved], ValueKind.UINT64)
    overlaps = np.flatnonzero(launched.own_ns < device.duration_ns[events])
    columns.numbers("inclusive_ns", places[overlaps], device.duration_ns[events][overlaps])
    columns.flag("unattributed", places[launched.operator < 0], True)
    columns.flag("launched_before", places[launched.earlier], True)
    _add_launch_attributes(columns, device, launched, places)


def _add_launch_attributes(
    columns: AttributeColumns, device: DeviceTrace, launched: DeviceOperations, places: Int64
) -> None:
    """Write how long before each operation of the device its launch began, how long the call took, and what it was."""
    with_launch = np.flatnonzero(launched.launch >= 0)
    calls, rows = launched.launch[with_launch], places[with_launch]
    columns.numbers(LAUNCH_NS, rows, device.start_ns[launched.event[with_launch]] - device.start_ns[calls])
    columns.numbers(LAUNCH_CALL_NS, rows, device.duration_ns[calls])
    columns.add_coded(LAUNCHED_BY, rows, device.name[calls], device.names)


def _add_comm_attributes(columns: AttributeColumns, rank_draft: RankDraft, first_device: int) -> None:
    facts = index_comm_rows(rank_draft, first_device)
    rows = np.array(sorted(facts), np.int64)
    known = [facts[row] for row in rows.tolist()]

    def add_present(key: str, values: list[int | None], kind: ValueKind = ValueKind.INT64) -> None:
        present = [index for index, value in enumerate(values) if value is not None]
        columns.numbers(key, rows[present], np.array([values[index] for index in present], np.int64), kind)

    messages = [facts.kind in (SEND, RECEIVE) for facts in known]
    narrow = ValueKind.INT32
    add_present(
        "comm_type", [None if message else facts.kind for facts, message in zip(known, messages, strict=True)]
    )
    add_present("comm_size", [facts.bytes for facts in known])
    named = [index for index, facts in enumerate(known) if facts.group]
    columns.words("pg_name", rows[named], [known[index].group or "" for index in named])
    own = rank_draft.number
    add_present("comm_src", [_find_end(facts, own, RECEIVE) for facts in known], narrow)
    add_present("comm_dst", [_find_end(facts, own, SEND) for facts in known], narrow)
    add_present(
        "comm_tag",
        [
            min(facts.tag, _LARGEST_INT32) if message else None
            for facts, message in zip(known, messages, strict=True)
        ],
        narrow,
    )
    add_present("comm_root", [facts.root if facts.root >= 0 else None for facts in known], narrow)
    add_present("bytes_in", [facts.bytes_in if facts.bytes_in >= 0 else None for facts in known])
    add_present("bytes_out", [facts.bytes_out if facts.bytes_out >= 0 else None for facts in known])
    add_present("comm_seq", [facts.seq if facts.seq >= 0 else None for facts in known])
    add_present("comm_turn", [facts.turn if facts.turn >= 0 else None for facts in known])
    add_present("comm_calls", [facts.calls if facts.calls > 1 else None for facts in known])
    for key, lists in (
        ("split_bytes_in", [facts.splits_in for facts in known]),
        ("split_bytes_out", [facts.splits_out for facts in known]),
    ):
        split = [index for index, parts in enumerate(lists) if parts]
        columns.number_lists(key, rows[split], [lists[index] for index in split], ValueKind.INT64_LIST)
    inferred = [
        (*facts.inferred, "size") if facts.lacks_size and "size" not in facts.inferred else facts.inferred
        for facts in known
    ]
    guessed = [index for index, what in enumerate(inferred) if what]
    columns.word_lists("comm_inferred", rows[guessed], [inferred[index] for index in guessed])


def _find_end(facts: Facts, own: int | None, far: int) -> int | None:
    """Return the source (`far` is RECEIVE) or destination (SEND) of a message, None where there is none."""
    if facts.kind not in (SEND, RECEIVE):
        return None
    value = facts.peer if facts.kind == far else own
    return value if value is not None and 0 <= value <= _LARGEST_INT32 else None


def _plan_attributes(columns: AttributeColumns, rank_draft: RankDraft) -> None:
    operations, plan = rank_draft.operations, rank_draft.plan
    rows = np.flatnonzero(operations.timed & (operations.end_ns - operations.start_ns != plan.own_ns))
    columns.numbers("inclusive_ns", rows, (operations.end_ns - operations.start_ns)[rows])
    rows = np.flatnonzero(plan.wait_ns > 0)
    columns.numbers("wait_ns", rows, plan.wait_ns[rows])
    calls = np.flatnonzero(plan.gaps.call >= 0)
    rows = calls + len(operations)
    columns.words(WAITS_FOR, rows, ["device"] * len(rows))
    columns.numbers("wait_ns", rows, plan.gaps.wait_ns[calls])


def build_metadata(rank_draft: RankDraft, origin_ns: int, world: int) -> tuple[Attribute, ...]:
    """Return the rank's metadata from its files, with statistics of the linking."""
    host, device, joined = rank_draft.host, rank_draft.device, rank_draft.joined
    entries: list[tuple[str, ValueKind, Any]] = [
        ("schema", ValueKind.STRING, host.schema if host else "kineto")
    ]
    pid = host.pid if host else device.pid if device else NONE
    entries += [("pid", ValueKind.UINT64, pid)] if 0 <= pid < 2**64 else []
    for key, value in (host.header if host else {}).items():
        entries.append((key, *_choose_kind(value)))
    if rank_draft.number is not None:
        entries.append(("rank", ValueKind.INT64, rank_draft.number))
    entries.append(("world_size", ValueKind.INT64, world))
    if _is_world_open(rank_draft, world):
        entries.append(("world_size_unknown", ValueKind.INT64, 1))
    if rank_draft.communication.groups:
        groups = [
            {
                "pg_name": group.name,
                "pg_desc": group.description,
                "ranks": list(group.ranks),
                "group_size": group.size,
            }
            for group in rank_draft.communication.groups.values()
        ]
        entries.append(("process_groups", ValueKind.STRING, json.dumps(groups)))
    launched = rank_draft.launched
    figures = {
        "host_operations": rank_draft.host_operations,
        "linked": joined.count if joined is not None else 0,
        "host_events": joined.events if joined is not None else 0,
        "device_operations": len(launched) if launched is not None else 0,
        "attributed": int((launched.operator >= 0).sum()) if launched is not None else 0,
    }
    entries += [(f"link_{key}", ValueKind.INT64, value) for key, value in figures.items()]
    entries.append(("link_method", ValueKind.STRING, joined.method if joined is not None else "none"))
    if rank_draft.communication.unrecorded:
        entries.append((UNRECORDED_CALLS, ValueKind.INT64, rank_draft.communication.unrecorded))
    if device is not None and device.head.recorder != Head().recorder:
        entries.append((RECORDER, ValueKind.STRING, device.head.recorder))
    if device is not None:
        entries += [
            ("clock_origin_ns", ValueKind.INT64, origin_ns),
            ("clock_offset_ns", ValueKind.INT64, rank_draft.clock.offset_ns),
        ]
        entries.append(("clock_drift_ppb", ValueKind.DOUBLE, float(rank_draft.clock.drift_ppb)))
        entries.append(("clock_residual_ns", ValueKind.INT64, rank_draft.clock.residual_ns))
        entries.append(("clock_matched", ValueKind.INT64, rank_draft.clock.matched))
        if device.head.host and device.head.base_ns is not None:
            entries.append(("clock_host", ValueKind.STRING, device.head.host))
        if device.head.has_stacks:
            entries.append((WITH_STACK, ValueKind.INT64, 1))
        # All devices of a machine as a rule; the first stands for them.
        entries += [("device_name", ValueKind.STRING, name) for name in device.head.devices[:1] if name]
    return tuple(Attribute(key, kind, value) for key, kind, value in entries)


def _is_world_open(rank_draft: RankDraft, world: int) -> bool:
    """Whether the rank communicates with others, and nothing says how many there are."""
    has_world_size = rank_draft.device is not None and rank_draft.device.head.world_size is not None
    listed = any(group.ranks or group.size for group in rank_draft.communication.groups.values())
    return (
        world == 1
        and not (has_world_size or listed)
        and bool(rank_draft.communication.operators or rank_draft.communication.devices)
    )


def _choose_kind(value: int | str) -> tuple[ValueKind, int | str]:
    if isinstance(value, str):
        return ValueKind.STRING, value
    return (ValueKind.UINT64, value) if 0 <= value < 2**64 else (ValueKind.STRING, str(value))
