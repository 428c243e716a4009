"""Generate steps of inference by the name of a model, and say what they are made of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from studio.generation.experts import count_exchanged_bytes
from studio.generation.fitting import describe_unfit
from studio.generation.inference.batches import Batch, Load, advance_batch, sum_load
from studio.generation.inference.counts import ACTIVATION_BYTES, cache_bytes, count_step_flop
from studio.generation.inference.deployment import DISAGGREGATED, StepWish, build_steps
from studio.generation.inference.disaggregated import (
    build_joined_batch,
    build_roles,
    count_transfers,
    make_disaggregated,
    split_wish,
)
from studio.generation.inference.fitting import DECODE, PREFILL, find_fullest_of_role, find_remedies
from studio.generation.inference.job import TOKEN_BYTES, Steps, make_steps
from studio.generation.inference.memory import count_stage_memory, find_fullest
from studio.generation.inference.options import Asked, build_asked_steps
from studio.generation.inference.passes import StepPasses
from studio.generation.layout import Layout
from studio.generation.models import Model
from studio.generation.program import Program
from studio.generation.transformer import count_active_parameters, count_parameters, has_experts
from studio.generation.workload import with_recipe
from studio.operators.roofline import Gpu
from studio.trace import Trace


def generate_inference(model: str | Model, *, ranks: int, **options: Any) -> Trace:
    """Return steps of inference of a transformer that nobody recorded.

    Args:
        model: The name of a preset (`studio.generation.models.MODELS`), `custom`, or the numbers of a model.
        ranks: How many ranks.
        options: What else is said, by the keys of `studio.generation.inference.options.INFERENCE`: `phase`, `tp`, `pp`, `batch`,
            `context`, `prompt`, `draft`, `dtype`, `gpu` and so on, those of `chakra-studio generate inference`. One that is None
            takes its default. Lengths are numbers or text such as `1024..8192`; `draft_model` may be numbers of a model too.

    Raises:
        ConfigError: A name is not known, numbers do not divide, or a context is longer than the model's.

    Example:
        >>> import studio
        >>> studio.generate_inference("llama3-8b", ranks=8, tp=8, batch=32, context=4096)
        Trace(8 ranks, 1 graph, 3,376 nodes, 1 comm group, 1 finding)
    """
    return generate_steps(build_asked_steps(model, ranks, options))


def generate_steps(asked: Asked) -> Trace:
    """Return the steps of inference that a user asks for.

    Raises:
        ConfigError: Numbers do not divide, or there would be too many nodes.
    """
    model, wish, words = asked.model, asked.wish, describe_wish(asked.model, asked.wish)
    if wish.phase == DISAGGREGATED:
        trace = make_disaggregated(build_roles(model, wish), words, asked.speed)
    else:
        trace = make_steps(build_steps(model, wish), words, asked.speed)
    return with_recipe(trace, asked.recipe)


def describe_wish(model: Model, wish: StepWish) -> str:
    """Say in words what a step is, as its metadata does."""
    if wish.phase == DISAGGREGATED:
        prefill, decode = split_wish(wish)
        return f"disaggregated: {describe_wish(model, prefill)}; {describe_wish(model, decode)}"
    layout = f"tp={wish.tp},dp={wish.ranks // (wish.tp * wish.pp)},pp={wish.pp}"
    parts = [f"model {model.name}, {wish.phase}, {layout}, batch {wish.batch or 1}"]
    parts += [f"{name} {value}" for name in ("context", "prompt") if (value := getattr(wish, name))]
    parts += [f"{name} {value}" for name in ("cached", "draft") if (value := getattr(wish, name))]
    parts.append(f"{wish.precision.weights}, KV cache {wish.precision.cache}")
    return ", ".join(parts)


def describe(model: Model, wish: StepWish, gpu: Gpu | None = None) -> dict[str, Any]:
    """Return what steps are made of, as `--json` prints it: all from closed forms, none from the graphs.

    Args:
        model: What is run.
        wish: What is asked for.
        gpu: Whose memory it is held against; None holds it against none.

    Raises:
        ConfigError: Numbers do not divide or contradict each other, or a context is longer than the model's.
    """
    if wish.phase == DISAGGREGATED:
        return _describe_roles(model, wish, gpu)
    steps = build_steps(model, wish)
    layout = steps.layout
    first: Batch = tuple(piece for micro in steps.batches for batch in micro for piece in batch)
    load = sum_load(first)
    stage, held = find_fullest(steps)
    room = gpu.memory_gbytes * 1e9 if gpu else None
    unfit = describe_unfit(held, room) if room else ""
    return {
        "model": model.name,
        "source": model.source,
        "parameters": count_parameters(model),
        "active_parameters": count_active_parameters(model),
        "phase": wish.phase,
        "layout": layout.name,
        "world_size": layout.ranks,
        "stage_layers": list(layout.stage_layers),
        "steps": steps.steps,
        "micro_batches": wish.micro_batches,
        "dtype": wish.precision.weights,
        "kv_dtype": wish.precision.cache,
        "batch": [
            {"sequences": p.sequences, "new": p.new, "context": p.context, "logits": p.logits} for p in first
        ],
        "sequences": sum(piece.sequences for piece in first),
        "new_tokens": load.tokens,
        "cached_tokens": load.cached,
        "draft": wish.draft,
        "draft_model": None if wish.draft_model is None else wish.draft_model.name,
        "flop": count_step_flop(model, load, layout.vocabulary(model)),
        "kv_bytes_per_token": cache_bytes(model, wish.precision),
        "memory": {**held, "total": sum(held.values()), "stage": stage},
        "memory_by_stage": [count_stage_memory(steps, number) for number in range(layout.pp)],
        "unfit": unfit,
        "remedies": [str(remedy) for remedy in find_remedies(model, wish, room)] if unfit and room else [],
        "collectives": [
            {"group": group, "type": kind, "count": count, "bytes": size}
            for (group, kind), (count, size) in sorted(count_step_volumes(steps).items())
        ],
    }


def _describe_roles(model: Model, wish: StepWish, gpu: Gpu | None) -> dict[str, Any]:
    """Return what both parts of a disaggregated job are made of, and what is sent between them."""
    prefill, decode = split_wish(wish)
    roles = build_roles(model, wish)
    parts = {PREFILL: describe(model, prefill), DECODE: describe(model, decode)}
    batches = tuple((build_joined_batch(roles, replica),) for replica in range(len(roles.decode.batches)))
    room = gpu.memory_gbytes * 1e9 if gpu else None
    for role in (PREFILL, DECODE):
        stage, held = find_fullest_of_role(model, wish, role)
        unfit = describe_unfit(held, room) if room else ""
        proposed = find_remedies(model, wish, room, role) if unfit and room else ()
        parts[role] |= {
            "memory": {**held, "total": sum(held.values()), "stage": stage},
            "memory_by_stage": [held],
            "unfit": unfit,
            "remedies": [str(remedy) for remedy in proposed],
        }
    sent = count_transfers(roles)
    return {
        "model": model.name,
        "source": model.source,
        "parameters": count_parameters(model),
        "active_parameters": count_active_parameters(model),
        "phase": wish.phase,
        "world_size": wish.ranks,
        **parts,
        "joined_sequences": sum(piece.sequences for (batch,) in batches for piece in batch),
        "kv_transfer": dict(sent),
        "collectives": [
            {"group": "kv", "type": kind, "count": sent["messages"], "bytes": sent["bytes"]}
            for kind in ("SEND", "RECV")
        ],
    }


def count_step_volumes(steps: Steps) -> dict[tuple[str, str], tuple[int, int]]:
    """Return what all ranks together give to collectives and messages in the job: count of nodes and bytes.

    A draft model's are among them. Source: Shoeybi et al., Megatron-LM, 2019: an all-reduce of the residual stream after attention
    and one after the feed-forward part, here of the forward pass only.
    """
    volumes: dict[tuple[str, str], list[int]] = {}

    def add(key: tuple[str, str], count: int, size: int) -> None:
        if count:
            entry = volumes.setdefault(key, [0, 0])
            entry[0] += count
            entry[1] += count * size

    for number in range(steps.steps):
        for replica, micro in enumerate(steps.batches):
            for batch in (advance_batch(first, number) for first in micro):
                _add_pass(add, steps.model, steps.layout, sum_load(batch), replica % steps.layout.ep)
                tokens = TOKEN_BYTES * sum(piece.sequences for piece in batch)
                if steps.layout.pp > 1 and number < steps.steps - 1:
                    for kind in ("SEND", "RECV"):
                        add(("pp", kind), steps.layout.tp, tokens)
                for drafted in steps.draft.batches(batch) if steps.draft else ():
                    assert steps.draft is not None
                    layout = steps.draft.layout
                    _add_pass(add, steps.draft.model, layout, sum_load(drafted), replica % layout.ep)
    return {key: (count, size) for key, (count, size) in volumes.items()}


def _add_pass(add: Any, model: Model, layout: Layout, load: Load, place: int) -> None:
    tp, pp = layout.tp, layout.pp
    stream = ACTIVATION_BYTES * load.tokens * model.hidden
    if tp > 1:
        add(("tp", "ALL_REDUCE"), tp * (2 * model.layers + 1), stream)
        logits = ACTIVATION_BYTES * load.logits * layout.vocabulary(model) // tp
        add(("tp", "ALL_GATHER"), tp, logits)
    if layout.ep > 1:
        passes = StepPasses(Program(None), model, replace(layout, micro_batch=1, sequence=load.tokens), place)
        for layer in (layer for layer in range(model.layers) if has_experts(model, layer)):
            add(("ep", "ALL_TO_ALL"), 2 * tp, count_exchanged_bytes(passes, layer))
    for kind in ("SEND", "RECV"):
        add(("pp", kind), (pp - 1) * tp, stream)
