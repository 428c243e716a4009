"""Callbacks of the Simulate page: simulations in progress, the list of runs, and the result of one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from dash import (
    ALL,
    ClientsideFunction,
    Input,
    Output,
    State,
    callback,
    clientside_callback,
    html,
    no_update,
)
from dash.exceptions import PreventUpdate

from studio.errors import StudioError
from studio.jobs.simulations import (
    ACTIVE,
    Simulation,
    Simulations,
    cancel,
    dismiss,
    dismiss_ended,
    get,
    list_simulations,
    start,
)
from studio.pages.base.asked import (
    ORDER,
    RUNS,
    Asked,
    acknowledge_request,
    build_answer_output,
    build_click_request,
)
from studio.pages.base.state import get_run, get_simulations, get_workspace
from studio.pages.base.still import merge_static_parts
from studio.pages.base.widgets import build_error_box, clear_with_job
from studio.pages.simulate.believing import show_warnings
from studio.pages.simulate.naming import name_run
from studio.pages.simulate.run_list import build_run_table
from studio.pages.simulate.runs import build_result, compare_with_form
from studio.pages.simulate.system import FormState, build_form_inputs, read_form
from studio.pages.simulate.under_way import build_list_key, build_progress_list, report_progress
from studio.sim.doubt import Cured
from studio.sim.doubts import apply_cures, format_cure_options
from studio.sim.problems import examine_parts
from studio.store.drafts import load_draft
from studio.store.run_infos import RunInfo

_JUST_S = 10
"""For how long a simulation counts as just begun."""


# ---------------------------------------------------------------------------------------------------
# Under way


@callback(
    Output("sim-begun", "data"),
    Output("activity-poke", "data"),
    Output("sim-notice", "children", allow_duplicate=True),
    build_answer_output(ORDER),
    inputs={"asked": Input(ORDER, "data"), **build_form_inputs()},
    prevent_initial_call=True,
)
def handle_order(
    asked: Asked | None, ids: list[dict[str, str] | None], texts: list[str | None], state: FormState | None
) -> Any:
    """Start, cancel, dismiss or repeat a simulation."""
    if not asked:
        return no_update, no_update, no_update, no_update
    done = acknowledge_request(ORDER, asked)
    if not state:
        return no_update, no_update, no_update, done
    queue, begun = get_simulations(), None
    try:
        if asked["verb"] == "run":
            draft, _ = read_form(ids, texts, state)
            if examine_parts(draft.tables).problems:
                raise StudioError("Some settings are not allowed.", hint="Fix the marked settings, then run.")
            job = state["job"]
            name = name_run(draft.tables, _collect_names(job), get_workspace().runs(job))
            begun = start(queue, job, draft.tables, name).id
            dismiss_ended(queue, state["job"], but=begun)
        elif asked["verb"] == "cure":
            begun = _simulate_cure(queue, *asked["of"].partition(" ")[::2])
        elif asked["verb"] == "stop":
            cancel(queue, asked["of"])
        else:
            begun = _repeat_or_dismiss(queue, asked["verb"], asked["of"])
    except StudioError as error:
        return no_update, no_update, html.Div(build_error_box(error), className="sim-wide"), done
    return {"at": time.time(), "begun": begun}, time.time(), None, done


def _simulate_cure(queue: Simulations, job: str, run: str) -> str:
    """Simulate a doubtful run again with what cures it; return the id of the simulation."""
    info = get_workspace().run_info(job, run)
    tables = apply_cures(info.tables, info.doubts)
    name = name_run(tables, _collect_names(job), get_workspace().runs(job))
    cures = Cured(format_cure_options(info.doubts), info.makespan_ns, info.id)
    begun = start(queue, job, tables, name, cures).id
    dismiss_ended(queue, job, but=begun)
    return begun


def _collect_names(job: str) -> set[str]:
    """Return the names of a job's runs and of its simulations in progress."""
    return {run.name for run in get_workspace().runs(job)} | {
        simulation.name for simulation in list_simulations(get_simulations(), job)
    }


def _repeat_or_dismiss(queue: Simulations, verb: str, name: str) -> str | None:
    """Repeat or dismiss a simulation; return the id of the new one, if any."""
    before = get(queue, name)
    if before and verb == "again":
        started = start(queue, before.job, before.tables, before.name, before.cures)
        dismiss_ended(queue, before.job, but=started.id)
        return started.id
    if before:
        # Lines that say the same are shown as one, so they go as one.
        for simulation in list_simulations(queue, before.job):
            if (simulation.name, simulation.status) == (before.name, before.status):
                dismiss(queue, simulation.id)
    return None


# The list is made anew when it is another one; how far a simulation is, is written into it. So a button stays under the
# hand, and the next look is taken when the one before is over: Dash drops answers that are slower than an interval.
@callback(
    Output("sim-active", "children"),
    Output("sim-listed", "data"),
    Output("sim-progress", "data"),
    Output("sim-poll", "disabled"),
    Output("sim-watched", "data"),
    Output("sim-finished", "data"),
    Input("sim-state", "data"),
    Input("sim-begun", "data"),
    Input("sim-tick", "data"),
    Input("sim-poll", "n_intervals"),
    State("sim-watched", "data"),
    State("sim-finished", "data"),
    State("sim-listed", "data"),
    State("view", "data"),
    prevent_initial_call=True,
)
def poll(
    state: FormState | None,
    begun: dict[str, Any] | None,
    _tick: Any,
    _late: Any,
    watched: list[str] | None,
    finished: dict[str, str] | None,
    known: list[Any] | None,
    view: dict[str, Any] | None,
) -> Any:
    """Show the progress of the job's simulations, and open a run when it is done."""
    if not state:
        return None, None, None, True, [], no_update
    queue = get_simulations()
    of_job = list_simulations(queue, state["job"])
    active = [simulation.id for simulation in of_job if simulation.status in ACTIVE]
    # One that has just been asked for may be over before anybody looks.
    fresh = begun if begun and time.time() - begun["at"] < _JUST_S else {}
    seen = {*(watched or []), fresh.get("begun"), *_list_just_ended(of_job, view or {})}
    over = [
        {"job": simulation.job, "run": simulation.run}
        for simulation in of_job
        if simulation.id in seen and simulation.status == "done"
    ]
    news = next((run for run in over if run != finished), no_update)
    now, shown = queue.now(), build_list_key(of_job)
    items = no_update if shown == known else build_progress_list(of_job, now)
    return items, shown, report_progress(of_job, now), not active, active, news


def _list_just_ended(of_job: Sequence[Simulation], view: Mapping[str, Any]) -> list[str]:
    """Return simulations that ended while the page was opened, which may have listed the runs before; none where a run is named."""
    return (
        []
        if view.get("run")
        else [
            simulation.id
            for simulation in of_job
            if simulation.ended and time.time() - simulation.ended < _JUST_S
        ]
    )


clientside_callback(
    ClientsideFunction("studio_simulate", "progress"),
    Output("sim-sync", "dir"),
    Input("sim-progress", "data"),
    prevent_initial_call=True,
)
clientside_callback(
    ClientsideFunction("studio_simulate", "finished"),
    Output("sim-sync", "lang"),
    Input("sim-finished", "data"),
    prevent_initial_call=True,
)


# ---------------------------------------------------------------------------------------------------
# Runs, and the one that is shown


clientside_callback(
    ClientsideFunction("studio_simulate", "which"),
    Output("sim-which", "data"),
    Input("view", "data"),
    Input("sim-state", "data"),
    State("sim-which", "data"),
    prevent_initial_call=True,
)


@callback(
    Output("sim-renaming", "data"),
    Output("sim-deleted", "children"),
    build_answer_output(RUNS),
    Input(RUNS, "data"),
    prevent_initial_call=True,
)
def change_runs(asked: Asked | None) -> Any:
    """Rename, delete or restore a run of the job."""
    if not asked:
        return no_update, no_update, no_update
    job, _, run = asked["of"].partition(" ")
    root = get_workspace()
    renaming = said_here = None
    try:
        if asked["verb"] == "rename":
            renaming = run
        elif asked["verb"] == "save":
            root.rename_run(job, run, asked["text"])
        elif asked["verb"] == "restore":
            root.restore_run(job, run)
        elif asked["verb"] == "delete":
            name = root.run_info(job, run).name
            root.delete_run(job, run)
            undo = html.Button(
                "Undo", className="cs-button-quiet", **build_click_request(RUNS, "restore", f"{job} {run}")
            )
            said_here = html.P([f"{name} was deleted. ", undo])
    except StudioError as error:
        renaming = run if asked["verb"] == "save" else None
        said_here = build_error_box(error, title="That did not work")
    return {"run": renaming, "at": time.time()}, said_here, acknowledge_request(RUNS, asked)


clear_with_job("sim-deleted")


@callback(
    Output("sim-runs", "children"),
    Input("sim-which", "data"),
    Input("sim-renaming", "data"),
    prevent_initial_call=True,
)
def list_runs(which: dict[str, str] | None, renaming: dict[str, Any] | None) -> Any:
    """List the runs of the job."""
    if not which or not which["job"]:
        return None
    infos = get_workspace().runs(which["job"])
    renamed = renaming["run"] if renaming else None
    return build_run_table(infos, _choose_run(which["run"], infos), renamed, which["job"])


# Apart from the result: it takes longer to make, and until then it would be said of a form that is gone.
@callback(
    Output({"sim-made": ALL}, "children"),
    Input("sim-state", "data"),
    Input("sim-result-of", "data"),
    State({"sim-made": ALL}, "id"),
    prevent_initial_call=True,
)
def tell_settings(state: FormState | None, _of: Any, shown: list[dict[str, str] | None]) -> Any:
    """Say whether the shown run was simulated with the settings in the form."""
    if not state or not all(shown):
        raise PreventUpdate  # the result was removed meanwhile
    root = get_workspace()
    try:
        tables = load_draft(root.root, state["config"]).tables
        return [
            merge_static_parts(compare_with_form(root.run_info(state["job"], identity["sim-made"]), tables))
            for identity in shown
            if identity
        ]
    except StudioError:
        raise PreventUpdate from None  # the run was deleted or is of another job: its result will be replaced


def _choose_run(wanted: str, infos: Sequence[RunInfo]) -> str | None:
    """Return the run to show: that of the address, else the newest."""
    known = [info.id for info in infos]
    return wanted if wanted in known else next(iter(known), None)


@callback(
    Output("sim-result", "children"),
    Output("sim-warnings", "children"),
    Output("sim-result-of", "data"),
    Input("sim-which", "data"),
    Input("sim-renaming", "data"),
    Input("theme", "data"),
    State("sim-state", "data"),
    State("sim-result-of", "data"),
    prevent_initial_call=True,
)
def show_result(
    which: dict[str, str] | None,
    _renaming: Any,
    theme: str,
    state: FormState | None,
    known: dict[str, str] | None,
) -> Any:
    """Show the result of the run that the address names; skip it if it is shown already."""
    if not state or not which or which["job"] != state["job"]:
        return None, None, None
    infos = get_workspace().runs(state["job"])
    chosen = _choose_run(which["run"], infos)
    info = next((candidate for candidate in infos if candidate.id == chosen), None)
    if info is None:
        return None, None, None
    shown = {"job": info.job, "run": info.id, "name": info.name, "theme": theme}
    if shown == known:
        return no_update, no_update, no_update
    try:
        tables = load_draft(get_workspace().root, state["config"]).tables
        content = build_result(get_run(state["job"], info.id), info, tables, dark=theme == "dark")
        return merge_static_parts(content), merge_static_parts(show_warnings(info)), shown
    except StudioError as error:
        return build_error_box(error), None, None
