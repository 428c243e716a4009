"""Routes of the Timeline's marked window: where its time went, as JSON and as TSV."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flask import Blueprint, Response, request

from studio.analysis.timeline.gantt import Gantt
from studio.analysis.timeline.window import BY, By, compute_idle_times, compute_shares, compute_spreads
from studio.errors import TraceError
from studio.server.answers import NAME_AT_MOST, as_json, format_plain_cell, parse_time_window
from studio.server.bars import get_gantt

SHOWN_AT_MOST = 2000
_RANK_HEAD = ("rank", "what", "nodes", "time_ns", "share_of_window")
_ALL_HEAD = (
    "what", "ranks", "nodes", "total_ns", "mean_ns", "least_ns", "least_rank", "most_ns", "most_rank"
)  # fmt: skip


def add_windows(routes: Blueprint) -> None:
    """Add the routes to those of the timeline."""

    @routes.get("/<job>/timeline/window")
    def serve_window(job: str) -> Response:
        head, rows = _build_window_table(get_gantt(job))
        shown: list[tuple[Any, ...]] = []
        count = 0
        for row in rows:
            count += 1
            if count <= SHOWN_AT_MOST:
                shown.append(row)
        return as_json({"head": head, "rows": shown, "count": count})

    @routes.get("/<job>/timeline/idle")
    def serve_idle(job: str) -> Response:
        return as_json({"idle": compute_idle_times(get_gantt(job)).tolist()})

    @routes.get("/<job>/timeline/window.tsv")
    def serve_window_tsv(job: str) -> Response:
        head, rows = _build_window_table(get_gantt(job))
        lines = ["\t".join(head), *("\t".join(map(format_plain_cell, row)) for row in rows)]
        return Response("\n".join(lines) + "\n", mimetype="text/tab-separated-values")


def _build_window_table(gantt: Gantt) -> tuple[tuple[str, ...], Iterator[tuple[Any, ...]]]:
    start, end = parse_time_window()
    entries = compute_shares(gantt, start, end, _parse_split())
    if request.args.get("per", "rank") == "rank":
        return _RANK_HEAD, (
            (entry.rank, entry.what[:NAME_AT_MOST], entry.nodes, entry.time_ns, entry.time_ns / (end - start))
            for entry in entries
        )
    return _ALL_HEAD, (
        (
            entry.what[:NAME_AT_MOST], entry.ranks, entry.nodes, entry.total_ns, entry.mean_ns,
            entry.least_ns, entry.least_rank, entry.most_ns, entry.most_rank,
        )
        for entry in compute_spreads(entries)
    )  # fmt: skip


def _parse_split() -> By:
    asked = request.args.get("by", "category")
    for choice in BY:
        if choice == asked:
            return choice
    raise TraceError(
        f"A window is not split by {asked[:40]!r}.", hint="Split it by part, category, group or name."
    )
