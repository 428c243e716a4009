"""An end of the shared bus (SEMANTICS 12); four per rank, each followed by its partner or preceded by it."""

from __future__ import annotations

STATE = 0
BEFORE = 1  # state before this one
LAST = 2  # tick of its last transfer
COUNT = 3  # sends in a row
SENDS = 4  # first request to send
SENDS_END = 5  # last one
GETS = 6  # first request on its way here
GETS_END = 7  # last one
PENDING = 8  # how many there are
WORK = 9  # first request to reduce
WORK_END = 10  # last one
WORKING = 11  # whether a reduction goes on
RANK = 12  # the rank
SIDE = 13  # which of the four ends
WORDS = 16  # words of a record
TURN = 8  # sends in a row after which an end gives way
# Ends
OUTER_NPU = 0
OUTER_MEMORY = 1
INNER_NPU = 2
INNER_MEMORY = 3
# States
IDLE = 0
SENDING = 1
RECEIVING = 2
