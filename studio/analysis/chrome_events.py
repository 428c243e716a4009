"""A timeline as a Chrome trace with flows, which Perfetto opens: rows are threads, so that no two slices overlap.

Flows are the dependencies of each rank, each message from its send to its receive, and, for a collective, from each
member to the one that arrives next.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from studio.analysis.gantt import Gantt
from studio.analysis.peers import members_in_order
from studio.timeline import LANE_KINDS
from studio.trace import NONE, Int64, Rank, type_name

HEAD = '{"displayTimeUnit": "ns", "otherData": {"writer": "chakra-studio"}, "traceEvents": [\n'
_KINDS = ("ctrl", "data")


def chrome_events(gantt: Gantt) -> Iterator[str]:
    """Yield the file piece by piece; times are microseconds after the beginning, exact to the nanosecond."""
    yield HEAD + json.dumps(
        {"ph": "M", "pid": 0, "name": "process_labels", "args": {"labels": "chakra-studio"}}
    )
    for rank in gantt.trace.ranks:
        yield from _rank(gantt, rank)
    flow = 0
    for rank in gantt.trace.ranks:
        for line in _dependencies(gantt, rank, flow):
            yield line
            flow += 1
    for name, ends in _meetings(gantt):
        for before, after in pairwise(ends):
            yield _flow(name, flow, before, after)
            flow += 1
    yield "\n]}\n"


def _rank(gantt: Gantt, rank: Rank) -> Iterator[str]:
    yield _named("process_name", rank.number, 0, f"rank {rank.number}")
    yield _named("process_sort_index", rank.number, 0, rank.number)
    rows = gantt.rows_of(rank)
    graph = gantt.trace.graph_of(rank)
    sizes = gantt.sizes_of(rank.graph)
    names: dict[int, str] = {}
    for row in rows:
        thread = row - rows.start + 1
        kind = LANE_KINDS[int(gantt.rows.kind[row])]
        lane, level = gantt.rows.names[int(gantt.rows.name[row])], int(gantt.rows.level[row])
        title = f"{kind} {lane}".strip() + (f" · {level + 1}" if level else "")
        yield _named("thread_name", rank.number, thread, title)
        yield _named("thread_sort_index", rank.number, thread, thread)
        places = gantt.row_places(row)
        node = gantt.coverage.row[places]
        columns = (
            gantt.coverage.start_ns[places] - gantt.origin_ns,
            gantt.coverage.end_ns[places] - gantt.coverage.start_ns[places],
            graph.name[node],
            graph.id[node],
            graph.type[node],
            sizes[node],
        )
        lines = []
        for start, length, code, number, of, size in zip(*(one.tolist() for one in columns), strict=True):
            name = names.get(code) or names.setdefault(code, json.dumps(graph.strings[code]))
            more = f', "bytes": {size}' if size else ""
            lines.append(
                f',\n{{"ph": "X", "pid": {rank.number}, "tid": {thread}, "cat": "{kind}", "ts": {_micros(start)}, '
                f'"dur": {_micros(length)}, "name": {name}, '
                f'"args": {{"id": {number}, "type": "{type_name(of)}"{more}}}}}'
            )
        yield "".join(lines)


_End = tuple[int, int, int]
"""Rank, thread, and start of the slice that a flow leaves or enters."""


def _dependencies(gantt: Gantt, rank: Rank, first: int) -> Iterator[str]:
    edges = gantt.adjacency_of(rank).edges
    places = gantt.places(rank).astype(np.int64)
    before, after = places[edges.before], places[edges.after]
    there = (before != NONE) & (after != NONE)
    columns = (
        _ends(gantt, rank, before[there]),
        _ends(gantt, rank, after[there]),
        edges.is_data[there].tolist(),
    )
    for at, (one, two, data) in enumerate(zip(*columns, strict=True)):
        yield _flow(_KINDS[data], first + at, one, two)


def _ends(gantt: Gantt, rank: Rank, places: Int64) -> list[_End]:
    thread = gantt.rows_at(rank, places) - gantt.rows_of(rank).start + 1
    start = gantt.coverage.start_ns[places] - gantt.origin_ns
    return [(rank.number, *pair) for pair in zip(thread.tolist(), start.tolist(), strict=True)]


def _meetings(gantt: Gantt) -> Iterator[tuple[str, list[_End]]]:
    """Yield the slices of every collective, by arrival, and of every message."""
    for matching in gantt.matchings:
        rows = members_in_order(gantt, matching)
        table: list[list[_End]] = [[] for _ in range(rows.shape[1])]
        for number, mine in zip(matching.members, rows, strict=True):
            there = np.flatnonzero(mine != NONE)
            if not len(there):
                continue
            rank = gantt.rank(number)
            places = gantt.places(rank)[mine[there]].astype(np.int64)
            timed = places != NONE
            for position, end in zip(there[timed].tolist(), _ends(gantt, rank, places[timed]), strict=True):
                table[position].append(end)
        yield from (("collective", sorted(ends, key=lambda end: end[2])) for ends in table)
    found = gantt.messages
    halves = (found.send_rank, found.send_row, found.receive_rank, found.receive_row)
    for source, row, target, other in zip(*(one.tolist() for one in halves), strict=True):
        if NONE in (source, target):
            continue
        ends = []
        for at, node in ((source, row), (target, other)):
            rank = gantt.trace.ranks[at]
            place = gantt.places(rank)[[node]].astype(np.int64)
            ends += _ends(gantt, rank, place[place != NONE])
        yield "message", ends


def _flow(name: str, number: int, before: _End, after: _End) -> str:
    head = f'"cat": "{name}", "name": "{name}", "id": {number}'
    return (
        f',\n{{"ph": "s", {head}, "pid": {before[0]}, "tid": {before[1]}, "ts": {_micros(before[2])}}},\n'
        f'{{"ph": "f", "bp": "e", {head}, "pid": {after[0]}, "tid": {after[1]}, "ts": {_micros(after[2])}}}'
    )


def _named(what: str, rank: int, thread: int, value: str | int) -> str:
    key = "sort_index" if what.endswith("sort_index") else "name"
    return ",\n" + json.dumps({"ph": "M", "pid": rank, "tid": thread, "name": what, "args": {key: value}})


def _micros(time_ns: int) -> str:
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"
