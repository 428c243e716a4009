"""What the finish of a run consists of, and whom its ranks waited for, in a report."""

from __future__ import annotations

import numpy as np

from studio.analysis.compare.sides import Side
from studio.analysis.job.blame import compute_blame
from studio.analysis.job.ledger import Ledger
from studio.analysis.job.part_words import NAMES
from studio.analysis.path.critical import find_critical_path
from studio.analysis.path.words import compute_path_shares, describe_path
from studio.reporting.document import Cell, Document
from studio.trace import NONE
from studio.units import format_count, format_ns

_LISTED = 12


def write_path(document: Document, side: Side, account: Ledger) -> None:
    """Write the critical path through all ranks: in a sentence and by share."""
    path = find_critical_path(side.trace, side.times, account)
    shares = compute_path_shares(side.trace, side.times, account, path, side.groups)
    if not shares:
        return
    document.heading(3, "The critical path")
    document.paragraph(f"{describe_path(shares)}.")
    rows: list[list[Cell]] = [
        [share.what, _format_time(share.ns), f"{100 * share.share:.1f} %", format_count(len(share.ranks))]
        for share in shares[:_LISTED]
    ]
    left = (
        f" {format_count(len(shares) - _LISTED)} smaller ones are not listed."
        if len(shares) > _LISTED
        else ""
    )
    document.table(
        ["on the path", "time", "share of the finish", "ranks"],
        rows,
        numeric=(1, 2, 3),
        caption="From the last node of the rank that finished last, back through what each node waited for last, across "
        f"ranks: a collective is joined at its last arrival. The segments fill the finish.{left}",
    )


def write_waits(document: Document, side: Side, account: Ledger) -> None:
    """Write whom ranks waited for and what those did meanwhile, the longest first."""
    waits = compute_blame(side.trace, side.times, account)
    if not len(waits):
        return
    rows: list[list[Cell]] = []
    for at in range(min(len(waits), _LISTED)):
        culprit, busy = int(waits.culprit[at]), int(waits.busy_row[at])
        part, share = waits.mostly(np.array([at]))
        doing, name = f"{NAMES[part]}, {100 * share:.0f} %", ""
        if busy != NONE:
            graph = side.trace.graph_of(side.trace.ranks[account.places[culprit]])
            name = graph.strings[int(graph.name[busy])]
        whom = str(account.numbers[culprit]) if culprit != NONE else "not known"
        waiter = str(account.numbers[int(waits.waiter[at])])
        rows.append([waiter, whom, _format_time(int(waits.ns[at])), doing, name])
    document.heading(3, "Whom ranks waited for")
    left = (
        f" {format_count(len(waits) - _LISTED)} shorter ones are not listed." if len(waits) > _LISTED else ""
    )
    document.table(
        ["rank", "waited for rank", "time", "which was mostly at", "in the longest wait"],
        rows,
        numeric=(0, 1, 2),
        caption="Waiting for the last member of a collective and for sends, that no work hid; what the other rank did meanwhile is "
        f"told by its own parts.{left}",
    )


def _format_time(ns: int) -> Cell:
    return format_ns(ns), f"{ns:,} ns"
