"""The form of the Simulate page: a system's settings as fields, with what is wrong at each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dash_mantine_components as dmc
from dash import html

from studio.drafts import Draft
from studio.errors import ConfigError
from studio.pages._asked import EDIT, asks
from studio.pages._simulate_edits import dimensions, is_extended, shown_text
from studio.pages._simulate_fields import (
    ALGORITHM_CHOICES,
    ALGORITHM_HINT,
    ALGORITHMS,
    CONGESTION,
    DIMENSION_FIELDS,
    FIELDS,
    GROUPS,
    Field,
)
from studio.pages._widgets import hint, labelled
from studio.store.runs import Tables

_DEBOUNCE_MS = 200


def form(draft: Draft) -> Any:
    """Return the fields of a system."""
    tables = draft.tables
    return [
        html.Ul([html.Li(note) for note in draft.notes], className="sim-notes") if draft.notes else None,
        _section("Network", _dimensions(tables)),
        _section("Algorithm of each collective", _algorithms(tables), ALGORITHM_HINT),
        *[_section(name, _fields(tables, name)) for name in GROUPS if _shown(tables, name)],
    ]


def _section(title: str, content: Any, about: str = "") -> Any:
    head = [title, hint(title, about)] if about else title
    return html.Section([html.H2(head), content], className="sim-section")


def keyed(name: str) -> dict[str, str]:
    """Return the id of a field's control."""
    return {"sim": name}


# ---------------------------------------------------------------------------------------------------
# Dimensions


def _dimensions(tables: Tables) -> Any:
    columns = [field for field in DIMENSION_FIELDS if not field.extended]
    further = [field for field in DIMENSION_FIELDS if field.extended and is_extended(tables)]
    count = dimensions(tables)
    units = {"bandwidth": shown_text(tables, FIELDS["bandwidth-unit"]), "latency": "ns"}
    head: list[Any] = [html.Th("Dim.", scope="col")]
    for field in columns:
        unit = html.Span(f" {units[field.key]}", className="cs-dim") if field.key in units else None
        title = html.Span([field.label, unit, hint(field.label, field.hint)], className="sim-label")
        head.append(html.Th(title, scope="col"))
    head.append(html.Th(html.Span("Order", className="sim-unseen"), scope="col"))
    rows = []
    for at in range(count):
        cells: list[Any] = [html.Th(str(at), scope="row")]
        cells += [html.Td(_dimension_control(tables, field, at)) for field in columns]
        rows.append(html.Tr([*cells, html.Td(_order(at, count), className="sim-order")]))
        if further:
            more = html.Div([_inline(tables, field, at) for field in further], className="sim-further")
            rows.append(html.Tr([html.Td(), html.Td(more, colSpan=len(columns) + 1)]))
        said_at = html.Td(id={"sim-said": f"dim-{at}"}, colSpan=len(columns) + 2, className="sim-said")
        rows.append(html.Tr(said_at))
    buttons = html.Div(
        [
            html.Button("Add dimension", className="cs-button-quiet", **asks(EDIT, "add")),
            html.Span(id={"sim-said": "network"}, className="sim-said"),
        ],
        className="sim-row",
    )
    return html.Div(
        [html.Table([html.Thead(html.Tr(head)), html.Tbody(rows)], className="sim-table sim-dims"), buttons]
    )


def _inline(tables: Tables, field: Field, at: int) -> Any:
    """Return a setting of a dimension that stands below the others, its name beside it."""
    unit = f" {field.unit}" if field.unit else ""
    name = html.Span([field.label.lower(), unit, hint(field.label, field.hint)], className="cs-dim sim-label")
    return html.Span([name, _dimension_control(tables, field, at)], className="cs-graph-field")


def _dimension_control(tables: Tables, field: Field, at: int) -> Any:
    name = f"{field.label} of dimension {at}"
    return control(field, f"{field.key}[{at}]", shown_text(tables, field, at), name)


def _order(at: int, count: int) -> list[Any]:
    def button(text: str, act: str, title: str, *, off: bool) -> Any:
        return html.Button(
            text,
            className="sim-icon",
            disabled=off,
            title=title,
            **asks(EDIT, act, f"{at}/{count}"),
            **labelled(f"{title} (dimension {at})"),
        )

    return [
        button("↑", "inwards", "Move towards the NPU", off=at == 0),
        button("↓", "outwards", "Move away from the NPU", off=at == count - 1),
        button("×", "remove", "Remove", off=count == 1),
    ]


def _algorithms(tables: Tables) -> Any:
    count = dimensions(tables)
    rows = [field for field in ALGORITHMS if is_extended(tables) or not field.extended]
    head = [
        html.Th("Collective", scope="col"),
        *[html.Th(f"in dim. {at}" if count > 1 else "", scope="col") for at in range(count)],
    ]
    body = []
    for field in rows:
        cells: list[Any] = [html.Th(field.label, scope="row")]
        cells += [
            html.Td(
                control(
                    field,
                    f"{field.key}[{at}]",
                    shown_text(tables, field, at),
                    f"Algorithm of {field.label.lower()} in dimension {at}",
                )
            )
            for at in range(count)
        ]
        body.append(html.Tr(cells))
    return html.Div(
        [
            html.Table([html.Thead(html.Tr(head)), html.Tbody(body)], className="sim-table sim-algorithms"),
            html.Datalist([html.Option(value=name) for name in ALGORITHM_CHOICES], id="sim-algorithms"),
            html.Div(id={"sim-said": "algorithms"}, className="sim-said"),
        ]
    )


# ---------------------------------------------------------------------------------------------------
# Fields that stand alone


def _shown(tables: Tables, group: str) -> list[Field]:
    def counts(field: Field) -> bool:
        if field.extended and not is_extended(tables):
            return False
        if not field.needs:
            return True
        master = next(one for one in GROUPS[group] if one.key == field.needs)
        return shown_text(tables, master) != master.choices[0][0]

    return [field for field in GROUPS[group] if counts(field)]


def _fields(tables: Tables, group: str) -> Any:
    items = []
    for field in _shown(tables, group):
        unit = html.Span(f" {field.unit}", className="cs-dim") if field.unit else None
        items.append(
            html.Div(
                [
                    html.Div([field.label, unit, hint(field.label, field.hint)], className="sim-label"),
                    control(field, field.key, shown_text(tables, field), field.label),
                    html.Div(id={"sim-said": field.key}, className="sim-said"),
                ],
                className="sim-field",
            )
        )
    return html.Div(items, className="sim-fields")


def control(field: Field, key: str, text: str, name: str) -> Any:
    """Return the control of a field, named `name` for those who do not see where it stands."""
    about = labelled(name)
    if field.choices:
        known = [{"value": value, "label": label} for value, label in field.choices]
        if text not in dict(field.choices):
            known.append({"value": text, "label": text})
        return dmc.Select(
            id=keyed(key),
            value=text,
            data=known,
            size="xs",
            allowDeselect=False,
            comboboxProps={"shadow": "sm"},
            **about,
        )
    suggested = {"attributes": {"input": {"list": "sim-algorithms"}}} if field in ALGORITHMS else {}
    return dmc.TextInput(
        id=keyed(key),
        value=text,
        size="xs",
        debounce=_DEBOUNCE_MS,
        placeholder=field.default,
        autoComplete="off",
        spellCheck=False,
        **suggested,
        **about,
    )


def congestion_control(tables: Tables) -> Any:
    """Return the choice between the network models, which stands above the form."""
    return html.Span(
        [
            html.Span("congestion", className="cs-dim"),
            control(CONGESTION, CONGESTION.key, tables.congestion, "Congestion"),
            hint(CONGESTION.label, CONGESTION.hint),
        ],
        className="cs-graph-field sim-congestion",
    )


# ---------------------------------------------------------------------------------------------------
# What is wrong


def place_of(key: str) -> str:
    """Return where a problem with `key` is told.

    Example:
        >>> place_of("bandwidth[1]"), place_of("bandwidth"), place_of("all-reduce-implementation[0]"), place_of("peak-perf")
        ('dim-1', 'network', 'algorithms', 'peak-perf')
    """
    name, _, at = key.partition("[")
    if name in {field.key for field in DIMENSION_FIELDS}:
        return f"dim-{at.removesuffix(']')}" if at else "network"
    return "algorithms" if name in {field.key for field in ALGORITHMS} else name


def said(problems: Mapping[str, ConfigError]) -> dict[str, list[Any]]:
    """Return what is told where: the values allowed, in the words of the file's own error."""
    told: dict[str, list[Any]] = {}
    for key, error in problems.items():
        text = f"{_called(key)}: {error.allowed}." if error.allowed else error.message
        told.setdefault(place_of(key), []).append(
            html.P([html.Span(text), html.Span(f" {error.hint}", className="cs-dim")])
        )
    return told


def _called(key: str) -> str:
    field = next((one for one in (*DIMENSION_FIELDS, *ALGORITHMS) if one.key == key.partition("[")[0]), None)
    return f"{field.label} may be" if field else "It may be"
