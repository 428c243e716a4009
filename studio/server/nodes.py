"""The node list's route: pages of a job's nodes, filtered and sorted here, as texts ready to be shown.

Numbers travel as texts: the browser's own would round ids and times above 2^53.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from flask import Blueprint, Response, request, stream_with_context

from studio.analysis.nodes import Condition, Node, NodeIndex, Query, find_node
from studio.errors import StudioError, TraceError
from studio.server.answers import as_json, harmless, refusal
from studio.units import format_bytes, format_count, format_ns, format_offset, format_si

_ROWS_AT_MOST = 1000
SAVED_AT_MOST = 200_000
"""Nodes in a file; the page says so where there are more."""
_CONDITIONS_AT_MOST = 100
_NOT_RECORDED = "\N{EN DASH}"


def nodes_blueprint(index_of: Callable[[str], NodeIndex]) -> Blueprint:
    """Make the route below /api/jobs for the jobs `index_of` finds by id."""
    routes = Blueprint("nodes", __name__, url_prefix="/api/jobs")
    routes.register_error_handler(StudioError, refusal)

    @routes.get("/<job>/nodes")
    def list_nodes(job: str) -> Response:
        index, query = index_of(job), _query()
        start, end = _whole("start"), _whole("end")
        answer: dict[str, Any] = {
            "total": len(index),
            "count": index.count(query),
            "empty": index.empty_columns(),
        }
        rows = index.rows(query, start, min(end, start + _ROWS_AT_MOST))
        answer["rows"] = [shown(node, index) for node in rows]
        return as_json(answer)

    @routes.get("/<job>/nodes.csv")
    def save_nodes(job: str) -> Response:
        index, query = index_of(job), _query()
        index.count(query)  # a query that cannot be answered is refused before the first line
        name = f'attachment; filename="nodes-{job}.csv"'
        lines = stream_with_context(_lines(index, query))
        return Response(lines, mimetype="text/csv", headers={"Content-Disposition": name})

    @routes.get("/<job>/nodes/position")
    def find_position(job: str) -> Response:
        index = index_of(job)
        rank = index.trace.rank(_whole("rank"))
        if rank is None:
            return as_json({"position": None})
        row = find_node(index.trace.graph_of(rank), request.args.get("node", ""))
        return as_json({"position": index.position(_query(), index.place(rank, row))})

    return routes


def _lines(index: NodeIndex, query: Query) -> Iterator[str]:
    """Yield the list as CSV, exact; what is not recorded is left out."""
    yield "rank,id,name,type,collective,group,bytes,operations,start_ns,duration_ns,waits_for\n"
    for start in range(0, SAVED_AT_MOST, _ROWS_AT_MOST):
        rows = index.rows(query, start, start + _ROWS_AT_MOST)
        text = io.StringIO()
        write = csv.writer(text, lineterminator="\n").writerow
        for one in rows:
            numbers = (one.bytes, one.operations, one.start_ns, one.duration_ns)
            texts = (harmless(part) for part in (one.name, one.type, one.collective, one.group))
            write(
                (
                    one.rank,
                    one.id,
                    *texts,
                    *("" if value == -1 else value for value in numbers),
                    one.waits_for,
                )
            )
        yield text.getvalue()
        if len(rows) < _ROWS_AT_MOST:
            return


def shown(node: Node, index: NodeIndex) -> dict[str, str]:
    """Return a node as the list shows it: each column's text, and the exact value where the text rounds."""
    start, span = node.start_ns, index.end_ns
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
    exact = (
        ("bytes", node.bytes, format_bytes, f"{node.bytes:,} bytes"),
        ("operations", node.operations, _flop, f"{node.operations:,} floating-point operations"),
        (
            "start_ns",
            start,
            lambda ns: format_offset(ns, span),
            f"{start:,} ns after the first recorded start",
        ),
        ("duration_ns", node.duration_ns, format_ns, f"{node.duration_ns:,} ns"),
    )
    for name, value, text, words in exact:
        texts[name] = _NOT_RECORDED if value == -1 else text(value)
        texts[f"{name}_exact"] = (
            ("0, or not recorded" if name == "duration_ns" else "not recorded") if value == -1 else words
        )
    return texts


def _flop(count: float) -> str:
    return format_si(count, "FLOP")


def _query() -> Query:
    """Return the list the address asks for.

    Raises:
        TraceError: Filters or order are not written as the page writes them.
    """
    order = tuple(
        (name.removeprefix("-"), name.startswith("-"))
        for name in request.args.get("sort", "").split(",")
        if name
    )
    return Query(request.args.get("q", ""), _conditions(request.args.get("f", "")), order)


def _conditions(text: str) -> tuple[tuple[Condition, ...], ...]:
    """Return filters, written `{"name": ["contains", "mha"], "id": ["OR", ["equals", 1], ["inRange", 5, 9]]}`."""
    if not text:
        return ()
    try:
        filters = msgspec.json.decode(text, type=dict[str, list[Any]])
        found: list[tuple[Condition, ...]] = []
        for column, model in filters.items():
            if model[0] in ("AND", "OR"):
                parts = tuple(_condition(column, *part) for part in model[1:])
                found += [parts] if model[0] == "OR" else [(part,) for part in parts]
            else:
                found.append((_condition(column, *model),))
    except (msgspec.MsgspecError, UnicodeError, TypeError, IndexError) as error:
        raise TraceError(
            f"The filters in the address cannot be read: {text[:80]!r}.",
            hint='They are written as {"name": ["contains", "mha"]}; clear the filters to go on.',
        ) from error
    if sum(map(len, found)) > _CONDITIONS_AT_MOST:
        raise TraceError("The address holds too many filters.", hint="Clear the filters to go on.")
    return tuple(one for one in found if one)


def _condition(column: str, operator: str, value: str | float = "", to: str | float = "") -> Condition:
    return Condition(column, str(operator), str(value), str(to))


def _whole(name: str) -> int:
    text = request.args.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise TraceError(
            f"The {name} {text[:40]!r} is not a whole number.", hint="Send a number, at least 0."
        )
    return int(text)
