"""Device operations by stream, when they were launched, and which of them a call waits for."""

from __future__ import annotations

import re

import numpy as np

from studio.et.link.attribute import DeviceOperations
from studio.et.recording import DeviceTrace, EventKind
from studio.trace import NONE, Int64

_DEVICE_SYNC = re.compile(r"(cuda|hip|mtia|cu)(Device|Ctx|Context)Synchronize")
WAITING_COPY = re.compile(r"(cudaMemcpy|hipMemcpy|hipMemcpyWithStream|cuMemcpy(HtoD|DtoH|DtoD)?(_v2)?)$")
_RISING = 0.9
"""The part of neighbouring correlation ids whose calls must stand in the same order by time for ids to tell an order."""


class LaunchedByStream:
    """Device operations by stream, to find the last that was launched before a time."""

    def __init__(self, device: DeviceTrace, launched: DeviceOperations) -> None:
        self.device, self.launched = device, launched
        events = launched.event
        self.finish = device.start_ns[events] + device.duration_ns[events]
        self.launch_ns = launch_times(device, launched)
        self._unknown = np.flatnonzero(launched.launch < 0)
        self.streams = {
            (int(device.device[first]), int(device.stream[first])): rows
            for rows in streams_of(device, launched)
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

    def awaited(self, call: int, sync: int, operation: int) -> list[int]:
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
            return np.flatnonzero(self.launched.launch == call).tolist()
        if _DEVICE_SYNC.match(name):
            last = [self.last_before(stream, begin) for _, stream in self.streams]
            return sorted({place for place in last if place >= 0} | self._ended_within(call))
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
        ended = np.flatnonzero((self.finish > begin) & (self.finish <= end) & (self.launch_ns <= begin))
        if not len(ended) and operation >= 0:
            # Nothing was left to wait for: it is what the same operator had launched, such as a copy that it reads.
            mine = (self.launched.operator == operation) & (self.launched.launch >= 0)
            ended = np.flatnonzero(mine & (self.finish <= end) & (self.launch_ns <= begin))
        return [int(ended[np.argmax(self.finish[ended])])] if len(ended) else []

    def _ended_within(self, call: int) -> set[int]:
        """Return the last operation to end while a call waited, of those that nothing tells the launch of."""
        begin = int(self.device.start_ns[call])
        end = begin + int(self.device.duration_ns[call])
        finish = self.finish[self._unknown]
        ended = self._unknown[(finish > begin) & (finish <= end)]
        return {int(ended[np.argmax(self.finish[ended])])} if len(ended) else set()


def launch_times(device: DeviceTrace, launched: DeviceOperations) -> Int64:
    """Return when each device operation (D,) was launched, at the latest.

    Launches before the recording began are not in it. Correlation ids rise with the calls of a process, so an operation
    was launched before the recorded call with the next higher id; without an id it was launched before it started.
    """
    events = launched.event
    there = launched.launch >= 0
    times = np.where(there, device.start_ns[launched.launch], device.start_ns[events])
    unknown = np.flatnonzero(~there & (device.correlation[events] >= 0))
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


def streams_of(device: DeviceTrace, launched: DeviceOperations) -> list[Int64]:
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
