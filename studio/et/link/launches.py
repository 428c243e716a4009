"""Device operations by stream, when they were launched, and which of them a call waits for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from studio.et.link.attribute import DeviceOperations
from studio.et.recording import DeviceTrace, EventKind
from studio.trace import NONE, Int64

_DEVICE_SYNC = re.compile(r"(cuda|hip|mtia|cu)(Device|Ctx|Context)Synchronize")
WAITING_COPY = re.compile(r"(cudaMemcpy|hipMemcpy|hipMemcpyWithStream|cuMemcpy(HtoD|DtoH|DtoD)?(_v2)?)$")
_RISING = 0.9
"""The part of neighbouring correlation ids whose calls must stand in the same order by time for ids to tell an order."""


_BEFORE_ALL, _AFTER_ALL = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class _Ended:
    """Device operations in order of their ends, and of those that ended together in falling order.

    E operations.

    Attributes:
        place: (E,) where they stand among all.
        finish_ns: (E,) when they ended.
        launch_ns: (E,) when they were launched, at the latest.
    """

    place: Int64
    finish_ns: Int64
    launch_ns: Int64

    def part(self, begin: int, end: int) -> _Ended:
        """Return those from one row to another, which are in order as well."""
        return _Ended(self.place[begin:end], self.finish_ns[begin:end], self.launch_ns[begin:end])

    def last(self, after_ns: int, until_ns: int, launched_ns: int) -> int:
        """Return the last to end after a time and by another, of those launched by a third; the first of equal ones, -1 for none."""
        begin, end = np.searchsorted(self.finish_ns, [after_ns, until_ns], side="right").tolist()
        # It is among the last few, but where clocks disagree: looking at all of them for each call would be quadratic.
        count = 16
        while end > begin:
            first = max(begin, end - count)
            matches = np.flatnonzero(self.launch_ns[first:end] <= launched_ns)
            if len(matches):
                return int(self.place[first + matches[-1]])
            end, count = first, 2 * count
        return NONE


class LaunchedByStream:
    """Device operations by stream, to find the last that was launched before a time."""

    def __init__(self, device: DeviceTrace, launched: DeviceOperations) -> None:
        self.device, self.launched = device, launched
        events = launched.event
        self.finish = device.start_ns[events] + device.duration_ns[events]
        self.launch_ns = compute_launch_times(device, launched)
        self.streams = {
            (int(device.device[first]), int(device.stream[first])): rows
            for rows in group_by_stream(device, launched)
            for first in [int(events[int(rows[0])])]
        }
        # Of all after an operation the earliest launch: it rises, and tells the last launched before a time.
        self._later = {
            key: np.minimum.accumulate(self.launch_ns[rows][::-1])[::-1] for key, rows in self.streams.items()
        }
        calls = np.flatnonzero((device.kind == EventKind.RUNTIME) & (device.correlation >= 0))
        numbers = device.correlation[calls].tolist()
        self._begun = dict(zip(numbers[::-1], device.start_ns[calls].tolist()[::-1], strict=True))

    def last_before(self, stream: int, time_ns: int) -> int:
        """Return the last operation on a stream launched before a time, -1 where there is none."""
        for key, rows in self.streams.items():
            if key[1] == stream:
                count = int(np.searchsorted(self._later[key], time_ns, side="right"))
                return int(rows[count - 1]) if count else NONE
        return NONE

    def first_from(self, stream: int, time_ns: int) -> int:
        """Return the first operation on a stream launched at a time or later, -1 where there is none."""
        for key, rows in self.streams.items():
            if key[1] == stream:
                count = int(np.searchsorted(self._reached[key], time_ns))
                return int(rows[count]) if count < len(rows) else NONE
        return NONE

    @cached_property
    def _reached(self) -> dict[tuple[int, int], Int64]:
        """Of all up to an operation the latest launch: it rises, and tells the first launched from a time on."""
        return {key: np.maximum.accumulate(self.launch_ns[rows]) for key, rows in self.streams.items()}

    @cached_property
    def _by_launch(self) -> tuple[Int64, Int64]:
        """The operations in order of the calls that launched them, and these calls."""
        order = np.argsort(self.launched.launch, kind="stable")
        return order, self.launched.launch[order]

    @cached_property
    def _ended(self) -> _Ended:
        """All operations by their ends."""
        order = np.lexsort((-np.arange(len(self.finish)), self.finish))
        return _Ended(order, self.finish[order], self.launch_ns[order])

    @cached_property
    def _ended_of_unknown(self) -> _Ended:
        """Those of which nothing tells the launch."""
        order = self._ended.place[self.launched.launch[self._ended.place] < 0]
        return _Ended(order, self.finish[order], self.launch_ns[order])

    @cached_property
    def _ended_by_operator(self) -> tuple[_Ended, Int64]:
        """Those whose launch is recorded, operator by operator, and these operators."""
        order = self._ended.place[self.launched.launch[self._ended.place] >= 0]
        order = order[np.argsort(self.launched.operator[order], kind="stable")]
        return _Ended(order, self.finish[order], self.launch_ns[order]), self.launched.operator[order]

    def find_awaited(self, call: int, sync: int, operation: int) -> list[int]:
        """Return the operations that a synchronising call waits for.

        Args:
            call: Its event.
            sync: The event of CUPTI that says what it waits for, -1 where there is none.
            operation: The operation around the call, -1 for none.
        """
        device = self.device
        name = device.names[device.name[call]]
        begin = int(device.start_ns[call])
        if WAITING_COPY.match(name):
            order, calls = self._by_launch
            first, last = np.searchsorted(calls, [call, call + 1]).tolist()
            places: list[int] = order[first:last].tolist()
            return places
        if _DEVICE_SYNC.match(name):
            last = [self.last_before(stream, begin) for _, stream in self.streams]
            return sorted({place for place in last if place >= 0} | self._find_ended_within(call))
        if sync >= 0 and device.wait_record[sync] >= 0:
            begin = self._begun.get(int(device.wait_record[sync]), begin)
        stream = NONE
        if sync >= 0:
            stream = int(device.wait_stream[sync] if device.wait_stream[sync] >= 0 else device.stream[sync])
        if stream >= 0:
            place = self.last_before(stream, begin)
            return [place] if place >= 0 else []
        # The stream is not recorded: it is the one whose last operation ended while the call waited.
        end = begin + int(device.duration_ns[call])
        place = self._ended.last(begin, end, begin)
        if place < 0 and operation >= 0:
            # Nothing was left to wait for: it is what the same operator had launched, such as a copy that it reads.
            ended, operators = self._ended_by_operator
            first, last = np.searchsorted(operators, [operation, operation + 1]).tolist()
            place = ended.part(first, last).last(_BEFORE_ALL, end, begin)
        return [place] if place >= 0 else []

    def _find_ended_within(self, call: int) -> set[int]:
        """Return the last operation to end while a call waited, of those that nothing tells the launch of."""
        begin = int(self.device.start_ns[call])
        end = begin + int(self.device.duration_ns[call])
        place = self._ended_of_unknown.last(begin, end, _AFTER_ALL)
        return {place} if place >= 0 else set()


def compute_launch_times(device: DeviceTrace, launched: DeviceOperations) -> Int64:
    """Return when each device operation (D,) was launched, at the latest.

    Launches before the recording began are not in it. Correlation ids rise with the calls of a process, so an operation
    was launched before the recorded call with the next higher id; without an id it was launched before it started.
    """
    events = launched.event
    is_launched = launched.launch >= 0
    times = np.where(is_launched, device.start_ns[launched.launch], device.start_ns[events])
    unknown = np.flatnonzero(~is_launched & (device.correlation[events] >= 0))
    calls = np.flatnonzero((device.kind == EventKind.RUNTIME) & (device.correlation >= 0))
    calls = calls[np.argsort(device.correlation[calls], kind="stable")]
    begun = device.start_ns[calls]
    falling = int((np.diff(begun) < 0).sum())
    if not len(unknown) or not len(calls) or falling > (1 - _RISING) * len(calls):
        return times
    # The next call alone tells: others may have numbers from another range.
    place = np.searchsorted(device.correlation[calls], device.correlation[events[unknown]], side="right")
    times[unknown] = np.minimum(times[unknown], np.append(begun, np.iinfo(np.int64).max)[place])
    return times


def group_by_stream(device: DeviceTrace, launched: DeviceOperations) -> list[Int64]:
    """Return the places of device operations, stream by stream, in order of start."""
    events = launched.event
    if not len(events):
        return []
    known = device.stream[events] >= 0
    lane = np.where(known, device.stream[events], device.thread[events].astype(np.int64) + (1 << 40))
    _, of_device = np.unique(device.device[events], return_inverse=True)
    lanes, of_lane = np.unique(lane, return_inverse=True)
    codes = of_device.reshape(-1) * len(lanes) + of_lane.reshape(-1)
    order = np.argsort(codes, kind="stable")
    return [part for part in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1) if len(part)]


def compute_replayed_ends(ready: Int64, device: DeviceTrace, launched: DeviceOperations) -> Int64:
    """Return when operations of the device (D,) end, stream by stream, if they are ready at some time."""
    length = device.duration_ns[launched.event]
    ended = np.zeros(len(ready), np.int64)
    for rows in group_by_stream(device, launched):
        before = np.cumsum(length[rows]) - length[rows]
        ended[rows] = np.maximum.accumulate(ready[rows] - before) + before + length[rows]
    return ended
