"""A rank (SEMANTICS 3): its nodes, slots and queues."""

from __future__ import annotations

NUMBER = 0  # its number
FINISH = 1  # tick in which it finished; -1 before
SLOT = 2  # three cells: whether a node is in the CPU, compute and communication slot
READY = 5  # nodes that are ready
BUSY = 6  # nodes in progress
HEAP = 7  # four cells: ready nodes by slot; the last one's need none
NODES = 11  # node records
PARENTS = 12  # per node, parents that have not completed
LINKS = 13  # links of the nodes' heaps
SLOTS = 14  # what the slots of its graph stand for: peers, and places in comm groups
PRIORITY = 15  # counter of priorities
STREAMS = 16  # counter of the streams of all ranks
QUEUES = 17  # its queues
POINTERS = 18  # its turns in them: three per dimension
TREES = 19  # which of two trees is next
MEMORY = 20  # pool of remote memory it shares; 0 where it shares none
BUS = 21  # four ends of its shared bus
COUNT = 22  # how many nodes it has
ORDER = 23  # `Order` record
MEETINGS = 24  # per node that meets others: the meeting, and its time from there, below 0 if it does not wait; or the flow, and whether it waits for the node
BEGIN = 25  # tick in which it begins
TIMES = 26  # how long each of its nodes takes: ranks that differ in nothing else share their nodes
BITS = 5  # 2 to this power is how long a record is
WORDS = 1 << BITS  # words of a record
