"""A flow: a collective or message timed by the cost model."""

from __future__ import annotations

LEFT = 0  # members still to come before it begins
FIRST = 1  # first member's node that waits for its end
LAST = 2  # last one
STATE = 3  # see below
FIXED_TIME = 4  # time before its bytes move
WORK = 5  # time its bytes take alone on the network
USES = 6  # first of its `Use` records, which lie side by side
USE_COUNT = 7  # how many there are
LOAD = 8  # the load of its fullest port, by which its bytes are slowed; 0 before they move
NEXT_LOAD = 9  # the same as it will be from the end of this tick on
SINCE = 10  # tick from which on the load holds
END = 11  # tick in which it ends under this load
CHANGED = 12  # what has become of its ports in this tick
NEXT = 13  # next of the flows of which that changed
REST = 14  # where among the real numbers the time stands that its bytes still take alone
TURN = 15  # the `Turn` it takes with other collectives of its group; 0 where their order is given
WORDS = 16  # words of a record
# States
WAITING = 0  # members are still to come
FIXING = 1  # all have come, and the fixed time passes
MOVING = 2  # its bytes move
OVER = 3  # it has ended
# What has become of its ports
SAME = 0  # nothing
RAISED = 1  # one is fuller, and `NEXT_LOAD` says how full
LOWERED = 2  # the fullest one is less full, so that all have to be looked at
# Loads
WHOLE = 1 << 40  # the load of a port that is just full
TOLERANCE = 1e-3  # ns that a time may be off by, since loads and sums of times are rounded
