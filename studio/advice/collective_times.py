"""How the recorded time of a collective would change with its size: a line through what was recorded.

A replay gives a collective its recorded time, whatever its size. Where a change gives it another size, its time is scaled by
fixed + bytes / rate at the new size over the same at the old one. Both come from the collectives of the same ranks: the
median of the slopes between medians of equal sizes (Theil 1950, Sen 1968), which a few late ones do not bend. Where they have one size only,
nothing tells the fixed part, and the time is taken to be in proportion to the bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.analysis.collectives.members import Members
from studio.analysis.collectives.nccl_tests import compute_bus_factors, compute_whole_bytes
from studio.trace import Float64, Int64

_MOST_SIZES = 64


@dataclass(frozen=True, slots=True)
class Line:
    """The time of collectives over the bytes that the busiest port carries.

    Attributes:
        fixed_ns: Time at no bytes.
        ns_per_byte: Time of each byte more.
    """

    fixed_ns: float
    ns_per_byte: float

    def at(self, carried: Float64) -> Float64:
        """Return the times of sizes."""
        return self.fixed_ns + self.ns_per_byte * carried


@dataclass(frozen=True, slots=True)
class Took:
    """What each collective took.

    C collectives.

    Attributes:
        time_ns: (C,) from the last arrival to the last end; -1 where not all of it is known.
        carried: (C,) bytes that the busiest port carries.
        lines: By group, as `Members.groups` counts them.
    """

    time_ns: Int64
    carried: Float64
    lines: dict[int, Line]

    def scale(self, collectives: Int64, group: int, carried: Float64) -> Float64:
        """Return by what the times of collectives of a group are multiplied when they carry other bytes."""
        line = self.lines.get(group)
        if line is None:
            return np.ones(len(collectives))
        before = line.at(self.carried[collectives])
        scale: Float64 = np.divide(line.at(carried), before, out=np.ones(len(before)), where=before > 0)
        return scale


def estimate_collective_costs(members: Members) -> Took:
    """Return what collectives took, and how that depends on their sizes."""
    if not len(members):
        return Took(np.zeros(0, np.int64), np.zeros(0), {})
    starts = members.offsets[:-1]
    last = np.maximum.reduceat(members.start_ns, starts)
    end = np.maximum.reduceat(members.end_ns, starts)
    time = np.where((np.minimum.reduceat(members.start_ns, starts) >= 0) & (end > last), end - last, -1)
    carried = compute_carried_bytes(members, members.most_bytes, np.arange(len(members)))
    alike: dict[bytes, list[int]] = {}
    of_group = members.by_group()
    for group, collectives in enumerate(of_group):
        if len(collectives):
            alike.setdefault(_encode_ranks(members, int(collectives[0])), []).append(group)
    lines: dict[int, Line] = {}
    for groups in alike.values():
        collectives = np.sort(np.concatenate([of_group[group] for group in groups]))
        collectives = collectives[(time[collectives] > 0) & (carried[collectives] > 0)]
        line = fit_line(carried[collectives], time[collectives].astype(np.float64))
        lines.update(dict.fromkeys(groups, line))
    return Took(time, carried, lines)


def compute_carried_bytes(members: Members, largest: Int64, collectives: Int64) -> Float64:
    """Return the bytes that the busiest port of collectives carries.

    Args:
        members: All collectives.
        largest: What the member with most puts in, for each of `collectives`.
        collectives: Which.
    """
    kind, size = members.type[collectives].astype(np.int64), members.size[collectives].astype(np.int64)
    factor = np.nan_to_num(compute_bus_factors(kind, size), nan=1.0)
    return np.asarray(compute_whole_bytes(kind, largest, size) * factor, np.float64)


def fit_line(carried: Float64, time_ns: Float64) -> Line:
    """Return the line through times over sizes; neither its start nor its slope is below 0.

    Example:
        >>> fit_line(np.array([100.0, 200.0, 400.0]), np.array([60.0, 110.0, 210.0]))
        Line(fixed_ns=10.0, ns_per_byte=0.5)
    """
    if not len(carried):
        return Line(0.0, 0.0)
    sizes, of, count = np.unique(carried, return_inverse=True, return_counts=True)
    by_size = time_ns[np.lexsort((time_ns, of))]
    begin = np.cumsum(count) - count
    medians = (by_size[begin + (count - 1) // 2] + by_size[begin + count // 2]) / 2
    if len(sizes) > _MOST_SIZES:
        chosen = np.linspace(0, len(sizes) - 1, _MOST_SIZES).astype(np.int64)
        sizes, medians = sizes[chosen], medians[chosen]
    if len(sizes) == 1:
        return Line(0.0, float(medians[0] / sizes[0]))
    low, high = np.triu_indices(len(sizes), 1)
    slope = max(float(np.median((medians[high] - medians[low]) / (sizes[high] - sizes[low]))), 0.0)
    fixed = float(np.median(medians - slope * sizes))
    if fixed < 0:
        return Line(0.0, float(np.median(medians / sizes)))
    return Line(fixed, slope)


def _encode_ranks(members: Members, first: int) -> bytes:
    """Return what tells the ranks of a group apart, by its first collective."""
    return np.sort(members.rank[members.offsets[first] : members.offsets[first + 1]]).tobytes()
