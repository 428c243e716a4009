"""What all ranks did over time: the share of ranks in each part, in equal bins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.analysis.job.ledger import Ledger
from studio.trace import Float64


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The share of ranks in each part over time.

    B bins.

    Attributes:
        edges_ns: (B+1,) from the beginning of the run to its finish.
        share: (parts, B) share of the ranks' time in each of `ledger.PARTS`, 0 to 1; what is left is after the finish.
        ranks: How many ranks have times.
    """

    edges_ns: Float64
    share: Float64
    ranks: int


def compute_occupancy(account: Ledger, bins: int) -> Occupancy:
    """Return the share of ranks in each part, in `bins` equal parts of the run."""
    edges = np.linspace(0, account.makespan_ns, bins + 1)
    return Occupancy(edges, account.shares(edges), len(account))
