"""Rows of which a list would say the same: it names one of them, and how many there are."""

from __future__ import annotations

from typing import Any

import numpy as np

from studio.trace import Int64


def find_first_alike(*columns: Any, count: Int64 | None = None) -> tuple[Int64, Int64]:
    """Return the first row of each kind, rising, and how many rows are of it.

    Args:
        columns: (N,) whole numbers each; rows in which all of them are equal are of one kind.
        count: (N,) how many rows each stands for; None where each is one.

    Example:
        >>> first, count = find_first_alike(np.array([5, 7, 5, 5]), np.array([1, 1, 1, 2]))
        >>> first.tolist(), count.tolist()
        ([0, 1, 3], [2, 1, 1])
    """
    table = np.stack([np.asarray(column, np.int64) for column in columns])
    if not table.shape[1]:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    _, first, kind = np.unique(table, axis=1, return_index=True, return_inverse=True)
    kind, order = kind.reshape(-1), np.argsort(first)
    total = np.zeros(len(first), np.int64)
    np.add.at(total, kind, 1 if count is None else count)
    return first[order].astype(np.int64), total[order]


def count_alike(name: str, count: int) -> str:
    """Return the name of a row that stands for several.

    Example:
        >>> count_alike("3 → switch", 1), count_alike("3 → switch", 2048)
        ('3 → switch', '3 → switch +2,047 alike')
    """
    return name if count < 2 else f"{name} +{count - 1:,} alike"
