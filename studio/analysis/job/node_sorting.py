"""Sort nodes by numbers of a column, in a fraction of the time that comparing them takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from studio.trace import NONE, Int64

_RADIX = 1 << 16
_SORTED_RUN = 16
"""Keys in a sorted run from which on comparing them is faster than counting them."""


def narrow_keys(keys: NDArray[Any], *, falling: bool) -> NDArray[Any]:
    """Return keys that sort as asked, missing ones (-1) last, in the narrowest type for their range."""
    if keys.dtype == np.uint64:
        return np.iinfo(np.uint64).max - keys if falling else keys
    missing = keys == NONE
    turned = ~keys if falling else keys  # ~x = -1 - x turns every int64 without overflow
    present = turned[~missing]
    if not len(present):
        return np.zeros(len(keys), np.uint8)
    low, high = int(present.min()), int(present.max())
    if high - low + 1 < _RADIX:
        # numpy sorts two-byte integers by radix, in a tenth of the time.
        return np.where(missing, high - low + 1, turned - low).astype(np.uint16)
    last = np.int64(high + 1) if high < 2**63 - 1 else np.int64(high)
    return np.where(missing, last, turned)


def sort_keys(keys: NDArray[Any]) -> Int64:
    """Return the stable order of keys."""
    if keys.dtype != np.int64 or len(keys) < 2:
        return np.argsort(keys, kind="stable")
    low, high = int(keys.min()), int(keys.max())
    falls = keys[1:] < keys[:-1]
    turns = np.count_nonzero(falls[1:] != falls[:-1])
    if high - low >= _RADIX**2 or turns * _SORTED_RUN < len(keys):
        # Long runs that rise or fall, such as starts, are merged faster than counted.
        return np.argsort(keys, kind="stable")
    # Two bytes at a time, last ones first: less than half the time of comparing numbers.
    words = (keys - low).astype(np.uint32)
    order = np.argsort(words.astype(np.uint16), kind="stable")
    return order[np.argsort((words >> 16).astype(np.uint16)[order], kind="stable")]


def renumber(numbers: NDArray[Any], number_of: Callable[[int], int]) -> Int64:
    """Return (N,) other numbers for the same: what a function gives for each distinct one."""
    values, inverse = index_distinct(numbers)
    renumbered: Int64 = np.array([number_of(value) for value in values], np.int64)[inverse]
    return renumbered


def index_distinct(numbers: NDArray[Any]) -> tuple[list[int], NDArray[Any]]:
    """Return the distinct numbers, sorted, and the index of each; without sorting where they lie close."""
    low, high = int(numbers.min(initial=0)), int(numbers.max(initial=0))
    if high - low >= _RADIX:
        values, inverse = np.unique(numbers, return_inverse=True)
        return values.tolist(), inverse
    is_used = np.zeros(high - low + 1, bool)
    is_used[numbers - low] = True
    return (np.flatnonzero(is_used) + low).tolist(), (np.cumsum(is_used) - 1)[numbers - low]
