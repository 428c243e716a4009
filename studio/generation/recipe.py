"""The recipe that a generated job keeps, and the generation of larger jobs from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from studio.completion.clues import collect_facts
from studio.completion.complete import choose_mesh
from studio.completion.layout import Layout as GivenLayout
from studio.completion.mesh import PIPELINE, Mesh
from studio.completion.rules import DATA, EXPERT, TENSOR, Layers, Rule, get_size, select_rules
from studio.completion.scale import scale_mesh, scale_to
from studio.errors import ConfigError
from studio.generation.families.job import build_asked_network
from studio.generation.faults import parse_slow_ranks
from studio.generation.groups import build_rank_mesh
from studio.generation.inference.deployment import DISAGGREGATED, build_ranks_layout
from studio.generation.inference.generate import generate_steps
from studio.generation.inference.options import build_asked_steps
from studio.generation.job import make_job
from studio.generation.layout import Layout
from studio.generation.models import Model
from studio.generation.workload import CUSTOM, INFERENCE, NETWORK, TRAINING, Workload, build_workload
from studio.sim.generated import read_recipe_fields
from studio.trace import NONE, Graph, NodeType, Trace, read_dense_column

_TOLD = ("num_ops", "tensor_size", "comm_type", "comm_size", "comm_tag")
"""Attributes that say what a node does."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What was said of a job when it was generated.

    Attributes:
        model: The name of a preset, `custom`, or the numbers of a model.
        ranks: How many ranks.
        given: What else was said, by the keys of the options of its kind.
        kind: The training of a transformer, steps of inference, or the training of another network.
    """

    model: str | Model
    ranks: int
    given: Mapping[str, Any]
    kind: str = TRAINING

    def workload(self) -> Workload:
        """Return the workload of the training of a transformer.

        Raises:
            ConfigError: Numbers do not divide.
        """
        return build_workload(self.model, self.ranks, self.given)

    def layout(self) -> Layout | None:
        """Return how ranks share the model; None where that is more than one layout, or replicas alone.

        Raises:
            ConfigError: Numbers do not divide.
        """
        if self.kind == TRAINING:
            return self.workload().layout
        if self.kind == NETWORK:
            return None
        asked = build_asked_steps(self.model, self.ranks, self.given)
        return None if asked.wish.phase == DISAGGREGATED else build_ranks_layout(asked.model, asked.wish)

    def batch(self) -> int:
        """Return the sequences or samples of all replicas.

        Raises:
            ConfigError: Numbers do not divide.
        """
        if self.kind == TRAINING:
            return self.workload().layout.batch
        if self.kind == NETWORK:
            return build_asked_network(str(self.model), self.ranks, self.given).replicas.batch
        wish = build_asked_steps(self.model, self.ranks, self.given).wish
        replicas = (wish.ranks - wish.prefill_ranks) // (wish.tp * wish.pp)
        return wish.batch or max(replicas, 1) * wish.micro_batches

    def job(self, *, timed: bool = True) -> Trace:
        """Return the job.

        Args:
            timed: Whether nodes have durations where a GPU is said; else every machine times them.

        Raises:
            ConfigError: Numbers do not divide, or there would be too many nodes.
        """
        if self.kind == TRAINING:
            workload = self.workload()
            kept = workload if timed else replace(workload, speed=None)
            return make_job(kept.model, kept.layout, kept.speed, kept.faults, kept.recipe)
        if self.kind == NETWORK:
            network = build_asked_network(str(self.model), self.ranks, self.given)
            return (network if timed else replace(network, speed=None)).job()
        asked = build_asked_steps(self.model, self.ranks, self.given)
        return generate_steps(asked if timed else replace(asked, speed=None))


@dataclass(frozen=True, slots=True)
class Growth:
    """The degrees that a job is scaled to; None keeps the present one.

    Attributes:
        dp: Replicas.
        ranks: Ranks, in place of `dp`.
        pp: Pipeline stages.
        ep: Ranks along the expert dimension.
        tp: Tensor-parallel ranks.
        strong: Whether more replicas share the batch.
        layers: Whether more stages share the layers of the model, or each has as many as before.
    """

    dp: int | None = None
    ranks: int | None = None
    pp: int | None = None
    ep: int | None = None
    tp: int | None = None
    strong: bool = False
    layers: Layers = "divided"

    @property
    def is_of_tensor_ranks(self) -> bool:
        """Whether nothing but the number of tensor-parallel ranks is said."""
        return (self.dp, self.ranks, self.pp, self.ep) == (None,) * 4


def infer_mesh(trace: Trace, layout: GivenLayout | str | None = None) -> Mesh:
    """Return the mesh of a job to be scaled: from its recipe where it was generated, else from its clues.

    Args:
        trace: The job.
        layout: Its mesh, as a user says; None takes what is likeliest.

    Raises:
        ConfigError: The layout does not fit what is known.
    """
    recipe = read_recipe(trace) if layout is None else None
    mesh = _build_mesh(recipe) if recipe is not None else None
    if mesh is not None and mesh.world == len(trace.ranks):
        return mesh
    return choose_mesh(collect_facts(trace), layout, None, first=True)


def _build_mesh(recipe: Recipe) -> Mesh | None:
    """Return the mesh that a recipe gives; None where its dimensions overlap or it gives none."""
    try:
        layout = recipe.layout()
    except ConfigError:
        return None
    if layout is None or (layout.ep > 1 and layout.cp > 1):
        return None
    sizes = {"tp": layout.tp, "cp": layout.cp, "pp": layout.pp, DATA: layout.dp // layout.ep}
    inner = [axis for axis in (*layout.order, *sizes) if axis in sizes]
    axes = [(axis, sizes[axis]) for axis in dict.fromkeys(inner)]
    # Ranks that divide experts are adjacent replicas.
    axes.insert([name for name, _ in axes].index(DATA), (EXPERT, layout.ep))
    return Mesh.of([(name, size) for name, size in axes if size > 1] or [(DATA, 1)])


def scale_job(trace: Trace, before: Mesh, wanted: Growth) -> tuple[Trace, Mesh, tuple[Rule, ...]]:
    """Return a whole job on more ranks, its mesh, and the rules by which it was made.

    A generated job is generated anew, and so may have any number of tensor-parallel ranks; all else, and generated jobs that were
    changed since, are scaled by `completion.scale.scale_to`.

    Raises:
        ConfigError: The numbers do not fit the job's mesh, sizes do not divide, or names and shapes do not tell what has to be told.
        TraceError: The larger job would hang.
    """
    strong, layers = wanted.strong, wanted.layers
    recipe = find_unchanged_recipe(trace)
    if recipe is not None:
        scaled, after = _generate_anew(trace, recipe, before, wanted)
        return scaled, after, select_rules(before, after, strong=strong, layers=layers, generated=True)
    if wanted.tp is not None and read_recipe(trace) is not None:
        raise ConfigError(
            "the job was changed after it was generated: it is not what its options make",
            hint="Scale the tensor dimension first, then change the rest; or generate it again.",
        )
    after = scale_mesh(before, dp=wanted.dp, ranks=wanted.ranks, pp=wanted.pp, ep=wanted.ep, tp=wanted.tp)
    scaled = scale_to(trace, before, after, strong=strong, layers=layers)
    return scaled, after, select_rules(before, after, strong=strong, layers=layers)


def read_recipe(trace: Trace) -> Recipe | None:
    """Return what a job was generated from; None for other jobs."""
    stored = read_recipe_fields(trace)
    try:
        given = {key: _read(value) for key, value in stored["given"].items()}
        recipe = Recipe(_read(stored["model"]), int(stored["ranks"]), given, stored.get("kind", TRAINING))
        return recipe if recipe.kind in (TRAINING, INFERENCE, NETWORK) else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _read(value: Any) -> Any:
    """Return a value of a recipe: lists are fixed ones, numbers of a model make one."""
    if isinstance(value, list):
        return tuple(value)
    return Model(**value) if isinstance(value, dict) else value


def find_unchanged_recipe(trace: Trace) -> Recipe | None:
    """Return the recipe that a job was generated from; None where the job was changed since."""
    recipe = read_recipe(trace)
    if recipe is None:
        return None
    try:
        generated = recipe.job(timed=is_timed(trace))
    except ConfigError:
        return None
    return recipe if _is_same(generated, trace) else None


def is_timed(trace: Trace) -> bool:
    """Whether compute of a job has durations, so that no machine times it."""
    return any(bool((graph.duration_ns[graph.type == NodeType.COMP] > 0).any()) for graph in trace.graphs)


def _generate_anew(trace: Trace, recipe: Recipe, before: Mesh, wanted: Growth) -> tuple[Trace, Mesh]:
    """Return a job as it is generated on more ranks, and its mesh.

    Raises:
        ConfigError: The numbers do not fit the job's mesh, or what the model allows.
    """
    start, timed = before, is_timed(trace)
    if wanted.tp is not None and recipe.layout() is not None:
        recipe = _with_tensor_ranks(recipe, wanted.tp)
        trace = recipe.job(timed=timed)
        start = infer_mesh(trace)
        if wanted.is_of_tensor_ranks:
            return trace, start
    if (
        recipe.kind == INFERENCE
        and recipe.layout() is None
        and (wanted.tp, wanted.pp, wanted.ep) != (None,) * 3
    ):
        raise ConfigError(
            "tp, pp or ep is given of a job whose prompts are read on ranks of their own; allowed: dp or ranks",
            hint="Generate it with other degrees.",
        )
    tp = None if recipe.layout() is not None else wanted.tp
    wider = _with_dimensions(start, wanted) if _build_mesh(recipe) is not None else start
    after = scale_mesh(wider, dp=wanted.dp, ranks=wanted.ranks, pp=wanted.pp, ep=wanted.ep, tp=tp)
    if after.layout == start.layout:
        return trace, start
    replicas, stages, experts = (
        get_size(after, name) // get_size(start, name) for name in (DATA, PIPELINE, EXPERT)
    )
    larger = _with_replicas(_with_stages(recipe, stages, wanted.layers), replicas, experts, wanted.strong)
    larger = _with_slow_ranks(recipe, larger)
    scaled = larger.job(timed=timed)
    # A dimension that was not there before stands where the layout of the recipe has it.
    is_new = any(start.axis(axis.name) is None for axis in after.axes)
    return scaled, infer_mesh(scaled) if is_new else after


def _with_dimensions(mesh: Mesh, wanted: Growth) -> Mesh:
    """Return a mesh with the dimensions that are asked for and that it lacks, since the recipe says what ranks along them exchange."""
    lacking = [
        (name, size)
        for name, size in ((PIPELINE, wanted.pp), (EXPERT, wanted.ep))
        if size is not None and size > 1 and mesh.axis(name) is None
    ]
    return Mesh.of([*((axis.name, axis.size) for axis in mesh.axes), *lacking])


def _with_tensor_ranks(recipe: Recipe, tp: int) -> Recipe:
    """Return a recipe with another number of tensor-parallel ranks: replicas, stages and batch stay."""
    layout = recipe.layout()
    assert layout is not None
    given = {**recipe.given, TENSOR: tp}
    larger = _with_batch(replace(recipe, ranks=recipe.ranks // layout.tp * tp, given=given), recipe.batch())
    return _with_slow_ranks(recipe, larger)


def _with_stages(recipe: Recipe, stages: int, layers: Layers) -> Recipe:
    """Return a recipe with so many times as many pipeline stages; the batch of each replica stays."""
    layout = recipe.layout()
    if stages == 1 or layout is None:
        return recipe
    given = {**recipe.given, PIPELINE: layout.pp * stages}
    model = recipe.model
    if layers == "kept" and model == CUSTOM:
        given["layers"] *= stages
    elif layers == "kept":
        shape = recipe.workload().model if recipe.kind == TRAINING else _find_steps_model(recipe)
        deeper = shape.layers * stages
        model = replace(shape, layers=deeper, name=f"{shape.name} of {deeper:,} layers")
    larger = Recipe(model, recipe.ranks * stages, given, recipe.kind)
    return _with_batch(larger, recipe.batch())


def _find_steps_model(recipe: Recipe) -> Model:
    return build_asked_steps(recipe.model, recipe.ranks, recipe.given).model


def _with_replicas(recipe: Recipe, replicas: int, experts: int, strong: bool) -> Recipe:
    """Return a recipe with more replicas, and with more of them that divide experts among them.

    Each replica keeps its batch, or, with `strong`, shares it with those that are added along the data dimension.
    """
    times = replicas * experts
    given = dict(recipe.given)
    layout = recipe.layout()
    if experts > 1 and layout is not None:
        given[EXPERT] = layout.ep * experts
    for key in (DATA, "prefill_ranks", "prompts"):
        if given.get(key) is not None:
            given[key] *= times
    micro_batches = given.get("micro_batches")
    if strong and micro_batches is not None and not micro_batches % replicas:
        given["micro_batches"] = micro_batches // replicas
    larger = replace(recipe, ranks=recipe.ranks * times, given=given)
    return _with_batch(larger, recipe.batch() * (experts if strong else times))


def _with_batch(recipe: Recipe, batch: int) -> Recipe:
    """Return a recipe with a batch, which is said only where it is not what follows from the rest."""
    if recipe.given.get("batch") is None:
        try:
            if recipe.batch() == batch:
                return recipe
        except ConfigError:
            pass  # What follows from the rest does not divide; a batch that is said may.
    return replace(recipe, given={**recipe.given, "batch": batch})


def _with_slow_ranks(before: Recipe, after: Recipe) -> Recipe:
    """Return a recipe whose slow ranks are those in the same place of the layout before."""
    text = before.given.get("slow_rank")
    if not text:
        return after
    places = {int(rank): place for place, rank in np.ndenumerate(build_rank_mesh(before.workload().layout))}
    plain = replace(after, given={key: value for key, value in after.given.items() if key != "slow_rank"})
    numbers = build_rank_mesh(plain.workload().layout)
    moved = {
        int(numbers[places[rank]]): factor
        for rank, factor in parse_slow_ranks(text).items()
        if all(at < size for at, size in zip(places[rank], numbers.shape, strict=True))
    }
    text_after = ",".join(f"{rank}:{factor:g}" for rank, factor in moved.items())
    return replace(after, given={**after.given, "slow_rank": text_after or None})


def _is_same(generated: Trace, trace: Trace) -> bool:
    """Whether a job is one that was generated, maybe written and read since: files have attributes more that say the same."""
    # Graphs are numbered as files are read, which is not the order of ranks.
    pairs = {(own.graph, other.graph) for own, other in zip(generated.ranks, trace.ranks, strict=False)}
    return (
        [(rank.number, rank.slots) for rank in generated.ranks]
        == [(rank.number, rank.slots) for rank in trace.ranks]
        and set(generated.groups) == set(trace.groups)
        and all(_is_same_graph(generated.graphs[own], trace.graphs[other]) for own, other in pairs)
    )


def _is_same_graph(generated: Graph, graph: Graph) -> bool:
    columns: list[tuple[Any, Any]] = [
        (generated.type, graph.type),
        (generated.duration_ns, graph.duration_ns),
    ]
    columns += [
        (getattr(getattr(generated, kind), part), getattr(getattr(graph, kind), part))
        for kind in ("ctrl", "data")
        for part in ("offsets", "rows")
    ]
    columns += [
        (read_dense_column(generated, key, NONE), read_dense_column(graph, key, NONE)) for key in _TOLD
    ]
    return all(np.array_equal(own, other) for own, other in columns)
