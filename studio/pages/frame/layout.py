"""What is drawn around every page: the bar, the navigation, the inspector, and the stores that callbacks share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash
import dash_mantine_components as dmc
from dash import dcc, html

from studio import __version__
from studio.pages.base.asked import ACTIVITY, build_stores
from studio.pages.base.widgets import build_aria_label
from studio.units import TIME_UNITS


def draw_frame(pages: Sequence[tuple[str, str]]) -> Any:
    """Return the frame: bar, navigation, inspector, and the place of the page.

    Args:
        pages: Name and path of each page, in order.
    """
    links = [
        dmc.NavLink(
            label=name,
            href=path,
            className="cs-nav",
            active="exact",
            rightSection=html.Span(id="findings-badge") if path == "/findings" else None,
        )
        for name, path in pages
    ]
    return dmc.MantineProvider(
        defaultColorScheme="auto",
        theme={"fontFamily": "var(--cs-font)", "primaryColor": "violet", "defaultRadius": "sm"},
        children=[
            *_build_stores(),
            html.A("Skip to content", href="#content", className="cs-skip"),
            _build_shell(links),
            html.Div(id="toast", role="alert", className="cs-toast"),
            html.Div(id="said", role="status", className="cs-toast cs-said"),
        ],
    )


def _build_stores() -> list[Any]:
    """Return what the callbacks of frame and pages pass on to each other."""
    return [
        dcc.Store(id="view", data={}),
        dcc.Store(id="theme", data="light"),
        dcc.Store(id="job"),
        dcc.Store(id="shown-run"),
        dcc.Store(id="listed-run"),
        dcc.Store(id="selection"),
        dcc.Store(id="searched"),
        dcc.Store(id="named"),
        dcc.Store(id="imported"),
        dcc.Store(id="activity-poke"),
        dcc.Store(id="activity-known"),
        build_stores(ACTIVITY),
        dcc.Interval(id="activity-poll", interval=2000, disabled=True),
    ]


def _build_shell(links: list[Any]) -> Any:
    """Return the places of the frame: bar, navigation, page and inspector."""
    return dmc.AppShell(
        [
            dmc.AppShellHeader(_build_context_bar(), className="cs-header"),
            dmc.AppShellNavbar(
                [
                    html.Nav(links, **build_aria_label("Pages")),
                    html.Span(f"v{__version__}", className="cs-dim cs-version"),
                ],
                className="cs-navbar",
            ),
            dmc.AppShellMain(
                # Mantine makes the main landmark around it.
                html.Div(
                    [html.Div(id="view-missing", role="status"), dash.page_container],
                    id="content",
                    tabIndex=-1,
                ),
                className="cs-main",
            ),
            dmc.AppShellAside(
                html.Aside(id="inspector", **build_aria_label("Inspector")), className="cs-aside"
            ),
        ],
        id="shell",
        header={"height": 44},
        navbar={"width": 148, "breakpoint": "xs"},
        aside={"width": 320, "breakpoint": "xs", "collapsed": {"desktop": True, "mobile": True}},
        padding=0,
        transitionDuration=0,
    )


def _build_context_bar() -> Any:
    """Return the bar: which job and run are shown, what runs in the background, and tools of every page."""
    followed: dict[str, Any] = {"data-link": ""}
    return html.Div(
        [
            html.A(
                [html.Img(src="/assets/logo.svg", alt="", height=20), "Chakra Studio"],
                href="/",
                className="cs-brand",
                **followed,
            ),
            html.Label("job", htmlFor="job-pick", className="cs-dim"),
            dmc.Select(
                id="job-pick",
                data=[],
                placeholder="none open",
                searchable=True,
                nothingFoundMessage="No such job",
                size="xs",
                w=260,
                comboboxProps={"shadow": "sm"},
            ),
            _build_run_field(),
            html.Span(style={"flex": 1}),
            html.Details(
                [html.Summary(id="activity-count"), html.Ul(id="activity-list")],
                id="activity",
                className="cs-activity",
                hidden=True,
            ),
            *_build_tools(),
        ],
        className="cs-context",
    )


def _build_run_field() -> Any:
    """Return the choice of the run that is shown, which stays hidden where a job has none."""
    return html.Span(
        [
            html.Label("run", htmlFor="run-pick", className="cs-dim"),
            dmc.Select(
                id="run-pick",
                data=[],
                placeholder="none yet",
                searchable=True,
                allowDeselect=False,
                nothingFoundMessage="No such run",
                size="xs",
                w=230,
                comboboxProps={"shadow": "sm"},
            ),
            html.Button(
                [html.Span("Compare ", className="cs-roomy"), "+"],
                id="compare-shown",
                className="cs-button",
                **build_aria_label("Compare +: choose the shown run for a comparison"),
                title="Choose the shown run for a comparison; choose others the same way, here or on other pages",
            ),
        ],
        id="run-field",
        className="cs-context-field",
        hidden=True,
    )


def _build_tools() -> list[Any]:
    """Return search, report, link, unit of times and theme."""
    return [
        html.Button(
            ["Search ", html.Kbd("Ctrl K")],
            id="palette-open",
            className="cs-button cs-search",
            title="Jump to a page, job, run, rank or node (Ctrl+K)",
        ),
        html.Button(
            "Report",
            id="report",
            className="cs-button",
            title="Save this run, or this comparison, as one HTML file that opens from disk",
        ),
        html.Button("Share", id="share", className="cs-button", title="Copy the link to this view"),
        dmc.Select(
            id="time-unit",
            data=[
                {"value": "auto", "label": "time: auto"},
                *({"value": unit, "label": f"time: {shown}"} for unit, shown in TIME_UNITS.items()),
            ],
            size="xs",
            w=104,
            allowDeselect=False,
            comboboxProps={"shadow": "sm"},
            **build_aria_label("Unit of times"),
        ),
        html.Button(
            "\u25d0",
            id="theme-toggle",
            className="cs-button",
            title="Theme: system, light or dark",
            **build_aria_label("Theme"),
        ),
    ]
