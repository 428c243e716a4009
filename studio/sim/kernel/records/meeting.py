"""A meeting, from whose last arrival on nodes take their recorded time."""

from __future__ import annotations

LEFT = 0  # ranks still to come
FIRST = 1  # first who waits
LAST = 2  # last who waits
WORDS = 8  # words of a record
