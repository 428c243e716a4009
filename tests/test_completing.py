"""Completed and scaled jobs in the workspace: jobs of their own, made in the background, that say what they assume."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

import studio
from studio.analysis.job.completeness import describe_assumed
from studio.comparing import build_simulated_side
from studio.completion import Spread
from studio.errors import TraceError
from studio.jobs.completing import (
    Completing,
    Scaling,
    Source,
    collect_layout_facts,
    complete_trace,
    parse_source,
    start_completing,
    start_scaling,
)
from studio.reporting import build_report
from studio.session import Session
from studio.sim import simulate
from studio.sim.parts import Parts, interpret
from studio.store.runs import Run
from studio.store.tasks import Report, Task, Tasks, cancel, close_tasks, open_tasks, wait
from studio.store.workspace import Workspace
from studio.trace import Finding, Trace, get_assumed_source
from tests.handmade import collective, node, trace_of

PARTS = Parts(
    {"topology": ["Switch"], "npus_count": [8], "bandwidth": [50], "latency": [500]},
    {"scheduling-policy": "LIFO", "collective-optimization": "baseline", "preferred-dataset-splits": 1},
)
for _kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all"):
    PARTS.system[f"{_kind}-implementation"] = ["ring"]


@pytest.fixture
def session(tmp_path) -> Session:
    return Session(Workspace(tmp_path))


@pytest.fixture
def tasks(tmp_path) -> Iterator[Tasks]:
    opened = open_tasks(tmp_path)
    yield opened
    close_tasks(opened)


def one_of_four() -> Trace:
    return trace_of(
        [[node(1, "COMP", micros=7), collective(2, "ALL_REDUCE", 64, 1, group="7")]],
        groups={"7": [0, 1, 2, 3]},
    )


def ended(tasks: Tasks, task: Task) -> Task:
    done = wait(tasks, task.id, 60)
    assert done is not None
    return done


def test_a_job_is_completed_and_scaled_in_the_background_and_says_what_it_assumes(session, tasks):
    workspace = session.workspace
    job = workspace.save(one_of_four(), "llama")
    done = ended(tasks, start_completing(tasks, session, job, Completing("dp=4")))
    assert (done.status, done.kind, done.job, done.title) == ("done", "complete", job, "llama")
    whole = workspace.info(done.result)
    assert (whole.name, whole.source, parse_source(whole)) == (
        "llama (completed)",
        "llama, completed",
        Source(job, "complete"),
    )
    assert describe_assumed(workspace.load(whole.id)) == "3 of 4 ranks assumed equal to rank 0"
    assert workspace.load(job) == one_of_four()
    assert parse_source(workspace.info(job)) is None

    # The same again is the same job; with another spread it is another.
    again = ended(tasks, start_completing(tasks, session, job, Completing("dp=4")))
    other = ended(tasks, start_completing(tasks, session, job, Completing("dp=4", Spread(imbalance=0.1))))
    assert again.result == whole.id != other.result

    larger = ended(tasks, start_scaling(tasks, session, whole.id, Scaling("dp=4", 8)))
    info = workspace.info(larger.result)
    assert (info.name, parse_source(info)) == ("llama (completed, scaled ×2)", Source(whole.id, "scale"))
    trace = workspace.load(info.id)
    # All others repeat the only rank that was recorded, those that were assumed before as well.
    assert [get_assumed_source(rank) for rank in trace.ranks] == [None, *[0] * 7]

    result = simulate(trace, interpret(PARTS).config)
    run_id = workspace.save_run(info.id, Run("on a ring", result, PARTS))
    kept = workspace.run_info(info.id, run_id)
    assert kept.assumed == "7 of 8 ranks assumed equal to rank 0"
    side = build_simulated_side(workspace.load_run(info.id, run_id), kept)
    assert side.settings["ranks assumed"].value == kept.assumed
    assert kept.assumed in build_report([side])


def test_what_does_not_fit_is_the_error_of_the_task(session, tasks):
    job = session.workspace.save(one_of_four(), "llama")
    failed = ended(tasks, start_completing(tasks, session, job, Completing("dp=8")))
    assert failed.error.message == "layout dp=8 has 8 ranks; the job has 4"
    failed = ended(tasks, start_scaling(tasks, session, job, Scaling("dp=4", 8)))
    assert "1 of 4 ranks are known" in failed.error.message
    assert len(session.workspace.jobs()) == 1


def test_ranks_that_could_not_be_read_are_copied_only_if_that_is_asked_for():
    lost = replace(one_of_four(), findings=(Finding("error", "cut", "Rank 0 is cut."),))
    with pytest.raises(TraceError, match="Copies would repeat what could not be read: Rank 0 is cut"):
        complete_trace(lost, Completing("dp=4"))
    assert len(complete_trace(lost, Completing("dp=4", damaged=True)).ranks) == 4


@pytest.mark.parametrize("moment", ["copying ranks", "storing", "stored"])
def test_a_job_whose_making_is_cancelled_is_not_there(session, tasks, monkeypatch, moment: str):
    job = session.workspace.save(one_of_four(), "llama")
    running, finish, over = Report.running, Report.finish, threading.Event()

    def cancelled_in(report, done, total, *, phase="", unit=""):
        if phase == moment:
            cancel(tasks, report.id)
        running(report, done, total, phase=phase, unit=unit)

    def cancelled_before(report, result):
        if moment == "stored":
            cancel(tasks, report.id)
        taken = finish(report, result)
        over.set()
        return taken

    monkeypatch.setattr(Report, "running", cancelled_in)
    monkeypatch.setattr(Report, "finish", cancelled_before)
    task = ended(tasks, start_completing(tasks, session, job, Completing("dp=4")))
    assert task.status == "cancelled"
    assert moment != "stored" or over.wait(60)
    close_tasks(tasks)
    assert [one.id for one in session.workspace.jobs()] == [job]
    tasks.alive.acquire()


def test_of_many_ranks_those_that_stand_for_the_others_tell_the_mesh():
    whole = studio.read(studio.sample_path("transformer_8r"))
    larger = studio.completion.scale.scale(whole, ranks=256)
    assert len(collect_layout_facts(whole).trace.ranks) == 8
    assert len(collect_layout_facts(larger).trace.ranks) == len(larger.graphs) < 10
