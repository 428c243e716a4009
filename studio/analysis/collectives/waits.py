"""How long ranks waited in each collective for the member that came last, no work hiding it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.notebook import format_record
from studio.trace import Int64


@dataclass(frozen=True, slots=True)
class CollectiveWaits:
    """Waiting as a part of the ranks' time, by collective: W entries.

    Attributes:
        collective: (W,) index into the collectives that were asked about.
        last_rank: (W,) number of the rank that was waited for.
        ns: (W,) how long, all members together.
    """

    collective: Int64
    last_rank: Int64
    ns: Int64

    __repr__ = format_record

    def sum_by_rank(self, collectives: Int64) -> dict[int, int]:
        """Return for how long each rank was waited for in some collectives, by its number."""
        is_asked = np.isin(self.collective, collectives)
        ranks, of = np.unique(self.last_rank[is_asked], return_inverse=True)
        total = np.zeros(len(ranks), np.int64)
        np.add.at(total, of, self.ns[is_asked])
        return dict(zip(ranks.tolist(), total.tolist(), strict=True))
