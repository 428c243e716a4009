"""Critical path, gates and slack of the nodes of a rank.

Definitions, for the nodes of one rank:

A node's *gate* is what it waited for last: of its dependencies and of the node that ran before it in its lane (the same
thread, stream or kind of resource), the one that ended last. The *critical path* is the chain of gates that leads to the
node that ended last of all. Its length is the time in its nodes and the time between them, in which whatever gates a
node had ended and the node had not begun: launching, other ranks, resources of which the trace does not tell.

A node's *slack* is how much later it could have ended, if all that comes after took as long as it did and began as soon
as it could, without the rank ending later. For a node that nothing waits for it is the time to the rank's end; else the
least of the time until the next one began and the slack of that one. A dependency on a node that still ran when the
other began has no time between. Time on the critical path between two nodes is slack of the first.

Without times the durations of nodes are laid out along the dependencies, each node as early as they allow, and the same
holds of these times. Where no node has a duration each counts one: the critical path is the longest chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from studio.analysis.graph.depth import Depths
from studio.analysis.graph.neighbours import Edges
from studio.trace import NONE, Int64

Basis = Literal["times", "durations", "nodes"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """When the nodes of a rank ran, with critical path, gates and slack.

    N nodes, P nodes on the critical path.

    Attributes:
        basis: Where times come from: they were recorded or simulated, laid out from durations, or each node counts one.
        start_ns, end_ns: (N,) -1 where the node has no times; without any durations counts of nodes in place of ns.
        gate: (N,) the row of what each node waited for last, -1 where nothing is known of.
        slack_ns: (N,) -1 where the node has no times.
        path: (P,) rows of the critical path, in its order.
    """

    basis: Basis
    start_ns: Int64
    end_ns: Int64
    gate: Int64
    slack_ns: Int64
    path: Int64

    @property
    def length_ns(self) -> int:
        """From the start of the path to its end."""
        return int(self.end_ns[self.path[-1]] - self.start_ns[self.path[0]]) if len(self.path) else 0

    @property
    def busy_ns(self) -> int:
        """Total time of the nodes on the path."""
        return int((self.end_ns[self.path] - self.start_ns[self.path]).sum())


def compute_schedule(
    edges: Edges,
    depths: Depths,
    start_ns: Int64,
    end_ns: Int64,
    *,
    duration_ns: Int64 | None = None,
    lane: Int64 | None = None,
) -> Schedule:
    """Return critical path, gates and slack of a rank.

    Args:
        edges: Its dependencies.
        depths: An order of its nodes.
        start_ns: (N,) when they began, -1 where that is not known.
        end_ns: (N,) when they ended.
        duration_ns: (N,) how long they take, for ranks without times.
        lane: (N,) numbers of what runs one after another, -1 for nodes of no lane.
    """
    basis: Basis = "times"
    if not (start_ns >= 0).any():
        given = np.zeros(len(start_ns), np.int64) if duration_ns is None else duration_ns
        basis = "durations" if given.any() else "nodes"
        start_ns, end_ns = _compute_earliest(
            edges, depths, given if given.any() else np.ones(len(given), np.int64)
        )
        lane = None
    before, after = _list_waits(edges, depths, start_ns, end_ns, lane)
    gate = np.full(len(start_ns), NONE, np.int64)
    order = np.lexsort((end_ns[before], after))
    # Of several the last one stays.
    gate[after[order]] = before[order]
    slack = _compute_slack(before, after, start_ns, end_ns, _order_by_start(depths, start_ns))
    return Schedule(basis, start_ns, end_ns, gate, slack, _follow_gates(gate, _find_last(end_ns), len(gate)))


def list_gates(schedule: Schedule, row: int, most: int) -> Int64:
    """Return the last `most` rows of the chain of gates that ends with a node."""
    return _follow_gates(schedule.gate, row, most)


def _find_last(end_ns: Int64) -> int:
    return int(end_ns.argmax()) if (end_ns >= 0).any() else NONE


def _follow_gates(gate: Int64, row: int, most: int) -> Int64:
    rows: list[int] = []
    while row != NONE and len(rows) < most:
        rows.append(row)
        row = int(gate[row])
    return np.array(rows[::-1], np.int64)


def _compute_earliest(edges: Edges, depths: Depths, duration: Int64) -> tuple[Int64, Int64]:
    """Return (N,) the earliest start and end that dependencies allow."""
    before, after = edges.before[depths.forward], edges.after[depths.forward]
    order = np.argsort(depths.place[after], kind="stable")
    start, length = [0] * len(duration), duration.tolist()
    for this, other in zip(before[order].tolist(), after[order].tolist(), strict=True):
        end = start[this] + length[this]
        if end > start[other]:
            start[other] = end
    begin = np.array(start, np.int64)
    return begin, begin + duration


def _order_by_start(depths: Depths, start_ns: Int64) -> Int64:
    """Return (N,) positions by start."""
    place = np.empty(len(start_ns), np.int64)
    place[np.lexsort((depths.place, start_ns))] = np.arange(len(start_ns))
    return place


def _list_waits(
    edges: Edges, depths: Depths, start_ns: Int64, end_ns: Int64, lane: Int64 | None
) -> tuple[Int64, Int64]:
    """Return pairs of nodes with times in which the second waited for the first and began no earlier."""
    before, after = edges.before.astype(np.int64), edges.after.astype(np.int64)
    if lane is not None:
        this, other = _pair_in_lanes(start_ns, end_ns, lane)
        before, after = np.concatenate((before, this)), np.concatenate((after, other))
    place = _order_by_start(depths, start_ns)
    kept = (start_ns[before] >= 0) & (start_ns[after] >= 0) & (place[before] < place[after])
    return before[kept], after[kept]


def _pair_in_lanes(start_ns: Int64, end_ns: Int64, lane: Int64) -> tuple[Int64, Int64]:
    """Return for every node the previous node to end in its lane, where there is one."""
    rows = np.flatnonzero((lane >= 0) & (start_ns >= 0))
    if not len(rows):
        return rows, rows
    ended = rows[np.lexsort((end_ns[rows], lane[rows]))]
    # A queue of times per lane, one behind the other: a search in one is a search in all.
    origin, span = int(start_ns[rows].min()), int(end_ns[rows].max() - start_ns[rows].min()) + 1
    queue = lane[ended].astype(np.float64) * span + (end_ns[ended] - origin)
    place = (
        np.searchsorted(queue, lane[rows].astype(np.float64) * span + (start_ns[rows] - origin), "right") - 1
    )
    previous = ended[np.maximum(place, 0)]
    has_previous = (
        (place >= 0)
        & (lane[previous] == lane[rows])
        & (end_ns[previous] <= start_ns[rows])
        & (previous != rows)
    )
    return previous[has_previous], rows[has_previous]


def _compute_slack(before: Int64, after: Int64, start_ns: Int64, end_ns: Int64, place: Int64) -> Int64:
    last = int(end_ns.max(initial=0))
    order = np.argsort(-place[after], kind="stable")
    before, after = before[order], after[order]
    between = np.maximum(start_ns[after] - end_ns[before], 0)
    slack = np.where(end_ns >= 0, last - end_ns, NONE).tolist()
    for this, other, gap in zip(before.tolist(), after.tolist(), between.tolist(), strict=True):
        spare = gap + slack[other]
        if spare < slack[this]:
            slack[this] = spare
    return np.array(slack, np.int64)
