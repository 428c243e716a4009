"""A workload: what is trained, how ranks share it and how fast their nodes run, from what a user says."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import Any

from studio.errors import ConfigError
from studio.generation.efficiency import Efficiency, choose_efficiency
from studio.generation.faults import NO_FAULTS, Faults, build_faults
from studio.generation.layout import Layout
from studio.generation.memory import count_layer_activations, find_fullest_stage
from studio.generation.models import Model, find_model
from studio.generation.options import BY_KEY, OPTIONS, fill_defaults
from studio.generation.program import Speed
from studio.generation.transformer import count_parameters
from studio.generation.wish import Wish, build_layout
from studio.operators.roofline import Gpu
from studio.sim.systems.gpus import find_gpu
from studio.trace import RECIPE, Attribute, Trace, ValueKind

_MOST_BYTES = 1 << 62
_STATE_BYTES = 16
"""Weights, gradients and what Adam keeps of a parameter in mixed precision."""
CUSTOM = "custom"
"""The name of a model of which every number is given."""
TRAINING, INFERENCE, NETWORK = "training", "inference", "network"
"""Kinds of recipes: the training of a transformer, steps of inference, the training of another network."""
_NEEDED = ("layers", "hidden", "heads", "feed_forward", "vocabulary")
_MORE = (
    "experts", "experts_per_token", "expert_width", "shared_width", "dense_layers", "kv_rank", "query_rank", "rope_size",
    "value_size", "window", "full_every",
)  # fmt: skip
_GPT_VOCABULARY = 50_257
Reached = Callable[[Gpu], Efficiency]
_SHAPE = tuple(option for option in OPTIONS if option.part == "shape")


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload.

    Attributes:
        model: What is trained.
        layout: How ranks share it.
        speed: The GPU that durations are of, and what it reaches; None leaves them to the roofline of a simulated system.
        faults: What goes wrong.
        recipe: What was said, to be kept with the job (`recipe.py`).
    """

    model: Model
    layout: Layout
    speed: Speed | None = None
    faults: Faults = NO_FAULTS
    recipe: str = ""

    @property
    def peak_memory(self) -> dict[str, int]:
        """What a rank of the fullest stage holds at its peak, in bytes by part."""
        return find_fullest_stage(self.model, self.layout)[1]


def build_workload(
    model: str | Model, ranks: int, given: Mapping[str, Any], reached: Reached = choose_efficiency
) -> Workload:
    """Return the workload that a user asks for.

    Args:
        model: The name of a preset, `custom`, or the numbers of a model.
        ranks: How many ranks.
        given: Options by key (`options.OPTIONS`); one that is None or not there takes its default.
        reached: What is reached of a GPU where no efficiency is given: that of steps of training, or of inference.

    Raises:
        ConfigError: A name is not known, numbers are missing, contradict each other or do not divide.
    """
    values = fill_defaults(given)
    shaped = [option.names[0] for option in _SHAPE if values[option.key] != option.default]
    if model == CUSTOM:
        shape = _build_custom_model(values)
    elif shaped:
        raise ConfigError(f"{', '.join(shaped)}: for a custom model only.", hint="Use --model custom.")
    else:
        shape = find_model(model) if isinstance(model, str) else model
    wish = Wish(ranks, **{spec.name: values[spec.name] for spec in fields(Wish) if spec.name in values})
    speed = build_speed(values["gpu"], values["compute_efficiency"], values["memory_efficiency"], reached)
    if speed is not None and values["dtype"] == "fp8" and "fp8" not in speed.gpu.tera_flops:
        raise ConfigError(
            f"--dtype is fp8, but {speed.gpu.name} has no units for it.",
            hint="Use bf16, or a GPU that has them, such as h100 or mi300x.",
            key="dtype",
        )
    faults = build_faults(values["slow_rank"], values["jitter"], values["seed"], ranks)
    if faults and speed is None:
        option = "--slow-rank" if faults.slow else "--jitter"
        raise ConfigError(
            f"{option} was given, but no --gpu, without which compute nodes have no durations.",
            hint="Name one, such as --gpu h100.",
        )
    layout = build_layout(shape, wish)
    _refuse_uncountable(shape, layout)
    return Workload(shape, layout, speed, faults, format_recipe(model, ranks, given))


def _refuse_uncountable(model: Model, layout: Layout) -> None:
    """Refuse models so large that columns of whole numbers do not hold their bytes.

    Raises:
        ConfigError: They are, in weights with what an optimizer keeps of them, or in activations of a step.
    """
    kept = count_layer_activations(model, layout, 0) * model.layers * layout.micro_batches
    for what, count, options in (
        ("the weights and what the optimizer keeps of them", _STATE_BYTES * count_parameters(model), "--layers and --hidden"),
        ("the activations of a step", kept, "--layers, --hidden, --seq and --batch"),
    ):  # fmt: skip
        if count > _MOST_BYTES:
            raise ConfigError(
                f"{what} take {count / 2**60:,.0f} EiB; allowed: {_MOST_BYTES >> 60} EiB at most.",
                hint=f"Check {options}.",
            )


def _build_custom_model(values: Mapping[str, Any]) -> Model:
    """Return the model of the numbers given; one without feed-forward width and vocabulary is a GPT."""
    gpt = values["feed_forward"] is None and values["vocabulary"] is None
    missing = [key for key in (*_NEEDED, "sequence") if values[key] is None]
    if gpt:
        missing = [key for key in missing if key not in ("feed_forward", "vocabulary")]
    if missing:
        options = ", ".join(BY_KEY[key].names[0] for key in missing)
        raise ConfigError(
            f"--model custom needs {options} as well.",
            key="model",
            hint="Or name a known model, such as --model llama3-8b.",
        )
    hidden, heads = values["hidden"], values["heads"]
    if not values["head_size"] and hidden % heads:
        raise ConfigError(
            f"--hidden is {hidden:,}, which {heads} heads do not share evenly.",
            hint="Give --head-size, or other numbers.",
            key="hidden",
        )
    return Model(
        "gpt" if gpt else CUSTOM,
        values["layers"], hidden, heads, values["kv_heads"] or heads, values["head_size"] or hidden // heads,
        values["feed_forward"] or 4 * hidden, values["vocabulary"] or _GPT_VOCABULARY, values["sequence"],
        positions=values["sequence"] if gpt else 0,
        gated=not (gpt or values["gelu"]),
        biases=gpt or values["biases"],
        tied=gpt or values["tied"],
        dropout=gpt,
        **_select_custom_options(values),
        source="given; all else as in GPT-3: 4 × hidden, GELU, biases, tied embedding, its vocabulary" if gpt else "",
    )  # fmt: skip


def _select_custom_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of a model of one's own that say more than a dense transformer's: those of experts and of attention."""
    more: dict[str, Any] = {key: values[key] or 0 for key in _MORE}
    if more["experts"]:
        more["experts_per_token"] = more["experts_per_token"] or min(2, more["experts"])
        more["expert_width"] = more["expert_width"] or values["feed_forward"] or 4 * values["hidden"]
    if more["kv_rank"]:
        more["rope_size"] = more["rope_size"] or 64
    return more


def build_speed(
    gpu: str | None,
    compute: float | None = None,
    memory: float | None = None,
    reached: Reached = choose_efficiency,
) -> Speed | None:
    """Return how fast compute nodes run on a GPU; None where none is named.

    Args:
        gpu: The name of a GPU.
        compute: Share of its peak that is reached; None is 1 where `memory` is given, else what was measured.
        memory: Share of its memory's bandwidth, likewise.
        reached: What was measured of a GPU.

    Raises:
        ConfigError: There is no GPU of this name, or an efficiency is out of its range or given without a GPU.
    """
    if gpu is None:
        if (compute, memory) != (None, None):
            raise ConfigError("An efficiency was given, but no --gpu.", hint="Name one, such as --gpu h100.")
        return None
    if (compute, memory) == (None, None):
        chip = find_gpu(gpu)
        return Speed(chip, reached(chip))
    matmul = 1.0 if compute is None else compute
    return Speed(find_gpu(gpu), Efficiency(matmul, matmul, 1.0 if memory is None else memory))


def format_recipe(model: str | Model, ranks: int, given: Mapping[str, Any], kind: str = TRAINING) -> str:
    """Return a recipe (`recipe.py`) as it is written: options that are not given are left out, the others sorted.

    Args:
        model: The name of a preset, `custom`, or the numbers of a model.
        ranks: How many ranks.
        given: Options by key.
        kind: What kind of job it is; that of the training of a transformer is left out.

    Example:
        >>> format_recipe("llama3-8b", 8, {"tp": 4, "dp": None})
        '{"given": {"tp": 4}, "model": "llama3-8b", "ranks": 8}'
    """
    options = {key: _convert_value(value) for key, value in given.items() if value is not None}
    recipe = {"model": _convert_value(model), "ranks": ranks, "given": options}
    return json.dumps(recipe if kind == TRAINING else {**recipe, "kind": kind}, sort_keys=True)


def _convert_value(value: Any) -> Any:
    return _list_numbers(value) if isinstance(value, Model) else value


@lru_cache(maxsize=16)
def _list_numbers(model: Model) -> Mapping[str, Any]:
    """Return the numbers of a model, worked out once for the thousands of layouts that a search builds of it."""
    return asdict(model)


def with_recipe(trace: Trace, recipe: str) -> Trace:
    """Return a generated job whose ranks keep what was said of it; "" keeps nothing."""
    if not recipe:
        return trace
    kept = Attribute(RECIPE, ValueKind.STRING, recipe)
    return replace(trace, ranks=tuple(replace(rank, metadata=(*rank.metadata, kept)) for rank in trace.ranks))
