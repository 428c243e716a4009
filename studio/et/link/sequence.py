"""The order in which a rank issues its collectives.

Libraries match collectives by the order in which a rank issues them, whichever thread or stream carries them out then
and in which order these begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from studio.et.link.attribute import DeviceOperations
from studio.et.link.facts import Communication, Facts
from studio.et.link.names import RECEIVE, SEND
from studio.et.link.operations import Operations
from studio.et.recording import DeviceTrace

Place = tuple[bool, int]
"""Whether it is a device operation, and its place among those, or else the row of the operation."""


def order_by_issue(
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
    for index, facts in communication.devices.items():
        if facts.kind in (SEND, RECEIVE) or device is None or launched is None:
            continue
        start, row = int(device.start_ns[launched.event[index]]), int(launched.operator[index])
        call = communication.issued_by.get(row, row)
        keys.append((int(begin[call]) if call >= 0 else start, call, start, (True, index)))
    return [place for *_, place in sorted(keys)]


def read_issue_time(
    place: Place,
    operations: Operations,
    device: DeviceTrace | None,
    launched: DeviceOperations | None,
    communication: Communication,
) -> int:
    """Return when the call for a collective began, by the times that operations are ordered by."""
    call = find_call(place, launched, communication)
    if call >= 0:
        return int(operations.begin[call])
    assert device is not None
    assert launched is not None
    return int(device.start_ns[launched.event[place[1]]])


def find_call(place: Place, launched: DeviceOperations | None, communication: Communication) -> int:
    """Return the row of the call for a collective, -1 where it was not recorded."""
    on_device, row = place
    if on_device:
        assert launched is not None
        row = int(launched.operator[row])
    return communication.issued_by.get(row, row)


def list_chains(order: Sequence[Place], communication: Communication) -> list[tuple[Place, Place]]:
    """Return pairs of collectives that follow each other in a comm group."""
    groups: dict[str | None, list[Place]] = {}
    for place in order:
        groups.setdefault(get_facts(communication, place).group, []).append(place)
    return [pair for places in groups.values() for pair in pairwise(places)]


def get_facts(communication: Communication, place: Place) -> Facts:
    """Return what is known of the collective at a place."""
    return (communication.devices if place[0] else communication.operators)[place[1]]
