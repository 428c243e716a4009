"""Allocation of parts of the engine's array while a plan is built."""

from __future__ import annotations

import mmap
from contextlib import suppress

import numpy as np

from studio.trace import Int64

_HUGE_PAGE = 1 << 21


class Arena:
    """Allocates ranges of the array that the engine will run on."""

    def __init__(self, start: int) -> None:
        self.top = start
        self.parts: list[tuple[int, Int64]] = []

    def room(self, words: int) -> int:
        """Reserve this many zeroed words; returns the offset, a multiple of 8."""
        start = self.top
        self.top += (words + 7) // 8 * 8
        return start

    def put(self, values: Int64) -> int:
        """Reserve room for these values; returns the offset."""
        flat = np.ascontiguousarray(values, np.int64).reshape(-1)
        start = self.room(len(flat))
        self.parts.append((start, flat))
        return start


def allocate_aligned(words: int) -> Int64:
    """Allocate zeros at a cache line boundary, in huge pages if large and supported."""
    if words * 8 < _HUGE_PAGE // 2 or not hasattr(mmap, "MADV_HUGEPAGE"):
        raw = np.zeros(words + 8, np.int64)
        skip = -raw.ctypes.data % 64 // 8
        return raw[skip : skip + words]
    size = -(-words * 8 // _HUGE_PAGE) * _HUGE_PAGE
    block = mmap.mmap(-1, size + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # Failing is harmless, only slower.
    with suppress(OSError):
        block.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(block, np.int64)
    skip = -whole.ctypes.data % _HUGE_PAGE // 8
    return whole[skip : skip + words]
