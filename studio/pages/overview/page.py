"""The Overview page: what a job consists of, and where its time goes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import dash
from dash import Input, Output, State, callback, dcc, html, no_update

from studio.analysis.collectives.groups import group_use, shared_use
from studio.analysis.job.completeness import Completeness, completeness, is_recording
from studio.analysis.job.files import files_of
from studio.analysis.job.summary import Summary, count_unsized, counts_too_much_as_compute, summarise
from studio.analysis.job.type_times import type_times
from studio.doctor import CHECKS
from studio.errors import StudioError
from studio.jobs.advice_search import start_advising
from studio.jobs.checking import start_check
from studio.jobs.completing import made_from
from studio.jobs.generating import is_generated
from studio.pages.base.asked import ADVICE, Asked, answer, answer_output, stores
from studio.pages.base.export import exports
from studio.pages.base.figures import reserved
from studio.pages.base.followed import follow_tasks, list_tasks_again, tasks_changed
from studio.pages.base.rank_words import here_words, lost_line
from studio.pages.base.state import session, tasks, workspace
from studio.pages.base.still import still
from studio.pages.base.widgets import (
    error_box,
    exact,
    findings_list,
    link,
    loading,
    no_job,
    page,
    show_errors,
    term,
)
from studio.pages.collectives.groups import count_left_out, matrix_figure, used_matrix
from studio.pages.overview.advice import advice_section, keep_advised, tornado_section
from studio.pages.overview.assumed import assumed_section
from studio.pages.overview.files import files_section
from studio.pages.overview.kernels import kernels_section
from studio.pages.overview.launches import launches_section
from studio.pages.overview.memory import memory_section
from studio.pages.overview.operators import operators_place
from studio.pages.overview.times import over_time_section, times_skeleton, untimed
from studio.pages.overview.verdict import (
    headline,
    headline_skeleton,
    layout_section,
    rank_section,
    verdict_skeleton,
)
from studio.pages.overview.words import (
    collectives_table,
    doubt_lines,
    imported_from,
    recorded_times_of,
    told_findings,
    types_table,
    use_table,
)
from studio.store.run_infos import RunInfo
from studio.store.workspace import JobInfo
from studio.trace import Trace
from studio.units import format_count, format_ns, format_si, time_unit
from studio.views.address import shown_run

dash.register_page(__name__, path="/overview", name="Overview", title="Overview · Chakra Studio", order=1)

_FINDINGS_SHOWN = 6


def layout(**_query: str) -> Any:
    """Return the page; its content follows the view."""
    return html.Div(
        [
            html.Div(id="overview-error"),
            html.Div(loading("Reading the job…"), id="overview-body"),
            dcc.Store(id="overview-drawn"),
            stores(ADVICE),
        ]
    )


@callback(
    Output("overview-body", "children"),
    Output("overview-drawn", "data"),
    Input("view", "data"),
    Input("theme", "data"),
    State("overview-drawn", "data"),
)
def show(view: dict[str, Any], theme: str, drawn: str | None) -> Any:
    """Show the job and the run of the view; where only the selection is another one, the page stays as it is."""
    mark = _mark(view, theme)
    if mark and mark == drawn:
        return no_update, no_update
    return show_job(view, theme), mark


def _mark(view: dict[str, Any], theme: str) -> str:
    """Return a text for all that the page follows from; "" where the job cannot be read."""
    try:
        run = shown_run(session(), view["job"], view) if view.get("job") else None
    except StudioError:
        return ""
    return json.dumps([view.get("job"), run, theme, time_unit.get()])


@show_errors
def show_job(view: dict[str, Any], theme: str) -> Any:
    """Return the content of the page."""
    if not view.get("job"):
        return no_job()
    info = workspace().info(view["job"])
    trace = session().trace(view["job"])
    summary = _summary(info, trace)
    here = completeness(trace)
    ran = is_recording(trace)
    run = shown_run(session(), view["job"], view)
    simulated = _run_info(info.id, run)
    is_gone = bool(run) and simulated is None
    if is_gone:
        run = None  # nothing is read of it: said once, instead of in every section
    layout_place = html.Div(layout_section(info.id, None), id="overview-layout")
    shown = page(
        info.name,
        lost_line(trace, info.id),
        _missing_ranks(here, ran, view),
        dcc.Store(id="overview-shown", data=[view["job"], run, theme]),
        follow_tasks("overview"),
        doubt_lines(simulated),
        html.Div(None if run is None else headline_skeleton(), id="overview-headline"),
        _verdict_places(info, summary, run, is_gone=is_gone),
        _facts(summary, simulated, here),
        assumed_section(trace, info),
        html.Div(
            [layout_place, html.Div(id="overview-kernels")]
            if run is None
            else [html.Div(html.Div(className="cs-kernels-place"), id="overview-kernels"), layout_place],
            className="cs-columns cs-verdict",
        ),
        html.Div(id="overview-tornado"),
        html.Div(id="overview-launches"),
        html.Div(id="overview-memory"),
        operators_place(),
        _types(trace, summary, simulated, ran=ran),
        _groups(trace, theme),
        html.Div(
            [
                html.H2("Findings"),
                html.Div(loading("Checking the job…"), id="overview-findings"),
            ],
            className="cs-section",
        ),
        files_section(files_of(trace)),
        controls=_next(info, view, is_whole=here.is_whole),
    )
    return still(shown)


def _verdict_places(info: JobInfo, summary: Summary, run: str | None, *, is_gone: bool) -> Any:
    """Return the places of the verdict, the times and the advice, as high as what will come; or why there are no times."""
    return html.Div(
        [
            html.Div(
                [
                    html.Div(
                        verdict_skeleton(summary.ranks)
                        if run is not None
                        else untimed(info.id, summary.duration_ns > 0, is_gone=is_gone),
                        id="overview-ranks",
                    ),
                    html.Div(None if run is None else times_skeleton(), id="overview-times"),
                ]
            ),
            html.Div(id="overview-advice"),
        ],
        className="cs-columns cs-verdict",
    )


def _types(trace: Trace, summary: Summary, simulated: RunInfo | None, *, ran: bool) -> Any:
    """Return the tables of nodes and of communication by type."""
    return html.Div(
        [
            html.Div(
                [
                    html.H2("Nodes by type"),
                    html.Div(
                        reserved(types_table(summary, recorded_times_of(summary), ran=ran))
                        if simulated
                        else types_table(summary, ran=ran),
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
    )


def _groups(trace: Trace, theme: str) -> Any:
    """Return the matrix of which ranks communicate in which groups."""
    use, alone = shared_use(group_use(trace))
    figure = used_matrix(use, dark=theme == "dark")
    return html.Div(
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
    )


@callback(Output("overview-findings", "children"), Input("overview-shown", "data"), tasks_changed("overview"))
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
        list_tasks_again(began=start_check(tasks(), session(), job))
        return loading("Checking the job…")
    findings = told_findings(examination.diagnoses)
    if not findings:
        content: Any = html.P(f"No problems: {len(CHECKS)} checks ran, and the files were read without any.")
    else:
        content = findings_list(
            findings, most=_FINDINGS_SHOWN, rest="more are not shown here; Findings lists all."
        )
    return still(
        html.Div(
            [content, html.P(dcc.Link("Findings: what follows from each, what can be repaired", href=href))]
        )
    )


@callback(
    Output("overview-error", "children"),
    answer_output(ADVICE),
    Input(ADVICE, "data"),
    prevent_initial_call=True,
)
def change(asked: Asked | None) -> Any:
    """Look for advice, or keep the run of a change and open it beside the run it changes."""
    if not asked:
        return no_update, no_update
    job, run, *rest = asked["of"].split(" ")
    try:
        if asked["verb"] == "seek":
            start_advising(tasks(), session(), job, run)
            list_tasks_again()
            return None, answer(ADVICE, asked)
        go = keep_advised(job, run, int(rest[0]))
    except StudioError as error:
        return error_box(error, title="That did not work"), answer(ADVICE, asked)
    return None, answer(ADVICE, asked, go=go)


def _types_section(job: str, run: str, dark: bool) -> Any:
    """Return the table of node types with their times in a run; None where there is no such run."""
    del dark
    if not _run_info(job, run):
        return no_update
    took = session().keep_of_job(
        f"types {run}", job, lambda: type_times(session().trace(job), session().times(job, run))
    )
    trace = session().trace(job)
    return types_table(_summary(workspace().info(job), trace), took, ran=is_recording(trace))


def _summary(info: JobInfo, trace: Trace) -> Summary:
    """Return the summary of a job; one that was stored when gaps counted as compute is made anew."""
    if not counts_too_much_as_compute(info.summary, trace):
        return info.summary
    return session().keep_of_job("summary", info.id, lambda: summarise(trace))


_SECTIONS: dict[str, Callable[[str, str, bool], Any]] = {
    "overview-ranks": lambda job, run, dark: rank_section(job, run, dark=dark),
    "overview-times": lambda job, run, dark: over_time_section(job, run, dark=dark),
    "overview-kernels": lambda job, run, _dark: kernels_section(job, run),
    # Launches are of the recording, whose run is "".
    "overview-launches": lambda job, run, dark: no_update if run else launches_section(job, dark=dark),
    "overview-memory": lambda job, run, _dark: memory_section(job, run),
    "overview-layout": lambda job, run, _dark: layout_section(job, run),
    "overview-types": _types_section,
}
"""Places on the page and what draws them from a job and the run shown: callbacks of their own, since each reads every node."""
_FOLLOWING: dict[str, Callable[[str, str, bool], Any]] = {
    "overview-headline": lambda job, run, _dark: headline(job, run),
    "overview-advice": lambda job, run, _dark: advice_section(job, run),
    "overview-tornado": lambda job, run, dark: tornado_section(job, run, dark=dark),
}
"""Those that are drawn again when work in the background ends."""


def _draw(draw: Callable[[str, str, bool], Any], shown: list[Any]) -> Any:
    job, run, theme = shown
    if run is None:
        return no_update
    drawn = draw(job, run, theme == "dark")
    return drawn if drawn is no_update else still(drawn)


def _register(place: str, draw: Callable[[str, str, bool], Any], *more: Input) -> None:
    """Draw a place whenever another run is shown, and when one of more inputs changes."""

    @callback(Output(place, "children"), Input("overview-shown", "data"), *more)
    @show_errors
    def show_section(shown: list[Any], *_more: Any) -> Any:
        return _draw(draw, shown)


for _place, _section in _SECTIONS.items():
    _register(_place, _section)
for _place, _section in _FOLLOWING.items():
    _register(_place, _section, tasks_changed("overview"))


def _run_info(job: str, run: str | None) -> RunInfo | None:
    """Return a run's metadata; None for the recording and for a run that does not exist."""
    try:
        return workspace().run_info(job, run) if run else None
    except StudioError:
        return None


def _origin(info: JobInfo) -> Any:
    if is_generated(info):
        return html.Span("generated from a model, not recorded", className="cs-dim cs-source")
    if info.hypothetical:
        return html.Span(f"hypothetical, made for advice: {info.hypothetical}", className="cs-dim cs-source")
    return imported_from(info.source)


def _next(info: JobInfo, view: dict[str, Any], *, is_whole: bool) -> list[Any]:
    keep = {"job": view["job"]}
    return [
        None if made_from(info) else _origin(info),
        dcc.Link("Scale it", href=link("/ranks", keep), className="cs-button") if is_whole else None,
        dcc.Link("See the graph", href=link("/graph", keep), className="cs-button"),
        dcc.Link("List the nodes", href=link("/nodes", keep), className="cs-button"),
    ]


def _missing_ranks(job: Completeness, recorded: bool, view: dict[str, Any]) -> Any:
    """Ask whether to complete a job of which ranks are missing, and say what can be done with the others."""
    if job.is_whole:
        return None
    keep = {"job": view["job"]}
    replay = dcc.Link("Replay the known ranks", href=link("/simulate", keep), className="cs-button")
    return html.Div(
        [
            html.P([here_words(job), " Complete the job?"], className="cs-ask-words"),
            html.P(f"{job.sentence()} Every figure here is of the known ranks.", className="cs-dim"),
            html.Div(
                [
                    dcc.Link(
                        "Complete the job", href=link("/ranks", keep), className="cs-button cs-ask-button"
                    ),
                    replay if recorded else None,
                ],
                className="cs-ask-line",
            ),
        ],
        className="cs-ask",
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
            else "not in the files",
        ),
        ("Chakra schema", ", ".join(summary.schema) or "not named"),
    ]
    return html.Dl(
        [html.Div([html.Dt(label), html.Dd(value)]) for label, value in facts], className="cs-facts"
    )
