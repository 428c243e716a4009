"""How nccl-tests (NVIDIA, `doc/PERFORMANCE.md`) count collectives: the size of the whole, and bus bandwidth by algorithm bandwidth.

Tables and cost models name collectives by their kind (`all_reduce`), traces by `CollectiveType`: both are counted here.
"""

from __future__ import annotations

import numpy as np

from studio.trace import Bool, CollectiveType, Float64, Int64

WHOLE_IS_ALL_INPUTS = (CollectiveType.ALL_GATHER, CollectiveType.GATHER)
"""Collectives in which a rank puts in one part of the whole, where others put in all of it."""
_ONE_TO_ALL = (CollectiveType.BROADCAST, CollectiveType.REDUCE)
_FULL_BUFFER = ("barrier", "send_recv")
"""Kinds that nccl-tests' formulas do not know, and of which all bytes leave a rank."""


def compute_whole_bytes(kind: Int64, size: Int64, members: Int64, is_open: Bool | None = None) -> Int64:
    """Return (C,) the size of the whole array, as NCCL counts it, from what a rank puts in.

    Args:
        kind: (C,) CollectiveType.
        size: (C,) what a rank puts in, in bytes.
        members: (C,) ranks.
        is_open: (C,) whether there may be more of them: the size is 0 where it depends on that.
    """
    of_all = np.isin(kind, WHOLE_IS_ALL_INPUTS)
    whole: Int64 = np.where(of_all, size * members, size)
    if is_open is not None:
        whole[of_all & is_open] = 0
    return whole


def count_inputs(kind: str, ranks: int) -> int:
    """Return how many inputs of ranks the whole of a collective holds, by its kind.

    Example:
        >>> count_inputs("all_gather", 8), count_inputs("all_reduce", 8)
        (8, 1)
    """
    return ranks if CollectiveType.__members__.get(kind.upper()) in WHOLE_IS_ALL_INPUTS else 1


def compute_bus_factors(kind: Int64, members: Int64, is_open: Bool | None = None) -> Float64:
    """Return (C,) the bus bandwidth of collectives by their algorithm bandwidth; NaN for barriers and unknown ones.

    Args:
        kind: (C,) CollectiveType.
        members: (C,) ranks.
        is_open: (C,) whether there may be more of them: the factor is NaN where it depends on that.

    Example:
        >>> compute_bus_factors(np.array([CollectiveType.ALL_REDUCE, CollectiveType.BROADCAST]), np.array([4, 4])).tolist()
        [1.5, 1.0]
    """
    factor: Float64 = (members - 1) / members
    factor[kind == CollectiveType.ALL_REDUCE] *= 2
    if is_open is not None:
        factor[is_open] = np.nan
    factor[np.isin(kind, _ONE_TO_ALL)] = 1
    factor[(kind == CollectiveType.BARRIER) | (kind < 0) | (kind > CollectiveType.BARRIER)] = np.nan
    return factor


def compute_bus_factor(kind: str, ranks: int) -> float:
    """Return the bus bandwidth of a collective by its algorithm bandwidth, by its kind; of a barrier and a message 1.

    Example:
        >>> compute_bus_factor("all_reduce", 4), compute_bus_factor("gather", 4), compute_bus_factor("broadcast", 4)
        (1.5, 0.75, 1.0)
    """
    if kind in _FULL_BUFFER:
        return 1.0
    return float(compute_bus_factors(np.array([CollectiveType[kind.upper()]]), np.array([ranks]))[0])
