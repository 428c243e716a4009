"""What to change, as a section of a report."""

from __future__ import annotations

from studio.advice.advice import advise
from studio.advice.words import LABELS, build_bars, describe_advice, describe_baseline
from studio.analysis.job.renumbered import share_graphs
from studio.comparing import Compared, Progress
from studio.errors import StudioError
from studio.figures.tornado import draw_tornado
from studio.reporting.document import Cell, Document
from studio.units import format_counted, format_ns

_LISTED = 12
_ADVISED_NODES = 200_000
_ADVISED_GRAPHS = 128
"""Larger jobs are reported without advice, whose simulations would take longer than all else: each lays out every graph."""


def write_advice(document: Document, run: Compared, progress: Progress) -> None:
    """Write what changes would save, each found by simulating the changed job or system, of which `progress` is told."""
    document.heading(2, "What to change")
    nodes, graphs = run.side.trace.node_count, len(share_graphs(run.side.trace).graphs)
    if nodes > _ADVISED_NODES or graphs > _ADVISED_GRAPHS:
        many = format_counted(nodes, "node") if nodes > _ADVISED_NODES else f"{graphs:,} distinct graphs"
        document.paragraph(
            f"Not worked out for {many}: `chakra-studio advise` does, which takes a while.", "dim"
        )
        return
    try:
        advised = advise(
            run.side.trace, run.system, progress=lambda done, total: progress("simulating", done, total)
        )
    except StudioError as error:
        document.paragraph(f"Nothing could be simulated: {error.message}", "dim")
        return
    document.paragraph(describe_advice(advised), "verdict")
    document.paragraph(
        f"Measured against {format_ns(advised.baseline.finish_ns)}, {describe_baseline(advised.baseline)}. Savings do not add.",
        "dim",
    )
    if advised.system_baseline is not None:
        other = advised.system_baseline
        document.paragraph(
            f"Changes of the system against {format_ns(other.finish_ns)}, {describe_baseline(other)}.", "dim"
        )
    rows = build_bars(advised)
    if rows:
        document.figure(
            "What each change would do to the finish",
            draw_tornado(rows, dark=False),
            "To the left what it saves; to the right, for rates and latencies, what half as good a one costs.",
        )
    listed = [*([] if advised.combined is None else [advised.combined]), *advised.advice[:_LISTED]]
    if listed:
        rows_of: list[list[Cell]] = [
            [
                item.action,
                (format_ns(item.saving_ns), f"{item.saving_ns:,} ns"),
                f"{item.saving_percent:.1f} %",
                ""
                if item.saving_low_ns is None or item.saving_high_ns is None
                else f"{format_ns(item.saving_low_ns)} to {format_ns(item.saving_high_ns)}",
            ]
            for item in listed
        ]
        # Of a replay that meets its recording nothing is uncertain.
        columns = 4 if any(row[3] for row in rows_of) else 3
        document.table(
            ["change", "saves", "of the finish", "it may be"][:columns],
            [row[:columns] for row in rows_of],
            numeric=(1, 2, 3),
            caption=f"{format_counted(advised.considered, 'simulation')}; the first line is the best set of at most three together."
            if advised.combined
            else f"{format_counted(advised.considered, 'simulation')}.",
        )
    if advised.refused:
        document.bullets([f"not simulated: {LABELS[kind]}: {reason}" for kind, reason in advised.refused])
