"""Read from the known ranks of a job what tells about its mesh: comm groups, messages, and the size of the job."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from studio.analysis.job.completeness import completeness
from studio.completion.layout import Layout, with_members
from studio.completion.mesh import NAMES, PIPELINE, Clue, spans_of
from studio.errors import ConfigError
from studio.trace import (
    GROUP_KEYS,
    WORLD_NAMES,
    CollectiveType,
    CommGroup,
    Graph,
    Int64,
    NodeType,
    Rank,
    Trace,
    int_column,
)

PEER_KEYS = ("comm_src", "comm_dst")
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
    """What is known about a job of which ranks are missing.

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


def known_facts(trace: Trace, given: Layout | None = None) -> Known:
    """Return what a job tells about its mesh.

    Args:
        trace: The job.
        given: A layout that lists members of comm groups which the job does not list.

    Raises:
        ConfigError: A group's members fit no mesh, or the layout contradicts the job's list; names them.
    """
    # Groups that a layout adds are few of the job's: they do not tell how many ranks there are.
    world = _world(trace, {group.name: group for group in trace.groups if not group.inferred})
    trace = with_members(trace, given) if given else trace
    groups = {group.name: group for group in trace.groups if not group.inferred}
    uses = tuple(use for rank in trace.ranks for use in _uses(trace.graph_of(rank), rank, groups))
    steps = tuple(sorted({step for rank in trace.ranks for step in _steps(trace.graph_of(rank), rank)}))
    trains = any(_BACKWARD.search(text) for graph in trace.graphs for text in graph.strings)
    clues = (*_group_clues(uses, world, trains=trains), *_message_clues(steps))
    return Known(trace, groups, uses, steps, world, clues)


def _world(trace: Trace, groups: Mapping[str, CommGroup]) -> int:
    """Return how many ranks the job has: as its files say, else as many as its groups and known ranks number without a gap.

    Groups of one rank may number some of the others only, by chance without a gap: ranks 0 and 1, and 0 and 2, are no job of 3.
    """
    job = completeness(trace)
    if job.told > 0:
        return job.told
    named = {rank for group in groups.values() for rank in group.ranks}
    every = named | set(job.known)
    count = len(every)
    if not named or count != max(every) + 1 or count == len(job.known):
        return 0
    whole = any(len(group.ranks) == count for group in groups.values())
    return count if whole or all(_divides(group.ranks, count) for group in groups.values()) else 0


def _divides(members: Sequence[int], world: int) -> bool:
    """Whether a mesh of a number of ranks can have the dimensions along which the members of a group differ."""
    return all(world % (stride * size) == 0 for stride, size in spans_of(members) or ())


def slot_rows(graph: Graph) -> Iterator[tuple[int, str, Int64]]:
    """Yield every slot of a graph with its attribute's name and the rows that use it."""
    where = np.flatnonzero(graph.attrs.slot)
    rows = np.searchsorted(graph.attrs.offsets, where, side="right") - 1
    numbers = graph.attrs.value[where]
    for slot in range(len(graph.slot_key)):
        yield slot, graph.strings[int(graph.slot_key[slot])], rows[numbers == slot]


def _uses(graph: Graph, rank: Rank, groups: Mapping[str, CommGroup]) -> Iterator[GroupUse]:
    kinds = dict(zip(*(column.tolist() for column in int_column(graph, "comm_type")), strict=True))
    found: dict[str, list[tuple[int, Int64]]] = {}
    for slot, key, rows in slot_rows(graph):
        if key in GROUP_KEYS and (graph.type[rows] == NodeType.COMM_COLL).any():
            found.setdefault(str(rank.slots[slot]), []).append((slot, rows))
    described = _descriptions(rank)
    for name, parts in found.items():
        listed = groups.get(name)
        if (listed is None and name in WORLD_NAMES) or (listed is not None and len(listed.ranks) < 2):
            continue
        rows = np.concatenate([rows for _, rows in parts])
        likely, weight, why = _likely(graph, (name, described.get(name, "")), rows, kinds)
        members = listed.ranks if listed else ()
        yield GroupUse(
            rank.number, name, tuple(slot for slot, _ in parts), members, len(rows), likely, weight, why
        )


def _descriptions(rank: Rank) -> dict[str, str]:
    """Return what a recording says each process group is for, by name: PyTorch's `pg_desc`."""
    text = next((item.value for item in rank.metadata if item.name == "process_groups"), None)
    try:
        entries = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return {}
    listed = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return {str(entry.get("pg_name")): str(entry.get("pg_desc", "")) for entry in listed}


def _likely(
    graph: Graph, names: tuple[str, str], rows: Int64, kinds: Mapping[int, int]
) -> tuple[str, float, str]:
    """Return the dimension that a group seems to belong to, how sure that is, and why; by its name and description first."""
    for text, how in zip(names, ("named", "described as"), strict=True):
        for short, pattern in _TEXTS:
            if pattern.search(text):
                return short, 4.0, f"{how} {text!r}"
    told = Counter(kinds.get(row, -1) for row in rows.tolist())
    words = ", ".join(f"{count:,} {_kind_words(kind)}" for kind, count in told.most_common(3))
    if told[int(CollectiveType.ALL_TO_ALL)] * 2 > len(rows):
        return "ep", 3.0, words
    named = [graph.strings[code] for code in graph.name[rows].tolist()]
    weights = sum(bool(_WEIGHTS.search(text)) for text in named)
    if weights * 2 >= len(rows):
        return "dp", 2.0 + weights / len(rows), f"{words}, of gradients or weights by their names"
    return "tp", 1.0 + len(rows) * 1e-9, words


def _kind_words(kind: int) -> str:
    try:
        return CollectiveType(kind).name.replace("_", "-").lower()
    except ValueError:
        return "collectives"


def _group_clues(uses: tuple[GroupUse, ...], world: int, *, trains: bool) -> Iterator[Clue]:
    for use in uses:
        if not use.members:
            continue
        spans = spans_of(use.members)
        words = f"group {use.name} of ranks {_listed(use.members)} ({use.why})"
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


def _message_clues(steps: tuple[tuple[int, int], ...]) -> Iterator[Clue]:
    """Yield the distance of neighbouring stages: the least of those over which messages go."""
    distances = {abs(peer - rank): (rank, peer) for rank, peer in reversed(steps) if peer != rank}
    if distances:
        least = min(distances)
        rank, peer = distances[least]
        yield Clue(f"messages between rank {rank} and rank {peer}", ((least, 0),), PIPELINE, 5.0)


def _steps(graph: Graph, rank: Rank) -> Iterator[tuple[int, int]]:
    for slot, key, rows in slot_rows(graph):
        value = rank.slots[slot]
        if key in PEER_KEYS and len(rows) and isinstance(value, int):
            yield rank.number, value


def _listed(members: tuple[int, ...]) -> str:
    text = ", ".join(map(str, members[:4]))
    return text if len(members) <= 4 else f"{text}, … {members[-1]}"


def axes_of_unlisted(known: Known, names: list[str], given: Mapping[str, str]) -> dict[str, str]:
    """Return which dimension each group without members belongs to, by what its collectives carry.

    Args:
        known: The job.
        names: Dimensions whose ranks may form groups: of more than one rank, and no pipeline.
        given: What a layout says of some, by name.

    Raises:
        ConfigError: There are more such groups than dimensions, or a given dimension has one rank only.
    """
    found: dict[str, str] = {}
    alone = next((name for name, axis in given.items() if axis not in names), None)
    if alone is not None:
        raise ConfigError(
            f"layout: group {alone} lies along {given[alone]}; allowed: {', '.join(names) or 'none'}, which have several ranks"
        )
    for rank in dict.fromkeys(use.rank for use in known.unlisted):
        own = [use for use in known.unlisted if use.rank == rank]
        own.sort(key=lambda use: (-use.weight, -use.count, use.name))
        free = [name for name in names if name not in {given[use.name] for use in own if use.name in given}]
        for use in own:
            if use.name in given:
                found[use.name] = given[use.name]
                continue
            if not free:
                raise ConfigError(
                    f"rank {rank} communicates in {len(own)} groups whose members are not known; the layout has "
                    f"{len(names)} dimensions they could belong to ({', '.join(names) or 'none'})",
                    hint="Give the file of the comm groups, or a layout with a dimension for each, such as --layout tp=4,dp=8.",
                )
            chosen = use.likely if use.likely in free else free[0]
            free.remove(chosen)
            found[use.name] = chosen
    return found


def dimension_words(name: str) -> str:
    """Return a dimension's name in words, with the short one.

    Example:
        >>> dimension_words("tp")
        'tensor (tp)'
    """
    return f"{NAMES[name]} ({name})"
