"""The tab "By size" of Collectives: how many, how long, how fast, and whom others wait for."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from dash import dcc, html

from studio.analysis.collectives.apart import describe_apart
from studio.analysis.collectives.group_sizes import explain_open, read_job_size
from studio.analysis.collectives.size_classes import SizeClass, describe_partial, list_size_classes
from studio.analysis.job.together import describe_ready_waits
from studio.errors import ConfigError
from studio.pages.base.export import Table, build_export_buttons
from studio.pages.base.state import get_session
from studio.pages.base.widgets import build_address, build_rounded_value, build_table, with_hint
from studio.pages.collectives.late import build_late_table
from studio.sim.attained import FASTER, FASTER_WORDS, Attained, find_attained
from studio.trace import NONE
from studio.units import format_bytes, format_count, format_ns, format_rate
from studio.views.address import choose_shown_run
from studio.views.collectives import collect_times, collect_waits

_SHOWN = 200
_TIME = "From the arrival of the last member to the end, without waiting for it: median, and the time that 99 % stay below."
_SKEW = (
    "How long the first member waits for the last one, whether work hides it or not: median, and the longest."
)
_LAST = "The rank that others waited for longest in these collectives, no work hiding it, and which share of that waiting was for it."
_BUS = (
    "Of a collective of median size that takes the median time. busbw as nccl-tests defines it: bytes of the whole array over time, "
    "times what a ring sends over each port per byte."
)
_ATTAINED = (
    "What the costs of this system give for such a collective alone, over the median: 100 % is as fast as the system attains. "
    f"What is over {100 * FASTER:.0f} % {FASTER_WORDS}."
)


def build_classes_panel(job: str, view: dict[str, Any]) -> Any:
    """Return the table of collectives by type, group size and size."""
    run = choose_shown_run(get_session(), job, view)
    if run is None:
        return html.P(
            "The files hold no times. Simulate the job to see how long its collectives take.",
            className="cs-dim",
        )
    classes, attained, apart = get_session().keep_of_job(
        "size classes", job, lambda: _list_classes(job, run), run
    )
    doubt = html.P(f"{apart[0].upper()}{apart[1:]}.") if apart else None
    if not classes:
        return html.Div([html.P("No collective of this run has times.", className="cs-dim"), doubt])
    head: list[Any] = [
        "Type", "Ranks", "Groups", "Size", "Count", with_hint("Median", _TIME), "p99", with_hint("busbw", _BUS),
        with_hint("Skew", _SKEW), "Most skew", with_hint("Waited for", _LAST),
    ]  # fmt: skip
    if attained:
        head.insert(8, with_hint(f"of {attained.system}", _ATTAINED))
    # Of one member alone nothing tells when the others came.
    alone = len(get_session().trace(job).ranks) == 1
    shown = classes[:_SHOWN]
    rows = [
        _build_row(job, view, (index, size), each, attained, alone=alone)
        for index, (each, size) in enumerate(zip(shown, format_sizes(shown), strict=True))
    ]
    more = len(classes) - _SHOWN
    # Members of which none comes first may be recorded to begin together.
    note = (
        describe_ready_waits(get_session().rank_use(job, "")[0])
        if not run and any(not each.skew_ns for each in classes)
        else ""
    )
    return html.Div(
        [
            html.Div(
                [
                    html.H2("Collectives by type and size"),
                    build_export_buttons("collectives-by-size", table=_build_numbers(classes)),
                ],
                className="cs-figure-head",
            ),
            doubt,
            html.Div(build_table(head, rows, numeric=range(1, len(head))), className="cs-scroll"),
            html.P(partial, className="cs-dim") if (partial := describe_partial(classes, "*")) else None,
            html.P(note, className="cs-dim") if note else None,
            html.P(f"and {format_count(more)} more; CSV has all", className="cs-dim") if more > 0 else None,
            None if alone else build_late_table(job, run, view),
        ],
        className="cs-page",
    )


def _list_classes(job: str, run: str) -> tuple[list[SizeClass], Attained | None, str]:
    """Return the classes, what the recorded GPU's system attains of them, and words about what was matched and is no collective."""
    trace = get_session().trace(job)
    times = collect_times(get_session(), job, run)
    classes, apart = (
        list_size_classes(trace, times, collect_waits(get_session(), job, run)),
        describe_apart(times.apart_by_group()),
    )
    try:
        return classes, find_attained(trace, classes), apart
    except ConfigError:  # the recorded GPU's system does not come in the size of this job
        return classes, None, apart


def format_sizes(classes: Sequence[SizeClass]) -> list[str]:
    """Return the sizes of classes, in bytes where two of one type among as many ranks would read the same."""
    texts = [_format_size(each.least_bytes, each.most_bytes) for each in classes]
    often = Counter((each.type, each.members, text) for each, text in zip(classes, texts, strict=True))
    return [
        _format_exactly(each) if often[each.type, each.members, text] > 1 and each.most_bytes else text
        for each, text in zip(classes, texts, strict=True)
    ]


def _format_exactly(each: SizeClass) -> str:
    low = "" if each.least_bytes == each.most_bytes else f"{each.least_bytes:,} to "
    return f"{low}{each.most_bytes:,} B"


def _format_size(least: int, most: int) -> str:
    if not most:
        return "–"
    return format_bytes(most) if least == most else f"{format_bytes(least)} to {format_bytes(most)}"


def _build_row(
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
        ranks = build_rounded_value(
            f"{ranks}+", explain_open(each.members, read_job_size(get_session().trace(job)))
        )
    rate = each.bus_bytes_per_ns
    last: Any = "–"
    if each.last_rank != NONE:
        address = build_address("/timeline", {"job": job, "run": view.get("run")}, rank=str(each.last_rank))
        last = [dcc.Link(f"rank {each.last_rank}", href=address), f" {100 * each.last_share:.0f} %"]
    cells = [
        each.type,
        ranks,
        groups,
        build_rounded_value(size, f"{each.least_bytes:,} to {each.most_bytes:,} bytes"),
        _build_count(each),
        build_rounded_value(format_ns(each.median_ns), f"{each.median_ns:,} ns"),
        build_rounded_value(format_ns(each.p99_ns), f"{each.p99_ns:,} ns"),
        "–" if math.isnan(rate) else format_rate(rate),
        *(
            "–" if alone else build_rounded_value(format_ns(ns), f"{ns:,} ns")
            for ns in (each.skew_ns, each.most_skew_ns)
        ),
        html.Span(last),
    ]
    if attained:
        share = attained.share(index, each.median_ns)
        cells.insert(8, "–" if share is None else f"{100 * share:.0f} %")
    return cells


def _build_count(each: SizeClass) -> Any:
    """Return how many collectives there are, with a mark where not all members have all of them."""
    count = format_count(each.count)
    words = describe_partial([each])
    return build_rounded_value(f"{count}*", words) if words else count


def _build_numbers(classes: list[SizeClass]) -> Table:
    columns = (
        "type", "members", "is_open", "least_bytes", "most_bytes", "count", "partial_count", "total_bytes", "least_ns", "median_ns", "p99_ns", "most_ns",
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
