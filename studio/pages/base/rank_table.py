"""The numbers behind every figure of where the time of ranks went."""

from __future__ import annotations

from studio.analysis.job.ledger import Ledger
from studio.pages.base.export import Table


def rank_table(account: Ledger) -> Table:
    """Return a row per rank: when it finished, and the parts of its time."""
    columns = {"finish_ns": account.finish_ns, **account.totals().columns()}
    rows = zip(account.numbers, *(column.tolist() for column in columns.values()), strict=True)
    return Table(("rank", *columns), list(rows))
