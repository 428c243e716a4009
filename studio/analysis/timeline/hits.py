"""Find bars by the names of their nodes."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from studio.analysis.job.kinds import infer_counted_types, label_counted_type
from studio.analysis.timeline.gantt import Gantt
from studio.distinct import find_distinct
from studio.errors import TraceError
from studio.timeline import LANE_KINDS
from studio.trace import (
    NONE,
    Bool,
    CollectiveType,
    Graph,
    Int64,
    Rank,
    label_collective,
    read_int_column,
)

HITS_AT_MOST = 50_000
"""Nodes that are sent to be walked through, and bars to be outlined; their count is exact beyond."""
HOW = "Write part of a name, /a regular expression/, id:118, type:all_reduce or group:tp0."
_COMMUNICATION = LANE_KINDS.index("communication")


@dataclass(frozen=True, slots=True)
class Hits:
    """Matching nodes, by start.

    H nodes, the first of `count`; B bars.

    Attributes:
        row: (H,) row of the Gantt.
        node: (H,) row of the rank's graph.
        start_ns, end_ns: (H,) of its first bar, after the beginning of the timeline.
        count: How many fit.
        bars: (3, B) row, start and end of all bars of the nodes, by start, where some are drawn in several; else None.
    """

    row: Int64
    node: Int64
    start_ns: Int64
    end_ns: Int64
    count: int
    bars: Int64 | None = None


def find_hits(gantt: Gantt, text: str) -> Hits:
    """Return the nodes with times that match a text.

    Args:
        gantt: Where to look.
        text: Part of a name, whatever its case; `/expression/`; or `id:`, `type:` or `group:` with what to find.

    Raises:
        TraceError: The expression or the id is none.
    """
    text = text.strip()
    kind, _, wanted = text.partition(":")
    if kind == "group":
        parts = [_find_group_rows(gantt, rank, wanted.strip()) for rank in gantt.trace.ranks]
    else:
        fits = {index: _match_nodes(graph, text) for index, graph in enumerate(gantt.trace.graphs)}
        parts = [_find_rows(gantt, rank, fits[rank.graph]) for rank in gantt.trace.ranks]
    row, place = np.concatenate([np.zeros((2, 0), np.int64), *parts], axis=1)
    start = gantt.coverage.start_ns[place] - gantt.origin_ns
    order = np.lexsort((row, start))[:HITS_AT_MOST]
    row, place, start = row[order], place[order], start[order]
    end = gantt.coverage.end_ns[place] - gantt.origin_ns
    bars = None if gantt.coverage.goes_on is None else _list_bars(gantt, row, place)
    return Hits(row, gantt.coverage.row[place], start, end, sum(part.shape[1] for part in parts), bars)


def _list_bars(gantt: Gantt, row: Int64, place: Int64) -> Int64:
    """Return (3, B) row, start and end of all bars of nodes, given by their first: those that begin earliest of too many."""
    numbers, node = gantt.rows.rank[row], gantt.coverage.row[place]
    parts = [np.zeros((3, 0), np.int64)]
    for number in find_distinct(numbers).tolist():
        rank = gantt.rank(number)
        wanted = np.zeros(len(gantt.trace.graph_of(rank)), np.bool_)
        wanted[node[numbers == number]] = True
        for own in gantt.rows_of(rank):
            places = gantt.row_places(own)
            places = places[wanted[gantt.coverage.row[places]]]
            times = (gantt.coverage.start_ns[places], gantt.coverage.end_ns[places])
            parts.append(np.stack([np.full(len(places), own), *(time - gantt.origin_ns for time in times)]))
    bars = np.concatenate(parts, axis=1)
    return np.asarray(bars[:, np.argsort(bars[1], kind="stable")[:HITS_AT_MOST]], np.int64)


def _find_rows(gantt: Gantt, rank: Rank, fits: Int64) -> Int64:
    """Return (2, H) the rows and indices of a rank's matching nodes that have times."""
    place = gantt.places(rank)[fits].astype(np.int64)
    place = place[place != NONE]
    return np.stack([gantt.rows_at(rank, place), place])


def _find_group_rows(gantt: Gantt, rank: Rank, name: str) -> Int64:
    parts = [np.zeros((2, 0), np.int64)]
    for row in gantt.rows_of(rank):
        if gantt.rows.kind[row] == _COMMUNICATION and gantt.rows.names[int(gantt.rows.name[row])] == name:
            place = gantt.first_places(row)
            parts.append(np.stack([np.full(len(place), row), place]))
    return np.concatenate(parts, axis=1)


def _match_nodes(graph: Graph, text: str) -> Int64:
    """Return the rows of matching nodes."""
    kind, _, wanted = text.partition(":")
    wanted = wanted.strip()
    if kind == "id":
        return np.flatnonzero(graph.id == np.uint64(_parse_id(wanted)))
    if kind == "type":
        return np.flatnonzero(_match_types(graph, wanted.lower()))
    used, code = np.unique(graph.name, return_inverse=True)
    if len(text) > 2 and text[0] == text[-1] == "/":
        pattern = _compile_pattern(text[1:-1])
        fits = [bool(pattern.search(graph.strings[code])) for code in used.tolist()]
    else:
        lower = text.lower()
        fits = [lower in graph.strings[code].lower() for code in used.tolist()]
    return np.flatnonzero(np.array(fits, bool)[code]) if len(used) else np.zeros(0, np.int64)


def _match_types(graph: Graph, wanted: str) -> Bool:
    types = infer_counted_types(graph)
    codes = find_distinct(types).tolist()
    fits: Bool = np.isin(types, [code for code in codes if wanted in label_counted_type(code).lower()])
    rows, values = read_int_column(graph, "comm_type")
    kinds = [kind.value for kind in CollectiveType if wanted in label_collective(kind.value).lower()]
    fits[rows[np.isin(values, kinds)]] = True
    return fits


def _parse_id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 1 << 64):
        raise TraceError(f"{text[:40]!r} is not a node id.", hint="Ids are whole numbers: id:118.")
    return int(text)


def _compile_pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.IGNORECASE)
    except re.error as error:
        raise TraceError(f"The expression {text[:60]!r} cannot be read: {error}.", hint=HOW) from None
