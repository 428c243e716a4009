"""Collectives by type, group size and size: how many, how long, how fast, and who comes last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from studio.analysis.collectives.nccl_tests import compute_bus_factors
from studio.analysis.collectives.times import CollectiveTimes, count_known_members
from studio.analysis.collectives.waits import CollectiveWaits
from studio.distinct import find_distinct
from studio.notebook import format_record
from studio.trace import NONE, Bool, CommGroup, Int64, Trace, label_collective
from studio.units import format_count, format_counted

_EXACT_AT_MOST = 24
"""With more different sizes of a type and group size, a class holds the sizes between two powers of two."""


@dataclass(frozen=True, slots=True)
class SizeClass:
    """Collectives of one type, among as many ranks, of one size or of sizes between two powers of two.

    Times are from the arrival of the last member to the end, without waiting for it.

    Attributes:
        type: Schema name, such as ALL_REDUCE.
        members: Ranks of the groups; where `is_open`, those that are known.
        is_open: Whether more may take part: then there is no busbw.
        groups: Names of the groups; "" is the group of all ranks.
        least_bytes, most_bytes: Sizes as the trace says (what a rank puts in, the largest of the members).
        count: Collectives.
        partial_count: Those of them that not all members in the trace have, whose recordings begin later or end earlier.
        total_bytes: What the largest member puts in, of all of them.
        least_ns, median_ns, p99_ns, most_ns: Times.
        total_ns: Sum of the times.
        algorithm_bytes_per_ns, bus_bytes_per_ns: algbw and busbw of a collective of median size that takes the median time; NaN
            where the time or size is not known.
        skew_ns, most_skew_ns: Median and longest wait of the first member for the last.
        last_rank: The rank that members waited for longest, all collectives together; -1 where nobody waited, or that was not asked.
        last_share: Which share of that waiting was for it.
    """

    type: str
    members: int
    is_open: bool
    groups: tuple[str, ...]
    least_bytes: int
    most_bytes: int
    count: int
    partial_count: int
    total_bytes: int
    least_ns: int
    median_ns: int
    p99_ns: int
    most_ns: int
    total_ns: int
    algorithm_bytes_per_ns: float
    bus_bytes_per_ns: float
    skew_ns: int
    most_skew_ns: int
    last_rank: int
    last_share: float

    __repr__ = format_record


def list_size_classes(
    trace: Trace,
    times: CollectiveTimes,
    waits: CollectiveWaits | None = None,
    groups: Sequence[CommGroup] | None = None,
) -> list[SizeClass]:
    """Return the classes of collectives, those that take longest in total first.

    Args:
        trace: The job.
        times: Its collectives, of a recording or a run.
        waits: Whom ranks waited for in them, see `compute_collective_waits`; None where nobody asks for the last ones.
        groups: Comm groups in place of the trace's.
    """
    if not len(times):
        return []
    key = np.column_stack((times.type, times.members, times.is_open, _compute_class_sizes(times)))
    _, inverse = np.unique(key, axis=0, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    bounds = np.flatnonzero(np.diff(inverse[order], prepend=-1, append=1 << 40))
    is_partial = times.present < count_known_members(trace, times.groups, groups)[times.group]
    classes = [
        _build_class(times, order[low:high], waits, is_partial)
        for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    ]
    return sorted(classes, key=lambda each: -each.total_ns)


def _compute_class_sizes(times: CollectiveTimes) -> Int64:
    """Return (C,) the size that tells the class: itself, or the power of two below where there are many."""
    size = times.bytes.copy()
    power = np.where(size > 0, 1 << np.floor(np.log2(np.maximum(size, 1))).astype(np.int64), 0)
    kinds = times.type * (1 << 32) + times.members
    for kind in find_distinct(kinds).tolist():
        of_kind = kinds == kind
        if len(find_distinct(size[of_kind])) > _EXACT_AT_MOST:
            size[of_kind] = power[of_kind]
    return size


def describe_partial(classes: Sequence[SizeClass], mark: str = "") -> str:
    """Say how many collectives not all members have; "" where all have all.

    Args:
        classes: The classes of a run.
        mark: What they are marked with.
    """
    partial = sum(each.partial_count for each in classes)
    if not partial:
        return ""
    every = format_counted(sum(each.count for each in classes), "collective")
    marked = f" ({mark})" if mark else ""
    return (
        f"Not all members have {format_count(partial)} of {every}{marked}: the recordings of the others begin later or end earlier, or lack "
        f"{'it' if partial == 1 else 'them'}. Times are those of the members that were recorded, and may hold waiting for the others."
    )


def _build_class(
    times: CollectiveTimes, collectives: Int64, waits: CollectiveWaits | None, is_partial: Bool
) -> SizeClass:
    took = np.sort((times.end_ns - times.arrived_ns)[collectives])
    size, skew = times.bytes[collectives], times.skew_ns[collectives]
    waited = waits.sum_by_rank(collectives) if waits is not None else {}
    last = max(waited, key=lambda rank: waited[rank], default=NONE)
    median_ns = float(np.median(took))
    # The median of the rates is that of the times only where their number is odd; a row tells one collective.
    moved = float(np.median(times.whole_bytes[collectives]))
    rate = moved / median_ns if moved > 0 and median_ns > 0 else float("nan")
    first = collectives[:1]
    factor = float(compute_bus_factors(times.type[first], times.members[first], times.is_open[first])[0])
    return SizeClass(
        label_collective(int(times.type[collectives[0]])),
        int(times.members[collectives[0]]),
        bool(times.is_open[collectives[0]]),
        tuple(times.groups[group] for group in find_distinct(times.group[collectives]).tolist()),
        int(size.min()),
        int(size.max()),
        len(collectives),
        int(is_partial[collectives].sum()),
        int(size.sum()),
        int(took[0]),
        round(median_ns),
        int(took[min(int(0.99 * len(took)), len(took) - 1)]),
        int(took[-1]),
        int(took.sum()),
        rate,
        rate * factor,
        int(np.median(skew)),
        int(skew.max()),
        last,
        0.0 if last == NONE else waited[last] / sum(waited.values()),
    )
