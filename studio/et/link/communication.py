"""Find the communicating nodes with type, size and group: from metadata, else from tensors, else from names."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from math import prod
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from studio.et.direct import OPERATORS, direct_kernel_kind, place_of_tensor, talks_without_kind
from studio.et.kineto import parse_ranks
from studio.et.link.attribute import DeviceOperations
from studio.et.link.carried import BY_MESSAGES, library_rows, match_calls
from studio.et.link.literals import parse_literal, tensor_bytes
from studio.et.link.names import (
    KERNEL,
    NO_COLLECTIVES,
    RECEIVE,
    SEND,
    element_bytes,
    kernel_kind,
    operator_kind,
    plain,
)
from studio.et.link.noted import match_noted
from studio.et.link.operations import Operations
from studio.et.recording import DeviceTrace, EventKind, Group, HostTrace, is_root, mark_names
from studio.trace import NONE, STEP, CollectiveType, Int64

INIT = "process_group:init"
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}", re.ASCII)
_MARK = re.compile(rf"{INIT}|{STEP}")
_RECORDER = "record_param_comms"
_NAMESPACES = ("c10d::", "_c10d_functional::", "c10d_functional::", "_c10d_functional_autograd::")
_LIBRARIES = ("gloo:", "nccl:", "rccl:", "mpi:", "ucc:", "xccl:", "hccl:")
_ONE_LIST = {
    CollectiveType.ALL_REDUCE,
    CollectiveType.BROADCAST,
    CollectiveType.REDUCE,
    CollectiveType.BARRIER,
    SEND,
    RECEIVE,
}
_GIVEN = _ONE_LIST | {
    CollectiveType.ALL_GATHER,
    CollectiveType.GATHER,
    CollectiveType.SCATTER,
    CollectiveType.ALL_TO_ALL,
}
"""Kinds of which gloo's operation names the tensors that a rank gives; of a scatter on its root."""
_LAUNCHES = "nccl:"
"""Operations that start so are those in which a call launches kernels of NCCL or RCCL; they name the tensors that a rank gives."""
_LAUNCHED = (_GIVEN | {CollectiveType.REDUCE_SCATTER}) - {CollectiveType.SCATTER, CollectiveType.BARRIER}
"""Kinds of which they do; of a scatter they name what is received."""


def is_timeless(name: str) -> bool:
    """Whether a node of a PyTorch trace is of a kind that has no time.

    Operators hang below nodes that stand for the process and its threads; other nodes mark process groups and steps.
    """
    return is_root(name) or _MARK.search(name) is not None


class Facts(msgspec.Struct, frozen=True, gc=False):
    """What is known about one communication on one rank.

    Long recordings have tens of thousands of them, which msgspec makes and pickles fast.

    Attributes:
        kind: A CollectiveType, SEND or RECEIVE.
        bytes_in, bytes_out: Bytes given and received by this rank, -1 where not known.
        group: Name of the process group, None where nothing names it.
        group_ranks: Its ranks where the node itself tells them.
        peer: Other side of a message, -1 where there is none.
        peer_is_global: Whether that is a rank of the job rather than a place in the group.
        tag: Tag of a message.
        root: Root of a rooted collective, -1 where there is none: its place in the group until the members are known, then its rank.
        splits_in, splits_out: Bytes to and from each member; empty where they are equal.
        seq: Number in the group that the recorder gave it or that was counted, -1 where there is none.
        calls: Calls that one kernel carries out together.
        members: Ranks of the group, 0 where not known.
        inferred: Which of these facts are not written anywhere: `type`, `size`, `group`, `peer`, `seq`.
    """

    kind: int
    bytes_in: int = NONE
    bytes_out: int = NONE
    group: str | None = None
    group_ranks: tuple[int, ...] = ()
    peer: int = NONE
    peer_is_global: bool = False
    tag: int = 0
    root: int = NONE
    splits_in: tuple[int, ...] = ()
    splits_out: tuple[int, ...] = ()
    seq: int = NONE
    calls: int = 1
    members: int = 0
    inferred: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it moves nothing, as collectives of empty tensors: a library waits for nobody then, but in a barrier."""
        return max(self.bytes_in, self.bytes_out) == 0 and self.kind != CollectiveType.BARRIER

    @property
    def lacks_size(self) -> bool:
        """Whether nothing tells how much it moves."""
        return max(self.bytes_in, self.bytes_out) < 0 and self.kind != CollectiveType.BARRIER

    @property
    def bytes(self) -> int:
        """The size that simulators use: the bytes a rank sends, else those it receives; of a scatter those the root sends."""
        if self.kind == CollectiveType.SCATTER and self.bytes_in <= 0:
            return max(self.bytes_out, 0) * max(self.members, 1)
        return self.bytes_in if self.bytes_in > 0 else max(self.bytes_out, 0)


@dataclass(slots=True)
class Communication:
    """The communication of one rank.

    Attributes:
        operators: Facts by row of the operation that is the communication itself.
        devices: Facts by place among the device operations.
        batches: All messages of a device operation that sends or receives several, by place; the first is in `devices` too.
        issued_by: Row of the call behind a communicating operation of another thread.
        groups: Process groups the rank's files list.
        unknown: Names of collectives that are not known → how often.
        unrecorded: How many of its collectives the recording lacks, or has without a time.
        begins_apart: Comm groups of which the recording begins with another collective than that of some other rank.
    """

    operators: dict[int, Facts] = field(default_factory=dict)
    devices: dict[int, Facts] = field(default_factory=dict)
    batches: dict[int, tuple[Facts, ...]] = field(default_factory=dict)
    issued_by: dict[int, int] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    unrecorded: int = 0
    begins_apart: set[str] = field(default_factory=set)

    def add_unknown(self, name: str) -> None:
        """Count a collective that is not known."""
        self.unknown[name] = self.unknown.get(name, 0) + 1


def communicate(
    operations: Operations,
    host: HostTrace | None,
    device: DeviceTrace | None,
    launched: DeviceOperations | None,
) -> Communication:
    """Find every communication of a rank once: as the kernel, the library's own operation, or the call."""
    communication = Communication(groups=_groups(operations, host, device))
    calls = _calls(operations, host, device, communication)
    if device is not None and device.head.calls:
        _add_noted(operations, calls, device, communication.groups)
    on_device: set[int] = set()
    if device is not None and launched is not None:
        on_device = _device_side(operations, device, launched, calls, communication)
        _add_direct(operations, _FactReader(operations, host, device), launched, communication)
    carried = _library_side(operations, calls, host, device, on_device, communication)
    lost = _lost_ends(operations, calls.keys() - on_device - carried)
    for row, facts in calls.items():
        if row not in on_device and row not in carried:
            communication.operators[row] = (
                replace(facts, inferred=(*facts.inferred, "end")) if row in lost else facts
            )
    return communication


def _lost_ends(operations: Operations, calls: Collection[int]) -> set[int]:
    """Return those of the calls that were made on a processor's library and that it was still carrying out when the recording ended."""
    if not library_rows(operations):
        return set()
    return {
        row
        for row in calls
        if operations.name_of(row).startswith("c10d::") and plain(operations.name_of(row)) not in BY_MESSAGES
    }


def _add_noted(
    operations: Operations, calls: dict[int, Facts], device: DeviceTrace, groups: Mapping[str, Group]
) -> None:
    """Complete calls by the group and number that `studio.collect` wrote; of those it left out, only a job's one group is known."""
    if len(groups) == 1:
        calls |= {
            row: replace(facts, group=facts.group or next(iter(groups))) for row, facts in calls.items()
        }
    kinds = {row: facts.kind for row, facts in calls.items()}
    given = {row: facts.bytes_in for row, facts in calls.items()}
    for row, note in match_noted(operations, kinds, given, device.head.calls).items():
        facts = calls[row]
        seq = facts.seq if facts.seq >= 0 else note.number
        calls[row] = replace(facts, group=facts.group or note.group, seq=seq)


# ---------------------------------------------------------------------------------------------------
# Calls


def _calls(
    operations: Operations, host: HostTrace | None, device: DeviceTrace | None, communication: Communication
) -> dict[int, Facts]:
    """Return the facts of each call by row; of nested calls for one collective the outermost."""
    reader = _FactReader(operations, host, device)
    rows: dict[int, Facts] = {}
    recorders, functional = [], []
    telling = operations.named(lambda name: name == _RECORDER or name.startswith(_NAMESPACES))
    for row in telling.tolist():
        name = operations.name_of(row)
        if name.startswith("c10d::"):
            facts = reader.of_operator(row)
            if facts:
                rows[row] = facts
            elif plain(name) not in NO_COLLECTIVES:
                communication.add_unknown(name)
        elif name == _RECORDER:
            recorders.append(row)
        elif operator_kind(name) is not None:
            functional.append(row)
    _add_recorded(operations, reader, recorders, rows, communication)
    _add_functional(operations, reader, functional, rows, communication)
    _add_launched(operations, reader, rows)
    _add_programs(operations, device, rows, communication)
    return rows


def _add_recorded(
    operations: Operations,
    reader: _FactReader,
    recorders: list[int],
    rows: dict[int, Facts],
    communication: Communication,
) -> None:
    """Complete calls with what recorders below them say; a recorder without a call becomes one."""
    for row in recorders:
        facts = reader.of_recorder(row, communication)
        call = _above(operations, row, "c10d::")
        if facts and call in rows:
            rows[call] = _merge_facts(facts, rows[call])
        elif facts:
            rows[row] = facts


def _add_functional(
    operations: Operations,
    reader: _FactReader,
    functional: list[int],
    rows: dict[int, Facts],
    communication: Communication,
) -> None:
    """Give calls the group and size that the functional collective above them names; one without a call becomes one."""
    named = {row: reader.group_text(row, communication.groups) for row in functional}
    covered = set()
    for row, facts in list(rows.items()):
        above = _above(operations, row, _NAMESPACES[1:])
        covered.add(above)
        told = facts if facts.group is not None else replace(facts, group=named.get(above) or None)
        if told.bytes_in < 0 and above >= 0:
            # Calls of one collective in a list of tensors have no size in a Kineto trace alone.
            size = reader.of_operator(above)
            if size is not None and size.kind == told.kind:
                told = replace(told, bytes_in=size.bytes_in, inferred=told.inferred or size.inferred)
        rows[row] = told
    for row in named.keys() - covered:
        if facts_of_row := reader.of_operator(row):
            rows[row] = replace(facts_of_row, group=named[row] or None)


def _add_launched(operations: Operations, reader: _FactReader, rows: dict[int, Facts]) -> None:
    """Give calls on lists of tensors, whose shapes a Kineto trace leaves out, the size of what NCCL's own operations in them name."""
    if all(facts.bytes_in >= 0 for facts in rows.values()):
        return
    given: dict[int, int] = {}
    for row in operations.named(lambda name: name.startswith(_LAUNCHES)).tolist():
        call = _call_around(operations, row, rows)
        if call >= 0 and rows[call].bytes_in < 0:
            size = reader.of_launch(row, rows[call].kind)
            # One without a size leaves the whole unknown.
            before = given.get(call, 0)
            given[call] = before + size if before >= 0 <= size else NONE
    for call, size in given.items():
        facts = rows[call]
        if size >= 0:
            taken = size if facts.kind in _ONE_LIST else facts.bytes_out
            inferred = tuple(dict.fromkeys((*facts.inferred, "size")))
            rows[call] = replace(facts, bytes_in=size, bytes_out=taken, inferred=inferred)


def _add_programs(
    operations: Operations, device: DeviceTrace | None, rows: dict[int, Facts], communication: Communication
) -> None:
    """Add the collectives of XLA's programs that processors carry out, which are operations of the host."""
    if device is None or device.head.backend != "xla":
        return
    of_event = {event: row for row, event in enumerate(operations.event.tolist()) if event >= 0}
    for event in device.comm.keys() & of_event.keys():
        said = {_KINETO_NAMES.get(key, key): value for key, value in device.comm[event].items()}
        kind = operator_kind(str(said.get("collective_name", "")))
        if kind is not None:
            rows[of_event[event]] = _of_metadata(kind, said)
        else:
            communication.add_unknown(str(said.get("collective_name")))


def _call_around(operations: Operations, row: int, calls: Collection[int]) -> int:
    """Return the nearest call around an operation of a library, -1 where there is none or another such operation lies between."""
    for _ in range(64):
        row = int(operations.parent[row])
        if row < 0 or operations.name_of(row).startswith(_LAUNCHES):
            break
        if row in calls:
            return row
    return NONE


def _above(operations: Operations, row: int, prefixes: str | tuple[str, ...]) -> int:
    """Return the nearest caller with such a name, -1 where there is none."""
    for _ in range(64):
        row = int(operations.parent[row])
        if row < 0:
            break
        if operations.name_of(row).startswith(prefixes):
            return row
    return NONE


def _merge_facts(first: Facts, second: Facts) -> Facts:
    """Merge the facts of two sources about one call; the first wins where both know."""
    return replace(
        first,
        bytes_in=first.bytes_in if first.bytes_in >= 0 else second.bytes_in,
        bytes_out=first.bytes_out if first.bytes_out >= 0 else second.bytes_out,
        group=first.group if first.group is not None else second.group,
        group_ranks=first.group_ranks or second.group_ranks,
        peer=first.peer if first.peer >= 0 else second.peer,
        peer_is_global=first.peer_is_global if first.peer >= 0 else second.peer_is_global,
        tag=first.tag or second.tag,
        root=first.root if first.root >= 0 else second.root,
        splits_in=first.splits_in or second.splits_in,
        splits_out=first.splits_out or second.splits_out,
        seq=first.seq if first.seq >= 0 else second.seq,
        inferred=tuple(
            what for what in first.inferred if what in second.inferred or not _knows(second, what)
        ),
    )


def _knows(facts: Facts, what: str) -> bool:
    return {"size": facts.bytes_in >= 0 or facts.bytes_out >= 0, "group": facts.group is not None}.get(
        what, True
    )


class _FactReader:
    """Reads communication facts from the recorded operations of a process."""

    def __init__(self, operations: Operations, host: HostTrace | None, device: DeviceTrace | None) -> None:
        self.operations, self.host, self.device = operations, host, device
        # By identity: events of every step tell the same lists.
        self.by_dims: dict[tuple[int, bool, int, int, int], Facts] = {}

    def values(self, row: int) -> list[Any]:
        """Return the inputs of an operation, empty where they are not recorded."""
        if self.host is None:
            return []
        value = parse_literal(self.host.texts[int(self.host.io[row, 0])])
        return value if isinstance(value, list) else []

    def event(self, row: int) -> dict[str, Any]:
        """Return what the Kineto event of an operation says about communication."""
        event = int(self.operations.event[row])
        return self.device.comm.get(event, {}) if self.device is not None and event >= 0 else {}

    def of_operator(self, row: int) -> Facts | None:
        """Return the facts in a c10d operator's arguments, None where it is no collective."""
        kind = operator_kind(self.operations.name_of(row))
        if kind is None:
            return None
        values = self.values(row)
        if not values:
            return self._of_dims(row, kind)
        functional = not self.operations.name_of(row).startswith("c10d::")
        single = kind in _ONE_LIST or functional
        given = tensor_bytes(values[0 if single else 1]) if len(values) > (0 if single else 1) else NONE
        taken = given if single else tensor_bytes(values[0])
        facts = Facts(kind, given, taken)
        return facts if functional else _with_arguments(facts, values)

    def _of_dims(self, row: int, kind: int) -> Facts:
        """Return the facts in shapes and types alone; a list of tensors has no size there."""
        event = self.event(row)
        told = event.get("dims"), event.get("types"), event.get("values")
        # All but c10d's operators name what is given first.
        single = kind in _ONE_LIST or not self.operations.name_of(row).startswith("c10d::")
        dims, types, values = map(id, told)
        key = kind, single, dims, types, values
        if key not in self.by_dims:
            self.by_dims[key] = _facts_of_dims(kind, single, *told)
        return self.by_dims[key]

    def of_library(self, row: int, facts: Facts) -> Facts:
        """Return facts with the size of the tensors that the library's operation names, where the call's own list has none."""
        event = self.event(row)
        dims, types = event.get("dims"), event.get("types")
        is_part = facts.kind == CollectiveType.REDUCE_SCATTER
        if (
            facts.bytes_in >= 0
            or not (is_part or facts.kind in _GIVEN)
            or not isinstance(dims, list)
            or not isinstance(types, list)
        ):
            return facts
        sizes = [_dims_bytes(*pair) for pair in zip(dims, types, strict=False)]
        if not sizes or min(sizes) < 0:
            return facts
        given = sum(sizes)
        if is_part:
            # Gloo sums up one part of the list after the other; each rank keeps one.
            return replace(facts, bytes_out=given)
        return replace(facts, bytes_in=given, bytes_out=given if facts.kind in _ONE_LIST else facts.bytes_out)

    def of_launch(self, row: int, kind: int) -> int:
        """Return the bytes of the tensors that NCCL's own operation is given, -1 where it tells none or is not of the call's kind."""
        # Messages name both sides too: `nccl:send 0->1`.
        name = self.operations.name_of(row).split(" ", 1)[0]
        event = self.event(row)
        dims, types = event.get("dims"), event.get("types")
        if operator_kind(name) != kind or kind not in _LAUNCHED:
            return NONE
        if not isinstance(dims, list) or not isinstance(types, list) or not dims or len(dims) != len(types):
            return NONE
        if kind == CollectiveType.ALL_TO_ALL and len(dims) < 2:
            # Of a list of tensors, one for each member, old versions name the first alone.
            return NONE
        sizes = [_dims_bytes(*pair) for pair in zip(dims, types, strict=True)]
        return sum(sizes) if min(sizes) >= 0 else NONE

    def of_direct(self, row: int, kind: int) -> Facts:
        """Return the size of a collective from the tensors of the operator that launched its kernel, where they are what it moves."""
        place = place_of_tensor(self.operations.name_of(row), kind)
        if place is None:
            return Facts(kind)
        values = self.values(row)
        sizes = [tensor_bytes(value) for value in values] if values else self._sizes(row)
        given = next(islice((size for size in sizes if size >= 0), place, None), NONE)
        return Facts(kind, given, given if kind == CollectiveType.ALL_REDUCE else NONE)

    def _sizes(self, row: int) -> list[int]:
        """Return the bytes of each input of an operation, -1 for one that is no tensor; empty where its event does not tell."""
        event = self.event(row)
        dims, types = event.get("dims"), event.get("types")
        if not isinstance(dims, list) or not isinstance(types, list):
            return []
        return [_dims_bytes(*pair) for pair in zip(dims, types, strict=False)]

    def of_recorder(self, row: int, communication: Communication) -> Facts | None:
        """Return the facts in `record_param_comms`, None where it names no collective."""
        comm = dict(self.host.comm.get(row, {})) if self.host is not None else {}
        said = {_KINETO_NAMES.get(key, key): value for key, value in self.event(row).items()} | comm
        values = self.values(row)
        name = said.get("collective_name")
        if not isinstance(name, str):
            texts = [value for value in values if isinstance(value, str)]
            name = next((text for text in texts if operator_kind(text) is not None), None) or ""
        kind = operator_kind(name)
        if kind is None:
            if plain(name) not in NO_COLLECTIVES:
                communication.add_unknown(name)
            return None
        facts = _of_metadata(kind, said)
        if facts.bytes_in < 0 and values:
            size = tensor_bytes(values[0])
            facts = replace(facts, bytes_in=size, inferred=("size",)) if size >= 0 else facts
        return facts

    def group_text(self, row: int, groups: dict[str, Group]) -> str:
        """Return the group that a functional collective names among its text arguments."""
        texts = [value for value in self.values(row) if isinstance(value, str)]
        known = [text for text in texts if text in groups]
        return (known or [""])[-1]


def _facts_of_dims(kind: int, single: bool, dims: Any, types: Any, values: Any) -> Facts:
    """Return the facts in shapes, types and values; `single` where what is given comes first."""
    if not isinstance(dims, list) or not isinstance(types, list):
        return Facts(kind)
    sizes = [_dims_bytes(*pair) for pair in zip(dims, types, strict=False)]
    given = sizes[0 if single else 1] if len(sizes) > (0 if single else 1) else NONE
    facts = Facts(kind, given, given if single or not sizes else sizes[0], inferred=("size",))
    return (
        _with_arguments(facts, [_concrete(value) for value in values]) if isinstance(values, list) else facts
    )


_KINETO_NAMES = {
    "collective": "collective_name",
    "in_elements": "in_msg_nelems",
    "out_elements": "out_msg_nelems",
    "in_split": "in_split_size",
    "out_split": "out_split_size",
    "group": "pg_name",
    "group_ranks": "pg_ranks",
    "source": "src_rank",
    "target": "dst_rank",
}


def _of_metadata(kind: int, said: dict[str, Any]) -> Facts:
    """Return facts from the named arguments of a recorder or a kernel."""
    told = tuple(map(said.get, _TOLD))
    try:
        facts = _facts_told(kind, told, tuple(map(type, told)))
    except TypeError:
        # Lists cannot be looked up.
        facts = _facts_told.__wrapped__(kind, told, ())
    return replace(facts, seq=_count(said.get("seq")))


_TOLD = (
    *("dtype", "in_msg_nelems", "out_msg_nelems", "pg_name", "pg_ranks", "global_rank_start"),
    *("global_rank_stride", "pg_size", "src_rank", "dst_rank", "in_split_size", "out_split_size"),
)


@lru_cache(maxsize=1 << 10)
def _facts_told(kind: int, told: tuple[Any, ...], _types: tuple[type, ...]) -> Facts:
    """Return facts from the values of `_TOLD`, which every step may repeat. Types tell 1 from true."""
    dtype, given_count, taken_count, group, listed, *strided, source, target, split_in, split_out = told
    size = element_bytes(str(dtype or ""))
    given, taken = _count(given_count), _count(taken_count)
    known = size > 0
    ranks = parse_ranks(listed)
    start, stride, members = map(_count, strided)
    if not ranks and start >= 0 and stride > 0 and 0 < members <= 1 << 20:
        ranks = tuple(range(start, start + stride * members, stride))
    peer = _count(source if kind == RECEIVE else target) if kind in (SEND, RECEIVE) else NONE
    return Facts(
        kind,
        given * size if known and given >= 0 else NONE,
        taken * size if known and taken >= 0 else NONE,
        group=str(group) if isinstance(group, str | int) else None,
        group_ranks=ranks,
        peer=peer,
        peer_is_global=peer >= 0,
        splits_in=tuple(part * size for part in _numbers(split_in)) if known else (),
        splits_out=tuple(part * size for part in _numbers(split_out)) if known else (),
    )


def _count(value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value):
        value = int(value)
    return value if isinstance(value, int) and 0 <= value < 2**62 else NONE


def _numbers(value: Any) -> tuple[int, ...]:
    if isinstance(value, str):
        return _numbers_in(value)
    return (
        tuple(map(_count, value))
        if isinstance(value, list) and all(_count(part) >= 0 for part in value)
        else ()
    )


@lru_cache(maxsize=1 << 10)
def _numbers_in(text: str) -> tuple[int, ...]:
    """Return the numbers in a text written like a list, which every call for communication may repeat."""
    value = parse_literal(text)
    return () if isinstance(value, str) else _numbers(value)


def _with_arguments(facts: Facts, values: Sequence[Any]) -> Facts:
    """Add root, peer, tag and splits from the arguments of a c10d operator."""
    kind = facts.kind
    whole = [value for value in values[2:] if isinstance(value, int) and not isinstance(value, bool)]
    if kind in (SEND, RECEIVE) and len(whole) >= 2:
        return replace(facts, peer=_count(whole[0]), tag=max(whole[1], 0))
    if kind == RECEIVE and whole:
        # From any rank.
        return replace(facts, tag=max(whole[0], 0))
    rooted = (CollectiveType.BROADCAST, CollectiveType.REDUCE, CollectiveType.GATHER, CollectiveType.SCATTER)
    if kind in rooted and whole:
        return replace(facts, root=_count(whole[0]))
    lists = [value for value in values[2:] if isinstance(value, list)]
    if kind == CollectiveType.ALL_TO_ALL and len(lists) == 2:
        return replace(
            facts,
            splits_out=_split_bytes(facts.bytes_out, lists[0]),
            splits_in=_split_bytes(facts.bytes_in, lists[1]),
        )
    return facts


def _concrete(text: Any) -> Any:
    """Return the value of an argument that a Kineto trace writes as text."""
    return _value_in(text) if isinstance(text, str) else None


@lru_cache(maxsize=1 << 10)
def _value_in(text: str) -> Any:
    if text in ("True", "False"):
        return text == "True"
    # What tensors are written as, and most numbers.
    return (int(text) if _WHOLE.fullmatch(text) else parse_literal(text)) if text else None


def _split_bytes(total: int, parts: Any) -> tuple[int, ...]:
    counts = _numbers(parts)
    rows = sum(counts)
    return tuple(total * count // rows for count in counts) if rows > 0 and total >= 0 else ()


def _dims_bytes(dims: Any, kind: Any) -> int:
    size = element_bytes(kind) if isinstance(kind, str) else NONE
    if size < 0 or not isinstance(dims, list) or not all(isinstance(dim, int) for dim in dims):
        return NONE
    return size * prod(dims)


# ---------------------------------------------------------------------------------------------------
# Kernels and the libraries' own operations


def _device_side(
    operations: Operations,
    device: DeviceTrace,
    launched: DeviceOperations,
    calls: dict[int, Facts],
    communication: Communication,
) -> set[int]:
    """Give kernels of communication libraries their facts; return the calls they carry out.

    Those launched before the recording began are unknown, unless they say what they are: which call they belong to is not known, and
    of other ranks another number of them may have been under way.
    """
    kernels = np.flatnonzero(device.kind[launched.event] == EventKind.KERNEL)
    events = launched.event[kernels]
    named = mark_names(device.names, device.name[events], lambda name: KERNEL.search(name) is not None)
    communicating = []
    for place, event, by_name in zip(kernels.tolist(), events.tolist(), named.tolist(), strict=True):
        if "collective" in device.comm.get(event, ()) or (by_name and not launched.earlier[place]):
            communicating.append((place, event))
        elif by_name:
            communication.add_unknown(device.names[device.name[event]].split("(")[0])
    communicating += _direct_in_calls(operations, device, launched, calls, kernels)
    calling = _calls_around(operations, launched, calls, [place for place, _ in communicating])
    together = _calls_together(operations, device, launched, calls, calling)
    of_call: dict[int, list[int]] = {}
    done: set[int] = set()
    for place, event in communicating:
        row = calling[place]
        if place in together and _add_together(
            place, [calls[each] for each in together[place]], communication
        ):
            done.update(together[place])
            continue
        facts = _kernel_facts(device, event, calls.get(row), communication)
        if facts is None:
            continue
        if row >= 0:
            of_call.setdefault(row, []).append(place)
            if int(launched.operator[place]) != row:
                communication.issued_by[int(launched.operator[place])] = row
        communication.devices[place] = facts
    for row, places in of_call.items():
        _share(places, calls[row], device, launched, communication)
    return done | set(of_call)


def _direct_in_calls(
    operations: Operations,
    device: DeviceTrace,
    launched: DeviceOperations,
    calls: Mapping[int, Facts],
    kernels: Int64,
) -> list[tuple[int, int]]:
    """Return places and events of kernels that need no library but were launched in a call for communication, which they carry out.

    So does PyTorch's own all-reduce within a node, which takes the place of NCCL's.
    """
    direct = [direct_kernel_kind(name) is not None and KERNEL.search(name) is None for name in device.names]
    places = kernels[np.array(direct or [False])[device.name[launched.event[kernels]]]].tolist()
    around = _calls_around(operations, launched, calls, places) if calls else {}
    return [
        (place, int(launched.event[place]))
        for place in places
        if around.get(place, NONE) >= 0
        and "collective" not in device.comm.get(int(launched.event[place]), ())
    ]


def _calls_around(
    operations: Operations, launched: DeviceOperations, calls: Mapping[int, Facts], places: Sequence[int]
) -> dict[int, int]:
    """Return the call around the launch of each kernel, -1 where there is none, by place."""
    around = {}
    for place in places:
        row = int(launched.operator[place])
        while row >= 0 and row not in calls:
            row = int(operations.parent[row])
        around[place] = row
    return around


def _kernel_facts(
    device: DeviceTrace, event: int, call: Facts | None, communication: Communication
) -> Facts | None:
    """Return type, size and group of a communication kernel; None, counted as unknown, where nothing gives them."""
    said = {_KINETO_NAMES.get(key, key): value for key, value in device.comm.get(event, {}).items()}
    name = device.names[device.name[event]]
    kind = operator_kind(str(said.get("collective_name", "")))
    if kind is not None:
        facts = _of_metadata(kind, said)
        return _merge_facts(facts, call) if call and call.kind == kind else facts
    if call is not None:
        return call
    kind = kernel_kind(name)
    if kind is None:
        communication.add_unknown(str(said.get("collective_name") or name.split("(")[0]))
        return None
    return Facts(kind, inferred=("type", "size", "group"))


def _share(
    places: Sequence[int],
    call: Facts,
    device: DeviceTrace,
    launched: DeviceOperations,
    communication: Communication,
) -> None:
    """Divide a call's bytes among its kernels that have no size of their own, so that they count once."""
    silent = [
        place for place in places if "collective" not in device.comm.get(int(launched.event[place]), {})
    ]
    if len(places) < 2 or not silent or call.bytes_in < 0:
        return
    if len(silent) < len(places):
        rest = 0
    else:
        rest = call.bytes_in
    for index, place in enumerate(silent):
        part = rest * (index + 1) // len(silent) - rest * index // len(silent)
        communication.devices[place] = replace(
            communication.devices[place], bytes_in=part, bytes_out=NONE, inferred=("size",)
        )


def _calls_together(
    operations: Operations,
    device: DeviceTrace,
    launched: DeviceOperations,
    calls: Mapping[int, Facts],
    calling: Mapping[int, int],
) -> dict[int, list[int]]:
    """Return the calls of kernels that were launched after them, for several at once, by place.

    Within a group of calls NCCL launches nothing until its end, which is outside of all of them. They are those that no kernel was
    launched in, since the kernel of a library that the thread launched before; on one group of ranks, as one kernel is.
    """
    launches = [place for place in calling if int(launched.launch[place]) >= 0]
    if not any(calling[place] < 0 for place in launches):
        return {}
    busy = set(calling.values())
    steps: list[tuple[int, int, bool, int]] = []
    for place in launches:
        launch = int(launched.launch[place])
        steps.append((int(device.thread[launch]), int(device.start_ns[launch]), True, place))
    for row in calls:
        event = int(operations.event[row])
        if event >= 0 and row not in busy:
            steps.append((int(device.thread[event]), int(device.start_ns[event]), False, row))
    together: dict[int, list[int]] = {}
    held: list[int] = []
    last = None
    for thread, _, is_launch, number in sorted(steps):
        if thread != last:
            held, last = [], thread
        if not is_launch:
            held.append(number)
        else:
            if calling[number] < 0 and held:
                together[number] = [row for row in held if calls[row].group == calls[held[-1]].group]
            held = []
    return together


def _add_together(place: int, facts: Sequence[Facts], communication: Communication) -> bool:
    """Give a kernel the facts of the calls it carries out together; return whether they can be."""
    kinds = {each.kind for each in facts}
    are_messages = kinds <= {SEND, RECEIVE}
    if len(kinds) > 1 and not are_messages:
        return False
    whole = facts[0]
    if len(facts) > 1 and are_messages:
        communication.batches[place] = tuple(facts)
    elif len(facts) > 1:
        total = sum(max(each.bytes_in, 0) for each in facts)
        whole = replace(whole, bytes_in=total or NONE, calls=len(facts), inferred=("size",))
    communication.devices[place] = whole
    return True


def _add_direct(
    operations: Operations, reader: _FactReader, launched: DeviceOperations, communication: Communication
) -> None:
    """Give kernels that communicate without a library their facts; those that do not tell which are counted as unknown."""
    device = reader.device
    assert device is not None
    kinds = [direct_kernel_kind(name) for name in device.names]
    named = np.array([kind is not None for kind in kinds] or [False])[device.name[launched.event]]
    for place in np.flatnonzero(named & (device.kind[launched.event] == EventKind.KERNEL)).tolist():
        if place in communication.devices:
            continue
        kind = kinds[int(device.name[int(launched.event[place])])]
        assert kind is not None
        row = int(launched.operator[place])
        if row >= 0 and not operations.name_of(row).startswith(OPERATORS):
            row = _above(operations, row, OPERATORS)
        facts = Facts(kind)
        while row >= 0 and facts.bytes_in < 0:
            # The innermost may name handles of memory alone.
            facts, row = reader.of_direct(row, kind), _above(operations, row, OPERATORS)
        communication.devices[place] = replace(facts, inferred=("type", "size", "group"))
    _add_unnamed(device, launched, communication)


def _add_unnamed(device: DeviceTrace, launched: DeviceOperations, communication: Communication) -> None:
    """Count kernels that communicate without telling what as unknown."""
    unnamed = [talks_without_kind(name) for name in device.names]
    named = np.array(unnamed or [False])[device.name[launched.event]]
    for place in np.flatnonzero(named & (device.kind[launched.event] == EventKind.KERNEL)).tolist():
        if place not in communication.devices:
            name = device.names[device.name[int(launched.event[place])]]
            communication.add_unknown(name.replace("(anonymous namespace)::", "").split("(")[0])


def _library_side(
    operations: Operations,
    calls: dict[int, Facts],
    host: HostTrace | None,
    device: DeviceTrace | None,
    on_device: set[int],
    communication: Communication,
) -> set[int]:
    """Move calls to the operations in which the library carries them out on the processor (gloo).

    A call that a kernel carries out stays with the kernel.

    Returns:
        Calls whose communication is such an operation.
    """
    kinds = {row: facts.kind for row, facts in calls.items()}
    carried = match_calls(operations, kinds, host, device)
    communication.issued_by.update(carried)
    reader = _FactReader(operations, host, device)
    communication.operators.update(
        {row: reader.of_library(row, calls[call]) for row, call in carried.items() if call not in on_device}
    )
    return set(carried.values())


# ---------------------------------------------------------------------------------------------------
# Groups


def _groups(operations: Operations, host: HostTrace | None, device: DeviceTrace | None) -> dict[str, Group]:
    """Return the process groups that a rank's files list, by name."""
    by_name = {group.name: group for group in device.head.groups} if device is not None else {}
    if host is None:
        return by_name
    for row in operations.named(lambda name: INIT in name).tolist():
        values = parse_literal(host.texts[int(host.io[row, 0])])
        for text in values if isinstance(values, list) else ():
            for group in _parse_groups(text):
                known = by_name.get(group.name)
                if known is None or not known.ranks:
                    by_name[group.name] = group
    return by_name


def _parse_groups(text: Any) -> list[Group]:
    try:
        entries = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return []
    groups = []
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and "pg_name" in entry:
            ranks, size = parse_ranks(entry.get("ranks")), _count(entry.get("group_size"))
            if not ranks and 0 < size <= 1 << 20:
                ranks = tuple(range(size))
            groups.append(Group(str(entry["pg_name"]), str(entry.get("pg_desc", "")), ranks, size))
    return groups
