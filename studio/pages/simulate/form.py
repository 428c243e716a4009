"""The form of the Simulate page: a system's settings as fields, with what is wrong at each of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import html

from studio.errors import ConfigError
from studio.pages.base.asked import EDIT, build_click_request
from studio.pages.base.fold import Fold
from studio.pages.base.widgets import build_aria_label, build_hint
from studio.pages.simulate.edits import count_dimensions, format_setting, list_choices
from studio.pages.simulate.naming import format_number
from studio.sim.algorithms import ALGORITHM_NAMES, ALGORITHMS_HINT
from studio.sim.models import get_model
from studio.sim.parts import Parts, is_extended
from studio.sim.problems import examine_parts
from studio.sim.settings import (
    ALGORITHM_SETTINGS,
    BY_KEY,
    DIMENSION_SETTINGS,
    HEADINGS,
    NETWORK_UNIT,
    REFERENCE,
    SETTINGS,
    Setting,
)
from studio.store.drafts import Draft
from studio.trace import Finding

_DEBOUNCE_MS = 200
_ALGORITHMS_HINT = (
    f"How a collective is carried out along each dimension, dimension 0 first. {ALGORITHMS_HINT} {REFERENCE}"
)
_TABLES = (*DIMENSION_SETTINGS, *ALGORITHM_SETTINGS)
"""Settings that have a field per dimension, in tables."""


def build_form(draft: Draft) -> Any:
    """Return the fields that always stand open: what the studio has set by itself, and the network."""
    notes = html.Ul([html.Li(note) for note in draft.notes], className="sim-notes") if draft.notes else None
    return [
        notes,
        html.Section([html.H2("Network"), _build_dimension_table(draft.tables)], className="sim-section"),
    ]


def build_folds(draft: Draft) -> Any:
    """Return the remaining fields in folds by topic; each fold names the fields that are set in it.

    One in which something is not allowed stands open.
    """
    tables = draft.tables
    wrong = {key.partition("[")[0] for key in examine_parts(tables).problems}
    shown = [(name, settings) for name in HEADINGS if (settings := _select_settings(tables, name))]
    algorithms = [
        _build_fold_title("Algorithm of each collective", _describe_algorithms(tables)),
        _build_algorithm_table(tables),
    ]
    return [
        _build_fold(algorithms, _list_algorithm_settings(tables), wrong),
        _build_further_settings(tables, wrong),
        *[
            _build_fold(
                [
                    _build_fold_title(name, _describe_set_fields(tables, settings)),
                    _build_fields(tables, settings),
                ],
                settings,
                wrong,
            )
            for name, settings in shown
        ],
    ]


def _build_fold(parts: Sequence[Any], settings: Sequence[Setting], wrong: Collection[str]) -> Any:
    """Return a fold of a title and its content."""
    is_open = any(setting.key in wrong for setting in settings)
    return Fold(parts, "sim-section sim-fold", is_open=is_open)


def _build_fold_title(title: str, words: str) -> Any:
    """Return the line that a fold consists of while it is closed; `words` say what is set in it."""
    return html.Summary(
        [
            html.H2(title),
            html.Span(words or "defaults", className="cs-dim sim-set", title=words),
            html.Span("needs a look", className="sim-wrong"),
        ]
    )


def _describe_set_fields(tables: Parts, settings: Sequence[Setting]) -> str:
    """Return the settings of a fold that differ from their default, with their values."""
    words = []
    for setting in settings:
        text = format_setting(tables, setting)
        labels = dict(list_choices(setting))
        usual = next(iter(labels), setting.placeholder)
        if text and text != usual:
            unit = f" {setting.unit}" if setting.unit else ""
            words.append(f"{setting.label} {labels.get(text, format_number(text))}{unit}")
    return ", ".join(words)


def _describe_algorithms(tables: Parts) -> str:
    """Return the algorithms that are set: one name where all agree, else that of each collective."""
    if is_extended(tables) and tables.network.get("costs"):
        return "chosen by the cost model"
    count = count_dimensions(tables)
    each = {
        setting.label: [text for index in range(count) if (text := format_setting(tables, setting, index))]
        for setting in _list_algorithm_settings(tables)
    }
    given = {label: texts for label, texts in each.items() if texts}
    if len({text for texts in given.values() for text in texts}) == 1:
        return next(iter(given.values()))[0]
    return ", ".join(f"{label} {' × '.join(texts)}" for label, texts in given.items())


def build_control_id(name: str) -> dict[str, str]:
    """Return the id of a field's control."""
    return {"sim": name}


# ---------------------------------------------------------------------------------------------------
# Dimensions


def _build_dimension_table(tables: Parts) -> Any:
    columns = [field for field in DIMENSION_SETTINGS if not field.is_extended]
    count = count_dimensions(tables)
    network_unit = format_setting(tables, BY_KEY["bandwidth-unit"])
    head: list[Any] = [html.Th("Dim.", scope="col")]
    for field in columns:
        unit = _build_unit(network_unit if field.unit == NETWORK_UNIT else field.unit)
        title = html.Span([field.label, unit, _build_hint(field)], className="sim-label")
        head.append(html.Th(title, scope="col"))
    head.append(html.Th(html.Span("Order", className="sim-unseen"), scope="col"))
    rows = []
    for index in range(count):
        cells: list[Any] = [html.Th(str(index), scope="row")]
        cells += [html.Td(_build_dimension_control(tables, field, index)) for field in columns]
        rows.append(html.Tr([*cells, html.Td(_build_order_buttons(index, count), className="sim-order")]))
        said_at = html.Td(id={"sim-said": f"dim-{index}"}, colSpan=len(columns) + 2, className="sim-said")
        rows.append(html.Tr(said_at))
    buttons = html.Div(
        [
            html.Button("Add dimension", className="cs-button-quiet", **build_click_request(EDIT, "add")),
            html.Span(id={"sim-said": "network"}, className="sim-said"),
            build_foretold_place("network"),
        ],
        className="sim-row",
    )
    return html.Div(
        [html.Table([html.Thead(html.Tr(head)), html.Tbody(rows)], className="sim-table sim-dims"), buttons]
    )


def _build_further_settings(tables: Parts, wrong: Collection[str]) -> Any:
    """Return the fold of further settings of each dimension, which the extended mode has."""
    settings = [field for field in DIMENSION_SETTINGS if field.is_extended and is_extended(tables)]
    if not settings:
        return None
    head = [html.Th("Dim.", scope="col")]
    head += [html.Th(_build_label(field), scope="col") for field in settings]
    rows, words = [], []
    for index in range(count_dimensions(tables)):
        cells = [html.Td(_build_dimension_control(tables, field, index)) for field in settings]
        rows.append(html.Tr([html.Th(str(index), scope="row"), *cells]))
        words += [
            f"{field.label.lower()} {format_number(text)} in dim. {index}"
            for field in settings
            if (text := format_setting(tables, field, index)) and text != field.placeholder
        ]
    grid = html.Table([html.Thead(html.Tr(head)), html.Tbody(rows)], className="sim-table")
    return _build_fold(
        [_build_fold_title("Efficiency and overhead of links", ", ".join(words)), grid], settings, wrong
    )


def _build_label(field: Setting) -> Any:
    return html.Span([field.label, _build_unit(field.unit), _build_hint(field)], className="sim-label")


def _build_dimension_control(tables: Parts, field: Setting, index: int) -> Any:
    name = f"{field.label} of dimension {index}"
    return build_control(field, f"{field.key}[{index}]", format_setting(tables, field, index), name)


def _build_order_buttons(index: int, count: int) -> list[Any]:
    def build_button(text: str, act: str, title: str, *, off: bool) -> Any:
        return html.Button(
            text,
            className="sim-icon",
            disabled=off,
            title=title,
            **build_click_request(EDIT, act, f"{index}/{count}"),
            **build_aria_label(f"{title} (dimension {index})"),
        )

    return [
        build_button("↑", "inwards", "Move towards the NPU", off=index == 0),
        build_button("↓", "outwards", "Move away from the NPU", off=index == count - 1),
        build_button("×", "remove", "Remove", off=count == 1),
    ]


def _list_algorithm_settings(tables: Parts) -> list[Setting]:
    return [field for field in ALGORITHM_SETTINGS if is_extended(tables) or not field.is_extended]


def _build_algorithm_table(tables: Parts) -> Any:
    count = count_dimensions(tables)
    rows = _list_algorithm_settings(tables)
    head = [
        html.Th(["Collective", build_hint("the algorithm of a collective", _ALGORITHMS_HINT)], scope="col"),
        *[html.Th(f"in dim. {index}" if count > 1 else "", scope="col") for index in range(count)],
    ]
    body = []
    for field in rows:
        cells: list[Any] = [html.Th(field.label, scope="row")]
        cells += [
            html.Td(
                build_control(
                    field,
                    f"{field.key}[{index}]",
                    format_setting(tables, field, index),
                    f"Algorithm of {field.label.lower()} in dimension {index}",
                )
            )
            for index in range(count)
        ]
        body.append(html.Tr(cells))
    return html.Div(
        [
            html.Table([html.Thead(html.Tr(head)), html.Tbody(body)], className="sim-table sim-algorithms"),
            html.Datalist([html.Option(value=name) for name in ALGORITHM_NAMES], id="sim-algorithms"),
            html.Div(id={"sim-said": "algorithms"}, className="sim-said"),
            build_foretold_place("algorithms"),
        ]
    )


# ---------------------------------------------------------------------------------------------------
# Fields that stand alone


def _select_settings(tables: Parts, group: str) -> list[Setting]:
    def is_shown(field: Setting) -> bool:
        if field.is_extended and not is_extended(tables):
            return False
        master = BY_KEY.get(field.needs)
        return master is None or format_setting(tables, master) != list_choices(master)[0][0]

    return [field for field in SETTINGS if field.heading == group and is_shown(field)]


def _build_unit(unit: str) -> Any:
    return html.Span(f" {unit}", className="cs-dim") if unit else None


def _build_hint(field: Setting) -> Any:
    return build_hint(field.label, field.about)


def _build_fields(tables: Parts, settings: Sequence[Setting]) -> Any:
    items = [
        html.Div(
            [
                html.Div(_build_label(field)),
                build_control(field, field.key, format_setting(tables, field), field.label),
                html.Div(id={"sim-said": field.key}, className="sim-said"),
                build_foretold_place(field.key) if field.key in _FORETOLD_AT else None,
            ],
            className="sim-field",
        )
        for field in settings
    ]
    return html.Div(items, className="sim-fields")


def build_control(field: Setting, key: str, text: str, name: str) -> Any:
    """Return the control of a field; `name` is its accessible name."""
    about = build_aria_label(name)
    choices = dict(list_choices(field))
    if choices:
        known = [{"value": value, "label": label} for value, label in choices.items()]
        if text not in choices:
            known.append({"value": text, "label": text})
        return dmc.Select(
            id=build_control_id(key),
            value=text,
            data=known,
            size="xs",
            allowDeselect=False,
            comboboxProps={"shadow": "sm"},
            **about,
        )
    suggested = {"attributes": {"input": {"list": "sim-algorithms"}}} if field in ALGORITHM_SETTINGS else {}
    return dmc.TextInput(
        id=build_control_id(key),
        value=text,
        size="xs",
        debounce=_DEBOUNCE_MS,
        placeholder=field.placeholder,
        autoComplete="off",
        spellCheck=False,
        **suggested,
        **about,
    )


def build_congestion_control(tables: Parts) -> Any:
    """Return the choice between the reference's two networks; hidden in the full model, in which messages wait.

    It stays in the page, as Dash tells callbacks of all fields of a control that has gone.
    """
    congestion = BY_KEY["congestion"]
    return html.Span(
        [
            html.Span("congestion", className="cs-dim"),
            build_control(congestion, congestion.key, tables.congestion, congestion.label),
            _build_hint(congestion),
        ],
        className="cs-graph-field sim-congestion",
        hidden=get_model(tables) == "full",
    )


# ---------------------------------------------------------------------------------------------------
# What is wrong


def find_place(key: str) -> str:
    """Return the place in the form that shows problems with `key`.

    Example:
        >>> find_place("bandwidth[1]"), find_place("bandwidth"), find_place("all-reduce-implementation[0]"), find_place("peak-perf")
        ('dim-1', 'network', 'algorithms', 'peak-perf')
    """
    name, _, index = key.partition("[")
    setting = BY_KEY.get(name)
    if setting in DIMENSION_SETTINGS:
        return f"dim-{index.removesuffix(']')}" if index else "network"
    return "algorithms" if setting in ALGORITHM_SETTINGS else name


def collect_problem_texts(problems: Mapping[str, ConfigError]) -> dict[str, list[Any]]:
    """Return the messages of each place in the form: the allowed values and hints."""
    messages: dict[str, list[Any]] = {}
    for key, error in problems.items():
        text = f"{_name_setting(key)}: {error.allowed}." if error.allowed else error.message
        messages.setdefault(find_place(key), []).append(
            html.P([html.Span(text), html.Span(f" {error.hint}", className="cs-dim")])
        )
    return messages


# ---------------------------------------------------------------------------------------------------
# What a run would meet, beside the field that leads to it

_FORETOLD: Mapping[str, str] = {
    "group-beyond": "network",
    **dict.fromkeys(("algorithm-missing", "algorithm-unfit"), "algorithms"),
    **dict.fromkeys(("metadata-node", "group-name", "collective-unsupported"), "model"),
    **dict.fromkeys(("group-dimensions", "message-dimensions"), "model"),
    "tiny-all-gather": "preferred-dataset-splits",
    "compute-takes-no-time": "roofline-enabled",
    "roofline-sizes": "roofline-enabled",
    "no-memory": "memory-type",
    "replay-unrecorded": "communication-times",
}
"""The place in the form that each kind of finding belongs to; all others are about the job, or stand with the figures."""
_FORETOLD_AT = frozenset(_FORETOLD.values())
_LEVELS = ("error", "warning")


def build_foretold_place(place: str) -> Any:
    """Return the element that says what a run would meet because of the field above it."""
    return html.Div(id={"sim-foretold": place}, className="sim-foretold")


def foretell(findings: Sequence[Finding]) -> dict[str, list[Any]]:
    """Return what a run would meet, by the place in the form that leads to it: the first finding of each, the worst first."""
    by_place: dict[str, list[Any]] = {}
    for level in _LEVELS:
        for finding in findings:
            place = _FORETOLD.get(finding.code)
            if finding.level == level and place and place not in by_place:
                about = html.Span(f" {finding.hint}", className="cs-dim")
                by_place[place] = [html.Span(finding.message, className=f"cs-level-{level}"), about]
    return by_place


def _name_setting(key: str) -> str:
    setting = BY_KEY.get(key.partition("[")[0])
    return f"{setting.label} may be" if setting in _TABLES else "It may be"
