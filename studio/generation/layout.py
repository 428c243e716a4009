"""How a job divides a model and its batch among its ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from studio.errors import ConfigError
from studio.generation.models import Model, nearest

Schedule = Literal["1f1b", "gpipe"]
SCHEDULES: tuple[Schedule, ...] = ("1f1b", "gpipe")
ZERO_STAGES = (0, 1, 3)
_MOST_MICRO_BATCHES = 64
_LARGEST_RANKS = 1 << 20


@dataclass(frozen=True, slots=True)
class Layout:
    """A layout of ranks, in the order of Megatron-LM: tensor parallel ranks are adjacent, then data, then pipeline.

    Attributes:
        tp, dp, pp: Tensor, data and pipeline parallel degrees.
        stage_layers: Layers of each pipeline stage.
        batch: Sequences of a step, of all replicas together.
        micro_batch: Sequences of a micro-batch.
        sequence: Tokens of a sequence.
        zero: 0 replicates all, 1 shards the optimizer, 3 weights and gradients as well (FSDP).
        sequence_parallel: Whether norms and residuals are divided along the sequence among tensor parallel ranks.
        schedule: Order of micro-batches in a pipeline.
        steps: Training steps.
        batch_from: Where the batch is from, in words.
    """

    tp: int
    dp: int
    pp: int
    stage_layers: tuple[int, ...]
    batch: int
    micro_batch: int
    sequence: int
    zero: int = 0
    sequence_parallel: bool = False
    schedule: Schedule = "1f1b"
    steps: int = 1
    batch_from: str = "given"

    @property
    def ranks(self) -> int:
        """How many ranks the job has."""
        return self.tp * self.dp * self.pp

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a replica in a step."""
        return self.batch // (self.dp * self.micro_batch)

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch."""
        return self.micro_batch * self.sequence

    @property
    def name(self) -> str:
        """Its degrees, such as `tp=8,dp=4,pp=2`."""
        return f"tp={self.tp},dp={self.dp},pp={self.pp}"

    def vocabulary(self, model: Model) -> int:
        """Return the vocabulary, padded so that tensor parallel ranks share it evenly."""
        return -(-model.vocabulary // self.tp) * self.tp


@dataclass(frozen=True, slots=True)
class Wish:
    """What a user says of a layout; None leaves it to the rules of `layout_of`.

    Attributes:
        ranks: How many ranks.
        tp, pp, dp: Degrees; `dp` follows from the others where it is None.
        batch, micro_batch, sequence: As in `Layout`.
        zero, sequence_parallel, schedule, steps: As in `Layout`; `sequence_parallel` is on where tp is above 1 unless said.
        stage_layers: Layers of each stage.
    """

    ranks: int
    tp: int = 1
    pp: int = 1
    dp: int | None = None
    batch: int | None = None
    micro_batch: int = 1
    sequence: int | None = None
    zero: int = 0
    sequence_parallel: bool | None = None
    schedule: Schedule = "1f1b"
    steps: int = 1
    stage_layers: tuple[int, ...] | None = None


def layout_of(model: Model, wish: Wish) -> Layout:
    """Return the layout that a user asks for.

    Raises:
        ConfigError: Numbers do not divide; the message names them and the nearest that do.
    """
    for name in ("ranks", "tp", "pp", "dp", "batch", "micro_batch", "sequence", "steps"):
        value = getattr(wish, name)
        if value is not None and not 1 <= value <= _LARGEST_RANKS:
            raise ConfigError(
                f"--{name.replace('_', '-')} is {value:,}; allowed: 1 to {_LARGEST_RANKS:,}.", key=name
            )
    if wish.zero not in ZERO_STAGES:
        raise ConfigError(
            f"--zero is {wish.zero}; allowed: {', '.join(map(str, ZERO_STAGES))}.",
            hint="Stage 2 is not modelled yet.",
        )
    if wish.zero == 3 and wish.pp > 1:
        raise ConfigError(
            f"--zero is 3 and --pp is {wish.pp}; allowed with --zero 3: --pp 1.",
            hint="Pipelines of sharded weights are not modelled yet; use --zero 1, or --pp 1.",
            key="zero",
        )
    if wish.schedule not in SCHEDULES:
        raise ConfigError(f"--schedule is {wish.schedule}; allowed: {', '.join(SCHEDULES)}.")
    _check_tensor(model, wish.tp)
    dp = _replicas(wish)
    sequence = wish.sequence or model.sequence
    if model.positions and sequence > model.positions:
        raise ConfigError(
            f"--seq is {sequence:,}; {model.name} has {model.positions:,} learned positions.",
            hint=f"Allowed: 1 to {model.positions:,}.",
        )
    parallel = wish.tp > 1 if wish.sequence_parallel is None else wish.sequence_parallel and wish.tp > 1
    if parallel and sequence % wish.tp:
        near = nearest(sequence, _multiples(wish.tp, sequence))
        raise ConfigError(
            f"--seq is {sequence:,}, which --tp {wish.tp} does not divide.",
            hint=f"The nearest: --seq {near}; or --no-sequence-parallel.",
        )
    batch, words = _batch(model, wish, dp)
    return Layout(
        wish.tp, dp, wish.pp, _stage_layers(model, wish), batch, wish.micro_batch, sequence, wish.zero,
        parallel, wish.schedule, wish.steps, words,
    )  # fmt: skip


def _multiples(step: int, value: int) -> tuple[int, ...]:
    below = value // step * step
    return tuple(number for number in (below, below + step) if number > 0)


def _check_tensor(model: Model, tp: int) -> None:
    """Refuse a tensor parallel degree that does not divide the model's heads and feed-forward width."""

    def divides(degree: int) -> bool:
        return not (model.heads % degree or model.kv_heads % degree or model.feed_forward % degree)

    if not divides(tp):
        near = nearest(tp, (degree for degree in range(1, model.kv_heads + 1) if divides(degree)))
        raise ConfigError(
            f"--tp is {tp}, which does not divide {model.heads} heads, {model.kv_heads} heads of keys and values and a "
            f"feed-forward width of {model.feed_forward:,} of {model.name}.",
            hint=f"The nearest that does: {near}.",
            key="tp",
        )


def _replicas(wish: Wish) -> int:
    cell = wish.tp * wish.pp
    if wish.ranks % cell:
        near = nearest(wish.ranks, _multiples(cell, wish.ranks))
        raise ConfigError(
            f"--ranks is {wish.ranks:,}, which tp × pp = {wish.tp} × {wish.pp} = {cell:,} does not divide.",
            hint=f"The nearest: --ranks {near}.",
            key="ranks",
        )
    dp = wish.ranks // cell
    if wish.dp not in (None, dp):
        raise ConfigError(
            f"--dp is {wish.dp}; {wish.ranks:,} ranks with tp {wish.tp} and pp {wish.pp} have {dp:,} replicas.",
            hint=f"Use --dp {dp}, or --ranks {cell * (wish.dp or 1):,}.",
            key="dp",
        )
    return dp


def _stage_layers(model: Model, wish: Wish) -> tuple[int, ...]:
    if wish.stage_layers is not None:
        given = wish.stage_layers
        if len(given) != wish.pp or sum(given) != model.layers or min(given) < 1:
            raise ConfigError(
                f"--stage-layers names {len(given)} stages with {sum(given)} layers; allowed: {wish.pp} stages of at least one "
                f"layer with {model.layers} together.",
                key="stage-layers",
            )
        return given
    layers = shared_layers(model.layers, wish.pp)
    if layers is None:
        near = nearest(
            wish.pp, (n for n in range(1, model.layers + 1) if shared_layers(model.layers, n) is not None)
        )
        raise ConfigError(
            f"--pp is {wish.pp}; the {model.layers} layers of {model.name} do not divide so, nor where the first and the last "
            "stage have fewer.",
            hint=f"The nearest that does: {near}; --stage-layers gives any other split.",
            key="pp",
        )
    return layers


def shared_layers(layers: int, stages: int) -> tuple[int, ...] | None:
    """Return the layers of each stage, the first and the last with fewer where they do not divide; None where that fails.

    Example:
        >>> shared_layers(126, 16)
        (7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7)
    """
    each = -(-layers // stages)
    missing = each * stages - layers
    first, last = missing // 2, missing - missing // 2
    if stages > layers or (missing and last >= each):
        return None
    shared = [each] * stages
    shared[0] -= first
    shared[-1] -= last
    return tuple(shared)


def _batch(model: Model, wish: Wish, dp: int) -> tuple[int, str]:
    """Return the sequences of a step, and where they are from."""
    once = dp * wish.micro_batch
    if wish.batch is not None:
        if wish.batch % once:
            near = nearest(wish.batch, _multiples(once, wish.batch))
            raise ConfigError(
                f"--batch is {wish.batch:,}, which {dp:,} replicas × micro-batch {wish.micro_batch} = {once:,} does not divide.",
                hint=f"The nearest: --batch {near}.",
                key="batch",
            )
        return wish.batch, "given"
    if model.batch and model.batch % once == 0 and model.batch // once <= _MOST_MICRO_BATCHES:
        return model.batch, "published recipe"
    each = 4 * wish.pp if wish.pp > 1 else 1
    why = "published one does not fit this layout" if model.batch else "no published one known"
    return each * once, f"assumed, {why}"
