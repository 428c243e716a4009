"""Collectives: who moves how much and when, rank by rank, the most uneven on top."""

from __future__ import annotations

import json
from typing import Any

import dash
import dash_mantine_components as dmc
from dash import ClientsideFunction, Input, Output, State, callback, clientside_callback, dcc, html, no_update

from studio.analysis.heat import Shown
from studio.analysis.imbalance import METRICS, UNTIMED
from studio.errors import StudioError
from studio.pages._collectives_heat import Settled, members_of, settled, shown_of, told
from studio.pages._collectives_words import (
    GROUPING_NAMES,
    METRIC_NAMES,
    SORT_NAMES,
    measure_hint,
    metric_hint,
    title_of,
    worst_list,
)
from studio.pages._export import exports
from studio.pages._widgets import error_box, labelled, link, no_job

dash.register_page(
    __name__, path="/collectives", name="Collectives", title="Collectives · Chakra Studio", order=5
)

_CLIENT = "studio_collectives"
_CONTROLS = ("metric", "rel", "scale", "by", "fold", "sort", "order")


def layout(**_query: str) -> Any:
    """Return the page; controls, picture and list follow the view."""
    return html.Div(
        [
            html.Div(id="collectives-notice"),
            html.Div([_controls(), _body()], id="collectives-page", className="cs-coll", hidden=True),
            dcc.Store(id="collectives-settled"),
            html.Div(id="collectives-sync", hidden=True),
        ]
    )


def _controls() -> Any:
    return html.Div(
        [
            html.H1("Collectives"),
            _field("show", _select("metric", "Metric", [], 168), html.Span(id="collectives-metric-hint")),
            _switch("rel", "Values", [("1", "by row mean"), ("0", "absolute")]),
            _switch("scale", "Colour scale", [("linear", "linear"), ("log", "log")]),
            _field("group by", _select("by", "Group by", _options(GROUPING_NAMES), 118)),
            _switch("fold", "Rows", [("0", "each"), ("1", "added up")]),
            _field(
                "order by",
                _select("sort", "Order of rows", _options(SORT_NAMES), 182),
                html.Span(id="collectives-sort-hint"),
            ),
            _field(
                "ranks",
                _select(
                    "order",
                    "Order of ranks",
                    [
                        {"value": "number", "label": "by number"},
                        {"value": "load", "label": "most loaded first"},
                    ],
                    142,
                ),
            ),
        ],
        className="cs-coll-controls",
    )


def _options(names: dict[Any, str]) -> list[dict[str, str]]:
    return [{"value": value, "label": label} for value, label in names.items()]


def _field(text: str, *controls: Any) -> Any:
    hidden: dict[str, Any] = {"aria-hidden": "true"}
    return html.Span([html.Span(text, className="cs-dim", **hidden), *controls], className="cs-coll-field")


def _select(name: str, title: str, data: list[Any], width: int) -> Any:
    return dmc.Select(
        id=f"collectives-{name}", data=data, size="xs", w=width, allowDeselect=False,
        comboboxProps={"shadow": "sm"}, **labelled(title),
    )  # fmt: skip


def _switch(name: str, title: str, values: list[tuple[str, str]]) -> Any:
    data = [{"value": value, "label": label} for value, label in values]
    return dmc.SegmentedControl(id=f"collectives-{name}", data=data, size="xs", **labelled(title))


def _body() -> Any:
    described: dict[str, Any] = {"aria-describedby": "collectives-status"}
    heat = html.Div(
        id="collectives-heat", className="cs-heat", tabIndex=0, role="application",
        **labelled("Heatmap of collectives by rank; arrows move the selection, Escape shows all"), **described,
    )  # fmt: skip
    figure = html.Div(
        [
            html.Div(
                [
                    html.Div(
                        [
                            html.H2(id="collectives-title"),
                            html.Span(id="collectives-subtitle", className="cs-dim"),
                        ],
                        className="cs-coll-title",
                    ),
                    html.Span(id="collectives-chips", className="cs-coll-chips"),
                    html.Span(id="collectives-export"),
                ],
                className="cs-coll-head",
            ),
            heat,
            html.Div(
                [
                    html.Div(id="collectives-status", role="status", className="cs-coll-status"),
                    html.Div(id="collectives-legend", className="cs-heat-legend"),
                    html.Span(id="collectives-detail", className="cs-dim"),
                ],
                className="cs-coll-foot",
            ),
        ],
        className="cs-coll-figure",
    )
    worst = html.Section(
        [html.H2("Worst imbalances", id="collectives-worst-title"), html.Div(id="collectives-worst")],
        className="cs-coll-worst", tabIndex=0, **labelled("Worst imbalances"),
    )  # fmt: skip
    return html.Div(
        [html.Div(id="collectives-error", role="alert"), html.Div([figure, worst], className="cs-coll-body")],
        className="cs-coll-main",
    )


@callback(
    {
        "notice": Output("collectives-notice", "children"),
        "hidden": Output("collectives-page", "hidden"),
        "settled": Output("collectives-settled", "data"),
        "metrics": Output("collectives-metric", "data"),
        "metric_hint": Output("collectives-metric-hint", "children"),
        "sort_hint": Output("collectives-sort-hint", "children"),
        "title": Output("collectives-title", "children"),
        "subtitle": Output("collectives-subtitle", "children"),
        "chips": Output("collectives-chips", "children"),
        "export": Output("collectives-export", "children"),
        "worst": Output("collectives-worst", "children"),
    },
    Input("view", "data"),
    State("collectives-settled", "data"),
)
def show(view: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
    """Settle what is shown, and list the worst of it; nothing where only the selection moved."""
    job = view.get("job")
    if not job:
        return _answer(notice=no_job(), hidden=True, settled={})
    try:
        asked = settled(job, view)
        key = _key(asked, view)
        if before and before.get("key") == key:
            return _answer()
        if not len(members_of(job, asked.run)):
            return _answer(notice=_nothing(view), hidden=True, settled={})
        return _shown(asked, view, key)
    except StudioError as error:
        return _answer(notice=html.Div(error_box(error), className="cs-page"), hidden=True, settled={})


def _key(asked: Settled, view: dict[str, Any]) -> str:
    return json.dumps(
        [
            asked.job,
            asked.run,
            repr(asked.look),
            asked.relative,
            asked.log,
            view.get("rows"),
            view.get("cols"),
        ]
    )


def _shown(asked: Settled, view: dict[str, Any], key: str) -> dict[str, Any]:
    shown = shown_of(asked.job, view)
    timed = shown.heat.members.timed
    title, subtitle = title_of(shown)
    return _answer(
        notice=None,
        hidden=False,
        settled={"key": key, "controls": told(asked)},
        metrics=[
            {"value": name, "label": METRIC_NAMES[name], "disabled": not timed and name not in UNTIMED}
            for name in METRICS
        ],
        metric_hint=metric_hint(asked.look.metric),
        sort_hint=measure_hint(asked.look.sort),
        title=title,
        subtitle=subtitle,
        chips=_chips(shown, view),
        export=exports(
            "collectives",
            figure="collectives-heat",
            source=_csv_address(asked, view),
            title=f"{title}: {subtitle}",
        ),
        worst=worst_list(shown, asked, view),
    )


def _csv_address(asked: Settled, view: dict[str, Any]) -> str:
    parts = {key: value for key, value in view.items() if key not in ("job", "rank", "node")}
    return link(f"/api/jobs/{asked.job}/collectives.csv", parts)


def _chips(shown: Shown, view: dict[str, Any]) -> list[Any]:
    """Return what narrows the picture, each to be taken back."""
    chips: list[tuple[str, dict[str, None]]] = []
    if shown.look.only:
        chips.append((f"only {shown.look.only}", {"only": None, "rows": None}))
    if view.get("rows") or view.get("cols"):
        chips.append(("a part of it", {"rows": None, "cols": None}))
    return [
        html.Button([text, " ×"], className="cs-button", title="Show all again", **_changes(change))
        for text, change in chips
    ]


def _changes(change: dict[str, Any]) -> dict[str, Any]:
    return {"data-view": json.dumps(change)}


def _answer(**changed: Any) -> dict[str, Any]:
    names = (
        "notice",
        "hidden",
        "settled",
        "metrics",
        "metric_hint",
        "sort_hint",
        "title",
        "subtitle",
        "chips",
        "export",
        "worst",
    )
    return {name: changed.get(name, no_update) for name in names}


def _nothing(view: dict[str, Any]) -> Any:
    return html.Div(
        [
            html.H2("No collectives"),
            html.P("Here is how much each rank moves in every collective. No node of this job is one."),
            dcc.Link("See its nodes", href=link("/nodes", {"job": view.get("job")}), className="cs-button"),
        ],
        className="cs-empty",
    )


# It asks for the picture while the server settles the rest: Dash would wait for the one to begin the other.
clientside_callback(
    ClientsideFunction(_CLIENT, "follow"),
    Output("collectives-sync", "title"),
    Input("view", "data"),
    Input("theme", "data"),
)
clientside_callback(
    ClientsideFunction(_CLIENT, "controls"),
    *[Output(f"collectives-{name}", "value") for name in _CONTROLS],
    Input("collectives-settled", "data"),
    prevent_initial_call=True,
)
clientside_callback(
    ClientsideFunction(_CLIENT, "write"),
    Output("collectives-sync", "lang"),
    *[Input(f"collectives-{name}", "value") for name in _CONTROLS],
    State("collectives-settled", "data"),
    prevent_initial_call=True,
)
