"""A dimension of the network."""

from __future__ import annotations

SIZE = 0  # members
KIND = 1  # see `Network`
WORDS = 2  # words of a record
