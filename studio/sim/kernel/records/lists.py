"""What every message touches of a rank, rank beside rank: the ticks to come for which the rank has a list."""

from __future__ import annotations

# Each followed by where the list's callback is written; below 0 where there is none
FIRST = 0
SECOND = 2
THIRD = 4
# Further ones: next, tick, where the callback is written
MORE = 6  # first
LAST = 7  # last
WORDS = 8  # words of a record
SHIFT = 2  # rank records are longer by 2 to this power
