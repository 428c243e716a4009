"""The bar above every page: background tasks, and the choice of the run that is shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dash import dcc, html, no_update

from studio.errors import StudioError
from studio.jobs.checking import list_checked_jobs, start_check
from studio.pages.base.asked import ACTIVITY, Asked, build_click_request
from studio.pages.base.followed import list_tasks_again
from studio.pages.base.state import RECORDED, get_session, get_tasks, get_workspace
from studio.pages.base.task_words import describe_progress
from studio.pages.base.widgets import build_address, build_aria_label, build_findings_badge
from studio.store.tasks import ACTIVE, KindName, Task, cancel, dismiss, list_tasks
from studio.views.address import list_run_options

_PAGES: Mapping[KindName, str] = {
    "import": "/",
    "check": "/findings",
    "measure": "/trends",
    "summary": "/",
    "repair": "/findings",
    "complete": "/ranks",
    "scale": "/ranks",
    "generate": "/workloads",
    "plan": "/workloads",
    "simulation": "/simulate",
    "advice": "/overview",
    "sweep": "/sweep",
}
"""The page that starts tasks of each kind."""


def show_activity(known: str | None) -> tuple[Any, Any, Any, Any, bool]:
    """List the background tasks, for the bar above every page.

    Args:
        known: The mark of the list that the page shows now.

    Returns:
        The count, the list, whether to hide both, a mark that changes when the list does (progress apart), a job was
        examined, or one was imported or deleted, also by another process, and whether polling can stop. What would not change is `no_update`.
    """
    shown = [task for task in list_tasks(get_tasks()) if task.status in ACTIVE or _is_unseen_failure(task)]
    active = sum(task.status in ACTIVE for task in shown)
    mark = repr(
        [
            get_session().examinations_made,
            get_session().answers_made,
            get_session().rounds_ended,
            get_workspace().changed_ns(),
            *((task.id, task.status in ACTIVE) for task in shown),
        ]
    )
    if mark == known and not active:
        return no_update, no_update, no_update, no_update, True
    names = {job.id: job.name for job in get_workspace().jobs()}
    items = [_show_task(task, names) for task in shown]
    failed = len(shown) - active
    count = f"{active} running" + (f" · {failed} failed" if failed else "")
    return count, items, not items, no_update if mark == known else mark, not active


def _is_unseen_failure(task: Task) -> bool:
    """Return whether a task failed and no page shows it."""
    return task.kind in ("repair", "complete", "scale", "generate") and task.status in (
        "failed",
        "interrupted",
    )


def _show_task(task: Task, names: Mapping[str, str]) -> Any:
    page, name = _PAGES[task.kind], names.get(task.job)
    about = [
        task.kind,
        *([name] if name and name != task.title else []),
        describe_progress(task, get_tasks().now()),
    ]
    active = task.status in ACTIVE
    verb, label = ("cancel", "Cancel") if active else ("dismiss", "Dismiss")
    button = html.Button(
        label,
        className="cs-button-quiet",
        **build_click_request(ACTIVITY, verb, task.id),
        **build_aria_label(f"{task.kind} {task.title}: {verb}"),
    )
    # Tasks of another studio are that studio's to end.
    own = task.id in get_tasks().live or not active
    return html.Li(
        [
            dcc.Link(task.title, href=build_address(page, {"job": task.job} if task.job else {})),
            html.Span(f" · {' · '.join(about)} ", className="cs-dim"),
            button if own else None,
        ]
    )


def change_activity(asked: Asked) -> None:
    """Cancel a running task, or dismiss a failed one."""
    (cancel if asked["verb"] == "cancel" else dismiss)(get_tasks(), asked["of"])


def build_badge(job: str) -> Any:
    """Return the badge of a job's findings; a job that was not checked is checked now, in the background."""
    session = get_session()
    if (levels := session.levels_found(job)) is not None:
        return build_findings_badge(levels)
    list_tasks_again(began=start_check(get_tasks(), session, job))
    if job in session.unexamined:
        return html.Span("?", className="cs-badge", title=session.unexamined[job].message)
    if job in list_checked_jobs(get_tasks()):
        return build_findings_badge(None)
    # The check has just ended, or there is no such job, which the page says.
    return build_findings_badge(levels) if (levels := session.levels_found(job)) is not None else None


def list_run_choices(
    job: str | None, wanted: str | None
) -> tuple[list[dict[str, str]], str | None, str | None, bool]:
    """Return the options of the run switch, the run that is shown (twice: once for the script), and whether to hide it.

    Args:
        job: The view's job.
        wanted: The run that the view names.
    """
    if not job:
        return [], None, None, True
    try:
        known = list_run_options(get_session(), job)
    except StudioError:
        # The page says what is wrong with the job.
        return [], None, None, True
    if not known:
        return [], None, None, False
    value = wanted or known[0]["value"]
    if value not in {option["value"] for option in known}:
        gone = "as recorded" if value == RECORDED else f"{value[:40]} (gone)"
        known.append({"value": value, "label": gone})
    return known, value, value, False
