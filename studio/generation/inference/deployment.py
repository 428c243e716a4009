"""The options of an inference step, and the values derived from them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from studio.errors import ConfigError
from studio.generation.inference.batches import (
    Batch,
    Lengths,
    Piece,
    count_tokens,
    merge_pieces,
    parse_lengths,
)
from studio.generation.inference.counts import BF16, Precision
from studio.generation.inference.job import Draft, MicroBatches, Steps
from studio.generation.layout import Layout
from studio.generation.models import Model, format_nearest
from studio.generation.wish import Wish, build_layout

PHASES = ("prefill", "decode", "mixed")
DISAGGREGATED = "disaggregated"
"""The phase in which prefill and decode have ranks of their own."""
_ASSUMED_CONTEXT, _ASSUMED_CHUNK = 4_096, 512
_MOST_SEQUENCES = 1 << 16
_LONGEST = {
    "gpt3": 2_048, "llama2": 4_096, "llama3.1": 131_072, "llama3": 8_192, "mistral-7b": 32_768,
    "qwen2.5": 32_768, "qwen3": 40_960,
}  # fmt: skip
"""`max_position_embeddings` in config.json of the weights of presets, by the beginning of their names."""


@dataclass(frozen=True, slots=True)
class StepWish:
    """What a user says of a step; None leaves it to the rules of `build_steps`.

    Attributes:
        ranks: How many ranks.
        phase: One of `PHASES`.
        tp, pp, dp: Degrees; `dp` follows from the others where it is None.
        batch: Sequences of all replicas: those that decode, or prompts of a prefill.
        context: Tokens that the cache holds of each sequence that decodes, as `parse_lengths` takes them.
        prompt: New tokens of each prompt; None is `context` in a prefill.
        cached: Tokens of each prompt that the cache holds before: a shared prefix, or chunks that were read earlier.
        draft: Tokens that are drafted for each sequence, and verified in one pass of one token more.
        draft_model: What drafts them, on the ranks of the first stage; None counts no work for it.
        micro_batches: Of each replica.
        steps: How many; each goes on where the one before ended.
        precision: Data types.
        seed: Of lengths that are drawn.
        stage_layers: Layers of each stage.
        prefill_ranks, prefill_tp, prompts: Where prefill and decode have ranks of their own: those that read prompts, how many of
            them share one tensor parallel, and how many prompts they read, None for one each replica.
        ep: Replicas that divide experts among them.
        expert_skew: How unevenly tokens are routed, as in `Layout`.
    """

    ranks: int
    phase: str = "decode"
    tp: int = 1
    pp: int = 1
    dp: int | None = None
    batch: int | None = None
    context: str | None = None
    prompt: str | None = None
    cached: int = 0
    draft: int = 0
    draft_model: Model | None = None
    micro_batches: int = 1
    steps: int = 1
    precision: Precision = BF16
    seed: int = 0
    stage_layers: tuple[int, ...] | None = None
    prefill_ranks: int = 0
    prefill_tp: int = 1
    prompts: int | None = None
    ep: int = 1
    expert_skew: float = 0.0


def get_longest_context(model: Model) -> int | None:
    """Return the longest context that a model was made for; None where that is not known."""
    if model.positions:
        return model.positions
    name = next((name for name in _LONGEST if model.name.startswith(name)), None)
    return _LONGEST[name] if name else None


def build_ranks_layout(model: Model, wish: StepWish) -> Layout:
    """Return how ranks are laid out; its batch and sequence say nothing.

    Raises:
        ConfigError: Numbers do not divide; the message names them and the nearest that do.
    """
    cell = wish.tp * wish.pp
    replicas = max(wish.ranks // cell, 1) if cell > 0 else 1
    layout = build_layout(
        model,
        Wish(
            wish.ranks, wish.tp, wish.pp, wish.dp, batch=replicas, sequence=wish.tp, steps=wish.steps,
            stage_layers=wish.stage_layers, ep=wish.ep, expert_skew=wish.expert_skew, seed=wish.seed,
        ),
    )  # fmt: skip
    # Norms and routers see all tokens on every rank, as in serving frameworks.
    return replace(layout, sequence=1, sequence_parallel=False)


def build_steps(model: Model, wish: StepWish) -> Steps:
    """Return the steps that a user asks for.

    Raises:
        ConfigError: Numbers do not divide or contradict each other, or a context is longer than the model's.

    Example:
        >>> from studio.generation.models import find_model
        >>> build_steps(find_model("llama3-8b"), StepWish(ranks=8, tp=8, batch=32, context="4096")).batches
        (((Piece(sequences=32, new=1, context=4096, logits=1),),),)
    """
    _refuse(wish)
    layout = build_ranks_layout(model, wish)
    batch = _choose_batch(layout, wish)
    contexts, prompts = _parse_lengths(model, wish)
    each = batch // (layout.dp * wish.micro_batches)
    cells = layout.dp * wish.micro_batches
    drawn = contexts.draw(batch, wish.seed) if contexts else []
    read = prompts.draw(batch if wish.phase == "prefill" else cells, wish.seed + 1) if prompts else []
    new = wish.draft + 1

    def build_batch(cell: int) -> Batch:
        pieces = [Piece(1, new, length, new) for length in drawn[cell * each : (cell + 1) * each]]
        own = each if wish.phase == "prefill" else 1
        pieces += [Piece(1, length, wish.cached) for length in read[cell * own : (cell + 1) * own]]
        return merge_pieces(pieces)

    batches: list[MicroBatches] = [
        tuple(build_batch(replica * wish.micro_batches + number) for number in range(wish.micro_batches))
        for replica in range(layout.dp)
    ]
    if wish.ep > 1 and len({tuple(map(count_tokens, micro)) for micro in batches}) > 1:
        raise ConfigError(
            f"--ep is {wish.ep}, but replicas read different numbers of tokens; allowed: the same on all.",
            hint="Give fixed lengths.",
            key="ep",
        )
    return Steps(model, layout, tuple(batches), wish.precision, wish.steps, build_draft(wish))


def build_draft(wish: StepWish) -> Draft | None:
    """Return the model that drafts, and how the ranks of the first stage share it; None where none is given.

    Raises:
        ConfigError: Its numbers do not divide.
    """
    if wish.draft_model is None:
        return None
    alone = replace(wish, ranks=wish.ranks // wish.pp, pp=1, stage_layers=None)
    if not wish.draft_model.experts:
        alone = replace(alone, ep=1, expert_skew=0.0)
    return Draft(wish.draft_model, build_ranks_layout(wish.draft_model, alone), wish.draft)


def _refuse(wish: StepWish) -> None:
    """Refuse what no step can be."""
    if wish.phase not in PHASES:
        raise ConfigError(f"--phase is {wish.phase[:80]!r}; allowed: {', '.join(PHASES)}.", key="phase")
    for name, least in (("batch", 1), ("micro_batches", 1), ("steps", 1), ("cached", 0), ("draft", 0)):
        value = getattr(wish, name)
        if value is not None and not least <= value <= _MOST_SEQUENCES:
            option = f"--{name.replace('_', '-')}"
            raise ConfigError(
                f"{option} is {value:,}; allowed: {least} to {_MOST_SEQUENCES:,}.", key=option[2:]
            )
    if wish.prefill_ranks or wish.prefill_tp > 1 or wish.prompts:
        raise ConfigError(
            f"--prefill-ranks, --prefill-tp or --prompts is given, but --phase is {wish.phase}.",
            hint=f"Use --phase {DISAGGREGATED}.",
        )
    if wish.phase == "prefill" and wish.draft:
        raise ConfigError("--draft is given in a prefill, which drafts nothing.", hint="Use --phase decode.")
    if wish.phase == "decode" and (wish.prompt is not None or wish.cached):
        raise ConfigError(
            "--prompt or --cached is given, but a decode step reads no prompt.",
            hint="--context is what the cache holds; --phase mixed reads a prompt beside.",
        )
    if wish.draft_model is not None and not wish.draft:
        raise ConfigError("--draft-model is given without --draft.", hint="Give --draft.", key="draft")


def _choose_batch(layout: Layout, wish: StepWish) -> int:
    once = layout.dp * wish.micro_batches
    batch = wish.batch or once
    if batch % once:
        below = batch // once * once
        near = format_nearest(batch, [number for number in (below, below + once) if number])
        raise ConfigError(
            f"--batch is {batch:,}, which {layout.dp:,} replicas × {wish.micro_batches} micro-batches = {once:,} do not divide.",
            hint=f"The nearest: --batch {near}.",
            key="batch",
        )
    return batch


def _parse_lengths(model: Model, wish: StepWish) -> tuple[Lengths | None, Lengths | None]:
    """Return the contexts of sequences that decode, and the new tokens of prompts; None where there are none."""
    longest = get_longest_context(model) or 1 << 24
    assumed = str(min(_ASSUMED_CONTEXT, longest // 2))
    contexts = prompts = None
    if wish.phase != "prefill":
        grown = wish.steps * (wish.draft + 1)
        contexts = parse_lengths(wish.context or assumed, "--context", longest - grown)
    if wish.phase != "decode":
        option = "--context" if wish.phase == "prefill" and wish.prompt is None else "--prompt"
        text = wish.prompt or (wish.context or assumed if wish.phase == "prefill" else str(_ASSUMED_CHUNK))
        prompts = parse_lengths(text, option, (longest - wish.cached) // wish.steps)
        if prompts.least < 1:
            raise ConfigError(f"{option} is {prompts.text}; allowed: at least 1 token.", key=option[2:])
    return contexts, prompts


def resize_wish(wish: StepWish, **changed: object) -> StepWish:
    """Return the wish with other degrees, as many ranks as they need, and the same replicas."""
    cell = wish.tp * wish.pp
    replicas = max(wish.ranks // cell, 1)
    other = replace(wish, **changed)  # type: ignore[arg-type]  # names and types of its own fields
    return replace(other, ranks=other.tp * other.pp * replicas)
