"""What is known of the order within a tick, per rank where one stands for many; see `studio.sim.kernel.order`."""

from __future__ import annotations

TICK = 0
BASE = 1  # stamps given when the tick began
GROUP = 2  # stamps given when the present group began
SINCE = 3  # the group's tick of origin
FROZEN = 4  # tick in which groups are not told apart
CHAIN = 5  # chain of the list that runs
STAMP = 6  # its stamp
IN_SINCE = 7  # origin of its last action
IN_CHAIN = 8  # chain of its last action
LOG = 9  # stamp of the last completion
COUNT = 10  # chains of the group
POSTED = 11  # tick of the last receive of a node
CHAINS = 12  # from here on: the chains, each by where it comes from
MOST_CHAINS = 8
WORDS = CHAINS + 2 * MOST_CHAINS + 4  # words of a record
OWN = -1  # stands for the rank itself where something else may come from another
