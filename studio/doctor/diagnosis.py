"""Results of checks, and data that the checks of one job share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from studio.analysis.collectives.borders import BorderCollectives, find_border_collectives
from studio.analysis.collectives.clocks import ClockOffset, estimate_clock_leads, estimate_clock_offsets
from studio.analysis.collectives.matching import GroupMatching, list_dependency_pairs, match_collectives
from studio.analysis.collectives.messages import Messages, match_messages
from studio.analysis.collectives.unmatched import Unmatched, find_unmatched
from studio.analysis.graph.digraph import find_cycle_components
from studio.analysis.job.completeness import is_recording
from studio.analysis.job.node_refs import format_node_ref
from studio.analysis.job.recorded import (
    EarlyEnd,
    Runs,
    Windows,
    find_early_ends,
    find_moments,
    find_recorded_windows,
    find_runs,
)
from studio.doctor.streams import StreamOrder, find_stream_order
from studio.notebook import build_html_table, format_parts, format_record
from studio.trace import (
    NONE,
    Bool,
    CollectiveType,
    CommGroup,
    Graph,
    Int64,
    Level,
    NodeType,
    Rank,
    Trace,
    is_flagged,
    read_dense_column,
    read_roots,
)

NODES_NAMED = 16
"""Nodes a finding names; the others are counted."""
UNSIZED = -(1 << 63)
"""Stands for the size of a node that has none."""
_MOST_EXCHANGED = 64
"""Ranks that name groups of others up to which it is worked out whose files are exchanged."""
LEVELS: tuple[Level, ...] = ("error", "warning", "info")
"""The worst first."""


@dataclass(frozen=True, slots=True)
class NodeAt:
    """A node.

    Attributes:
        rank: Number of its rank.
        row: Its row in the rank's graph.
    """

    rank: int
    row: int

    __repr__ = format_record


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a check.

    Attributes:
        level: How bad it is.
        message: What it is, and where.
        ranks: Numbers of the ranks concerned, rising; empty where it is the job as a whole.
        nodes: Nodes concerned, the first few.
        count: How many there are of what the check is about, over all ranks.
        evidence: Figures: what they are of, and their value.
        consequence: What follows, where it differs from what the check says in general.
        advice: What to do about it, likewise.
        is_repairable: Whether the repair of the check, if it has one, repairs this.
        doubtful: The message of a job that ran where what it rests on was inferred, or not recorded; empty where it is the same.
    """

    level: Level
    message: str
    ranks: tuple[int, ...] = ()
    nodes: tuple[NodeAt, ...] = ()
    count: int = 0
    evidence: tuple[tuple[str, str], ...] = ()
    consequence: str = ""
    advice: str = ""
    is_repairable: bool = True
    doubtful: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A problem of a job, or something worth knowing.

    Attributes:
        code: Stable short name of the check, or of what the reader noticed.
        level: `error` keeps the job from being simulated or lost data, `warning` misleads, `info` is worth knowing.
        title: The check in a few words.
        message: What was found, and where.
        ranks, nodes, count, evidence: See `Found`.
        consequence: What follows from it.
        advice: What to do about it; may be empty.
        repair: The repair in `REPAIRS` that repairs it, None where there is none.
    """

    code: str
    level: Level
    title: str
    message: str
    ranks: tuple[int, ...] = ()
    nodes: tuple[NodeAt, ...] = ()
    count: int = 0
    evidence: tuple[tuple[str, str], ...] = ()
    consequence: str = ""
    advice: str = ""
    repair: str | None = None

    __repr__ = format_record

    def _repr_html_(self) -> str:
        """Return it as a table."""
        rows = (
            ("what", self.message),
            *self.evidence,
            ("consequence", self.consequence),
            ("advice", self.advice),
        )
        return build_html_table(
            f"{self.level}: {self.title} ({self.code})", (), [row for row in rows if row[1]]
        )


class Diagnoses(list[Diagnosis]):
    """Diagnoses, which a notebook shows as a table."""

    def __repr__(self) -> str:
        """Return them in a line."""
        codes = [f"{diagnosis.level} {diagnosis.code}" for diagnosis in self]
        return format_parts("Diagnoses", codes or ["nothing found"])

    def _repr_html_(self) -> str:
        """Return a row for each."""
        rows = [(diagnosis.level, diagnosis.code, diagnosis.message, diagnosis.advice) for diagnosis in self]
        return build_html_table(repr(self), ("level", "check", "what", "advice"), rows)


class GraphCase:
    """A graph, the ranks that run it, and data several checks need, each computed once.

    N nodes, D dependencies that lead to a node.

    Attributes:
        index: Its place in the trace.
        graph: The graph.
        ranks: Numbers of its ranks, rising.
    """

    def __init__(self, index: int, graph: Graph, ranks: tuple[int, ...]) -> None:
        self.index, self.graph, self.ranks = index, graph, ranks

    @cached_property
    def pairs(self) -> tuple[Int64, Int64]:
        """(D,) nodes that wait and (D,) the nodes they wait for, control dependencies first."""
        return list_dependency_pairs(self.graph)

    @cached_property
    def on_cpu(self) -> Bool:
        """(N,) whether each node is marked as a processor operation."""
        return is_flagged(self.graph, "is_cpu_op")

    @cached_property
    def communicates(self) -> Bool:
        """(N,) whether each node is a collective, send or receive."""
        kind = self.graph.type
        return np.asarray((kind >= NodeType.COMM_SEND) & (kind <= NodeType.COMM_COLL))

    @cached_property
    def collective(self) -> Int64:
        """(N,) the CollectiveType of each collective, -1 where it names none, and of all other nodes."""
        kinds = read_dense_column(self.graph, "comm_type", NONE)
        kinds[self.graph.type != NodeType.COMM_COLL] = NONE
        return kinds

    @cached_property
    def roots(self) -> Int64:
        """(N,) the root that each node names, -1 where it names none."""
        return read_roots(self.graph)

    @cached_property
    def sizes(self) -> Int64:
        """(N,) the recorded size of each node, `UNSIZED` where there is none; barriers, which have none, count as 1."""
        sizes = read_dense_column(self.graph, "comm_size", UNSIZED)
        sizes[self.collective == CollectiveType.BARRIER] = 1
        return sizes

    @cached_property
    def calls(self) -> Bool:
        """(N,) whether each node only calls communication: on the processor, without size or collective type."""
        unsized = self.communicates & self.on_cpu & (self.sizes == UNSIZED)
        return np.asarray(unsized & ((self.graph.type != NodeType.COMM_COLL) | (self.collective == NONE)))

    @cached_property
    def streams(self) -> StreamOrder:
        """Consecutive operations of the graph's streams, and whether they are kept in order."""
        return find_stream_order(self.graph, self.pairs, on_cpu=self.on_cpu, communicates=self.communicates)

    @cached_property
    def circles(self) -> Int64:
        """(N,) number of the cycle each node is on, -1 where it is on none; self-loops do not count."""
        of, waited = self.pairs
        graph = self.graph
        rows = np.arange(len(graph))
        return find_cycle_components(len(graph), waited, of, rows, graph.id, graph.start_ns)


class Case:
    """A job under examination.

    Attributes:
        trace: The job.
        tick: Called now and then by checks that take long.
        graphs: Its graphs that some rank runs.
    """

    def __init__(self, trace: Trace, tick: Callable[[], None] = lambda: None) -> None:
        """Open a job.

        Args:
            trace: The job.
            tick: Called now and then by checks that take long; may raise to stop.
        """
        self.trace, self.tick = trace, tick
        using: dict[int, list[int]] = {}
        for rank in trace.ranks:
            using.setdefault(rank.graph, []).append(rank.number)
        self.graphs = [
            GraphCase(index, trace.graphs[index], tuple(sorted(ranks)))
            for index, ranks in sorted(using.items())
        ]

    @cached_property
    def by_rank(self) -> Mapping[int, GraphCase]:
        """The graph of each rank, by number."""
        return {number: own for own in self.graphs for number in own.ranks}

    @cached_property
    def rank_of(self) -> Mapping[int, Rank]:
        """The ranks by number."""
        return {rank.number: rank for rank in self.trace.ranks}

    @cached_property
    def groups(self) -> tuple[GroupMatching, ...]:
        """The matched collectives of all ranks."""
        return match_collectives(self.trace)

    @cached_property
    def ordered(self) -> tuple[GroupMatching, ...]:
        """Collectives matched by order even where they are numbered, as simulators without numbers do."""
        if not any(group.by_number for group in self.groups):
            return self.groups
        return match_collectives(self.trace, by_number=False)

    @cached_property
    def borders(self) -> BorderCollectives:
        """Collectives that some members were not recorded long enough to have."""
        return find_border_collectives(self.trace, self.groups, self.windows)

    @cached_property
    def settled(self) -> Case:
        """The job in which those wait for nobody; this one where there are none."""
        return Case(self.borders.without_waiting(self.trace), self.tick) if self.borders else self

    @cached_property
    def messages(self) -> Messages:
        """Sends and receives of all ranks, paired."""
        return match_messages(self.trace)

    @cached_property
    def unmatched(self) -> Unmatched:
        """The sends and receives that have no other half."""
        return find_unmatched(
            self.trace, self.messages, lambda: estimate_clock_leads(self.trace, self.groups)
        )

    @cached_property
    def runs(self) -> Mapping[str, Runs]:
        """The ranks of each machine on which files of several runs are mixed, by name of the machine."""
        return find_runs(self.trace, self.windows)

    @cached_property
    def moments(self) -> tuple[tuple[GroupMatching, Runs], ...]:
        """The comm groups whose members were recorded at different moments, and parts of them that share none of its collectives."""
        return find_moments(self.groups) if is_recording(self.trace) else ()

    @cached_property
    def windows(self) -> Windows:
        """When the ranks were recorded, of those with times."""
        return find_recorded_windows(self.trace)

    def mixes(self, numbers: Iterable[int]) -> bool:
        """Whether some of these ranks were recorded when others of them were not: they say nothing of each other."""
        chosen = set(numbers)
        of = self._run_of
        several = len({of[number] for number in chosen if number in of}) > 1
        return several or any(
            sum(not chosen.isdisjoint(part) for part in parts) > 1 for _, parts in self.moments
        )

    @cached_property
    def _run_of(self) -> Mapping[int, tuple[str, int]]:
        """The machine, and which of its runs, of each rank of a machine on which files of several are mixed."""
        return {
            number: (machine, at)
            for machine, runs in self.runs.items()
            for at, run in enumerate(runs)
            for number in run
        }

    @cached_property
    def clocks(self) -> tuple[ClockOffset, ...]:
        """How far the clocks of ranks are apart, of ranks of one run."""
        offsets = estimate_clock_offsets(self.trace, self.groups)
        base = min((offset.rank for offset in offsets), default=NONE)
        return tuple(offset for offset in offsets if not self.mixes((offset.rank, offset.by, base)))

    @cached_property
    def copied(self) -> Mapping[int, int]:
        """The ranks whose file is a copy of another rank's: they hold the same in every node, and name groups of that one, not theirs."""
        originals: dict[int, int] = {}
        if not any(group.outsiders for group in self.groups):
            return originals
        ranks = self.rank_of
        # Else the list of members may be what is wrong.
        idle = {
            member
            for group in self.groups
            for member, index in zip(group.members, group.sequence_of.tolist(), strict=True)
            if index != NONE and not group.sequences[index].count
        }
        for group in self.groups:
            for number in idle.intersection(group.outsiders):
                own = ranks[number]
                alike = (
                    member
                    for member in group.members
                    if member in ranks
                    and (ranks[member].graph, ranks[member].slots) == (own.graph, own.slots)
                )
                for member in alike:
                    originals.setdefault(number, member)
        return originals

    @cached_property
    def exchanged(self) -> Mapping[int, int]:
        """The ranks whose files name all groups of one other rank, which names all of theirs, and that rank."""
        outsiders = sorted({number for group in self.groups for number in group.outsiders})
        if len(outsiders) > _MOST_EXCHANGED:
            return {}
        named: dict[int, set[str]] = {number: set() for number in outsiders}
        listed: dict[int, set[str]] = {number: set() for number in outsiders}
        for group in self.groups:
            for number in outsiders:
                if number in group.members:
                    listed[number].add(group.name)
                    if group.find_sequence(number).count:
                        named[number].add(group.name)
                elif number in group.outsiders:
                    named[number].add(group.name)
        pairs = {
            number: [
                other
                for other in outsiders
                if (named[number], named[other]) == (listed[other], listed[number])
            ]
            for number in outsiders
        }
        return {number: others[0] for number, others in pairs.items() if len(others) == 1}

    def copy_words(self, numbers: Iterable[int]) -> str:
        """Return a sentence about those of some ranks whose file is another rank's, or a copy of it, "" where none is."""
        for number in numbers:
            if number in self.copied:
                other = self.copied[number]
                files = [self.rank_of[rank].file for rank in (number, other)]
                names = [f" ({file})" if file else "" for file in files]
                return (
                    f"The file of rank {number}{names[0]} is a copy of that of rank {other}{names[1]}: both hold the same in every "
                    "node, groups and messages alike."
                )
            if number in self.exchanged:
                pair = sorted((number, self.exchanged[number]))
                return f"The files of ranks {pair[0]} and {pair[1]} are exchanged: each names the groups of the other."
        return ""

    @cached_property
    def early(self) -> tuple[EarlyEnd, ...]:
        """The ranks whose recordings stop before those of the others."""
        return () if self.runs or self.moments else find_early_ends(self.trace, self.windows, self.groups)

    @cached_property
    def listed(self) -> Mapping[str, CommGroup]:
        """Comm groups with a list of members, by name."""
        return {group.name: group for group in self.trace.groups if not group.inferred}


@dataclass(frozen=True, slots=True)
class Where:
    """Nodes of several graphs.

    Attributes:
        ranks: Numbers of the ranks that have any, rising.
        nodes: The first of them.
        count: How many there are, each once for every rank.
        first: A rank's graph and the row there that come first, None where there is none.
    """

    ranks: tuple[int, ...]
    nodes: tuple[NodeAt, ...]
    count: int
    first: tuple[GraphCase, int] | None


def locate_nodes(cases: Iterable[tuple[GraphCase, Int64]]) -> Where:
    """Return nodes, given by rows, in the form findings use."""
    some = [(case, rows) for case, rows in cases if len(rows)]
    nodes = [NodeAt(case.ranks[0], row) for case, rows in some for row in rows[:NODES_NAMED].tolist()]
    ranks = sorted(number for case, _ in some for number in case.ranks)
    count = sum(len(rows) * len(case.ranks) for case, rows in some)
    first = (some[0][0], int(some[0][1][0])) if some else None
    return Where(tuple(ranks), tuple(nodes[:NODES_NAMED]), count, first)


def convert_places(trace: Trace, nodes: Iterable[tuple[int, int]]) -> Iterator[NodeAt]:
    """Yield nodes given by their rank's place in the trace and their row."""
    for at, row in nodes:
        yield NodeAt(trace.ranks[at].number, row)


def list_node_names(trace: Trace, diagnosis: Diagnosis) -> list[tuple[int, str]]:
    """Return the nodes of a diagnosis as addresses name them: rank and node."""
    graphs = {rank.number: trace.graph_of(rank) for rank in trace.ranks}
    return [(node.rank, format_node_ref(graphs[node.rank], node.row)) for node in diagnosis.nodes]
