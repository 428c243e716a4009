"""Repairs of the shown job that go on in the background, and what the newest has made."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from dash import dcc, html

from studio.pages.base.asked import FINDINGS, build_click_request
from studio.pages.base.task_words import describe_progress
from studio.pages.base.widgets import build_address, build_aria_label
from studio.store.tasks import ACTIVE, Task


def show_repairs(
    repairs: Sequence[Task], names: Mapping[str, str], now: float, own: Container[str]
) -> list[Any]:
    """Say how far each repair is, with a button that cancels it, and lead to the job that the newest has made.

    Args:
        repairs: The repairs of a job, newest first.
        names: Names of the jobs of the workspace by id; what a repair has made may be gone.
        now: The time, seconds since the epoch.
        own: Tasks of this studio; those of another one are that studio's to end.
    """
    active = [task for task in reversed(repairs) if task.status in ACTIVE]
    new_job = next((task.result for task in repairs if task.status == "done" and task.result in names), None)
    shown = [_show_active(task, now, task.id in own) for task in active]
    if new_job is None:
        return shown
    new_link = dcc.Link(names[new_job], href=build_address("/findings", {"job": new_job}))
    return [*shown, html.P(["This job has been repaired: ", new_link], className="fi-under-way")]


def _show_active(task: Task, now: float, is_own: bool) -> Any:
    stop = html.Button(
        "Cancel",
        className="cs-button",
        **build_click_request(FINDINGS, "stop", f"{task.job} {task.id}"),
        **build_aria_label("Cancel the repair"),
    )
    about: dict[str, Any] = build_aria_label("Progress of the repair")
    if task.total:
        about |= {"value": str(task.done), "max": str(task.total)}
    words = html.Span([html.Strong("Repair"), f" · {describe_progress(task, now)}"])
    return html.Div([words, stop if is_own else None, html.Progress(**about)], className="fi-under-way")
