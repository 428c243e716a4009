"""Serve a trace of requests by a model on a system: what requests see, at one or several loads, and how the memory fills."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from studio.errors import ConfigError
from studio.generation.efficiency import estimate_serving_efficiency
from studio.generation.inference.batches import Load, Part
from studio.generation.inference.batching import (
    BLOCK_TOKENS,
    Policy,
    Served,
    StepRecord,
    StepTime,
    serve_together,
)
from studio.generation.inference.counts import cache_bytes
from studio.generation.inference.deployment import (
    StepWish,
    build_draft,
    build_ranks_layout,
    get_longest_context,
)
from studio.generation.inference.job import Steps
from studio.generation.inference.memory import count_activation_bytes, count_cache_bytes, count_weight_bytes
from studio.generation.inference.options import Asked
from studio.generation.inference.requests import Request, scale_arrivals
from studio.generation.inference.step_times import StepTimes
from studio.generation.layout import Layout
from studio.generation.models import Model
from studio.generation.program import Speed
from studio.sim.presets import preset
from studio.sim.systems.gpus import find_gpu, find_gpu_system
from studio.trace import Float64

PERCENTILES = (50, 90, 99)
BUDGET, SEQUENCES, MEMORY_SHARE = 2_048, 256, 0.9
_CHECKED = 8
_SAMPLES = 400


@dataclass(frozen=True, slots=True)
class Server:
    """A model on a system, ready to serve.

    Attributes:
        steps: Model, layout and data types.
        gpu: The GPU's name.
        policy: Limits of the schedule of each replica.
        times: How long steps take.
        replicas: How many.
        draft_times: How long passes of the draft model take; None where nothing drafts, or at no cost.
    """

    steps: Steps
    gpu: str
    policy: Policy
    times: StepTimes
    replicas: int
    draft_times: StepTimes | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """Requests served at a load.

    Attributes:
        load: How many times as fast as recorded they came.
        served: What each saw, in their order.
        steps: The steps of each replica.
    """

    load: float
    served: Sequence[Served]
    steps: Sequence[Sequence[StepRecord]]


def build_server(
    asked: Asked,
    gpu: str,
    *,
    budget: int = BUDGET,
    sequences: int = SEQUENCES,
    memory_share: float = MEMORY_SHARE,
    acceptance: float | None = None,
) -> Server:
    """Return a model on a system, ready to serve.

    Args:
        asked: Model and layout.
        gpu: The GPU, or a system by its name; its preset times the steps.
        budget: New tokens of a step at most.
        sequences: Sequences that run at once at most, of a replica.
        memory_share: Share of the GPU's memory that may be used; what weights and activations leave of it is KV cache.
        acceptance: Probability that a drafted token is accepted; needed where tokens are drafted, and only there.

    Raises:
        ConfigError: There is no such GPU, numbers do not divide, or weights leave no room for the cache.
    """
    model, wish = asked.model, asked.wish
    for option, value in (("--token-budget", budget), ("--max-sequences", sequences)):
        if not 1 <= value <= 1 << 20:
            raise ConfigError(f"{option} is {value:,}; allowed: 1 to {1 << 20:,}.", key=option[2:])
    if not 0 < memory_share <= 1:
        raise ConfigError(
            f"--memory-share is {memory_share:g}; allowed: above 0, at most 1.", key="memory-share"
        )
    _check_drafting(wish, acceptance)
    layout, draft = build_ranks_layout(model, wish), build_draft(wish)
    spec = find_gpu(gpu)
    steps = Steps(model, layout, (), wish.precision)
    room = spec.memory_gbytes * 1e9 * memory_share
    decoding = min(sequences * (1 + wish.draft), budget)
    most = Load(budget, decoding, 0, 0, Part(decoding), Part(budget - decoding))
    spaces = []
    for stage in range(layout.pp):
        parts = [(model, layout, stage)]
        if draft is not None and not stage:
            parts.append((draft.model, draft.layout, 0))
        weights = sum(count_weight_bytes(*part, wish.precision) for part in parts)
        activations = max(count_activation_bytes(*part, most) for part in parts)
        each = sum(count_cache_bytes(*part, wish.precision, BLOCK_TOKENS) for part in parts)
        spaces.append((int((room - weights - activations) // each), stage, weights, activations))
    blocks, stage, weights, activations = min(spaces)
    if blocks < 1:
        degrees = f"tp {wish.tp}" + (f", pp {wish.pp}" if wish.pp > 1 else "")
        degrees += f", ep {wish.ep}" if wish.ep > 1 else ""
        raise ConfigError(
            f"{model.name} does not fit on {spec.name} with {degrees}: weights {weights / 1e9:.1f} GB and activations "
            f"{activations / 1e9:.1f} GB of {room / 1e9:.1f} GB leave no room for the KV cache"
            f"{f' on stage {stage}' if wish.pp > 1 else ''}.",
            hint="Use a larger --tp or --pp, --dtype fp8, or a GPU with more memory.",
            key="tp",
        )
    speed = asked.speed or Speed(spec, estimate_serving_efficiency(spec))

    def build_times(model: Model, layout: Layout) -> StepTimes:
        config = preset(find_gpu_system(gpu), npus=layout.tp * layout.ep * layout.pp).config
        return StepTimes(replace(steps, model=model, layout=layout), config, speed)

    policy = Policy(budget, sequences, blocks, wish.draft, acceptance or 0.0, wish.seed, layout.pp)
    drafting = None if draft is None else build_times(draft.model, draft.layout)
    return Server(steps, spec.name, policy, build_times(model, layout), layout.dp, drafting)


def _check_drafting(wish: StepWish, acceptance: float | None) -> None:
    """Refuse drafting of which nothing says how often it is right, and the opposite."""
    if wish.draft and acceptance is None:
        raise ConfigError(
            f"--draft is {wish.draft}, but nothing says how many drafted tokens are accepted.",
            hint="Give --acceptance, the probability that one is, such as 0.7.",
            key="acceptance",
        )
    if acceptance is not None and not (wish.draft and 0 <= acceptance <= 1):
        raise ConfigError(
            f"--acceptance is {acceptance:g} with --draft {wish.draft}; allowed: 0 to 1 with --draft of at least 1.",
            key="acceptance",
        )
    if wish.draft_model is not None and not wish.draft:
        raise ConfigError("--draft-model is given without --draft.", hint="Give --draft.", key="draft")


def compute_longest_request(server: Server) -> int:
    """Return the most tokens that a request may have: the model's context, and what the KV cache of a replica holds."""
    holds = server.policy.blocks * BLOCK_TOKENS
    return min(get_longest_context(server.steps.model) or holds, holds)


def refuse_too_long(server: Server, requests: Sequence[Request]) -> None:
    """Raise an error where requests are longer than the KV cache or the model's context.

    Raises:
        ConfigError: Some are.
    """
    longest = get_longest_context(server.steps.model)
    holds = server.policy.blocks * BLOCK_TOKENS
    for most, what, hint in (
        (longest, f"context of {server.steps.model.name}", "Choose a model with a longer context."),
        (holds, "KV cache of a replica", "Use a larger --tp, --kv-dtype fp8, or a GPU with more memory."),
    ):
        over = [] if most is None else [place for place, each in enumerate(requests) if each.tokens > most]
        if over:
            most_tokens = max(requests[place].tokens for place in over)
            raise ConfigError(
                f"{len(over):,} of {len(requests):,} requests are longer than the {what}, {most:,} tokens: the first is "
                f"request {over[0] + 1:,}, the longest has {most_tokens:,}.",
                hint=f"{hint} Or leave these requests out: --skip-long.",
            )


def serve_requests(
    server: Server,
    requests: Sequence[Request],
    load: float = 1.0,
    on_replica: Callable[[], None] | None = None,
) -> Outcome:
    """Return what requests see where they come so many times as fast as recorded.

    Requests go to the replicas in turn.

    Args:
        server: Who serves.
        requests: They, by arrival.
        load: The factor.
        on_replica: Called before each replica's schedule; may raise to stop.

    Raises:
        ConfigError: Some requests are longer than the KV cache or the model's context, or the load is not above 0.
    """
    if not 0 < load <= 1e6:
        raise ConfigError(f"--load is {load:g}; allowed: above 0, at most 1,000,000.", key="load")
    refuse_too_long(server, requests)
    coming = scale_arrivals(tuple(requests), load)
    parts, steps = [], []
    layout, policy = server.steps.layout, server.policy
    step_time: StepTime = server.times if layout.pp == 1 else server.times.course
    for first in range(0, server.replicas, layout.ep):
        if on_replica:
            on_replica()
        # Replicas that divide experts step together.
        numbers = range(first, first + layout.ep)
        for seen, records in serve_together(
            [list(islice(coming, number, None, server.replicas)) for number in numbers],
            [replace(policy, seed=policy.seed + number) for number in numbers],
            step_time,
            server.draft_times,
        ):
            parts.append(seen)
            steps.append(records)
    served = [parts[place % server.replicas][place // server.replicas] for place in range(len(coming))]
    return Outcome(load, served, steps)


def compute_latencies(outcome: Outcome) -> dict[str, Float64]:
    """Return what each request saw, in nanoseconds, by name.

    `ttft` is from arrival to the first token, `tpot` the mean from one token to the next of requests with several, `latency`
    from arrival to the last token, `queue` from arrival to admission.
    """
    arrival = np.array([each.request.arrival_ns for each in outcome.served], float)
    admitted, first, finish = (
        np.array([getattr(each, name) for each in outcome.served])
        for name in ("admitted_ns", "first_ns", "finish_ns")
    )
    further = np.array([each.request.output - 1 for each in outcome.served])
    several = further > 0
    return {
        "ttft": first - arrival,
        "tpot": (finish - first)[several] / further[several],
        "latency": finish - arrival,
        "queue": admitted - arrival,
    }


def summarise_outcome(outcome: Outcome) -> dict[str, Any]:
    """Return the figures of a load, as `--json` prints them."""
    seen = compute_latencies(outcome)
    last = max(each.finish_ns for each in outcome.served)
    steps = [record for records in outcome.steps for record in records]
    output = sum(each.request.output for each in outcome.served)
    prompt = sum(each.request.prompt for each in outcome.served)
    drafted, rejected = (sum(getattr(record, name) for record in steps) for name in ("drafted", "rejected"))
    computed = sum(record.load.tokens for record in steps) - rejected
    arrivals = outcome.served[-1].request.arrival_ns
    return {
        "load": outcome.load,
        "requests": len(outcome.served),
        "offered_per_s": len(outcome.served) / (arrivals / 1e9) if arrivals else None,
        "finish_ns": round(last),
        "requests_per_s": len(outcome.served) / (last / 1e9),
        "output_tokens_per_s": output / (last / 1e9),
        "prompt_tokens_per_s": prompt / (last / 1e9),
        **{f"{name}_ns": _compute_percentiles(values) for name, values in seen.items()},
        "preemptions": sum(each.preemptions for each in outcome.served),
        "recomputed_tokens": computed - prompt - output + len(outcome.served),
        "drafted_tokens": drafted,
        "accepted_tokens": drafted - rejected,
        "steps": len(steps),
        "busy_share": sum(record.busy_ns for record in steps) / (last * len(outcome.steps)),
        "most_running": max(record.running for record in steps),
        "most_waiting": max(record.waiting for record in steps),
        "most_blocks": max(record.blocks for record in steps),
        "mean_sequences": float(np.mean([record.running for record in steps])),
    }


def _compute_percentiles(values: Float64) -> dict[str, int | None]:
    """Return mean, percentiles (linear between the nearest ranks) and most; None where there are no values."""
    if not len(values):
        return dict.fromkeys(("mean", *(f"p{at}" for at in PERCENTILES), "most"))
    return {
        "mean": round(float(values.mean())),
        **{f"p{at}": round(float(np.percentile(values, at))) for at in PERCENTILES},
        "most": round(float(values.max())),
    }


def sample_memory(server: Server, outcome: Outcome) -> list[dict[str, float]]:
    """Return how full the KV cache of all replicas was, and how many requests ran and waited, at up to 400 times.

    Each is the largest within its part of the run; `time_ns` is when the part begins.
    """
    last = max(each.finish_ns for each in outcome.served)
    wide = last / _SAMPLES
    names = ("blocks", "running", "waiting")
    most = np.zeros((len(outcome.steps), len(names), _SAMPLES))
    for replica, records in enumerate(outcome.steps):
        for record in records:
            begin, end = (min(int(at / wide), _SAMPLES - 1) for at in (record.start_ns, record.end_ns))
            values = [[getattr(record, name)] for name in names]
            part = most[replica, :, begin : end + 1]
            np.maximum(part, values, out=part)
    total = most.sum(axis=0)
    blocks = server.policy.blocks * server.replicas
    return [
        {
            "time_ns": round(place * wide),
            "kv_cache_share": float(total[0, place]) / blocks,
            "running": int(total[1, place]),
            "waiting": int(total[2, place]),
        }
        for place in range(_SAMPLES)
    ]


def estimate_step_error(server: Server, outcomes: Sequence[Outcome]) -> float:
    """Return the largest share by which times of steps differ from steps simulated whole, of some steps of every kind."""
    loads = {record.load for outcome in outcomes for records in outcome.steps for record in records}
    chosen = []
    for reads in (False, True):
        kind = sorted(
            (load for load in loads if (load.tokens > load.logits) == reads),
            key=lambda load: (load.tokens, load.cached),
        )
        # Evenly over how many tokens there are, since most steps are small and alike.
        by_tokens = list({load.tokens: load for load in kind}.values())
        chosen += by_tokens[:: max(1, -(-len(by_tokens) // _CHECKED))]
    return server.times.check(chosen)


def describe_serving(server: Server, outcomes: Sequence[Outcome], left_out: int = 0) -> dict[str, Any]:
    """Return what was served, how, and what requests saw, as `--json` prints it; `left_out` is how many were too long."""
    steps, policy = server.steps, server.policy
    model: Model = steps.model
    each = cache_bytes(model, steps.precision)
    tokens = policy.blocks * BLOCK_TOKENS
    held = max(
        count_cache_bytes(model, steps.layout, stage, steps.precision, tokens)
        for stage in range(steps.layout.pp)
    )
    facts: Mapping[str, Any] = {
        "model": model.name,
        "gpu": server.gpu,
        "layout": steps.layout.name,
        "world_size": steps.layout.ranks,
        "replicas": server.replicas,
        "dtype": steps.precision.weights,
        "kv_dtype": steps.precision.cache,
        "policy": {
            "token_budget": policy.budget,
            "max_sequences": policy.sequences,
            "block_tokens": BLOCK_TOKENS,
            "kv_cache_blocks": policy.blocks,
            "kv_cache_tokens": tokens,
            "kv_cache_bytes_per_token": each,
            "kv_cache_bytes_of_a_rank": held,
            "pipeline_batches": policy.stages,
            "replicas_in_step": steps.layout.ep,
            "draft": policy.draft,
            "draft_model": server.draft_times.what.model.name if server.draft_times else None,
            "acceptance": policy.acceptance if policy.draft else None,
        },
    }
    error = estimate_step_error(server, outcomes)
    return {
        **facts,
        "left_out": left_out,
        "step_simulations": server.times.simulations,
        "step_time_error": error,
        "loads": [
            {**summarise_outcome(outcome), "over_time": sample_memory(server, outcome)}
            for outcome in outcomes
        ],
    }
