"""Rewrite ids, dependencies and last attributes of node records, many at once, and leave every other byte as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from studio.et import kernel as k
from studio.et.wire_fields import Fields, expand_ranges, find_fields, list_numbers, read_numbers
from studio.trace import Bool, Int64, UInt8, UInt64

CHUNK_BYTES = 1 << 20
_CTRL, _DATA, _ATTR = 4, 5, 10
_SHIFTS = np.arange(10, dtype=np.uint64) * np.uint64(7)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some records of a file, one after another.

    R records, D dependencies.

    Attributes:
        at: Where the chunk begins in its file.
        raw: Its bytes; the places below count from its begin.
        place, begin, end: (R,) where the length of a record lies, its content begins, and ends.
        fields: The fields of the records.
        ids: (R,) node ids.
        dep_of: (D,) the record that a dependency is of.
        deps: (D,) ids waited for, packed ones first.
    """

    at: int
    raw: UInt8
    place: Int64
    begin: Int64
    end: Int64
    fields: Fields
    ids: UInt64
    dep_of: Int64
    deps: UInt64

    def __len__(self) -> int:
        return len(self.place)


def iterate_chunks(data: bytes | memoryview, start: int, end: int) -> Iterator[Chunk]:
    """Yield the records of data[start:end], which must be sound, in pieces."""
    while start < end:
        places, begins, ends, at = [], [], [], start
        while start < end and start - at < CHUNK_BYTES:
            size, begin = (data[start], start + 1) if data[start] < 128 else k.varint(data, start, end)
            places.append(start)
            begins.append(begin)
            start = begin + size
            ends.append(start)
        raw = np.frombuffer(data[at:start], np.uint8)
        yield _build_chunk(at, raw, *(np.array(column, np.int64) - at for column in (places, begins, ends)))


def _build_chunk(at: int, raw: UInt8, place: Int64, begin: Int64, end: Int64) -> Chunk:
    fields = find_fields(raw, begin, end) or _find_fields_slowly(raw, begin, end)
    ids = np.zeros(len(place), np.uint64)
    id_fields = fields.only((fields.number == 1) & (fields.wire == 0))
    ids[id_fields.owner] = read_numbers(raw, id_fields.place)[0].view(np.uint64)
    packed, single = _split_dependency_fields(fields)
    of, places, _ = list_numbers(raw, packed.begin, packed.end)
    places = np.concatenate([places, single.place])
    dep_of = np.concatenate([packed.owner[of], single.owner])
    return Chunk(
        at, raw, place, begin, end, fields, ids, dep_of, read_numbers(raw, places)[0].view(np.uint64)
    )


def _split_dependency_fields(fields: Fields) -> tuple[Fields, Fields]:
    """Return the fields that hold lists of ids, and those that hold one."""
    waits = (fields.number == _CTRL) | (fields.number == _DATA)
    return fields.only(waits & (fields.wire == 2)), fields.only(waits & (fields.wire == 0))


def _find_fields_slowly(raw: UInt8, begin: Int64, end: Int64) -> Fields:
    """Return the fields of records where one has very many."""
    data, rows = raw.tobytes(), list[tuple[int, int, int, int, int, int]]()
    for owner, (first, limit) in enumerate(zip(begin.tolist(), end.tolist(), strict=True)):
        pos = first
        while pos < limit:
            number, wire, _value, start, after, _damage = k.field(data, pos, limit)
            rows.append((owner, number, wire, k.varint(data, pos, limit)[1], start, after))
            pos = after
    return Fields(*np.array(rows, np.int64).reshape(-1, 6).T)


def find_odd_encoding(chunk: Chunk) -> tuple[int, str] | None:
    """Return the first record that cannot be re-encoded byte for byte from its content, and why; None where all can.

    Lengths, ids and dependencies are rewritten, so their numbers must have been as short as they can be.
    """
    fields, raw = chunk.fields, chunk.raw
    packed, single = _split_dependency_fields(fields)
    of, places, widths = list_numbers(raw, packed.begin, packed.end)
    id_fields = fields.only((fields.number == 1) & (fields.wire == 0))
    zero = chunk.ids[id_fields.owner] == 0
    repeated = np.append(id_fields.owner[1:] == id_fields.owner[:-1], False)[: len(id_fields.owner)]
    checks: Sequence[tuple[Int64, Bool, str]] = (
        (
            np.arange(len(chunk)),
            _is_odd(raw, chunk.place, chunk.begin - chunk.place, chunk.end - chunk.begin),
            "its length is",
        ),
        (id_fields.owner, repeated, "it has two ids, and one of them is"),
        (id_fields.owner, zero, "its id 0, which is left out otherwise, is"),
        (
            id_fields.owner,
            _is_odd(raw, id_fields.place, id_fields.end - id_fields.place, None),
            "its id is",
        ),
        (packed.owner[of], _is_odd(raw, places, widths, None), "a dependency is"),
        (
            single.owner,
            _is_odd(raw, single.place, single.end - single.place, None),
            "a dependency is",
        ),
        (
            packed.owner,
            _is_odd(raw, packed.place, packed.begin - packed.place, packed.end - packed.begin),
            "the length of its dependencies is",
        ),
    )
    odd = [(int(owner[bad][0]), why) for owner, bad, why in checks if bad.any()]
    return min(odd, default=None)


def _is_odd(raw: UInt8, place: Int64, width: Int64, values: Int64 | None) -> Bool:
    """Return (M,) which numbers of a width are not written as short as they can be.

    Args:
        raw: The bytes.
        place: (M,) where the numbers lie.
        width: (M,) how many bytes they take.
        values: (M,) the numbers, where they are known.
    """
    numbers = read_numbers(raw, place)[0] if values is None else values
    written, widths = _encode_varints(numbers.view(np.uint64))
    odd: Bool = widths != width
    same = np.flatnonzero(~odd)
    first = np.cumsum(widths) - widths
    differs = raw[expand_ranges(place[same], width[same])] != written[expand_ranges(first[same], width[same])]
    odd[np.repeat(same, width[same])[differs]] = True
    return odd


@dataclass(frozen=True, slots=True)
class Changed:
    """What records are to say instead.

    R records, D dependencies.

    Attributes:
        ids: (R,) node ids.
        deps: (D,) ids waited for, in the order of `Chunk.deps`.
        cut: (2, R) from where to where a part of each record is left out; empty parts leave it.
        tails: Distinct bytes that records get at their end.
        tail: (R,) which of them.
    """

    ids: UInt64
    deps: UInt64
    cut: Int64
    tails: Sequence[bytes]
    tail: Int64


class _Edits:
    """Parts of a piece of bytes that are replaced."""

    def __init__(self, raw: UInt8) -> None:
        self.sources, self.size = [raw], len(raw)
        self.columns: list[tuple[Int64, ...]] = []

    def add(self, begin: Int64, end: Int64, turn: int, source: UInt8, counts: Int64) -> None:
        """Replace bytes begin:end by the next `counts` of a source; `turn` orders what is inserted at one place."""
        first = self.size + np.cumsum(counts) - counts
        self.sources.append(source)
        self.size += len(source)
        self.columns.append((begin, end, np.full(len(begin), turn, np.int64), first, counts))

    def result(self) -> bytes:
        """Return the bytes with all parts replaced."""
        begin, end, turn, first, counts = (
            np.concatenate(column) for column in zip(*self.columns, strict=True)
        )
        order = np.lexsort((turn, begin))
        begin, end, first, counts = begin[order], end[order], first[order], counts[order]
        pieces, lengths = np.empty(2 * len(order) + 1, np.int64), np.empty(2 * len(order) + 1, np.int64)
        pieces[1::2], lengths[1::2] = first, counts
        pieces[0::2] = np.append(0, end)
        lengths[0::2] = np.append(begin, len(self.sources[0])) - pieces[0::2]
        return np.concatenate(self.sources)[expand_ranges(pieces, lengths)].tobytes()


def rewrite_records(chunk: Chunk, changed: Changed) -> bytes:
    """Return the records of a chunk with other ids, dependencies and last attributes."""
    edits, fields, raw = _Edits(chunk.raw), chunk.fields, chunk.raw
    size = (chunk.end - chunk.begin) - (changed.cut[1] - changed.cut[0])
    # Ids that are there, and those that were left out for being 0.
    id_fields = fields.only((fields.number == 1) & (fields.wire == 0))
    new = changed.ids[id_fields.owner]
    kept = new != 0
    gone = id_fields.only(~kept)
    edits.add(gone.place - 1, gone.end, 0, np.empty(0, np.uint8), np.zeros(len(gone.owner), np.int64))
    np.subtract.at(size, gone.owner, gone.end - gone.place + 1)
    rewritten = id_fields.only(kept)
    written, widths = _encode_varints(new[kept])
    edits.add(rewritten.place, rewritten.end, 0, written, widths)
    np.add.at(size, rewritten.owner, widths - (rewritten.end - rewritten.place))
    absent = np.ones(len(chunk), np.bool_)
    absent[id_fields.owner] = False
    added = np.flatnonzero(absent & (changed.ids != 0))
    written, widths = _encode_varints(changed.ids[added])
    tagged = np.full(len(written) + len(added), 8, np.uint8)
    at = np.cumsum(widths + 1) - widths
    tagged[expand_ranges(at, widths)] = written
    edits.add(chunk.begin[added], chunk.begin[added], 0, tagged, widths + 1)
    size[added] += widths + 1
    # Dependencies.
    packed, single = _split_dependency_fields(fields)
    of, _, _ = list_numbers(raw, packed.begin, packed.end)
    written, widths = _encode_varints(changed.deps)
    many = len(of)
    lists = np.bincount(of, widths[:many], len(packed.owner)).astype(np.int64)
    heads, head_widths = _encode_varints(lists.astype(np.uint64))
    edits.add(packed.place, packed.begin, 0, heads, head_widths)
    edits.add(packed.begin, packed.end, 1, written[: int(widths[:many].sum())], lists)
    edits.add(single.place, single.end, 0, written[int(widths[:many].sum()) :], widths[many:])
    np.add.at(size, packed.owner, lists + head_widths - (packed.end - packed.place))
    np.add.at(size, single.owner, widths[many:] - (single.end - single.place))
    # What is cut out, what is put behind, and the new length.
    edits.add(changed.cut[0], changed.cut[1], 1, np.empty(0, np.uint8), np.zeros(len(chunk), np.int64))
    tails = np.array([len(tail) for tail in changed.tails], np.int64)[changed.tail]
    source = np.frombuffer(b"".join(changed.tails), np.uint8)
    starts = np.cumsum([0, *(len(tail) for tail in changed.tails)])[:-1][changed.tail]
    edits.add(chunk.end, chunk.end, 2, source[expand_ranges(starts.astype(np.int64), tails)], tails)
    written, widths = _encode_varints((size + tails).astype(np.uint64))
    edits.add(chunk.place, chunk.begin, 3, written, widths)
    return edits.result()


def _encode_varints(values: UInt64) -> tuple[UInt8, Int64]:
    """Return numbers (M,) as varints, one after another, and (M,) how long each is."""
    rest = values[:, None] >> _SHIFTS
    sizes = np.maximum((rest != 0).sum(axis=1), 1).astype(np.int64)
    groups = (rest & np.uint64(127)).astype(np.uint8)
    place = np.arange(10)
    groups[place < sizes[:, None] - 1] |= 128
    return groups[place < sizes[:, None]], sizes
