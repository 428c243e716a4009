"""Run the kernel over the bytes of a file: compiled where it pays, interpreted where it does not.

Numba takes half a second to import and, once per installation, a few seconds to compile the kernel. Small
files are read interpreted, so nobody waits for either.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from studio.et import kernel as k
from studio.machine_code import Entry, Items, Number, prepare_functions
from studio.native import Kernel
from studio.trace import NONE, Int32, Int64, Strings, UInt8, ValueKind

DAMAGE = {
    k.CUT_RECORD: "the file ends inside a record",
    k.BAD_VARINT: "a variable-length integer does not end",
    k.BAD_TAG: "a field has an impossible number or wire type",
    k.OVERRUN: "a field claims more bytes than its record has",
    k.ZEROS: "the file is filled with zero bytes",
}

INTERPRETED_BYTES = 50_000
INTERPRETED_COLD_BYTES = 3_000_000
"""Above these sizes compiling pays: when the installation has compiled before, and when it has not."""

SLICE_BYTES = 1 << 24

_FUNCTIONS = (
    *("varint", "fixed", "low32", "scalar", "wire_of", "walk"),
    *("word", "text_hash", "same_text", "copy", "intern", "fill_table", "gather", "find_first_uses"),
)
"""What is compiled, callees before their callers."""
_BYTES, _INT32S, _INT64S, _HASHES = Items("uint8"), Items("int32"), Items("int64"), Items("uint64")
_COLUMNS = (
    *(_INT64S, _INT32S, _INT64S, _INT64S, _INT32S, _BYTES, Items("int32", 2), Items("int64", 2)),
    *(_INT64S, _INT64S, _INT32S, _INT32S, _BYTES, _INT64S, _INT32S),
    *(_INT64S, _INT64S, _INT32S, Items("int64", 2)),
)
"""What `_allocate` returns."""
_STATE = (_INT64S, _HASHES, _INT64S, _BYTES)
_ENTRIES = (
    Entry("walk", (_BYTES, Number(), Number(), _COLUMNS, _INT64S, Number("bool"), Number()), answers=False),
    Entry("intern", (_BYTES, _INT64S, _INT32S, _INT32S, _STATE, _INT64S, Number("uint64")), answers=False),
    Entry("fill_table", (_INT64S, _HASHES, Number()), answers=False),
    Entry("gather", (_BYTES, _INT64S, _INT32S, _BYTES), answers=False),
    Entry("find_first_uses", (_INT32S, _INT64S), answers=False),
)

Buffer = bytes | memoryview
Tick = Callable[[int], None]
"""Called with the bytes done so far; may raise to stop the reading."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that the kernel filled.

    Attributes:
        out: The kernel's columns, see the names in `kernel`; texts are indices into `strings`.
        counts: The kernel's counters.
        strings: The distinct texts, "" first, then by appearance; those of replaced values are among them.
    """

    out: tuple[Any, ...]
    counts: list[int]
    strings: Strings

    @property
    def damage(self) -> str:
        """What is wrong at `damage_at`; empty where the file is sound."""
        return DAMAGE.get(self.counts[k.ERROR], "")

    @property
    def damage_at(self) -> int:
        """Offset of the first record that could not be read."""
        return self.counts[k.ERROR_AT]


def read_columns(data: Buffer, start: int, tick: Tick, total_bytes: int) -> Columns:
    """Read the node records of `data` from offset `start`.

    Args:
        data: The whole file.
        start: Where the first node record begins.
        tick: Told the bytes done, out of twice the file (one pass to count, one to fill).
        total_bytes: Size of all files of the job, which decides whether compiling pays.
    """
    engine = _Engine(data, is_worth_compiling(max(total_bytes, len(data))))
    counts, most_texts, end = _count_entries(engine, start, tick)
    out = _allocate(counts, most_texts)
    texts = engine.interner()
    counters = engine.counters()
    while start < end:
        row, attr, item = counters[k.NODES], counters[k.ATTRS], counters[k.ITEMS]
        counters[k.TEXTS] = 0
        engine.walk(start, end, out, counters, True)
        start = int(counters[k.GOOD_END])
        used = counters[k.TEXTS]
        codes = texts.codes(engine.buffer, out[k.TEXT_START][:used], out[k.TEXT_LENGTH][:used])
        _recode(
            out,
            codes,
            slice(row, counters[k.NODES]),
            slice(attr, counters[k.ATTRS]),
            slice(item, counters[k.ITEMS]),
        )
        _recode_extras(out, codes, int(row))
        engine.forget(start)
        tick(len(data) + start)
    return Columns(out, counts, texts.strings())


def scan_records(data: Buffer, start: int, tick: Tick, total_bytes: int) -> tuple[int, str, int]:
    """Look at the node records of `data` from offset `start` without keeping anything.

    Args:
        data: The whole file.
        start: Where the first node record begins.
        tick: Told the bytes looked at.
        total_bytes: Bytes that will be looked at in all.

    Returns:
        Where the last sound record ends, what is wrong behind it ("" where nothing is), and how many records are sound.
    """
    engine = _Engine(data, is_worth_compiling(max(total_bytes, len(data))))
    counts, _, end = _count_entries(engine, start, tick)
    return end, DAMAGE.get(counts[k.ERROR], ""), counts[k.NODES]


def _count_entries(engine: _Engine, start: int, tick: Tick) -> tuple[list[int], int, int]:
    """Count entries without storing them; return counters, most texts in a slice, and the last record's end."""
    counters, most, empty = engine.counters(), 0, _allocate([0] * k.COUNTERS, 0)
    while True:
        before = int(counters[k.TEXTS])
        engine.walk(start, len(engine.data), empty, counters, False)
        most = max(most, int(counters[k.TEXTS]) - before)
        start = int(counters[k.GOOD_END])
        engine.forget(start)
        tick(start)
        if start >= len(engine.data) or counters[k.ERROR] != k.OK:
            return [int(count) for count in counters], most, start


class _Engine:
    """The kernel over one buffer, compiled or interpreted."""

    def __init__(self, data: Buffer, native: bool) -> None:
        self.data, self.native = data, native
        self.buffer: Any = np.frombuffer(data, np.uint8) if native else bytes(data)

    def counters(self) -> Any:
        return np.zeros(k.COUNTERS, np.int64) if self.native else [0] * k.COUNTERS

    def walk(self, start: int, end: int, out: tuple[Any, ...], counters: Any, fill: bool) -> None:
        walk = load_kernel().walk if self.native else k.walk
        walk(self.buffer, start, end, out, counters, fill, SLICE_BYTES)

    def interner(self) -> CompiledInterner | _DictInterner:
        return CompiledInterner() if self.native else _DictInterner()

    def forget(self, done: int) -> None:
        """Give pages of a mapped file that were read back to the system."""
        mapping = getattr(self.data, "obj", None)
        if isinstance(mapping, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            mapping.madvise(mmap.MADV_DONTNEED, 0, done - done % mmap.PAGESIZE)


class _DictInterner:
    def __init__(self) -> None:
        self.known: dict[bytes, int] = {b"": 0}

    def codes(self, buffer: bytes, starts: Int64, lengths: Int32) -> Int32:
        known = self.known
        pairs = zip(starts.tolist(), lengths.tolist(), strict=True)
        return np.array([known.setdefault(buffer[s : s + n], len(known)) for s, n in pairs], np.int32)

    def strings(self) -> Strings:
        return Strings.of(self.known)


class CompiledInterner:
    """Numbers texts by first appearance, "" first."""

    def __init__(self) -> None:
        self.table, self.hashes = np.full(1024, -1, np.int64), np.empty(512, np.uint64)
        self.offsets, self.pool = np.zeros(513, np.int64), np.empty(1 << 16, np.uint8)
        # Texts done of those at hand, distinct ones in all.
        self.counts = np.zeros(2, np.int64)
        # Seeded by chance, so that no file can be made to collide; the numbering does not depend on it.
        self.seed = int.from_bytes(os.urandom(8), "little")
        self.codes(np.frombuffer(b"\0", np.uint8), np.zeros(1, np.int64), np.zeros(1, np.int32))

    def codes(self, buffer: UInt8, starts: Int64, lengths: Int32) -> Int32:
        """Return the numbers (M,) of texts, given by where they are."""
        codes = np.empty(len(starts), np.int32)
        intern = load_kernel().intern
        self.counts[0] = 0
        while True:
            state = self.table, self.hashes, self.offsets, self.pool
            intern(buffer, starts, lengths, codes, state, self.counts, self.seed)
            done = int(self.counts[0])
            if done == len(starts):
                return codes
            self._make_room(int(lengths[done]))

    def _make_room(self, length: int) -> None:
        """Grow what has no room for another text of this length."""
        count = int(self.counts[1])
        end = int(self.offsets[count]) + length
        if end > len(self.pool):
            self.pool = _lengthen(self.pool, max(end, len(self.pool) * 3 // 2))
        if count + 1 == len(self.offsets):
            self.hashes = _lengthen(self.hashes, 2 * count)
            self.offsets = _lengthen(self.offsets, 2 * count + 1)
        if 2 * count >= len(self.table):
            self.table = np.full(4 * len(self.table), -1, np.int64)
            load_kernel().fill_table(self.table, self.hashes, count)

    def strings(self) -> Strings:
        """Return all texts, by number."""
        count = self.counts[1]
        return Strings(self.pool[: self.offsets[count]], self.offsets[: count + 1])


def _lengthen(array: Any, length: int) -> Any:
    """Return a copy of an array with room for more at its end."""
    longer = np.empty(length, array.dtype)
    longer[: len(array)] = array
    return longer


def _recode(out: tuple[Any, ...], codes: Int32, rows: slice, attrs: slice, items: slice) -> None:
    """Turn text numbers of one slice into indices of the pool."""
    # The extra entry at the end is what -1, "no text", picks.
    table = np.append(codes, np.int32(NONE))
    for column, part in ((k.NAMES, rows), (k.IO, rows), (k.KEYS, attrs), (k.DOCS, attrs)):
        out[column][part] = table[out[column][part]]
    kinds, values = out[k.KINDS][attrs], out[k.VALUES][attrs]
    texts = (kinds == ValueKind.STRING) | (kinds == ValueKind.BYTES)
    values[texts] = table[values[texts]]
    lists, item_codes = (kinds == ValueKind.STRING_LIST) | (kinds == ValueKind.BYTES_LIST), out[k.ITEM][items]
    lengths = out[k.LENGTHS][attrs]
    where = np.repeat(lists, lengths)
    if len(where) == len(item_codes):
        item_codes[where] = table[item_codes[where]]
        return
    # A damaged or odd file left items that belong to no attribute: go list by list.
    for row in np.flatnonzero(lists).tolist():
        part = slice(values[row], values[row] + lengths[row])
        out[k.ITEM][part] = table[out[k.ITEM][part]]


def _recode_extras(out: tuple[Any, ...], codes: Int32, row: int) -> None:
    extra = out[k.EXTRA]
    part = extra[:, 0] >= row
    part &= extra[:, 1] < len(codes)
    extra[part, 1] = codes[extra[part, 1]]


def gather(data: UInt8, starts: Int64, lengths: Int32) -> UInt8:
    """Return the texts of a pool, one after another."""
    if KERNEL.loaded is None:
        raw, pieces = data.tobytes(), zip(starts.tolist(), lengths.tolist(), strict=True)
        return np.frombuffer(b"".join([raw[s : s + n] for s, n in pieces]), np.uint8)
    target: UInt8 = np.empty(int(lengths.sum()), np.uint8)
    source = np.ascontiguousarray(data)
    load_kernel().gather(source, starts.astype(np.int64), lengths.astype(np.int32), target)
    return target


def select_texts(pool: Strings, codes: Int64) -> Strings:
    """Return some texts of a pool, in this order."""
    lengths = np.diff(pool.offsets)[codes].astype(np.int32)
    offsets = np.zeros(len(codes) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return Strings(gather(pool.data, pool.offsets[:-1][codes], lengths), offsets)


def find_first_uses(codes: NDArray[np.integer], count: int) -> Int64:
    """Return where each of `count` codes is used first among some (M,), M where it is not used; -1 is no code."""
    # The place behind all codes is where -1 writes.
    first = np.full(count + 1, len(codes), np.int64)
    if KERNEL.loaded is None:
        # The last write wins: backwards, so that it is the first use.
        first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    else:
        load_kernel().find_first_uses(np.ascontiguousarray(codes, np.int32), first)
    return first[:-1]


def _allocate(counts: list[int], texts: int) -> tuple[Any, ...]:
    """Return columns of the counted sizes, in the order of the names in `kernel`."""
    nodes, attrs = counts[k.NODES], counts[k.ATTRS]
    per_node: list[Any] = [
        np.empty(nodes, t) for t in (np.int64, np.int32, np.int64, np.int64, np.int32, np.uint8)
    ]
    ragged = [np.empty((nodes, 6), np.int32), np.empty((nodes, 3), np.int64)]
    deps = [np.empty(counts[k.CTRL], np.int64), np.empty(counts[k.DATA], np.int64)]
    per_attr: list[Any] = [np.empty(attrs, t) for t in (np.int32, np.int32, np.uint8, np.int64, np.int32)]
    rest = [np.empty(counts[k.ITEMS], np.int64), np.empty(texts, np.int64), np.empty(texts, np.int32)]
    return (*per_node, *ragged, *deps, *per_attr, *rest, np.empty((counts[k.EXTRAS], 2), np.int64))


KERNEL = Kernel(k, __name__, _ENTRIES, prepare_functions(_FUNCTIONS, _ENTRIES))


def load_kernel() -> Any:
    """Return the kernel, compiled. Takes seconds the first time an installation asks, then from a file."""
    return KERNEL.load()


def is_worth_compiling(total_bytes: int) -> bool:
    """Whether a job of this size is read faster compiled, including the wait for the compiler."""
    if KERNEL.loaded is not None:
        return True
    return total_bytes > (INTERPRETED_BYTES if KERNEL.is_cached() else INTERPRETED_COLD_BYTES)
