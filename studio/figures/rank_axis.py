"""The axis of ranks: so many numbers as have room, however wide the figure is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

NUMBERED: dict[str, Any] = {"type": "linear", "tickformat": "d", "tickangle": 0, "showgrid": False}
"""An axis on which ranks stand at their numbers."""
_NAMED = 16


def is_numbered(ranks: Sequence[int]) -> bool:
    """Return whether ranks stand at their numbers on an axis: too many to name each, and numbered without a gap.

    Of such an axis the browser labels as much as its width has room for; ranks that are named each would overprint.

    Example:
        >>> is_numbered(range(1024)), is_numbered(range(8)), is_numbered([*range(20), 99])
        (True, False, False)
    """
    return len(ranks) > _NAMED and ranks[-1] - ranks[0] + 1 == len(ranks)
