"""Routes of the Nodes page: blocks of a job's nodes, filtered and sorted here, as texts ready to be shown.

Numbers travel as texts: the browser's own would round ids and times above 2^53.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec
from flask import Blueprint, Response, request

from studio.analysis.job.node_columns import TIME_COLUMNS
from studio.analysis.job.node_conditions import Condition
from studio.analysis.job.node_refs import find_node
from studio.analysis.job.nodes import Node, NodeIndex, Query
from studio.decoding import build_decoder
from studio.errors import StudioError, TraceError
from studio.server.answers import as_json, download, escape_formula, get_session, handle_error
from studio.units import format_bytes, format_count, format_ns, format_offset, format_si
from studio.views.address import get_shown_nodes

_ROWS_AT_MOST = 1000
SAVED_AT_MOST = 200_000
"""Nodes in a file; the page says so where there are more."""
_CONDITIONS_AT_MOST = 100
_NOT_RECORDED = "\N{EN DASH}"
_BEFORE_TIMES = ("rank", "id", "name", "type", "collective", "group", "bytes", "operations")
_RUN_TIMES = {f"run_{name}": name for name in TIME_COLUMNS} | {
    name: name for name in ("recorded_start_ns", "recorded_duration_ns")
}
"""Columns of times in a CSV of a run, and the fields of a node they hold."""


def build_nodes_blueprint() -> Blueprint:
    """Make the routes below /api/jobs."""

    def get_index(job: str) -> NodeIndex:
        return get_shown_nodes(get_session(), job, request.args.get("run", ""))

    routes = Blueprint("nodes", __name__, url_prefix="/api/jobs")
    routes.register_error_handler(StudioError, handle_error)

    @routes.get("/<job>/nodes")
    def list_nodes(job: str) -> Response:
        index, query = get_index(job), _parse_query()
        start, end = _parse_whole("start"), _parse_whole("end")
        answer: dict[str, Any] = {
            "total": len(index),
            "count": index.count(query),
            "empty": index.empty_columns(),
            "simulated": index.simulated,
            "own_times": index.job.holds_own_times,
        }
        rows = index.rows(query, start, min(end, start + _ROWS_AT_MOST))
        answer["rows"] = [describe_row(node, index) for node in rows]
        return as_json(answer)

    @routes.get("/<job>/nodes.csv")
    def save_nodes(job: str) -> Response:
        index, query = get_index(job), _parse_query()
        index.count(query)  # a query that cannot be answered is refused before the first line
        return download(_iterate_lines(index, query), f"nodes-{job}.csv", "text/csv")

    @routes.get("/<job>/nodes/position")
    def find_position(job: str) -> Response:
        index = get_index(job)
        rank = index.trace.rank(_parse_whole("rank"))
        if rank is None:
            return as_json({"position": None})
        row = find_node(index.trace.graph_of(rank), request.args.get("node", ""))
        return as_json({"position": index.position(_parse_query(), index.place(rank, row))})

    return routes


def _iterate_lines(index: NodeIndex, query: Query) -> Iterator[str]:
    """Yield the list as CSV with exact values; unknown ones are empty."""
    times = _RUN_TIMES if index.simulated else {name: name for name in TIME_COLUMNS}
    yield ",".join((*_BEFORE_TIMES, *times, "waits_for")) + "\n"
    for start in range(0, SAVED_AT_MOST, _ROWS_AT_MOST):
        rows = index.rows(query, start, start + _ROWS_AT_MOST)
        text = io.StringIO()
        write = csv.writer(text, lineterminator="\n").writerow
        for node in rows:
            texts = (escape_formula(part) for part in (node.name, node.type, node.collective, node.group))
            numbers = (node.bytes, node.operations, *(getattr(node, field) for field in times.values()))
            known = ("" if value == -1 else value for value in numbers)
            write((node.rank, node.id, *texts, *known, node.waits_for))
        yield text.getvalue()
        if len(rows) < _ROWS_AT_MOST:
            return


def describe_row(node: Node, index: NodeIndex) -> dict[str, str]:
    """Return a node as the list shows it: each column's text, and the exact value where the text rounds."""
    texts = {
        "ref": node.ref,
        "rank": str(node.rank),
        "id": str(node.id),
        "name": node.name,
        "type": node.type,
        "collective": node.collective,
        "group": node.group,
        "waits_for": format_count(node.waits_for),
    }
    for name, pair in _describe_quantities(node, index).items():
        texts[name], texts[f"{name}_exact"] = pair
    return texts


def _describe_quantities(node: Node, index: NodeIndex) -> dict[str, tuple[str, str]]:
    """Return the text of each quantity, and its exact value, or why there is none."""

    def describe(value: int, text: Callable[[int], str], exact: str, absent: str) -> tuple[str, str]:
        return (_NOT_RECORDED, absent) if value == -1 else (text(value), f"{value:,} {exact}")

    recorded = "ns after the first recorded start"
    since, absent = (
        ("ns after the beginning of the run", "did not run")
        if index.simulated
        else (recorded, "not recorded")
    )
    no_duration = "0, or not recorded"
    offset = partial(format_offset, span_ns=index.last_ns)
    return {
        "bytes": describe(node.bytes, format_bytes, "bytes", "not recorded"),
        "operations": describe(node.operations, _format_flop, "floating-point operations", "not recorded"),
        "start_ns": describe(node.start_ns, offset, since, absent),
        "end_ns": describe(node.end_ns, offset, since, absent),
        "duration_ns": describe(
            node.duration_ns, format_ns, "ns", absent if index.simulated else no_duration
        ),
        "recorded_start_ns": describe(
            node.recorded_start_ns, partial(format_offset, span_ns=index.end_ns), recorded, "not recorded"
        ),
        "recorded_duration_ns": describe(node.recorded_duration_ns, format_ns, "ns", no_duration),
    }


def _format_flop(count: float) -> str:
    return format_si(count, "FLOP")


def _parse_query() -> Query:
    """Return the list the address asks for.

    Raises:
        TraceError: Filters or order are not written as the page writes them.
    """
    order = tuple(
        (name.removeprefix("-"), name.startswith("-"))
        for name in request.args.get("sort", "").split(",")
        if name
    )
    return Query(request.args.get("q", ""), _parse_conditions(request.args.get("f", "")), order)


_filters = build_decoder(dict[str, list[Any]])


def _parse_conditions(text: str) -> tuple[tuple[Condition, ...], ...]:
    """Return filters, written `{"name": ["contains", "mha"], "id": ["OR", ["equals", 1], ["inRange", 5, 9]]}`."""
    if not text:
        return ()
    try:
        filters = _filters(text)
        clauses: list[tuple[Condition, ...]] = []
        for column, model in filters.items():
            if model[0] in ("AND", "OR"):
                parts = tuple(_build_condition(column, *part) for part in model[1:])
                clauses += [parts] if model[0] == "OR" else [(part,) for part in parts]
            else:
                clauses.append((_build_condition(column, *model),))
    except (msgspec.MsgspecError, UnicodeError, TypeError, IndexError) as error:
        raise TraceError(
            f"The filters in the address cannot be read: {text[:80]!r}.",
            hint='They are written as {"name": ["contains", "mha"]}; clear the filters to continue.',
        ) from error
    if sum(map(len, clauses)) > _CONDITIONS_AT_MOST:
        raise TraceError("The address holds too many filters.", hint="Clear the filters to continue.")
    return tuple(clause for clause in clauses if clause)


def _build_condition(column: str, operator: str, value: str | float = "", to: str | float = "") -> Condition:
    return Condition(column, str(operator), str(value), str(to))


def _parse_whole(name: str) -> int:
    text = request.args.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise TraceError(
            f"The {name} {text[:40]!r} is not a whole number.", hint="Send a number, at least 0."
        )
    return int(text)
