"""The badge of findings in the navigation."""

from __future__ import annotations

from pathlib import Path

import pytest

from studio.pages.frame import activity
from studio.session import Session
from studio.store.tasks import close_tasks, open_tasks
from studio.store.workspace import Workspace
from tests.doctor.broken_jobs import BROKEN


def test_a_job_that_is_not_there_has_no_badge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was said to be checked, for as long as the page was open."""
    workspace = Workspace(tmp_path)
    session, tasks = Session(workspace), open_tasks(workspace.root)
    monkeypatch.setattr(activity, "get_session", lambda: session)
    monkeypatch.setattr(activity, "get_tasks", lambda: tasks)
    monkeypatch.setattr(activity, "start_check", lambda *_args: False)
    monkeypatch.setattr(activity, "list_tasks_again", lambda *, began: None)
    job = workspace.save(BROKEN["deadlock"](), "job")
    session.examination(job)
    assert activity.build_badge("gone-123456") is None
    assert "error" in activity.build_badge(job).title
    close_tasks(tasks)
