"""Checks of the content of nodes: times, sizes, types, and where they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from studio.analysis.graph.digraph import build_network, find_reachable
from studio.analysis.job.inferred_facts import explain_unknown_sizes, lack_size
from studio.doctor.diagnosis import UNSIZED, Case, Found, GraphCase, Where, locate_nodes
from studio.doctor.inferred import choose_missing_level
from studio.doctor.structure import format_percent_of, is_worth_warning
from studio.et.link.process_groups import is_timeless
from studio.et.link.unlinked import UnlinkedCounts, judge_unlinked
from studio.sim.agreement import format_ranks, label_node
from studio.trace import (
    NONE,
    Bool,
    CollectiveType,
    Graph,
    Int64,
    Level,
    NodeType,
    Rank,
    Trace,
    is_flagged,
    read_dense_column,
)
from studio.units import format_count, format_counted

_FEW = 0.01


def _label_first(nodes: Where) -> str:
    assert nodes.first
    case, row = nodes.first
    return f"{label_node(case.graph, row)} of rank {case.ranks[0]}"


# ---------------------------------------------------------------------------------------------------
# Linking


_UNKNOWN_SIZES = (
    "has an unknown size, which the recording does not tell, and moves 0 bytes in a simulation",
    "have unknown sizes, which the recording does not tell, and move 0 bytes in a simulation",
)
_EMPTY_TENSORS = "The job asked for it: leave collectives of empty tensors out if their latency counts."
_ONE_SESSION = (
    "Both files are of one session, since most operators agree: these began before the recording or had not ended with it, "
    "on threads of their own. Wait for what runs in the background (such as asynchronous collectives) before a step ends."
)
_NO_HOST = (
    "No file tells the operators of these, as an execution trace of PyTorch does, so nothing was lost in linking: they keep "
    "their times, and wait for their launch, where it was recorded, and for what their device ended last. Where launches are "
    "missing, record the calls of the runtime too (rocprofv3 --hip-trace; of PyTorch ProfilerActivity.CPU)."
)


def check_unlinked(case: Case) -> Iterator[Found]:
    """Yield operators and device operations that linking could not match."""
    apart = [(graph_case, *_find_unlinked(graph_case.graph)) for graph_case in case.graphs]
    lost = locate_nodes((graph_case, rows) for graph_case, rows, _ in apart)
    loose = locate_nodes((graph_case, rows) for graph_case, _, rows in apart)
    none = _list_unlinked_ranks(case.trace)
    if none:
        message = f"No operator of the execution trace of {format_ranks(none)} could be linked with its device trace."
        yield Found("warning", message, tuple(none), (), len(none))
    if not (lost.count or loose.count):
        return
    sizes = {
        graph_case.index: (len(lost_rows), len(loose_rows)) for graph_case, lost_rows, loose_rows in apart
    }
    every = [_count_unlinked(rank, *sizes[rank.graph]) for rank in case.trace.ranks]
    host, device = sum(counts.host for counts in every), sum(counts.device for counts in every)
    alone = not host and not lost.count
    level: Level = "warning" if any(judge_unlinked(counts) == "warning" for counts in every) else "info"
    linked = sum(max(rank.metadata_number("link_linked"), 0) for rank in case.trace.ranks)
    parts = [
        f"{format_counted(nodes.count, noun)} {'has' if nodes.count == 1 else 'have'} no {what}, such as {_label_first(nodes)}"
        for nodes, noun, what in (
            (lost, "operator", "event in the device trace"),
            (loose, "device operation", "launching operator"),
        )
        if nodes.count
    ]
    yield Found(
        level,
        f"{'; '.join(parts)}.",
        tuple(sorted({*lost.ranks, *loose.ranks})),
        (*lost.nodes, *loose.nodes)[:16],
        lost.count + loose.count,
        tuple(
            (what, f"{format_percent_of(nodes.count, among)} of {format_count(among)}")
            for what, nodes, among in (
                ("operators unlinked", lost, host),
                ("device operations unattributed", loose, device),
            )
            if among
        ),
        advice=_choose_unlinked_advice(case, lost, linked, alone=alone),
    )


def _find_unlinked(graph: Graph) -> tuple[Int64, Int64]:
    """Return rows of operators and of device operations that linking could not match."""
    # What tells process groups before the profiler starts has no event, and needs none.
    lost = is_flagged(graph, "unlinked") & (graph.type != NodeType.METADATA)
    # What was launched before the recording began has no operator in it; the linker says so.
    loose = is_flagged(graph, "unattributed") & ~is_flagged(graph, "launched_before")
    return np.flatnonzero(lost), np.flatnonzero(loose)


def _count_unlinked(rank: Rank, lost: int, loose: int) -> UnlinkedCounts:
    host, device = (max(rank.metadata_number(f"link_{key}_operations"), 0) for key in ("host", "device"))
    return UnlinkedCounts(host, device, lost, loose)


def _list_unlinked_ranks(trace: Trace) -> list[int]:
    """Return the ranks of which nothing could be linked; none where the linker has just said so itself, and why."""
    if any(finding.code == "nothing-linked" for finding in trace.findings):
        return []
    return [
        rank.number
        for rank in trace.ranks
        if rank.metadata_number("link_host_operations") > 0
        and rank.metadata_number("link_device_operations") > 0
        and rank.metadata_number("link_linked") == 0
    ]


def _choose_unlinked_advice(case: Case, lost: Where, linked: int, *, alone: bool) -> str:
    """Return advice that fits the cause; "" for that of the check."""
    early = {early_end.rank for early_end in case.early}.intersection(lost.ranks)
    if early:
        return f"The device trace of {format_ranks(sorted(early))} stops before those of the others (ends-early): record it again."
    if alone:
        return _NO_HOST
    return _ONE_SESSION if lost.count and linked > lost.count else ""


# ---------------------------------------------------------------------------------------------------
# Durations


def _match_computing(case: GraphCase) -> Bool:
    """Return (N,) nodes whose durations count: device nodes; processor nodes in a trace without devices."""
    kernels = (case.graph.type == NodeType.COMP) & ~case.on_cpu
    return kernels if kernels.any() else np.asarray(case.graph.type == NodeType.COMP)


def _match_estimable(case: GraphCase) -> Bool:
    """Return (N,) nodes whose duration a roofline can estimate."""
    return np.asarray(
        (read_dense_column(case.graph, "num_ops", 0) > 0)
        & (read_dense_column(case.graph, "tensor_size", 0) > 0)
    )


def _match_timeless(graph: Graph, rows: Int64) -> Bool:
    """Return (M,) nodes of kinds that have no time."""
    names, place = np.unique(graph.name[rows], return_inverse=True)
    timeless = [is_timeless(graph.strings[code]) for code in names.tolist()]
    return np.array(timeless, bool)[place]


def check_durations(case: Case) -> Iterator[Found]:
    """Yield compute nodes that have neither a duration nor an amount of work."""
    chosen, among, device = [], 0, False
    for graph_case in case.graphs:
        computing = _match_computing(graph_case)
        lacking = np.flatnonzero(
            computing & (graph_case.graph.duration_ns <= 0) & ~_match_estimable(graph_case)
        )
        lacking = lacking[~_match_timeless(graph_case.graph, lacking)]
        chosen.append((graph_case, lacking))
        among += int(computing.sum()) * len(graph_case.ranks)
        device = device or bool((computing & ~graph_case.on_cpu).any())
    nodes = locate_nodes(chosen)
    if nodes.count:
        # Operators that only call others take no time of their own; kernels always take some.
        warns = is_worth_warning(nodes.count, among) or (device and nodes.count > _FEW * among)
        yield Found(
            "warning" if warns else "info",
            f"{format_counted(nodes.count, 'compute node')} of {format_ranks(nodes.ranks)} "
            f"{'has' if nodes.count == 1 else 'have'} no duration: {_label_first(nodes)}.",
            nodes.ranks,
            nodes.nodes,
            nodes.count,
            (("of compute nodes", f"{format_percent_of(nodes.count, among)} of {format_count(among)}"),),
        )


def check_estimated_durations(case: Case) -> Iterator[Found]:
    """Yield compute nodes whose durations only a roofline can estimate."""
    nodes = locate_nodes(
        (
            graph_case,
            np.flatnonzero(
                _match_computing(graph_case)
                & (graph_case.graph.duration_ns <= 0)
                & _match_estimable(graph_case)
            ),
        )
        for graph_case in case.graphs
    )
    if nodes.count:
        yield Found(
            "info",
            f"{format_counted(nodes.count, 'compute node')} of {format_ranks(nodes.ranks)} "
            f"{'has' if nodes.count == 1 else 'have'} an amount of work but no duration: {_label_first(nodes)}.",
            nodes.ranks,
            nodes.nodes,
            nodes.count,
        )


# ---------------------------------------------------------------------------------------------------
# Communication nodes


def _report_nodes(
    case: Case,
    chosen: Callable[[GraphCase], Bool],
    level: Level,
    words: tuple[str, str],
    key: str = "",
    values: Callable[[GraphCase], Int64] | None = None,
) -> Iterator[Found]:
    """Yield a finding about the communication nodes that `chosen` picks; `words` are singular and plural.

    Args:
        case: The job.
        chosen: Returns (N,) which nodes it is about, of a graph.
        level: Its level.
        words: What is wrong with one, and with several.
        key: An attribute whose value is told of the first.
        values: Returns (N,) the values of it, of a graph, -1 for none.
    """
    nodes = locate_nodes(
        (graph_case, np.flatnonzero(graph_case.communicates & chosen(graph_case)))
        for graph_case in case.graphs
    )
    if nodes.count:
        among = sum(int(graph_case.communicates.sum()) * len(graph_case.ranks) for graph_case in case.graphs)
        value = int(values(nodes.first[0])[nodes.first[1]]) if values and nodes.first else NONE
        suffix = f", {key} {'missing' if value == NONE else f'{value:,}'}" if values else ""
        yield Found(
            level,
            f"{format_counted(nodes.count, 'communication node')} of {format_ranks(nodes.ranks)} "
            f"{words[0] if nodes.count == 1 else words[1]}: {_label_first(nodes)}{suffix}.",
            nodes.ranks,
            nodes.nodes,
            nodes.count,
            (
                (
                    "of communication nodes",
                    f"{format_percent_of(nodes.count, among)} of {format_count(among)}",
                ),
            ),
        )


def find_on_cpu_rows(case: GraphCase) -> Int64:
    """Return the rows of communication nodes marked as processor operations."""
    return np.flatnonzero(case.communicates & case.on_cpu & ~case.calls)


def find_call_rows(case: GraphCase) -> Int64:
    """Return the rows of nodes that only call communication: on the processor, without size or collective type."""
    return np.flatnonzero(case.calls)


def check_comm_calls(case: Case) -> Iterator[Found]:
    """Yield calls of communication that have the type of communication."""
    words = (
        "is a call on the processor, without type or size",
        "are calls on the processor, without type or size",
    )
    yield from _report_nodes(case, lambda graph_case: graph_case.calls, "error", words)


def check_comm_on_cpu(case: Case) -> Iterator[Found]:
    """Yield communication nodes marked as processor operations."""
    words = ("is marked as a processor operation", "are marked as processor operations")
    yield from _report_nodes(case, lambda graph_case: graph_case.on_cpu & ~graph_case.calls, "error", words)


def check_missing_sizes(case: Case) -> Iterator[Found]:
    """Yield communication nodes without a size."""
    words = ("has no size", "have no size")

    def lacks_size(graph_case: GraphCase) -> Bool:
        return np.asarray((graph_case.sizes == UNSIZED) & ~graph_case.calls)

    everywhere = all(
        bool(lacks_size(graph_case)[graph_case.communicates].all()) for graph_case in case.graphs
    )
    yield from _report_nodes(case, lacks_size, choose_missing_level(case, everywhere=everywhere), words)


def check_negative_sizes(case: Case) -> Iterator[Found]:
    """Yield communication nodes with a negative size."""
    words = ("has a negative size", "have negative sizes")
    yield from _report_nodes(
        case,
        lambda graph_case: (graph_case.sizes < 0) & (graph_case.sizes != UNSIZED),
        "error",
        words,
        "comm_size",
        lambda graph_case: graph_case.sizes,
    )


def check_zero_sizes(case: Case) -> Iterator[Found]:
    """Yield communication nodes with a size of 0: of which it was not recorded, or as a note where their tensors were empty."""

    def are_empty(graph_case: GraphCase) -> Bool:
        given, taken = (read_dense_column(graph_case.graph, key, NONE) for key in ("bytes_in", "bytes_out"))
        timed = graph_case.graph.start_ns >= 0
        return np.asarray(timed & (np.maximum(given, taken) == 0))

    def are_unknown(graph_case: GraphCase) -> Bool:
        rows = np.flatnonzero(graph_case.sizes == 0)
        unknown = np.zeros(len(graph_case.graph), np.bool_)
        unknown[rows[lack_size(graph_case.graph, rows)]] = True
        return unknown

    words = ("moves 0 bytes", "move 0 bytes")

    def are_told_zero(graph_case: GraphCase) -> Bool:
        return np.asarray((graph_case.sizes == 0) & ~are_empty(graph_case) & ~are_unknown(graph_case))

    yield from _report_nodes(case, are_told_zero, "warning", words)
    for finding in _report_nodes(case, are_unknown, "warning", _UNKNOWN_SIZES):
        advice = explain_unknown_sizes(case.trace)
        yield replace(finding, advice=f"{advice[:1].upper()}{advice[1:]}.")
    empty_words = tuple(f"{word}, as the recording tells: their tensors were empty" for word in words)
    for finding in _report_nodes(
        case,
        lambda graph_case: (graph_case.sizes == 0) & are_empty(graph_case),
        "info",
        (empty_words[0], empty_words[1]),
    ):
        yield replace(finding, advice=_EMPTY_TENSORS)


def check_unknown_types(case: Case) -> Iterator[Found]:
    """Yield nodes of a type that the schema does not define, and those without one."""
    undefined: list[tuple[Level, Callable[[GraphCase], Bool], str, str]] = [
        (
            "error",
            lambda graph_case: (
                (graph_case.graph.type < NodeType.INVALID) | (graph_case.graph.type > NodeType.COMM_COLL)
            ),
            "of a type that the schema does not define",
            "",
        ),
        ("warning", lambda graph_case: graph_case.graph.type == NodeType.INVALID, "of no type", _NO_TYPE),
    ]
    for level, find, words, consequence in undefined:
        nodes = locate_nodes((graph_case, np.flatnonzero(find(graph_case))) for graph_case in case.graphs)
        if nodes.first:
            graph_case, row = nodes.first
            number = f", {int(graph_case.graph.type[row])}" if level == "error" else ""
            yield Found(
                level,
                f"{format_counted(nodes.count, 'node')} of {format_ranks(nodes.ranks)} {'is' if nodes.count == 1 else 'are'} {words}: "
                f"{_label_first(nodes)}{number}.",
                nodes.ranks,
                nodes.nodes,
                nodes.count,
                consequence=consequence,
            )


_NO_TYPE = "It takes no time in a simulation, and ASTRA-sim starts what waits for it only when another node of the rank ends."


def check_untyped_collectives(case: Case) -> Iterator[Found]:
    """Yield collectives without a known collective type."""

    def lacks_type(graph_case: GraphCase) -> Bool:
        known = np.isin(graph_case.collective, [int(kind) for kind in CollectiveType])
        return np.asarray((graph_case.graph.type == NodeType.COMM_COLL) & ~known & ~graph_case.calls)

    words = ("names an unknown collective", "name unknown collectives")
    everywhere = all(bool((graph_case.collective == NONE).all()) for graph_case in case.graphs)
    yield from _report_nodes(
        case,
        lacks_type,
        choose_missing_level(case, everywhere=everywhere),
        words,
        "comm_type",
        lambda graph_case: graph_case.collective,
    )


# ---------------------------------------------------------------------------------------------------
# The place of communication in the graph


def find_detached_rows(case: GraphCase) -> Int64:
    """Return the rows of communication nodes without any dependency, in graphs with other nodes."""
    tied = np.zeros(len(case.graph), bool)
    for ends in case.pairs:
        tied[ends] = True
    alone = case.communicates & ~tied
    # A file of nothing but communication has no path to be off.
    return np.flatnonzero(alone) if not case.communicates.all() else np.zeros(0, np.int64)


def check_detached(case: Case) -> Iterator[Found]:
    """Yield communication nodes without any dependency."""
    nodes = locate_nodes((graph_case, find_detached_rows(graph_case)) for graph_case in case.graphs)
    if nodes.count:
        among = sum(int(graph_case.communicates.sum()) * len(graph_case.ranks) for graph_case in case.graphs)
        verb = ("waits for nothing, and nothing waits for it", "wait for nothing, and nothing waits for them")
        yield Found(
            "warning",
            f"{format_counted(nodes.count, 'communication node')} of {format_ranks(nodes.ranks)} {verb[nodes.count > 1]}: "
            f"{_label_first(nodes)}.",
            nodes.ranks,
            nodes.nodes,
            nodes.count,
            (
                (
                    "of communication nodes",
                    f"{format_percent_of(nodes.count, among)} of {format_count(among)}",
                ),
            ),
        )


def _match_computations(case: GraphCase) -> Bool:
    return np.asarray(~case.communicates & (case.graph.type > NodeType.METADATA))


def _feeds_computation(case: GraphCase) -> bool:
    """Whether some computation waits for communication directly."""
    of, waited = case.pairs
    return bool((case.communicates[waited] & _match_computations(case)[of]).any())


def _find_before_computation(case: GraphCase) -> Bool:
    """Return (N,) which nodes compute, or are waited for by a node that computes, directly or indirectly."""
    count, (of, waited) = len(case.graph), case.pairs
    computing = np.flatnonzero(_match_computations(case))
    # A node behind all of them: what it is reached from, some of them waits for.
    network = build_network(
        count + 1, np.append(waited, computing), np.append(of, np.full(len(computing), count))
    )
    leads = np.zeros(count + 1, bool)
    leads[find_reachable(network, count, backwards=True)] = True
    return leads[:-1]


def check_trailing(case: Case) -> Iterator[Found]:
    """Yield ranks on which no computation follows any communication."""
    chosen, ends = [], 0
    for graph_case in case.graphs:
        if (
            not graph_case.communicates.any()
            or graph_case.communicates.all()
            or _feeds_computation(graph_case)
        ):
            continue
        off = np.flatnonzero(graph_case.communicates & ~_find_before_computation(graph_case))
        off = np.setdiff1d(off, find_detached_rows(graph_case))
        if len(off) and len(off) == int(graph_case.communicates.sum()):
            ends += len(off) * len(graph_case.ranks)
            chosen.append((graph_case, off))
    nodes = locate_nodes(chosen)
    if nodes.count:
        yield Found(
            "info",
            f"No computation of {format_ranks(nodes.ranks)} waits for any communication; the first is {_label_first(nodes)}.",
            nodes.ranks,
            nodes.nodes,
            nodes.count,
            (("communication nodes no computation waits for", format_count(ends)),),
        )
