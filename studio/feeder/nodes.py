"""A node that is fed to a simulator, read from its record when it is first asked what it is."""

from __future__ import annotations

from typing import Any

from studio.et import chakra, encode
from studio.et import kernel as k
from studio.et.encode import PRECISE, add_length
from studio.et.format import Reading
from studio.et.schema import parse_node
from studio.trace import NONE, Rank, Value, ValueKind

_VALUE_FIELDS = {
    **{f"{kind.name.lower()}_val": kind for kind in ValueKind if kind and not kind.is_list},
    **{kind.name.lower(): kind for kind in ValueKind if kind.is_list},
}


class FeederNode:
    """A node of a Chakra file.

    Attributes:
        id: Its id.
        record: Its bytes in the file, without their length.
    """

    __slots__ = ("_attrs", "_message", "id", "record")

    def __init__(self, number: int, record: bytes) -> None:
        self.id, self.record = number, record
        self._message: Any = None
        self._attrs: dict[str, Value] | None = None

    def __repr__(self) -> str:
        """Return it in a line."""
        return f"FeederNode({self.id}, {self.name!r})"

    @property
    def message(self) -> Any:
        """The node as protobuf's message: `type`, `duration_micros`, `inputs` and the other fields of the schema."""
        if self._message is None:
            self._message = parse_node(self.record) or parse_node(_replace_bad_texts(self.record))
        return self._message

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.message.name)

    @property
    def type(self) -> int:
        """A `NodeType`, or whatever number the file holds."""
        return int(self.message.type)

    @property
    def ctrl_deps(self) -> list[int]:
        """Ids it waits for by control."""
        return list(self.message.ctrl_deps)

    @property
    def data_deps(self) -> list[int]:
        """Ids it waits for by data."""
        return list(self.message.data_deps)

    @property
    def attrs(self) -> dict[str, Value]:
        """Its attributes by name; of several of one name the last counts."""
        if self._attrs is None:
            self._attrs = {attr.name: _read_value(attr) for attr in self.message.attr}
        return self._attrs

    @property
    def start_ns(self) -> int:
        """When it was recorded to start, -1 where the file has no start."""
        # A start at 0 cannot be told from none by protobuf.
        start = self._read_precise("start_ns")
        return start if start > 0 else NONE

    @property
    def duration_ns(self) -> int:
        """How long it takes; 0 also where the file does not say."""
        return self._read_precise("duration_ns")

    @property
    def is_cpu(self) -> bool:
        """Whether it runs on the processor, not on a device."""
        return bool(self.attrs.get("is_cpu_op", False))

    def _read_precise(self, key: str) -> int:
        """Return a time to the nanosecond where an attribute refines the field."""
        micros = int(getattr(self.message, PRECISE[key]))
        refined = self.attrs.get(key)
        return refined if isinstance(refined, int) and refined // 1000 == micros else micros * 1000


def _read_value(attr: Any) -> Value:
    field = attr.WhichOneof("value")
    if field is None:
        return None
    value = getattr(attr, field)
    return list(value.values) if _VALUE_FIELDS[field].is_list else value


def _replace_bad_texts(record: bytes) -> bytes:
    """Return a record with replacement characters for what is not UTF-8."""
    nodes = chakra.read_nodes(Reading("", add_length(record)), chakra.Metadata("", (), b"", 0))
    _, written = encode.write(nodes.graph, Rank(0, 0, nodes.slots))
    return written[k.varint(written, 0, len(written))[1] :]
