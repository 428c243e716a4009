"""Let assumed ranks come as late to their collectives as known ranks may have waited for them: an assumption, which is told as one.

A collective ends for all members when the last of them has come, so that the one that comes early records the time for which
it waits. A rank that copies it is assumed to come when the late one came: it is on the host for as long before. Thus a completed job is no
faster than the recording of the rank that it is made of.

How long a collective takes by itself follows from those of its name, type and group in the same rank, three at least: each says
that it takes no longer than itself, or, where it moved fewer bytes, than as many times as long. The median of what they say is
the usual time, and what it took beyond that is taken for waiting, where it is more than a tenth. So where most of them waited the waiting is found too small.
Where several members of a group are known, the last of them to come tells. Nothing tells a rank that was late from one whose
recording began later; both are in the first waits.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from studio.completion.clues import Known
from studio.completion.surgery import append_attributes, intern_texts
from studio.distinct import find_distinct
from studio.trace import (
    ARRIVAL,
    NONE,
    Attributes,
    Dependencies,
    Float64,
    Graph,
    Int64,
    NodeType,
    Rank,
    ValueKind,
    group_slots,
    read_dense_column,
)
from studio.units import format_counted, format_ns

_LEAST = 3
"""Collectives of one kind from which on their median says what is usual."""
_NOISE = 0.1
"""Times of equal collectives differ by such a share without anybody waiting."""
_NAMED = 4
"""Ranks whose waiting is told one by one."""


@dataclass(frozen=True, slots=True)
class Waited:
    """For how long a known rank waited inside its collectives.

    Attributes:
        rows: (C,) rows of its graph, rising.
        ns: (C,) how long, from 1 on.
    """

    rows: Int64
    ns: Int64


def estimate_waits(known: Known) -> dict[int, Waited]:
    """Return for how long known ranks waited inside their collectives for ranks that are not known, by rank; only those that did."""
    own = {rank.number: _estimate_rank_waits(known, rank) for rank in known.trace.ranks}
    by_group: dict[str, list[int]] = defaultdict(list)
    for number, groups in own.items():
        for name in groups:
            by_group[name].append(number)
    parts_of: dict[int, list[tuple[Int64, Int64]]] = defaultdict(list)
    for name, numbers in by_group.items():
        listed = known.groups.get(name)
        if listed and set(listed.ranks) <= own.keys():
            continue
        each = [own[number][name] for number in numbers]
        if len({len(rows) for rows, _ in each}) > 1:
            continue
        # Who came last of those known waited least: for ranks that are not known.
        least = np.min([ns for _, ns in each], axis=0)
        for number, (rows, _) in zip(numbers, each, strict=True):
            parts_of[number].append((rows, least))
    waits = {}
    for number, parts in parts_of.items():
        rows, ns = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(rows)
        order = order[ns[order] > 0]
        if len(order):
            waits[number] = Waited(rows[order], ns[order])
    return waits


def _estimate_rank_waits(known: Known, rank: Rank) -> dict[str, tuple[Int64, Int64]]:
    """Return rows, in order, of a rank's collectives and how long it waited in each, by the name of their group."""
    graph = known.trace.graph_of(rank)
    timed = (graph.type == NodeType.COMM_COLL) & (graph.duration_ns > 0) & (graph.start_ns >= 0)
    rows = np.flatnonzero(timed)
    if len(rows) < _LEAST:
        return {}
    rows = rows[np.argsort(graph.start_ns[rows], kind="stable")]
    slots = group_slots(graph)[rows]
    sizes = np.maximum(read_dense_column(graph, "comm_size", 0)[rows], 1).astype(np.float64)
    waits = np.zeros(len(rows), np.int64)
    kinds = np.column_stack((slots, read_dense_column(graph, "comm_type", NONE)[rows], graph.name[rows]))
    _, kind = np.unique(kinds, axis=0, return_inverse=True)
    for number in range(int(kind.max()) + 1):
        chosen = np.flatnonzero(kind.reshape(-1) == number)
        if len(chosen) >= _LEAST:
            times = graph.duration_ns[rows[chosen]]
            usual = _estimate_usual_ns(sizes[chosen], times)
            waits[chosen] = np.where(times > usual * (1 + _NOISE), times - usual, 0)
    return {
        str(rank.slots[slot]) if slot != NONE else "": (rows[slots == slot], waits[slots == slot])
        for slot in dict.fromkeys(slots.tolist())
    }


def _estimate_usual_ns(sizes: Float64, times: Int64) -> Int64:
    """Return how long collectives (C,) of one kind usually take, by their bytes and times.

    Example:
        >>> _estimate_usual_ns(np.array([100.0, 100.0, 100.0, 200.0]), np.array([30, 32, 90, 40])).tolist()
        [32, 32, 32, 60]
    """
    usual = np.empty(len(sizes), np.int64)
    for size in find_distinct(sizes).tolist():
        ordered = np.sort(times * np.maximum(size / sizes, 1.0))
        usual[sizes == size] = math.ceil(ordered[(len(ordered) - 1) // 2])
    return usual


def describe_waits(waits: Mapping[int, Waited]) -> str:
    """Say for how long ranks may have waited: from their recordings alone it cannot be known.

    Example:
        >>> describe_waits({0: Waited(np.array([3, 7]), np.array([1_500_000, 500_000]))})
        'rank 0 may have waited 2.00 ms inside 2 collectives'
    """
    each = [
        f"rank {number} may have waited {format_ns(int(wait.ns.sum()))} inside {format_counted(len(wait.rows), 'collective')}"
        for number, wait in sorted(waits.items())
    ]
    return "; ".join(each[:_NAMED]) + (f"; and {len(each) - _NAMED:,} more" if len(each) > _NAMED else "")


def delay_arrivals(graph: Graph, waits: Waited) -> Graph:
    """Return the graph of a rank that comes to collectives when the rank that recorded it no longer waited for others."""
    rows, count, more = waits.rows, len(graph), len(waits.rows)
    first = np.arange(count, count + more)
    strings, codes = intern_texts(graph.strings, _list_texts(graph, waits))
    start, duration = (
        np.concatenate((column, np.zeros(more, np.int64))) for column in (graph.start_ns, graph.duration_ns)
    )
    start[first], duration[first] = start[rows], waits.ns
    start[rows] += waits.ns
    duration[rows] -= waits.ns
    last = graph.id.max() + np.uint64(1)
    return replace(
        graph,
        id=np.concatenate((graph.id, last + np.arange(more, dtype=np.uint64))),
        type=np.concatenate((graph.type, np.full(more, NodeType.COMP, np.int32))),
        name=np.concatenate((graph.name, np.full(more, codes[0], np.int32))),
        start_ns=start,
        duration_ns=duration,
        ctrl=_repeat_dependencies(graph.ctrl, rows),
        data=_repeat_dependencies(_join_dependencies(graph.data, rows, first), rows, graph.data),
        io=np.concatenate((graph.io, np.full((more, 6), NONE, np.int32))) if len(graph.io) else graph.io,
        attrs=_append_attributes(graph.attrs, codes, more),
        strings=strings,
    )


def _list_texts(graph: Graph, waits: Waited) -> list[str]:
    """Return the texts of added nodes: name, names and values of attributes, then the thread of each."""
    start = graph.start_ns[waits.rows]
    free: list[int] = []
    lanes = np.zeros(len(start), np.int64)
    for at in np.argsort(start, kind="stable").tolist():
        lane = next((lane for lane, until in enumerate(free) if until <= start[at]), len(free))
        if lane == len(free):
            free.append(0)
        free[lane] = int(start[at] + waits.ns[at])
        lanes[at] = lane
    return [
        "assumed arrival",
        "is_cpu_op",
        "gap",
        ARRIVAL,
        "thread",
        *(f"{ARRIVAL} {lane}" for lane in lanes.tolist()),
    ]


def _join_dependencies(before: Dependencies, rows: Int64, parents: Int64) -> Dependencies:
    """Return dependencies in which each of some rows waits for one more."""
    offsets = before.offsets.copy()
    offsets[1:] += np.cumsum(np.bincount(rows, minlength=len(offsets) - 1))
    return Dependencies(
        offsets, np.insert(before.rows, before.offsets[rows + 1], parents).astype(np.int32), before.dangling
    )


def _repeat_dependencies(before: Dependencies, rows: Int64, of: Dependencies | None = None) -> Dependencies:
    """Return dependencies with more nodes at their end, which wait for what some rows wait for."""
    of = of or before
    each = [of.of(row)[of.of(row) >= 0] for row in rows.tolist()]
    offsets = before.offsets[-1] + np.cumsum([len(parents) for parents in each])
    return Dependencies(
        np.concatenate((before.offsets, offsets.astype(before.offsets.dtype))),
        np.concatenate((before.rows, *each)).astype(np.int32),
        before.dangling,
    )


def _append_attributes(before: Attributes, codes: Sequence[int], more: int) -> Attributes:
    _, is_cpu, gap, why, thread, *threads = codes
    key = np.tile([is_cpu, gap, thread], more)
    value = np.column_stack((np.ones(more), np.full(more, why), threads)).reshape(-1)
    kind = np.tile([ValueKind.BOOL, ValueKind.STRING, ValueKind.STRING], more)
    return append_attributes(before, key, kind, value, each=3)
