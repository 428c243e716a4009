"""Find whom a receive from any rank took its message from: no recorder writes it.

A rank takes what has come. So it is the send of the same group, tag and size which began first, of those that no receive
takes by name; those of one rank keep their order. It stays a guess, and is marked as inferred. Where recordings begin at different steps,
nothing from before the first that both have is the other half of anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from studio.et.link.clock import correct_times, have_same_clock
from studio.et.link.draft import RankDraft
from studio.et.link.facts import Facts
from studio.et.link.named_steps import find_common_begin
from studio.et.link.names import RECEIVE, SEND
from studio.et.link.sequence import Place, get_facts
from studio.trace import NONE, RECORDED_LATE_NS

_Line = tuple[int, str, int]
"""Rank that receives, group, and tag."""


@dataclass(frozen=True, slots=True)
class _Message:
    """One half of a message: its node, the facts about it, when its rank was ready for it, by the common clock and by its own; whether that was recorded."""

    place: Place
    facts: Facts
    time_ns: int
    own_ns: int
    timed: bool


def find_senders(drafts: Sequence[RankDraft]) -> None:
    """Set the peer of every receive that names none, where a send fits."""
    unnamed = {
        (rank_draft.number or 0, facts.group or "", facts.tag)
        for rank_draft in drafts
        for facts in _list_facts(rank_draft)
        if facts.kind == RECEIVE and facts.peer == NONE
    }
    if not unnamed:
        return
    sent: dict[_Line, dict[int, deque[_Message]]] = {line: {} for line in unnamed}
    received: dict[_Line, list[_Message]] = {line: [] for line in unnamed}
    for rank_draft in drafts:
        number = rank_draft.number or 0
        for message in _collect_messages(rank_draft):
            facts = message.facts
            line = (number if facts.kind == RECEIVE else facts.peer, facts.group or "", facts.tag)
            if line in unnamed and facts.kind == RECEIVE:
                received[line].append(message)
            elif line in unnamed:
                sent[line].setdefault(number, deque()).append(message)
    by_number = {rank_draft.number or 0: rank_draft for rank_draft in drafts}
    for line, messages in received.items():
        begins = {
            sender: common
            for sender in sent[line]
            if (common := find_common_begin(by_number[sender].steps, by_number[line[0]].steps)) is not None
        }
        for sender, (begin, _) in begins.items():
            sent[line][sender] = deque(message for message in sent[line][sender] if message.own_ns >= begin)
        since = {sender: begin for sender, (_, begin) in begins.items()}
        receiver = by_number[line[0]]
        near = {sender for sender in sent[line] if have_same_clock(by_number[sender], receiver)}
        for message, sender in _match_receives(messages, sent[line], since, near):
            communication = by_number[line[0]].communication
            by_place = communication.devices if message.place[0] else communication.operators
            facts = replace(message.facts, peer=sender, inferred=(*message.facts.inferred, "peer"))
            by_place[message.place[1]] = facts


def _match_receives(
    received: Sequence[_Message],
    sent: dict[int, deque[_Message]],
    since: Mapping[int, int],
    near: Collection[int],
) -> list[tuple[_Message, int]]:
    """Return the receives of a rank that name no sender, each with the rank whose message it took.

    Args:
        received: The receives.
        sent: Sends to the rank by sender.
        since: When the first step began that a sender recorded, too, where that was later than the first receive may have been.
        near: The senders that share the clock of the rank: what they began to send after a receive ended was not received there.
    """
    named = {
        sender: sum(
            message.facts.peer == sender and message.own_ns >= since.get(sender, message.own_ns)
            for message in received
        )
        for sender in sent
    }
    matched = []
    for message in received:
        sender = message.facts.peer
        if sender != NONE:
            if message.own_ns < since.get(sender, message.own_ns):
                continue
            named[sender] = named.get(sender, 0) - 1
            if sent.get(sender):
                sent[sender].popleft()
            continue
        fitting = [
            (waiting[0].time_ns, other)
            for other, waiting in sent.items()
            if len(waiting) > named[other]
            and waiting[0].facts.bytes == message.facts.bytes
            and message.own_ns >= since.get(other, message.own_ns)
            and (
                other not in near
                or not message.timed
                or waiting[0].own_ns <= message.own_ns + RECORDED_LATE_NS
            )
        ]
        if fitting:
            _, other = min(fitting)
            sent[other].popleft()
            matched.append((message, other))
    return matched


def _list_facts(rank_draft: RankDraft) -> list[Facts]:
    return [*rank_draft.communication.operators.values(), *rank_draft.communication.devices.values()]


def _collect_messages(rank_draft: RankDraft) -> list[_Message]:
    """Return sends by when they began, receives by when they had ended: the order in which the messages were taken."""
    operations, communication = rank_draft.operations, rank_draft.communication
    device, launched = rank_draft.device, rank_draft.launched
    places: list[Place] = [
        *((False, row) for row in communication.operators),
        *((True, place) for place in communication.devices),
    ]
    timed = []
    for place in places:
        facts = get_facts(communication, place)
        if facts.kind not in (SEND, RECEIVE):
            continue
        if not place[0]:
            row = place[1]
            time_ns = int((operations.begin if facts.kind == SEND else operations.finish)[row])
            # Gloo may note a send down after it was received.
            call = communication.issued_by.get(row, row)
            own_ns = min(time_ns, int(operations.begin[call])) if facts.kind == SEND else time_ns
            is_timed = bool(operations.start_ns[row] >= 0)
        elif device is not None and launched is not None:
            event = int(launched.event[place[1]])
            time_ns = int(device.start_ns[event]) + (facts.kind == RECEIVE) * int(device.duration_ns[event])
            own_ns, is_timed = time_ns, True
        else:
            continue
        timed.append((time_ns, place, facts, own_ns, is_timed))
    times = correct_times(np.array([time for time, *_ in timed], np.int64), rank_draft.clock)
    messages = [
        _Message(place, facts, time, own_ns, is_timed)
        for (_, place, facts, own_ns, is_timed), time in zip(timed, times.tolist(), strict=True)
    ]
    return sorted(messages, key=lambda message: (message.time_ns, message.place))
