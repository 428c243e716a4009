"""Find which call each note of `studio.collect` is about."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from studio.et.link.carried import may_carry
from studio.et.link.names import infer_operator_kind
from studio.et.link.operations import Operations
from studio.et.recording import NotedCall
from studio.trace import NONE

_APART_NS = 200_000
"""How far the clocks of both recorders may be apart."""
_DELAY_NS = 1_000_000_000
"""How long a thread may be held up between a note and its call where their order tells which belong together."""
_MOST_SEARCHED = 64
"""How many calls may run at once, or follow each other within that time."""


def match_noted(
    operations: Operations, kinds: Mapping[int, int], given: Mapping[int, int], noted: Sequence[NotedCall]
) -> dict[int, NotedCall]:
    """Return what was noted down while each call ran or, of messages, just before; each note for one call.

    Of several calls that ran at the time, on threads of their own, those count first that gave as many bytes.

    Args:
        operations: What the processor did.
        kinds: The kind of each call, by row.
        given: Bytes that each call gave, -1 where not known, by row.
        noted: Notes, by time.
    """
    rows = sorted(
        (row for row in kinds if operations.start_ns[row] >= 0), key=lambda row: int(operations.start_ns[row])
    )
    if _are_in_step(operations, kinds, rows, noted):
        return dict(zip(rows, noted, strict=True))
    begins = [int(operations.start_ns[row]) for row in rows]
    matched: dict[int, NotedCall] = {}
    for note in noted:
        kind = infer_operator_kind(note.name)
        best, least = NONE, (True, _APART_NS)
        high = bisect_left(begins, note.time_ns + _APART_NS)
        # The last of those that were running is the one: calls of a thread follow each other.
        for row in reversed(rows[max(high - _MOST_SEARCHED, 0) : high]):
            begin, end = int(operations.start_ns[row]), int(operations.end_ns[row])
            apart = max(begin - note.time_ns, note.time_ns - end, 0)
            rank = (NONE not in (note.bytes, given[row]) and note.bytes != given[row], apart)
            if row not in matched and may_carry(kind, kinds[row]) and apart < _APART_NS and rank < least:
                best, least = row, rank
        if best != NONE:
            matched[best] = note
    return matched


def _are_in_step(
    operations: Operations, kinds: Mapping[int, int], rows: Sequence[int], noted: Sequence[NotedCall]
) -> bool:
    """Whether calls of one thread and notes are as many, of the same kinds in the same order, and each near its own."""
    if len(rows) != len(noted) or len({int(operations.thread[row]) for row in rows}) != 1:
        return False
    return all(
        may_carry(infer_operator_kind(note.name), kinds[row])
        and operations.start_ns[row] - _DELAY_NS < note.time_ns < operations.end_ns[row] + _APART_NS
        for row, note in zip(rows, noted, strict=True)
    )
