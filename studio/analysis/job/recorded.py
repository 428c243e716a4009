"""When the ranks of a recording were recorded: files of several runs, and recordings that stop before the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from studio.analysis.collectives.matching import GroupMatching
from studio.analysis.job.steps import find_graph_steps
from studio.distinct import find_distinct
from studio.notebook import format_record
from studio.trace import NONE, TIMES_NOTICED, Graph, Trace, compute_recorded_ends

Runs = tuple[tuple[int, ...], ...]
"""Numbers of ranks whose recordings overlap in time, directly or through others; the earliest first."""

Windows = Mapping[int, tuple[int, int]]
"""When the first node of each rank began and the last ended, in nanoseconds by the job's clock, by number."""

_LEAST_EARLY_NS = 1_000_000
_LEAST_EARLY = 0.1
"""Share of the longest recording by which one has to end before the others; ranks that wait for each other end less apart."""


def find_recorded_windows(trace: Trace) -> dict[int, tuple[int, int]]:
    """Return when the first node of each rank began and the last ended, in nanoseconds by the job's clock, of ranks with times.

    Times that a watchdog noticed tell when it looked: they are none.
    """
    of_graph: dict[int, tuple[int, int] | None] = {}
    windows = {}
    for rank in trace.ranks:
        if rank.metadata_value(TIMES_NOTICED) is not None:
            continue
        if rank.graph not in of_graph:
            of_graph[rank.graph] = _find_window(trace.graph_of(rank))
        window = of_graph[rank.graph]
        if window is not None:
            windows[rank.number] = window
    return windows


def _find_window(graph: Graph) -> tuple[int, int] | None:
    timed = graph.start_ns >= 0
    if not timed.any():
        return None
    ends = compute_recorded_ends(graph)[timed]
    return int(graph.start_ns[timed].min()), int(ends.max())


def find_runs(trace: Trace, windows: Windows) -> Mapping[str, Runs]:
    """Return the ranks of each machine on which some recordings were over before others began, by its clock, which is one.

    Linking notes the machine down. Where it moved a clock, it has said so, and times are compared as they are now.

    Args:
        trace: The recording.
        windows: When the ranks were recorded, see `find_recorded_windows`.
    """
    machines: dict[str, list[tuple[int, int, int]]] = {}
    for rank in trace.ranks:
        machine = str(rank.metadata_value("clock_host", ""))
        if machine and rank.number in windows:
            machines.setdefault(machine, []).append((*windows[rank.number], rank.number))
    runs_of = {}
    for machine, spans in machines.items():
        runs = _split_by_gaps(sorted(spans), _LEAST_EARLY_NS + 1)
        if len(runs) > 1:
            runs_of[machine] = runs
    return runs_of


def _split_by_gaps(spans: Sequence[tuple[int, int, int]], gap: int) -> Runs:
    """Return numbers of ranks in parts that lie at least a gap apart, given begin, end and number of each by begin."""
    parts: list[list[int]] = []
    until = 0
    for begin, end, number in spans:
        if not parts or begin - until >= gap:
            parts.append([])
        parts[-1].append(number)
        until = max(until, end)
    return tuple(tuple(sorted(part)) for part in parts)


def find_moments(groups: Sequence[GroupMatching]) -> tuple[tuple[GroupMatching, Runs], ...]:
    """Return the comm groups whose members fall into parts that share none of its numbered collectives, and the parts.

    They were recorded at different moments of a run: at steps of which each part holds its own.
    """
    moments = []
    for group in groups:
        if not group.by_number:
            continue
        has = group.rows() != NONE
        spans = sorted(
            (int(own.argmax()), len(own) - int(own[::-1].argmax()), member)
            for member, own in zip(group.members, has, strict=True)
            if own.any()
        )
        parts = _split_by_gaps(spans, 0)
        if len(parts) > 1:
            moments.append((group, parts))
    return tuple(moments)


@dataclass(frozen=True, slots=True)
class EarlyEnd:
    """A rank whose recording stops before those of the others, which go on with what it lacks.

    Attributes:
        rank: The rank.
        lacking: How many collectives it lacks that all others of their groups have.
        among: How many collectives these have.
        steps: Training steps that all others have and it has not.
    """

    rank: int
    lacking: int
    among: int
    steps: tuple[int, ...]

    __repr__ = format_record


def find_early_ends(trace: Trace, windows: Windows, groups: Sequence[GroupMatching]) -> tuple[EarlyEnd, ...]:
    """Return the ranks whose recordings stop early: in time, and with fewer collectives or steps than all others have.

    Args:
        trace: The recording, of one run.
        windows: When the ranks were recorded, see `find_recorded_windows`.
        groups: Its matched collectives.
    """
    if len(windows) < 2:
        return ()
    ends = sorted(end for _, end in windows.values())
    # Of two ranks the later one is the measure.
    usual = ends[len(ends) // 2]
    apart = max(_LEAST_EARLY_NS, _LEAST_EARLY * max(end - begin for begin, end in windows.values()))
    early = [number for number, (_, end) in sorted(windows.items()) if usual - end > apart]
    whole = frozenset(windows) - set(early)
    first = min(windows[number][0] for number in whole)
    # What was over before any other began is of another clock, or run.
    early = [number for number in early if windows[number][1] > first]
    if not early:
        return ()
    steps = _collect_steps(trace, windows)
    of_all = frozenset.intersection(*(steps[number] for number in whole))
    early_ends = []
    for number in early:
        lacking, among = _count_lacking(trace, groups, number, whole)
        # Ranks that have no step in common number them differently, or do not name them.
        no_step = of_all - steps[number] if lacking or of_all & steps[number] else frozenset()
        if lacking or no_step:
            early_ends.append(EarlyEnd(number, lacking, among, tuple(sorted(no_step))))
    return tuple(early_ends)


def _collect_steps(trace: Trace, windows: Mapping[int, object]) -> dict[int, frozenset[int]]:
    """Return the training steps of which ranks have a node with a time."""
    of_graph: dict[int, frozenset[int]] = {}
    steps_of = {}
    for rank in trace.ranks:
        if rank.number in windows:
            if rank.graph not in of_graph:
                graph = trace.graph_of(rank)
                steps = find_distinct(find_graph_steps(graph)[graph.start_ns >= 0])
                of_graph[rank.graph] = frozenset(steps.tolist()) - {NONE}
            steps_of[rank.number] = of_graph[rank.graph]
    return steps_of


def _count_lacking(
    trace: Trace, groups: Sequence[GroupMatching], number: int, whole: frozenset[int]
) -> tuple[int, int]:
    """Return how many recorded collectives a rank lacks that all of `whole` in their groups have, and how many these have."""
    graph_of = {rank.number: trace.graph_of(rank) for rank in trace.ranks}
    lacking = among = 0
    for group in groups:
        counts = {}
        for member, index in zip(group.members, group.sequence_of.tolist(), strict=True):
            if index != NONE and (member == number or member in whole):
                rows = group.sequences[index].rows
                counts[member] = int((graph_of[member].start_ns[rows[rows != NONE]] >= 0).sum())
        own = counts.pop(number, None)
        if own is not None and counts:
            least = min(counts.values())
            among += least
            lacking += max(least - own, 0)
    return lacking, among
