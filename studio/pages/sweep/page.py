"""The Sweep page: a job on many systems, live, with what each setting does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import dash
import dash_mantine_components as dmc
from dash import (
    ClientsideFunction,
    Input,
    Output,
    State,
    callback,
    clientside_callback,
    ctx,
    dcc,
    html,
    no_update,
)

from studio.errors import StudioError
from studio.figures.sweeps import FRONT_PX, draw_front
from studio.jobs.simulations import ACTIVE as UNDER_WAY
from studio.jobs.simulations import list_simulations
from studio.jobs.sweeps import (
    PREFIX,
    Kept,
    continue_sweep,
    delete_sweep,
    find_task,
    is_under_way,
    list_sweeps,
    price_rows,
    start_point,
    start_sweep,
)
from studio.pages.base.asked import (
    ACTIVITY,
    SWEEP,
    Asked,
    acknowledge_request,
    build_answer_output,
    build_click_request,
    build_stores,
)
from studio.pages.base.export import build_export_buttons
from studio.pages.base.state import get_session, get_simulations, get_tasks
from studio.pages.base.widgets import build_aria_label, build_error_box, build_hint, build_no_job_notice
from studio.pages.sweep.form import (
    Typed,
    build_form,
    choose_first_settings,
    choose_first_system,
    describe_count,
    list_systems,
    parse_form,
    parse_prices,
)
from studio.pages.sweep.results import (
    FRONT,
    build_chosen_point,
    build_impossible_list,
    build_results,
    build_run_list,
    collect_units,
    describe_results,
    describe_sweep,
)
from studio.pages.sweep.shown import Shown
from studio.store.pace import describe_remaining
from studio.store.tasks import Task
from studio.sweep.analysis import select_possible
from studio.units import format_count
from studio.views.address import read_shown_run

dash.register_page(__name__, path="/sweep", name="Sweep", title="Sweep · Chakra Studio", order=6.5)

_POLL_MS = 1_000


def layout(**_query: str) -> Any:
    """Return the page; what it shows follows the view."""
    return html.Div(
        [
            html.Div(
                [
                    html.H1("Sweep"),
                    dmc.Select(
                        id="sweep-pick",
                        data=[],
                        size="xs",
                        w=330,
                        placeholder="none shown",
                        allowDeselect=False,
                        comboboxProps={"shadow": "sm"},
                        **build_aria_label("Sweep that is shown"),
                    ),
                    html.Span("along", className="cs-dim"),
                    dmc.Select(
                        id="sweep-key",
                        data=[],
                        size="xs",
                        w=190,
                        allowDeselect=False,
                        **build_aria_label("Setting of the slice"),
                    ),
                    html.Span(style={"flex": 1}),
                    html.Div(id="sweep-actions", className="sweep-row"),
                ],
                className="cs-page-head",
            ),
            html.Div(id="sweep-notice"),
            html.Div(
                [
                    html.Div(
                        [build_form(), html.Div(id="sweep-said", role="status"), html.Div(id="sweep-runs")],
                        className="sweep-left",
                    ),
                    html.Div(
                        [
                            html.Div(id="sweep-progress", className="sweep-progress", role="status"),
                            html.Div(id="sweep-impossible"),
                            html.Div(_build_front(), id="sweep-front-box", hidden=True),
                            html.Div(id="sweep-point"),
                            html.Div(id="sweep-results"),
                        ],
                        className="sweep-side",
                    ),
                ],
                id="sweep-page",
                className="sweep-body",
                hidden=True,
            ),
            dcc.Store(id="sweep-started"),
            dcc.Store(id="sweep-mark"),
            dcc.Store(id="sweep-filled"),
            dcc.Store(id="sweep-suggested"),
            build_stores(SWEEP),
            html.Div(id="sweep-sync", hidden=True),
            dcc.Interval(id="sweep-poll", interval=_POLL_MS, disabled=True),
        ],
        className="cs-page",
    )


def _build_front() -> Any:
    """Return the place of the figure whose points can be clicked; it stays while results come."""
    return [
        html.Div(
            [
                html.H2("Which points are worth their cost"),
                build_hint("the front", FRONT),
                build_export_buttons("sweep-front", figure="sweep-front", title="the points"),
            ],
            className="cs-figure-head",
        ),
        dcc.Graph(
            id="sweep-front",
            # Of an empty one plotly complains in the console.
            figure={"data": [], "layout": {}},
            config={"displaylogo": False, "displayModeBar": False},
            className="cs-figure",
            style={"height": f"{FRONT_PX}px"},
        ),
    ]


@callback(
    Output("sweep-notice", "children"),
    Output("sweep-page", "hidden"),
    Output("sweep-system", "data"),
    Output("sweep-system", "value"),
    Input("job", "data"),
    State("shown-run", "data"),
)
def open_job(job: str | None, shown: str | None) -> Any:
    """Fill the form for a job."""
    if not job:
        return build_no_job_notice(), True, [], None
    try:
        options = list_systems(job)
        named, run = read_shown_run(shown)
        return None, False, options, choose_first_system(job, run if named == job else None)
    except StudioError as error:
        return build_error_box(error), True, [], None


@callback(
    Output("sweep-varied", "value"),
    Output("sweep-suggested", "data"),
    Input("sweep-system", "value"),
    Input("job", "data"),
    State("sweep-varied", "value"),
    State("sweep-suggested", "data"),
)
def suggest(system: str | None, job: str | None, typed: str | None, suggested: str | None) -> Any:
    """Write settings to begin with for this job and system, unless the user has typed some."""
    if not (system and job) or (typed or "").strip() not in {"", suggested}:
        return no_update, no_update
    try:
        settings = choose_first_settings(job, system)
    except StudioError:
        return no_update, no_update
    return settings, settings


@callback(
    Output("sweep-count", "children"),
    Output("sweep-run", "disabled"),
    Input("sweep-system", "value"),
    Input("sweep-varied", "value"),
    Input("sweep-draw", "value"),
    Input("sweep-under", "value"),
    Input("sweep-bisect", "value"),
    Input("job", "data"),
)
def count(*given: str | None) -> Any:
    """Show how many points the form describes while it is edited."""
    *typed, job = given
    if not job:
        return "", True
    try:
        words, fine = describe_count(parse_form(job, Typed(*typed)))
    except StudioError as error:
        return html.Span(error.message, className="cs-level-error"), True
    return words, not fine


@callback(
    Output("sweep-started", "data"),
    Output("sweep-said", "children"),
    Output("activity-poke", "data", allow_duplicate=True),
    build_answer_output(SWEEP),
    Input(SWEEP, "data"),
    State("sweep-system", "value"),
    State("sweep-varied", "value"),
    State("sweep-draw", "value"),
    State("sweep-under", "value"),
    State("sweep-bisect", "value"),
    State("sweep-scheduler", "value"),
    State("job", "data"),
    prevent_initial_call=True,
)
def act(asked: Asked | None, *given: str | None) -> Any:
    """Start, continue or delete a sweep, or make a point a run."""
    *typed, job = given
    if not asked or not job:
        return no_update, no_update, no_update, no_update
    message, shown = None, ""
    try:
        shown, message = _carry_out(asked, job, Typed(*typed))
    except StudioError as error:
        message = build_error_box(error, title="This was not started")
    return {"id": shown, "at": time.time()}, message, time.time(), acknowledge_request(SWEEP, asked)


def _carry_out(asked: Asked, job: str, typed: Typed) -> tuple[str, Any]:
    """Do what a button asks for; returns the sweep to show and what to say."""
    if asked["verb"] == "run":
        return start_sweep(get_tasks(), get_session(), parse_form(job, typed)).id, None
    name, _, index = asked["of"].partition(" ")
    kept = next((sweep for sweep in list_sweeps(get_session(), job) if sweep.id == name), None)
    if kept is None:
        return "", html.P("This sweep is gone.", className="cs-dim")
    if asked["verb"] == "continue":
        continue_sweep(get_tasks(), get_session(), kept)
    elif asked["verb"] == "delete":
        delete_sweep(get_tasks(), get_session(), kept)
        return "", html.P("The sweep was deleted; runs that were made of it stay.", className="cs-dim")
    elif asked["verb"] == "point":
        started = start_point(get_simulations(), get_session(), kept, int(index))
        if isinstance(started, Task):
            words: list[Any] = [
                "Making ",
                html.Bdi(started.title),
                ", a job of its own, then simulating it there.",
            ]
            return kept.id, html.P(words, className="cs-dim")
        return kept.id, html.P(["Simulating ", html.Bdi(started.name), "."], className="cs-dim")
    return kept.id, None


@callback(
    Output("sweep-pick", "data"),
    Output("sweep-pick", "value"),
    Output("sweep-key", "data"),
    Output("sweep-key", "value"),
    Output("sweep-results", "children"),
    Output("sweep-front", "figure"),
    Output("sweep-front-box", "hidden"),
    Output("sweep-impossible", "children"),
    Output("sweep-progress", "children"),
    Output("sweep-actions", "children"),
    Output("sweep-runs", "children"),
    Output("sweep-poll", "disabled"),
    Output("sweep-mark", "data"),
    Output("sweep-filled", "data"),
    Input("view", "data"),
    Input("theme", "data"),
    Input("sweep-started", "data"),
    Input("sweep-poll", "n_intervals"),
    Input("sweep-price-gpu", "value"),
    Input("sweep-price-inside", "value"),
    Input("sweep-price-between", "value"),
    State("sweep-mark", "data"),
)
def show(  # noqa: PLR0913 (a callback has an argument for each input)
    view: dict[str, Any],
    theme: str | None,
    started: dict[str, Any] | None,
    _polled: int | None,
    gpu: str | None,
    inside: str | None,
    between: str | None,
    mark: list[Any] | None,
) -> Any:
    """Show the sweep that is picked, as far as it is."""
    job, picked, key = (view.get(name) for name in ("job", "sweep", "along"))
    if not job:
        return Shown().outputs()
    # What is under way is asked before what is there: whatever ends in between is shown now, or by the next poll.
    busy = any(
        each.status in UNDER_WAY and each.name.startswith(PREFIX)
        for each in list_simulations(get_simulations(), job)
    )
    begun = started["id"] if started and ctx.triggered_id == "sweep-started" else None
    task, going = None, False
    try:
        listed = list_sweeps(get_session(), job)
        costs, run_section = parse_prices(gpu, inside, between), build_run_list(job)
        kept = _choose_sweep(listed, picked, begun)
        if kept is not None:
            task, going = find_task(get_tasks(), kept), is_under_way(get_tasks(), kept)
        rows = price_rows(kept.rows(), costs, kept) if kept else []
    except StudioError as error:
        return Shown(results=build_error_box(error)).outputs()
    options = [{"value": each.id, "label": _label_sweep(each)} for each in listed]
    if kept is None:
        gone = _build_gone_page() if listed else _build_empty_page()
        return Shown(options, results=gone, runs=run_section, is_settled=not busy).outputs()
    along = key if key in kept.space.keys else _choose_first_key(kept)
    now = [kept.id, len(rows), along, theme, gpu, inside, between, going]
    words: list[Any] = [html.P(html.Bdi(describe_sweep(kept))), describe_results(kept, rows)]
    if going or not kept.is_whole:
        words += [" · ", _describe_progress(task)]
    shown = Shown(
        options,
        kept.id,
        [{"value": name, "label": name} for name in kept.space.varied],
        along,
        *(no_update,) * 4,
        progress=words,
        actions=_build_actions(kept, task),
        runs=run_section,
        is_settled=not (going or busy),
        mark=now,
        # One that was just started is a step of the user, not a choice that was filled in.
        filled=[] if ctx.triggered_id == "sweep-started" else [kept.id, along],
    )
    if mark == now:
        return shown.outputs()
    dark = theme == "dark"
    drawn = replace(
        shown,
        results=build_results(kept, rows, along, dark=dark),
        front=draw_front(kept.space, rows, dark=dark, units=collect_units(kept)),
        hides_front=not select_possible(rows),
        impossible=build_impossible_list(rows),
    )
    return drawn.outputs()


def _choose_sweep(listed: Sequence[Kept], picked: str | None, begun: str | None) -> Kept | None:
    """Return the sweep to show: the one just begun, else the one that is picked, else the newest."""
    wanted = next((each for each in listed if each.id == (begun or picked)), None)
    # One that the user deleted makes room for another; one that is not there does not.
    is_named = bool(picked) and ctx.triggered_id != "sweep-started"
    return wanted or (listed[0] if listed and not is_named else None)


clientside_callback(
    ClientsideFunction("studio_sweep", "choose"),
    Output("sweep-sync", "title"),
    Input("sweep-pick", "value"),
    Input("sweep-key", "value"),
    State("sweep-filled", "data"),
    prevent_initial_call=True,
)


def _choose_first_key(kept: Kept) -> str:
    return next((axis.key for axis in kept.space.axes if len(axis.values) > 1), kept.space.keys[0])


def _label_sweep(kept: Kept) -> str:
    when = time.strftime("%d %b %H:%M", time.localtime(kept.asked.created))
    sizes = " × ".join(f"{len(axis.values):,}" for axis in kept.space.axes if len(axis.values) > 1) or "1"
    return f"{when} · {sizes} · {', '.join(axis.key for axis in kept.space.axes if len(axis.values) > 1)}"[
        :70
    ]


def _describe_progress(task: Task | None) -> Any:
    if task is None or (task.status not in ("queued", "preparing", "running") and not task.error):
        return "stopped before its end; what is done is kept"
    if task.error:
        hint = html.Span(task.error.hint, className="cs-dim")
        return html.Span([f"{task.error.message}. ", hint], className="cs-level-error")
    if not task.total:
        return "waiting for its turn" if task.status == "queued" else "starting"
    left = describe_remaining(task.remaining_s(get_tasks().now()))
    done = f"{format_count(task.done)} of {format_count(task.total)} points"
    return ", ".join(filter(None, (done, left)))


def _build_actions(kept: Kept, task: Task | None) -> Any:
    """Return the buttons for the sweep that is shown."""
    if task is not None and is_under_way(get_tasks(), kept):
        return html.Button("Stop", className="cs-button", **build_click_request(ACTIVITY, "cancel", task.id))
    buttons = [
        html.Button(
            "Delete",
            className="cs-button-quiet",
            **build_click_request(SWEEP, "delete", kept.id),
            **build_aria_label("Delete this sweep"),
        )
    ]
    if not kept.is_whole:
        buttons.insert(
            0,
            html.Button("Continue", className="cs-button", **build_click_request(SWEEP, "continue", kept.id)),
        )
    return buttons


def _build_gone_page() -> Any:
    return html.Div(
        [
            html.H2("The sweep that the address names is not there"),
            html.P("It may have been deleted. Choose another one above, or start a new one on the left."),
        ],
        className="cs-empty",
    )


def _build_empty_page() -> Any:
    return html.Div(
        [
            html.H2("Which settings would change the step?"),
            html.P(
                "Every combination of the values on the left is simulated; results come as they are found."
            ),
            html.P(
                "You get: which points are worth their cost, what each setting does along its values, and which matter at all. "
                "Any point opens as a run, with its timeline, and can be compared.",
                className="cs-dim",
            ),
        ],
        className="cs-empty",
    )


@callback(
    Output("sweep-point", "children"),
    Input("sweep-front", "clickData"),
    Input("sweep-pick", "value"),
    State("job", "data"),
    State("sweep-price-gpu", "value"),
    State("sweep-price-inside", "value"),
    State("sweep-price-between", "value"),
    prevent_initial_call=True,
)
def choose(
    clicked: Any,
    picked: str | None,
    job: str | None,
    gpu: str | None,
    inside: str | None,
    between: str | None,
) -> Any:
    """Show the point that was clicked in the figure."""
    if ctx.triggered_id != "sweep-front" or not clicked or not job:
        return None
    kept = next((sweep for sweep in list_sweeps(get_session(), job) if sweep.id == picked), None)
    index = clicked["points"][0].get("customdata")
    try:
        rows = price_rows(kept.rows(), parse_prices(gpu, inside, between), kept) if kept else []
    except StudioError as error:
        return build_error_box(error)
    row = next((row for row in rows if row.index == index), None)
    return build_chosen_point(kept, row) if kept and row else None
