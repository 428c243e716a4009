"""How pages follow the background tasks that the bar above them lists.

The bar asks the server and knows when the list changes. A page whose callbacks listened to the bar's own stores beside
stores of its own would break where it is left at that moment: Dash then finds the one and not the other. So
`assets/frame/frame.mjs` hands what the bar heard on to two stores that the shown page brings, under names of its own, and
that go with it.
"""

from __future__ import annotations

import time
from typing import Any

import dash
from dash import ClientsideFunction, Input, Output, clientside_callback, dcc, html

_CHANGED, _TICKED, _LOOK = "-tasks-changed", "-tasks-ticked", "-look-again"
_LOOK_MS = 10_000


def build_tasks_input(page: str) -> Input:
    """Return the mark of the list of tasks, which changes when a task begins or ends or a job was examined.

    Args:
        page: The page's path without its slash; "home" for Home.
    """
    return Input(page + _CHANGED, "data")


def build_ticks_input(page: str) -> Input:
    """Return what changes every two seconds while a task is under way; `page` as in `build_tasks_input`."""
    return Input(page + _TICKED, "data")


def follow_tasks(page: str) -> Any:
    """Return what a page brings whose callbacks listen to tasks, beside the other stores that they listen to."""
    return html.Div([dcc.Store(id=page + _CHANGED), dcc.Store(id=page + _TICKED)], hidden=True)


def follow_workspace(page: str) -> Any:
    """Return what a page brings that lists jobs: jobs that another process imports come with its `build_tasks_input` soon."""
    return dcc.Interval(id=page + _LOOK, interval=_LOOK_MS)


def look_again(page: str) -> None:
    """Have the bar ask for the list of tasks, and whether there are other jobs, every few seconds while a page is shown."""
    clientside_callback(
        ClientsideFunction("studio_frame", "lookAgain"),
        Output("activity-poke", "data", allow_duplicate=True),
        Input(page + _LOOK, "n_intervals"),
        prevent_initial_call=True,
    )


def is_called_by_tasks() -> bool:
    """Return whether the callback that runs was called for no other reason than a change of the list of tasks.

    Dash makes one call of several reasons that come at once, and names only the first of them as the trigger.
    """
    reasons = [trigger["prop_id"].rpartition(".")[0] for trigger in dash.ctx.triggered]
    return bool(reasons) and all(
        reason == "activity-known" or reason.endswith(_CHANGED) for reason in reasons
    )


def list_tasks_again(*, began: bool = True) -> None:
    """Have the bar list the tasks now, and follow them while any runs.

    Args:
        began: Whether the callback began a task. One that it found under way may be another window's, which this page
            has not heard of; but not if the change of the list is why the callback was called.
    """
    if began or not is_called_by_tasks():
        dash.set_props("activity-poke", {"data": time.time()})
