"""Columns of whole numbers: several one after another, the places of ranges, and those of equal values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray


def join_columns(columns: Iterable[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return columns one after another, of which there may be none.

    Example:
        >>> join_columns([np.array([3, 1]), np.array([2])]).tolist(), join_columns([]).tolist()
        ([3, 1, 2], [])
    """
    return np.concatenate([np.zeros(0, np.int64), *columns])


def join_ranges(starts: NDArray[np.int64] | int, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the places of ranges (R,) one after another: of each, as many as its length from its start on.

    Example:
        >>> join_ranges(np.array([7, 3]), np.array([2, 3])).tolist()
        [7, 8, 3, 4, 5]
    """
    ends = np.cumsum(lengths)
    places: NDArray[np.int64] = np.arange(int(ends[-1]) if len(ends) else 0)
    places += np.repeat(starts - (ends - lengths), lengths)
    return places


def group_places(values: NDArray[Any]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield each distinct value of an array (N,), rising, and the places that hold it, rising too.

    Example:
        >>> [(value, places.tolist()) for value, places in group_places(np.array([7, 5, 7]))]
        [(5, [1]), (7, [0, 2])]
    """
    if not len(values):
        return
    order = np.argsort(values, kind="stable")
    rising = values[order]
    first = np.flatnonzero(rising[1:] != rising[:-1]) + 1
    yield from zip(rising[np.append(0, first)].tolist(), np.split(order, first), strict=True)
