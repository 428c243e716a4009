"""What Findings notes as shown while the check of a job goes on beside it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import ROOT

PROGRAM = """
import json
import tempfile
from studio.commands.serve import load_components
load_components()
from studio.app import create_app
from studio.jobs.importing import upload_reader
from studio.jobs.simulations import Simulations, simulate_jobs
from studio.session import Session
from studio.store.imports import open_registry
from studio.store.tasks import close_tasks, open_tasks
from studio.store.workspace import Workspace
from tests.doctor.broken_jobs import BROKEN

with tempfile.TemporaryDirectory() as folder:
    workspace = Workspace(folder)
    job = workspace.save(BROKEN["deadlock"](), "job")
    tasks, session = open_tasks(workspace.root), Session(workspace)
    app = create_app(session, open_registry(tasks, upload_reader(workspace)), Simulations(tasks, simulate_jobs(session)))
    client = app.server.test_client()
    client.get("/findings")
    from studio.pages.findings import page

    def check_at_once(_tasks, session, job):
        session.examination(job)
        return True

    page.start_check = check_at_once
    view = {"id": "view", "property": "data", "value": {"job": job}}
    change = {"id": "findings-tasks-changed", "property": "data", "value": "ended"}

    def show(cause, shown):
        asked = {
            "output": "..findings-body.children...findings-checked.data..",
            "outputs": [{"id": "findings-body", "property": "children"}, {"id": "findings-checked", "property": "data"}],
            "inputs": [view, change],
            "state": [{"id": "findings-checked", "property": "data", "value": shown}],
            "changedPropIds": [cause],
        }
        answer = client.post("/_dash-update-component", json=asked)
        return answer.json["response"] if answer.status_code == 200 else {}

    first = show("view.data", None)
    assert "Checking the job" in json.dumps(first["findings-body"])
    shown = first["findings-checked"]["data"]
    second = show("findings-tasks-changed.data", shown)
    assert "Deadlock" in json.dumps(second) or "deadlock" in json.dumps(second), second
    third = show("findings-tasks-changed.data", second["findings-checked"]["data"])
    assert not third, third
    close_tasks(tasks)
"""


@pytest.mark.integration
def test_a_check_that_ends_while_the_page_is_made_is_shown_with_the_next_change_of_tasks() -> None:
    """The page says that the job is being checked; it must not be noted as one that shows what was found."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
