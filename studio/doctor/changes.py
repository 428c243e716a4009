"""What a repair changed, in words and numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from studio.notebook import format_record

Tick = Callable[[], None]
"""Called now and then; may raise to stop."""
SHOWN = 8
"""Changes of one kind that are told one by one."""


@dataclass(frozen=True, slots=True)
class Change:
    """One kind of change that a repair made, with its count.

    Attributes:
        what: In words, with the count: `3 dependencies removed`.
        count: How many there are, over all ranks.
        first: The first of them, in words.
    """

    what: str
    count: int
    first: tuple[str, ...] = ()

    __repr__ = format_record
