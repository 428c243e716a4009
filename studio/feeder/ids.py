"""Keep a set of many ids in little memory, as runs of consecutive ones."""

from __future__ import annotations

import numpy as np

from studio.trace import Bool, UInt64

_SETTLED_AT = 1 << 16


class IdSet:
    """A set of ids from 0 to 2^64 - 1 that only grows.

    Ten million consecutive ids take a few bytes, ten million scattered ones 160 MB.

    Example:
        >>> ids = IdSet()
        >>> for number in (5, 7, 6, 2**64 - 1):
        ...     ids.add(number)
        >>> ids.contain(np.array([4, 5, 7, 8, 2**64 - 1], np.uint64)).tolist(), 6 in ids, len(ids)
        ([False, True, True, False, True], True, 4)
    """

    def __init__(self) -> None:
        self._recent: set[int] = set()
        self._low: UInt64 = np.empty(0, np.uint64)
        self._high: UInt64 = np.empty(0, np.uint64)
        self._settled = 0

    def __len__(self) -> int:
        return self._settled + len(self._recent)

    def __contains__(self, number: int) -> bool:
        if number in self._recent:
            return True
        place = int(np.searchsorted(self._low, np.uint64(number), side="right")) - 1
        return place >= 0 and number <= int(self._high[place])

    def add(self, number: int) -> None:
        """Add an id that is not in the set."""
        self._recent.add(number)
        if len(self._recent) >= _SETTLED_AT:
            self._settle()

    def contain(self, numbers: UInt64) -> Bool:
        """Return (M,) which of (M,) ids are in the set."""
        self._settle()
        if not len(self._low):
            return np.zeros(len(numbers), np.bool_)
        place = np.searchsorted(self._low, numbers, side="right") - 1
        is_in: Bool = (place >= 0) & (numbers <= self._high[np.maximum(place, 0)])
        return is_in

    def _settle(self) -> None:
        """Make runs of the ids that were added one by one."""
        if not self._recent:
            return
        new = np.fromiter(self._recent, np.uint64, len(self._recent))
        self._settled += len(self._recent)
        self._recent = set()
        low, high = np.concatenate([self._low, new]), np.concatenate([self._high, new])
        order = np.argsort(low, kind="stable")
        low, high = low[order], high[order]
        begins = np.append(True, low[1:] - high[:-1] != 1)
        self._low = low[begins]
        self._high = high[np.append(np.flatnonzero(begins)[1:] - 1, len(high) - 1)]
