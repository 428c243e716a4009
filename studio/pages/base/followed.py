"""How pages follow the background tasks that the bar above them lists.

The bar asks the server and knows when the list changes. A page whose callbacks listened to the bar's own stores beside
stores of its own would break where it is left at that moment: Dash then finds the one and not the other. So
`assets/frame/frame.mjs` hands what the bar heard on to two stores that the shown page brings, and that go with it.
"""

from __future__ import annotations

import time
from typing import Any

import dash
from dash import Input, dcc, html

_CHANGED, _TICKED = "tasks-changed", "tasks-ticked"
TASKS_CHANGED = Input(_CHANGED, "data")
"""The mark of the list of tasks, which changes when a task begins or ends or a job was examined."""
TASKS_TICKED = Input(_TICKED, "data")
"""Changes every two seconds while a task is under way."""


def follow_tasks() -> Any:
    """Return what a page brings whose callbacks listen to `TASKS_CHANGED` or `TASKS_TICKED`."""
    return html.Div([dcc.Store(id=_CHANGED), dcc.Store(id=_TICKED)], hidden=True)


def changed_by_tasks() -> bool:
    """Return whether the callback that runs was called since the list of tasks has changed."""
    return dash.ctx.triggered_id in (_CHANGED, "activity-known")


def list_tasks_again(*, began: bool = True) -> None:
    """Have the bar list the tasks now, and follow them while any runs.

    Args:
        began: Whether the callback began a task. One that it found under way may be another window's, which this page
            has not heard of; but not if the change of the list is why the callback was called.
    """
    if began or not changed_by_tasks():
        dash.set_props("activity-poke", {"data": time.time()})
