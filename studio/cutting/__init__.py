"""Cut a part out of a job, as a job by itself: some ranks, steps, a window of time, or a subgraph.

`selection` finds the nodes that are asked for, `bridges` closes dependencies over those that go, `cut` makes the job,
and `ordering` keeps one order of communication.
"""

from __future__ import annotations

from studio.cutting.cut import Cut, cut
from studio.cutting.selection import Choice

__all__ = ["Choice", "Cut", "cut"]
