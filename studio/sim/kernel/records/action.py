"""Actions of a rank: `kind + Rank.WORDS * rank + what * 2^25`, and a second word."""

from __future__ import annotations

BUS = 0  # a packet has waited the endpoint delay, and reduces now
FREE = 1  # a packet has done its waits
WAIT = 2  # a packet of a ring has waited the endpoint delay, and reduces now
RING = 3  # a packet of a ring has done its waits
NODE = 4  # a node completes
MEMORY = 5  # a request of shared memory ends
CUSTOM = 6  # a node of a collective given as a trace completes
SENT = 7  # an end of the bus has sent
GOT = 8  # an end of the bus has received
REDUCED = 9  # a reduction on the bus ends
OPEN = 10  # a list begins, where the order within a tick is watched
MARK = 11  # the next action of a list begins, likewise
BEGIN = 12  # a rank begins
WHAT = 25  # shift of what it is about
RANK = (1 << 25) - 1 - 31  # bits of the rank
