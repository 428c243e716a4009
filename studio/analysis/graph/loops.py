"""Find layers and an order of dependencies: compiled for large graphs, interpreted for small ones."""

from __future__ import annotations

import numpy as np

from studio.analysis.graph import kernel as k
from studio.analysis.graph.compiled import is_faster_compiled, load_kernel
from studio.trace import Int64

KEPT, COLD = 200_000, 10_000_000
"""From so many dependencies on compiled code pays: when it has to be loaded, and when it has to be compiled before."""


def find_layers(count: int, before: Int64, after: Int64) -> Int64:
    """Return (N,) how many dependencies the longest chain to each of `count` rows has.

    Args:
        count: N, how many rows.
        before: (E,) what is waited for, in an order in which chains grow.
        after: (E,) what waits for it.
    """
    if _is_worth_compiling(len(before)):
        layer = np.zeros(count, np.int64)
        load_kernel().find_layers(np.ascontiguousarray(before), np.ascontiguousarray(after), layer)
        return layer
    layers = [0] * count
    k.find_layers(before.tolist(), after.tolist(), layers)
    return np.array(layers, np.int64)


def find_order(first: Int64, following: Int64, missing: Int64) -> Int64:
    """Return the rows in an order in which each follows all it waits for, without those on cycles and behind them.

    Args:
        first: (N+1,) what waits for row n are the rows in `following` from `first[n]` to `first[n + 1]`.
        following: (E,) rows.
        missing: (N,) for how many each waits.
    """
    if _is_worth_compiling(len(following)):
        order = np.empty(len(missing), np.int64)
        return order[: load_kernel().find_order(first, following, missing.copy(), order)]
    rows = [0] * len(missing)
    count = k.find_order(first.tolist(), following.tolist(), missing.tolist(), rows)
    return np.array(rows[:count], np.int64)


def _is_worth_compiling(count: int) -> bool:
    """Whether so many dependencies are gone through faster compiled, including the wait for the compiler."""
    return is_faster_compiled(count, KEPT, COLD)
