"""What went wrong."""

from __future__ import annotations

NONE = 0
CLOCK = 1  # a tick the clock does not have
SELF = 2  # a rank sends to itself
ROUTE = 3  # no way over the links
ORDER = 4  # what happens first depends on rank numbers (folded runs)
