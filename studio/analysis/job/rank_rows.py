"""The ranks of a ledger in few rows: those that others wait for first, equal ones together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.analysis.job.completeness import format_ranges, group_ranges
from studio.analysis.job.ledger import Ledger
from studio.trace import Float64, Int64
from studio.units import format_count, format_counted, format_ns

_RANGES_NAMED = 2
_BEFORE_NAMED = 4
_LEAST_BEFORE = 0.005
"""Ranks whose recordings begin later by less, as a part of the finish, are not named."""


@dataclass(frozen=True, slots=True)
class RankRow:
    """One rank, several equal ones, or the mean of those that no row of their own shows.

    Attributes:
        ranks: Their numbers.
        ns: (parts,) their mean time in each of the ledger's `PARTS`.
        finish_ns: When the last of them finished.
        is_mean: Whether they differ, and the row holds their mean.
    """

    ranks: tuple[int, ...]
    ns: Float64
    finish_ns: int
    is_mean: bool = False

    @property
    def label(self) -> str:
        """What the row is called.

        Example:
            >>> RankRow((5,), np.zeros(1), 0).label, RankRow((0, 1, 2, 7), np.zeros(1), 0).label
            ('rank 5', 'ranks 0–2, 7')
            >>> RankRow((0, 2, 4, 6, 8), np.zeros(1), 0).label
            '5 ranks like 0'
        """
        if self.is_mean:
            return f"mean of {format_count(len(self.ranks))} others"
        return label_ranks(self.ranks)


def label_ranks(ranks: tuple[int, ...]) -> str:
    """Return what equal ranks are called together, in few words.

    Example:
        >>> label_ranks((5,)), label_ranks((0, 1, 2, 7)), label_ranks((0, 2, 4, 6, 8))
        ('rank 5', 'ranks 0–2, 7', '5 ranks like 0')
    """
    ranges = group_ranges(ranks)
    if len(ranges) <= _RANGES_NAMED:
        return format_ranges(ranges)
    return f"{format_count(len(ranks))} ranks like {ranks[0]}"


def sum_lost_ns(account: Ledger) -> Int64:
    """Return (K,) how long each rank waited or stalled: waiting, bubble and stall.

    In recordings whose collectives begin when their last member comes, the others wait in stalls. A rank that has finished
    waits for nobody, and of one whose recording has not begun nothing is known.
    """
    return account.totals().of("waiting", "bubble", "stall") - account.before_ns


def describe_unrecorded(account: Ledger, before_ns: Int64) -> str:
    """Say what of stalls lies before recordings began, the most first; "" where that is hardly anything.

    Args:
        account: Where the time of the ranks went.
        before_ns: (K,) how much of each rank's time lies before its recording: `Ledger.before_ns`, or what of it lies in a window.
    """
    least = max(_LEAST_BEFORE * account.makespan_ns, 1)
    order = [at for at in np.argsort(-before_ns, kind="stable").tolist() if before_ns[at] >= least]
    if not order:
        return ""
    named = ", ".join(
        f"rank {account.numbers[at]} {format_ns(int(before_ns[at]))}" for at in order[:_BEFORE_NAMED]
    )
    left = len(order) - _BEFORE_NAMED
    more = f" and {format_counted(left, 'more rank')}" if left > 0 else ""
    return (
        f"stalls include the time before a rank's recording began, of which nothing is known: {named}{more}"
    )


def build_rank_rows(account: Ledger, most: int, waited_for_ns: Int64 | None = None) -> list[RankRow]:
    """Return the ranks in at most `most` rows, those first that others wait for.

    By how long others wait for them, where that is known (K,), then by how little they wait themselves, and by how late they finish. Ranks with equal
    parts share a row. Where there are more rows, those at both ends of the order stay, and one row in
    the middle holds the mean of all others.
    """
    parts = account.totals()
    waits = sum_lost_ns(account)
    blamed = np.zeros(len(waits), np.int64) if waited_for_ns is None else waited_for_ns
    keys = np.column_stack((-blamed, waits, parts.after_finish_ns, parts.ns))
    _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    numbers = np.array(account.numbers, np.int64)
    rows = [
        _build_row(account, numbers, parts.ns, np.flatnonzero(inverse == index))
        for index in _find_kept(len(first), most)
    ]
    if len(first) > most:
        ends = _find_kept(len(first), most)
        others = np.flatnonzero(~np.isin(inverse, ends))
        middle = (most - 1) // 2 + (most - 1) % 2
        rows.insert(middle, _build_row(account, numbers, parts.ns, others, is_mean=True))
    return rows


def _find_kept(count: int, most: int) -> list[int]:
    """Return which of `count` rows are shown by themselves."""
    if count <= most:
        return list(range(count))
    last = (most - 1) // 2
    return [*range(most - 1 - last), *range(count - last, count)]


def _build_row(
    account: Ledger, numbers: Int64, ns: Int64, places: Int64, *, is_mean: bool = False
) -> RankRow:
    return RankRow(
        tuple(numbers[places].tolist()),
        ns[places].mean(axis=0),
        int(account.finish_ns[places].max()),
        is_mean=is_mean,
    )
