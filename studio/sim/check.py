"""Find what would go wrong in a simulation before it runs.

The reference answers most of this with a hang, an exit code of 0 with ranks missing, or the text of an
assertion. Here it is a list of findings that name ranks, nodes and the reason. An `error` keeps the job
from finishing, or the configuration from being simulated; a `warning` may, or makes the answer surprising.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from studio.analysis.collectives.matching import match_collectives
from studio.analysis.collectives.messages import match_channels
from studio.analysis.graph.digraph import build_network, find_reachable
from studio.analysis.job.completeness import Completeness, infer_completeness, is_recording
from studio.sim.agreement import check_groups, check_messages, format_ranks
from studio.sim.borders import build_border_finding, find_recording_borders
from studio.sim.collective_checks import check_algorithms, check_roots
from studio.sim.collectives import allows_all_collectives
from studio.sim.config import SystemConfig
from studio.sim.crossings import check_crossings
from studio.sim.graph_checks import check_graphs
from studio.sim.matched import check_unrecorded, matches_by_number, replays_communication
from studio.trace import NONE, Finding, Level, NodeType, Trace, is_flagged
from studio.units import format_counted

_COMPLETE = "chakra-studio complete FILES -o DIR"
"""The command that makes a whole job of the ranks that are known."""
REPLAY_KNOWN = (
    "Replay the known ranks with their recorded times (--replay, or the button on the Simulate page), open the "
    f"files of all ranks together, or let the missing ranks be copies of the known ones: {_COMPLETE}."
)


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
        *check_graphs(trace, config),
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
                *(check_algorithms(config, groups) if config.topology.npus > 1 and not config.flows else ()),
                *(check_roots(trace, config, groups) if allows_all_collectives(config) else ()),
                *(check_crossings(config, groups, channels) if not config.flows else ()),
            ]
    worst: Mapping[Level, int] = {"error": 0, "warning": 1, "info": 2}
    return sorted(findings, key=lambda finding: worst[finding.level])


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
            f"Open the traces of all ranks, let the missing ranks be copies of the known ones ({_COMPLETE}), or change npus_count "
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
