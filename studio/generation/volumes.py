"""What a step sends, by kind of comm group and collective, as closed forms.

Sources: Shoeybi et al., Megatron-LM, 2019 (all-reduces of tensor parallel parts); Korthikanti et al., 2022 (sequence parallelism:
4 all-gathers and 4 reduce-scatters a layer, and 2 all-gathers of inputs that are not kept); Rajbhandari et al., ZeRO, 2020 (stage 3
gathers weights in both passes and scatters gradients). Stage 3 does so for every micro-batch, as FSDP does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from studio.generation.job import shared_gradients
from studio.generation.layout import Layout
from studio.generation.memory import ACTIVATION_BYTES, GRADIENT_BYTES, WEIGHT_BYTES
from studio.generation.models import Model
from studio.generation.passes import LOSS_BYTES, LOSS_REDUCTIONS
from studio.generation.transformer import stage_units

Volumes = dict[tuple[str, str], tuple[int, int]]
"""By kind of group (`tp`, `dp`, `pp`, `emb`) and collective: how many nodes of all ranks there are, and their bytes (`comm_size`)."""


def step_volumes(model: Model, layout: Layout) -> Volumes:
    """Return what all ranks together give to collectives and messages in a step."""
    found: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])

    def add(group: str, kind: str, count: int, size: int) -> None:
        if count:
            found[group, kind][0] += count
            found[group, kind][1] += count * size

    for kind, count, size in _tensor(model, layout):
        add("tp", kind, count, size)
    stream = ACTIVATION_BYTES * layout.tokens * model.hidden
    own = stream // (layout.tp if layout.sequence_parallel else 1)
    every = layout.micro_batches * layout.tp * layout.dp
    for kind in ("SEND", "RECV"):
        add("pp", kind, 2 * (layout.pp - 1) * every, own)
    cell = layout.tp * layout.dp
    for stage in range(layout.pp):
        for group, count in shared_gradients(model, layout, stage).items():
            add(group, "ALL_REDUCE", cell, GRADIENT_BYTES * count)
        for name, unit in stage_units(model, layout, stage).items() if layout.dp > 1 else ():
            held = unit.held(layout.tp)
            shard = -(-held // layout.dp)
            times = layout.micro_batches if layout.zero == 3 else 1
            if layout.zero:
                # A layer's weights are gathered in both passes.
                gathers = 2 if layout.zero == 3 and name.startswith("layer") else 1
                add("dp", "REDUCE_SCATTER", cell * times, GRADIENT_BYTES * shard * layout.dp)
                add("dp", "ALL_GATHER", cell * times * gathers, WEIGHT_BYTES * shard)
            else:
                add("dp", "ALL_REDUCE", cell, GRADIENT_BYTES * held)
    return {key: (count, size) for key, (count, size) in found.items()}


def _tensor(model: Model, layout: Layout) -> Iterator[tuple[str, int, int]]:
    """Yield the collectives of tensor parallel ranks: kind, how many of all ranks, bytes of each."""
    if layout.tp == 1:
        return
    every = layout.micro_batches * layout.tp * layout.dp
    stream = ACTIVATION_BYTES * layout.tokens * model.hidden
    # Beside the layers: the embedding and the output layer, each once in either pass.
    if layout.sequence_parallel:
        yield "ALL_GATHER", every * (6 * model.layers + 3), stream // layout.tp
        yield "REDUCE_SCATTER", every * (4 * model.layers + 2), stream
    else:
        yield "ALL_REDUCE", every * (4 * model.layers + 2), stream
    yield "ALL_REDUCE", every * len(LOSS_REDUCTIONS), LOSS_BYTES * layout.tokens
