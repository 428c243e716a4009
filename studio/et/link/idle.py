"""Find the time for which a stream of the device stood idle before an operation although all it waited for was done.

That is what it takes from the launch to the start, and from one operation to the next; and, where neither the launch nor what
the device did before is in the recording, what the operation waited for is not known, only how long.

Most of it is the time that a launch takes to get to the device, and the host's. An operation that had been launched long before
was not held up by the host: something else did, which the recording does not name, such as work from before it began.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from studio.et.link.attribute import DeviceOperations
from studio.et.link.dep_kinds import DepKind
from studio.et.recording import DeviceTrace
from studio.trace import Bool, Int32, Int64


@dataclass(frozen=True, slots=True)
class Idles:
    """Idle times of streams, each before an operation of the device.

    I of them.

    Attributes:
        place: (I,) the operation that came after, as a place among those of the device.
        start_ns, duration_ns: (I,) from when on, and how long.
        queued: (I,) whether the device had been given the operation long before, see `find_queued`.
    """

    place: Int64
    start_ns: Int64
    duration_ns: Int64
    queued: Bool

    def __len__(self) -> int:
        return len(self.place)


def build_empty_idles() -> Idles:
    """Return none."""
    none = np.zeros(0, np.int64)
    return Idles(none, none, none, np.zeros(0, np.bool_))


_LAUNCH_TAKES_NS = 100_000
"""The longest that a launch takes to get to a device with nothing to do: some 5 µs, 25 µs with ROCm, several times as much
while a profiler notes down every call."""


def find_queued(idles: Idles, device: DeviceTrace, launched: DeviceOperations) -> Bool:
    """Return (I,) whether the device had the operation after an idle time for most of that, and longer than a launch takes."""
    event, launch = launched.event[idles.place], launched.launch[idles.place]
    given_ns = device.start_ns[launch] + device.duration_ns[launch]
    had_ns = device.start_ns[event] - given_ns
    is_queued = (launch >= 0) & (had_ns > _LAUNCH_TAKES_NS) & (had_ns > idles.duration_ns // 2)
    return np.asarray(is_queued | launched.earlier[idles.place])


def find_held_up(device: DeviceTrace, launched: DeviceOperations, from_ns: int) -> tuple[int, int] | None:
    """Return when the first recorded operation of the device began, and for how long it had been given by then, at most from a time on.

    None where a launch takes as long: then nothing held it up.
    """
    if not len(launched):
        return None
    begun = device.start_ns[launched.event]
    first = int(begun.argmin())
    launch, begin = int(launched.launch[first]), int(begun[first])
    if launch < 0 and not launched.earlier[first]:
        return None
    given = from_ns if launch < 0 else int(device.start_ns[launch] + device.duration_ns[launch])
    had = begin - max(given, from_ns)
    return (begin, had) if had > _LAUNCH_TAKES_NS else None


_MOST_LEFT_OUT = 0.005
"""The part of a stream's time that short idle times may make up together, if they are to be left out."""


def find_idles(
    start_ns: Int64,
    finish_ns: Int64,
    streams: Sequence[Int64],
    pairs: tuple[Int64, Int64, Int32],
    least_ns: int,
) -> Idles:
    """Return the idle times before operations of the device.

    Args:
        start_ns: (M,) when each node began.
        finish_ns: (M,) when each node had taken its time.
        streams: The operations of each stream in order, as places among those of the device, which are the last nodes.
        pairs: Dependencies: sources, targets, reasons. Collectives wait for no other by their sequence alone.
        least_ns: Shorter ones are left out of a stream, unless they add up.
    """
    first_device = len(start_ns) - sum(len(places) for places in streams)
    source, target, kinds = pairs
    counts = (kinds != int(DepKind.SEQUENCE)) & (target >= first_device)
    ready = np.full(len(start_ns), start_ns.min(initial=np.iinfo(np.int64).max), np.int64)
    np.maximum.at(ready, target[counts], finish_ns[source[counts]])
    idle = (start_ns - ready)[first_device:]
    kept = idle >= least_ns
    for places in streams:
        short = places[(idle[places] > 0) & ~kept[places]]
        rows = first_device + places
        if idle[short].sum() > _MOST_LEFT_OUT * (finish_ns[rows].max() - start_ns[rows].min()):
            kept[short] = True
    place = np.flatnonzero(kept)
    return Idles(place, ready[first_device + place], idle[place], np.zeros(len(place), np.bool_))


def list_idle_dependencies(
    idles: Idles, first_device: int, first_idle: int, pairs: tuple[Int64, Int64, Int32]
) -> list[tuple[Int64, Int64, DepKind]]:
    """Return the dependencies of idle times: they wait for what the operation waits for, which waits for them."""
    source, target, kinds = pairs
    row = np.full(first_idle, -1, np.int64)
    row[first_device + idles.place] = first_idle + np.arange(len(idles))
    added: list[tuple[Int64, Int64, DepKind]] = []
    for kind in DepKind:
        if kind not in (DepKind.CALL, DepKind.SEQUENCE):
            here = np.flatnonzero((row[target] >= 0) & ((kinds & int(kind)) != 0))
            added.append((source[here], row[target[here]], kind))
    added.append((row[first_device + idles.place], first_device + idles.place, DepKind.STREAM))
    return added


def order_with_idles(order: Int64, idles: Idles, first_device: int) -> Int64:
    """Return the places of all nodes with the idle times behind them, each just before its operation."""
    keys = np.concatenate((2 * order, 2 * order[first_device + idles.place] - 1))
    places = np.empty(len(keys), np.int64)
    places[np.argsort(keys, kind="stable")] = np.arange(len(keys))
    return places
