"""What a generated job keeps of what was said: its GPU, and the command that generates it for another one."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from studio.errors import ConfigError
from studio.sim.systems.gpu import Gpu
from studio.sim.systems.gpus import find_gpu, find_short_name
from studio.trace import GENERATED, RECIPE, Trace

_OPTION = {"sequence": "seq"}
"""Options that are not called as their keys."""


def find_intended_gpu(trace: Trace) -> Gpu | None:
    """Return the GPU that a job was generated for; None for jobs that were not, or that no GPU was said of."""
    try:
        return find_gpu(read_recipe_fields(trace)["given"]["gpu"])
    except (ConfigError, KeyError, TypeError, AttributeError):
        return None


def generate_anew(trace: Trace, gpu: Gpu) -> str:
    """Say how to generate a job for another GPU: with the whole command where its ranks tell of it.

    Args:
        trace: A generated job.
        gpu: The GPU that it is wanted for.
    """
    name = find_short_name(gpu)
    if name is None:
        return "Generate it anew with --gpu of that GPU."
    command = _format_command(trace, name)
    return f"Generate it anew with --gpu {name}{f': {command}' if command else ''}."


def read_recipe_fields(trace: Trace) -> Mapping[str, Any]:
    """Return what was said of a generated job, by its names, as its first rank keeps it; empty for other jobs.

    `studio.generation.recipe.read_recipe` makes of them what a job can be generated from, and refuses what cannot.
    """
    text = trace.ranks[0].metadata_value(RECIPE) if trace.ranks else None
    try:
        recipe = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return {}
    return recipe if isinstance(recipe, dict) else {}


def _format_command(trace: Trace, gpu: str) -> str:
    """Return the command that generates a job for a GPU; "" where its model has no name or nothing tells the command."""
    recipe = read_recipe_fields(trace)
    origin, model, given = trace.ranks[0].metadata_value(GENERATED), recipe.get("model"), recipe.get("given")
    if not isinstance(origin, str) or not isinstance(model, str) or not isinstance(given, dict):
        return ""
    words = [origin.partition(":")[0], "--model", shlex.quote(model), "--ranks", str(recipe.get("ranks"))]
    for key, value in {**given, "gpu": gpu}.items():
        option = str(_OPTION.get(key, key)).replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{'' if value else 'no-'}{option}")
        else:
            listed = value if isinstance(value, list) else [value]
            words += [f"--{option}", shlex.quote(",".join(map(str, listed)))]
    return " ".join([*words, "-o", "JOB"])
