"""A job that is made in the background, as the pages that make jobs follow it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dash import html

from studio.errors import StudioError
from studio.pages.base.asked import build_click_request
from studio.pages.base.state import get_tasks
from studio.store.tasks import ACTIVE, Task, dismiss


def find_made_job(task: Task | None, words: Callable[[str], str] = str) -> str | None:
    """Return the job that a task has made, None while it goes on.

    Args:
        task: The task; None where it is gone.
        words: Says an error in the words of the page.

    Raises:
        StudioError: It failed or was cancelled.
    """
    if task is None or task.status in ("cancelled", "interrupted"):
        raise StudioError("Making the job was cancelled.", hint="Start it again if the job is still needed.")
    if task.status in ACTIVE:
        return None
    dismiss(get_tasks(), task.id)
    if task.error:
        raise StudioError(words(task.error.message), hint=words(task.error.hint))
    return task.result


def build_progress_line(store: str, task: str, phase: str) -> Any:
    """Say how far a job is, with a button that stops it: the verb `stop` of a page's store."""
    stop = html.Button("Cancel", className="cs-button-quiet", **build_click_request(store, "stop", task))
    return html.P([f"Making the job: {phase or 'waiting'}… ", stop])
