"""The Overview page: what a job consists of, and where its time goes."""

from __future__ import annotations

import time
from typing import Any

import dash
from dash import Input, Output, callback, dcc, html, no_update

from studio.analysis.collectives.groups import group_use, shared_use
from studio.analysis.job.completeness import Completeness, completeness, is_recording
from studio.analysis.job.files import files_of
from studio.analysis.job.summary import Summary, count_unsized
from studio.analysis.job.type_times import type_times
from studio.doctor import CHECKS
from studio.errors import StudioError
from studio.figures.groups import group_matrix
from studio.jobs.checking import start_check
from studio.pages.base.export import exports
from studio.pages.base.figures import reserved
from studio.pages.base.state import session, tasks, workspace
from studio.pages.base.still import still
from studio.pages.base.widgets import exact, findings_list, link, loading, no_job, page, show_errors, term
from studio.pages.collectives.groups import count_left_out, matrix_figure
from studio.pages.overview.files import files_section
from studio.pages.overview.operators import operators_place
from studio.pages.overview.times import times_panel, times_skeleton
from studio.pages.overview.words import (
    collectives_table,
    imported_from,
    recorded_times_of,
    types_table,
    use_table,
)
from studio.store.runs import RunInfo
from studio.store.workspace import JobInfo
from studio.units import format_count, format_ns, format_si
from studio.views.address import shown_run

dash.register_page(__name__, path="/overview", name="Overview", title="Overview · Chakra Studio", order=1)

_FINDINGS_SHOWN = 6


def layout(**_query: str) -> Any:
    """Return the page; its content follows the view."""
    return html.Div(loading("Reading the job…"), id="overview-body")


@callback(Output("overview-body", "children"), Input("view", "data"), Input("theme", "data"))
@show_errors
def show(view: dict[str, Any], theme: str) -> Any:
    """Show the job of the view."""
    if not view.get("job"):
        return no_job()
    info = workspace().info(view["job"])
    trace = session().trace(view["job"])
    summary = info.summary
    (use, alone), run = shared_use(group_use(trace)), shown_run(session(), view["job"], view)
    simulated = _run_info(info.id, run)
    figure = group_matrix(use, dark=theme == "dark")
    shown = page(
        info.name,
        _facts(summary, simulated, completeness(trace)),
        _missing_ranks(completeness(trace), is_recording(trace), view),
        dcc.Store(id="overview-shown", data=[view["job"], run, theme]),
        html.Div(
            None if run is None else times_skeleton(),
            id="overview-times",
            className="cs-overview-times",
        ),
        html.Div(
            [
                html.Div(
                    [
                        html.H2("Nodes by type"),
                        html.Div(
                            reserved(types_table(summary, recorded_times_of(summary)))
                            if simulated
                            else types_table(summary),
                            id="overview-types",
                        ),
                    ],
                    className="cs-section",
                ),
                html.Div(
                    [html.H2("Communication by type"), collectives_table(summary, count_unsized(trace))],
                    className="cs-section",
                ),
            ],
            className="cs-columns cs-columns-wide" if simulated and summary.duration_ns else "cs-columns",
        ),
        html.Div(
            [
                html.Div(
                    [
                        html.H2(["Which ranks communicate in which groups", term("comm group", "")]),
                        exports("groups-and-ranks", figure="overview-groups", table=use_table(use))
                        if figure
                        else None,
                    ],
                    className="cs-figure-head",
                ),
                matrix_figure("overview-groups", figure, use),
                count_left_out(alone),
            ],
            className="cs-section",
        ),
        html.Div(
            [
                html.H2("Findings"),
                html.Div(loading("Checking the job…"), id="overview-findings"),
            ],
            className="cs-section",
        ),
        files_section(files_of(trace)),
        operators_place(),
        controls=_next(info, view),
    )
    return still(shown)


@callback(
    Output("overview-findings", "children"), Input("overview-shown", "data"), Input("activity-known", "data")
)
@show_errors
def show_findings(shown: list[Any], _activity: str | None) -> Any:
    """Show the worst of what the Doctor and the readers found."""
    job = shown[0]
    href = link("/findings", {"job": job})
    examination = session().examination_made(job)
    if examination is None and job in session().unexamined:
        return html.P(
            [f"{session().unexamined[job].message} ", dcc.Link("Findings: check it again", href=href)]
        )
    if examination is None:
        if start_check(tasks(), session(), job):
            dash.set_props("activity-poke", {"data": time.time()})
        return loading("Checking the job…")
    if not examination.diagnoses:
        said: Any = html.P(f"No problems: {len(CHECKS)} checks ran, and the files were read without any.")
    else:
        said = findings_list(
            examination.diagnoses, most=_FINDINGS_SHOWN, rest="more are not shown here; Findings lists all."
        )
    return still(
        html.Div(
            [said, html.P(dcc.Link("Findings: what follows from each, what can be repaired", href=href))]
        )
    )


@callback(Output("overview-times", "children"), Input("overview-shown", "data"))
@show_errors
def show_times(shown: list[Any]) -> Any:
    """Show where the time goes; a callback of its own, since it reads every node."""
    job, run, theme = shown
    return still(times_panel(job, run, dark=theme == "dark"))


@callback(Output("overview-types", "children"), Input("overview-shown", "data"))
@show_errors
def show_types(shown: list[Any]) -> Any:
    """Show the times of each type in the shown run; a callback of its own, since it reads every node."""
    job, run, _ = shown
    if not _run_info(job, run):
        return no_update
    took = session().keep_of_job(
        f"types {run}", job, lambda: type_times(session().trace(job), session().times(job, run))
    )
    return still(types_table(workspace().info(job).summary, took))


def _run_info(job: str, run: str | None) -> RunInfo | None:
    """Return a run's metadata; None for the recording and for a run that does not exist."""
    try:
        return workspace().run_info(job, run) if run else None
    except StudioError:
        return None


def _next(info: JobInfo, view: dict[str, Any]) -> list[Any]:
    keep = {"job": view["job"]}
    return [
        imported_from(info.source),
        dcc.Link("See the graph", href=link("/graph", keep), className="cs-button"),
        dcc.Link("List the nodes", href=link("/nodes", keep), className="cs-button"),
    ]


def _missing_ranks(job: Completeness, recorded: bool, view: dict[str, Any]) -> Any:
    """Say which ranks are missing, and what can be done with the others."""
    if job.is_whole:
        return None
    return html.P(
        [
            html.Span("incomplete", className="cs-level cs-level-warning"),
            f" {job.sentence()} Every figure here is of the known ranks. ",
            dcc.Link("Replay them", href=link("/simulate", {"job": view["job"]})) if recorded else None,
        ],
        className="cs-dim",
    )


def _facts(summary: Summary, run: RunInfo | None, job: Completeness) -> Any:
    span = "none recorded" if summary.start_ns < 0 else format_ns(summary.end_ns - summary.start_ns)
    span_exact = (
        f"{summary.start_ns:,} to {summary.end_ns:,} ns"
        if summary.start_ns >= 0
        else "no node has a start time"
    )
    facts = [
        (
            term("rank", "ranks"),
            exact(format_count(summary.ranks), summary.ranks)
            if job.is_whole
            else f"{format_count(summary.ranks)} of {'an unknown number' if job.is_open else format_count(job.world)}",
        ),
        (term("graph", "different graphs"), exact(format_count(summary.graphs), summary.graphs)),
        (term("node", "nodes, all ranks"), exact(format_count(summary.nodes), summary.nodes)),
        (term("data dependency", "data dependencies"), exact(format_count(summary.data_dependencies), "")),
        (
            term("control dependency", "control dependencies"),
            exact(format_count(summary.control_dependencies), ""),
        ),
        (term("recorded span"), exact(span, span_exact)),
        *(
            [("finish of the run", exact(format_ns(run.makespan_ns), f"{run.makespan_ns:,} ns"))]
            if run
            else []
        ),
        (
            term("operations"),
            exact(format_si(summary.operations, "FLOP"), f"{summary.operations:,}")
            if summary.operations
            else "none named",
        ),
        ("schema", ", ".join(summary.schema) or "not named"),
    ]
    return html.Dl(
        [html.Div([html.Dt(label), html.Dd(value)]) for label, value in facts], className="cs-facts"
    )
