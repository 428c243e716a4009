"""Run the kernel of linking: compiled for long recordings, interpreted for short ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from studio.et.columns import AttributeColumns, Placed
from studio.et.device_events import order_by_begin
from studio.et.link import kernel as k
from studio.machine_code import Entry, Items, prepare_functions
from studio.native import Kernel
from studio.trace import Int64

INTERPRETED = 20_000
INTERPRETED_COLD = 500_000
"""From so many intervals on compiled code pays: when the installation has compiled before, and when it has not."""

_AT_A_TIME = 2048
"""Nodes whose attributes fit into the cache of a processor."""

_NUMBERS = Items("int64")
_BARE = Items("int64", bare=True)
_ENTRIES = (
    Entry("find_parents", (_NUMBERS,) * 6, answers=False),
    Entry("find_innermost", (_NUMBERS,) * 7, answers=False),
    Entry("find_before", (_NUMBERS,) * 4, answers=False),
    Entry("cut_out", (_NUMBERS,) * 12, answers=False),
    Entry(
        "put_attributes",
        (
            *(_BARE,) * 6,
            *(_NUMBERS,) * 3,
            *(Items(kind, bare=True) for kind in ("int32", "uint8", "int64", "int32")),
        ),
        answers=False,
    ),
)


def find_parents(start: Int64, end: Int64, thread: Int64) -> tuple[Int64, Int64]:
    """Return the innermost interval (N,) of the same thread that covers each interval, and how many do.

    Intervals that overlap without covering each other count as side by side.
    """
    by_begin = order_by_begin(start, end)
    order = by_begin[np.argsort(thread[by_begin], kind="stable")]
    count = len(order)
    given = start[order], end[order], thread[order]
    _, inner, level = _run("find_parents", count, given, (count, count, count))
    parent, depth = np.empty(count, np.int64), np.empty(count, np.int64)
    parent[order] = np.append(order, -1)[inner]
    depth[order] = level
    return parent, depth


def find_innermost(start: Int64, end: Int64, mark: Int64, times: Int64, wanted: Int64) -> Int64:
    """Return the innermost interval (M,) around each time, of those that carry the wanted mark where there is one; else -1.

    Args:
        start: (N,) when intervals begin, rising, the outer ones first.
        end: (N,) when they end.
        mark: (N,) what each carries.
        times: (M,) rising.
        wanted: (M,) the mark that counts before others, -1 for none.
    """
    given = start, end, mark, times, wanted
    return _run("find_innermost", len(start), given, (len(start), len(times)))[1]


def find_before(first: Int64, begin: Int64, end: Int64) -> Int64:
    """Return when what came before each callee of a call, and before the call's end, had ended.

    Args:
        first: (C+1,) the first callee of each call.
        begin: (C,) when each began: the earliest that counts.
        end: (K,) when each callee ended, call by call, in order.

    Returns:
        (K+C,) times: one for each callee of a call, and one for its end.
    """
    return _run("find_before", len(end), (first, begin, end), (len(end) + len(begin),))[0]


def cut_out(
    spans: tuple[Int64, Int64, Int64, Int64, Int64], waits: tuple[Int64, Int64, Int64]
) -> tuple[Int64, Int64, Int64, Int64]:
    """Cut waits out of spans.

    Args:
        spans: (S,) begin and end of each, (S,) the first wait that may lie in it and the one after the last, and (S+1,)
            where what is left of it is put down: there is a place more than it may have waits.
        waits: (W,) when each began and ended, and when its thread went on.

    Returns:
        (P,) where each piece that is left begins, (P,) its length, less than 0 where there is none, and (P,) whether it
        comes after a wait; and (S,) how long the waits of each span lasted.
    """
    places, count = int(spans[-1][-1]), len(spans[0])
    start, took, is_after, waited = _run("cut_out", count, (*spans, *waits), (places, places, places, count))
    return start, took, is_after, waited


def put_attributes(columns: AttributeColumns, count: int, out: Placed) -> Int64 | None:
    """Put attributes where they belong, by node, of one node in the order they were added.

    Args:
        columns: The attributes.
        count: The nodes.
        out: Gets them.

    Returns:
        (N+1,) where those of each node begin; None where others had better do so.
    """
    if not _is_worth_compiling(len(out.key)):
        return None
    rows: list[Int64] = []
    values: list[Int64] = []
    lengths: list[Int64] = []
    listed = np.full(len(columns.rows), -1, np.int64)
    orders: dict[int, Int64 | None] = {}
    for added, own in enumerate(columns.rows):
        if id(own) not in orders:
            orders[id(own)] = None if (own[1:] >= own[:-1]).all() else np.argsort(own, kind="stable")
        order, of_list = orders[id(own)], columns.lengths[added]
        rows.append(own if order is None else own[order])
        values.append(columns.values[added] if order is None else columns.values[added][order])
        if of_list is not None:
            listed[added] = sum(map(len, lengths))
            lengths.append(of_list if order is None else of_list[order])
    none = np.zeros(0, np.int64)
    first = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    offsets = np.zeros(count + 1, np.int64)
    load_kernel().put_attributes(
        first,
        np.concatenate([none, *rows]),
        np.concatenate([none, *values]),
        np.array([columns.keys, columns.kinds], np.int64).T.reshape(-1),
        listed,
        np.concatenate([none, *lengths]),
        first[:-1].copy(),
        offsets,
        np.empty(_AT_A_TIME, np.int64),
        out.key,
        out.kind,
        out.value,
        out.length,
    )
    return offsets


def _run(name: str, count: int, given: Sequence[Int64], lengths: Sequence[int]) -> list[Int64]:
    """Call a function of the kernel; returns the arrays that it has filled, of these lengths."""
    if _is_worth_compiling(count):
        filled = [np.empty(length, np.int64) for length in lengths]
        plain = [np.ascontiguousarray(array, np.int64) for array in given]
        getattr(load_kernel(), name)(*plain, *filled)
        return filled
    lists = [[0] * length for length in lengths]
    getattr(k, name)(*(array.tolist() for array in given), *lists)
    return [np.array(values, np.int64) for values in lists]


KERNEL = Kernel(k, __name__, _ENTRIES, prepare_functions([entry.name for entry in _ENTRIES], _ENTRIES))


def load_kernel() -> Any:
    """Return the kernel, compiled. Takes seconds the first time an installation asks, then from a file."""
    return KERNEL.load()


def compile_kernel() -> None:
    """Compile the kernel, unless this installation has done so before; for executors."""
    load_kernel()


def _is_worth_compiling(count: int) -> bool:
    """Whether so many intervals are gone through faster compiled, including the wait for the compiler."""
    if count < INTERPRETED:
        return False
    return KERNEL.loaded is not None or count > INTERPRETED_COLD or KERNEL.is_cached()
