"""How fast a layout can be at best: lower bounds of the time of a step, for branch and bound.

A replica works on m micro-batches; each pass of one through a stage takes no less than its longest path (`course`), and passes of a
stage follow each other. So a step takes, for each stage, no less than the path to its first pass, all of its passes, and the path
from its last one to the end: in a pipeline of equal stages (m + p − 1) (F + B), with gradients that are summed and the optimizer
behind it. Collectives of a comm group follow each other too; with ZeRO-2 and 3 each micro-batch has its own. Passes are alike in all
micro-batches, so that a job of a few shows them all.

There are two bounds. `Bounds.quick` puts together passes of single layers, which many layouts have in common; `close_bound` generates
the job of the layout itself with as few micro-batches as it allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any

from studio.errors import ConfigError
from studio.generation.job import make_job
from studio.generation.layout import Layout
from studio.generation.memory import (
    WEIGHT_BYTES,
    count_kept_activations,
    count_optimizer_traffic,
    count_updated_parameters,
)
from studio.generation.models import Model
from studio.generation.workload import Workload, build_workload
from studio.layout_search.course import (
    WAYS,
    Course,
    build_course,
    compute_longest_paths,
    compute_pass_lengths,
    iterate_passes,
)
from studio.sim.config import SystemConfig

_SPLIT = ("zb-h1",)
"""Schedules that make gradients of weights in passes of their own."""
_EACH_TIME = 2
"""From this stage of ZeRO on each micro-batch has its own collectives among replicas."""
_OF_STAGES = frozenset(
    {
        *("pp", "dp", "zero", "schedule", "batch", "batch_from", "stage_layers", "steps", "virtual_stages", "virtual_layers"),
        *("shard", "prefetch", "grad_overlap", "bucket", "bucket_mb", "grad_dtype", "reduce_dtype", "optimizer"),
        *("offload", "host_gbytes"),
    }
)  # fmt: skip
"""What passes of a layer do not depend on, but for the schedules that split them and for gathers of ZeRO-3, which only add to them."""
_KNOWN = _OF_STAGES | {
    "tp",
    "micro_batch",
    "sequence",
    "sequence_parallel",
    "recompute",
    "attention",
    "dtype",
}
_LAYERS = 2
"""Layers of the jobs that show the passes of a layer: the first and one that follows another."""


@dataclass(frozen=True, slots=True)
class _Passes:
    """Least times of the passes of a micro-batch, by direction and part of a stage (`embedding`, `layer`, `head`)."""

    ns: Mapping[tuple[str, str], int]

    def of(self, way: str, layers: int, *, first: bool, last: bool) -> int:
        """Return the least time of a pass through some layers, and the embedding before and the head behind them."""
        total = layers * self.ns.get((way, "layer"), 0)
        total += self.ns.get((way, "embedding"), 0) if first else 0
        return total + (self.ns.get((way, "head"), 0) if last else 0)


@dataclass(slots=True)
class Bounds:
    """Bounds of layouts of a model on a system.

    Attributes:
        model: What is trained.
        config: The system.
        known: Passes of layers, by what they depend on.
    """

    model: Model
    config: SystemConfig
    known: dict[tuple[tuple[str, Any], ...], _Passes] = field(default_factory=dict)

    def quick(self, options: Mapping[str, Any], layout: Layout) -> int:
        """Return a lower bound of the time of all steps in ns, from passes of single layers; 0 where they do not tell."""
        if self.model.experts or not _is_plain(layout):
            return 0
        passes = self._get_passes(options, split=layout.schedule in _SPLIT)
        last = layout.pp - 1
        work = layout.steps * layout.micro_batches
        before = most = 0
        for stage in range(layout.pp):
            ends = {"first": not stage, "last": stage == last}
            every = sum(passes.of(way, layout.stage_layers[stage], **ends) for way in WAYS)
            most = max(most, before + work * every)
            if layout.offloads_optimizer:
                # The host begins when all gradients are there, and the next step when the weights are back.
                count = count_updated_parameters(self.model, layout, stage)
                moved = count_optimizer_traffic(layout, count) + WEIGHT_BYTES * count
                host = int(moved / layout.host_gbytes)
                most = max(most, before + work * every + layout.steps * host)
            if layout.offloads_activations:
                # What each layer keeps goes to the host and comes back, one after the other in each direction.
                kept = sum(
                    count_kept_activations(self.model, layout, layer)
                    for layers in layout.chunk_layers(stage)
                    for layer in layers
                )
                most = max(most, int(work * kept / layout.host_gbytes))
            # The first micro-batch goes through the first chunk of each stage before, the last one back through it.
            chunk = len(layout.chunk_layers(stage)[0])
            before += passes.of("fwd", chunk, first=not stage, last=False)
            before += (
                passes.of("bwd", chunk, first=not stage, last=False) if layout.schedule not in _SPLIT else 0
            )
        return most

    def _get_passes(self, options: Mapping[str, Any], *, split: bool) -> _Passes:
        alone = {key: value for key, value in options.items() if key not in _OF_STAGES}
        key = ("split", split), *sorted(alone.items())
        if key not in self.known:
            self.known[key] = self._measure(alone, split=split)
        return self.known[key]

    def _measure(self, alone: Mapping[str, Any], *, split: bool) -> _Passes:
        small = replace(self.model, layers=_LAYERS)
        try:
            ranks = int(alone.get("tp") or 1) * int(alone.get("cp") or 1)
            more = {"batch": int(alone.get("micro_batch") or 1), "schedule": _SPLIT[0] if split else None}
            workload = build_workload(small, ranks, {**alone, **more})
            course = build_course(make_job(small, workload.layout, workload.speed), self.config)
        except ConfigError:
            return _Passes({})
        least_ns: dict[tuple[str, str], int] = {}
        for way, nodes in iterate_passes(course, 0, split_weights=split):
            parts = [course.names[node].split(".")[2] for node in nodes]
            cuts = [at for at, part in enumerate(parts) if at + 1 == len(parts) or parts[at + 1] != part]
            for cut, length in zip(cuts, compute_pass_lengths(course, nodes, cuts), strict=True):
                place = "layer" if parts[cut].startswith("layer") else parts[cut]
                # A stage may begin with any layer; without what precedes it, its first node may begin sooner.
                least_ns[way, place] = min(length, least_ns.get((way, place), length))
        return _Passes(least_ns)


def _is_plain(layout: Layout) -> bool:
    """Whether the passes of a layout are those that `Bounds.quick` puts together."""
    return all(
        spec.name in _KNOWN or bool(getattr(layout, spec.name) == spec.default) for spec in fields(layout)
    )


def close_bound(workload: Workload, options: Mapping[str, Any], config: SystemConfig) -> int:
    """Return a lower bound of the time of all steps in ns, from the layout's own job with few micro-batches.

    Args:
        workload: The layout.
        options: What it takes to generate it.
        config: The system.
    """
    layout = workload.layout
    few = _reduce_micro_batches(workload, options)
    job = make_job(few.model, few.layout, few.speed)
    course = build_course(job, config)
    before, after = paths = compute_longest_paths(course)
    bounds = [begin + takes + rest for begin, takes, rest in zip(before, course.takes_ns, after, strict=True)]
    times = layout.steps * layout.micro_batches // few.layout.micro_batches
    split = layout.schedule in _SPLIT
    for graph in range(len(job.graphs)):
        bounds.append(_bound_passes(course, graph, times, paths, split=split))
        if layout.zero >= _EACH_TIME:
            bounds += [times * total for total in _sum_by_group(course, graph).values()]
    return max(bounds)


def _bound_passes(
    course: Course, graph: int, times: int, paths: tuple[list[int], list[int]], *, split: bool
) -> int:
    """Return the least time of a job by the passes of one graph, each `times` times."""
    passes = [nodes for _, nodes in iterate_passes(course, graph, split_weights=split)]
    stream = [node for nodes in passes for node in nodes]
    # Each compute node has to wait for the one before it.
    if not stream or not all(before in course.parents[node] for before, node in pairwise(stream)):
        return 0
    work = sum(compute_pass_lengths(course, nodes, [len(nodes) - 1])[0] for nodes in passes)
    before, after = paths
    return before[stream[0]] + times * work + after[stream[-1]]


def _sum_by_group(course: Course, graph: int) -> dict[int, int]:
    """Return what the collectives of micro-batches take by comm group, one after the other."""
    times_ns: dict[int, int] = {}
    for node in course.bounds[graph]:
        group = course.group[node]
        if group >= 0 and course.is_of_micro_batch(node):
            times_ns[group] = times_ns.get(group, 0) + course.takes_ns[node]
    return times_ns


def _reduce_micro_batches(workload: Workload, options: Mapping[str, Any]) -> Workload:
    """Return a layout with as few micro-batches as it allows, of which those of a step are a multiple."""
    layout = workload.layout
    for count in (1, layout.pp):
        if layout.micro_batches % count:
            continue
        try:
            batch = layout.dp * layout.micro_batch * count
            return build_workload(workload.model, layout.ranks, {**options, "batch": batch, "steps": 1})
        except ConfigError:
            continue
    return workload
