"""Hypothesis strategies: Chakra nodes as protobuf messages and as odd but legal bytes, and whole traces."""

from __future__ import annotations

from hypothesis import strategies as st

from studio.et import chakra
from studio.et.format import RankPart, Reading
from studio.et.job_builder import add_inferred_groups
from studio.et.schema import get_value_field, load_schema
from studio.trace import CommGroup, Rank, Trace, ValueKind

UINT64 = st.integers(0, 2**64 - 1) | st.integers(0, 12)
INT64 = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 300)
UINT32 = st.integers(0, 2**32 - 1) | st.integers(0, 3)
INT32 = st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 3)
TEXT = st.text(max_size=12) | st.sampled_from(["", "a", "ä\0", "x" * 200, "<img src=x onerror=alert(1)>"])
MICROS = st.integers(0, 1000) | st.integers(0, (2**63 - 1) // 1000) | UINT64
NODE_ID = st.integers(0, 8) | UINT64

KEYS = ["pg_name", "comm_group", "comm_src", "comm_dst", "comm_type", "comm_size", "num_ops", "is_cpu_op", ""]

VALUES: dict[str, st.SearchStrategy[object]] = {
    "DOUBLE": st.floats(),
    "FLOAT": st.floats(width=32),
    "INT32": INT32,
    "INT64": INT64,
    "UINT32": UINT32,
    "UINT64": UINT64,
    "SINT32": INT32,
    "SINT64": INT64,
    "FIXED32": UINT32,
    "FIXED64": UINT64,
    "SFIXED32": INT32,
    "SFIXED64": INT64,
    "BOOL": st.booleans(),
    "STRING": TEXT,
    "BYTES": st.binary(max_size=12),
}


@st.composite
def attribute_values(draw: st.DrawFn) -> tuple[ValueKind, object]:
    """A value kind and a value of it; None for an attribute without value."""
    kind = draw(st.sampled_from(list(ValueKind)))
    if kind == ValueKind.NONE:
        return kind, None
    if kind.is_list:
        return kind, draw(st.lists(VALUES[ValueKind(kind - 1).name], max_size=4))
    return kind, draw(VALUES[kind.name])


def put(message: object, kind: ValueKind, value: object) -> None:
    """Set the value of an AttributeProto."""
    if kind.is_list:
        inner = getattr(message, get_value_field(kind))
        inner.SetInParent()
        inner.values.extend(value)
    elif kind != ValueKind.NONE:
        setattr(message, get_value_field(kind), value)


@st.composite
def attributes(draw: st.DrawFn) -> object:
    """An AttributeProto."""
    message = load_schema().attribute(
        name=draw(st.sampled_from(KEYS) | TEXT), doc_string=draw(st.just("") | TEXT)
    )
    put(message, *draw(attribute_values()))
    return message


@st.composite
def nodes(draw: st.DrawFn) -> object:
    """A Node message, every field in every range."""
    node = load_schema().node(
        id=draw(NODE_ID),
        name=draw(TEXT),
        type=draw(st.integers(0, 7) | INT32),
        ctrl_deps=draw(st.lists(NODE_ID, max_size=3)),
        data_deps=draw(st.lists(NODE_ID, max_size=4)),
        start_time_micros=draw(MICROS),
        duration_micros=draw(MICROS),
        attr=draw(st.lists(attributes(), max_size=4)),
    )
    for side in (node.inputs, node.outputs):
        if draw(st.booleans()):
            side.SetInParent()
            side.values, side.shapes, side.types = draw(TEXT), draw(TEXT), draw(TEXT)
    return node


# ---------------------------------------------------------------------------------------------------
# Bytes that no protobuf library writes, but every one reads


def varint(value: int) -> bytes:
    value &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def field(number: int, wire_type: int, content: bytes) -> bytes:
    return varint(number << 3 | wire_type) + (varint(len(content)) if wire_type == 2 else b"") + content


VARINT = INT64.map(varint)
PAYLOAD = {
    0: VARINT,
    1: st.binary(min_size=8, max_size=8),
    2: TEXT.map(str.encode),
    5: st.binary(min_size=4, max_size=4),
}
WIRES = {
    "DOUBLE": 1,
    "FLOAT": 5,
    "FIXED32": 5,
    "FIXED64": 1,
    "SFIXED32": 5,
    "SFIXED64": 1,
    "STRING": 2,
    "BYTES": 2,
}


@st.composite
def unknown_fields(draw: st.DrawFn, first: int) -> bytes:
    """A field from number `first` on, of any wire type."""
    wire_type = draw(st.sampled_from([0, 1, 2, 5]))
    return field(
        draw(st.integers(first, first + 9) | st.just(2**29 - 1)), wire_type, draw(PAYLOAD[wire_type])
    )


@st.composite
def list_pieces(draw: st.DrawFn, kind: ValueKind) -> bytes:
    """The content of a list message: items loose and packed in any mixture."""
    wire_type = WIRES.get(ValueKind(kind - 1).name, 0)
    loose = PAYLOAD[wire_type].map(lambda item: field(1, wire_type, item))
    packed = st.lists(PAYLOAD[wire_type], max_size=3).map(lambda items: field(1, 2, b"".join(items)))
    pieces = loose if wire_type == 2 else loose | packed
    return b"".join(draw(st.lists(pieces, max_size=3)))


@st.composite
def value_fields(draw: st.DrawFn) -> bytes:
    """One value of an attribute; several in a row replace or extend each other."""
    kind = draw(st.sampled_from([k for k in ValueKind if k != ValueKind.NONE]))
    if kind.is_list:
        return field(int(kind), 2, draw(list_pieces(kind)))
    wire_type = WIRES.get(kind.name, 0)
    return field(int(kind), wire_type, draw(PAYLOAD[wire_type]))


ATTRIBUTE_PIECES = (
    st.sampled_from(KEYS).map(lambda key: field(1, 2, key.encode()))
    | TEXT.map(lambda doc: field(2, 2, doc.encode()))
    | value_fields()
    | value_fields()
    | unknown_fields(33)
)
ATTRIBUTE_BYTES = st.lists(ATTRIBUTE_PIECES, max_size=5).map(b"".join)
IO_PIECES = st.tuples(st.integers(1, 3), TEXT).map(lambda piece: field(piece[0], 2, piece[1].encode()))
IO_BYTES = st.lists(IO_PIECES | unknown_fields(4), max_size=3).map(b"".join)
IDS = st.lists(NODE_ID, max_size=4)
NODE_PIECES = (
    st.tuples(st.sampled_from([1, 3, 6, 7]), VARINT).map(lambda piece: field(piece[0], 0, piece[1]))
    | TEXT.map(lambda name: field(2, 2, name.encode()))
    | st.tuples(st.sampled_from([4, 5]), NODE_ID).map(lambda piece: field(piece[0], 0, varint(piece[1])))
    | st.tuples(st.sampled_from([4, 5]), IDS).map(lambda p: field(p[0], 2, b"".join(map(varint, p[1]))))
    | st.tuples(st.sampled_from([8, 9]), IO_BYTES).map(lambda piece: field(piece[0], 2, piece[1]))
    | ATTRIBUTE_BYTES.map(lambda content: field(10, 2, content))
    | ATTRIBUTE_BYTES.map(lambda content: field(10, 2, content))
    | unknown_fields(11)
)

NODE_BYTES = st.lists(NODE_PIECES, max_size=8).map(b"".join)
"""A node in any legal encoding: fields repeated, split, reordered, unpacked, unknown."""


# ---------------------------------------------------------------------------------------------------
# Traces


def chakra_file(records: list[bytes], version: str = "0.0.4") -> bytes:
    """The bytes of a file with these node records."""
    metadata = load_schema().metadata(version=version).SerializeToString()
    return b"".join(varint(len(raw)) + raw for raw in [metadata, *records])


def part_of(raw: bytes) -> RankPart:
    [part] = chakra.read(Reading("t.0.et", raw))
    assert isinstance(part, RankPart)
    return part


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """A trace of up to three ranks, its graphs shared by some of them, with listed comm groups."""
    parts = []
    for _ in range(draw(st.integers(1, 2))):
        records = [node.SerializeToString() for node in draw(st.lists(nodes(), max_size=5))]
        parts.append(part_of(chakra_file(records, draw(st.sampled_from(["", "0.0.4", "1.0.0"])))))
    numbers = draw(st.lists(st.integers(0, 5000), min_size=len(parts), max_size=3, unique=True).map(sorted))
    ranks = []
    for index, number in enumerate(numbers):
        rank = parts[index % len(parts)].rank
        ranks.append(Rank(number, index % len(parts), rank.slots, rank.version, rank.metadata, rank.extra))
    names = draw(st.lists(st.sampled_from(["0", "1", "tp"]) | TEXT, max_size=3, unique=True))
    groups = tuple(CommGroup(name, tuple(numbers)) for name in names)
    return add_inferred_groups(Trace(tuple(part.graph for part in parts), tuple(ranks), groups))
