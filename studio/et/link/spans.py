"""Operations around others, and the intervals that operations spent themselves after they had called others."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from studio.et.link.intervals import find_before, find_parents
from studio.et.link.operations import Operations
from studio.et.link.options import LinkOptions
from studio.et.recording import mark_names
from studio.et.wire import find_first_uses
from studio.trace import NONE, Bool, Int64

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

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


def add_callers(rows: Int64, around: Int64) -> Bool:
    """Return which operations (N,) are among some rows, or around one of these."""
    chosen = np.zeros(len(around), np.bool_)
    while len(rows):
        rows = rows[rows >= 0]
        rows = rows[~chosen[rows]]
        chosen[rows] = True
        rows = around[rows]
    return chosen


def find_early_ends(operations: Operations, around: Int64, least_ns: int) -> Bool:
    """Return which operations (N,) ended long before an operator that computes around them.

    Operators that compute keep the time that is their own in one piece, before what they call; so in a replay what they called first
    ends as late as they do, and sets nothing going before.
    """
    computing = mark_names(operations.names, operations.name, lambda name: name.startswith(COMPUTING))
    early = np.zeros(len(operations), np.bool_)
    rows, above = np.arange(len(operations)), around
    while len(rows):
        inside = above >= 0
        rows, above = rows[inside], above[inside]
        early[rows] |= computing[above] & (operations.end_ns[above] - operations.end_ns[rows] >= least_ns)
        above = around[above]
    return early


def find_within_library(operations: Operations, around: Int64, library: dict[int, int]) -> Bool:
    """Return which operations (N,) lie within one of a communication library."""
    count = len(operations)
    # The place after the last stands for what is around none.
    above = np.append(np.where(around >= 0, around, count), count)
    seen = np.append(_mark_rows(library, count), False)
    callers = above[:-1]
    while library and (above < count).any():
        # Looks twice as far outwards with each turn.
        seen |= seen[above]
        above = above[above]
    within: Bool = seen[callers]
    return within


@dataclass(frozen=True, slots=True)
class Spans:
    """Intervals in which threads may have waited for others.

    S intervals.

    Attributes:
        thread: (S,) the thread.
        begin, end: (S,) begin and end.
        first: (S,) whether it is what precedes the first operation of the thread.
        operation: (S,) the operation it is part of, -1 for time between operations.
        issued: (S,) whether that operation, or one it called, had set another thread going before.
        rest: (S,) whether that operation spent long itself after it had begun to call others, or one of these had waited.
        may_wait: (S,) whether the thread may have waited for another in it.
    """

    thread: Int64
    begin: Int64
    end: Int64
    first: Bool
    operation: Int64
    issued: Bool
    rest: Bool
    may_wait: Bool

    def __len__(self) -> int:
        return len(self.thread)

    def of_thread(self, thread: int) -> Spans:
        """Return those of one thread."""
        rows = np.flatnonzero(self.thread == thread)
        return Spans(*(getattr(self, spec.name)[rows] for spec in fields(self)))


_Columns = TypeVar("_Columns", bound="DataclassInstance")


def join_columns(several: Sequence[_Columns]) -> _Columns:
    """Return records of columns as one, with their rows one after another."""
    first = several[0]
    columns = {spec.name: [getattr(record, spec.name) for record in several] for spec in fields(first)}
    return replace(first, **{name: np.concatenate(parts) for name, parts in columns.items()})


def find_spans_between(thread: int, begin: Int64, end: Int64, first: Bool) -> Spans:
    """Return intervals (S,) of a thread between its operations."""
    count = len(begin)
    no, yes = np.zeros(count, np.bool_), np.ones(count, np.bool_)
    return Spans(
        np.full(count, thread, np.int64), begin, end, first, np.full(count, NONE, np.int64), no, no, yes
    )


def find_inside(
    operations: Operations,
    around: Int64,
    library: dict[int, int],
    launching: Bool,
    rests: tuple[Int64, Bool],
    options: LinkOptions,
) -> Spans:
    """Return the intervals operations spent themselves after their first callee, or after starting a thread.

    A thread may have waited in it. Operations that compute did not, and those of communication libraries are what
    others wait for; of operations without callees only those count that are known to wait. What sets a thread going is
    a call with all it was called by: what these do afterwards must not hold up the thread. Nor must a long rest of any
    operation, such as a range that a program names, hold up what it launched on the device or called to do so. What any of the others
    did after one it called had waited comes after that wait, too, instead of before, where the wait would swallow it.

    Args:
        operations: N operations.
        around: (N,) the operation around each.
        library: Operation of a communication library → the call it carries out.
        launching: (N,) which launch something on the device, themselves or by what they call.
        rests: (N,) when each went on after it had launched something itself or had begun to wait, late where it did not; and which
            operators that compute must not be in one piece.
        options: What to derive.
    """
    count = len(operations)
    start, end = operations.start_ns, operations.end_ns
    inner = np.flatnonzero(around >= 0)
    inner = inner[np.argsort(start[inner], kind="stable")]
    above, firsts = _order_by_first(around[inner], count)
    waiting = operations.find_named(lambda name: _BLOCKING.search(name) is not None)
    waiting = waiting[start[waiting] >= 0]
    issuing, issued_ns = _find_issuing(operations, library)
    # When the first callee of each call began, or what it set going, or it itself where it is known to wait.
    begins = np.full(count, _NEVER, np.int64)
    begins[above] = start[inner[firsts]]
    np.minimum.at(begins, issuing, issued_ns)
    computes = mark_names(operations.names, operations.name, lambda name: name.startswith(COMPUTING))
    rests_ns, apart = rests
    alone = (rests_ns < np.minimum(begins, end)) & (computes | (begins == _NEVER)) & ~operations.frame
    alone = np.flatnonzero(alone)
    begins[alone] = rests_ns[alone]
    silent = waiting[begins[waiting] == _NEVER]
    begins[silent] = start[silent]
    calls, _ = _order_by_first(np.concatenate((above, issuing, silent, alone)), count)
    of_call, before, until, sizes = _list_pieces(operations, around, inner, calls, begins[calls])
    callers = around[np.fromiter(library.values(), np.int64, len(library))]
    issued = (add_callers(callers, around) | _mark_rows(issuing.tolist(), count))[calls]
    launches = (launching | apart)[calls]
    waited = _find_first_waits(waiting, end, around)[calls]
    computing = computes[calls]
    held = computing & (waited != _NEVER)
    later = np.zeros(len(calls), np.int64)
    np.add.at(later, of_call, np.maximum(until - before, 0))
    counts = ((sizes > 0) & (held | launches)) | np.isin(calls, alone)
    least = np.where(computing, _COMPUTING_REST_NS, REST_NS)
    rest = np.where(counts, later, 0) >= np.where(apart[calls], options.least_gap_ns, least)
    kept = ~_mark_rows(library, count)[calls] & (~computing | ((launches | held) & rest))
    took = until - before
    after = rest[of_call] | (before >= waited[of_call])
    least = np.where(issued[of_call] | after, options.least_gap_ns, options.thread_gap_ns)
    waits = ~computing[of_call] & (issued[of_call] | (took >= options.thread_gap_ns))
    chosen = np.flatnonzero(kept[of_call] & (took >= least))
    own = calls[of_call[chosen]]
    return Spans(
        operations.thread[own], before[chosen], until[chosen], np.zeros(len(chosen), np.bool_), own,
        issued[of_call[chosen]], after[chosen], waits[chosen],
    )  # fmt: skip


def _list_pieces(
    operations: Operations, around: Int64, inner: Int64, calls: Int64, begins_ns: Int64
) -> tuple[Int64, Int64, Int64, Int64]:
    """Return the pieces of calls between what they called and behind the last of it, and how many operations each called.

    Of each piece the place of its call, and from when until when it may have gone.

    Args:
        operations: N operations.
        around: (N,) the operation around each.
        inner: Those that others called, by when they began.
        calls: (C,) the calls.
        begins_ns: (C,) from when on their pieces count.
    """
    place = np.full(len(operations), NONE, np.int64)
    place[calls] = np.arange(len(calls))
    inner = inner[np.argsort(place[around[inner]], kind="stable")]
    sizes = np.bincount(place[around[inner]], minlength=len(calls))
    first = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    before = find_before(first, begins_ns, operations.end_ns[inner])
    # A place for each callee of a call, and one for its end.
    until = np.empty(len(before), np.int64)
    ends = first[1:] + np.arange(len(calls))
    is_end = np.zeros(len(before), np.bool_)
    is_end[ends] = True
    until[is_end], until[~is_end] = operations.end_ns[calls], operations.start_ns[inner]
    of_call = np.repeat(np.arange(len(calls)), sizes + 1)
    return of_call, before, until, sizes


def _order_by_first(rows: Int64, count: int) -> tuple[Int64, Int64]:
    """Return which of `count` rows are among some (M,), and where each is first, in this order."""
    first = find_first_uses(rows, count)
    firsts = np.sort(first[first < len(rows)])
    return rows[firsts], firsts


def _mark_rows(rows: Collection[int], count: int) -> Bool:
    """Return which of `count` rows are among some."""
    marked = np.zeros(count, np.bool_)
    marked[np.fromiter(rows, np.int64, len(rows))] = True
    return marked


def _find_first_waits(waiting: Int64, end: Int64, around: Int64) -> Int64:
    """Return when the first operation that may wait had ended within each operation (N,), late where none did."""
    ended = np.full(len(end), _NEVER, np.int64)
    calls, times = around[waiting], end[waiting]
    while len(calls):
        inside = calls >= 0
        calls, times = calls[inside], times[inside]
        np.minimum.at(ended, calls, times)
        calls = around[calls]
    return ended


def _find_issuing(operations: Operations, library: dict[int, int]) -> tuple[Int64, Int64]:
    """Return the calls that started another thread's work while they ran, and when; each as often as it did."""
    start, end, thread = operations.start_ns, operations.end_ns, operations.thread
    rows = np.fromiter(library, np.int64, len(library))
    calls = np.fromiter(library.values(), np.int64, len(library))
    began = start[rows]
    within = (start[calls] >= 0) & (start[calls] <= began) & (began < end[calls])
    apart = within & (thread[rows] != thread[calls])
    return calls[apart], began[apart]
