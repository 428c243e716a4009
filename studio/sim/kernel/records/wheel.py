"""The wheel of ticks to come: masks and slots of each level."""

from __future__ import annotations

LEVELS = 6
BITS = 10  # 2 to this power slots a level
SLOTS = 33  # from here on: slots of a level
SPAN = SLOTS + (1 << BITS)  # words of a level
