"""Data dependencies from the tensor storages that operators read and write."""

from __future__ import annotations

import re
from bisect import bisect_left
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from studio.columns import join_ranges
from studio.distinct import find_distinct
from studio.et.link.operations import Operations
from studio.et.recording import HostTrace
from studio.trace import NONE, Int64

_MOST_UNDER_WAY = 64
_WAIT = "c10d_functional::wait_tensor"
_STORAGE = re.compile(r"[\[(]\d+,\s*([1-9]\d*),\s*\d+,\s*\d+,\s*\d+,\s*'")
"""Tensors that have none, such as sparse ones, are written with storage 0."""


def find_tensor_dependencies(
    operations: Operations, host: HostTrace, library: dict[int, int]
) -> tuple[Int64, Int64]:
    """Return readers of tensors (second) and the last operation that wrote their storage before (first).

    Of calls within each other that wrote it, that is the innermost: the one that began last among those that had
    finished.

    Args:
        operations: What the processor did.
        host: Its tensors.
        library: Operation of a communication library → the call it carries out, whose tensors it reads and writes.
    """
    storages = _Storages(host)
    reads, writes = storages.of_column(0), storages.of_column(3)
    order = np.arange(len(operations))
    if library:
        reads, writes, order = _add_library(reads, writes, library, len(operations))
    # Every writer of a storage in the order they began; where the reader would stand among them is found by halves.
    moments, moment = np.unique(operations.begin, return_inverse=True)
    moment, span = moment.reshape(-1).astype(np.int64), len(moments) + 1
    writer, written = writes.T
    sort = np.lexsort((order[writer], moment[writer], written))
    writer, written = writer[sort], written[sort]
    reader, wanted = reads.T
    place = np.searchsorted(written * span + moment[writer], wanted * span + moment[reader]) - 1
    sources, targets = [], []
    left = np.arange(len(reader))
    for _ in range(_MOST_UNDER_WAY):
        left = left[place[left] >= 0]
        left = left[written[place[left]] == wanted[left]]
        finished = operations.finish[writer[place[left]]] <= operations.begin[reader[left]]
        sources.append(writer[place[left[finished]]])
        targets.append(reader[left[finished]])
        left = left[~finished]
        place[left] -= 1
        if not len(left):
            break
    return np.concatenate(sources), np.concatenate(targets)


def find_awaited(operations: Operations, host: HostTrace, library: dict[int, int]) -> list[tuple[int, int]]:
    """Return the operation of a library that each `wait_tensor` waits for (first), and that (second): the last called for on the tensor.

    Args:
        operations: What the processor did.
        host: Its tensors.
        library: Operation of a communication library → the call it carries out.
    """
    waiters = operations.find_named(lambda name: name.endswith(_WAIT)).tolist()
    if not waiters or not library:
        return []
    storages = _Storages(host)
    reads = storages.of_column(0)
    both = np.concatenate((reads, storages.of_column(3)))
    carrying: dict[int, list[int]] = {}
    for row, call in library.items():
        carrying.setdefault(call, []).append(row)
    # By storage, when it was called for and what carries it out.
    called: dict[int, list[tuple[int, int]]] = {}
    for call, storage in both[np.isin(both[:, 0], list(carrying))].tolist():
        begin = int(operations.begin[call])
        called.setdefault(storage, []).extend((begin, row) for row in carrying[call])
    for calls in called.values():
        calls.sort()
    awaited = []
    for waiter, storage in reads[np.isin(reads[:, 0], waiters)].tolist():
        calls = called.get(storage, [])
        place = bisect_left(calls, (int(operations.begin[waiter]), NONE)) - 1
        if place >= 0:
            awaited.append((calls[place][1], waiter))
    return awaited


_Pairs = NDArray[np.int64]
"""(M, 2) operations and storages, each pair once."""


class _Storages:
    """The storages of the tensors in the texts of a trace, numbered by first appearance."""

    def __init__(self, host: HostTrace) -> None:
        self.io = host.io
        used = find_distinct(host.io[:, [0, 3]]) if len(host.io) else np.zeros(0, np.int32)
        listed = [_STORAGE.findall(host.texts[code]) for code in used.tolist()]
        known: dict[str, int] = {}
        numbers = [known.setdefault(storage, len(known)) for storage in chain.from_iterable(listed)]
        counts = np.zeros(len(host.texts), np.int64)
        counts[used] = [len(storages) for storages in listed]
        self.numbers, self.counts = np.array(numbers, np.int64), counts
        # Texts that are not used hold none, so the numbers of a text stand behind those of the texts before it.
        self.first = np.cumsum(counts) - counts

    def of_column(self, column: int) -> _Pairs:
        """Return the storages among the inputs (column 0) or outputs (column 3) of every operation."""
        codes = self.io[:, column]
        counts = self.counts[codes]
        rows = np.repeat(np.arange(len(codes)), counts)
        return _select_distinct(rows, self.numbers[join_ranges(self.first[codes], counts)])


def _select_distinct(rows: Int64, storages: Int64) -> _Pairs:
    span = int(storages.max()) + 1 if len(storages) else 1
    return np.stack(np.divmod(find_distinct(rows * span + storages), span), axis=1)


def _add_library(
    reads: _Pairs, writes: _Pairs, library: dict[int, int], count: int
) -> tuple[_Pairs, _Pairs, Int64]:
    """Return readers and writers with the tensors of calls given to the library's operations, where known.

    Returns:
        The pairs of readers and of writers, and the order (N,) of writers that begin at the same time.
    """
    rows, calls = np.array(list(library.items()), np.int64).T
    order = np.arange(count)
    fresh = rows[~np.isin(rows, writes[:, 0])]
    order[fresh] = count + np.arange(len(fresh))

    def move_to_library(pairs: _Pairs) -> Any:
        """Return pairs of calls as pairs of the library operations that carry them out."""
        sort = np.argsort(calls, kind="stable")
        low, high = (np.searchsorted(calls[sort], pairs[:, 0], side) for side in ("left", "right"))
        counts = high - low
        carrying: Int64 = rows[sort][join_ranges(low, counts)]
        return np.stack((carrying, np.repeat(pairs[:, 1], counts)), axis=1)

    own = reads[np.isin(reads[:, 0], rows)]
    more_writes = np.concatenate((writes, move_to_library(writes), own))
    more_reads = np.concatenate((reads, move_to_library(reads)))
    return _select_distinct(*more_reads.T), _select_distinct(*more_writes.T), order
