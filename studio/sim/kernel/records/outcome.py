"""Why the loop has stopped."""

from __future__ import annotations

PAUSED = 0  # its budget is spent
DONE = 1  # nothing is left
GROW = 2  # the array is full
FAILED = 3  # see `Error`
