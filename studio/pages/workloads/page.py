"""The Workloads page: a job from the name of a model, before and after it is made."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import dash
from dash import (
    ALL,
    ClientsideFunction,
    Input,
    Output,
    State,
    callback,
    clientside_callback,
    dcc,
    html,
    no_update,
)

from studio.errors import ConfigError, StudioError
from studio.generation.workload import CUSTOM
from studio.jobs.generating import find_system, parse_config_model, uses_system
from studio.jobs.planning import get_plan, start_planning
from studio.pages.base.asked import (
    WORKLOADS,
    Asked,
    acknowledge_request,
    build_answer_output,
    build_click_request,
    build_stores,
)
from studio.pages.base.followed import build_tasks_input, build_ticks_input, follow_tasks, list_tasks_again
from studio.pages.base.jobs_made import build_progress_line
from studio.pages.base.state import RECORDED, get_session, get_tasks, get_workspace
from studio.pages.base.still import merge_static_parts
from studio.pages.base.widgets import (
    build_address,
    build_aria_label,
    build_error_box,
    read_upload,
    show_errors,
)
from studio.pages.workloads import best
from studio.pages.workloads.asking import File, Filled, Wrong, compute_counts, parse_form
from studio.pages.workloads.filling import copy_shape, list_placeholders
from studio.pages.workloads.form import (
    FILE,
    FOLDED,
    build_control_id,
    build_form,
    build_form_class,
    describe_set_fields,
    list_model_choices,
)
from studio.pages.workloads.making import Making, advance, build_simulate_link, start
from studio.pages.workloads.results import (
    build_collectives_section,
    build_counts_drawing,
    build_drawing,
    build_facts,
    build_memory_section,
    build_times,
    build_verdict,
    build_waiting_times,
)
from studio.pages.workloads.texts import Fields, collect_fields, read_text, replace_options, spell
from studio.store.job_infos import JobInfo
from studio.store.tasks import ACTIVE, cancel, get
from studio.units import format_counted, format_ns
from studio.views.address import choose_shown_run

dash.register_page(
    __name__, path="/workloads", name="Workloads", title="Workloads · Chakra Studio", order=0.5
)

_AT_ONCE_S = 2.0
"""How long the page waits for what was asked; after that it goes on in the background."""
_LOOK_S = 0.02


def layout(workload: str = "", **_query: str) -> Any:
    """Return the page, with the form that the address says."""
    fields = read_text(workload)
    filled = parse_form(fields, None)
    shown = _show_job(filled) if isinstance(filled, Filled) else (None, None, None, None)
    return html.Div(
        [
            html.Div(
                [html.H1("Workloads"), html.Span("a job from the name of a model, without any trace", className="cs-dim"),
                 html.Span(style={"flex": 1}), *_build_buttons()],
                className="cs-page-head",
            ),
            html.Div([html.Div(id="workload-error"), html.Div(id="workload-progress", role="status")]),
            html.Div([html.Div(merge_static_parts(build_form(fields), fewest=2), className="wl-left"), _build_side(shown)], className="wl-body"),
            build_stores(WORKLOADS),
            follow_tasks("workloads"),
            dcc.Store(id="workload-asked"),
            dcc.Store(id="workload-settled"),
            dcc.Store(id="workload-text"),
            dcc.Store(id="workload-drawing", data=shown[3]),
            dcc.Store(id="workload-config", storage_type="session"),
            dcc.Store(id="workload-making"),
            dcc.Store(id="workload-plan", storage_type="session"),
            dcc.Store(id="workload-plan-shown"),
            dcc.Store(id="workload-made"),
            html.Div(id="workload-sync", hidden=True),
        ],
        className="cs-page",
    )  # fmt: skip


def _build_buttons() -> list[Any]:
    return [
        html.Button(
            "Make the job",
            id="workload-make",
            className="cs-button",
            disabled=True,
            **build_click_request(WORKLOADS, "open"),
        ),
        html.Button(
            "Simulate it",
            id="workload-simulate",
            className="cs-button cs-ask-button wl-go",
            disabled=True,
            title="Make the job, and simulate it on the preset of its GPU",
            **build_click_request(WORKLOADS, "simulate"),
        ),
    ]


def _build_side(shown: Sequence[Any]) -> Any:
    """Return the right half: what closed forms say while the form is filled in."""
    return html.Div(
        [
            html.Div(shown[0], id="workload-verdict", className="wl-first"),
            html.Div(shown[1], id="workload-facts"),
            html.Div(build_waiting_times(), id="workload-times"),
            html.Div(id="workload-beside", className="wl-beside", role="status"),
            html.Div(
                [
                    html.H2("Ranks"),
                    html.P(
                        (shown[3] or {}).get("caption"),
                        id="workload-mesh-caption",
                        className="cs-dim wl-caption",
                    ),
                    html.Div(
                        _reserve_drawing_space(shown[3]),
                        id="workload-mesh",
                        className="wl-mesh",
                        tabIndex=0,
                        role="region",
                        **build_aria_label("Layout of the ranks"),
                    ),
                ],
                className="cs-section",
            ),
            html.Div(shown[2], id="workload-tables"),
            best.build_place(),
        ],
        id="workload-side",
        className="wl-side",
    )


def _reserve_drawing_space(drawing: dict[str, Any] | None) -> Any:
    """Return what takes the room of a drawing until it is drawn."""
    if drawing is None:
        return None
    size = {"width": f"{drawing['width']}px", "aspectRatio": f"{drawing['width']} / {drawing['height']}"}
    return html.Div(className="wl-room", style=size)


def _show_job(filled: Filled) -> tuple[Any, Any, Any, Any]:
    """Return what is shown of a job: verdict, facts, tables and the drawing of its ranks."""
    job_counts = compute_counts(filled)
    tables = html.Div(
        [build_memory_section(filled, job_counts), build_collectives_section(job_counts)],
        className="wl-tables",
    )
    drawn = build_drawing(filled.of.layout) if filled.of else build_counts_drawing(job_counts)
    return (
        build_verdict(filled, job_counts),
        merge_static_parts(build_facts(filled, job_counts)),
        merge_static_parts(tables),
        drawn,
    )


# ---------------------------------------------------------------------------------------------------
# What follows from the form


@callback(
    output={
        "said": Output({"workload-said": ALL}, "children"),
        "wrong": Output({"workload": ALL}, "error"),
        "hints": Output({"workload": ALL}, "placeholder"),
        "set": Output({"workload-set": ALL}, "children"),
        "shape": Output("workload-shape", "hidden"),
        "form": Output("workload-form", "className"),
        "verdict": Output("workload-verdict", "children"),
        "facts": Output("workload-facts", "children"),
        "tables": Output("workload-tables", "children"),
        "drawing": Output("workload-drawing", "data"),
        "stale": Output("workload-side", "className"),
        "asked": Output("workload-asked", "data"),
        "text": Output("workload-text", "data"),
        "make": Output("workload-make", "disabled"),
        "simulate": Output("workload-simulate", "disabled"),
        "plan": Output("workload-plan-go", "disabled"),
    },
    inputs={
        "values": Input({"workload": ALL}, "value"),
        "file": Input("workload-config", "data"),
        "ids": State({"workload": ALL}, "id"),
        "places": State({"workload-said": ALL}, "id"),
        "before": State("workload-asked", "data"),
    },
)
def follow(
    values: list[Any], file: File | None, ids: list[dict[str, str]], places: list[dict[str, str]], before: Any
) -> dict[str, Any]:
    """Show the results of the form, and errors beside their fields."""
    fields = collect_fields(ids, values)
    if fields["model"] == CUSTOM:
        fields = _with_shape(fields, before)
    filled = parse_form(fields, file)
    wrong: Wrong = {} if isinstance(filled, Filled) else filled
    keys = [component["workload"] for component in ids]
    about = {
        component["workload-said"]: _build_message(wrong.get(component["workload-said"]))
        for component in places
    }
    if "" in wrong:
        about["model"] = [about["model"], _build_message(wrong[""])]
    common = {
        "said": list(about.values()),
        "wrong": [key in wrong for key in keys],
        "set": [describe_set_fields(heading, fields) for heading in FOLDED],
        "shape": fields["model"] != CUSTOM,
        "form": build_form_class(fields),
        "text": spell(fields),
        "make": bool(wrong),
        "simulate": bool(wrong),
        "plan": not isinstance(filled, Filled) or filled.memory_bytes is None or filled.of is None,
    }
    if not isinstance(filled, Filled):
        stays = dict.fromkeys(("verdict", "facts", "tables", "drawing"), no_update)
        return {
            **common,
            **stays,
            "hints": [no_update] * len(keys),
            "stale": "wl-side wl-stale",
            "asked": None,
        }
    shown = dict(zip(("verdict", "facts", "tables", "drawing"), _show_job(filled), strict=True))
    hints = list_placeholders(filled, keys)
    return {**common, **shown, "hints": hints, "stale": "wl-side", "asked": fields}


def _with_shape(fields: dict[str, str], before: Any) -> dict[str, str]:
    """Return the form of a custom model: with the numbers of the model before, where none is given yet."""
    filled = parse_form(before, None) if before else None
    copied = copy_shape(fields, filled.of.model) if isinstance(filled, Filled) and filled.of else {}
    for key, text in copied.items():
        dash.set_props(build_control_id(key), {"value": text})
    return {**fields, **copied}


def _build_message(error: ConfigError | None) -> Any:
    if error is None:
        return None
    return [
        html.Span(error.message, className="cs-level-error"),
        " ",
        html.Span(error.hint, className="cs-dim"),
    ]


@callback(
    Output("workload-times", "children"), Input("workload-settled", "data"), State("workload-config", "data")
)
@show_errors
def estimate(asked: Fields | None, file: File | None) -> Any:
    """Simulate a step where that takes about a second."""
    filled = parse_form(asked, file) if asked else None
    return (
        merge_static_parts(build_times(filled, compute_counts(filled)))
        if isinstance(filled, Filled)
        else merge_static_parts(build_waiting_times())
    )


@callback(
    Output("workload-beside", "children"),
    Input("view", "data"),
    Input("workload-asked", "data"),
    State("workload-config", "data"),
)
def describe_open_job(view: dict[str, Any], asked: Fields | None, file: File | None) -> Any:
    """Say that the job in the bar is the one of the form, or offer to compare with it."""
    job, filled = view.get("job"), parse_form(asked, file) if asked else None
    if not job or not isinstance(filled, Filled):
        return None
    try:
        info, run = get_workspace().info(job), choose_shown_run(get_session(), job, view)
        is_this = info.fingerprint == filled.wanted.mark
        words = _describe_made_job(info) if is_this else []
        if run is None or filled.wanted.gpu is None or (is_this and _is_this_run(job, run, filled)):
            return html.P(words)
        shown = "as recorded" if not run else _describe_run(job, run)
    except StudioError:
        return None  # the frame says what is wrong with the job
    button = html.Button(
        "Simulate and compare",
        className="cs-button",
        **build_click_request(WORKLOADS, "compare", f"{job}/{run or RECORDED}"),
    )
    other = [] if is_this else [_link_job(info), " · "]
    return html.P([*words, button, html.Span(["with ", *other, html.Span(shown, className="cs-dim")])])


def _describe_made_job(info: JobInfo) -> list[Any]:
    summary = info.summary
    size = f" · {format_counted(summary.ranks, 'rank')}, {format_counted(summary.nodes, 'node')}"
    return [html.Span(["Made: ", _link_job(info), html.Span(size, className="cs-dim")])]


def _link_job(info: JobInfo) -> Any:
    return dcc.Link(html.Bdi(info.name), href=build_address("/overview", {"job": info.id}))


def _is_this_run(job: str, run: str, filled: Filled) -> bool:
    """Whether a run is what simulating the job of the form would give."""
    assert filled.wanted.gpu is not None
    system = find_system(filled.wanted.gpu, filled.wanted.ranks)
    return bool(run) and uses_system(get_workspace().run_info(job, run), *system, get_session())


def _describe_run(job: str, run: str) -> str:
    info = get_workspace().run_info(job, run)
    return f"{info.label}, {format_ns(info.makespan_ns)}"


@callback(
    Output("workload-config", "data"),
    Output("workload-error", "children"),
    Input("workload-upload", "contents"),
    State("workload-upload", "filename"),
    prevent_initial_call=True,
)
def take_file(contents: str | None, name: str | None) -> Any:
    """Take the model of a config.json."""
    if not contents:
        return no_update, no_update
    try:
        text = read_upload(contents).decode("utf-8")
        parse_config_model(name or "config.json", text)
    except ConfigError as error:
        problem = ConfigError(replace_options(error.message), hint=replace_options(error.hint))
        return no_update, build_error_box(problem, title="This file describes no model that can be made")
    except ValueError:
        return no_update, build_error_box(
            ConfigError(f"{(name or '')[:80]}: no text.", hint="A config.json is JSON, in UTF-8."),
            title="This file describes no model",
        )
    dash.set_props(build_control_id("model"), {"value": FILE})
    return {"name": name or "config.json", "text": text}, None


@callback(Output(build_control_id("model"), "data"), Input("workload-config", "data"))
def list_models(file: File | None) -> Any:
    """List the models that can be chosen."""
    return list_model_choices(file["name"][:60] if file else "")


# ---------------------------------------------------------------------------------------------------
# Making a job


@callback(
    Output("workload-error", "children", allow_duplicate=True),
    Output("workload-making", "data"),
    Output("workload-made", "data"),
    build_answer_output(WORKLOADS),
    Input(WORKLOADS, "data"),
    State({"workload": ALL}, "value"),
    State({"workload": ALL}, "id"),
    State("workload-config", "data"),
    prevent_initial_call=True,
)
def change(asked: Asked | None, values: list[Any], ids: list[dict[str, str]], file: File | None) -> Any:
    """Make the job of the form and open, simulate or compare it; or take over what is proposed."""
    if not asked:
        return [no_update] * 4
    fields, done = collect_fields(ids, values), acknowledge_request(WORKLOADS, asked)
    if asked["verb"] in ("set", "stop", "plan"):
        _carry_out(asked, fields, file)
        return None, None if asked["verb"] == "stop" else no_update, no_update, done
    try:
        making = start(parse_form(fields, file), asked)
        until = time.monotonic() + _AT_ONCE_S
        while not (reached := advance(making)) and time.monotonic() < until:
            time.sleep(_LOOK_S)
    except StudioError as error:
        return build_error_box(error, title="The job was not made"), None, no_update, done
    if not reached and making.get("simulation") and making["then"] == "simulate":
        reached = build_simulate_link(making)  # Simulate shows how far it is
    if making.get("job"):
        dash.set_props("imported", {"data": time.time()})
    else:
        list_tasks_again()
    if not reached:
        return None, making, no_update, done
    if making["then"] == "open":
        return None, None, reached, done
    return None, None, no_update, acknowledge_request(WORKLOADS, asked, go=reached)


def _carry_out(asked: Asked, fields: Fields, file: File | None) -> None:
    """Take over what is proposed, end a task, or look for the best layout."""
    if asked["verb"] == "stop":
        cancel(get_tasks(), asked["of"])
    elif asked["verb"] == "plan":
        _start_search(fields, file)
    else:
        for part in asked["of"].split(" "):
            key, _, value = part.partition("=")
            dash.set_props(build_control_id(key), {"value": value})


@callback(
    Output("workload-progress", "children"),
    Output("workload-error", "children", allow_duplicate=True),
    Output("workload-making", "data", allow_duplicate=True),
    Output("workload-made", "data", allow_duplicate=True),
    Output(f"{WORKLOADS}-answered", "data", allow_duplicate=True),
    Input("workload-making", "data"),
    build_ticks_input("workloads"),
    build_tasks_input("workloads"),
    prevent_initial_call=True,
)
def watch(making: Making | None, _tick: int | None, _known: str | None) -> Any:
    """Say how far the job is that is being made, and go on once it is there."""
    if not making:
        return None, no_update, no_update, no_update, no_update
    had_job = "job" in making
    try:
        reached = advance(making)
    except StudioError as error:
        return None, build_error_box(error, title="The job was not made"), None, no_update, no_update
    if "job" in making and not had_job:
        dash.set_props("imported", {"data": time.time()})
    if not reached:
        return (
            _build_progress(making),
            None,
            making if not had_job and "job" in making else no_update,
            no_update,
            no_update,
        )
    if making["then"] == "open":
        return None, None, None, reached, no_update
    return None, None, None, no_update, {"store": WORKLOADS, "number": 0, "go": reached}


def _build_progress(making: Making) -> Any:
    if "job" in making:
        return html.P("Simulating it…")
    task = get(get_tasks(), making["task"])
    return build_progress_line(WORKLOADS, making["task"], task.phase if task else "")


# ---------------------------------------------------------------------------------------------------
# The best layout


def _start_search(fields: Fields, file: File | None) -> None:
    """Look for the best layout of a form."""
    filled = parse_form(fields, file)
    if isinstance(filled, Filled):
        task = start_planning(get_tasks(), get_session(), best.build_search(filled))
        dash.set_props("workload-plan", {"data": {"task": task.id, "fields": fields}})
        list_tasks_again()


@callback(
    Output("workload-plan-said", "children"),
    Output("workload-plan-found", "children"),
    Output("workload-plan-shown", "data"),
    Input("workload-plan", "data"),
    build_ticks_input("workloads"),
    build_tasks_input("workloads"),
    Input("theme", "data"),
    State("workload-plan-shown", "data"),
    State("workload-config", "data"),
)
def show_plan(
    plan: dict[str, Any] | None,
    _tick: Any,
    _known: Any,
    theme: str,
    shown: list[Any] | None,
    file: File | None,
) -> Any:
    """Say how far the search for the best layout is, and show what it found."""
    if not plan:
        return None, no_update, no_update
    task = get(get_tasks(), plan["task"])
    if task is not None and task.status in ACTIVE:
        return best.build_progress(task, get_tasks().now()), no_update, no_update
    filled = parse_form(plan["fields"], file)
    layouts = get_plan(get_session(), best.build_search(filled)) if isinstance(filled, Filled) else None
    if layouts is None:
        why = task.error if task else None
        error = StudioError(replace_options(why.message), hint=replace_options(why.hint)) if why else None
        return build_error_box(error, title="No layout was found") if error else None, None, None
    mark = [plan["task"], theme]
    if mark == shown:
        return None, no_update, no_update
    return None, best.build_results(layouts, dark=theme == "dark"), mark


clientside_callback(
    ClientsideFunction("studio_workloads", "settle"),
    Output("workload-settled", "data"),
    Input("workload-asked", "data"),
    prevent_initial_call=True,
)
for _name, _output, _input in (
    ("draw", "title", "workload-drawing"),
    ("remember", "lang", "workload-text"),
    ("open", "dir", "workload-made"),
):
    clientside_callback(
        ClientsideFunction("studio_workloads", _name), Output("workload-sync", _output), Input(_input, "data")
    )
