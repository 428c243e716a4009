"""Let the ranks of a part communicate in one order, where what was cut away had kept them in one.

A collective that every rank began after the same receive has nothing before it on the ranks of which the receive was left out.
Then two ranks can begin two collectives in different orders, and wait for each other for ever.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from studio.analysis.collectives.matching import compute_issue_order, list_edges
from studio.distinct import find_distinct
from studio.doctor.across import check_collectives
from studio.doctor.deadlocks import check_deadlocks
from studio.doctor.diagnosis import Case
from studio.doctor.edit import change_ranks, with_data_dependencies
from studio.trace import Graph, Int64, Trace

_Member = tuple[int, int]
"""Place of a rank, and row of its graph."""


@dataclass(frozen=True, slots=True)
class Together:
    """Nodes of different ranks that run together.

    Attributes:
        group: What keeps its order: the comm group of a collective, or "" for a message.
        members: The nodes of a collective, or the send and the receive of a message.
    """

    group: str
    members: tuple[_Member, ...]


def with_one_order(trace: Trace, together: Sequence[Together]) -> tuple[Trace, int]:
    """Return a job in which no ranks wait for each other for ever, and how many dependencies were added for that.

    Collectives of each comm group are put in one order; where that does not do, all communication of every rank is. The order
    is one that dependencies allow; where they allow none, the job stays as it is.
    """
    if not _hangs(trace):
        return trace, 0
    order = _order_together(trace, together)
    if order is None:
        return trace, 0
    for whole in (False, True):
        chained, count = _chain_communication(trace, order, whole=whole)
        if not _hangs(chained):
            break
    return chained, count


def _hangs(trace: Trace) -> bool:
    case = Case(trace)
    return any(
        finding.level == "error" for check in (check_collectives, check_deadlocks) for finding in check(case)
    )


def _chain_communication(trace: Trace, order: Sequence[Together], *, whole: bool) -> tuple[Trace, int]:
    """Let the communication of each rank wait for that before it: within each group, or all of it."""
    lines: dict[tuple[int, str], list[int]] = {}
    for item in order:
        for place, row in item.members if whole or item.group else ():
            lines.setdefault((place, "" if whole else item.group), []).append(row)
    wanted: dict[int, tuple[_Member, ...]] = {}
    for (place, _), rows in lines.items():
        wanted[place] = (*wanted.get(place, ()), *pairwise(rows))
    return change_ranks(trace, wanted, _add_chain), sum(map(len, wanted.values()))


def _add_chain(graph: Graph, chain: object) -> Graph:
    before, after = np.array(chain, np.int64).reshape(-1, 2).T
    return with_data_dependencies(graph, after, before, 0)


def _order_together(trace: Trace, together: Sequence[Together]) -> list[Together] | None:
    """Return collectives and messages in an order that dependencies of all ranks allow, None where there is none."""
    sizes = [len(trace.graph_of(rank)) for rank in trace.ranks]
    first: list[int] = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    # All sides of a collective are one node of the whole job; a receive waits for its send.
    node = np.arange(first[-1])
    before, after = [], []
    for item in together:
        at = [first[place] + row for place, row in item.members]
        if item.group:
            node[at] = at[0]
        else:
            before.append(np.array(at[:1]))
            after.append(np.array(at[1:]))
    priority = np.zeros(first[-1], np.int64)
    for place, rank in enumerate(trace.ranks):
        graph = trace.graphs[rank.graph]
        priority[first[place] : first[place + 1]] = compute_issue_order(graph)
        for deps in (graph.ctrl, graph.data):
            of, waited = list_edges(deps)
            before.append(waited + first[place])
            after.append(of + first[place])
    number = _order_nodes(node, np.concatenate(before), np.concatenate(after), priority)
    if number is None:
        return None
    ordered = [item for item in together if item.group]
    # Of a message each side has its own place in the order.
    sides = [
        replace(item, members=(member,)) for item in together if not item.group for member in item.members
    ]
    return sorted(
        [*ordered, *sides], key=lambda item: number[int(node[first[item.members[0][0]] + item.members[0][1]])]
    )


def _order_nodes(node: Int64, before: Int64, after: Int64, priority: Int64) -> dict[int, int] | None:
    """Return the position of each node in a topological order; None where there is a cycle.

    Args:
        node: (N,) the node that stands for each.
        before: (D,) nodes ...
        after: (D,) ... and others that come after them.
        priority: (N,) which of several comes first, the lowest.
    """
    earlier, later = node[before], node[after]
    earlier, later = earlier[earlier != later], later[earlier != later]
    order = np.argsort(earlier, kind="stable")
    ends = np.searchsorted(earlier[order], np.arange(len(node) + 1)).tolist()
    children: list[int] = later[order].tolist()
    waiting: list[int] = np.bincount(later, minlength=len(node)).tolist()
    first: list[int] = priority.tolist()
    standing: list[int] = find_distinct(node).tolist()
    ready = [(first[at], at) for at in standing if not waiting[at]]
    heapq.heapify(ready)
    number: dict[int, int] = {}
    while ready:
        _, at = heapq.heappop(ready)
        number[at] = len(number)
        for child in children[ends[at] : ends[at + 1]]:
            waiting[child] -= 1
            if not waiting[child]:
                heapq.heappush(ready, (first[child], child))
    return number if len(number) == len(standing) else None
