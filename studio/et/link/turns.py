"""Count messages from a common step on, where the names of steps tell that the recordings of two ranks begin apart.

The n-th send of a rank would else be taken for the other half of the n-th receive of another, some steps off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from studio.et.link.clock import have_same_clock
from studio.et.link.draft import RankDraft
from studio.et.link.facts import Facts
from studio.et.link.named_steps import begin_apart, count_by_steps
from studio.et.link.names import RECEIVE, SEND
from studio.et.link.sequence import Place, get_facts, read_issue_time
from studio.et.link.shifts import is_steadier, measure_spread
from studio.trace import NONE, RECORDED_LATE_NS, Int64

_LEAST_SPREAD = 6
"""So many messages have to be compared by the intervals between them."""
_MET = 0.9
"""Share of the messages on one clock that may not have been received before they were sent."""

_Line = tuple[int, int, int, int]
"""Sender, receiver, tag and size of messages."""


@dataclass(frozen=True, slots=True)
class _Halves:
    """The sends of a line, or its receives.

    Attributes:
        index: Place of the draft.
        places: (H,) where they are, in the order of their calls.
        issued: (H,) when they were called for.
        met: (H,) when the sends began, or the receives ended; -1 where that is not known.
    """

    index: int
    places: list[Place]
    issued: Int64
    met: Int64


def number_messages(drafts: Sequence[RankDraft]) -> None:
    """Number the messages between ranks whose recordings begin at different steps; others stay without numbers."""
    if not begin_apart([rank_draft.steps for rank_draft in drafts]):
        return
    lines: dict[tuple[int, int], dict[_Line, list[_Halves]]] = {}
    for index, rank_draft in enumerate(drafts):
        for line, halves in _collect_halves(rank_draft, index):
            lines.setdefault((min(line[:2]), max(line[:2])), {}).setdefault(line, []).append(halves)
    for between in lines.values():
        both = [(halves[0], halves[1]) for halves in between.values() if len(halves) == 2]
        counted = [(this, other, _count_line(drafts, this, other)) for this, other in both]
        if any(first is None for _, _, first in counted):
            continue
        for this, other, first in counted:
            if first is not None and first[0] != first[1]:
                _write_turns(drafts[this.index], this.places, first[0])
                _write_turns(drafts[other.index], other.places, first[1])


def _collect_halves(rank_draft: RankDraft, index: int) -> Iterator[tuple[_Line, _Halves]]:
    """Yield the messages of a rank whose peer is known, line by line; of a line sends before receives by sender's rank."""
    communication, own = rank_draft.communication, rank_draft.number or 0
    by_line: dict[_Line, list[tuple[int, Place, int]]] = {}
    every: list[Place] = [(False, row) for row in communication.operators]
    every += [(True, row) for row in communication.devices]
    for place in every:
        facts = get_facts(communication, place)
        if facts.kind not in (SEND, RECEIVE) or facts.peer in (NONE, own):
            continue
        ends = (own, facts.peer) if facts.kind == SEND else (facts.peer, own)
        issued = read_issue_time(
            place, rank_draft.operations, rank_draft.device, rank_draft.launched, communication
        )
        by_line.setdefault((*ends, facts.tag, facts.bytes), []).append(
            (issued, place, _read_meeting_time(rank_draft, place, facts))
        )
    for line, halves in by_line.items():
        halves.sort()
        issued_times, places, met = zip(*halves, strict=True)
        yield (
            line,
            _Halves(index, list(places), np.array(issued_times, np.int64), np.array(met, np.int64)),
        )


def _read_meeting_time(rank_draft: RankDraft, place: Place, facts: Facts) -> int:
    """Return when a send began, or a receive ended; -1 where that is not known."""
    on_device, row = place
    if not on_device:
        operations = rank_draft.operations
        call = rank_draft.communication.issued_by.get(row, row)
        if operations.start_ns[row] < 0:
            return NONE
        # Gloo may note a send down after it was received.
        return int(operations.begin[call] if facts.kind == SEND else operations.end_ns[row])
    assert rank_draft.device is not None
    assert rank_draft.launched is not None
    event = int(rank_draft.launched.event[row])
    start = int(rank_draft.device.start_ns[event])
    return start if facts.kind == SEND else start + int(rank_draft.device.duration_ns[event])


def _count_line(drafts: Sequence[RankDraft], this: _Halves, other: _Halves) -> tuple[int, int] | None:
    """Return with which message of a line either rank begins; None where steps do not tell, as where they share none, or times refute them."""
    pair = drafts[this.index], drafts[other.index]
    first, other_first = count_by_steps(
        [rank_draft.steps for rank_draft in pair], [this.issued, other.issued]
    )
    if first is None or other_first is None:
        return None
    met, other_met = _list_common_times(this, other, first - other_first)
    if not len(met):
        return None
    if have_same_clock(*pair):
        is_sent = get_facts(pair[0].communication, this.places[0]).kind == SEND
        sent, received = (met, other_met) if is_sent else (other_met, met)
        return (first, other_first) if (received + RECORDED_LATE_NS >= sent).mean() >= _MET else None
    in_order = _list_common_times(this, other, 0)
    if len(in_order[0]) >= _LEAST_SPREAD and is_steadier(
        measure_spread(*in_order), measure_spread(met, other_met)
    ):
        return None
    return first, other_first


def _list_common_times(this: _Halves, other: _Halves, ahead: int) -> tuple[Int64, Int64]:
    """Return when the messages that both recorded met on either, if one begins so many messages after the other."""
    own, theirs = this.met[max(-ahead, 0) :], other.met[max(ahead, 0) :]
    count = min(len(own), len(theirs))
    known = (own[:count] >= 0) & (theirs[:count] >= 0)
    return own[:count][known], theirs[:count][known]


def _write_turns(rank_draft: RankDraft, places: Sequence[Place], first: int) -> None:
    communication = rank_draft.communication
    for turn, place in enumerate(places, first):
        by_place = communication.devices if place[0] else communication.operators
        by_place[place[1]] = replace(by_place[place[1]], turn=turn)
