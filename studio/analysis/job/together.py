"""What is to be said of recordings in which the members of collectives begin together."""

from __future__ import annotations

from studio.analysis.job.ledger import Ledger
from studio.trace import NONE
from studio.units import format_count, format_ns


def describe_ready_waits(account: Ledger) -> str:
    """Say that starts tell no waiting, and how it is told instead; "" where no rank waited before a collective was noted.

    Some recorders note a collective only once all its members are there, so that figures by their starts (waiting, skew) are 0.
    """
    total = int(account.unseen_ns().sum())
    if not total:
        return ""
    met = together = 0
    for group in account.arrivals.groups:
        is_present = group.rows != NONE
        several = is_present.sum(axis=0) > 1
        same = ((group.start_ns == group.start_ns.max(axis=0, initial=NONE)) | ~is_present).all(axis=0)
        met, together = met + int(several.sum()), together + int((several & same).sum())
    of = f"{format_count(together)} of {format_count(met)} collectives" if together < met else "collectives"
    return (
        f"Members of {of} are recorded to begin together here, so that their starts tell no waiting and no skew: "
        f"{format_ns(total)} of waiting, all ranks together, is told by when each was ready."
    )
