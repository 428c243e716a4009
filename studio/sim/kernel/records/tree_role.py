"""The part of a rank in a tree (SEMANTICS 6)."""

from __future__ import annotations

LEAF = 0
INNER = 1
ROOT = 2
