"""Compare two runs: how much longer one takes, in which part of its time, and because of which nodes.

A run is a recording or a simulation, of one job or of two. Differences are B minus A, so swapping the runs turns every
sign. What the finish grew by is shared out by a waterfall that adds up to the nanosecond: both finishes are taken apart
by `analysis.job.ledger` on one rank, the same in both, or in the mean of all ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np

from studio.analysis.compare.alignment import Alignment, GraphPairs, align, plain_name
from studio.analysis.job.kinds import counted_type_name, counted_types
from studio.analysis.job.ledger import (
    AFTER_FINISH,
    EXPOSED,
    IDLE,
    PARTS,
    WORK,
    Delays,
    Ledger,
    PartTimes,
    ledger,
)
from studio.errors import TraceError
from studio.notebook import line, one_line, table
from studio.timeline import NodeTimes
from studio.trace import NONE, CommGroup, Float64, Graph, Int64, Trace
from studio.units import format_ns

MOST_LISTED = 50
STEPS: tuple[str, ...] = (*PARTS, AFTER_FINISH)
"""The steps of a waterfall: the parts of a rank's time, and what follows until the last rank's finish."""
_NOT_TOLD_APART = ("queueing", "latency", "transfer")
Basis = Literal["busiest", "mean"]


@dataclass(frozen=True, slots=True)
class Carried:
    """Traffic of the parts of a network: its dimensions, or its links.

    L parts.

    Attributes:
        names: What they are called; parts of the same name are compared.
        bytes: (L,) bytes sent.
        busy_ns: (L,) how long one port takes to send what a rank sent, in the mean; how long a link was sending. NaN
            where that is not known.
        load: (L,) what was sent until the finish over what could have been: 1 is all of the bandwidth. NaN where
            that is not known.
        about: What the load is, in words.
    """

    names: tuple[str, ...]
    bytes: Int64
    busy_ns: Float64
    load: Float64
    about: str = ""

    __repr__ = one_line


NOTHING_CARRIED = Carried((), np.zeros(0, np.int64), np.zeros(0), np.zeros(0))


@dataclass(frozen=True, slots=True)
class Side:
    """A run to compare.

    R ranks.

    Attributes:
        trace: The job.
        times: When its nodes ran.
        finish_ns: (R,) how long each rank took from the beginning of the run, -1 where nothing is known of it.
        origin_ns: When the run began.
        groups: Comm groups in place of the trace's.
        dimensions, links: What its network carried; nothing in a recording.
        model: The model that was simulated; "" for a recording.
        is_recording: Whether the times were measured.
        joins: Whether ranks waited for each other in their communication: not where each node takes its recorded time.
        delays: Works out what a simulation tells of its communication, None where it tells nothing.
        dimensions_between: Returns which dimensions of its network lie between some ranks, given by number; None where there
            is no network, or none of dimensions.
        system: What was simulated but for the speeds of its dimensions, equal where that is; None where there is none of dimensions.
        speeds: Bandwidth in bytes per ns and latency in ns of a message of each dimension.
    """

    trace: Trace
    times: NodeTimes
    finish_ns: Int64
    origin_ns: int = 0
    groups: Sequence[CommGroup] | None = None
    dimensions: Carried = NOTHING_CARRIED
    links: Carried = NOTHING_CARRIED
    model: str = ""
    is_recording: bool = False
    joins: bool = True
    delays: Callable[[], Delays | None] | None = None
    dimensions_between: Callable[[Sequence[int]], tuple[int, ...]] | None = None
    system: object = None
    speeds: tuple[tuple[float, float], ...] = ()

    __repr__ = one_line

    @property
    def makespan_ns(self) -> int:
        """From the start of the run to the end of its last node."""
        return int(self.finish_ns.max())

    def ledger(self) -> Ledger:
        """Return where each nanosecond of its ranks went."""
        return ledger(
            self.trace,
            self.times,
            self.finish_ns,
            self.groups,
            origin_ns=self.origin_ns,
            is_recording=self.is_recording,
            joins=self.joins,
            delays=self.delays and self.delays(),
        )


def recorded_side(trace: Trace, times: NodeTimes) -> Side:
    """Return a recording as a side; it begins with the first node of any rank.

    Raises:
        TraceError: No node has a time.
    """
    known = np.flatnonzero(times.first != NONE)
    spans = times.spans(trace, known)
    if not len(spans.row):
        raise TraceError(
            "The files of this job hold no times.",
            hint="Simulate it and keep the run (chakra-studio simulate FILES --preset NAME --out RUN), then name the run.",
        )
    origin = int(spans.start_ns.min())
    finish = np.full(len(trace.ranks), NONE, np.int64)
    np.maximum.at(finish, spans.rank, spans.end_ns - origin)
    return Side(trace, times, finish, origin, is_recording=True)


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of both runs.

    Attributes:
        key: Stable short name.
        a, b: Its values, None where a run has none.
        unit: What they count.
        share: Difference as a part of that of the finish; None for what is no time of ranks, and where the finishes are
            equal.
    """

    key: str
    a: float | None
    b: float | None
    unit: Literal["ns", "bytes", "share"] = "ns"
    share: float | None = None

    __repr__ = one_line

    @property
    def difference(self) -> float | None:
        """B minus A, None where either is missing."""
        return None if self.a is None or self.b is None else self.b - self.a


@dataclass(frozen=True, slots=True)
class Step:
    """A part of both makespans.

    Attributes:
        part: Which of `STEPS`.
        a_ns, b_ns: What it takes of each.
        share: Its difference as a part of that of the finish, None where the finishes are equal.
    """

    part: str
    a_ns: int
    b_ns: int
    share: float | None

    __repr__ = one_line

    @property
    def difference_ns(self) -> int:
        """What it adds from A's makespan to B's."""
        return self.b_ns - self.a_ns


@dataclass(frozen=True, slots=True)
class Waterfall:
    """The steps from A's makespan to B's; they add up exactly.

    Attributes:
        basis: `busiest`: the rank that waits and idles least in both runs, which the others wait for; `mean`: all
            ranks in the mean, rounded so that the sum stays exact.
        rank: The number of the rank looked at, -1 for the mean.
        a_ns, b_ns: The finishes.
        steps: All of `STEPS`, in that order.
        before_ns: What of the stalls of A and of B lies before recordings began, where nothing is known of a rank.
    """

    basis: Basis
    rank: int
    a_ns: int
    b_ns: int
    steps: tuple[Step, ...]
    before_ns: tuple[int, int] = (0, 0)

    __repr__ = one_line


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A node of both sides, on the rank where it changed most.

    Attributes:
        rank_a, row_a, rank_b, row_b: Places in the traces, and rows of the graphs.
        a_ns, b_ns: How long it ran there.
        ranks: Pairs of ranks that have it.
        total_ns: Its differences on all of them together.
    """

    rank_a: int
    row_a: int
    rank_b: int
    row_b: int
    a_ns: int
    b_ns: int
    ranks: int
    total_ns: int

    __repr__ = one_line

    @property
    def difference_ns(self) -> int:
        """How much longer it runs in B."""
        return self.b_ns - self.a_ns


@dataclass(frozen=True, slots=True)
class NodeAlone:
    """A node that only one side has, among ranks that both have.

    Attributes:
        rank, row: Place in its trace, and row of the graph, on the rank where it runs longest.
        ns: How long it runs there, -1 where it has no times.
        ranks: Ranks that have it, counted over those whose longest nodes it is among.
    """

    rank: int
    row: int
    ns: int
    ranks: int

    __repr__ = one_line


@dataclass(frozen=True, slots=True)
class Operation:
    """All nodes of one type and name, ignoring numbers in names, on all ranks.

    Attributes:
        type: Name of the node type, as nodes are counted by: gaps are apart from compute.
        name: What the nodes share of their names; untrusted text.
        count_a, count_b: How many ran.
        a_ns, b_ns: How long, added up.
    """

    type: str
    name: str
    count_a: int
    count_b: int
    a_ns: int
    b_ns: int

    __repr__ = one_line

    @property
    def difference_ns(self) -> int:
        """How much longer they run in B."""
        return self.b_ns - self.a_ns


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs side by side.

    Attributes:
        a, b: The runs.
        figures: Finish, and where the time of a rank goes in the mean.
        dimensions, links: Busy time, then bytes, then load, of each part of the networks; links that differ most first.
        busiest: The numbers of the ranks that wait and idle least in A and in B, -1 where none has times.
        waterfalls: From A's finish to B's, by basis; on one rank only where the same one waits least in both: the difference of
            two ranks is none of the runs.
        alignment: Which node of A is which of B.
        slower, faster: Nodes of both that changed most, at most `MOST_LISTED`.
        added, removed: Nodes that only B, and only A, has; the longest first, likewise.
        added_count, removed_count: How many there are, on all ranks that both sides have.
        operations: All operations; those that changed most first.
    """

    a: Side
    b: Side
    figures: tuple[Figure, ...]
    dimensions: tuple[Figure, ...]
    links: tuple[Figure, ...]
    busiest: tuple[int, int]
    waterfalls: tuple[Waterfall, ...]
    alignment: Alignment
    slower: tuple[NodeChange, ...]
    faster: tuple[NodeChange, ...]
    added: tuple[NodeAlone, ...]
    removed: tuple[NodeAlone, ...]
    added_count: int
    removed_count: int
    operations: tuple[Operation, ...]

    def __repr__(self) -> str:
        """Return it in a line."""
        finishes = f"finish {format_ns(self.a.makespan_ns)} → {format_ns(self.b.makespan_ns)}"
        return line(
            "Comparison", [finishes, f"{self.added_count:,} nodes added", f"{self.removed_count:,} removed"]
        )

    def _repr_html_(self) -> str:
        """Return its figures, and the nodes that changed most, as tables."""

        def said(value: float | None) -> str:
            return "–" if value is None else format_ns(value)

        figures = [
            (figure.key, said(figure.a), said(figure.b), said(figure.difference)) for figure in self.figures
        ]
        return table(repr(self), ("mean of a rank", "A", "B", "B − A"), figures)

    @property
    def unranked(self) -> str:
        """Why the sides are not ranked: they are simulations of different models; "" where they are ranked."""
        a, b = self.a.model, self.b.model
        if not a or not b or a == b:
            return ""
        return (
            f"They are of different models ({a}; {b}), so neither is said to be faster: the difference is that of the "
            "models as well. Simulate both with one model to compare them."
        )

    @property
    def difference_ns(self) -> int:
        """How much later B finishes."""
        return self.b.makespan_ns - self.a.makespan_ns

    def waterfall(self, basis: Basis) -> Waterfall:
        """Return the waterfall of a basis; that of the mean where another rank waits least in B than in A."""
        return next((fall for fall in self.waterfalls if fall.basis == basis), self.waterfalls[-1])


def compare(a: Side, b: Side) -> Comparison:
    """Compare two runs.

    Args:
        a: What is compared with.
        b: What is compared.
    """
    parts = _uses(a, b)
    alignment = align(a.trace, b.trace)
    grew = b.makespan_ns - a.makespan_ns
    busiest = _busiest(a, b, parts)
    bases: tuple[Basis, ...] = ("busiest", "mean") if busiest[0] == busiest[1] != NONE else ("mean",)
    slower, faster = _changes(a, b, alignment)
    added, added_count = _alone(b, alignment, of_b=True)
    removed, removed_count = _alone(a, alignment, of_b=False)
    return Comparison(
        a,
        b,
        _figures(a, b, parts, grew),
        _compare_carried(a.dimensions, b.dimensions),
        _compare_carried(a.links, b.links, most_changed_first=True),
        busiest,
        tuple(_waterfall(a, b, parts, basis, busiest[0]) for basis in bases),
        alignment,
        slower,
        faster,
        added,
        removed,
        added_count,
        removed_count,
        _operations(a, b),
    )


@dataclass(frozen=True, slots=True)
class _Use:
    """Where the time of one side goes.

    K ranks with times.

    Attributes:
        places: (K,) their places in the trace.
        ns: (K, 12) time in each of `STEPS`; every row adds up to the finish of the run.
        times: The same by name.
        before_ns: (K,) what of their stalls lies before their recordings began.
    """

    places: Int64
    ns: Int64
    times: PartTimes
    before_ns: Int64

    def busiest(self) -> Int64:
        """Return the indices of the ranks that wait and idle least, so others wait for them: several where they lose the same."""
        lost = self.times.of("waiting", *IDLE) + self.times.after_finish_ns
        return np.flatnonzero(lost == lost.min()) if len(lost) else np.zeros(0, np.int64)

    def mean(self) -> Int64:
        """Return (12,) the mean over ranks in whole ns, rounded so that the sum is exact."""
        total: Int64 = self.ns.sum(axis=0)
        count = max(len(self.ns), 1)
        whole, rest = total // count, total % count
        lacking = (int(total.sum()) // count) - int(whole.sum())
        whole[np.argsort(-rest, kind="stable")[:lacking]] += 1
        return whole


def _uses(a: Side, b: Side) -> tuple[_Use, _Use]:
    """Return where the time of both sides goes, in parts that both tell apart."""
    plain = a.is_recording or b.is_recording
    return _use(a, plain=plain), _use(b, plain=plain)


def _use(side: Side, *, plain: bool) -> _Use:
    account = side.ledger()
    times = account.totals()
    if plain:
        # A recording tells only waiting from the rest of communication: so does what is compared with it.
        ns, rest = times.ns.copy(), [PARTS.index(part) for part in _NOT_TOLD_APART]
        ns[:, PARTS.index("communication")] += ns[:, rest].sum(axis=1)
        ns[:, rest] = 0
        times = replace(times, ns=ns, is_recording=True)
    ns = np.column_stack([times.ns, times.after_finish_ns])
    return _Use(account.places, ns, times, account.before_ns)


# ---------------------------------------------------------------------------------------------------
# Figures and waterfall


def _share(difference: float, grew: int) -> float | None:
    return difference / grew if grew else None


def _figures(a: Side, b: Side, parts: tuple[_Use, _Use], grew: int) -> tuple[Figure, ...]:
    means = [_means(part.times) for part in parts]
    finish = Figure("finish", a.makespan_ns, b.makespan_ns, share=_share(grew, grew))
    rest = (
        Figure(key, means[0][key], means[1][key], share=_share(means[1][key] - means[0][key], grew))
        for key in means[0]
    )
    return finish, *rest


def _means(times: PartTimes) -> dict[str, float]:
    """Return where the time of a rank goes on average, in ns: parts, each after what they add up to."""
    absent = _NOT_TOLD_APART if times.is_recording else ("communication",)
    columns: dict[str, Int64] = {part: times.of(part) for part in WORK}
    columns["communicating"] = times.communicating_ns
    for key, column, parts in (("exposed", times.exposed_ns, EXPOSED), ("idle", times.idle_ns, IDLE)):
        columns[key] = column
        for part in parts:
            if part not in absent:
                columns[part] = times.of(part)
    columns[AFTER_FINISH] = times.after_finish_ns
    return {key: float(column.mean()) for key, column in columns.items()}


def _compare_carried(a: Carried, b: Carried, *, most_changed_first: bool = False) -> tuple[Figure, ...]:
    """Compare busy time, bytes and load of every part that either network has."""
    places = [{name: place for place, name in enumerate(side.names)} for side in (a, b)]
    names = list(dict.fromkeys((*a.names, *b.names)))

    def value(side: int, column: Int64 | Float64, name: str) -> float | None:
        place = places[side].get(name)
        return None if place is None or np.isnan(column[place]) else float(column[place])

    busy = [(name, value(0, a.busy_ns, name), value(1, b.busy_ns, name)) for name in names]
    if most_changed_first:
        busy.sort(key=lambda entry: -abs((entry[2] or 0) - (entry[1] or 0)))
    figures = []
    for name, before, after in busy:
        # Links send at the same time: their differences are no shares of that of the finish.
        figures.append(Figure(name, before, after))
        figures.append(Figure(name, value(0, a.bytes, name), value(1, b.bytes, name), "bytes"))
        figures.append(Figure(name, value(0, a.load, name), value(1, b.load, name), "share"))
    return tuple(figures)


def _busiest(a: Side, b: Side, parts: tuple[_Use, _Use]) -> tuple[int, int]:
    """Return the numbers of the ranks that wait least in A and in B: the same one where ranks that lose the same allow it."""
    numbers = [
        [side.trace.ranks[place].number for place in use.places[use.busiest()].tolist()]
        for side, use in zip((a, b), parts, strict=True)
    ]
    both = set(numbers[1])
    common = next((number for number in numbers[0] if number in both), None)
    if common is not None:
        return common, common
    first, second = (found[0] if found else NONE for found in numbers)
    return first, second


def _row_of(side: Side, use: _Use, number: int) -> Int64:
    """Return (12,) where the time of a rank goes, by its number."""
    row: Int64 = use.ns[_index_of(side, use, number)]
    return row


def _index_of(side: Side, use: _Use, number: int) -> int:
    """Return which of the ranks with times has a number."""
    return next(
        index for index, at in enumerate(use.places.tolist()) if side.trace.ranks[at].number == number
    )


def _waterfall(a: Side, b: Side, parts: tuple[_Use, _Use], basis: Basis, rank: int) -> Waterfall:
    if basis == "mean":
        rank, columns = NONE, [use.mean() for use in parts]
        before = [int(use.before_ns.sum()) // max(len(use.before_ns), 1) for use in parts]
    else:
        columns = [_row_of(side, use, rank) for side, use in zip((a, b), parts, strict=True)]
        before = [
            int(use.before_ns[_index_of(side, use, rank)]) for side, use in zip((a, b), parts, strict=True)
        ]
    grew = b.makespan_ns - a.makespan_ns
    steps = (
        Step(part, before, after, _share(after - before, grew))
        for part, before, after in zip(STEPS, *(column.tolist() for column in columns), strict=True)
    )
    unknown = (before[0], before[1])
    return Waterfall(basis, rank, a.makespan_ns, b.makespan_ns, tuple(steps), unknown)


# ---------------------------------------------------------------------------------------------------
# Nodes


@dataclass(slots=True)
class _Extremes:
    """For each pair of nodes the ranks on which it grew most and least."""

    least: Int64
    most: Int64
    least_at: Int64
    most_at: Int64
    total: Int64
    count: Int64


def durations(side: Side, rank: int, rows: Int64) -> Int64:
    """Return how long nodes of a rank ran, -1 where they have no times."""
    first = int(side.times.first[rank])
    if first == NONE:
        return np.full(len(rows), NONE, np.int64)
    start, end = side.times.start_ns[first + rows], side.times.end_ns[first + rows]
    return np.where(start >= 0, end - start, NONE)


def _combinations(a: Side, b: Side, alignment: Alignment, pairs: int) -> tuple[Int64, Int64]:
    """Return rank pairs matched by `pairs`, one for ranks with equal times, and how many each stands for."""
    pairs_here = np.flatnonzero(alignment.pairs_of == pairs)
    times = np.stack(
        [a.times.first[alignment.rank_a[pairs_here]], b.times.first[alignment.rank_b[pairs_here]]]
    )
    _, index, count = np.unique(times, axis=1, return_index=True, return_counts=True)
    order = np.argsort(index)
    return pairs_here[index[order]], count[order]


def _changes(a: Side, b: Side, alignment: Alignment) -> tuple[tuple[NodeChange, ...], tuple[NodeChange, ...]]:
    combined = [_combinations(a, b, alignment, index) for index in range(len(alignment.pairs))]
    extremes_of = [
        _extremes(a, b, alignment, pairs, chosen)
        for pairs, chosen in zip(alignment.pairs, combined, strict=True)
    ]

    def ranked(*, longer: bool) -> tuple[NodeChange, ...]:
        listed = [
            change
            for pairs, extremes in zip(alignment.pairs, extremes_of, strict=True)
            for change in _most_changed(a, b, alignment, pairs, extremes, longer=longer)
        ]
        listed.sort(key=lambda change: (-abs(change.difference_ns), change.rank_a, change.row_a))
        chosen = _each_once(listed, [_key(a, change.rank_a, change.row_a) for change in listed])
        return tuple(_on_all_ranks(a, alignment, extremes_of, change) for change in chosen)

    return ranked(longer=True), ranked(longer=False)


_Listed = TypeVar("_Listed")


def _each_once(listed: Sequence[_Listed], keys: Sequence[object]) -> list[_Listed]:
    """Return the first entry of each key, at most `MOST_LISTED`; similar graphs repeat nodes."""
    first = dict(zip(reversed(keys), reversed(listed), strict=True))
    order = dict.fromkeys(keys)
    return [first[key] for key in order][:MOST_LISTED]


def _key(side: Side, rank: int, row: int) -> tuple[int, str]:
    """Return the id and name of a node."""
    graph = side.trace.graph_of(side.trace.ranks[rank])
    return int(graph.id[row]), graph.strings[int(graph.name[row])]


def _on_all_ranks(
    a: Side, alignment: Alignment, extremes_of: Sequence[_Extremes], change: NodeChange
) -> NodeChange:
    """Return a change that counts the ranks of every graph with its node."""
    key = _key(a, change.rank_a, change.row_a)
    ranks = total = 0
    for pairs, extremes in zip(alignment.pairs, extremes_of, strict=True):
        for place in _having(a.trace.graphs[pairs.graph_a], pairs.row_a, key):
            ranks += int(extremes.count[place])
            total += int(extremes.total[place])
    return replace(change, ranks=ranks, total_ns=total)


def _having(graph: Graph, rows: Int64, key: tuple[int, str]) -> list[int]:
    """Return the indices among `rows` of nodes with this id and name."""
    places: list[int] = np.flatnonzero(graph.id[rows] == np.uint64(key[0])).tolist()
    return [place for place in places if graph.strings[int(graph.name[rows[place]])] == key[1]]


def _extremes(
    a: Side, b: Side, alignment: Alignment, pairs: GraphPairs, chosen: tuple[Int64, Int64]
) -> _Extremes:
    zeros = [np.zeros(len(pairs.row_a), np.int64) for _ in range(6)]
    extremes = _Extremes(*zeros)
    for pair, count in zip(*(column.tolist() for column in chosen), strict=True):
        before = durations(a, int(alignment.rank_a[pair]), pairs.row_a)
        after = durations(b, int(alignment.rank_b[pair]), pairs.row_b)
        known = (before >= 0) & (after >= 0)
        grew = np.where(known, after - before, 0)
        for better, extreme, where in (
            (grew > extremes.most, extremes.most, extremes.most_at),
            (grew < extremes.least, extremes.least, extremes.least_at),
        ):
            extreme[better], where[better] = grew[better], pair
        extremes.total += count * grew
        extremes.count += count * known
    return extremes


def _most_changed(
    a: Side, b: Side, alignment: Alignment, pairs: GraphPairs, extremes: _Extremes, *, longer: bool
) -> list[NodeChange]:
    """Return the nodes that changed most in one direction."""
    grew, where = (extremes.most, extremes.most_at) if longer else (-extremes.least, extremes.least_at)
    chosen = _largest(grew)
    listed = []
    for place in chosen.tolist():
        pair = int(where[place])
        rank_a, rank_b = int(alignment.rank_a[pair]), int(alignment.rank_b[pair])
        row_a, row_b = int(pairs.row_a[place]), int(pairs.row_b[place])
        before = int(durations(a, rank_a, np.array([row_a]))[0])
        after = int(durations(b, rank_b, np.array([row_b]))[0])
        total = int(extremes.total[place])
        listed.append(
            NodeChange(rank_a, row_a, rank_b, row_b, before, after, int(extremes.count[place]), total)
        )
    return listed


def _largest(values: Int64) -> Int64:
    """Return the indices of the largest positive values, the largest first, at most `MOST_LISTED`."""
    most = min(MOST_LISTED, len(values))
    chosen = np.argpartition(-values, most - 1)[:most] if most else np.zeros(0, np.int64)
    chosen = chosen[values[chosen] > 0]
    return chosen[np.lexsort((chosen, -values[chosen]))]


def _alone(side: Side, alignment: Alignment, *, of_b: bool) -> tuple[tuple[NodeAlone, ...], int]:
    """Return the longest nodes of one side only, and how many there are on all ranks."""
    alone: list[NodeAlone] = []
    count = 0
    ranks = alignment.rank_b if of_b else alignment.rank_a
    for index, pairs in enumerate(alignment.pairs):
        rows = pairs.only_b if of_b else pairs.only_a
        mine = ranks[alignment.pairs_of == index]
        count += len(rows) * len(mine)
        if not len(rows):
            continue
        longest, where = np.full(len(rows), -2, np.int64), np.zeros(len(rows), np.int64)
        _, distinct = np.unique(side.times.first[mine], return_index=True)
        for rank in mine[np.sort(distinct)].tolist():
            lasted = durations(side, rank, rows)
            longer = lasted > longest
            longest[longer], where[longer] = lasted[longer], rank
        for place in _largest(longest + 2).tolist():
            row, ns = int(rows[place]), int(longest[place])
            alone.append(NodeAlone(int(where[place]), row, ns, len(mine)))
    alone.sort(key=lambda node: (-node.ns, node.rank, node.row))
    keys = [_key(side, node.rank, node.row) for node in alone]
    having: Counter[tuple[int, str]] = Counter()
    for candidate, key in zip(alone, keys, strict=True):
        having[key] += candidate.ranks
    chosen = _each_once(list(zip(alone, keys, strict=True)), keys)
    return tuple(replace(node, ranks=having[key]) for node, key in chosen), count


def _operations(a: Side, b: Side) -> tuple[Operation, ...]:
    sums = _sums(a), _sums(b)
    operations = [
        Operation(kind, name, *(side.get((kind, name), (0, 0))[0] for side in sums),
                  *(side.get((kind, name), (0, 0))[1] for side in sums))
        for kind, name in dict.fromkeys((*sums[0], *sums[1]))
    ]  # fmt: skip
    operations.sort(key=lambda operation: (-abs(operation.difference_ns), operation.type, operation.name))
    return tuple(operations)


def _sums(side: Side) -> dict[tuple[str, str], tuple[int, int]]:
    """Return how many nodes ran, and how long, by type and plain name."""
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    graph_of = np.array([rank.graph for rank in side.trace.ranks], np.int64)
    for index, graph in enumerate(side.trace.graphs):
        ranks = np.flatnonzero((graph_of == index) & (side.times.first != NONE))
        if not len(ranks) or not len(graph):
            continue
        code, keys = _operation_codes(graph)
        count, total = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
        _, indices, many = np.unique(side.times.first[ranks], return_index=True, return_counts=True)
        for rank, times in zip(ranks[indices].tolist(), many.tolist(), strict=True):
            lasted = durations(side, rank, np.arange(len(graph)))
            ran = lasted >= 0
            count += times * np.bincount(code[ran], minlength=len(keys))
            total += times * _sum_by_code(code[ran], lasted[ran], len(keys))
        for key, nodes, ns in zip(keys, count.tolist(), total.tolist(), strict=True):
            before = sums.get(key, (0, 0))
            if nodes:
                sums[key] = before[0] + nodes, before[1] + ns
    return sums


def _sum_by_code(code: Int64, values: Int64, codes: int) -> Int64:
    """Return (codes,) the sum of each code's values, in integers."""
    total = np.zeros(codes, np.int64)
    np.add.at(total, code, values)
    return total


def _operation_codes(graph: Graph) -> tuple[Int64, list[tuple[str, str]]]:
    """Return (N,) the operation of each node, and the operations: type and plain name."""
    used, inverse = np.unique(graph.name, return_inverse=True)
    pool = list(graph.strings)
    number: dict[str, int] = {}
    plain = np.array(
        [number.setdefault(plain_name(pool[code]), len(number)) for code in used.tolist()], np.int64
    )
    names = list(number)
    pair = counted_types(graph).astype(np.int64) * len(names) + plain[inverse]
    kinds, code = np.unique(pair, return_inverse=True)
    keys = [(counted_type_name(kind // len(names)), names[kind % len(names)]) for kind in kinds.tolist()]
    return code, keys
