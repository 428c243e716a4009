"""Scale a job: the same program on more data-parallel replicas, pipeline stages, or ranks for its experts.

Every rank of the larger job gets the graph of the rank of the smaller one that has its place in all other dimensions of the mesh.
What changes is one row each in `RULES`; all else is copied. Scaling of replicas is weak, so that the batch grows with them, or
strong. A job on more pipeline stages keeps its first and its last one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from studio.completion.agreement import refuse_unmatched
from studio.completion.clues import collect_facts, iterate_slots, list_slot_keys
from studio.completion.complete import choose_mesh, complete_on
from studio.completion.experts import with_balanced_experts
from studio.completion.fewer import with_fewer_layers, with_fewer_micro_batches
from studio.completion.layout import Layout
from studio.completion.mesh import NAMES, PIPELINE, Axis, Mesh
from studio.completion.rules import (
    DATA,
    EXPERT,
    RULES,
    TENSOR,
    Layers,
    Rule,
    build_refusal,
    explain_refusal,
    find_gradient_groups,
    get_size,
    select_rules,
)
from studio.completion.surgery import compact_trace
from studio.completion.tensor import divide_operators
from studio.errors import ConfigError, TraceError
from studio.trace import (
    ASSUMED,
    GROUP_KEYS,
    PEER_KEYS,
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
    copy_metadata,
    get_assumed_source,
    read_int_column,
    without_starts,
)

__all__ = [
    "DATA",
    "RULES",
    "SCALED",
    "Rule",
    "build_refusal",
    "explain_refusal",
    "refuse_missing",
    "scale",
    "scale_mesh",
    "scale_to",
    "select_rules",
]

SCALED = "scaled_from"
"""Metadata of a rank of a scaled job: the layouts before and after."""
_MOST_RANKS = 1 << 20


def scale(  # noqa: PLR0913  # one keyword for each option of the command
    trace: Trace,
    *,
    dp: int | None = None,
    ranks: int | None = None,
    layout: str | Path | Layout | None = None,
    pp: int | None = None,
    ep: int | None = None,
    tp: int | None = None,
    strong: bool = False,
    layers: Layers = "divided",
) -> Trace:
    """Return the job with more data-parallel replicas, pipeline stages, tensor-parallel ranks, or ranks for its experts.

    Args:
        trace: A whole job.
        dp: Replicas, a multiple of those there are.
        ranks: Ranks of the larger job, in place of `dp`.
        layout: The mesh of the job as it is; None infers it.
        pp: Pipeline stages, a multiple of those there are.
        ep: Ranks along the expert dimension, a multiple of those there are.
        tp: Tensor-parallel ranks, likewise, where shapes say how operators are divided (`tensor.py`).
        strong: Whether more replicas share the batch, by fewer micro-batches each, instead of each having one of its own.
        layers: Whether more stages share the layers of the model, or each has as many as before.

    Raises:
        ConfigError: The numbers do not fit the job's mesh, sizes do not divide, or names do not tell what has to be told apart.
        TraceError: Ranks are missing.

    Example:
        >>> import studio
        >>> whole = studio.read(studio.sample_path("transformer_8r"))
        >>> len(scale(whole, dp=8).ranks), len(scale(whole, pp=4).ranks)
        (32, 16)
    """
    known = collect_facts(trace)
    mesh = choose_mesh(known, layout, None, first=True)
    refuse_missing(trace, mesh)
    larger = scale_mesh(mesh, dp=dp, ranks=ranks, pp=pp, ep=ep, tp=tp)
    return scale_to(trace, mesh, larger, strong=strong, layers=layers)


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


def scale_mesh(
    mesh: Mesh,
    *,
    dp: int | None = None,
    ranks: int | None = None,
    pp: int | None = None,
    ep: int | None = None,
    tp: int | None = None,
) -> Mesh:
    """Return the mesh with larger dimensions; a job without replicas gets them as its outermost dimension.

    Raises:
        ConfigError: A number is no multiple of what there is, makes too many ranks, or the job has no such dimension.

    Example:
        >>> scale_mesh(Mesh.of([("dp", 2), ("tp", 4)]), ranks=64).layout
        'dp=16,tp=4'
        >>> scale_mesh(Mesh.of([("dp", 2), ("pp", 2)]), pp=4).layout
        'dp=2,pp=4'
    """
    if (dp is not None and ranks is not None) or (dp, ranks, pp, ep, tp) == (None,) * 5:
        raise ConfigError("both or none of dp and ranks are given; allowed: one of them")
    for name, wanted in ((TENSOR, tp), (PIPELINE, pp), (EXPERT, ep)):
        if wanted is not None:
            mesh = _grow_axis(mesh, name, wanted)
    data = get_size(mesh, DATA)
    rest = mesh.world // data
    if ranks is not None:
        if ranks % rest:
            raise ConfigError(
                f"ranks is {ranks:,}; allowed: a multiple of {rest:,}, the ranks of a replica ({mesh.layout})"
            )
        dp = ranks // rest
    if dp is None:
        return mesh
    if dp < 1 or dp % data or dp * rest > _MOST_RANKS:
        raise ConfigError(
            f"dp is {dp:,}; allowed: a multiple of {data}, up to {_MOST_RANKS // rest:,}",
            hint=f"The job has the layout {mesh.layout}; only more replicas of what is known can be made.",
        )
    sizes = [(axis.name, dp if axis.name == DATA else axis.size) for axis in mesh.axes]
    return Mesh.of(sizes if mesh.axis(DATA) else [*sizes, (DATA, dp)])


def _grow_axis(mesh: Mesh, name: str, wanted: int) -> Mesh:
    """Return a mesh with more ranks along a dimension that it has."""
    size = get_size(mesh, name)
    if wanted == size:
        return mesh
    if size < 2:
        raise ConfigError(
            f"{name} is {wanted:,}; the job has the layout {mesh.layout}, of one rank along the {NAMES[name]} dimension",
            hint="What ranks along it exchange is not in the job; record it with two of them.",
        )
    most = _MOST_RANKS // (mesh.world // size)
    if wanted < size or wanted % size or wanted > most:
        raise ConfigError(
            f"{name} is {wanted:,}; allowed: a multiple of {size}, up to {most:,} ({mesh.layout})",
            hint="Only more of what is known can be made.",
        )
    return Mesh.of([(axis.name, wanted if axis.name == name else axis.size) for axis in mesh.axes])


@dataclass(slots=True)
class _Scaling:
    """The groups of the larger job, made when first asked for.

    Attributes:
        before, after: The meshes.
        listed: The groups of the smaller job.
        gradients: Groups that exchange gradients or weights, where the smaller job has no data dimension: more replicas join them.
        roles: Dimensions of the old groups, which of several alike they are, and those dimensions in the larger mesh.
        pairs: Dimensions of the larger mesh, with what they were.
        new_groups: Those of the larger one, by their dimensions, which of several alike they are, and their first rank.
        names: Their names.
    """

    before: Mesh
    after: Mesh
    listed: Mapping[str, CommGroup]
    gradients: frozenset[str] = frozenset()
    new_groups: dict[tuple[tuple[str, ...], int, int], CommGroup] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    spans: dict[str, tuple[str, ...]] = field(default_factory=dict)
    numbers: dict[tuple[int, ...], list[str]] = field(default_factory=dict)
    roles: dict[str, tuple[tuple[str, ...], int, list[Axis]]] = field(default_factory=dict)
    pairs: list[tuple[Axis, Axis]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for group in self.listed.values():
            self.numbers.setdefault(tuple(sorted(group.ranks)), []).append(group.name)
        for larger in self.after.axes:
            old = self.before.axis(larger.name) or Axis(larger.name, 1, self.before.world)
            self.pairs.append((larger, old))

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
            joined = (DATA,) if name in self.gradients and self.before.axis(DATA) is None else ()
            self.spans[name] = (*(axis.name for axis in spanned), *joined)
        return self.spans[name]

    def group(self, name: str, rank: int) -> str:
        """Return the group of a rank of the larger job that has the role of an old one."""
        if name not in self.roles:
            axes = self.axes_of(name)
            number = self.numbers[tuple(sorted(self.listed[name].ranks))].index(name)
            self.roles[name] = axes, number, [axis for axis in self.after.axes if axis.name in axes]
        axes, number, moving = self.roles[name]
        first = rank - sum(axis.place(rank) * axis.stride for axis in moving)
        key = axes, number, first
        if key not in self.new_groups:
            old = self.listed[name].name
            fresh = str(len(self.new_groups) + 1) if old.isdecimal() else f"{old.partition('@')[0]}@{first}"
            while fresh in self.names:
                fresh += "'"
            self.names.add(fresh)
            self.new_groups[key] = CommGroup(fresh, _list_ranks_along(moving, first))
        return self.new_groups[key].name


def _list_ranks_along(axes: Sequence[Axis], first: int) -> tuple[int, ...]:
    """Return the ranks that differ from the first in some dimensions only."""
    ranks = np.array([first])
    for axis in axes:
        ranks = (ranks[None, :] + np.arange(axis.size)[:, None] * axis.stride).ravel()
    return tuple(ranks.tolist())


def scale_to(
    trace: Trace, before: Mesh, after: Mesh, *, strong: bool = False, layers: Layers = "divided"
) -> Trace:
    """Return a whole job, of one mesh, on a larger one (`scale_mesh`).

    Args:
        trace: The job.
        before: Its mesh.
        after: The larger mesh.
        strong: Whether more replicas share the batch, by fewer micro-batches each.
        layers: Whether more pipeline stages share the layers of the model, or each has as many as before.

    Raises:
        ConfigError: A group holds some of the ranks along a dimension only, sizes do not divide, or names do not tell
            micro-batches or layers apart.
        TraceError: The larger job would hang.
    """
    made_of = f"{before.layout} → {after.layout}"
    findings = _report_scaling(trace, before, after, strong=strong, layers=layers)
    replicas = get_size(after, DATA) // get_size(before, DATA)
    stages = get_size(after, PIPELINE) // get_size(before, PIPELINE)
    experts = get_size(after, EXPERT) // get_size(before, EXPERT)
    tensors = get_size(after, TENSOR) // get_size(before, TENSOR)
    if tensors > 1:
        trace = divide_operators(trace, before, tensors)
    graphs = list(trace.graphs)
    if strong and replicas > 1:
        graphs = [with_fewer_micro_batches(graph, replicas) for graph in graphs]
    if layers == "divided" and stages > 1:
        graphs = [with_fewer_layers(graph, stages) for graph in graphs]
    trace = compact_trace(replace(trace, graphs=tuple(graphs)))
    if experts > 1:
        trace = with_balanced_experts(trace, before, experts)
    if stages > 1:
        deeper = _grow_axis(before, PIPELINE, get_size(after, PIPELINE))
        trace, before = _with_stages(trace, before, deeper), deeper
    whole = stages == experts == tensors == 1 and not (strong and replicas > 1)
    done = _with_replicas(trace, before, after, replicas, made_of, whole=whole)
    done = replace(done, findings=(*done.findings, *findings))
    refuse_unmatched(done)
    # What was recorded is another job: when the nodes of this one begin, a simulation says.
    return without_starts(done)


def _with_stages(trace: Trace, before: Mesh, after: Mesh) -> Trace:
    """Return a job with more pipeline stages: the first and the last stay so, those between are built (`stages.py`)."""
    scaling = _Scaling(before, after, {group.name: group for group in trace.groups})
    last = get_size(before, PIPELINE) - 1
    keys = list_slot_keys(trace)
    ranks = []
    for rank in trace.ranks:
        number = 0
        for axis in after.axes:
            old = before.axis(axis.name)
            place = old.place(rank.number) if old else 0
            at_end = axis.name == PIPELINE and place == last
            number += (axis.size - 1 if at_end else place) * axis.stride
        slots = _map_slots(keys[rank.graph], rank, number, scaling)
        kept = tuple(item for item in rank.metadata if item.name not in ("world_size", ASSUMED))
        metadata_items = (*kept, Attribute("world_size", ValueKind.INT64, after.world))
        metadata = copy_metadata(replace(rank, metadata=metadata_items), number, None)
        ranks.append(replace(rank, number=number, slots=slots, metadata=metadata))
    ordered = tuple(sorted(ranks, key=lambda rank: rank.number))
    listed = tuple(scaling.new_groups.values())
    completed = complete_on(collect_facts(replace(trace, ranks=ordered, groups=listed)), after)
    return replace(completed, findings=trace.findings)


def _with_replicas(
    trace: Trace, before: Mesh, after: Mesh, replicas: int, made_of: str, *, whole: bool
) -> Trace:
    """Return a job on more ranks along dimensions whose ranks run the same program.

    Args:
        trace: The job.
        before: Its mesh.
        after: The larger mesh.
        replicas: How many times as many replicas there are.
        made_of: The layouts, as metadata tell them.
        whole: Whether graphs are still as recorded, so that a rank of the first replicas whose sizes stay is a recorded one.
    """
    by_number = {rank.number: rank for rank in trace.ranks}
    gradients = find_gradient_groups(trace) if before.axis(DATA) is None else frozenset()
    scaling = _Scaling(before, after, {group.name: group for group in trace.groups}, gradients)
    graphs: dict[int, Graph] = {}
    keys = list_slot_keys(trace)
    ranks = []
    for number in range(after.world):
        source = by_number[_find_source(scaling, number)]
        if source.graph not in graphs:
            graphs[source.graph] = _scale_graph(trace.graph_of(source), source, scaling, replicas)
        repeated = get_assumed_source(source)
        if repeated is None:
            stays = whole and graphs[source.graph] is trace.graph_of(source)
            repeated = None if stays and number == _find_home(scaling, source.number) else source.number
        ranks.append(
            replace(
                source,
                number=number,
                slots=_map_slots(keys[source.graph], source, number, scaling),
                metadata=_build_metadata(
                    source,
                    number,
                    after.world,
                    made_of,
                    None if repeated is None else _find_home(scaling, repeated),
                ),
            )
        )
    used = list(dict.fromkeys(rank.graph for rank in ranks))
    place = {graph: index for index, graph in enumerate(used)}
    return replace(
        trace,
        graphs=tuple(graphs[graph] for graph in used),
        ranks=tuple(replace(rank, graph=place[rank.graph]) for rank in ranks),
        groups=tuple(scaling.new_groups.values()),
    )


def _find_source(scaling: _Scaling, number: int) -> int:
    """Return the rank of the smaller job that has a rank's place in all dimensions, replicas in turn."""
    return sum(larger.place(number) % axis.size * axis.stride for larger, axis in scaling.pairs)


def _find_home(scaling: _Scaling, number: int) -> int:
    """Return the number that a rank of the smaller job has in the larger one, where it is of the first replicas."""
    return sum(axis.place(number) * larger.stride for larger, axis in scaling.pairs)


def _map_slots(keys: Sequence[str], source: Rank, number: int, scaling: _Scaling) -> tuple[int | str, ...]:
    values: list[int | str] = []
    world = scaling.before.world
    for key, value in zip(keys, source.slots, strict=False):
        if key in GROUP_KEYS and str(value) in scaling.listed:
            name = scaling.group(str(value), number)
            values.append(int(name) if isinstance(value, int) and name.isdecimal() else name)
        elif key in PEER_KEYS and isinstance(value, int) and 0 <= value < world:
            values.append(_map_peer(scaling, source.number, value, number))
        else:
            values.append(value)
    return tuple(values)


def _map_peer(scaling: _Scaling, source: int, peer: int, number: int) -> int:
    """Return who is to a rank what the peer was to its source."""
    target = 0
    for larger, axis in scaling.pairs:
        step = axis.place(peer) - axis.place(source)
        # Round the end of the smaller mesh is round the end of the larger one.
        target += (larger.place(number) + step) % larger.size * larger.stride
    return target


def _build_metadata(
    source: Rank, number: int, world: int, made_of: str, repeated: int | None
) -> tuple[Attribute, ...]:
    kept = tuple(item for item in source.metadata if item.name not in ("world_size", SCALED))
    metadata = (
        *kept,
        Attribute("world_size", ValueKind.INT64, world),
        Attribute(SCALED, ValueKind.STRING, made_of),
    )
    return copy_metadata(replace(source, metadata=metadata), number, repeated)


def _scale_graph(graph: Graph, source: Rank, scaling: _Scaling, factor: int) -> Graph:
    """Return a graph with the sizes it has on more replicas.

    Raises:
        ConfigError: A size does not divide.
    """
    parts, shards = _find_sharded(graph, source, scaling)
    if factor == 1 or not (len(parts) or shards.any()):
        return graph
    value = graph.attrs.value.copy()
    for key, rows in (
        ("comm_size", parts),
        ("num_ops", np.flatnonzero(shards)),
        ("tensor_size", np.flatnonzero(shards)),
    ):
        at, where = graph.rows_with(key)
        places = where[np.isin(at, rows)]
        bad = np.flatnonzero(value[places] % factor)
        if len(bad):
            row = int(at[np.isin(at, rows)][bad[0]])
            raise ConfigError(
                f"{key} of node {graph.id[row]} ({graph.strings[int(graph.name[row])]!r}) is {int(value[places[bad[0]]]):,}, which "
                f"{factor} times as many replicas cannot share evenly",
                hint="Choose a number of replicas that divides it.",
            )
        value[places] //= factor
    duration = np.where(
        shards, np.maximum(graph.duration_ns // factor, np.minimum(graph.duration_ns, 1)), graph.duration_ns
    )
    return replace(graph, attrs=replace(graph.attrs, value=value), duration_ns=duration)


def _find_sharded(graph: Graph, source: Rank, scaling: _Scaling) -> tuple[Int64, Bool]:
    """Return the all-gathers of the data dimension, and (N,) which compute nodes work on a part of a reduce-scatter of it."""
    in_data = np.zeros(len(graph), np.bool_)
    for slot, key, rows in iterate_slots(graph):
        name = str(source.slots[slot])
        if key in GROUP_KEYS and name in scaling.listed and name not in WORLD_NAMES:
            in_data[rows] |= scaling.axes_of(name) == (DATA,)
    kinds, sizes = _read_column(graph, "comm_type"), _read_column(graph, "comm_size")
    collective = (graph.type == NodeType.COMM_COLL) & in_data
    gathers = np.flatnonzero(collective & (kinds == CollectiveType.ALL_GATHER))
    scatters = collective & (kinds == CollectiveType.REDUCE_SCATTER)
    data = scaling.before.axis(DATA)
    part = sizes // (data.size if data else 1)
    ops, tensor = _read_column(graph, "num_ops"), _read_column(graph, "tensor_size")
    # The size of a rank's part: what a reduce-scatter leaves, and what follows works on.
    size = np.where(scatters, part, np.where(np.isin(tensor, part[scatters]), tensor, ops))
    shards = np.zeros(len(graph), np.bool_)
    likely = np.flatnonzero((graph.type == NodeType.COMP) & np.isin(size, part[scatters]))
    count = -1
    while count != (count := int(shards.sum())):
        for row in likely[~shards[likely]].tolist():
            parents = np.concatenate([graph.data.of(row), graph.ctrl.of(row)])
            parents = parents[parents >= 0]
            shards[row] = bool(((scatters | shards)[parents] & (size[parents] == size[row])).any())
    return gathers, shards


def _read_column(graph: Graph, key: str) -> Int64:
    """Return (N,) a whole-number attribute, -1 where a node has none."""
    rows, values = read_int_column(graph, key)
    column = np.full(len(graph), -1, np.int64)
    column[rows] = values
    return column


def _report_scaling(
    trace: Trace, before: Mesh, after: Mesh, *, strong: bool, layers: Layers
) -> Sequence[Finding]:
    """Return findings about a scaled job: what was scaled, and what remains unknown."""
    changes = []
    replicas = get_size(after, DATA) > get_size(before, DATA)
    if replicas and strong:
        changes.append("replicas share the batch: each has fewer micro-batches, as large as before")
    elif replicas:
        changes.append("every replica does the work of a recorded one on samples of its own")
    if get_size(after, PIPELINE) > get_size(before, PIPELINE):
        model = (
            "share the layers of the model" if layers == "divided" else "have as many layers as before each"
        )
        changes.append(f"more pipeline stages {model}; those added are copies")
    if get_size(after, EXPERT) > get_size(before, EXPERT):
        changes.append("more ranks share the experts, and tokens are taken to be routed evenly")
    if get_size(after, TENSOR) > get_size(before, TENSOR):
        changes.append("more ranks share the operators whose shapes say how they are divided")
    message = f"Scaled from {before.layout} to {after.layout}: {'; '.join(changes) or 'nothing changes'}."
    silent = replicas and not _has_data_collectives(trace, before)
    if silent:
        message += " Nothing that replicas exchange is in the job, so that they do not communicate: gradients are missing."
    return [Finding("warning" if silent else "info", "scaled", message)]


def _has_data_collectives(trace: Trace, mesh: Mesh) -> bool:
    """Whether some collective goes along the data dimension."""
    data = mesh.axis(DATA)
    if data is None:
        return bool(find_gradient_groups(trace))
    named = {str(value) for rank in trace.ranks for value in rank.slots}
    return any(
        len({data.place(rank) for rank in group.ranks}) > 1 for group in trace.groups if group.name in named
    )
