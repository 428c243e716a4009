"""How much memory each rank held at its peak, in a report."""

from __future__ import annotations

from studio.analysis.compare.sides import Side
from studio.analysis.job.memory import HOST_MEMORY, compute_memory_use, describe_holder, label_origin
from studio.reporting.document import Cell, Document
from studio.units import format_bytes, format_count, format_counted, format_ns

_LISTED, _HOLDERS = 12, 3


def write_memory(document: Document, side: Side) -> None:
    """Write the peaks of memory, those of devices where there are any; nothing where the trace tells nothing."""
    uses = compute_memory_use(side.trace, side.times)
    devices = [use for use in uses if use.device != HOST_MEMORY]
    shown = sorted(devices or uses, key=lambda use: -use.peak_bytes)
    if not shown:
        return
    document.heading(3, "Memory at the peak")
    rows: list[list[Cell]] = []
    for use in shown[:_LISTED]:
        held = "; ".join(
            f"{describe_holder(use, holder)} {format_bytes(holder.bytes)}"
            for holder in use.holders[:_HOLDERS]
        )
        size: Cell = (format_bytes(use.peak_bytes), format_counted(use.peak_bytes, "byte"))
        when: Cell = (format_ns(use.peak_ns), f"{use.peak_ns:,} ns")
        place = "processor" if use.device == HOST_MEMORY else f"device {use.device}"
        rows.append([str(use.rank), place, size, when, label_origin(use), held])
    more = len(shown) - _LISTED
    rest = (
        f" {format_count(more)} more hold at most {format_bytes(shown[_LISTED].peak_bytes)} each."
        if more > 0
        else ""
    )
    document.table(
        ["rank", "where", "peak", "at", "how it is known", "held by"],
        rows,
        numeric=(0, 2, 3),
        caption=f"What the allocator had given out; it reserves more of the device.{rest}",
    )
