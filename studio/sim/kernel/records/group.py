"""A comm group."""

from __future__ import annotations

SIZE = 0  # how many ranks it has
RANKS = 1  # where they are listed
CODES = 2  # what each stands for where one rank stands for many
PHASES = 3  # phase lists by variety of collective (extended mode)
