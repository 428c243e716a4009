"""The short books of a ring: all that its messages need, in a cache line."""

from __future__ import annotations

STREAM = 0  # the stream
RANK = 1  # its rank
LEFT = 2  # messages to send * 2^21 + packets to come that reduce
REDUCTION = 3  # time of a reduction
DELAY = 4  # endpoint delay
SEND = 5  # channel to the next
RECV = 6  # channel from the previous
HOP = 7  # time of a message; -1 where it is not known
REDUCING = 21  # bits of the packets to come that reduce
