"""Data of the Ranks page: the mesh of a job, other meshes that fit, and a preview of the completed or scaled job."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from studio.analysis.job.completeness import infer_completeness
from studio.completion.clues import Known
from studio.completion.complete import LayoutNeededError, choose_mesh
from studio.completion.mesh import NAMES, PIPELINE, Axis, Clue, Mesh, find_fitting_meshes
from studio.completion.rules import DATA
from studio.completion.spread import MEASURED, NO_SPREAD
from studio.errors import StudioError
from studio.jobs.completing import Completing, Scaling, collect_layout_facts, complete_trace, scale_trace
from studio.trace import Finding, Trace, get_assumed_source

MOST_TRIED = 1 << 14
"""Ranks up to which a job is made to see that it can be, before anybody asks for it: a second or so."""
_MOST_ASKED = 6
_FEW = 64
"""Ranks up to which a spread that is measured is tried as well."""
_A_NODE = 8
"""Ranks that a job has at least where nothing says how many: the GPUs of one common machine."""


@dataclass(frozen=True, slots=True)
class Layouts:
    """The layouts that fit what is known of a job.

    Attributes:
        fitting: Those that fit, the likeliest first; empty where nothing fits.
        why: Why it has to be chosen; "" where one alone fits.
        world: Ranks of the job as its files say; 0 where they do not.
    """

    fitting: tuple[Mesh, ...]
    why: str
    world: int


@dataclass(frozen=True, slots=True)
class Planned:
    """The completed or scaled job as it would be, before it is made.

    Attributes:
        mesh: The mesh of its ranks.
        source: The rank whose recording a rank repeats, None where it was recorded itself.
        graphs: Distinct graphs; 0 where it was not tried.
        nodes: Nodes of all ranks.
        groups: Comm groups.
        findings: What is said of how it was made.
    """

    mesh: Mesh
    source: Callable[[int], int | None]
    graphs: int = 0
    nodes: int = 0
    groups: int = 0
    findings: tuple[Finding, ...] = ()


def list_layouts(known: Known) -> Layouts:
    """Return the layouts that fit what is known of a job (`jobs.completing.collect_layout_facts`).

    Raises:
        ConfigError: The known ranks contradict each other.
    """
    try:
        return Layouts((choose_mesh(known, None, None, first=False),), "", known.world)
    except LayoutNeededError as error:
        if is_alone(known.trace):
            # Its collectives move nothing, whatever groups they name.
            return Layouts((Mesh.of([(DATA, 1)]),), "", 1)
        why = error.message.partition(": ")[2] or error.message
        guessed = tuple(itertools.islice(_guess_layouts(known), _MOST_ASKED))
        return Layouts(error.meshes or guessed, why, known.world)


def is_alone(trace: Trace) -> bool:
    """Whether a job is one rank, as far as its files say."""
    job = infer_completeness(trace)
    return job.is_whole and job.world == 1


def _guess_layouts(known: Known) -> Iterator[Mesh]:
    """Yield layouts that nothing recorded contradicts, where members of groups are not listed.

    Tensor groups as large as a machine come first; the pipeline is outermost.
    """
    used = dict.fromkeys(use.likely for use in sorted(known.uses, key=lambda use: -use.weight))
    clue_names = [clue.name for clue in known.clues]
    used |= dict.fromkeys(name for name in clue_names if name)
    stages = [PIPELINE] if PIPELINE in used else []
    inner = [name for name in NAMES if name in used and name != PIPELINE] or ["dp"]
    named = [rank.number for rank in known.trace.ranks] + [end for step in known.steps for end in step]
    world = known.world or 1 << max(*named, _A_NODE - 1).bit_length()
    seen = set[str]()
    for sizes in _iterate_factorings(world, len(inner) + len(stages)):
        pairs = list(zip([*inner, *stages], sizes, strict=True))
        for mesh in find_fitting_meshes(pairs, known.clues):
            if mesh.layout not in seen and _can_complete(known.trace, mesh):
                seen.add(mesh.layout)
                yield mesh
            break


def _iterate_factorings(world: int, count: int) -> Iterator[tuple[int, ...]]:
    """Yield the ways to write a number as a product of factors from 2 on, the first near the GPUs of a machine first."""
    if count == 1:
        yield (world,)
        return
    for size in sorted(
        (size for size in range(2, world // 2 + 1) if not world % size),
        key=lambda size: (size > _A_NODE, abs(size - _A_NODE)),
    ):
        yield from ((size, *rest) for rest in _iterate_factorings(world // size, count - 1) if min(rest) > 1)


def _can_complete(trace: Trace, mesh: Mesh) -> bool:
    """Whether a job can be completed on a mesh."""
    try:
        complete_trace(trace, Completing(mesh.layout, damaged=True))
    except StudioError:
        return False
    return True


def describe_also_fitting(known: Known, mesh: Mesh) -> list[str]:
    """Return for each dimension of a mesh what it could be as well, in words; "" where nothing else fits.

    Members of a comm group tell where a dimension begins and ends; its name follows from what the group exchanges, which is less
    sure. A dimension of which nothing is known can be several.
    """
    clues = known.clues
    taken = {axis.name for axis in mesh.axes}
    texts = []
    for place, axis in enumerate(mesh.axes):
        about = [clue for clue in clues if clue.covers(axis.stride, axis.stride * axis.size)]
        names = [name for name in NAMES if name not in taken and _fits(mesh, place, name, clues)]
        if axis.size < 2 or any(clue.weight >= 4 and clue.name == axis.name for clue in about):
            names = []
        words = ", ".join(names)
        if not about and axis.size > 3:
            words += f"{'; ' if words else ''}several dimensions of {axis.size:,} ranks together"
        texts.append(words)
    return texts


def _fits(mesh: Mesh, place: int, name: str, clues: Sequence[Clue]) -> bool:
    renamed = [(name if at == place else axis.name, axis.size) for at, axis in enumerate(mesh.axes)]
    first = next(find_fitting_meshes(renamed, clues), None)
    if first is None or first.layout != Mesh.of(renamed).layout:
        return False
    # A pipeline sends messages; the groups of its ranks are those of copies.
    return name != PIPELINE


def build_layout_mesh(known: Known, layout: str) -> Mesh:
    """Return the mesh of a layout that a job has, with what shows it.

    Raises:
        ConfigError: It does not fit what is known.
    """
    mesh = choose_mesh(known, layout, None, first=True)
    # What was inferred is not called given only because it stands in a field.
    return next(
        (likely for likely in list_layouts(known).fitting if likely.axes == _replace_evidence(mesh, likely)),
        mesh,
    )


def _replace_evidence(mesh: Mesh, evidence: Mesh) -> tuple[Axis, ...]:
    """Return the dimensions of a mesh with the evidence of another one, as far as that has as many."""
    texts = [axis.evidence for axis in evidence.axes]
    return tuple(replace(axis, evidence=words) for axis, words in zip(mesh.axes, texts, strict=False))


def plan_completion(trace: Trace, wanted: Completing) -> Planned:
    """Return what completing a job would make; up to `MOST_TRIED` ranks it is made and forgotten, to see that it can be.

    Raises:
        ConfigError: The layout does not fit what is known.
        TraceError: Something of the job could not be read, no rank of some pipeline stage is known, or ranks would wait for ever.
    """
    mesh = build_layout_mesh(collect_layout_facts(trace, wanted.given()), wanted.layout)
    if mesh.world > MOST_TRIED:
        recorded = {rank.number for rank in trace.ranks}
        of_stage: dict[int, int] = {}
        for number in sorted(recorded):
            of_stage.setdefault(mesh.stage(number), number)
        return Planned(mesh, lambda rank: None if rank in recorded else of_stage.get(mesh.stage(rank)))
    # How durations are spread changes no rank's source, and takes a graph for each; whether it can be measured shows on few ranks.
    is_measured = MEASURED in (wanted.spread.jitter, wanted.spread.imbalance)
    tried = wanted if is_measured and mesh.world <= _FEW else replace(wanted, spread=NO_SPREAD)
    job = complete_trace(trace, tried)
    sources = index_sources(job)
    return _add_outcome(trace, Planned(mesh, sources.__getitem__), job)


def plan_scaling(trace: Trace, wanted: Scaling, before: Mesh, after: Mesh) -> Planned:
    """Return what scaling a job would make, from one mesh to another; tried as `plan_completion` does.

    Raises:
        ConfigError: The numbers do not fit the job's mesh, or sizes do not divide.
        TraceError: Ranks are missing.
    """
    plan = Planned(after, lambda rank: place_before(before, after, rank))
    return plan if after.world > MOST_TRIED else _add_outcome(trace, plan, scale_trace(trace, wanted))


def _add_outcome(trace: Trace, plan: Planned, job: Trace) -> Planned:
    earlier = {id(finding) for finding in trace.findings}
    findings = tuple(finding for finding in job.findings if id(finding) not in earlier)
    return replace(
        plan, graphs=len(job.graphs), nodes=job.node_count, groups=len(job.groups), findings=findings
    )


def place_before(before: Mesh, after: Mesh, rank: int) -> int:
    """Return the rank of a job that has a rank's place in the scaled job, replicas in turn.

    Of pipeline stages the first ones and the last one are those of before; a stage between them is built from the one before the last.

    Example:
        >>> place_before(Mesh.of([("tp", 2), ("dp", 2)]), Mesh.of([("tp", 2), ("dp", 8)]), 5)
        1
        >>> [place_before(Mesh.of([("pp", 2)]), Mesh.of([("pp", 4)]), rank) for rank in range(4)]
        [0, 0, 0, 1]
    """
    return sum(
        _find_old_place(axis, larger, rank) * axis.stride for axis, larger in _pair_dimensions(before, after)
    )


def is_kept(before: Mesh, after: Mesh, rank: int) -> bool:
    """Return whether a rank of the scaled job is one of those there were before.

    Example:
        >>> [is_kept(Mesh.of([("pp", 2)]), Mesh.of([("pp", 4)]), rank) for rank in range(4)]
        [True, False, False, True]
    """
    kept = True
    for axis, larger in _pair_dimensions(before, after):
        place = larger.place(rank)
        if axis.name == PIPELINE and axis.size < larger.size:
            kept &= place < axis.size - 1 or place == larger.size - 1
        else:
            kept &= place < axis.size
    return kept and all(axis.place(rank) == 0 for axis in after.axes if before.axis(axis.name) is None)


def _pair_dimensions(before: Mesh, after: Mesh) -> list[tuple[Axis, Axis]]:
    """Return each dimension of a mesh with the same one of the larger mesh."""
    return [(axis, larger) for axis in before.axes if (larger := after.axis(axis.name)) is not None]


def _find_old_place(axis: Axis, larger: Axis, rank: int) -> int:
    place = larger.place(rank)
    if axis.name != PIPELINE or axis.size == larger.size:
        return place % axis.size
    return axis.size - 1 if place == larger.size - 1 else min(place, max(axis.size - 2, 0))


def index_sources(trace: Trace) -> dict[int, int | None]:
    """Return for each rank of a job the one whose recording it repeats, None where it was recorded itself."""
    return {rank.number: get_assumed_source(rank) for rank in trace.ranks}


def group_equal_ranks(sources: Sequence[tuple[int, int | None]]) -> dict[int, list[int]]:
    """Return the ranks assumed equal to each rank, by that rank.

    Example:
        >>> group_equal_ranks([(0, None), (1, 0), (2, 0)])
        {0: [1, 2]}
    """
    equal_ranks: dict[int, list[int]] = {}
    for number, source in sources:
        if source is not None:
            equal_ranks.setdefault(source, []).append(number)
    return dict(sorted(equal_ranks.items()))
