"""A link."""

from __future__ import annotations

BUSY = 0  # whether a message is on it
FIRST = 1  # first message that waits
LAST = 2  # last one
BYTES = 3  # bytes it has carried
BUSY_NS = 4  # time it was taken
MESSAGES = 5  # messages it has carried
WAITING = 6  # messages that wait now
MOST_WAITING = 7  # the most that ever did
WORDS = 8  # words of a record
