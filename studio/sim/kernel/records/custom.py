"""A collective given as a trace, per place in the group."""

from __future__ import annotations

NODES = 0  # node records
PARENTS = 1  # parents of each
SLOTS = 2  # what their slots stand for
COUNT = 3  # how many nodes
