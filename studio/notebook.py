"""How values show themselves in a notebook: a line of text, or a small table. Names in traces are untrusted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from typing import Any

LINE = 120
"""Characters a line has at most."""
_VALUE = 40
_ROWS = 24
_FEW = 16
"""Items that may be shown in full, where they are short."""
_CONTROL = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 127), "�")


def format_record(record: Any) -> str:
    """Return a record in a line: its fields, arrays by type and shape, what is long cut short.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class Point:
        ...     name: str
        ...     at: tuple[int, ...]
        >>> format_record(Point("n" * 99, tuple(range(50))))
        "Point(name='nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn…, at=(0, 1, 2, …, 50 in all))"
    """
    parts = [
        f"{spec.name}={_format_briefly(getattr(record, spec.name))}" for spec in fields(record) if spec.repr
    ]
    return format_parts(type(record).__name__, parts)


def format_parts(name: str, parts: Iterable[str]) -> str:
    """Return a name with parts in brackets, as many as the line holds.

    Example:
        >>> format_parts("Trace", ["8 ranks", "2 graphs"])
        'Trace(8 ranks, 2 graphs)'
    """
    text = f"{name}({', '.join(parts)})".replace("\n", "⏎").replace("\r", "⏎")
    return text if len(text) <= LINE else f"{text[: LINE - 2]}…)"


def format_exactly(record: Any) -> str:
    """Return a record with all of every field, as dataclasses write it: equal for equal records only."""
    parts = (f"{spec.name}={getattr(record, spec.name)!r}" for spec in fields(record))
    return f"{type(record).__qualname__}({', '.join(parts)})"


def format_tuple_exactly(records: Sequence[Any]) -> str:
    """Return a tuple of records likewise.

    Example:
        >>> format_tuple_exactly(())
        '()'
    """
    inside = ", ".join(map(format_exactly, records))
    return f"({inside},)" if len(records) == 1 else f"({inside})"


def _format_briefly(value: Any) -> str:
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype}[{' × '.join(map(str, value.shape))}]"
    if is_dataclass(value) and not isinstance(value, type):
        return type(value).__name__ + "(…)"
    if isinstance(value, str | bytes):
        return _shorten_text(repr(value[: 2 * _VALUE]))
    if isinstance(value, list | tuple | set | frozenset | Mapping):
        if not _is_plain(value):
            return f"{len(value):,} in all"
        if len(value) <= 3:
            return _shorten_text(repr(value))
        if len(value) <= _FEW and len(whole := repr(value)) <= _VALUE:
            return whole
        some = ", ".join(_format_briefly(item) for item, _ in zip(value, range(3), strict=False))
        return f"({some}, …, {len(value):,} in all)"
    return _shorten_text(repr(value))


def _is_plain(values: Iterable[Any]) -> bool:
    return all(
        isinstance(value, int | float | str | bool) for value, _ in zip(values, range(4), strict=False)
    )


def _shorten_text(text: str) -> str:
    return text if len(text) <= _VALUE else f"{text[: _VALUE - 1]}…"


def build_html_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return an HTML table; every text in it is escaped, and rows beyond the first are counted.

    Example:
        >>> build_html_table("a < b", ["name"], [["<script>"]])
        '<table><caption style="text-align:left">a &lt; b</caption><tr><th>name</th></tr><tr><td>&lt;script&gt;</td></tr></table>'
    """
    listed = list(rows)
    lines = [_build_row("th", head)] if head else []
    lines += [_build_row("td", row) for row in listed[:_ROWS]]
    if len(listed) > _ROWS:
        lines.append(
            f'<tr><td colspan="{max(len(head), 1)}">… and {len(listed) - _ROWS:,} more of {len(listed):,}</td></tr>'
        )
    return (
        f'<table><caption style="text-align:left">{_escape_value(caption)}</caption>{"".join(lines)}</table>'
    )


def _build_row(tag: str, cells: Iterable[object]) -> str:
    return f"<tr>{''.join(f'<{tag}>{_escape_value(cell)}</{tag}>' for cell in cells)}</tr>"


def _escape_value(value: object) -> str:
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    shown = text if len(text) <= 400 else f"{text[:399]}…"
    return escape(shown.translate(_CONTROL)).replace("\n", "<br>")
