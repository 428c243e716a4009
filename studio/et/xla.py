"""What XLA's programs say about their collectives: sizes and groups, from the program or from an operation's text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from studio.et.recording import DeviceTrace
from studio.trace import NONE

_MESSAGES = {
    "HloProto": {"hlo_module": (1, "HloModule")},
    "HloModule": {
        "name": (1, "BYTES"),
        "computations": (3, "repeated HloComputation"),
        "device_assignment": (15, "DeviceAssignment"),
    },
    "DeviceAssignment": {
        "replica_count": (1, "INT32"),
        "computation_count": (2, "INT32"),
        "computation_devices": (3, "repeated ComputationDevices"),
    },
    "ComputationDevices": {"device_ids": (1, "repeated INT64")},
    "HloComputation": {"instructions": (2, "repeated HloInstruction"), "id": (5, "INT64")},
    "HloInstruction": {
        "name": (1, "BYTES"),
        "opcode": (2, "BYTES"),
        "shape": (3, "Shape"),
        "id": (35, "INT64"),
        "operand_ids": (36, "repeated INT64"),
        "called_ids": (38, "repeated INT64"),
        "replica_groups": (49, "repeated ReplicaGroup"),
        "device_list": (87, "DeviceList"),
    },
    "ReplicaGroup": {"replica_ids": (1, "repeated INT64")},
    "DeviceList": {"replica_groups": (1, "repeated ReplicaGroup"), "iota": (2, "IotaGroups")},
    "IotaGroups": {
        "groups": (1, "INT64"),
        "devices_per_group": (2, "INT64"),
        "reshape": (3, "repeated INT64"),
        "transpose": (4, "repeated INT32"),
    },
    "Shape": {
        "element_type": (2, "INT32"),
        "dimensions": (3, "repeated INT64"),
        "tuple_shapes": (4, "repeated Shape"),
    },
}
"""What is read of the schemas `hlo.proto` and `xla_data.proto`."""
_BITS = {
    1: 8, 2: 8, 3: 16, 4: 32, 5: 64, 6: 8, 7: 16, 8: 32, 9: 64, 10: 16, 11: 32, 12: 64, 15: 64, 16: 16,
    18: 128, 19: 8, 20: 8, 21: 4, 22: 4, 23: 8, 24: 8, 25: 8, 28: 8, 29: 8,
}  # fmt: skip
"""Bits of an element by the number of its type."""
_NAMED_BITS = {"pred": 8, "bf16": 16, "c64": 64, "c128": 128}
_OPCODES = (
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ragged-all-to-all", "collective-broadcast",
    "collective-permute",
)  # fmt: skip
_NAME = re.compile(rf"({'|'.join(_OPCODES)})(-start)?([.\d]*)")
_TEXT = re.compile(rf"=\s*(?P<result>.{{0,100000}}?)\s({'|'.join(_OPCODES)})(-start)?\(")
_SHAPE = re.compile(r"\b(pred|bf16|[suf]\d{1,2}|f8e\w+|c64|c128)\[([\d,<= ]*)\]")
_GROUPS = re.compile(r"replica_groups=\{(\{[\d,]*\})")
_IOTA_GROUPS = re.compile(r"replica_groups=\[(\d{1,9}),(\d{1,9})\]")
_ALL_GROUPS = re.compile(r"replica_groups=\{([\d,{}]*)\}")
_DEEPEST = 16
_MOST_DEVICES = 1 << 20
_SAYS = {"collective-broadcast": "broadcast", "ragged-all-to-all": "all-to-all"}


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective of a program.

    Attributes:
        opcode: XLA's name of it.
        bytes_in, bytes_out: What each device gives and receives, -1 where not known.
        members: Devices of a group, 0 where not known.
        devices: Devices of all groups, 0 where not known.
        groups: The devices of each group by their numbers in the job, empty where not known.
    """

    opcode: str
    bytes_in: int = NONE
    bytes_out: int = NONE
    members: int = 0
    devices: int = 0
    groups: tuple[tuple[int, ...], ...] = ()

    def facts(self) -> dict[str, Any]:
        """Return it as recordings of PyTorch say it: elements of one byte each."""
        facts: dict[str, Any] = {"collective": _SAYS.get(self.opcode, self.opcode), "dtype": "uint8"}
        if self.bytes_in >= 0:
            facts["in_elements"] = self.bytes_in
        if self.bytes_out >= 0:
            facts["out_elements"] = self.bytes_out
        if self.members:
            facts["group_size"] = self.members
        if self.groups:
            facts["groups"] = self.groups
        return facts


@dataclass(slots=True)
class Programs:
    """The programs of a recording.

    Attributes:
        by_number: Collectives by number of the program and operation.
        by_name: Collectives by name of the program and operation; of programs that share a name what they agree in.
        devices: Numbers of all devices that any of them runs on.
    """

    by_number: dict[tuple[int, str], Collective] = field(default_factory=dict)
    by_name: dict[tuple[str, str], Collective] = field(default_factory=dict)
    devices: set[int] = field(default_factory=set)

    def add(self, proto: bytes, number: int = NONE) -> None:
        """Add a program, with its number in the recording; bytes that are none tell nothing."""
        module = _parse_module(proto)
        if module is None:
            return
        self.devices.update(_list_devices(module.device_assignment))
        name = _decode_text(module.name)
        for operation, collective in _iterate_collectives(module):
            if number >= 0:
                self.by_number[number, operation] = collective
            known = self.by_name.setdefault((name, operation), collective)
            if known != collective:
                self.by_name[name, operation] = _merge_collectives(known, collective)

    def find(self, number: int, name: str, operation: str) -> Collective | None:
        """Return the collective that an operation of a program is, None where it is none or not known."""
        return self.by_number.get((number, operation)) or self.by_name.get((name, operation))


def _merge_collectives(first: Collective, second: Collective) -> Collective:
    """Return what two programs of one name say alike of an operation of one name."""
    if first.opcode != second.opcode:
        return Collective("")
    same = {
        name: getattr(first, name)
        for name in ("bytes_in", "bytes_out", "members", "devices", "groups")
        if getattr(first, name) == getattr(second, name)
    }
    return Collective(first.opcode, **same)


def settle_groups(trace: DeviceTrace, rank: int) -> DeviceTrace:
    """Return a rank's trace in which each collective names the one of its program's groups that the rank is in."""
    own: dict[int, tuple[int, ...]] = {}
    comm = {}
    for row, facts in trace.comm.items():
        settled = dict(facts)
        groups = settled.pop("groups", ())
        # By identity: an operation's groups are one object, however often it ran.
        if id(groups) not in own:
            own[id(groups)] = next((group for group in groups if rank in group), ())
        if group := own[id(groups)]:
            settled |= {"group": name_group(group), "group_ranks": list(group)}
        comm[row] = settled
    return replace(trace, comm=comm)


def name_group(ranks: Sequence[int]) -> str:
    """Return a name that all members of a group give it, no other group's.

    Example:
        >>> name_group([0, 1, 2, 3]), name_group([1, 5]), name_group([0, 3, 1]), name_group([7])
        ('ranks 0-3', 'ranks 1-5 by 4', 'ranks 0,3,1', 'ranks 7-7')
    """
    step = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    if step > 0 and list(ranks) == list(range(ranks[0], ranks[-1] + 1, step)):
        return f"ranks {ranks[0]}-{ranks[-1]}" + (f" by {step}" if step > 1 else "")
    return f"ranks {','.join(map(str, ranks))}"


def parse_collective_name(name: str) -> Collective | None:
    """Return the collective that an operation's name tells.

    Example:
        >>> parse_collective_name("all-reduce-start.3").opcode, parse_collective_name("all-reduce-done"), parse_collective_name("fusion.1")
        ('all-reduce', None, None)
    """
    known = _NAME.fullmatch(name.removeprefix("%"))
    return Collective(known[1]) if known else None


def parse_collective_text(text: str) -> Collective | None:
    """Return the collective in the text of an operation.

    Example:
        >>> found = parse_collective_text("%ar = f32[8]{0} all-reduce(f32[8]{0} %x), replica_groups={{0,1},{2,3}}, to_apply=%sum")
        >>> found.opcode, found.bytes_in, found.bytes_out, found.groups
        ('all-reduce', 32, 32, ((0, 1), (2, 3)))
    """
    known = _TEXT.search(text)
    if known is None:
        return None
    arguments, _, rest = text[known.end() :].partition(")")
    given = _count_text_bytes(arguments)
    members, devices = _parse_group_sizes(rest)
    taken = NONE if known[3] else _count_text_bytes(known["result"])
    groups = _accept_groups(_parse_groups(rest), members)
    return Collective(known[2], given, taken, members, devices, groups)


def _count_text_bytes(text: str) -> int:
    sizes = [
        (_NAMED_BITS.get(kind) or int(re.sub(r"^f8e.*", "f8", kind)[1:]))
        * prod(_parse_dimensions(inside))
        // 8
        for kind, inside in _SHAPE.findall(text)
    ]
    return min(sum(sizes), 2**62) if sizes else NONE


def _parse_dimensions(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d{1,18}", text)]


def _parse_group_sizes(text: str) -> tuple[int, int]:
    if iota := _IOTA_GROUPS.search(text):
        return int(iota[2]), int(iota[1]) * int(iota[2])
    first, every = _GROUPS.search(text), _ALL_GROUPS.search(text)
    if first is None or every is None:
        return 0, 0
    return len(_parse_dimensions(first[1])), len(_parse_dimensions(every[1]))


def _parse_groups(text: str) -> tuple[tuple[int, ...], ...]:
    every = _ALL_GROUPS.search(text)
    return (
        tuple(tuple(_parse_dimensions(part)) for part in re.findall(r"\{([\d,]+)\}", every[1]))
        if every
        else ()
    )


def _accept_groups(groups: Sequence[tuple[int, ...]], members: int) -> tuple[tuple[int, ...], ...]:
    """Return groups of one size that share no device, none where they are something else."""
    every = [device for group in groups for device in group]
    fits = all(len(group) == members for group in groups) and len(set(every)) == len(every)
    return tuple(groups) if fits and min(every, default=0) >= 0 else ()


@lru_cache(maxsize=1)
def load_messages() -> dict[str, Any]:
    """Return the message classes of the schemas."""
    from studio.et.schema import build_message_classes

    return build_message_classes("xla", _MESSAGES)


def _parse_module(proto: bytes) -> Any | None:
    """Return a program, None where the bytes are none."""
    program = load_messages()["HloProto"]()
    try:
        program.ParseFromString(proto)
    except Exception as error:
        if type(error).__name__ != "DecodeError":
            raise
        return None
    return program.hlo_module


def _list_devices(assigned: Any) -> list[int]:
    """Return the device of each replica and partition, replicas first, as groups number them; empty where not told."""
    columns = [list(column.device_ids) for column in assigned.computation_devices]
    if not columns or any(len(column) != assigned.replica_count for column in columns):
        return []
    return [column[replica] for replica in range(assigned.replica_count) for column in columns]


def _iterate_collectives(module: Any) -> Iterator[tuple[str, Collective]]:
    """Yield the collectives of a program by operation."""
    wrapped = {computation.id: computation for computation in module.computations}
    for computation in module.computations:
        shapes = {instruction.id: instruction.shape for instruction in computation.instructions}
        for instruction in computation.instructions:
            collective = _build_collective(instruction, shapes, module.device_assignment, wrapped)
            if collective is not None:
                yield _decode_text(instruction.name), collective


def _build_collective(
    instruction: Any, shapes: dict[int, Any], assigned: Any, wrapped: dict[int, Any]
) -> Collective | None:
    opcode = _decode_text(instruction.opcode)
    plain = opcode.removesuffix("-start")
    telling = instruction
    if opcode == "async-start":
        # What has no operation of its own to be started by is wrapped in a computation.
        inside = [
            inner
            for called in instruction.called_ids
            if called in wrapped
            for inner in wrapped[called].instructions
        ]
        telling = next((inner for inner in inside if _decode_text(inner.opcode) in _OPCODES), None)
        plain = _decode_text(telling.opcode) if telling is not None else ""
    if plain not in _OPCODES:
        return None
    devices = max(assigned.replica_count, 0) * max(assigned.computation_count, 0)
    given = [_count_shape_bytes(shapes[operand]) for operand in instruction.operand_ids if operand in shapes]
    members, groups = _read_groups(telling, devices)
    placed = _list_devices(assigned)
    device_groups: tuple[tuple[int, ...], ...] = ()
    # Groups number replicas where there are several, else partitions; with both it depends on more.
    if placed and 1 in (assigned.replica_count, assigned.computation_count):
        inside_all = all(device < len(placed) for group in groups for device in group)
        device_groups = (
            tuple(tuple(placed[device] for device in group) for group in groups) if inside_all else ()
        )
    return Collective(
        plain,
        NONE if not given or NONE in given else sum(given),
        _count_shape_bytes(telling.shape) if _decode_text(telling.opcode) == plain else NONE,
        members,
        max(sum(map(len, groups)), devices),
        _accept_groups(device_groups, members),
    )


def _read_groups(instruction: Any, devices: int) -> tuple[int, tuple[tuple[int, ...], ...]]:
    """Return the size of the groups of a collective, 0 where not known, and their members where they are told."""
    listed = instruction.replica_groups or instruction.device_list.replica_groups
    if listed:
        return len(listed[0].replica_ids), tuple(tuple(group.replica_ids) for group in listed)
    iota = instruction.device_list.iota
    if iota.groups > 0 and iota.devices_per_group > 0:
        return iota.devices_per_group, _expand_iota(iota)
    if instruction.device_list.ByteSize() or _decode_text(instruction.opcode).startswith(
        "collective-permute"
    ):
        # Written in a way that is not known, or pairs.
        return 0, ()
    return devices, (tuple(range(devices)),) if 0 < devices <= _MOST_DEVICES else ()


def _expand_iota(iota: Any) -> tuple[tuple[int, ...], ...]:
    """Return groups that are written as all devices in a shape, transposed and cut into groups."""
    count, shape = iota.groups * iota.devices_per_group, list(iota.reshape)
    axes = list(iota.transpose) or list(range(len(shape)))
    if count > _MOST_DEVICES or prod(shape) != count or sorted(axes) != list(range(len(shape))):
        return ()
    devices = np.arange(count).reshape(shape).transpose(axes).reshape(iota.groups, iota.devices_per_group)
    return tuple(map(tuple, devices.tolist()))


def _count_shape_bytes(shape: Any, depth: int = 0) -> int:
    """Return the bytes of an array or of all arrays of a tuple, -1 where a type is not known."""
    if shape.tuple_shapes and depth < _DEEPEST:
        sizes = [_count_shape_bytes(part, depth + 1) for part in shape.tuple_shapes]
        return NONE if NONE in sizes else sum(sizes)
    bits = _BITS.get(shape.element_type)
    if bits is None:
        return NONE
    size = bits * prod(shape.dimensions) // 8
    return size if 0 <= size < 2**62 else NONE


def _decode_text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
