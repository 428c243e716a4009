"""Timeline: when every node of every rank ran, recorded or simulated."""

from __future__ import annotations

from typing import Any

import dash
from dash import ClientsideFunction, Input, Output, State, callback, clientside_callback, dcc, html

from studio.analysis.coverage import Category
from studio.errors import StudioError
from studio.pages._state import shown_run
from studio.pages._widgets import error_box, labelled, link, no_job

dash.register_page(__name__, path="/timeline", name="Timeline", title="Timeline · Chakra Studio", order=4)

_LEGEND = (
    (Category.COMPUTE, "compute", "compute"),
    (Category.COLLECTIVE, "collective", "collective"),
    (Category.SEND, "→ send", "p2p"),
    (Category.RECEIVE, "← receive", "p2p"),
    (Category.MEMORY, "memory", "memory"),
    (Category.HOST, "CPU", "host"),
)
_KEYS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("W", "S"), "zoom in and out at the pointer; also + and −, or the wheel with Ctrl or Shift"),
    (("A", "D"), "earlier and later; also ← and →, or drag"),
    (("↑", "↓"), "scroll the lanes; also the wheel"),
    (("0",), "show everything"),
    (("F",), "fit the selected node, then everything"),
    ((",", "."), "select the node before or after it on the lane"),
    (("[", "]"), "select what it waits for, or what waits for it"),
    (("C",), "draw the whole chain of dependencies, or the direct ones only"),
    (("Shift drag",), "mark a window; dragging the time axis does too"),
    (("Z",), "zoom to the marked window"),
    (("Esc",), "clear the mark, then the selection"),
    (("?",), "show these keys"),
)


def layout(**_query: str) -> Any:
    """Return the page; its script draws, and follows the view."""
    return html.Div(
        [
            html.Div(id="timeline-notice"),
            html.Div(
                [_controls(), html.Div(id="timeline-error", role="alert"), _body(), _keys()],
                id="timeline-page",
                className="cs-timeline",
                hidden=True,
            ),
            dcc.Store(id="timeline-source"),
            html.Div(id="timeline-sync", hidden=True),
        ]
    )


def _controls() -> Any:
    return html.Div(
        [
            html.H1("Timeline"),
            _button("timeline-fit", "Fit", "Show everything (0)"),
            _button("timeline-out", "−", "Zoom out (S)"),
            _button("timeline-in", "+", "Zoom in (W)"),
            _button("timeline-fold", "Fold all", "Fold or open the lanes of all ranks"),
            _button("timeline-order", "By finish", "Order the ranks by when they finish, the last one first"),
            _button("timeline-chain", "Chain", "Arrows of the whole chain of dependencies (C)"),
            html.Span(style={"flex": 1}),
            _button("timeline-csv", "CSV", "Save the window of the ranks in sight as CSV"),
            _button("timeline-png", "PNG", "Save the picture as PNG"),
            _button("timeline-help", "Keys", "List the keys (?)"),
        ],
        className="cs-timeline-controls",
    )


def _button(name: str, text: str, title: str) -> Any:
    return html.Button(text, id=name, className="cs-button", title=title)


def _body() -> Any:
    scroll = html.Div(
        id="timeline-scroll",
        className="cs-timeline-scroll",
        tabIndex=0,
        role="application",
        **{
            **labelled("Timeline of lanes per rank; press ? for the keys"),
            "aria-describedby": "timeline-status",
        },
    )
    legend = [
        html.Button(
            [
                html.Span(
                    className=f"cs-bar cs-bar-{category.name.lower()}",
                    style={"backgroundColor": f"var(--cs-{colour})"},
                ),
                title,
            ],
            title="Show or hide",
            **_pressed(category),
        )
        for category, title, colour in _LEGEND
    ]
    foot = html.Div(
        [
            html.Span(id="timeline-status", role="status"),
            html.Div(legend, id="timeline-legend", className="cs-timeline-legend"),
            html.Span(id="timeline-detail"),
        ],
        className="cs-timeline-foot",
    )
    return html.Div([scroll, foot], id="timeline-body", className="cs-timeline-body")


def _pressed(category: Category) -> dict[str, Any]:
    return {"data-category": str(int(category)), "aria-pressed": "true"}


def _keys() -> Any:
    rows = [
        part for keys, does in _KEYS for part in (html.Dt([html.Kbd(key) for key in keys]), html.Dd(does))
    ]
    return html.Dialog(
        [
            html.H2("Keys of the timeline"),
            html.Dl(rows),
            html.Button("Close", id="timeline-keys-close", className="cs-button"),
        ],
        id="timeline-keys",
        className="cs-timeline-keys",
        **labelled("Keys of the timeline"),
    )


@callback(
    Output("timeline-notice", "children"),
    Output("timeline-page", "hidden"),
    Output("timeline-source", "data"),
    Input("view", "data"),
)
def choose(view: dict[str, Any]) -> tuple[Any, bool, Any]:
    """Find out which run the view shows, if there is any."""
    job = view.get("job")
    if not job:
        return no_job(), True, None
    try:
        run = shown_run(job, view)
    except StudioError as error:
        return html.Div(error_box(error), className="cs-page"), True, None
    if run is None:
        return _nothing(view), True, None
    # A run that is gone is the script's to report, with the others there to choose from.
    return None, False, {"job": job, "run": run}


def _nothing(view: dict[str, Any]) -> Any:
    return html.Div(
        [
            html.H2("No times yet"),
            html.P(
                "Here is when every node of every rank ran. The files of this job hold no times, and no simulation "
                "of it has been run."
            ),
            dcc.Link("Simulate it", href=link("/simulate", {"job": view.get("job")}), className="cs-button"),
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
