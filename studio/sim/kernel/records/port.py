"""A port: one direction in which an NPU, or a node whose NPUs share NICs, sends or receives in a dimension."""

from __future__ import annotations

LOAD = 0  # what the flows whose bytes move take of it together
FIRST = 1  # first `Use` by one of them
WORDS = 2  # words of a record
