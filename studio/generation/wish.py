"""Make the layout that a user asks for: fill in what is left open, and refuse numbers that do not divide."""

from __future__ import annotations

import math
from dataclasses import dataclass

from studio.errors import ConfigError
from studio.generation.layout import (
    ATTENTIONS,
    AXES,
    CONTEXT_KINDS,
    DATA_TYPES,
    GRADIENT_TYPES,
    HOST_GBYTES,
    OFFLOADS,
    OPTIMIZERS,
    RECOMPUTES,
    SCHEDULES,
    ZERO_STAGES,
    Attention,
    ContextKind,
    DataType,
    GradientType,
    Layout,
    Offload,
    OptimizerName,
    Recompute,
    Schedule,
)
from studio.generation.models import Model, format_nearest

ORDERS = {
    "megatron": AXES,
    "megatron-pp-before-dp": ("tp", "cp", "ep", "pp", "dp"),
    "torchtitan": AXES,
    "deepspeed": AXES,
}
"""Orders by framework, adjacent ranks first. Megatron-LM: `parallel_state.initialize_model_parallel`, and its
`--use-tp-pp-dp-mapping`; torchtitan: `ParallelDims.build_mesh`, whose mesh is pp, dp_replicate, dp_shard, cp, tp from the outside;
DeepSpeed: `PipeModelDataParallelTopology`, whose axes are pipe, data, model from the outside."""
_MOST_MICRO_BATCHES = 64
_LARGEST_RANKS = 1 << 20


@dataclass(frozen=True, slots=True)
class Wish:
    """What a user says of a layout; None leaves it to the rules of `build_layout`.

    Attributes:
        ranks: How many ranks.
        tp, pp, dp: Degrees; `dp` follows from the others where it is None.
        batch, micro_batch, sequence: As in `Layout`.
        zero, sequence_parallel, schedule, steps: As in `Layout`; `sequence_parallel` is on where tp is above 1 unless said.
        stage_layers: Layers of each stage.
        attention: As in `Layout`; `unfused` for a model trained with dropout, `flash` for others unless said.
        recompute, grad_dtype, virtual_stages, shard, prefetch: As in `Layout`.
        grad_overlap: As in `Layout`; on without a pipeline, off with one unless said, as Megatron-LM has it.
        bucket_mb: MiB of a bucket of gradients.
        order: A name of `ORDERS`, or axes of `AXES` with dashes between.
        cp, cp_kind, ep, capacity_factor, expert_skew, seed, dtype: As in `Layout`.
        optimizer, reduce_dtype, offload, host_gbytes: As in `Layout`.
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
    recompute: Recompute = "none"
    attention: Attention | None = None
    grad_overlap: bool | None = None
    bucket_mb: int | None = None
    grad_dtype: GradientType = "bf16"
    virtual_stages: int | None = None
    shard: int | None = None
    prefetch: int = 1
    order: str = "megatron"
    cp: int = 1
    cp_kind: ContextKind = "ring"
    ep: int = 1
    capacity_factor: float | None = None
    expert_skew: float = 0.0
    seed: int = 1
    dtype: DataType = "bf16"
    optimizer: OptimizerName = "adam"
    reduce_dtype: GradientType | None = None
    offload: Offload = "none"
    host_gbytes: float = HOST_GBYTES


def build_layout(model: Model, wish: Wish) -> Layout:
    """Return the layout that a user asks for.

    Raises:
        ConfigError: Numbers do not divide; the message names them and the nearest that do.
    """
    for name in (
        "ranks", "tp", "pp", "dp", "cp", "ep", "batch", "micro_batch", "sequence", "steps", "bucket_mb", "virtual_stages",
        "shard", "prefetch",
    ):  # fmt: skip
        value = getattr(wish, name)
        if value is not None and not 1 <= value <= _LARGEST_RANKS:
            option = "seq" if name == "sequence" else name.replace("_", "-")
            raise ConfigError(f"--{option} is {value:,}; allowed: 1 to {_LARGEST_RANKS:,}.", key=name)
    for name, allowed in _CHOICES.items():
        if getattr(wish, name) not in (None, *allowed):
            raise ConfigError(
                f"--{name.replace('_', '-')} is {getattr(wish, name)}; allowed: {', '.join(map(str, allowed))}.",
                key=name,
            )
    order = parse_order(wish.order)
    _check_tensor(model, wish.tp)
    _check_stages(model, wish)
    sequence = wish.sequence or model.sequence
    parallel = wish.tp > 1 if wish.sequence_parallel is None else wish.sequence_parallel and wish.tp > 1
    _check_sequence(wish, sequence, parallel=parallel)
    dp = _count_replicas(wish)
    _check_sharding(wish, wish.cp * dp)
    if model.positions and sequence > model.positions:
        raise ConfigError(
            f"--seq is {sequence:,}; {model.name} has {model.positions:,} learned positions.",
            hint=f"Allowed: 1 to {model.positions:,}.",
        )
    chunks = _count_chunks(model, wish)
    layers = _split_stage_layers(model, wish, chunks)
    _check_context(model, wish)
    _check_experts(model, wish, dp, parallel=parallel)
    batch, words = _choose_batch(model, wish, dp)
    _check_micro_batches(wish, batch, dp)
    _check_offload(wish)
    overlap = wish.pp == 1 or wish.zero >= 2 if wish.grad_overlap is None else wish.grad_overlap
    return Layout(
        wish.tp, dp, wish.pp, tuple(sum(layers[stage :: wish.pp]) for stage in range(wish.pp)), batch, wish.micro_batch,
        sequence, wish.zero, parallel, wish.schedule, wish.steps, words, wish.recompute,
        wish.attention or ("unfused" if model.dropout else "flash"),
        grad_overlap=overlap,
        bucket=wish.bucket_mb << 20 if wish.bucket_mb else None,
        grad_dtype=wish.grad_dtype,
        virtual_stages=chunks,
        virtual_layers=layers if chunks > 1 else (),
        shard=wish.shard,
        prefetch=wish.prefetch,
        order=order,
        cp=wish.cp, cp_kind=wish.cp_kind, ep=wish.ep, capacity_factor=wish.capacity_factor,
        expert_skew=wish.expert_skew, seed=wish.seed, dtype=wish.dtype,
        optimizer=wish.optimizer, reduce_dtype=wish.reduce_dtype, offload=wish.offload, host_gbytes=wish.host_gbytes,
    )  # fmt: skip


_CHOICES: dict[str, tuple[object, ...]] = {
    "zero": ZERO_STAGES,
    "schedule": SCHEDULES,
    "recompute": RECOMPUTES,
    "attention": ATTENTIONS,
    "grad_dtype": GRADIENT_TYPES,
    "dtype": DATA_TYPES,
    "optimizer": OPTIMIZERS,
    "reduce_dtype": GRADIENT_TYPES,
    "offload": OFFLOADS,
}


def parse_order(text: str) -> tuple[str, ...]:
    """Return the axes that an order of ranks names; those it leaves out follow as in `AXES`.

    Raises:
        ConfigError: It is no framework's name and names no axes.

    Example:
        >>> parse_order("tp-pp-dp")
        ('tp', 'pp', 'dp', 'cp', 'ep')
    """
    known = ORDERS.get(text)
    if known is not None:
        return known
    axes = tuple(text.split("-"))
    if not set(axes) <= set(AXES) or len(set(axes)) < len(axes):
        raise ConfigError(
            f"--order is {text[:80]!r}; allowed: {', '.join(ORDERS)}, or axes of {'-'.join(AXES)}, adjacent ranks first.",
            hint="For example tp-pp-dp.",
            key="order",
        )
    return (*axes, *(axis for axis in AXES if axis not in axes))


def _check_sharding(wish: Wish, copies: int) -> None:
    """Refuse what contradicts how ZeRO divides."""
    if wish.shard is not None and wish.zero == 0:
        raise ConfigError(
            f"--shard is {wish.shard}, but --zero is 0.", hint="Use --zero 1, 2 or 3.", key="shard"
        )
    if wish.shard is not None and (copies % wish.shard or (wish.shard == 1 and copies > 1)):
        near = format_nearest(wish.shard, (degree for degree in range(2, copies + 1) if copies % degree == 0))
        raise ConfigError(
            f"--shard is {wish.shard}; allowed: above 1, what divides the {copies:,} ranks that hold the same weights.",
            hint=f"The nearest: {near}." if copies > 1 else "Leave it out: no other rank does.",
            key="shard",
        )
    if wish.shard is not None and wish.shard % wish.ep:
        able = (n for n in range(wish.ep, copies + 1, wish.ep) if copies % n == 0 and n > 1)
        raise ConfigError(
            f"--shard is {wish.shard}, which --ep {wish.ep} does not divide: ranks that divide all else would hold unequal experts.",
            hint=f"The nearest that does: {format_nearest(wish.shard, able)}.",
            key="shard",
        )
    if wish.zero == 3 and (wish.bucket_mb or wish.grad_overlap is False):
        given = f"--bucket-mb is {wish.bucket_mb}" if wish.bucket_mb else "--no-grad-overlap is given"
        raise ConfigError(
            f"{given}, but --zero 3 sums each layer's gradients as they are made.",
            hint="Leave it out, or use --zero 0, 1 or 2.",
            key="zero",
        )


def _check_offload(wish: Wish) -> None:
    """Refuse a link to host memory that carries nothing, and activations that two passes of a schedule would need back."""
    if not (math.isfinite(wish.host_gbytes) and wish.host_gbytes > 0):
        raise ConfigError(
            f"--host-gbytes is {wish.host_gbytes}; allowed: above 0.",
            hint="PCIe 5.0 × 16 has 64 GB/s in each direction, PCIe 4.0 × 16 32.",
            key="host_gbytes",
        )
    if wish.schedule == "zb-h1" and wish.offload in ("activations", "all"):
        raise ConfigError(
            f"--offload is {wish.offload}, but --schedule zb-h1 reads activations in two passes; allowed: none, optimizer.",
            hint="Use another schedule.",
            key="offload",
        )


def _count_chunks(model: Model, wish: Wish) -> int:
    """Return the chunks of layers of each stage: above 1 where the schedule is interleaved, and only there."""
    if wish.schedule != "interleaved":
        if wish.virtual_stages not in (None, 1):
            raise ConfigError(
                f"--virtual-stages is {wish.virtual_stages}, but --schedule is {wish.schedule}.",
                hint="Use --schedule interleaved.",
                key="virtual_stages",
            )
        return 1
    if wish.pp == 1:
        raise ConfigError("--schedule is interleaved, but --pp is 1; allowed: at least 2.", key="schedule")
    chunks = wish.virtual_stages or 2
    able = [n for n in range(2, model.layers // wish.pp + 1) if split_layers(model.layers, n * wish.pp)]
    if chunks < 2 or (wish.stage_layers is None and chunks not in able):
        raise ConfigError(
            f"--virtual-stages is {chunks}, of {wish.pp} stages {chunks * wish.pp} chunks; the {model.layers} layers of {model.name} "
            "do not divide so, nor where the first and the last have fewer; allowed: at least 2.",
            hint=f"The nearest that does: {format_nearest(chunks, able)}; --stage-layers gives any other split.",
            key="virtual_stages",
        )
    return chunks


def _check_micro_batches(wish: Wish, batch: int, dp: int) -> None:
    """Refuse micro-batches that do not fill an interleaved schedule, as Megatron-LM does."""
    count = batch // (dp * wish.micro_batch)
    if wish.schedule == "interleaved" and count % wish.pp:
        once = dp * wish.micro_batch
        near = format_nearest(batch, (once * number for number in _list_multiples(wish.pp, count)))
        raise ConfigError(
            f"--batch is {batch:,}, of which a replica has {count:,} micro-batches; --schedule interleaved takes multiples of --pp "
            f"{wish.pp}.",
            hint=f"The nearest: --batch {near}.",
            key="batch",
        )


def _list_multiples(step: int, value: int) -> tuple[int, ...]:
    below = value // step * step
    return tuple(number for number in (below, below + step) if number > 0)


def _check_tensor(model: Model, tp: int) -> None:
    """Refuse a tensor parallel degree that does not divide the model's heads and feed-forward width."""

    def divides(degree: int) -> bool:
        widths = (model.heads, model.kv_heads, model.feed_forward, model.expert_width, model.shared_width)
        return not any(width % degree for width in widths)

    if not divides(tp):
        near = format_nearest(tp, (degree for degree in range(1, model.kv_heads + 1) if divides(degree)))
        experts = f" (of experts {model.expert_width:,})" if model.experts else ""
        raise ConfigError(
            f"--tp is {tp}, which does not divide {model.heads} heads, {model.kv_heads} heads of keys and values and a "
            f"feed-forward width of {model.feed_forward:,}{experts} of {model.name}.",
            hint=f"The nearest that does: {near}.",
            key="tp",
        )


def _check_sequence(wish: Wish, sequence: int, *, parallel: bool) -> None:
    """Refuse a sequence that context parallel ranks, and tensor parallel ones with sequence parallelism, do not share evenly."""
    step = wish.cp * (wish.tp if parallel else 1)
    if sequence % step == 0:
        return
    near = format_nearest(sequence, _list_multiples(step, sequence))
    if wish.cp == 1:
        raise ConfigError(
            f"--seq is {sequence:,}, which --tp {wish.tp} does not divide.",
            hint=f"The nearest: --seq {near}; or --no-sequence-parallel.",
        )
    each = wish.tp if parallel else 1
    degrees = (n for n in range(1, wish.ranks + 1) if wish.ranks % (wish.tp * wish.pp * n) == 0)
    able = format_nearest(wish.cp, (n for n in degrees if sequence % (n * each) == 0))
    raise ConfigError(
        f"--seq is {sequence:,}, which cp{' × tp' if parallel else ''} = {step:,} does not divide.",
        hint=f"The nearest: --seq {near}{f'; --cp {able}' if able != 'none' else ''}.",
        key="cp",
    )


def _check_context(model: Model, wish: Wish) -> None:
    """Refuse context parallelism that divides heads where they do not divide."""
    if wish.cp_kind not in CONTEXT_KINDS:
        raise ConfigError(f"--cp-kind is {wish.cp_kind}; allowed: {', '.join(CONTEXT_KINDS)}.", key="cp_kind")
    heads = model.kv_heads // wish.tp
    if wish.cp_kind == "all-to-all" and heads % wish.cp:
        near = format_nearest(wish.cp, (degree for degree in range(1, heads + 1) if heads % degree == 0))
        raise ConfigError(
            f"--cp is {wish.cp} and --cp-kind all-to-all, which does not divide the {heads} heads of keys and values of a rank.",
            hint=f"The nearest that does: {near}; or --cp-kind ring.",
            key="cp",
        )


def _check_experts(model: Model, wish: Wish, dp: int, *, parallel: bool) -> None:
    """Refuse an expert parallel degree that does not divide, and what is of experts only in a dense model."""
    if not model.experts:
        options = {
            "--ep": wish.ep if wish.ep > 1 else None,
            "--capacity-factor": wish.capacity_factor,
            "--expert-skew": wish.expert_skew or None,
        }
        for option, value in options.items():
            if value is not None:
                raise ConfigError(
                    f"{option} is {value:g}, but {model.name} has no experts.",
                    hint="Leave it out, or choose a model with experts, such as mixtral-8x7b.",
                    key=option[2:].replace("-", "_"),
                )
    if wish.capacity_factor is not None and not wish.capacity_factor > 0:
        raise ConfigError(
            f"--capacity-factor is {wish.capacity_factor:g}; allowed: above 0.",
            hint="1 is the even share of each expert; leave it out for as many tokens as are routed.",
            key="capacity_factor",
        )
    copies = wish.cp * dp
    if model.experts and (model.experts % wish.ep or copies % wish.ep):
        allowed = (n for n in range(1, model.experts + 1) if not (model.experts % n or copies % n))
        raise ConfigError(
            f"--ep is {wish.ep}, which does not divide both the {model.experts} experts of {model.name} and the {copies:,} ranks that "
            f"hold the same weights (cp × dp = {wish.cp} × {dp:,}).",
            hint=f"The nearest that does: {format_nearest(wish.ep, allowed)}.",
            key="ep",
        )
    if wish.tp > 1 and not parallel and (model.experts or model.kv_rank):
        what = "Experts" if model.experts else "Multi-head latent attention"
        raise ConfigError(
            f"{what} of {model.name} with --tp {wish.tp} and without sequence parallelism: not modelled, since ranks would work alike.",
            hint="Leave out --no-sequence-parallel, as Megatron-LM demands for experts.",
            key="sequence_parallel",
        )


def _count_replicas(wish: Wish) -> int:
    cell = wish.tp * wish.cp * wish.pp
    if wish.ranks % cell:
        near = format_nearest(wish.ranks, _list_multiples(cell, wish.ranks))
        degrees = (("tp", wish.tp), ("cp", wish.cp), ("pp", wish.pp))
        shown = [(name, degree) for name, degree in degrees if name != "cp" or degree > 1]
        words = f"{' × '.join(name for name, _ in shown)} = {' × '.join(str(degree) for _, degree in shown)}"
        raise ConfigError(
            f"--ranks is {wish.ranks:,}, which {words} = {cell:,} does not divide.",
            hint=f"The nearest: --ranks {near}.",
            key="ranks",
        )
    dp = wish.ranks // cell
    if wish.dp not in (None, dp):
        raise ConfigError(
            f"--dp is {wish.dp}; {wish.ranks:,} ranks with tp {wish.tp}, cp {wish.cp} and pp {wish.pp} have {dp:,} replicas.",
            hint=f"Use --dp {dp}, or --ranks {cell * (wish.dp or 1):,}.",
            key="dp",
        )
    return dp


def _check_stages(model: Model, wish: Wish) -> None:
    """Refuse more stages than layers, whatever the number of ranks."""
    if wish.pp > model.layers:
        raise ConfigError(
            f"--pp is {wish.pp}, more stages than the {model.layers} layers of {model.name}.",
            hint=f"The nearest: --pp {_format_nearest_stages(model, wish)}.",
            key="pp",
        )


def _format_nearest_stages(model: Model, wish: Wish) -> str:
    """Return the nearest numbers of stages that share the layers, of those that divide the ranks as well where there are any."""
    able = [n for n in range(1, model.layers + 1) if split_layers(model.layers, n) is not None]
    return format_nearest(wish.pp, [n for n in able if wish.ranks % (wish.tp * wish.cp * n) == 0] or able)


def _split_stage_layers(model: Model, wish: Wish, chunks: int) -> tuple[int, ...]:
    """Return the layers of each stage, or of each chunk of stages in the order of the model."""
    count = wish.pp * chunks
    if wish.stage_layers is not None:
        given, even = wish.stage_layers, split_layers(model.layers, count)
        if len(given) != count or sum(given) != model.layers or min(given) < 1:
            what = "stages" if chunks == 1 else f"stages × {chunks} chunks"
            raise ConfigError(
                f"--stage-layers names {len(given)} numbers, {sum(given)} layers; allowed: {wish.pp} {what} of at least one "
                f"layer with {model.layers} together.",
                hint=f"For example --stage-layers {','.join(map(str, even))}." if even else "",
                key="stage-layers",
            )
        return given
    layers = split_layers(model.layers, count)
    if layers is None:
        raise ConfigError(
            f"--pp is {wish.pp}; the {model.layers} layers of {model.name} do not divide so, nor where the first and the last "
            "stage have fewer.",
            hint=f"The nearest that does: {_format_nearest_stages(model, wish)}; --stage-layers gives any other split.",
            key="pp",
        )
    return layers


def split_layers(layers: int, stages: int) -> tuple[int, ...] | None:
    """Return the layers of each stage, the first and the last with fewer where they do not divide; None where that fails.

    Example:
        >>> split_layers(126, 16)
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


def _choose_batch(model: Model, wish: Wish, dp: int) -> tuple[int, str]:
    """Return the sequences of a step, and where they are from."""
    once = dp * wish.micro_batch
    if wish.batch is not None:
        if wish.batch % once:
            near = format_nearest(wish.batch, _list_multiples(once, wish.batch))
            raise ConfigError(
                f"--batch is {wish.batch:,}, which {dp:,} replicas × micro-batch {wish.micro_batch} = {once:,} does not divide.",
                hint=f"The nearest: --batch {near}.",
                key="batch",
            )
        return wish.batch, "given"
    fills = wish.schedule != "interleaved" or model.batch // once % wish.pp == 0
    if model.batch and model.batch % once == 0 and model.batch // once <= _MOST_MICRO_BATCHES and fills:
        return model.batch, "published recipe"
    each = 4 * wish.pp if wish.pp > 1 else 1
    why = "published one does not fit this layout" if model.batch else "no published one known"
    return each * once, f"assumed, {why}"
