"""Slots of a rank, each of which holds one node (SEMANTICS 3)."""

from __future__ import annotations

CPU = 0
COMPUTE = 1
COMMUNICATION = 2
NONE = 3  # for nodes that need no slot
COUNT = 4
