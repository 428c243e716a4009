"""Split node names such as `mb0.transformer.1.mha` into parts, a million names at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from studio.arrow import from_arrow, to_arrow
from studio.trace import Bool, Graph, Int64, UInt8

_SEPARATORS = b"./:"
_STOPS = b"@<( "
"""What begins the part of a name that is no level: arguments, types of templates, the suffix of generated names."""
_RETURNS = b"void "
"""How declarations of kernels begin."""
ENDED = -1
_SAMPLE = 20_000
_WORD = 8
"""Bytes of a piece that make a number."""


class NameParts:
    """The names of a graph's nodes, split into parts and searchable. Safe to share between threads.

    Parts are what separators (`.`, `/`, `:`, also doubled) stand between, up to the first `@`, `<`, `(` or blank. Of a kernel that a
    profiler names by its declaration (`void at::native::add<…>(…)`) the function's name with its namespaces is the one part.
    """

    def __init__(self, graph: Graph) -> None:
        self._pool, self._of = _collect_names(graph)
        self._offsets = np.frombuffer(self._pool.buffers()[1], np.int64)[: len(self._pool) + 1]
        self._data = np.frombuffer(self._pool.buffers()[2] or b"", np.uint8)
        self._small: pa.Array | None = None
        declared = _begin_with(self._data, self._offsets, _RETURNS)
        self._begins = self._offsets[:-1] + declared * len(_RETURNS)
        # Looked for in all of it at once: most texts hold few of the characters that are looked for.
        text = self._data.tobytes()
        self._has_zero = b"\0" in text
        self._ends = self._find_separators(_select_characters(text, _STOPS))
        cuts = np.flatnonzero(_is_any(self._data, _select_characters(text, _SEPARATORS)))
        # Of doubled separators the last one counts: of those that the same name has, not the next one.
        alone = np.append(cuts[1:] - cuts[:-1] > 1, np.full(min(len(cuts), 1), True))
        doubled = np.flatnonzero(~alone)
        if len(doubled):
            following = cuts[doubled + 1]
            alone[doubled] = self._offsets[np.searchsorted(self._offsets, following)] == following
        cuts = cuts if alone.all() else cuts[alone]
        self._has_uncut = bool(declared.any()) or not alone.all()
        if declared.any():
            cuts = cuts[~declared[np.searchsorted(self._offsets, cuts, side="right") - 1]]
        place = np.searchsorted(cuts, self._offsets)
        self._first, self._last = place[:-1], place[1:]
        stopped = np.flatnonzero(self._ends != self._offsets[1:])
        if len(stopped):
            self._last = self._last.copy()
            self._last[stopped] = np.searchsorted(cuts, self._ends[stopped])
        # One more, so that what lies behind the last one can be looked up too.
        self._cuts = np.append(cuts, 0)

    def keys(self, rows: Int64, depth: int) -> Int64:
        """Return (R,) numbers of the parts at a depth, equal for equal parts, `ENDED` where there is no such part."""
        here = np.full(len(self._pool), False)
        here[self._of[rows]] = True
        codes = np.flatnonzero(here)
        start, end = self._find_parts(codes, depth)
        numbers = np.full(len(here), ENDED, np.int64)
        has_part = start < end
        numbers[codes[has_part]] = _number_pieces(self._data, start[has_part], end[has_part], self._has_zero)
        return numbers[self._of[rows]]

    def label(self, row: int, depth: int) -> str:
        """Return the part of a node's name at a depth; the whole name where there is none."""
        return self.labels(np.array([row]), depth)[0]

    def labels(self, rows: Int64, depth: int) -> list[str]:
        """Return the parts of several nodes' names likewise."""
        codes = self._of[rows]
        start, end = self._find_parts(codes, depth)
        whole = start >= end
        start = np.where(whole, self._offsets[codes], start)
        end = np.where(whole, self._offsets[codes + 1], end)
        return [
            self._data[low:high].tobytes().decode("utf-8", "replace")
            for low, high in zip(start.tolist(), end.tolist(), strict=True)
        ]

    def share_with_parts(self) -> float:
        """Return the share of nodes with names of at least two parts; of many nodes a sample is checked."""
        rows = np.arange(0, len(self._of), max(1, len(self._of) // _SAMPLE))
        start, end = self._find_parts(self._of[rows], 1)
        return float((start < end).mean()) if len(rows) else 0.0

    def matching(self, pattern: str) -> Bool:
        """Return (N,) whether names match a regular expression of RE2.

        Raises:
            pa.ArrowInvalid: It is not a regular expression.
        """
        return self._fits(pc.match_substring_regex(self._pool, pattern=pattern))

    def containing(self, text: str, *, ignore_case: bool = True) -> Bool:
        """Return (N,) whether names contain a text."""
        if not ignore_case and text.encode() not in self._data.tobytes():
            return np.full(len(self._of), False)
        if ignore_case and text.isascii():
            # Three times as fast as comparing letter by letter whatever its case.
            return self._fits(pc.match_substring(self._lower_letters(), pattern=text.lower()))
        return self._fits(pc.match_substring(self._pool, pattern=text, ignore_case=ignore_case))

    def _lower_letters(self) -> pa.Array:
        """Return the names with A to Z in lower case."""
        if self._small is None:
            # Bytes below "A" come out above all letters: they wrap around.
            is_capital = (self._data - np.uint8(ord("A"))) < 26
            data = self._data | (is_capital.view(np.uint8) << 5)
            buffers = [None, pa.py_buffer(self._offsets), pa.py_buffer(data)]
            self._small = pa.Array.from_buffers(pa.large_binary(), len(self._pool), buffers)
        return self._small

    def sample(self) -> pa.Array:
        """Return some of the names: as many as can be checked quickly."""
        return self._pool[:: max(1, len(self._pool) // _SAMPLE)] if len(self._pool) > _SAMPLE else self._pool

    def _fits(self, mask: pa.Array) -> Bool:
        fits: Bool = from_arrow(mask).astype(np.bool_, copy=False)[self._of]
        return fits

    def _find_separators(self, characters: bytes) -> Int64:
        """Return the position of the first separator in each text, not at its start; its end where there is none."""
        begin, ends = self._begins, self._offsets[1:]
        if not characters:
            return ends
        stops = np.flatnonzero(_is_any(self._data, characters))
        place = np.searchsorted(stops, begin)
        first = np.where(place < len(stops), stops[np.minimum(place, len(stops) - 1)], ends)
        return np.where(first == begin, ends, np.minimum(first, ends))

    def _find_parts(self, codes: Int64, depth: int) -> tuple[Int64, Int64]:
        """Return where the parts at a depth begin and end in the texts; empty ranges for names without it."""
        ends, last, cuts = self._ends[codes], self._last[codes], self._cuts
        cut = self._first[codes] + depth
        start = self._begins[codes] if depth == 0 else cuts[np.minimum(cut, len(cuts)) - 1] + 1
        start = np.where(cut <= last, start, ends)
        end = np.where(cut < last, cuts[np.minimum(cut, len(cuts) - 1)], ends)
        if not self._has_uncut:
            return start, end
        # The first of doubled separators belongs to none of the parts.
        doubled = end > start
        doubled[doubled] = _is_any(self._data[end[doubled] - 1], _SEPARATORS)
        return start, end - doubled


def _collect_names(graph: Graph) -> tuple[pa.Array, Int64]:
    """Return the distinct names of nodes as bytes, also invalid UTF-8, and (N,) each node's name."""
    strings = graph.strings
    buffers = [None, pa.py_buffer(strings.offsets), pa.py_buffer(strings.data)]
    pool = pa.Array.from_buffers(pa.large_binary(), len(strings), buffers)
    used = np.full(len(strings), False)
    used[graph.name] = True
    codes = np.flatnonzero(used)
    if len(codes) and codes[-1] == len(codes) - 1:
        # They come before all other texts.
        size = int(strings.offsets[len(codes)])
        buffers = [None, pa.py_buffer(strings.offsets[: len(codes) + 1]), pa.py_buffer(strings.data[:size])]
        return pa.Array.from_buffers(pa.large_binary(), len(codes), buffers), graph.name.astype(np.int64)
    # Attributes have their texts in the same pool, often more than there are names.
    return pool.take(to_arrow(codes)), (np.cumsum(used) - 1)[graph.name]


def _begin_with(data: UInt8, offsets: Int64, prefix: bytes) -> Bool:
    """Return which texts begin with some bytes, and have more."""
    codes = np.flatnonzero(np.diff(offsets) > len(prefix))
    for place, byte in enumerate(prefix):
        codes = codes[data[offsets[codes] + place] == byte]
    begins: Bool = np.full(len(offsets) - 1, False)
    begins[codes] = True
    return begins


def _select_characters(text: bytes, characters: bytes) -> bytes:
    """Return those of some characters that a text holds."""
    return bytes(character for character in characters if character in text)


def _is_any(data: UInt8, characters: bytes) -> Bool:
    fits: Bool = data == characters[0] if characters else np.full(len(data), False)
    for character in characters[1:]:
        fits |= data == character
    return fits


def _number_pieces(data: UInt8, start: Int64, end: Int64, has_zero: bool) -> Int64:
    """Return (P,) numbers of pieces of a text, equal for equal pieces."""
    length = end - start
    if length.max(initial=0) <= _WORD <= len(data) and not has_zero:
        # A text with zeros in it could end in them, and they look like no text.
        return _number_words(data, start, length)
    offsets = np.zeros(len(start) + 1, np.int64)
    np.cumsum(length, out=offsets[1:])
    places = np.arange(int(offsets[-1])) + np.repeat(start - offsets[:-1], length)
    pieces = np.ascontiguousarray(data[places])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(pieces)]
    encoded = pa.Array.from_buffers(pa.large_binary(), len(start), buffers).dictionary_encode()
    return from_arrow(encoded.indices).astype(np.int64)


def _number_words(data: UInt8, start: Int64, length: Int64) -> Int64:
    """Return (P,) numbers of pieces that fit into a word, all of which are looked up at once."""
    last = len(data) - _WORD
    word_at = np.ndarray((last + 1,), "<u8", data, strides=(1,))
    masks = np.array([(1 << 8 * count) - 1 for count in range(_WORD + 1)], np.uint64)
    words = word_at[np.minimum(start, last)].astype(np.uint64, copy=False)
    # Of the pieces in the last word the bytes before them are in it, too.
    late = np.flatnonzero(start > last)
    words[late] >>= (8 * (start[late] - last)).astype(np.uint64)
    encoded = to_arrow(words & masks[length]).dictionary_encode()
    return from_arrow(encoded.indices).astype(np.int64)
