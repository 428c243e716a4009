"""The place of a rank in a comm group."""

from __future__ import annotations

GROUP = 0  # the group
PLACE = 1  # place of the rank
NUMBER = 2  # next stream
SORTED = 3  # place of the rank among the sorted ranks
TAGS = 4  # what is added to tags
# The extended mode
BUSY = 5  # whether a collective of the group is under way
WAITING = 6  # those that wait for it
QUEUES = 7  # queues of its own
POINTERS = 8  # its turns in them
TREES = 9  # which of two trees is next
SLOT = 10  # one more than the first slot in which the rank names the group
