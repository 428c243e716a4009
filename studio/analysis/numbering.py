"""Number what is equal."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from studio.trace import Int64


def number_by_first(keys: NDArray[np.integer]) -> tuple[Int64, Int64]:
    """Number different keys from 0 in the order of their first appearance; return each key's number, and where each is first.

    Example:
        >>> number, first = number_by_first(np.array([7, 3, 7, 5]))
        >>> number.tolist(), first.tolist()
        ([0, 1, 0, 2], [0, 1, 3])
    """
    first, inverse = np.unique(keys, return_index=True, return_inverse=True)[1:]
    order = np.argsort(first)
    number = np.empty(len(first), np.int64)
    number[order] = np.arange(len(first))
    return number[inverse.reshape(-1)], first[order].astype(np.int64)


def find_first_places(numbers: Int64) -> tuple[Int64, Int64]:
    """Return the different numbers of many, rising, and where each is first; -1 is the least, and none much above how many they are.

    Example:
        >>> number, first = find_first_places(np.array([2, -1, 0, 2]))
        >>> number.tolist(), first.tolist()
        ([-1, 0, 2], [1, 2, 0])
    """
    first = np.full(int(numbers.max(initial=-1)) + 2, -1, np.int64)
    # Of several values for one place the last stays.
    first[numbers[::-1] + 1] = np.arange(len(numbers))[::-1]
    present = np.flatnonzero(first >= 0)
    return present - 1, first[present]
