"""Explain errors of queries: the place, the problem in words, and the names that exist."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from studio.errors import ConfigError
from studio.sql.columns import BY_NAME, TABLES

_NEAREST = 3
_TABLES = f"The tables are {', '.join(table.name for table in TABLES)}."


def convert_error(query: str, facts: Mapping[str, Any], named: Iterable[str] = ()) -> ConfigError:
    """Return an error of ours from what DuckDB tells of one of its own.

    Args:
        query: The query.
        facts: What DuckDB tells, by key.
        named: Tables that the query names.
    """
    text = str(facts.get("exception_message") or facts.get("error_message") or "it cannot be carried out")
    message = text.split("\n", 1)[0].removesuffix("!").rstrip(".")
    return ConfigError(
        f"The query{_format_place(query, facts)}: {message}.", hint=_explain_error(text, facts, tuple(named))
    )


def parse_facts(text: str) -> dict[str, Any]:
    """Return what DuckDB tells of an error, by key."""
    start = text.find("{")
    try:
        facts = json.loads(text[start:])
    except (ValueError, RecursionError):
        return {"exception_message": text}
    return facts if isinstance(facts, dict) else {"exception_message": text}


def _format_place(query: str, facts: Mapping[str, Any]) -> str:
    """Return where in the query it is, as `, line 1, column 5`; "" where DuckDB does not tell."""
    try:
        position = int(facts["position"])
    except (KeyError, ValueError, TypeError):
        return ""
    before = query.encode()[:position].decode("utf-8", "ignore")
    return f", line {before.count(chr(10)) + 1}, column {len(before.rsplit(chr(10), 1)[-1]) + 1}"


def _explain_error(text: str, facts: Mapping[str, Any], named: tuple[str, ...]) -> str:
    kind, sub = str(facts.get("exception_type", "")).lower(), facts.get("error_subtype")
    name = str(facts.get("name", ""))
    if sub == "COLUMN_NOT_FOUND":
        return _explain_column(name, facts, named)
    if sub == "MISSING_ENTRY" and facts.get("type") == "Table":
        near = difflib.get_close_matches(name.lower(), BY_NAME, n=1)
        return f"Did you mean {near[0]}? {_TABLES}" if near else _TABLES
    if kind == "permission" or "disabled by configuration" in text:
        return "Queries read the tables of jobs and runs, and nothing else. Answers are saved by -o of the command, or by the buttons of the page."
    marker = "Did you mean "
    return marker + text.split(marker, 1)[1].split("\n", maxsplit=1)[0] if marker in text else ""


def _explain_column(name: str, facts: Mapping[str, Any], named: tuple[str, ...]) -> str:
    tables = [BY_NAME[table] for table in named if table in BY_NAME]
    columns = [column.name for table in tables for column in table.columns]
    wanted = name.rsplit(".", 1)[-1].lower()
    near = difflib.get_close_matches(wanted, dict.fromkeys(columns), n=_NEAREST, cutoff=0.5)
    near = near or [column for column in dict.fromkeys(columns) if wanted and wanted in column][:_NEAREST]
    if near:
        return f"Did you mean {' or '.join(near)}?"
    if tables:
        return f"Columns of {tables[0].name}: {', '.join(column.name for column in tables[0].columns)}."
    return str((facts.get("candidates") and f"Did you mean {facts['candidates']}?") or "")
