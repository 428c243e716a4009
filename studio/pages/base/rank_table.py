"""The numbers behind every figure of where the time of ranks went."""

from __future__ import annotations

from studio.analysis.job.ledger import Ledger
from studio.pages.base.export import Table
from studio.trace import Int64


def rank_table(account: Ledger, assumed_ns: Int64 | None = None) -> Table:
    """Return a row per rank: when it finished, the parts of its time, and how much of the host's are assumed arrivals, where some are."""
    columns = {"finish_ns": account.finish_ns, **account.totals().columns()}
    if assumed_ns is not None and assumed_ns.any():
        columns["assumed_arrival_ns"] = assumed_ns
    rows = zip(account.numbers, *(column.tolist() for column in columns.values()), strict=True)
    return Table(("rank", *columns), list(rows))
