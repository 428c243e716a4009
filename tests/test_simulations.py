"""Simulations in the background: their states, cancelling, turns, and what a restart makes of them."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest

from studio.errors import TraceError
from studio.jobs.simulations import (
    Simulations,
    cancel,
    dismiss,
    dismiss_ended,
    get,
    list_simulations,
    simulate_jobs,
    start,
)
from studio.session import Session
from studio.sim.presets import preset
from studio.store.tasks import TaskCancelled, close_tasks, open_tasks
from studio.store.workspace import Workspace
from tests.handmade import collective, node, trace_of
from tests.waiting import PATIENCE_S, wait_until

PARTS = preset("hgx-h100-8").under("astra-sim")


@contextmanager
def opened(root, work):
    tasks = open_tasks(root)
    try:
        yield Simulations(tasks, work)
    finally:
        close_tasks(tasks)


def settled(simulations, one):
    """The simulation once it has ended."""
    wait_until(lambda: get(simulations, one.id).status not in ("queued", "compiling", "running"))
    return get(simulations, one.id)


def reached(simulations, one, status):
    wait_until(lambda: get(simulations, one.id).status == status)


class Held:
    """Work that goes on until it is let go or told to stop."""

    def __init__(self):
        self.go = threading.Event()
        self.begun = []

    def __call__(self, simulation, told):
        self.begun.append(simulation.id)
        told.running(3, 12)
        while not self.go.wait(0.005):
            told.running(3, 12)
        return f"run-of-{simulation.id}"


def test_a_simulation_becomes_a_run_of_its_job(tmp_path):
    """The whole way: a job of the workspace, simulated, is there as a run with the system it ran on."""
    workspace = Workspace(tmp_path)
    nodes = [node(1, "COMP", micros=20), collective(2, "ALL_REDUCE", 1 << 20, 1)]
    job = workspace.save(trace_of([nodes] * 8), "small")
    parts = replace(PARTS, system={**PARTS.system, "roofline-enabled": 0})
    with opened(tmp_path, simulate_jobs(Session(workspace))) as simulations:
        ended = settled(simulations, start(simulations, job, parts, "a run"))
        assert (ended.status, ended.error, ended.done) == ("done", None, ended.total)
    [info] = workspace.runs(job)
    assert (info.id, info.name) == (ended.run, "a run")
    assert info.makespan_ns > 20_000
    assert list(info.tables.network["npus_count"]) == [8]


def test_a_cancelled_simulation_leaves_no_run_and_stays_cancelled(tmp_path):
    held = Held()
    with opened(tmp_path, held) as simulations:
        one = start(simulations, "job", PARTS, "long")
        reached(simulations, one, "running")
        assert get(simulations, one.id).done == 3
        cancel(simulations, one.id)
        assert get(simulations, one.id).status == "cancelled"
        held.go.set()
        time.sleep(0.05)
        assert (get(simulations, one.id).status, get(simulations, one.id).run) == ("cancelled", None)
        dismiss(simulations, one.id)
        assert list_simulations(simulations) == []


class Stopping(Workspace):
    """A workspace in which the user cancels while a run is being written."""

    simulations = None

    def save_run(self, job_id, run):
        run_id = super().save_run(job_id, run)
        [one] = list_simulations(self.simulations)
        cancel(self.simulations, one.id)
        return run_id


@pytest.mark.parametrize("late", ["before", "while"])
def test_a_simulation_cancelled_at_the_very_end_is_not_kept(tmp_path, monkeypatch, late):
    """Between the last node and the run in the list lies the writing: a wish that comes then counts as well."""
    workspace = (Stopping if late == "while" else Workspace)(tmp_path)
    job = workspace.save(trace_of([[node(1, "COMP", micros=20)]] * 8), "small")
    parts = replace(PARTS, system={**PARTS.system, "roofline-enabled": 0})
    work = simulate_jobs(Session(workspace))
    over = threading.Event()
    asked = []

    def watched(simulation, told):
        try:
            return work(simulation, told)
        finally:
            over.set()

    with opened(tmp_path, watched) as simulations:
        if late == "before":
            from studio import sim

            whole = sim.simulate

            def cancelled_after(*args, **keys):
                found = whole(*args, **keys)
                asked.append(found.makespan_ns)
                cancel(simulations, list_simulations(simulations)[0].id)
                return found

            monkeypatch.setattr(sim, "simulate", cancelled_after)
        else:
            Stopping.simulations = simulations
        one = start(simulations, job, parts, "late")
        assert over.wait(60)
        assert (get(simulations, one.id).status, get(simulations, one.id).run) == ("cancelled", None)
    assert workspace.runs(job) == []
    assert bool(asked) == (late == "before")


def test_one_dismissed_before_its_turn_ends_no_worker(tmp_path):
    held = Held()
    with opened(tmp_path, held) as simulations:
        both = [start(simulations, "job", PARTS, "busy") for _ in range(2)]
        for one in both:
            reached(simulations, one, "running")
        gone = [start(simulations, "job", PARTS, "gone") for _ in range(2)]
        for one in gone:
            cancel(simulations, one.id)
            dismiss(simulations, one.id)
        last = start(simulations, "job", PARTS, "last")
        held.go.set()
        assert settled(simulations, last).status == "done"


def test_two_run_at_a_time_and_the_others_wait_for_their_turn(tmp_path):
    held = Held()
    with opened(tmp_path, held) as simulations:
        first, second, third, fourth = [start(simulations, "job", PARTS, str(n)) for n in range(4)]
        reached(simulations, first, "running")
        reached(simulations, second, "running")
        assert get(simulations, third.id).status == "queued"
        cancel(simulations, third.id)
        held.go.set()
        assert settled(simulations, fourth).run == f"run-of-{fourth.id}"
        assert set(held.begun) == {first.id, second.id, fourth.id}


def test_what_the_simulator_refuses_is_told_and_a_mistake_of_ours_ends_nothing_else(tmp_path):
    def work(simulation, _told):
        if simulation.name == "wrong":
            raise TraceError("rank 3 waits for ever", hint="Look at node 7.")
        if simulation.name == "bug":
            raise ZeroDivisionError
        return "run"

    with opened(tmp_path, work) as simulations:
        wrong = settled(simulations, start(simulations, "job", PARTS, "wrong"))
        assert (wrong.status, wrong.error.message, wrong.error.hint) == (
            "failed",
            "rank 3 waits for ever",
            "Look at node 7.",
        )
        bug = settled(simulations, start(simulations, "job", PARTS, "bug"))
        assert "ZeroDivisionError" in bug.error.message
        assert settled(simulations, start(simulations, "job", PARTS, "good")).status == "done"


def test_a_deadlock_is_kept_rank_by_rank(tmp_path):
    workspace = Workspace(tmp_path)
    both = [collective(1, "ALL_REDUCE", 1 << 20), collective(2, "ALL_REDUCE", 1 << 20, 1)]
    job = workspace.save(trace_of([both, both[:1]]), "stuck")
    parts = replace(PARTS, network={**PARTS.network, "npus_count": [2]})
    with opened(tmp_path, simulate_jobs(Session(workspace))) as simulations:
        ended = settled(simulations, start(simulations, job, parts, "stuck"))
    assert ended.status == "failed"
    assert [(one.rank, one.nodes) for one in ended.stuck] == [(0, (2,))]
    assert workspace.runs(job) == []


def test_what_a_closed_studio_left_behind_is_interrupted_for_the_next_one(tmp_path):
    held = Held()
    with opened(tmp_path, held) as simulations:
        one = start(simulations, "job", PARTS, "long")
        reached(simulations, one, "running")
    with opened(tmp_path, held) as simulations:
        [found] = list_simulations(simulations, "job")
        assert (found.id, found.status) == (one.id, "interrupted")
        assert found.tables.network["bandwidth"] == [400]
        assert list_simulations(simulations, "another job") == []


def test_another_studio_of_the_workspace_sees_what_runs_and_does_not_claim_it(tmp_path):
    held = Held()
    with opened(tmp_path, held) as simulations:
        one = start(simulations, "job", PARTS, "long")
        reached(simulations, one, "running")
        with opened(tmp_path, held) as others:
            assert get(others, one.id).status == "running"


def test_an_id_that_is_none_finds_nothing(tmp_path):
    with opened(tmp_path, Held()) as simulations:
        assert get(simulations, "../../jobs/x/job") is None
        assert get(simulations, "0" * 16) is None


def test_cancelling_is_seen_by_work_that_reports(tmp_path):
    """Work that tells its progress is stopped by that; it need not ask."""
    seen = threading.Event()

    def work(_simulation, told):
        try:
            while True:
                told.running(1, 2)
                time.sleep(0.005)
        except TaskCancelled:
            seen.set()
            raise

    with opened(tmp_path, work) as simulations:
        one = start(simulations, "job", PARTS, "long")
        reached(simulations, one, "running")
        cancel(simulations, one.id)
        assert seen.wait(PATIENCE_S)


def test_algorithms_given_as_traces_are_refused(tmp_path):
    system = {**PARTS.system, "all-reduce-implementation-custom": "mine"}
    with opened(tmp_path, Held()) as simulations, pytest.raises(Exception, match="command line only"):
        start(simulations, "job", replace(PARTS, system=system), "x")


def test_a_new_simulation_takes_the_lines_of_those_that_failed_with_it(tmp_path):
    def work(simulation, _told):
        if simulation.name == "bad":
            raise TraceError("It does not fit.")
        return "run-1"

    with opened(tmp_path, work) as simulations:
        for job, name in (("a", "bad"), ("a", "good"), ("b", "bad")):
            settled(simulations, start(simulations, job, PARTS, name))
        last = settled(simulations, start(simulations, "a", PARTS, "bad"))
        dismiss_ended(simulations, "a", but=last.id)
        left = {(one.job, one.name, one.status) for one in list_simulations(simulations)}
        assert left == {("a", "bad", "failed"), ("a", "good", "done"), ("b", "bad", "failed")}
        assert [one.id for one in list_simulations(simulations, "a") if one.name == "bad"] == [last.id]
