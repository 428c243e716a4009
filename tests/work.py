"""How much work something is, counted instead of timed: the same number on any machine, however busy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def count_calls(action: Callable[[], T]) -> tuple[int, T]:
    """Return how many function calls an action makes, in Python and in C, and what it returns."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        answer = action()
    finally:
        sys.setprofile(before)
    return calls, answer
