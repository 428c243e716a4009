"""Run the kernel of the orders in which nodes come: compiled for large graphs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from studio.analysis.graph import kernel as k
from studio.analysis.graph.compiled import LOADED, is_faster_compiled, load_kernel
from studio.trace import NONE, Int64

_COLD = 5_000_000
"""From so many nodes on it pays to compile the kernel first."""
_LANES = 16
"""So many lanes are looked at together: of all of them there is a number for each node."""


def find_issue_order(pairs: tuple[Int64, Int64], by_id: Int64) -> Int64:
    """Return the rows in the order in which nodes without times are issued, compiled; those on and behind cycles are left out.

    Args:
        pairs: (D,) rows that wait, and (D,) rows that they wait for.
        by_id: (N,) rows in the order of their ids.
    """
    size = len(by_id)
    place = np.empty(size, np.int64)
    place[by_id] = np.arange(size)
    return _run(
        "find_issue_order",
        (*pairs, place, by_id),
        (size + 2, len(pairs[0]), size, size + 1, size),
        native=True,
    )


def find_last_before(pairs: tuple[Int64, Int64], order: Int64, rows: Int64, lane: Int64) -> Int64:
    """Return (K,) the last operation of its own lane that comes before each, directly or not, -1 for none; compiled.

    Args:
        pairs: (D,) rows that wait, and (D,) rows that they wait for.
        order: (N,) rows in an order in which each comes after what it waits for.
        rows: (K,) operations, each named by its place here.
        lane: (K,) number of the lane.
    """
    find, size = load_kernel().find_last_before, len(order)
    place = np.full(size, NONE, np.int64)
    place[rows] = np.arange(len(rows))
    previous = np.full(len(rows), NONE, np.int64)
    given = [np.ascontiguousarray(array) for array in (*pairs, order, place, lane)]
    for low in range(0, int(lane.max(initial=-1)) + 1, _LANES):
        width = min(_LANES, int(lane.max()) + 1 - low)
        known = [np.zeros(length, np.int64) for length in (size + 2, len(pairs[0]), size)]
        find(*given, low, width, *known, np.full(size * width, NONE, np.int64), previous)
    return previous


def find_certain_order(pairs: tuple[Int64, Int64], size: int, rows: Int64, *, native: bool) -> Int64:
    """Return those of some rows whose place is certain, in their order, whatever the other nodes take.

    Each begins when the one before has ended: of those that are ready the first of `rows`.

    Args:
        pairs: (D,) rows that wait, and (D,) rows that they wait for.
        size: How many nodes there are.
        rows: (P,) rows that take turns, by id.
        native: Whether to run compiled, see `is_worth_compiling`.
    """
    count = len(rows)
    turn = np.full(size, NONE, np.int64)
    turn[rows] = np.arange(count)
    lengths = (size + 2, len(pairs[0]), size, size, size, count + 1, count + 1, count)
    return _run("find_certain_order", (*pairs, turn, rows), lengths, native=native)


def _run(name: str, given: Sequence[Int64], lengths: Sequence[int], *, native: bool) -> Int64:
    """Call a function of the kernel with arrays of these lengths; returns as much of the last one as it says."""
    if native:
        arrays = [np.zeros(length, np.int64) for length in lengths]
        count: int = getattr(load_kernel(), name)(*map(np.ascontiguousarray, given), *arrays)
        return arrays[-1][:count]
    lists = [[0] * length for length in lengths]
    count = getattr(k, name)(*(array.tolist() for array in given), *lists)
    return np.array(lists[-1][:count], np.int64)


def is_worth_compiling(nodes: int) -> bool:
    """Whether graphs of so many nodes are gone through faster compiled, including the wait for the compiler."""
    return is_faster_compiled(nodes, LOADED, _COLD)
