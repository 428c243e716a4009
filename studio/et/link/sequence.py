"""The order in which a rank issues its collectives, and the number that each of them has in its comm group.

Libraries match collectives by the order in which a rank issues them, whichever thread or stream carries them out then
and in which order these begin. NCCL's recorders write that number (`seq`); elsewhere the order of the calls tells it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from studio.et.kineto import DeviceTrace
from studio.et.link.attribute import DeviceOperations
from studio.et.link.communication import Communication, Facts
from studio.et.link.names import RECEIVE, SEND
from studio.et.link.operations import Operations

if TYPE_CHECKING:
    from studio.et.link.draft import RankDraft

Place = tuple[bool, int]
"""Whether it is a device operation, and its place among those, or else the row of the operation."""


def issued(
    operations: Operations,
    device: DeviceTrace | None,
    launched: DeviceOperations | None,
    communication: Communication,
) -> list[Place]:
    """Return the collectives of a rank in the order their calls were issued."""
    begin = operations.begin
    keys: list[tuple[int, int, int, Place]] = []
    for row, facts in communication.operators.items():
        if facts.kind not in (SEND, RECEIVE):
            call = communication.issued_by.get(row, row)
            keys.append((int(begin[call]), call, row, (False, row)))
    for at, facts in communication.devices.items():
        if facts.kind in (SEND, RECEIVE) or device is None or launched is None:
            continue
        start, row = int(device.start_ns[launched.event[at]]), int(launched.operator[at])
        call = communication.issued_by.get(row, row)
        keys.append((int(begin[call]) if call >= 0 else start, call, start, (True, at)))
    return [place for *_, place in sorted(keys)]


def chains(order: Sequence[Place], communication: Communication) -> list[tuple[Place, Place]]:
    """Return the collectives that follow each other in a comm group."""
    groups: dict[str | None, list[Place]] = {}
    for place in order:
        groups.setdefault(_facts(communication, place).group, []).append(place)
    return [pair for places in groups.values() for pair in pairwise(places)]


def number(drafts: Sequence[RankDraft]) -> None:
    """Give every collective its number in its comm group, counted on from what recorders wrote, else from 0.

    Where a recorder numbered those of some ranks of a group, the others are left without: theirs would not fit.
    """
    orders = [issued(made.operations, made.device, made.launched, made.communication) for made in drafts]
    told = Counter[str]()
    for made, order in zip(drafts, orders, strict=True):
        known = [_facts(made.communication, place) for place in order]
        told.update({facts.group for facts in known if facts.group and facts.seq >= 0})
    for made, order in zip(drafts, orders, strict=True):
        groups: dict[str, list[Place]] = {}
        for place in order:
            groups.setdefault(_facts(made.communication, place).group or "", []).append(place)
        for name, places in groups.items():
            written = [_facts(made.communication, place).seq for place in places]
            if max(written) < 0 and told[name]:
                continue
            for place, seq, before in zip(places, _counted(written), written, strict=True):
                if before < 0 and seq >= 0:
                    _renumber(made.communication, place, seq)


def _counted(written: Sequence[int]) -> list[int]:
    """Return numbers, the missing ones counted on from those before; as they are where that does not fit.

    Example:
        >>> _counted([-1, -1]), _counted([-1, 7, -1, 9]), _counted([3, -1, 4])
        ([0, 1], [6, 7, 8, 9], [3, -1, 4])
    """
    first = next((at for at, seq in enumerate(written) if seq >= 0), None)
    start = 0 if first is None else written[first] - first
    found: list[int] = []
    for at, seq in enumerate(written):
        found.append(seq if seq >= 0 else (found[-1] + 1 if found else start + at))
    rising = all(one < other for one, other in pairwise(found))
    return found if rising and found[:1] >= [0] else list(written)


def _facts(communication: Communication, place: Place) -> Facts:
    return (communication.devices if place[0] else communication.operators)[place[1]]


def _renumber(communication: Communication, place: Place, seq: int) -> None:
    facts_of = communication.devices if place[0] else communication.operators
    facts = facts_of[place[1]]
    facts_of[place[1]] = replace(facts, seq=seq, inferred=(*facts.inferred, "seq"))
