"""Simulate: how long would this job take on another system?"""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import dash
import dash_mantine_components as dmc
from dash import (
    ALL,
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

from studio.drafts import Draft, load_draft, save_draft
from studio.errors import StudioError
from studio.pages._simulate_edits import (
    changed_texts,
    extended_reason,
    findings_of,
    fitted,
    from_preset,
    is_changed,
    is_extended,
    proposed,
    run_name,
    suited,
    with_dimension,
    with_dimension_moved,
    with_mode,
    with_text,
    without_dimension,
)
from studio.pages._simulate_fields import GROUPS
from studio.pages._simulate_files import exported, imported_files
from studio.pages._simulate_form import congestion_control, form, place_of, said
from studio.pages._simulate_live import drawn, facts, legend, told
from studio.pages._simulate_runs import made_with, progress_list, result, runs_table
from studio.pages._state import run_of, simulations, trace, workspace
from studio.pages._still import still
from studio.pages._widgets import error_box, guarded, hint, labelled, loading, no_job
from studio.runs import RunInfo
from studio.sim.presets import PRESETS
from studio.sim.problems import Examined, examined
from studio.simulations import ACTIVE, Simulations, cancel, dismiss, dismiss_ended, get, listed, start

dash.register_page(__name__, path="/simulate", name="Simulate", title="Simulate · Chakra Studio", order=5)

_MODE = (
    "Compatible: the answers of ASTRA-sim's analytical simulator, to the nanosecond. Extended: what it refuses or "
    "leaves out as well, each with a switch below."
)
_CHANGED = "changed:"
_MASTERS = {field.needs for group in GROUPS.values() for field in group if field.needs} | {"bandwidth-unit"}
"""Fields on which others depend: the form is drawn anew when one of them changes."""


def layout(**_query: str) -> Any:
    """Return the page; what it shows follows the view."""
    return html.Div(
        [
            html.Div(loading("The job and its system are being read…"), id="sim-notice"),
            html.Div(
                [
                    _controls(),
                    html.Div(
                        [
                            html.Div(
                                [
                                    html.Div(id={"sim-said": ""}, className="sim-said sim-general"),
                                    html.Div(id="sim-form"),
                                ],
                            ),
                            html.Div(
                                [
                                    html.Div(id="sim-facts"),
                                    html.Div(id="sim-drawing", className="sim-drawing"),
                                    html.Div(id="sim-legend"),
                                    html.Div(id="sim-findings", role="status"),
                                    html.Div(id="sim-active"),
                                    html.Div(id="sim-result"),
                                    html.Div(id="sim-deleted", role="status"),
                                    html.Div(id="sim-runs"),
                                ],
                                className="sim-side",
                            ),
                        ],
                        className="sim-body",
                    ),
                ],
                id="sim-page",
                className="sim",
                hidden=True,
            ),
            dcc.Store(id="sim-show"),
            dcc.Store(id="sim-state"),
            dcc.Store(id="sim-step"),
            dcc.Store(id="sim-scene"),
            dcc.Store(id="sim-asked"),
            dcc.Store(id="sim-finished"),
            dcc.Store(id="sim-watched", data=[]),
            dcc.Store(id="sim-renaming"),
            dcc.Interval(id="sim-poll", interval=400, disabled=True),
            dcc.Download(id="sim-download"),
            html.Div(id="sim-sync", hidden=True),
        ]
    )


def _presets() -> list[dict[str, str]]:
    return [{"value": one.name, "label": one.title} for one in PRESETS.values()]


def _controls() -> Any:
    return html.Div(
        [
            html.H1("Simulate"),
            html.Span(
                [
                    html.Span("system", className="cs-dim"),
                    dmc.Select(
                        id="sim-preset",
                        data=_presets(),
                        size="xs",
                        w=250,
                        placeholder="start from a preset",
                        allowDeselect=False,
                        searchable=True,
                        nothingFoundMessage="No such preset",
                        comboboxProps={"shadow": "sm"},
                        **labelled("Start from a preset"),
                    ),
                ],
                className="cs-graph-field",
            ),
            html.Span(
                [
                    dmc.SegmentedControl(
                        id="sim-mode",
                        data=[
                            {"value": "compatible", "label": "Compatible"},
                            {"value": "extended", "label": "Extended"},
                        ],
                        size="xs",
                        **labelled("Mode"),
                    ),
                    hint("the mode", _MODE),
                ],
                className="cs-graph-field",
            ),
            html.Span(id="sim-congestion"),
            html.Span(
                [
                    html.Button(
                        "Undo",
                        id={"sim-act": "undo", "at": 0},
                        className="cs-button",
                        title="Take the last change back",
                    ),
                    html.Button(
                        "Reset",
                        id={"sim-act": "reset", "at": 0},
                        className="cs-button",
                        title="Back to the preset, made to fit the job",
                    ),
                ],
                className="sim-files",
            ),
            html.Span(style={"flex": 1}),
            html.Span(
                [
                    dcc.Upload(
                        html.Button(
                            "Import",
                            className="cs-button",
                            title="ASTRA-sim's network.yml, system.json, comm_group.json, remote_memory.json, one or several, "
                            "or the zip of Export",
                        ),
                        id="sim-upload",
                        multiple=True,
                        max_size=8 << 20,
                    ),
                    html.Button(
                        "Export",
                        id="sim-export",
                        className="cs-button",
                        title="ASTRA-sim's files of this system, as a zip",
                    ),
                ],
                className="sim-files",
            ),
            html.Button("Run", id="sim-run", className="cs-button sim-run", disabled=True),
        ],
        className="sim-controls",
    )


# ---------------------------------------------------------------------------------------------------
# The form follows the address

clientside_callback(
    ClientsideFunction("studio_simulate", "follow"),
    Output("sim-show", "data"),
    Input("view", "data"),
    State("sim-state", "data"),
)
clientside_callback(
    ClientsideFunction("studio_simulate", "go"), Output("sim-sync", "title"), Input("sim-step", "data")
)
clientside_callback(
    ClientsideFunction("studio_simulate", "draw"), Output("sim-sync", "children"), Input("sim-scene", "data")
)


@callback(
    {
        "notice": Output("sim-notice", "children"),
        "hidden": Output("sim-page", "hidden"),
        "form": Output("sim-form", "children"),
        "congestion": Output("sim-congestion", "children"),
        "mode": Output("sim-mode", "value"),
        "state": Output("sim-state", "data"),
        "step": Output("sim-step", "data"),
    },
    Input("sim-show", "data"),
    prevent_initial_call=True,
)
def show(wanted: dict[str, str] | None) -> dict[str, Any]:
    """Show the system of the address; where it names none, that of the run it names, else one that suits the job."""
    names = ("notice", "hidden", "form", "congestion", "mode", "state", "step")
    answer: dict[str, Any] = dict.fromkeys(names, no_update)
    if not wanted or not wanted["job"]:
        return answer | {"notice": no_job(), "hidden": True, "state": None}
    job, config = wanted["job"], wanted["config"]
    problem = None
    try:
        trace(job)  # says what is wrong with the job
        draft = None
        if config:
            try:
                draft = load_draft(workspace().root, config)
            except StudioError as error:
                problem = error_box(error, title="Another system is shown")
        if draft is None:
            draft = _draft_to_begin_with(job, wanted.get("run", ""))
            config = save_draft(workspace().root, draft)
    except StudioError as error:
        return answer | {"notice": html.Div(error_box(error), className="cs-page"), "hidden": True}
    return answer | {
        "notice": problem,
        "hidden": False,
        "form": form(draft),
        "congestion": congestion_control(draft.tables),
        "mode": "extended" if is_extended(draft.tables) else "compatible",
        "state": {"job": job, "config": config},
        "step": _step(job, config, own=True, replace_step=True),
    }


def _draft_to_begin_with(job: str, run: str) -> Draft:
    """Return the system of a run; one that suits the job where there is no such run."""
    draft = proposed(trace(job))
    info = next((one for one in workspace().runs(job) if one.id == run), None)
    # A run of what would be proposed anyway keeps the name of its preset.
    return draft if info is None or info.tables == draft.tables else Draft(info.tables, "a run")


@callback(
    Output("sim-preset", "data"),
    Output("sim-preset", "value"),
    Input("sim-state", "data"),
    prevent_initial_call=True,
)
def name_preset(state: dict[str, str] | None) -> Any:
    """Name the preset that the system is, or was before it was changed: an entry of its own, so that it can be had back."""
    if not state:
        return no_update, no_update
    draft = load_draft(workspace().root, state["config"])
    if draft.origin not in PRESETS:
        return _presets(), None
    if not is_changed(draft, trace(state["job"])):
        return _presets(), draft.origin
    value = f"{_CHANGED}{draft.origin}"
    return [{"value": value, "label": f"{PRESETS[draft.origin].title} (changed)"}, *_presets()], value


def _step(job: str, config: str, *, own: bool, replace_step: bool = False) -> dict[str, Any]:
    """Return a step for the address; `own` says that the form shows it already."""
    return {"job": job, "config": config, "own": own, "replace": replace_step, "at": time.time()}


# ---------------------------------------------------------------------------------------------------
# Edits


@callback(
    Output("sim-state", "data", allow_duplicate=True),
    Output("sim-step", "data", allow_duplicate=True),
    Input({"sim": ALL}, "value"),
    State({"sim": ALL}, "id"),
    State("sim-state", "data"),
    prevent_initial_call=True,
)
def type_in(texts: list[str | None], ids: list[dict[str, str]], state: dict[str, str] | None) -> Any:
    """Take over what was typed or chosen."""
    if not state or not ids:
        return no_update, no_update
    root = workspace().root
    draft = load_draft(root, state["config"])
    given = {one["sim"]: text or "" for one, text in zip(ids, texts, strict=True)}
    changed = changed_texts(draft.tables, given)
    if not changed:
        return no_update, no_update
    tables = draft.tables
    for key, text in changed.items():
        tables = with_text(tables, key, text)
    edited = next(iter(changed)) if len(changed) == 1 else ""
    same = bool(edited) and draft.edited == edited
    after = replace(draft, tables=tables, edited=edited, before=draft.before if same else state["config"])
    config = save_draft(root, after)
    own = not _MASTERS & {key.partition("[")[0] for key in changed}
    step = _step(state["job"], config, own=own, replace_step=same)
    return ({**state, "config": config} if own else no_update), step


@callback(
    Output("sim-step", "data", allow_duplicate=True),
    Output("sim-notice", "children", allow_duplicate=True),
    Input({"sim-act": ALL, "at": ALL}, "n_clicks"),
    Input("sim-preset", "value"),
    Input("sim-mode", "value"),
    Input("sim-upload", "contents"),
    State("sim-upload", "filename"),
    State("sim-state", "data"),
    prevent_initial_call=True,
)
def act(
    clicks: list[int | None],
    preset: str | None,
    mode: str | None,
    contents: list[str] | None,
    names: list[str] | None,
    state: dict[str, str] | None,
) -> Any:
    """Do what changes more than a field: dimensions, preset, mode, undo, files."""
    trigger = ctx.triggered_id
    if not state or trigger is None:
        return no_update, no_update
    root = workspace().root
    try:
        draft = load_draft(root, state["config"])
        if isinstance(trigger, dict):
            if not ctx.triggered[0]["value"]:
                return no_update, no_update
            after = _acted(draft, trigger["sim-act"], trigger["at"], state["job"])
        elif trigger == "sim-preset":
            after = _preset(draft, preset, state["job"])
        elif trigger == "sim-mode":
            after = replace(
                draft, tables=with_mode(draft.tables, extended=mode == "extended"), edited="", notes=()
            )
            after = draft if after.tables == draft.tables else after
        else:
            after = _uploaded(draft, contents or [], names or [])
    except StudioError as error:
        return no_update, html.Div(error_box(error, title="That did not work"), className="sim-wide")
    if after == draft:
        return no_update, no_update
    if isinstance(after, str):
        return _step(state["job"], after, own=False), None
    config = save_draft(root, replace(after, before=state["config"]))
    return _step(state["job"], config, own=False), None


def _preset(draft: Draft, name: str | None, job: str) -> Draft:
    """Return the draft after a preset was chosen; the page, too, sets the box, to what the draft is already."""
    if not name or name.startswith(_CHANGED):
        return draft
    if name == draft.origin and not is_changed(draft, trace(job)):
        return draft
    tables = with_mode(from_preset(name), extended=is_extended(draft.tables))
    chosen = Draft(replace(tables, groups=draft.tables.groups), name)
    return suited(chosen, trace(job)) if name == draft.origin else chosen


def _acted(draft: Draft, verb: str, at: int, job: str) -> Draft | str:
    """Return the draft after a button; the id of an earlier one for undo."""
    tables = draft.tables
    if verb == "undo":
        return draft.before or draft
    if verb == "reset":
        found = trace(job)
        fresh = proposed(found)
        if draft.origin in PRESETS and draft.origin != fresh.origin:
            fresh = Draft(from_preset(draft.origin), draft.origin)
            fresh = replace(fresh, tables=with_mode(fresh.tables, extended=bool(extended_reason(found))))
        return draft if fresh.tables == tables else fresh
    changed = {
        "add": lambda: with_dimension(tables),
        "remove": lambda: without_dimension(tables, at),
        "inwards": lambda: with_dimension_moved(tables, at, -1),
        "outwards": lambda: with_dimension_moved(tables, at, 1),
        "fit": lambda: fitted(tables, len(trace(job).ranks)),
    }[verb]()
    return draft if changed == tables else replace(draft, tables=changed, edited="", notes=())


def _uploaded(draft: Draft, contents: list[str], names: list[str]) -> Draft:
    files = {
        name: base64.b64decode(content.partition(",")[2])
        for name, content in zip(names, contents, strict=True)
    }
    tables, notes = imported_files(draft.tables, files)
    return Draft(tables, "imported files", notes=notes)


# ---------------------------------------------------------------------------------------------------
# What it means


@callback(
    Output("sim-facts", "children"),
    Output("sim-scene", "data"),
    Output("sim-legend", "children"),
    Output("sim-run", "disabled"),
    Output({"sim": ALL}, "error"),
    Output({"sim-said": ALL}, "children"),
    Output({"sim-act": "undo", "at": 0}, "disabled"),
    Input("sim-state", "data"),
    State({"sim": ALL}, "id"),
    State({"sim-said": ALL}, "id"),
    prevent_initial_call=True,
)
def judge(state: dict[str, str] | None, fields: list[dict[str, str]], places: list[dict[str, str]]) -> Any:
    """Tell at the fields what is wrong with them, and show what the system amounts to."""
    quiet = [no_update] * 4
    if not state:
        return *quiet, [no_update] * len(fields), [no_update] * len(places), no_update
    draft = load_draft(workspace().root, state["config"])
    found = examined(draft.tables.parts)
    messages = said(found.problems)
    known = {one["sim-said"] for one in places}
    general = [text for place, texts in messages.items() if place not in known for text in texts]
    errors = [one["sim"] in found.problems or _whole_list(one["sim"], found) for one in fields]
    shown = [
        [*messages.get(one["sim-said"], []), *(general if one["sim-said"] == "" else [])] for one in places
    ]
    live: list[Any] = [[], None, None]
    if found.config and not _topology_wrong(found):
        topology = found.config.topology
        live = [facts(found.config, len(trace(state["job"]).ranks)), drawn(topology), legend(topology)]
    elif found.config:
        live = [no_update] * 3
    return *live, bool(found.problems), errors, shown, not draft.before


def _whole_list(key: str, found: Examined) -> bool:
    """Whether the list that an entry stands in is refused as a whole."""
    return key.partition("[")[0] in found.problems


def _topology_wrong(found: Examined) -> bool:
    return any(place_of(key) == "network" or place_of(key).startswith("dim-") for key in found.problems)


@callback(
    Output("sim-findings", "children"),
    Output("sim-run", "children"),
    Input("sim-state", "data"),
    prevent_initial_call=True,
)
def foresee(state: dict[str, str] | None) -> Any:
    """List what would go wrong in a run."""
    if not state:
        return None, "Run"
    draft = load_draft(workspace().root, state["config"])
    found = examined(draft.tables.parts)
    if found.usable is None:
        return html.P("The settings marked above have to be mended before a run.", className="cs-dim"), "Run"
    findings = findings_of(trace(state["job"]), found.usable, draft.tables)
    return told(findings), "Run anyway" if any(one.level == "error" for one in findings) else "Run"


# ---------------------------------------------------------------------------------------------------
# Files


@callback(
    Output("sim-download", "data"),
    Input("sim-export", "n_clicks"),
    State("sim-state", "data"),
    prevent_initial_call=True,
)
def export(clicks: int | None, state: dict[str, str] | None) -> Any:
    """Hand out the system as ASTRA-sim's files."""
    if not clicks or not state:
        return no_update
    draft = load_draft(workspace().root, state["config"])
    content = base64.b64encode(exported(draft.tables)).decode()
    return {"content": content, "filename": "system.zip", "base64": True, "type": "application/zip"}


# ---------------------------------------------------------------------------------------------------
# Runs


@callback(
    Output("sim-asked", "data"),
    Output("activity-poke", "data"),
    Output("sim-notice", "children", allow_duplicate=True),
    Input("sim-run", "n_clicks"),
    Input({"sim-stop": ALL}, "n_clicks"),
    Input({"sim-dismiss": ALL}, "n_clicks"),
    Input({"sim-again": ALL}, "n_clicks"),
    State("sim-state", "data"),
    prevent_initial_call=True,
)
def ask(
    _run: Any, _stop: list[Any], _dismiss: list[Any], _again: list[Any], state: dict[str, str] | None
) -> Any:
    """Start, stop, forget or repeat a simulation."""
    trigger = ctx.triggered_id
    if not state or not trigger or not ctx.triggered[0]["value"]:
        return no_update, no_update, no_update
    found, begun = simulations(), None
    try:
        if trigger == "sim-run":
            draft = load_draft(workspace().root, state["config"])
            begun = start(found, state["job"], draft.tables.parts, run_name(draft, _names(state["job"]))).id
            dismiss_ended(found, state["job"], but=begun)
        elif "sim-stop" in trigger:
            cancel(found, trigger["sim-stop"])
        else:
            begun = _again_or_dismissed(found, trigger)
    except StudioError as error:
        return no_update, no_update, html.Div(error_box(error), className="sim-wide")
    return {"at": time.time(), "begun": begun}, time.time(), None


def _names(job: str) -> set[str]:
    """Return what the simulations of a job are called, those that have not ended included."""
    return {run.name for run in workspace().runs(job)} | {one.name for one in listed(simulations(), job)}


def _again_or_dismissed(found: Simulations, trigger: dict[str, str]) -> str | None:
    """Repeat or forget a simulation; returns the id of one that begins."""
    name = trigger.get("sim-dismiss") or trigger["sim-again"]
    before = get(found, name)
    if before and "sim-again" in trigger:
        started = start(found, before.job, before.tables.parts, before.name)
        dismiss_ended(found, before.job, but=started.id)
        return started.id
    if before:
        # Lines that say the same are shown as one, so they go as one.
        for one in listed(found, before.job):
            if (one.name, one.status) == (before.name, before.status):
                dismiss(found, one.id)
    return None


@callback(
    Output("sim-active", "children"),
    Output("sim-poll", "disabled"),
    Output("sim-watched", "data"),
    Output("sim-finished", "data"),
    Input("sim-state", "data"),
    Input("sim-asked", "data"),
    Input("sim-poll", "n_intervals"),
    State("sim-watched", "data"),
    prevent_initial_call=True,
)
def poll(
    state: dict[str, str] | None, asked: dict[str, Any] | None, _tick: Any, watched: list[str] | None
) -> Any:
    """Show how far the simulations of the job are; a run that has come about is shown."""
    if not state:
        return None, True, [], no_update
    found = simulations()
    mine = listed(found, state["job"])
    active = [one.id for one in mine if one.status in ACTIVE]
    # One that has just been asked for may be over before anybody looks.
    seen = {*(watched or []), asked.get("begun") if asked and ctx.triggered_id == "sim-asked" else None}
    done = next((one for one in mine if one.id in seen and one.status == "done"), None)
    finished = {"job": state["job"], "run": done.run} if done else no_update
    return progress_list(mine, found.now()), not active, active, finished


clientside_callback(
    ClientsideFunction("studio_simulate", "finished"),
    Output("sim-sync", "lang"),
    Input("sim-finished", "data"),
    prevent_initial_call=True,
)


@callback(
    Output("sim-runs", "children"),
    Output("sim-renaming", "data"),
    Output("sim-deleted", "children"),
    Output("sim-step", "data", allow_duplicate=True),
    Input("sim-state", "data"),
    Input("view", "data"),
    Input("sim-finished", "data"),
    Input({"sim-run-act": ALL, "run": ALL}, "n_clicks"),
    Input({"sim-run-save": ALL}, "n_clicks"),
    Input({"sim-run-name": ALL}, "n_submit"),
    Input({"sim-run-undo": ALL}, "n_clicks"),
    State({"sim-run-name": ALL}, "value"),
    State("sim-renaming", "data"),
    prevent_initial_call=True,
)
def list_runs(
    state: dict[str, str] | None,
    view: dict[str, Any],
    _finished: Any,
    _act: list[Any],
    _save: list[Any],
    _submit: list[Any],
    _undo: list[Any],
    names: list[str],
    renaming: str | None,
) -> Any:
    """List the runs of the job, after carrying out what was asked of one of them."""
    if not state or view.get("job") != state["job"]:
        return None, None, None, no_update
    trigger = ctx.triggered_id if isinstance(ctx.triggered_id, dict) and ctx.triggered[0]["value"] else {}
    job, root = state["job"], workspace()
    said_here: Any = no_update if not trigger else None
    step: Any = no_update
    try:
        if "sim-run-undo" in trigger:
            root.restore_run(job, trigger["sim-run-undo"])
        elif renaming and names and ("sim-run-save" in trigger or "sim-run-name" in trigger):
            root.rename_run(job, renaming, names[0])
            renaming = None
        elif trigger.get("sim-run-act") == "rename":
            renaming = trigger["run"]
        elif trigger.get("sim-run-act") == "delete":
            name = root.run_info(job, trigger["run"]).name
            root.delete_run(job, trigger["run"])
            undo = html.Button("Undo", id={"sim-run-undo": trigger["run"]}, className="cs-button-quiet")
            said_here = html.P([f"{name} was deleted. ", undo])
        elif trigger.get("sim-run-act") == "use":
            step = _load(state, trigger["run"])
    except StudioError as error:
        said_here = error_box(error, title="That did not work")
    infos = root.runs(job)
    return runs_table(infos, _shown_run(view, infos), renaming, job), renaming, said_here, step


# Apart from the result: it takes longer to make, and until then it would be said of a form that is gone.
@callback(
    Output({"sim-made": ALL}, "children"),
    Input("sim-state", "data"),
    State({"sim-made": ALL}, "id"),
    prevent_initial_call=True,
)
def tell_settings(state: dict[str, str] | None, shown: list[dict[str, str]]) -> Any:
    """Tell at once whether the run that is shown was made with the settings now in the form."""
    if not state or not shown:
        return [no_update] * len(shown)
    root = workspace()
    try:
        tables = load_draft(root.root, state["config"]).tables
        return [still(made_with(root.run_info(state["job"], one["sim-made"]), tables)) for one in shown]
    except StudioError:
        return [no_update] * len(shown)  # a run of another job: its result is about to go


# Apart from the list: what a result holds must not make the list, of which results are made, anew.
@callback(
    Output("sim-step", "data", allow_duplicate=True),
    Output("sim-notice", "children", allow_duplicate=True),
    Input({"sim-load": ALL}, "n_clicks"),
    State("sim-state", "data"),
    prevent_initial_call=True,
)
def load(clicks: list[int | None], state: dict[str, str] | None) -> Any:
    """Put the settings of the run that is shown into the form."""
    if not state or not any(clicks) or not isinstance(ctx.triggered_id, dict):
        return no_update, no_update
    try:
        return _load(state, ctx.triggered_id["sim-load"]), None
    except StudioError as error:
        return no_update, html.Div(error_box(error, title="That did not work"), className="sim-wide")


def _load(state: dict[str, str], run: str) -> dict[str, Any]:
    """Return the step to the system of a run; undo leads back from it."""
    root = workspace()
    draft = Draft(root.run_info(state["job"], run).tables, "a run", before=state["config"])
    return _step(state["job"], save_draft(root.root, draft), own=False)


def _shown_run(view: dict[str, Any], infos: Sequence[RunInfo]) -> str | None:
    """Return the run the page shows: that of the address, else the newest."""
    wanted = view.get("run")
    known = [info.id for info in infos]
    return wanted if wanted in known else next(iter(known), None)


@callback(
    Output("sim-result", "children"),
    Input("sim-runs", "children"),
    Input("theme", "data"),
    State("view", "data"),
    State("sim-state", "data"),
    prevent_initial_call=True,
)
@guarded
def show_result(_runs: Any, theme: str, view: dict[str, Any], state: dict[str, str] | None) -> Any:
    """Show what the run of the address found."""
    if not state:
        return None
    infos = workspace().runs(state["job"])
    chosen = _shown_run(view, infos)
    info = next((one for one in infos if one.id == chosen), None)
    if info is None:
        return None
    tables = load_draft(workspace().root, state["config"]).tables
    return still(result(run_of(state["job"], info.id), info, tables, dark=theme == "dark"))
