"""Waiting for conditions. A test gives up only where nothing can be slow enough to explain it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 120.0
"""How long anything is waited for, on a machine however busy. No test expects a wait to end without its condition."""


def wait_until(condition: Callable[[], T], pause: Callable[[], object] = lambda: time.sleep(0.005)) -> T:
    """Return the first true answer of `condition`, asked again and again."""
    end = time.monotonic() + PATIENCE_S
    while not (answer := condition()):
        assert time.monotonic() < end, f"still not true after {PATIENCE_S:.0f} s"
        pause()
    return answer
