"""Find what would go wrong in a simulation before it runs.

The reference answers most of this with a hang, an exit code of 0 with ranks missing, or the text of an
assertion. Here it is a list of findings that name ranks, nodes and the reason. An `error` keeps the job
from finishing, or the configuration from being simulated; a `warning` may, or makes the answer surprising.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from studio.analysis.collectives.matching import (
    GroupMatching,
    list_edges,
    match_collectives,
    waits_for_lower_ids,
)
from studio.analysis.collectives.messages import Channels, match_channels
from studio.analysis.graph.digraph import build_network, find_reachable, find_shortest_cycle
from studio.analysis.job.completeness import Completeness, infer_completeness, is_recording
from studio.analysis.job.renumbered import share_graphs
from studio.distinct import find_distinct
from studio.sim.agreement import check_groups, check_messages, format_ranks, label_group, label_node
from studio.sim.borders import build_border_finding, find_recording_borders
from studio.sim.collectives import EXTENDED_KIND_OF, KIND_OF, lacks_form, list_configured, supports_any_size
from studio.sim.config import Algorithm, SystemConfig
from studio.sim.extensions import EXTENDED_MODE
from studio.sim.kinds import CollectiveKind
from studio.sim.matched import check_unrecorded, matches_by_number, replays_communication
from studio.trace import (
    INT_KINDS,
    NONE,
    ROOT_KEYS,
    ROOTED_TYPES,
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
    label_collective,
    read_dense_column,
    read_roots,
)
from studio.units import format_counted

COMPLETE = "chakra-studio complete FILES -o DIR"
"""The command that makes a whole job of the ranks that are known."""
REPLAY_KNOWN = (
    "Replay the known ranks with their recorded times (--replay, or the button on the Simulate page), open the "
    f"files of all ranks together, or let the missing ranks be copies of the known ones: {COMPLETE}."
)
_FIXED_TIME = (CollectiveType.BROADCAST,)
_SHOWN = 8
"""Findings of one kind that are listed one by one; the rest is counted."""
_WHO = "\0"
"""Stands for the ranks of a graph in a message that is still to be merged."""
_CYCLE_STARTS = 500
"""Nodes from which the smallest cycle is looked for."""


def check(trace: Trace, config: SystemConfig) -> list[Finding]:
    """Return all problems of simulating `trace` on `config`, the worst first.

    An empty list does not promise that the run finishes: which of several independent collectives a rank
    issues first depends on times, and with them may the order in a group.
    """
    about_ranks = list(_check_ranks(trace, config))
    if any(finding.code == "ranks-unknown" for finding in about_ranks):
        # What else there is to say of such a run can wait until it could be one.
        return about_ranks
    borders = find_recording_borders(trace, config)
    if borders is not None and config.extensions is not None:
        trace = borders.without_waiting(trace)
        about_ranks.append(build_border_finding(borders))
    findings = [
        *about_ranks,
        *_check_routes(config),
        *_check_times(trace, config),
        *_merge_findings(_find_in_graphs(trace, config)),
    ]
    if not config.replay_only:
        groups = match_collectives(trace, config.groups, by_number=matches_by_number(config))
        channels = match_channels(trace)
        # Of the messages that are as they should be nothing is found.
        doubtful = channels.expand(channels.doubtful([rank.number for rank in trace.ranks]))
        findings += [
            *check_groups(trace, config, groups),
            *check_messages(trace, doubtful, groups),
        ]
        if replays_communication(config):
            findings += check_unrecorded(trace)
        else:
            findings += [
                *(_check_algorithms(config, groups) if config.topology.npus > 1 and not config.flows else ()),
                *(_check_roots(trace, config, groups) if _allows_all_collectives(config) else ()),
                *(check_crossings(config, groups, channels) if not config.flows else ()),
            ]
    worst: Mapping[Level, int] = {"error": 0, "warning": 1, "info": 2}
    return sorted(findings, key=lambda finding: worst[finding.level])


# ---------------------------------------------------------------------------------------------------
# Ranks


def _check_ranks(trace: Trace, config: SystemConfig) -> Iterator[Finding]:
    npus = config.topology.npus
    numbers = [rank.number for rank in trace.ranks]
    job = infer_completeness(trace)
    if not config.needs_every_rank and len(numbers) <= npus:
        if not job.is_whole:
            message = f"{job.sentence()} Those that are known are replayed."
            yield Finding("warning", "ranks-replayed", message, "Waits for the others are as recorded.")
        return
    if not job.is_whole and is_recording(trace):
        yield Finding("error", "ranks-unknown", job.sentence(), REPLAY_KNOWN)
        return
    sizes = " × ".join(str(dim.size) for dim in config.topology.dims)
    system = (
        f"the system {format_counted(npus, 'NPU')} ({sizes})"
        if len(config.topology.dims) > 1
        else f"the system {format_counted(npus, 'NPU')}"
    )
    beyond = [number for number in numbers if number >= npus]
    absent = npus - len(numbers) + len(beyond)
    if beyond:
        yield Finding(
            "error",
            "ranks-beyond",
            f"The trace has {format_ranks(numbers)}, {system}: there is no NPU for {format_ranks(beyond)}.",
            "Change npus_count so that the product is the number of ranks.",
        )
    elif absent:
        missing = Completeness(tuple(sorted(set(numbers))), npus, NONE).missing_words()
        yield Finding(
            "error",
            "ranks-missing",
            f"The trace has {format_ranks(numbers)}, {system}: {missing} {'is' if absent == 1 else 'are'} missing.",
            f"Open the traces of all ranks, let the missing ranks be copies of the known ones ({COMPLETE}), or change npus_count "
            "so that the product is the number of ranks.",
        )


def _check_routes(config: SystemConfig) -> Iterator[Finding]:
    """Find NPUs that cannot reach each other over the links."""
    if config.links is None:
        return
    graph = config.links
    ends = np.array([(link.source, link.target) for link in graph.links], np.int64).reshape(-1, 2)
    network = build_network(graph.npus + graph.switches, ends[:, 0], ends[:, 1])
    for backwards in (False, True):
        near = set(find_reachable(network, 0, backwards=backwards).tolist())
        far = next((npu for npu in range(graph.npus) if npu not in near), None)
        if far is not None:
            source, target = (far, 0) if backwards else (0, far)
            yield Finding(
                "warning",
                "no-way",
                f"There is no path over the links from NPU {source} to NPU {target}: the run stops if they communicate.",
                "Add the links that are missing.",
            )
            return


def _check_times(trace: Trace, config: SystemConfig) -> Iterator[Finding]:
    """Warn if nodes have operations but no durations and the roofline is off."""
    if config.roofline is not None or config.replay_only:
        return
    has_sizes = False
    for graph in trace.graphs:
        compute = (graph.type == NodeType.COMP) & ~is_flagged(graph, "is_cpu_op")
        if (graph.duration_ns[compute] > 0).any():
            return
        has_sizes = has_sizes or bool((compute & is_flagged(graph, "num_ops")).any())
    if has_sizes:
        yield Finding(
            "warning",
            "compute-takes-no-time",
            "No compute node has a recorded duration, and the roofline is off: each takes 1 ns, as in the reference, "
            "and the time is that of communication alone.",
            "Turn the roofline on (roofline-enabled=1) and give peak-perf and local-mem-bw: the nodes have num_ops.",
        )


# ---------------------------------------------------------------------------------------------------
# Single graphs


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
        _allows_all_collectives(config)
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


def _allows_all_collectives(config: SystemConfig) -> bool:
    """Whether the mode carries out all collectives."""
    return config.flows or (config.extensions is not None and config.extensions.collectives == "all")


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
    known = EXTENDED_KIND_OF if _allows_all_collectives(config) else KIND_OF
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


# ---------------------------------------------------------------------------------------------------
# Algorithms


def _check_algorithms(config: SystemConfig, groups: Sequence[GroupMatching]) -> Iterator[Finding]:
    """Find collectives that the configured algorithms cannot run, once per type and kind of group."""
    reported: set[tuple[str, int, int]] = set()
    for group in groups:
        for sequence in group.sequences:
            for kind in find_distinct(sequence.type).tolist():
                if kind == NONE:
                    continue
                for size, code, message, hint in _find_unable(config, group, kind):
                    if (code, kind, size) not in reported:
                        reported.add((code, kind, size))
                        where = f"{label_group(group)}: {label_collective(kind)} {message}"
                        yield Finding("error", code, where, hint)


def _check_roots(trace: Trace, config: SystemConfig, groups: Sequence[GroupMatching]) -> Iterator[Finding]:
    """Find rooted collectives without a root, or with one outside their group."""
    roots = [read_roots(graph) for graph in trace.graphs]
    graph_of = {rank.number: rank.graph for rank in trace.ranks}
    npus = config.topology.npus
    for group in groups:
        members = frozenset(group.members if group.name else range(npus))
        first = min(group.members) if not group.name else group.members[0]
        assumed: set[int] = set()
        outside: set[int] = set()
        for member, position in zip(group.members, group.sequence_of.tolist(), strict=True):
            if position == NONE:
                continue
            sequence = group.sequences[position]
            rooted = np.isin(sequence.type, ROOTED_TYPES)
            named = roots[graph_of[member]][sequence.rows[rooted]]
            assumed.update(sequence.type[rooted][named < 0].tolist())
            outside.update(
                root for root in find_distinct(named).tolist() if root >= 0 and root not in members
            )
        if assumed:
            what = ", ".join(label_collective(number) for number in sorted(assumed))
            message = f"{label_group(group)}: {what} without a root; rank {first} was taken, the first of the group."
            yield Finding("info", "root-assumed", message, f"Name it: {', '.join(ROOT_KEYS)}.")
        for root in sorted(outside)[:1]:
            message = f"{label_group(group)}: rank {root} is named for a root, and is none of its ranks."
            yield Finding("error", "root-outsider", message, f"Ranks of the job, in {', '.join(ROOT_KEYS)}.")


def _find_unable(
    config: SystemConfig, group: GroupMatching, number: int
) -> Iterator[tuple[int, str, str, str]]:
    kind = (EXTENDED_KIND_OF if _allows_all_collectives(config) else KIND_OF).get(number)
    if kind is None:
        if number not in _FIXED_TIME:
            allowed = ", ".join(label_collective(known) for known in KIND_OF)
            hint = f"The {EXTENDED_MODE} carries out all collectives." if number in EXTENDED_KIND_OF else ""
            yield 0, "collective-unsupported", f"cannot be simulated; allowed: {allowed}, BROADCAST", hint
        return
    if kind in config.custom:
        return
    listed = list_configured(config, kind)
    if not listed:
        key = f"{kind.replace('_', '-')}-implementation"
        yield (
            0,
            "algorithm-missing",
            f"is used, and {key} is not set",
            f"Set {key} to one algorithm per dimension.",
        )
        return
    within = len(group.members) < config.topology.npus and len(listed) == 1
    if within and not listed[0].row.in_groups and not supports_any_size(config):
        reason = f"by {listed[0].name}, which is built over whole dimensions only"
        yield len(group.members), "algorithm-unfit", reason, f"Choose ring or direct, or the {EXTENDED_MODE}."
        return
    for algorithm, size in _iterate_algorithms(config, group, listed):
        reason = "" if supports_any_size(config) else _explain_refusal(algorithm, kind, size)
        if reason:
            hint = f"Choose ring or direct there, another number of NPUs, or the {EXTENDED_MODE}."
            yield size, "algorithm-unfit", reason, hint


def _iterate_algorithms(
    config: SystemConfig, group: GroupMatching, listed: tuple[Algorithm, ...]
) -> Iterator[tuple[Algorithm, int]]:
    """Yield each algorithm with the number of ranks it runs over; a smaller group is one ring unless one algorithm is listed."""
    npus = config.topology.npus
    if len(group.members) < npus:
        if len(listed) == 1:
            yield listed[0], len(group.members)
        return
    for algorithm, dim in zip(listed, config.topology.dims, strict=False):
        yield algorithm, npus if algorithm.single else dim.size
        if algorithm.single:
            return


def _explain_refusal(algorithm: Algorithm, kind: CollectiveKind, size: int) -> str:
    if lacks_form(algorithm, kind):
        return f"has no {algorithm.name} form"
    if algorithm.row.powers_of_two and size & (size - 1):
        return f"by {algorithm.name} over {size} ranks; allowed: a power of two"
    return ""


# ---------------------------------------------------------------------------------------------------
# Dimensions that are not timed


def check_crossings(
    config: SystemConfig, groups: Sequence[GroupMatching], channels: Channels
) -> Iterator[Finding]:
    """Warn of messages that cross several dimensions but are timed in one.

    The unaware network takes the lowest dimension in which the two ends differ. Collectives that run dimension by
    dimension have no such messages; those in one ring over a group have them where neighbours differ in several.
    """
    if config.congestion == "aware" or config.links is not None or len(config.topology.dims) == 1:
        return
    rings = [group for group in groups if _is_one_ring(config, group)]
    sizes = np.array([len(group.members) for group in rings], np.int64)
    members = np.array([rank for group in rings for rank in group.members], np.int64)
    following = [rank for group in rings for rank in (*group.members[1:], *group.members[:1])]
    crossing = _differ_in_several(config, members, np.array(following, np.int64))
    if crossing.any():
        of = np.repeat(np.arange(len(rings)), sizes)[crossing]
        first, count = int(np.flatnonzero(crossing)[0]), len(find_distinct(of))
        group = rings[int(of[0])]
        who = (
            f"group {group.name} ({format_ranks(group.members)})" if group.name else "the group of all ranks"
        )
        more = f" (and those of {count - 1:,} more groups)" if count > 1 else ""
        what = f"Messages of {who} between ranks {members[first]} and {following[first]}{more}"
        yield _build_skipped_finding(config, "group-dimensions", what, int(members[first]), following[first])
    crossing = _differ_in_several(config, channels.source, channels.target)
    if crossing.any():
        first, count = int(np.flatnonzero(crossing)[0]), int(channels.messages[crossing].sum())
        source, target = int(channels.source[first]), int(channels.target[first])
        more = f" (and {count - 1:,} more like it)" if count > 1 else ""
        what = f"Messages from rank {source} to rank {target}{more}"
        yield _build_skipped_finding(config, "message-dimensions", what, source, target)


def _is_one_ring(config: SystemConfig, group: GroupMatching) -> bool:
    """Whether collectives of the group run over all its ranks at once, not dimension by dimension."""
    if len(group.members) < config.topology.npus:
        return len(group.members) > 1
    numbers = {number for sequence in group.sequences for number in find_distinct(sequence.type).tolist()}
    kinds = [EXTENDED_KIND_OF[number] for number in numbers if number in EXTENDED_KIND_OF]
    return any(algorithm.single for kind in kinds for algorithm in list_configured(config, kind)[:1])


def _compute_coordinates(config: SystemConfig, ranks: Int64) -> Int64:
    """Return (D, R) the place of each rank in each dimension; the first varies fastest."""
    dims = np.array([dim.size for dim in config.topology.dims], np.int64)
    below = np.concatenate([[1], np.cumprod(dims)[:-1]])
    places: Int64 = ranks // below[:, None] % dims[:, None]
    return places


def _differ_in_several(config: SystemConfig, source: Int64, target: Int64) -> Bool:
    """Return (M,) whether the two ends differ in more than one dimension; False where one is no NPU of the system."""
    npus = config.topology.npus
    differ = _compute_coordinates(config, source) != _compute_coordinates(config, target)
    are_npus = (source >= 0) & (source < npus) & (target >= 0) & (target < npus)
    crossing: Bool = (differ.sum(axis=0) > 1) & are_npus
    return crossing


def _build_skipped_finding(config: SystemConfig, code: str, what: str, source: int, target: int) -> Finding:
    ends = _compute_coordinates(config, np.array([source, target], np.int64))
    crossed = np.flatnonzero(ends[:, 0] != ends[:, 1]).tolist()
    named = ", ".join(map(str, crossed[:-1])) + f" and {crossed[-1]}"
    message = (
        f"{what} cross dimensions {named} and are timed in dimension {crossed[0]} alone, "
        "as in the reference: the time is too short."
    )
    return Finding(
        "warning",
        code,
        message,
        "The model full times all of them (--model full).",
    )
