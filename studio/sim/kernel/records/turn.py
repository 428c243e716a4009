"""The turn that collectives of a comm group take, one at a time, where nothing says in which order they run."""

from __future__ import annotations

UNDER_WAY = 0  # whether one of them is under way
READY = 1  # heap of those all of whose members have come, by their numbers among all flows, from 1 on
NOTED = 2  # whether something has changed in this tick
NEXT = 3  # next of the turns in which something has changed
FLOWS = 4  # the first of all flows
LINKS = 5  # links of the heap
LAST = 6  # tick in which the one before ended
WORDS = 7  # words of a record
