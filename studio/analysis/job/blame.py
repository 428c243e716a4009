"""Whom ranks waited for, and what those did meanwhile.

A member of a collective waits, with no work to hide it, until the last member has begun: that one is waited for. A receive
waits for the rank that sends. What the other rank did meanwhile is told by its own ledger, over the same stretch of time on
aligned clocks: it computed, waited for somebody itself, or was idle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from studio.analysis.collectives.times import CollectiveTimes
from studio.analysis.collectives.waits import CollectiveWaits
from studio.analysis.job.kinds import COMMUNICATION, COMPUTE, COPY, CPU, MEMORY
from studio.analysis.job.ledger import EXPOSED, PART_CODES, PARTS, Ledger
from studio.analysis.job.own_time import find_busy_within
from studio.analysis.job.windows import build_whole_windows
from studio.distinct import find_distinct
from studio.notebook import format_record
from studio.timeline import NodeTimes
from studio.trace import NONE, Bool, Int64, Trace, are_assumed_arrivals
from studio.units import format_ns

_STALL, _HOST = PART_CODES["stall"], PART_CODES["host"]
_WAITS = (PART_CODES["waiting"], PART_CODES["bubble"])
KINDS_OF: dict[str, tuple[int, ...]] = {
    "overlapped": (COMPUTE, COPY, MEMORY),
    "compute": (COMPUTE,),
    "copy": (COPY, MEMORY),
    "host": (CPU,),
    "bubble": (COMMUNICATION,),
    **dict.fromkeys(EXPOSED, (COMMUNICATION,)),
}
"""Kinds of nodes that a part of a rank's time consists of."""
Wanted = Callable[[int, Int64], Bool]
_MOST_LOOKED_AT = 5_000_000
"""Times of nodes that are looked through, at most, for what a rank was doing; the longest waits come first."""
_LEAST_NAMED = 8


@dataclass(frozen=True, slots=True)
class Blame:
    """Waiting by the rank waited for: one entry for each pair of ranks, the longest first.

    B entries, K ranks with times.

    Attributes:
        waiter: (B,) which rank waited, an index into those of the ledger.
        culprit: (B,) which rank it waited for, likewise; -1 where nothing tells.
        ns: (B,) how long, no work hiding it.
        doing: (B, parts) what the culprit did meanwhile; each row adds up to `ns`.
        before_ns: (B,) how much of that counts as stalled because the culprit's recording had not begun: nothing is known of it.
        assumed_ns: (B,) how much of that counts as host and is an assumed arrival of a rank that was not recorded.
        row: (B,) the node of the waiter that waited longest.
        late_row: (B,) the node of the culprit that it waited for; -1 where nothing tells.
        busy_row: (B,) what the culprit was at for most of that wait; -1 where that is nothing, or was not looked for.
        longest_ns: (B,) how long that wait was.
    """

    waiter: Int64
    culprit: Int64
    ns: Int64
    doing: Int64
    before_ns: Int64
    assumed_ns: Int64
    row: Int64
    late_row: Int64
    busy_row: Int64
    longest_ns: Int64

    __repr__ = format_record

    def __len__(self) -> int:
        return len(self.waiter)

    def mostly(self, entries: Int64 | Bool) -> tuple[str, float]:
        """Return what culprits did for most of the time they were waited for in some entries, and its share of that.

        That is one of `PARTS`, or `before`, as nothing is known of a rank before its recording, or `assumed`, where nobody recorded it.
        """
        doing = self.doing[entries].sum(axis=0)
        before, assumed = int(self.before_ns[entries].sum()), int(self.assumed_ns[entries].sum())
        doing[_STALL] -= before
        doing[_HOST] -= assumed
        most = int(doing.argmax())
        spent = {PARTS[most]: int(doing[most]), "before": before, "assumed": assumed}
        name = max(spent, key=lambda part: spent[part])
        return name, spent[name] / max(int(self.ns[entries].sum()), 1)

    def of_culprits(self, ranks: int) -> Int64:
        """Return (K,) how long all ranks together waited for each one."""
        known = self.culprit != NONE
        total = np.zeros(ranks, np.int64)
        np.add.at(total, self.culprit[known], self.ns[known])
        return total


def compute_blame(
    trace: Trace,
    times: NodeTimes,
    account: Ledger,
    windows: Int64 | None = None,
    wanted: Wanted | None = None,
) -> Blame:
    """Return whom each rank waited for, and what those did meanwhile; a recording and a simulation alike.

    Args:
        trace: The job.
        times: When its nodes ran.
        account: Where the time of its ranks went.
        windows: (K, 2) what is looked at of each rank, in ns after the beginning of the run; None is all of it.
        wanted: Whether waits at a node of a rank count, given the place of the rank and (W,) nodes; None counts all.
    """
    waits = _collect_waits(
        trace, account, build_whole_windows(account) if windows is None else windows, wanted
    )
    rank, other, row, late_row, start, end = waits
    doing, unknown = _sum_doings(account, rank, other, start, end)
    late = np.minimum(_sum_arriving(trace, times, account, waits), doing[:, _HOST])
    pair = rank * (len(account) + 1) + other + 1
    distinct, of = np.unique(pair, return_inverse=True)
    ns = np.zeros(len(distinct), np.int64)
    np.add.at(ns, of, end - start)
    parts = np.zeros((len(distinct), len(PARTS)), np.int64)
    np.add.at(parts, of, doing)
    before = np.zeros(len(distinct), np.int64)
    np.add.at(before, of, unknown)
    assumed = np.zeros(len(distinct), np.int64)
    np.add.at(assumed, of, late)
    # Of a pair's waits the longest, of several the earliest, comes last.
    by_length = np.lexsort((-start, end - start, of))
    pairs = of[by_length]
    last: Bool = np.append(pairs[1:] != pairs[:-1], True)[: len(of)]
    longest = by_length[last]
    order = np.lexsort((distinct, -ns))
    assert (parts.sum(axis=1) == ns).all(), "what the other did fills the wait"
    chosen = longest[order]
    busy = _find_busy_rows(trace, times, account, waits[:, chosen], doing[chosen])
    waiter, culprit = np.divmod(distinct[order], len(account) + 1)
    return Blame(
        waiter,
        culprit - 1,
        ns[order],
        parts[order],
        before[order],
        assumed[order],
        row[chosen],
        late_row[chosen],
        busy,
        (end - start)[chosen],
    )


def compute_collective_waits(trace: Trace, account: Ledger, collectives: CollectiveTimes) -> CollectiveWaits:
    """Return how long ranks waited for the last member of each collective, no work hiding it; messages are left out.

    Args:
        trace: The job.
        account: Where the time of its ranks went.
        collectives: Its collectives, in the same times.
    """
    _, other, _, late_row, start, end = _collect_waits(trace, account, build_whole_windows(account), None)
    known = other != NONE
    other, late_row, ns = other[known], late_row[known], (end - start)[known]
    at = _find_collectives(account, collectives)[account.first[account.places[other]] + late_row]
    met = at != NONE
    numbers = np.array(account.numbers, np.int64)
    pairs, of = np.unique(np.stack([at[met], numbers[other[met]]]), axis=1, return_inverse=True)
    total = np.zeros(pairs.shape[1], np.int64)
    np.add.at(total, of.reshape(-1), ns[met])
    return CollectiveWaits(pairs[0], pairs[1], total)


def _find_collectives(account: Ledger, collectives: CollectiveTimes) -> Int64:
    """Return (T,) the collective that each node takes part in, -1 for none; of groups whose members ran alike one stands for all."""
    longest = int(collectives.position.max(initial=0)) + 1
    key = collectives.group * longest + collectives.position
    order = np.argsort(key)
    group_of = {name: number for number, name in enumerate(collectives.groups)}
    collective = np.full(len(account.begun_ns), NONE, np.int64)
    seen: set[int] = set()
    for group in account.arrivals.groups:
        if id(group.rows) in seen or group.name not in group_of or not len(order):
            continue
        seen.add(id(group.rows))
        line, at = np.nonzero((group.rows != NONE) & (np.arange(group.rows.shape[1]) < longest))
        wanted = group_of[group.name] * longest + at
        place = order[np.minimum(np.searchsorted(key, wanted, sorter=order), len(order) - 1)]
        entry = account.first[group.member[line]] + group.rows[line, at]
        collective[entry] = np.where(key[place] == wanted, place, NONE)
    return collective


def _collect_waits(trace: Trace, account: Ledger, windows: Int64, wanted: Wanted | None) -> Int64:
    """Return the waits of all ranks: (6, W) rank, rank waited for, rows of both, start and end; ranks as in the ledger."""
    stretches, line_of = account.stretches, np.full(len(trace.ranks) + 1, NONE, np.int64)
    line_of[account.places] = np.arange(len(account))
    is_wait = np.isin(stretches.kind, _WAITS)
    tables = [np.zeros((6, 0), np.int64)]
    for rank, (place, course) in enumerate(
        zip(account.places.tolist(), account.course.tolist(), strict=True)
    ):
        low, high = stretches.bounds[course : course + 2].tolist()
        chosen = low + np.flatnonzero(is_wait[low:high])
        if wanted is not None:
            chosen = chosen[wanted(place, account.owner[chosen] - account.first[place])]
        start = np.maximum(stretches.start[chosen], windows[rank, 0])
        end = np.minimum(stretches.end[chosen], windows[rank, 1])
        chosen, start, end = (column[end > start] for column in (chosen, start, end))
        if not len(chosen):
            continue
        graph = trace.graph_of(trace.ranks[place])
        others, rows = account.arrivals.partners(place, len(graph))
        row = account.owner[chosen] - account.first[place]
        ranks = np.full(len(chosen), rank)
        # Places of ranks count from 0, so -1, which stands for nobody, takes the last entry.
        tables.append(np.stack([ranks, line_of[others[row]], row, rows[row], start, end]))
    return np.concatenate(tables, axis=1)


def _sum_doings(account: Ledger, rank: Int64, other: Int64, start: Int64, end: Int64) -> tuple[Int64, Int64]:
    """Return (W, parts) how the blamed ranks spent the time while others waited, and (W,) what of it lies before their recordings.

    Unknown time counts as stall.
    """
    doing = np.zeros((len(rank), len(PARTS)), np.int64)
    known = np.flatnonzero(other != NONE)
    course = account.course[other[known]]
    moved = _compute_clock_lead(account, rank[known], other[known])
    doing[known] = account.stretches.until(course, end[known] + moved, len(PARTS))
    doing[known] -= account.stretches.until(course, start[known] + moved, len(PARTS))
    doing[:, _STALL] += end - start - doing.sum(axis=1)
    before = np.zeros(len(rank), np.int64)
    if account.is_recording:
        begun = account.before_ns[other[known]]
        before[known] = np.maximum(np.minimum(end[known] + moved, begun) - (start[known] + moved), 0)
    return doing, before


def _sum_arriving(trace: Trace, times: NodeTimes, account: Ledger, waits: Int64) -> Int64:
    """Return (W,) for how long assumed arrivals of the other rank were under way in each wait."""
    rank, other, _, _, start, end = waits
    arriving = np.zeros(len(rank), np.int64)
    chosen = [are_assumed_arrivals(graph) for graph in trace.graphs]
    if not any(of_graph.any() for of_graph in chosen):
        return arriving
    for culprit in find_distinct(other[other != NONE]).tolist():
        place = int(account.places[culprit])
        rows = int(times.first[place]) + np.flatnonzero(chosen[trace.ranks[place].graph])
        since, until = _separate_spans(times, rows)
        if not len(since):
            continue
        entries = np.flatnonzero(other == culprit)
        moved = _compute_clock_lead(account, rank[entries], other[entries]) + account.origin_ns
        total = np.append(0, np.cumsum(until - since))

        def sum_covered(
            moment: Int64, since: Int64 = since, until: Int64 = until, total: Int64 = total
        ) -> Int64:
            at = np.searchsorted(since, moment, side="right") - 1
            inside = np.minimum(moment, until[np.maximum(at, 0)]) - since[np.maximum(at, 0)]
            return np.where(at < 0, 0, total[np.maximum(at, 0)] + inside)

        arriving[entries] = sum_covered(end[entries] + moved) - sum_covered(start[entries] + moved)
    return arriving


def sum_assumed_ns(trace: Trace, times: NodeTimes, account: Ledger) -> Int64:
    """Return (K,) how much of each rank's host time is an assumed arrival, which nobody recorded."""
    assumed = np.zeros(len(account), np.int64)
    chosen = [are_assumed_arrivals(graph) for graph in trace.graphs]
    if not any(of_graph.any() for of_graph in chosen):
        return assumed
    known: dict[tuple[int, int], int] = {}
    for index, (place, course) in enumerate(
        zip(account.places.tolist(), account.course.tolist(), strict=True)
    ):
        key = course, trace.ranks[place].graph
        if key not in known:
            rows = int(times.first[place]) + np.flatnonzero(chosen[key[1]])
            since, until = _separate_spans(times, rows)
            line = np.full(len(since), course, np.int64)
            spent = account.stretches.until(line, until - account.origin_ns, len(PARTS))
            spent -= account.stretches.until(line, since - account.origin_ns, len(PARTS))
            known[key] = int(spent[:, _HOST].sum())
        assumed[index] = known[key]
    return assumed


def describe_assumed_host(account: Ledger, arriving_ns: Int64) -> str:
    """Say how much of the host's time nobody recorded, "" where all was; `arriving_ns` is that of `sum_assumed_ns`."""
    if not arriving_ns.any():
        return ""
    host = account.totals().of("host")
    return (
        f"Of {format_ns(float(host.mean()))} host time, in the mean of all ranks, {format_ns(float(arriving_ns.mean()))} is assumed arrival: "
        f"time before collectives that recorded ranks seem to have waited for ranks which nobody recorded."
    )


def _separate_spans(times: NodeTimes, rows: Int64) -> tuple[Int64, Int64]:
    """Return from when until when nodes were under way, each from where those before it had ended, in order of their starts."""
    rows = rows[times.start_ns[rows] >= 0]
    rows = rows[np.argsort(times.start_ns[rows], kind="stable")]
    until = np.maximum.accumulate(times.end_ns[rows])
    return np.maximum(times.start_ns[rows], np.append(0, until)[:-1]), until


def _compute_clock_lead(account: Ledger, rank: Int64, other: Int64) -> Int64:
    """Return (W,) how far the clock of the other rank is ahead of this one's."""
    ahead = account.arrivals.ahead_ns[account.places]
    return np.asarray(ahead[other] - ahead[rank])


def _find_busy_rows(trace: Trace, times: NodeTimes, account: Ledger, waits: Int64, doing: Int64) -> Int64:
    """Return for each wait the node that the other rank was at for most of it, -1 for none."""
    rank, other, _, late_row, start, end = waits
    busy = np.full(len(rank), NONE, np.int64)
    if not len(rank):
        return busy
    kinds, fitting = account.kinds, dict[tuple[int, int], Bool]()
    sizes = max(len(graph) for graph in trace.graphs)
    named = max(_MOST_LOOKED_AT // max(sizes, 1), _LEAST_NAMED)
    known = np.flatnonzero(other != NONE)[:named]
    moved = _compute_clock_lead(account, rank[known], other[known]) + account.origin_ns
    most = doing[known].argmax(axis=1).tolist()
    for at, shift, part in zip(known.tolist(), moved.tolist(), most, strict=True):
        place = int(account.places[other[at]])
        graph = trace.ranks[place].graph
        if (graph, part) not in fitting:
            fitting[graph, part] = np.isin(kinds[graph], KINDS_OF.get(PARTS[part], ()))
        wanted = fitting[graph, part]
        low, high = int(start[at]) + shift, int(end[at]) + shift
        row, begin, until = find_busy_within(trace, times, place, account.pieces, low, high)
        inside = np.minimum(until, high) - np.maximum(begin, low)
        inside[~wanted[row] | (row == late_row[at])] = 0
        total = np.zeros(len(wanted), np.int64)
        np.add.at(total, row, inside)
        if total.max(initial=0) > 0:
            busy[at] = int(total.argmax())
    return busy
