"""Tell dependencies that only keep an order from those that data makes."""

from __future__ import annotations

import numpy as np

from studio.et.link.dep_kinds import DepKind, is_linked, read_dep_kinds
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
    ctrl[:] = not is_linked(graph)
    places, kinds = read_dep_kinds(graph)
    data[places] = (kinds & ~_ORDER) == 0
    return ctrl, data
