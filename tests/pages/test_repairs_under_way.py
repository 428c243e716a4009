"""What Findings says of repairs that take longer than it waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dash.development.base_component import Component

from studio.jobs.repairing import repair_job
from studio.pages.findings.under_way import show_repairs
from studio.session import Session
from studio.store.tasks import Report, Task, close_tasks, open_tasks, submit, wait
from studio.store.workspace import Workspace
from tests.doctor.broken_jobs import BROKEN

TASK = Task("a1", "repair", "job", "llama", 100.0, "running", phase="Open the cycles", started=101.0)


def words(part: Any) -> str:
    """All texts of a component, one after another."""
    if isinstance(part, (list, tuple)):
        return "".join(map(words, part))
    return words(part.children) if isinstance(part, Component) else str(part or "")


def parts(shown: Any, name: str) -> list[Component]:
    return [part for part in shown._traverse() if type(part).__name__ == name]


def test_a_repair_says_what_it_is_at_and_can_be_cancelled() -> None:
    """One repair has no share of itself to tell, several have."""
    [one] = show_repairs([TASK], {}, 110.0, {"a1"})
    assert words(one) == "Repair · Open the cyclesCancel"
    assert not hasattr(parts(one, "Progress")[0], "value")
    [several] = show_repairs([replace(TASK, done=1, total=4, unit="repairs")], {}, 110.0, {"a1"})
    assert words(several) == "Repair · Open the cycles 25 %, 1 of 4 repairsCancel"
    assert (parts(several, "Progress")[0].value, parts(several, "Progress")[0].max) == ("1", "4")
    [others] = show_repairs([TASK], {}, 110.0, set())
    assert not parts(others, "Button")


def test_what_the_newest_repair_made_is_one_click_away_while_it_is_there() -> None:
    done = replace(TASK, status="done", result="new")
    older = replace(TASK, id="a0", status="done", result="old")
    [line] = show_repairs([done, older], {"new": "llama (repaired)", "old": "x"}, 110.0, set())
    [there] = parts(line, "Link")
    assert (words(line), there.href) == ("This job has been repaired: llama (repaired)", "/findings?job=new")
    assert show_repairs([done], {}, 110.0, set()) == []
    assert show_repairs([replace(TASK, status="cancelled")], {"new": "x"}, 110.0, set()) == []


def test_a_repair_names_its_steps_as_it_makes_them(tmp_path) -> None:
    workspace = Workspace(tmp_path)
    job, tasks, seen = workspace.save(BROKEN["cycle"](), "llama"), open_tasks(tmp_path), []

    class Heard(Report):
        def running(self, done: int, total: int, *, phase: str = "", unit: str = "") -> None:
            seen.append((done, total, phase, unit))
            super().running(done, total, phase=phase, unit=unit)

    def work(report: Report) -> str:
        return repair_job(
            Session(workspace), job, ["self-loop", "cycle"], Heard(tasks, report.id, report.kind, report.stop)
        )

    try:
        assert wait(tasks, submit(tasks, "repair", "llama", work, job=job).id, 60).status == "done"
    finally:
        close_tasks(tasks)
    assert list(dict.fromkeys(seen))[:2] == [
        (0, 2, "Remove dependencies of nodes on themselves", "repairs"),
        (1, 2, "Open the cycles", "repairs"),
    ]
    assert seen[-1][2:] == ("storing", "graphs")
