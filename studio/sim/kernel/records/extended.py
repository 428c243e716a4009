"""What the extended mode knows besides about a rank."""

from __future__ import annotations

USED = 0  # communication nodes under way
BUSY = 1  # whether a collective of all ranks is under way
WAITING = 2  # those that wait for it
TOUCHED = 3  # whether something is put off to the end of the tick, see `order.touch`
DONE = 4  # nodes whose completion is put off
PACKETS = 5  # streams whose packets are put off
QUEUES = 6  # queues that are put off
LANES = 7  # for each thread and stream: whether a node is under way, and those that wait for it
