"""Chakra files put together byte by byte, and reading them with both kernels at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from studio.et import chakra, encode, wire
from studio.et.format import RankPart, Reading
from studio.trace import NONE, Graph, iterate_arrays, list_node_attributes

VARINT, EIGHT_BYTES, SIZED, FOUR_BYTES = 0, 1, 2, 5


def varint(value: int) -> bytes:
    """A varint; a negative number as its 64 bits."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def tag(number: int, wire_type: int) -> bytes:
    return varint(number << 3 | wire_type)


def num(number: int, value: int) -> bytes:
    """A varint field."""
    return tag(number, VARINT) + varint(value)


def sized(number: int, content: bytes | str) -> bytes:
    """A length-delimited field."""
    raw = content.encode() if isinstance(content, str) else content
    return tag(number, SIZED) + varint(len(raw)) + raw


def eight(number: int, raw: bytes) -> bytes:
    assert len(raw) == 8
    return tag(number, EIGHT_BYTES) + raw


def four(number: int, raw: bytes) -> bytes:
    assert len(raw) == 4
    return tag(number, FOUR_BYTES) + raw


def framed(record: bytes) -> bytes:
    return varint(len(record)) + record


METADATA = framed(sized(1, "0.0.4"))


def attr(name: str, value: bytes = b"", doc: str = "") -> bytes:
    """An attribute of a node, `value` being one or more fields."""
    return sized(10, sized(1, name) + (sized(2, doc) if doc else b"") + value)


def file_of(*records: bytes, metadata: bytes = METADATA) -> bytes:
    return metadata + b"".join(framed(record) for record in records)


@contextmanager
def kernel(native: bool) -> Iterator[None]:
    """Read with the compiled or the interpreted kernel, whatever the size of the file."""
    if native:
        wire.load_kernel()
    choose, loaded = wire.is_worth_compiling, wire.KERNEL.loaded
    wire.is_worth_compiling = lambda _total_bytes: native
    wire.KERNEL.loaded = loaded if native else None
    try:
        yield
    finally:
        wire.is_worth_compiling, wire.KERNEL.loaded = choose, loaded


def read_once(raw: bytes | memoryview, *, native: bool, name: str = "t.0.et") -> RankPart:
    with kernel(native):
        [part] = chakra.read(Reading(name, raw))
    assert isinstance(part, RankPart)
    return part


def read_both(raw: bytes) -> RankPart:
    """Read with both kernels; they must agree to the bit."""
    part, other = read_once(raw, native=False), read_once(raw, native=True)
    assert_same(part, other)
    return part


def assert_same(one: RankPart, other: RankPart) -> None:
    """Equal in every bit of every column; NaN equals NaN of the same bits."""
    for (name, a), (_, b) in zip(iterate_arrays(one.graph), iterate_arrays(other.graph), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), name
        assert a.tobytes() == b.tobytes(), name
    assert repr(one.rank) == repr(other.rank)
    assert (one.number, one.findings) == (other.number, other.findings)


def written(part: RankPart) -> bytes:
    return b"".join(encode.write(part.graph, part.rank))


def codes(part: RankPart) -> list[str]:
    """The findings' short names."""
    return [finding.code for finding in part.findings]


def ids(graph: Graph, kind: str, row: int) -> list[int]:
    """The ids that a node's control ("ctrl") or data dependencies name."""
    deps = getattr(graph, kind)
    found = deps.of(row).tolist()
    return [int(graph.id[at]) if at >= 0 else int(deps.dangling[-1 - at]) for at in found]


def described(part: RankPart, row: int) -> dict[str, object]:
    """A node as plain values, floats as text so that NaN can be compared."""
    graph = part.graph
    io = [] if not len(graph.io) else graph.io[row].tolist()
    return {
        "id": int(graph.id[row]),
        "name": graph.strings[int(graph.name[row])],
        "type": int(graph.type[row]),
        "ctrl": ids(graph, "ctrl", row),
        "data": ids(graph, "data", row),
        "start_ns": int(graph.start_ns[row]),
        "duration_ns": int(graph.duration_ns[row]),
        "io": [None if code == NONE else graph.strings[code] for code in io] or [None] * 6,
        "attrs": [
            (a.name, a.kind.name, repr(a.value), a.doc)
            for a in list_node_attributes(graph, row, part.rank.slots)
        ],
    }
