"""A message of a program: what, place of the peer, divisor and factor of the size. After those of a step comes STEP."""

from __future__ import annotations

SEND = 0
SEND_WAIT = 1
RECEIVE = 2
REDUCE = 3
STEP = 4  # how often the step is done, and the words it takes; before the first step: a packet waits first
END = 5
WORDS = 4  # words of each
