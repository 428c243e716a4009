"""The Nodes page: every node of every rank, with filters, order and search."""

from __future__ import annotations

import threading
from typing import Any

import dash
import dash_ag_grid as dag
import dash_mantine_components as dmc
from dash import ClientsideFunction, Input, Output, callback, clientside_callback, dcc, html, no_update

from studio.analysis.job.node_columns import TEXT_COLUMNS
from studio.errors import StudioError
from studio.pages.base.export import build_export_buttons
from studio.pages.base.grids import GRID_THEME
from studio.pages.base.state import get_session, get_workspace
from studio.pages.base.widgets import build_aria_label, build_loading, build_no_job_notice
from studio.views.address import read_shown_run, run_note

dash.register_page(
    __name__,
    path="/nodes",
    name="Nodes",
    title="Nodes · Chakra Studio",
    order=2,
    libraries=("dash_ag_grid",),
)

_CLIENT = "studio_nodes"
_CLEARS: dict[str, Any] = {"data-nodes-clear": ""}
_TEXT_FILTERS = [
    "contains",
    "notContains",
    "equals",
    "notEqual",
    "startsWith",
    "endsWith",
    "blank",
    "notBlank",
]
_NUMBER_FILTERS = [
    {
        "displayKey": "matches",
        "displayName": "<, >, !=, a..b",
        # The grid asks for a predicate but never calls it: the server compares.
        "predicate": {"function": "true"},
        "numberOfInputs": 1,
    },
    "blank",
    "notBlank",
]


def _build_column(
    field: str,
    title: str,
    width: int,
    explained: str = "",
    run_width: int | None = None,
    own: str = "",
    **more: Any,
) -> dict[str, Any]:
    """Return the definition of a column; `context` is what assets/nodes/ reads.

    `run_width` is for a column of times: how wide it is while a run is shown and its heading says so. `own` is said in
    place of `explained` where recorded durations are nodes' own times.
    """
    text = field in TEXT_COLUMNS
    definition: dict[str, Any] = {
        "field": field,
        "headerName": title,
        "headerTooltip": explained,
        "filter": "agTextColumnFilter",
        "filterParams": {
            "filterOptions": _TEXT_FILTERS if text else _NUMBER_FILTERS,
            "debounceMs": 300,
            "maxNumConditions": 2,
        },
        "context": {"text": text, "run_width": run_width, "explained": explained, "own": own},
        **more,
    }
    if definition.get("flex") is None:
        definition["width"] = width
    if not text:
        definition["type"] = "rightAligned"
    return definition


def _build_quantity_column(field: str, title: str, width: int, explained: str, **more: Any) -> dict[str, Any]:
    """Return the definition of a column of sizes, counts or times; its filters accept units."""
    return _build_column(field, title, width, explained, tooltipField=f"{field}_exact", **more)


_OFFSETS = "Counted from the first recorded start of the job, in a run from its beginning. Filter: < 1.5 ms, 1 ms..2 ms"
_LASTS = "Filter: 20 us, >= 1.5 ms, 1 ms..2 ms"
_OWN = f"Own time: without the operators that it called. {_LASTS}"
_COLUMNS = [
    _build_column("rank", "Rank", 60),
    _build_column("id", "Id", 72),
    _build_column("name", "Name", 0, flex=1, minWidth=160, tooltipField="name"),
    _build_column("type", "Type", 98),
    _build_column("collective", "Collective", 132, "Collective that a COMM_COLL node takes part in"),
    _build_column("group", "Group", 74, "Comm group the node names", tooltipField="group"),
    _build_quantity_column(
        "bytes", "Bytes", 84, "Payload on this rank (comm_size). Filter: 48 MiB, > 1 GB, 1 KiB..1 MiB"
    ),
    _build_quantity_column(
        "operations", "Operations", 96, "Floating-point operations (num_ops). Filter: 2 G, > 500 M"
    ),
    # While a run is shown the script adds "in run" to the first three and shows what was recorded beside them.
    _build_quantity_column("start_ns", "Start", 104, f"When it began. {_OFFSETS}", run_width=104),
    _build_quantity_column(
        "end_ns",
        "End",
        104,
        f"When it ended. {_OFFSETS}",
        run_width=104,
        own=f"When it was over, with the operators that it called. {_OFFSETS}",
    ),
    _build_quantity_column(
        "duration_ns",
        "Duration",
        94,
        f"From start to end. {_LASTS}",
        run_width=128,
        own=_OWN,
    ),
    _build_quantity_column(
        "recorded_start_ns", "Recorded start", 104, f"In the recording. {_OFFSETS}", hide=True
    ),
    _build_quantity_column(
        "recorded_duration_ns",
        "Recorded duration",
        142,
        f"In the recording. {_LASTS}",
        own=_OWN,
        hide=True,
    ),
    _build_column("waits_for", "Waits for", 80, "How many nodes it waits for, by data or control dependency"),
]


def layout(**_query: str) -> Any:
    """Return the page; the grid asks for its rows itself, and follows the view."""
    return html.Div(
        [
            html.Div(build_no_job_notice(), id="nodes-none", hidden=True),
            html.Div(
                [_build_head(), html.Div(id="nodes-error", role="alert"), _build_list(), _build_chips()],
                id="nodes-page",
                className="cs-page cs-nodes",
            ),
            dcc.Store(id="nodes-followed"),
        ]
    )


def _build_head() -> Any:
    search = dmc.TextInput(
        id="nodes-search",
        placeholder="Name contains, or id is",
        size="xs",
        w=220,
        **build_aria_label("Search nodes: name contains, or id is"),
    )
    rank = dmc.Select(
        id="nodes-rank",
        data=[],
        placeholder="all ranks",
        searchable=True,
        clearable=True,
        nothingFoundMessage="No such rank",
        limit=200,
        size="xs",
        w=116,
        **build_aria_label("Rank"),
    )
    return html.Div(
        [
            html.H1("Nodes", id="nodes-title"),
            search,
            rank,
            html.Button(
                "Clear filters",
                className="cs-button",
                id="nodes-clear",
                hidden=True,
                **_CLEARS,
            ),
            html.Span(id="nodes-count", role="status", className="cs-nodes-count"),
            html.Span(id="nodes-times", className="cs-dim"),
            html.Div(
                [
                    html.Span(id="nodes-lacks", className="cs-dim cs-nodes-lacks"),
                    # The script says what is listed.
                    html.Div(build_export_buttons("nodes", source="-", title="the nodes"), id="nodes-save"),
                ],
                className="cs-nodes-aside",
            ),
        ],
        className="cs-page-head",
    )


def _build_list() -> Any:
    grid = dag.AgGrid(
        id="nodes-grid",
        rowModelType="infinite",
        columnDefs=_COLUMNS,
        defaultColDef={
            "resizable": True,
            "sortable": True,
            "floatingFilter": True,
            "suppressHeaderMenuButton": True,
        },
        getRowId="params.data.rank + '/' + params.data.ref",
        dashGridOptions={
            "theme": {"function": GRID_THEME},
            "cacheBlockSize": 100,
            "maxBlocksInCache": 60,
            "cacheOverflowSize": 1,
            "infiniteInitialRowCount": 1,
            "maxConcurrentDatasourceRequests": 2,
            "blockLoadDebounceMillis": 20,
            "rowBuffer": 8,
            "rowSelection": {"mode": "singleRow", "checkboxes": False, "enableClickSelection": False},
            "multiSortKey": "ctrl",
            "tooltipShowDelay": 400,
            "suppressNoRowsOverlay": True,
            "suppressDragLeaveHidesColumns": True,
            "animateRows": False,
            "ensureDomOrder": True,
            "floatingFiltersHeight": 30,
        },
        className="cs-nodes-grid",
        style={"height": "100%", "width": "100%"},
    )
    empty = html.Div(
        [
            html.H2("No node matches"),
            html.P("No node of this job passes the filters and the search."),
            html.Button("Clear filters", className="cs-button", **_CLEARS),
        ],
        id="nodes-empty",
        className="cs-nodes-empty",
        hidden=True,
    )
    return html.Div([grid, empty, build_loading("Listing the nodes…")], className="cs-nodes-list")


def _build_chips() -> Any:
    """Return the place of the filters that are set, below the list: there nothing moves when they come."""
    return html.Div(
        id="nodes-chips", className="cs-nodes-chips", hidden=True, **build_aria_label("Filters"), role="group"
    )


@callback(Output("nodes-rank", "data"), Input("job", "data"))
def list_ranks(job: str | None) -> Any:
    """Fill the choice of ranks."""
    if not job:
        return []
    try:
        get_workspace().info(job)
        index = get_session().node_index(job)
    except StudioError:
        return no_update  # the list itself reports the problem
    # The first sort or search by name would wait for this.
    threading.Thread(target=index.warm, daemon=True).start()
    return [str(rank.number) for rank in index.trace.ranks]


@callback(Output("nodes-times", "children"), Output("nodes-times", "title"), Input("shown-run", "data"))
def tell_times(shown: str | None) -> tuple[str, str]:
    """Say which run the times are of, twice: the line may cut it."""
    job, run = read_shown_run(shown)
    note = run_note(get_session(), job, {"run": run})
    return note, note


clientside_callback(
    ClientsideFunction(_CLIENT, "follow"), Output("nodes-followed", "data"), Input("view", "data")
)
clientside_callback(
    ClientsideFunction(_CLIENT, "search"),
    Output("nodes-search", "error"),
    Input("nodes-search", "value"),
    prevent_initial_call=True,
)
clientside_callback(
    ClientsideFunction(_CLIENT, "pickRank"),
    Output("nodes-rank", "error"),
    Input("nodes-rank", "value"),
    prevent_initial_call=True,
)
