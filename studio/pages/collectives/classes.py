"""The tab "By size" of Collectives: how many, how long, how fast, and who comes last."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from dash import dcc, html

from studio.analysis.collectives.apart import apart_words
from studio.analysis.collectives.group_sizes import open_words, told_ranks
from studio.analysis.collectives.size_classes import SizeClass, size_classes
from studio.analysis.job.together import ready_words
from studio.errors import ConfigError
from studio.pages.base.export import Table, exports
from studio.pages.base.state import session
from studio.pages.base.widgets import exact, link, table, with_hint
from studio.pages.collectives.late import late_table
from studio.sim.attained import FASTER, FASTER_WORDS, Attained, attained_by
from studio.trace import NONE
from studio.units import format_bytes, format_count, format_ns, format_rate
from studio.views.address import shown_run
from studio.views.collectives import times_of

_SHOWN = 200
_TIME = "From the arrival of the last member to the end, without waiting for it: median, and the time that 99 % stay below."
_SKEW = "How long the first member waits for the last one: median, and the longest."
_LAST = "The rank that first members waited for longest, and which share of these waits was for it."
_BUS = (
    "Of a collective of median size that takes the median time. busbw as nccl-tests defines it: bytes of the whole array over time, "
    "times what a ring sends over each port per byte."
)
_ATTAINED = (
    "What the costs of this system give for such a collective alone, over the median: 100 % is as fast as the system attains. "
    f"What is over {100 * FASTER:.0f} % {FASTER_WORDS}."
)


def classes_panel(job: str, view: dict[str, Any]) -> Any:
    """Return the table of collectives by type, group size and size."""
    run = shown_run(session(), job, view)
    if run is None:
        return html.P(
            "The files hold no times. Simulate the job to see how long its collectives take.",
            className="cs-dim",
        )
    classes, attained, apart = session().keep_of_job("size classes", job, lambda: _classes(job, run), run)
    doubt = html.P(f"{apart[0].upper()}{apart[1:]}.") if apart else None
    if not classes:
        return html.Div([html.P("No collective of this run has times.", className="cs-dim"), doubt])
    head: list[Any] = [
        "Type", "Ranks", "Groups", "Size", "Count", with_hint("Median", _TIME), "p99", with_hint("busbw", _BUS),
        with_hint("Skew", _SKEW), "Most skew", with_hint("Last", _LAST),
    ]  # fmt: skip
    if attained:
        head.insert(8, with_hint(f"of {attained.system}", _ATTAINED))
    # Of one member alone nothing tells when the others came.
    alone = len(session().trace(job).ranks) == 1
    shown = classes[:_SHOWN]
    rows = [
        _row(job, view, (index, size), each, attained, alone=alone)
        for index, (each, size) in enumerate(zip(shown, size_texts(shown), strict=True))
    ]
    more = len(classes) - _SHOWN
    # Members of which none comes first may be recorded to begin together.
    note = (
        ready_words(session().rank_use(job, "")[0])
        if not run and any(not each.skew_ns for each in classes)
        else ""
    )
    return html.Div(
        [
            html.Div(
                [
                    html.H2("Collectives by type and size"),
                    exports("collectives-by-size", table=_numbers(classes)),
                ],
                className="cs-figure-head",
            ),
            doubt,
            html.Div(table(head, rows, numeric=range(1, len(head))), className="cs-scroll"),
            html.P(note, className="cs-dim") if note else None,
            html.P(f"and {format_count(more)} more; CSV has all", className="cs-dim") if more > 0 else None,
            None if alone else late_table(job, run, view),
        ],
        className="cs-page",
    )


def _classes(job: str, run: str) -> tuple[list[SizeClass], Attained | None, str]:
    """Return the classes, what the recorded GPU's system attains of them, and words about what was matched and is no collective."""
    trace = session().trace(job)
    times = times_of(session(), job, run)
    classes, apart = size_classes(trace, times), apart_words(times.apart_by_group())
    try:
        return classes, attained_by(trace, classes), apart
    except ConfigError:  # the recorded GPU's system does not come in the size of this job
        return classes, None, apart


def size_texts(classes: Sequence[SizeClass]) -> list[str]:
    """Return the sizes of classes, in bytes where two of one type among as many ranks would read the same."""
    texts = [_size_text(each.least_bytes, each.most_bytes) for each in classes]
    often = Counter((each.type, each.members, text) for each, text in zip(classes, texts, strict=True))
    return [
        _exactly(each) if often[each.type, each.members, text] > 1 and each.most_bytes else text
        for each, text in zip(classes, texts, strict=True)
    ]


def _exactly(each: SizeClass) -> str:
    low = "" if each.least_bytes == each.most_bytes else f"{each.least_bytes:,} to "
    return f"{low}{each.most_bytes:,} B"


def _size_text(least: int, most: int) -> str:
    if not most:
        return "–"
    return format_bytes(most) if least == most else f"{format_bytes(least)} to {format_bytes(most)}"


def _row(
    job: str,
    view: dict[str, Any],
    at: tuple[int, str],
    each: SizeClass,
    attained: Attained | None,
    *,
    alone: bool,
) -> list[Any]:
    index, size = at
    groups = (
        html.Bdi(each.groups[0] or "(all ranks)") if len(each.groups) == 1 else format_count(len(each.groups))
    )
    ranks: Any = format_count(each.members)
    if each.is_open:
        ranks = exact(f"{ranks}+", open_words(each.members, told_ranks(session().trace(job))))
    rate = each.bus_bytes_per_ns
    last: Any = "–"
    if each.last_rank != NONE:
        address = link("/timeline", {"job": job, "run": view.get("run")}, rank=str(each.last_rank))
        last = [dcc.Link(f"rank {each.last_rank}", href=address), f" {100 * each.last_share:.0f} %"]
    cells = [
        each.type,
        ranks,
        groups,
        exact(size, f"{each.least_bytes:,} to {each.most_bytes:,} bytes"),
        format_count(each.count),
        exact(format_ns(each.median_ns), f"{each.median_ns:,} ns"),
        exact(format_ns(each.p99_ns), f"{each.p99_ns:,} ns"),
        "–" if math.isnan(rate) else format_rate(rate),
        *("–" if alone else exact(format_ns(ns), f"{ns:,} ns") for ns in (each.skew_ns, each.most_skew_ns)),
        html.Span(last),
    ]
    if attained:
        share = attained.share(index, each.median_ns)
        cells.insert(8, "–" if share is None else f"{100 * share:.0f} %")
    return cells


def _numbers(classes: list[SizeClass]) -> Table:
    columns = (
        "type", "members", "is_open", "least_bytes", "most_bytes", "count", "total_bytes", "least_ns", "median_ns", "p99_ns", "most_ns",
        "total_ns", "algorithm_bytes_per_ns", "bus_bytes_per_ns", "skew_ns", "most_skew_ns", "last_rank", "last_share",
    )  # fmt: skip
    rows = [
        tuple(
            None if isinstance(value, float) and math.isnan(value) else value
            for value in (getattr(each, column) for column in columns)
        )
        for each in classes
    ]
    return Table(columns, rows)
