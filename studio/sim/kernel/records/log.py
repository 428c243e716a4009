"""An event: a node is issued, or completes."""

from __future__ import annotations

TICK = 0  # when
WHAT = 1  # the rank's number from bit `RANK` on, `POSTPONED`, the node's position from bit 1 on, and whether it completes
WORDS = 2  # words of a record
RANK = 40
POSTPONED = 1 << 39  # set where it happened later than its place among the events says
