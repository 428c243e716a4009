"""What a Chakra file may hold, byte by byte. Every file is read by both kernels, which must agree to the bit."""

from __future__ import annotations

import gzip
import math
import struct

import numpy as np
import pytest

import studio
from studio.errors import TraceFormatError
from studio.et import chakra
from studio.trace import NONE, ValueKind, list_node_attributes, read_int_column
from tests.et.chakra_bytes import (
    METADATA,
    assert_same,
    attr,
    codes,
    described,
    eight,
    file_of,
    four,
    framed,
    ids,
    num,
    read_both,
    read_once,
    sized,
    varint,
    written,
)


def value_of(raw_field: bytes) -> tuple[ValueKind, object]:
    """Kind and value of the one attribute that holds `raw_field`."""
    part = read_both(file_of(num(1, 1) + num(3, 4) + attr("a", raw_field)))
    [attribute] = list_node_attributes(part.graph, 0, part.rank.slots)
    assert read_both(written(part)).graph.attrs.kind.tolist() == [attribute.kind]
    return attribute.kind, attribute.value


# ---------------------------------------------------------------------------------------------------
# Records


def test_a_plain_file():
    node = num(1, 7) + sized(2, "op") + num(3, 4) + sized(5, varint(3) + varint(7)) + num(6, 12) + num(7, 5)
    part = read_both(
        file_of(num(1, 3) + num(3, 4), node + sized(8, sized(1, "[]")) + attr("n", num(9, 6), "why"))
    )
    assert part.rank.version == "0.0.4"
    assert described(part, 1) == {
        "id": 7,
        "name": "op",
        "type": 4,
        "ctrl": [],
        "data": [3, 7],
        "start_ns": 12_000,
        "duration_ns": 5_000,
        "io": ["[]", "", "", None, None, None],
        "attrs": [("n", "INT64", "6", "why")],
    }
    assert part.findings == ()


def test_gzip_in_one_member_and_in_several(tmp_path):
    raw = file_of(*(num(1, i + 1) + num(3, 4) for i in range(9)))
    plain, packed, pieces = (tmp_path / name for name in ("p.0.et", "g.0.et", "m.0.bin"))
    plain.write_bytes(raw)
    packed.write_bytes(gzip.compress(raw))
    pieces.write_bytes(gzip.compress(b"") + gzip.compress(raw[:11]) + gzip.compress(raw[11:]) + b"\0" * 512)
    trace = studio.read(plain)
    assert trace.node_count == 9
    assert studio.read(packed) == studio.read(pieces) == trace
    assert studio.read(pieces).findings == ()


def test_truncated_gzip_keeps_what_could_be_inflated(tmp_path):
    raw = file_of(*(num(1, i + 1) + num(3, 4) + sized(2, f"node{i * 7919 % 1000}") for i in range(500)))
    path = tmp_path / "t.0.et.gz"
    path.write_bytes(gzip.compress(raw)[:-300])
    trace = studio.read(path)
    assert 0 < trace.node_count < 500
    first = next(f for f in trace.findings if f.code == "damaged-gzip")
    assert (first.level, first.rank, first.file) == ("error", 0, "t.0.et.gz")
    assert 0 < first.offset < len(raw)


def test_damage_in_the_middle_of_a_gzip_stream(tmp_path):
    raw = file_of(*(num(1, i + 1) + sized(2, f"node{i * 7919 % 1000}") for i in range(5000)))
    packed = bytearray(gzip.compress(raw))
    packed[len(packed) // 2 :] = b"\xff" * 50
    path = tmp_path / "t.0.et"
    path.write_bytes(packed)
    trace = studio.read(path)
    assert "damaged-gzip" in {f.code for f in trace.findings}


@pytest.mark.parametrize(
    ("behind", "count"),
    [(b"garbage", "7 bytes"), (bytes(600) + b"g", "1 byte"), (b"g" + bytes(99), "100 bytes")],
)
def test_garbage_behind_a_gzip_stream_is_ignored_and_told(tmp_path, behind, count):
    path = tmp_path / "t.0.et"
    path.write_bytes(gzip.compress(file_of(num(1, 1) + num(3, 4))) + behind)
    trace = studio.read(path)
    assert trace.node_count == 1
    [finding] = trace.findings
    assert (finding.code, finding.level) == ("damaged-gzip", "warning")
    assert finding.message == f"t.0.et: {count} behind the gzip stream, ignored."


@pytest.mark.parametrize("at", [-8, -4])
def test_a_wrong_checksum_behind_a_gzip_stream_costs_nothing_of_it(tmp_path, at):
    raw = file_of(*(num(1, i + 1) + num(3, 4) for i in range(5000)))
    packed = bytearray(gzip.compress(raw))
    packed[at] ^= 1
    path = tmp_path / "t.0.et"
    path.write_bytes(packed)
    trace = studio.read(path)
    assert trace.node_count == 5000
    [finding] = trace.findings
    assert (finding.code, finding.level, finding.offset) == ("damaged-gzip", "error", len(raw))


@pytest.mark.parametrize("length", [2, 5, 9])
def test_a_gzip_stream_broken_at_its_start_is_an_error(tmp_path, length):
    path = tmp_path / "t.0.et"
    path.write_bytes(gzip.compress(file_of(num(1, 1)))[:length])
    with pytest.raises(TraceFormatError, match=r"t\.0\.et.*gzip"):
        studio.read(path)


def test_zero_length_records_are_nodes_and_do_not_end_the_file():
    part = read_both(file_of(num(1, 1) + num(3, 4), b"", b"", num(1, 2) + num(3, 4)))
    assert part.graph.id.tolist() == [1, 0, 0, 2]
    assert part.graph.type.tolist() == [4, 0, 0, 4]
    assert codes(part) == ["duplicate-id", "unknown-type"]
    assert written(part) == file_of(num(1, 1) + num(3, 4), b"", b"", num(1, 2) + num(3, 4))


def test_a_file_that_a_crash_left_filled_with_zeros():
    """Zero bytes are records without content, but thousands in a row are no trace."""
    sound = file_of(num(1, 1) + num(3, 4), b"", num(1, 2) + num(3, 4))
    part = read_both(sound + bytes(9000))
    assert part.graph.id.tolist() == [1, 0, 2]
    [finding] = [f for f in part.findings if f.code == "damaged-file"]
    assert finding.offset == len(sound)
    assert "zero bytes" in finding.message
    assert len(read_both(sound + bytes(4000)).graph) == 4003
    # Zeros inside a record are its content.
    assert codes(read_both(file_of(num(1, 1) + num(3, 4) + attr("b", sized(31, bytes(9000)))))) == []


def test_empty_metadata_record():
    part = read_both(file_of(num(1, 1) + num(3, 4), metadata=framed(b"")))
    assert (part.rank.version, part.rank.metadata, len(part.graph)) == ("", (), 1)
    assert written(part) == file_of(num(1, 1) + num(3, 4), metadata=framed(b""))


def test_metadata_keeps_its_attributes_and_fields_of_newer_schemas():
    version = sized(1, "9.0")
    # The tag of the second attribute is longer than needed, which is legal.
    attrs = sized(2, sized(1, "pid") + num(13, 2**63 + 1)) + b"\x92\x00" + varint(5) + sized(1, "abc")
    newer = num(3, 1) + sized(77, "new")
    part = read_both(file_of(num(1, 1) + num(3, 4), metadata=framed(version + attrs + newer)))
    assert [(a.name, a.kind, a.value) for a in part.rank.metadata] == [
        ("pid", ValueKind.UINT64, 2**63 + 1),
        ("abc", ValueKind.NONE, None),
    ]
    assert part.rank.extra == newer
    again = read_both(written(part))
    assert (again.rank.metadata, again.rank.extra) == (part.rank.metadata, newer)


def test_damage_inside_the_metadata_is_told_and_the_nodes_read():
    broken = framed(sized(1, "0.0.4") + sized(2, sized(1, "a") + b"\x0b"))
    part = read_both(file_of(num(1, 1) + num(3, 4), metadata=broken))
    assert len(part.graph) == 1
    [finding] = part.findings
    assert (finding.code, finding.level, finding.offset) == ("damaged-metadata", "error", 1)


def test_the_rank_a_file_names_itself():
    for field, number in (
        (num(9, 5), 5),
        (sized(29, "12"), 12),
        (sized(29, "x"), None),
        (num(13, 2**63), None),
    ):
        metadata = framed(sized(1, "1") + sized(2, sized(1, "rank") + field))
        assert read_both(file_of(num(1, 1), metadata=metadata)).number == number
    long = framed(sized(2, sized(1, "rank") + sized(29, "9" * 5000)))
    assert read_both(file_of(num(1, 1), metadata=long)).number is None


# ---------------------------------------------------------------------------------------------------
# Nodes


def test_packed_unpacked_and_mixed_dependencies():
    node = num(1, 9) + num(5, 1) + sized(5, varint(2) + varint(3)) + num(4, 3) + num(5, 1) + sized(4, b"")
    part = read_both(file_of(num(1, 1), num(1, 2), num(1, 3), node))
    assert ids(part.graph, "data", 3) == [1, 2, 3, 1]
    assert ids(part.graph, "ctrl", 3) == [3]
    assert part.graph.data.of(3).tolist() == [0, 1, 2, 0]


def test_forward_references_and_records_out_of_order():
    part = read_both(file_of(num(1, 30) + num(5, 10), num(1, 20) + num(4, 30), num(1, 10) + num(5, 20)))
    assert part.graph.id.tolist() == [30, 20, 10], "the order of the file is kept"
    assert part.graph.data.rows.tolist() == [2, 1]
    assert part.graph.ctrl.rows.tolist() == [0]


def test_self_loops_dangling_dependencies_and_duplicate_ids():
    typed = num(3, 4)
    part = read_both(
        file_of(
            num(1, 5) + typed + num(5, 5),
            num(1, 5) + typed + num(5, 6) + num(4, 99),
            num(1, 6) + typed + num(5, 5) + num(5, 77) + num(5, 78),
        )
    )
    graph = part.graph
    assert graph.data.rows.tolist() == [0, 2, 0, -1, -2], "of nodes with one id the first is meant"
    assert graph.data.dangling.tolist() == [77, 78]
    assert graph.ctrl.rows.tolist() == [-1]
    assert graph.ctrl.dangling.tolist() == [99]
    assert [(f.code, f.message[-2:]) for f in part.findings] == [
        ("dangling-dependency", "3."),
        ("duplicate-id", "1."),
    ]
    assert_same(read_both(written(part)), part)


def test_ids_of_64_unsigned_bits():
    large = 2**64 - 1
    part = read_both(file_of(num(1, large) + num(5, 2**63), num(1, 2**63) + num(5, large)))
    assert part.graph.id.tolist() == [large, 2**63]
    assert part.graph.data.rows.tolist() == [1, 0]
    assert written(part) == file_of(
        num(1, large) + sized(5, varint(2**63)), num(1, 2**63) + sized(5, varint(large))
    )


def test_types_that_the_schema_does_not_define():
    part = read_both(file_of(num(3, -1), num(3, 42), num(3, 2**32 + 4), num(3, 7)))
    assert part.graph.type.tolist() == [-1, 42, 4, 7]
    assert "unknown-type" in codes(part)
    assert written(part) == file_of(num(3, -1), num(3, 42), num(3, 4), num(3, 7))


def test_of_a_field_given_twice_the_last_counts():
    node = (
        num(1, 1) + num(1, 2) + sized(2, "a") + sized(2, "b") + num(3, 4) + num(3, 5) + num(7, 1) + num(7, 9)
    )
    part = read_both(file_of(node + num(6, 3) + num(6, 0) + attr("x", num(9, 1) + num(9, 2))))
    assert described(part, 0) | {"io": 0} == {
        "id": 2,
        "name": "b",
        "type": 5,
        "ctrl": [],
        "data": [],
        "start_ns": 0,
        "duration_ns": 9000,
        "io": 0,
        "attrs": [("x", "INT64", "2", "")],
    }
    assert "a" not in list(part.graph.strings), "texts that were replaced are not kept"


def test_inputs_split_over_several_messages_are_merged():
    part = read_both(
        file_of(
            num(1, 1)
            + sized(8, sized(1, "v"))
            + sized(9, b"")
            + sized(8, sized(3, "t"))
            + sized(8, sized(1, "w")),
            num(1, 2),
        )
    )
    assert described(part, 0)["io"] == ["w", "", "t", "", "", ""]
    assert described(part, 1)["io"] == [None] * 6
    assert_same(read_both(written(part)), part)


def test_unknown_fields_of_a_node_are_kept_and_written_back():
    unknown = num(11, 5) + sized(200, "later") + four(12, b"abcd") + eight(536870911, b"12345678")
    wrong_wire = sized(1, "id as text") + num(2, 3) + four(5, b"wxyz") + num(10, 1) + eight(6, b"12345678")
    part = read_both(file_of(num(1, 1) + unknown + wrong_wire, num(1, 2), num(1, 3) + num(99, 1)))
    graph = part.graph
    assert graph.id.tolist() == [1, 2, 3]
    assert graph.extra_row.tolist() == [0] * 9 + [2]
    assert b"".join(graph.strings.raw(code) for code in graph.extra.tolist()) == unknown + wrong_wire + num(
        99, 1
    )
    [finding] = [f for f in part.findings if f.code == "unknown-field"]
    assert (finding.level, finding.message[-3:]) == ("info", "10.")
    assert written(part) == file_of(num(1, 1) + unknown + wrong_wire, num(1, 2), num(1, 3) + num(99, 1))


def test_unknown_fields_inside_messages_are_counted():
    inside = sized(8, num(1, 1) + sized(4, "strides")) + attr(
        "a", num(9, 1) + num(33, 1) + num(8, 1) + sized(9, "")
    )
    inside += attr("l", sized(10, num(2, 1) + four(1, b"abcd") + num(1, 5)))
    part = read_both(file_of(num(1, 1) + num(3, 4) + inside))
    [finding] = part.findings
    assert (finding.code, finding.level, finding.message[-2:]) == ("dropped-field", "warning", "7.")
    assert [a[1:3] for a in described(part, 0)["attrs"]] == [("INT64", "1"), ("INT64_LIST", "[5]")]


# ---------------------------------------------------------------------------------------------------
# Times


def test_a_start_at_zero_is_a_recorded_start():
    part = read_both(file_of(num(1, 1) + num(6, 0), num(1, 2)))
    assert part.graph.start_ns.tolist() == [0, NONE]
    assert_same(read_both(written(part)), part)


def test_times_to_the_nanosecond():
    """Attributes `start_ns` and `duration_ns` refine the microseconds they agree with."""
    nodes = (
        num(6, 5) + num(7, 1) + attr("start_ns", num(9, 5_432)) + attr("duration_ns", num(13, 1_999)),
        num(6, 5) + attr("start_ns", num(9, 6_000)),
        attr("start_ns", num(9, 500)) + attr("duration_ns", num(9, 500)),
        num(6, 0) + attr("start_ns", num(9, 7)) + num(7, 3) + attr("duration_ns", num(9, -3_000)),
        num(6, 5) + attr("start_ns", num(9, 1)) + attr("start_ns", num(11, 5_001)),
    )
    part = read_both(file_of(*nodes))
    assert part.graph.start_ns.tolist() == [5_432, 5_000, NONE, 7, 5_001]
    assert part.graph.duration_ns.tolist() == [1_999, 0, 500, 3_000, 0]
    assert_same(read_both(written(part)), part)


def test_times_that_only_the_model_knows_are_written_as_attributes():
    part = read_both(file_of(num(1, 1) + num(6, 5) + num(7, 2), num(1, 2) + num(6, 0)))
    part.graph.start_ns[:] = [5_250, 3]
    part.graph.duration_ns[:] = [2_001, 0]
    again = read_both(written(part))
    assert again.graph.start_ns.tolist() == [5_250, 3]
    assert again.graph.duration_ns.tolist() == [2_001, 0]
    assert [a[:3] for a in described(again, 0)["attrs"]] == [
        ("start_ns", "INT64", "5250"),
        ("duration_ns", "INT64", "2001"),
    ]


@pytest.mark.parametrize("time", [2**63 - 1, 2**63, 2**64 - 1, (2**63 - 1) // 1000 + 1])
def test_times_beyond_int64_nanoseconds_are_kept_but_not_shown(time):
    nodes = num(1, 1) + num(3, 4), num(1, 2) + num(3, 4) + num(11, 1) + num(6, time) + num(7, time)
    part = read_both(file_of(*nodes, num(1, 3) + num(3, 4) + num(7, time)))
    assert part.graph.start_ns.tolist() == [NONE] * 3
    assert part.graph.duration_ns.tolist() == [0] * 3
    assert [(f.code, f.message[-2:]) for f in part.findings] == [
        ("unknown-field", "1."),
        ("impossible-time", "3."),
    ]
    assert written(part) == file_of(*nodes, num(1, 3) + num(3, 4) + num(7, time))


def test_the_longest_time_that_fits():
    longest = (2**63 - 1) // 1000
    part = read_both(file_of(num(6, longest) + num(7, longest)))
    assert part.graph.start_ns.tolist() == part.graph.duration_ns.tolist() == [longest * 1000]


# ---------------------------------------------------------------------------------------------------
# Attributes


FLOATS = [0.0, -0.0, 1.5, -3.25, math.inf, -math.inf]
SCALARS = [
    *[(ValueKind.DOUBLE, eight(3, struct.pack("<d", x)), x) for x in [*FLOATS, 1e300, 5e-324]],
    *[(ValueKind.FLOAT, four(5, struct.pack("<f", x)), x) for x in FLOATS],
    *[(ValueKind.INT32, num(7, x), x) for x in (0, 1, -1, 2**31 - 1, -(2**31))],
    *[(ValueKind.INT64, num(9, x), x) for x in (0, 1, -1, 2**63 - 1, -(2**63))],
    *[(ValueKind.UINT32, num(11, x), x) for x in (0, 2**31, 2**32 - 1)],
    *[(ValueKind.UINT64, num(13, x), x) for x in (0, 2**63, 2**64 - 1)],
    *[(ValueKind.SINT32, num(15, z), x) for z, x in ((0, 0), (1, -1), (2, 1), (2**32 - 1, -(2**31)))],
    *[(ValueKind.SINT64, num(17, z), x) for z, x in ((0, 0), (1, -1), (2**64 - 1, -(2**63)))],
    *[(ValueKind.FIXED32, four(19, struct.pack("<I", x)), x) for x in (0, 2**32 - 1)],
    *[(ValueKind.FIXED64, eight(21, struct.pack("<Q", x)), x) for x in (0, 2**64 - 1)],
    *[(ValueKind.SFIXED32, four(23, struct.pack("<i", x)), x) for x in (0, -1, -(2**31))],
    *[(ValueKind.SFIXED64, eight(25, struct.pack("<q", x)), x) for x in (0, -1, -(2**63))],
    *[(ValueKind.BOOL, num(27, raw), x) for raw, x in ((0, False), (1, True), (2, True), (2**63, True))],
    *[(ValueKind.STRING, sized(29, x), x) for x in ("", "a", "ä\0\n", "x" * 300)],
    *[(ValueKind.BYTES, sized(31, x), x) for x in (b"", b"\xff\xfe", bytes(range(256)))],
]


@pytest.mark.parametrize(("kind", "raw", "value"), SCALARS)
def test_scalars_of_every_kind(kind, raw, value):
    got = value_of(raw)
    assert got == (kind, value)
    assert (type(got[1]), repr(got[1])) == (type(value), repr(value)), "-0.0 is not 0.0, True is not 1"


NAN_BITS = [0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001]
NAN32_BITS = [0x7FC00000, 0xFFC00001, 0x7F800001]


def test_nan_keeps_its_bits():
    doubles = [struct.pack("<Q", bits) for bits in NAN_BITS]
    floats = [struct.pack("<I", bits) for bits in NAN32_BITS]
    node = b"".join(attr("d", eight(3, raw)) for raw in doubles) + attr(
        "D", sized(4, sized(1, b"".join(doubles)))
    )
    node += b"".join(attr("f", four(5, raw)) for raw in floats) + attr(
        "F", sized(6, sized(1, b"".join(floats)))
    )
    part = read_both(file_of(node))
    assert all(math.isnan(a.value) for a in list_node_attributes(part.graph, 0) if not a.kind.is_list)
    assert written(part) == file_of(node)


K = ValueKind
ITEMS: dict[ValueKind, tuple[int, list[bytes], list[object]]] = {
    K.DOUBLE_LIST: (1, [struct.pack("<d", x) for x in (1.5, -0.0)], [1.5, -0.0]),
    K.FLOAT_LIST: (5, [struct.pack("<f", x) for x in (1.5, -0.0)], [1.5, -0.0]),
    K.INT32_LIST: (0, [varint(3), varint(-300)], [3, -300]),
    K.INT64_LIST: (0, [varint(3), varint(-300)], [3, -300]),
    K.UINT32_LIST: (0, [varint(3), varint(2**32 - 1)], [3, 2**32 - 1]),
    K.UINT64_LIST: (0, [varint(3), varint(2**64 - 1)], [3, 2**64 - 1]),
    K.SINT32_LIST: (0, [varint(3), varint(2**32 - 1)], [-2, -(2**31)]),
    K.SINT64_LIST: (0, [varint(3), varint(2**64 - 1)], [-2, -(2**63)]),
    K.FIXED32_LIST: (5, [b"\x01\0\0\0", b"\xff" * 4], [1, 2**32 - 1]),
    K.FIXED64_LIST: (1, [b"\x01" + bytes(7), b"\xff" * 8], [1, 2**64 - 1]),
    K.SFIXED32_LIST: (5, [b"\x01\0\0\0", b"\xff" * 4], [1, -1]),
    K.SFIXED64_LIST: (1, [b"\x01" + bytes(7), b"\xff" * 8], [1, -1]),
    K.BOOL_LIST: (0, [varint(2), varint(0)], [True, False]),
    K.STRING_LIST: (2, [varint(3) + b"one", varint(0)], ["one", ""]),
    K.BYTES_LIST: (2, [varint(3) + b"\xff\0a", varint(0)], [b"\xff\0a", b""]),
}


@pytest.mark.parametrize("kind", ITEMS)
def test_lists_of_every_kind_packed_unpacked_mixed_split_and_empty(kind):
    wire_type, (one, two), values = ITEMS[kind]
    loose = [varint(1 << 3 | wire_type) + item for item in (one, two)]
    forms = [
        sized(int(kind), loose[0] + loose[1]),
        sized(int(kind), loose[0]) + sized(int(kind), b"") + sized(int(kind), loose[1]),
    ]
    empty = sized(int(kind), b"")
    if wire_type != 2:
        forms += [
            sized(int(kind), sized(1, one + two)),
            sized(int(kind), loose[0] + sized(1, b"") + sized(1, two)),
            sized(int(kind), sized(1, one)) + sized(int(kind), loose[1]),
        ]
        assert value_of(sized(int(kind), sized(1, b""))) == (kind, [])
    for form in forms:
        got = value_of(form)
        assert (got[0], repr(got[1])) == (kind, repr(values)), form
    assert value_of(empty) == (kind, [])


def test_every_kind_is_tried():
    assert {kind for kind, _, _ in SCALARS} | set(ITEMS) == set(ValueKind) - {ValueKind.NONE}


def test_an_attribute_without_value_or_name():
    part = read_both(file_of(attr("flag") + sized(10, b"") + sized(10, num(9, 0))))
    assert described(part, 0)["attrs"] == [
        ("flag", "NONE", "None", ""),
        ("", "NONE", "None", ""),
        ("", "INT64", "0", ""),
    ]
    assert read_both(written(part)).graph.attrs.kind.tolist() == [0, 0, 9]


def test_of_several_values_the_last_counts():
    """A oneof: a later value replaces an earlier one, pieces of one list in a row are one list."""
    lists = sized(10, sized(1, b"\x01\x02")), sized(12, sized(1, b"\x05"))
    texts = sized(30, sized(1, "x")), sized(32, sized(1, b"\xff"))
    cases = [
        (num(9, 1) + sized(29, "s"), "'s'"),
        (lists[0] + num(9, 7), "7"),
        (num(9, 7) + lists[0], "[1, 2]"),
        (lists[0] + lists[1], "[5]"),
        (lists[0] + lists[1] + lists[0], "[1, 2]"),
        (lists[0] + num(9, 1) + lists[0], "[1, 2]"),
        (lists[0] + sized(2, "doc between") + lists[0], "[1, 2, 1, 2]"),
        (texts[0] + lists[0] + texts[0] + texts[0], "['x', 'x']"),
        (texts[0] + texts[1], "[b'\\xff']"),
        (texts[1] + sized(29, "s"), "'s'"),
    ]
    part = read_both(file_of(b"".join(attr("a", raw) for raw, _ in cases)))
    assert [a[2] for a in described(part, 0)["attrs"]] == [want for _, want in cases]
    assert not any(f.code == "bad-text" for f in part.findings)
    assert_same(read_both(written(part)), part)


def test_one_attribute_name_in_any_integer_width():
    fields = [num(7, 5), num(9, 5), num(11, 5), num(13, 5), num(15, 10), num(17, 10), num(27, 1)]
    fields += [
        four(19, b"\5\0\0\0"),
        eight(21, b"\5" + bytes(7)),
        four(23, b"\5\0\0\0"),
        eight(25, b"\5" + bytes(7)),
    ]
    other = [sized(29, "5"), eight(3, bytes(8)), sized(10, sized(1, b"\5")), b""]
    part = read_both(file_of(*(attr("comm_size", field) for field in [*fields, *other])))
    rows, values = read_int_column(part.graph, "comm_size")
    assert rows.tolist() == list(range(len(fields)))
    assert values.tolist() == [5] * 6 + [1] + [5] * 4


def test_texts_that_are_not_utf8():
    node = (
        num(3, 4) + sized(2, b"bad\xff") + attr("pg_name", sized(29, b"\xc3")) + attr("b", sized(31, b"\xff"))
    )
    part = read_both(file_of(node + attr("l", sized(30, sized(1, b"\xe2\x82"))) + sized(11, b"\xff")))
    assert described(part, 0)["name"] == "bad\ufffd"
    assert [a[2] for a in described(part, 0)["attrs"]] == ["'\ufffd'", "b'\\xff'", "['\ufffd']"]
    [finding] = [f for f in part.findings if f.code == "bad-text"]
    assert finding.message[-2:] == "3."
    rewritten = read_both(written(part))
    assert "bad-text" not in codes(rewritten)
    assert described(rewritten, 0) == described(part, 0)


def test_a_slot_attribute_that_is_a_list_stays_in_the_graph():
    part = read_both(
        file_of(attr("pg_name", sized(30, sized(1, "a"))) + attr("comm_src", eight(3, bytes(8))))
    )
    assert part.rank.slots == ()
    assert [a[2] for a in described(part, 0)["attrs"]] == ["['a']", "0.0"]


# ---------------------------------------------------------------------------------------------------
# Damage


SMALL = [
    num(1, 1) + sized(2, "first") + num(3, 4),
    num(1, 2) + sized(2, "second") + num(3, 7) + sized(5, varint(1)) + attr("comm_size", num(9, 300)),
    num(1, 3) + num(3, 4) + sized(8, sized(1, "[1]")) + attr("l", sized(10, sized(1, b"\x01\x02"))),
]


def test_cut_at_every_byte():
    """The nodes before the cut and a finding with the offset of the record that was cut."""
    raw = file_of(*SMALL)
    ends = [len(METADATA)]
    for record in SMALL:
        ends.append(ends[-1] + len(framed(record)))
    for cut in range(len(METADATA)):
        with pytest.raises(TraceFormatError, match=r"t\.0\.et"):
            read_once(raw[:cut], native=False)
    for cut in range(len(METADATA), len(raw) + 1):
        part = read_both(raw[:cut])
        whole = max(i for i, end in enumerate(ends) if end <= cut)
        assert part.graph.id.tolist() == [1, 2, 3][:whole]
        damage = [f for f in part.findings if f.code == "damaged-file"]
        assert [f.offset for f in damage] == ([] if cut in ends else [ends[whole]])
        assert all(f.level == "error" and f.file == "t.0.et" for f in damage)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (framed(b"\x08"), "integer does not end"),
        (framed(b"\x08" + b"\xff" * 10), "integer does not end"),
        (framed(b"\x00\x01"), "impossible number or wire type"),
        (framed(b"\x0b"), "impossible number or wire type"),
        (framed(b"\x0e"), "impossible number or wire type"),
        (framed(varint(1 << 40) + b"\x01"), "impossible number or wire type"),
        (framed(b"\x12\x05ab"), "more bytes than its record"),
        (framed(b"\x12" + varint(-1)), "more bytes than its record"),
        (framed(b"\x31abc"), "more bytes than its record"),
        (framed(sized(10, sized(1, "a") + b"\x4a\x09")), "more bytes than its record"),
        (framed(sized(10, sized(4, sized(1, b"1234567")))), "more bytes than its record"),
        (framed(sized(10, sized(10, sized(1, b"\x80")))), "integer does not end"),
        (framed(sized(5, b"\x80")), "integer does not end"),
        (framed(sized(10, b"\x12")), "integer does not end"),
        (varint(-1), "ends inside a record"),
        (varint(1 << 40), "ends inside a record"),
        (b"\xff" * 11, "integer does not end"),
    ],
)
def test_damage_ends_the_reading_with_words_and_offset(broken, words):
    sound = file_of(*SMALL)
    part = read_both(sound + broken + framed(num(1, 4)))
    assert part.graph.id.tolist() == [1, 2, 3]
    [finding] = [f for f in part.findings if f.code == "damaged-file"]
    assert words in finding.message
    assert finding.offset == len(sound)
    assert_same(read_once(written(part), native=True), read_once(sound, native=True))


def test_the_obsolete_layout_is_refused_by_name(tmp_path):
    """v0.0.1: proto2, no metadata, field numbers with other meanings."""
    node = num(1, 0) + sized(2, "op") + num(3, 3) + num(4, 0) + num(6, 4096) + num(7, 10)
    node += num(12, 1) + num(13, 1) + num(14, 1) + num(18, 4096) + num(20, 0)
    path = tmp_path / "old.0.et"
    path.write_bytes(framed(node) + framed(num(1, 1) + sized(2, "next")))
    with pytest.raises(TraceFormatError, match=r"old\.0\.et: obsolete Chakra layout v0\.0\.1"):
        studio.read(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "an empty file"),
        (b"[1, 2]", "a JSON file"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "a PNG image"),
        (b"\x7fELF\x02\x01\x01" + bytes(100), "a Linux program"),
        (b"micro\n2\nlayer 1 2 3\n", "a text file"),
        (b"\n\tAAAAAAAAB\n\n", "a text file"),
        (bytes(5000), "zero bytes"),
        (bytes(range(200, 256)) * 9, "binary data"),
        (b"\x1f\x8b\x08", "gzip"),
        (gzip.compress(b"", mtime=0), "gzip"),
        (gzip.compress(b"plain text\n" * 9, mtime=0), "a text file"),
        (b"SQLite format 3\0" + bytes(99), "an SQLite database"),
    ],
)
def test_other_files_are_told_by_what_they_look_like(tmp_path, content, words):
    path = tmp_path / "x.0.et"
    path.write_bytes(content)
    with pytest.raises(TraceFormatError, match=r"^x\.0\.et") as caught:
        studio.read(path)
    assert words in caught.value.message
    assert caught.value.hint


def test_an_archive_of_nothing(tmp_path):
    path = tmp_path / "x.zip"
    path.write_bytes(b"PK\x05\x06" + bytes(18))
    with pytest.raises(TraceFormatError, match=r"x\.zip: the archive holds no file"):
        studio.read(path)


def test_sniffing_never_fails():
    """Whatever a file starts with, and wherever its head is cut."""
    rng = np.random.default_rng(1)
    for size in range(40):
        for _ in range(20):
            chakra.sniff(rng.integers(0, 256, size, np.uint8).tobytes())
    whole = file_of(*SMALL)
    assert all(chakra.sniff(whole[:cut]) for cut in range(1, len(whole)))
