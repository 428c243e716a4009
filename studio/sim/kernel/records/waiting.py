"""A node that waits for shared memory, at a meeting, or for the end of a flow."""

from __future__ import annotations

NEXT = 0  # next that waits
RANK = 1  # its rank
NODE = 2  # its position
TIME = 3  # time it takes then (meetings)
LOG = 4  # the event of its issue (flows)
