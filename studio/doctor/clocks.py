"""Estimate clock offsets between ranks: members leave an all-reduce at about the same moment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.analysis.collectives.matching import GroupMatching
from studio.doctor.diagnosis import Case
from studio.trace import NONE, Bool, CollectiveType, Int64

_TOGETHER = (
    CollectiveType.ALL_REDUCE,
    CollectiveType.ALL_GATHER,
    CollectiveType.ALL_TO_ALL,
    CollectiveType.REDUCE_SCATTER,
    CollectiveType.REDUCE_SCATTER_BLOCK,
    CollectiveType.BARRIER,
)
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
    """

    rank: int
    by: int
    offset_ns: int
    residual_ns: int
    matched: int

    @property
    def is_skewed(self) -> bool:
        """Whether the offset exceeds the scatter of the ends."""
        return max(_LEAST_SKEW_NS, 3 * self.residual_ns) < abs(self.offset_ns) < _LARGEST_SKEW_NS


def clock_offsets(case: Case) -> list[ClockOffset]:
    """Return clock offsets, by rank, of ranks that share timed collectives with others.

    A group's ranks are compared with its lowest one, and groups are joined through the ranks they share.
    """
    offsets: dict[int, ClockOffset] = {}
    waiting = [ends for group in case.groups if len(ends := _ends(case, group)) > 1]
    waiting.sort(key=min)
    while waiting:
        next_index = next((index for index, ends in enumerate(waiting) if offsets.keys() & ends.keys()), 0)
        ends = waiting.pop(next_index)
        base = min(offsets.keys() & ends.keys(), default=min(ends))
        known = offsets.setdefault(base, ClockOffset(base, base, 0, 0, 0))
        for rank, (times, there) in sorted(ends.items()):
            both = there & ends[base][1]
            if rank in offsets or int(both.sum()) < _LEAST_MATCHED:
                continue
            apart = times[both] - ends[base][0][both]
            offset = int(np.median(apart))
            residual = int(np.median(np.abs(apart - offset)))
            offsets[rank] = ClockOffset(rank, base, offset + known.offset_ns, residual, int(both.sum()))
    return [offsets[rank] for rank in sorted(offsets)]


def _ends(case: Case, group: GroupMatching) -> dict[int, tuple[Int64, Bool]]:
    """Return, for every member with times, the ends of its collectives (C,) and which of them are comparable."""
    longest = max(map(len, group.sequences), default=0)
    graph_of = {rank.number: case.trace.graph_of(rank) for rank in case.trace.ranks}
    ends_of = {}
    for member, index in zip(group.members, group.sequence_of.tolist(), strict=True):
        if index == NONE:
            continue
        sequence, graph = group.sequences[index], graph_of[member]
        ends, there = np.zeros(longest, np.int64), np.zeros(longest, bool)
        start = graph.start_ns[sequence.rows]
        ends[: len(sequence)] = start + graph.duration_ns[sequence.rows]
        timed = (start >= 0) & (sequence.rows != NONE)
        there[: len(sequence)] = timed & np.isin(sequence.type, _TOGETHER)
        if there.any():
            ends_of[member] = (ends, there)
    return ends_of
