"""How far the clocks of ranks are apart: members leave an all-reduce at about the same moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from studio.analysis.collectives.matching import GroupMatching, find_empty
from studio.trace import NEEDS_ALL, NONE, TIMES_NOTICED, Bool, Graph, Int64, Rank, Trace

_LEAST_MATCHED = 2
_LEAST_SKEW_NS = 50_000
_LARGEST_SKEW_NS = 2**61
"""Seventy years: more than between a clock that counts from 1970 and one that counts from the start of the job."""


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """A rank's clock relative to another's.

    Attributes:
        rank: The rank.
        by: The rank its clock was compared with.
        offset_ns: How far it is ahead of the clock of the lowest rank it is connected with.
        residual_ns: Median distance of matched ends that stays once the offset is taken off.
        matched: Collectives that were compared.
        is_shared: Whether both ranks ran on one machine, and no collective ended on one before it began on the other, so
            that they share its clock however far the ends are apart.
    """

    rank: int
    by: int
    offset_ns: int
    residual_ns: int
    matched: int
    is_shared: bool = False

    @property
    def is_skewed(self) -> bool:
        """Whether the offset exceeds the scatter of the ends."""
        far = max(_LEAST_SKEW_NS, 3 * self.residual_ns) < abs(self.offset_ns) < _LARGEST_SKEW_NS
        return far and not self.is_shared


def estimate_clock_offsets(trace: Trace, groups: Sequence[GroupMatching]) -> list[ClockOffset]:
    """Return clock offsets, by rank, of ranks that share timed collectives with others.

    A group's ranks are compared with its lowest one, and groups are joined through the ranks they share; of several groups of
    the same lowest rank that with most collectives tells.

    Args:
        trace: The recording.
        groups: Its matched collectives.
    """
    offsets: dict[int, ClockOffset] = {}
    measured = {rank.number: rank for rank in trace.ranks if tells_meetings(rank)}
    graph_of = {number: trace.graph_of(rank) for number, rank in measured.items()}
    waiting = [ends for group in groups if len(ends := _collect_ends(graph_of, group)) > 1]
    waiting.sort(
        key=lambda ends: (
            min(ends),
            -sum(int(is_comparable.sum()) for _, _, is_comparable, _ in ends.values()),
        )
    )
    while waiting:
        next_index = next((index for index, ends in enumerate(waiting) if offsets.keys() & ends.keys()), 0)
        ends = waiting.pop(next_index)
        base = min(offsets.keys() & ends.keys(), default=min(ends))
        known = offsets.setdefault(base, ClockOffset(base, base, 0, 0, 0))
        starts, base_ends, base_comparable, base_kind = ends[base]
        for rank, (began, times, is_comparable, kind) in sorted(ends.items()):
            # Members that do different things there did not meet.
            both = is_comparable & base_comparable & (kind == base_kind)
            if rank in offsets or int(both.sum()) < _LEAST_MATCHED:
                continue
            apart = times[both] - base_ends[both]
            contradiction = max(int((began - base_ends)[both].max()), int((starts - times)[both].max()))
            shared = contradiction < _LEAST_SKEW_NS and _are_on_one_machine(measured[rank], measured[base])
            offset = int(np.median(apart))
            # Ends that were further apart when the ranks were linked are so still, by whatever collectives that was seen.
            noted = [measured[number].metadata_number("clock_residual_ns") for number in (rank, base)]
            residual = max(int(np.median(np.abs(apart - offset))), *noted)
            shared = shared and (known.is_shared or base == known.by)
            offsets[rank] = ClockOffset(
                rank, base, offset + known.offset_ns, residual, int(both.sum()), shared
            )
    return [offsets[rank] for rank in sorted(offsets)]


def estimate_clock_leads(trace: Trace, groups: Sequence[GroupMatching]) -> Int64:
    """Return (R,) how far each rank's clock is ahead in ns; 0 where that cannot be told from scatter."""
    ahead = np.zeros(len(trace.ranks), np.int64)
    if len(trace.ranks) < 2:
        return ahead
    place = {rank.number: index for index, rank in enumerate(trace.ranks)}
    for clock in estimate_clock_offsets(trace, groups):
        if clock.is_skewed:
            ahead[place[clock.rank]] = clock.offset_ns
    return ahead


def tells_meetings(rank: Rank) -> bool:
    """Whether the times of a rank tell when its collectives met those of others.

    Times that a watchdog noticed tell when it looked; where calls are missing, others than those that met stand beside each other.
    """
    return rank.metadata_value(TIMES_NOTICED) is None and not rank.lacks_calls


def _are_on_one_machine(first: Rank, second: Rank) -> bool:
    """Whether linking noted the same machine down for both ranks."""
    host = first.metadata_value("clock_host")
    return host is not None and host == second.metadata_value("clock_host")


def _collect_ends(
    graph_of: dict[int, Graph], group: GroupMatching
) -> dict[int, tuple[Int64, Int64, Bool, Int64]]:
    """Return, for every member with times, begins and ends of its collectives (C,), which of them are comparable, and their types."""
    longest = max(map(len, group.sequences), default=0)
    ends_of = {}
    for member, index in zip(group.members, group.sequence_of.tolist(), strict=True):
        if index == NONE or member not in graph_of or not group.sequences[index].count:
            continue
        sequence, graph = group.sequences[index], graph_of[member]
        starts, ends, kind = np.zeros((3, longest), np.int64)
        is_comparable = np.zeros(longest, bool)
        start = graph.start_ns[sequence.rows]
        starts[: len(sequence)] = start
        ends[: len(sequence)] = start + graph.duration_ns[sequence.rows]
        timed = (start >= 0) & (sequence.rows != NONE) & ~find_empty(graph, sequence)
        is_comparable[: len(sequence)] = timed & np.isin(sequence.type, NEEDS_ALL)
        kind[: len(sequence)] = sequence.type
        if is_comparable.any():
            ends_of[member] = (starts, ends, is_comparable, kind)
    return ends_of
