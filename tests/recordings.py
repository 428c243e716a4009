"""Real traces, read or linked once for all tests of a process that only look at them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import studio
from studio.trace import Trace


@cache
def read_recording(path: Path) -> Trace:
    """Return what `studio.read` makes of a file or folder."""
    return studio.read(path)


@cache
def link_recording(path: Path) -> Trace:
    """Return what `studio.link` makes of a file or folder."""
    return studio.link(path)
