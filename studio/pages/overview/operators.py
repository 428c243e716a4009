"""What operators did, on Overview of a recorded job: a roofline with the table behind it."""

from __future__ import annotations

from typing import Any

from dash import Input, Output, callback, html

from studio.errors import ConfigError
from studio.figures.roofline import draw_roofline, select_drawable
from studio.operators import OperatorReport, list_operators
from studio.operators.report import OperatorRow
from studio.operators.roofline import describe_memory_excess
from studio.pages.base.export import Table, build_export_buttons
from studio.pages.base.figures import build_figure
from studio.pages.base.state import get_session
from studio.pages.base.still import merge_static_parts
from studio.pages.base.widgets import build_hint, show_errors
from studio.session import Session
from studio.sim.systems.gpu import Gpu
from studio.sim.systems.gpus import find_recorded_gpu
from studio.trace import Trace
from studio.units import format_ns

_TITLE = "How fast operators were"
_ABOUT = (
    "Each operator by the operations it does for a byte of memory, and the operations it did a second. The lines are what "
    "the GPU can do at most: on the slope its memory is the limit, on the flat its arithmetic for that data type. Areas are "
    "shares of the compute time. Operations and bytes follow from the recorded shapes by a formula per operator."
)
_LISTED = 3
_LEAST_DRAWN = 0.05
"""A figure of less of the compute time would stand for what nobody asked about."""


def build_operators_place() -> Any:
    """Return what the figure comes into, where a job has one."""
    return html.Div(id="overview-operators")


@callback(Output("overview-operators", "children"), Input("overview-shown", "data"))
@show_errors
def show_operators(shown: list[Any]) -> Any:
    """Show the roofline; a callback of its own, since it reads every node."""
    job, _, theme = shown
    report = _get_report(get_session(), job)
    gpu = _find_gpu(get_session().trace(job)) if report.on_device else None
    if not select_drawable(report):
        return None
    is_drawn = _sum_drawn_ns(report) >= _LEAST_DRAWN * report.time_ns
    shown_name = "overview-roofline" if is_drawn else ""
    return merge_static_parts(
        html.Div(
            [
                html.Div(
                    [
                        html.H2([_TITLE, build_hint(_TITLE, _ABOUT)]),
                        build_export_buttons(
                            "operators", figure=shown_name, table=_build_table(report, gpu), title=_TITLE
                        ),
                    ],
                    className="cs-figure-head",
                ),
                build_figure(shown_name, draw_roofline(report, gpu, dark=theme == "dark"))
                if is_drawn
                else html.P(_explain_missing_figure(report)),
                html.P(_describe_coverage(report, gpu), className="cs-dim cs-overview-caption"),
            ],
            className="cs-section",
        )
    )


def _get_report(kept: Session, job: str) -> OperatorReport:
    return kept.keep_of_job("operators", job, lambda: list_operators(kept.trace(job)))


def _find_gpu(trace: Trace) -> Gpu | None:
    try:
        return find_recorded_gpu(trace)
    except ConfigError:
        return None


def _sum_drawn_ns(report: OperatorReport) -> int:
    return sum(row.time_ns for row in select_drawable(report))


def _explain_missing_figure(report: OperatorReport) -> str:
    """Say why there is no figure: how little could be drawn, and why most of the rest has no formula."""
    by_why: dict[str, int] = {}
    for row in report.uncovered:
        by_why[row.why] = by_why.get(row.why, 0) + row.time_ns
    why = max(by_why, key=by_why.__getitem__, default="")
    rest = f": {_format_share(by_why[why], report)} is without a formula ({why})" if why else ""
    return f"Operators that could be drawn take {_format_share(_sum_drawn_ns(report), report)} of the compute time, too little for a figure{rest}."


def _format_share(ns: int, report: OperatorReport) -> str:
    return f"{100 * ns / max(report.time_ns, 1):.1f} %"


def _describe_coverage(report: OperatorReport, gpu: Gpu | None) -> str:
    """Say whose roofs these are, how much of the compute time has a formula, and what has none."""
    if not report.on_device:
        roofs = "operators on the processor, whose roofs are not known"
    elif gpu is None:
        named = f"“{report.device[:60]}”" if report.device else "not named in the trace"
        roofs = f"without roofs: the peaks of the device are not known ({named})"
    else:
        roofs = f"roofs of {gpu.name}"
    share = f"{100 * (report.coverage or 0):.1f} % of {format_ns(report.time_ns)} compute time by formula"
    moving = f"{_format_share(max(report.covered_ns - _sum_drawn_ns(report), 0), report)} only moves data and is not drawn"
    lacking = ", ".join(
        f"{row.name[:40]} {_format_share(row.time_ns, report)}" for row in report.uncovered[:_LISTED]
    )
    rest = f"without a formula: {lacking}" if lacking else ""
    return " · ".join(part for part in (roofs, share, moving, rest, _describe_doubted(report, gpu)) if part)


def _describe_doubted(report: OperatorReport, gpu: Gpu | None) -> str:
    """Name operators whose bytes are not to be believed; empty where all are."""
    names = [row.operator[:40] for row in report.rows if _describe_doubt(row, gpu)]
    if not names:
        return ""
    rest = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return (
        f"not believed, for above the bandwidth of the memory (caches held a part, or less was moved): "
        f"{', '.join(names[:_LISTED])}{rest}"
    )


def _describe_doubt(row: OperatorRow, gpu: Gpu | None) -> str:
    return describe_memory_excess(gpu, row.bytes_per_s) if gpu is not None else ""


def _build_table(report: OperatorReport, gpu: Gpu | None) -> Table:
    """Return every operator with what is not to be believed of it, and what has no formula with the reason."""
    head = (
        *("operator", "family", "type", "calls", "time_ns", "flop", "bytes", "flop_per_s", "bytes_per_s"),
        *("flop_per_byte", "formula", "source"),
        *("kernels_without_call", "time_without_call_ns", "flop_without_call", "bytes_without_call", "doubt"),
    )
    rows: list[tuple[str | int | float | None, ...]] = [
        (
            *(row.operator, row.family, row.type, row.count, row.time_ns, row.flop, row.bytes),
            *(row.flop_per_s, row.bytes_per_s, row.intensity, row.formula, row.source),
            *(
                row.by_name_count,
                row.by_name_ns,
                row.by_name_flop,
                row.by_name_bytes,
                _describe_doubt(row, gpu),
            ),
        )
        for row in report.rows
    ]
    rows += [
        (row.name, "", "", row.count, row.time_ns, None, None, None, None, None, row.why, "", *[None] * 4, "")
        for row in report.uncovered
    ]
    return Table(head, rows)
