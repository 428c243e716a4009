"""The network of single links: tables, see `studio.sim.links.Neighbours`, and room for the search."""

from __future__ import annotations

DEVICES = 0
OUT = 1
PAIRS = 2
INTO = 3
SOURCES = 4
TARGETS = 5
BITS = 6
PER = 7
WORDS = 8  # words of a row of next hops
ROWS = 9
KNOWN = 10  # whether the way to a rank is known
DISTANCE = 11
QUEUE = 12
LEAST = 13
REACH = 14
RECORD_WORDS = 16  # words of this record
PAIR_WORDS = 4  # words of a pair of devices
