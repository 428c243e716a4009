"""A list of phases."""

from __future__ import annotations

COUNT = 0  # how many
SINGLE = 1  # lists of the single streams; 0 where this one serves all
PHASES = 8  # from here on: the phases
