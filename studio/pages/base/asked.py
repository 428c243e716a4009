"""Queue clicks on buttons that callbacks re-render; Dash would drop them.

Dash calls a callback whenever a button it listens to appears, and drops the answer to the previous call: a click whose
answer is under way while its surroundings are drawn would be carried out and never shown. So these buttons have no
callback of their own. `assets/base/asked.mjs` puts the request of a click into one store, and the next request when
the answer has come.
"""

from __future__ import annotations

from typing import Any, TypedDict

from dash import ClientsideFunction, Input, Output, clientside_callback, dcc, html

ACTIVITY = "activity-asked"
"""Cancel or dismiss background tasks."""
ADVICE = "advice-asked"
"""Look for advice; keep and open the run of a change."""
HOME = "home-asked"
"""Open samples; rename, delete and restore jobs."""
FINDINGS = "findings-asked"
"""Repair a job, or undo that."""
RANKS = "ranks-asked"
"""Complete or scale a job, choose one of several layouts."""
EDIT = "sim-edit"
"""Edit the system in the form."""
ORDER = "sim-order"
"""Start, cancel and repeat simulations."""
RUNS = "sim-runs-change"
"""Rename, delete and restore runs."""
SWEEP = "sweep-asked"
"""Start, continue and delete sweeps, and make their points runs."""
WORKLOADS = "workloads-asked"
"""Make, simulate and compare a generated job; take over what is proposed."""


class Asked(TypedDict):
    """The request of a click.

    Attributes:
        number: Tells the requests of one tab apart.
        verb: What to do.
        of: With what, such as the id of a run; "" where the verb says it all.
        text: What stands in the field beside the button; "" where there is none.
    """

    number: int
    verb: str
    of: str
    text: str


def build_stores(name: str) -> Any:
    """Return the stores of one queue of requests; callbacks of the page listen to `Input(name, "data")`."""
    return html.Div(
        [dcc.Store(id=name), dcc.Store(id=f"{name}-answered"), html.Div(id=f"{name}-heard")], hidden=True
    )


def build_answer_output(name: str) -> Output:
    """Return the output into which a callback writes what `acknowledge_request` returns."""
    return Output(f"{name}-answered", "data")


def acknowledge_request(name: str, asked: Asked, go: str | None = None) -> dict[str, Any]:
    """Acknowledge a request, so that the next one is sent; `go` is the page to open then."""
    return {"store": name, "number": asked["number"], "go": go}


def build_click_request(name: str, verb: str, of: str | int = "") -> dict[str, Any]:
    """Return the attributes of a button whose clicks are queued.

    Example:
        >>> build_click_request("sim-edit", "remove", 2)
        {'data-ask': 'sim-edit', 'data-verb': 'remove', 'data-of': '2'}
    """
    return {"data-ask": name, "data-verb": verb, "data-of": str(of)}


for _name in (ACTIVITY, ADVICE, HOME, FINDINGS, RANKS, EDIT, ORDER, RUNS, SWEEP, WORKLOADS):
    clientside_callback(
        ClientsideFunction("studio_asked", "answered"),
        Output(f"{_name}-heard", "title"),
        Input(f"{_name}-answered", "data"),
        prevent_initial_call=True,
    )
