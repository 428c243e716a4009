"""How the timeline's routes read addresses and write answers.

Arrays travel packed, little-endian: four bytes with the length of a JSON header, the header, then the arrays, each
beginning at a multiple of eight bytes. The header's `arrays` lists `[name, type, offset, length]`, types being int32,
float64 and uint8, offsets counted from the end of the header, lengths in items.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from flask import Response, request

from studio.analysis.gantt import Gantt
from studio.errors import StudioError, TraceError
from studio.units import format_count

ROWS_AT_MOST = 2048
FARTHEST = 1 << 53
NAME_AT_MOST = 300
_TYPES = {"i": "int32", "f": "float64", "u": "uint8"}


def rows_asked_for(gantt: Gantt) -> list[int]:
    """Return the rows an address names, such as `0-12,40`.

    Raises:
        TraceError: It names rows that do not exist, or too many.
    """
    text = request.args.get("rows", "")
    found: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        if not (_is_number(low) and _is_number(high or low)):
            raise TraceError(
                f"The rows {text[:40]!r} cannot be read.",
                hint="They are written as numbers and ranges: 0-12,40.",
            )
        first, last = int(low), int(high or low)
        if last >= len(gantt.rows) or last - first >= ROWS_AT_MOST or len(found) > ROWS_AT_MOST:
            raise TraceError(
                f"The rows {text[:40]!r} are not there, or too many at once.",
                hint=f"This timeline has {format_count(len(gantt.rows))} rows; ask for {ROWS_AT_MOST} at most.",
            )
        found += range(first, last + 1)
    return found


def whole(name: str, most: int) -> int:
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


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18


def packed(header: dict[str, Any], columns: Mapping[str, Any]) -> Response:
    """Return header and arrays in the form that the docstring of the module describes."""
    listed, parts, at = [], [b"", b""], 0
    for name, column in columns.items():
        listed.append([name, _TYPES[column.dtype.kind], at, column.size])
        parts += [column.astype(column.dtype.newbyteorder("<")).tobytes(), bytes(-column.nbytes % 8)]
        at += column.nbytes + -column.nbytes % 8
    text = msgspec.json.encode({**header, "arrays": listed})
    text = text.ljust(len(text) + -(4 + len(text)) % 8)
    parts[:2] = [len(text).to_bytes(4, "little"), text]
    return Response(b"".join(parts), mimetype="application/octet-stream")


def refusal(error: StudioError) -> tuple[Response, int]:
    """Return what is wrong, in words."""
    return as_json({"error": {"message": error.message, "hint": error.hint}}), 400


def as_json(answer: dict[str, Any]) -> Response:
    """Return plain data."""
    return Response(msgspec.json.encode(answer), mimetype="application/json")


def plain_cell(value: Any) -> str:
    """Return a cell that neither breaks the line nor is taken for a formula."""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value).replace("\t", " ").replace("\n", " ").replace("\r", " ")
    return f"'{text}" if isinstance(value, str) and text[:1] in ("=", "+", "-", "@") else text
