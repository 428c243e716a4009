"""Advice on interleaved pipeline stages, for generated jobs only: in others, stages would have to exchange layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from studio.advice.baseline import Scene
from studio.advice.candidates import WHOLE_JOB, Candidate, Found, Refusal
from studio.advice.terms import Change
from studio.errors import ConfigError
from studio.generation.recipe import Recipe, find_unchanged_recipe, is_timed, read_recipe
from studio.generation.schedule import count_in_flight
from studio.generation.workload import TRAINING
from studio.trace import Trace

_CHUNKS = 2
_MOST_NODES = 300_000
"""Larger graphs, of which a second one would be made, are left as they are; so other changes of pipelines do."""
_GIVEN = {"schedule": "interleaved", "virtual_stages": _CHUNKS}


@dataclass(frozen=True, slots=True)
class Interleave:
    """Generates a job with interleaved stages, of an unchanged job from its recipe.

    Attributes:
        recipe: What the job with interleaved stages is made from.
        adds_nodes: Edits of which this is true are made after all others.
    """

    recipe: Recipe
    adds_nodes: ClassVar[bool] = True

    def __call__(self, trace: Trace) -> Trace:
        """Return the job, with durations where the one before has some."""
        return self.recipe.job(timed=is_timed(trace))


def propose_interleaving(scene: Scene) -> Iterator[Found]:
    """Yield the pipeline of a generated job with two chunks of layers for each stage, in the order of interleaved 1F1B."""
    recipe = read_recipe(scene.trace)
    if max(map(len, scene.trace.graphs)) > _MOST_NODES:
        return
    if recipe is None or recipe.kind != TRAINING or find_unchanged_recipe(scene.trace) is None:
        return
    layout = recipe.workload().layout
    if layout.pp == 1 or layout.schedule == "interleaved":
        return
    other = replace(recipe, given={**recipe.given, **_GIVEN, "batch": layout.batch})
    try:
        after = other.workload().layout
    except ConfigError as error:
        yield Refusal("schedule", f"stages cannot be interleaved: {error.message.rstrip('.')}")
        return
    stages, count = after.pp, after.micro_batches
    held = count_in_flight("interleaved", 0, stages, count, _CHUNKS)
    now = count_in_flight(layout.schedule, 0, stages, count)
    yield Candidate(
        "schedule",
        f"Give each stage of the pipeline {_CHUNKS} chunks of layers in place of one, in the order of interleaved 1F1B: the first "
        f"stage holds activations of up to {held:,} passes of half its layers then, of {now:,} of all its layers now.",
        Change((Interleave(other),)),
        frozenset({"dependencies", "micro-batches", WHOLE_JOB}),
    )
