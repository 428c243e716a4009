"""What replicas exchange: gradients in buckets, and weights that they divide.

Sources: Rajbhandari et al., ZeRO, 2020 (stage 2 scatters gradients of every micro-batch, stage 3 gathers weights in both passes as
well); Li et al., "PyTorch Distributed", 2020, section 3.2.3 (buckets); Megatron-LM, `DistributedDataParallel` (one bucket of a
chunk where sums do not overlap, and of experts one of their own); PyTorch's hybrid sharding (gradients of shards are summed over the
replicas of each).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from studio.generation.layout import Layout
from studio.generation.models import Model
from studio.generation.transformer import EXPERTS, build_stage_units


class Held(NamedTuple):
    """A unit of weights on a rank.

    Attributes:
        parameters: Its parameters.
        group: Whose ranks hold the same: `dp`, of experts `edp`.
    """

    parameters: int
    group: str


def count_holders(layout: Layout, unit: Held) -> int:
    """Return how many ranks hold the same weights, sharded or not."""
    return layout.holders(unit.group)


def count_shards(layout: Layout, unit: Held) -> int:
    """Return among how many ranks ZeRO divides a unit."""
    if unit.group == "dp" or layout.shard is None:
        return layout.shards if unit.group == "dp" else layout.holders(unit.group)
    # Of the ranks that divide all else, those that hold the same experts.
    return layout.shard // layout.ep


def count_shard_parameters(layout: Layout, unit: Held) -> int:
    """Return the parameters of a unit that a rank holds where ZeRO divides it; the last shard may be padded."""
    return -(-unit.parameters // count_shards(layout, unit))


def name_group(layout: Layout, unit: Held) -> str:
    """Return the kind of comm group over which a unit's gradients are summed, or scattered where ZeRO divides it."""
    if count_shards(layout, unit) == count_holders(layout, unit):
        return unit.group
    return "shard" if unit.group == "dp" else "eshard"


def list_chunk_units(model: Model, layout: Layout, stage: int) -> tuple[dict[str, Held], ...]:
    """Return the units of weights of each chunk of a stage, in forward order; a layer's experts follow it."""
    weights = build_stage_units(model, layout, stage)
    # Layers of a kind are one object.
    held = {id(unit): Held(unit.held(layout.tp), unit.group) for unit in weights.values()}
    units = {name: held[id(unit)] for name, unit in weights.items()}
    chunks = []
    for layers in layout.chunk_layers(stage):
        names = [name for layer in layers for name in (f"layer{layer}", f"layer{layer}{EXPERTS}")]
        chunks.append({name: units[name] for name in names if name in units})
    if "embedding" in units:
        chunks[0] = {"embedding": units["embedding"], **chunks[0]}
    if "head" in units:
        chunks[-1]["head"] = units["head"]
    return tuple(chunks)


def group_gradient_buckets(model: Model, layout: Layout, stage: int) -> tuple[tuple[str, ...], ...]:
    """Return the units whose gradients are summed at once, in the order in which a backward pass makes them.

    A bucket is closed by the unit that fills it, and by the end of a chunk; experts have buckets of their own.
    """
    buckets: list[tuple[str, ...]] = []
    least = layout.bucket or (0 if layout.grad_overlap else None)
    for units in reversed(list_chunk_units(model, layout, stage)):
        filling: dict[str, list[str]] = {}
        for name in reversed(units):
            bucket = filling.setdefault(units[name].group, [])
            bucket.append(name)
            if (
                least is not None
                and layout.gradient_bytes * sum(units[each].parameters for each in bucket) >= least
            ):
                buckets.append(tuple(filling.pop(units[name].group)))
        buckets += [tuple(bucket) for bucket in filling.values()]
    return tuple(buckets)


def gathers_in_pass(layout: Layout, name: str, unit: Held, way: str) -> bool:
    """Return whether a pass gathers a unit's weights, where ZeRO-3 divides them.

    The gradient of an embedding needs none. The head's are there still where its backward pass follows at once: always but in
    GPipe.
    """
    if layout.zero != 3 or count_shards(layout, unit) == 1:
        return False
    if way == "fwd" or name.startswith("layer"):
        return True
    return name == "head" and layout.schedule == "gpipe" and layout.micro_batches > 1


def count_gathered_at_once(layout: Layout, units: Mapping[str, Held]) -> list[int]:
    """Return the parameters that ZeRO-3 gathers at once: of a layer its own and its experts'."""
    by_layer: dict[str, int] = {}
    for name, unit in units.items():
        if count_shards(layout, unit) > 1:
            layer = name.removesuffix(EXPERTS)
            by_layer[layer] = by_layer.get(layer, 0) + unit.parameters
    return list(by_layer.values())
