"""A message on links (SEMANTICS 7)."""

from __future__ import annotations

NEXT = 0  # next that waits for the same link
SIZE = 1  # bytes
CHANNEL = 2  # its channel
CODE = 3  # what its arrival means to the sender
DEVICE = 4  # device it goes to
DESTINATION = 5  # rank it goes to
# In one dimension
WIRE = 6  # time on a link
TIME = 7  # the same and the latency
# In several dimensions
CROSSING = 6  # one more than the dimension it is in
ENTERS = 7  # whether the link is its first one there
# Among single links
SOURCE = 6  # rank it comes from
# With symmetric ties, in a block of 16 words
KEY = 8  # what it is to its sender, see `Key`
HOPS = 9  # links it has passed
