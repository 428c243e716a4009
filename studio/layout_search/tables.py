"""Layouts of a search as a Parquet file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from studio.arrow import convert_optional_numbers, convert_optional_texts
from studio.layout_search.layout_plan import LayoutPlan
from studio.sweep.tables import write_columns


def write_layouts(path: Path, plan: LayoutPlan) -> None:
    """Write every layout that fits, the fastest first; the file appears whole, in place of an earlier one.

    Raises:
        StudioError: It cannot be written.
    """
    rows = plan.rows()
    names = list(dict.fromkeys(name for row in rows for name in row))
    write_columns(path, {name: _build_column([row.get(name) for row in rows]) for name in names})


def _build_column(values: list[Any]) -> Any:
    known = [value for value in values if value is not None]
    if all(isinstance(value, bool) for value in known):
        return convert_optional_numbers(
            [None if value is None else int(value) for value in values], whole=True
        )
    if all(isinstance(value, int) for value in known):
        return convert_optional_numbers(values, whole=True)
    if all(isinstance(value, int | float) for value in known):
        return convert_optional_numbers(values, whole=False)
    return convert_optional_texts([None if value is None else _format_value(value) for value in values])


def _format_value(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
