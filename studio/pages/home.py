"""Home: open traces, a sample, or a recent job."""

from __future__ import annotations

import time
from typing import Any

import dash
from dash import ALL, Input, Output, State, callback, ctx, dcc, html, no_update

from studio.errors import StudioError
from studio.opening import open_sample
from studio.pages._export import copied
from studio.pages._state import RECORDED, workspace
from studio.pages._widgets import error_box, exact, labelled, link, page
from studio.samples import SAMPLES
from studio.units import format_bytes, format_count, format_ns
from studio.workspace import JobInfo

dash.register_page(__name__, path="/", name="Home", title="Home · Chakra Studio", order=0)


def layout(**_query: str) -> Any:
    """Return the page; the lists are filled by callbacks."""
    drop = html.Div(
        [
            html.H2("Drop Chakra execution traces here"),
            html.P(
                "Files, folders or archives: <job>.<rank>.et with the comm group JSON beside them; PyTorch execution traces "
                "with their Kineto traces, which are linked; text workloads; timelines that simulators write.",
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
    return page(
        "Open a job",
        html.Div(drop, className="cs-section"),
        html.Div(id="home-uploads"),
        html.Div(id="home-error"),
        html.Div(
            [html.H2("Recent jobs"), html.Div(id="home-deleted", role="status"), html.Div(id="home-jobs")],
            className="cs-section",
        ),
        html.Div([html.H2("Samples"), html.Div(_samples(), className="cs-samples")], className="cs-section"),
        dcc.Store(id="home-renaming"),
        dcc.Store(id="home-refresh"),
        dcc.Location(id="home-go", refresh="callback-nav"),
    )


def _samples() -> list[Any]:
    return [
        html.Button(
            [html.Strong(sample.title), html.Span(sample.description, className="cs-dim")],
            id={"home-sample": sample.name},
            className="cs-sample",
        )
        for sample in SAMPLES
    ]


@callback(
    Output("home-go", "href"),
    Output("home-error", "children"),
    Input({"home-sample": ALL}, "n_clicks"),
    prevent_initial_call=True,
)
def open_a_sample(clicks: list[int | None]) -> Any:
    """Open the sample that was clicked."""
    if not any(clicks) or not ctx.triggered_id:
        return no_update, no_update
    try:
        return link("/overview", {"job": open_sample(workspace(), ctx.triggered_id["home-sample"])}), None
    except StudioError as error:
        return no_update, error_box(error, title="The sample could not be opened")


@callback(
    Output("home-jobs", "children"),
    Output("home-error", "children", allow_duplicate=True),
    Output("home-renaming", "data"),
    Output("home-deleted", "children"),
    Input("home-drop", "id"),
    Input("home-refresh", "data"),
    Input({"home-delete": ALL}, "n_clicks"),
    Input({"home-undo": ALL}, "n_clicks"),
    Input({"home-rename": ALL}, "n_clicks"),
    Input({"home-save": ALL}, "n_clicks"),
    Input({"home-name": ALL}, "n_submit"),
    State({"home-name": ALL}, "value"),
    State("home-renaming", "data"),
    prevent_initial_call="initial_duplicate",
)
def list_jobs(
    _mounted: str,
    _imported: str,
    _delete: list[Any],
    _undo: list[Any],
    _rename: list[Any],
    _save: list[Any],
    _submit: list[Any],
    names: list[str],
    renaming: str | None,
) -> Any:
    """Show the recent jobs, after carrying out what was asked of one of them."""
    problem = deleted = None
    trigger = ctx.triggered_id if isinstance(ctx.triggered_id, dict) and ctx.triggered[0]["value"] else {}
    try:
        if "home-delete" in trigger:
            name = workspace().info(trigger["home-delete"]).name
            workspace().delete(trigger["home-delete"])
            deleted = _deleted(trigger["home-delete"], name)
        elif "home-undo" in trigger:
            workspace().restore(trigger["home-undo"])
        elif "home-rename" in trigger:
            renaming = trigger["home-rename"]
        elif renaming and names and ("home-save" in trigger or "home-name" in trigger):
            workspace().rename(renaming, names[0])
            renaming = None
        if trigger:
            # The job switch in the frame lists the same jobs.
            dash.set_props("imported", {"data": time.time()})
    except StudioError as error:
        problem = error_box(error, title="That did not work")
    jobs = workspace().jobs()
    return _jobs_table(jobs, renaming), problem, renaming, deleted


def _deleted(job: str, name: str) -> Any:
    undo = html.Button("Undo", id={"home-undo": job}, className="cs-button-quiet")
    return html.P(
        [f"{name} was deleted. ", undo, html.Span("It can be taken back for a day.", className="cs-dim")]
    )


def _jobs_table(jobs: list[JobInfo], renaming: str | None) -> Any:
    if not jobs:
        return html.P("None yet. Drop traces above, or start with a sample.", className="cs-dim")
    head = ("Job", "Ranks", "Nodes", "Recorded span", "While reading", "On disk", "Imported", "")
    numeric = (1, 2, 3, 5)
    shown = html.Table(
        [
            html.Thead(
                html.Tr(
                    [
                        html.Th(name, scope="col", className="cs-num" if i in numeric else None)
                        for i, name in enumerate(head)
                    ]
                )
            ),
            html.Tbody([_job_row(job, job.id == renaming) for job in jobs]),
        ],
        className="cs-table cs-jobs",
    )
    return copied(shown, "the jobs")


def _job_row(job: JobInfo, renaming: bool) -> Any:
    summary, stored = job.summary, job.stored_bytes + job.runs_bytes
    name: Any = html.A(job.name, href=link("/overview", {"job": job.id}))
    if renaming:
        field = dcc.Input(
            id={"home-name": job.id}, value=job.name, className="cs-rename", maxLength=200, autoFocus=True
        )
        name = html.Span([field, html.Button("Save", id={"home-save": job.id}, className="cs-button-quiet")])
    lasted = summary.end_ns - summary.start_ns
    span = exact(format_ns(lasted), f"{lasted:,} ns") if summary.start_ns >= 0 else "–"
    actions = [
        *_compare(job),
        html.Button(
            "Rename",
            id={"home-rename": job.id},
            className="cs-button-quiet",
            **labelled(f"Rename {job.name}"),
        ),
        html.Button(
            "Delete",
            id={"home-delete": job.id},
            className="cs-button-quiet",
            **labelled(f"Delete {job.name}"),
        ),
    ]
    return html.Tr(
        [
            html.Td(name),
            html.Td(format_count(summary.ranks), className="cs-num"),
            html.Td(format_count(summary.nodes), className="cs-num"),
            html.Td(span, className="cs-num"),
            html.Td(_found(job)),
            html.Td(
                exact(format_bytes(stored), f"{stored:,} bytes{_runs(job)}"),
                className="cs-num",
            ),
            html.Td(time.strftime("%Y-%m-%d %H:%M", time.localtime(job.created))),
            html.Td(actions, className="cs-row-actions"),
        ]
    )


def _compare(job: JobInfo) -> list[Any]:
    """Return the button that takes a job into a comparison: its recording, else its newest run; none where it has neither."""
    run = RECORDED if job.summary.timed_nodes else ""
    if not run and job.runs:
        run = workspace().runs(job.id)[0].id
    what: dict[str, Any] = {"data-compare": f"{job.id}/{run}", "data-compare-name": job.name}
    about = labelled(f"Compare {job.name}")
    return [html.Button("Compare +", className="cs-button-quiet", **what, **about)] if run else []


def _runs(job: JobInfo) -> str:
    """Return what of a job's size its simulations take, in words."""
    noun = "simulation" if job.runs == 1 else "simulations"
    return f", {job.runs_bytes:,} of them {job.runs:,} {noun}" if job.runs else ""


def _found(job: JobInfo) -> Any:
    parts = [
        f"{count} {name}{'s' if count != 1 else ''}"
        for count, name in ((job.errors, "error"), (job.warnings, "warning"))
        if count
    ]
    level = "error" if job.errors else "warning"
    return (
        html.Span(", ".join(parts), className=f"cs-level-{level}")
        if parts
        else html.Span("none", className="cs-dim")
    )
