"""Checks of what nodes say about themselves: times, sizes, types, where they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from studio.analysis.digraph import build_network, reachable
from studio.doctor.diagnosis import Case, Found, GraphCase, Where, where
from studio.doctor.structure import counted, percent, worth_warning
from studio.et.link.communication import is_timeless
from studio.sim.agreement import node_label, rank_list
from studio.sim.check import flag
from studio.trace import (
    NONE,
    Bool,
    CollectiveType,
    Graph,
    Int64,
    Level,
    NodeType,
    Rank,
    dense_column,
    int_column,
)
from studio.units import format_count

_FEW = 0.01
_ABSENT = -(1 << 63)


def _first(found: Where) -> str:
    assert found.first
    case, row = found.first
    return f"{node_label(case.graph, row)} of rank {case.ranks[0]}"


# ---------------------------------------------------------------------------------------------------
# Linking


def metadata_number(rank: Rank, name: str) -> int:
    """Return a whole number of a rank's metadata, -1 where it has none of that name."""
    value = next((one.value for one in rank.metadata if one.name == name), NONE)
    return value if isinstance(value, int) else NONE


def unlinked(case: Case) -> Iterator[Found]:
    """Yield operators and device operations that linking could not put together."""
    # What tells process groups before the profiler starts has no event, and needs none.
    lost = where(
        (one, np.flatnonzero(flag(one.graph, "unlinked") & (one.graph.type != NodeType.METADATA)))
        for one in case.graphs
    )
    loose = where((one, np.flatnonzero(flag(one.graph, "unattributed"))) for one in case.graphs)
    # Of a trace that was just linked the linker says so itself, and why.
    told = any(finding.code == "nothing-linked" for finding in case.trace.findings)
    none = [
        rank.number
        for rank in case.trace.ranks
        if not told
        and metadata_number(rank, "link_host_operations") > 0
        and metadata_number(rank, "link_device_operations") > 0
        and metadata_number(rank, "link_linked") == 0
    ]
    host, device = (
        sum(max(metadata_number(rank, f"link_{key}_operations"), 0) for rank in case.trace.ranks)
        for key in ("host", "device")
    )
    if none:
        message = (
            f"Nothing of the execution trace of {rank_list(none)} could be linked with its device trace."
        )
        yield Found("error", message, tuple(none), (), len(none))
    if not (lost.count or loose.count):
        return
    level: Level = "warning" if lost.count + loose.count > _FEW * (host + device) else "info"
    parts = [
        f"{counted(found.count, noun)} {'has' if found.count == 1 else 'have'} no {what}, such as {_first(found)}"
        for found, noun, what in (
            (lost, "operator", "event in the device trace"),
            (loose, "device operation", "launching operator"),
        )
        if found.count
    ]
    yield Found(
        "error" if lost.count and worth_warning(lost.count, host) else level,
        f"{'; '.join(parts)}.",
        tuple(sorted({*lost.ranks, *loose.ranks})),
        (*lost.nodes, *loose.nodes)[:16],
        lost.count + loose.count,
        (
            ("operators unlinked", f"{percent(lost.count, host)} of {format_count(host)}"),
            ("device operations unattributed", f"{percent(loose.count, device)} of {format_count(device)}"),
        ),
    )


# ---------------------------------------------------------------------------------------------------
# Durations


def _computing(case: GraphCase) -> Bool:
    """Return (N,) nodes whose durations count: those of the device, of a trace without any those of the processor."""
    kernels = (case.graph.type == NodeType.COMP) & ~case.on_cpu
    return kernels if kernels.any() else np.asarray(case.graph.type == NodeType.COMP)


def _estimable(case: GraphCase) -> Bool:
    """Return (N,) nodes a roofline gives a duration."""
    return np.asarray(
        (dense_column(case.graph, "num_ops", 0) > 0) & (dense_column(case.graph, "tensor_size", 0) > 0)
    )


def _timeless(graph: Graph, rows: Int64) -> Bool:
    """Return (M,) which nodes have no time of their own by nature."""
    names, place = np.unique(graph.name[rows], return_inverse=True)
    timeless = [is_timeless(graph.strings[code]) for code in names.tolist()]
    return np.array(timeless, bool)[place]


def durations(case: Case) -> Iterator[Found]:
    """Yield compute nodes that take no time, and of which nothing says how much they do."""
    chosen, among, device = [], 0, False
    for one in case.graphs:
        computing = _computing(one)
        lacking = np.flatnonzero(computing & (one.graph.duration_ns <= 0) & ~_estimable(one))
        lacking = lacking[~_timeless(one.graph, lacking)]
        chosen.append((one, lacking))
        among += int(computing.sum()) * len(one.ranks)
        device = device or bool((computing & ~one.on_cpu).any())
    found = where(chosen)
    if found.count:
        # Operators that only call others take no time of their own; kernels always take some.
        warns = worth_warning(found.count, among) or (device and found.count > _FEW * among)
        yield Found(
            "warning" if warns else "info",
            f"{counted(found.count, 'compute node')} of {rank_list(found.ranks)} "
            f"{'has' if found.count == 1 else 'have'} no duration: {_first(found)}.",
            found.ranks,
            found.nodes,
            found.count,
            (("of compute nodes", f"{percent(found.count, among)} of {format_count(among)}"),),
        )


def estimated(case: Case) -> Iterator[Found]:
    """Yield compute nodes whose durations only a roofline can tell."""
    found = where(
        (one, np.flatnonzero(_computing(one) & (one.graph.duration_ns <= 0) & _estimable(one)))
        for one in case.graphs
    )
    if found.count:
        yield Found(
            "info",
            f"{counted(found.count, 'compute node')} of {rank_list(found.ranks)} "
            f"{'says' if found.count == 1 else 'say'} what is computed and not how long it took: {_first(found)}.",
            found.ranks,
            found.nodes,
            found.count,
        )


# ---------------------------------------------------------------------------------------------------
# Communication nodes


def _nodes(
    case: Case, chosen: Callable[[GraphCase], Bool], level: Level, words: tuple[str, str]
) -> Iterator[Found]:
    """Yield the communication nodes that `chosen` picks, as one finding; `words` are those for one and for several."""
    found = where((one, np.flatnonzero(one.communicates & chosen(one))) for one in case.graphs)
    if found.count:
        among = sum(int(one.communicates.sum()) * len(one.ranks) for one in case.graphs)
        yield Found(
            level,
            f"{counted(found.count, 'communication node')} of {rank_list(found.ranks)} "
            f"{words[0] if found.count == 1 else words[1]}: {_first(found)}.",
            found.ranks,
            found.nodes,
            found.count,
            (("of communication nodes", f"{percent(found.count, among)} of {format_count(among)}"),),
        )


def on_cpu_rows(case: GraphCase) -> Int64:
    """Return the rows of communication nodes that are marked as operations of the processor."""
    return np.flatnonzero(case.communicates & case.on_cpu & ~_calls(case))


def call_rows(case: GraphCase) -> Int64:
    """Return the rows of nodes that only call communication: on the processor, without a size, collectives without a type."""
    calls = case.communicates & case.on_cpu & (_sizes(case) == _ABSENT)
    return np.flatnonzero(calls & ((case.graph.type != NodeType.COMM_COLL) | (_kinds(case) == NONE)))


def _calls(case: GraphCase) -> Bool:
    found = np.zeros(len(case.graph), bool)
    found[call_rows(case)] = True
    return found


def comm_calls(case: Case) -> Iterator[Found]:
    """Yield calls of communication that are typed as communication themselves."""
    words = (
        "is a call on the processor, of no type or size",
        "are calls on the processor, of no type or size",
    )
    yield from _nodes(case, _calls, "error", words)


def comm_on_cpu(case: Case) -> Iterator[Found]:
    """Yield communication nodes marked as operations of the processor."""
    words = ("is marked as an operation of the processor", "are marked as operations of the processor")
    yield from _nodes(case, lambda one: one.on_cpu & ~_calls(one), "error", words)


def _sizes(case: GraphCase) -> Int64:
    """Return (N,) the size each node writes; barriers, which have none, count as 1."""
    sizes = np.full(len(case.graph), _ABSENT, np.int64)
    rows, values = int_column(case.graph, "comm_size")
    sizes[rows] = values
    sizes[_kinds(case) == CollectiveType.BARRIER] = 1
    return sizes


def _kinds(case: GraphCase) -> Int64:
    kinds = dense_column(case.graph, "comm_type", NONE)
    kinds[case.graph.type != NodeType.COMM_COLL] = NONE
    return kinds


def size_missing(case: Case) -> Iterator[Found]:
    """Yield communication nodes without a size."""
    words = ("has no size", "have no size")
    yield from _nodes(case, lambda one: (_sizes(one) == _ABSENT) & ~_calls(one), "error", words)


def size_negative(case: Case) -> Iterator[Found]:
    """Yield communication nodes of a size below 0."""
    words = ("has a size below 0", "have sizes below 0")
    yield from _nodes(case, lambda one: (_sizes(one) < 0) & (_sizes(one) != _ABSENT), "error", words)


def size_zero(case: Case) -> Iterator[Found]:
    """Yield communication nodes that move nothing."""
    yield from _nodes(case, lambda one: _sizes(one) == 0, "warning", ("moves 0 bytes", "move 0 bytes"))


def comm_untyped(case: Case) -> Iterator[Found]:
    """Yield collectives that do not say which one they are."""

    def chosen(one: GraphCase) -> Bool:
        known = np.isin(_kinds(one), [int(kind) for kind in CollectiveType])
        return np.asarray((one.graph.type == NodeType.COMM_COLL) & ~known & ~_calls(one))

    words = ("names no known collective", "name no known collective")
    yield from _nodes(case, chosen, "error", words)


# ---------------------------------------------------------------------------------------------------
# The place of communication in the graph


def detached_rows(case: GraphCase) -> Int64:
    """Return the rows of communication nodes that wait for nothing and for which nothing waits, in a graph with other nodes."""
    tied = np.zeros(len(case.graph), bool)
    for ends in case.pairs:
        tied[ends] = True
    alone = case.communicates & ~tied
    # A file of nothing but communication has no path to be off.
    return np.flatnonzero(alone) if not case.communicates.all() else np.zeros(0, np.int64)


def detached(case: Case) -> Iterator[Found]:
    """Yield communication nodes without any dependency."""
    found = where((one, detached_rows(one)) for one in case.graphs)
    if found.count:
        among = sum(int(one.communicates.sum()) * len(one.ranks) for one in case.graphs)
        verb = ("waits for nothing, and nothing waits for it", "wait for nothing, and nothing waits for them")
        yield Found(
            "warning",
            f"{counted(found.count, 'communication node')} of {rank_list(found.ranks)} {verb[found.count > 1]}: "
            f"{_first(found)}.",
            found.ranks,
            found.nodes,
            found.count,
            (("of communication nodes", f"{percent(found.count, among)} of {format_count(among)}"),),
        )


def _before_computation(case: GraphCase) -> Bool:
    """Return (N,) which nodes some node that computes waits for, directly or not; those that compute among them."""
    count, (of, waited) = len(case.graph), case.pairs
    computing = np.flatnonzero(~case.communicates & (case.graph.type > NodeType.METADATA))
    # A node behind all of them: what it is reached from, some of them waits for.
    network = build_network(
        count + 1, np.append(waited, computing), np.append(of, np.full(len(computing), count))
    )
    leads = np.zeros(count + 1, bool)
    leads[reachable(network, count, backwards=True)] = True
    return leads[:-1]


def trailing(case: Case) -> Iterator[Found]:
    """Yield ranks on which no computation comes after any communication."""
    chosen, ends = [], 0
    for one in case.graphs:
        if not one.communicates.any() or one.communicates.all():
            continue
        off = np.flatnonzero(one.communicates & ~_before_computation(one))
        off = np.setdiff1d(off, detached_rows(one))
        ends += len(off) * len(one.ranks)
        if len(off) and len(off) == int(one.communicates.sum()):
            chosen.append((one, off))
    found = where(chosen)
    if found.count:
        yield Found(
            "info",
            f"No computation of {rank_list(found.ranks)} waits for any communication; the first is {_first(found)}.",
            found.ranks,
            found.nodes,
            found.count,
            (("communication nodes no computation waits for", format_count(ends)),),
        )
