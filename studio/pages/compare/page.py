"""The Compare page: two to eight runs or jobs side by side, how much they differ and why."""

from __future__ import annotations

import json
from typing import Any

import dash
import dash_mantine_components as dmc
from dash import ClientsideFunction, Input, Output, State, callback, clientside_callback, dcc, html, no_update

from studio.comparing import LETTERS, SIDES_AT_MOST, Lineup
from studio.errors import StudioError
from studio.pages.base.export import build_export_buttons
from studio.pages.base.missing import is_side
from studio.pages.base.state import RECORDED, get_session, get_workspace
from studio.pages.base.still import merge_static_parts
from studio.pages.base.widgets import build_address, build_aria_label, build_error_box, build_loading
from studio.pages.compare.strip import (
    build_strip_skeleton,
    find_unranked_sides,
    name_side,
    show_sides,
    show_strip,
)
from studio.pages.compare.tables import (
    build_heatmaps,
    build_nodes_tables,
    build_settings_section,
    show_summary,
)
from studio.pages.compare.times import ALIGN_START, find_anchors, list_alignments
from studio.units import format_ns
from studio.views.address import choose_shown_run

dash.register_page(__name__, path="/compare", name="Compare", title="Compare · Chakra Studio", order=7)

Source = dict[str, Any]
_LEGEND = (
    ("compute", "compute"),
    ("collective", "collective"),
    ("send, receive", "p2p"),
    ("copy", "copy"),
    ("memory", "memory"),
    ("CPU", "host"),
)


def layout(**_query: str) -> Any:
    """Return the page; callbacks fill it, and its script draws the timelines."""
    add = dmc.Select(
        id="compare-add",
        data=[],
        value=None,
        placeholder="Add a run or a job",
        searchable=True,
        clearable=False,
        nothingFoundMessage="No such run",
        size="xs",
        w=260,
        comboboxProps={"shadow": "sm"},
        **build_aria_label("Add a run or a job to the comparison"),
    )
    head = html.Div(
        [
            html.H1("Compare"),
            html.Span(id="compare-sides", className="cs-compare-sides"),
            add,
            html.Button(
                "Swap", id="compare-swap", className="cs-button", title="A becomes B and B becomes A"
            ),
        ],
        className="cs-page-head cs-compare-head",
    )
    shown = html.Div(build_strip_skeleton(), id="compare-strip")
    return html.Div(
        [
            head,
            html.Div(build_loading("Reading the runs…"), id="compare-notice"),
            html.Div(
                [shown, _build_timelines(), html.Div(id="compare-tables"), html.Div(id="compare-heat")],
                id="compare-body",
                hidden=True,
            ),
            dcc.Store(id="compare-source"),
            dcc.Store(id="compare-anchors"),
            html.Div(id="compare-sync", hidden=True),
        ],
        className="cs-page cs-compare",
    )


def _build_timelines() -> Any:
    """Return the timelines with their row of controls; `assets/compare/` draws them."""
    canvas = html.Div(
        id="compare-canvas",
        className="cs-compare-canvas",
        tabIndex=0,
        role="application",
        **build_aria_label(
            "Timelines of the runs on one time axis. W and S zoom, A and D move, arrows scroll, 0 shows everything; "
            "a click selects the node on every side"
        ),
    )
    return html.Section(
        [_build_controls(), html.Div(id="compare-align-note", role="status"), canvas, _build_foot()],
        className="cs-section",
    )


def _build_controls() -> Any:
    """Return the row above the timelines: layout, alignment, zoom and exports."""
    align = dmc.Select(
        id="compare-align",
        data=[{"value": ALIGN_START, "label": "start"}],
        value=ALIGN_START,
        allowDeselect=False,
        searchable=True,
        size="xs",
        w=250,
        comboboxProps={"shadow": "sm"},
        **build_aria_label("Align by"),
    )
    modes = html.Span(
        [
            html.Button(
                "Side by side", className="cs-button", id="compare-beside", title="One run above the other"
            ),
            html.Button(
                "Overlay",
                className="cs-button",
                id="compare-overlay",
                title="Each lane of all runs in one row",
            ),
        ],
        role="group",
        className="cs-compare-modes",
        **build_aria_label("Layout of the timelines"),
    )
    return html.Div(
        [
            html.H2("When"),
            modes,
            html.Span("aligned by", className="cs-dim"),
            align,
            html.Button(
                "Align by selected",
                id="compare-pin",
                className="cs-button",
                title="Align all sides by the start of the selected node",
            ),
            html.Button("Fit", id="compare-fit", className="cs-button", title="Show everything (0)"),
            html.Button("−", id="compare-out", className="cs-button", title="Zoom out (S)"),
            html.Button("+", id="compare-in", className="cs-button", title="Zoom in (W)"),
            html.Span(style={"flex": 1}),
            build_export_buttons(
                "comparison", figure="compare-canvas", title="the visible window, node by node", drawn=True
            ),
        ],
        className="cs-compare-controls",
    )


def _build_foot() -> Any:
    """Return the row below the timelines: what the pointer is on, the legend, and keys."""
    return html.Div(
        [
            html.Span(id="compare-status", role="status"),
            html.Span(
                [
                    part
                    for name, colour in _LEGEND
                    for part in (
                        html.Span(className="cs-swatch", style={"backgroundColor": f"var(--cs-{colour})"}),
                        html.Span(name, className="cs-compare-legend"),
                    )
                ],
                className="cs-dim",
            ),
            html.Span(
                "W S zoom · A D move · click selects on every side",
                title="Also: wheel with Ctrl or Shift zooms, drag moves, 0 shows everything, F fits the selected node, Esc clears",
                className="cs-dim cs-compare-keys",
            ),
        ],
        className="cs-compare-foot",
    )


# ---------------------------------------------------------------------------------------------------
# What is compared


@callback(
    Output("compare-source", "data"),
    Output("compare-notice", "children"),
    Output("compare-body", "hidden"),
    Output("compare-sides", "children"),
    Output("compare-add", "data"),
    Output("compare-swap", "disabled"),
    Input("view", "data"),
    State("compare-source", "data"),
)
def choose(view: dict[str, Any], before: Source | None) -> Any:
    """Set the compared runs from the view."""
    try:
        sides = list_chosen_sides(view)
        source: Source = {
            "sides": sides,
            "names": [name_side(job, run, among=sides) for job, run in sides],
            "unranked": find_unranked_sides(sides),
            "pair": _parse_count(view.get("pair"), len(sides) - 1),
            "basis": "mean" if view.get("basis") == "mean" else "busiest",
            "settings": "all" if view.get("settings") == "all" else "differing",
        }
        if source == before:
            return [no_update] * 6
        bar = show_sides(sides, view)
    except StudioError as error:
        return (
            None,
            build_error_box(error, title="This cannot be compared"),
            True,
            None,
            _list_options(view.get("job")),
            True,
        )
    if len(sides) < 2:
        return source, _build_empty_notice(sides, view), True, bar, _list_options(view.get("job")), True
    return source, None, False, bar, _list_options(view.get("job")), False


def list_chosen_sides(view: dict[str, Any]) -> list[list[str]]:
    """Return job and run of every side: the shown run, then those of `with`, each once.

    Runs that do not exist are left out; a warning below the page names them.

    Raises:
        StudioError: There is no such job.
    """
    sides: list[list[str]] = []
    if view.get("job"):
        run = choose_shown_run(get_session(), view["job"], view)
        if run is not None and is_side(f"{view['job']}/{run or RECORDED}"):
            sides.append([view["job"], run or RECORDED])
    for part in str(view.get("with") or "").split(","):
        job, _, run = part.partition("/")
        if is_side(part, timed=True):
            sides.append([job, run or (choose_shown_run(get_session(), job, {}) or RECORDED)])
    distinct = [list(side) for side in dict.fromkeys(tuple(side) for side in sides)]
    return distinct[:SIDES_AT_MOST]


def _parse_count(text: Any, most: int) -> int:
    number = int(text) if str(text or "").isdecimal() and len(str(text)) < 4 else 1
    return min(max(number, 1), max(most, 1))


def _list_options(first: str | None = None) -> list[dict[str, Any]]:
    """Return all recordings and runs as options, grouped by job; those of job `first` come first."""
    groups = []
    jobs = get_workspace().jobs()
    for job in sorted(jobs, key=lambda info: info.id != first):
        items = (
            [{"value": f"{job.id}/{RECORDED}", "label": f"{job.name} · recorded"}]
            if job.summary.timed_nodes
            else []
        )
        if job.runs:
            items += [
                {"value": f"{job.id}/{run.id}", "label": f"{run.label} · {format_ns(run.makespan_ns)}"}
                for run in get_workspace().runs(job.id)
            ]
        if items:
            groups.append({"group": job.name, "items": items})
    return groups


def _qualify_label(group: str, label: str) -> str:
    """Return the label of a side with its job's name."""
    return label if label.startswith(f"{group} ") else f"{group} \N{MIDDLE DOT} {label}"


def _build_empty_notice(sides: list[list[str]], view: dict[str, Any]) -> Any:
    """Return the list of runs to choose from while fewer than two are compared."""
    taken = {tuple(side) for side in sides}
    rows = []
    for group in _list_options(view.get("job")):
        for item in group["items"]:
            job, _, run = item["value"].partition("/")
            if (job, run) in taken:
                continue
            name = _qualify_label(group["group"], item["label"])
            changes = {"with": item["value"]} if sides else {"job": job, "run": run}
            to = build_address("/compare", view, **changes)
            plus: dict[str, Any] = {
                "data-view": json.dumps(changes),
                **build_aria_label(f"Compare with {name}"),
            }
            rows.append(
                html.Li([html.A("Compare +", href=to, className="cs-button", **plus), html.Bdi(name)])
            )
    first = "Choose what to compare it with." if sides else "Choose two recordings or simulations."
    listed = html.Ul(rows, className="cs-compare-list") if rows else html.P(
        [
            "There is no other run yet. ",
            dcc.Link("Simulate the job on another system", href=build_address("/simulate", {"job": view.get("job")})),
            ", or open other traces on ",
            dcc.Link("Home", href="/"),
            ".",
        ]
    )  # fmt: skip
    return html.Div([html.H2(first), listed], className="cs-compare-empty")


@callback(
    Output("compare-strip", "children"),
    Output("compare-tables", "children"),
    Input("compare-source", "data"),
    Input("theme", "data"),
)
def show(source: Source | None, theme: str) -> Any:
    """Show verdicts, waterfall and tables of the comparison."""
    if not source or len(source["sides"]) < 2:
        return build_strip_skeleton(), None
    dark = theme == "dark"
    try:
        shown = _get_lineup(source)
        tables = html.Div(
            [
                html.Div(
                    [
                        show_summary(shown),
                        build_settings_section(shown, everything=source["settings"] == "all"),
                    ],
                    # More than two sides take the whole width each.
                    className="cs-compare-columns" if len(shown.sides) == 2 else None,
                ),
                build_nodes_tables(shown, source["pair"], source["sides"]),
            ]
        )
        return merge_static_parts(
            show_strip(shown, source["pair"], source["basis"], dark=dark)
        ), merge_static_parts(tables)
    except StudioError as error:
        return build_error_box(error, title="This cannot be compared"), None


@callback(Output("compare-heat", "children"), Input("compare-source", "data"), Input("theme", "data"))
def show_heatmaps(source: Source | None, theme: str) -> Any:
    """Show the collectives of both runs: apart, so that the verdict need not wait for them."""
    if not source or len(source["sides"]) < 2:
        return None
    try:
        return merge_static_parts(build_heatmaps(_get_lineup(source), dark=theme == "dark"))
    except StudioError:
        return None  # said above


def _get_lineup(source: Source) -> Lineup:
    return get_session().lineup([(job, run) for job, run in source["sides"]])


@callback(
    Output("compare-anchors", "data"),
    Output("compare-align-note", "children"),
    Output("compare-align", "data"),
    Output("compare-align", "value"),
    Input("compare-source", "data"),
    Input("view", "data"),
    State("compare-anchors", "data"),
)
def align(source: Source | None, view: dict[str, Any], before: dict[str, Any] | None) -> Any:
    """Set the aligned moment of each side."""
    if not source or len(source["sides"]) < 2:
        return no_update, None, no_update, no_update
    wanted = str(view.get("align") or ALIGN_START)
    if before and before["sides"] == source["sides"] and before["by"] == wanted:
        return [no_update] * 4
    moments: list[int | None] = []
    note = None
    options: Any = no_update
    try:
        options = list_alignments(_get_lineup(source), wanted)
        moments = find_anchors(_get_lineup(source), wanted)
    except StudioError as error:
        note = error.message
    lacking = [LETTERS[index] for index, moment in enumerate(moments) if moment is None]
    if lacking:
        note = f"{' and '.join(lacking)} has no such moment and is aligned by its start."
    given = [0 if moment is None else moment for moment in moments] if moments else [0] * len(source["sides"])
    return {"sides": source["sides"], "by": wanted, "ns": given}, note, options, wanted


clientside_callback(
    ClientsideFunction("studio_compare", "follow"),
    Output("compare-sync", "title"),
    Input("view", "data"),
    Input("compare-source", "data"),
    Input("compare-anchors", "data"),
    Input("theme", "data"),
)
clientside_callback(
    ClientsideFunction("studio_compare", "add"),
    Output("compare-add", "value"),
    Input("compare-add", "value"),
    State("compare-source", "data"),
    prevent_initial_call=True,
)
clientside_callback(
    ClientsideFunction("studio_compare", "alignBy"),
    Output("compare-align", "error"),
    Input("compare-align", "value"),
    prevent_initial_call=True,
)
