"""What collectives of a rank can be compared by with those of others: kinds, sizes, order and times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from studio.et.link.draft import RankDraft
from studio.et.link.facts import Facts
from studio.et.link.sequence import Place, get_facts, read_issue_time
from studio.trace import NEEDS_ALL, NONE, Bool, CollectiveType, Int64


@dataclass(frozen=True, slots=True)
class Calls:
    """Collectives of one rank, in the order of their calls.

    C collectives.

    Attributes:
        kind: (C,) what each is.
        size: (C,) its bytes; -1 where they are not known, or members may bring different ones.
        begin: (C,) when each began, -1 where that is not known.
        end: (C,) when it ended.
        waits: (C,) whether it cannot end before all members have begun it.
        issued: (C,) when it was called for, by what orders operations.
        machine: Whose clock it is; "" where that is not known.
    """

    kind: Int64
    size: Int64
    begin: Int64
    end: Int64
    waits: Bool
    issued: Int64
    machine: str

    def __len__(self) -> int:
        return len(self.kind)


def collect_calls(rank_draft: RankDraft, places: Sequence[Place]) -> Calls:
    """Return collectives of a rank, given their places."""
    facts = [get_facts(rank_draft.communication, place) for place in places]
    times = np.array([_read_times(rank_draft, place) for place in places], np.int64).reshape(-1, 2)
    head = None if rank_draft.device is None else rank_draft.device.head
    return Calls(
        np.array([call.kind for call in facts], np.int64),
        np.array([_compute_size(call) for call in facts], np.int64),
        times[:, 0],
        times[:, 1],
        np.array([_needs_all(rank_draft, *call) for call in zip(places, facts, strict=True)], np.bool_),
        np.array([_read_issue_time(rank_draft, place) for place in places], np.int64),
        "" if head is None or head.base_ns is None else head.host,
    )


def _compute_size(facts: Facts) -> int:
    """Return the bytes that all members bring, -1 where they may be others or were not recorded."""
    unknown = facts.kind == CollectiveType.ALL_TO_ALL or (facts.bytes <= 0 and not facts.is_empty)
    return NONE if unknown else facts.bytes


def _needs_all(rank_draft: RankDraft, place: Place, facts: Facts) -> bool:
    """Whether it cannot end before all members have begun it: a call that hands it over to another thread does."""
    on_device, at = place
    # What carries a call out was issued by it; a call by itself hands it over, or what carried it out was not recorded.
    hands_over = not on_device and at not in rank_draft.communication.issued_by
    return facts.kind in NEEDS_ALL and not facts.is_empty and not hands_over


def _read_times(rank_draft: RankDraft, place: Place) -> tuple[int, int]:
    """Return when a collective began and ended, -1 where that is not known."""
    on_device, at = place
    if not on_device:
        return int(rank_draft.operations.start_ns[at]), int(rank_draft.operations.end_ns[at])
    if rank_draft.device is None or rank_draft.launched is None:
        return NONE, NONE
    event = int(rank_draft.launched.event[at])
    start = int(rank_draft.device.start_ns[event])
    return start, start + int(rank_draft.device.duration_ns[event])


def _read_issue_time(rank_draft: RankDraft, place: Place) -> int:
    """Return when a collective was called for."""
    return read_issue_time(
        place, rank_draft.operations, rank_draft.device, rank_draft.launched, rank_draft.communication
    )
