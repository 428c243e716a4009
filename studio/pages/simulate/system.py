"""Callbacks of the Simulate page's form: edits, address, validation, figures, import and export."""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict

from dash import (
    ALL,
    ClientsideFunction,
    Input,
    Output,
    State,
    callback,
    clientside_callback,
    ctx,
    html,
    no_update,
)

from studio.analysis.job.completeness import infer_completeness
from studio.errors import StudioError
from studio.pages.base.asked import EDIT, Asked, acknowledge_request, build_answer_output
from studio.pages.base.state import get_session, get_trace, get_workspace
from studio.pages.base.still import merge_static_parts
from studio.pages.base.widgets import build_error_box, build_no_job_notice, read_upload
from studio.pages.simulate.edits import (
    build_similar_preset,
    change_model,
    count_dimensions,
    fit_to_ranks,
    from_preset,
    is_changed,
    propose_draft,
    replay_known,
    select_changed_texts,
    suit_to_job,
    with_dimension,
    with_dimension_moved,
    with_text,
    without_dimension,
)
from studio.pages.simulate.files import export_zip, import_files
from studio.pages.simulate.form import build_congestion_control, build_folds, build_form
from studio.pages.simulate.proposals import find_proposals, show_proposals
from studio.sim.models import MODELS, get_model
from studio.sim.presets import PRESETS
from studio.sim.settings import SETTINGS
from studio.store.drafts import Draft, load_draft, save_draft


class FormState(TypedDict):
    """The job and system that the form shows, and since when.

    Attributes:
        job: Id of the job.
        config: Id of the system, as a draft.
        turn: Number of navigations before the request for this form: see `assets/simulate/simulate.mjs`.
    """

    job: str
    config: str
    turn: int


_CHANGED = "changed:"
_MASTERS = {setting.needs for setting in SETTINGS} | {"bandwidth-unit"}
"""Fields on which others depend: a change of one redraws the form."""


def list_preset_options() -> list[dict[str, str]]:
    """Return the options of the preset switch."""
    return [{"value": name, "label": label_preset(name)} for name in PRESETS]


def label_preset(name: str) -> str:
    """Return what a preset is called in lists, so that a search finds name and title."""
    return f"{name} · {PRESETS[name].title}"


def list_model_options(current: str) -> list[dict[str, str]]:
    """Return the options of the model switch: the models there are, and what a system is by its single settings."""
    names: dict[str, str] = {**dict.fromkeys(MODELS, ""), current: ""}
    return [{"value": name, "label": _MODEL_LABELS[name]} for name in names]


_MODEL_LABELS = {"full": "Full", "astra-sim": "ASTRA-sim", "extended": "Extended", "replay": "Replay"}


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
    Output("sim-sync", "title"),
    Input("sim-step", "data"),
)
clientside_callback(
    ClientsideFunction("studio_simulate", "draw"), Output("sim-sync", "children"), Input("sim-scene", "data")
)


def _build_outputs() -> dict[str, Any]:
    """Return all outputs that show a system; every callback that changes it sets them together."""
    return {
        "notice": Output("sim-notice", "children", allow_duplicate=True),
        "hidden": Output("sim-page", "hidden", allow_duplicate=True),
        "form": Output("sim-form", "children", allow_duplicate=True),
        "folds": Output("sim-folds", "children", allow_duplicate=True),
        "congestion": Output("sim-congestion", "children", allow_duplicate=True),
        "mode": Output("sim-mode", "value", allow_duplicate=True),
        "models": Output("sim-mode", "data", allow_duplicate=True),
        "proposals": Output("sim-proposals", "children", allow_duplicate=True),
        "presets": Output("sim-preset", "data", allow_duplicate=True),
        "preset": Output("sim-preset", "value", allow_duplicate=True),
        "state": Output("sim-state", "data", allow_duplicate=True),
        "step": Output("sim-step", "data", allow_duplicate=True),
    }


def build_form_inputs() -> dict[str, Any]:
    """Return the states that hold the form's current texts, including what was typed just now."""
    return {
        "ids": State({"sim": ALL}, "id"),
        "texts": State({"sim": ALL}, "value"),
        "state": State("sim-state", "data"),
    }


_NOTHING: dict[str, Any] = dict.fromkeys(_build_outputs(), no_update)


def _show_draft(draft: Draft, config: str, state: FormState, *, replace_step: bool = False) -> dict[str, Any]:
    """Return the outputs that show a draft stored as `config`, with a new form."""
    return {
        **_show_state(draft, config, state, replace_step=replace_step),
        "notice": None,
        "hidden": False,
        "form": merge_static_parts(build_form(draft), fewest=2),
        "folds": merge_static_parts(build_folds(draft), fewest=2),
        "congestion": build_congestion_control(draft.tables),
        "mode": get_model(draft.tables),
        "models": list_model_options(get_model(draft.tables)),
        "proposals": merge_static_parts(
            show_proposals(find_proposals(get_session(), state["job"]), draft.origin)
        ),
    }


def _show_state(draft: Draft, config: str, state: FormState, *, replace_step: bool = False) -> dict[str, Any]:
    """Return the outputs that show a draft stored as `config`, if the form shows its fields already."""
    presets, preset = _list_presets(draft, state["job"])
    return {
        **_NOTHING,
        "presets": presets,
        "preset": preset,
        "state": {**state, "config": config},
        "step": {**state, "config": config, "replace": replace_step, "at": time.time()},
    }


def _show_error(error: StudioError) -> dict[str, Any]:
    return _NOTHING | {
        "notice": html.Div(build_error_box(error, title="That did not work"), className="sim-wide")
    }


def _list_presets(draft: Draft, job: str) -> tuple[list[dict[str, str]], str | None]:
    """Return the options of the preset switch and the current one; a changed preset is an option of its own."""
    if draft.origin not in PRESETS:
        return list_preset_options(), None
    if not is_changed(draft, get_trace(job)):
        return list_preset_options(), draft.origin
    value = f"{_CHANGED}{draft.origin}"
    return [
        {"value": value, "label": f"{label_preset(draft.origin)} (changed)"},
        *list_preset_options(),
    ], value


@callback(_build_outputs(), Input("sim-show", "data"), prevent_initial_call=True)
def show(wanted: dict[str, Any] | None) -> dict[str, Any]:
    """Show the system of the address, else that of its run, else one proposed for the job."""
    if not wanted or not wanted["job"]:
        return _NOTHING | {"notice": build_no_job_notice(), "hidden": True, "state": None}
    job, config = wanted["job"], wanted["config"]
    problem = draft = None
    try:
        get_trace(job)  # says what is wrong with the job
        if config:
            try:
                draft = load_draft(get_workspace().root, config)
            except StudioError as error:
                problem = build_error_box(error, title="Another system is shown")
        if draft is None:
            draft = _choose_first_draft(job, wanted["run"])
            config = save_draft(get_workspace().root, draft)
    except StudioError as error:
        return _NOTHING | {
            "notice": html.Div(build_error_box(error), className="cs-page"),
            "hidden": True,
            "state": None,
        }
    state: FormState = {"job": job, "config": config, "turn": wanted["turn"]}
    return _show_draft(draft, config, state, replace_step=True) | {"notice": problem}


def _choose_first_draft(job: str, run: str) -> Draft:
    """Return the system of a run, or one proposed for the job if there is no such run."""
    draft = propose_draft(get_trace(job), find_proposals(get_session(), job))
    info = next((candidate for candidate in get_workspace().runs(job) if candidate.id == run), None)
    # A run on the proposed system keeps the name of its preset.
    return draft if info is None or info.tables == draft.tables else Draft(info.tables, "a run")


# ---------------------------------------------------------------------------------------------------
# Edits


def read_form(
    ids: Sequence[dict[str, str] | None], texts: Sequence[str | None], state: FormState
) -> tuple[Draft, str]:
    """Return the system in the form, and the id of its stored draft.

    Includes what was typed just before a click, even if the callback of that edit is still running.
    """
    draft = load_draft(get_workspace().root, state["config"])
    return _take_over(draft, state["config"], select_changed_texts(draft.tables, _read_fields(ids, texts)))


def _take_over(draft: Draft, config: str, changed: Mapping[str, str]) -> tuple[Draft, str]:
    """Apply changed texts to the draft stored as `config`; return the new draft and its id."""
    # A step per field, so that undo reverts them one by one; first the field that was being edited.
    for key in sorted(changed, key=lambda key: key != draft.edited):
        draft = replace(
            draft,
            tables=with_text(draft.tables, key, changed[key]),
            edited=key,
            before=draft.before if draft.edited == key else config,
        )
        config = save_draft(get_workspace().root, draft)
    return draft, config


def _read_fields(ids: Sequence[dict[str, str] | None], texts: Sequence[str | None]) -> dict[str, str]:
    """Return the texts of the fields; removed fields have no id."""
    return {identity["sim"]: text or "" for identity, text in zip(ids, texts, strict=True) if identity}


def _save_and_show(draft: Draft, before: str, state: FormState) -> dict[str, Any]:
    """Store a draft made from the one stored as `before`, and return the outputs that show it."""
    draft = replace(draft, before=before)
    return _show_draft(draft, save_draft(get_workspace().root, draft), state)


@callback(
    _build_outputs(),
    inputs={
        "texts": Input({"sim": ALL}, "value"),
        "ids": State({"sim": ALL}, "id"),
        "state": State("sim-state", "data"),
    },
    prevent_initial_call=True,
)
def type_in(
    texts: list[str | None], ids: list[dict[str, str] | None], state: FormState | None
) -> dict[str, Any]:
    """Apply what was typed or chosen."""
    if not state or not ids:
        return _NOTHING
    before = load_draft(get_workspace().root, state["config"])
    changed = select_changed_texts(before.tables, _read_fields(ids, texts))
    draft, config = _take_over(before, state["config"], changed)
    if config == state["config"]:
        return _NOTHING
    same = draft.before == before.before
    outputs = _show_draft if _MASTERS & {key.partition("[")[0] for key in changed} else _show_state
    return outputs(draft, config, state, replace_step=same)


@callback(
    {**_build_outputs(), "answered": build_answer_output(EDIT)},
    inputs={"asked": Input(EDIT, "data"), **build_form_inputs()},
    prevent_initial_call=True,
)
def act(
    asked: Asked | None, ids: list[dict[str, str] | None], texts: list[str | None], state: FormState | None
) -> dict[str, Any]:
    """Carry out a button: undo, reset, change dimensions, or load the settings of a run."""
    if not asked:
        return {**_NOTHING, "answered": no_update}
    done = {"answered": acknowledge_request(EDIT, asked)}
    if not state:
        return _NOTHING | done
    try:
        draft, config = read_form(ids, texts, state)
        if asked["verb"] == "undo":
            if not draft.before:
                return _NOTHING | done
            return _show_draft(load_draft(get_workspace().root, draft.before), draft.before, state) | done
        after = _apply_action(draft, asked["verb"], asked["of"], state["job"])
        return (_NOTHING if after.tables == draft.tables else _save_and_show(after, config, state)) | done
    except StudioError as error:
        return _show_error(error) | done


def _apply_action(draft: Draft, verb: str, of: str, job: str) -> Draft:
    """Return the draft that a button leads to."""
    tables = draft.tables
    if verb == "load":
        return Draft(get_workspace().run_info(job, of).tables, "a run")
    if verb == "reset":
        job_trace = get_trace(job)
        fresh = propose_draft(job_trace)
        if draft.origin in PRESETS and draft.origin != fresh.origin:
            fresh = Draft(from_preset(draft.origin), draft.origin)
        return fresh
    if verb == "propose":
        return suit_to_job(
            Draft(from_preset(of, infer_completeness(get_trace(job)).world), of), get_trace(job)
        )
    place, _, drawn = ("0" if verb in ("compute", "recompute") else of).partition("/")
    index = int(place or 0)
    # The form had more rows when it was clicked: which dimension was meant is unknown.
    if drawn and count_dimensions(tables) < int(drawn):
        return draft
    changed = {
        "add": lambda: with_dimension(tables),
        "remove": lambda: without_dimension(tables, index),
        "inwards": lambda: with_dimension_moved(tables, index, -1),
        "outwards": lambda: with_dimension_moved(tables, index, 1),
        "fit": lambda: fit_to_ranks(tables, infer_completeness(get_trace(job)).world),
        "replay": lambda: replay_known(tables, get_trace(job)),
        "compute": lambda: with_text(tables, "compute-times", of),
        "recompute": lambda: with_text(tables, "recompute-for", of),
    }[verb]()
    return replace(draft, tables=changed, edited="", notes=())


@callback(
    _build_outputs(),
    inputs={
        "preset": Input("sim-preset", "value"),
        "mode": Input("sim-mode", "value"),
        **build_form_inputs(),
    },
    prevent_initial_call=True,
)
def choose(
    preset: str | None,
    mode: str | None,
    ids: list[dict[str, str] | None],
    texts: list[str | None],
    state: FormState | None,
) -> dict[str, Any]:
    """Start from a preset, or change the model; does nothing when the page itself sets them to the current values.

    Both are compared, whichever Dash names as changed: if the page sets one during the callback of the other, Dash
    drops that answer and calls again.
    """
    if not state:
        return _NOTHING
    try:
        draft, config = read_form(ids, texts, state)
        after = (
            _choose_preset(draft, preset, state["job"])
            if "sim-preset.value" in ctx.triggered_prop_ids
            else draft
        )
        if get_model(draft.tables) != mode and mode in MODELS:
            after = change_model(after, mode, get_trace(state["job"]))
    except StudioError as error:
        return _show_error(error)
    return _NOTHING if after == draft else _save_and_show(after, config, state)


def _choose_preset(draft: Draft, name: str | None, job: str) -> Draft:
    """Return the draft that a choice of preset leads to."""
    if not name or name.startswith(_CHANGED):
        return draft
    if name == draft.origin and not is_changed(draft, get_trace(job)):
        return draft
    tables = build_similar_preset(name, draft.tables, infer_completeness(get_trace(job)).world)
    chosen = Draft(replace(tables, groups=draft.tables.groups), name)
    return suit_to_job(chosen, get_trace(job)) if name == draft.origin else chosen


@callback(
    _build_outputs(),
    inputs={
        "contents": Input("sim-upload", "contents"),
        "names": State("sim-upload", "filename"),
        **build_form_inputs(),
    },
    prevent_initial_call=True,
)
def take_in(
    contents: list[str] | None,
    names: list[str] | None,
    ids: list[dict[str, str] | None],
    texts: list[str | None],
    state: FormState | None,
) -> dict[str, Any]:
    """Import ASTRA-sim's files."""
    if not state or not contents:
        return _NOTHING
    files = {name: read_upload(content) for name, content in zip(names or [], contents, strict=True)}
    try:
        draft, config = read_form(ids, texts, state)
        tables, notes = import_files(draft.tables, files)
        return _save_and_show(Draft(tables, "imported files", notes=notes), config, state)
    except StudioError as error:
        return _show_error(error)


# ---------------------------------------------------------------------------------------------------
# Files


@callback(
    Output("sim-download", "data"),
    Input("sim-export", "n_clicks"),
    State("sim-state", "data"),
    prevent_initial_call=True,
)
def export(clicks: int | None, state: FormState | None) -> Any:
    """Download the system as ASTRA-sim's files."""
    if not clicks or not state:
        return no_update
    draft = load_draft(get_workspace().root, state["config"])
    content = base64.b64encode(export_zip(draft.tables)).decode()
    return {"content": content, "filename": "system.zip", "base64": True, "type": "application/zip"}
