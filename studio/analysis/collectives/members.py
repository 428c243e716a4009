"""Every collective of a job by member: what each rank moved, and when.

A collective is the one of a number, or the n-th, that each member of a comm group begins. Ranks that share a graph share
what is read of it here, and groups whose members were simulated as one share their times, so a thousand ranks cost little more than their
distinct graphs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from studio.analysis.collectives.apart import find_apart, may_differ
from studio.analysis.collectives.group_sizes import find_group_sizes, settle_members
from studio.analysis.collectives.matching import GroupMatching, compute_issue_order, match_by_name
from studio.analysis.job.steps import find_enclosing_steps
from studio.distinct import find_distinct
from studio.timeline import NodeTimes
from studio.trace import NONE, Bool, CommGroup, Graph, Int32, Int64, Trace, step_of_name

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Members:
    """Every collective of a job by time; by order of issue where no times are known.

    C collectives, M members of all of them together, members of one collective next to each other by rising rank.

    Attributes:
        groups: Names of comm groups; "" is the group of all ranks.
        titles: Names of nodes.
        ranks: How many ranks the job has.
        group, position: (C,) index into `groups`, and which collective of the group it is.
        type: (C,) CollectiveType, -1 where the nodes name none.
        title: (C,) index into `titles`: the name the first member gives it.
        step: (C,) the training step it belongs to, -1 where nothing tells.
        size: (C,) ranks of the group, those the trace does not hold included; where `is_open`, those that are known.
        is_open: (C,) whether more ranks than are known may take part.
        apart: (C,) whether members do different things there, so that it is no collective: nothing tells that they met.
        offsets: (C+1,) collective c has members offsets[c]:offsets[c+1], at least one.
        rank: (M,) place of the member in the trace's ranks.
        row: (M,) its node.
        bytes: (M,) what it puts in.
        start_ns, end_ns: (M,) when it began and ended; -1 where that is not known.
    """

    groups: tuple[str, ...]
    titles: tuple[str, ...]
    ranks: int
    group: Int32
    position: Int32
    type: Int32
    title: Int32
    step: Int32
    size: Int32
    is_open: Bool
    apart: Bool
    offsets: Int64
    rank: Int32
    row: Int32
    bytes: Int64
    start_ns: Int64
    end_ns: Int64

    def __len__(self) -> int:
        return len(self.group)

    @property
    def of(self) -> Int64:
        """(M,) the collective each member belongs to."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    @property
    def most_bytes(self) -> Int64:
        """(C,) what the member with most puts in."""
        return np.maximum.reduceat(self.bytes, self.offsets[:-1]) if len(self) else np.zeros(0, np.int64)

    def by_group(self) -> list[Int64]:
        """Return the collectives of each group, by its index, rising; looked for once for all of them.

        Example:
            >>> import studio
            >>> members = collect_members(studio.read(studio.sample_path("imbalance_8r")))
            >>> [len(collectives) for collectives in members.by_group()], len(members)
            ([20, 32, 2], 54)
        """
        order = np.argsort(self.group, kind="stable")
        bounds = np.searchsorted(self.group[order], np.arange(len(self.groups) + 1))
        return [order[begin:end] for begin, end in pairwise(bounds.tolist())]

    @property
    def sized(self) -> bool:
        """Whether any member has a size; otherwise sizes were not recorded."""
        return bool(self.bytes.any())

    @property
    def timed(self) -> bool:
        """Whether any member has times."""
        return bool(self.start_ns.max(initial=NONE) >= 0)


def collect_members(
    trace: Trace, times: NodeTimes | None = None, groups: Sequence[CommGroup] | None = None
) -> Members:
    """Return every collective of a trace by member.

    Members are matched by the numbers of their collectives where all have them, by names where those are all there is
    (`match_by_name`); else by the order in which they begin collectives of a group, or, where times are missing, by the
    order their dependencies give.

    Args:
        trace: The trace.
        times: When its nodes ran, recorded or simulated; None where nothing is known of it.
        groups: Comm groups in place of the trace's.
    """
    matchings = match_by_name(trace, groups)
    titles = _Titles(trace)
    place = {rank.number: index for index, rank in enumerate(trace.ranks)}
    known: dict[tuple[object, ...], _Aligned] = {}
    parts = [
        _collect_group_members(number, matching, times, place, known)
        for number, matching in enumerate(matchings)
    ]
    parts = [part for part in parts if len(part[0])]
    if not parts:
        return _build_empty(tuple(matching.name for matching in matchings), len(trace.ranks))
    group, position, count, kind, apart = (
        np.concatenate([part[column] for part in parts]) for column in range(5)
    )
    cells = [np.concatenate([part[column] for part in parts], axis=None) for column in range(5, 10)]
    rank, row, amount, start, end = cells
    offsets = np.append(0, np.cumsum(count))
    group_sizes = find_group_sizes(trace, matchings, groups)
    sizes = np.array([(each.members, each.is_open) for each in group_sizes], np.int64)[group]
    size, is_open = settle_members(
        trace, (sizes[:, 0], sizes[:, 1] > 0), rank[offsets[:-1]], row[offsets[:-1]], kind
    )
    title, step = titles.of(rank[offsets[:-1]], row[offsets[:-1]])
    order = np.lexsort((group, position, _build_sort_key(trace, offsets, rank, row, start)))
    picked, offsets = _reorder(offsets, order)
    return Members(
        groups=tuple(matching.name for matching in matchings),
        titles=titles.texts(),
        ranks=len(trace.ranks),
        group=group[order].astype(np.int32),
        position=position[order].astype(np.int32),
        type=kind[order].astype(np.int32),
        title=title[order].astype(np.int32),
        step=step[order].astype(np.int32),
        size=size[order].astype(np.int32),
        is_open=is_open[order],
        apart=apart[order] != 0,
        offsets=offsets,
        rank=rank[picked].astype(np.int32),
        row=row[picked].astype(np.int32),
        bytes=amount[picked],
        start_ns=start[picked],
        end_ns=end[picked],
    )


def begin_together(members: Members) -> bool:
    """Return whether all members of some collective begin it at the same moment, as recorders do that note it once all are there."""
    if not len(members) or not members.timed:
        return False
    first = np.minimum.reduceat(members.start_ns, members.offsets[:-1])
    last = np.maximum.reduceat(members.start_ns, members.offsets[:-1])
    return bool(((first == last) & (first >= 0) & (np.diff(members.offsets) > 1)).any())


_Aligned = tuple[Int64, ...]
"""Members and their collectives, next to each other per collective: place in the group, row, bytes, start, end, count, type, and whether it is none."""


def _collect_group_members(
    number: int,
    group: GroupMatching,
    times: NodeTimes | None,
    place: dict[int, int],
    known: dict[tuple[object, ...], _Aligned],
) -> tuple[Int64, ...]:
    """Return group, position, count, type, and whether it is none of a group's collectives, and columns of their members."""
    indices = np.array([place.get(member, NONE) for member in group.members], np.int64)
    first = (
        np.full(len(indices), NONE, np.int64)
        if times is None
        else np.where(indices == NONE, NONE, times.first[indices])
    )
    key = (
        *map(id, group.sequences),
        group.sequence_of.tobytes(),
        first.tobytes(),
        np.argsort(indices).tobytes(),
    )
    if key not in known:
        known[key] = _align_members(group, first, times, np.argsort(indices, kind="stable"))
    member, row, amount, start, end, count, kind, apart = known[key]
    positions = np.flatnonzero(count)
    same = np.full(len(positions), number)
    columns = count[positions], kind[positions], apart[positions]
    return same, positions, *columns, indices[member], row, amount, start, end


def _align_members(group: GroupMatching, first: Int64, times: NodeTimes | None, by_rank: Int64) -> _Aligned:
    rows = group.rows()[by_rank]
    is_present, issued = rows != NONE, rows
    kind, amount = (table[by_rank] for table in group.content())
    start, end = np.full(rows.shape, NONE, np.int64), np.full(rows.shape, NONE, np.int64)
    first = first[by_rank]
    if times is not None and (first != NONE).any():
        looked = is_present & (first != NONE)[:, None]
        where = np.where(looked, first[:, None] + rows, 0)
        start, end = (np.where(looked, column[where], NONE) for column in (times.start_ns, times.end_ns))
        if not group.by_number:
            rows, kind, amount, start, end = _sort_by_start(rows, kind, amount, start, end)
            is_present = rows != NONE
    # Transposed, the members of a collective stand next to each other.
    cells = np.nonzero(is_present.T)
    columns = (
        np.broadcast_to(by_rank, is_present.T.shape)[cells],
        *(table.T[cells] for table in (rows, amount, start, end)),
    )
    leading = is_present.argmax(axis=0)
    apart = np.zeros(kind.shape[1], np.int64)
    # Tables of many members are large: they are compared only where members may differ.
    if not np.array_equal(rows, issued) or may_differ(group, None):
        apart[find_apart(kind, amount, is_present)] = 1
    return *columns, is_present.sum(axis=0), kind[leading, np.arange(kind.shape[1])], apart


def _sort_by_start(rows: Int64, kind: Int64, amount: Int64, start: Int64, end: Int64) -> Iterator[Int64]:
    """Sort each member's collectives by start; without times dependencies give the order."""
    is_present = rows != NONE
    partly = (is_present & (start < 0)).any(axis=1)
    key = np.where(partly[:, None], 0, np.where(is_present, start, _NEVER))
    unsorted = np.flatnonzero((key[:, 1:] < key[:, :-1]).any(axis=1))
    order = np.argsort(key[unsorted], axis=1, kind="stable")
    for table in (rows, kind, amount, start, end):
        sorted_table = table.copy()
        sorted_table[unsorted] = np.take_along_axis(table[unsorted], order, axis=1)
        yield sorted_table


def _build_sort_key(trace: Trace, offsets: Int64, rank: Int64, row: Int64, start: Int64) -> Int64:
    """Return (C,) the sort key by time: the first member's start, else its position in the order of issue."""
    known = np.minimum.reduceat(np.where(start >= 0, start, _NEVER), offsets[:-1])
    if (known < _NEVER).any():
        return known
    first = offsets[:-1]
    graph_of = np.array([member.graph for member in trace.ranks], np.int64)[rank[first]]
    place = np.zeros(len(first), np.int64)
    for index in find_distinct(graph_of).tolist():
        in_graph = graph_of == index
        place[in_graph] = compute_issue_order(trace.graphs[index])[row[first[in_graph]]]
    return place


def _reorder(offsets: Int64, order: Int64) -> tuple[Int64, Int64]:
    """Return (M,) where members are after reordering collectives, and their new offsets."""
    count = np.diff(offsets)[order]
    after = np.append(0, np.cumsum(count))
    moved: Int64 = offsets[order] - after[:-1]
    return np.arange(int(after[-1])) + np.repeat(moved, count), after


class _Titles:
    """Names of nodes and their steps, numbered across graphs; graphs with the same names are read once."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._codes: dict[str, int] = {}
        self._known: dict[bytes, dict[int, int]] = {}

    def of(self, rank: Int64, row: Int64) -> tuple[Int64, Int64]:
        """Return the number of each node's name, and its training step."""
        graph_of = np.array([member.graph for member in self._trace.ranks], np.int64)[rank]
        title, step = np.zeros(len(rank), np.int64), np.full(len(rank), NONE, np.int64)
        for index in find_distinct(graph_of).tolist():
            chosen = np.flatnonzero(graph_of == index)
            graph, rows = self._trace.graphs[index], row[chosen]
            names, inverse = np.unique(graph.name[rows], return_inverse=True)
            title[chosen] = self._number_names(graph, names)[inverse]
            step[chosen] = find_enclosing_steps(graph, rows)
        by_name = np.array([step_of_name(text) for text in self._codes], np.int64)
        return title, np.where(by_name[title] != NONE, by_name[title], step)

    def _number_names(self, graph: Graph, names: Int64) -> Int64:
        pool = hashlib.blake2b(graph.strings.data.data, digest_size=16)
        pool.update(graph.strings.offsets.data)
        known = self._known.setdefault(pool.digest(), {})
        for name in names.tolist():
            if name not in known:
                known[name] = self._codes.setdefault(graph.strings[name], len(self._codes))
        return np.array([known[name] for name in names.tolist()], np.int64)

    def texts(self) -> tuple[str, ...]:
        return tuple(self._codes)


def _build_empty(groups: tuple[str, ...], ranks: int) -> Members:
    no, none = np.zeros(0, np.int32), np.zeros(0, np.int64)
    never, start = np.zeros(0, np.bool_), np.zeros(1, np.int64)
    return Members(groups, (), ranks, no, no, no, no, no, no, never, never, start, no, no, none, none, none)
