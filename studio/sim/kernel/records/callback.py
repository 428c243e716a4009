"""Callbacks of the global queue: `kind + what * 32`, and a second word. From RANK_LIST on: a rank's list of one action."""

from __future__ import annotations

ARRIVE = 0  # a message reaches its destination
LATE = 1  # a message is handed over that had come before its receive
HOP = 2  # a message reaches the next device
LINK_FREE = 3  # a link has sent a message
OVER = 4  # a meeting is over
FLOW = 5  # a flow begins, ends, or lets the next of its members go on
RING = 15  # a packet of a ring has done its waits, where the order within a tick makes no difference
RANK_LIST = 16  # a rank's list of one action: this and its kind
MANY = 31  # a rank's list of several actions
KIND = 31  # bits of the kind
WHAT = 5  # shift of what it is about
