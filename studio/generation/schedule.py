"""The order in which a pipeline stage works on micro-batches.

Sources: Huang et al., GPipe, 2019; Narayanan et al., PipeDream-Flush (1F1B), "Memory-Efficient Pipeline-Parallel DNN Training",
2021; Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021, section 2.2.2
(interleaved 1F1B, in the order of `forward_backward_pipelining_with_interleaving` of Megatron-LM); Qi et al., "Zero Bubble Pipeline
Parallelism", 2023 (ZB-H1, section 3.1).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from studio.generation.layout import Layout, Schedule
from studio.trace import Int64

Way = Literal["fwd", "bwd", "input", "weight"]
"""A forward pass, a backward pass, and its halves where it is split: gradients of inputs, then those of weights."""


class Pass(NamedTuple):
    """What a stage does with a micro-batch.

    Attributes:
        way: What it does.
        number: The micro-batch.
        chunk: Which of the stage's chunks of layers, 0 unless stages are interleaved.
    """

    way: Way
    number: int
    chunk: int = 0


@lru_cache(maxsize=256)
def order_passes(
    schedule: Schedule, stage: int, stages: int, micro_batches: int, chunks: int = 1
) -> tuple[Pass, ...]:
    """Return the passes of a stage in order.

    Args:
        schedule: The schedule.
        stage: The stage.
        stages: Stages of the pipeline.
        micro_batches: Micro-batches of a step; of an interleaved schedule a multiple of the stages.
        chunks: Chunks of layers that the stage has, of an interleaved schedule (virtual stages).

    Example:
        >>> [f"{way}{number}" for way, number, _ in order_passes("1f1b", 0, 2, 3)]
        ['fwd0', 'fwd1', 'bwd0', 'fwd2', 'bwd1', 'bwd2']
        >>> [f"{way}{number}" for way, number, _ in order_passes("zb-h1", 1, 2, 2)]
        ['fwd0', 'input0', 'fwd1', 'input1', 'weight0', 'weight1']
    """
    if schedule == "interleaved":
        return _order_interleaved(stage, stages, micro_batches, chunks)
    ahead = count_in_flight("gpipe" if schedule == "gpipe" else "1f1b", stage, stages, micro_batches) - 1
    order = [Pass("fwd", number) for number in range(ahead)]
    # Gradients of weights wait for as many micro-batches as there are stages before: all stages hold equally many activations then.
    late = min(stage, micro_batches) if schedule == "zb-h1" else 0
    for number in range(micro_batches):
        if ahead + number < micro_batches:
            order.append(Pass("fwd", ahead + number))
        order.append(Pass("input" if schedule == "zb-h1" else "bwd", number))
        if schedule == "zb-h1" and number >= late:
            order.append(Pass("weight", number - late))
    return (
        *order,
        *(Pass("weight", number) for number in range(micro_batches - late, micro_batches) if late),
    )


def _order_interleaved(stage: int, stages: int, micro_batches: int, chunks: int) -> tuple[Pass, ...]:
    """Return the order of interleaved 1F1B: groups of as many micro-batches as there are stages, chunk after chunk."""
    every = micro_batches * chunks

    def build_pass(way: Way, index: int) -> Pass:
        group, inner = divmod(index, stages * chunks)
        chunk, number = divmod(inner, stages)
        return Pass(way, group * stages + number, chunk if way == "fwd" else chunks - 1 - chunk)

    ahead = min(2 * (stages - stage - 1) + (chunks - 1) * stages, every)
    order = [build_pass("fwd", index) for index in range(ahead)]
    for index in range(every - ahead):
        order += [build_pass("fwd", ahead + index), build_pass("bwd", index)]
    return (*order, *(build_pass("bwd", index) for index in range(every - ahead, every)))


def count_in_flight(schedule: Schedule, stage: int, stages: int, micro_batches: int, chunks: int = 1) -> int:
    """Return the forward passes whose activations a stage holds at most, of a chunk each.

    All in GPipe, as many as stages are left in 1F1B, as many as stages in ZB-H1; interleaved, those of the warm-up and one more.
    """
    if schedule == "gpipe":
        return micro_batches
    if schedule == "interleaved":
        return min(2 * (stages - stage - 1) + (chunks - 1) * stages + 1, micro_batches * chunks)
    return min(micro_batches, stages if schedule == "zb-h1" else stages - stage)


def count_held_micro_batches(layout: Layout, stage: int) -> tuple[Int64, Int64]:
    """Return (P, V) the micro-batches whose activations a stage holds after each of P passes, of each of V chunks, twice.

    All of them, and those that wait for the gradients of weights alone. The passes are those of a step of few micro-batches,
    which has the same peaks as the whole one.
    """
    few = layout.micro_batches
    if layout.schedule != "gpipe":
        few = min(few, 4 * layout.pp)
    elif few > 1:
        # Peaks stand where all forward passes are over.
        return np.full((1, 1), few, np.int64), np.zeros((1, 1), np.int64)
    return _count_held(
        order_passes(layout.schedule, stage, layout.pp, few, layout.virtual_stages), layout.virtual_stages
    )


@lru_cache(maxsize=256)
def _count_held(order: tuple[Pass, ...], chunks: int) -> tuple[Int64, Int64]:
    change = np.zeros((2, len(order), chunks), np.int64)
    for row, (way, _, chunk) in enumerate(order):
        change[0, row, chunk] = {"fwd": 1, "bwd": -1, "input": 0, "weight": -1}[way]
        change[1, row, chunk] = {"fwd": 0, "bwd": 0, "input": 1, "weight": -1}[way]
    held, waiting = change.cumsum(axis=1)
    return held, waiting
