"""The Simulate page: how long a job would take on another system."""

from __future__ import annotations

from typing import Any

import dash
from dash import dcc, html

import studio.pages.simulate.judging
import studio.pages.simulate.orders  # noqa: F401 - their callbacks
from studio.pages.base.asked import EDIT, ORDER, RUNS, build_click_request, build_stores
from studio.pages.base.widgets import build_aria_label, build_loading
from studio.pages.simulate.choice import build_choice

dash.register_page(__name__, path="/simulate", name="Simulate", title="Simulate · Chakra Studio", order=6)

_UPLOAD_NAME: dict[str, Any] = {"data-upload-name": "ASTRA-sim's files to import"}


def layout(**_query: str) -> Any:
    """Return the page; what it shows follows the view."""
    return html.Div(
        [
            html.Div(build_loading("Reading the job and its system…"), id="sim-notice"),
            html.Div(
                [_build_controls(), html.Div([_build_form(), _build_side()], className="sim-body")],
                id="sim-page",
                className="sim",
                hidden=True,
            ),
            dcc.Store(id="sim-show"),
            dcc.Store(id="sim-state"),
            dcc.Store(id="sim-step"),
            dcc.Store(id="sim-scene"),
            dcc.Store(id="sim-which"),
            dcc.Store(id="sim-result-of"),
            *[build_stores(name) for name in (EDIT, ORDER, RUNS)],
            dcc.Store(id="sim-begun"),
            dcc.Store(id="sim-finished"),
            dcc.Store(id="sim-watched", data=[]),
            dcc.Store(id="sim-renaming"),
            dcc.Store(id="sim-listed"),
            dcc.Store(id="sim-progress"),
            dcc.Store(id="sim-tick"),
            dcc.Interval(id="sim-poll", interval=4000, disabled=True),
            dcc.Download(id="sim-download"),
            html.Div(id="sim-sync", hidden=True),
        ]
    )


def _build_form() -> Any:
    """Return the left half: what is chosen first, the fields, and what they mean for the network."""
    return html.Div(
        [
            html.Div(build_choice(), id="sim-choice", className="sim-choice"),
            html.Div(id={"sim-said": ""}, className="sim-said sim-general"),
            html.Div(id="sim-form"),
            html.Div(id="sim-proposals"),
            _build_network(),
            html.Div(id="sim-folds"),
        ],
        className="sim-left",
        tabIndex=0,
        role="region",
        **build_aria_label("The system"),
    )


def _build_network() -> Any:
    """Return the place for figures and picture of the network, which follow what is typed."""
    return html.Section(
        [
            html.Div(id="sim-facts"),
            html.Div(id="sim-drawing", className="sim-drawing"),
            html.Div(id="sim-legend"),
        ],
        id="sim-network",
        className="sim-section",
        **build_aria_label("The network"),
    )


def _build_side() -> Any:
    """Return the right half: what a run would meet, the runs, and the result of the one that is shown."""
    return html.Div(
        [
            html.Div(id="sim-findings", role="status"),
            html.Div(id="sim-active"),
            html.Div(id="sim-deleted", role="status"),
            html.Div(id="sim-runs"),
            html.Div(id="sim-warnings"),
            html.Div(id="sim-result"),
        ],
        className="sim-side",
        tabIndex=0,
        role="region",
        **build_aria_label("Runs and results"),
    )


def _build_controls() -> Any:
    """Return the row of buttons above both halves."""
    return html.Div(
        [
            html.H1("Simulate"),
            html.Span(
                [
                    html.Button(
                        "Undo",
                        id="sim-undo",
                        className="cs-button",
                        title="Undo the last change",
                        **build_click_request(EDIT, "undo"),
                    ),
                    html.Button(
                        "Reset",
                        className="cs-button",
                        title="Back to the preset, fitted to the job",
                        **build_click_request(EDIT, "reset"),
                    ),
                ],
                className="sim-files",
            ),
            html.Span(style={"flex": 1}),
            html.Span(
                [
                    dcc.Upload(
                        html.Button(
                            "Import",
                            className="cs-button",
                            title="ASTRA-sim's network.yml, system.json, comm_group.json, remote_memory.json, one or several, "
                            "or the zip of Export",
                        ),
                        id="sim-upload",
                        multiple=True,
                        max_size=8 << 20,
                    ),
                    html.Button(
                        "Export",
                        id="sim-export",
                        className="cs-button",
                        title="ASTRA-sim's files of this system, as a zip",
                    ),
                ],
                className="sim-files",
                **_UPLOAD_NAME,
            ),
            html.Button(
                "Run",
                id="sim-run",
                className="cs-button sim-run",
                disabled=True,
                **build_click_request(ORDER, "run"),
            ),
        ],
        className="sim-controls",
    )
