"""How collectives get their priorities (SEMANTICS 5.2)."""

from __future__ import annotations

LIFO = 0
FIFO = 1
EXPLICIT = 2
