"""What a node does."""

from __future__ import annotations

DELAY = 0  # takes its time
INSTANT = 1  # completes at once
COLLECTIVE = 2
SEND = 3
RECV = 4
MEMORY = 5  # asks remote memory
MEET = 6  # waits for nodes of other ranks, and takes its recorded time
FLOW = 7  # is part of a collective or message that the cost model times
