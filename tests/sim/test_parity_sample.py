"""A sample of the reference's answers, and what the engine promises beside them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from studio.errors import StudioError, TraceError
from studio.sim import engine, simulate
from studio.sim.config import Algorithm, Dimension, SystemConfig, Topology
from studio.sim.kernel.records import Head
from tests.golden import Record, case, records, trace_of_workload
from tests.golden_files import read_case, write_case
from tests.kernels import compiled
from tests.parity import judge

PER_FAMILY = 4
MOST_EVENTS = 300
"""Records with longer lists of events are left to `python -m tests.parity`."""


@pytest.fixture(scope="module")
def sample(shared: Path) -> list[Record]:
    """The first small records of every family, and every record that ends badly."""
    found: dict[tuple[str, str], list[Record]] = defaultdict(list)
    smallest: dict[str, Record] = {}
    for record in records(shared / "oracle" / "astra_sim_public.jsonl.gz"):
        expected = record["expected"]
        least = smallest.setdefault(record["family"], record)
        if len(expected["cycles"]) < len(least["expected"]["cycles"]):
            smallest[record["family"]] = record
        if len(expected.get("events", ())) > MOST_EVENTS:
            continue
        mine = found[record["family"], expected["status"]]
        if len(mine) < PER_FAMILY or expected["status"] in ("crash", "incomplete"):
            mine.append(record)
    chosen = [record for listed in found.values() for record in listed]
    covered = {record["family"] for record in chosen}
    return chosen + [record for family, record in smallest.items() if family not in covered]


def test_every_family_is_exact(sample: list[Record]) -> None:
    """Finish times, statistics and events are the reference's, with one rank for many and without."""
    native = compiled()
    for fold in (True, False):
        outcomes = [judge(record, native=native, fold=fold) for record in sample]
        assert not [(fold, o.family, o.id, o.problem) for o in outcomes if o.problem]
        assert any(o.folded for o in outcomes) == fold


def test_what_is_compiled_is_exact_interpreted_too(sample: list[Record]) -> None:
    """One record of every family and outcome; most other tests run compiled."""
    chosen = {(record["family"], record["expected"]["status"]): record for record in reversed(sample)}
    outcomes = [
        judge(record, native=False, fold=fold) for record in chosen.values() for fold in (True, False)
    ]
    assert not [(o.family, o.id, o.problem) for o in outcomes if o.problem]
    assert len([o for o in outcomes if o.cycles]) > 60


def test_records_read_back_from_files_give_the_same_answers(sample: list[Record], tmp_path: Path) -> None:
    """One small record of every family and outcome, written as `.et`, YAML and JSON by other writers than ours."""
    chosen = {(record["family"], record["expected"]["status"]): record for record in reversed(sample)}
    native = compiled()
    outcomes = []
    for record in chosen.values():
        source = partial(read_case, write_case(record, tmp_path / record["id"]))
        outcomes.append(judge(record, native=native, fold=True, source=source))
    assert not [(o.family, o.id, o.problem) for o in outcomes if o.problem]
    assert len([o for o in outcomes if o.cycles]) > 30


def ring_config(size: int, **settings) -> SystemConfig:
    topology = Topology((Dimension("ring", size, 50.0, 500.0),))
    algorithms = {kind: (Algorithm("ring"),) for kind in ("all_reduce", "all_gather", "reduce_scatter")}
    return SystemConfig(topology, algorithms=algorithms, **settings)


def collective(kind: int, size_bytes: int) -> list[Record]:
    return [{"id": 0, "type": "COMM_COLL_NODE", "attrs": {"comm_type": kind, "comm_size": size_bytes}}]


@pytest.mark.parametrize("size", [2, 3, 8])
def test_a_ring_all_reduce_takes_what_the_formula_says(size: int) -> None:
    """2(P-1) hops of latency + size/P/bandwidth, an endpoint delay before each and one at the end."""
    trace = trace_of_workload({"all_ranks": collective(0, 50_000 * size)}, size)
    result = simulate(trace, ring_config(size), native=False)
    steps = 2 * (size - 1)
    assert set(result.finish_ns.tolist()) == {steps * (500 + 1000) + (steps + 1) * 10}


def test_ranks_that_disagree_are_named() -> None:
    """A collective in which one rank takes no part ends in a report, not in silence."""
    ranks = [collective(0, 4096), collective(0, 4096), [{"id": 7, "type": "COMP_NODE"}]]
    with pytest.raises(
        TraceError, match=r"2 of 3 ranks never finish: rank 0 waits in collective 0 of the group of all ranks"
    ):
        simulate(trace_of_workload({"ranks": ranks}, 3), ring_config(3), native=False)


def test_a_cycle_beside_a_root_is_reported() -> None:
    nodes = [
        {"id": 0, "type": "COMP_NODE"},
        {"id": 1, "type": "COMP_NODE", "data_deps": [2]},
        {"id": 2, "type": "COMP_NODE", "data_deps": [1]},
    ]
    with pytest.raises(TraceError, match="rank 0 never begins node 1"):
        simulate(trace_of_workload({"all_ranks": nodes}, 2), ring_config(2), native=False)


def test_it_can_be_cancelled_and_tells_its_progress() -> None:
    """Cancelling ends the run at the next batch; progress counts nodes and never exceeds their number."""
    trace = trace_of_workload({"all_ranks": collective(0, 1 << 20)}, 32)
    told: list[tuple[int, int]] = []
    config = ring_config(32, splits=8)
    with pytest.raises(engine.Cancelled):
        simulate(
            trace,
            config,
            progress=lambda *at: told.append(at),
            cancel=lambda: True,
            native=False,
            fold=False,
        )
    assert told
    assert all(0 <= done <= whole == 32 for done, whole in told)


def test_the_clock_ends_somewhere() -> None:
    """A time beyond the clock is an error, not a wrong number."""
    nodes = [
        {"id": i, "type": "COMP_NODE", "data_deps": [i - 1] if i else [], "duration_micros": 2**53}
        for i in range(99)
    ]
    with pytest.raises(StudioError, match="the simulated time passes"):
        simulate(trace_of_workload({"all_ranks": nodes}, 2), ring_config(2), native=False)


@pytest.mark.parametrize("bandwidth", [1e-40, 5e-324])
def test_a_link_that_takes_for_ever_ends_the_clock(bandwidth: float) -> None:
    """Interpreted, the numbers grew until no column held them, or were infinite: a traceback, and a sweep lost with it."""
    config = ring_config(2)
    dims = tuple(replace(dim, bytes_per_ns=bandwidth) for dim in config.topology.dims)
    slow = replace(config, topology=replace(config.topology, dims=dims))
    with pytest.raises(StudioError, match="the simulated time passes"):
        simulate(trace_of_workload({"all_ranks": collective(0, 4096)}, 2), slow, native=False)


def test_links_carry_what_the_algorithm_sends() -> None:
    """Bytes on the links of the congestion-aware ring: every rank sends 2(P-1) messages of a P-th."""
    trace = trace_of_workload({"all_ranks": collective(0, 4096)}, 4)
    result = simulate(trace, ring_config(4, congestion="aware"), native=False)
    assert result.links.bytes.tolist() == [6 * 1024] * 4 + [0] * 4
    assert result.links.busy_ns.tolist() == [6 * 20] * 4 + [0] * 4


def test_running_full_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The array grows in the middle of a run, and the answer is that of a roomy one."""
    trace = trace_of_workload({"all_ranks": collective(6, 1 << 16)}, 16)
    config = ring_config(16, splits=16, active_chunks=16)
    config = replace(config, algorithms={"all_to_all": (Algorithm("direct"),)})
    roomy = simulate(trace, config, native=False, fold=False)
    from studio.sim.plan import make_plan
    from studio.sim.result import read_result

    plan = make_plan(trace, config)
    plan.m = plan.m[: plan.m[Head.TOP] + plan.m[Head.MARGIN] + 8].copy()
    plan.m[Head.MARGIN] = 3000
    before = len(plan.m)
    engine.execute(plan, native=False)
    tight = read_result(trace, config, plan)
    assert len(plan.m) >= before
    assert np.array_equal(tight.event_ns, roomy.event_ns)
    assert np.array_equal(tight.event_rank, roomy.event_rank)


def test_cases_are_built_with_shared_graphs(sample: list[Record]) -> None:
    """Ranks that differ in groups only share one graph, so that plans stay small."""
    record = next(r for r in sample if r["family"] == "transformer")
    trace, _ = case(record)
    assert len(trace.graphs) < len(trace.ranks)
