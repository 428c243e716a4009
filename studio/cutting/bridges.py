"""Close the dependencies of a graph over nodes that are taken out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from studio.analysis.collectives.matching import compute_issue_order
from studio.doctor.edit import Entries, list_entries, with_dependencies, with_order
from studio.trace import Bool, Graph

_Rows = dict[int, None]
"""Rows in the order they were found, each once."""


@dataclass(frozen=True, slots=True)
class Closed:
    """A graph without some nodes.

    Attributes:
        graph: What is left.
        satisfied: Dependencies on nodes that are gone with all that they waited for.
        bridged: Dependencies that lead over nodes that are gone.
        dangling: Dependencies on nodes that were never there, which are dropped.
    """

    graph: Graph
    satisfied: int
    bridged: int
    dangling: int


def keep_nodes(graph: Graph, keep: Bool) -> Closed:
    """Return a graph without the nodes that (N,) `keep` does not pick.

    A node that waited for one that is gone waits for what that one waited for, as far as it is left; of several of those, for
    the ones that no other one waits for.
    """
    instead = _map_replacements(graph, keep)
    satisfied = bridged = dangling = 0
    both_closed = []
    for deps in (graph.ctrl, graph.data):
        entered = list_entries(graph, deps)
        stays = keep[entered.of]
        dangling += int((stays & (entered.rows < 0)).sum())
        entered = entered.keep(stays & (entered.rows >= 0))
        gone = ~keep[entered.rows]
        satisfied += sum(not instead[row] for row in entered.rows[gone].tolist())
        closed, added = _bridge_entries(entered, gone, instead, len(graph))
        bridged += added
        both_closed.append(closed)
    left = with_order(with_dependencies(graph, *both_closed), np.flatnonzero(keep))
    return Closed(left, satisfied, bridged, dangling)


def _bridge_entries(
    entered: Entries, gone: Bool, instead: Mapping[int, list[int]], count: int
) -> tuple[Entries, int]:
    """Return dependencies with those on nodes that are gone replaced, and how many took their place."""
    if not gone.any():
        return entered, 0
    hits = np.flatnonzero(gone)
    lists = [instead[row] for row in entered.rows[hits].tolist()]
    lengths = np.ones(len(entered.rows), np.int64)
    lengths[hits] = [len(rows) for rows in lists]
    new = np.repeat(gone, lengths)
    rows = np.repeat(entered.rows, lengths)
    rows[new] = [row for listed in lists for row in listed]
    of = np.repeat(entered.of, lengths)
    # What is waited for anyway comes before its like, so that the first of each is kept.
    order = np.lexsort((new, of * count + rows))
    key = (of * count + rows)[order]
    again = np.zeros(len(rows), np.bool_)
    again[order] = np.append(False, key[1:] == key[:-1])[: len(key)]
    stays = ~new | (~again & (rows != of))
    closed = Entries(of, rows, np.repeat(entered.kinds, lengths)).keep(stays)
    return closed, int((new & stays).sum())


def _map_replacements(graph: Graph, keep: Bool) -> dict[int, list[int]]:
    """Return for each removed node the kept nodes that it waited for, directly or through other removed nodes."""
    instead: dict[int, list[int]] = {}
    kept: list[bool] = keep.tolist()
    nearest: dict[int, _Rows] = {}
    """Of nodes that are left: what they wait for, over nodes that are gone."""
    ctrl, data = graph.ctrl.rows.tolist(), graph.data.rows.tolist()
    bounds = graph.ctrl.offsets.tolist(), graph.data.offsets.tolist()
    for row in np.argsort(compute_issue_order(graph), kind="stable").tolist():
        kept_parents: _Rows = {}
        for rows, ends in ((ctrl, bounds[0]), (data, bounds[1])):
            for other in rows[ends[row] : ends[row + 1]]:
                if other < 0:
                    continue
                if kept[other]:
                    kept_parents[other] = None
                else:
                    # On a circle a node may come before what it waits for; the circle is opened there.
                    kept_parents.update(dict.fromkeys(instead.get(other, ())))
        if kept[row]:
            nearest[row] = kept_parents
            continue
        if len(kept_parents) > 1:
            # What another one waits for anyway: lists would grow along chains of nodes that are gone.
            implied = {other for kept_parent in kept_parents for other in nearest.get(kept_parent, ())}
            kept_parents = {kept_parent: None for kept_parent in kept_parents if kept_parent not in implied}
        instead[row] = list(kept_parents)
    return instead
