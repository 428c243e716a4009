"""The Explain page: what one collective costs on a system, by every way to carry it out."""

from __future__ import annotations

from typing import Any

import dash
import dash_mantine_components as dmc
from dash import ClientsideFunction, Input, Output, State, callback, clientside_callback, dcc, html

from studio.errors import ConfigError
from studio.figures.ways import draw_ways
from studio.pages.base.export import build_export_buttons
from studio.pages.base.figures import build_figure
from studio.pages.base.state import get_session
from studio.pages.base.widgets import build_address, build_aria_label, build_hint, show_errors
from studio.pages.explain.form import (
    DEFAULT_NPUS,
    DEFAULT_SYSTEM,
    RUN,
    choose_first_collective,
    choose_first_system,
)
from studio.pages.explain.words import (
    ABOUT_WAYS,
    build_curve_table,
    build_term_table,
    build_way_table,
    describe_crossovers,
    describe_headline,
    format_formula,
)
from studio.sim.config import SystemConfig
from studio.sim.costs.model import KINDS
from studio.sim.explaining import assume_members, explain
from studio.sim.presets import describe_unevenness, preset
from studio.sim.rank_lists import parse_ranks
from studio.sim.systems import SYSTEMS
from studio.units import parse_bytes

dash.register_page(__name__, path="/explain", name="Explain", title="Explain · Chakra Studio", order=10)

_SIZE = "comm_size as Chakra counts it, such as 64 MiB: of an all-gather one rank's part, of an all-to-all what a rank sends in all."
_RANKS = "Members of the group, such as 0-7,16. Empty: all NPUs of the system, of a message the first and the last."


def layout(**_query: str) -> Any:
    """Return the page; its content follows the view."""
    return html.Div(
        [
            html.Div(
                [
                    html.H1("Explain"),
                    _build_select(
                        "collective",
                        "Collective",
                        [{"value": kind, "label": kind.replace("_", "-")} for kind in KINDS],
                        150,
                    ),
                    _build_text_field("size", "Size", 110, _SIZE),
                    html.Span("on", className="cs-dim"),
                    _build_select("system", "System", [], 210),
                    _build_text_field("npus", "NPUs", 80, ""),
                    _build_text_field("ranks", "Group", 120, _RANKS),
                ],
                className="cs-page-head",
            ),
            html.Div(id="explain-body"),
            dcc.Store(id="explain-filled"),
            html.Div(id="explain-sync", hidden=True),
        ],
        className="cs-page",
    )


def _build_select(name: str, title: str, data: list[dict[str, str]], width: int) -> Any:
    return dmc.Select(
        id=f"explain-{name}",
        data=data,
        size="xs",
        w=width,
        searchable=True,
        allowDeselect=False,
        comboboxProps={"shadow": "sm"},
        **build_aria_label(title),
    )


def _build_text_field(name: str, title: str, width: int, about: str) -> Any:
    field = dmc.TextInput(
        id=f"explain-{name}",
        size="xs",
        w=width,
        debounce=True,
        placeholder={"ranks": "all", "npus": "as is"}.get(name, ""),
        **build_aria_label(title),
    )
    label = html.Span([title, build_hint(title, about) if about else None], className="cs-dim")
    return html.Span([label, field], className="cs-field")


@callback(
    Output("explain-collective", "value"),
    Output("explain-size", "value"),
    Output("explain-system", "data"),
    Output("explain-system", "value"),
    Output("explain-npus", "value"),
    Output("explain-ranks", "value"),
    Output("explain-filled", "data"),
    Output("explain-body", "children"),
    Input("view", "data"),
    Input("theme", "data"),
)
def show(view: dict[str, Any], theme: str | None) -> Any:
    """Fill form and content for a view."""
    system = str(view.get("system") or choose_first_system(view))
    # What the address says of a collective is not mixed with that of the job.
    begun = any(view.get(name) for name in ("collective", "size", "npus", "ranks"))
    first = choose_first_collective({} if begun else view, system)
    named = (view.get(name) for name in ("collective", "size", "npus", "ranks"))
    kind, size, npus, ranks = (str(text or own) for text, own in zip(named, first, strict=True))
    systems = [{"value": name, "label": name} for name in SYSTEMS]
    if view.get("job") and view.get("run") not in (None, "", "recorded"):
        systems.insert(0, {"value": RUN, "label": "the system of the run"})
    asked = kind, size, system, npus, ranks
    body = show_explanation(view, asked, theme == "dark")
    return kind, size, systems, system, npus, ranks, asked, body


@show_errors
def show_explanation(view: dict[str, Any], asked: tuple[str, str, str, str, str], dark: bool) -> Any:
    """Return what a collective costs: time, formula, ways, and the figure of time over size.

    Args:
        view: The view, which names job and run.
        asked: Collective, size, system, NPUs and ranks, as typed.
        dark: Which theme.
    """
    kind, size, system, npus, ranks = asked
    config, uneven = _read_system(view, system, npus)
    if system == RUN and (config.costs is None or config.topology.npus < 2):
        return _build_empty_notice(view, config)
    members = parse_ranks(ranks) if ranks else assume_members(kind, config.topology.npus)
    # The field keeps its size from one collective to the next; a barrier has none.
    explanation = explain(config, kind, 0 if kind == "barrier" else parse_bytes(size), members)
    return html.Div(
        [
            html.P(describe_headline(explanation), className="cs-explain-head"),
            html.P(uneven) if uneven else None,
            html.P(format_formula(explanation), className="cs-explain-formula"),
            html.Div(
                [
                    html.Div(
                        [
                            html.H2("Every way, over size"),
                            build_export_buttons(
                                "ways", figure="explain-figure", table=build_curve_table(explanation)
                            ),
                        ],
                        className="cs-figure-head",
                    ),
                    build_figure("explain-figure", draw_ways(explanation, dark=dark)),
                    html.P(describe_crossovers(explanation), className="cs-dim"),
                ],
                className="cs-section",
            ),
            html.Div(
                [
                    html.Div(
                        [
                            html.H2(["At this size", build_hint("the ways", ABOUT_WAYS)]),
                            build_way_table(explanation),
                            html.P(explanation.not_quickest, className="cs-dim")
                            if explanation.not_quickest
                            else None,
                        ],
                        className="cs-section cs-scroll",
                    ),
                    html.Div(
                        [
                            html.H2(f"Terms of {explanation.way.name}"),
                            build_term_table(explanation.way),
                        ],
                        className="cs-section cs-scroll",
                    ),
                ],
                className="cs-columns cs-verdict",
            ),
        ]
    )


def _build_empty_notice(view: dict[str, Any], config: SystemConfig) -> Any:
    lacks = (
        "The system of this run has one NPU, which has nobody to communicate with."
        if config.topology.npus < 2
        else "The system of this run has no costs of collectives: its messages are simulated one by one."
    )
    on = f"{DEFAULT_NPUS} NPUs of {DEFAULT_SYSTEM}"
    return html.Div(
        [
            html.H2("No collective to explain"),
            html.P(f"This page shows what a collective costs on a system, and why. {lacks}"),
            html.P("Choose another system above, or begin with this one."),
            dcc.Link(
                f"Explain it on {on}",
                href=build_address("/explain", view, system=DEFAULT_SYSTEM, npus=DEFAULT_NPUS, ranks=None),
                className="cs-button",
            ),
        ],
        className="cs-empty",
    )


def _read_system(view: dict[str, Any], system: str, npus: str) -> tuple[SystemConfig, str]:
    """Return the chosen system, and what to know about its size, if anything."""
    if system == RUN:
        run = get_session().run(str(view.get("job")), str(view.get("run")))
        return run.result.config, describe_unevenness(run.parts)
    if npus and not (npus.isascii() and npus.isdecimal() and 0 < int(npus) < 1 << 21):
        raise ConfigError(f"NPUs is {npus[:20]!r}; allowed: a whole number from 1")
    chosen = preset(system, npus=int(npus) if npus else None)
    return chosen.config, describe_unevenness(chosen.parts)


clientside_callback(
    ClientsideFunction("studio_explain", "choose"),
    Output("explain-sync", "title"),
    Input("explain-collective", "value"),
    Input("explain-size", "value"),
    Input("explain-system", "value"),
    Input("explain-npus", "value"),
    Input("explain-ranks", "value"),
    State("explain-filled", "data"),
    prevent_initial_call=True,
)
