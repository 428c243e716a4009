"""A node of a graph."""

from __future__ import annotations

KIND = 0  # see `Kind`
SLOT = 1  # see `Slot`
DURATION = 2  # read of collectives given as traces only, see `Rank.TIMES`
SIZE = 3  # bytes of a message, or of a chunk
STREAMS = 4  # chunks of a collective
GROUP = 5  # slot that says its comm group; -1 where all ranks take part
PEER = 6  # slot that says the other rank; number of a meeting or flow
TAG = 7  # tag of a message
PRIORITY = 8  # priority it asks for
CHILDREN = 9  # where its children are listed
CHILD_COUNT = 10  # how many there are
WORLD = 11  # phase list of all ranks
GROUPED = 12  # phase list in a comm group, or its variety (extended mode)
COLLECTIVE = 13  # collective type
LANE = 14  # slot of its thread or stream; 0 where it has none
WORDS = 16  # words of a record
UNEVEN = 6  # collective type whose ranks may bring different sizes
