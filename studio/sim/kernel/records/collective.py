"""Collective types, numbered for the kernel."""

from __future__ import annotations

ALL_REDUCE = 0
ALL_GATHER = 1
REDUCE_SCATTER = 2
ALL_TO_ALL = 3
