"""A tick, or a rank's list of several actions: a block with room for four callbacks; more follow in blocks of seven."""

from __future__ import annotations

TICK = 0
READ = 1  # where the next callback is read
WRITE = 2  # where the next one is written
CHAIN = 3  # next in the hash table
WHEEL = 4  # next in the slot of the wheel
EVENTS = 6  # callbacks: two words each
BLOCK = 16  # words of a block
BLOCK_END = 14  # from here on: where the next block is
MAX = 1 << 59  # last tick of the clock
