"""Helpers of the routes: read query parameters, write JSON, CSV and errors."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any, AnyStr

import msgspec
from flask import Response, current_app, request, stream_with_context

from studio.analysis.timeline.gantt import Gantt
from studio.errors import StudioError, TraceError
from studio.session import Session
from studio.units import format_count

ROWS_AT_MOST = 2048
FARTHEST = 1 << 53
NAME_AT_MOST = 300


def get_session() -> Session:
    """Return the open jobs and runs of the workspace that is served."""
    served: Session = current_app.config["SESSION"]
    return served


def parse_rows(gantt: Gantt) -> list[int]:
    """Return the rows an address names, such as `0-12,40`.

    Raises:
        TraceError: It names rows that do not exist, or too many.
    """
    text = request.args.get("rows", "")
    rows: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        if not (_is_number(low) and _is_number(high or low)):
            raise TraceError(
                f"The rows {text[:40]!r} cannot be read.",
                hint="They are written as numbers and ranges: 0-12,40.",
            )
        first, last = int(low), int(high or low)
        if last >= len(gantt.rows) or last - first >= ROWS_AT_MOST or len(rows) > ROWS_AT_MOST:
            raise TraceError(
                f"The rows {text[:40]!r} are not there, or too many at once.",
                hint=f"This timeline has {format_count(len(gantt.rows))} rows; ask for {ROWS_AT_MOST} at most.",
            )
        rows += range(first, last + 1)
    return rows


def parse_whole(name: str, most: int) -> int:
    """Return the whole number that an address gives.

    Raises:
        TraceError: It gives none, or one above `most`.
    """
    text = request.args.get(name, "")
    if not _is_number(text) or int(text) > most:
        raise TraceError(
            f"The {name} {text[:40]!r} is not a whole number up to {most:,}.",
            hint="Send a number, at least 0.",
        )
    return int(text)


def parse_time_window() -> tuple[int, int]:
    """Return the window that an address gives, in ns after the beginning.

    Raises:
        TraceError: It gives none, or one that is empty.
    """
    start, end = parse_whole("from", FARTHEST), parse_whole("to", FARTHEST)
    if end <= start:
        raise TraceError(f"The window from {start} to {end} is empty.", hint="Its end lies after its start.")
    return start, end


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18


def handle_error(error: StudioError) -> tuple[Response, int]:
    """Return an error as JSON with status 400."""
    return as_json({"error": {"message": error.message, "hint": error.hint}}), 400


def download(pieces: Iterator[AnyStr], name: str, kind: str) -> Response:
    """Send pieces as a file to save.

    Args:
        pieces: The file's content, made while it is sent.
        name: Its name.
        kind: Its media type.
    """
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(stream_with_context(pieces), mimetype=kind, headers=headers)


def as_json(answer: dict[str, Any]) -> Response:
    """Return data as JSON."""
    return Response(msgspec.json.encode(answer), mimetype="application/json")


def format_plain_cell(value: Any) -> str:
    """Return a cell of TSV without line breaks, and not taken for a formula by spreadsheets."""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value).replace("\t", " ").replace("\n", " ").replace("\r", " ")
    return f"'{text}" if isinstance(value, str) and text[:1] in ("=", "+", "-", "@") else text


def format_exact(value: float) -> str:
    """Format a number so that it reads back exactly; integers have no point."""
    return str(int(value)) if value.is_integer() else repr(value)


def format_csv_line(cells: list[str]) -> str:
    """Return cells as a line of CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def escape_formula(text: str) -> str:
    """Escape a text that a spreadsheet would take for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
