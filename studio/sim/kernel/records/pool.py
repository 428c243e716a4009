"""A remote memory that ranks share (SEMANTICS 9)."""

from __future__ import annotations

BUSY = 0  # whether a request is under way
FIRST = 1  # first that waits
LAST = 2  # last one
WORDS = 8  # words of a record
