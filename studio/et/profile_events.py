"""Collect the events of one process, as profilers other than PyTorch's write them, into a device trace."""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from studio.distinct import find_distinct
from studio.et.recording import DEVICE_KINDS, DeviceTrace, EventKind, Head
from studio.trace import NONE, Int64

LONGEST_NS = 2**62
_NUMBERS = ("correlation", "stream", "device", "bytes")
_WAITS = ("wait_stream", "wait_record")
_BLIT = re.compile(r"__amd_rocclr_(copy|fill)", re.IGNORECASE)
_MEMSET = re.compile(r"memset|fill", re.IGNORECASE)


class Event(NamedTuple):
    """An event of a process.

    Attributes:
        kind: What it is.
        name: Its name; untrusted text.
        start_ns, duration_ns: When it ran.
        thread: Process and thread, or device and queue.
        correlation: The number that the launch and the launched operation share, -1 where there is none.
        stream, device: Of a device operation, else -1.
        bytes: Moved by a copy, -1 where not known.
        comm: What is known about the communication it is.
        wait_stream, wait_record: Of a call that waits: the stream of the event it waits for, and the call that recorded this event.
        grid: Blocks that a kernel was launched with along each dimension, -1 where not known.
    """

    kind: EventKind
    name: str
    start_ns: int
    duration_ns: int
    thread: tuple[str, str]
    correlation: int = NONE
    stream: int = NONE
    device: int = NONE
    bytes: int = NONE
    comm: dict[str, Any] | None = None
    wait_stream: int = NONE
    wait_record: int = NONE
    grid: tuple[int, int, int] = (NONE, NONE, NONE)


@dataclass(slots=True)
class Events:
    """The events of a process so far.

    Attributes:
        rows: The events.
        damaged: How many were left out because their times are none.
    """

    rows: list[Event] = field(default_factory=list)
    damaged: int = 0

    def add(self, event: Event) -> None:
        """Add an event, or count it where its times are none."""
        if abs(event.start_ns) < LONGEST_NS and 0 <= event.duration_ns < LONGEST_NS:
            # Only what waits has more of them, and most events of long recordings do not.
            numbers = (*_NUMBERS, *_WAITS) if event.kind == EventKind.SYNC else _NUMBERS
            beyond: dict[str, Any] = {
                name: NONE for name in numbers if not NONE <= getattr(event, name) < 1 << 63
            }
            self.rows.append(event._replace(**beyond) if beyond else event)
        else:
            self.damaged += 1

    @property
    def devices(self) -> set[int]:
        """The devices that ran something."""
        return {event.device for event in self.rows if event.kind in DEVICE_KINDS}

    def trace(self, file: str, head: Head, pid: int = NONE, *, damaged: bool = False) -> DeviceTrace:
        """Return the events as columns, by time."""
        rows = sorted(self.rows, key=lambda event: (event.start_ns, -event.duration_ns))
        names: dict[str, int] = {}
        threads: dict[tuple[str, str], int] = {}

        def build_column(field_name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
            return np.array([getattr(event, field_name) for event in rows], np.int64)

        missing = np.full(len(rows), NONE, np.int64)
        kind = np.array([event.kind for event in rows], np.uint8)
        waits = np.flatnonzero(kind == EventKind.SYNC).tolist()
        waited_for = [missing.copy() for _ in _WAITS]
        for column, name in zip(waited_for, _WAITS, strict=True):
            column[waits] = [getattr(rows[row], name) for row in waits]
        grid = np.full((len(rows), 3), NONE, np.int64)
        launched = [row for row in np.flatnonzero(kind == EventKind.KERNEL).tolist() if rows[row].grid[0] > 0]
        grid[launched] = np.array([rows[row].grid for row in launched], np.int64).reshape(-1, 3)
        stream, wait_stream = _number_streams(build_column("device"), build_column("stream"), waited_for[0])
        return DeviceTrace(
            file=file,
            head=head,
            kind=kind,
            name=np.array([names.setdefault(event.name, len(names)) for event in rows], np.int32),
            start_ns=build_column("start_ns"),
            duration_ns=build_column("duration_ns"),
            thread=np.array([threads.setdefault(event.thread, len(threads)) for event in rows], np.int32),
            threads=tuple(threads),
            record_function=missing.copy(),
            external=missing.copy(),
            correlation=build_column("correlation"),
            stream=stream,
            device=build_column("device"),
            bytes=build_column("bytes"),
            wait_stream=wait_stream,
            wait_record=waited_for[1],
            comm={row: dict(event.comm) for row, event in enumerate(rows) if event.comm is not None},
            flops=missing.copy(),
            grid=grid,
            inputs=np.full(len(rows), NONE, np.int32),
            input_texts=[],
            names=list(names),
            pid=pid,
            damaged=damaged,
        )


class RecordedEvents:
    """The calls that recorded events on streams, to find the one that a later call waits for."""

    def __init__(self) -> None:
        self._records: dict[Hashable, list[tuple[int, int]]] = {}

    def add(self, event: Hashable, correlation: int, stream: int) -> None:
        """Add a call by its correlation; an event may be recorded many times."""
        insort(self._records.setdefault(event, []), (correlation, stream))

    def find_last(self, event: Hashable, correlation: int) -> tuple[int, int] | None:
        """Return correlation and stream of the last call before another one that recorded an event, None where none did."""
        records = self._records.get(event, [])
        place = bisect_left(records, (correlation, NONE)) - 1
        return records[place] if place >= 0 else None


def _number_streams(device: Int64, *streams: Int64) -> tuple[Int64, ...]:
    """Return stream numbers (E,) of each column that no two devices share: their own, else numbers of the pairs.

    Example:
        >>> [column.tolist() for column in _number_streams(np.array([0, 1, 0]), np.array([7, 7, 8]), np.array([-1, -1, 7]))]
        [[0, 2, 1], [-1, -1, 0]]
    """
    pairs = np.stack([np.tile(device, len(streams)), np.concatenate(streams)], axis=1)
    pairs, place = np.unique(pairs[pairs[:, 1] != NONE], axis=0, return_inverse=True)
    if len(find_distinct(pairs[:, 1])) == len(pairs):
        return streams
    numbered = np.full((len(streams), len(device)), NONE, np.int64)
    numbered[np.stack(streams) != NONE] = place.reshape(-1)
    return tuple(numbered)


def infer_device_kind(name: str) -> EventKind:
    """Return what a device operation is by its name: ROCm's runtime copies and fills with kernels of its own.

    Example:
        >>> infer_device_kind("__amd_rocclr_copyBuffer").name, infer_device_kind("MemcpyH2D").name, infer_device_kind("gemm").name
        ('COPY', 'COPY', 'KERNEL')
    """
    lower = name.lower()
    if _BLIT.match(name) or lower.startswith(("memcpy", "memset", "memory_copy")):
        return EventKind.FILL if _MEMSET.search(name) else EventKind.COPY
    return EventKind.KERNEL
