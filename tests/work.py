"""How much work something is, counted instead of timed: the same number on any machine, however busy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

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


class Counted(np.ndarray):
    """An array that counts how many elements arithmetic and comparisons of it, and of what they return, look at.

    `Counted.looked_at` is their number; whoever counts sets it to 0 before.
    """

    looked_at = 0

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Count, then do as any array."""
        plain = [one.view(np.ndarray) if isinstance(one, Counted) else one for one in inputs]
        Counted.looked_at += max(np.size(one) for one in plain)
        found = getattr(ufunc, method)(*plain, **options)
        return found.view(Counted) if isinstance(found, np.ndarray) else found
