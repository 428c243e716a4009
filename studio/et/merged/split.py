"""Take a master trace apart: the records of each rank, as the file of the rank had them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from studio.errors import TraceFormatError
from studio.et import chakra, wire
from studio.et import kernel as k
from studio.et.merged.heads import Heads, RankHead, encode_metadata_record, from_record
from studio.et.merged.records import Changed, Chunk, iterate_chunks, rewrite_records
from studio.et.merged.rule import BLOCK, MISSING_IDS, ORIGINAL_ID, RANK
from studio.et.wire_fields import Fields, expand_ranges, find_fields, read_numbers
from studio.trace import Bool, Finding, Int64, UInt8, UInt64, ValueKind

_ATTR = 10
_INTS = (7, 9, 11, 13)
_HINT = "`chakra-studio merge JOB -o MASTER` writes master traces; make this one again."


@dataclass(frozen=True, slots=True)
class Master:
    """A master trace.

    Attributes:
        name: What it is called.
        data: All of it.
        heads: What the files of its ranks said of themselves; ranks of which nothing is said have a head all the same.
        runs: Where nodes of a rank lie next to each other, by rank: pairs of begin and end.
        numbers: Where ids do not follow the rule: number within the block → id, by rank.
        nodes: Nodes by rank.
        findings: What is lost.
    """

    name: str
    data: bytes | memoryview
    heads: Heads
    runs: dict[int, list[tuple[int, int]]]
    numbers: dict[int, dict[int, int]]
    nodes: dict[int, int]
    findings: tuple[Finding, ...] = ()

    def head(self, rank: int) -> RankHead:
        """Return what the file of a rank said of itself."""
        return next(head for head in self.heads.ranks if head.rank == rank)


def open_master(data: bytes | memoryview, name: str, total_bytes: int = 0) -> Master:
    """Find the ranks of a master trace.

    Raises:
        TraceFormatError: It is no Chakra file, or a node does not say its rank.
    """
    metadata = chakra.read_metadata(data, name)
    stem = name.rpartition("/")[2].removesuffix(".gz").removesuffix(".et")
    heads = from_record(metadata, stem)
    end, damage, count = wire.scan_records(
        data, metadata.end, lambda _done: None, max(total_bytes, len(data))
    )
    findings = []
    if damage:
        message = f"{name}: {damage} at byte {end:,} of {len(data):,}; {count:,} nodes before it were read, what follows is lost."
        findings.append(
            Finding("error", "damaged-file", message, "Copy or merge it again.", file=name, offset=end)
        )
    runs: dict[int, list[tuple[int, int]]] = {}
    numbers: dict[int, dict[int, int]] = {}
    nodes: dict[int, int] = {}
    for chunk in iterate_chunks(data, metadata.end, end):
        ends = _Ends.of(chunk, name)
        starts = np.flatnonzero(np.append(True, ends.rank[1:] != ends.rank[:-1]))
        for first, last in zip(starts.tolist(), [*starts[1:].tolist(), len(chunk)], strict=True):
            rank = int(ends.rank[first])
            begin, until = chunk.at + int(chunk.place[first]), chunk.at + int(chunk.end[last - 1])
            known = runs.setdefault(rank, [])
            if known and known[-1][1] == begin:
                begin = known.pop()[0]
            known.append((begin, until))
            nodes[rank] = nodes.get(rank, 0) + last - first
        for row, rank_numbers in ends.numbers.items():
            rank = int(ends.rank[row])
            missing = dict(zip(rank_numbers[1][0::2], rank_numbers[1][1::2], strict=False))
            own = {} if rank_numbers[0] is None else {int(chunk.ids[row]) - rank * BLOCK: rank_numbers[0]}
            numbers.setdefault(rank, {}).update(own | missing)
    unnamed = [
        RankHead(rank, f"{stem}.{rank}.et", False, heads.version, heads.attrs)
        for rank in runs.keys() - {head.rank for head in heads.ranks}
    ]
    if not heads.ranks and not runs:
        raise TraceFormatError(f"{name}: a master trace without ranks.", hint=_HINT)
    ranks = tuple(sorted((*heads.ranks, *unnamed), key=lambda head: head.rank))
    told_heads = Heads(ranks, heads.groups, heads.copies, heads.count, heads.version, heads.attrs)
    return Master(name, data, told_heads, runs, numbers, nodes, tuple(findings))


def iterate_rank_pieces(master: Master, rank: int) -> Iterator[bytes]:
    """Yield the file of a rank, not compressed.

    Raises:
        TraceFormatError: An id is not within the block of its rank.
    """
    yield encode_metadata_record(master.head(rank))
    numbers = master.numbers.get(rank, {})
    table = np.array(sorted(numbers.items()), np.uint64).reshape(-1, 2)
    for begin, end in master.runs.get(rank, ()):
        for chunk in iterate_chunks(master.data, begin, end):
            ends = _Ends.of(chunk, master.name)
            yield rewrite_records(chunk, _restore_records(chunk, ends, rank, table, master.name))


def _restore_records(chunk: Chunk, ends: _Ends, rank: int, table: UInt64, name: str) -> Changed:
    """Return what the records of a chunk said in the file of their rank."""
    base = np.uint64(rank * BLOCK)
    ids, deps = chunk.ids - base, chunk.deps - base
    for numbers, of in ((ids, np.arange(len(chunk))), (deps, chunk.dep_of)):
        if (numbers >= BLOCK).any():
            row = int(of[np.argmax(numbers >= BLOCK)])
            raise TraceFormatError(
                f"{name}: the node at byte {chunk.at + int(chunk.place[row]):,} is of rank {rank} and has, or waits for, an id "
                f"that is not within {rank * BLOCK:,} to {(rank + 1) * BLOCK - 1:,}.",
                hint="Files of ranks cannot name nodes of other ranks. " + _HINT,
            )
        if len(table):
            place = np.minimum(np.searchsorted(table[:, 0], numbers), len(table) - 1)
            is_listed = table[place, 0] == numbers
            numbers[is_listed] = table[place[is_listed], 1]
    return Changed(ids, deps, ends.cut, [b""], np.zeros(len(chunk), np.int64))


@dataclass(frozen=True, slots=True)
class _Ends:
    """What merge put behind the attributes of some records.

    Attributes:
        rank: (R,) ranks.
        cut: (2, R) where it begins and ends.
        numbers: For records of which the id, or one they wait for, does not follow the rule: the id in the rank's file, None
            where it follows, and pairs of number and id of those waited for.
    """

    rank: Int64
    cut: Int64
    numbers: dict[int, tuple[int | None, list[int]]] = field(default_factory=dict)

    @classmethod
    def of(cls, chunk: Chunk, name: str) -> _Ends:
        attrs = chunk.fields.only((chunk.fields.number == _ATTR) & (chunk.fields.wire == 2))
        # The last attribute of each record.
        tails = attrs.only(np.append(attrs.owner[1:] != attrs.owner[:-1], True)[: len(attrs.owner)])
        rank, cut = np.full(len(chunk), -1, np.int64), np.zeros((2, len(chunk)), np.int64)
        cut[0, tails.owner], cut[1, tails.owner] = tails.place - 1, tails.end
        plain, values = _read_ranks(chunk.raw, tails)
        rank[tails.owner[plain]] = values[plain]
        ends = cls(rank, cut)
        for row in np.flatnonzero(rank < 0).tolist():
            ends._look_back(chunk, attrs, row, name)
        return ends

    def _look_back(self, chunk: Chunk, attrs: Fields, row: int, name: str) -> None:
        """Find the rank of a record that has something behind it."""
        original: int | None = None
        missing: list[int] = []
        low, high = np.searchsorted(attrs.owner, (row, row + 1)).tolist()
        for index in range(high - 1, max(low, high - 3) - 1, -1):
            key, value = _parse_attribute(chunk.raw[attrs.begin[index] : attrs.end[index]].tobytes())
            if key == RANK and isinstance(value, int):
                self.rank[row] = value
                self.cut[0, row] = attrs.place[index] - 1
                self.numbers[row] = original, missing
                return
            if key == ORIGINAL_ID and isinstance(value, int):
                original = value
            elif key == MISSING_IDS and isinstance(value, list):
                missing = value
            else:
                break
        raise TraceFormatError(
            f"{name}: the node at byte {chunk.at + int(chunk.place[row]):,} does not say its rank; expected its last attribute "
            f"to be {RANK!r}.",
            hint=_HINT,
        )


def _read_ranks(raw: UInt8, attrs: Fields) -> tuple[Bool, Int64]:
    """Return (M,) which attributes are ranks, and (M,) the ranks."""
    plain, values = np.zeros(len(attrs.owner), np.bool_), np.zeros(len(attrs.owner), np.int64)
    inner = find_fields(raw, attrs.begin, attrs.end)
    if inner is None:
        return plain, values
    names = inner.only((inner.number == 1) & (inner.wire == 2) & (inner.end - inner.begin == len(RANK)))
    letters = raw[expand_ranges(names.begin, names.end - names.begin)].reshape(-1, len(RANK))
    named = np.zeros(len(attrs.owner), np.bool_)
    named[names.owner[(letters == np.frombuffer(RANK.encode(), np.uint8)).all(axis=1)]] = True
    numbers = inner.only(np.isin(inner.number, _INTS) & (inner.wire == 0))
    numbers_read = read_numbers(raw, numbers.place)[0]
    good = (numbers_read >= 0) & (numbers_read < 2**31)
    plain[numbers.owner[good]] = named[numbers.owner[good]]
    values[numbers.owner[good]] = numbers_read[good]
    return plain, values


def _parse_attribute(content: bytes) -> tuple[str, object]:
    """Return the name of an attribute, and its value where it is a whole number or a list of those."""
    name, pos = "", 0
    value: object = None
    while pos < len(content):
        number, wire_type, bits, start, pos, _damage = k.field(content, pos, len(content))
        if number == 1 and wire_type == 2:
            name = content[start:pos].decode("utf-8", "replace")
        elif number in _INTS and wire_type == 0:
            value = bits & (2**64 - 1)
        elif number == ValueKind.UINT64_LIST and wire_type == 2:
            value = _parse_list(content[start:pos])
    return name, value


def _parse_list(content: bytes) -> list[int]:
    """Return the numbers of a list."""
    numbers, pos = [], 0
    while pos < len(content):
        number, wire_type, _bits, start, after, _damage = k.field(content, pos, len(content))
        while number == 1 and wire_type == 2 and start < after:
            value, start = k.varint(content, start, after)
            numbers.append(value & (2**64 - 1))
        pos = after
    return numbers
