"""Allocations and frees of memory that a profiler notes beside the operators, one event each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from studio.trace import Int64

HOST_MEMORY = -1
"""The device number of the processor's memory."""


@dataclass(frozen=True, slots=True)
class Allocations:
    """Allocations and frees of one process, in the order of the file.

    M events.

    Attributes:
        time_ns: (M,) when, counted as the other events are.
        threads: (M) process and thread that asked for it, as the file writes them.
        bytes: (M,) bytes allocated; negative for a free.
        device: (M,) number of the device, `HOST_MEMORY` for the processor's memory.
        address: (M,) where, -1 where the file does not tell.
        total: (M,) bytes allocated on the device after the event, -1 where the file does not tell.
        reserved: (M,) bytes that the allocator then holds of the device, -1 where the file does not tell.
    """

    time_ns: Int64
    threads: tuple[tuple[str, str], ...]
    bytes: Int64
    device: Int64
    address: Int64
    total: Int64
    reserved: Int64

    def __len__(self) -> int:
        return len(self.time_ns)

    def later_by(self, shift_ns: int) -> Allocations:
        """Return them with all times moved."""
        return replace(self, time_ns=self.time_ns + shift_ns)

    def take(self, rows: Int64) -> Allocations:
        """Return some of them."""
        columns = {name: getattr(self, name)[rows] for name in _COLUMNS}
        return Allocations(threads=tuple(self.threads[row] for row in rows.tolist()), **columns)


_COLUMNS = ("time_ns", "bytes", "device", "address", "total", "reserved")


def build_empty_allocations() -> Allocations:
    """Return what a file has that notes none."""
    none = np.zeros(0, np.int64)
    return Allocations(none, (), none, none, none, none, none)


def join_allocations(parts: Sequence[Allocations]) -> Allocations:
    """Return the allocations of several pieces of a file, one after another."""
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
    return Allocations(threads=tuple(thread for part in parts for thread in part.threads), **columns)
