"""When and in which chain something was scheduled, where the order within a tick is watched."""

from __future__ import annotations

TICK = 1
CHAIN = 2
CODE = 3  # what it carries
WILD = 4  # whether its place in the tick is unknown
