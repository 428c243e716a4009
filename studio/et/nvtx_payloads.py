"""Decode what NCCL writes beside its NVTX ranges, as Nsight Systems exports it: sizes, communicators, ranks.

A payload is a header of 32 bytes (domain, schema, size of what follows) and the fields of the schema, each at its offset.
Two tables describe the schemas; NCCL names their fields in words.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from studio.et.database import Database
from studio.et.link.names import RECEIVE, SEND, infer_operator_kind
from studio.trace import NONE, CollectiveType

_HEADER = struct.Struct("<QQQQ")
_MOST_MEMBERS = 1 << 20
"""Members of a communicator that are listed: more are damage."""
_FIELDS = {
    "group": r"NCCL \w+ ID",
    "members": r"No\. of ranks",
    "place": r"Rank",
    "bytes": r"Message size \[bytes\]",
    "peer": r"Peer \w+",
}
"""What NCCL calls the fields that are read; a group is a parent's where another word stands before."""
_KINDS = {
    5: "i",
    6: "I",
    7: "q",
    8: "Q",
    9: "q",
    10: "Q",
    15: "i",
    16: "I",
    17: "q",
    18: "Q",
    22: "Q",
    23: "Q",
}
"""Whole numbers of 32 and 64 bits by NVTX's numbers of types."""


class _Field(NamedTuple):
    """A field of a schema: what it is, how it is packed, and where it begins."""

    name: str
    kind: str
    offset: int


@dataclass(frozen=True, slots=True)
class Payload:
    """What NCCL says of a call; numbers are -1 where it does not.

    Attributes:
        group: The communicator, by a number that all its ranks have in common; 0 where it is not said.
        members, place: How many ranks the communicator has, and which of them this is; only where it is made.
        bytes: Of the message, as the call counts it.
        peer: The other side of a message, by its place in the communicator.
    """

    group: int = 0
    members: int = NONE
    place: int = NONE
    bytes: int = NONE
    peer: int = NONE


class PayloadReader:
    """Decodes the payloads of an export.

    Attributes:
        has_sizes: Whether a schema has the size of a message.
    """

    def __init__(self, database: Database) -> None:
        columns = ("domainId", "schemaId", "idx", "type", "name", "offset")
        listed: dict[tuple[int, int], dict[int, tuple[Any, Any, Any]]] = {}
        for domain, schema, place, *entry in database.iterate_rows("NVTX_PAYLOAD_SCHEMA_ENTRIES", *columns):
            if isinstance(schema, int) and isinstance(place, int):
                # Each process of a report has described them.
                listed.setdefault((domain, schema), {}).setdefault(place, tuple(entry))
        self._schemas = {key: _place_fields(entries) for key, entries in listed.items()}
        self._by_number: dict[int, tuple[_Field, ...]] = {}
        for (_, schema), fields in self._schemas.items():
            if self._by_number.setdefault(schema, fields) != fields:
                # Only the domain tells which it is.
                self._by_number[schema] = ()
        self.has_sizes = any(field.name == "bytes" for fields in self._schemas.values() for field in fields)

    def read(self, raw: Any) -> Payload | None:
        """Return what a payload says, None where it is none that is known."""
        if not isinstance(raw, bytes) or len(raw) < _HEADER.size:
            return None
        domain, schema, size, _ = _HEADER.unpack_from(raw)
        fields = self._schemas.get((domain, schema)) or self._by_number.get(schema, ())
        end = min(len(raw), _HEADER.size + size)
        values = {}
        for name, kind, offset in fields:
            begin = _HEADER.size + offset
            if name and begin + struct.calcsize(kind) <= end:
                values[name] = struct.unpack_from(f"<{kind}", raw, begin)[0]
        if values.get("members", 0) > _MOST_MEMBERS:
            del values["members"]
        return Payload(**values) if values else None


def _place_fields(entries: Mapping[int, tuple[Any, Any, Any]]) -> tuple[_Field, ...]:
    """Return the fields of a schema that are read; one whose offset is not written lies behind the one before it, aligned."""
    fields = []
    end = 0
    for _, (kind, label, written) in sorted(entries.items()):
        # An enumeration has the number of its own schema as its type.
        packed = _KINDS.get(kind, "i")
        width = struct.calcsize(packed)
        offset = written if isinstance(written, int) and written >= 0 else -(-end // width) * width
        end = offset + width
        is_read = kind in _KINDS and offset < 1 << 16
        fields.append(_Field(_find_name(label) if is_read else "", packed, offset))
    return tuple(fields)


def _find_name(label: Any) -> str:
    return next((name for name, words in _FIELDS.items() if re.fullmatch(words, str(label))), "")


def build_facts(name: str, payload: Payload, members: int, *, is_world: bool) -> dict[str, Any]:
    """Return what a call of NCCL says as recordings of PyTorch say it: elements of one byte each.

    Args:
        name: Of the call, such as `ncclAllGather`.
        payload: What it says.
        members: How many ranks its communicator has, 0 where not known.
        is_world: Whether these are all ranks of the job.

    Example:
        >>> build_facts("ncclAllGather", Payload(0xAB, bytes=8), 4, is_world=True)
        {'group': '0xab', 'group_size': 4, 'dtype': 'uint8', 'in_elements': 8, 'out_elements': 32}
    """
    kind = infer_operator_kind(name.removeprefix("nccl"))
    facts: dict[str, Any] = {}
    if payload.group:
        facts["group"] = f"{payload.group:#x}"
    if members:
        facts["group_size"] = members
    if is_world and payload.peer >= 0 and kind in (SEND, RECEIVE):
        facts["source" if kind == RECEIVE else "target"] = payload.peer
    if not 0 <= payload.bytes < 2**62 // max(members, 1):
        return facts
    part, every = payload.bytes, payload.bytes * members if members else None
    # NCCL counts what goes to or comes from one rank where there is more on the other side.
    given, taken = {
        CollectiveType.ALL_GATHER: (part, every),
        CollectiveType.GATHER: (part, None),
        CollectiveType.REDUCE_SCATTER: (every, part),
        CollectiveType.SCATTER: (None, part),
        CollectiveType.ALL_TO_ALL: (every, every),
        SEND: (part, None),
        RECEIVE: (None, part),
    }.get(NONE if kind is None else kind, (part, part))
    facts["dtype"] = "uint8"
    facts |= {
        key: size for key, size in (("in_elements", given), ("out_elements", taken)) if size is not None
    }
    return facts
