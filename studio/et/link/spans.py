"""Operations around others, and the intervals that operations spent themselves after they had called others."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from studio.et.link.intervals import find_before, find_parents
from studio.et.link.operations import Operations
from studio.et.link.options import LinkOptions
from studio.trace import NONE, Bool, Int64

COMPUTING = "aten::"
REST_NS = 20_000
"""An operation that took as long itself after it had begun to call others did not take this time before; a call that lasted
as long beside its copy may have waited for it."""
_BLOCKING = re.compile(r"^c10d::|wait|barrier", re.IGNORECASE)
"""Matches operators in which a thread may wait for another."""
_COMPUTING_REST_NS = 1_000_000
"""The same for operators that compute, which keep their time in one piece otherwise."""
_NEVER = np.iinfo(np.int64).max


def find_around(operations: Operations) -> Int64:
    """Return the innermost operation (N,) around each by time on its thread, ignoring steps; -1 where there is none."""
    rows = np.flatnonzero(operations.timed & ~operations.frame)
    # Callers first, where both take the same time.
    rows = rows[np.lexsort((operations.id[rows], operations.depth[rows]))]
    parent, _ = find_parents(operations.start_ns[rows], operations.end_ns[rows], operations.thread[rows])
    around = np.full(len(operations), NONE, np.int64)
    around[rows] = np.where(parent >= 0, rows[parent], NONE)
    return around


def add_callers(rows: Iterable[int], around: Int64) -> set[int]:
    """Return operations and all operations around them."""
    rows_within: set[int] = set()
    above = around.tolist()
    for row in rows:
        while row >= 0 and row not in rows_within:
            rows_within.add(row)
            row = above[row]  # noqa: PLW2901 (walks outwards)
    return rows_within


def find_within_library(operations: Operations, around: Int64, library: dict[int, int]) -> Bool:
    """Return which operations (N,) lie within one of a communication library."""
    within = np.zeros(len(operations), np.bool_)
    rows = np.flatnonzero(around >= 0) if library else np.zeros(0, np.int64)
    rows = rows[np.argsort(operations.start_ns[rows], kind="stable")]
    marked = _marked(library, len(operations))
    seen = marked.tolist()
    for row, above in zip(rows.tolist(), around[rows].tolist(), strict=True):
        # Callers come before what they call; those that are of a library count for what is in them alone.
        seen[row] = seen[row] or seen[above]
        within[row] = seen[above]
    return within


class Span(NamedTuple):
    """An interval in which a thread may have waited for another.

    Attributes:
        thread: The thread.
        begin, end: Begin and end.
        first: Whether it is what precedes the first operation of the thread.
        operation: The operation it is part of, -1 for time between operations.
        issued: Whether that operation, or one it called, had set another thread going before.
        rest: Whether that operation spent long itself after it had begun to call others, or one of these had waited.
        may_wait: Whether the thread may have waited for another in it.
    """

    thread: int
    begin: int
    end: int
    first: bool = False
    operation: int = NONE
    issued: bool = False
    rest: bool = False
    may_wait: bool = True


def find_inside(
    operations: Operations, around: Int64, library: dict[int, int], launching: set[int], options: LinkOptions
) -> list[Span]:
    """Return the intervals operations spent themselves after their first callee, or after starting a thread.

    A thread may have waited in it. Operations that compute did not, and those of communication libraries are what
    others wait for; of operations without callees only those count that are known to wait. What sets a thread going is
    a call with all it was called by: what these do afterwards must not hold up the thread. Nor must a long rest of any
    operation, such as a range that a program names, hold up what it called to launch on the device. What any of the others
    did after one it called had waited comes after that wait, too, instead of before, where the wait would swallow it.
    """
    count = len(operations)
    start, end = operations.start_ns, operations.end_ns
    inner = np.flatnonzero(around >= 0)
    inner = inner[np.argsort(start[inner], kind="stable")]
    above, firsts = np.unique(around[inner], return_index=True)
    by_first = np.argsort(firsts)
    begins: dict[int, int] = dict(
        zip(above[by_first].tolist(), start[inner[firsts[by_first]]].tolist(), strict=True)
    )
    issuing = _issuing(operations, library)
    for call, begin in issuing.items():
        begins[call] = min(begins.get(call, begin), begin)
    names = set(operations.names)
    blocking = {name for name in names if _BLOCKING.search(name)}
    waiting = [row for row, name in enumerate(operations.names) if name in blocking and start[row] >= 0]
    for row in waiting:
        begins.setdefault(row, int(start[row]))
    if not begins:
        return []
    calls = np.fromiter(begins, np.int64, len(begins))
    place = np.full(count, NONE, np.int64)
    place[calls] = np.arange(len(calls))
    inner = inner[np.argsort(place[around[inner]], kind="stable")]
    sizes = np.bincount(place[around[inner]], minlength=len(calls))
    first = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    before = find_before(first, np.fromiter(begins.values(), np.int64, len(begins)), end[inner])
    # A place for each callee of a call, and one for its end.
    until = np.empty(len(before), np.int64)
    ends = first[1:] + np.arange(len(calls))
    is_end = np.zeros(len(before), np.bool_)
    is_end[ends] = True
    until[is_end], until[~is_end] = end[calls], start[inner]
    of_call = np.repeat(np.arange(len(calls)), sizes + 1)
    issued_rows = issuing.keys() | add_callers((int(around[call]) for call in library.values()), around)
    issued = _marked(issued_rows, count)[calls]
    launches = _marked(launching, count)[calls]
    waited = np.full(count, _NEVER, np.int64)
    for call, time in _first_waits(waiting, end, around).items():
        waited[call] = time
    waited = waited[calls]
    computes = {name for name in names if name.startswith(COMPUTING)}
    computing = np.array([operations.names[call] in computes for call in begins], np.bool_)
    held = computing & (waited != _NEVER)
    later = np.zeros(len(calls), np.int64)
    np.add.at(later, of_call, np.maximum(until - before, 0))
    counts = (sizes > 0) & (held | launches)
    rest = np.where(counts, later, 0) >= np.where(computing, _COMPUTING_REST_NS, REST_NS)
    kept = ~_marked(library, count)[calls] & (~computing | ((launches | held) & rest))
    took = until - before
    after = rest[of_call] | (before >= waited[of_call])
    least = np.where(issued[of_call] | after, options.least_gap_ns, options.thread_gap_ns)
    waits = ~computing[of_call] & (issued[of_call] | (took >= options.thread_gap_ns))
    chosen = np.flatnonzero(kept[of_call] & (took >= least))
    own = calls[of_call[chosen]]
    columns = (
        operations.thread[own], before[chosen], until[chosen], np.zeros(len(chosen), np.bool_), own,
        issued[of_call[chosen]], after[chosen], waits[chosen],
    )  # fmt: skip
    return [Span(*values) for values in zip(*(column.tolist() for column in columns), strict=True)]


def _marked(rows: Collection[int], count: int) -> Bool:
    """Return which of `count` rows are among some."""
    marked = np.zeros(count, np.bool_)
    marked[np.fromiter(rows, np.int64, len(rows))] = True
    return marked


def _first_waits(waiting: Sequence[int], end: Int64, around: Int64) -> dict[int, int]:
    """Return the operations around those that may wait, and when the first of these had ended."""
    ended: dict[int, int] = {}
    # The first to end comes first, so what is known already is right, and so is all around it.
    for row in sorted(waiting, key=lambda row: int(end[row])):
        call = int(around[row])
        while call >= 0 and call not in ended:
            ended[call] = int(end[row])
            call = int(around[call])
    return ended


def _issuing(operations: Operations, library: dict[int, int]) -> dict[int, int]:
    """Return the calls that started another thread's work while they ran, and when that began."""
    start, end, thread = operations.start_ns, operations.end_ns, operations.thread
    began: dict[int, int] = {}
    for row, call in library.items():
        if start[call] >= 0 and start[call] <= start[row] < end[call] and thread[row] != thread[call]:
            began[call] = min(began.get(call, int(start[row])), int(start[row]))
    return began
