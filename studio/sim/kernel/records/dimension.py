"""A dimension of the network."""

from __future__ import annotations

SIZE = 0  # members
KIND = 1  # see `Network`
STRIDE = 2  # distance of neighbours in rank numbers
WORDS = 4  # words of a record
