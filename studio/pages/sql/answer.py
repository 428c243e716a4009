"""Show an answer: columns of the grid, cells with units where the name of a column tells one, and how much there is."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from dash import html

from studio.sql.answers import iterate_plain_rows
from studio.sql.columns import TABLES
from studio.sql.database import Answer
from studio.units import format_bytes, format_counted, format_ns, format_rate

_MISSING = "\N{EN DASH}"
_EXACT = 2**53
"""Whole numbers from here on are rounded by the browser: they travel as texts."""
_GROUPED, _FINE = 1_000, 1e-4
"""From here on whole digits are separated; below the other a number is written with an exponent."""
_LETTER, _CAPITAL, _MARGIN, _LEAST, _MOST = 7.0, 9.0, 22, 64, 420
"""Widths in pixels: of letters, of what stands around them, and of columns."""
_UNITS: Mapping[str, Callable[[float], str]] = {
    "_bytes_per_ns": format_rate,
    "_ns": format_ns,
    "bytes": format_bytes,
}
"""What the ends of column names count; the first that fits."""
_OF_TABLES = frozenset(column.name for table in TABLES for column in table.columns)
_OF_ONE = re.compile(
    r'"?(?:sum|avg|mean|median|min|max|any_value|first|last|mode|abs)"?\((?:DISTINCT )?([\w.]+)\)',
    re.IGNORECASE,
)
"""What DuckDB calls columns of a function of one column whose value has the unit of that; of products it has another."""


def build_grid(table: pa.Table) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the columns and the rows of the grid for an answer."""
    names: list[str] = table.column_names
    numeric = [_is_numeric(field.type) for field in table.schema]
    units = [_find_formatter(name) if number else None for name, number in zip(names, numeric, strict=True)]
    exact = [
        bool(unit) or pa.types.is_floating(field.type)
        for unit, field in zip(units, table.schema, strict=True)
    ]
    # Ids and the like are no counts.
    grouped = [name not in _OF_TABLES and not name.endswith("id") for name in names]
    rows, widths = [], [_estimate_width(name) + _LETTER for name in names]
    for values in iterate_plain_rows(table):
        row: dict[str, Any] = {}
        for place, value in enumerate(values):
            shown = _format_value(value, units[place], grouped=grouped[place])
            widths[place] = max(widths[place], _estimate_width(shown))
            row[f"c{place}"], row[f"t{place}"] = _make_sortable(value), shown
            if exact[place] and value is not None:
                row[f"e{place}"] = f"{value:,}"
        rows.append(row)
    columns = [
        {
            "field": f"c{place}",
            "headerName": name,
            "headerTooltip": name,
            "valueFormatter": {"function": f"params.data.t{place}"},
            "tooltipField": f"e{place}" if exact[place] else f"t{place}",
            "width": min(max(round(widths[place]) + _MARGIN, _LEAST), _MOST),
            **({"type": "rightAligned"} if numeric[place] else {}),
        }
        for place, name in enumerate(names)
    ]
    return columns, rows


def _estimate_width(text: str) -> float:
    wide = sum(letter.isupper() or letter == "_" for letter in text)
    return _CAPITAL * wide + _LETTER * (len(text) - wide)


def _is_numeric(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _find_formatter(name: str) -> Callable[[float], str] | None:
    """Return how a column is written by its name; sums and the like of one thing are in its unit."""
    if inside := _OF_ONE.fullmatch(name):
        name = inside[1]
    return next((unit for end, unit in _UNITS.items() if name.endswith(end)), None)


def _format_value(value: Any, unit: Callable[[float], str] | None, *, grouped: bool) -> str:
    if value is None:
        return _MISSING
    if unit is not None:
        return unit(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _format_plain(value)
    return f"{value:,}" if grouped and isinstance(value, int) else str(value)


def _format_plain(value: float) -> str:
    """Write a number without a unit with four digits at least, all whole ones, and no exponent where digits do."""
    size = abs(value)
    if not math.isfinite(value) or (value and not _FINE <= size < _EXACT):
        return f"{value:.4g}"
    if size >= _GROUPED:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _make_sortable(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return value if abs(value) < _EXACT else str(value)
    return value if value is None or isinstance(value, float | bool | str) else str(value)


def describe_answer(answer: Answer) -> Any:
    """Return how many rows there are, and how long they took."""
    count = format_counted(answer.table.num_rows, "row")
    more = " are shown, and there are more: CSV and Parquet have up to a million" if answer.more else ""
    about: dict[str, Any] = {"data-spent": f" in {format_ns(answer.spent_s * 1e9)}"}
    return html.Span([html.Span(count), more, html.Span(**about)])
