"""When everything ran: one currency for recordings and simulations.

A `Timeline` holds one span per node, sorted into lanes. A lane is a row of a Gantt: the compute of an NPU, its
communication in one comm group, its memory, its CPU, or, in a recording, a thread or a stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from studio.trace import Int64

LaneKind = Literal["compute", "communication", "memory", "cpu", "thread", "stream"]


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of a timeline.

    Attributes:
        rank: The rank's number.
        kind: What runs in the lane.
        name: The comm group of a communication lane ("" for the world and for messages), the thread or the
            stream of a recorded one; untrusted text.
    """

    rank: int
    kind: LaneKind
    name: str = ""


@dataclass(frozen=True, slots=True)
class Timeline:
    """When each node was busy, recorded or simulated.

    S spans, sorted by (lane, start, end); L lanes, sorted by (rank, kind, name).

    Attributes:
        lanes: The rows.
        lane: (S,) index into `lanes`.
        row: (S,) the node, a row of the graph of the lane's rank.
        start_ns, end_ns: (S,) issue and callback; end exclusive.
    """

    lanes: tuple[Lane, ...]
    lane: Int64
    row: Int64
    start_ns: Int64
    end_ns: Int64

    def __len__(self) -> int:
        return len(self.lane)

    def of_lane(self, index: int) -> slice:
        """Return where the spans of a lane stand."""
        low, high = np.searchsorted(self.lane, (index, index + 1)).tolist()
        return slice(low, high)
