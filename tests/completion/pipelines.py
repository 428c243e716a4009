"""Jobs with pipeline stages, written by hand: embedding, layers, output layer and loss, micro-batches in a chosen order."""

from __future__ import annotations

from typing import Any

from studio.trace import Trace
from tests.handmade import collective, node, trace_of

ACTIVATIONS, GRADIENTS = 64, 32
EMBED, LAYER, LOSS = 7, 5, 11


def pipelined(stages: int, micro: int, *, dp: int = 1, one_by_one: bool = False) -> Trace:
    """A job of `stages` x `dp` ranks, in which the ranks of a stage have adjacent numbers.

    Args:
        stages: Pipeline stages, of a layer each.
        micro: Micro-batches.
        dp: Replicas, which sum up gradients at the end.
        one_by_one: Whether each micro-batch goes forward and back before the next, else all go forward first.
    """
    groups = {f"dp{stage}": [stage * dp + place for place in range(dp)] for stage in range(stages)}
    ranks = [
        _rank(place // dp, stages, micro, dp, place, one_by_one=one_by_one) for place in range(stages * dp)
    ]
    return trace_of(ranks, groups=groups if dp > 1 else {})


def _rank(  # noqa: C901  # one line for each node, in the order of the program
    stage: int, stages: int, micro: int, dp: int, number: int, *, one_by_one: bool
) -> list[Any]:
    nodes: list[Any] = []

    def add(kind: str, name: str, *deps: int, micros: int = 0, **attributes: Any) -> int:
        nodes.append(node(len(nodes) + 1, kind, *deps, name=name, micros=micros, **attributes))
        return len(nodes)

    after: list[int] = []
    outs: list[int] = []
    ends: list[int] = []

    def forward(k: int) -> None:
        deps = after[-1:] if one_by_one else []
        if stage == 0:
            begin = add("COMP", f"mb{k}.embedding.fwd", *deps, micros=EMBED)
        else:
            begin = add("COMM_RECV", f"mb{k}.recv", comm_src=number - dp, comm_size=ACTIVATIONS, comm_tag=10 * k + stage - 1)  # fmt: skip
        out = add("COMP", f"mb{k}.layer{stage}.fwd", begin, *deps, micros=LAYER)
        if stage < stages - 1:
            add("COMM_SEND", f"mb{k}.send", out, comm_dst=number + dp, comm_size=ACTIVATIONS, comm_tag=10 * k + stage)  # fmt: skip
        else:
            out = add("COMP", f"mb{k}.loss.fwd", out, micros=LOSS)
        outs.append(out)

    def backward(k: int) -> None:
        if stage < stages - 1:
            begin = add("COMM_RECV", f"mb{k}.recv.bwd", comm_src=number + dp, comm_size=GRADIENTS, comm_tag=100 + 10 * k + stage)  # fmt: skip
        else:
            begin = add("COMP", f"mb{k}.loss.bwd", outs[k], micros=LOSS)
        end = add("COMP", f"mb{k}.layer{stage}.bwd", begin, outs[k], micros=2 * LAYER)
        if stage:
            add("COMM_SEND", f"mb{k}.send.bwd", end, comm_dst=number - dp, comm_size=GRADIENTS, comm_tag=100 + 10 * k + stage - 1)  # fmt: skip
        else:
            add("COMP", f"mb{k}.embedding.bwd", end, micros=EMBED)
        after.append(end)
        ends.append(end)

    if one_by_one:
        for k in range(micro):
            forward(k)
            backward(k)
    else:
        for k in range(micro):
            forward(k)
        for k in range(micro):
            backward(k)
    if dp > 1:
        nodes.append(collective(len(nodes) + 1, "ALL_REDUCE", 4096, *ends, group=f"dp{stage}"))
    return nodes
