"""What a step sends, by kind of comm group and collective, as closed forms.

Sources: Shoeybi et al., Megatron-LM, 2019 (all-reduces of tensor parallel parts); Korthikanti et al., 2022 (sequence parallelism:
4 all-gathers and 4 reduce-scatters a layer, and 2 all-gathers of inputs that are not kept); Rajbhandari et al., ZeRO, 2020 (stage 3
gathers weights in both passes and scatters gradients, stage 2 scatters them). Both do so for every micro-batch, as FSDP does. Those of
experts and of context parallelism are of `experts.py` and `context.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from studio.generation.context import count_kv_bytes, count_ulysses_bytes
from studio.generation.layout import Layout
from studio.generation.memory import ACTIVATION_BYTES, WEIGHT_BYTES
from studio.generation.models import Model
from studio.generation.passes import LOSS_BYTES, LOSS_REDUCTIONS
from studio.generation.replicas import (
    count_holders,
    count_shard_parameters,
    count_shards,
    gathers_in_pass,
    group_gradient_buckets,
    list_chunk_units,
    name_group,
)
from studio.generation.routing import count_given_tokens, count_received_tokens
from studio.generation.stage import count_shared_gradients
from studio.generation.transformer import compute_entering_width, count_expert_layers

Volumes = dict[tuple[str, str], tuple[int, int]]
"""By kind of group (`tp`, `cp`, `dp`, `ep`, `edp`, `pp`, `emb`) and collective: how many nodes of all ranks there are, and their bytes (`comm_size`)."""


def count_step_volumes(model: Model, layout: Layout) -> Volumes:
    """Return what all ranks together give to collectives and messages in a step."""
    volumes: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])

    def add(group: str, kind: str, count: int, size: int) -> None:
        if count:
            volumes[group, kind][0] += count
            volumes[group, kind][1] += count * size

    for kind, count, size in _iterate_tensor_volumes(model, layout):
        add("tp", kind, count, size)
    for group, kind, count, size in (
        *_iterate_expert_volumes(model, layout),
        *_iterate_context_volumes(model, layout),
    ):
        add(group, kind, count, size)
    stream = ACTIVATION_BYTES * layout.tokens * model.hidden
    own = stream // (layout.tp if layout.sequence_parallel else 1)
    every = layout.micro_batches * layout.tp * layout.copies
    for kind in ("SEND", "RECV"):
        # Of interleaved stages every chunk but the last sends on.
        add("pp", kind, 2 * (layout.pp * layout.virtual_stages - 1) * every, own)
    for stage in range(layout.pp):
        for group, kind, count, size in _iterate_gradient_volumes(model, layout, stage):
            add(group, kind, layout.tp * layout.copies * count, size)
    return {key: (count, size) for key, (count, size) in volumes.items()}


def _iterate_gradient_volumes(
    model: Model, layout: Layout, stage: int
) -> Iterator[tuple[str, str, int, int]]:
    """Yield what a rank of a stage exchanges of gradients and weights: kind of group, collective, how many, bytes of each.

    Bytes of parameters and gradients of a step do not depend on buckets, whose number does.
    """
    for group, count in count_shared_gradients(model, layout, stage).items():
        yield group, "ALL_REDUCE", 1, layout.reduced_bytes * count
    units = {name: unit for chunk in list_chunk_units(model, layout, stage) for name, unit in chunk.items()}
    times = layout.micro_batches if layout.zero >= 2 else 1
    for bucket in group_gradient_buckets(model, layout, stage):
        first = units[bucket[0]]
        if count_holders(layout, first) == 1:
            continue
        if layout.zero == 0:
            yield (
                name_group(layout, first),
                "ALL_REDUCE",
                1,
                layout.reduced_bytes * sum(units[name].parameters for name in bucket),
            )
            continue
        shard = sum(count_shard_parameters(layout, units[name]) for name in bucket)
        shards = count_shards(layout, first)
        if shards > 1:
            size = layout.reduced_bytes * shard * shards
            yield name_group(layout, first), "REDUCE_SCATTER", times, size
        if shards < count_holders(layout, first):
            yield "replica", "ALL_REDUCE", 1, layout.reduced_bytes * shard
        if layout.zero < 3 and shards > 1:
            yield name_group(layout, first), "ALL_GATHER", 1, WEIGHT_BYTES * shard
    for name, unit in units.items():
        passes = sum(gathers_in_pass(layout, name, unit, way) for way in ("fwd", "bwd"))
        yield (
            name_group(layout, unit),
            "ALL_GATHER",
            layout.micro_batches * passes,
            WEIGHT_BYTES * count_shard_parameters(layout, unit),
        )


def _iterate_tensor_volumes(model: Model, layout: Layout) -> Iterator[tuple[str, int, int]]:
    """Yield the collectives of tensor parallel ranks: kind, how many of all ranks, bytes of each."""
    if layout.tp == 1:
        return
    every = layout.micro_batches * layout.tp * layout.copies
    stream = ACTIVATION_BYTES * layout.tokens * model.hidden
    # Of a layer's dense parts: one each a pass, and one more where its forward pass is repeated. Beside the layers: the embedding and
    # the output layer, each once in either pass.
    each = 3 if layout.recompute == "full" else 2
    parts = model.layers - (0 if model.shared_width else count_expert_layers(model))
    if layout.sequence_parallel:
        entering = ACTIVATION_BYTES * layout.tokens * compute_entering_width(model)
        # Entering a part: in the forward pass, and its input once more; leaving one backwards: the gradient of all of it.
        yield "ALL_GATHER", every * each * model.layers, entering // layout.tp
        yield "ALL_GATHER", every * ((each + 1) * parts + model.layers + 3), stream // layout.tp
        yield "REDUCE_SCATTER", every * model.layers, entering
        yield "REDUCE_SCATTER", every * (each * parts + (each - 1) * model.layers + 2), stream
    else:
        yield "ALL_REDUCE", every * (2 * each * model.layers + 2), stream
    yield "ALL_REDUCE", every * len(LOSS_REDUCTIONS), LOSS_BYTES * layout.tokens


def _iterate_expert_volumes(model: Model, layout: Layout) -> Iterator[tuple[str, str, int, int]]:
    """Yield what ranks exchange for experts: group, kind, how many, bytes of each.

    GShard's two all-to-alls a layer in each pass; of a rank with hot experts they are as large as what it receives.
    """
    if not model.experts:
        return
    every = layout.micro_batches * layout.tp * layout.copies // layout.ep
    forward = 2 if layout.recompute == "full" else 1
    for layer in range(model.dense_layers, model.layers):
        for place in range(layout.ep):
            received = count_received_tokens(model, layout, layer, place)
            size = ACTIVATION_BYTES * received * model.hidden
            if layout.ep > 1:
                larger = ACTIVATION_BYTES * max(count_given_tokens(model, layout), received) * model.hidden
                yield "ep", "ALL_TO_ALL", every * 2 * (forward + 1), larger
            if layout.tp > 1:
                yield "tp", "ALL_GATHER", every * (forward + 1), size
                yield "tp", "REDUCE_SCATTER", every * (forward + 1), size * layout.tp


def _iterate_context_volumes(model: Model, layout: Layout) -> Iterator[tuple[str, str, int, int]]:
    """Yield what context parallel ranks exchange: group, kind, how many, bytes of each.

    In a ring of c, keys and values are passed on c - 1 times in both passes, their gradients c times in the backward pass.
    """
    if layout.cp == 1:
        return
    every = layout.micro_batches * layout.tp * layout.copies * model.layers
    forward = 1 if layout.recompute == "none" else 2
    if layout.cp_kind == "ring":
        times = (forward + 1) * (layout.cp - 1) + layout.cp
        for kind in ("SEND", "RECV"):
            yield "cp", kind, every * times, count_kv_bytes(model, layout)
        return
    for sizes in count_ulysses_bytes(model, layout):
        for size in sizes.values():
            yield "cp", "ALL_TO_ALL", every * (forward + 1), size
