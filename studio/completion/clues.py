"""Read from the known ranks of a job what tells about its mesh: comm groups, messages, and the size of the job."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from studio.analysis.job.completeness import infer_completeness, infer_size_by_groups
from studio.analysis.job.renumbered import share_graphs
from studio.analysis.job.spans import find_spans
from studio.completion.layout import Layout, with_members
from studio.completion.mesh import NAMES, Clue
from studio.completion.messages import Exchange, Told, find_message_clues
from studio.errors import ConfigError
from studio.trace import (
    GROUP_KEYS,
    NONE,
    PEER_KEYS,
    WORLD_NAMES,
    CollectiveType,
    CommGroup,
    Graph,
    Int64,
    NodeType,
    Rank,
    Trace,
    group_slots,
    read_dense_column,
    read_int_column,
)
from studio.units import format_counted

_BY_TEXT = (
    ("dp", r"data.?parallel|fsdp|replica|shard|(^|[^a-z])d?dp([^a-z]|$)"),
    ("pp", r"pipeline|(^|[^a-z])(pp|pipe)([^a-z]|$)"),
    ("ep", r"expert|moe|(^|[^a-z])ep([^a-z]|$)"),
    ("cp", r"context|(^|[^a-z])cp([^a-z]|$)"),
    ("sp", r"sequence|(^|[^a-z])sp([^a-z]|$)"),
    # Last: frameworks call the groups of other dimensions "model parallel" too, with a word more.
    ("tp", r"tensor|(^|[^a-z])(tp|mp|model)([^a-z]|$)"),
)
_TEXTS = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in _BY_TEXT)
_WEIGHTS = re.compile(r"grad|weight|param|ddp|reducer|fsdp|optim|bucket|zero", re.IGNORECASE)
"""Words in the names of nodes that exchange gradients or weights rather than activations."""

_BACKWARD = re.compile(r"autograd::engine|Optimizer\.|Backward0|loss\.backward")
"""Names that only recordings of training have."""


@dataclass(frozen=True, slots=True)
class GroupUse:
    """How a known rank uses a comm group.

    Attributes:
        rank: The rank.
        name: The group's name.
        slots: Slots of the rank's graph that name it.
        members: Its members; empty where they are not known.
        count: Collectives.
        likely: The dimension it seems to belong to.
        weight: How sure that is.
        why: The evidence, in words.
    """

    rank: int
    name: str
    slots: tuple[int, ...]
    members: tuple[int, ...]
    count: int
    likely: str
    weight: float
    why: str


@dataclass(frozen=True, slots=True)
class Known:
    """Facts of a job with missing ranks by which its layout is inferred.

    Attributes:
        trace: The job.
        groups: The comm groups whose members are listed, by name.
        uses: How the known ranks use groups of more than one member.
        steps: (rank, peer) of messages, each once.
        world: Ranks of the job; 0 where nothing says how many.
        clues: What tells about the mesh.
    """

    trace: Trace
    groups: Mapping[str, CommGroup]
    uses: tuple[GroupUse, ...]
    steps: tuple[tuple[int, int], ...]
    world: int
    clues: tuple[Clue, ...] = field(default=())

    @property
    def unlisted(self) -> tuple[GroupUse, ...]:
        """Uses of groups whose members are not known."""
        return tuple(use for use in self.uses if not use.members)

    def unlisted_by_rank(self) -> dict[int, list[GroupUse]]:
        """Return `unlisted` of each rank that has any."""
        by_rank: dict[int, list[GroupUse]] = {}
        for use in self.unlisted:
            by_rank.setdefault(use.rank, []).append(use)
        return by_rank


def collect_facts(trace: Trace, given: Layout | None = None) -> Known:
    """Return what a job tells about its mesh.

    Args:
        trace: The job.
        given: A layout that lists members of comm groups which the job does not list.

    Raises:
        ConfigError: A group's members fit no mesh, or the layout contradicts the job's list; names them.
    """
    # Groups that a layout adds are few of the job's: they do not tell how many ranks there are.
    world = _infer_world(trace, {group.name: group for group in trace.groups if not group.inferred})
    trace = with_members(trace, given) if given else trace
    groups = {group.name: group for group in trace.groups if not group.inferred}
    shared = share_graphs(trace)
    graphs = [_Slots(graph) for graph in shared.graphs]
    uses = tuple(use for rank in shared.ranks for use in graphs[rank.graph].uses(rank, groups))
    steps = tuple(sorted({step for rank in shared.ranks for step in graphs[rank.graph].steps(rank)}))
    exchanges = tuple(exchange for rank in shared.ranks for exchange in graphs[rank.graph].exchanges(rank))
    trains = any(_BACKWARD.search(text) for graph in shared.graphs for text in graph.strings)
    clues = (
        *_iterate_group_clues(uses, world, trains=trains),
        *find_message_clues(exchanges, _read_dimensions(exchanges, trace, groups)),
    )
    return Known(trace, groups, uses, steps, world, clues)


def _infer_world(trace: Trace, groups: Mapping[str, CommGroup]) -> int:
    """Return the number of ranks of the job, from its files, else from its groups and known ranks; 0 where unknown."""
    job = infer_completeness(trace)
    if job.file_world > 0:
        return job.file_world
    count = infer_size_by_groups(groups.values(), job.known)
    return 0 if count == len(job.known) else count


def iterate_slots(graph: Graph) -> Iterator[tuple[int, str, Int64]]:
    """Yield every slot of a graph with its attribute's name and the rows that use it."""
    where = np.flatnonzero(graph.attrs.slot)
    rows = np.searchsorted(graph.attrs.offsets, where, side="right") - 1
    numbers = graph.attrs.value[where]
    for slot in range(len(graph.slot_key)):
        yield slot, graph.strings[int(graph.slot_key[slot])], rows[numbers == slot]


def list_slot_keys(trace: Trace) -> list[tuple[str, ...]]:
    """Return for each graph of a job the attribute that each of its slots belongs to."""
    return [tuple(graph.strings[code] for code in graph.slot_key.tolist()) for graph in trace.graphs]


class _Slots:
    """What the slots of a graph are used for: found once for all ranks of the graph, which fill them with names of their own."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        every = list(iterate_slots(graph))
        collectives = graph.type == NodeType.COMM_COLL
        self._groups = [
            (slot, rows[collectives[rows]])
            for slot, key, rows in every
            if key in GROUP_KEYS and collectives[rows].any()
        ]
        self._peers = [slot for slot, key, rows in every if key in PEER_KEYS and len(rows)]
        self._messages = list(_iterate_messages(graph, every))
        nodes, kinds = read_int_column(graph, "comm_type")
        self._kinds: dict[int, int] = dict(zip(nodes.tolist(), kinds.tolist(), strict=True))
        self._rows = dict(self._groups)
        self._carried: dict[tuple[int, ...], tuple[int, tuple[str, float, str]]] = {}

    def uses(self, rank: Rank, groups: Mapping[str, CommGroup]) -> Iterator[GroupUse]:
        """Yield how a rank of the graph uses groups of more than one member."""
        slots_of: dict[str, list[int]] = {}
        for slot, _ in self._groups:
            slots_of.setdefault(str(rank.slots[slot]), []).append(slot)
        described = _read_descriptions(rank)
        for name, slots in slots_of.items():
            listed = groups.get(name)
            if (listed is None and name in WORLD_NAMES) or (listed is not None and len(listed.ranks) < 2):
                continue
            members = listed.ranks if listed else ()
            count, carried = self._measure_content(tuple(slots))
            likely, weight, why = _infer_from_text(name, described.get(name, "")) or carried
            yield GroupUse(rank.number, name, tuple(slots), members, count, likely, weight, why)

    def steps(self, rank: Rank) -> Iterator[tuple[int, int]]:
        """Yield (rank, peer) of the messages of a rank of the graph."""
        for slot in self._peers:
            value = rank.slots[slot]
            if isinstance(value, int):
                yield rank.number, value

    def exchanges(self, rank: Rank) -> Iterator[Exchange]:
        """Yield the messages of a rank of the graph, by peer, way and group."""
        for peer, is_sent, group, count, size in self._messages:
            value = rank.slots[peer]
            if isinstance(value, int):
                name = str(rank.slots[group]) if group != NONE else ""
                yield Exchange(rank.number, value, is_sent, name, count, size)

    def _measure_content(self, slots: tuple[int, ...]) -> tuple[int, tuple[str, float, str]]:
        """Return how many collectives the slots' group has, and the dimension it seems to belong to by what they carry."""
        if slots not in self._carried:
            rows = np.concatenate([self._rows[slot] for slot in slots])
            self._carried[slots] = len(rows), _infer_from_content(self._graph, rows, self._kinds)
        return self._carried[slots]


def _iterate_messages(
    graph: Graph, slots: Sequence[tuple[int, str, Int64]]
) -> Iterator[tuple[int, bool, int, int, int]]:
    """Yield of the messages of a graph: slot of the peer, whether they are sent, slot of the group (-1 for none), count, bytes."""
    group, size = group_slots(graph), read_dense_column(graph, "comm_size", 0)
    for slot, key, rows in slots:
        sent, received = graph.type[rows] == NodeType.COMM_SEND, graph.type[rows] == NodeType.COMM_RECV
        for is_sent, side_rows in ((True, rows[sent]), (False, rows[received])):
            if key == ("comm_dst" if is_sent else "comm_src"):
                for number in dict.fromkeys(group[side_rows].tolist()):
                    group_rows = side_rows[group[side_rows] == number]
                    yield slot, is_sent, number, len(group_rows), int(size[group_rows].sum())


def _read_descriptions(rank: Rank) -> Mapping[str, str]:
    """Return what a recording says each process group is for, by name: PyTorch's `pg_desc`."""
    text = rank.metadata_value("process_groups")
    return _parse_descriptions(text) if isinstance(text, str) else {}


@lru_cache(maxsize=4)
def _parse_descriptions(text: str) -> Mapping[str, str]:
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    listed = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return {str(entry.get("pg_name")): str(entry.get("pg_desc", "")) for entry in listed}


@lru_cache(maxsize=1 << 12)
def _infer_from_text(name: str, description: str) -> tuple[str, float, str] | None:
    """Return the dimension that a group's name or description tells, how sure that is, and why; None where neither does."""
    for text, how in ((name, "named"), (description, "described as")):
        for short, pattern in _TEXTS:
            if pattern.search(text):
                return short, 4.0, f"{how} {text!r}"
    return None


def _infer_from_content(graph: Graph, rows: Int64, kinds: Mapping[int, int]) -> tuple[str, float, str]:
    """Return the dimension that a group seems to belong to by what its collectives carry, how sure that is, and why."""
    kind_counts = Counter(kinds.get(row, -1) for row in rows.tolist())
    words = ", ".join(f"{count:,} {_format_kind(kind)}" for kind, count in kind_counts.most_common(3))
    if kind_counts[int(CollectiveType.ALL_TO_ALL)] * 2 > len(rows):
        return "ep", 3.0, words
    named = [graph.strings[code] for code in graph.name[rows].tolist()]
    weights = sum(bool(_WEIGHTS.search(text)) for text in named)
    if weights * 2 >= len(rows):
        return "dp", 2.0 + weights / len(rows), f"{words}, of gradients or weights by their names"
    return "tp", 1.0 + len(rows) * 1e-9, words


def _format_kind(kind: int) -> str:
    try:
        return CollectiveType(kind).name.replace("_", "-").lower()
    except ValueError:
        return "collectives"


def _iterate_group_clues(uses: tuple[GroupUse, ...], world: int, *, trains: bool) -> Iterator[Clue]:
    """Yield what groups tell about the mesh: each once, though all its members say it."""
    seen = set[tuple[str, str, str, float]]()
    for use in uses:
        what = use.name, use.why, use.likely, use.weight
        if not use.members or what in seen:
            continue
        seen.add(what)
        spans = find_spans(use.members)
        words = f"group {use.name} of ranks {_format_members(use.members)} ({use.why})"
        if spans is None or (world and max(use.members) >= world):
            raise ConfigError(
                f"{words}: its ranks fit no mesh{f' of {world:,} ranks' if world else ''}",
                hint="Ranks of a mesh are numbered evenly along each dimension. Record all ranks of such a job.",
            )
        if world and len(use.members) == world:
            # It tells no more than how many ranks there are, unless it is the only one. Who trains with one group of all
            # ranks most likely exchanges gradients.
            likely = "dp" if use.weight < 2 and trains else use.likely
            yield Clue(words, spans, likely, use.weight - 10)
        else:
            yield Clue(words, spans, use.likely, use.weight)


def _read_dimensions(
    exchanges: tuple[Exchange, ...], trace: Trace, groups: Mapping[str, CommGroup]
) -> dict[str, Told]:
    """Return what the groups of messages say of the dimension they lie along, by name; only those that say something."""
    described: dict[str, str] = {}
    for rank in trace.ranks:
        described.update(_read_descriptions(rank))
    dimensions = {}
    for name in dict.fromkeys(exchange.group for exchange in exchanges):
        members = groups[name].ranks if name in groups else ()
        text = _infer_from_text(name, described.get(name, "")) if len(members) > 1 else None
        if text is not None and (spans := find_spans(members)) is not None:
            dimensions[name] = Told(
                text[0], text[2], f"group {name} of ranks {_format_members(members)}", spans
            )
    return dimensions


def _format_members(members: tuple[int, ...]) -> str:
    text = ", ".join(map(str, members[:4]))
    return text if len(members) <= 4 else f"{text}, … {members[-1]}"


def assign_unlisted_axes(known: Known, names: list[str], given: Mapping[str, str]) -> dict[str, str]:
    """Return which dimension each group without members belongs to, by what its collectives carry.

    Args:
        known: The job.
        names: Dimensions whose ranks may form groups: of more than one rank, and no pipeline.
        given: What a layout says of some, by name.

    Raises:
        ConfigError: There are more such groups than dimensions, or a given dimension has one rank only.
    """
    axis_of: dict[str, str] = {}
    alone = next((name for name, axis in given.items() if axis not in names), None)
    if alone is not None:
        raise ConfigError(
            f"layout: group {alone} lies along {given[alone]}; allowed: {', '.join(names) or 'none'}, which have several ranks"
        )
    for rank, own in known.unlisted_by_rank().items():
        own.sort(key=lambda use: (-use.weight, -use.count, use.name))
        free = [name for name in names if name not in {given[use.name] for use in own if use.name in given}]
        for use in own:
            if use.name in given:
                axis_of[use.name] = given[use.name]
                continue
            if not free:
                raise ConfigError(
                    f"rank {rank} communicates in {format_counted(len(own), 'group')} whose members are not known; the layout has "
                    f"{format_counted(len(names), 'dimension')} they could belong to ({', '.join(names) or 'none'})",
                    hint="Give the file of the comm groups, or a layout with a dimension for each, such as --layout tp=4,dp=8.",
                )
            chosen = use.likely if use.likely in free else free[0]
            free.remove(chosen)
            axis_of[use.name] = chosen
    return axis_of


def describe_dimension(name: str) -> str:
    """Return a dimension's name in words, with the short one.

    Example:
        >>> describe_dimension("tp")
        'tensor (tp)'
    """
    return f"{NAMES[name]} ({name})"
