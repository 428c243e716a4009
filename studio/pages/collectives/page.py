"""The Collectives page: sizes, durations and waiting of every collective and rank, the most uneven first."""

from __future__ import annotations

import json
from typing import Any

import dash
import dash_mantine_components as dmc
from dash import ClientsideFunction, Input, Output, State, callback, clientside_callback, dcc, html, no_update

from studio.analysis.collectives.imbalance import METRICS, SIZED, UNTIMED
from studio.analysis.collectives.members import Members, begin_together
from studio.analysis.job.summary import describe_unknown_kernels
from studio.analysis.job.together import describe_ready_waits
from studio.errors import StudioError
from studio.pages.base.export import build_export_buttons
from studio.pages.base.missing import is_side
from studio.pages.base.state import get_session, get_workspace
from studio.pages.base.still import merge_static_parts
from studio.pages.base.widgets import build_address, build_aria_label, build_error_box, build_no_job_notice
from studio.pages.collectives.classes import build_classes_panel
from studio.pages.collectives.groups import build_groups_panel, build_traffic_side
from studio.pages.collectives.late import build_late_list
from studio.pages.collectives.words import (
    BY_STARTS,
    GROUPING_NAMES,
    METRIC_NAMES,
    SORT_NAMES,
    WAITED,
    build_measure_hint,
    build_metric_hint,
    build_worst_list,
    choose_title,
)
from studio.views.address import list_run_options, read_shown_run
from studio.views.collectives import (
    HeatmapRequest,
    build_shown_heatmap,
    collect_run_members,
    parse_other_view,
    settle,
    to_parameters,
)
from studio.views.traffic import UNNAMED, get_traffic

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
                [
                    _build_controls(),
                    _build_body(),
                    html.Div(id="collectives-groups", className="cs-coll-panel"),
                ],
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


def _build_controls() -> Any:
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
                **build_aria_label("What is shown"),
            ),
            _build_field(
                "show", _build_select("metric", "Metric", [], 158), html.Span(id="collectives-metric-hint")
            ),
            _build_switch("rel", "Values", [("1", "by group mean"), ("0", "absolute")]),
            _build_field(
                "order by",
                _build_select("sort", "Order of rows", _list_options(SORT_NAMES), 170),
                html.Span(id="collectives-sort-hint"),
            ),
            _build_arrangement_menu(),
        ],
        className="cs-coll-controls",
    )


def _build_arrangement_menu() -> Any:
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
        **build_aria_label("Run or job beside it"),
    )
    lines = [
        _build_field("beside", other),
        _build_field("group by", _build_select("by", "Group by", _list_options(GROUPING_NAMES), 190)),
        _build_field("rows", _build_switch("fold", "Rows", [("0", "each"), ("1", "added up")])),
        _build_field("ranks", _build_select("order", "Order of ranks", order, 190)),
        html.Span(
            [
                html.Span("colours", className="cs-dim"),
                _build_switch("scale", "Colour scale", [("linear", "linear"), ("log", "log")]),
            ],
            className="cs-coll-line",
        ),
    ]
    return html.Details(
        [
            html.Summary(
                "Arrange", className="cs-button", title="Groups, rows, ranks, colours, a run beside"
            ),
            html.Div(lines, role="group", **build_aria_label("Arrangement")),
        ],
        className="cs-menu cs-coll-arrange",
    )


@callback(Output("collectives-with", "data"), Input("shown-run", "data"))
def list_others(shown: str | None) -> list[dict[str, str]]:
    """List what the heatmap can be compared with: the other runs of its job, and other jobs."""
    job, _ = read_shown_run(shown)
    if not job:
        return []
    try:
        own = [
            {"value": f"{job}/{option['value']}", "label": option["label"]}
            for option in list_run_options(get_session(), job)
        ]
    except StudioError:
        return []
    return own + [
        {"value": other.id, "label": other.name} for other in get_workspace().jobs() if other.id != job
    ]


def _list_options(names: dict[Any, str]) -> list[dict[str, str]]:
    return [{"value": value, "label": label} for value, label in names.items()]


def _build_field(text: str, *controls: Any) -> Any:
    hidden: dict[str, Any] = {"aria-hidden": "true"}
    return html.Span([html.Span(text, className="cs-dim", **hidden), *controls], className="cs-coll-field")


def _build_select(name: str, title: str, data: list[Any], width: int) -> Any:
    return dmc.Select(
        id=f"collectives-{name}", data=data, size="xs", w=width, allowDeselect=False,
        comboboxProps={"shadow": "sm"}, **build_aria_label(title),
    )  # fmt: skip


def _build_switch(name: str, title: str, values: list[tuple[str, str]]) -> Any:
    data = [{"value": value, "label": label} for value, label in values]
    return dmc.SegmentedControl(id=f"collectives-{name}", data=data, size="xs", **build_aria_label(title))


def _build_body() -> Any:
    described: dict[str, Any] = {"aria-describedby": "collectives-status"}
    heat = html.Div(
        id="collectives-heat", className="cs-heat", tabIndex=0, role="application",
        **build_aria_label("Heatmap of collectives by rank; arrows move the selection, Escape shows all"), **described,
    )  # fmt: skip
    other = html.Div(
        [
            html.Div(id="collectives-other-head", className="cs-coll-head"),
            html.Div(
                id="collectives-other",
                className="cs-heat",
                role="img",
                **build_aria_label("The heatmap it is compared with"),
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
        id="collectives-worst", className="cs-coll-worst", tabIndex=0, **build_aria_label("Beside the figure")
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
        return _build_answer(notice=build_no_job_notice(), hidden=True, settled={})
    try:
        asked = settle(get_session(), job, view)
        tab = view["tab"] if view.get("tab") in _TABS else "heat"
        key = _format_key(asked, view, tab, theme)
        if before and before.get("key") == key:
            return _build_answer()
        if view.get("with") and not is_side(view["with"]):
            view = {**view, "with": None}  # a warning below the page reports it
        controls = {**to_parameters(asked), "tab": tab, "with": view.get("with") or None}
        if tab == "traffic" and view.get("scale") != "linear":
            controls["scale"] = "log"
        basis = _build_answer(
            notice=None,
            hidden=False,
            tab=f"cs-coll cs-coll-{tab}",
            settled={"key": key, "controls": controls},
            chips=_build_chips(asked, view),
        )
        return basis | _TABS[tab](asked, view, theme)
    except StudioError as error:
        return _build_answer(
            notice=html.Div(build_error_box(error), className="cs-page"), hidden=True, settled={}
        )


def _format_key(asked: HeatmapRequest, view: dict[str, Any], tab: str, theme: str) -> str:
    parts = [asked.job, asked.run, repr(asked.look), asked.relative, asked.log, tab]
    parts += [view.get(name) for name in ("rows", "cols", "of", "with", "run")]
    return json.dumps([*parts, theme if tab == "groups" else None])


def _build_heat_tab(asked: HeatmapRequest, view: dict[str, Any], _theme: str) -> dict[str, Any]:
    members = collect_run_members(get_session(), asked.job, asked.run)
    if not len(members):
        return {
            "notice": _build_empty_notice(
                view, describe_unknown_kernels(get_workspace().info(asked.job).summary)
            ),
            "hidden": False,
            "tab": "cs-coll cs-coll-none",
            "panel": None,
        }
    shown = build_shown_heatmap(get_session(), asked.job, view)
    title, subtitle = choose_title(shown)
    note, metric = _explain_missing_starts(asked, members), asked.look.metric
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
        "metric_hint": build_metric_hint(asked.look.metric),
        "sort_hint": build_measure_hint(asked.look.sort),
        "title": title,
        "subtitle": subtitle,
        "tab": f"cs-coll cs-coll-{'two' if other else 'heat'}",
        "export": build_export_buttons(
            "collectives",
            figure="collectives-heat",
            source=_build_csv_address("collectives", asked.job, view),
            title=f"{title}: {subtitle}",
        ),
        "other": _build_other_head(other, view) if other else None,
        "worst": merge_static_parts(
            html.Div(
                [
                    build_late_list(asked.job, asked.run, view)
                    if asked.run is not None and metric in WAITED
                    else None,
                    html.H2("Worst imbalances"),
                    *([html.P(note, className="cs-dim")] if note else []),
                    *build_worst_list(
                        shown, asked.run, view, _build_csv_address("collectives/imbalances", asked.job, view)
                    ),
                ]
            )
        ),
    }


def _explain_missing_starts(asked: HeatmapRequest, members: Members) -> str:
    """Say of figures by the starts of members why those tell nothing, where the recorder lets all begin together."""
    if asked.run != "" or asked.look.metric not in BY_STARTS or not begin_together(members):
        return ""
    return describe_ready_waits(get_session().rank_use(asked.job, "")[0])


def _build_other_head(text: str, view: dict[str, Any]) -> Any:
    """Return the heading and save buttons of the second heatmap."""
    other = parse_other_view(text)
    parts = {key: value for key, value in view.items() if key not in ("run", "with")}
    address = _build_csv_address(
        "collectives", other["job"], {**parts, **({"run": other["run"]} if "run" in other else {})}
    )
    run = next(
        (
            option["label"]
            for option in list_run_options(get_session(), other["job"])
            if option["value"] == other.get("run")
        ),
        "",
    )
    name = get_workspace().info(other["job"]).name
    return [
        html.Div(
            [
                html.H2([html.Span("with ", className="cs-dim"), html.Bdi(name)]),
                html.Span(run or "same colours, same order of rows", className="cs-dim"),
            ],
            className="cs-coll-title",
        ),
        build_export_buttons(
            "collectives-other", figure="collectives-other", source=address, title=f"Collectives of {name}"
        ),
    ]


def _build_traffic_tab(asked: HeatmapRequest, view: dict[str, Any], _theme: str) -> dict[str, Any]:
    _, traffic = get_traffic(get_session(), asked.job, view)
    group = (
        f"in {view['of'].removeprefix('=') or 'the group of all ranks'}"
        if view.get("of") not in (None, "", UNNAMED)
        else "in all"
    )
    return {
        "panel": None,
        "title": "Who sends how much to whom",
        "subtitle": f"bytes from the rank of the row to the rank of the column, {group}: messages and all-to-alls",
        "export": build_export_buttons(
            "rank-to-rank",
            figure="collectives-heat",
            source=_build_csv_address("traffic", asked.job, view),
            title="Bytes from rank to rank",
        ),
        "worst": merge_static_parts(build_traffic_side(traffic, view)),
        "other": None,
    }


def _build_groups_tab(asked: HeatmapRequest, view: dict[str, Any], theme: str) -> dict[str, Any]:
    return {
        "panel": merge_static_parts(build_groups_panel(asked.job, view, dark=theme == "dark")),
        "worst": None,
        "other": None,
    }


def _build_sizes_tab(asked: HeatmapRequest, view: dict[str, Any], _theme: str) -> dict[str, Any]:
    return {"panel": merge_static_parts(build_classes_panel(asked.job, view)), "worst": None, "other": None}


_TABS = {
    "heat": _build_heat_tab,
    "traffic": _build_traffic_tab,
    "groups": _build_groups_tab,
    "sizes": _build_sizes_tab,
}


def _build_csv_address(what: str, job: str, view: dict[str, Any]) -> str:
    parts = {key: value for key, value in view.items() if key not in ("job", "rank", "node", "tab", "with")}
    return build_address(f"/api/jobs/{job}/{what}.csv", parts)


def _build_chips(asked: HeatmapRequest, view: dict[str, Any]) -> list[Any]:
    """Return a button per active filter, which removes it."""
    chips: list[tuple[str, dict[str, None]]] = []
    if asked.look.only:
        chips.append((f"only {asked.look.only}", {"only": None, "rows": None}))
    if view.get("rows") or view.get("cols"):
        chips.append(("zoomed in", {"rows": None, "cols": None}))
    return [
        html.Button([text, " ×"], className="cs-button", title="Show all again", **_build_view_change(change))
        for text, change in chips
    ]


def _build_view_change(change: dict[str, Any]) -> dict[str, Any]:
    return {"data-view": json.dumps(change)}


def _build_answer(**changed: Any) -> dict[str, Any]:
    return {name: changed.get(name, no_update) for name in _OUTPUTS}


def _build_empty_notice(view: dict[str, Any], unknown: str) -> Any:
    """Return what stands in place of the figure of a job without collectives; `unknown` says what there may be of them."""
    about = "This page shows how much each rank moves in each collective."
    return html.Div(
        [
            html.H2("Collectives of unknown type" if unknown else "No collectives"),
            html.P(f"{about} {unknown or 'This job has none.'}"),
            html.P(
                dcc.Link(
                    "See what ranks send each other", href=build_address("/collectives", view, tab="traffic")
                )
            ),
            dcc.Link(
                "See its nodes", href=build_address("/nodes", {"job": view.get("job")}), className="cs-button"
            ),
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
