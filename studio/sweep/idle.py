"""Warn of keys that a sweep varies and that change nothing on any of its systems."""

from __future__ import annotations

from studio.errors import StudioError
from studio.sim.idle_settings import find_idle_settings
from studio.sim.parts import interpret
from studio.sweep.sweep import Sweep
from studio.sweep.systems import build_parts_at
from studio.trace import Finding

_TRIED = 16
"""So many points are asked, evenly spread: what one of them has an effect on is not warned of."""


def check_idle_settings(sweep: Sweep, ranks: int) -> Finding | None:
    """Return a warning that names the varied keys that change nothing, because all systems have costs; None if there are none.

    Args:
        sweep: What is to be simulated.
        ranks: Ranks of the job.
    """
    finding = None
    for index in range(0, sweep.space.size, -(-sweep.space.size // _TRIED)):
        try:
            config = interpret(build_parts_at(sweep.base, sweep.space.point(index), ranks)).config
        except StudioError:
            continue  # What is wrong with a point is its result.
        finding = find_idle_settings(sweep.space.keys, config)
        if finding is None:
            return None
    return finding
