"""Where the time of a window went: by part, category, comm group or name, per rank or for all ranks.

Parts are those of `analysis.job.ledger` and add up to the window; of the others what overlaps counts under each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from studio.analysis.job.ledger import AFTER_FINISH, PARTS
from studio.analysis.timeline.coverage import Category
from studio.analysis.timeline.gantt import Gantt
from studio.timeline import LANE_KINDS
from studio.trace import NONE, Bool, Int64, Rank, UInt8

By = Literal["part", "category", "group", "name"]
BY: tuple[By, ...] = get_args(By)
IDLE = "idle"
_COMMUNICATION = LANE_KINDS.index("communication")
_WORDS = {Category.HOST: "CPU", Category.GAP: "stream idle"}


@dataclass(frozen=True, slots=True)
class Share:
    """Time of one rank in the window under one heading.

    Attributes:
        rank: The rank's number.
        what: Category, comm group or name; untrusted text.
        nodes: Nodes that ran in the window, also in part.
        time_ns: How long at least one of them ran inside the window: what overlaps counts once.
    """

    rank: int
    what: str
    nodes: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class Spread:
    """Time of all ranks under one heading.

    Attributes:
        what: Category, comm group or name; untrusted text.
        ranks: Ranks that have it in the window.
        nodes: Nodes of all of them.
        total_ns, mean_ns: Time of all, and of one of the `ranks` on average.
        least_ns, least_rank, most_ns, most_rank: Who has least of it and who most, of the `ranks`.
    """

    what: str
    ranks: int
    nodes: int
    total_ns: int
    mean_ns: float
    least_ns: int
    least_rank: int
    most_ns: int
    most_rank: int


def compute_shares(gantt: Gantt, start_ns: int, end_ns: int, by: By) -> Iterator[Share]:
    """Yield where each rank's time in the window went, rank by rank, the largest first.

    By category there is the idle time of each rank, too: the sum of the parts bubble, host and stall, and what it waited before a
    collective that its recording notes only once all members are there.
    """
    if by == "part":
        yield from _compute_part_shares(gantt, start_ns, end_ns)
        return
    idle = dict(_iterate_idle(gantt, start_ns, end_ns)) if by == "category" else {}
    known: dict[object, list[tuple[str, int, int]]] = {}
    for rank in gantt.trace.ranks:
        rows = gantt.rows_of(rank)
        # Ranks that one stands for differ in the names of their groups only.
        key = (rank.graph, *gantt.rows.track[rows.start : rows.stop].tolist())
        if by == "group":
            key = (*key, *gantt.rows.name[rows.start : rows.stop].tolist())
        if key not in known:
            known[key] = _sum_by_heading(gantt, rank, start_ns, end_ns, by)
        for what, nodes, time in known[key]:
            yield Share(rank.number, what, nodes, time)
        if rank.number in idle:
            yield Share(rank.number, IDLE, 0, idle[rank.number])


def _compute_part_shares(gantt: Gantt, start_ns: int, end_ns: int) -> Iterator[Share]:
    """Yield the parts of each rank's time in the window; a rank without times was at no time under way."""
    times = gantt.account.totals(start_ns, end_ns)
    names = [*PARTS, AFTER_FINISH]
    table = np.column_stack([times.ns, times.after_finish_ns]).tolist()
    nothing = [0] * len(PARTS) + [end_ns - start_ns]
    for rank, line in zip(gantt.trace.ranks, gantt.lines().tolist(), strict=True):
        row = nothing if line == NONE else table[line]
        for name, time in sorted(zip(names, row, strict=True), key=lambda part: -part[1]):
            if time:
                yield Share(rank.number, name, 0, time)


def _iterate_idle(gantt: Gantt, start_ns: int, end_ns: int) -> Iterator[tuple[int, int]]:
    """Yield each rank that has times and how long it was idle in a window."""
    idle = _compute_idle_ns(gantt, start_ns, end_ns).tolist()
    for rank, line in zip(gantt.trace.ranks, gantt.lines().tolist(), strict=True):
        if line != NONE:
            yield rank.number, idle[line]


def compute_spreads(shares: Iterator[Share]) -> list[Spread]:
    """Return the shares of all ranks together, the largest first."""
    parts: dict[str, list[Share]] = {}
    for share in shares:
        parts.setdefault(share.what, []).append(share)
    spreads = []
    for what, own_shares in parts.items():
        least, most = (
            min(own_shares, key=lambda entry: entry.time_ns),
            max(own_shares, key=lambda entry: entry.time_ns),
        )
        total = sum(share.time_ns for share in own_shares)
        nodes = sum(share.nodes for share in own_shares)
        ends = (least.time_ns, least.rank, most.time_ns, most.rank)
        spreads.append(Spread(what, len(own_shares), nodes, total, total / len(own_shares), *ends))
    return sorted(spreads, key=lambda spread: (-spread.total_ns, spread.what))


def _sum_by_heading(
    gantt: Gantt, rank: Rank, start_ns: int, end_ns: int, by: By
) -> list[tuple[str, int, int]]:
    places, row = _find_spans(gantt, rank, start_ns, end_ns)
    low, high = start_ns + gantt.origin_ns, end_ns + gantt.origin_ns
    start = np.clip(gantt.coverage.start_ns[places], low, high) - low
    end = np.clip(gantt.coverage.end_ns[places], low, high) - low
    code, names = _assign_headings(gantt, rank, (places, row), by)
    headings = []
    if len(places):
        nodes = np.bincount(code[_mark_first(gantt, places)], minlength=len(names))
        time = _compute_covered_time(code, start, end, len(names))
        headings = [
            (name, int(nodes[index]), int(time[index])) for index, name in enumerate(names) if nodes[index]
        ]
    headings.sort(key=lambda heading: (-heading[2], heading[0]))
    return headings


def compute_idle_times(gantt: Gantt) -> Int64:
    """Return (number of ranks,) how long each rank of the trace was idle; 0 for ranks without times."""
    idle: Int64 = np.append(_compute_idle_ns(gantt), 0)[gantt.lines()]
    return idle


def _compute_idle_ns(gantt: Gantt, start_ns: int = 0, end_ns: int | None = None) -> Int64:
    totals = gantt.account.totals(start_ns, end_ns)
    idle: Int64 = totals.idle_ns + gantt.account.unseen_ns(start_ns, end_ns)
    return idle


def _find_spans(gantt: Gantt, rank: Rank, start_ns: int, end_ns: int) -> tuple[Int64, Int64]:
    """Return the spans of a rank in the window, and their rows."""
    places, rows = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for row in gantt.rows_of(rank):
        track = int(gantt.rows.track[row])
        spans = gantt.coverage.spans(track, start_ns + gantt.origin_ns, end_ns + gantt.origin_ns)
        places.append(spans)
        rows.append(np.full(len(spans), row))
    return np.concatenate(places), np.concatenate(rows)


def _assign_headings(gantt: Gantt, rank: Rank, where: tuple[Int64, Int64], by: By) -> tuple[Int64, list[str]]:
    """Return the heading of each span as an index, and the headings."""
    places, row = where
    if by == "name":
        graph = gantt.trace.graph_of(rank)
        used, code = np.unique(graph.name[gantt.coverage.row[places]], return_inverse=True)
        return code, [graph.strings[text_code] or "(no name)" for text_code in used.tolist()]
    category: UInt8 = gantt.coverage.category[places]
    if by == "category":
        return category.astype(np.int64), [_WORDS.get(kind, kind.name.lower()) for kind in Category]
    talks = gantt.rows.kind[row] == _COMMUNICATION
    group = np.where(talks, gantt.rows.name[row], len(gantt.rows.names))
    used, code = np.unique(group, return_inverse=True)
    names = [*gantt.rows.names, "(no communication)"]
    return code, [names[text_code] or "(no name)" for text_code in used.tolist()]


def _mark_first(gantt: Gantt, places: Int64) -> Bool:
    """Return (S,) which spans of a rank are the first among them of their node."""
    is_first = np.ones(len(places), np.bool_)
    if gantt.coverage.goes_on is not None:
        is_first[:] = False
        is_first[np.unique(gantt.coverage.row[places], return_index=True)[1]] = True
    return is_first


def _compute_covered_time(code: Int64, start: Int64, end: Int64, count: int) -> Int64:
    """Return (count,) the time covered by the spans of each code."""
    order = np.lexsort((start, code))
    code, start, end = code[order], start[order], end[order]
    # Each code in a stretch of time of its own, so that no span reaches into another's.
    stretch = int(end.max(initial=0)) + 1
    begin, until = start + code * stretch, end + code * stretch
    reach = np.maximum.accumulate(until) if len(until) else until
    begin = np.maximum(begin, np.append(begin[:1], reach[:-1]))
    time = np.zeros(count, np.int64)
    np.add.at(time, code, np.maximum(until - begin, 0))
    return time
