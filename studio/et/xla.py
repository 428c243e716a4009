"""What XLA's programs say about their collectives: sizes and groups, from the program or from an operation's text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

from studio.trace import NONE

_MESSAGES = {
    "HloProto": {"hlo_module": (1, "HloModule")},
    "HloModule": {
        "name": (1, "BYTES"),
        "computations": (3, "repeated HloComputation"),
        "device_assignment": (15, "DeviceAssignment"),
    },
    "DeviceAssignment": {"replica_count": (1, "INT32"), "computation_count": (2, "INT32")},
    "HloComputation": {"instructions": (2, "repeated HloInstruction")},
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
    "IotaGroups": {"groups": (1, "INT64"), "devices_per_group": (2, "INT64")},
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
_SAYS = {"collective-broadcast": "broadcast", "ragged-all-to-all": "all-to-all"}


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective of a program.

    Attributes:
        opcode: XLA's name of it.
        bytes_in, bytes_out: What each device gives and receives, -1 where not known.
        members: Devices of a group, 0 where not known.
        devices: Devices of all groups, 0 where not known.
    """

    opcode: str
    bytes_in: int = NONE
    bytes_out: int = NONE
    members: int = 0
    devices: int = 0

    def facts(self) -> dict[str, Any]:
        """Return it as recordings of PyTorch say it: elements of one byte each."""
        facts: dict[str, Any] = {"collective": _SAYS.get(self.opcode, self.opcode), "dtype": "uint8"}
        if self.bytes_in >= 0:
            facts["in_elements"] = self.bytes_in
        if self.bytes_out >= 0:
            facts["out_elements"] = self.bytes_out
        if self.members:
            facts["group_size"] = self.members
        return facts


def of_name(name: str) -> Collective | None:
    """Return the collective that an operation's name tells.

    Example:
        >>> of_name("all-reduce-start.3").opcode, of_name("all-reduce-done"), of_name("fusion.1")
        ('all-reduce', None, None)
    """
    known = _NAME.fullmatch(name.removeprefix("%"))
    return Collective(known[1]) if known else None


def of_text(text: str) -> Collective | None:
    """Return the collective in the text of an operation.

    Example:
        >>> of_text("%ar = f32[8]{0} all-reduce(f32[8]{0} %x), replica_groups={{0,1},{2,3}}, to_apply=%sum")
        Collective(opcode='all-reduce', bytes_in=32, bytes_out=32, members=2, devices=4)
    """
    known = _TEXT.search(text)
    if known is None:
        return None
    arguments, _, rest = text[known.end() :].partition(")")
    given = _text_bytes(arguments)
    members, devices = _text_groups(rest)
    taken = NONE if known[3] else _text_bytes(known["result"])
    return Collective(known[2], given, taken, members, devices)


def _text_bytes(text: str) -> int:
    sizes = [
        (_NAMED_BITS.get(kind) or int(re.sub(r"^f8e.*", "f8", kind)[1:])) * prod(_dimensions(inside)) // 8
        for kind, inside in _SHAPE.findall(text)
    ]
    return min(sum(sizes), 2**62) if sizes else NONE


def _dimensions(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d{1,18}", text)]


def _text_groups(text: str) -> tuple[int, int]:
    if iota := _IOTA_GROUPS.search(text):
        return int(iota[2]), int(iota[1]) * int(iota[2])
    first, every = _GROUPS.search(text), _ALL_GROUPS.search(text)
    if first is None or every is None:
        return 0, 0
    return len(_dimensions(first[1])), len(_dimensions(every[1]))


@lru_cache(maxsize=1)
def messages() -> dict[str, Any]:
    """Return the message classes of the schemas."""
    from studio.et.schema import message_classes

    return message_classes("xla", _MESSAGES)


def of_module(proto: bytes) -> dict[str, Collective]:
    """Return the collectives of a program by `module/operation`; none where the bytes are no program."""
    program = messages()["HloProto"]()
    try:
        program.ParseFromString(proto)
    except Exception as error:
        if type(error).__name__ != "DecodeError":
            raise
        return {}
    module = program.hlo_module
    assigned = module.device_assignment
    devices = max(assigned.replica_count, 0) * max(assigned.computation_count, 0)
    return {
        f"{_said(module.name)}/{name}": collective
        for computation in module.computations
        for name, collective in _of_computation(computation, devices)
    }


def _of_computation(computation: Any, devices: int) -> Iterator[tuple[str, Collective]]:
    shapes = {instruction.id: instruction.shape for instruction in computation.instructions}
    for instruction in computation.instructions:
        opcode = _said(instruction.opcode)
        plain = opcode.removesuffix("-start")
        if plain not in _OPCODES:
            continue
        given = [_shape_bytes(shapes[operand]) for operand in instruction.operand_ids if operand in shapes]
        members, all_members = _proto_groups(instruction)
        yield (
            _said(instruction.name),
            Collective(
                plain,
                NONE if not given or NONE in given else sum(given),
                NONE if opcode != plain else _shape_bytes(instruction.shape),
                members or devices,
                max(all_members, devices),
            ),
        )


def _proto_groups(instruction: Any) -> tuple[int, int]:
    listed = instruction.replica_groups or instruction.device_list.replica_groups
    if listed:
        return len(listed[0].replica_ids), sum(len(group.replica_ids) for group in listed)
    iota = instruction.device_list.iota
    return max(iota.devices_per_group, 0), max(iota.groups * iota.devices_per_group, 0)


def _shape_bytes(shape: Any, depth: int = 0) -> int:
    """Return the bytes of an array or of all arrays of a tuple, -1 where a type is not known."""
    if shape.tuple_shapes and depth < _DEEPEST:
        sizes = [_shape_bytes(part, depth + 1) for part in shape.tuple_shapes]
        return NONE if NONE in sizes else sum(sizes)
    bits = _BITS.get(shape.element_type)
    if bits is None:
        return NONE
    size = bits * prod(shape.dimensions) // 8
    return size if 0 <= size < 2**62 else NONE


def _said(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
