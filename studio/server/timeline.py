"""The timeline's routes: what there is to draw, tiles of it, the bar of a node, and a window as CSV.

Arrays travel packed, little-endian: four bytes with the length of a JSON header, the header, then the arrays, each
beginning at a multiple of eight bytes. The header's `arrays` lists `[name, type, offset, length]`, types being int32,
float64 and uint8, offsets counted from the end of the header, lengths in items. Times in arrays are ns after the
beginning of their tile, so that no float ever holds a date.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import msgspec
import numpy as np
from flask import Blueprint, Response, request, stream_with_context

from studio.analysis.gantt import LEVEL_AT_MOST, TILE_BINS, Bar, Gantt
from studio.analysis.nodes import find_node, node_ref
from studio.errors import StudioError, TraceError
from studio.figures.graph import node_refs
from studio.timeline import LANE_KINDS
from studio.trace import type_name
from studio.units import format_count

ROWS_AT_MOST = 2048
_FARTHEST = 1 << 53
_NAME_AT_MOST = 300
_TYPES = {"i": "int32", "f": "float64", "u": "uint8"}


def timeline_blueprint(gantt_of: Callable[[str, str], Gantt]) -> Blueprint:
    """Make the routes below /api/jobs for the job and run that `gantt_of` finds by id."""
    routes = Blueprint("timeline", __name__, url_prefix="/api/jobs")
    routes.register_error_handler(StudioError, _refusal)

    @routes.get("/<job>/timeline")
    def describe(job: str) -> Response:
        return _packed(*_description(gantt_of(job, request.args.get("run", ""))))

    @routes.get("/<job>/timeline/tile")
    def tile(job: str) -> Response:
        gantt = gantt_of(job, request.args.get("run", ""))
        level = _whole("level", LEVEL_AT_MOST)
        found = gantt.tile(level, _whole("tile", _FARTHEST >> level), _rows(gantt))
        columns = {one.name: getattr(found, one.name) for one in fields(found) if one.name != "names"}
        return _packed({"names": [name[:_NAME_AT_MOST] for name in found.names]}, columns)

    @routes.get("/<job>/timeline/node")
    def node(job: str) -> Response:
        gantt = gantt_of(job, request.args.get("run", ""))
        bar = _bar_asked_for(gantt)
        return _json({"bar": None} if bar is None else _node(gantt, bar))

    @routes.get("/<job>/timeline/spans.csv")
    def spans(job: str) -> Response:
        gantt = gantt_of(job, request.args.get("run", ""))
        lines = _csv(gantt, _whole("from", _FARTHEST), _whole("to", _FARTHEST), _rows(gantt))
        name = f'attachment; filename="timeline-{job}.csv"'
        return Response(
            stream_with_context(lines), mimetype="text/csv", headers={"Content-Disposition": name}
        )

    return routes


def _description(gantt: Gantt) -> tuple[dict[str, Any], dict[str, Any]]:
    rows = gantt.rows
    header = {
        "span": gantt.span_ns,
        "bins": TILE_BINS,
        "bars": len(gantt),
        "kinds": LANE_KINDS,
        "names": [name[:_NAME_AT_MOST] for name in rows.names],
    }
    columns = {
        "rank": rows.rank.astype(np.int32),
        "kind": rows.kind,
        "level": rows.level,
        "name": rows.name,
        "ranks": np.array([rank.number for rank in gantt.trace.ranks], np.int32),
        "finish": gantt.finish_ns.astype(np.float64),
    }
    return header, columns


def _bar_asked_for(gantt: Gantt) -> Bar | None:
    if "row" in request.args:
        row = _whole("row", len(gantt.rows) - 1)
        return gantt.bar_at(row, _whole("at", _FARTHEST), _whole("within", _FARTHEST))
    rank = gantt.rank(_whole("rank", 2**31 - 1))
    graph = gantt.trace.graph_of(rank)
    if "index" in request.args:
        return gantt.bar(rank, _whole("index", len(graph) - 1))
    return gantt.bar(rank, find_node(graph, request.args.get("node", "")))


def _node(gantt: Gantt, bar: Bar) -> dict[str, Any]:
    before, after = gantt.beside(bar)
    waits_for, waited_for = gantt.depends(bar)
    return {
        "bar": _bar(gantt, bar),
        "previous": before and _bar(gantt, before),
        "next": after and _bar(gantt, after),
        "up": [{**_bar(gantt, one), "data": data} for one, data in waits_for],
        "down": [{**_bar(gantt, one), "data": data} for one, data in waited_for],
    }


def _bar(gantt: Gantt, bar: Bar) -> dict[str, Any]:
    graph = gantt.trace.graph_of(bar.rank)
    return {
        "rank": bar.rank.number,
        "node": node_ref(graph, bar.node),
        "index": bar.node,
        "row": bar.row,
        "start": bar.start_ns,
        "end": bar.end_ns,
        "name": graph.strings[int(graph.name[bar.node])][:_NAME_AT_MOST],
        "type": type_name(int(graph.type[bar.node])),
        "bytes": gantt.bytes_of(bar),
    }


def _csv(gantt: Gantt, start_ns: int, end_ns: int, rows: Sequence[int]) -> Iterator[str]:
    yield "rank,lane,lane_name,node,name,type,bytes,issue_ns,callback_ns,duration_ns\n"
    for row in rows:
        bars = gantt.window(row, start_ns, end_ns)
        if not bars:
            continue
        rank, graph = bars[0].rank, gantt.trace.graph_of(bars[0].rank)
        refs = node_refs(graph, np.array([bar.node for bar in bars], np.int64))
        lane = LANE_KINDS[int(gantt.rows.kind[row])], gantt.rows.names[int(gantt.rows.name[row])]
        text = io.StringIO()
        write = csv.writer(text, lineterminator="\n").writerow
        for bar, ref in zip(bars, refs, strict=True):
            name = graph.strings[int(graph.name[bar.node])]
            what = (ref, _harmless(name), type_name(int(graph.type[bar.node])), gantt.bytes_of(bar))
            times = (bar.start_ns, bar.end_ns, bar.end_ns - bar.start_ns)
            write((rank.number, lane[0], _harmless(lane[1]), *what, *times))
        yield text.getvalue()


def _harmless(text: str) -> str:
    """Return a text that a spreadsheet does not take for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _rows(gantt: Gantt) -> list[int]:
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


def _whole(name: str, most: int) -> int:
    text = request.args.get(name, "")
    if not _is_number(text) or int(text) > most:
        raise TraceError(
            f"The {name} {text[:40]!r} is not a whole number up to {most:,}.",
            hint="Send a number, at least 0.",
        )
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18


def _packed(header: dict[str, Any], columns: Mapping[str, Any]) -> Response:
    """Return header and arrays in the form the docstring of the module describes."""
    listed, parts, at = [], [b"", b""], 0
    for name, column in columns.items():
        listed.append([name, _TYPES[column.dtype.kind], at, column.size])
        parts += [column.astype(column.dtype.newbyteorder("<")).tobytes(), bytes(-column.nbytes % 8)]
        at += column.nbytes + -column.nbytes % 8
    text = msgspec.json.encode({**header, "arrays": listed})
    text = text.ljust(len(text) + -(4 + len(text)) % 8)
    parts[:2] = [len(text).to_bytes(4, "little"), text]
    return Response(b"".join(parts), mimetype="application/octet-stream")


def _refusal(error: StudioError) -> tuple[Response, int]:
    return _json({"error": {"message": error.message, "hint": error.hint}}), 400


def _json(answer: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(answer), mimetype="application/json")
