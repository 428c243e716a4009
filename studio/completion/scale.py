"""Scale a job: the same program on more data-parallel replicas.

Every rank of the larger job gets the graph of the rank of the smaller one that has its place in all other dimensions of the mesh.
What changes with the number of replicas is one row each in `RULES`; all else is copied. Scaling is weak: every replica does the
work of one of before, so that the batch grows with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from studio.completion.clues import PEER_KEYS, known_facts, slot_rows
from studio.completion.complete import chosen_mesh, refuse_unmatched
from studio.completion.mesh import NAMES, Axis, Mesh
from studio.errors import ConfigError, TraceError
from studio.trace import (
    GROUP_KEYS,
    WORLD_NAMES,
    Attribute,
    Bool,
    CollectiveType,
    CommGroup,
    Finding,
    Graph,
    Int64,
    NodeType,
    Rank,
    Trace,
    ValueKind,
    assumed_from,
    copied_metadata,
    int_column,
)

DATA = "dp"
SCALED = "scaled_from"
"""Metadata of a rank of a scaled job: the layouts before and after."""
_MOST_RANKS = 1 << 20


@dataclass(frozen=True, slots=True)
class Rule:
    """What becomes of one kind of node when there are more replicas.

    Attributes:
        about: The nodes, in words.
        change: What becomes of them.
        why: Where that comes from.
    """

    about: str
    change: str
    why: str


RULES = (
    Rule("all-reduce of the data dimension", "size stays", "every replica holds all gradients of its shard of the model"),
    Rule("reduce-scatter of the data dimension", "size stays", "its size is the whole buffer, of which each rank keeps a part"),
    Rule("all-gather of the data dimension", "size is divided", "its size is one rank's part of weights that all replicas share (ZeRO, Rajbhandari et al., SC 2020)"),
    Rule("compute on a part that a reduce-scatter of the data dimension left", "operations, bytes and duration are divided", "an optimizer works on its own part of the weights (ZeRO)"),
    Rule("all other nodes", "stay", "a replica does the same work on its own samples: weak scaling"),
)  # fmt: skip
"""What scaling changes."""
_EXCUSES: Mapping[str, str] = {
    "tp": "a trace does not say along which side operators split",
    "sp": "a trace does not say how operators divide the sequence",
    "cp": "a trace does not say how operators divide the context",
    "ep": "sizes of its all-to-alls follow from routing, which a trace does not hold",
    "pp": "a trace does not tell its layers apart",
}


def scale(
    trace: Trace, *, dp: int | None = None, ranks: int | None = None, layout: str | None = None
) -> Trace:
    """Return the job with another number of data-parallel replicas.

    Args:
        trace: A whole job.
        dp: Replicas, a multiple of those there are.
        ranks: Ranks of the larger job, in place of `dp`.
        layout: The mesh of the job as it is; None infers it.

    Raises:
        ConfigError: The numbers do not fit the job's mesh, or sizes do not divide.
        TraceError: Ranks are missing.

    Example:
        >>> import studio
        >>> scale(studio.read(studio.sample_path("transformer_8r")), dp=8).groups[0].name != ""
        True
    """
    known = known_facts(trace)
    mesh = chosen_mesh(known, layout, None, first=True)
    refuse_missing(trace, mesh)
    return scale_to(trace, mesh, scaled_mesh(mesh, dp=dp, ranks=ranks))


def refuse_missing(trace: Trace, mesh: Mesh) -> None:
    """Raise an error where ranks of a job are not known.

    Raises:
        TraceError: Ranks are missing.
    """
    if len(trace.ranks) != mesh.world:
        raise TraceError(
            f"{len(trace.ranks):,} of {mesh.world:,} ranks are known.",
            hint="Complete the job first: `chakra-studio complete`.",
        )


def scaled_mesh(mesh: Mesh, *, dp: int | None = None, ranks: int | None = None) -> Mesh:
    """Return the mesh with another number of replicas; a job without replicas gets them as its outermost dimension.

    Raises:
        ConfigError: The number is no multiple of what there is, or makes too many ranks.

    Example:
        >>> scaled_mesh(Mesh.of([("dp", 2), ("tp", 4)]), ranks=64).layout
        'dp=16,tp=4'
    """
    data = mesh.axis(DATA)
    size = data.size if data else 1
    rest = mesh.world // size
    if (dp is None) == (ranks is None):
        raise ConfigError("both or none of dp and ranks are given; allowed: one of them")
    if ranks is not None:
        if ranks % rest:
            raise ConfigError(
                f"ranks is {ranks:,}; allowed: a multiple of {rest:,}, the ranks of a replica ({mesh.layout})"
            )
        dp = ranks // rest
    assert dp is not None
    if dp < 1 or dp % size or dp * rest > _MOST_RANKS:
        raise ConfigError(
            f"dp is {dp:,}; allowed: a multiple of {size}, up to {_MOST_RANKS // rest:,}",
            hint=f"The job has the layout {mesh.layout}; only more replicas of what is known can be made.",
        )
    sizes = [(axis.name, dp if axis.name == DATA else axis.size) for axis in mesh.axes]
    return Mesh.of(sizes if data else [*sizes, (DATA, dp)])


def excuse(name: str) -> str:
    """Return why a dimension cannot be scaled."""
    return _EXCUSES[name]


def refuse_dimension(name: str) -> ConfigError:
    """Return the error for a dimension that cannot be scaled."""
    return ConfigError(
        f"the {NAMES[name]} dimension ({name}) cannot be scaled: {_EXCUSES[name]}; allowed: dp",
        hint="Record the job with that layout, or scale its replicas by --dp.",
    )


@dataclass(slots=True)
class _Scaling:
    """The groups of the larger job, made when first asked for.

    Attributes:
        before, after: The meshes.
        listed: The groups of the smaller job.
        made: Those of the larger one, by their dimensions, which of several alike they are, and their first rank.
        names: Their names.
    """

    before: Mesh
    after: Mesh
    listed: Mapping[str, CommGroup]
    made: dict[tuple[tuple[str, ...], int, int], CommGroup] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    spans: dict[str, tuple[str, ...]] = field(default_factory=dict)
    numbers: dict[tuple[int, ...], list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for group in self.listed.values():
            self.numbers.setdefault(tuple(sorted(group.ranks)), []).append(group.name)

    def axes_of(self, name: str) -> tuple[str, ...]:
        """Return the dimensions along which the members of a group differ.

        Raises:
            ConfigError: It holds some of the ranks along a dimension only.
        """
        if name not in self.spans:
            ranks = self.listed[name].ranks
            spanned = [axis for axis in self.before.axes if len({axis.place(rank) for rank in ranks}) > 1]
            if len(ranks) != int(np.prod([axis.size for axis in spanned], dtype=np.int64)):
                raise ConfigError(
                    f"group {name} of {len(ranks)} ranks does not hold all ranks along its dimensions ({self.before.layout})",
                    hint="A job with such groups cannot be scaled.",
                )
            self.spans[name] = tuple(axis.name for axis in spanned)
        return self.spans[name]

    def group(self, name: str, rank: int) -> str:
        """Return the group of a rank of the larger job that has the role of an old one."""
        axes = self.axes_of(name)
        moving = [axis for axis in self.after.axes if axis.name in axes]
        first = rank - sum(axis.place(rank) * axis.stride for axis in moving)
        number = self.numbers[tuple(sorted(self.listed[name].ranks))].index(name)
        key = axes, number, first
        if key not in self.made:
            old = self.listed[name].name
            fresh = str(len(self.made) + 1) if old.isdecimal() else f"{old.partition('@')[0]}@{first}"
            while fresh in self.names:
                fresh += "'"
            self.names.add(fresh)
            self.made[key] = CommGroup(fresh, _ranks_along(moving, first))
        return self.made[key].name


def _ranks_along(axes: Sequence[Axis], first: int) -> tuple[int, ...]:
    """Return the ranks that differ from the first in some dimensions only."""
    ranks = np.array([first])
    for axis in axes:
        ranks = (ranks[None, :] + np.arange(axis.size)[:, None] * axis.stride).ravel()
    return tuple(ranks.tolist())


def scale_to(trace: Trace, before: Mesh, after: Mesh) -> Trace:
    """Return a whole job, of one mesh, on another that has more replicas (`scaled_mesh`).

    Raises:
        ConfigError: A group holds some of the ranks along a dimension only, or sizes do not divide.
    """
    by_number = {rank.number: rank for rank in trace.ranks}
    listed = {group.name: group for group in trace.groups}
    scaling = _Scaling(before, after, listed)
    factor = after.world // before.world
    graphs: dict[int, Graph] = {}
    ranks, made_of = [], f"{before.layout} → {after.layout}"
    for number in range(after.world):
        source = by_number[_source(before, after, number)]
        graph = trace.graph_of(source)
        if source.graph not in graphs:
            graphs[source.graph] = _scaled_graph(graph, source, scaling, factor)
        ranks.append(
            replace(
                source,
                number=number,
                slots=_slots(graph, source, number, scaling),
                metadata=_metadata(source, number, after.world, made_of),
            )
        )
    used = list(dict.fromkeys(rank.graph for rank in ranks))
    place = {graph: index for index, graph in enumerate(used)}
    done = replace(
        trace,
        graphs=tuple(graphs[graph] for graph in used),
        ranks=tuple(replace(rank, graph=place[rank.graph]) for rank in ranks),
        groups=tuple(scaling.made.values()),
        findings=(*trace.findings, *_findings(before, after, scaling)),
    )
    refuse_unmatched(done)
    return done


def _source(before: Mesh, after: Mesh, number: int) -> int:
    """Return the rank of the smaller job that has a rank's place in all dimensions, replicas in turn."""
    found = 0
    for axis in before.axes:
        larger = after.axis(axis.name)
        assert larger is not None
        found += larger.place(number) % axis.size * axis.stride
    return found


def _slots(graph: Graph, source: Rank, number: int, scaling: _Scaling) -> tuple[int | str, ...]:
    values: list[int | str] = []
    for slot, value in enumerate(source.slots):
        key = graph.strings[int(graph.slot_key[slot])]
        if key in GROUP_KEYS and str(value) in scaling.listed:
            name = scaling.group(str(value), number)
            values.append(int(name) if isinstance(value, int) and name.isdecimal() else name)
        elif key in PEER_KEYS and isinstance(value, int) and 0 <= value < scaling.before.world:
            values.append(_peer(scaling, source.number, value, number))
        else:
            values.append(value)
    return tuple(values)


def _peer(scaling: _Scaling, source: int, peer: int, number: int) -> int:
    """Return who is to a rank what the peer was to its source."""
    found = 0
    for larger in scaling.after.axes:
        axis = scaling.before.axis(larger.name) or Axis(larger.name, 1, scaling.before.world)
        step = axis.place(peer) - axis.place(source)
        # Round the end of the smaller mesh is round the end of the larger one.
        found += (larger.place(number) + step) % larger.size * larger.stride
    return found


def _metadata(source: Rank, number: int, world: int, made_of: str) -> tuple[Attribute, ...]:
    kept = tuple(item for item in source.metadata if item.name not in ("world_size", SCALED))
    told = (
        *kept,
        Attribute("world_size", ValueKind.INT64, world),
        Attribute(SCALED, ValueKind.STRING, made_of),
    )
    # A rank that was assumed already is as the recorded one that it repeats.
    recorded = assumed_from(source)
    return copied_metadata(
        replace(source, metadata=told), number, source.number if recorded is None else recorded
    )


def _scaled_graph(graph: Graph, source: Rank, scaling: _Scaling, factor: int) -> Graph:
    """Return a graph with the sizes it has on more replicas.

    Raises:
        ConfigError: A size does not divide.
    """
    parts, shards = _sharded(graph, source, scaling)
    if factor == 1 or not (len(parts) or shards.any()):
        return graph
    value = graph.attrs.value.copy()
    for key, rows in (
        ("comm_size", parts),
        ("num_ops", np.flatnonzero(shards)),
        ("tensor_size", np.flatnonzero(shards)),
    ):
        at, where = graph.rows_with(key)
        mine = where[np.isin(at, rows)]
        bad = np.flatnonzero(value[mine] % factor)
        if len(bad):
            row = int(at[np.isin(at, rows)][bad[0]])
            raise ConfigError(
                f"{key} of node {graph.id[row]} ({graph.strings[int(graph.name[row])]!r}) is {int(value[mine[bad[0]]]):,}, which "
                f"{factor} times as many replicas cannot share evenly",
                hint="Choose a number of replicas that divides it.",
            )
        value[mine] //= factor
    duration = np.where(
        shards, np.maximum(graph.duration_ns // factor, np.minimum(graph.duration_ns, 1)), graph.duration_ns
    )
    return replace(graph, attrs=replace(graph.attrs, value=value), duration_ns=duration)


def _sharded(graph: Graph, source: Rank, scaling: _Scaling) -> tuple[Int64, Bool]:
    """Return the all-gathers of the data dimension, and (N,) which compute nodes work on a part of a reduce-scatter of it."""
    in_data = np.zeros(len(graph), np.bool_)
    for slot, key, rows in slot_rows(graph):
        name = str(source.slots[slot])
        if key in GROUP_KEYS and name in scaling.listed and name not in WORLD_NAMES:
            in_data[rows] |= scaling.axes_of(name) == (DATA,)
    kinds, sizes = _column(graph, "comm_type"), _column(graph, "comm_size")
    collective = (graph.type == NodeType.COMM_COLL) & in_data
    gathers = np.flatnonzero(collective & (kinds == CollectiveType.ALL_GATHER))
    scatters = collective & (kinds == CollectiveType.REDUCE_SCATTER)
    data = scaling.before.axis(DATA)
    part = sizes // (data.size if data else 1)
    ops, tensor = _column(graph, "num_ops"), _column(graph, "tensor_size")
    # The size of a rank's part: what a reduce-scatter leaves, and what follows works on.
    size = np.where(scatters, part, np.where(np.isin(tensor, part[scatters]), tensor, ops))
    shards = np.zeros(len(graph), np.bool_)
    likely = np.flatnonzero((graph.type == NodeType.COMP) & np.isin(size, part[scatters]))
    found = -1
    while found != (found := int(shards.sum())):
        for row in likely[~shards[likely]].tolist():
            parents = np.concatenate([graph.data.of(row), graph.ctrl.of(row)])
            parents = parents[parents >= 0]
            shards[row] = bool(((scatters | shards)[parents] & (size[parents] == size[row])).any())
    return gathers, shards


def _column(graph: Graph, key: str) -> Int64:
    """Return (N,) a whole-number attribute, -1 where a node has none."""
    rows, values = int_column(graph, key)
    column = np.full(len(graph), -1, np.int64)
    column[rows] = values
    return column


def _findings(before: Mesh, after: Mesh, scaling: _Scaling) -> Sequence[Finding]:
    talks = any(DATA in axes for axes in scaling.spans.values())
    message = f"Scaled from {before.layout} to {after.layout}: every replica does the work of a recorded one on samples of its own."
    if not talks and after.world > before.world:
        message += " Nothing that replicas exchange is in the job, so that they do not communicate: gradients are missing."
    return [Finding("info" if talks else "warning", "scaled", message)]
