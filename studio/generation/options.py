"""What a user may say of a generated job, as one table.

A row is the argument of `studio.generate`, the option of `generate llm`, a field of the page Workloads and of `plan`. Adding a
number costs a row here and an attribute of what its `part` names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

from studio.errors import ConfigError
from studio.generation.layout import (
    ATTENTIONS,
    CONTEXT_KINDS,
    DATA_TYPES,
    GRADIENT_TYPES,
    HOST_GBYTES,
    OFFLOADS,
    OPTIMIZERS,
    RECOMPUTES,
    SCHEDULES,
    ZERO_STAGES,
)

Part = Literal["shape", "layout", "speed"]
"""What an option says something of: a model of one's own, the layout of ranks and batch (`layout.Wish`), or how fast nodes run."""
LEAST_SHARE = 1e-6
"""The least share of its peak that is taken of a GPU: with less the times of large models are beyond all numbers."""
Kind = Literal["count", "share", "number", "flag", "switch", "choice", "counts", "name"]
"""A whole number above 0, a share of `LEAST_SHARE` to 1, a number of at least 0, yes or no, yes or no or by rule, one of `choices`, a list of whole numbers,
or a name."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a generated job.

    Attributes:
        key: Argument of `studio.generate`, and attribute of what `part` names.
        part: What it says something of.
        kind: What kind of value it is.
        default: What counts where nothing is said; None leaves it to a rule, which `rule` says.
        label: What a form calls it.
        hint: What it means.
        rule: What counts where nothing is said, in words.
        choices: Values of a choice; the first is the default.
        heading: Where a form has it.
        flags: Its names on the command line, where they are not the key's.
    """

    key: str
    part: Part
    kind: Kind
    default: Any
    label: str
    hint: str
    rule: str = ""
    choices: tuple[Any, ...] = ()
    heading: str = ""
    flags: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Its names on the command line; of a switch, with the name that turns it off."""
        names = self.flags or (f"--{self.key.replace('_', '-')}",)
        return (f"{names[0]}/--no-{names[0][2:]}",) if self.kind == "switch" else names


MODEL, LAYOUT, BATCH, SHARDING, TIMES = "Model", "Layout", "Batch", "Sharding and memory", "Compute times"

OPTIONS = (
    Option("tp", "layout", "count", 1, "Tensor parallel", "Tensor parallel ranks.", heading=LAYOUT),
    Option("pp", "layout", "count", 1, "Pipeline stages", "Pipeline stages.", heading=LAYOUT),
    Option("dp", "layout", "count", None, "Replicas", "Replicas.", "ranks / (tp × cp × pp)", heading=LAYOUT),
    Option("cp", "layout", "count", 1, "Context parallel", "Ranks that divide each sequence.", heading=LAYOUT),
    Option(
        "cp_kind", "layout", "choice", CONTEXT_KINDS[0], "Context exchange",
        "How attention sees the whole sequence: keys and values go round a ring, or heads are divided in its place (Ulysses).",
        choices=CONTEXT_KINDS, heading=LAYOUT,
    ),
    Option(
        "ep", "layout", "count", 1, "Expert parallel", "Ranks among the cp × dp of a stage that divide the experts.",
        heading=LAYOUT,
    ),
    Option(
        "sequence_parallel", "layout", "switch", None, "Sequence parallel",
        "Divide norms along the sequence among tensor parallel ranks.", "on where tp is above 1", heading=LAYOUT,
    ),
    Option(
        "schedule", "layout", "choice", SCHEDULES[0], "Schedule", "Order of micro-batches.",
        choices=SCHEDULES, heading=LAYOUT,
    ),
    Option(
        "capacity_factor", "layout", "number", None, "Expert capacity",
        "Tokens that each expert takes, as a multiple of its even share, padded or dropped.", "all that are routed",
        heading=LAYOUT,
    ),
    Option(
        "expert_skew", "layout", "number", 0.0, "Expert skew",
        "How unevenly tokens are routed: the n-th most wanted expert of a layer gets a share of n ^ -skew.", heading=LAYOUT,
    ),
    Option("seed", "layout", "count", 1, "Seed", "Seed of what is drawn at random: wanted experts, lengths of prompts.", heading=LAYOUT),
    Option(
        "virtual_stages", "layout", "count", None, "Chunks of a stage", "Chunks of layers of each stage.",
        "2 where --schedule is interleaved, else 1", heading=LAYOUT,
    ),
    Option("stage_layers", "layout", "counts", None, "Layers of stages", "Layers of each stage.", "even", heading=LAYOUT),
    Option(
        "order", "layout", "name", "megatron", "Order of ranks",
        "megatron, torchtitan, deepspeed, or axes such as tp-pp-dp, adjacent ranks first.", heading=LAYOUT,
    ),
    Option(
        "batch", "layout", "count", None, "Batch", "Sequences of a step, of all replicas.",
        "the published recipe where it fits", heading=BATCH, flags=("--batch", "--global-batch"),
    ),
    Option("micro_batch", "layout", "count", 1, "Micro-batch", "Sequences of a micro-batch.", heading=BATCH),
    Option(
        "sequence", "layout", "count", None, "Tokens of a sequence", "Tokens of a sequence.", "the model's",
        heading=BATCH, flags=("--seq",),
    ),
    Option("steps", "layout", "count", 1, "Steps", "Training steps.", heading=BATCH),
    Option(
        "zero", "layout", "choice", 0, "Sharding",
        "What replicas divide: nothing, the optimizer (1), gradients as well (2), weights as well (3, FSDP).",
        choices=ZERO_STAGES, heading=SHARDING,
    ),
    Option(
        "shard", "layout", "count", None, "Replicas that divide",
        "Replicas among which --zero divides; groups of so many hold the same (HSDP).", "all", heading=SHARDING,
    ),
    Option(
        "prefetch", "layout", "count", 1, "Prefetched units", "Layers whose weights --zero 3 gathers ahead.", heading=SHARDING,
    ),
    Option(
        "grad_overlap", "layout", "switch", None, "Overlap sums of gradients",
        "Sum gradients while the backward pass goes on.", "on without a pipeline or with --zero 2 and 3", heading=SHARDING,
    ),
    Option(
        "bucket_mb", "layout", "count", None, "Bucket of gradients",
        "MiB of gradients that are summed at once; PyTorch's DDP has 25.",
        "a layer's where sums overlap the backward pass, else all together", heading=SHARDING,
    ),
    Option(
        "grad_dtype", "layout", "choice", GRADIENT_TYPES[0], "Type of gradients",
        "Data type in which gradients are kept and summed.", choices=GRADIENT_TYPES, heading=SHARDING,
    ),
    Option(
        "reduce_dtype", "layout", "choice", None, "Type of their sums",
        "Data type in which gradients are summed over replicas.", "that of gradients", choices=GRADIENT_TYPES, heading=SHARDING,
    ),
    Option(
        "optimizer", "layout", "choice", OPTIMIZERS[0], "Optimizer",
        "What is kept of a parameter besides: Adam with moments in fp32, bf16 or 8 bits, or SGD with momentum, each with a copy in fp32; with "
        "bf16 only, Adam's moments alone.",
        choices=OPTIMIZERS, heading=SHARDING,
    ),
    Option(
        "offload", "layout", "choice", OFFLOADS[0], "Offload",
        "What host memory holds: the optimizer, which runs there, activations of layers between their passes, or both.",
        choices=OFFLOADS, heading=SHARDING,
    ),
    Option(
        "host_gbytes", "layout", "number", HOST_GBYTES, "Link to the host",
        "GB/s between an NPU and host memory in each direction, with --offload, and of the optimizer there; 64 is PCIe 5.0 × 16.",
        heading=SHARDING,
    ),
    Option(
        "dtype", "layout", "choice", DATA_TYPES[0], "Data type",
        "Data type of what the matrix products of layers multiply, and of the weights of a step of inference.",
        choices=DATA_TYPES, heading=SHARDING,
    ),
    Option(
        "recompute", "layout", "choice", RECOMPUTES[0], "Recomputation",
        "What the backward pass computes again in place of keeping it: nothing, attention, or whole layers.",
        choices=RECOMPUTES, heading=SHARDING,
    ),
    Option(
        "attention", "layout", "choice", None, "Attention",
        "Whether scores of attention stay on the chip (flash), or are written, read and kept.",
        "flash; unfused for a model trained with dropout, as GPT-3", choices=ATTENTIONS, heading=SHARDING,
    ),
    Option(
        "gpu", "speed", "name", None, "GPU", "Give compute nodes the durations of this GPU, such as h100.",
        "none: a simulated system times them", heading=TIMES,
    ),
    Option(
        "compute_efficiency", "speed", "share", None, "Compute efficiency",
        "Share of the GPU's peak that is reached; 1 for both is the bare roofline, a lower bound of time.",
        "what was measured on the GPU, or on one like it", heading=TIMES,
    ),
    Option(
        "memory_efficiency", "speed", "share", None, "Memory efficiency",
        "Share of its memory's bandwidth that is reached.", "what was measured on the GPU, or on one like it", heading=TIMES,
    ),
    Option(
        "slow_rank", "speed", "name", None, "Slow ranks",
        "Ranks that compute for longer, and how many times as long: 3:1.5,7:2.", "none", heading=TIMES,
    ),
    Option(
        "jitter", "speed", "number", 0.0, "Jitter",
        "Standard deviation of the logarithm of each compute node's duration, 0 to 1, drawn by --seed.", heading=TIMES,
    ),
    Option("layers", "shape", "count", None, "Layers", "Transformer layers.", heading=MODEL),
    Option("hidden", "shape", "count", None, "Width", "Width of the residual stream.", heading=MODEL),
    Option("heads", "shape", "count", None, "Heads", "Attention heads.", heading=MODEL),
    Option(
        "kv_heads", "shape", "count", None, "Heads of keys and values", "Heads of keys and values.", "as many as heads",
        heading=MODEL,
    ),
    Option("head_size", "shape", "count", None, "Width of a head", "Width of a head.", "hidden / heads", heading=MODEL),
    Option(
        "feed_forward", "shape", "count", None, "Feed-forward width", "Inner width of the feed-forward part.",
        "with --vocabulary left out as well, that of a GPT", heading=MODEL,
    ),
    Option("vocabulary", "shape", "count", None, "Vocabulary", "Tokens of the vocabulary.", heading=MODEL),
    Option("gelu", "shape", "flag", False, "GELU", "No gate in the feed-forward part, as in GPT.", heading=MODEL),
    Option("biases", "shape", "flag", False, "Biases", "Biases of linear layers and norms, as in GPT.", heading=MODEL),
    Option(
        "tied", "shape", "flag", False, "Tied embedding", "The output layer shares the embedding's matrix.", heading=MODEL
    ),
    Option("experts", "shape", "count", None, "Experts", "Experts of a layer.", "none", heading=MODEL),
    Option(
        "experts_per_token", "shape", "count", None, "Experts of a token", "Experts that a token goes to.", "2",
        heading=MODEL,
    ),
    Option(
        "expert_width", "shape", "count", None, "Width of an expert", "Inner width of an expert.",
        "the feed-forward width", heading=MODEL,
    ),
    Option(
        "shared_width", "shape", "count", None, "Width of shared experts",
        "Inner width of the experts that every token goes to, together.", "none", heading=MODEL,
    ),
    Option(
        "dense_layers", "shape", "count", None, "Dense layers", "First layers without experts.", "none", heading=MODEL
    ),
    Option(
        "kv_rank", "shape", "count", None, "Rank of keys and values",
        "Width of compressed keys and values, of multi-head latent attention.", "none", heading=MODEL,
    ),
    Option(
        "query_rank", "shape", "count", None, "Rank of queries", "Width of compressed queries, with --kv-rank.", "none",
        heading=MODEL,
    ),
    Option(
        "rope_size", "shape", "count", None, "Rotary width of a head", "Rotary elements of a head, with --kv-rank.", "64",
        heading=MODEL,
    ),
    Option(
        "value_size", "shape", "count", None, "Width of a head's values", "Width of a head's values, with --kv-rank.",
        "that of the head", heading=MODEL,
    ),
    Option(
        "window", "shape", "count", None, "Sliding window", "Tokens that layers with a sliding window attend to.", "none",
        heading=MODEL,
    ),
    Option(
        "full_every", "shape", "count", None, "Layers without window",
        "With --window, every how many layers one attends to all tokens.", "none does", heading=MODEL,
    ),
)  # fmt: skip
BY_KEY = {option.key: option for option in OPTIONS}


def fill_defaults(given: Mapping[str, Any], options: Mapping[str, Option] = BY_KEY) -> dict[str, Any]:
    """Return a value for every option: the one given, else the default.

    Args:
        given: Values by key; None is not given.
        options: Those that there are.

    Raises:
        ConfigError: An option is not known, or a number is no whole number, a share or a choice out of its range.
    """
    unknown = next((key for key in given if key not in options), None)
    if unknown is not None:
        near = get_close_matches(unknown, options, 1)
        raise ConfigError(
            f"There is no option {str(unknown)[:80]!r}; allowed: {', '.join(options)}.",
            hint=f"The nearest is {near[0]}." if near else "docs/generation.md describes them.",
            key=str(unknown)[:80],
        )
    values = {key: given.get(key) for key in options}
    for key, option in options.items():
        if values[key] is None:
            values[key] = option.default
        else:
            _check(option, values[key])
    return values


def _check(option: Option, value: Any) -> None:
    name = option.names[0].partition("/")[0]
    allowed = {
        "count": "a whole number of at least 1",
        "share": f"at least {LEAST_SHARE:f}, at most 1",
        "number": "a number of at least 0",
        "counts": "whole numbers of at least 1",
        "choice": ", ".join(map(str, option.choices)),
    }.get(option.kind)
    fits = {
        "count": type(value) is int and value >= 1,
        "share": isinstance(value, (int, float)) and LEAST_SHARE <= value <= 1,
        "number": isinstance(value, (int, float)) and 0 <= value < math.inf,
        "counts": isinstance(value, tuple) and all(type(each) is int and each >= 1 for each in value),
        "choice": value in option.choices,
    }.get(option.kind, True)
    if not fits:
        # A number that is given as text looks like one that is allowed.
        text = f"{value!r:.80}" if isinstance(value, str) and option.kind != "choice" else str(value)[:80]
        raise ConfigError(f"{name} is {text}; allowed: {allowed}.", key=option.key)
