"""The Validate page: measured times of collectives beside simulated ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dash
import dash_mantine_components as dmc
from dash import ClientsideFunction, Input, Output, State, callback, clientside_callback, dcc, html, no_update

from studio.calibration.judging import judge_all
from studio.calibration.machines import OTHERWISE, group_by_machine
from studio.calibration.reading.given import Given
from studio.errors import StudioError
from studio.figures.validation import draw_measured_and_simulated
from studio.pages.base.export import build_export_buttons
from studio.pages.base.state import get_workspace
from studio.pages.base.widgets import build_aria_label, build_error_box, build_hint, read_upload, show_errors
from studio.pages.validate.words import (
    ERRORS,
    build_error_table,
    build_size_table,
    describe_errors,
    label_tables,
)
from studio.sim.systems import SYSTEMS, describe_measured_errors, find_system
from studio.store.measured import Shelf

dash.register_page(__name__, path="/validate", name="Validate", title="Validate · Chakra Studio", order=9)

_AUTOMATIC = "auto"
_OWN = "own:"
_LARGEST = 32 << 20
_MOST_SHOWN = 16
_CURVE = (
    "The measured over the modelled times that calibrate kept for each table. They correct only this machine, this "
    "collective and group; without them one sees what the model itself knows."
)
_TAKES_DROPS: dict[str, Any] = {
    "data-takes-drops": "Drop measured tables to add them",
    "data-upload-name": "Measured tables to add",
}
_GIVEN = "GPUs of a node, and nodes, that took part in tables that are added: for logs without a list of devices, and CSV files without these columns."


def layout(**query: str) -> Any:
    """Return the page; its content follows the view, and what the address says already stands in the choices."""
    return html.Div(
        [
            _build_controls(_get_system(query), _get_curve(query)),
            html.Div(id="validate-kept-words", role="status"),
            html.Div(id="validate-body"),
            dcc.Store(id="validate-kept"),
            dcc.Store(id="validate-filled"),
            html.Div(id="validate-sync", hidden=True),
            html.Div(id="validate-sync-kept", hidden=True),
        ],
        className="cs-page",
    )


def _build_controls(system: str, curve: str) -> Any:
    return html.Div(
        [
            html.H1("Validate"),
            _build_select("tables", "Measured tables", "no tables yet", 220),
            _build_select("machine", "Machine", "machine", 170),
            _build_select("system", "System to judge on", "the system its hardware names", 250, value=system),
            dmc.SegmentedControl(
                id="validate-curve",
                data=[
                    {"value": "with", "label": "with residual curve"},
                    {"value": "without", "label": "without"},
                ],
                value=curve,
                size="xs",
                **build_aria_label("Residual curves"),
            ),
            build_hint("a residual curve", _CURVE),
            html.Span(style={"flex": 1}),
            html.Span(
                [
                    html.Span("GPUs per node", className="cs-dim"),
                    _build_number_field("gpus", "GPUs per node"),
                    html.Span("nodes", className="cs-dim"),
                    _build_number_field("nodes", "Nodes"),
                    build_hint("GPUs and nodes", _GIVEN),
                    _build_upload(),
                ],
                className="cs-validate-given",
            ),
        ],
        className="cs-page-head",
    )


def _build_upload() -> Any:
    button = html.Button(
        "Add tables",
        className="cs-button",
        title="Outputs of nccl-tests or rccl-tests, CSV files, system files of chakra-studio calibrate; or drop them on the page",
    )
    return html.Div(
        dcc.Upload(button, id="validate-upload", multiple=True, max_size=_LARGEST), **_TAKES_DROPS
    )


def _build_select(name: str, title: str, placeholder: str, width: int, *, value: str | None = None) -> Any:
    return dmc.Select(
        id=f"validate-{name}",
        data=[] if value is None else _list_systems(),
        value=value,
        size="xs",
        w=width,
        searchable=True,
        allowDeselect=False,
        placeholder=placeholder,
        comboboxProps={"shadow": "sm"},
        **build_aria_label(title),
    )


def _build_number_field(name: str, title: str) -> Any:
    return dmc.TextInput(
        id=f"validate-{name}",
        size="xs",
        w=52,
        **build_aria_label(f"{title}, where added tables do not say"),
    )


@callback(
    Output("validate-kept", "data"),
    Output("validate-kept-words", "children"),
    Input("validate-upload", "contents"),
    State("validate-upload", "filename"),
    State("validate-gpus", "value"),
    State("validate-nodes", "value"),
    prevent_initial_call=True,
)
def keep(contents: list[str] | None, names: list[str] | None, gpus: str | None, nodes: str | None) -> Any:
    """Keep the files that were chosen in the workspace, and show them."""
    if not contents:
        return no_update, no_update
    files = {name: read_upload(content) for name, content in zip(names or [], contents, strict=True)}
    try:
        given = Given(_parse_whole(gpus), _parse_whole(nodes))
        added = _open_shelf().keep(files, given)
    except StudioError as error:
        return no_update, build_error_box(error, title="These files were not added")
    messages: list[Any] = [
        build_error_box(
            error, title="This file was not added" if len(files) > 1 else "The file was not added"
        )
        for error in added.refused
    ]
    messages += [html.P(note, className="cs-dim") for note in added.notes]
    if added.systems and not added.tables:
        messages.append(html.P("The system is now among those to judge on.", className="cs-dim"))
    return {"tables": added.tables} if added.tables or added.systems else no_update, messages


def _parse_whole(text: str | None) -> int | None:
    word = (text or "").strip()
    return int(word) if word.isascii() and word.isdecimal() and 0 < int(word) < 2**24 else None


@callback(
    Output("validate-tables", "data"),
    Output("validate-tables", "value"),
    Output("validate-machine", "data"),
    Output("validate-machine", "value"),
    Output("validate-system", "data"),
    Output("validate-system", "value"),
    Output("validate-curve", "value"),
    Output("validate-filled", "data"),
    Output("validate-body", "children"),
    Input("view", "data"),
    Input("theme", "data"),
    Input("validate-kept", "data"),
    State("validate-tables", "value"),
    State("validate-machine", "value"),
    State("validate-system", "value"),
    State("validate-curve", "value"),
)
def show(view: dict[str, Any], theme: str | None, _kept: dict[str, str] | None, *current: str | None) -> Any:
    """Fill choices and content for a view; choices that stand in `current` already are not written again.

    One that is made while this answer is under way would be taken back by it.
    """
    sets = _open_shelf().tables()
    chosen = str(view.get("tables") or (sets[0] if sets else ""))
    system, curve = _get_system(view), _get_curve(view)
    machines, machine, problem = _choose_machine(chosen, str(view.get("machine") or ""))
    body = problem or show_machine((chosen, machine, system), curve == "with", theme == "dark")
    wanted = (chosen or None, machine, system, curve)
    tables_value, machine_value, system_value, curve_value = (
        no_update if value == shown else value for value, shown in zip(wanted, current, strict=True)
    )
    return (
        [{"value": name, "label": name} for name in sets],
        tables_value,
        [{"value": name, "label": name or "(no name)"} for name in machines],
        machine_value,
        _list_systems(),
        system_value,
        curve_value,
        wanted,
        body if chosen else _build_empty_page(),
    )


def _get_system(view: Mapping[str, Any]) -> str:
    return str(view.get("system") or _AUTOMATIC)


def _get_curve(view: Mapping[str, Any]) -> str:
    return "without" if view.get("curve") == "without" else "with"


def _choose_machine(chosen: str, wanted: str) -> tuple[list[str], str, Any]:
    """Return the machines of a set of tables, the one to show, and an error in place of them."""
    if not chosen:
        return [], "", None
    try:
        machines = list(group_by_machine(_open_shelf().read(chosen).tables))
    except StudioError as error:
        return [], "", build_error_box(error)
    return machines, wanted if wanted in machines else machines[0], None


def _list_systems() -> list[dict[str, str]]:
    own = [{"value": f"{_OWN}{name}", "label": f"{name} (calibrated)"} for name in _open_shelf().systems()]
    built_in = [{"value": name, "label": name} for name in SYSTEMS]
    return [{"value": _AUTOMATIC, "label": "the system its hardware names"}, *own, *built_in]


def _build_empty_page() -> Any:
    return html.Div(
        [
            html.H2("No measured tables yet"),
            html.P(
                "Add the output of nccl-tests or rccl-tests, or a CSV file: measured and simulated times on one plot, and how "
                "far they are apart."
            ),
            html.P(
                "chakra-studio calibrate TABLES -o my-cluster.yml fits a system to them; add that file here as well.",
                className="cs-dim",
            ),
        ],
        className="cs-empty",
    )


@show_errors
def show_machine(which: tuple[str, str, str], corrected: bool, dark: bool) -> Any:
    """Return the plots and figures of one machine.

    Args:
        which: Set of tables, machine and system.
        corrected: Whether residual curves count.
        dark: Which theme.
    """
    chosen, machine, system = which
    tables = group_by_machine(_open_shelf().read(chosen).tables)[machine]
    judged, notes = judge_all(tables, _resolve_system(system))
    drawn = judged[:_MOST_SHOWN]
    more = "" if len(judged) == len(drawn) else f" The first {len(drawn)} of {len(judged)} tables are drawn."
    names = label_tables(drawn)
    return html.Div(
        [
            html.Div(
                [
                    html.H2("How far simulated times are from measured ones"),
                    build_export_buttons(
                        "validation", figure="validate-figure", table=build_size_table(judged)
                    ),
                ],
                className="cs-figure-head",
            ),
            html.P(
                [describe_errors(judged, corrected=corrected), build_hint("the error", ERRORS), more],
                className="cs-dim",
            ),
            html.P(_describe_own_error(judged[0].system, _resolve_system(system)), className="cs-dim"),
            dcc.Graph(
                id="validate-figure",
                figure=draw_measured_and_simulated(drawn, names, corrected=corrected, dark=dark),
                config={"displayModeBar": False},
                className="cs-figure",
            ),
            html.Div(build_error_table(judged), className="cs-validate-table"),
            html.Ul(
                [html.Li(note.replace(OTHERWISE, "choose another system above")) for note in notes],
                className="cs-dim",
            ),
        ]
    )


def _describe_own_error(name: str, path: str | None) -> str:
    """Say how far the system is off by its own calibration."""
    return f"{name}, by its own calibration: {describe_measured_errors(find_system(path or name)[0])}."


def _resolve_system(system: str) -> str | None:
    if system == _AUTOMATIC:
        return None
    return str(_open_shelf().system_path(system.removeprefix(_OWN))) if system.startswith(_OWN) else system


def _open_shelf() -> Shelf:
    return Shelf(get_workspace().root)


clientside_callback(
    ClientsideFunction("studio_validate", "choose"),
    Output("validate-sync", "title"),
    Input("validate-tables", "value"),
    Input("validate-machine", "value"),
    Input("validate-system", "value"),
    Input("validate-curve", "value"),
    State("validate-filled", "data"),
    prevent_initial_call=True,
)
clientside_callback(
    ClientsideFunction("studio_validate", "showKept"),
    Output("validate-sync-kept", "title"),
    Input("validate-kept", "data"),
    prevent_initial_call=True,
)
