"""Tell dependencies that only keep an order from those that data makes."""

from __future__ import annotations

import numpy as np

from studio.columns import join_ranges
from studio.et.link.options import DEP_KINDS, DepKind
from studio.trace import Bool, Dependencies, Graph, Int64

_ORDER = int(DepKind.ORDER | DepKind.STREAM | DepKind.SEQUENCE)


def list_waiting_rows(deps: Dependencies) -> Int64:
    """Return (D,) the node that each dependency belongs to."""
    return np.repeat(np.arange(len(deps.offsets) - 1), np.diff(deps.offsets))


def are_order_only(graph: Graph) -> tuple[Bool, Bool]:
    """Return which control (D,) and data (E,) dependencies only keep an order and pass no data.

    Control dependencies do where nothing was linked: there they are the order of a program or a stream; of linked recordings they
    are calls. Data dependencies do where their reasons say so, see `DepKind`; without reasons they are data.
    """
    ctrl, data = np.zeros(len(graph.ctrl.rows), np.bool_), np.zeros(len(graph.data.rows), np.bool_)
    rows, where = graph.rows_with(DEP_KINDS)
    if not len(rows):
        ctrl[:] = True
        return ctrl, data
    length = graph.attrs.length[where].astype(np.int64)
    fits = length == np.diff(graph.data.offsets)[rows]
    rows, where, length = rows[fits], where[fits], length[fits]
    kinds = graph.attrs.items[join_ranges(graph.attrs.value[where], length)]
    data[join_ranges(graph.data.offsets[rows], length)] = (kinds & ~_ORDER) == 0
    return ctrl, data
