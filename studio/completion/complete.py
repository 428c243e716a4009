"""Complete a job: give every missing rank the graph of a known rank of its role.

Ranks of a parallel job are copies of few roles: those of one pipeline stage run the same program on other data. What
differs are the comm groups and peers that a rank names, which follow from its place in the mesh.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from studio.analysis.job.completeness import format_ranges
from studio.completion.agreement import refuse_unmatched
from studio.completion.arrivals import Waited, delay_arrivals, describe_waits, estimate_waits
from studio.completion.clues import Known, assign_unlisted_axes, collect_facts, iterate_slots, list_slot_keys
from studio.completion.guesses import guess_meshes
from studio.completion.layout import Layout, read_layout
from studio.completion.measured import Measured, measure_imbalance, measure_jitter
from studio.completion.mesh import PIPELINE, Axis, Mesh, find_fitting_meshes, infer_mesh, with_evidence
from studio.completion.spread import MEASURED, NO_SPREAD, NOT_MEASURED, Spread, spread_durations
from studio.completion.stages import Stage, build_stages
from studio.errors import ConfigError
from studio.trace import (
    ASSUMED_STAGE,
    GROUP_KEYS,
    PEER_KEYS,
    ROOT_KEYS,
    Attribute,
    CommGroup,
    Finding,
    Graph,
    Int64,
    Rank,
    Trace,
    ValueKind,
    copy_metadata,
)
from studio.units import format_counted


class LayoutNeededError(ConfigError):
    """The layout has to be chosen: several fit, or nothing tells it.

    Attributes:
        meshes: Those that fit, the likeliest first.
    """

    def __init__(self, why: str, meshes: tuple[Mesh, ...]) -> None:
        fitting = " ".join(f"--layout {mesh.layout}" for mesh in meshes)
        hint = (
            f"Those that fit, the likeliest first: {fitting}; --yes takes the first."
            if fitting
            else "Give it, such as --layout tp=4,pp=2,dp=8, the dimension whose ranks have adjacent numbers first."
        )
        super().__init__(f"the layout of the ranks is not known: {why}", hint=hint)
        self.meshes = meshes


def list_layouts(trace: Trace, *, ranks: int | None = None) -> tuple[Mesh, ...]:
    """Return the meshes that fit what is known of a job, the likeliest first.

    Args:
        trace: The job.
        ranks: How many ranks it has, where its files do not say.

    Raises:
        ConfigError: The known ranks contradict each other or `ranks`.

    Example:
        >>> import studio
        >>> whole = studio.read(studio.sample_path("transformer_8r"))
        >>> [mesh.layout for mesh in list_layouts(whole)]
        ['tp=2,dp=2,pp=2']
    """
    known = collect_facts(trace)
    return _list_meshes(known, ranks)


def _list_meshes(known: Known, ranks: int | None) -> tuple[Mesh, ...]:
    # Readers write a world of one rank where nothing says how many there are.
    if ranks is not None and known.world > 1 and ranks != known.world:
        raise ConfigError(
            f"ranks is {ranks:,}; allowed: {known.world:,}, as the files say", hint="Leave it out."
        )
    world = ranks or known.world
    if world:
        return guess_meshes(known, world) if known.unlisted else (infer_mesh(known.clues, world),)
    if known.unlisted or not known.clues:
        return ()
    # The least job that holds all that is named; messages go at least to one other stage.
    named = [rank.number for rank in known.trace.ranks] + [end for step in known.steps for end in step]
    named += [member for use in known.uses for member in use.members]
    period = max(stride * max(size, 2) for clue in known.clues for stride, size in clue.spans)
    least = -(-(max(named) + 1) // period) * period
    return tuple(infer_mesh(known.clues, least * times) for times in (1, 2, 4, 8))


def complete(
    trace: Trace,
    *,
    layout: str | Path | Layout | None = None,
    ranks: int | None = None,
    first: bool = False,
    spread: Spread = NO_SPREAD,
) -> Trace:
    """Return the job with every missing rank as a copy of a known one of its role.

    Args:
        trace: The job, of which at least one rank of every pipeline stage is known.
        layout: The mesh, such as `tp=4,pp=2,dp=8`, or the path of a file with it (`docs/formats.md`); None infers it.
        ranks: How many ranks the job has, where its files do not say.
        first: Whether to take the likeliest where several layouts fit.
        spread: How durations of copies differ from those recorded.

    Raises:
        LayoutNeededError: Several layouts fit, or nothing tells the layout.
        ConfigError: The layout contradicts the known ranks.
        TraceError: No rank of some pipeline stage is known, or the completed ranks would wait for each other for ever.

    Example:
        >>> import studio
        >>> from dataclasses import replace
        >>> whole = studio.read(studio.sample_path("transformer_8r"))
        >>> one_per_stage = replace(whole, ranks=(whole.ranks[0], whole.ranks[4]))
        >>> len(complete(one_per_stage).ranks)
        8
    """
    given = read_layout(layout) if layout is not None else None
    known = collect_facts(trace, given)
    mesh = choose_mesh(known, given, ranks, first=first)
    return complete_on(known, mesh, spread, axes=given.axes if given else {})


def choose_mesh(known: Known, layout: str | Path | Layout | None, ranks: int | None, *, first: bool) -> Mesh:
    """Return the mesh that was given, or the one that fits.

    Raises:
        LayoutNeededError: None is given, and not one alone fits.
        ConfigError: The given one contradicts what is known.
    """
    if layout is not None:
        return _build_given_mesh(known, read_layout(layout).sizes, ranks)
    fitting = _list_meshes(known, ranks)
    if fitting and (first or (len(fitting) == 1 and not known.unlisted)):
        return fitting[0]
    groups = ", ".join(dict.fromkeys(use.name for use in known.unlisted))
    if groups:
        why = f"members of the comm groups {groups} are not listed"
    elif fitting:
        why = "the files do not say how many ranks the job has"
    else:
        why = "no comm groups, no messages and no number of ranks are in the files"
    raise LayoutNeededError(why, fitting)


def _build_given_mesh(known: Known, sizes: Sequence[tuple[str, int]], ranks: int | None) -> Mesh:
    given = Mesh.of(sizes)
    world = ranks or known.world
    if world and given.world != world:
        raise ConfigError(
            f"layout {given.layout} has {format_counted(given.world, 'rank')}; the job has {world:,}",
            hint="The product of all sizes is the number of ranks.",
        )
    largest = max(rank.number for rank in known.trace.ranks)
    if largest >= given.world:
        raise ConfigError(
            f"layout {given.layout} has {format_counted(given.world, 'rank')}; the job has a rank {largest}",
            hint=f"Give a layout of at least {largest + 1:,} ranks, or leave it out.",
        )
    mesh = next(iter(find_fitting_meshes(sizes, known.clues)), None)
    if mesh is None:
        shown = "; ".join(clue.words for clue in known.clues)
        raise ConfigError(
            f"layout {given.layout} does not fit what is known: {shown}",
            hint="Leave the layout out to see those that fit.",
        )
    return with_evidence(mesh, known.clues)


@dataclass(slots=True)
class _Groups:
    """The comm groups of the completed job; those of copies are made when first asked for.

    Attributes:
        mesh: The mesh.
        listed: The groups of the files.
        axis_of: Dimension of each group without members, by name.
        new_groups: New groups by what tells them apart.
        moved_names: What `translate` returned: by group, and by how far a rank lies from another one or where its line begins.
        shifts: Dimensions of the mesh that a group's members do not hold whole, by name: those along which it moves.
        highest: The highest number that is a group's name.
    """

    mesh: Mesh
    listed: Mapping[str, CommGroup]
    axis_of: Mapping[str, str]
    names: set[str] = field(default_factory=set)
    by_members: dict[tuple[int, ...], list[str]] = field(default_factory=dict)
    new_groups: dict[tuple[tuple[int, ...], int | str], CommGroup] = field(default_factory=dict)
    moved_names: dict[tuple[str, int | tuple[int, ...]], str] = field(default_factory=dict)
    shifts: dict[str, tuple[Axis, ...]] = field(default_factory=dict)
    highest: int = 0

    def __post_init__(self) -> None:
        self.names = set(self.listed)
        self.highest = max((int(name) for name in self.names if name.isdecimal()), default=0)
        for group in self.listed.values():
            self.by_members.setdefault(group.ranks, []).append(group.name)

    def translate(self, name: str, source: int, target: int) -> str:
        """Return the group that is to `target` what a group is to `source`."""
        key: tuple[str, int | tuple[int, ...]]
        if name not in self.listed:
            axis = self._get_axis(name)
            key = name, -1 if axis is None else target - axis.place(target) * axis.stride
        else:
            apart = self._find_shifts(name)
            key = name, tuple((axis.place(target) - axis.place(source)) % axis.size for axis in apart)
        if key not in self.moved_names:
            self.moved_names[key] = self._move_group(name, source, target)
        return self.moved_names[key]

    def _move_group(self, name: str, source: int, target: int) -> str:
        listed = self.listed.get(name)
        if listed is None:
            members = self._list_line(name, target)
            return self._make_group(members, self.axis_of[name], name).name if members else name
        members = tuple(self.mesh.translate(member, source, target) for member in listed.ranks)
        # Several groups may have the same members: the second of one rank stays the second of the others.
        number = self.by_members[listed.ranks].index(name)
        if set(members) == set(listed.ranks):
            return name
        alike = self.by_members.get(members) or self.by_members.get(tuple(sorted(members))) or []
        return (
            alike[number]
            if number < len(alike)
            else self._make_group(tuple(sorted(members)), number, name).name
        )

    def _find_shifts(self, name: str) -> tuple[Axis, ...]:
        """Return the dimensions along which a listed group becomes another one: not those that its members hold whole."""
        if name not in self.shifts:
            ranks = self.listed[name].ranks
            every = set(ranks)
            self.shifts[name] = tuple(
                axis
                for axis in self.mesh.axes
                # The order of the members tells which of several groups is meant, where one is listed out of order.
                if tuple(sorted(ranks)) != ranks
                or len(every) % axis.size
                or any(_get_next_rank(rank, axis) not in every for rank in ranks)
            )
        return self.shifts[name]

    def translate_member(self, member: int, name: str, source: int, target: int) -> int:
        """Return the rank that has the place in a moved group that `member` has in the group."""
        listed = self.listed.get(name)
        if listed is None:
            before, after = self._list_line(name, source), self._list_line(name, target)
        else:
            before = tuple(sorted(listed.ranks))
            after = tuple(sorted(self.mesh.translate(rank, source, target) for rank in before))
        return after[before.index(member)] if member in before else member

    def _list_line(self, name: str, rank: int) -> tuple[int, ...]:
        """Return the ranks of a group whose members are not listed: those along its dimension; none of other groups."""
        axis = self._get_axis(name)
        if axis is None:
            return ()
        first = rank - axis.place(rank) * axis.stride
        return tuple(range(first, first + axis.stride * axis.size, axis.stride))

    def _get_axis(self, name: str) -> Axis | None:
        return self.mesh.axis(self.axis_of[name]) if name in self.axis_of else None

    def _make_group(self, members: tuple[int, ...], which: int | str, source: str) -> CommGroup:
        if (members, which) not in self.new_groups:
            self.new_groups[members, which] = CommGroup(self._make_name(source, members), members)
        return self.new_groups[members, which]

    def _make_name(self, source: str, members: tuple[int, ...]) -> str:
        if source.isdecimal():
            # Simulators take numbers only; 0 stands for all ranks.
            self.highest += 1
            name = str(self.highest)
        else:
            name = f"{source}@{members[0]}"
            while name in self.names:
                name += "'"
        self.names.add(name)
        return name

    def all(self) -> tuple[CommGroup, ...]:
        """Return the groups of the files and those made."""
        return (*self.listed.values(), *self.new_groups.values())


def _get_next_rank(rank: int, axis: Axis) -> int:
    """Return the next rank along a dimension, the first one after the last."""
    place = axis.place(rank)
    return rank + ((place + 1) % axis.size - place) * axis.stride


def complete_on(
    known: Known, mesh: Mesh, spread: Spread = NO_SPREAD, *, axes: Mapping[str, str] = MappingProxyType({})
) -> Trace:
    """Return the job with every missing rank, on a mesh that was chosen (`choose_mesh`).

    Args:
        known: What is known of the job.
        mesh: Its mesh.
        spread: How durations of copies differ from those recorded.
        axes: The dimension of comm groups whose members are not listed, by name, as far as it was given.

    Raises:
        TraceError: No rank of some pipeline stage is known, or the completed ranks would wait for each other for ever.
    """
    trace = known.trace
    _refuse_beyond(known, mesh)
    names = [axis.name for axis in mesh.axes if axis.size > 1 and axis.name != PIPELINE]
    groups = _Groups(mesh, known.groups, assign_unlisted_axes(known, names, axes))
    recorded = {rank.number: rank for rank in trace.ranks}
    stages = build_stages(trace, mesh)
    sources, trace = _with_graphs(trace, stages)
    graphs = _Graphs(list(trace.graphs))
    keys = list_slot_keys(trace)
    measured, spread_findings, spread = _measure_spread(known, mesh, sources, spread)
    waits = estimate_waits(known) if spread.as_late and mesh.world > len(recorded) else {}
    ranks = []
    for number in range(mesh.world):
        stage = mesh.stage(number)
        source = recorded.get(number) or measured.sources.get(number) or sources[stage]
        copied = number not in recorded
        graph = graphs.choose_graph(source, number, groups) if copied else source.graph
        if copied and stages[stage].of == stage and source.number in waits:
            graph = graphs.late(graph, source.number, waits[source.number])
        rank = replace(
            source,
            number=number,
            graph=graph,
            slots=_map_slots(keys[source.graph], source, number, mesh, groups),
            metadata=_build_metadata(source, number, mesh.world, stages[stage].words if copied else ""),
        )
        ranks.append(rank)
    used = list(dict.fromkeys(rank.graph for rank in ranks))
    place = {graph: index for index, graph in enumerate(used)}
    done = replace(
        trace,
        graphs=tuple(graphs.graphs[graph] for graph in used),
        ranks=tuple(replace(rank, graph=place[rank.graph]) for rank in ranks),
        groups=groups.all(),
        findings=(
            *trace.findings,
            *_report_completion(trace, mesh, stages),
            *spread_findings,
            *_report_waits(waits),
        ),
    )
    refuse_unmatched(done)
    return spread_durations(done, spread, frozenset(recorded), measured)


def _refuse_beyond(known: Known, mesh: Mesh) -> None:
    """Raise an error if a comm group or a known rank has a number that the mesh has not.

    Raises:
        ConfigError: One has; names it.
    """
    last = max(rank.number for rank in known.trace.ranks)
    if last >= mesh.world:
        raise ConfigError(
            f"layout {mesh.layout} has {format_counted(mesh.world, 'rank')}; the job has a rank {last}",
            hint=f"Give a layout of at least {last + 1:,} ranks, or leave it out.",
        )
    for group in known.groups.values():
        if max(group.ranks, default=-1) >= mesh.world:
            raise ConfigError(
                f"comm group {group.name!r} has a rank {max(group.ranks)}; the layout {mesh.layout} has {mesh.world:,} ranks",
                hint="Give a larger layout, or leave it out.",
            )


def _measure_spread(
    known: Known, mesh: Mesh, sources: Mapping[int, Rank], spread: Spread
) -> tuple[Measured, list[Finding], Spread]:
    """Return the spread that was measured on the known ranks, a finding about it, and its numbers; all empty where not requested."""
    measured, words = NOT_MEASURED, []
    if mesh.world > len(known.trace.ranks):
        if spread.imbalance == MEASURED:
            measured = measure_imbalance(known, mesh, sources, spread.seed)
            words.append(measured.words)
        if spread.jitter == MEASURED:
            spread = replace(spread, jitter=measure_jitter(known, mesh))
            words.append(
                f"spread of nodes measured between known ranks: a standard deviation of {spread.jitter:.3f} of the logarithm"
            )
    findings = [Finding("info", "spread-measured", f"{text[0].upper()}{text[1:]}.") for text in words]
    return measured, findings, spread


def _map_slots(
    keys: Sequence[str], source: Rank, number: int, mesh: Mesh, groups: _Groups
) -> tuple[int | str, ...]:
    """Return the values of a copy's slots: its own groups and peers."""
    values: list[int | str] = []
    world = mesh.world
    for key, value in zip(keys, source.slots, strict=False):
        if key in GROUP_KEYS:
            name = groups.translate(str(value), source.number, number)
            values.append(int(name) if isinstance(value, int) and name.isdecimal() else name)
        elif key in PEER_KEYS and isinstance(value, int) and 0 <= value < world:
            values.append(mesh.translate(value, source.number, number))
        else:
            values.append(value)
    return tuple(values)


def _with_graphs(trace: Trace, stages: Mapping[int, Stage]) -> tuple[dict[int, Rank], Trace]:
    """Return the rank that the ranks of each stage copy, and the job with the graphs of stages that were never recorded."""
    graphs, sources = list(trace.graphs), {}
    for number, stage in stages.items():
        sources[number] = stage.rank
        if stage.of != number:
            sources[number] = replace(stage.rank, graph=len(graphs))
            graphs.append(stage.graph)
    return sources, replace(trace, graphs=tuple(graphs))


def _build_metadata(source: Rank, number: int, world: int, built: str) -> tuple[Attribute, ...]:
    kept = tuple(item for item in source.metadata if item.name not in ("world_size", "world_size_unknown"))
    described = replace(source, metadata=(*kept, Attribute("world_size", ValueKind.INT64, world)))
    if built:
        described = replace(
            described, metadata=(*described.metadata, Attribute(ASSUMED_STAGE, ValueKind.STRING, built))
        )
    return copy_metadata(described, number, source.number if number != source.number else None)


@dataclass(slots=True)
class _Graphs:
    """The graphs of the completed job. Roots of collectives stand in the graph, so that copies with other roots need their own.

    Attributes:
        graphs: All of them.
        rerooted: Those with other roots, by graph and roots.
        roots: Where the roots of a graph stand (`_find_roots`), by graph.
        delayed: Those of ranks that come late to collectives, by graph and the rank that waited in them.
    """

    graphs: list[Graph]
    rerooted: dict[tuple[int, bytes], int] = field(default_factory=dict)
    roots: dict[int, tuple[Int64, Int64, dict[int, int]]] = field(default_factory=dict)
    delayed: dict[tuple[int, int], int] = field(default_factory=dict)

    def late(self, graph: int, source: int, waits: Waited) -> int:
        """Return the graph of a copied rank that reaches collectives as late as its source saw other ranks do."""
        if (graph, source) not in self.delayed:
            self.graphs.append(delay_arrivals(self.graphs[graph], waits))
            self.delayed[graph, source] = len(self.graphs) - 1
        return self.delayed[graph, source]

    def choose_graph(self, source: Rank, number: int, groups: _Groups) -> int:
        """Return the graph of a copy: a root keeps its place among the members of its group."""
        graph = self.graphs[source.graph]
        if source.graph not in self.roots:
            self.roots[source.graph] = _find_roots(graph)
        rows, where, slot_of = self.roots[source.graph]
        if not len(where):
            return source.graph
        roots = graph.attrs.value[where]
        values = roots.copy()
        for place, (row, root) in enumerate(zip(rows.tolist(), roots.tolist(), strict=True)):
            if row in slot_of:
                name = str(source.slots[slot_of[row]])
                values[place] = groups.translate_member(root, name, source.number, number)
        if (values == roots).all():
            return source.graph
        key = source.graph, values.tobytes()
        if key not in self.rerooted:
            column = graph.attrs.value.copy()
            column[where] = values
            self.graphs.append(replace(graph, attrs=replace(graph.attrs, value=column)))
            self.rerooted[key] = len(self.graphs) - 1
        return self.rerooted[key]


def _find_roots(graph: Graph) -> tuple[Int64, Int64, dict[int, int]]:
    """Return the rows of a graph that name a root, where their attributes stand, and the slot of each row's group."""
    rows, where = (np.concatenate(parts) for parts in zip(*map(graph.rows_with, ROOT_KEYS), strict=True))
    is_plain = (graph.attrs.length[where] == 0) & ~graph.attrs.slot[where]
    slot_of: dict[int, int] = {}
    for slot, key, using in iterate_slots(graph) if is_plain.any() else ():
        if key in GROUP_KEYS:
            slot_of.update(dict.fromkeys(using.tolist(), slot))
    return rows[is_plain], where[is_plain], slot_of


def _report_waits(waits: Mapping[int, Waited]) -> list[Finding]:
    """Say what was made of the waiting that known ranks recorded."""
    if not waits:
        return []
    message = (
        f"R{describe_waits(waits)[1:]}, for ranks that were not recorded. This is assumed: their copies come to them as much later, after "
        "time on the host called assumed arrival, which nobody recorded."
    )
    hint = (
        "Taken for waiting is what a collective took longer than such collectives usually do; it may have been slow for another reason. "
        "--arrivals together lets all ranks come at once."
    )
    return [Finding("info", "late-arrivals", message, hint)]


def _report_completion(trace: Trace, mesh: Mesh, stages: Mapping[int, Stage]) -> list[Finding]:
    copies = mesh.world - len(trace.ranks)
    if not copies:
        return []
    numbers = sorted({stage.rank.number for stage in stages.values()})
    from_ = format_ranges([range(number, number + 1) for number in numbers])
    built = [stage for number, stage in stages.items() if stage.of != number]
    lacking = [stage.lacks for stage in built if stage.lacks]
    message = f"{copies:,} of {mesh.world:,} ranks were not recorded; they are assumed equal to {from_}, in the layout {mesh.layout}."
    if built:
        each = mesh.world // len(stages)
        listed = "; ".join(stage.words for stage in built)
        message += (
            f" {len(built) * each:,} of them are in pipeline stages that were never recorded: {listed}."
        )
    return [
        Finding(
            "warning" if lacking else "info",
            "ranks-assumed",
            message,
            f"The time of {' and '.join(lacking)} is not in the job: record a rank of such a stage."
            if lacking
            else "Differences between ranks, such as stragglers or uneven experts, are not in what was recorded.",
        )
    ]
