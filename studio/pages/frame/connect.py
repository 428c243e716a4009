"""The callbacks of the frame around the pages."""

from __future__ import annotations

import time
from typing import Any

import dash
from dash import ClientsideFunction, Dash, Input, Output, State, no_update

from studio.pages.base.asked import ACTIVITY, Asked, acknowledge_request, build_answer_output
from studio.pages.base.missing import list_missing
from studio.pages.base.state import get_workspace
from studio.pages.base.widgets import list_job_options
from studio.pages.frame import inspector
from studio.pages.frame.activity import (
    build_badge,
    change_activity,
    list_run_choices,
    show_activity,
)
from studio.views.address import read_shown_run

_CLIENT = "studio_frame"


def connect_frame(app: Dash) -> None:
    """Connect the frame: address ⇄ view, the choices of job and run, background tasks, tools, inspector."""
    _connect_view(app)
    _connect_choices(app)
    _connect_activity(app)
    _connect_tools(app)
    inspector.connect(app)


def _connect_view(app: Dash) -> None:
    """Follow the address: the view, what it names and is not there, links between pages, the inspector's place."""
    app.clientside_callback(
        ClientsideFunction(_CLIENT, "viewFromAddress"),
        Output("view", "data"),
        Output("job", "data"),
        Output("shown-run", "data"),
        Output("selection", "data"),
        Output("searched", "data"),
        Output("named", "data"),
        # Dash sets it together with the page: no callback of the page that is left hears of a view it will not show.
        Input("_pages_store", "data"),
    )

    # Most addresses name nothing that may be missing: nothing is asked then.
    @app.callback(Output("view-missing", "children"), Input("named", "data"), prevent_initial_call=True)
    def tell_missing(named: str | None) -> list[Any]:
        return list_missing(named)

    app.clientside_callback(
        ClientsideFunction(_CLIENT, "showInspector"),
        Output("shell", "aside"),
        Input("view", "data"),
        State("shell", "aside"),
    )


def _connect_choices(app: Dash) -> None:
    """List jobs and runs and switch between them; count findings of the job."""

    @app.callback(
        Output("job-pick", "data"),
        Output("job-pick", "value"),
        Input("job", "data"),
        Input("imported", "data"),
    )
    def list_jobs(job: str | None, _imported: str | None) -> tuple[list[dict[str, str]], Any]:
        options = list_job_options(get_workspace().jobs())
        if set(dash.ctx.triggered_prop_ids) == {"imported.data"}:
            # The job of the address stays, and what is chosen while an import ends is not taken back.
            return options, no_update
        return options, job

    app.clientside_callback(
        ClientsideFunction(_CLIENT, "switchJob"),
        Output("job-pick", "error"),
        Input("job-pick", "value"),
        State("view", "data"),
        prevent_initial_call=True,
    )

    # One callback for both: what each request costs the browser is more than what either has to do.
    @app.callback(
        Output("run-pick", "data"),
        Output("run-pick", "value"),
        Output("listed-run", "data"),
        Output("run-field", "hidden"),
        Output("findings-badge", "children"),
        Input("shown-run", "data"),
        Input("activity-known", "data"),
    )
    def list_runs_and_findings(shown: str | None, _activity: str | None) -> tuple[Any, ...]:
        job, run = read_shown_run(shown)
        options, value, known, is_hidden = list_run_choices(job, run)
        badge = build_badge(job) if job else None
        if value is not None and run and set(dash.ctx.triggered_prop_ids) == {"activity-known.data"}:
            # The run of the address stays, and what is chosen while tasks end is not taken back.
            return options, no_update, no_update, is_hidden, badge
        return options, value, known, is_hidden, badge

    app.clientside_callback(
        ClientsideFunction(_CLIENT, "switchRun"),
        Output("run-pick", "error"),
        Input("run-pick", "value"),
        State("listed-run", "data"),
        prevent_initial_call=True,
    )


def _connect_activity(app: Dash) -> None:
    """List background tasks, tell pages of their end, and carry out what is asked of them."""

    @app.callback(
        Output("activity-count", "children"),
        Output("activity-list", "children"),
        Output("activity", "hidden"),
        Output("activity-known", "data"),
        Output("activity-poll", "disabled"),
        Input("activity-poke", "data"),
        Input("activity-poll", "n_intervals"),
        Input("job", "data"),
        Input("imported", "data"),
        State("activity-known", "data"),
    )
    def count_activity(_poke: Any, _tick: Any, _job: Any, _imported: Any, known: str | None) -> Any:
        return show_activity(known)

    app.clientside_callback(
        ClientsideFunction(_CLIENT, "tellTasks"),
        Input("activity-known", "data"),
        Input("activity-poll", "n_intervals"),
        prevent_initial_call=True,
    )

    @app.callback(
        Output("activity-poke", "data", allow_duplicate=True),
        build_answer_output(ACTIVITY),
        Input(ACTIVITY, "data"),
        prevent_initial_call=True,
    )
    def end_activity(asked: Asked | None) -> Any:
        if not asked:
            return no_update, no_update
        change_activity(asked)
        return time.time(), acknowledge_request(ACTIVITY, asked)


def _connect_tools(app: Dash) -> None:
    """Connect theme, link, report and unit of times."""
    app.clientside_callback(
        ClientsideFunction(_CLIENT, "toggleTheme"),
        Output("theme", "data"),
        Output("theme-toggle", "children"),
        Output("theme-toggle", "title"),
        Output("theme-toggle", "aria-label"),
        Input("theme-toggle", "n_clicks"),
    )
    app.clientside_callback(
        ClientsideFunction(_CLIENT, "share"),
        Output("share", "disabled"),
        Input("share", "n_clicks"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction(_CLIENT, "report"),
        Output("report", "disabled"),
        Input("report", "n_clicks"),
        Input("listed-run", "data"),
    )
    app.clientside_callback(
        ClientsideFunction(_CLIENT, "switchTime"),
        Output("time-unit", "value"),
        Input("time-unit", "value"),
    )
