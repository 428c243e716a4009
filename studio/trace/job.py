"""Comm groups, ranks, and the trace of all ranks of one job."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from operator import index as to_index

import numpy as np

from studio.errors import TraceError
from studio.notebook import build_html_table, format_parts, format_record, format_tuple_exactly
from studio.trace.attributes import Attribute
from studio.trace.graph import Graph, compute_digest
from studio.trace.node_kinds import get_shown_types
from studio.trace.vocabulary import (
    ASSUMED,
    ASSUMED_STAGE,
    DEVICE_NAME,
    GENERATED,
    NONE,
    RANK_NAMES,
    UNRECORDED_CALLS,
    WORLD,
    WORLD_NAMES,
    Level,
    NodeType,
    Value,
    ValueKind,
    type_name,
)
from studio.units import format_counted


def compute_trace_digest(trace: Trace) -> str:
    """Return a fingerprint of a trace, equal for equal traces on any machine."""
    ranks, groups = trace.essence()
    # In full, whatever a line shows: what is cut off may be all that differs.
    text = f"({ranks!r}, {format_tuple_exactly(groups)})"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class CommGroup:
    """Ranks that communicate together, in ring order.

    Attributes:
        name: The name nodes refer to it by (`pg_name`).
        ranks: Rank numbers.
        inferred: Whether the members were derived from the nodes for lack of a written list.
    """

    name: str
    ranks: tuple[int, ...]
    inferred: bool = False

    __repr__ = format_record


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem that the reader noticed and the user should know.

    Attributes:
        level: How bad: `error` lost data, `warning` may mislead, `info` is worth knowing.
        code: Stable short name, e.g. `truncated`.
        message: What was found and where.
        hint: What to do about it.
        rank: The rank concerned, None for the job as a whole.
        file: Name of the file, empty where none is concerned.
        offset: Byte offset in the (uncompressed) file, -1 where there is none.
    """

    level: Level
    code: str
    message: str
    hint: str = ""
    rank: int | None = None
    file: str = ""
    offset: int = NONE

    __repr__ = format_record

    def _repr_html_(self) -> str:
        """Return it as a table."""
        where = "" if self.rank is None else f" of rank {self.rank}"
        rows = [("what", self.message), *([("advice", self.hint)] if self.hint else [])]
        return build_html_table(f"{self.level} {self.code}{where}", (), rows)


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank of the job.

    Attributes:
        number: The rank's number.
        graph: Index into `Trace.graphs`.
        slots: The rank's values for its graph's slots.
        version: Schema version its file names.
        metadata: Attributes of the file's metadata record.
        extra: Fields of the metadata record this version does not know, as bytes.
        file: Name of the file it was read from.

    Example:
        >>> import studio
        >>> trace = studio.read(studio.sample_path("transformer_8r"))
        >>> rank = trace.rank(3)
        >>> len(studio.to_pandas(trace, rank)) == len(trace.graph_of(rank))
        True
    """

    number: int
    graph: int
    slots: tuple[int | str, ...] = ()
    version: str = ""
    metadata: tuple[Attribute, ...] = ()
    extra: bytes = b""
    file: str = ""

    __repr__ = format_record

    def metadata_value(self, name: str, missing: Value = None) -> Value:
        """Return the first value of this name in the metadata; `missing` where there is none.

        Example:
            >>> import studio
            >>> trace = studio.read(studio.sample_path("transformer_8r"))
            >>> trace.ranks[0].metadata_value("schema", "none said")
            'chakra-studio-sample'
        """
        return next((item.value for item in self.metadata if item.name == name), missing)

    @property
    def lacks_calls(self) -> bool:
        """Whether its recording lacks some of its collectives, or has some without a time.

        Example:
            >>> import studio
            >>> studio.read(studio.sample_path("transformer_8r")).ranks[0].lacks_calls
            False
        """
        return self.metadata_number(UNRECORDED_CALLS) > 0

    def metadata_number(self, name: str) -> int:
        """Return a whole number from the metadata, -1 where there is none of that name.

        Example:
            >>> import studio
            >>> trace = studio.read(studio.sample_path("transformer_8r"))
            >>> trace.ranks[0].metadata_number("no such name")
            -1
        """
        value = self.metadata_value(name)
        return value if isinstance(value, int) else NONE


_BESIDE_PLACE = attrgetter(*(spec.name for spec in fields(Rank) if spec.name not in ("number", "graph")))


def get_rank_number(rank: Rank | int) -> int:
    """Return the number of a rank, given itself or by number, whatever type of whole number that is.

    Raises:
        TraceError: It is neither.

    Example:
        >>> get_rank_number(3)
        3
    """
    if isinstance(rank, Rank):
        return rank.number
    try:
        return to_index(rank)
    except TypeError:
        raise TraceError(
            f"A rank is {rank!r:.80}; allowed: a whole number, or a Rank of the trace.",
            hint="Name it by its number, such as 0, or take it from `trace.ranks`.",
        ) from None


def place_rank(rank: Rank, number: int, graph: int) -> Rank:
    """Return a rank with another number and another graph, which come first among its fields; there may be thousands."""
    return Rank(number, graph, *_BESIDE_PLACE(rank))


def copy_metadata(like: Rank, number: int, source: int | None) -> tuple[Attribute, ...]:
    """Return the metadata of a rank that has the graph of another one.

    Args:
        like: The other rank.
        number: The rank's own number.
        source: The rank whose recording it repeats, None where it was recorded itself.
    """
    kept = tuple(
        replace(item, value=str(number) if isinstance(item.value, str) else number)
        if item.name in RANK_NAMES
        else item
        for item in like.metadata
        if item.name != ASSUMED and (item.name != ASSUMED_STAGE or source is not None)
    )
    return kept if source is None else (*kept, Attribute(ASSUMED, ValueKind.INT64, source))


def is_generated(rank: Rank) -> bool:
    """Return whether a rank was generated, so that its durations are of no recording."""
    return any(item.name == GENERATED for item in rank.metadata)


def get_assumed_source(rank: Rank) -> int | None:
    """Return the rank whose recording a rank repeats; None where it was recorded itself."""
    value = rank.metadata_value(ASSUMED)
    return value if isinstance(value, int) else None


def describe_assumed_stage(rank: Rank) -> str:
    """Return how the pipeline stage of a rank was built where no rank of it was recorded; "" where one was."""
    return str(rank.metadata_value(ASSUMED_STAGE, ""))


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Trace:
    """Execution traces of all ranks of one job. Immutable; passes return a new Trace.

    Attributes:
        graphs: The distinct graphs.
        ranks: The ranks present, by rising number.
        groups: Comm groups, in the order of their file, inferred ones last.
        findings: What the reader noticed.

    Example:
        >>> import studio
        >>> trace = studio.read(studio.sample_path("transformer_8r"))
        >>> trace
        Trace(8 ranks, 8 graphs, 2,488 nodes, 13 comm groups, 0 findings)
        >>> trace.graph_of(3)
        Graph(297 nodes, 708 dependencies, 2,080 attributes)
    """

    graphs: tuple[Graph, ...]
    ranks: tuple[Rank, ...]
    groups: tuple[CommGroup, ...] = ()
    findings: tuple[Finding, ...] = field(default=(), compare=False)

    def graph_of(self, rank: Rank | int) -> Graph:
        """Return the graph of a rank, given itself or by number.

        Raises:
            TraceError: There is no such rank.

        Example:
            >>> import studio
            >>> trace = studio.read(studio.sample_path("transformer_8r"))
            >>> trace.graph_of(3) is trace.graph_of(trace.ranks[3])
            True
        """
        here = rank if isinstance(rank, Rank) and rank.graph < len(self.graphs) else self.known_rank(rank)
        return self.graphs[here.graph]

    def rank(self, number: Rank | int) -> Rank | None:
        """Return rank `number`, None where the job has no such rank.

        Example:
            >>> import studio
            >>> trace = studio.read(studio.sample_path("transformer_8r"))
            >>> trace.rank(3).number, trace.rank(99)
            (3, None)
        """
        wanted = get_rank_number(number)
        return next((rank for rank in self.ranks if rank.number == wanted), None)

    def known_rank(self, rank: Rank | int) -> Rank:
        """Return a rank, given itself or by number.

        Raises:
            TraceError: There is no such rank.

        Example:
            >>> import studio
            >>> trace = studio.read(studio.sample_path("transformer_8r"))
            >>> trace.known_rank(3) is trace.known_rank(trace.ranks[3])
            True
        """
        match = self.rank(rank)
        if match is None:
            listed = ", ".join(str(known.number) for known in self.ranks[:8])
            raise TraceError(
                f"The trace has no rank {get_rank_number(rank)}.",
                hint=f"Its ranks are {listed}{', …' if len(self.ranks) > 8 else ''}.",
            )
        return match

    def count_ranks(self) -> list[int]:
        """Return how many ranks have each graph.

        Example:
            >>> import studio
            >>> trace = studio.read(studio.sample_path("transformer_8r"))
            >>> sum(trace.count_ranks()) == len(trace.ranks)
            True
        """
        counts: list[int] = np.bincount(
            [rank.graph for rank in self.ranks], minlength=len(self.graphs)
        ).tolist()
        return counts

    def group(self, name: str | None) -> CommGroup | None:
        """Return the listed comm group of a name, None where there is none.

        Example:
            >>> import studio
            >>> trace = studio.read(studio.sample_path("transformer_8r"))
            >>> trace.group("tp0")
            CommGroup(name='tp0', ranks=(0, 1), inferred=False)
        """
        return next((group for group in self.groups if group.name == name), None)

    def __repr__(self) -> str:
        """Return it in a line."""
        counts = {
            "rank": len(self.ranks),
            "graph": len(self.graphs),
            "node": self.node_count,
            "comm group": len(self.groups),
            "finding": len(self.findings),
        }
        return format_parts("Trace", [format_counted(count, what) for what, count in counts.items()])

    def _repr_html_(self) -> str:
        """Return its ranks, types of nodes, and findings as tables."""
        uses = Counter(rank.graph for rank in self.ranks)
        types: Counter[str] = Counter()
        for index, ranks in uses.items():
            graph = self.graphs[index]
            gaps = graph.rows_with("gap")[0]
            gaps = gaps[graph.type[gaps] == NodeType.COMP]
            # Time in which nothing ran is written as compute: counted as such it would contradict every other account.
            types["gap"] += len(gaps) * ranks
            numbers, counts = np.unique(np.delete(get_shown_types(graph), gaps), return_counts=True)
            for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
                types[type_name(number)] += count * ranks
        ranks_of = [(rank.number, len(self.graphs[rank.graph]), rank.graph, rank.file) for rank in self.ranks]
        findings = [(finding.level, finding.code, finding.message) for finding in self.findings]
        return (
            build_html_table(
                repr(self),
                ("type", "nodes"),
                [(kind, count) for kind, count in types.most_common() if count],
            )
            + build_html_table("Ranks", ("rank", "nodes", "graph", "file"), ranks_of)
            + (
                build_html_table("Findings of the readers", ("level", "code", "message"), findings)
                if findings
                else ""
            )
        )

    @property
    def node_count(self) -> int:
        """Nodes of all ranks; shared graphs count once per rank.

        Example:
            >>> import studio
            >>> trace = studio.read(studio.sample_path("transformer_8r"))
            >>> trace.node_count == sum(len(trace.graph_of(rank)) for rank in trace.ranks)
            True
        """
        sizes = [len(g) for g in self.graphs]
        return sum(sizes[r.graph] for r in self.ranks)

    def __eq__(self, other: object) -> bool:
        """Equal where ranks, groups and every column agree; files and findings do not count."""
        if not isinstance(other, Trace):
            return NotImplemented
        return self.essence() == other.essence()

    def __hash__(self) -> int:
        return hash(self.essence())

    def essence(self) -> tuple[tuple[object, ...], tuple[CommGroup, ...]]:
        """Return what makes traces equal: ranks, graph fingerprints, and comm groups.

        Example:
            >>> import studio
            >>> trace = studio.read(studio.sample_path("transformer_8r"))
            >>> trace.essence() == studio.read(studio.sample_path("transformer_8r")).essence()
            True
        """
        marks = [compute_digest(g) for g in self.graphs]
        ranks = tuple(
            (r.number, marks[r.graph], r.slots, r.version, format_tuple_exactly(r.metadata), r.extra)
            for r in self.ranks
        )
        return ranks, self.groups


def list_world_names(groups: Iterable[CommGroup], numbers: Iterable[int]) -> frozenset[str]:
    """Return the names that mean all ranks: "0" does, unless a list gives it other members.

    Args:
        groups: The comm groups that are listed.
        numbers: The numbers of all ranks.
    """
    zero = next((group for group in groups if group.name == "0"), None)
    own = zero is not None and not zero.inferred and set(zero.ranks) != set(numbers)
    return frozenset({WORLD} if own else WORLD_NAMES)


def list_recorded_devices(trace: Trace) -> tuple[str, ...]:
    """Return the names of the devices that the ranks of a job were recorded on, those of most ranks first."""
    named = Counter(
        item.value
        for rank in trace.ranks
        for item in rank.metadata
        if item.name == DEVICE_NAME and isinstance(item.value, str) and item.value
    )
    return tuple(name for name, _ in named.most_common())


def without_starts(trace: Trace) -> Trace:
    """Return a job without the times at which its nodes began; how long they took stays.

    Of a job that never ran only a simulation says when nodes begin.
    """
    graphs = (replace(graph, start_ns=np.full_like(graph.start_ns, NONE)) for graph in trace.graphs)
    return replace(trace, graphs=tuple(graphs))
