"""Duration and bandwidth of each collective, as defined by NCCL's own tests.

A collective is one instance across ranks: the n-th that each member of a comm group begins. Bandwidths are those
of nccl-tests (NVIDIA, `doc/PERFORMANCE.md`): the algorithm bandwidth is size / time; the bus bandwidth is that times
a factor by which it can be compared with the links, whatever the number of ranks n:

    all-reduce                                                          2 (n-1) / n
    all-gather, reduce-scatter, all-to-all, gather, scatter             (n-1) / n
    broadcast, reduce                                                   1

Its size is that of the whole array. In a trace `comm_size` is what a rank puts in, so the whole of an all-gather and
of a gather is n times that; of the others it is `comm_size` itself. Where members put in different sizes, as in an
all-to-all of a recommendation model, the largest counts, as in the cost models: its ports carry most. Its time is that of ranks that begin together.
Here members arrive at different times, so time counts from the arrival of the last one; how long the others waited
for it is the skew.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from studio.analysis.collectives.apart import find_apart, may_differ
from studio.analysis.collectives.group_sizes import GroupSize, find_group_sizes, settle_members
from studio.analysis.collectives.matching import GroupMatching, match_by_name
from studio.analysis.collectives.nccl_tests import compute_bus_factors, compute_whole_bytes
from studio.distinct import find_distinct
from studio.timeline import NodeTimes
from studio.trace import NONE, Bool, CommGroup, Float64, Int64, Trace, label_collective


@dataclass(frozen=True, slots=True)
class CollectiveTimes:
    """Every collective that ran, by start.

    C collectives. Bandwidths are NaN where a collective moves nothing or its time is not known. Where members do different things
    they have no collective there (`find_apart`): such places are counted, D of them, and listed apart.

    Attributes:
        groups: Names of comm groups; "" is the group of all ranks.
        group: (C,) index into `groups`.
        position: (C,) which collective of its group, counted from 0.
        type: (C,) CollectiveType, -1 where the nodes name none.
        members: (C,) ranks of the group; where `is_open`, those that are known.
        present: (C,) those of them that have times for it.
        bytes: (C,) what a rank puts in, as the trace says; of members that put in different sizes the largest.
        whole_bytes: (C,) size of the whole array, as NCCL counts it; 0 where that depends on members that are not known.
        start_ns: (C,) when the first member began.
        arrived_ns: (C,) when the last member did.
        end_ns: (C,) when the last member ended.
        last_rank, last_row: (C,) the member that arrived last, and its node there.
        algorithm_bytes_per_ns: (C,) whole_bytes by the time from the last arrival to the end.
        bus_bytes_per_ns: (C,) the same, made comparable with the bandwidth of links.
        is_open: (C,) whether more ranks than are known may take part: then what depends on their number is not known.
        apart: (2, D) group and position of what was matched and is no collective.
    """

    groups: tuple[str, ...]
    group: Int64
    position: Int64
    type: Int64
    members: Int64
    present: Int64
    bytes: Int64
    whole_bytes: Int64
    start_ns: Int64
    arrived_ns: Int64
    end_ns: Int64
    last_rank: Int64
    last_row: Int64
    algorithm_bytes_per_ns: Float64
    bus_bytes_per_ns: Float64
    is_open: Bool
    apart: Int64

    def __len__(self) -> int:
        return len(self.group)

    @property
    def duration_ns(self) -> Int64:
        """(C,) from the first member's start to the last member's end."""
        duration: Int64 = self.end_ns - self.start_ns
        return duration

    @property
    def skew_ns(self) -> Int64:
        """(C,) how long the first member waited for the last one."""
        skew: Int64 = self.arrived_ns - self.start_ns
        return skew

    def name(self, index: int, most: int | None = None) -> str:
        """Return what to call a collective: its type, and which of its group it is, counted from 0 as `position` is.

        Args:
            index: The collective.
            most: Letters of a group's name that are kept; None keeps all. Names are untrusted.
        """
        group = self.groups[int(self.group[index])][:most]
        of_group = f" of group {group}" if group else ""
        return f"{label_collective(int(self.type[index]))}, collective {self.position[index]}{of_group}"

    def apart_by_group(self) -> Iterator[tuple[str, Int64]]:
        """Yield the groups in which something was matched that is no collective, with the positions."""
        for group in find_distinct(self.apart[0]).tolist():
            yield self.groups[group], self.apart[1][self.apart[0] == group]

    @property
    def tells_skew(self) -> Bool:
        """(C,) whether that is known: one member of several alone does not tell when the others came."""
        return (self.present > 1) | ((self.members < 2) & ~self.is_open)


@dataclass(frozen=True, slots=True)
class MatchedGroups:
    """The collectives of a job by comm group, and how large each group is; neither depends on when nodes ran.

    G groups.

    Attributes:
        matchings: (G,) the collectives of each group.
        sizes: (G,) its members.
    """

    matchings: tuple[GroupMatching, ...]
    sizes: Sequence[GroupSize]


def match_groups(trace: Trace, groups: Sequence[CommGroup] | None = None) -> MatchedGroups:
    """Match the collectives of a job, for `compute_distinct_times` of several runs of it.

    Args:
        trace: The trace.
        groups: Comm groups in place of the trace's.
    """
    matchings = match_by_name(trace, groups)
    return MatchedGroups(matchings, find_group_sizes(trace, matchings, groups))


def compute_collective_times(
    trace: Trace, times: NodeTimes, groups: Sequence[CommGroup] | None = None
) -> CollectiveTimes:
    """Return every collective of a trace that ran, recorded or simulated.

    Members are matched by the numbers of their collectives where all have them, by names where those are all there is
    (`match_by_name`); else by the order in which they begin collectives of a group, or, where times are missing, by the
    order their dependencies give.

    Args:
        trace: The trace.
        times: When its nodes ran; see `timeline.collect_node_times` and `SimResult.node_times`.
        groups: Comm groups in place of the trace's.
    """
    return _compute_times(_Matched(trace, times, match_groups(trace, groups)))


def compute_distinct_times(
    trace: Trace,
    times: NodeTimes,
    groups: Sequence[CommGroup] | None = None,
    besides: Callable[[str], Hashable] | None = None,
    matched: MatchedGroups | None = None,
) -> tuple[CollectiveTimes, Int64]:
    """Return times of collectives, those of equal comm groups at equal times once, and (C,) how many collectives each stands for.

    Of a folded job of thousands of ranks that is a few thousandth part. The first of such groups stands for them.

    Args:
        trace: The trace.
        times: When its nodes ran.
        groups: Comm groups in place of the trace's.
        besides: Returns by the name of a group what else has to be the same.
        matched: What `match_groups` returned for the trace and these groups, where that is known already.
    """
    matchings = match_groups(trace, groups) if matched is None else matched
    timed = _Matched(trace, times, matchings)
    kinds: dict[Hashable, list[int]] = {}
    for number, matching in enumerate(timed.matchings):
        key = timed.key(number), besides(matching.name) if besides else None
        kinds.setdefault(key, []).append(number)
    count = np.zeros(len(timed.matchings), np.int64)
    for own in kinds.values():
        count[own[0]] = len(own)
    shown = _compute_times(timed, [own[0] for own in kinds.values()])
    return shown, count[shown.group]


class _Matched:
    """The collectives of a trace by comm group, and what is known of their times."""

    def __init__(self, trace: Trace, times: NodeTimes, matched: MatchedGroups) -> None:
        self.trace, self.matchings, self.sizes, self.times = trace, matched.matchings, matched.sizes, times
        self.place = {rank.number: index for index, rank in enumerate(trace.ranks)}
        self.known: dict[Hashable, tuple[Int64, Int64, Int64]] = {}
        """What was found for a group, the place of each last member, and what is none: groups of equal members with the same times share it."""

    def first(self, number: int) -> Int64:
        """Return where the times of each member of a group begin."""
        ranks = np.array(
            [self.place.get(member, NONE) for member in self.matchings[number].members], np.int64
        )
        return np.where(ranks == NONE, NONE, self.times.first[ranks])

    def key(self, number: int) -> Hashable:
        """Return what is the same of groups that do the same at the same times."""
        group = self.matchings[number]
        size = self.sizes[number]
        return (
            *map(id, group.sequences),
            *(group.sequence_of.tobytes(), self.first(number).tobytes(), size.members, size.is_open),
        )

    def of_group(self, number: int) -> tuple[Int64, Int64, Int64]:
        """Return (11, C) the columns of a group's collectives, without bandwidths, group and last rank open, (C,) the last member, and (D,) where there is none."""
        key = self.key(number)
        if key not in self.known:
            self.known[key] = _compute_columns(self.matchings[number], self.first(number), self.times)
        return self.known[key]


def _compute_times(matched: _Matched, chosen: Sequence[int] | None = None) -> CollectiveTimes:
    """Return the collectives of some groups, of all where none are chosen."""
    chosen = range(len(matched.matchings)) if chosen is None else chosen
    parts = [matched.of_group(number) for number in chosen]
    # Large jobs have tens of millions: they are written where they stay, and sorted column by column.
    bounds = np.cumsum([0, *(columns.shape[1] for columns, *_ in parts)])
    table = np.empty((len(_NOTHING), int(bounds[-1])), np.int64)
    apart = [np.zeros((2, 0), np.int64)]
    for at, (number, (columns, last, none)) in enumerate(zip(chosen, parts, strict=True)):
        if len(none):
            apart.append(np.stack([np.full(len(none), number), none]))
        part = table[:, bounds[at] : bounds[at + 1]]
        part[:] = columns
        part[0], part[9] = number, np.array(matched.matchings[number].members, np.int64)[last]
    del parts
    matched.known.clear()
    order = np.lexsort((table[0], table[7], table[6]))
    for column in table:
        column[:] = column[order]
    del order
    group, position, kind, members, present, size, start, arrived, end, rank, row = table
    sizes = np.array([(each.members, each.is_open) for each in matched.sizes], np.int64).reshape(-1, 2)
    is_open = sizes[group, 1] > 0
    members[:] = sizes[group, 0]
    if is_open.any():
        place = np.array([matched.place[number] for number in rank.tolist()], np.int64)
        members, is_open = settle_members(matched.trace, (members, is_open), place, row, kind)
    whole = compute_whole_bytes(kind, size, members, is_open)
    algorithm = np.full(len(kind), np.nan)
    np.divide(whole, end - arrived, out=algorithm, where=(end > arrived) & (whole > 0))
    bus = algorithm * compute_bus_factors(kind, members, is_open)
    names = tuple(matching.name for matching in matched.matchings)
    return CollectiveTimes(
        names,
        group,
        position,
        kind,
        members,
        present,
        size,
        whole,
        start,
        arrived,
        end,
        rank,
        row,
        algorithm,
        bus,
        is_open,
        np.concatenate(apart, axis=1),
    )


_NOTHING = np.zeros((11, 0), np.int64)


def _compute_columns(group: GroupMatching, first_time: Int64, times: NodeTimes) -> tuple[Int64, Int64, Int64]:
    """Return (11, C) the columns of collectives, group and last rank open, (C,) the last member's index, and (D,) where there is none."""
    is_present = (group.sequence_of != NONE) & (first_time != NONE)
    if not is_present.any() or not group.sequences:
        return _NOTHING, np.zeros(0, np.int64), np.zeros(0, np.int64)
    rows = group.rows()[is_present]
    known = rows != NONE
    where = np.where(known, first_time[is_present][:, None] + rows, 0)
    start, end = np.where(known, times.start_ns[where], NONE), np.where(known, times.end_ns[where], NONE)
    # In order of beginning; a member of which times are missing keeps the order its dependencies give.
    key = np.where((known & (start < 0)).any(axis=1)[:, None], 0, np.where(known, start, _NEVER))
    order = np.argsort(key, axis=1, kind="stable")
    if group.by_number:
        order = np.broadcast_to(np.arange(rows.shape[1]), rows.shape)
    rows, start, end = (np.take_along_axis(table, order, axis=1) for table in (rows, start, end))
    began = start >= 0
    count = began.sum(axis=0)
    first, last = began.argmax(axis=0), np.where(began, start, NONE).argmax(axis=0)
    columns = np.arange(rows.shape[1])
    source = order[first, columns]
    places = np.flatnonzero(is_present)
    kind, size = _get_content(group, places[first], source)
    apart = np.zeros(len(columns), np.bool_)
    if may_differ(group, order):
        kinds, every = _get_content(group, places[:, None], order)
        size = np.where(began, every, 0).max(axis=0)
        apart = find_apart(kinds, every, began)
    nothing = np.zeros(len(columns), np.int64)
    table = np.stack([
        nothing, columns, kind, np.full(len(columns), len(group.members)), count, size,
        np.where(began, start, _NEVER).min(axis=0), np.where(began, start, NONE).max(axis=0),
        np.where(began, end, NONE).max(axis=0), nothing, rows[last, columns],
    ])  # fmt: skip
    ran = (count > 0) & ~apart
    return table[:, ran], places[last[ran]], np.flatnonzero(apart)


_NEVER = np.iinfo(np.int64).max


def _get_content(group: GroupMatching, member: Int64, position: Int64) -> tuple[Int64, Int64]:
    """Return type and bytes of collectives, each given by a member and a position in its sequence."""
    longest = max(map(len, group.sequences))
    table = np.zeros((2, len(group.sequences), longest), np.int64)
    for index, sequence in enumerate(group.sequences):
        table[0, index, : len(sequence)], table[1, index, : len(sequence)] = sequence.type, sequence.bytes
    sequence_of = group.sequence_of[member]
    return table[0, sequence_of, position], table[1, sequence_of, position]


def describe_presence(
    trace: Trace, name: str, present: int, groups: Sequence[CommGroup] | None = None
) -> str:
    """Say which part of a comm group's members in the trace has a collective; "" where all have it.

    The recordings of the others begin later or end earlier, or lack it.

    Args:
        trace: The job.
        name: The name of the comm group.
        present: How many members have the collective.
        groups: Comm groups in place of the trace's.
    """
    [known] = count_known_members(trace, [name], groups).tolist()
    return f"{present:,} of {known:,} members have it" if present < known else ""


def count_known_members(
    trace: Trace, names: Sequence[str], groups: Sequence[CommGroup] | None = None
) -> Int64:
    """Return (G,) how many members of comm groups are ranks of the trace; all of them are of a group that is not listed.

    Args:
        trace: The job.
        names: (G,) names of comm groups.
        groups: Comm groups in place of the trace's.
    """
    numbers = {rank.number for rank in trace.ranks}
    wanted = set(names)
    known = {
        group.name: len(numbers.intersection(group.ranks))
        for group in (trace.groups if groups is None else groups)
        if group.name in wanted
    }
    return np.array([known.get(name, len(numbers)) for name in names], np.int64)


def as_rows(times: CollectiveTimes, chosen: Int64) -> list[dict[str, Any]]:
    """Return collectives as plain data, times in ns and bandwidths in bytes per ns, None where there is none."""
    columns: dict[str, list[Any]] = {
        spec.name: getattr(times, spec.name)[chosen].tolist()
        for spec in fields(times)
        if spec.name not in ("groups", "is_open", "apart")
    }
    columns["group"] = [times.groups[number] for number in times.group[chosen].tolist()]
    columns["duration_ns"], columns["skew_ns"] = (
        times.duration_ns[chosen].tolist(),
        times.skew_ns[chosen].tolist(),
    )
    for key in ("algorithm_bytes_per_ns", "bus_bytes_per_ns"):
        columns[key] = [None if value != value else value for value in columns[key]]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
