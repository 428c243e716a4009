"""What Trends shows of no job, of one, and of many; jobs that were never measured are measured in the background."""

from __future__ import annotations

import json

import pytest

from studio.jobs.measuring import is_measuring, start_measuring
from studio.session import Session
from studio.store.tasks import close_tasks, open_tasks
from studio.store.workspace import Workspace
from studio.views.trends import group_by_series, list_points, list_previous_points
from tests.fleet_jobs import recorded
from tests.small_jobs import some
from tests.waiting import wait_until


@pytest.fixture
def store(tmp_path):
    """Three nights of a job, the last slower, and a job without times."""
    workspace = Workspace(tmp_path)
    for night, late in ((18, 0), (19, 0), (20, 30)):
        workspace.save(recorded(late), f"gpt-2026-11-{night}", recorded=1.79e9 + night)
    workspace.save(some(), "plan", recorded=1.79e9)
    return workspace


def test_jobs_are_measured_once_in_the_background(store, monkeypatch):
    session, tasks = Session(store), open_tasks(store.root)
    try:
        missing = [(point.job, point.run) for point in list_points(session) if point.is_missing]
        assert len(missing) == 4
        assert start_measuring(tasks, session, missing)
        wait_until(lambda: not is_measuring(tasks))
        grouped = group_by_series(list_points(session))
        assert {name: len(of) for name, of in grouped.items()} == {"gpt": 3, "plan": 1}
        assert [point.measures.step_ns for point in grouped["gpt"]] == [110_000, 110_000, 140_000]
        assert list_previous_points(grouped["gpt"]) == [None, *grouped["gpt"][:2]]
        assert grouped["plan"][0].run is None
        assert all(point.levels is not None for point in list_points(session))

        def broken(*_args):
            raise RuntimeError("odd")

        # One that cannot be measured is said, and does not come again by itself.
        monkeypatch.setattr(Session, "measures", broken)
        assert start_measuring(tasks, session, missing[-1:])
        wait_until(lambda: not is_measuring(tasks))
        assert list(session.unmeasured) == missing[-1:]
        assert not start_measuring(tasks, session, missing[-1:])
    finally:
        close_tasks(tasks)


def test_measures_of_another_edition_and_damaged_ones_are_made_again(store):
    session = Session(store)
    job = next(info.id for info in store.jobs() if info.name == "gpt-2026-11-20")
    made = session.measures(job, "")
    [path] = store.root.glob("jobs/*/measures.json")
    raw = path.read_bytes()
    path.write_bytes(raw[:-9])
    assert session.measures_made(job, "") is None
    assert session.measures(job, "") == made
    assert path.read_bytes() == raw
    store.save_measures(job, "", {**json.loads(raw), "edition": 0})
    assert session.measures_made(job, "") is None
