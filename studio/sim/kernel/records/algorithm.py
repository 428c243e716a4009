"""Algorithms (SEMANTICS 6, 12)."""

from __future__ import annotations

RING = 0
DIRECT = 1
HALVING = 2
TREE = 3
CUSTOM = 4
PROGRAM = 5
