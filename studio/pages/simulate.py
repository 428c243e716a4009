"""Simulate: how long would this job take on another system?"""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypedDict

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
from dash.exceptions import PreventUpdate

from studio.drafts import Draft, load_draft, save_draft
from studio.errors import StudioError
from studio.pages._asked import EDIT, ORDER, RUNS, Asked, answer, answered, asks, stores
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
from studio.pages._simulate_runs import how_far, listing, made_with, progress_list, result, runs_table
from studio.pages._state import run_of, simulations, trace, workspace
from studio.pages._still import still
from studio.pages._widgets import error_box, hint, labelled, loading, no_job
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


class FormState(TypedDict):
    """What the form shows.

    Attributes:
        job: Id of the job.
        config: Id of the system, as a draft.
        turn: How often the address had gone elsewhere by itself when it was asked for: see `assets/simulate.js`.
    """

    job: str
    config: str
    turn: int


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
            dcc.Store(id="sim-which"),
            dcc.Store(id="sim-result-of"),
            *[stores(name) for name in (EDIT, ORDER, RUNS)],
            dcc.Store(id="sim-begun"),
            dcc.Store(id="sim-finished"),
            dcc.Store(id="sim-watched", data=[]),
            dcc.Store(id="sim-renaming"),
            dcc.Store(id="sim-listed"),
            dcc.Store(id="sim-progress"),
            dcc.Store(id="sim-tick"),
            dcc.Interval(id="sim-poll", interval=4000, disabled=True),
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
                        id="sim-undo",
                        className="cs-button",
                        title="Take the last change back",
                        **asks(EDIT, "undo"),
                    ),
                    html.Button(
                        "Reset",
                        className="cs-button",
                        title="Back to the preset, made to fit the job",
                        **asks(EDIT, "reset"),
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
            html.Button(
                "Run", id="sim-run", className="cs-button sim-run", disabled=True, **asks(ORDER, "run")
            ),
        ],
        className="sim-controls",
    )


# ---------------------------------------------------------------------------------------------------
# The form follows the address, the address follows what is done to the form

clientside_callback(
    ClientsideFunction("studio_simulate", "follow"),
    Output("sim-show", "data"),
    Input("view", "data"),
    State("sim-state", "data"),
)
clientside_callback(
    ClientsideFunction("studio_simulate", "go"),
    Output("sim-show", "data", allow_duplicate=True),
    Input("sim-step", "data"),
    prevent_initial_call=True,
)
clientside_callback(
    ClientsideFunction("studio_simulate", "draw"), Output("sim-sync", "children"), Input("sim-scene", "data")
)


def _page() -> dict[str, Any]:
    """Return what shows a state of the system: whoever changes it hands out all of it at once, with the step to it."""
    return {
        "notice": Output("sim-notice", "children", allow_duplicate=True),
        "hidden": Output("sim-page", "hidden", allow_duplicate=True),
        "form": Output("sim-form", "children", allow_duplicate=True),
        "congestion": Output("sim-congestion", "children", allow_duplicate=True),
        "mode": Output("sim-mode", "value", allow_duplicate=True),
        "presets": Output("sim-preset", "data", allow_duplicate=True),
        "preset": Output("sim-preset", "value", allow_duplicate=True),
        "state": Output("sim-state", "data", allow_duplicate=True),
        "step": Output("sim-step", "data", allow_duplicate=True),
    }


def _typed() -> dict[str, Any]:
    """Return what is read to know the system as it stands in the form, letters included that were typed just now."""
    return {
        "ids": State({"sim": ALL}, "id"),
        "texts": State({"sim": ALL}, "value"),
        "state": State("sim-state", "data"),
    }


_NOTHING: dict[str, Any] = dict.fromkeys(_page(), no_update)


def _shown(draft: Draft, config: str, state: FormState, *, replace_step: bool = False) -> dict[str, Any]:
    """Return all that shows a draft kept as `config`."""
    return {
        **_kept(draft, config, state, replace_step=replace_step),
        "notice": None,
        "hidden": False,
        "form": form(draft),
        "congestion": congestion_control(draft.tables),
        "mode": "extended" if is_extended(draft.tables) else "compatible",
    }


def _kept(draft: Draft, config: str, state: FormState, *, replace_step: bool = False) -> dict[str, Any]:
    """Return what is new of a draft whose fields are in the form already."""
    presets, preset = _named(draft, state["job"])
    return {
        **_NOTHING,
        "presets": presets,
        "preset": preset,
        "state": {**state, "config": config},
        "step": {**state, "config": config, "replace": replace_step, "at": time.time()},
    }


def _refused(error: StudioError) -> dict[str, Any]:
    return _NOTHING | {"notice": html.Div(error_box(error, title="That did not work"), className="sim-wide")}


def _named(draft: Draft, job: str) -> tuple[list[dict[str, str]], str | None]:
    """Return the presets and which the system is; one that was changed is an entry of its own, so that it can be had back."""
    if draft.origin not in PRESETS:
        return _presets(), None
    if not is_changed(draft, trace(job)):
        return _presets(), draft.origin
    value = f"{_CHANGED}{draft.origin}"
    return [{"value": value, "label": f"{PRESETS[draft.origin].title} (changed)"}, *_presets()], value


@callback(_page(), Input("sim-show", "data"), prevent_initial_call=True)
def show(wanted: dict[str, Any] | None) -> dict[str, Any]:
    """Show the system of the address; where it names none, that of the run it names, else one that suits the job."""
    if not wanted or not wanted["job"]:
        return _NOTHING | {"notice": no_job(), "hidden": True, "state": None}
    job, config = wanted["job"], wanted["config"]
    problem = draft = None
    try:
        trace(job)  # says what is wrong with the job
        if config:
            try:
                draft = load_draft(workspace().root, config)
            except StudioError as error:
                problem = error_box(error, title="Another system is shown")
        if draft is None:
            draft = _draft_to_begin_with(job, wanted["run"])
            config = save_draft(workspace().root, draft)
    except StudioError as error:
        return _NOTHING | {
            "notice": html.Div(error_box(error), className="cs-page"),
            "hidden": True,
            "state": None,
        }
    state: FormState = {"job": job, "config": config, "turn": wanted["turn"]}
    return _shown(draft, config, state, replace_step=True) | {"notice": problem}


def _draft_to_begin_with(job: str, run: str) -> Draft:
    """Return the system of a run; one that suits the job where there is no such run."""
    draft = proposed(trace(job))
    info = next((one for one in workspace().runs(job) if one.id == run), None)
    # A run of what would be proposed anyway keeps the name of its preset.
    return draft if info is None or info.tables == draft.tables else Draft(info.tables, "a run")


# ---------------------------------------------------------------------------------------------------
# Edits


def _current(
    ids: Sequence[dict[str, str]], texts: Sequence[str | None], state: FormState
) -> tuple[Draft, str]:
    """Return the system as it stands in the form, and the id it is kept under.

    What was typed a moment before a button was clicked counts, although its own request is still under way.
    """
    root, config = workspace().root, state["config"]
    draft = load_draft(root, config)
    given = {one["sim"]: text or "" for one, text in zip(ids, texts, strict=True)}
    changed = changed_texts(draft.tables, given)
    # One step for each field, the one that was being edited first: undo takes them back one by one.
    for key in sorted(changed, key=lambda key: key != draft.edited):
        draft = replace(
            draft,
            tables=with_text(draft.tables, key, changed[key]),
            edited=key,
            before=draft.before if draft.edited == key else config,
        )
        config = save_draft(root, draft)
    return draft, config


def _after(draft: Draft, before: str, state: FormState) -> dict[str, Any]:
    """Return all that shows a draft made of the one kept as `before`."""
    draft = replace(draft, before=before)
    return _shown(draft, save_draft(workspace().root, draft), state)


@callback(
    _page(),
    inputs={
        "texts": Input({"sim": ALL}, "value"),
        "ids": State({"sim": ALL}, "id"),
        "state": State("sim-state", "data"),
    },
    prevent_initial_call=True,
)
def type_in(texts: list[str | None], ids: list[dict[str, str]], state: FormState | None) -> dict[str, Any]:
    """Take over what was typed or chosen."""
    if not state or not ids:
        return _NOTHING
    before = load_draft(workspace().root, state["config"])
    draft, config = _current(ids, texts, state)
    if config == state["config"]:
        return _NOTHING
    same = draft.before == before.before
    changed = changed_texts(
        before.tables, {one["sim"]: text or "" for one, text in zip(ids, texts, strict=True)}
    )
    told = _shown if _MASTERS & {key.partition("[")[0] for key in changed} else _kept
    return told(draft, config, state, replace_step=same)


@callback(
    {**_page(), "answered": answered(EDIT)},
    inputs={"asked": Input(EDIT, "data"), **_typed()},
    prevent_initial_call=True,
)
def act(
    asked: Asked | None, ids: list[dict[str, str]], texts: list[str | None], state: FormState | None
) -> dict[str, Any]:
    """Do what a button says to the system: undo, reset, dimensions, the settings of a run."""
    if not asked:
        return {**_NOTHING, "answered": no_update}
    done = {"answered": answer(EDIT, asked)}
    if not state:
        return _NOTHING | done
    try:
        draft, config = _current(ids, texts, state)
        if asked["verb"] == "undo":
            if not draft.before:
                return _NOTHING | done
            return _shown(load_draft(workspace().root, draft.before), draft.before, state) | done
        after = _acted(draft, asked["verb"], asked["of"], state["job"])
        return (_NOTHING if after.tables == draft.tables else _after(after, config, state)) | done
    except StudioError as error:
        return _refused(error) | done


def _acted(draft: Draft, verb: str, of: str, job: str) -> Draft:
    """Return the draft after a button."""
    tables = draft.tables
    if verb == "load":
        return Draft(workspace().run_info(job, of).tables, "a run")
    if verb == "reset":
        found = trace(job)
        fresh = proposed(found)
        if draft.origin in PRESETS and draft.origin != fresh.origin:
            fresh = Draft(from_preset(draft.origin), draft.origin)
            fresh = replace(fresh, tables=with_mode(fresh.tables, extended=bool(extended_reason(found))))
        return fresh
    changed = {
        "add": lambda: with_dimension(tables),
        "remove": lambda: without_dimension(tables, int(of)),
        "inwards": lambda: with_dimension_moved(tables, int(of), -1),
        "outwards": lambda: with_dimension_moved(tables, int(of), 1),
        "fit": lambda: fitted(tables, len(trace(job).ranks)),
    }[verb]()
    return replace(draft, tables=changed, edited="", notes=())


@callback(
    _page(),
    inputs={"preset": Input("sim-preset", "value"), "mode": Input("sim-mode", "value"), **_typed()},
    prevent_initial_call=True,
)
def choose(
    preset: str | None,
    mode: str | None,
    ids: list[dict[str, str]],
    texts: list[str | None],
    state: FormState | None,
) -> dict[str, Any]:
    """Start from a preset, or change the mode. The page, too, sets both, to what they are already."""
    if not state:
        return _NOTHING
    try:
        draft, config = _current(ids, texts, state)
        after = draft
        if ctx.triggered_id == "sim-preset":
            after = _preset(draft, preset, state["job"])
        elif is_extended(draft.tables) != (mode == "extended"):
            tables = with_mode(draft.tables, extended=mode == "extended")
            after = replace(draft, tables=tables, edited="", notes=())
    except StudioError as error:
        return _refused(error)
    return _NOTHING if after == draft else _after(after, config, state)


def _preset(draft: Draft, name: str | None, job: str) -> Draft:
    """Return the draft after a preset was chosen."""
    if not name or name.startswith(_CHANGED):
        return draft
    if name == draft.origin and not is_changed(draft, trace(job)):
        return draft
    tables = with_mode(from_preset(name), extended=is_extended(draft.tables))
    chosen = Draft(replace(tables, groups=draft.tables.groups), name)
    return suited(chosen, trace(job)) if name == draft.origin else chosen


@callback(
    _page(),
    inputs={
        "contents": Input("sim-upload", "contents"),
        "names": State("sim-upload", "filename"),
        **_typed(),
    },
    prevent_initial_call=True,
)
def take_in(
    contents: list[str] | None,
    names: list[str] | None,
    ids: list[dict[str, str]],
    texts: list[str | None],
    state: FormState | None,
) -> dict[str, Any]:
    """Take over ASTRA-sim's files."""
    if not state or not contents:
        return _NOTHING
    files = {
        name: base64.b64decode(content.partition(",")[2])
        for name, content in zip(names or [], contents, strict=True)
    }
    try:
        draft, config = _current(ids, texts, state)
        tables, notes = imported_files(draft.tables, files)
        return _after(Draft(tables, "imported files", notes=notes), config, state)
    except StudioError as error:
        return _refused(error)


# ---------------------------------------------------------------------------------------------------
# What it means


@callback(
    Output("sim-facts", "children"),
    Output("sim-scene", "data"),
    Output("sim-legend", "children"),
    Output("sim-run", "disabled"),
    Output({"sim": ALL}, "error"),
    Output({"sim-said": ALL}, "children"),
    Output("sim-undo", "disabled"),
    Input("sim-state", "data"),
    State({"sim": ALL}, "id"),
    State({"sim-said": ALL}, "id"),
    prevent_initial_call=True,
)
def judge(state: FormState | None, fields: list[dict[str, str]], places: list[dict[str, str]]) -> Any:
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
def foresee(state: FormState | None) -> Any:
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
def export(clicks: int | None, state: FormState | None) -> Any:
    """Hand out the system as ASTRA-sim's files."""
    if not clicks or not state:
        return no_update
    draft = load_draft(workspace().root, state["config"])
    content = base64.b64encode(exported(draft.tables)).decode()
    return {"content": content, "filename": "system.zip", "base64": True, "type": "application/zip"}


# ---------------------------------------------------------------------------------------------------
# Runs


@callback(
    Output("sim-begun", "data"),
    Output("activity-poke", "data"),
    Output("sim-notice", "children", allow_duplicate=True),
    answered(ORDER),
    inputs={"asked": Input(ORDER, "data"), **_typed()},
    prevent_initial_call=True,
)
def order(
    asked: Asked | None, ids: list[dict[str, str]], texts: list[str | None], state: FormState | None
) -> Any:
    """Start, stop, forget or repeat a simulation."""
    if not asked:
        return no_update, no_update, no_update, no_update
    done = answer(ORDER, asked)
    if not state:
        return no_update, no_update, no_update, done
    found, begun = simulations(), None
    try:
        if asked["verb"] == "run":
            draft, _ = _current(ids, texts, state)
            begun = start(found, state["job"], draft.tables.parts, run_name(draft, _names(state["job"]))).id
            dismiss_ended(found, state["job"], but=begun)
        elif asked["verb"] == "stop":
            cancel(found, asked["of"])
        else:
            begun = _again_or_dismissed(found, asked["verb"], asked["of"])
    except StudioError as error:
        return no_update, no_update, html.Div(error_box(error), className="sim-wide"), done
    return {"at": time.time(), "begun": begun}, time.time(), None, done


def _names(job: str) -> set[str]:
    """Return what the simulations of a job are called, those that have not ended included."""
    return {run.name for run in workspace().runs(job)} | {one.name for one in listed(simulations(), job)}


def _again_or_dismissed(found: Simulations, verb: str, name: str) -> str | None:
    """Repeat or forget a simulation; returns the id of one that begins."""
    before = get(found, name)
    if before and verb == "again":
        started = start(found, before.job, before.tables.parts, before.name)
        dismiss_ended(found, before.job, but=started.id)
        return started.id
    if before:
        # Lines that say the same are shown as one, so they go as one.
        for one in listed(found, before.job):
            if (one.name, one.status) == (before.name, before.status):
                dismiss(found, one.id)
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
    prevent_initial_call=True,
)
def poll(
    state: FormState | None,
    begun: dict[str, Any] | None,
    _tick: Any,
    _late: Any,
    watched: list[str] | None,
    told: dict[str, str] | None,
    known: list[Any] | None,
) -> Any:
    """Show how far the simulations of the job are; a run that has come about is shown."""
    if not state:
        return None, None, None, True, [], no_update
    found = simulations()
    mine = listed(found, state["job"])
    active = [one.id for one in mine if one.status in ACTIVE]
    # One that has just been asked for may be over before anybody looks.
    seen = {*(watched or []), begun.get("begun") if begun else None}
    done = next((one for one in mine if one.id in seen and one.status == "done"), None)
    finished = {"job": state["job"], "run": done.run} if done else None
    news = finished if finished and finished != told else no_update
    now, shown = found.now(), listing(mine)
    items = no_update if shown == known else progress_list(mine, now)
    return items, shown, how_far(mine, now), not active, active, news


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
    answered(RUNS),
    Input(RUNS, "data"),
    State("sim-which", "data"),
    prevent_initial_call=True,
)
def change_runs(asked: Asked | None, which: dict[str, str] | None) -> Any:
    """Rename, delete or restore a run of the job."""
    if not asked:
        return no_update, no_update, no_update
    done = answer(RUNS, asked)
    if not which or not which["job"]:
        return no_update, no_update, done
    job, run, root = which["job"], asked["of"], workspace()
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
            undo = html.Button("Undo", className="cs-button-quiet", **asks(RUNS, "restore", run))
            said_here = html.P([f"{name} was deleted. ", undo])
    except StudioError as error:
        said_here = error_box(error, title="That did not work")
    return {"run": renaming, "at": time.time()}, said_here, done


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
    infos = workspace().runs(which["job"])
    renamed = renaming["run"] if renaming else None
    return runs_table(infos, _shown_run(which["run"], infos), renamed, which["job"])


# Apart from the result: it takes longer to make, and until then it would be said of a form that is gone.
@callback(
    Output({"sim-made": ALL}, "children"),
    Input("sim-state", "data"),
    Input("sim-result-of", "data"),
    State({"sim-made": ALL}, "id"),
    prevent_initial_call=True,
)
def tell_settings(state: FormState | None, _of: Any, shown: list[dict[str, str] | None]) -> Any:
    """Tell whether the run that is shown was made with the settings now in the form."""
    if not state or not all(shown):
        raise PreventUpdate  # a result that has gone meanwhile has no id left
    root = workspace()
    try:
        tables = load_draft(root.root, state["config"]).tables
        return [
            still(made_with(root.run_info(state["job"], one["sim-made"]), tables)) for one in shown if one
        ]
    except StudioError:
        raise PreventUpdate from None  # a run that was deleted, or of another job: its result is about to go


def _shown_run(wanted: str, infos: Sequence[RunInfo]) -> str | None:
    """Return the run the page shows: that of the address, else the newest."""
    known = [info.id for info in infos]
    return wanted if wanted in known else next(iter(known), None)


@callback(
    Output("sim-result", "children"),
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
    """Show what the run of the address found; nothing is made anew that is there already."""
    if not state or not which or which["job"] != state["job"]:
        return None, None
    infos = workspace().runs(state["job"])
    chosen = _shown_run(which["run"], infos)
    info = next((one for one in infos if one.id == chosen), None)
    if info is None:
        return None, None
    shown = {"job": info.job, "run": info.id, "name": info.name, "theme": theme}
    if shown == known:
        return no_update, no_update
    try:
        tables = load_draft(workspace().root, state["config"]).tables
        return still(result(run_of(state["job"], info.id), info, tables, dark=theme == "dark")), shown
    except StudioError as error:
        return error_box(error), None
