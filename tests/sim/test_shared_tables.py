"""Graphs that differ in recorded times only share their tables; the answers are those of graphs that do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import studio
from studio.advice.edits import ScaleTimes, SetSizes
from studio.sim import flow_plans, graph_plans, simulate
from studio.sim.config import Roofline
from studio.sim.graph_plans import find_first_alike
from studio.sim.known import Known
from studio.sim.plan import make_plan
from studio.sim.play import play
from studio.trace import Graph, NodeType, Trace
from tests.golden import trace_of_workload
from tests.kernels import compiled
from tests.sim.test_parity_sample import ring_config


def job(*, size: int = 1 << 16, ops: int = 5, micros: int = 3) -> list[dict[str, Any]]:
    weight = {"num_ops": ops, "tensor_size": 10 * ops}
    reduce = {"comm_type": 0, "comm_size": size}
    return [
        {"id": 0, "type": "COMP_NODE", "duration_micros": micros, "attrs": weight},
        {"id": 1, "type": "COMM_COLL_NODE", "data_deps": [0], "attrs": reduce},
        {"id": 2, "type": "COMP_NODE", "data_deps": [1], "duration_micros": 2 * micros, "attrs": weight},
    ]


def uneven(npus: int) -> Trace:
    return trace_of_workload({"ranks": [job(micros=1 + at, ops=1 + at) for at in range(npus)]}, npus)


def graphs_of(*jobs: list[dict[str, Any]]) -> dict[int, Graph]:
    return dict(enumerate(trace_of_workload({"ranks": list(jobs)}, len(jobs)).graphs))


def test_every_rank_keeps_its_own_times(monkeypatch: pytest.MonkeyPatch) -> None:
    trace, config = uneven(4), ring_config(4)
    assert len(trace.graphs) == 4
    shared = simulate(trace, config, native=compiled())
    words = len(make_plan(trace, config).m)
    monkeypatch.setattr(graph_plans, "find_first_alike", lambda graphs: {index: index for index in graphs})
    apart = simulate(trace, config, native=compiled())
    assert words < len(make_plan(trace, config).m)
    for name in ("event_ns", "event_rank", "event_row", "event_end", "finish_ns"):
        assert np.array_equal(getattr(shared, name), getattr(apart, name))
    for rank in range(4):
        tick, row, ends = shared.events_of(rank)
        assert tick[ends & (row == 0)].tolist() == [1000 * (1 + rank)]


def test_graphs_that_differ_in_anything_else_share_nothing() -> None:
    assert find_first_alike(graphs_of(job(), job(micros=4), job(ops=6))) == {0: 0, 1: 0, 2: 0}
    assert find_first_alike(graphs_of(job(), job(size=1 << 17), job(size=1 << 17, ops=1))) == {
        0: 0,
        1: 1,
        2: 1,
    }
    assert find_first_alike(graphs_of(job(), job()[:2])) == {0: 0, 1: 1}


def test_what_a_model_of_compute_says_is_not_shared() -> None:
    trace = uneven(2)
    config = replace(ring_config(2), roofline=Roofline(1.0), local_memory_bytes_per_ns=1e-3)
    result = simulate(trace, config, native=compiled())
    first_ends = [int(result.events_of(rank)[0][result.events_of(rank)[2]][0]) for rank in range(2)]
    # 10 bytes on the one, 20 on the other, at 0.001 bytes a nanosecond.
    assert first_ends == [10_000, 20_000]


def test_with_a_roofline_ranks_that_differ_in_times_alone_are_laid_out_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Everything but times of compute is taken from the first; the answer is that of graphs laid out one by one."""
    trace = studio.generate("gpt3-125m", ranks=4, tp=2, pp=2, batch=2, gpu="a100", jitter=0.3)
    config = studio.preset("hgx-a100", npus=4).config
    made: list[int] = []
    lay_out = graph_plans._plan_graph
    monkeypatch.setattr(
        graph_plans, "_plan_graph", lambda *given, **more: made.append(1) or lay_out(*given, **more)
    )
    shared = simulate(trace, config, native=compiled())
    kinds = len(set(find_first_alike(dict(enumerate(trace.graphs))).values()))
    assert len(made) == kinds < len(trace.graphs)
    monkeypatch.setattr(graph_plans, "_may_retime", lambda *_: False)
    apart = simulate(trace, config, native=compiled())
    assert len(made) == kinds + len(trace.graphs)
    for name in ("event_ns", "event_rank", "event_row", "event_end", "finish_ns"):
        assert np.array_equal(getattr(shared, name), getattr(apart, name))
    assert len(set(shared.finish_ns.tolist())) > 1


def test_matches_of_a_job_hold_after_a_change_of_its_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is that of a job of which nothing is known; a job with other sizes is matched by itself."""
    trace = studio.generate("gpt3-125m", ranks=4, tp=2, pp=2, batch=2, gpu="a100", jitter=0.3)
    config = studio.preset("hgx-a100", npus=4).config
    matched: list[Trace] = []
    match = flow_plans.match_collectives
    monkeypatch.setattr(
        flow_plans,
        "match_collectives",
        lambda *given, **more: matched.append(given[0]) or match(*given, **more),
    )
    known = Known(trace)
    play(trace, config, known=known, native=compiled())

    def change(edit: Callable[[Trace], Trace]) -> int:
        """Play the job after a change, with what is known and without; return how often the former matched."""
        changed = edit(trace)
        matched.clear()
        shared, _ = play(changed, config, known=known.of_changed(changed), native=compiled())
        count = len(matched)
        alone, _ = play(changed, config, native=compiled())
        for name in ("event_ns", "event_rank", "event_row", "event_end", "finish_ns"):
            assert np.array_equal(getattr(shared, name), getattr(alone, name))
        return count

    counts = [len(trace.graph_of(rank)) for rank in trace.ranks]
    assert (
        change(ScaleTimes({place: np.full(count, 0.5) for place, count in enumerate(counts)}, work=True)) == 0
    )
    assert change(ScaleTimes({1: np.full(counts[1], 2.0)})) == 0
    graphs = [trace.graph_of(rank) for rank in trace.ranks]
    sizes = {place: np.where(graph.type == NodeType.COMM_COLL, 64, -1) for place, graph in enumerate(graphs)}
    assert change(SetSizes(sizes)) == 1
