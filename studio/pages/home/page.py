"""The Home page: open traces, a sample, or a recent job."""

from __future__ import annotations

import time
from typing import Any

import dash
from dash import Input, Output, State, callback, dcc, html, no_update

from studio.errors import StudioError
from studio.jobs.checking import list_checked_jobs, start_check
from studio.jobs.counting import is_awaited, start_counting
from studio.jobs.importing import open_sample
from studio.pages.base.asked import (
    HOME,
    Asked,
    acknowledge_request,
    build_answer_output,
    build_click_request,
    build_stores,
)
from studio.pages.base.export import with_copy_button
from studio.pages.base.followed import (
    build_tasks_input,
    follow_tasks,
    follow_workspace,
    is_called_by_tasks,
    list_tasks_again,
    look_again,
)
from studio.pages.base.state import RECORDED, get_session, get_tasks, get_workspace
from studio.pages.base.widgets import (
    build_address,
    build_aria_label,
    build_breakable_name,
    build_error_box,
    build_page,
    build_rounded_value,
)
from studio.pages.home.words import describe_hypothetical
from studio.samples import SAMPLES
from studio.store.job_infos import JobInfo
from studio.units import format_bytes, format_count, format_counted, format_ns

dash.register_page(__name__, path="/", name="Home", title="Home · Chakra Studio", order=0)


def layout(**_query: str) -> Any:
    """Return the page; the lists are filled by callbacks."""
    drop = html.Div(
        [
            html.H2("Drop Chakra execution traces here"),
            html.P(
                "Files, folders or archives: <job>.<rank>.et with the comm group JSON beside them; PyTorch execution traces "
                "with their Kineto traces, which are linked, or Kineto, rocprof and JAX recordings alone; text workloads; timelines that "
                "simulators write.",
                className="cs-dim",
            ),
            html.Button("Choose files", id="home-pick-files", className="cs-button"),
            " ",
            html.Button("Choose a folder", id="home-pick-folder", className="cs-button"),
            html.P("Everything stays on this machine.", className="cs-dim"),
        ],
        id="home-drop",
        className="cs-drop",
    )
    return build_page(
        "Open a job",
        html.Div(drop, className="cs-section"),
        html.Div(id="home-uploads"),
        html.Div(id="home-error"),
        html.Div(
            [html.H2("Recent jobs"), html.Div(id="home-deleted", role="status"), html.Div(id="home-jobs")],
            id="home-recent",
            className="cs-section",
        ),
        html.Div(
            [
                html.H2("Begin without a trace of your own"),
                html.Div(_build_samples(), className="cs-samples"),
            ],
            className="cs-section",
        ),
        build_stores(HOME),
        follow_tasks("home"),
        follow_workspace("home"),
        dcc.Store(id="home-renaming"),
        dcc.Store(id="home-field"),
        dcc.Store(id="home-refresh"),
    )


def _build_samples() -> list[Any]:
    generated = dcc.Link(
        [
            html.Strong("No trace? Make a job from a model"),
            html.Span(
                "Name a model, a GPU and how many: memory, operations and the time of a step while you type, then a job like any other.",
                className="cs-dim",
            ),
        ],
        href="/workloads",
        className="cs-sample cs-sample-link",
    )
    samples = [
        html.Button(
            [html.Strong(sample.title), html.Span(sample.description, className="cs-dim")],
            className="cs-sample",
            **build_click_request(HOME, "open", sample.name),
        )
        for sample in SAMPLES
    ]
    return [generated, *samples]


@callback(
    Output("home-error", "children"),
    Output("home-renaming", "data"),
    Output("home-deleted", "children"),
    Output("home-refresh", "data"),
    build_answer_output(HOME),
    Input(HOME, "data"),
    prevent_initial_call=True,
)
def change(asked: Asked | None) -> Any:
    """Open a sample; rename, delete or restore a job."""
    if not asked:
        return [no_update] * 5
    job = asked["of"]
    address = renaming = deleted = problem = None
    try:
        if asked["verb"] == "open":
            job_id = open_sample(get_workspace(), job)
            start_check(get_tasks(), get_session(), job_id)
            address = build_address("/overview", {"job": job_id})
        elif asked["verb"] == "rename":
            renaming = job
        elif asked["verb"] == "save":
            get_workspace().rename(job, asked["text"])
        elif asked["verb"] == "restore":
            get_workspace().restore(job)
        elif asked["verb"] == "delete":
            name = get_workspace().info(job).name
            get_workspace().delete(job)
            deleted = _offer_undo(job, name)
        # The job switch in the frame lists the same jobs.
        dash.set_props("imported", {"data": time.time()})
    except StudioError as error:
        renaming = job if asked["verb"] == "save" else None
        title = "The sample could not be opened" if asked["verb"] == "open" else "That did not work"
        problem = build_error_box(error, title=title)
    return problem, renaming, deleted, time.time(), acknowledge_request(HOME, asked, go=address)


@callback(
    Output("home-jobs", "children"),
    Output("home-field", "data"),
    Input("home-drop", "id"),
    Input("home-refresh", "data"),
    build_tasks_input("home"),
    State("home-renaming", "data"),
    State("home-field", "data"),
)
def list_jobs(_mounted: str, _changed: Any, _activity: Any, renaming: str | None, shown: str | None) -> Any:
    """Show the recent jobs, with a field for the name of one that is renamed."""
    if renaming and renaming == shown and is_called_by_tasks():
        # A name is being typed. Where its field is not there yet, this call may take the place of the one that brings it.
        return no_update, no_update
    jobs = get_workspace().jobs()
    list_tasks_again(began=start_counting(get_tasks(), get_session(), jobs))
    return _build_jobs_table(jobs, renaming), renaming


def _offer_undo(job: str, name: str) -> Any:
    undo = html.Button("Undo", className="cs-button-quiet", **build_click_request(HOME, "restore", job))
    return html.P(
        [f"{name} was deleted. ", undo, html.Span("You can undo this for a day.", className="cs-dim")]
    )


def _build_jobs_table(jobs: list[JobInfo], renaming: str | None) -> Any:
    if not jobs:
        return html.P("None yet. Drop traces above, or start with a sample.", className="cs-dim")
    head = ("Job", "Ranks", "Nodes", "Recorded span", "Findings", "On disk", "Imported", "")
    numeric = (1, 2, 3, 5)
    checking = list_checked_jobs(get_tasks())
    shown = html.Table(
        [
            html.Thead(
                html.Tr(
                    [
                        html.Th(name, scope="col", className="cs-num" if i in numeric else None)
                        if name
                        else html.Td()
                        for i, name in enumerate(head)
                    ]
                )
            ),
            html.Tbody([_build_job_row(job, job.id == renaming, checking) for job in jobs]),
        ],
        className="cs-table cs-jobs",
    )
    return with_copy_button(shown, "the jobs")


def _build_job_row(job: JobInfo, renaming: bool, checking: frozenset[str]) -> Any:
    summary, stored = job.summary, job.stored_bytes + job.runs_bytes
    name: Any = dcc.Link(build_breakable_name(job.name), href=build_address("/overview", {"job": job.id}))
    if renaming:
        field = dcc.Input(value=job.name, className="cs-rename", maxLength=200, autoFocus=True)
        name = html.Span(
            [
                field,
                html.Button("Save", className="cs-button-quiet", **build_click_request(HOME, "save", job.id)),
            ],
            className="cs-renaming",
        )
    lasted = summary.end_ns - summary.start_ns
    span = build_rounded_value(format_ns(lasted), f"{lasted:,} ns") if summary.start_ns >= 0 else "–"
    if is_awaited(get_session(), job):
        span = html.Span(
            "…",
            title="Being counted again: a recording ends when its last operator returns",
            className="cs-dim",
        )
    actions = [
        *_build_compare_button(job),
        html.Button(
            "Rename",
            className="cs-button-quiet",
            **build_click_request(HOME, "rename", job.id),
            **build_aria_label(f"Rename {job.name}"),
        ),
        html.Button(
            "Delete",
            className="cs-button-quiet",
            **build_click_request(HOME, "delete", job.id),
            **build_aria_label(f"Delete {job.name}"),
        ),
    ]
    return html.Tr(
        [
            html.Td([name, *describe_hypothetical(job)]),
            html.Td(_format_ranks(job), className="cs-num"),
            html.Td(format_count(summary.nodes), className="cs-num"),
            html.Td(span, className="cs-num"),
            html.Td(
                dcc.Link(_count_findings(job, checking), href=build_address("/findings", {"job": job.id}))
            ),
            html.Td(
                build_rounded_value(
                    format_bytes(stored), f"{format_counted(stored, 'byte')}{_describe_runs_size(job)}"
                ),
                className="cs-num",
            ),
            html.Td(time.strftime("%Y-%m-%d %H:%M", time.localtime(job.created))),
            html.Td(actions, className="cs-row-actions"),
        ]
    )


def _format_ranks(job: JobInfo) -> str:
    """Return how many ranks are known, and of how many where some are missing."""
    known = format_count(job.summary.ranks)
    return (
        f"{known} of {format_count(job.world) if job.world > 0 else 'an unknown number'}"
        if job.world
        else known
    )


def _build_compare_button(job: JobInfo) -> list[Any]:
    """Return a button that adds a job to a comparison: its recording, else its newest run; [] if it has neither."""
    run = RECORDED if job.summary.timed_nodes else ""
    if not run and job.runs:
        run = get_workspace().runs(job.id)[0].id
    what: dict[str, Any] = {"data-compare": f"{job.id}/{run}", "data-compare-name": job.name}
    about = build_aria_label(f"Compare {job.name}")
    return [html.Button("Compare +", className="cs-button-quiet", **what, **about)] if run else []


def _describe_runs_size(job: JobInfo) -> str:
    """Say how much of a job's size its runs take."""
    noun = "simulation" if job.runs == 1 else "simulations"
    return f", {job.runs_bytes:,} of them {job.runs:,} {noun}" if job.runs else ""


def _count_findings(job: JobInfo, checking: frozenset[str]) -> Any:
    """Say how many errors and warnings a job has; before it was checked those of reading its files."""
    levels = get_session().levels_found(job.id)
    known = levels or {"error": job.errors, "warning": job.warnings}
    parts = [
        f"{count} {level}{'s' if count != 1 else ''}"
        for level, count in known.items()
        if count and level != "info"
    ]
    worst = "error" if known["error"] else "warning"
    shown = html.Span(", ".join(parts), className=f"cs-level-{worst}") if parts else None
    if levels is not None:
        return shown or html.Span("none", className="cs-dim")
    words = "being checked" if job.id in checking else "not checked yet"
    return html.Span([shown, " · " if shown else None, html.Span(words, className="cs-dim")])


look_again("home")
