"""Sweeps in the background: kept with their job, continued after a stop, and points that become runs."""

from __future__ import annotations

import pytest

import studio
from studio.errors import ConfigError
from studio.jobs.simulations import Simulations, get, simulate_jobs
from studio.jobs.sweeps import (
    Asked,
    continue_sweep,
    delete_sweep,
    find_task,
    is_under_way,
    list_sweeps,
    price_rows,
    start_point,
    start_sweep,
)
from studio.session import Session
from studio.sim.parts import interpret
from studio.sim.setting_edits import with_settings
from studio.store.runs import Run
from studio.store.tasks import cancel, close_tasks, open_tasks
from studio.store.tasks import get as get_task
from studio.store.workspace import Workspace
from studio.sweep.costs import Costs
from studio.sweep.search import choose_cheapest
from studio.sweep.sweep import index_values
from tests.waiting import wait_until

MEMORY = ("memory-type=PER_NPU_MEMORY_EXPANSION", "remote-mem-latency=1000", "remote-mem-bw=64")


@pytest.fixture
def opened(tmp_path):
    workspace = Workspace(tmp_path)
    job = workspace.save(studio.read(studio.sample_path("transformer_8r")), "transformer")
    tasks = open_tasks(tmp_path)
    yield job, tasks, Session(workspace)
    close_tasks(tasks)


def test_a_sweep_is_kept_priced_and_its_point_becomes_a_run(opened):
    job, tasks, session = opened
    asked = Asked(job, ("bandwidth[0]=100,200", "preset=hgx-h100,no-such", *MEMORY))
    kept = start_sweep(tasks, session, asked)
    wait_until(lambda: not is_under_way(tasks, kept))
    assert find_task(tasks, kept).status == "done"
    assert [one.id for one in list_sweeps(session, job)] == [kept.id]
    rows = kept.rows()
    assert [row.finish_ns is None for row in rows] == [False, True, False, True]
    one, _, two, _ = price_rows(rows, Costs(gpu=1, gb_per_s_port=(1.0,)), kept)
    # The rates are in GiB/s where a preset counts so: what counts is that they double.
    assert two.cost - 8 == pytest.approx(2 * (one.cost - 8))
    simulations = Simulations(tasks, simulate_jobs(session))
    made = start_point(simulations, session, kept, 2)
    wait_until(lambda: get(simulations, made.id).run is not None)
    info = session.workspace.run_info(job, get(simulations, made.id).run)
    assert info.makespan_ns == rows[2].finish_ns
    assert info.name.startswith("sweep point 2: bandwidth[0]=200, preset=hgx-h100")
    delete_sweep(tasks, session, kept)
    assert list_sweeps(session, job) == []


def test_a_sweep_over_presets_keeps_the_remote_memory_of_the_run_that_it_varies(opened):
    job, tasks, session = opened
    slow = ("memory-type=PER_NPU_MEMORY_EXPANSION", "remote-mem-latency=5000", "remote-mem-bw=2")
    parts = with_settings(studio.preset("hgx-h100", npus=8).parts, slow)
    result = studio.simulate(session.trace(job), interpret(parts).config)
    run = session.workspace.save_run(job, Run("slow memory", result, parts))
    presets = "preset=hgx-h100,hgx-a100"
    asked = [Asked(job, (presets,), run=run), Asked(job, (presets, *slow)), Asked(job, (presets, *MEMORY))]
    finishes = []
    for each in asked:
        kept = start_sweep(tasks, session, each)
        wait_until(lambda one=kept: not is_under_way(tasks, one))
        finishes.append([row.finish_ns for row in kept.rows()])
    assert finishes[0] == finishes[1] != finishes[2]
    assert finishes[0][0] == result.makespan_ns


def test_a_sweep_that_was_stopped_continues(opened, monkeypatch):
    # Processes of its own would take longer to start than all of this.
    monkeypatch.setattr("studio.sweep.sweep._FEW", 1_000)
    job, tasks, session = opened
    kept = start_sweep(tasks, session, Asked(job, ("bandwidth[0]=1..500", *MEMORY), "hgx-h100"))
    wait_until(lambda: len(kept.rows()) > 3)
    cancel(tasks, find_task(tasks, kept).id)
    done = {row.index: row for row in kept.rows()}
    assert not kept.is_whole
    assert not is_under_way(tasks, kept)
    # What a stop leaves can be asked for in full: here the rest is a point.
    continue_sweep(tasks, session, kept)
    wait_until(lambda: len(kept.rows()) > len(done) + 3)
    assert {row.index: row for row in kept.rows()}.items() >= done.items()
    cancel(tasks, find_task(tasks, kept).id)


def test_what_cannot_be_asked_for_is_said_before_anything_starts(opened):
    job, tasks, session = opened
    for varied, told in (
        ((), "no setting is varied"),
        (("bandwith=1",), "no such key"),
        # Eight ranks are one node of this system, so there is nothing between nodes.
        (("bandwidth[1]=25,50",), r"bandwidth\[1\]: the system has one dimension; allowed: bandwidth\[0\]"),
    ):
        with pytest.raises(ConfigError, match=told):
            start_sweep(tasks, session, Asked(job, varied, "hgx-h100"))
    assert list_sweeps(session, job) == []
    with pytest.raises(ConfigError, match="'latency' is not varied"):
        start_sweep(
            tasks, session, Asked(job, ("bandwidth[0]=1,2",), "hgx-h100", bisect="latency", under_ns=5)
        )


def test_a_point_at_other_replicas_becomes_a_run_of_the_scaled_job_which_is_made_once(opened):
    job, tasks, session = opened
    kept = start_sweep(tasks, session, Asked(job, ("dp=4", "bandwidth[0]=100,200", *MEMORY), "hgx-h100"))
    wait_until(lambda: not is_under_way(tasks, kept))
    rows, simulations = kept.rows(), Simulations(tasks, simulate_jobs(session))
    ids = []
    for index in (0, 1):
        task = start_point(simulations, session, kept, index)
        wait_until(lambda one=task.id: get_task(tasks, one).status == "done")
        ids.append(get_task(tasks, task.id).result)
    assert ids[0] == ids[1] != job
    wait_until(lambda: len(session.workspace.runs(ids[0])) == 2)
    finishes = {info.makespan_ns for info in session.workspace.runs(ids[0])}
    assert finishes == {row.finish_ns for row in rows}
    assert session.workspace.info(ids[0]).summary.ranks == rows[0].ranks == 16


def test_a_sweep_looks_for_the_cheapest_point_in_time(opened):
    job, tasks, session = opened
    varied = ("bandwidth[0]=50..800:50", *MEMORY)
    every = start_sweep(tasks, session, Asked(job, varied, "hgx-h100"))
    wait_until(lambda: not is_under_way(tasks, every))
    finishes = [row.finish_ns for row in every.rows()]
    under = finishes[9]
    kept = start_sweep(tasks, session, Asked(job, varied, "hgx-h100", bisect="bandwidth[0]", under_ns=under))
    wait_until(lambda: not is_under_way(tasks, kept))
    rows = kept.rows()
    assert len(rows) <= 6
    found = choose_cheapest(rows, index_values(kept.space, "bandwidth[0]", rows), kept.target)
    assert found.index == min(index for index, finish in enumerate(finishes) if finish <= under)
