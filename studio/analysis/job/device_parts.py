"""Where the time of each device went, in jobs of which a rank has several: the ledger of a rank counts it as busy while any of its devices is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from studio.analysis.job.completeness import format_ranges, group_ranges
from studio.analysis.job.ledger import WORK, Ledger, PartTimes
from studio.distinct import find_distinct
from studio.notebook import format_record
from studio.timeline import NodeTimes
from studio.trace import NONE, Bool, Graph, Int64, Trace, read_dense_column
from studio.units import format_count, format_ns


@dataclass(frozen=True, slots=True)
class DeviceParts:
    """The time of devices by part; a rank with one device, or none, counts as one.

    Attributes:
        times: Of D devices.
        owner: (D,) whose they are, an index into the ranks with times.
        ranks: Numbers of the ranks that have several.
        least, most: How many devices these have.
    """

    times: PartTimes
    owner: Int64
    ranks: tuple[int, ...]
    least: int
    most: int

    __repr__ = format_record

    def words(self) -> str:
        """Say what the time of ranks with several devices is, and what of it a device works in the mean."""
        whose = format_ranges(group_ranges(self.ranks))
        alone = len(self.ranks) == 1
        count = format_count(self.least)
        if self.most > self.least:
            count += f" to {format_count(self.most)}"
        work_ns = float(self.times.of(*WORK).mean())
        return (
            f"{whose[0].upper()}{whose[1:]} {'has' if alone else 'have'} {count} devices{'' if alone else ' each'}, and "
            f"{'is' if alone else 'are'} at work here while any of them is; a device works for {format_ns(work_ns)}, in the mean of all "
            f"{format_count(len(self.times.ns))}."
        )


def compute_device_parts(
    trace: Trace, times: NodeTimes, account: Ledger, build_own: Callable[[Bool], Ledger]
) -> DeviceParts | None:
    """Return where the time of each device went, each with the host of its rank; None where no rank has several.

    Args:
        trace: The job.
        times: When its nodes ran.
        account: Where the time of its ranks went.
        build_own: Returns where it went of some of the times alone, given (T,) which.
    """
    device_of = [_number_devices(graph) for graph in trace.graphs]
    counts = np.array([1 + int(devices.max(initial=0)) for devices in device_of], np.int64)
    count = counts[[trace.ranks[place].graph for place in account.places.tolist()]]
    if not (count > 1).any():
        return None
    parts, after, owner = [], [], []
    for device in range(int(count.max())):
        is_own = np.ones(len(times.start_ns), np.bool_)
        for place in account.places.tolist():
            graph = trace.ranks[place].graph
            others = np.flatnonzero((device_of[graph] != NONE) & (device_of[graph] != device))
            is_own[int(times.first[place]) + others] = counts[graph] == 1
        own = build_own(is_own).totals()
        chosen = np.flatnonzero(count > device)
        parts.append(own.ns[chosen])
        after.append(own.after_finish_ns[chosen])
        owner.append(chosen)
    several = np.flatnonzero(count > 1)
    ranks = tuple(sorted(account.numbers[at] for at in several.tolist()))
    together = PartTimes(np.concatenate(parts), np.concatenate(after), account.is_recording)
    return DeviceParts(together, np.concatenate(owner), ranks, int(count[several].min()), int(count.max()))


def _number_devices(graph: Graph) -> Int64:
    """Return (N,) which of the graph's devices each node ran on, counted from 0; -1 for the host's nodes."""
    device = read_dense_column(graph, "device", NONE)
    is_on_stream = np.zeros(len(graph), np.bool_)
    is_on_stream[graph.rows_with("stream")[0]] = True
    device = np.where(is_on_stream, device, NONE)
    known = find_distinct(device[device != NONE])
    return np.where(device == NONE, NONE, np.searchsorted(known, device)).astype(np.int64)
