"""The collectives of a rank by the thread of the library that carried them out, which works for one group alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from studio.et.link.draft import RankDraft
from studio.et.link.facts import Facts
from studio.et.link.names import RECEIVE, SEND
from studio.et.link.sequence import Place
from studio.trace import NONE, CollectiveType

_UNEVEN = (CollectiveType.ALL_TO_ALL, CollectiveType.GATHER, CollectiveType.SCATTER)
"""Kinds of which every rank may bring another size."""
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Item:
    """A collective.

    Attributes:
        place: Where it is.
        key: Kind and size, by which it finds those of other ranks.
        begin_ns, end_ns: When the rank took part.
        thread: Number of the library's thread that carried it out, -1 where that is not known.
        group: The group that is written.
    """

    place: Place
    key: tuple[int, int]
    begin_ns: int
    end_ns: int
    thread: int
    group: str | None


Strand = tuple[int, tuple[int, int]]
"""Collectives of a rank that are in one group: those of a thread, or of a kind and size where there is no thread."""


def collect_items(rank_draft: RankDraft) -> list[Item]:
    """Return the collectives of a rank."""
    operations, communication = rank_draft.operations, rank_draft.communication
    device, launched = rank_draft.device, rank_draft.launched
    items = []
    for row, facts in communication.operators.items():
        if facts.kind in (SEND, RECEIVE):
            continue
        call = communication.issued_by.get(row)
        lost = call is None and bool(communication.issued_by)
        thread = NONE
        if call is not None and device is not None and operations.thread[call] != operations.thread[row]:
            thread = _parse_thread_number(device.threads[int(operations.thread[row])][1])
        end = _NEVER if lost else int(operations.finish[row])
        items.append(
            Item(
                (False, row), _build_key(facts), int(operations.begin[row]), end, thread, facts.group or None
            )
        )
    for place, facts in communication.devices.items():
        if facts.kind not in (SEND, RECEIVE) and device is not None and launched is not None:
            event = int(launched.event[place])
            start = int(device.start_ns[event])
            end = start + int(device.duration_ns[event])
            items.append(Item((True, place), _build_key(facts), start, end, NONE, facts.group or None))
    return items


def _parse_thread_number(name: str) -> int:
    return int(name) if name.isdecimal() and len(name) < 18 else NONE


def _build_key(facts: Facts) -> tuple[int, int]:
    return facts.kind, NONE if facts.kind in _UNEVEN else facts.bytes


def group_by_strand(items: Iterable[Item]) -> dict[Strand, list[Item]]:
    """Return collectives by the thread that carried them out; those that name a group are left out where there is none."""
    strands: dict[Strand, list[Item]] = {}
    for item in items:
        if item.thread != NONE:
            strands.setdefault((item.thread, (NONE, NONE)), []).append(item)
        elif item.group is None:
            strands.setdefault((NONE, item.key), []).append(item)
    return strands
