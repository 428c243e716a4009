"""The short books of a ring: all that its messages need, in a cache line, or where messages take links, in two."""

from __future__ import annotations

STREAM = 0  # the stream
RANK = 1  # its rank
LEFT = 2  # messages to send * 2^21 + packets to come that reduce
REDUCTION = 3  # time of a reduction
DELAY = 4  # endpoint delay
SEND = 5  # channel to the next
RECV = 6  # channel from the previous
HOP = 7  # time of a message; -1 where it is not known
# Where messages take links, in a block of 16 words
NUMBER = 8  # number of the rank
TO = 9  # rank it sends to
SIZE = 10  # size of the messages
KEY = 11  # their key
REDUCING = 21  # bits of the packets to come that reduce
