"""The Timeline page: when every node of every rank ran, recorded or simulated."""

from __future__ import annotations

from typing import Any

import dash
from dash import ClientsideFunction, Input, Output, State, callback, clientside_callback, dcc, html

from studio.analysis.job.part_words import ABOUT
from studio.analysis.timeline.coverage import Category
from studio.analysis.timeline.perfetto import INSTALL, explain_unwritable
from studio.errors import StudioError
from studio.pages.base.export import build_save_menu
from studio.pages.base.state import get_session
from studio.pages.base.still import merge_static_parts
from studio.pages.base.widgets import (
    build_address,
    build_aria_label,
    build_error_box,
    build_hint,
    build_loading,
    build_no_job_notice,
)
from studio.views.address import choose_shown_run, list_run_options

dash.register_page(__name__, path="/timeline", name="Timeline", title="Timeline · Chakra Studio", order=4)

_LEGEND = (
    (Category.COMPUTE, "compute", "compute"),
    (Category.COLLECTIVE, "collective", "collective"),
    (Category.SEND, "→ send", "p2p"),
    (Category.RECEIVE, "← receive", "p2p"),
    (Category.COPY, "copy", "copy"),
    (Category.MEMORY, "memory", "memory"),
    (Category.HOST, "CPU", "host"),
    (Category.GAP, "stream idle", "border"),
)
_KEYS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("W", "S"), "zoom in and out at the pointer; also + and −, or the wheel with Ctrl or Shift"),
    (("A", "D"), "earlier and later; also ← and →, or drag"),
    (("↑", "↓"), "scroll the lanes; also the wheel"),
    (("0",), "show everything"),
    (("F",), "fit the selected node, then everything"),
    ((",", "."), "select the node before or after it on the lane"),
    (("[", "]"), "select what it waits for, or what waits for it"),
    (("X",), "outline the critical path through all ranks, or not"),
    (("C",), "draw the whole chain of dependencies, or the direct ones only"),
    (("/",), "search; then Enter or N goes to the next hit, with Shift to the one before"),
    (("K",), "show or hide the counters under the lanes"),
    (("M",), "set a mark at the pointer, or take it away; Shift M marks the selected node as a window"),
    (("P",), "pin the rank under the pointer above the others, or let it go"),
    (("Shift drag",), "mark a window; dragging the time axis does too"),
    (("Z",), "zoom to the marked window"),
    (("Esc",), "clear the marked window, then the selection"),
    (("?",), "show these keys"),
)


def layout(**_query: str) -> Any:
    """Return the page; its script draws, and follows the view."""
    return html.Div(
        [
            html.Div(build_loading("Reading the times…"), id="timeline-notice"),
            html.Div(
                [
                    _build_controls(),
                    html.Div(id="timeline-error", role="alert"),
                    _build_body(),
                    _build_keys(),
                ],
                id="timeline-page",
                className="cs-timeline",
                hidden=True,
            ),
            dcc.Store(id="timeline-source"),
            html.Div(id="timeline-sync", hidden=True),
        ]
    )


def _build_controls() -> Any:
    return html.Div(
        [
            html.H1("Timeline"),
            _build_button("timeline-fit", "Fit", "Show everything (0)"),
            _build_button("timeline-out", "−", "Zoom out (S)"),
            _build_button("timeline-in", "+", "Zoom in (W)"),
            _build_button("timeline-fold", "Fold all", "Fold or open the lanes of all ranks"),
            _build_choices("order", (("rank", "by rank"), ("finish", "by finish"), ("idle", "by idle"))),
            _build_button("timeline-counts", "Counters", "What is in flight over time, under the lanes (K)"),
            _build_button(
                "timeline-path", "Critical path", "Outline what the finish consists of, across ranks (X)"
            ),
            _build_button("timeline-chain", "Chain", "Arrows of the whole chain of dependencies (C)"),
            _build_search(),
            html.Span(
                [
                    html.Span(id="timeline-other"),  # the script puts the choice of another run here
                    # Hidden until another run is shown: it would push the choice into a line of its own.
                    _build_button(
                        "timeline-differences",
                        "Differences",
                        "How much each node differs from the other run",
                        hidden=True,
                    ),
                    _build_save_menu(),
                    _build_button("timeline-help", "?", "List the keys (?)"),
                ],
                className="cs-timeline-end",
            ),
        ],
        className="cs-timeline-controls",
    )


def _build_choices(name: str, parts: tuple[tuple[str, str], ...]) -> Any:
    """Return buttons of which one is pressed; `data-<name>` holds the value of each."""
    return html.Span(
        [html.Button(words, **_build_data_attributes(name, value)) for value, words in parts],
        className="cs-timeline-choices",
        role="group",
    )


def _build_data_attributes(name: str, value: str) -> dict[str, Any]:
    return {f"data-{name}": value, "aria-pressed": "false"}


def _build_search() -> Any:
    return html.Span(
        [
            html.Span(id="timeline-find"),  # the script puts the field here
            html.Span(id="timeline-hits", className="cs-dim", role="status"),
            _build_button("timeline-hit-previous", "↑", "Previous hit (Shift Enter, Shift N)", hidden=True),
            _build_button("timeline-hit-next", "↓", "Next hit (Enter, N)", hidden=True),
        ],
        className="cs-timeline-field",
        title="Part of a name, /a regular expression/, id:118, type:all_reduce or group:tp0",
    )


def _build_button(name: str, text: str, title: str, *, hidden: bool = False) -> Any:
    return html.Button(text, id=name, className="cs-button", title=title, hidden=hidden)


def _build_save_menu() -> Any:
    """Return the Save menu; `data-missing` says what is missing to write Perfetto's format."""
    reason = explain_unwritable()
    perfetto = {"id": "timeline-perfetto"} | ({"data-missing": f"{reason} {INSTALL}"} if reason else {})
    choices: list[tuple[str, str, dict[str, Any]]] = [
        ("PNG", "Save the picture as PNG", {"id": "timeline-png"}),
        ("SVG", "Save the picture as SVG", {"id": "timeline-svg"}),
        ("CSV", "Save the window of the visible ranks as CSV", {"id": "timeline-csv"}),
        (
            "Table",
            "Show the window of the visible ranks as a table; copies as TSV",
            {"id": "timeline-table"},
        ),
        (
            "Counters, CSV",
            "Save every change of every counter in the marked or visible window",
            {"id": "timeline-counters-csv"},
        ),
        (
            "Counters, table",
            "Show mean and maximum of each counter in the marked or visible window; copies as TSV",
            {"id": "timeline-counters-table"},
        ),
        ("Chrome trace", "Save the run as Chrome trace JSON, which Perfetto opens", {"id": "timeline-json"}),
        ("Perfetto", "Save the run in Perfetto's own format, which is smaller than a Chrome trace", perfetto),
    ]
    return build_save_menu(choices, about="Save what is shown")


def _build_body() -> Any:
    scroll = html.Div(
        id="timeline-scroll",
        className="cs-timeline-scroll",
        tabIndex=0,
        role="application",
        **{
            **build_aria_label("Timeline of lanes per rank; press ? for the keys"),
            "aria-describedby": "timeline-status",
        },
    )
    legend: list[Any] = [
        html.Button(
            [
                html.Span(
                    className=f"cs-bar cs-bar-{category.name.lower()}",
                    style={"backgroundColor": f"var(--cs-{colour})"},
                ),
                title,
            ],
            title="Show or hide",
            **_build_category_attributes(category),
        )
        for category, title, colour in _LEGEND
    ]
    legend += [
        html.Span([html.Span(className=f"cs-bar cs-bar-{part}"), words, build_hint(words, ABOUT[part])],
                  className="cs-timeline-kind")
        for part, words in (("waiting", "waiting"), ("bubble", "bubble, idle"))
    ]  # fmt: skip
    foot = html.Div(
        [
            html.Span(id="timeline-status", role="status"),
            html.Div(legend, id="timeline-legend", className="cs-timeline-legend"),
            html.Span(id="timeline-detail"),
            html.Span(id="timeline-path-words", role="status"),
            html.Span(id="timeline-undrawn"),
        ],
        className="cs-timeline-foot",
    )
    counters = html.Div(id="timeline-counters", className="cs-timeline-counters")
    return html.Div(
        [scroll, counters, _build_window(), foot], id="timeline-body", className="cs-timeline-body"
    )


def _build_window() -> Any:
    """Return the place of the table of the marked window; the script fills it."""
    head = html.Div(
        [
            html.H2(id="timeline-window-title"),
            _build_choices(
                "window-by",
                (
                    ("part", "part"),
                    ("category", "category"),
                    ("group", "comm group"),
                    ("name", "name"),
                    ("difference", "difference per node"),
                    ("counters", "counters"),
                ),
            ),
            _build_choices("window-per", (("rank", "each rank"), ("all", "all ranks"))),
            html.Span(id="timeline-window-count", className="cs-dim"),
            html.Span(style={"flex": 1}),
            _build_button("timeline-window-copy", "Copy TSV", "Copy the whole table as tab-separated values"),
            _build_button("timeline-window-close", "Close", "Clear the marked window (Esc)"),
        ],
        className="cs-timeline-window-head",
    )
    table = html.Div(
        id="timeline-window-table",
        className="cs-timeline-window-table",
        tabIndex=0,
        role="region",
        **build_aria_label("Where the time of the marked window went"),
    )
    return html.Section([head, table], id="timeline-window", className="cs-timeline-window", hidden=True)


def _build_category_attributes(category: Category) -> dict[str, Any]:
    return {"data-category": str(int(category)), "aria-pressed": "true"}


def _build_keys() -> Any:
    rows = [
        part for keys, does in _KEYS for part in (html.Dt([html.Kbd(key) for key in keys]), html.Dd(does))
    ]
    return html.Dialog(
        [
            html.H2("Keys of the timeline"),
            merge_static_parts(html.Dl(rows)),
            html.Button("Close", id="timeline-keys-close", className="cs-button"),
        ],
        id="timeline-keys",
        className="cs-timeline-keys",
        **build_aria_label("Keys of the timeline"),
    )


@callback(
    Output("timeline-notice", "children"),
    Output("timeline-page", "hidden"),
    Output("timeline-source", "data"),
    Output("timeline-other", "hidden"),
    Input("view", "data"),
)
def choose(view: dict[str, Any]) -> tuple[Any, bool, Any, bool]:
    """Set the run that the view shows, if there is one, and make room for the choice of another where there are several."""
    job = view.get("job")
    if not job:
        return build_no_job_notice(), True, None, True
    try:
        run = choose_shown_run(get_session(), job, view)
    except StudioError as error:
        return html.Div(build_error_box(error), className="cs-page"), True, None, True
    if run is None:
        return _build_empty_page(view), True, None, True
    # If the run was deleted, the script reports it and offers the others.
    others = list_run_options(get_session(), job)
    return None, False, {"job": job, "run": run, "others": others}, len(others) < 2


def _build_empty_page(view: dict[str, Any]) -> Any:
    return html.Div(
        [
            html.H2("No times yet"),
            html.P(
                "This page shows when every node of every rank ran. The files of this job hold no times, and it has "
                "not been simulated."
            ),
            dcc.Link(
                "Simulate it",
                href=build_address("/simulate", {"job": view.get("job")}),
                className="cs-button",
            ),
        ],
        className="cs-empty",
    )


# Two, for Dash would have the one wait for the server's answer to every step of the view.
clientside_callback(
    ClientsideFunction("studio_timeline", "follow"),
    Output("timeline-sync", "title"),
    Input("view", "data"),
    State("timeline-source", "data"),
)
clientside_callback(
    ClientsideFunction("studio_timeline", "found"),
    Output("timeline-sync", "children"),
    Input("timeline-source", "data"),
    State("view", "data"),
)
clientside_callback(
    ClientsideFunction("studio_timeline", "theme"),
    Output("timeline-sync", "lang"),
    Input("theme", "data"),
)
