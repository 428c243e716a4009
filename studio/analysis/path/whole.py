"""The critical path of a run as pages show it: with its shares in words, and why each node is on it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.analysis.compare.sides import Side
from studio.analysis.job.ledger import Ledger
from studio.analysis.path.critical import find_critical_path
from studio.analysis.path.segments import CAUSES, CriticalPath
from studio.analysis.path.words import Share, compute_path_shares, describe_path
from studio.notebook import build_html_table, format_parts
from studio.trace import NONE, Int64, Trace
from studio.units import format_counted, format_ns

_GAPS = {
    "launch": "between its launch and its beginning",
    "host": "while the processor was busy",
    "stall": "while nothing was under way",
    "queueing": "while its rank did other work",
    "waiting": "waiting for others",
    "before": "before its recording began",
    "assumed": "of an assumed arrival, which nobody recorded",
    "sync": "of a call that had waited for the device",
}


@dataclass(frozen=True, slots=True)
class WholePath:
    """The critical path through all ranks of a run.

    Attributes:
        path: The path.
        shares: What it consists of, the largest first.
    """

    path: CriticalPath
    shares: tuple[Share, ...]

    def __repr__(self) -> str:
        """Return it in a line."""
        count = format_counted(len(self.path), "segment")
        return format_parts("WholePath", [format_ns(self.path.length_ns), count, describe_path(self.shares)])

    def _repr_html_(self) -> str:
        """Return its shares as a table."""
        rows = [
            (share.what, share.cause, format_ns(share.ns), f"{100 * share.share:.1f} %", len(share.ranks))
            for share in self.shares
        ]
        return build_html_table(repr(self), ("on the path", "cause", "time", "share", "ranks"), rows)

    def why(self, trace: Trace, place: int, row: int) -> str:
        """Return why a node is on the path, in words; "" where it is not.

        Args:
            trace: The job.
            place: Place of the node's rank in the trace's ranks.
            row: The node.
        """
        path = self.path
        segments = np.flatnonzero((path.rank == place) & (path.row == row))
        if not len(segments):
            return ""
        parts = []
        for at in segments.tolist():
            cause, length = CAUSES[int(path.cause[at])], format_ns(int(path.ns[at]))
            parts.append(f"{length} {_GAPS.get(cause, f'of {cause}')}")
        first = int(segments[0])
        before = int(path.rank[first - 1]) if first else place
        share = 100 * int(path.ns[segments].sum()) / max(path.length_ns, 1)
        words = f"{', then '.join(parts)}: {share:.2g} % of the finish"
        return words if before == place else f"{words}; it waited for rank {trace.ranks[before].number}"

    def visits(self, places: list[int]) -> Int64:
        """Return (2, V) places in time order of nodes of some ranks, as which segment, and node."""
        chosen = np.flatnonzero(np.isin(self.path.rank, places) & (self.path.row != NONE))
        return np.stack([chosen, self.path.row[chosen]])


def build_whole_path(side: Side, account: Ledger) -> WholePath:
    """Return the critical path of a run with its shares."""
    path = find_critical_path(side.trace, side.times, account)
    return WholePath(path, tuple(compute_path_shares(side.trace, side.times, account, path, side.groups)))
