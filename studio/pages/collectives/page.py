"""The Collectives page: sizes, durations and waiting of every collective and rank, the most uneven first."""

from __future__ import annotations

import json
from typing import Any

import dash
import dash_mantine_components as dmc
from dash import ClientsideFunction, Input, Output, State, callback, clientside_callback, dcc, html, no_update

from studio.analysis.collectives.imbalance import METRICS, SIZED, UNTIMED
from studio.analysis.collectives.members import Members, begin_together
from studio.analysis.job.together import ready_words
from studio.errors import StudioError
from studio.pages.base.export import exports
from studio.pages.base.missing import is_side
from studio.pages.base.state import session, workspace
from studio.pages.base.still import still
from studio.pages.base.widgets import aria_label, error_box, link, no_job
from studio.pages.collectives.classes import classes_panel
from studio.pages.collectives.groups import groups_panel, traffic_side
from studio.pages.collectives.late import late_list
from studio.pages.collectives.words import (
    BY_STARTS,
    GROUPING_NAMES,
    METRIC_NAMES,
    SORT_NAMES,
    WAITED,
    measure_hint,
    metric_hint,
    title_of,
    worst_list,
)
from studio.views.address import runs_of
from studio.views.collectives import HeatmapRequest, members_of, other_view, settle, shown_of, to_parameters
from studio.views.traffic import UNNAMED, traffic_of

dash.register_page(
    __name__, path="/collectives", name="Collectives", title="Collectives · Chakra Studio", order=5
)

_CLIENT = "studio_collectives"
_CONTROLS = ("tab", "metric", "rel", "scale", "by", "fold", "sort", "order", "with")


def layout(**_query: str) -> Any:
    """Return the page; controls, picture and list follow the view."""
    return html.Div(
        [
            html.Div(id="collectives-notice"),
            html.Div(
                [_controls(), _body(), html.Div(id="collectives-groups", className="cs-coll-panel")],
                id="collectives-page",
                className="cs-coll",
                hidden=True,
            ),
            html.P("Reading the collectives…", className="cs-coll-wait cs-dim", role="status"),
            dcc.Store(id="collectives-settled"),
            html.Div(id="collectives-sync", hidden=True),
        ],
        className="cs-coll-page",
    )


def _controls() -> Any:
    return html.Div(
        [
            html.H1("Collectives"),
            dmc.SegmentedControl(
                id="collectives-tab",
                data=[
                    {"value": "heat", "label": "Collectives × ranks"},
                    {"value": "traffic", "label": "Rank × rank"},
                    {"value": "groups", "label": "Groups × ranks"},
                    {"value": "sizes", "label": "By size"},
                ],
                size="xs",
                **aria_label("What is shown"),
            ),
            _field("show", _select("metric", "Metric", [], 158), html.Span(id="collectives-metric-hint")),
            _switch("rel", "Values", [("1", "by group mean"), ("0", "absolute")]),
            _field(
                "order by",
                _select("sort", "Order of rows", _options(SORT_NAMES), 170),
                html.Span(id="collectives-sort-hint"),
            ),
            _arrangement(),
        ],
        className="cs-coll-controls",
    )


def _arrangement() -> Any:
    """Return the menu of what is chosen more seldom: how rows and ranks are arranged, and what stands beside them."""
    order = [
        {"value": "number", "label": "by number"},
        {"value": "load", "label": "most loaded first"},
    ]
    other = dmc.Select(
        id="collectives-with",
        data=[],
        size="xs",
        w=190,
        clearable=True,
        searchable=True,
        placeholder="no other run",
        comboboxProps={"shadow": "sm"},
        **aria_label("Run or job beside it"),
    )
    lines = [
        _field("beside", other),
        _field("group by", _select("by", "Group by", _options(GROUPING_NAMES), 190)),
        _field("rows", _switch("fold", "Rows", [("0", "each"), ("1", "added up")])),
        _field("ranks", _select("order", "Order of ranks", order, 190)),
        html.Span(
            [
                html.Span("colours", className="cs-dim"),
                _switch("scale", "Colour scale", [("linear", "linear"), ("log", "log")]),
            ],
            className="cs-coll-line",
        ),
    ]
    return html.Details(
        [
            html.Summary(
                "Arrange", className="cs-button", title="Groups, rows, ranks, colours, a run beside"
            ),
            html.Div(lines, role="group", **aria_label("Arrangement")),
        ],
        className="cs-menu cs-coll-arrange",
    )


@callback(Output("collectives-with", "data"), Input("shown-run", "data"))
def list_others(shown: str | None) -> list[dict[str, str]]:
    """List what the heatmap can be compared with: the other runs of its job, and other jobs."""
    job = json.loads(shown)[0] if shown else None
    if not job:
        return []
    try:
        own = [
            {"value": f"{job}/{option['value']}", "label": option["label"]}
            for option in runs_of(session(), job)
        ]
    except StudioError:
        return []
    return own + [{"value": other.id, "label": other.name} for other in workspace().jobs() if other.id != job]


def _options(names: dict[Any, str]) -> list[dict[str, str]]:
    return [{"value": value, "label": label} for value, label in names.items()]


def _field(text: str, *controls: Any) -> Any:
    hidden: dict[str, Any] = {"aria-hidden": "true"}
    return html.Span([html.Span(text, className="cs-dim", **hidden), *controls], className="cs-coll-field")


def _select(name: str, title: str, data: list[Any], width: int) -> Any:
    return dmc.Select(
        id=f"collectives-{name}", data=data, size="xs", w=width, allowDeselect=False,
        comboboxProps={"shadow": "sm"}, **aria_label(title),
    )  # fmt: skip


def _switch(name: str, title: str, values: list[tuple[str, str]]) -> Any:
    data = [{"value": value, "label": label} for value, label in values]
    return dmc.SegmentedControl(id=f"collectives-{name}", data=data, size="xs", **aria_label(title))


def _body() -> Any:
    described: dict[str, Any] = {"aria-describedby": "collectives-status"}
    heat = html.Div(
        id="collectives-heat", className="cs-heat", tabIndex=0, role="application",
        **aria_label("Heatmap of collectives by rank; arrows move the selection, Escape shows all"), **described,
    )  # fmt: skip
    other = html.Div(
        [
            html.Div(id="collectives-other-head", className="cs-coll-head"),
            html.Div(
                id="collectives-other",
                className="cs-heat",
                role="img",
                **aria_label("The heatmap it is compared with"),
            ),
        ],
        className="cs-coll-other",
    )
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
            html.Div([heat, other], className="cs-heats"),
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
        id="collectives-worst", className="cs-coll-worst", tabIndex=0, **aria_label("Beside the figure")
    )
    return html.Div(
        [html.Div(id="collectives-error", role="alert"), html.Div([figure, worst], className="cs-coll-body")],
        className="cs-coll-main",
    )


_OUTPUTS = {
    "notice": Output("collectives-notice", "children"),
    "hidden": Output("collectives-page", "hidden"),
    "tab": Output("collectives-page", "className"),
    "other": Output("collectives-other-head", "children"),
    "panel": Output("collectives-groups", "children"),
    "settled": Output("collectives-settled", "data"),
    "metrics": Output("collectives-metric", "data"),
    "metric_hint": Output("collectives-metric-hint", "children"),
    "sort_hint": Output("collectives-sort-hint", "children"),
    "title": Output("collectives-title", "children"),
    "subtitle": Output("collectives-subtitle", "children"),
    "chips": Output("collectives-chips", "children"),
    "export": Output("collectives-export", "children"),
    "worst": Output("collectives-worst", "children"),
}


@callback(
    _OUTPUTS,
    Input("view", "data"),
    Input("theme", "data"),
    State("collectives-settled", "data"),
)
def show(view: dict[str, Any], theme: str, before: dict[str, Any] | None) -> dict[str, Any]:
    """Update title, controls and side panel; skip it if only the selection changed."""
    job = view.get("job")
    if not job:
        return _answer(notice=no_job(), hidden=True, settled={})
    try:
        asked = settle(session(), job, view)
        tab = view["tab"] if view.get("tab") in _TABS else "heat"
        key = _key(asked, view, tab, theme)
        if before and before.get("key") == key:
            return _answer()
        if view.get("with") and not is_side(view["with"]):
            view = {**view, "with": None}  # a warning below the page reports it
        controls = {**to_parameters(asked), "tab": tab, "with": view.get("with") or None}
        if tab == "traffic" and view.get("scale") != "linear":
            controls["scale"] = "log"
        basis = _answer(
            notice=None,
            hidden=False,
            tab=f"cs-coll cs-coll-{tab}",
            settled={"key": key, "controls": controls},
            chips=_chips(asked, view),
        )
        return basis | _TABS[tab](asked, view, theme)
    except StudioError as error:
        return _answer(notice=html.Div(error_box(error), className="cs-page"), hidden=True, settled={})


def _key(asked: HeatmapRequest, view: dict[str, Any], tab: str, theme: str) -> str:
    parts = [asked.job, asked.run, repr(asked.look), asked.relative, asked.log, tab]
    parts += [view.get(name) for name in ("rows", "cols", "of", "with", "run")]
    return json.dumps([*parts, theme if tab == "groups" else None])


def _heat_tab(asked: HeatmapRequest, view: dict[str, Any], _theme: str) -> dict[str, Any]:
    members = members_of(session(), asked.job, asked.run)
    if not len(members):
        return {"notice": _nothing(view), "hidden": False, "tab": "cs-coll cs-coll-none", "panel": None}
    shown = shown_of(session(), asked.job, view)
    title, subtitle = title_of(shown)
    note, metric = _note(asked, members), asked.look.metric
    other = view.get("with")
    timed, sized = members.timed, members.sized
    return {
        "panel": None,
        "metrics": [
            {
                "value": name,
                "label": METRIC_NAMES[name],
                "disabled": (not timed and name not in UNTIMED) or (not sized and name in SIZED and timed),
            }
            for name in METRICS
        ],
        "metric_hint": metric_hint(asked.look.metric),
        "sort_hint": measure_hint(asked.look.sort),
        "title": title,
        "subtitle": subtitle,
        "tab": f"cs-coll cs-coll-{'two' if other else 'heat'}",
        "export": exports(
            "collectives",
            figure="collectives-heat",
            source=_csv_address("collectives", asked.job, view),
            title=f"{title}: {subtitle}",
        ),
        "other": _other_head(other, view) if other else None,
        "worst": still(
            html.Div(
                [
                    late_list(asked.job, asked.run, view)
                    if asked.run is not None and metric in WAITED
                    else None,
                    html.H2("Worst imbalances"),
                    *([html.P(note, className="cs-dim")] if note else []),
                    *worst_list(
                        shown, asked.run, view, _csv_address("collectives/imbalances", asked.job, view)
                    ),
                ]
            )
        ),
    }


def _note(asked: HeatmapRequest, members: Members) -> str:
    """Say of figures by the starts of members why those tell nothing, where the recorder lets all begin together."""
    if asked.run != "" or asked.look.metric not in BY_STARTS or not begin_together(members):
        return ""
    return ready_words(session().rank_use(asked.job, "")[0])


def _other_head(text: str, view: dict[str, Any]) -> Any:
    """Return the heading and save buttons of the second heatmap."""
    other = other_view(text)
    parts = {key: value for key, value in view.items() if key not in ("run", "with")}
    address = _csv_address(
        "collectives", other["job"], {**parts, **({"run": other["run"]} if "run" in other else {})}
    )
    run = next(
        (
            option["label"]
            for option in runs_of(session(), other["job"])
            if option["value"] == other.get("run")
        ),
        "",
    )
    name = workspace().info(other["job"]).name
    return [
        html.Div(
            [
                html.H2([html.Span("with ", className="cs-dim"), html.Bdi(name)]),
                html.Span(run or "same colours, same order of rows", className="cs-dim"),
            ],
            className="cs-coll-title",
        ),
        exports(
            "collectives-other", figure="collectives-other", source=address, title=f"Collectives of {name}"
        ),
    ]


def _traffic_tab(asked: HeatmapRequest, view: dict[str, Any], _theme: str) -> dict[str, Any]:
    _, traffic = traffic_of(session(), asked.job, view)
    group = (
        f"in {view['of'].removeprefix('=') or 'the group of all ranks'}"
        if view.get("of") not in (None, "", UNNAMED)
        else "in all"
    )
    return {
        "panel": None,
        "title": "Who sends how much to whom",
        "subtitle": f"bytes from the rank of the row to the rank of the column, {group}: messages and all-to-alls",
        "export": exports(
            "rank-to-rank",
            figure="collectives-heat",
            source=_csv_address("traffic", asked.job, view),
            title="Bytes from rank to rank",
        ),
        "worst": still(traffic_side(traffic, view)),
        "other": None,
    }


def _groups_tab(asked: HeatmapRequest, view: dict[str, Any], theme: str) -> dict[str, Any]:
    return {"panel": still(groups_panel(asked.job, view, dark=theme == "dark")), "worst": None, "other": None}


def _sizes_tab(asked: HeatmapRequest, view: dict[str, Any], _theme: str) -> dict[str, Any]:
    return {"panel": still(classes_panel(asked.job, view)), "worst": None, "other": None}


_TABS = {"heat": _heat_tab, "traffic": _traffic_tab, "groups": _groups_tab, "sizes": _sizes_tab}


def _csv_address(what: str, job: str, view: dict[str, Any]) -> str:
    parts = {key: value for key, value in view.items() if key not in ("job", "rank", "node", "tab", "with")}
    return link(f"/api/jobs/{job}/{what}.csv", parts)


def _chips(asked: HeatmapRequest, view: dict[str, Any]) -> list[Any]:
    """Return a button per active filter, which removes it."""
    chips: list[tuple[str, dict[str, None]]] = []
    if asked.look.only:
        chips.append((f"only {asked.look.only}", {"only": None, "rows": None}))
    if view.get("rows") or view.get("cols"):
        chips.append(("zoomed in", {"rows": None, "cols": None}))
    return [
        html.Button([text, " ×"], className="cs-button", title="Show all again", **_changes(change))
        for text, change in chips
    ]


def _changes(change: dict[str, Any]) -> dict[str, Any]:
    return {"data-view": json.dumps(change)}


def _answer(**changed: Any) -> dict[str, Any]:
    return {name: changed.get(name, no_update) for name in _OUTPUTS}


def _nothing(view: dict[str, Any]) -> Any:
    return html.Div(
        [
            html.H2("No collectives"),
            html.P("This page shows how much each rank moves in each collective. This job has none."),
            html.P(
                dcc.Link("See what ranks send each other", href=link("/collectives", view, tab="traffic"))
            ),
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
    Input("collectives-with", "data"),
    *[State(f"collectives-{name}", "value") for name in _CONTROLS],
    prevent_initial_call=True,
)
clientside_callback(
    ClientsideFunction(_CLIENT, "write"),
    Output("collectives-sync", "lang"),
    *[Input(f"collectives-{name}", "value") for name in _CONTROLS],
    State("collectives-settled", "data"),
    prevent_initial_call=True,
)
