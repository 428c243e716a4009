"""The SQL page: a query, examples, the tables it can ask for, and the answer as a grid and as files."""

from __future__ import annotations

import json
import uuid
from typing import Any

import dash
import dash_ag_grid as dag
import dash_mantine_components as dmc
from dash import ClientsideFunction, Input, Output, State, callback, clientside_callback, dcc, html, no_update

from studio.errors import StudioError
from studio.pages.base.grids import GRID_THEME
from studio.pages.base.state import get_session
from studio.pages.base.still import merge_static_parts
from studio.pages.base.widgets import build_address, build_aria_label, build_error_box
from studio.pages.sql.answer import build_grid, describe_answer
from studio.sql.columns import EXAMPLES, TABLES, Table
from studio.sql.database import ROWS_SHOWN, require_duckdb
from studio.views.address import choose_shown_run
from studio.views.sql import answer_of, cancel, query_of

dash.register_page(
    __name__,
    path="/sql",
    name="SQL",
    title="SQL · Chakra Studio",
    order=8.5,
    libraries=("dash_ag_grid",),
)

_ABOUT = "Trace tables are of the job and run in the bar above; jobs and runs list the whole workspace."


def layout(**query: str) -> Any:
    """Return the page; its content follows the view."""
    field = dmc.Textarea(
        id="sql-query",
        # There from the beginning: its answer may take a while.
        value=query.get("sql") or "",
        autosize=True,
        minRows=4,
        maxRows=12,
        spellCheck=False,
        **build_aria_label("Query"),
    )
    bar = html.Div(
        [
            html.Button("Run", id="sql-run", className="cs-button cs-ask-button", title="Ask (Ctrl+Enter)"),
            html.Kbd("Ctrl Enter", className="cs-dim"),
            html.Button(
                "Cancel",
                id="sql-cancel",
                className="cs-button",
                disabled=True,
                title="End the query that is running",
            ),
            html.Span(id="sql-said", role="status", className="cs-sql-said"),
            html.Span(id="sql-save", className="cs-export"),
        ],
        className="cs-sql-row",
    )
    main = html.Div(
        [
            merge_static_parts(_build_examples()),
            field,
            bar,
            html.Div(id="sql-error"),
            html.Div(_build_empty_grid(), id="sql-list", className="cs-sql-list"),
        ],
        className="cs-sql-main",
    )
    tables = html.Div(
        [
            html.H2("Tables"),
            html.P(_ABOUT),
            *merge_static_parts([_build_description(table) for table in TABLES]),
        ],
        className="cs-sql-tables",
        # It scrolls, which has to be possible by the keyboard as well.
        tabIndex=0,
        role="region",
        **build_aria_label("Tables and columns"),
    )
    return html.Div(
        [
            html.Div([html.H1("SQL"), html.Span(id="sql-of", className="cs-dim")], className="cs-page-head"),
            html.Div([main, tables], className="cs-sql-body"),
            dcc.Store(id="sql-shown"),
            # Who asks: this opening of the page.
            dcc.Store(id="sql-asker", data=uuid.uuid4().hex),
            html.Div(id="sql-sync", hidden=True),
        ],
        className="cs-page cs-sql",
    )


def _build_examples() -> Any:
    """Return the examples; a click puts one into the address."""
    buttons = []
    for example in EXAMPLES:
        about: dict[str, Any] = {"data-view": json.dumps({"sql": example.query})}
        buttons.append(html.Button(example.title, className="cs-button-quiet", title=example.query, **about))
    return html.Div([html.Span("Examples", className="cs-dim"), *buttons], className="cs-sql-examples")


def _build_description(table: Table) -> Any:
    columns = [
        part
        for column in table.columns
        for part in (
            html.Dt(column.name, title=column.about.replace("`", "")),
            html.Dd(column.unit or column.type.lower()),
        )
    ]
    return html.Details([html.Summary(table.name), html.P(table.about.replace("`", "")), html.Dl(columns)])


def _build_empty_grid() -> Any:
    return dag.AgGrid(
        id="sql-grid",
        columnDefs=[],
        rowData=[],
        defaultColDef={"resizable": True, "sortable": True},
        dashGridOptions={
            "theme": {"function": GRID_THEME},
            "tooltipShowDelay": 400,
            "animateRows": False,
            "ensureDomOrder": True,
            "enableCellTextSelection": True,
            "suppressNoRowsOverlay": True,
        },
        style={"height": "100%", "width": "100%"},
    )


@callback(
    Output("sql-query", "value"),
    Output("sql-of", "children"),
    Output("sql-said", "children"),
    Output("sql-save", "children"),
    Output("sql-error", "children"),
    Output("sql-list", "hidden"),
    Output("sql-grid", "columnDefs"),
    Output("sql-grid", "rowData"),
    Output("sql-shown", "data"),
    Input("view", "data"),
    State("sql-shown", "data"),
    State("sql-asker", "data"),
    running=[(Output("sql-cancel", "disabled"), False, True)],
)
def show(view: dict[str, Any], shown: str | None, asker: str) -> Any:
    """Answer the query of the view, unless it is shown already."""
    query = query_of(view)
    mark = json.dumps([query, view.get("job"), view.get("run")])
    if mark == shown:
        return [no_update] * 9
    of = ""
    try:
        require_duckdb()
        of = _label_run(view)
        answer = answer_of(get_session(), view, ROWS_SHOWN, asker)
    except StudioError as error:
        return query, of, "", [], build_error_box(error, title="No answer"), True, [], [], mark
    columns, rows = build_grid(answer.table)
    notes = [html.P(note, className="cs-sql-notes") for note in answer.notes]
    return (
        query,
        of,
        describe_answer(answer),
        _build_downloads(view, query),
        notes,
        False,
        columns,
        rows,
        mark,
    )


def _label_run(view: dict[str, Any]) -> str:
    """Return the name of the job and run that trace tables are of."""
    job = view.get("job")
    if not job:
        return "No job is open: jobs and runs can be asked for"
    name = get_session().workspace.info(job).name
    run = choose_shown_run(get_session(), job, view)
    if not run:
        return f"{name} · as recorded" if run == "" else name
    return f"{name} · {get_session().workspace.run_info(job, run).label}"


def _build_downloads(view: dict[str, Any], query: str) -> list[Any]:
    asked = {key: value for key, value in view.items() if key in ("job", "run") and value}
    kinds = (("CSV", "/api/sql/answer.csv"), ("Parquet", "/api/sql/answer.parquet"))
    return [
        html.A(
            name,
            href=build_address(path, asked, sql=query),
            className="cs-button",
            download="",
            title=f"Save the answer as {name}",
        )
        for name, path in kinds
    ]


@callback(Input("sql-cancel", "n_clicks"), State("sql-asker", "data"), prevent_initial_call=True)
def cancel_query(_clicks: int, asker: str) -> None:
    """Cancel the query that is running."""
    cancel(asker)


clientside_callback(
    ClientsideFunction("studio_sql", "ask"),
    Output("sql-sync", "title"),
    Input("sql-run", "n_clicks"),
    prevent_initial_call=True,
)
