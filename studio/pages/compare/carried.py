"""What the networks of compared runs carried: a row per dimension, and per link or links of which the same is to be said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dash import html

from studio.analysis.compare.words import format_signed_ns
from studio.comparing import LETTERS, Lineup
from studio.pages.base.export import Table, build_export_buttons
from studio.pages.base.widgets import build_aria_label, build_hint, build_rounded_value, build_table
from studio.units import format_bytes, format_count

BESIDE = 3
"""With at most this many runs differences have columns of their own; with more they stand below the values."""
_LISTED = 10
_NAMED = 24
_SAVED = 5000
_LOADS = {"dimensions": "offered load", "links": "time sending"}


@dataclass(frozen=True, slots=True)
class _Carried:
    """Traffic of one part of the network on one side; values are None where that side lacks the part or its figures."""

    busy_ns: float | None = None
    bytes: float | None = None
    load: float | None = None

    @property
    def words(self) -> tuple[str, str]:
        """The load and the bytes as they are shown."""
        load = "–" if self.load is None else f"{100 * self.load:.1f} %"
        return load, "–" if self.bytes is None else format_bytes(self.bytes)


def show_carried(shown: Lineup, what: Literal["dimensions", "links"]) -> list[Any]:
    """Return heading and table of the dimensions or links of all sides; nothing where no side carried anything."""
    parts = {
        name: sides
        for name, sides in _group_by_part(shown, what).items()
        if any(side.bytes for side in sides)
    }
    if not parts:
        return []
    alike: dict[tuple[Any, ...], list[str]] = {}
    for name, sides in parts.items():
        alike.setdefault(_build_row_key(sides), []).append(name)
    listed = list(alike.values())[:_LISTED]
    rows = [[_build_name_cell(names, what), *_build_cells(parts[names[0]])] for names in listed]
    measure = _LOADS[what]
    abouts = dict.fromkeys(getattr(side.side, what).about for side in shown.sides)
    about = " Or: ".join(words for words in abouts if words)
    letters = LETTERS[: len(shown.sides)]
    head: list[Any] = [what[:-1].capitalize()]
    for letter in letters:
        head.append(f"{letter}, {measure}" if letter == "A" else letter)
        if letter != "A" and len(letters) <= BESIDE:
            # The columns beside it are shares of the finish.
            head.append(f"{letter} \N{MINUS SIGN} A, time")
    head += [f"{letter}, bytes" if letter == "A" else letter for letter in letters]
    columns = [f"{letter}_{name}" for letter in letters for name in ("busy_ns", "bytes", "load")]
    saved = [
        [name, *(part for side in sides for part in (side.busy_ns, side.bytes, side.load))]
        for name, sides in list(parts.items())[:_SAVED]
    ]
    heading = html.H3([_choose_title(what, list(parts.values())), build_hint(measure, about)])
    return [heading, build_wide_table(head, rows, Table((what[:-1], *columns), saved), what)]


def _choose_title(what: str, parts: Sequence[Sequence[_Carried]]) -> str:
    if what == "dimensions":
        return "Dimensions of the network"
    in_both = any(
        sides[0].busy_ns is not None and side.busy_ns is not None for sides in parts for side in sides[1:]
    )
    return "Links that differ most" if in_both else "Links that send longest; none is in both"


def _group_by_part(shown: Lineup, what: str) -> dict[str, list[_Carried]]:
    """Return what each side carried by the name of the part, in the order of the comparison."""
    by_part: dict[str, list[dict[str, float | None]]] = {}
    names = {"ns": "busy_ns", "bytes": "bytes", "share": "load"}
    for place, pair in enumerate(shown.comparisons, start=1):
        for figure in getattr(pair, what):
            sides = by_part.setdefault(figure.key, [{} for _ in shown.sides])
            sides[0][names[figure.unit]], sides[place][names[figure.unit]] = figure.a, figure.b
    return {name: [_Carried(**side) for side in sides] for name, sides in by_part.items()}


def _build_row_key(sides: Sequence[_Carried]) -> tuple[Any, ...]:
    """Return what the table says of a part without its name: parts of which it is the same share a row."""
    changes = [change and format_signed_ns(round(change)) for change in _compute_changes(sides)]
    return *(side.words for side in sides), *changes


def _compute_changes(sides: Sequence[_Carried]) -> list[float | None]:
    """Return how much longer each side but the first sent than that; None where either is unknown."""
    first = sides[0].busy_ns
    return [None if first is None or side.busy_ns is None else side.busy_ns - first for side in sides[1:]]


def _build_name_cell(names: Sequence[str], what: str) -> Any:
    """Return the name of a row: that of the first part, and how many more there are."""
    if len(names) == 1:
        return names[0]
    listed = ", ".join(names[:_NAMED]) + (" …" if len(names) > _NAMED else "")
    more = f" and {format_count(len(names) - 1)} more {what} alike"
    return html.Span([names[0], html.Span(more, className="cs-dim")], title=listed)


def _build_cells(sides: Sequence[_Carried]) -> list[Any]:
    loads = [
        build_rounded_value(side.words[0], "" if side.busy_ns is None else f"{side.busy_ns:,.1f} ns")
        for side in sides
    ]
    sizes = [
        build_rounded_value(side.words[1], "" if side.bytes is None else f"{side.bytes:,.0f} bytes")
        for side in sides
    ]
    cells: list[Any] = loads[:1]
    for load, change in zip(loads[1:], _compute_changes(sides), strict=True):
        differs = "–" if change is None else build_time_change(change)
        below = html.Div(differs, className="cs-compare-below")
        cells += [load, differs] if len(sides) <= BESIDE else [html.Span([load, below])]
    return [*cells, *sizes]


def build_time_change(ns: float) -> Any:
    """Return a difference of times with its sign, coloured by whether it is for the worse."""
    kind = "" if not round(ns) else "cs-worse" if ns > 0 else "cs-better"
    return build_rounded_value(format_signed_ns(round(ns)), f"{ns:+,.1f} ns", classes=kind)


def build_wide_table(head: Sequence[Any], rows: Sequence[Sequence[Any]], saved: Table, name: str) -> Any:
    """Return a table of figures that scrolls sideways, with the buttons that save all its digits."""
    region = html.Div(
        build_table(head, rows, numeric=range(1, len(head))),
        className="cs-compare-wide",
        tabIndex=0,
        role="region",
        **build_aria_label(name),
    )
    save = build_export_buttons(name.replace(" ", "-"), table=saved, title=name)
    return html.Div([region, save], className="cs-compare-figures")
