"""The rank that the others wait for most, as every page and command names it: by waiting that no work hides, of all ranks together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.analysis.job.blame import Blame
from studio.analysis.job.ledger import Ledger
from studio.distinct import find_distinct
from studio.notebook import format_record
from studio.trace import Int64

TIED = 0.01
"""Ranks that are waited for as long as the worst, within this share, are named with it."""


@dataclass(frozen=True, slots=True)
class Awaited:
    """The rank that the others wait for most, with those that are waited for as long or spend their time alike.

    Attributes:
        places: Indices into the ranks of the ledger, by rank number.
        ranks: Their numbers.
        ns: How long they are waited for, by all ranks together.
        total_ns: All waiting, that for ranks which are not known included.
    """

    places: Int64
    ranks: tuple[int, ...]
    ns: int
    total_ns: int

    __repr__ = format_record

    @property
    def share(self) -> float:
        """Which share of all waiting is for them."""
        return self.ns / max(self.total_ns, 1)


def find_alike(account: Ledger, place: int) -> Int64:
    """Return which ranks spend their time as one does, itself among them."""
    parts, finish = account.totals().ns, account.finish_ns
    return np.flatnonzero((parts == parts[place]).all(axis=1) & (finish == finish[place]))


def find_most_awaited(account: Ledger, blame: Blame) -> Awaited | None:
    """Return the rank that the others wait for most; None where nobody waits for a known one, or all are alike.

    Args:
        account: Where the time of the ranks went.
        blame: Whom they waited for: in all, or in some comm groups or some window.
    """
    total = blame.of_culprits(len(account))
    most = int(total.max(initial=0))
    if not most:
        return None
    tied = np.flatnonzero(total >= (1 - TIED) * most)
    chosen = find_distinct(np.concatenate([find_alike(account, place) for place in tied.tolist()]))
    if len(chosen) == len(account):
        return None
    numbers = np.array(account.numbers, np.int64)
    chosen = chosen[np.argsort(numbers[chosen], kind="stable")]
    ranks = tuple(numbers[chosen].tolist())
    return Awaited(chosen, ranks, int(total[chosen].sum()), int(blame.ns.sum()))
