"""Buttons that save figures as PNG, SVG or CSV and tables as TSV: see `assets/base/export.mjs`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dash import html

from studio.pages.base.widgets import build_aria_label

Value = str | int | float | None


@dataclass(frozen=True, slots=True)
class Table:
    """The numbers behind a figure: exact, without units, which stand in the head.

    Attributes:
        head: Names of the columns, such as `duration_ns`.
        rows: One value per column; None stands for none.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[Value]]


def build_export_buttons(
    name: str,
    *,
    figure: str = "",
    table: Table | None = None,
    source: str = "",
    title: str = "",
    drawn: bool = False,
) -> Any:
    """Return the buttons that save a figure and show the table behind it.

    Args:
        name: What the files are called, without their ending.
        figure: Id of a `dcc.Graph`, of an element that holds an SVG, or one that a script told
            `registerFigure` how to draw. Without it there are no pictures to save.
        table: What stands behind the figure, for tables of some thousand rows at most.
        source: In place of `table`, an address that answers with CSV; it is asked for when somebody wants it.
        title: What the table is called; the name where that is "".
        drawn: Whether the script that draws the figure tells the numbers, too: see `tableOf` there.
    """
    kinds = [("png", "PNG", "Save as PNG"), ("svg", "SVG", "Save as SVG")] if figure else []
    if table is not None or source or drawn:
        kinds += [
            ("csv", "CSV", "Save the numbers as CSV"),
            ("table", "Table", "Show the numbers; copies as TSV"),
        ]
    about: dict[str, Any] = {
        "data-name": name,
        "data-figure": figure,
        "data-source": source,
        "data-title": title or name,
    }
    if table is not None:
        about["data-table"] = json.dumps(
            {"head": list(table.head), "rows": [list(row) for row in table.rows]}
        )
    buttons = [
        html.Button(text, className="cs-button", title=hint, **_build_kind_attribute(kind))
        for kind, text, hint in kinds
    ]
    return html.Div(
        buttons, className="cs-export", role="group", **build_aria_label(f"Save {title or name}"), **about
    )


def _build_kind_attribute(kind: str) -> dict[str, Any]:
    return {"data-export": kind}


def build_save_menu(
    choices: Sequence[tuple[str, str, dict[str, Any]]], *, about: str, classes: str = ""
) -> Any:
    """Return a "Save" menu; `assets/base/export.mjs` closes it after a click.

    Args:
        choices: What each is called, what it does, and the attributes by which a script knows it.
        about: Accessible name of the list.
        classes: Further classes of the element.
    """
    buttons = [
        html.Button(text, className="cs-button-quiet", title=hint, **attributes)
        for text, hint, attributes in choices
    ]
    return html.Details(
        [
            html.Summary("Save", className="cs-button"),
            html.Div(buttons, role="group", **build_aria_label(about)),
        ],
        className=f"cs-menu {classes}".strip(),
    )


def with_copy_button(table: Any, name: str) -> Any:
    """Add a button to a table that copies it as TSV, with exact values in place of rounded ones."""
    button = html.Button(
        "Copy as TSV",
        className="cs-button-quiet cs-copy",
        **{"data-copy": "", **build_aria_label(f"Copy {name} as TSV")},
    )
    return html.Div([table, button], className="cs-copied")
