"""Attention over a sequence that context parallel ranks divide.

Sources: Liu et al., Ring Attention, 2023 (keys and values go round a ring while a rank works on what it has; gradients of keys and
values go round with them and one step further, home); Jacobs et al., DeepSpeed Ulysses, 2023 (all-to-alls of queries, keys, values
and outputs divide heads in place of the sequence). A causal mask would leave ranks unequal work, so that each has one piece of the
beginning and one of the end of a sequence, as Transformer Engine divides it: work is the same on all.
"""

from __future__ import annotations

from collections.abc import Sequence

from studio.generation.layout import Layout
from studio.generation.models import Model
from studio.generation.program import Program
from studio.generation.transformer import (
    compute_key_width,
    compute_output_width,
    compute_query_width,
    compute_value_width,
    count_attention_flop,
)
from studio.trace import CollectiveType

ELEMENT_BYTES = 2


def append_attention(  # noqa: PLR0913 (a program, what it is of, and the node)
    program: Program,
    model: Model,
    layout: Layout,
    name: str,
    after: Sequence[int],
    *,
    layer: int,
    moved: int,
    scores: int = 0,
    kernels: int = 1,
) -> int:
    """Append attention of a layer on a rank, forward or backward as its name ends in `.bwd` or not; returns its last node.

    Args:
        program: Where nodes go to.
        model: What is computed.
        layout: How it is divided.
        name: Name of the node.
        after: The nodes that it reads from.
        layer: Which layer; layers may differ in their window.
        moved: Bytes that a rank reads and writes for it, in a ring for each of its steps.
        scores: Bytes of scores that it reads and writes besides, in a ring shared among its steps.
        kernels: Kernels that the host launches for it, in a ring for each of its steps.
    """
    times = 2 if name.endswith(".bwd") else 1
    flop = (
        times
        * count_attention_flop(model, layout.micro_batch, layout.sequence, layer)
        // (layout.tp * layout.cp)
    )
    if layout.cp == 1:
        return program.compute(name, after, flop, moved + scores, "attention", kernels=kernels)
    if layout.cp_kind == "ring":
        return _append_ring(
            program,
            layout,
            name,
            after,
            (flop, moved + scores // layout.cp, count_kv_bytes(model, layout), kernels),
        )
    before, behind = count_ulysses_bytes(model, layout)
    if times == 2:
        before, behind = behind, before
    exchanged = [_append_exchange(program, f"{name}.{word}", after, size) for word, size in before.items()]
    node = program.compute(name, exchanged, flop, moved + scores, "attention", kernels=kernels)
    # Each is on its way while the next is; the last is what others wait for.
    last = [_append_exchange(program, f"{name}.{word}", [node], size) for word, size in behind.items()]
    return last[-1]


def count_kv_bytes(model: Model, layout: Layout) -> int:
    """Return the bytes of the keys and values of a rank's part of a micro-batch."""
    return (
        ELEMENT_BYTES * layout.tokens * (compute_key_width(model) + compute_value_width(model)) // layout.tp
    )


def count_ulysses_bytes(model: Model, layout: Layout) -> tuple[dict[str, int], dict[str, int]]:
    """Return the bytes that a rank gives to the all-to-alls before and behind attention in the forward pass, by name."""
    own = ELEMENT_BYTES * layout.tokens

    def count_bytes(width: int) -> int:
        return own * width // layout.tp

    before = {
        "queries": count_bytes(compute_query_width(model)),
        "keys": count_bytes(compute_key_width(model)),
        "values": count_bytes(compute_value_width(model)),
    }
    return before, {"outputs": count_bytes(compute_output_width(model))}


def _append_exchange(program: Program, name: str, after: Sequence[int], size: int) -> int:
    return program.collective(f"{name}.all_to_all", "cp", CollectiveType.ALL_TO_ALL, after, size)


def _append_ring(
    program: Program, layout: Layout, name: str, after: Sequence[int], sizes: tuple[int, int, int, int]
) -> int:
    """Append attention in a ring.

    Args:
        program: Where nodes go to.
        layout: How it is divided.
        name: Its name; steps have their number before its last word.
        after: The nodes that it reads from.
        sizes: Its operations; bytes read and written, bytes of keys and values, and kernels of a step.
    """
    flop, moved, size, kernels = sizes
    part, _, way = name.rpartition(".")
    backward = way == "bwd"
    have, node, gradients = list(after), 0, 0
    for step in range(layout.cp):
        at = f"{part}.ring{step}"
        arrived = 0
        if step < layout.cp - 1:
            arrived = program.pass_on(f"{at}.kv.{way}", have, size)
        share = flop // layout.cp if step < layout.cp - 1 else flop - (layout.cp - 1) * (flop // layout.cp)
        node = program.compute(f"{at}.{way}", [*have, gradients], share, moved, "attention", kernels=kernels)
        if backward:
            # Sums of the gradients of keys and values follow them, and after the last step go home.
            gradients = program.pass_on(f"{at}.dkv.{way}", [node], size)
        have = [arrived]
    return gradients if backward else node
