"""Operations around others, and the intervals that operations spent themselves after they had called others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from studio.et.link.operations import Operations, find_parents
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
    for row in rows:
        while row >= 0 and row not in rows_within:
            rows_within.add(row)
            row = int(around[row])  # noqa: PLW2901 (walks outwards)
    return rows_within


def find_within_library(operations: Operations, around: Int64, library: dict[int, int]) -> Bool:
    """Return which operations (N,) lie within one of a communication library."""
    within = np.zeros(len(operations), np.bool_)
    rows = np.flatnonzero(around >= 0)
    for row in rows[np.argsort(operations.start_ns[rows], kind="stable")].tolist():
        within[row] = within[around[row]] or int(around[row]) in library
    return within


@dataclass(frozen=True, slots=True)
class Span:
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
    # Lists: most operations have few callees, for which an array takes longer to make than to use.
    start, end = operations.start_ns.tolist(), operations.end_ns.tolist()
    callees: dict[int, list[int]] = {}
    inner = np.flatnonzero(around >= 0)
    inner = inner[np.argsort(operations.start_ns[inner], kind="stable")]
    for row, call in zip(inner.tolist(), around[inner].tolist(), strict=True):
        callees.setdefault(call, []).append(row)
    begins = {call: start[rows[0]] for call, rows in callees.items()}
    issuing = _issuing(operations, library)
    for call, begin in issuing.items():
        begins[call] = min(begins.get(call, begin), begin)
    issued = issuing.keys() | add_callers((int(around[call]) for call in library.values()), around)
    blocking = {name for name in set(operations.names) if _BLOCKING.search(name)}
    waiting = [row for row, name in enumerate(operations.names) if name in blocking and start[row] >= 0]
    for row in waiting:
        begins.setdefault(row, start[row])
    waited = _first_waits(waiting, operations.end_ns, around)
    spans = []
    for call, begin in begins.items():
        computing = operations.names[call].startswith(COMPUTING)
        if call in library or (computing and call not in launching and call not in waited):
            continue
        within = callees.get(call, ())
        befores = list(accumulate((end[row] for row in within), max, initial=begin))
        untils = [*(start[row] for row in within), end[call]]
        held = computing and call in waited
        later = (
            sum(max(until - before, 0) for before, until in zip(befores, untils, strict=True))
            if within and (held or call in launching)
            else 0
        )
        rest = later >= (_COMPUTING_REST_NS if computing else REST_NS)
        if computing and not rest:
            continue
        for before, until in zip(befores, untils, strict=True):
            after = rest or before >= waited.get(call, _NEVER)
            if until - before >= (options.least_gap_ns if call in issued or after else options.thread_gap_ns):
                waits = not computing and (call in issued or until - before >= options.thread_gap_ns)
                spans.append(
                    Span(
                        int(operations.thread[call]), before, until, False, call, call in issued, after, waits
                    )
                )
    return spans


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
