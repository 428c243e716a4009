"""The part of Overview that says of each rank whether it was recorded or is assumed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import dcc, html

from studio.analysis.job.completeness import Completeness, describe_assumed
from studio.pages.base.export import Table, build_export_buttons
from studio.pages.base.rank_words import build_origin_line
from studio.pages.base.widgets import build_address, build_hint, build_rounded_value, build_table
from studio.store.job_infos import JobInfo
from studio.trace import Trace
from studio.units import format_count
from studio.views.ranks import group_equal_ranks, index_sources

_LISTED = 12
_OPEN = 2
"""Rows of the table up to which it stands open."""
_LARGEST_TABLE = 4096
_ABOUT = (
    "A rank that was not recorded has the graph of a recorded one of its role, with its own comm groups and peers. What differs between "
    "ranks in a real run, such as a slow one, is not in it."
)


def build_assumed_section(trace: Trace, info: JobInfo) -> Any:
    """Return which ranks were recorded and which are assumed equal to which; None where all were recorded."""
    words = describe_assumed(trace)
    if not words:
        return build_origin_line(info)
    sources = index_sources(trace)
    copies = group_equal_ranks(list(sources.items()))
    rows = [
        (
            _name_rank(source, is_recorded=sources.get(source, source) is None),
            build_rounded_value(format_count(len(numbers)), len(numbers)),
            _name_ranks(numbers),
        )
        for source, numbers in list(copies.items())[:_LISTED]
    ]
    more = len(copies) - len(rows)
    alone = [number for number, source in sources.items() if source is None and number not in copies]
    notes = [
        html.P(f"And {format_count(more)} more that others are equal to.", className="cs-dim")
        if more > 0
        else None,
        html.P(f"Recorded, and equal to no other: {_name_ranks(alone)}.", className="cs-dim")
        if alone
        else None,
    ]
    listed = [
        ("recorded" if source is None else f"assumed equal to rank {source}") for source in sources.values()
    ]
    each = Table(("rank", "recorded"), list(zip(sources, listed, strict=True)))
    save = (
        build_export_buttons("assumed-ranks", table=each, title="which ranks were recorded")
        if len(listed) <= _LARGEST_TABLE
        else None
    )
    seen = dcc.Link("See them in the mesh of ranks", href=build_address("/ranks", {"job": info.id}))
    grid = build_table(("Rank", "Equal to it", "Which"), rows, numeric=(1,))
    summary = html.Summary(html.Strong(words))
    each_rank = html.Div(
        [
            html.Div(
                [html.Span([seen, build_hint("an assumed rank", _ABOUT)]), save], className="cs-figure-head"
            ),
            grid,
            *notes,
        ]
    )
    fold = html.Details([summary, each_rank], open=len(rows) <= _OPEN, className="cs-section")
    return html.Div([build_origin_line(info), fold])


def _name_rank(number: int, *, is_recorded: bool) -> str:
    return f"rank {number}" if is_recorded else f"rank {number}, as it was recorded"


def _name_ranks(numbers: Sequence[int]) -> str:
    return Completeness(tuple(numbers), 0, 0).known_words()
