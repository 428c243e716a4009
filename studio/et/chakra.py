"""Read Chakra execution traces (`.et`, protobuf); `encode` writes them.

A file is a sequence of records, each a varint length followed by that many bytes: first the metadata, then
one record per node. There is no magic number, no footer and no count, so a cut file looks like a short one
until its last record; what comes before the damage is kept and the damage reported with its offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from studio.errors import TraceFormatError
from studio.et import kernel as k
from studio.et import wire
from studio.et.columns import number_by_use
from studio.et.encode import add_length, encode_varint
from studio.et.format import Part, RankPart, Reading
from studio.trace import (
    INT_KINDS,
    NONE,
    RANK_NAMES,
    SLOT_KEYS,
    TEXT_KINDS,
    UNSIGNED_KINDS,
    Attribute,
    Attributes,
    Dependencies,
    Finding,
    Graph,
    Int32,
    Int64,
    Rank,
    Strings,
    UInt64,
    ValueKind,
    build_kind_table,
    list_node_attributes,
    read_int_column,
)
from studio.units import format_counted

_LONGEST_US = (2**63 - 1) // 1000
_LAST_OBSOLETE_FIELD = 20
_MOST_ZEROS = 16
_LARGEST_RANK = 2**31 - 1
_MOST_KINDS = 256


def sniff(head: bytes) -> bool:
    """Whether `head` may start a Chakra file: a record that is a metadata or (obsolete) a node record."""
    if _is_text(head) or (len(head) > _MOST_ZEROS and not head[0] and not head.strip(b"\0")):
        return False  # every node has bytes that no text has; zeros would do as records without content
    size, begin = k.varint(head, 0, len(head))
    if begin < 0 or size < 0:
        return False
    end = begin + size
    # Ranks of a job mostly begin with the same record.
    return (
        _infer_record_kind(head[begin:end]) if end <= len(head) else _infer_kind_at(head, begin, end)
    ) != ""


def _infer_kind_at(data: bytes, begin: int, end: int) -> str:
    """Return 'metadata' or 'node' by the fields of a record, '' where it is neither.

    Metadata starts with a field of the schema; fields that only a newer schema knows may follow.
    """
    kind, pos, limit = "metadata", begin, min(end, len(data))
    first = True
    while pos < limit:
        number, wire_type, _value, start, after, damage = k.field(data, pos, limit)
        if damage != k.OK:
            # The head handed to `sniff` may cut the record short; what was seen so far decides.
            cut = end > len(data) and not first
            tag = data[pos]
            return kind if cut or (end > len(data) and tag in (0x0A, 0x12)) else ""
        if first and number == 1 and wire_type == 0:
            kind = "node"
        if not (
            _fits_node(number)
            if kind == "node"
            else _fits_metadata(number, wire_type, data[start:after], first)
        ):
            return ""
        first, pos = False, after
    return kind


@lru_cache(maxsize=4)
def _infer_record_kind(record: bytes) -> str:
    return _infer_kind_at(record, 0, len(record))


def _fits_node(number: int) -> bool:
    return number <= _LAST_OBSOLETE_FIELD


def _fits_metadata(number: int, wire_type: int, content: bytes, first: bool) -> bool:
    if number > 2:
        return not first
    return wire_type == 2 and (number == 2 or _is_text(content))


def _is_text(raw: bytes) -> bool:
    return all(byte >= 32 or byte in (9, 10, 13) for byte in raw)


def read(reading: Reading) -> list[Part]:
    """Read one `.et` file into the graph and identity of its rank.

    Raises:
        TraceFormatError: It is no Chakra file, or uses the obsolete v0.0.1 layout.
    """
    head = read_metadata(reading.data, reading.name)
    nodes = read_nodes(reading, head)
    return [build_rank_part(reading, head, nodes)]


@dataclass(frozen=True, slots=True)
class Metadata:
    """The first record of a file.

    Attributes:
        version: Schema version.
        attrs: Attributes.
        extra: Fields this version does not know.
        end: Where the node records begin.
        findings: What is wrong with it.
    """

    version: str
    attrs: tuple[Attribute, ...]
    extra: bytes
    end: int
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Nodes:
    """The node records of a file.

    Attributes:
        graph: What they say, apart from the values of its slots.
        slots: These.
        damage: Where the file is damaged, if it is.
        findings: What else was noticed.
    """

    graph: Graph
    slots: tuple[int | str, ...]
    damage: tuple[Finding, ...] = ()
    findings: tuple[Finding, ...] = ()


def read_nodes(reading: Reading, head: Metadata) -> Nodes:
    """Read what follows the metadata."""
    columns = wire.read_columns(reading.data, head.end, reading.tick, reading.total_bytes)
    damage = (_build_damage_finding(columns, reading.name, len(reading.data)),) if columns.damage else ()
    draft = _Draft(columns)
    graph = draft.graph()
    findings = tuple(_build_reader_findings(graph, columns, draft, reading.name))
    return Nodes(graph, draft.slot_values, damage, findings)


def build_rank_part(reading: Reading, head: Metadata, nodes: Nodes) -> RankPart:
    """Return the rank that a file describes."""
    findings = (*reading.findings, *nodes.damage, *head.findings, *nodes.findings)
    rank = Rank(NONE, NONE, nodes.slots, head.version, head.attrs, head.extra, reading.name)
    return RankPart(rank, nodes.graph, read_rank_number(head.attrs), findings)


def read_metadata(data: bytes | memoryview, name: str) -> Metadata:
    """Read the first record, refusing files that are something else."""
    size, begin = k.varint(data, 0, min(len(data), 16))
    if begin < 0 or size < 0 or size > len(data) - begin:
        raise TraceFormatError(
            f"{name}: the first record does not fit the file: it claims {max(size, 0):,} bytes of {len(data):,}.",
            hint="The file is cut off within its first record, or it is not a Chakra execution trace.",
        )
    record = bytes(data[begin : begin + size])
    kind = _infer_record_kind(record)
    if kind == "node":
        raise TraceFormatError(
            f"{name}: obsolete Chakra layout v0.0.1 (the first record is a node; since v0.0.4 it is the metadata).",
            hint="Field numbers changed meaning since, so it cannot be read safely. "
            "Convert it with the Chakra release that wrote it, or record the trace again.",
        )
    if kind != "metadata":
        raise TraceFormatError(
            f"{name}: the first record is not Chakra metadata (expected field 1 'version', field 2 attributes).",
            hint="The file is damaged at its start or is not a Chakra execution trace.",
        )
    return _parse_sound_metadata(record, begin) or _parse_checked_metadata(record, begin, name)


@lru_cache(maxsize=4)
def _parse_sound_metadata(record: bytes, begin: int) -> Metadata | None:
    """Return the metadata of a record, None where something is wrong with it; ranks of a job often have the same."""
    metadata = _parse_checked_metadata(record, begin, "")
    return None if metadata.findings else metadata


def _parse_checked_metadata(record: bytes, begin: int, name: str) -> Metadata:
    """Return the metadata of a record, and findings about it."""
    version, attrs, extra, columns, bad_texts = _parse_metadata(record)
    findings = [*_build_lost_field_findings(columns, name), *_build_bad_text_findings(bad_texts, name)]
    if columns.damage:
        message = f"{name}: {columns.damage} in the metadata at byte {begin:,}; its attributes are lost."
        findings.append(Finding("error", "damaged-metadata", message, file=name, offset=begin))
    return Metadata(version, attrs, extra, begin + len(record), tuple(findings))


@lru_cache(maxsize=4)
def _parse_metadata(record: bytes) -> tuple[str, tuple[Attribute, ...], bytes, wire.Columns, int]:
    """Read a metadata record by wrapping it as a node: both hold attributes. Ranks of a job often have the same.

    Returns:
        Version, attributes, unknown fields, columns of the attributes, and how many texts are not UTF-8.
    """
    version, extra, body, pos = b"", bytearray(), bytearray(), 0
    while pos < len(record):
        number, wire_type, _value, start, after, _damage = k.field(record, pos, len(record))
        if number == 1 and wire_type == 2:
            version = record[start:after]
        elif number == 2 and wire_type == 2:
            # Field 2 of the metadata is field 10 of a node.
            body += b"\x52" + encode_varint(after - start) + record[start:after]
        else:
            extra += record[pos:after]
        pos = after
    columns = wire.read_columns(add_length(bytes(body)), 0, lambda _done: None, 0)
    graph = _Draft(columns, slot_keys=()).graph()
    attrs = tuple(list_node_attributes(graph, 0)) if len(graph) else ()
    bad_texts = _count_bad_texts(graph) + (not _is_utf8(version))
    return version.decode("utf-8", "replace"), attrs, bytes(extra), columns, bad_texts


def read_rank_number(attrs: Sequence[Attribute]) -> int | None:
    """Return the rank that a file's metadata names, None where it names none."""
    for attr in attrs:
        if attr.name in RANK_NAMES and isinstance(attr.value, int | str):
            text = str(attr.value)
            if text.isdecimal() and len(text) <= 10 and int(text) <= _LARGEST_RANK:
                return int(text)
    return None


class _Draft:
    """Turns the kernel's columns into a Graph: numbers texts, resolves ids, takes out slots."""

    def __init__(self, columns: wire.Columns, slot_keys: Sequence[str] = SLOT_KEYS) -> None:
        self.out, self.pool = columns.out, columns.strings
        self.slot_keys = slot_keys
        self.extra_texts: dict[bytes, int] = {}
        self.slot_values: tuple[int | str, ...] = ()
        self.impossible_times = 0
        self.bad_slots = 0

    def _add(self, text: bytes) -> int:
        """Add a text that is not in the file and return its code."""
        return self.extra_texts.setdefault(text, len(self.pool) + len(self.extra_texts))

    def graph(self) -> Graph:
        """Return the graph; also sets `slot_values`."""
        out = self.out
        ids = out[k.IDS].view(np.uint64)
        extra_row, extra = out[k.EXTRA][:, 0].astype(np.int32), out[k.EXTRA][:, 1].astype(np.int32)
        start_ns, duration_ns, extra_row, extra = self._compute_times(extra_row, extra)
        texts = {"name": self._name_codes(out[k.NAMES]), "io": self._build_io()}
        attrs, slot_key = self._build_attributes()
        scalars = build_kind_table((ValueKind.STRING, ValueKind.BYTES))[attrs.kind] & ~attrs.slot
        listed = np.repeat(build_kind_table(TEXT_KINDS)[attrs.kind], attrs.length)
        texts |= {"key": attrs.key, "doc": attrs.doc, "value": attrs.value[scalars].astype(np.int32)}
        texts |= {"items": attrs.items[listed].astype(np.int32), "extra": extra, "slot": slot_key}
        strings, coded = self._renumber_texts(texts)
        attrs.value[scalars] = coded["value"]
        attrs.items[listed] = coded["items"]
        ends = out[k.ENDS]
        finished = Attributes(
            attrs.offsets,
            coded["key"],
            coded["doc"],
            attrs.kind,
            attrs.value,
            attrs.length,
            attrs.slot,
            attrs.items,
        )
        graph = Graph(
            id=ids,
            type=out[k.TYPES],
            name=coded["name"],
            start_ns=start_ns,
            duration_ns=duration_ns,
            ctrl=_resolve(ids, _compute_offsets(ends[:, 0]), out[k.CTRL_IDS].view(np.uint64)),
            data=_resolve(ids, _compute_offsets(ends[:, 1]), out[k.DATA_IDS].view(np.uint64)),
            io=coded["io"],
            attrs=finished,
            slot_key=coded["slot"],
            extra_row=extra_row,
            extra=coded["extra"],
            strings=strings,
        )
        return _take_precise_times(graph)

    def _name_codes(self, column: Int32) -> Int32:
        """Return a column of text codes, missing ones as "", which is what proto3 means by them."""
        column[column == NONE] = 0
        return column

    def _build_io(self) -> Int32:
        """Return the (N, 6) texts of inputs and outputs, (0, 6) where no node has any."""
        io, flags = self.out[k.IO], self.out[k.FLAGS]
        if not (flags & (k.HAS_INPUTS | k.HAS_OUTPUTS)).any():
            return np.empty((0, 6), np.int32)
        coded: Int32 = io
        for bit, columns in ((k.HAS_INPUTS, slice(0, 3)), (k.HAS_OUTPUTS, slice(3, 6))):
            part = coded[:, columns]
            part[((flags & bit) != 0)[:, None] & (part == NONE)] = 0
        return coded

    def _compute_times(self, extra_row: Int32, extra: Int32) -> tuple[Int64, Int64, Int32, Int32]:
        """Return start and duration in ns.

        Times beyond 292 years do not fit; they are kept verbatim among the unknown fields and counted.
        """
        start_us, duration_us = self.out[k.STARTS], self.out[k.DURATIONS]
        has_start = (self.out[k.FLAGS] & k.HAS_START) != 0
        rows, codes = [extra_row], [extra]
        for column, tag in ((start_us, b"\x30"), (duration_us, b"\x38")):
            bad = np.flatnonzero((column < 0) | (column > _LONGEST_US)).astype(np.int32)
            self.impossible_times += len(bad)
            fields = [tag + encode_varint(time) for time in column[bad].view(np.uint64).tolist()]
            rows.append(bad)
            codes.append(np.array([self._add(raw) for raw in fields], np.int32))
            column[bad] = 0
            if tag == b"\x30":
                has_start[bad] = False
        start_ns, duration_ns = np.where(has_start, start_us * 1000, NONE), duration_us * 1000
        if not self.impossible_times:
            return start_ns, duration_ns, extra_row, extra
        every = np.concatenate(rows)
        order = np.argsort(every, kind="stable")
        return start_ns, duration_ns, every[order], np.concatenate(codes)[order]

    def _build_attributes(self) -> tuple[Attributes, Int32]:
        """Return the attributes, texts still coded by the draft's pool, with slots taken out."""
        out = self.out
        key, doc = self._name_codes(out[k.KEYS]), out[k.DOCS]
        doc[doc == 0] = NONE  # the text "" is always the first
        kind, length, value = out[k.KINDS], out[k.LENGTHS], out[k.VALUES]
        value, items = _pack_items(kind, length, value, out[k.ITEM])
        slot, slot_key = self._number_slots(key, kind, value)
        offsets = _compute_offsets(out[k.ENDS][:, 2])
        return Attributes(offsets, key, doc, kind, value, length, slot, items), slot_key

    def _number_slots(self, key: Int32, kind: Any, value: Int64) -> tuple[Any, Int32]:
        """Replace values of `slot_keys` by slot numbers, given in order of appearance."""
        codes = [code for name in self.slot_keys if (code := self.pool.find(name)) != NONE]
        if not codes:
            return np.zeros(len(key), np.bool_), np.empty(0, np.int32)
        slot = np.isin(key, codes) & build_kind_table((*INT_KINDS, ValueKind.STRING))[kind]
        where = np.flatnonzero(slot)
        if not len(where):
            return slot, np.empty(0, np.int32)
        named = np.stack([key[where].astype(np.int64), kind[where].astype(np.int64), value[where]])
        # Numbers of their own for keys with kinds, and for values: sorting whole columns takes three times as long.
        _, mark = np.unique(named[0] * _MOST_KINDS + named[1], return_inverse=True)
        _, bits = np.unique(named[2], return_inverse=True)
        together = mark * (int(bits.max()) + 1) + bits
        _, first, inverse = np.unique(together, return_index=True, return_inverse=True)
        order = np.argsort(first)
        number = np.empty(len(order), np.int64)
        number[order] = np.arange(len(order))
        chosen = named[:, first[order]].T.tolist()
        self.slot_values = tuple(
            self.pool[bits] if kind == ValueKind.STRING else _convert_slot(kind, bits)
            for _, kind, bits in chosen
        )
        texts = [self.pool.raw(bits) for _, kind, bits in chosen if kind == ValueKind.STRING]
        self.bad_slots = sum(not _is_utf8(text) for text in texts)
        value[where] = number[inverse.reshape(-1)]
        return slot, np.array([code for code, _, _ in chosen], np.int32)

    def _renumber_texts(self, columns: dict[str, Int32]) -> tuple[Strings, dict[str, Int32]]:
        """Renumber texts by first use, column after column, and drop those no column uses.

        Equal graphs get equal pools, however their files order fields.
        """
        pool = self._join_pools()
        order, renumber = number_by_use(columns.values(), len(pool))
        strings = wire.select_texts(pool, order)
        for column in columns.values():
            _renumber(column, renumber)
        return strings, columns

    def _join_pools(self) -> Strings:
        if not self.extra_texts:
            return self.pool
        added = Strings.of(self.extra_texts)
        data = np.concatenate((self.pool.data, added.data))
        return Strings(data, np.concatenate((self.pool.offsets, added.offsets[1:] + self.pool.offsets[-1])))


def _renumber(column: Int32, numbers: Int32) -> None:
    """Replace indices in place; -1 becomes the last of `numbers`. Works in slices to save memory."""
    flat = column.reshape(-1)
    for start in range(0, len(flat), 1 << 18):
        piece = flat[start : start + (1 << 18)]
        piece[:] = numbers[piece]


def _convert_slot(kind: int, bits: int) -> int:
    return bits & 0xFFFF_FFFF_FFFF_FFFF if kind in UNSIGNED_KINDS else bits


def _pack_items(kind: Any, length: Int32, value: Int64, items: Int64) -> tuple[Int64, Int64]:
    """Return list starts and items, without items of lists that a later value replaced."""
    lists = (kind % 2 == 0) & (kind > 0)
    if not lists.any():
        return value, items[:0]
    total = int(length.sum())
    starts = np.zeros(len(length), np.int64)
    np.cumsum(length[:-1], out=starts[1:])
    if total != len(items):
        pick = np.repeat(value - starts, length) + np.arange(total)
        items = items[pick]
    return np.where(lists, starts, value), items


def _compute_offsets(ends: Int64) -> Int64:
    return np.concatenate((np.zeros(1, np.int64), ends))


def count_repeats(ids: UInt64) -> int:
    """Return how many ids an earlier node has already."""
    if (ids[1:] > ids[:-1]).all():
        return 0
    # Not np.unique, which imports masked arrays.
    ordered = np.sort(ids)
    return int((ordered[1:] == ordered[:-1]).sum())


def _resolve(ids: UInt64, offsets: Int64, wanted: UInt64) -> Dependencies:
    """Turn the ids that nodes wait for into rows; of several nodes with one id the first counts."""
    if not len(wanted):
        return Dependencies(offsets, np.empty(0, np.int32), np.empty(0, np.uint64))
    if len(ids) and int(ids[-1]) - int(ids[0]) == len(ids) - 1 and (ids[1:] > ids[:-1]).all():
        # One after another, as most writers number nodes: an id is a row. Too small ones wrap around, beyond the rows.
        place = (wanted - ids[0]).astype(np.uint64)
        known = place < len(ids)
        numbered: Int32 = np.where(known, place, 0).astype(np.int32)
        away = np.flatnonzero(~known)
        numbered[away] = -1 - np.arange(len(away))
        return Dependencies(offsets, numbered, wanted[away])
    order = np.argsort(ids, kind="stable") if (ids[1:] < ids[:-1]).any() else None
    sorted_ids = ids if order is None else ids[order]
    place = np.searchsorted(sorted_ids, wanted)
    exists = place < len(ids)
    exists[exists] = sorted_ids[place[exists]] == wanted[exists]
    rows = np.empty(len(wanted), np.int32)
    rows[exists] = place[exists] if order is None else order[place[exists]]
    missing = np.flatnonzero(~exists)
    rows[missing] = -1 - np.arange(len(missing))
    return Dependencies(offsets, rows, wanted[missing])


def _take_precise_times(graph: Graph) -> Graph:
    """Take times from the nanosecond attributes where they agree with the microsecond fields."""
    for key, column in (("start_ns", graph.start_ns), ("duration_ns", graph.duration_ns)):
        if graph.strings.find(key) == NONE:
            continue
        rows, values = read_int_column(graph, key)
        agree = (column[rows] >= 0) & (values // 1000 == column[rows] // 1000) & (values >= 0)
        column[rows[agree]] = values[agree]
    return graph


def _build_damage_finding(columns: wire.Columns, name: str, size: int) -> Finding:
    kept = columns.counts[k.NODES]
    return Finding(
        "error",
        "damaged-file",
        f"{name}: {columns.damage} at byte {columns.damage_at:,} of {size:,}; "
        f"{format_counted(kept, 'node')} before it {'was' if kept == 1 else 'were'} read, what follows is lost.",
        hint="Copy or record the file again; a recording process that was killed leaves such a file.",
        file=name,
        offset=columns.damage_at,
    )


def _build_reader_findings(
    graph: Graph, columns: wire.Columns, draft: _Draft, name: str
) -> Iterator[Finding]:
    """Yield findings about a file that can be read."""

    def build_finding(
        code: str, count: int, message: str, hint: str, level: Any = "warning"
    ) -> Iterator[Finding]:
        if count:
            yield Finding(level, code, f"{name}: {message}: {count:,}.", hint, file=name)

    yield from build_finding(
        "dangling-dependency",
        len(graph.ctrl.dangling) + len(graph.data.dangling),
        "dependencies on nodes that the file does not have",
        "They are kept and shown, but nothing can wait for them; a simulator may hang or ignore them.",
    )
    yield from build_finding(
        "duplicate-id",
        count_repeats(graph.id),
        "nodes that repeat the id of an earlier node",
        "A dependency on such an id is taken to mean its first node.",
    )
    yield from build_finding(
        "unknown-type",
        int(((graph.type <= 0) | (graph.type > 7)).sum()),
        "nodes without a type, or with one that the schema does not define",
        "Simulators refuse such nodes.",
    )
    yield from build_finding(
        "unknown-field",
        len(graph.extra) - draft.impossible_times,
        "fields unknown to this schema version, kept and written back as they are",
        "A newer tool wrote the file.",
        "info",
    )
    yield from build_finding(
        "impossible-time",
        draft.impossible_times,
        "times longer than 292 years, kept but shown as not recorded",
        "The tool that wrote the file overflowed.",
    )
    yield from _build_lost_field_findings(columns, name)
    yield from _build_bad_text_findings(_count_bad_texts(graph) + draft.bad_slots, name)


def _build_lost_field_findings(columns: wire.Columns, name: str) -> Iterator[Finding]:
    """Yield findings about fields that the model has no place for."""
    if count := columns.counts[k.NESTED]:
        message = f"{name}: unknown fields inside attributes, inputs or outputs, left out: {count:,}."
        hint = "They would be lost when the trace is written again."
        yield Finding("warning", "dropped-field", message, hint, file=name)


def _build_bad_text_findings(count: int, name: str) -> Iterator[Finding]:
    """Yield findings about texts that are not UTF-8."""
    if count:
        message = f"{name}: texts that are not valid UTF-8, bad bytes shown as \N{REPLACEMENT CHARACTER}: {count:,}."
        hint = "Tools built on protobuf refuse the file; writing it with Chakra Studio fixes it."
        yield Finding("warning", "bad-text", message, hint, file=name)


def _count_bad_texts(graph: Graph) -> int:
    """Return how many texts that should be UTF-8 are not."""
    strings = graph.strings
    if not (strings.data > 127).any():
        return 0
    high = np.zeros(len(strings.data) + 1, np.int64)
    np.cumsum(strings.data > 127, out=high[1:])
    suspects = np.flatnonzero(high[strings.offsets[1:]] > high[strings.offsets[:-1]])
    attrs = graph.attrs
    raw = attrs.value[(attrs.kind == ValueKind.BYTES) & ~attrs.slot]
    raw = np.concatenate(
        (raw, attrs.items[np.repeat(attrs.kind == ValueKind.BYTES_LIST, attrs.length)], graph.extra)
    )
    return sum(not _is_utf8(strings.raw(index)) for index in np.setdiff1d(suspects, raw).tolist())


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
