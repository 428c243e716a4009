"""The Ranks page: which ranks of a job were recorded, how to complete it, and how to scale it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
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

from studio.analysis.job.completeness import Completeness, infer_completeness
from studio.completion.layout import parse_layout_file
from studio.completion.mesh import Mesh, parse_layout
from studio.completion.rules import select_applying_rules, select_rules
from studio.completion.scale import DATA, scale_mesh
from studio.errors import ConfigError, StudioError
from studio.figures.mesh import Cell, build_assumed_cell, describe_directions, draw_mesh
from studio.generation.recipe import find_unchanged_recipe
from studio.jobs.completing import (
    Scaling,
    collect_layout_facts,
    find_unreadable,
    start_completing,
    start_scaling,
)
from studio.pages.base.asked import (
    RANKS,
    Asked,
    acknowledge_request,
    build_answer_output,
    build_click_request,
    build_stores,
)
from studio.pages.base.followed import build_tasks_input, build_ticks_input, follow_tasks, list_tasks_again
from studio.pages.base.jobs_made import build_progress_line, find_made_job
from studio.pages.base.rank_words import (
    build_lost_line,
    build_origin_line,
    describe_present_ranks,
    describe_whole_job,
    name_known_rank,
)
from studio.pages.base.state import get_session, get_tasks, get_trace, get_workspace
from studio.pages.base.still import merge_static_parts
from studio.pages.base.widgets import (
    build_address,
    build_error_box,
    build_loading,
    build_no_job_notice,
    build_page,
    read_upload,
    show_errors,
)
from studio.pages.ranks.form import (
    Fields,
    build_advanced_fold,
    build_completing_fields,
    build_control_id,
    build_dimension_fields,
    build_drawing_place,
    build_evidence_table,
    build_file_button,
    build_labelled_controls,
    build_layout_fields,
    build_legend,
    build_question,
    build_rules_table,
    build_scale_controls,
    build_scaling_fields,
    build_text_field,
    format_dimensions,
    format_file,
    parse_completing,
    parse_scaling,
    parse_whole_number,
    read_form,
    write_form,
)
from studio.pages.ranks.words import describe_plan
from studio.store.job_infos import JobInfo
from studio.store.tasks import cancel, get, wait
from studio.units import format_counted
from studio.views.ranks import (
    Layouts,
    Planned,
    build_layout_mesh,
    describe_also_fitting,
    index_sources,
    is_kept,
    list_layouts,
    plan_completion,
    plan_scaling,
)

dash.register_page(__name__, path="/ranks", name="Ranks", title="Ranks · Chakra Studio", order=1.5)

_AT_ONCE_S = 2.0
"""How long the page waits for a job to be made; after that it goes on in the background."""
_AFTER_STAYS = (
    ("rk-kept", "ranks there were before"),
    ("rk-assumed", "ranks that are added; below each rank the one whose graph it gets"),
)
_ASSUMED = ("rk-assumed", "assumed; below, the rank it is equal to")
_OPEN = ("rk-open", "not here")


def layout(**_query: str) -> Any:
    """Return the page; its content follows the view."""
    return html.Div(
        [
            html.Div(
                [html.Div(id="ranks-error"), html.Div(id="ranks-progress", role="status")], className="rk-top"
            ),
            html.Div(build_page("Ranks", build_loading("Reading the job…")), id="ranks-body"),
            build_stores(RANKS),
            follow_tasks("ranks"),
            dcc.Store(id="ranks-shown"),
            dcc.Store(id="ranks-drawings"),
            dcc.Store(id="ranks-making"),
            dcc.Store(id="ranks-form"),
            html.Div(id="ranks-sync", hidden=True),
        ]
    )


@callback(
    Output("ranks-body", "children"),
    Output("ranks-shown", "data"),
    Input("view", "data"),
    State("ranks-shown", "data"),
)
def show(view: dict[str, Any], shown: str | None) -> Any:
    """Show the ranks of the view's job; what is typed stays while the job does."""
    job = view.get("job") or ""
    if shown is not None and shown == job:
        return no_update, no_update
    return show_job(job, view.get("form") or ""), job


@show_errors
def show_job(job: str, form: str) -> Any:
    """Return the content of the page for a job, with the form as the address says."""
    if not job:
        return build_no_job_notice()
    info, known = get_workspace().info(job), get_trace(job)
    here = infer_completeness(known)
    try:
        layouts = list_layouts(collect_layout_facts(known))
    except StudioError as error:
        why = html.P(_describe_presence(here, known), className="rk-ask")
        return build_page(
            "Ranks",
            build_lost_line(known, job),
            build_origin_line(info),
            why,
            build_error_box(error, title="The ranks form no mesh"),
        )
    word = name_known_rank(known)
    if here.is_whole:
        parts = _build_scale_form(layouts, word, form)
    else:
        likely = layouts.fitting[0].layout if layouts.fitting else f"dp={max(here.world, 2)}"
        begun = build_completing_fields(likely)
        damaged = find_unreadable(known) is not None
        parts = [
            dcc.Store(id="ranks-begun", data=begun),
            *_build_complete_form(layouts, word, read_form(form, begun), is_damaged=damaged),
        ]
    head = [
        build_lost_line(known, job),
        build_origin_line(info),
        html.P(_describe_presence(here, known), className="rk-ask"),
    ]
    if not here.is_whole:
        head.append(html.P(here.sentence(), className="cs-dim"))
    return build_page("Ranks", *head, *parts, controls=_build_links(info, here))


def _describe_presence(here: Completeness, known: Any) -> str:
    return describe_whole_job(known) if here.is_whole else f"{describe_present_ranks(here)} Complete the job?"


def _build_links(info: JobInfo, here: Completeness) -> list[Any]:
    keep = {"job": info.id}
    simulate = dcc.Link("Simulate it", href=build_address("/simulate", keep), className="cs-button")
    return [
        html.Bdi(info.name, className="cs-dim rk-name"),
        html.Span(style={"flex": 1}),
        *([simulate] if here.is_whole else []),
        dcc.Link("Overview", href=build_address("/overview", keep), className="cs-button"),
    ]


def _build_make_line(verb: str, *fields: Any) -> list[Any]:
    """Return the fields beside the button, the button, and what is said below."""
    button = html.Button(
        "Make the job",
        id="ranks-make",
        className="cs-button cs-ask-button rk-make",
        disabled=True,
        **build_click_request(RANKS, verb),
    )
    return [
        html.Div([*fields, button], className="rk-line"),
        html.Div(id="ranks-said", className="rk-said", role="status"),
    ]


def _build_complete_form(layouts: Layouts, word: str, fields: Fields, *, is_damaged: bool) -> list[Any]:
    return [
        html.Div(build_question(layouts.fitting, layouts.why, fields["layout"]), id="ranks-question"),
        *_build_make_line("complete", *build_layout_fields(fields["layout"]), build_file_button()),
        build_drawing_place(
            "ranks-before", "Ranks of the whole job", build_legend(("rk-recorded", word), _ASSUMED, _OPEN)
        ),
        html.Div(id="ranks-evidence", className="cs-section"),
        build_advanced_fold(fields, is_damaged=is_damaged),
        html.Div(id="ranks-rules", hidden=True),
    ]


def _build_scale_form(layouts: Layouts, word: str, form: str) -> list[Any]:
    mesh = layouts.fitting[0] if layouts.fitting else Mesh.of([(DATA, max(layouts.world, 1))])
    data = mesh.axis(DATA)
    begun = build_scaling_fields(mesh, data.size if data else 1)
    fields = read_form(form, begun)
    return [
        dcc.Store(id="ranks-begun", data=begun),
        html.H2("Scale it"),
        *_build_make_line(
            "scale",
            build_labelled_controls(
                "Ranks",
                "",
                build_text_field("ranks", "Ranks of the larger job", fields["ranks"], 84),
            ),
            html.Span("or", className="cs-dim"),
            build_labelled_controls(
                "data-parallel replicas", _REPLICAS, build_text_field("dp", "Replicas", fields["dp"], 84)
            ),
            *build_scale_controls(mesh, fields),
        ),
        html.Div(
            [
                build_drawing_place("ranks-before", "Before", build_legend(("rk-recorded", word), _ASSUMED)),
                build_drawing_place("ranks-after", "After", build_legend(*_AFTER_STAYS)),
            ],
            className="rk-beside",
        ),
        html.H2("The layout as it is"),
        html.Div(build_question(layouts.fitting, layouts.why, fields["layout"]), id="ranks-question"),
        html.Div(build_layout_fields(fields["layout"]), className="rk-line"),
        html.Div(id="ranks-evidence", className="cs-section"),
        html.Div(id="ranks-rules"),
    ]


_REPLICAS = "How many times the model is there."


# ---------------------------------------------------------------------------------------------------
# What follows from the form


@callback(
    Output("ranks-dims", "children"),
    Output("ranks-said", "children"),
    Output("ranks-evidence", "children"),
    Output("ranks-drawings", "data"),
    Output("ranks-make", "disabled"),
    Output("ranks-make", "children"),
    Output("ranks-rules", "children"),
    Output("ranks-form", "data"),
    Input({"ranks": ALL}, "value"),
    State({"ranks": ALL}, "id"),
    State("ranks-shown", "data"),
    State("ranks-begun", "data"),
    prevent_initial_call=True,
)
def follow(
    values: list[Any], ids: list[dict[str, str]], job: str | None, begun: dict[str, str] | None
) -> Any:
    """Draw the mesh that the form describes, show the errors of its fields, and keep them in the address."""
    fields = _collect_fields(ids, values)
    if not job or "layout" not in fields:
        return [no_update] * 8
    touched = {control["ranks"] for control in _list_touched()}
    if any(name.startswith(("name-", "size-")) for name in touched) and "layout" not in touched:
        fields["layout"] = format_dimensions(fields)
        dash.set_props(build_control_id("layout"), {"value": fields["layout"]})
    try:
        shown = _show_valid(job, fields, touched)
    except StudioError as error:
        shown = _show_errors(job, fields, error)
    return [*shown, write_form(fields, begun or {})]


def _list_touched() -> list[dict[str, str]]:
    return [control for control in dash.ctx.triggered_prop_ids.values() if isinstance(control, dict)]


def _collect_fields(ids: Sequence[dict[str, str]], values: Sequence[Any]) -> dict[str, str]:
    """Return the texts of the controls by name; of a list whether something is in it."""
    return {
        control["ranks"]: ("yes" if value else "") if isinstance(value, list) else str(value or "")
        for control, value in zip(ids, values, strict=True)
    }


def _show_valid(job: str, fields: dict[str, str], touched: set[str]) -> Any:
    """Return what the form shows where all in it is right.

    Raises:
        StudioError: It is not.
    """
    known = get_trace(job)
    here, word = infer_completeness(known), name_known_rank(known)
    after: dict[str, Any] | None = None
    rules: Any = no_update
    if here.is_whole:
        mesh, larger, wanted, plan = _plan_scaling(job, fields, touched)
        sources = index_sources(known)
        before = _build_drawing(mesh, lambda rank: build_assumed_cell(rank, sources.get(rank), word), ())
        first_new = next((rank for rank in range(larger.world) if not is_kept(mesh, larger, rank)), None)
        shown = [] if first_new is None else [first_new]
        after = _build_drawing(
            larger, lambda rank: _build_after_cell(rank, plan, is_kept(mesh, larger, rank)), shown
        )
        generated = find_unchanged_recipe(known) is not None
        changes = select_rules(mesh, larger, strong=wanted.strong, layers=wanted.layers, generated=generated)
        rules = merge_static_parts(build_rules_table(select_applying_rules(changes, known, mesh)))
        words = f"Make the job of {format_counted(larger.world, 'rank')}"
        same = larger.world == mesh.world
        message: Any = "This is the job as it is: choose more ranks." if same else describe_plan(plan)
    else:
        plan = plan_completion(known, parse_completing(fields))
        mesh, same = plan.mesh, False
        before = _build_drawing(
            mesh, lambda rank: build_assumed_cell(rank, plan.source(rank), word), here.known
        )
        words = f"Make the job of {format_counted(mesh.world, 'rank')}"
        message = describe_plan(plan)
    evidence = merge_static_parts(
        build_evidence_table(mesh, describe_also_fitting(collect_layout_facts(known), mesh))
    )
    return (
        _build_dimension_fields(fields),
        message,
        evidence,
        {"before": before, "after": after},
        same,
        words,
        rules,
    )


def _plan_scaling(job: str, fields: dict[str, str], touched: set[str]) -> tuple[Mesh, Mesh, Scaling, Planned]:
    """Return the meshes before and after, what is asked for, and what would be made; ranks and replicas follow each other.

    Raises:
        StudioError: The numbers do not fit.
    """
    mesh = build_layout_mesh(collect_layout_facts(get_trace(job)), fields["layout"])
    by_replicas = "ranks" not in touched
    name, other = ("dp", "ranks") if by_replicas else ("ranks", "dp")
    number = parse_whole_number(fields, name)
    if number is None:
        raise ConfigError(
            f"no number of {'replicas' if by_replicas else 'ranks'} is given",
            hint="Enter a whole number from 1.",
        )
    wanted = parse_scaling(fields, number)
    larger = (
        scale_mesh(mesh, dp=number, pp=wanted.pp, ep=wanted.ep, tp=wanted.tp)
        if by_replicas
        else wanted.mesh(mesh)
    )
    wanted = replace(wanted, ranks=larger.world)
    replicas = larger.axis(DATA)
    follows = str(larger.world if by_replicas else replicas.size if replicas else 1)
    if fields[other] != follows:
        dash.set_props(build_control_id(other), {"value": follows})
    return mesh, larger, wanted, plan_scaling(get_trace(job), wanted, mesh, larger)


def _build_after_cell(rank: int, plan: Planned, was_there: bool) -> Cell:
    source = plan.source(rank)
    title = f"rank {rank}: has the graph of rank {source}"
    return Cell("rk-kept" if was_there else "rk-assumed", f"= {source}", title, is_hatched=not was_there)


def _show_errors(job: str, fields: dict[str, str], error: StudioError) -> Any:
    """Return the form's outputs when a field is invalid: its errors, and the mesh where the layout itself is valid."""
    here = infer_completeness(get_trace(job))
    box = build_error_box(error, title="This cannot be made")
    drawn, dims = None, no_update
    try:
        sizes = parse_layout(fields["layout"])
        mesh = Mesh.of(sizes)
        known = set(here.known)
        drawn = (
            _build_drawing(mesh, lambda rank: _build_known_cell(rank, known), here.known)
            if mesh.world < 1 << 20
            else None
        )
        dims = _build_dimension_fields(fields)
    except StudioError:
        pass  # The error that is shown says so.
    return dims, box, None, {"before": drawn, "after": None}, True, "Make the job", no_update


def _build_known_cell(rank: int, known: set[int]) -> Cell:
    return (
        Cell("rk-recorded", title=f"rank {rank}: here")
        if rank in known
        else Cell("rk-open", title=f"rank {rank}: not here")
    )


def _build_dimension_fields(fields: Fields) -> Any:
    """Return the fields of the dimensions; those that are typed into stay."""
    sizes = parse_layout(fields["layout"])
    shown = [(fields.get(f"name-{index}"), fields.get(f"size-{index}")) for index in range(len(sizes))]
    count = sum(name.startswith("size-") for name in fields)
    if count == len(sizes) and shown == [(name, str(size)) for name, size in sizes]:
        return no_update
    return build_dimension_fields(sizes)


def _build_drawing(mesh: Mesh, cell_of: Any, shown: Sequence[int]) -> dict[str, Any]:
    return {
        **asdict(draw_mesh(mesh, cell_of, shown)),
        "caption": " · ".join(filter(None, (mesh.layout, describe_directions(mesh)))),
    }


@callback(
    Output("ranks-file-said", "children"),
    Output("ranks-error", "children", allow_duplicate=True),
    Input("ranks-file", "contents"),
    State("ranks-file", "filename"),
    prevent_initial_call=True,
)
def take_file(contents: str | None, name: str | None) -> Any:
    """Take the layout of a file: its dimensions into the form, its comm groups for what is made."""
    if not contents:
        return no_update, no_update
    called = (name or "layout").replace("\n", " ")[:80]
    try:
        text = read_upload(contents).decode("utf-8")
        given = parse_layout_file(called, text)
    except ConfigError as error:
        return no_update, build_error_box(error, title="This file is no layout")
    except ValueError:
        return no_update, build_error_box(
            ConfigError(f"{called}: no text.", hint="A layout is YAML or JSON, in UTF-8."),
            title="This file is no layout",
        )
    dash.set_props(build_control_id("file"), {"value": format_file(called, text)})
    sizes = ",".join(f"{axis}={size}" for axis, size in given.sizes)
    dash.set_props(build_control_id("layout"), {"value": sizes})
    groups = len(given.members) + len(given.axes)
    return [html.Bdi(called), f": {format_counted(groups, 'comm group')}"], None


# ---------------------------------------------------------------------------------------------------
# Making a job


@callback(
    Output("ranks-error", "children"),
    Output("ranks-making", "data"),
    build_answer_output(RANKS),
    Input(RANKS, "data"),
    State({"ranks": ALL}, "value"),
    State({"ranks": ALL}, "id"),
    State("ranks-shown", "data"),
    prevent_initial_call=True,
)
def change(asked: Asked | None, values: list[Any], ids: list[dict[str, str]], job: str | None) -> Any:
    """Complete or scale the job and open the new one; or put another layout into the form."""
    if not asked or not job:
        return no_update, no_update, no_update
    if asked["verb"] == "layout":
        dash.set_props(build_control_id("layout"), {"value": asked["of"]})
        return None, no_update, acknowledge_request(RANKS, asked)
    if asked["verb"] == "stop":
        cancel(get_tasks(), asked["of"])
        return None, None, acknowledge_request(RANKS, asked)
    fields = _collect_fields(ids, values)
    try:
        if asked["verb"] == "complete":
            started = start_completing(get_tasks(), get_session(), job, parse_completing(fields))
        else:
            ranks = parse_whole_number(fields, "ranks")
            if ranks is None:
                raise ConfigError("no number of ranks is given", hint="Enter a whole number from 1.")
            started = start_scaling(get_tasks(), get_session(), job, parse_scaling(fields, ranks))
        task = wait(get_tasks(), started.id, _AT_ONCE_S)
        job_id = find_made_job(task)
    except StudioError as error:
        return build_error_box(error, title="The job was not made"), None, acknowledge_request(RANKS, asked)
    if job_id is None:
        list_tasks_again()
        return None, started.id, acknowledge_request(RANKS, asked)
    dash.set_props("imported", {"data": time.time()})
    return None, None, acknowledge_request(RANKS, asked, go=build_address("/ranks", {"job": job_id}))


@callback(
    Output("ranks-progress", "children"),
    Output("ranks-error", "children", allow_duplicate=True),
    Output("ranks-making", "data", allow_duplicate=True),
    Output(f"{RANKS}-answered", "data", allow_duplicate=True),
    Input("ranks-making", "data"),
    build_ticks_input("ranks"),
    build_tasks_input("ranks"),
    prevent_initial_call=True,
)
def watch(making: str | None, _tick: int | None, _known: str | None) -> Any:
    """Say how far the job is that is being made, and open it once it is there."""
    if not making:
        return None, no_update, no_update, no_update
    task = get(get_tasks(), making)
    try:
        job_id = find_made_job(task)
    except StudioError as error:
        return None, build_error_box(error, title="The job was not made"), None, no_update
    if job_id is None:
        assert task is not None
        return build_progress_line(RANKS, making, task.phase), None, no_update, no_update
    dash.set_props("imported", {"data": time.time()})
    go = {"store": RANKS, "number": 0, "go": build_address("/ranks", {"job": job_id})}
    return None, None, None, go


clientside_callback(
    ClientsideFunction("studio_ranks", "draw"),
    Output("ranks-sync", "title"),
    Input("ranks-drawings", "data"),
    prevent_initial_call=True,
)
clientside_callback(
    ClientsideFunction("studio_ranks", "remember"),
    Output("ranks-sync", "lang"),
    Input("ranks-form", "data"),
    prevent_initial_call=True,
)
