"""The critical path through all ranks as one rank sees it: its own nodes, and where the path comes from others and goes to them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.analysis.path.segments import CriticalPath
from studio.notebook import format_record
from studio.trace import NONE, Int64


@dataclass(frozen=True, slots=True)
class Crossing:
    """The path changes the rank.

    Attributes:
        enters: Whether it comes to the rank; else it leaves it.
        row: The node of the rank at which it does, such as its part of a collective.
        other: Place of the other rank in the trace's ranks.
        other_row: The node there, -1 where the path comes from or goes to none.
        at_ns: When, after the beginning of the run.
    """

    enters: bool
    row: int
    other: int
    other_row: int
    at_ns: int

    __repr__ = format_record


@dataclass(frozen=True, slots=True)
class RankPath:
    """What of the path is on a rank.

    Attributes:
        rows: Its nodes on the path by time, -1 between two of which the path was elsewhere.
        ns: How long the path is on the rank.
        length_ns: How long all of it is.
        crossings: Where it comes and goes, by time.
        places: All ranks that it visits, by their places, those with most of it first.
    """

    rows: Int64
    ns: int
    length_ns: int
    crossings: tuple[Crossing, ...]
    places: tuple[int, ...]

    __repr__ = format_record


def rank_path(path: CriticalPath, place: int) -> RankPath:
    """Return what of a path is on the rank of a place."""
    is_own = path.rank == place
    ranks, rows = path.rank.tolist(), path.row.tolist()
    crossings: list[Crossing] = []
    for at in (np.flatnonzero(is_own[1:] != is_own[:-1]) + 1).tolist():
        here, away = (at, at - 1) if is_own[at] else (at - 1, at)
        if rows[here] != NONE:
            moment = int(path.start_ns[at])
            crossings.append(Crossing(bool(is_own[at]), rows[here], ranks[away], rows[away], moment))
    kept = np.where(is_own, path.row, NONE)
    kept = kept[np.append(True, kept[1:] != kept[:-1])] if len(kept) else kept
    share = np.bincount(path.rank, path.ns, minlength=1)
    visited = np.argsort(-share, kind="stable")
    return RankPath(
        kept,
        int(path.ns[is_own].sum()),
        path.length_ns,
        tuple(crossings),
        tuple(index for index in visited.tolist() if share[index] > 0),
    )
