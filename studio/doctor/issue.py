"""The order in which a rank is certain to begin its communication, whatever the times.

A simulated rank carries out one collective, send or memory access at a time (SEMANTICS.md, section 3): of those that are
ready the one with the lowest id begins, and the next one when it has ended. Which are ready depends on times, so that an
order is certain only as far as dependencies settle it: at the start, when only nodes without dependencies are ready;
where all that could be next waits for nothing but what has ended; and where a single node could be next.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from studio.doctor.diagnosis import GraphCase
from studio.doctor.streams import last_before
from studio.trace import NONE, Bool, Int64, NodeType

MOST_NODES = 200_000
"""Larger graphs are ordered by their dependencies alone."""


@dataclass(frozen=True, slots=True)
class IssueOrder:
    """The order of the nodes of a graph that take turns.

    Attributes:
        rows: (P,) those whose place is certain, in their order; each begins when the one before has ended.
        complete: Whether these are all of them.
    """

    rows: Int64
    complete: bool


def takes_turns(case: GraphCase) -> Bool:
    """Return (N,) which nodes a rank carries out one at a time, whatever else they wait for."""
    kind = case.graph.type
    return np.asarray(
        ~case.on_cpu & (kind != NodeType.COMP) & (kind != NodeType.COMM_RECV) & (kind > NodeType.METADATA)
    )


def issue_order(case: GraphCase) -> IssueOrder:
    """Return the order of the nodes that take turns, as far as it is certain."""
    turns = takes_turns(case)
    wanted = int(turns.sum())
    if not wanted or len(case.graph) > MOST_NODES:
        return IssueOrder(np.zeros(0, np.int64), not wanted)
    waiting = _Waiting(case, turns)
    done: list[int] = []
    while (row := waiting.take_next(first=not done)) != NONE:
        done.append(row)
    return IssueOrder(np.array(done, np.int64), len(done) == wanted)


class _Waiting:
    """The nodes that take turns and wait for no other of them any more.

    Behind such nodes alone a node is ready the moment the last of them ends; when it is behind others nobody knows.
    """

    def __init__(self, case: GraphCase, turns: Bool) -> None:
        size = len(case.graph)
        of, waited = case.pairs
        both = np.unique(waited * size + of)
        parent, child = both // size, both % size
        self.bounds = np.searchsorted(parent, np.arange(size + 1)).tolist()
        self.children, self.left = child.tolist(), np.bincount(child, minlength=size).tolist()
        self.ids, self.turns, self.behind = case.graph.id.tolist(), turns.tolist(), [False] * size
        self.sure: list[tuple[int, int]] = []
        self.unsure: list[tuple[int, int]] = []
        self._pass([row for row, count in enumerate(self.left) if not count])

    def take_next(self, *, first: bool) -> int:
        """Take the node that is certain to be next; -1 where there is none.

        At the very beginning only nodes without dependencies are ready.
        """
        if self.sure and (first or not self.unsure or self.sure[0] < self.unsure[0]):
            row = heapq.heappop(self.sure)[1]
        elif not self.sure and len(self.unsure) == 1:
            row = self.unsure.pop()[1]
        else:
            return NONE
        self._pass(self._released(row))
        return row

    def _released(self, row: int) -> list[int]:
        """Return the rows that waited for this one last."""
        released = []
        for child in self.children[self.bounds[row] : self.bounds[row + 1]]:
            self.left[child] -= 1
            if not self.left[child]:
                released.append(child)
        return released

    def _pass(self, rows: list[int]) -> None:
        """Pass over nodes that do not take turns, up to those that do."""
        # Every node of a large job comes by here, so nothing is looked up twice.
        bounds, children, left, behind, turns = self.bounds, self.children, self.left, self.behind, self.turns
        while rows:
            row = rows.pop()
            if turns[row]:
                heapq.heappush(self.unsure if behind[row] else self.sure, (self.ids[row], row))
                continue
            for child in children[bounds[row] : bounds[row + 1]]:
                behind[child] = True
                left[child] -= 1
                if not left[child]:
                    rows.append(child)


def chained(case: GraphCase, sequences: list[Int64]) -> list[bool]:
    """Return for each sequence of rows, no row in two of them, whether each waits for the one before."""
    if len(case.graph) > MOST_NODES or not sequences:
        return [len(rows) < 2 for rows in sequences]
    rows = np.concatenate(sequences)
    lane = np.repeat(np.arange(len(sequences)), [len(sequence) for sequence in sequences])
    last = last_before(case, rows, lane)
    starts = np.searchsorted(lane, np.arange(len(sequences)))
    expected = np.arange(len(rows)) - 1
    expected[starts[starts < len(rows)]] = NONE
    good = last == expected
    return [bool(good[lane == place].all()) for place in range(len(sequences))]
