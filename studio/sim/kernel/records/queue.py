"""A queue of a dimension at a rank (SEMANTICS 5.5)."""

from __future__ import annotations

RUNNING = 0  # phases that run
FIRST = 1  # first waiting stream
LAST = 2  # last one
NEXT = 3  # next of the queues put off to the end of the tick
STAMP = 3  # stamp of who used it last, where the order within a tick is watched
WORDS = 4  # words of a record
