"""A request of the shared bus."""

from __future__ import annotations

NEXT = 0  # next of its queue
SIZE = 1  # bytes
REDUCE = 2  # whether to reduce
BACK = 3  # whether to send back
WHAT = 4  # what its delivery means
OF = 5  # to what
REDUCTION = 6  # time of the reduction that follows
# What delivery means
TO_PACKET = 0  # a packet goes on
TO_SEND = 1  # a request of the outer pair is sent
TO_WORK = 2  # a request of the outer pair is reduced
TO_RETIRE = 3  # a request of the outer pair is delivered
