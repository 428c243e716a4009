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
CROSSING = 6  # twice one more than the dimension it is in, and 1 where the link is its first one there
# Among single links
SOURCE = 6  # rank it comes from
# With symmetric ties
KEY = 7  # what it is to its sender, see `Key`
