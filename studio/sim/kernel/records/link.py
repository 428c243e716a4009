"""A link."""

from __future__ import annotations

BUSY = 0  # whether a message is on it
BUSY_UNTIL = 0  # with symmetric ties, tick until which messages are or will be on it
FIRST = 1  # first message that waits; with symmetric ties, of those that have come in this tick
LAST = 2  # last one
BYTES = 3  # bytes it has carried
BUSY_NS = 4  # time it was taken
MESSAGES = 5  # messages it has carried
WAITING = 6  # messages that wait now; with symmetric ties, the last record of those, see `turns.note_wait`
MOST_WAITING = 7  # the most that ever did
WORDS = 8  # words of a record
