"""Find what is wrong with the graphs of a job by themselves: dependencies, types of nodes, and attributes that a simulation needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from studio.analysis.collectives.matching import list_edges, waits_for_lower_ids
from studio.analysis.graph.digraph import find_shortest_cycle
from studio.analysis.job.renumbered import share_graphs
from studio.distinct import find_distinct
from studio.sim.agreement import format_ranks, label_node
from studio.sim.collectives import EXTENDED_KIND_OF, KIND_OF, allows_all_collectives, list_configured
from studio.sim.config import SystemConfig
from studio.sim.extensions import EXTENDED_MODE
from studio.sim.kinds import CollectiveKind
from studio.sim.matched import replays_communication
from studio.trace import (
    INT_KINDS,
    NONE,
    Bool,
    CollectiveType,
    Finding,
    Graph,
    Int64,
    Level,
    NodeType,
    Rank,
    Trace,
    communicates,
    decode_value,
    is_flagged,
    read_dense_column,
)

_SHOWN = 8
"""Findings of one kind that are listed one by one; the rest is counted."""
_WHO = "\0"
"""Stands for the ranks of a graph in a message that is still to be merged."""
_CYCLE_STARTS = 500
"""Nodes from which the smallest cycle is looked for."""


def check_graphs(trace: Trace, config: SystemConfig) -> Iterator[Finding]:
    """Yield what is wrong with single graphs; findings that differ only in their ranks are one."""
    yield from _merge_findings(_find_in_graphs(trace, config))


@dataclass(frozen=True, slots=True)
class _Job:
    """A graph and the ranks that run it."""

    graph: Graph
    ranks: tuple[Rank, ...]


def _merge_findings(findings: Iterable[tuple[_Job, Finding]]) -> Iterator[Finding]:
    """Merge findings that differ only in their ranks."""
    ranks: dict[Finding, list[int]] = {}
    for job, finding in findings:
        ranks.setdefault(finding, []).extend(rank.number for rank in job.ranks)
    for finding, numbers in ranks.items():
        message = finding.message.replace(_WHO, format_ranks(sorted(numbers)), 1)
        yield replace(finding, message=message, rank=numbers[0] if len(numbers) == 1 else None)


def _find_in_graphs(trace: Trace, config: SystemConfig) -> list[tuple[_Job, Finding]]:
    """Return what is wrong with single graphs; of those that differ in ids alone one is looked at as long as nothing is."""
    shared = share_graphs(trace)
    findings = [(job, finding) for job in _group_by_graph(shared) for finding in _check_graph(job, config)]
    if not findings or shared is trace:
        return findings
    # A finding names a node by its id.
    return [(job, finding) for job in _group_by_graph(trace) for finding in _check_graph(job, config)]


def _group_by_graph(trace: Trace) -> list[_Job]:
    using: dict[int, list[Rank]] = {}
    for rank in trace.ranks:
        using.setdefault(rank.graph, []).append(rank)
    return [_Job(trace.graphs[index], tuple(ranks)) for index, ranks in sorted(using.items())]


def _check_graph(job: _Job, config: SystemConfig) -> Iterator[Finding]:
    graph = job.graph
    if not len(graph):
        message = f"The trace of {_WHO} is empty."
        yield Finding("error", "empty", message, "Every rank needs at least one node.")
        return
    yield from _check_dependencies(job)
    yield from _check_node_types(job, config)
    if not config.replay_only and not replays_communication(config):
        yield from _check_required(job, config)
        yield from _check_sizes(job, config)
        if not config.flows:
            yield from _check_dimensions(job, config)


def _group_rows(job: _Job, rows: Int64, level: Level, code: str, what: str, hint: str) -> Iterator[Finding]:
    """Yield one finding for all nodes at `rows`, which names the first; nothing for no rows."""
    if len(rows):
        first = label_node(job.graph, int(rows[0]))
        count = "" if len(rows) == 1 else f" (and {len(rows) - 1:,} more like it)"
        yield Finding(level, code, f"{_WHO}: {first} {what}{count}.", hint)


def _check_dependencies(job: _Job) -> Iterator[Finding]:
    graph = job.graph
    waits = np.zeros(len(graph), bool)
    for deps in (graph.ctrl, graph.data):
        of = deps.list_waiting()
        waits[of] = True
        dangling = np.flatnonzero(deps.rows < 0)
        if len(dangling):
            absent = int(deps.dangling[-1 - int(deps.rows[dangling[0]])])
            yield from _group_rows(
                job,
                find_distinct(of[dangling]),
                "error",
                "dangling",
                f"waits for node {absent}, which is not in the trace",
                "The trace is cut off, or belongs to another export.",
            )
    if waits.all():
        message = f"{_WHO}: every node waits for another one, so nothing can start."
        yield Finding("error", "no-root", message, "At least one node must wait for none.")
    cycle = find_smallest_cycle(graph)
    if cycle:
        labels = [label_node(graph, row) for row in cycle]
        text = " waits for ".join([*labels[:_SHOWN], *(["…"] if len(labels) > _SHOWN else []), labels[0]])
        message = f"{_WHO}: {len(cycle)} nodes wait for each other in a circle: {text}."
        yield Finding("error", "cycle", message, "Remove one of these dependencies.")


def find_smallest_cycle(graph: Graph) -> list[int]:
    """Find a shortest cycle of dependencies, each row waiting for the next; empty if there is none.

    Of graphs with more than 500 nodes on cycles, a shortest one through the first 500.
    """
    if waits_for_lower_ids(graph):
        return []
    (ctrl_of, ctrl), (data_of, data) = list_edges(graph.ctrl), list_edges(graph.data)
    of, waited = np.concatenate([ctrl_of, data_of]), np.concatenate([ctrl, data])
    itself = of[of == waited]
    if len(itself):
        return [int(itself.min())]
    return find_shortest_cycle(len(graph), of, waited, starts=_CYCLE_STARTS)


def _check_node_types(job: _Job, config: SystemConfig) -> Iterator[Finding]:
    graph = job.graph
    kind = graph.type
    on_cpu = is_flagged(graph, "is_cpu_op")
    comm = (kind >= NodeType.COMM_SEND) & (kind <= NodeType.COMM_COLL)
    memory = (kind == NodeType.MEM_LOAD) | (kind == NodeType.MEM_STORE)
    if replays_communication(config):
        # A replay takes the recorded time of those that have one.
        memory &= graph.duration_ns <= 0
    strange = (kind < NodeType.INVALID) | (kind > NodeType.COMM_COLL)
    compatible = config.extensions is None
    tables: list[tuple[Bool, Level, str, str, str]] = [
        (
            (kind == NodeType.METADATA) & compatible,
            "warning" if config.replay_only else "error",
            "metadata-node",
            "is of type METADATA, at which the reference stops",
            f"Use the {EXTENDED_MODE}; or remove the node, and list comm groups in the comm group file.",
        ),
        (
            (kind == NodeType.INVALID) & compatible,
            "warning",
            "invalid-node",
            "is of type INVALID: it takes no time, and what waits for it starts only when another node of the rank ends",
            f"Give the node a type, remove it, or use the {EXTENDED_MODE}.",
        ),
        (strange, "error", "unknown-type", "is of a type the schema does not define", "Types are 0 to 7."),
    ]
    if not config.replay_only:
        tables += [
            (
                comm & on_cpu,
                "error",
                "comm-on-cpu",
                "communicates and is marked as a CPU operation",
                "Set is_cpu_op to false.",
            ),
            (
                memory & (config.remote_memory is None),
                "error",
                "no-memory",
                "loads or stores, and the system has no remote memory",
                "Give a remote memory file with a memory-type other than NO_MEMORY_EXPANSION.",
            ),
        ]
    for chosen, level, code, what, hint in tables:
        yield from _group_rows(job, np.flatnonzero(chosen), level, code, what, hint)


def _has_integer(graph: Graph, key: str) -> Bool:
    """Return (N,) whether each node has an integer there: its own, or its rank's slot."""
    rows, where = graph.rows_with(key)
    column = np.zeros(len(graph), bool)
    column[rows[np.isin(graph.attrs.kind[where], INT_KINDS)]] = True
    return column


def _check_required(job: _Job, config: SystemConfig) -> Iterator[Finding]:
    """Find missing attributes, without which a node has no size, peer or time."""
    graph = job.graph
    kind = graph.type
    # On one NPU they take 1 ns, whatever they are.
    collective = (kind == NodeType.COMM_COLL) & (config.topology.npus > 1)
    sized = collective & ~(
        allows_all_collectives(config)
        & (read_dense_column(graph, "comm_type", NONE) == CollectiveType.BARRIER)
    )
    # Beyond ASTRA-sim the roofline serves the nodes that say enough; the others keep their recorded times.
    computed = config.roofline is not None and config.extensions is None
    compute = (kind == NodeType.COMP) & ~is_flagged(graph, "is_cpu_op") & computed
    memory = (kind == NodeType.MEM_LOAD) | (kind == NodeType.MEM_STORE)
    needs: list[tuple[Bool, str, tuple[str, ...]]] = [
        (collective, "collective", ("comm_type",)),
        (sized, "collective", ("comm_size",)),
        (kind == NodeType.COMM_SEND, "send", ("comm_dst", "comm_size", "comm_tag")),
        (kind == NodeType.COMM_RECV, "receive", ("comm_src", "comm_size", "comm_tag")),
        (compute, "compute node in a roofline", ("num_ops", "tensor_size")),
        (memory, "memory node", ("tensor_size",)),
    ]
    for chosen, noun, keys in needs:
        if not chosen.any():
            continue
        for key in keys:
            absent = np.flatnonzero(chosen & ~_has_integer(graph, key))
            hint = f"Every {noun} needs the whole number {key}."
            code = "attribute-missing"
            if chosen is compute:
                code = "roofline-sizes"
                hint += " Without the roofline (roofline-enabled=0), or with the model full, the recorded durations count."
            yield from _group_rows(job, absent, "error", code, f"has no {key}", hint)


def _check_sizes(job: _Job, config: SystemConfig) -> Iterator[Finding]:
    graph = job.graph
    size = read_dense_column(graph, "comm_size", 1 << 62)
    comm = communicates(graph)
    hint = "Sizes are bytes, from 0."
    yield from _group_rows(
        job, np.flatnonzero(comm & (size < 0)), "error", "negative-size", "has a negative comm_size", hint
    )
    if config.extensions is not None:
        return
    gathers = read_dense_column(graph, "comm_type", NONE) == CollectiveType.ALL_GATHER
    gathers &= graph.type == NodeType.COMM_COLL
    yield from _group_rows(
        job,
        np.flatnonzero(gathers & (size == 0)),
        "error",
        "empty-all-gather",
        "is an all-gather of 0 bytes, which never completes in the reference",
        "Remove it, or give it a size.",
    )
    splits = config.splits
    yield from _group_rows(
        job,
        np.flatnonzero(gathers & (size > 0) & (size < splits)),
        "error",
        "tiny-all-gather",
        f"is an all-gather of fewer bytes than the {splits} chunks it is cut into",
        f"Lower preferred-dataset-splits from {splits}.",
    )


def _check_dimensions(job: _Job, config: SystemConfig) -> Iterator[Finding]:
    """Find collectives that involve none of the system's dimensions.

    An algorithm over all ranks is governed by the entry of its place in the list.
    """
    graph = job.graph
    kinds = read_dense_column(graph, "comm_type", NONE)
    known = EXTENDED_KIND_OF if allows_all_collectives(config) else KIND_OF
    rows, where = graph.rows_with("involved_dim")
    nowhere = []
    for row, entry in zip(rows.tolist(), where.tolist(), strict=True):
        value = decode_value(graph.attrs, entry, graph.strings, job.ranks[0].slots)
        kind = known.get(int(kinds[row]))
        if isinstance(value, list) and kind and not any(value[: _count_logical_dimensions(config, kind)]):
            nowhere.append(row)
    what = "involves none of the dimensions its algorithms cover, and so never completes"
    hint = "Set an entry of involved_dim to true, or leave the attribute out."
    yield from _group_rows(job, np.array(nowhere, np.int64), "error", "no-dimension", what, hint)


def _count_logical_dimensions(config: SystemConfig, kind: CollectiveKind) -> int:
    """Return the number of logical dimensions; an algorithm over all ranks is the last."""
    listed = list_configured(config, kind)
    single = next((index + 1 for index, algorithm in enumerate(listed) if algorithm.single), len(listed))
    return single or len(config.topology.dims)
