"""Why a node waits for another: the kinds of dependencies, and how to read those that a graph notes."""

from __future__ import annotations

from enum import IntFlag

import numpy as np

from studio.columns import join_ranges
from studio.trace import Graph, Int64, ValueKind, build_kind_table


class DepKind(IntFlag):
    """Why a node waits for another; several reasons may hold for one dependency.

    The attribute `dep_kinds` of a node is a list of int32 as long as the list of its data dependencies and in the
    same order: item i is the sum of the reasons for data dependency i. Control dependencies are always CALL.
    """

    ORDER = 1
    """The processor thread ran the other just before."""
    CALL = 2
    """The other called it (control dependency)."""
    LAUNCH = 4
    """The other launched it on the device."""
    STREAM = 8
    """The device stream ran the other just before."""
    EVENT = 16
    """Its stream was told to wait for an event recorded after the other."""
    SYNC = 32
    """The processor waited there for the device."""
    THREAD = 64
    """Another processor thread set it going, or held it up."""
    DATA = 128
    """It reads a tensor that the other wrote."""
    SEQUENCE = 256
    """The other is the collective of the same comm group that was issued just before."""


DEP_KINDS = "dep_kinds"
"""The attribute that holds the kinds, see `DepKind`."""
_LISTS = build_kind_table(
    tuple(kind for kind in ValueKind if kind.is_list and ValueKind.INT32 < kind <= ValueKind.SFIXED64_LIST)
)


def find_dep_kinds(graph: Graph) -> tuple[Int64, Int64]:
    """Find the nodes that note why they wait for each of their data dependencies.

    Lists that are shorter or longer than those of the dependencies say nothing; where a node has several, the last one counts.

    Returns:
        (M,) node rows, rising and distinct, and (M,) positions of the lists in the attribute columns.
    """
    rows, where = graph.rows_with(DEP_KINDS)
    fits = _LISTS[graph.attrs.kind[where]] & (graph.attrs.length[where] == np.diff(graph.data.offsets)[rows])
    rows, where = rows[fits].astype(np.int64), where[fits]
    last = np.append(rows[1:] != rows[:-1], True) if len(rows) else np.zeros(0, np.bool_)
    return rows[last], where[last]


def read_dep_kinds(graph: Graph) -> tuple[Int64, Int64]:
    """Return which data dependencies of a graph say why they are there, and why.

    Returns:
        (K,) places in `graph.data.rows`, rising, and (K,) sums of `DepKind`.
    """
    rows, where = find_dep_kinds(graph)
    length = graph.attrs.length[where].astype(np.int64)
    kinds = graph.attrs.items[join_ranges(graph.attrs.value[where], length)]
    return join_ranges(graph.data.offsets[rows], length), kinds


def is_linked(graph: Graph) -> bool:
    """Whether linking derived the dependencies of a graph: then its nodes note why they wait."""
    return len(graph.rows_with(DEP_KINDS)[0]) > 0
