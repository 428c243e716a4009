"""Routes of the Timeline: rows, tiles, the bar of a node, and exports.

Arrays travel as `packed.py` says. Times in arrays are ns after the beginning of their tile, so that no float ever holds
a date.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from flask import Blueprint, Response, request

from studio.analysis.job.function_names import shorten_function_name
from studio.analysis.job.kinds import infer_counted_type, label_counted_type
from studio.analysis.timeline.chrome import iterate_chrome_events
from studio.analysis.timeline.gantt import LEVEL_AT_MOST, TILE_BINS, Bar, Gantt
from studio.analysis.timeline.perfetto import iterate_perfetto_events
from studio.analysis.timeline.undrawn import Undrawn, find_undrawn
from studio.errors import StudioError
from studio.figures.graph import format_node_refs
from studio.server.answers import (
    FARTHEST,
    NAME_AT_MOST,
    as_json,
    download,
    escape_formula,
    handle_error,
    parse_rows,
    parse_whole,
)
from studio.server.bars import convert_bar, find_bar, get_gantt, get_ghost
from studio.server.counters import add_counters
from studio.server.differences import add_differences
from studio.server.packed import pack_arrays
from studio.server.path import add_path
from studio.server.relations import add_relations
from studio.server.windows import add_windows
from studio.timeline import LANE_KINDS
from studio.units import format_count

_RANKS_NAMED = 8


def build_timeline_blueprint() -> Blueprint:
    """Make the routes below /api/jobs."""
    routes = Blueprint("timeline", __name__, url_prefix="/api/jobs")
    routes.register_error_handler(StudioError, handle_error)
    add_relations(routes)
    add_path(routes)
    add_windows(routes)
    add_differences(routes)
    add_counters(routes)

    @routes.get("/<job>/timeline")
    def describe(job: str) -> Response:
        return pack_arrays(*_build_description(get_gantt(job), request.args.get("run", "")))

    @routes.get("/<job>/timeline/tile")
    def serve_tile(job: str) -> Response:
        ghost = request.args.get("ghost")
        gantt = get_gantt(job) if ghost is None else get_ghost(job, ghost)
        level = parse_whole("level", LEVEL_AT_MOST)
        part = gantt.tile(level, parse_whole("tile", FARTHEST >> level), parse_rows(gantt))
        columns = {
            spec.name: getattr(part, spec.name)
            for spec in fields(part)
            if spec.name not in ("names", "calls")
        }
        if part.calls is not None:
            columns |= {spec.name: getattr(part.calls, spec.name) for spec in fields(part.calls)}
        return pack_arrays(
            {"names": [shorten_function_name(name)[:NAME_AT_MOST] for name in part.names]}, columns
        )

    @routes.get("/<job>/timeline/node")
    def serve_node(job: str) -> Response:
        gantt = get_gantt(job)
        bar = find_bar(gantt)
        return as_json({"bar": None} if bar is None else _describe_neighbours(gantt, bar))

    @routes.get("/<job>/timeline/spans.csv")
    def serve_spans(job: str) -> Response:
        gantt = get_gantt(job)
        lines = _iterate_csv(
            gantt, parse_whole("from", FARTHEST), parse_whole("to", FARTHEST), parse_rows(gantt)
        )
        return download(lines, f"timeline-{job}.csv", "text/csv")

    @routes.get("/<job>/timeline/trace.json")
    def serve_chrome(job: str) -> Response:
        return download(iterate_chrome_events(get_gantt(job)), f"timeline-{job}.json", "application/json")

    @routes.get("/<job>/timeline/trace.pftrace")
    def serve_perfetto(job: str) -> Response:
        pieces = iterate_perfetto_events(get_gantt(job))
        return download(pieces, f"timeline-{job}.pftrace", "application/octet-stream")

    return routes


def _build_description(gantt: Gantt, run: str) -> tuple[dict[str, Any], dict[str, Any]]:
    rows = gantt.rows
    header = {
        "span": gantt.span_ns,
        "bins": TILE_BINS,
        "bars": len(gantt),
        "undrawn": _describe_undrawn(find_undrawn(gantt), run),
        "kinds": LANE_KINDS,
        "names": [name[:NAME_AT_MOST] for name in rows.names],
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


def _describe_undrawn(missing: Undrawn, run: str) -> str:
    """Say which nodes have no bar and why; "" if all have one."""
    if not missing.count:
        return ""
    kinds = ", ".join(f"{format_count(count)} {name}" for name, count in missing.by_type)
    why = "the simulation did not run them" if run else "no start was recorded"
    words = f"{format_count(missing.count)} of {format_count(missing.nodes)} nodes have no bar, as {why}: {kinds}."
    if not missing.ranks:
        return words
    named = ", ".join(map(str, missing.ranks[:_RANKS_NAMED]))
    more = len(missing.ranks) - _RANKS_NAMED
    rest = f" and {format_count(more)} more" if more > 0 else ""
    return f"{words} Without any bar: rank{'s' if len(missing.ranks) > 1 else ''} {named}{rest}."


def _describe_neighbours(gantt: Gantt, bar: Bar) -> dict[str, Any]:
    before, after = gantt.beside(bar)
    waits_for, waited_for = gantt.depends(bar)
    return {
        "bar": convert_bar(gantt, bar),
        "previous": before and convert_bar(gantt, before, near=True),
        "next": after and convert_bar(gantt, after, near=True),
        "up": [
            {
                **convert_bar(gantt, neighbour, near=True),
                "data": data,
                **_describe_link(gantt, neighbour, bar),
            }
            for neighbour, data in waits_for
        ],
        "down": [
            {
                **convert_bar(gantt, neighbour, near=True),
                "data": data,
                **_describe_link(gantt, bar, neighbour),
            }
            for neighbour, data in waited_for
        ],
    }


def _describe_link(gantt: Gantt, before: Bar, after: Bar) -> dict[str, Any]:
    """Say between which of their bars one node waits for the other, where they may have several."""
    if before.own_ns is None and after.own_ns is None:
        return {}
    leaves, arrives = gantt.link(before, after)
    return {"leaves": leaves, "arrives": arrives}


def _iterate_csv(gantt: Gantt, start_ns: int, end_ns: int, rows: Sequence[int]) -> Iterator[str]:
    yield "rank,lane,lane_name,node,name,type,bytes,issue_ns,callback_ns,duration_ns\n"
    listed = set[tuple[int, int]]()
    for row in rows:
        bars = gantt.window(row, start_ns, end_ns)
        if gantt.calls:
            # A node has one line, whichever of its pieces are in sight.
            bars = [bar for bar in bars if (bar.rank.number, bar.node) not in listed]
            listed |= {(bar.rank.number, bar.node) for bar in bars}
        if not bars:
            continue
        rank, graph = bars[0].rank, gantt.trace.graph_of(bars[0].rank)
        refs = format_node_refs(graph, np.array([bar.node for bar in bars], np.int64))
        lane = LANE_KINDS[int(gantt.rows.kind[row])], gantt.rows.names[int(gantt.rows.name[row])]
        text = io.StringIO()
        write = csv.writer(text, lineterminator="\n").writerow
        for bar, ref in zip(bars, refs, strict=True):
            name = graph.strings[int(graph.name[bar.node])]
            what = (
                ref,
                escape_formula(name),
                label_counted_type(infer_counted_type(graph, bar.node)),
                gantt.bytes_of(bar),
            )
            times = (bar.start_ns, bar.end_ns, bar.time_ns)
            write((rank.number, lane[0], escape_formula(lane[1]), *what, *times))
        yield text.getvalue()
