"""Table of the options of inference steps, in the form of `studio.generation.options`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from studio.generation.efficiency import estimate_serving_efficiency
from studio.generation.inference.counts import BYTES, Precision
from studio.generation.inference.deployment import DISAGGREGATED, PHASES, StepWish
from studio.generation.models import Model, find_model
from studio.generation.options import BATCH, BY_KEY, LAYOUT, MODEL, Option, fill_defaults
from studio.generation.program import Speed
from studio.generation.workload import INFERENCE as INFERENCE_KIND
from studio.generation.workload import build_workload, format_recipe

_LENGTHS = "a number, a range such as 1024..8192, or lognormal:MEDIAN:SIGMA"
STEP_OPTIONS = (
    Option(
        "phase", "layout", "choice", PHASES[1], "Phase",
        "Read prompts, make a token of each sequence, both in one step, or both on ranks of their own.",
        choices=(*PHASES, DISAGGREGATED), heading=BATCH,
    ),
    Option(
        "prefill_ranks", "layout", "count", None, "Prefill ranks", "Of a disaggregated job: ranks that read prompts.",
        "none", heading=LAYOUT,
    ),
    Option(
        "prefill_tp", "layout", "count", 1, "Their tensor parallel", "Of a disaggregated job: their tensor parallel ranks.",
        heading=LAYOUT,
    ),
    Option(
        "prompts", "layout", "count", None, "Prompts", "Of a disaggregated job: prompts that they read.",
        "one for each of their replicas", heading=LAYOUT,
    ),
    Option(
        "context", "layout", "name", None, "Context", f"Tokens that the KV cache holds of each sequence: {_LENGTHS}.",
        "4096, or half of the model's longest", heading=BATCH,
    ),
    Option(
        "prompt", "layout", "name", None, "Prompt", "New tokens of each prompt, in the same forms.",
        "--context in a prefill, 512 in a mixed step, which reads one prompt for each micro-batch", heading=BATCH,
    ),
    Option(
        "cached", "layout", "count", None, "Cached", "Tokens of each prompt that the cache holds before.", "none",
        heading=BATCH,
    ),
    Option(
        "micro_batches", "layout", "count", 1, "Micro-batches",
        "Micro-batches of each replica, which keep the stages of a pipeline busy.", heading=BATCH,
    ),
    Option(
        "draft", "layout", "count", None, "Draft tokens",
        "Tokens drafted for each sequence and verified in one pass of one more (speculative decoding).", "none",
        heading=BATCH,
    ),
    Option(
        "draft_model", "layout", "name", None, "Draft model", "Preset that drafts them, on the ranks of the first stage.",
        "no work is counted for drafting", heading=MODEL,
    ),
    Option(
        "kv_dtype", "layout", "choice", None, "Type of the KV cache", "Data type of the KV cache.", "that of --dtype",
        choices=tuple(BYTES), heading=MODEL,
    ),
)  # fmt: skip
_SHARED = {
    key: option
    for key, option in BY_KEY.items()
    if option.part != "layout"
    or key
    in ("tp", "pp", "dp", "stage_layers", "batch", "sequence", "steps", "seed", "ep", "expert_skew", "dtype")
}
"""Options of training that mean the same here; `sequence` is the longest context of a model of one's own."""
INFERENCE = _SHARED | {option.key: option for option in STEP_OPTIONS}


@dataclass(frozen=True, slots=True)
class Asked:
    """Steps of inference that a user asks for.

    Attributes:
        model: What is run.
        wish: What the steps are.
        speed: The GPU that durations are of, and what it reaches; None leaves them to the roofline of a simulated system.
        recipe: What was said, to be kept with the job.
    """

    model: Model
    wish: StepWish
    speed: Speed | None
    recipe: str = ""


def build_asked_steps(model: str | Model, ranks: int, given: Mapping[str, Any]) -> Asked:
    """Return the steps that a user asks for.

    Args:
        model: The name of a preset, `custom`, or the numbers of a model.
        ranks: How many ranks.
        given: Options by key (`INFERENCE`); one that is None or not there takes its default.

    Raises:
        ConfigError: A name is not known, numbers are missing, contradict each other or do not divide.
    """
    values = fill_defaults(given, INFERENCE)
    training = {key: given.get(key) for key in _SHARED if key not in ("batch", "steps", "dtype")}
    # Degrees are those of the ranks that decode.
    decoding = ranks - (values["prefill_ranks"] or 0) if values["phase"] == DISAGGREGATED else ranks
    # Steps of training tell nothing of inference.
    workload = build_workload(model, max(decoding, 1), training, estimate_serving_efficiency)
    draft = values["draft_model"]
    wish = StepWish(
        ranks, values["phase"], values["tp"], values["pp"], values["dp"], values["batch"],
        _format_length(values["context"]), _format_length(values["prompt"]), values["cached"] or 0, values["draft"] or 0,
        find_model(draft) if isinstance(draft, str) else draft, values["micro_batches"], values["steps"],
        Precision(values["dtype"], values["kv_dtype"] or values["dtype"]), values["seed"],
        values["stage_layers"], values["prefill_ranks"] or 0, values["prefill_tp"], values["prompts"],
        values["ep"], values["expert_skew"],
    )  # fmt: skip
    recipe = format_recipe(model, ranks, given, INFERENCE_KIND)
    return Asked(workload.model, wish, workload.speed, recipe)


def _format_length(length: int | str | None) -> str | None:
    return None if length is None else str(length)
