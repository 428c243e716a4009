"""Repaired jobs in the workspace: jobs of their own that know where they come from."""

from __future__ import annotations

import pytest

from studio.doctor import examine
from studio.errors import StudioError, TraceError
from studio.jobs.repairing import Origin, get_origin, parse_origin, repair_job
from studio.session import Session
from studio.store.workspace import Workspace
from tests.doctor.broken_jobs import BROKEN, comp, healthy
from tests.handmade import trace_of


@pytest.fixture
def workspace(tmp_path) -> Workspace:
    return Workspace(tmp_path)


def test_a_repaired_job_is_a_new_one_that_names_its_origin(workspace: Workspace):
    trace = BROKEN["cycle"]()
    job = workspace.save(trace, "llama")
    made = repair_job(Session(workspace), job, ["self-loop", "cycle"])
    info = workspace.info(made)
    assert (info.name, info.source) == ("llama (repaired)", "llama, repaired")
    assert get_origin(info) == Origin(job, ("self-loop", "cycle"))
    assert get_origin(workspace.info(job)) is None
    assert workspace.load(job) == trace
    codes = [one.code for one in examine(workspace.load(made))]
    assert "cycle" not in codes
    assert "repaired-cycle" in codes


def test_the_same_repair_opens_the_job_it_made_before(workspace: Workspace):
    job = workspace.save(BROKEN["cycle"](), "llama")
    assert repair_job(Session(workspace), job, ["cycle"]) == repair_job(Session(workspace), job, ["cycle"])
    assert len(workspace.jobs()) == 2


def test_deleting_a_repaired_job_takes_the_repair_back(workspace: Workspace):
    job = workspace.save(BROKEN["cycle"](), "llama")
    made = repair_job(Session(workspace), job, ["cycle"])
    workspace.delete(made)
    assert [one.id for one in workspace.jobs()] == [job]
    assert repair_job(Session(workspace), job, ["cycle"]) != made


def test_nothing_to_repair_and_no_such_repair_are_said(workspace: Workspace):
    job = workspace.save(healthy(), "llama")
    with pytest.raises(StudioError, match="nothing to repair"):
        repair_job(Session(workspace), job, ["cycle"])
    with pytest.raises(TraceError, match="no repair 'magic'"):
        repair_job(Session(workspace), job, ["magic"])
    assert len(workspace.jobs()) == 1


def test_other_fingerprints_tell_of_no_repair():
    assert parse_origin("files:1234") is None
    assert parse_origin("") is None


def test_a_repaired_job_is_repaired_again(workspace: Workspace):
    """The name does not grow."""
    job = workspace.save(trace_of([[comp(1, 1), comp(2, 99)]]), "llama")
    again = repair_job(Session(workspace), repair_job(Session(workspace), job, ["self-loop"]), ["dangling"])
    assert workspace.info(again).name == "llama (repaired)"
