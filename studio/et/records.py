"""Write nodes of other formats as Chakra records, so that one reader sets the rules for all.

A format that says the same as a Chakra file in another notation is read by writing its nodes down in Chakra's. So every
rule of the Chakra reader (dangling dependencies, repeated ids, slots, times to the nanosecond) holds for it, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from studio.et import chakra
from studio.et.encode import (
    PLAIN_INTS,
    PLAIN_LISTS,
    PlainInts,
    add_length,
    encode_attribute,
    encode_varint,
    put_attribute,
)
from studio.et.format import RankPart, Reading
from studio.et.schema import load_schema
from studio.trace import NONE, Attribute, Finding, ValueKind

LARGEST_ID = 2**64 - 1
LARGEST_NS = 2**63 - 1
LARGEST_INT32 = 2**31 - 1

_BITS = {
    ValueKind.INT32: (-(2**31), 2**31),
    ValueKind.INT64: (-(2**63), 2**63),
    ValueKind.UINT32: (0, 2**32),
    ValueKind.UINT64: (0, 2**64),
    ValueKind.SINT32: (-(2**31), 2**31),
    ValueKind.SINT64: (-(2**63), 2**63),
    ValueKind.FIXED32: (0, 2**32),
    ValueKind.FIXED64: (0, 2**64),
    ValueKind.SFIXED32: (-(2**31), 2**31),
    ValueKind.SFIXED64: (-(2**63), 2**63),
}


@dataclass(slots=True)
class NodeRecord:
    """A node as its file describes it; numbers must fit their fields, see `fits`.

    Attributes:
        id: 0 to 2^64-1.
        name: Its name.
        type: A NodeType, or any other number of 32 bits.
        ctrl, data: Ids it waits for.
        start_ns: -1 where there is none.
        duration_ns: 0 where there is none.
        inputs, outputs: Values, shapes and types, written like Python lists.
        attrs: Its attributes.
    """

    id: int
    name: str = ""
    type: int = 0
    ctrl: Sequence[int] = ()
    data: Sequence[int] = ()
    start_ns: int = NONE
    duration_ns: int = 0
    inputs: tuple[str, str, str] | None = None
    outputs: tuple[str, str, str] | None = None
    attrs: list[Attribute] = field(default_factory=list)


def fits(kind: ValueKind, value: int) -> bool:
    """Whether a number fits a kind of value.

    Example:
        >>> fits(ValueKind.INT32, 2**31), fits(ValueKind.UINT64, 2**64 - 1)
        (False, True)
    """
    low, high = _BITS[kind]
    return low <= value < high


def clean(text: str) -> str:
    """Return a text without unpaired surrogates, which no file can hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def build_rank_part(
    reading: Reading,
    nodes: Iterable[NodeRecord],
    *,
    version: str = "",
    metadata: Iterable[Attribute] = (),
    findings: Iterable[Finding] = (),
) -> RankPart:
    """Return a rank made of nodes.

    Args:
        reading: The file they come from.
        nodes: In the order they are to have.
        version: Schema version to be named.
        metadata: What the file says of itself.
        findings: What was noticed about the file.
    """
    pieces = [write_metadata(version, metadata)]
    encoder = _Encoder()
    pieces += [encoder.record(node) for node in nodes]
    content = b"".join(pieces)
    whole = len(reading.data)
    share = whole / max(2 * len(content), 1)
    tick = lambda done: reading.tick(whole + int(done * share))  # noqa: E731
    size_bytes = max(reading.total_bytes, len(content))
    inner = Reading(reading.name, content, size_bytes, tick, (*reading.findings, *findings))
    [part] = chakra.read(inner)
    assert isinstance(part, RankPart)
    return part


def write_metadata(version: str, attrs: Iterable[Attribute]) -> bytes:
    """Return the first record of a file."""
    record = load_schema().metadata(version=clean(version))
    for attr in attrs:
        put_attribute(record.attr.add(), _clean_attribute(attr))
    return add_length(record.SerializeToString())


def write_nodes(version: str, metadata: Iterable[Attribute], nodes: Iterable[NodeRecord]) -> bytes:
    """Return a Chakra file."""
    encoder = _Encoder()
    return b"".join((write_metadata(version, metadata), *map(encoder.record, nodes)))


class _Encoder:
    """Serialises nodes; keeps serialised attributes, which recur."""

    def __init__(self) -> None:
        self.texts: dict[str, bytes] = {}
        self.io: dict[tuple[str, str, str], bytes] = {}
        self.known: dict[Any, bytes] = {}
        # By identity: formats that give many nodes one and the same attribute are written fastest.
        self.shared: dict[int, tuple[Attribute, bytes]] = {}
        self.ints: dict[tuple[str, ValueKind], PlainInts] = {}

    def record(self, node: NodeRecord) -> bytes:
        parts = [
            _encode_number(b"\x08", node.id),
            self._encode_text(b"\x12", node.name),
            _encode_number(b"\x18", node.type),
        ]
        for tag, ids in ((b"\x22", node.ctrl), (b"\x2a", node.data)):
            if ids:
                parts.append(tag + add_length(b"".join(map(encode_varint, ids))))
        parts += [
            _encode_number(b"\x30", max(node.start_ns, 0) // 1000),
            _encode_number(b"\x38", node.duration_ns // 1000),
        ]
        for tag, texts in ((b"\x42", node.inputs), (b"\x4a", node.outputs)):
            if texts is not None:
                written = self.io.get(texts)
                if written is None:
                    written = self._encode_io(texts)
                parts.append(tag + written)
        parts += map(self._encode_attribute, node.attrs)
        for key, time_ns in (("start_ns", node.start_ns), ("duration_ns", node.duration_ns)):
            if time_ns > 0 and time_ns % 1000:
                parts.append(self._encode_attribute(Attribute(key, ValueKind.INT64, time_ns)))
        if 0 <= node.start_ns < 1000:
            # proto3 leaves out a zero; written by hand, a recorded start at 0 stays a recorded start.
            parts.append(b"\x30\x00")
        return add_length(b"".join(parts))

    def _encode_io(self, texts: tuple[str, str, str]) -> bytes:
        """Return values, shapes and types with their length; those of operators without tensors recur."""
        values, shapes, types = texts
        inner = (
            self._encode_text(b"\x0a", values)
            + self._encode_text(b"\x12", shapes)
            + self._encode_text(b"\x1a", types)
        )
        if len(self.io) >= _MOST_KNOWN:
            self.io.clear()
        written = self.io[texts] = add_length(inner)
        return written

    def _encode_text(self, tag: bytes, text: str) -> bytes:
        """Return a field that holds a text; nothing where it is empty."""
        if not text:
            return b""
        written = self.texts.get(text)
        if written is None:
            if len(self.texts) >= _MOST_KNOWN:
                self.texts.clear()
            written = self.texts[text] = add_length(clean(text).encode())
        return tag + written

    def _encode_attribute(self, attr: Attribute) -> bytes:
        value, kind = attr.value, attr.kind
        shared = self.shared.get(id(attr))
        if shared is not None and shared[0] is attr:
            return shared[1]
        raw = self._encode_scalar(attr) if not isinstance(value, list) else self._encode_list(attr)
        if kind == ValueKind.BOOL or (isinstance(value, int) and 0 <= value < _OFTEN):
            if len(self.shared) >= _MOST_KNOWN:
                self.shared.clear()
            self.shared[id(attr)] = attr, raw
        return raw

    def _encode_list(self, attr: Attribute) -> bytes:
        """Return a list; those of whole numbers recur."""
        if attr.kind not in PLAIN_LISTS or not isinstance(attr.value, list):
            return _serialise_attribute(attr)
        return self._serialise_once((attr.name, attr.kind, tuple(attr.value), attr.doc), attr)

    def _encode_scalar(self, attr: Attribute) -> bytes:
        value, kind = attr.value, attr.kind
        if kind in PLAIN_INTS and isinstance(value, int) and value >= 0 and not attr.doc:
            known = self.ints.get((attr.name, kind))
            if known is None:
                known = self.ints[attr.name, kind] = PlainInts(clean(attr.name).encode(), kind)
            return known.written(int(value))
        # By its text: 0.0 and -0.0 are equal, and nan is not.
        return self._serialise_once(
            (attr.name, kind, repr(value) if isinstance(value, float) else value, attr.doc), attr
        )

    def _serialise_once(self, key: tuple[Any, ...], attr: Attribute) -> bytes:
        if key not in self.known:
            if len(self.known) >= _MOST_KNOWN:
                self.known.clear()
            self.known[key] = _serialise_attribute(attr)
        return self.known[key]


_MOST_KNOWN, _OFTEN = 100_000, 1024


def _encode_number(tag: bytes, number: int) -> bytes:
    """Return a field that holds a number; nothing where it is 0."""
    return tag + encode_varint(number & LARGEST_ID) if number else b""


def _serialise_attribute(attr: Attribute) -> bytes:
    plain = _clean_attribute(attr)
    return encode_attribute(plain.name, plain.kind, plain.value, plain.doc)


def _clean_attribute(attr: Attribute) -> Attribute:
    value: Any = attr.value
    if isinstance(value, str):
        value = clean(value)
    elif isinstance(value, list):
        value = [clean(item) if isinstance(item, str) else item for item in value]
    return Attribute(clean(attr.name), attr.kind, value, clean(attr.doc))
