"""Generated jobs in the workspace: made in the background, once, and simulated on the machine of their GPU."""

from __future__ import annotations

import pytest

from studio.errors import ConfigError
from studio.generation.fitting import fit_in
from studio.generation.proposal import propose
from studio.generation.workload import build_workload
from studio.jobs.generating import (
    Generating,
    find_system,
    is_generated,
    keep_system,
    simulate_step,
    start_generating,
    start_simulating,
    uses_system,
)
from studio.jobs.planning import get_plan, start_planning
from studio.jobs.simulations import Simulations, get, simulate_jobs
from studio.pages.workloads.best import build_results
from studio.session import Session
from studio.store.drafts import load_draft
from studio.store.tasks import close_tasks, open_tasks, wait
from studio.store.workspace import Workspace
from tests.pages.test_simulate_runs import find_all, texts

SMALL = Generating(
    "qwen2.5-0.5b", 4, (("compute_efficiency", 1.0), ("gpu", "h100"), ("sequence", 512), ("tp", 2))
)


def test_a_job_is_made_once_simulated_on_its_preset_and_takes_as_long_as_was_said(tmp_path):
    session = Session(Workspace(tmp_path))
    tasks = open_tasks(tmp_path)
    simulations = Simulations(tasks, simulate_jobs(session))
    try:
        done = wait(tasks, start_generating(tasks, session, SMALL).id, 60)
        assert done is not None
        assert (done.status, done.kind, done.title) == (
            "done",
            "generate",
            "qwen2.5-0.5b, 4 ranks, tp=2,dp=2",
        )
        info = session.workspace.info(done.result)
        assert is_generated(info)
        assert info.fingerprint == SMALL.mark
        again = wait(tasks, start_generating(tasks, session, SMALL).id, 60)
        assert again is not None
        assert again.result == done.result
        # At its peak a GPU is the machine's business: the job of another GPU is the same.
        assert (
            Generating("qwen2.5-0.5b", 4, (*SMALL.given[:1], ("gpu", "b200"), *SMALL.given[2:])).mark
            == SMALL.mark
        )

        system = find_system("h100", 4)
        begun = start_simulating(simulations, session, info.id, *system)
        assert not isinstance(begun, str)
        wait(tasks, begun.id, 60)
        ended = get(simulations, begun.id)
        assert ended is not None
        assert ended.run is not None
        run = session.workspace.run_info(info.id, ended.run)
        assert run.makespan_ns == simulate_step(SMALL).ns
        assert uses_system(run, *system, session)
        # What is there already is not simulated again, and Simulate shows the same system as unchanged.
        assert start_simulating(simulations, session, info.id, *system) == run.id
        assert load_draft(tmp_path, keep_system(session, *system)).tables == run.tables
    finally:
        close_tasks(tasks)


def test_a_gpu_that_reaches_less_gives_durations_that_stay():
    slow = Generating("qwen2.5-0.5b", 4, (*SMALL.given[1:], ("compute_efficiency", 0.5)))
    fitted = Generating("qwen2.5-0.5b", 4, SMALL.given[1:])
    assert fitted.job().speed == fitted.workload().speed is not None
    assert simulate_step(fitted).ns > simulate_step(SMALL).ns
    assert slow.mark != SMALL.mark
    assert slow.job().speed is not None
    assert simulate_step(slow).ns > simulate_step(SMALL).ns
    with pytest.raises(ConfigError) as caught:
        simulate_step(Generating("qwen2.5-0.5b", 4))
    assert caught.value.key == "gpu"
    with pytest.raises(ConfigError) as caught:
        find_system("tpu-v5e", 512)
    assert caught.value.key == "ranks"


def test_what_is_proposed_fits_and_is_the_smallest():
    assert propose("llama3-8b", 8, {}, 80e9) == {"tp": 4}
    assert propose("llama3-8b", 8, {}, 200e9) == {}
    assert propose("llama3-8b", 8, {"tp": 1, "pp": 1}, 80e9) == {"zero": 3}
    assert propose("llama3-405b", 8, {}, 80e9) == {}


def test_where_one_change_is_not_enough_two_are_named_and_then_more_ranks():
    changes = []
    for model, ranks in (("llama3-70b", 64), ("llama3-405b", 8)):
        work = build_workload(model, ranks, {})
        found = fit_in(work.model, work.layout, 80e9, most_tp=8).remedies
        assert found
        for remedy in found:
            said = {key: value for key, value in remedy.change.items() if key != "ranks"}
            changed = build_workload(model, remedy.change.get("ranks", ranks), said)
            assert sum(changed.peak_memory.values()) == remedy.held <= 80e9
        changes.append([set(remedy.change) for remedy in found])
    assert all("ranks" not in change for change in changes[0])
    assert {"recompute", "zero"} <= changes[0][0]
    assert "ranks" in changes[1][0]


def test_the_best_layout_is_looked_for_in_the_background_and_kept(tmp_path):
    session = Session(Workspace(tmp_path))
    tasks = open_tasks(tmp_path)
    fixed = {
        "batch": 4,
        "gpu": "h100",
        "micro_batch": 1,
        "pp": 1,
        "recompute": "none",
        "sequence": 256,
        "tp": 1,
    }
    wanted = Generating("gpt3-125m", 2, tuple(fixed.items()))
    try:
        assert get_plan(session, wanted) is None
        done = wait(tasks, start_planning(tasks, session, wanted).id, 60)
        assert done is not None
        assert (done.status, done.title) == ("done", "layouts of gpt3-125m on 2 ranks")
        found = get_plan(session, wanted)
        assert found is not None
        shown = build_results(found, dark=False)
        assert "tp=1,dp=2,pp=1, micro-batch 1" in texts(shown)
        [first, *_] = [one for one in find_all(shown, "Button") if texts(one) == "Use"]
        said = dict(part.split("=") for part in first.to_plotly_json()["props"]["data-of"].split(" "))
        best = found.best.candidate.layout
        assert (said["tp"], said["pp"], said["zero"], said["batch"]) == ("1", "1", str(best.zero), "4")
    finally:
        close_tasks(tasks)
