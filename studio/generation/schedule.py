"""The order in which a pipeline stage works on micro-batches.

Sources: Huang et al., GPipe, 2019; Narayanan et al., PipeDream-Flush (1F1B), "Memory-Efficient Pipeline-Parallel DNN Training", 2021.
"""

from __future__ import annotations

from studio.generation.layout import Schedule


def stage_order(schedule: Schedule, stage: int, stages: int, micro_batches: int) -> list[tuple[str, int]]:
    """Return the passes of a stage in order: `fwd` or `bwd`, and the micro-batch.

    Example:
        >>> stage_order("1f1b", 0, 2, 3)
        [('fwd', 0), ('fwd', 1), ('bwd', 0), ('fwd', 2), ('bwd', 1), ('bwd', 2)]
    """
    ahead = in_flight(schedule, stage, stages, micro_batches) - 1
    order = [("fwd", number) for number in range(ahead)]
    for number in range(micro_batches - ahead):
        order += [("fwd", ahead + number), ("bwd", number)]
    return order + [("bwd", number) for number in range(micro_batches - ahead, micro_batches)]


def in_flight(schedule: Schedule, stage: int, stages: int, micro_batches: int) -> int:
    """Return the micro-batches whose activations a stage holds at most: all in GPipe, as many as stages are left in 1F1B."""
    return micro_batches if schedule == "gpipe" else min(micro_batches, stages - stage)
