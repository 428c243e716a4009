"""A collective under way at a rank."""

from __future__ import annotations

RANK = 1  # the rank
NODE = 2  # position of its node
LEFT = 3  # streams that have not ended
STAMP = 4  # stamp of the last one that has
