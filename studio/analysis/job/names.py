"""Search and sort node names in lower case, each distinct text of a graph once."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from studio.arrow import convert_optional_texts, from_arrow, to_arrow
from studio.trace import NONE, Graph, Int32, Int64, Strings, UInt8, UInt64

_LONGEST_WORDED = 64


@dataclass(frozen=True, slots=True)
class Names:
    """The names of all graphs.

    M names, N nodes of a graph.

    Attributes:
        lower: (M,) names in lower case; those of different graphs may be equal.
        index: For each graph (N,) where the name of a node is.
    """

    lower: pa.LargeStringArray
    index: list[Int32]


class JobNames:
    """The names of a job's nodes, computed when first asked for. Safe to share between threads."""

    def __init__(self, graphs: tuple[Graph, ...]) -> None:
        self._graphs = graphs
        self._lock = threading.RLock()
        self._pool: Names | None = None
        self._keys: Int64 | None = None

    def pool(self) -> Names:
        """Return the names of all graphs."""
        with self._lock:
            if self._pool is None:
                self._pool = _build_names(self._graphs)
            return self._pool

    def keys(self) -> Int64:
        """Return (M,) numbers that sort like the pool's names."""
        with self._lock:
            if self._keys is None:
                self._keys = compute_text_keys(self.pool().lower)
            return self._keys


def _build_names(graphs: tuple[Graph, ...]) -> Names:
    chunks, index, before = [], [], 0
    for graph in graphs:
        used = np.zeros(len(graph.strings), bool)
        used[graph.name] = True
        codes = np.flatnonzero(used)
        where = np.zeros(len(used), np.int32)
        where[codes] = np.arange(before, before + len(codes), dtype=np.int32)
        index.append(where[graph.name])
        chunks.append(lower_case(_list_texts(graph.strings, codes)))
        before += len(codes)
    lower = pa.concat_arrays(chunks) if chunks else lower_case([])
    return Names(lower, index)


def _list_texts(pool: Strings, codes: Int64) -> pa.Array | list[str]:
    """Return texts of a pool without making Python objects, unless one is not UTF-8."""
    buffers = [None, pa.py_buffer(pool.offsets), pa.py_buffer(pool.data)]
    some = pa.Array.from_buffers(pa.large_binary(), len(pool), buffers).take(to_arrow(codes))
    try:
        return some.cast(pa.large_string())
    except pa.ArrowInvalid:
        return [pool[code] for code in codes.tolist()]


def lower_case(texts: pa.Array | list[str]) -> pa.LargeStringArray:
    """Return texts in lower case."""
    if isinstance(texts, list):
        # Half a surrogate pair can come from an address, and no text that Arrow holds.
        texts = convert_optional_texts(texts).cast(pa.large_string())
    return pc.utf8_lower(texts)


def compute_text_keys(lower: pa.LargeStringArray) -> Int64:
    """Return (M,) numbers that sort like the texts, equal for equal texts, -1 for the empty text."""
    offsets = np.frombuffer(lower.buffers()[1], np.int64)[lower.offset : lower.offset + len(lower) + 1]
    lengths = np.diff(offsets)
    if lengths.max(initial=0) > _LONGEST_WORDED:
        coded = lower.dictionary_encode()
        order, codes = from_arrow(pc.sort_indices(coded.dictionary)), from_arrow(coded.indices)
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        rank[order[: int((lengths == 0).any())]] = NONE  # the empty text comes first
        spread: Int64 = rank[codes]
        return spread
    # Eight bytes at a time as one number, last ones first: half the time of comparing texts.
    data = np.frombuffer(lower.buffers()[2] or b"", np.uint8)
    order, differs = (
        np.argsort(lengths.astype(np.uint16), kind="stable"),
        np.zeros(max(len(lower) - 1, 0), bool),
    )
    words = [
        _read_words(data, offsets[:-1], lengths, start) for start in range(0, int(lengths.max(initial=0)), 8)
    ]
    for word in reversed(words):
        order = order[np.argsort(word[order], kind="stable")]
    for column in (lengths, *words):
        differs |= column[order][1:] != column[order][:-1]
    keys = np.empty(len(lower), np.int64)
    keys[order] = np.append(np.zeros(min(len(lower), 1), np.int64), np.cumsum(differs))
    keys[lengths == 0] = NONE
    return keys


def _read_words(data: UInt8, starts: Int64, lengths: Int64, offset: int) -> UInt64:
    """Return eight bytes of each text from byte `offset` as a number that sorts alike; missing bytes are 0."""
    remaining = np.clip(lengths - offset, 0, 8)
    some = np.flatnonzero(remaining)
    padded = np.concatenate((data, np.zeros(8, np.uint8)))
    words = np.ndarray(len(data) + 1, ">u8", padded, strides=(1,))
    word = np.zeros(len(lengths), np.uint64)
    word[some] = words[starts[some] + offset] & ~np.uint64(0) << (8 * (8 - remaining[some])).astype(np.uint64)
    return word


def index_text_keys(texts: set[str]) -> dict[str, int]:
    """Return numbers that sort like texts, from `compute_text_keys`."""
    listed = sorted(texts)
    return dict(zip(listed, compute_text_keys(lower_case(listed)).tolist(), strict=True))
