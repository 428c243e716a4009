"""Tell dependencies that only keep an order from those that data makes."""

from __future__ import annotations

import numpy as np

from studio.et.link.dep_kinds import DepKind, is_linked, read_dep_kinds
from studio.trace import Bool, Graph

_ORDER = int(DepKind.ORDER | DepKind.STREAM | DepKind.SEQUENCE)


def are_order_only(graph: Graph) -> tuple[Bool, Bool]:
    """Return which control (D,) and data (E,) dependencies only keep an order and pass no data.

    Control dependencies do where nothing was linked: there they are the order of a program or a stream; of linked recordings they
    are calls. Data dependencies do where their reasons say so, see `DepKind`; without reasons they are data.
    """
    ctrl, data = np.full(len(graph.ctrl.rows), not is_linked(graph)), np.zeros(len(graph.data.rows), np.bool_)
    places, kinds = read_dep_kinds(graph)
    data[places] = (kinds & ~_ORDER) == 0
    return ctrl, data
