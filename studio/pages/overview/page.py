"""The Overview page: what a job consists of, and where its time goes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import dash
from dash import Input, Output, State, callback, dcc, html, no_update

from studio.analysis.collectives.groups import select_shared_use, sum_group_use
from studio.analysis.job.completeness import Completeness, infer_completeness, is_recording
from studio.analysis.job.files import list_job_files
from studio.analysis.job.summary import (
    Summary,
    count_unsized,
)
from studio.analysis.job.type_times import type_times
from studio.doctor import CHECKS
from studio.errors import StudioError
from studio.jobs.advice_search import start_advising
from studio.jobs.checking import start_check
from studio.jobs.completing import parse_source
from studio.jobs.generating import is_generated
from studio.pages.base.asked import ADVICE, Asked, acknowledge_request, build_answer_output, build_stores
from studio.pages.base.export import build_export_buttons
from studio.pages.base.figures import build_placeholder
from studio.pages.base.followed import build_tasks_input, follow_tasks, list_tasks_again
from studio.pages.base.rank_words import build_lost_line, describe_present_ranks
from studio.pages.base.state import get_session, get_tasks, get_workspace
from studio.pages.base.still import merge_static_parts
from studio.pages.base.widgets import (
    build_address,
    build_error_box,
    build_findings_list,
    build_loading,
    build_no_job_notice,
    build_page,
    build_rounded_value,
    build_term,
    show_errors,
)
from studio.pages.collectives.groups import build_group_matrix, count_left_out, draw_used_matrix
from studio.pages.overview.advice import build_advice_section, build_tornado_section, keep_advised
from studio.pages.overview.assumed import build_assumed_section
from studio.pages.overview.files import build_files_section
from studio.pages.overview.kernels import build_kernels_section
from studio.pages.overview.launches import build_launches_section
from studio.pages.overview.memory import build_memory_section
from studio.pages.overview.operators import build_operators_place
from studio.pages.overview.times import build_over_time_section, build_times_skeleton, build_untimed_notice
from studio.pages.overview.verdict import (
    build_headline,
    build_headline_skeleton,
    build_layout_section,
    build_rank_section,
    build_verdict_skeleton,
)
from studio.pages.overview.words import (
    build_collectives_table,
    build_doubt_lines,
    build_source,
    build_types_table,
    build_use_table,
    collect_recorded_times,
    select_findings,
)
from studio.store.job_infos import JobInfo
from studio.store.run_infos import RunInfo
from studio.trace import Trace
from studio.units import format_count, format_ns, format_si, time_unit
from studio.views.address import choose_shown_run

dash.register_page(__name__, path="/overview", name="Overview", title="Overview · Chakra Studio", order=1)

_FINDINGS_SHOWN = 6


def layout(**_query: str) -> Any:
    """Return the page; its content follows the view."""
    return html.Div(
        [
            html.Div(id="overview-error"),
            html.Div(build_loading("Reading the job…"), id="overview-body"),
            dcc.Store(id="overview-drawn"),
            build_stores(ADVICE),
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
    mark = _format_mark(view, theme)
    if mark and mark == drawn:
        return no_update, no_update
    return show_job(view, theme), mark


def _format_mark(view: dict[str, Any], theme: str) -> str:
    """Return a text for all that the page follows from; "" where the job cannot be read."""
    try:
        run = choose_shown_run(get_session(), view["job"], view) if view.get("job") else None
    except StudioError:
        return ""
    return json.dumps([view.get("job"), run, theme, time_unit.get()])


@show_errors
def show_job(view: dict[str, Any], theme: str) -> Any:
    """Return the content of the page."""
    if not view.get("job"):
        return build_no_job_notice()
    info = get_workspace().info(view["job"])
    trace = get_session().trace(view["job"])
    summary = get_session().summary(info.id)
    here = infer_completeness(trace)
    ran = is_recording(trace)
    run = choose_shown_run(get_session(), view["job"], view)
    simulated = _find_run_info(info.id, run)
    is_gone = bool(run) and simulated is None
    if is_gone:
        run = None  # nothing is read of it: said once, instead of in every section
    layout_place = html.Div(build_layout_section(info.id, None), id="overview-layout")
    shown = build_page(
        info.name,
        build_lost_line(trace, info.id),
        _build_missing_ranks(here, ran, view),
        dcc.Store(id="overview-shown", data=[view["job"], run, theme]),
        follow_tasks("overview"),
        build_doubt_lines(simulated),
        html.Div(None if run is None else build_headline_skeleton(), id="overview-headline"),
        _build_verdict_places(info, summary, run, is_gone=is_gone),
        _build_facts(summary, simulated, here),
        build_assumed_section(trace, info),
        html.Div(
            [layout_place, html.Div(id="overview-kernels")]
            if run is None
            else [html.Div(html.Div(className="cs-kernels-place"), id="overview-kernels"), layout_place],
            className="cs-columns cs-verdict",
        ),
        html.Div(id="overview-tornado"),
        html.Div(id="overview-launches"),
        html.Div(id="overview-memory"),
        build_operators_place(),
        _build_type_tables(trace, summary, simulated, ran=ran),
        _build_groups(trace, theme),
        html.Div(
            [
                html.H2("Findings"),
                html.Div(build_loading("Checking the job…"), id="overview-findings"),
            ],
            className="cs-section",
        ),
        build_files_section(list_job_files(trace)),
        controls=_build_next_links(info, view, is_whole=here.is_whole),
    )
    return merge_static_parts(shown)


def _build_verdict_places(info: JobInfo, summary: Summary, run: str | None, *, is_gone: bool) -> Any:
    """Return the places of the verdict, the times and the advice, as high as what will come; or why there are no times."""
    return html.Div(
        [
            html.Div(
                [
                    html.Div(
                        build_verdict_skeleton(summary.ranks)
                        if run is not None
                        else build_untimed_notice(info.id, summary.duration_ns > 0, is_gone=is_gone),
                        id="overview-ranks",
                    ),
                    html.Div(None if run is None else build_times_skeleton(), id="overview-times"),
                ]
            ),
            html.Div(id="overview-advice"),
        ],
        className="cs-columns cs-verdict",
    )


def _build_type_tables(trace: Trace, summary: Summary, simulated: RunInfo | None, *, ran: bool) -> Any:
    """Return the tables of nodes and of communication by type."""
    return html.Div(
        [
            html.Div(
                [
                    html.H2("Nodes by type"),
                    html.Div(
                        build_placeholder(
                            build_types_table(summary, collect_recorded_times(summary), ran=ran)
                        )
                        if simulated
                        else build_types_table(summary, ran=ran),
                        id="overview-types",
                    ),
                ],
                className="cs-section",
            ),
            html.Div(
                [html.H2("Communication by type"), build_collectives_table(summary, count_unsized(trace))],
                className="cs-section",
            ),
        ],
        className="cs-columns cs-columns-wide" if simulated and summary.duration_ns else "cs-columns",
    )


def _build_groups(trace: Trace, theme: str) -> Any:
    """Return the matrix of which ranks communicate in which groups."""
    use, alone = select_shared_use(sum_group_use(trace))
    figure = draw_used_matrix(use, dark=theme == "dark")
    return html.Div(
        [
            html.Div(
                [
                    html.H2(["Which ranks communicate in which groups", build_term("comm group", "")]),
                    build_export_buttons(
                        "groups-and-ranks", figure="overview-groups", table=build_use_table(use)
                    )
                    if figure
                    else None,
                ],
                className="cs-figure-head",
            ),
            build_group_matrix("overview-groups", figure, use),
            count_left_out(alone),
        ],
        className="cs-section",
    )


@callback(
    Output("overview-findings", "children"), Input("overview-shown", "data"), build_tasks_input("overview")
)
@show_errors
def show_findings(shown: list[Any], _activity: str | None) -> Any:
    """Show the worst of what the Doctor and the readers found."""
    job = shown[0]
    href = build_address("/findings", {"job": job})
    examination = get_session().examination_made(job)
    if examination is None and job in get_session().unexamined:
        return html.P(
            [f"{get_session().unexamined[job].message} ", dcc.Link("Findings: check it again", href=href)]
        )
    if examination is None:
        list_tasks_again(began=start_check(get_tasks(), get_session(), job))
        return build_loading("Checking the job…")
    findings = select_findings(examination.diagnoses)
    if not findings:
        content: Any = html.P(f"No problems: {len(CHECKS)} checks ran, and the files were read without any.")
    else:
        content = build_findings_list(
            findings, most=_FINDINGS_SHOWN, rest="more are not shown here; Findings lists all."
        )
    return merge_static_parts(
        html.Div(
            [content, html.P(dcc.Link("Findings: what follows from each, what can be repaired", href=href))]
        )
    )


@callback(
    Output("overview-error", "children"),
    build_answer_output(ADVICE),
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
            start_advising(get_tasks(), get_session(), job, run)
            list_tasks_again()
            return None, acknowledge_request(ADVICE, asked)
        go = keep_advised(job, run, int(rest[0]))
    except StudioError as error:
        return build_error_box(error, title="That did not work"), acknowledge_request(ADVICE, asked)
    return None, acknowledge_request(ADVICE, asked, go=go)


def _build_types_section(job: str, run: str, dark: bool) -> Any:
    """Return the table of node types with their times in a run; None where there is no such run."""
    del dark
    if not _find_run_info(job, run):
        return no_update
    took = get_session().keep_of_job(
        f"types {run}", job, lambda: type_times(get_session().trace(job), get_session().times(job, run))
    )
    trace = get_session().trace(job)
    return build_types_table(get_session().summary(job), took, ran=is_recording(trace))


_SECTIONS: dict[str, Callable[[str, str, bool], Any]] = {
    "overview-ranks": lambda job, run, dark: build_rank_section(job, run, dark=dark),
    "overview-times": lambda job, run, dark: build_over_time_section(job, run, dark=dark),
    "overview-kernels": lambda job, run, _dark: build_kernels_section(job, run),
    # Launches are of the recording, whose run is "".
    "overview-launches": lambda job, run, dark: no_update if run else build_launches_section(job, dark=dark),
    "overview-memory": lambda job, run, _dark: build_memory_section(job, run),
    "overview-layout": lambda job, run, _dark: build_layout_section(job, run),
    "overview-types": _build_types_section,
}
"""Places on the page and what draws them from a job and the run shown: callbacks of their own, since each reads every node."""
_FOLLOWING: dict[str, Callable[[str, str, bool], Any]] = {
    "overview-headline": lambda job, run, _dark: build_headline(job, run),
    "overview-advice": lambda job, run, _dark: build_advice_section(job, run),
    "overview-tornado": lambda job, run, dark: build_tornado_section(job, run, dark=dark),
}
"""Those that are drawn again when work in the background ends."""


def _draw_section(draw: Callable[[str, str, bool], Any], shown: list[Any]) -> Any:
    job, run, theme = shown
    if run is None:
        return no_update
    drawn = draw(job, run, theme == "dark")
    return drawn if drawn is no_update else merge_static_parts(drawn)


def _register(place: str, draw: Callable[[str, str, bool], Any], *more: Input) -> None:
    """Draw a place whenever another run is shown, and when one of more inputs changes."""

    @callback(Output(place, "children"), Input("overview-shown", "data"), *more)
    @show_errors
    def show_section(shown: list[Any], *_more: Any) -> Any:
        return _draw_section(draw, shown)


for _place, _section in _SECTIONS.items():
    _register(_place, _section)
for _place, _section in _FOLLOWING.items():
    _register(_place, _section, build_tasks_input("overview"))


def _find_run_info(job: str, run: str | None) -> RunInfo | None:
    """Return a run's metadata; None for the recording and for a run that does not exist."""
    try:
        return get_workspace().run_info(job, run) if run else None
    except StudioError:
        return None


def _build_origin(info: JobInfo) -> Any:
    if is_generated(info):
        return html.Span("generated from a model, not recorded", className="cs-dim cs-source")
    if info.hypothetical:
        return html.Span(f"hypothetical, made for advice: {info.hypothetical}", className="cs-dim cs-source")
    return build_source(info.source)


def _build_next_links(info: JobInfo, view: dict[str, Any], *, is_whole: bool) -> list[Any]:
    keep = {"job": view["job"]}
    return [
        None if parse_source(info) else _build_origin(info),
        dcc.Link("Scale it", href=build_address("/ranks", keep), className="cs-button") if is_whole else None,
        dcc.Link("See the graph", href=build_address("/graph", keep), className="cs-button"),
        dcc.Link("List the nodes", href=build_address("/nodes", keep), className="cs-button"),
    ]


def _build_missing_ranks(job: Completeness, recorded: bool, view: dict[str, Any]) -> Any:
    """Ask whether to complete a job of which ranks are missing, and say what can be done with the others."""
    if job.is_whole:
        return None
    keep = {"job": view["job"]}
    replay = dcc.Link("Replay the known ranks", href=build_address("/simulate", keep), className="cs-button")
    return html.Div(
        [
            html.P([describe_present_ranks(job), " Complete the job?"], className="cs-ask-words"),
            html.P(f"{job.sentence()} Every figure here is of the known ranks.", className="cs-dim"),
            html.Div(
                [
                    dcc.Link(
                        "Complete the job",
                        href=build_address("/ranks", keep),
                        className="cs-button cs-ask-button",
                    ),
                    replay if recorded else None,
                ],
                className="cs-ask-line",
            ),
        ],
        className="cs-ask",
    )


def _build_facts(summary: Summary, run: RunInfo | None, job: Completeness) -> Any:
    span = "none recorded" if summary.start_ns < 0 else format_ns(summary.end_ns - summary.start_ns)
    span_exact = (
        f"{summary.start_ns:,} to {summary.end_ns:,} ns"
        if summary.start_ns >= 0
        else "no node has a start time"
    )
    facts = [
        (
            build_term("rank", "ranks"),
            build_rounded_value(format_count(summary.ranks), summary.ranks)
            if job.is_whole
            else f"{format_count(summary.ranks)} of {'an unknown number' if job.is_open else format_count(job.world)}",
        ),
        (
            build_term("graph", "different graphs"),
            build_rounded_value(format_count(summary.graphs), summary.graphs),
        ),
        (
            build_term("node", "nodes, all ranks"),
            build_rounded_value(format_count(summary.nodes), summary.nodes),
        ),
        (
            build_term("data dependency", "data dependencies"),
            build_rounded_value(format_count(summary.data_dependencies), ""),
        ),
        (
            build_term("control dependency", "control dependencies"),
            build_rounded_value(format_count(summary.control_dependencies), ""),
        ),
        (build_term("recorded span"), build_rounded_value(span, span_exact)),
        *(
            [
                (
                    "finish of the run",
                    build_rounded_value(format_ns(run.makespan_ns), f"{run.makespan_ns:,} ns"),
                )
            ]
            if run
            else []
        ),
        (
            build_term("operations"),
            build_rounded_value(format_si(summary.operations, "FLOP"), f"{summary.operations:,}")
            if summary.operations
            else "not in the files",
        ),
        ("Chakra schema", ", ".join(summary.schema) or "not named"),
    ]
    return html.Dl(
        [html.Div([html.Dt(label), html.Dd(value)]) for label, value in facts], className="cs-facts"
    )
