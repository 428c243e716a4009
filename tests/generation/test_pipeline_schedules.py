"""Orders of passes in a pipeline: bubbles as published, memory in flight, and no deadlock."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from studio.generation.layout import Layout
from studio.generation.schedule import count_held_micro_batches, count_in_flight, order_passes

FORWARD, INPUT, WEIGHT = 10, 12, 8
WORK = FORWARD + INPUT + WEIGHT


def bubble(schedule, stages, micro_batches, chunks=1):
    """Return the idle time of a pipeline of equal stages whose messages take no time; None where it never ends."""
    times = {"fwd": FORWARD, "bwd": INPUT + WEIGHT, "input": INPUT, "weight": WEIGHT}
    orders = [list(order_passes(schedule, stage, stages, micro_batches, chunks)) for stage in range(stages)]
    last, ended, now = stages * chunks - 1, {}, [0] * stages
    while any(orders):
        before = len(ended)
        for stage, order in enumerate(orders):
            while order:
                way, number, chunk = order[0]
                place = chunk * stages + stage
                needed = {
                    "fwd": ("fwd", number, place - 1) if place else None,
                    "weight": ("input", number, place),
                }.get(way, (way, number, place + 1) if place < last else ("fwd", number, place))
                if needed is not None and needed not in ended:
                    break
                now[stage] = max(now[stage], ended.get(needed, 0)) + times[way]
                ended[way, number, place] = now[stage]
                order.pop(0)
        if len(ended) == before:
            return None
    return max(now) - micro_batches * chunks * WORK


def held_passes(schedule, stage, stages, micro_batches, chunks):
    """Return (P, V) held activations after each pass, by chunk, twice: all, and those that wait for gradients of weights."""
    order = order_passes(schedule, stage, stages, micro_batches, chunks)
    held, waiting = np.zeros((len(order), chunks), int), np.zeros((len(order), chunks), int)
    for row, (way, _, chunk) in enumerate(order):
        held[row:, chunk] += (way == "fwd") - (way in ("bwd", "weight"))
        waiting[row:, chunk] += (way == "input") - (way == "weight")
    return held, waiting


@given(st.integers(1, 6), st.integers(1, 4), st.integers(2, 4), st.integers(0, 5))
@settings(max_examples=20)
def test_bubbles_and_memory_are_those_of_the_published_schedules(stages, rounds, chunks, more):
    """Bubbles (p - 1) (F + B + W), interleaved in times of a chunk; of ZB-H1 (p - 1) (F + B - W), by Qi et al., table 2."""
    whole = stages * rounds
    for schedule, micro_batches, parts, idle in (
        ("gpipe", whole + more, 1, WORK),
        ("1f1b", whole + more, 1, WORK),
        ("interleaved", whole, chunks, WORK),
        ("zb-h1", whole + more, 1, WORK - 2 * WEIGHT),
    ):
        assert bubble(schedule, stages, micro_batches, parts) == (stages - 1) * idle
        layout = Layout(
            1, 1, stages, (parts,) * stages, micro_batches, 1, 8, schedule=schedule, virtual_stages=parts
        )
        for stage in range(stages):
            held, waiting = held_passes(schedule, stage, stages, micro_batches, parts)
            assert held.sum(axis=1).max() == count_in_flight(schedule, stage, stages, micro_batches, parts)
            assert not held[-1].any()
            assert not waiting[-1].any()
            few, late = count_held_micro_batches(layout, stage)
            for weights in ([1] * parts, list(range(1, parts + 1)), list(range(parts, 0, -1))):
                assert (few @ weights + late @ weights).max() == (held @ weights + waiting @ weights).max()


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1", "interleaved"])
def test_every_pass_is_made_once(schedule):
    chunks = 2 if schedule == "interleaved" else 1
    for stage in range(3):
        order = order_passes(schedule, stage, 3, 6, chunks)
        assert len(set(order)) == len(order) == 6 * chunks * (3 if schedule == "zb-h1" else 2)
