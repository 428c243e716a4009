"""How much memory each rank held at its peak, on Overview."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import dcc, html

from studio.analysis.job.memory import HOST_MEMORY, MemoryUse, describe_holder
from studio.errors import ConfigError
from studio.pages.base.export import Table, build_export_buttons
from studio.pages.base.state import get_session
from studio.pages.base.widgets import build_address, build_hint, build_rounded_value, build_table
from studio.sim.doubted_memory import describe_unfit
from studio.sim.systems.gpus import find_recorded_gpu
from studio.units import format_bytes, format_count, format_counted, format_ns

_SHOWN, _HOLDERS = 8, 3
_TITLE = "Memory at the peak"
_NOTED = (
    "What PyTorch's allocator had given out, as the profiler noted it (profile_memory=True): exact, with what was allocated "
    "on a device before the recording. The allocator reserves more of the device than it gives out."
)
_ESTIMATED = (
    "Estimated from the storages of tensors that operators name, each from its first to its last use. It lacks workspaces and "
    "what no operator names; ids of storages that recorders give twice make it too high. Record with profile_memory=True for "
    "exact figures."
)
_COUNTED = (
    "Counted by published formulas, as the job is generated and nobody recorded it: weights, gradients, optimizer and activations in the "
    "order of the schedule, without fragmentation and buffers of libraries."
)
_HELD = "The operators in which it was allocated, or, of an estimate, the first that name it; the most first."


def build_memory_section(job: str, run: str) -> Any:
    """Return the peaks of the ranks that hold most, in a run or, for "", the recording; None where nothing tells."""
    uses = get_session().memory(job, run)
    return (
        build_peaks(uses, {"job": job, **({"run": run} if run else {})}, _explain_unfit(job, uses))
        if uses
        else None
    )


def build_peaks(uses: Sequence[MemoryUse], view: dict[str, Any], unfit: str) -> Any:
    """Return the table of peaks: of devices, else of processors.

    Args:
        uses: The memory of each device of each rank, at least one.
        view: The job and the run, for links.
        unfit: What does not fit, in words.
    """
    devices = [use for use in uses if use.device != HOST_MEMORY]
    shown = sorted(devices or uses, key=lambda use: -use.peak_bytes)
    reserved = any(use.reserved_bytes >= 0 for use in shown)
    head: list[Any] = ["Rank", "Where", "Peak", "At", *(["Reserved"] if reserved else [])]
    head.append(html.Span(["Held by", build_hint("held by", _HELD)]))
    rows = [_build_row(use, view, reserved=reserved) for use in shown[:_SHOWN]]
    more = len(shown) - _SHOWN
    about = _NOTED if all(use.noted for use in shown) else _ESTIMATED
    about = _COUNTED if all(use.counted for use in shown) else about
    return html.Div(
        [
            html.Div(
                [
                    html.H2([_TITLE, build_hint(_TITLE, about)]),
                    build_export_buttons("memory", table=_build_numbers(shown)),
                ],
                className="cs-figure-head",
            ),
            html.P(unfit, className="cs-level-warning") if unfit else None,
            html.Div(build_table(head, rows, numeric=range(2, len(head) - 1)), className="cs-scroll"),
            html.P(
                f"{format_count(more)} more hold at most {format_bytes(shown[_SHOWN].peak_bytes)} each.",
                className="cs-dim",
            )
            if more > 0
            else None,
        ],
        className="cs-section",
    )


def _explain_unfit(job: str, uses: Sequence[MemoryUse]) -> str:
    try:
        return describe_unfit(uses, find_recorded_gpu(get_session().trace(job)))
    except ConfigError:
        return ""


def _build_row(use: MemoryUse, view: dict[str, Any], *, reserved: bool) -> list[Any]:
    how = "" if use.noted else "about "
    held = "; ".join(
        f"{describe_holder(use, holder)} {format_bytes(holder.bytes)}" for holder in use.holders[:_HOLDERS]
    )
    return [
        dcc.Link(str(use.rank), href=build_address("/timeline", view, rank=str(use.rank))),
        "processor" if use.device == HOST_MEMORY else f"device\N{NO-BREAK SPACE}{use.device}",
        build_rounded_value(how + format_bytes(use.peak_bytes), format_counted(use.peak_bytes, "byte")),
        build_rounded_value(format_ns(use.peak_ns), f"{use.peak_ns:,} ns"),
        *(
            [
                build_rounded_value(
                    format_bytes(use.reserved_bytes), format_counted(use.reserved_bytes, "byte")
                )
            ]
            if reserved
            else []
        ),
        html.Bdi(held),
    ]


def _build_numbers(uses: list[MemoryUse]) -> Table:
    head = ("rank", "device", "noted", "peak_bytes", "peak_ns", "reserved_bytes")
    return Table(
        head,
        [(use.rank, use.device, use.noted, use.peak_bytes, use.peak_ns, use.reserved_bytes) for use in uses],
    )
