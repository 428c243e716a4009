"""What runs longest by name, on Overview."""

from __future__ import annotations

from typing import Any

from dash import dcc, html

from studio.analysis.job.function_names import shorten_distinctly
from studio.analysis.job.kernels import Kernel, describe_receives, list_kernels
from studio.pages.base.export import Table, build_export_buttons
from studio.pages.base.state import get_session
from studio.pages.base.widgets import build_address, build_hint, build_rounded_value, build_table
from studio.units import format_bytes, format_count, format_ns, format_rate

_SHOWN, _EXPORTED = 10, 5000
_NAME_WIDTH = 40
"""What the column shows beside What to change."""
_ABOUT = (
    "Kernels, copies and collectives of a device by the name they were recorded with; without a device, what computes, "
    "communicates and moves memory. Numbers of steps, layers and the like are shown as *. Durations are added up: what "
    "overlaps counts in full."
)
_RATE = "Bytes over time of copies whose size was recorded."
_COLOURS = {"compute": "compute", "communication": "collective", "copy": "copy", "memory": "memory"}


def build_kernels_section(job: str, run: str) -> Any:
    """Return the names that take most time in a run, "" for the recording; each leads to its longest node."""
    job_kernels = get_session().keep_of_job(
        "kernels", job, lambda: list_kernels(get_session().trace(job), get_session().times(job, run)), run
    )
    if not job_kernels:
        return None
    has_rates = any(kernel.bytes_per_ns for kernel in job_kernels[:_SHOWN])
    view = {"job": job, **({"run": run} if run else {})}
    head: list[Any] = ["Name", "Count", "Total", "Share", "Median", "Longest"]
    names = shorten_distinctly([kernel.name for kernel in job_kernels[:_SHOWN]], _NAME_WIDTH)
    rows = [
        _build_row(kernel, name, job, view, has_rates=has_rates)
        for kernel, name in zip(job_kernels[:_SHOWN], names, strict=True)
    ]
    if has_rates:
        head.append(html.Span(["Rate", build_hint("rate of copies", _RATE)]))
    more = len(job_kernels) - _SHOWN
    share = sum(kernel.share for kernel in job_kernels[_SHOWN:])
    rest = f"{format_count(more)} more names take {100 * share:.1f} % together." if more > 0 else ""
    note = f"{rest} {describe_receives(get_session().trace(job))}".strip()
    return html.Div(
        [
            html.Div(
                [
                    html.H2(["What runs longest", build_hint("what runs longest", _ABOUT)]),
                    build_export_buttons("kernels", table=_build_numbers(job_kernels)),
                ],
                className="cs-figure-head",
            ),
            html.Div(build_table(head, rows, numeric=range(1, len(head))), className="cs-scroll"),
            html.P(note, className="cs-dim") if note else None,
        ],
        className="cs-section",
    )


def _build_row(kernel: Kernel, name: str, job: str, view: dict[str, Any], *, has_rates: bool) -> list[Any]:
    rank, row = kernel.longest
    trace = get_session().trace(job)
    graph_rank = trace.rank(rank)
    node = None if graph_rank is None else str(trace.graph_of(graph_rank).id[row])
    swatch = html.Span(
        className="cs-swatch", style={"background": f"var(--cs-{_COLOURS[kernel.kind]})"}, title=kernel.kind
    )
    cells = [
        html.Span([swatch, html.Bdi(name, title=kernel.name)], className="cs-kernel"),
        format_count(kernel.count),
        build_rounded_value(format_ns(kernel.total_ns), f"{kernel.total_ns:,} ns"),
        f"{100 * kernel.share:.1f} %",
        build_rounded_value(format_ns(kernel.median_ns), f"{kernel.median_ns:,} ns"),
        dcc.Link(
            build_rounded_value(format_ns(kernel.most_ns), f"{kernel.most_ns:,} ns"),
            href=build_address("/timeline", view, rank=str(rank), node=node),
            title=f"on rank {rank}: show it in the timeline",
        ),
    ]
    rate = kernel.bytes_per_ns
    if has_rates:
        amount = f"{format_bytes(kernel.bytes)} in {format_ns(kernel.sized_ns)}"
        cells.append(build_rounded_value(format_rate(rate), amount) if rate else "–")
    return cells


def _build_numbers(job_kernels: list[Kernel]) -> Table:
    columns = ("name", "kind", "count", "total_ns", "share", "least_ns", "median_ns", "most_ns", "bytes")
    rows = [
        tuple(
            round(value, 8) if isinstance(value, float) else value
            for value in (getattr(kernel, column) for column in columns)
        )
        for kernel in job_kernels[:_EXPORTED]
    ]
    return Table(columns, rows)
