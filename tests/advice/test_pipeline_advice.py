"""Advice on pipelines: a job drawn by hand, jobs that the generator makes with as many micro-batches, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import studio
from studio.advice.advice import advise
from studio.advice.baseline import simulate_on_system
from studio.advice.interleaving import propose_interleaving
from studio.advice.pipeline import propose_pipelines
from studio.analysis.collectives.matching import compute_issue_order
from studio.sim import simulate
from studio.sim.models import with_model
from studio.sim.parts import interpret
from studio.sim.presets import preset
from studio.trace import NodeType, Rank, Trace, read_dense_column
from tests.handmade import node, trace_of

US = 1000


def ran(start_us: int, micros: int, made: Any, *order: int) -> Any:
    """A recorded node, which comes after others in an order only."""
    made.start_time_micros, made.duration_micros = 10 + start_us, micros
    made.ctrl_deps.extend(order)
    return made


def message(number: int, start_us: int, sends: bool, ends: tuple[int, int], tag: int, *deps: int) -> Any:
    kind, way = ("COMM_SEND", "send") if sends else ("COMM_RECV", "recv")
    name = f"mb{tag // 2}.{way}.{'bwd' if tag % 2 else 'fwd'}"
    attrs = {"comm_src": ends[0], "comm_dst": ends[1], "comm_tag": tag, "comm_size": 1000}
    return ran(start_us, 10, node(number, kind, *deps, name=name, **attrs))


def work(number: int, start_us: int, name: str, micros: int, *deps: int, order: tuple[int, ...] = ()) -> Any:
    return ran(start_us, micros, node(number, "COMP", *deps, name=name, num_ops=micros), *order)


def renamed(made: Any) -> Any:
    made.name = "send"
    return made


def two_stages() -> Trace:
    """Two micro-batches in the order of 1F1B: passes of 40 µs, forward ones with a node of 2 µs, messages of 10 µs."""
    first = [
        work(1, 0, "mb0.embed.fwd", 2),
        work(2, 2, "mb0.layer.fwd", 38, 1),
        message(3, 40, True, (0, 1), 0, 2),
        work(4, 40, "mb1.embed.fwd", 2, order=(2,)),
        work(5, 42, "mb1.layer.fwd", 38, 4),
        message(6, 80, True, (0, 1), 2, 5),
        message(7, 130, False, (1, 0), 1),
        work(8, 140, "mb0.layer.bwd", 40, 7, 2, order=(5,)),
        message(9, 210, False, (1, 0), 3),
        work(10, 220, "mb1.layer.bwd", 40, 9, 5, order=(8,)),
    ]
    second = [
        work(11, 0, "batch", 1),
        message(1, 40, False, (0, 1), 0),
        work(2, 50, "mb0.norm.fwd", 2, 1),
        work(3, 52, "mb0.layer.fwd", 38, 2),
        work(4, 90, "mb0.layer.bwd", 40, 3),
        message(5, 130, True, (1, 0), 1, 4),
        message(6, 80, False, (0, 1), 2),
        work(7, 130, "mb1.norm.fwd", 2, 6, order=(4,)),
        work(8, 132, "mb1.layer.fwd", 38, 7),
        work(9, 170, "mb1.layer.bwd", 40, 8),
        message(10, 210, True, (1, 0), 3, 9),
    ]
    return trace_of([first, second])


def test_half_the_micro_batch_takes_half_the_time_beyond_a_launch():
    found = advise(two_stages())
    assert found.baseline.finish_ns == found.baseline.recorded_ns == 260 * US
    # Forward 2 + 2 + 36 / 2 = 22 µs, a launch taking 2; backward 2 + 38 / 2 = 21; messages 5. The second stage begins at 27, works on
    # four micro-batches, and waits 10 for the third, which the first stage begins after its first backward pass, at 96.
    half = next(item for item in found.advice if "Cut each micro-batch of the pipeline into 2" in item.action)
    assert half.saving_ns == (260 - (27 + 4 * (22 + 21) + 10 + 5 + 21)) * US
    assert "4 a step in place of 2, in the order of 1F1B as now" in half.action
    changed = half.change.of_trace(two_stages())
    for before, after in zip(two_stages().graphs, changed.graphs, strict=True):
        names = [after.strings[name] for name in after.name.tolist()]
        assert {name.split(".")[0] for name in names} - {"batch"} == {"mb0", "mb1", "mb2", "mb3"}
        for key in ("num_ops", "comm_size"):
            assert read_dense_column(after, key, 0).sum() == read_dense_column(before, key, 0).sum()


GENERATED: dict[str, Any] = {"ranks": 4, "tp": 2, "pp": 2, "batch": 8, "sequence": 256, "gpu": None}


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_a_generated_job_that_is_cut_is_the_one_generated_with_smaller_micro_batches(schedule):
    """Names, operations of matrix products, bytes, and what waits for what are those of the generator."""

    def made(micro_batch: int, order: str = schedule) -> Trace:
        return studio.generate("gpt3-125m", **GENERATED, micro_batch=micro_batch, schedule=order)

    job = made(2)
    candidates = [
        one
        for one in propose_pipelines(simulate_on_system(job, with_model(preset("hgx-h100-4").parts, "full")))
        if hasattr(one, "change")
    ]
    other = "gpipe" if schedule == "1f1b" else "1f1b"
    for candidate, expected in ((candidates[0], made(1)), (candidates[-1], made(2, other))):
        changed = candidate.change.of_trace(job)
        for rank, like in zip(changed.ranks, expected.ranks, strict=True):
            mine, its = described(changed, rank), described(expected, like)
            assert mine.keys() == its.keys()
            for name, (sizes, waits) in its.items():
                # Work of the step may wait for earlier parts too, which run before the last one anyway.
                assert mine[name][0] == sizes
                assert mine[name][1] == waits if ".mb" in name else mine[name][1] >= waits
            assert compute_order(changed, rank) == compute_order(expected, like)


def described(trace: Trace, rank: Rank) -> dict[str, tuple[tuple[int, int], set[str]]]:
    """Bytes and operations of each node, and the names of those whose data it needs."""
    graph = trace.graph_of(rank)
    names = [graph.strings[name] for name in graph.name.tolist()]
    sizes = zip(
        read_dense_column(graph, "comm_size", 0).tolist(),
        read_dense_column(graph, "num_ops", 0).tolist(),
        strict=True,
    )
    return {
        name: (pair, {names[parent] for parent in graph.data.of(row).tolist()})
        for row, (name, pair) in enumerate(zip(names, sizes, strict=True))
    }


def compute_order(trace: Trace, rank: Rank) -> list[str]:
    """The compute nodes by following what each waits for: one order, since each waits for the one before."""
    graph = trace.graph_of(rank)
    place = compute_issue_order(graph)
    rows = np.flatnonzero(graph.type == NodeType.COMP)
    rows = rows[np.argsort(place[rows])]
    before = {
        int(row): set(graph.data.of(row).tolist()) | set(graph.ctrl.of(row).tolist()) for row in rows.tolist()
    }
    assert all(first in before[then] for first, then in pairwise(rows.tolist())), "a stream has one order"
    return [graph.strings[graph.name[row]] for row in rows.tolist()]


def test_stages_of_a_generated_job_are_interleaved_as_the_generator_does():
    given = {**GENERATED, "ranks": 2, "tp": 1, "batch": 4, "micro_batch": 1}
    job = studio.generate("gpt3-125m", **given)
    found = advise(job, with_model(preset("hgx-h100-2").parts, "full"))
    [item] = [one for one in found.advice if "2 chunks of layers" in one.action]
    expected = studio.generate("gpt3-125m", **given, schedule="interleaved", virtual_stages=2)
    assert item.change.of_trace(job) == expected
    config = interpret(item.on).config
    assert item.saving_ns == simulate(job, config).makespan_ns - simulate(expected, config).makespan_ns > 0
    assert "of up to 5 passes of half its layers then, of 2 of all its layers now" in item.action
    # A job that was changed since is not made anew.
    slow = replace(job, graphs=tuple(replace(one, duration_ns=one.duration_ns + 1) for one in job.graphs))
    assert not list(propose_interleaving(simulate_on_system(slow, item.on)))


def test_a_pipeline_that_names_no_micro_batches_says_so():
    ranks = [[renamed(message(1, 0, True, (0, 1), 0))], [message(1, 0, False, (0, 1), 0)]]
    refused = dict(advise(trace_of([[work(9, 0, "n", 5), *nodes] for nodes in ranks])).refused)
    assert "no name of a node tells its micro-batch" in refused["micro-batches"]
    assert refused["schedule"] == refused["micro-batches"]


def test_passes_that_nothing_but_data_orders_are_cut_too():
    """Each micro-batch takes its ids one after another, so that parts of the first begin before those of the second."""
    first = [
        node(1, "COMP", name="mb0.a", micros=10),
        message(2, 0, True, (0, 1), 0, 1),
        node(3, "COMP", name="mb1.a", micros=10),
        message(4, 0, True, (0, 1), 2, 3),
    ]
    second = [message(1, 0, False, (0, 1), 0), message(2, 0, False, (0, 1), 2)]
    scene = simulate_on_system(trace_of([first, second]), with_model(preset("hgx-h100", 2).parts, "full"))
    changed = next(iter(propose_pipelines(scene))).change.of_trace(scene.trace)
    graph = changed.graphs[0]
    by_id = [graph.strings[graph.name[row]] for row in np.argsort(graph.id).tolist()]
    assert by_id == [f"mb{number}.{rest}" for number in range(4) for rest in ("a", "send.fwd")]
