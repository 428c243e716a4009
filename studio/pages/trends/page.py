"""The Trends page: the jobs of a series over time, and where their step time, exposed communication or imbalance changed."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any

import dash
import dash_mantine_components as dmc
from dash import ClientsideFunction, Input, Output, State, callback, clientside_callback, dcc, html, no_update

from studio.analysis.trends.changes import KEYS, Change, describe_difference, find_changes
from studio.comparing import RECORDED
from studio.figures.trends import Mark, Shift, draw_trend
from studio.jobs.measuring import is_measuring, start_measuring
from studio.pages.base.export import Table, build_export_buttons, with_copy_button
from studio.pages.base.figures import build_figure
from studio.pages.base.followed import (
    build_tasks_input,
    follow_tasks,
    follow_workspace,
    is_called_by_tasks,
    list_tasks_again,
    look_again,
)
from studio.pages.base.state import get_session, get_tasks
from studio.pages.base.still import merge_static_parts
from studio.pages.base.widgets import (
    build_address,
    build_aria_label,
    build_hint,
    build_rounded_value,
    build_table,
    show_errors,
)
from studio.units import format_count, format_counted, format_ns
from studio.views.trends import Point, build_trends_address, describe_verdict, group_by_series, list_points

dash.register_page(__name__, path="/trends", name="Trends", title="Trends · Chakra Studio", order=7.5)

_FIGURE = "trends-figure"
_MOST_ROWS, _MOST_CHANGES = 200, 12
_SERIES = "Jobs of the same name, but for dates, times and a number at its end. Rename a job on Home to put it into another series."
_CHANGED = (
    "A job is named here if a measure of it is further from the median of up to five jobs before it (those since the last change) than three "
    "times what a job of the series differs from the next, in the median, and than 3 % of the step time, 2 points of exposed communication or "
    "0.03 of imbalance."
)
_STEP = "The median over steps and ranks, as on Overview. With * the finish: no node tells a step."
_EXPOSED = "Share of the finish in which the mean rank communicates and no work hides it, as on Overview; where ranks have several devices, the mean device."
_IMBALANCE = "The longest compute of a rank over the mean of all ranks: 1 is even."


def layout(**query: str) -> Any:
    """Return the page; its content follows the view."""
    series = query.get("series")
    return html.Div(
        [
            html.Div(
                [
                    html.H1("Trends"),
                    dmc.Select(
                        id="trends-series",
                        data=[{"value": series, "label": series}] if series else [],
                        value=series,
                        size="xs",
                        w=340,
                        searchable=True,
                        allowDeselect=False,
                        placeholder="no jobs yet",
                        comboboxProps={"shadow": "sm"},
                        **build_aria_label("Series that is shown"),
                    ),
                    build_hint("a series", _SERIES),
                ],
                className="cs-page-head",
            ),
            html.Div(id="trends-body"),
            dcc.Store(id="trends-shown"),
            dcc.Store(id="trends-filled"),
            html.Div(id="trends-sync", hidden=True),
            follow_tasks("trends"),
            follow_workspace("trends"),
        ],
        className="cs-page",
    )


@callback(
    Output("trends-series", "data"),
    Output("trends-series", "value"),
    Output("trends-body", "children"),
    Output("trends-shown", "data"),
    Output("trends-filled", "data"),
    Input("view", "data"),
    Input("theme", "data"),
    build_tasks_input("trends"),
    State("trends-series", "value"),
    State("trends-shown", "data"),
)
def show(
    view: dict[str, Any], theme: str | None, _activity: str | None, current: str | None, shown: str | None
) -> Any:
    """Draw the series that the address names, else the one of its job, else the largest one."""
    known = list_points(get_session())
    grouped = group_by_series(known)
    chosen = _choose_series(view, grouped, known)
    mark = repr(
        [
            chosen,
            theme,
            [(p.job, p.name, p.run, p.measures is None, p.levels) for p in grouped.get(chosen, [])],
        ]
    )
    if is_called_by_tasks() and mark == shown and not is_measuring(get_tasks()):
        return [no_update] * 5
    options = [
        {"value": name, "label": f"{name} ({format_counted(len(of), 'job')})"} for name, of in grouped.items()
    ]
    body = show_series(grouped.get(chosen, []), dark=theme == "dark")
    return options, no_update if chosen == current else chosen or None, body, mark, [chosen]


def _choose_series(
    view: Mapping[str, Any], grouped: Mapping[str, Sequence[Point]], known: Sequence[Point]
) -> str:
    wanted = str(view.get("series") or "")
    if wanted in grouped:
        return wanted
    of_job = next((point.series for point in known if point.job == view.get("job")), "")
    return of_job or next(iter(grouped), "")


@show_errors
def show_series(series: Sequence[Point], *, dark: bool) -> Any:
    """Return the content of the page."""
    if not series:
        return _build_empty_page()
    missing = [(point.job, point.run) for point in series if point.is_missing]
    if missing:
        list_tasks_again(began=start_measuring(get_tasks(), get_session(), missing))
    timed = [point for point in series if point.measures is not None and point.measures.finish_ns is not None]
    changes = find_changes([point.measures for point in timed])
    parts = [_describe_missing(missing, series), _build_changes_section(timed, changes)]
    if timed:
        parts.append(_build_figure_section(timed, changes, dark=dark))
    parts.append(_build_table_section(series, timed, changes))
    return html.Div(
        [
            part if getattr(part, "id", None) else merge_static_parts(part)
            for part in parts
            if part is not None
        ]
    )


def _build_empty_page() -> Any:
    return html.Div(
        [
            html.H2("No jobs yet"),
            html.P("Trends shows how jobs of one name change from one recording to the next."),
            html.P(
                [
                    "Open traces on Home, or have a folder watched: ",
                    html.Code("chakra-studio watch FOLDER"),
                    " imports what arrives there.",
                ]
            ),
            dcc.Link("Go to Home", href="/", className="cs-button"),
        ],
        className="cs-empty",
    )


def _describe_missing(missing: Sequence[tuple[str, str | None]], series: Sequence[Point]) -> Any:
    """Say what is not measured yet, or cannot be."""
    failed = [get_session().unmeasured[run] for run in missing if run in get_session().unmeasured]
    sentences = []
    if len(missing) > len(failed):
        count = format_counted(len(missing) - len(failed), "job")
        sentences.append(
            f"{count} of {format_count(len(series))} being measured and checked in the background."
        )
    if failed:
        sentences.append(
            f"{format_counted(len(failed), 'job')} cannot be measured and checked: {failed[0].message}"
        )
    return html.P(" ".join(sentences), className="cs-dim") if sentences else None


def _build_changes_section(timed: Sequence[Point], changes: Sequence[Change]) -> Any:
    head = html.Div(html.H2(["What changed", build_hint("a change", _CHANGED)]), className="cs-figure-head")
    if len(timed) < 2:
        count = "No job of this series holds times" if not timed else "One job with times so far"
        words = f"{count}: a trend needs two. `chakra-studio watch FOLDER` imports what arrives in a folder."
        return html.Div([head, html.P(words.replace("`", ""), className="cs-dim")], className="cs-section")
    if not changes:
        words = f"Nothing: {format_counted(len(timed), 'job')}, none of which differs from those before it by more than they do among themselves."
        return html.Div([head, html.P(words, className="cs-dim")], className="cs-section")
    at_job: dict[int, list[Change]] = {}
    for change in changes:
        at_job.setdefault(change.at, []).append(change)
    latest = list(reversed(at_job.values()))
    items = [html.Li(_describe_change(timed, together)) for together in latest[:_MOST_CHANGES]]
    hidden = len(latest) - _MOST_CHANGES
    more = html.P(
        f"{format_counted(hidden, 'earlier change')} not listed; the figure has them.", className="cs-dim"
    )
    return html.Div(
        [head, html.Ul(items, className="cs-findings"), more if hidden > 0 else None], className="cs-section"
    )


def _describe_change(timed: Sequence[Point], together: Sequence[Change]) -> Any:
    """Say what changed at one job, in a sentence per measure."""
    first = together[0]
    before, after = timed[first.before], timed[first.at]
    sides = {
        "job": before.job,
        "run": before.run or RECORDED,
        "with": f"{after.job}/{after.run or RECORDED}",
    }
    # The step time comes first: what it did is what counts.
    level = "warning" if first.is_worse else "info"
    sentences = [first.words(before.name, after.name), *(change.words("", "") for change in together[1:])]
    return [
        html.Span("worse" if first.is_worse else "better", className=f"cs-level cs-level-{level}"),
        html.Div([" ".join(sentences), " ", dcc.Link("Compare them", href=build_address("/compare", sides))]),
    ]


def _build_figure_section(timed: Sequence[Point], changes: Sequence[Change], *, dark: bool) -> Any:
    pace = _label_pace(timed)
    shifts = [
        Shift(change.at, KEYS.index(change.key), _format_change(change), change.is_worse)
        for change in changes
    ]
    return html.Div(
        [
            html.Div(
                [
                    html.H2("Over time"),
                    html.P(
                        "A mark per job, in the order of time, at equal distances; ▲ the Doctor warns, ✕ it found an error. A click opens the job.",
                        className="cs-dim",
                    ),
                    build_export_buttons("trends", figure=_FIGURE, table=_build_export_table(timed)),
                ],
                className="cs-figure-head",
            ),
            build_figure(
                _FIGURE, draw_trend([_build_mark(point) for point in timed], shifts, pace, dark=dark)
            ),
        ],
        className="cs-section",
    )


def _label_pace(timed: Sequence[Point]) -> str:
    with_step = sum(point.measures is not None and point.measures.step_ns is not None for point in timed)
    return "step time" if with_step == len(timed) else "finish" if not with_step else "step time or finish"


def _format_change(change: Change) -> str:
    by = change.new - change.old
    if change.key == "step":
        return f"{100 * by / max(change.old, 1):+.1f} %"
    return f"{100 * by:+.1f} points" if change.key == "exposed" else f"{by:+.2f}"


def _build_mark(point: Point) -> Mark:
    measures, levels = point.measures, point.levels or {}
    assert measures is not None, "jobs in the figure are measured"
    level = next((level for level in ("error", "warning") if levels.get(level)), "")
    return Mark(
        point.name,
        point.when,
        describe_verdict(point.levels),
        level,
        measures.pace_ns,
        measures.exposed,
        measures.imbalance,
        build_address("/overview", build_trends_address(point)),
    )


def _build_export_table(timed: Sequence[Point]) -> Table:
    head = (
        "job",
        "name",
        "when",
        "ranks",
        "step_ns",
        "finish_ns",
        "exposed",
        "idle",
        "imbalance",
        "errors",
        "warnings",
    )
    rows = []
    for point in timed:
        run, levels = point.measures, point.levels or {}
        if run is not None:
            counts = (levels.get("error"), levels.get("warning"))
            figures = (run.step_ns, run.finish_ns, run.exposed, run.idle, run.imbalance)
            rows.append((point.job, point.name, point.when, point.ranks, *figures, *counts))
    return Table(head, rows)


def _build_table_section(series: Sequence[Point], timed: Sequence[Point], changes: Sequence[Change]) -> Any:
    before: dict[str, Point] = {after.job: earlier for earlier, after in itertools.pairwise(timed)}
    changed = {timed[change.at].job for change in changes}
    rows = [
        _build_row(point, before.get(point.job), point.job in changed)
        for point in list(reversed(series))[:_MOST_ROWS]
    ]
    heads = (
        "Written",
        "Job",
        "Ranks",
        html.Span(["Step time", build_hint("the step time", _STEP)]),
        html.Span(["Exposed", build_hint("exposed communication", _EXPOSED)]),
        html.Span(["Imbalance", build_hint("imbalance", _IMBALANCE)]),
        "Findings",
        "Against the one before",
    )
    hidden = len(series) - _MOST_ROWS
    more = (
        html.P(f"{format_counted(hidden, 'earlier job')} not listed.", className="cs-dim")
        if hidden > 0
        else None
    )
    shown = build_table(heads, rows, numeric=(2, 3, 4, 5))
    return html.Div(
        [
            html.Div(html.H2(format_counted(len(series), "job")), className="cs-figure-head"),
            with_copy_button(shown, "the jobs"),
            more,
        ],
        className="cs-section",
    )


def _build_row(point: Point, before: Point | None, is_change: bool) -> tuple[Any, ...]:
    run = point.measures
    written = time.strftime("%Y-%m-%d %H:%M", time.localtime(point.when))
    name = dcc.Link(point.name, href=build_address("/overview", build_trends_address(point)))
    findings = dcc.Link(describe_verdict(point.levels), href=build_address("/findings", {"job": point.job}))
    if run is None or run.finish_ns is None:
        reason = "no times" if point.run is None or run is not None else "being measured"
        if point.run is not None and (point.job, point.run) in get_session().unmeasured:
            reason = "cannot be measured"
        return (
            written,
            name,
            format_count(point.ranks),
            "–",
            "–",
            "–",
            findings,
            html.Span(reason, className="cs-dim"),
        )
    pace = run.pace_ns or 0
    against = "" if before is None or before.measures is None else describe_difference(before.measures, run)
    return (
        written,
        name,
        format_count(point.ranks),
        build_rounded_value(format_ns(pace) + ("" if run.step_ns is not None else " *"), f"{pace:,} ns"),
        build_rounded_value(f"{100 * (run.exposed or 0):.1f} %", f"{run.exposed:.6g}"),
        "–" if run.imbalance is None else build_rounded_value(f"{run.imbalance:.2f}", f"{run.imbalance:.6g}"),
        findings,
        html.Strong(against) if is_change else html.Span(against or "the first", className="cs-dim"),
    )


look_again("trends")
clientside_callback(
    ClientsideFunction("studio_trends", "choose"),
    Output("trends-sync", "title"),
    Input("trends-series", "value"),
    State("trends-filled", "data"),
    prevent_initial_call=True,
)
clientside_callback(
    ClientsideFunction("studio_frame", "visitMark"),
    Output(_FIGURE, "clickData"),
    Input(_FIGURE, "clickData"),
    prevent_initial_call=True,
)
