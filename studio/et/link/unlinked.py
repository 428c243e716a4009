"""How much operations matter that could not be linked: one rule for what the linker says and what checks say later."""

from __future__ import annotations

from dataclasses import dataclass

from studio.trace import Level

_FEW = 0.01
"""The part of a rank's operations that may stay unlinked without a warning."""


@dataclass(frozen=True, slots=True)
class UnlinkedCounts:
    """What of a rank was linked with nothing.

    Attributes:
        host, device: Its operators, and its operations of the device.
        lost: Operators without an event.
        loose: Operations of the device without an operator, those launched before the recording began left out.
    """

    host: int
    device: int
    lost: int
    loose: int


def judge_unlinked(counts: UnlinkedCounts) -> Level:
    """Return how much it matters: where no file tells operators, nothing was lost in linking."""
    if not counts.host and not counts.lost:
        return "info"
    return "warning" if counts.lost + counts.loose > _FEW * (counts.host + counts.device) else "info"
