"""The order in which a rank is certain to begin its communication, whatever the times.

A simulated rank carries out one collective, send or memory access at a time (SEMANTICS.md, section 3): of those that are
ready the one with the lowest id begins, and the next one when it has ended. Which are ready depends on times, so that an
order is certain only as far as dependencies settle it: at the start, when only nodes without dependencies are ready;
where all that could be next waits for nothing but what has ended; and where a single node could be next.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.analysis.graph.issuing import find_certain_order
from studio.doctor.diagnosis import GraphCase
from studio.doctor.streams import find_last_on_stream
from studio.trace import NONE, Bool, Int64, NodeType

MOST_NODES = 200_000
"""Of larger graphs it is not looked at whether dependencies keep nodes in order through others."""


@dataclass(frozen=True, slots=True)
class IssueOrder:
    """The order of the nodes of a graph that take turns.

    Attributes:
        rows: (P,) those whose place is certain, in their order; each begins when the one before has ended.
        complete: Whether these are all of them.
    """

    rows: Int64
    complete: bool


def match_turns(case: GraphCase) -> Bool:
    """Return (N,) which nodes a rank carries out one at a time, whatever else they wait for."""
    kind = case.graph.type
    return np.asarray(
        ~case.on_cpu & (kind != NodeType.COMP) & (kind != NodeType.COMM_RECV) & (kind > NodeType.METADATA)
    )


def find_issue_order(case: GraphCase, *, native: bool) -> IssueOrder:
    """Return the order of the nodes that take turns, as far as it is certain.

    Args:
        case: The graph.
        native: Whether to run compiled, see `issuing.is_worth_compiling`.
    """
    turns = np.flatnonzero(match_turns(case))
    # Of equal ids the first row comes first.
    rows = turns[np.argsort(case.graph.id[turns], kind="stable")]
    certain = find_certain_order(case.pairs, len(case.graph), rows, native=native)
    return IssueOrder(certain, len(certain) == len(rows))


def are_chained(case: GraphCase, sequences: list[Int64]) -> list[bool]:
    """Return for each sequence of rows, no row in two of them, whether each waits for the one before."""
    if len(case.graph) > MOST_NODES or not sequences:
        return [len(rows) < 2 for rows in sequences]
    rows = np.concatenate(sequences)
    lane = np.repeat(np.arange(len(sequences)), [len(sequence) for sequence in sequences])
    last = find_last_on_stream(case.graph, case.pairs, rows, lane)
    starts = np.searchsorted(lane, np.arange(len(sequences)))
    expected = np.arange(len(rows)) - 1
    expected[starts[starts < len(rows)]] = NONE
    good = last == expected
    return [bool(good[lane == place].all()) for place in range(len(sequences))]
