"""The numbers behind every figure of where the time of ranks went."""

from __future__ import annotations

from collections.abc import Sequence

from studio.analysis.job.breakdown import Breakdown
from studio.pages.base.export import Table
from studio.trace import Int64


def rank_table(times: Breakdown, finish_ns: Int64, numbers: Sequence[int]) -> Table:
    """Return a row per rank: when it finished, and where its time went.

    Args:
        times: Where the time goes, per rank.
        finish_ns: (R,) when each finished.
        numbers: (R,) their numbers.
    """
    columns = {
        "finish_ns": finish_ns,
        "compute_ns": times.compute_ns,
        "communication_ns": times.communication_ns,
        "exposed_communication_ns": times.exposed_communication_ns,
        "copy_ns": times.copy_ns,
        "memory_ns": times.memory_ns,
        "cpu_ns": times.cpu_ns,
        "idle_ns": times.idle_ns,
    }
    rows = zip(numbers, *(column.tolist() for column in columns.values()), strict=True)
    return Table(("rank", *columns), list(rows))
