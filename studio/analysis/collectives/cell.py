"""Describe a cell of the heatmap in words: what a rank did in a collective, and how that compares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from studio.analysis.collectives.heat import Shown, label_line
from studio.analysis.collectives.imbalance import Metric
from studio.analysis.collectives.members import Members
from studio.analysis.collectives.times import describe_presence
from studio.trace import NONE, Int64
from studio.units import format_bytes, format_count, format_counted, format_ns, format_offset, format_rate

FORMATS: dict[Metric, Callable[[float], str]] = {
    "size": format_bytes,
    "duration": format_ns,
    "waiting": format_ns,
    "lateness": format_ns,
    "algorithm": format_rate,
    "bus": format_rate,
}
UNITS: dict[Metric, str] = {
    "size": "bytes",
    "duration": "ns",
    "waiting": "ns",
    "lateness": "ns",
    "algorithm": "bytes_per_ns",
    "bus": "bytes_per_ns",
}


def format_exact(metric: Metric, value: float) -> str:
    """Return a figure with all its known digits.

    Example:
        >>> format_exact("size", 226492416.0), format_exact("bus", 1 / 3)
        ('226,492,416 bytes', '0.333333 bytes/ns')
    """
    if UNITS[metric] == "bytes_per_ns":
        return f"{value:,.6g} bytes/ns"
    text = f"{value:,.0f}" if value == round(value) else f"{value:,.3f}"
    return f"{text} {UNITS[metric]}"


def describe_cell(shown: Shown, line: int, column: int) -> str:
    """Return a sentence about a cell."""
    heat, look = shown.heat, shown.look
    row, rank = int(heat.lines[line]), int(heat.columns[column])
    cells = heat.cells(line, column)
    head = [f"rank {shown.trace.ranks[rank].number}", label_line(heat, line)]
    if not len(cells):
        return " · ".join([*head, "takes no part"])
    parts = _describe_single(shown, int(cells[0])) if len(cells) == 1 else _describe_several(shown, cells)
    value, mean = float(heat.table[row, rank]), heat.own_mean(row, rank)
    if np.isnan(value):
        return " · ".join([*head, *parts])
    figure = f"{FORMATS[look.metric](value)} ({format_exact(look.metric, value)})"
    if mean:
        figure += f", {value / mean:.3g} × the mean of its group, {FORMATS[look.metric](mean)}"
    words = {
        "size": "",
        "algorithm": "algorithm bandwidth ",
        "bus": "bus bandwidth ",
        "lateness": "late by ",
        "waiting": "lead ",
    }
    return " · ".join([*head, f"{words.get(look.metric, look.metric + ' ')}{figure}", *parts])


def _format_size(members: Members, size: Any) -> str:
    return format_bytes(int(size)) if members.sized else "size not recorded"


def _describe_single(shown: Shown, cell: int) -> list[str]:
    heat, metric = shown.heat, shown.look.metric
    members = heat.members
    which = int(np.searchsorted(members.offsets, cell, side="right")) - 1
    group = members.groups[int(members.group[which])]
    more = " at least" if members.is_open[which] else ""
    parts = [f"group {group or 'of all ranks'}, {format_counted(int(members.size[which]), 'rank')}{more}"]
    had = int(members.offsets[which + 1] - members.offsets[which])
    if partly := describe_presence(shown.trace, group, had):
        parts.append(partly)
    if metric != "size":
        parts.append(_format_size(members, members.bytes[cell]))
    start, end = int(members.start_ns[cell]), int(members.end_ns[cell])
    if start < 0:
        return parts
    of = slice(int(members.offsets[which]), int(members.offsets[which + 1]))
    if members.apart[which]:
        return [*parts, f"took {format_ns(end - start)}", "its members differ in type or size: no collective"]
    last = of.start + int(members.start_ns[of].argmax())
    waited = int(members.start_ns[last]) - start
    parts.append(f"arrived at {format_offset(start - shown.origin_ns, 1 << 40)}")
    if metric != "duration":
        parts.append(f"took {format_ns(end - start)}")
    if waited > 0:
        number = shown.trace.ranks[int(members.rank[last])].number
        parts.append(f"{format_ns(waited)} of it before rank {number} came")
    elif last == cell and len(range(of.start, of.stop)) > 1 and waited == 0:
        first = int(members.start_ns[of][members.start_ns[of] >= 0].min())
        if start > first:
            parts.append(f"the last to arrive, {format_ns(start - first)} after the first")
    return parts


def _describe_several(shown: Shown, cells: Int64) -> list[str]:
    members = shown.heat.members
    parts = [f"{format_count(len(cells))} collectives together"]
    if shown.look.metric != "size":
        parts.append(_format_size(members, members.bytes[cells].sum()))
    known = members.start_ns[cells] != NONE
    if known.any() and shown.look.metric != "duration":
        taken = int((members.end_ns[cells] - members.start_ns[cells])[known].sum())
        parts.append(f"took {format_ns(taken)}")
    return parts
