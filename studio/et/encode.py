"""Write Chakra records from columns: each distinct field is serialised once and reused.

Protobuf's own objects would take twenty times as long: a node has some twenty fields, and most of them are those of
other nodes too, or numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from studio.et.schema import get_value_field, load_schema
from studio.trace import (
    NONE,
    Attribute,
    Graph,
    Int64,
    Rank,
    Strings,
    UInt64,
    ValueKind,
    decode_value,
    list_dependency_ids,
)

PRECISE = {"start_ns": "start_time_micros", "duration_ns": "duration_micros"}
"""Attributes that carry a time to the nanosecond beside the schema's microseconds."""

NODES_AT_ONCE = 1 << 14
"""How many nodes each piece of a file holds."""
PLAIN_INTS = frozenset((ValueKind.INT32, ValueKind.INT64, ValueKind.UINT32, ValueKind.UINT64, ValueKind.BOOL))
"""Kinds whose values stand in a file as the varints of their bits."""
PLAIN_LISTS = frozenset(ValueKind(kind + 1) for kind in PLAIN_INTS)
_ID, _NAME, _TYPE, _CTRL, _DATA, _START, _DURATION, _INPUTS, _OUTPUTS, _ATTR = (
    bytes([number << 3 | wire_type])
    for number, wire_type in enumerate((0, 2, 0, 2, 2, 0, 0, 2, 2, 2), start=1)
)
_VALUES, _SHAPES, _TYPES = b"\x0a", b"\x12", b"\x1a"
_STARTED_AT_ZERO = b"\x30\x00"


def write(graph: Graph, rank: Rank) -> Iterator[bytes]:
    """Yield the file of one rank in pieces: the metadata, then many nodes at a time, each record after its length.

    Times that are no whole microseconds get an attribute `start_ns` or `duration_ns` beside the field.
    Text that is not UTF-8 is written with replacement characters, since protobuf readers refuse it.
    """
    return GraphFiles(graph, keep=False).write(rank)


class GraphFiles:
    """Writes the files of ranks that share a graph: what all have is serialised once."""

    def __init__(self, graph: Graph, *, keep: bool = True) -> None:
        """Start with a graph.

        Args:
            graph: The graph.
            keep: Whether to keep what is shared, which takes the memory of a file, for more ranks than one.
        """
        self.graph, self.keep = graph, keep
        self.columns = _Columns(graph)
        self.forms: dict[int, _Form] = {}

    def write(self, rank: Rank) -> Iterator[bytes]:
        """Yield the file of a rank in pieces, see `write`."""
        record = load_schema().metadata(version=rank.version)
        for attr in rank.metadata:
            put_attribute(record.attr.add(), attr)
        yield add_length(record.SerializeToString() + rank.extra)
        for first in range(0, len(self.graph), NODES_AT_ONCE):
            form = self.forms.get(first) or self.columns.form(
                first, min(first + NODES_AT_ONCE, len(self.graph))
            )
            if self.keep:
                self.forms[first] = form
            yield form.fill([self.columns.attribute(index, rank.slots) for index in form.attributes])


@dataclass(frozen=True, slots=True)
class _Form:
    """Nodes of ranks that share a graph, open where ranks differ: at attributes with slots and lengths of their records.

    V gaps, in which U distinct attributes appear A times in R records.

    Attributes:
        fixed: (V + 1) what is before, between and behind the gaps.
        gaps: (V,) which attribute fills each, -1 for the length of a record; these lengths in order of records.
        attributes: (U) index of each attribute in the graph.
        appearing: (A,) which attribute appears ...
        record: (A,) ... in which record.
        fixed_bytes: (R,) length of each record without them.
    """

    fixed: list[bytes]
    gaps: Int64
    attributes: list[int]
    appearing: Int64
    record: Int64
    fixed_bytes: Int64

    def fill(self, attributes: list[bytes]) -> bytes:
        """Return the nodes of a rank with these attributes (U)."""
        sizes = np.array([len(raw) for raw in attributes], np.int64)
        added = np.bincount(self.record, sizes[self.appearing], len(self.fixed_bytes)).astype(np.int64)
        distinct, back = np.unique(self.fixed_bytes + added, return_inverse=True)
        codes = self.gaps.copy()
        codes[codes < 0] = back.reshape(-1) + len(attributes)
        pool = [*attributes, *encode_varints(distinct)]
        parts = [b""] * (2 * len(codes) + 1)
        parts[::2] = self.fixed
        parts[1::2] = map(pool.__getitem__, codes.tolist())
        return b"".join(parts)


class _Pieces:
    """Distinct pieces of bytes by number, and which of them each of N nodes is made of."""

    def __init__(self, count: int) -> None:
        self.pool: list[bytes] = []
        self.open: dict[int, int] = {}
        self.count = count
        self.rows: list[Int64] = []
        self.codes: list[Int64] = []

    def number(self, pieces: Iterable[bytes]) -> int:
        """Add pieces and return the number of the first."""
        first = len(self.pool)
        self.pool.extend(pieces)
        return first

    def leave_open(self, index: int) -> int:
        """Add a piece that each rank fills with its own form of an attribute, and return its number."""
        code = self.number([b""])
        self.open[code] = index
        return code

    def add(self, rows: Int64, codes: Int64) -> None:
        """Add pieces to nodes (rising rows); pieces of one node keep their order."""
        if len(rows):
            self.rows.append(rows)
            self.codes.append(codes)

    def ints(self, rows: Int64, values: Int64, before: bytes) -> None:
        """Add numbers with their tag."""
        distinct, back = np.unique(values, return_inverse=True)
        self.add(rows, back.reshape(-1) + self.number([before + raw for raw in encode_varints(distinct)]))

    def form(self) -> _Form:
        """Return the nodes, each preceded by its length."""
        sizes = np.array([len(piece) for piece in self.pool], np.int64)
        filled_by = np.full(len(self.pool), NONE, np.int64)
        filled_by[list(self.open)] = np.arange(len(self.open))
        lengths, counts = np.zeros(self.count, np.int64), np.ones(self.count, np.int64)
        is_open = np.zeros(self.count, np.bool_)
        appearing, appears_in = [], []
        for rows, codes in zip(self.rows, self.codes, strict=True):
            lengths += np.bincount(rows, sizes[codes], self.count).astype(np.int64)
            counts += np.bincount(rows, minlength=self.count)
            is_filled = filled_by[codes] >= 0
            is_open[rows[is_filled]] = True
            appearing.append(filled_by[codes[is_filled]])
            appears_in.append(rows[is_filled])
        distinct, back = np.unique(lengths, return_inverse=True)
        ends = np.cumsum(counts)
        order = np.empty(int(ends[-1]), np.int64)
        free = ends - counts
        unknown = self.number([b""])
        order[free] = np.where(is_open, unknown, back.reshape(-1) + self.number(encode_varints(distinct)))
        free += 1
        for rows, codes in zip(self.rows, self.codes, strict=True):
            order[free[rows] + _count_before(rows)] = codes
            free += np.bincount(rows, minlength=self.count)
        fill = np.concatenate((filled_by, np.full(len(self.pool) - unknown, NONE)))[order]
        gaps = np.flatnonzero((fill >= 0) | (order == unknown))
        record = np.cumsum(is_open) - 1
        return _Form(
            fixed=self._join_between(order, gaps),
            gaps=fill[gaps],
            attributes=list(self.open.values()),
            appearing=np.concatenate([np.empty(0, np.int64), *appearing]),
            record=record[np.concatenate([np.empty(0, np.int64), *appears_in])],
            fixed_bytes=lengths[is_open],
        )

    def _join_between(self, order: Int64, gaps: Int64) -> list[bytes]:
        """Return what is before, between and behind the gaps in a row of pieces, gaps being empty."""
        joined = b"".join(map(self.pool.__getitem__, order.tolist()))
        if not len(gaps):
            return [joined]
        sizes = np.array([len(piece) for piece in self.pool], np.int64)
        bounds = [0, *np.cumsum(sizes[order])[gaps].tolist(), len(joined)]
        return [joined[start:end] for start, end in pairwise(bounds)]


def _count_before(rows: Int64) -> Int64:
    """Return how many entries of the same row (M,) come before each; rows rise.

    Example:
        >>> _count_before(np.array([1, 1, 4, 7, 7, 7])).tolist()
        [0, 1, 0, 0, 1, 2]
    """
    place = np.arange(len(rows))
    starts = np.append(True, rows[1:] != rows[:-1])
    return place - np.maximum.accumulate(np.where(starts, place, 0))


class _Columns:
    """The columns of a graph, to be written piece by piece."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.texts = _encode_texts(graph.strings)
        self.empty = graph.strings.find("")
        self.ids = [(dep, list_dependency_ids(graph, dep)) for dep in (graph.ctrl, graph.data)]
        self.precise = {key: graph.strings.find(key) for key in PRECISE}

    def form(self, first: int, end: int) -> _Form:
        """Return the records of some nodes."""
        graph, pieces = self.graph, _Pieces(end - first)
        rows = np.arange(end - first)
        ids = graph.id[first:end].view(np.int64)
        pieces.ints(rows[ids != 0], ids[ids != 0], _ID)
        self._put_names(pieces, graph.name[first:end].astype(np.int64))
        types = graph.type[first:end].astype(np.int64)
        pieces.ints(rows[types != 0], types[types != 0], _TYPE)
        for tag, (deps, wanted) in zip((_CTRL, _DATA), self.ids, strict=True):
            _put_dependencies(pieces, tag, deps.offsets[first : end + 1], wanted)
        start, duration = graph.start_ns[first:end], graph.duration_ns[first:end]
        for tag, times in ((_START, start), (_DURATION, duration)):
            timed = np.flatnonzero(times >= 1000)
            pieces.ints(timed, times[timed] // 1000, tag)
        if len(graph.io):
            io = graph.io[first:end].astype(np.int64)
            self._put_io(pieces, _INPUTS, io[:, :3])
            self._put_io(pieces, _OUTPUTS, io[:, 3:])
        # Attributes are the last field of a node, so the rest can follow them.
        self._put_attributes(pieces, first, end)
        for (key, code), times in zip(self.precise.items(), (start, duration), strict=True):
            untold = (times > 0) & (times % 1000 != 0) & ~self._has(code, first, end)
            timed = np.flatnonzero(untold)
            self._put_plain_attributes(pieces, (key.encode(), ValueKind.INT64), timed, times[timed])
        # proto3 leaves out a zero; written by hand, a recorded start at 0 stays a recorded start.
        timed = np.flatnonzero((start >= 0) & (start < 1000))
        pieces.add(timed, np.full(len(timed), pieces.number([_STARTED_AT_ZERO])))
        low, high = np.searchsorted(graph.extra_row, (first, end)).tolist()
        added = pieces.number(map(graph.strings.raw, graph.extra[low:high].tolist()))
        pieces.add(graph.extra_row[low:high].astype(np.int64) - first, np.arange(high - low) + added)
        return pieces.form()

    def _put_names(self, pieces: _Pieces, names: Int64) -> None:
        named = np.flatnonzero(names != self.empty)
        pieces.add(named, self._add_fields(pieces, _NAME, names[named]))

    def _add_fields(self, pieces: _Pieces, tag: bytes, texts: Int64) -> Int64:
        """Return the pieces (M,) that are texts with their tag and length."""
        distinct, back = np.unique(texts, return_inverse=True)
        written = [self.texts[code] for code in distinct.tolist()]
        return back.reshape(-1) + pieces.number([tag + encode_varint(len(text)) + text for text in written])

    def _put_io(self, pieces: _Pieces, tag: bytes, io: Int64) -> None:
        """Add inputs or outputs: the tag and their length, then each of their texts that is not empty."""
        present = np.flatnonzero(io[:, 0] >= 0)
        fields, sizes = [], np.zeros(len(present), np.int64)
        for field, column in zip((_VALUES, _SHAPES, _TYPES), io[present].T, strict=True):
            filled = column != self.empty
            codes = self._add_fields(pieces, field, column[filled])
            sizes[filled] += np.array([len(pieces.pool[code]) for code in codes.tolist()], np.int64)
            fields.append((present[filled], codes))
        pieces.ints(present, sizes, tag)
        for rows, codes in fields:
            pieces.add(rows, codes)

    # -----------------------------------------------------------------------------------------------
    # Attributes

    def _put_attributes(self, pieces: _Pieces, first: int, end: int) -> None:
        attrs = self.graph.attrs
        low, high = int(attrs.offsets[first]), int(attrs.offsets[end])
        rows = np.repeat(np.arange(end - first), np.diff(attrs.offsets[first : end + 1]))
        codes = np.full(high - low, NONE, np.int64)
        kind, value = attrs.kind[low:high], attrs.value[low:high]
        simple = ~attrs.slot[low:high] & (attrs.doc[low:high] < 0)
        table = np.isin(np.arange(256), (*PLAIN_INTS, ValueKind.STRING))
        simple &= table[kind]
        alike, groups = _group_by_code(attrs.key[low:high].astype(np.int64) * 256 + kind)
        for places, group in zip(groups, alike, strict=True):
            simple_places = places[simple[places]]
            key, number = self.texts[group >> 8], ValueKind(group & 255)
            if len(simple_places):
                distinct, back = np.unique(value[simple_places], return_inverse=True)
                contents = (
                    [add_length(self.texts[code]) for code in distinct.tolist()]
                    if number == ValueKind.STRING
                    else encode_varints(distinct)
                )
                codes[simple_places] = back.reshape(-1) + pieces.number(
                    _encode_attributes(key, number, contents)
                )
        self._put_others(pieces, codes, low)
        pieces.add(rows, codes)

    def _put_others(self, pieces: _Pieces, codes: Int64, low: int) -> None:
        """Fill in the codes of slots, lists, floats and other values that are not simple, each distinct one once."""
        attrs, known = self.graph.attrs, dict[tuple[Any, ...], int]()
        places = np.flatnonzero(codes < 0)
        index = places + low
        columns = (attrs.key, attrs.doc, attrs.kind, attrs.slot, attrs.value, attrs.length)
        table = zip(places.tolist(), *(column[index].tolist() for column in columns), strict=True)
        for place, key, doc, kind, slot, bits, length in table:
            items = attrs.items[bits : bits + length].tobytes() if kind and kind % 2 == 0 else bits
            code = known.get((key, doc, kind, slot, items), NONE)
            if code < 0 and slot:
                code = known[key, doc, kind, slot, items] = pieces.leave_open(low + place)
            elif code < 0:
                plain = doc < 0 and (kind == ValueKind.STRING_LIST or kind in PLAIN_LISTS)
                raw = self._encode_list(key, kind, bits, length) if plain else self.attribute(low + place)
                code = known[key, doc, kind, slot, items] = pieces.number([raw])
            codes[place] = code

    def _encode_list(self, key: int, kind: int, first: int, length: int) -> bytes:
        """Return a list of texts or of plain numbers."""
        items = self.graph.attrs.items[first : first + length]
        if kind == ValueKind.STRING_LIST:
            content = b"".join([b"\x0a" + add_length(self.texts[code]) for code in items.tolist()])
        else:
            content = b"\x0a" + add_length(b"".join(encode_varints(items))) if length else b""
        return next(_encode_attributes(self.texts[key], kind, [add_length(content)]))

    def _put_plain_attributes(
        self, pieces: _Pieces, named: tuple[bytes, ValueKind], rows: Int64, values: Int64
    ) -> None:
        distinct, back = np.unique(values, return_inverse=True)
        pieces.add(
            rows, back.reshape(-1) + pieces.number(_encode_attributes(*named, encode_varints(distinct)))
        )

    def _has(self, key: int, first: int, end: int) -> Any:
        """Return which of some nodes (M,) have an attribute of that name."""
        attrs = self.graph.attrs
        where = np.flatnonzero(attrs.key[attrs.offsets[first] : attrs.offsets[end]] == key)
        rows = np.searchsorted(attrs.offsets[first : end + 1] - attrs.offsets[first], where, "right") - 1
        has = np.zeros(end - first, np.bool_)
        has[rows] = True
        return has

    def attribute(self, index: int, slots: Sequence[int | str] = ()) -> bytes:
        """Return an attribute as a field of a node, a slot with its value among those of a rank."""
        attrs, strings = self.graph.attrs, self.graph.strings
        doc = int(attrs.doc[index])
        kind, bits = ValueKind(int(attrs.kind[index])), int(attrs.value[index])
        value = decode_value(attrs, index, strings, slots)
        name = strings[int(attrs.key[index])]
        doc_string = strings[doc] if doc >= 0 else ""
        # As bits: a Python float, though longer, does not keep those of every NaN.
        if kind == ValueKind.FLOAT and value != value:
            return encode_attribute(
                name, ValueKind.NONE, None, doc_string, b"\x2d" + _encode_floats(np.array(bits))
            )
        if kind == ValueKind.FLOAT_LIST:
            packed = _encode_floats(attrs.items[bits : bits + int(attrs.length[index])])
            listed = b"\x0a" + add_length(packed) if packed else b""
            return encode_attribute(name, ValueKind.NONE, None, doc_string, b"\x32" + add_length(listed))
        return encode_attribute(name, kind, value, doc_string)


def _encode_texts(strings: Strings) -> list[bytes]:
    """Return all texts as UTF-8, whatever they are."""
    block, bounds = strings.data.tobytes(), strings.offsets.tolist()
    texts = [block[start:end] for start, end in pairwise(bounds)]
    if not block.isascii():
        texts = [text if text.isascii() else text.decode("utf-8", "replace").encode() for text in texts]
    return texts


def _group_by_code(codes: Int64) -> tuple[list[int], list[Int64]]:
    """Return the distinct codes, and the places of each."""
    if not len(codes):
        return [], []
    distinct, back = np.unique(codes, return_inverse=True)
    back = back.reshape(-1)
    # Sorting narrow numbers takes a tenth of the time.
    order = np.argsort(back.astype(np.uint16) if len(distinct) < 1 << 16 else back, kind="stable")
    return distinct.tolist(), np.split(order, np.cumsum(np.bincount(back, minlength=len(distinct)))[:-1])


def _put_dependencies(pieces: _Pieces, tag: bytes, offsets: Int64, wanted: UInt64) -> None:
    """Add packed ids: the tag and their length, then each of them."""
    counts = np.diff(offsets)
    waiting = np.flatnonzero(counts)
    ids = wanted[offsets[0] : offsets[-1]]
    if not len(ids):
        return
    distinct, back = np.unique(ids.view(np.int64), return_inverse=True)
    written = encode_varints(distinct)
    sizes = np.array([len(raw) for raw in written], np.int64)[back.reshape(-1)]
    rows = np.repeat(np.arange(len(counts)), counts)
    pieces.ints(waiting, np.bincount(rows, sizes, len(counts)).astype(np.int64)[waiting], tag)
    pieces.add(rows, back.reshape(-1) + pieces.number(written))


def _encode_attributes(key: bytes, kind: int, contents: Iterable[bytes]) -> Iterator[bytes]:
    """Yield attributes of one name and kind, as fields of a node."""
    wire_type = 0 if kind in PLAIN_INTS else 2
    begin = (b"\x0a" + add_length(key) if key else b"") + encode_varint(kind << 3 | wire_type)
    heads: dict[int, bytes] = {}
    for content in contents:
        size = len(content)
        if size not in heads:
            heads[size] = _ATTR + encode_varint(len(begin) + size) + begin
        yield heads[size] + content


class PlainInts:
    """Attributes of one name that hold a number, one by one."""

    def __init__(self, key: bytes, kind: ValueKind) -> None:
        self.key, self.kind = key, kind
        self.known: dict[int, bytes] = {}
        self.heads: dict[int, bytes] = {}

    def written(self, value: int) -> bytes:
        """Return the attribute with a non-negative value, as a field of a node."""
        if value >= _MOST_KNOWN:
            content = encode_varint(value)
            size = len(content)
            if size not in self.heads:
                self.heads[size] = next(_encode_attributes(self.key, self.kind, [content]))[:-size]
            return self.heads[size] + content
        if value not in self.known:
            self.known[value] = next(_encode_attributes(self.key, self.kind, [encode_varint(value)]))
        return self.known[value]


_MOST_KNOWN = 4096


def _encode_floats(bits: Int64) -> bytes:
    return bits.astype("<u4").tobytes()


# ---------------------------------------------------------------------------------------------------
# Single records, by protobuf's own objects


def encode_attribute(name: str, kind: ValueKind, value: Any, doc: str, field: bytes = b"") -> bytes:
    """Return an attribute as field 10 of a node; `field` is an already serialised value."""
    attribute = load_schema().attribute()
    put_attribute(attribute, Attribute(name, kind, value, doc))
    return _ATTR + add_length(attribute.SerializeToString() + field)


def put_attribute(target: Any, attr: Attribute) -> None:
    """Fill in a message of the schema's attributes."""
    target.name = attr.name
    if attr.doc:
        target.doc_string = attr.doc
    if attr.kind.is_list:
        inner = getattr(target, get_value_field(attr.kind))
        inner.SetInParent()
        inner.values.extend(attr.value)
    elif attr.kind != ValueKind.NONE:
        setattr(target, get_value_field(attr.kind), attr.value)


_SHIFTS = np.arange(10, dtype=np.uint64) * np.uint64(7)


def encode_varints(values: Int64) -> list[bytes]:
    r"""Return the bits of numbers (M,) as varints.

    Example:
        >>> encode_varints(np.array([0, 300, -1]))
        [b'\x00', b'\xac\x02', b'\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01']
    """
    rest = values.astype(np.int64).view(np.uint64)[:, None] >> _SHIFTS
    sizes = np.maximum((rest != 0).sum(axis=1), 1)
    groups = (rest & np.uint64(127)).astype(np.uint8)
    place = np.arange(10)
    groups[place < sizes[:, None] - 1] |= 128
    raw = groups[place < sizes[:, None]].tobytes()
    ends = np.cumsum(sizes).tolist()
    return [raw[start:end] for start, end in pairwise([0, *ends])]


_SHORT = [bytes([size] if size < 128 else [size & 127 | 128, size >> 7]) for size in range(1 << 14)]


def encode_varint(size: int) -> bytes:
    r"""Return a number that is not negative as a varint, in as few bytes as it takes.

    Example:
        >>> encode_varint(127), encode_varint(16383), encode_varint(16384), encode_varint(1 << 21)
        (b'\x7f', b'\xff\x7f', b'\x80\x80\x01', b'\x80\x80\x80\x01')
    """
    if size < len(_SHORT):
        return _SHORT[size]
    # The usual numbers, ids and times, at once.
    if size < 1 << 21:
        return bytes((size & 127 | 128, size >> 7 & 127 | 128, size >> 14))
    if size < 1 << 28:
        return bytes((size & 127 | 128, size >> 7 & 127 | 128, size >> 14 & 127 | 128, size >> 21))
    out = bytearray()
    while size > 127:
        out.append(size & 127 | 128)
        size >>= 7
    out.append(size)
    return bytes(out)


def add_length(record: bytes) -> bytes:
    """Return a record preceded by its length."""
    return encode_varint(len(record)) + record
