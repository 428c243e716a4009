"""A stream: a chunk of a collective at a rank, and its current phase."""

from __future__ import annotations

NEXT = 0  # next in its queue, or of the free ones
FREE = 1  # free packets that are not used
POSITION = 2  # place of the next packet in its cycle
PLAIN = 3  # plain packets of a cycle, which never reduce
CYCLE = 4  # packets of a cycle
RECEIVED = 5  # messages that have come in this phase
BARRIER = 6  # messages that must have come before the second half is sent
TURNS = 6  # halving: whether it turns round
ALGORITHM = 7  # see `Algorithm`
RANK = 8  # the rank
LEFT = 9  # messages to send, or nodes to complete
KEY = 10  # key of its messages but for how far they go, see `Key`
REDUCTION = 11  # one more than the time of a reduction in this cycle; 0 for none
DELAY = 12  # endpoint delay
SEND = 13  # channel to the next of a ring; 0 for none
RECV = 14  # channel from the previous one
HOP = 15  # time of a message where all take the same, else -1
MESSAGE = 16  # size of the messages
SIZE = 17  # size carried on from phase to phase
PHASE = 18  # current phase
INDEX = 19  # how many came before
COLLECTIVE = 20  # the `Job` it is part of
TAG = 21  # tag of its messages
PRIORITY = 22  # priority in queues
QUEUE = 23  # queue it is in
PLACE = 24  # place of the rank in the dimension or group
DIRECTION = 25  # 1 clockwise, -1 anticlockwise; halving: 1 on the way up, -1 down
N = 26  # members of the dimension or group
STRIDE = 27  # their distance in rank numbers; 0 in comm groups
BASE = 28  # first of them, or where they are listed
USED = 29  # packets used of a round of the direct algorithm
DISTANCE = 30  # halving: distance to the next peer
PACKET_DISTANCE = 31  # halving: distance of the packet that waits
PACKET_SIZE = 32  # halving: its size
STEP_REDUCTION = 33  # time of a reduction: tree, program (one more; 0 for none)
MEMBER = 34  # `Member` record; 0 for all ranks
# Ring
NEXT_RANK = 36  # rank it sends to
PREVIOUS_RANK = 37  # rank it receives from
# Tree
TREE_ROLE = 35  # see `TreeRole`
LEFT_CHILD = 36  # rank of the left child; of the root, the only one
RIGHT_CHILD = 37  # rank of the right child
PARENT = 38  # rank of the parent
# Program
AWAITED = 35  # messages the step waits for
OP = 36  # where it is in the program
ROUND = 37  # how often the step has been done
# Collective given as a trace
PENDING = 36  # per node, parents that have not completed
TABLE = 38  # `Custom` record
# What all have in common
TOGGLE = 39  # sum of the reductions of two cycles
CODES = 40  # names of ranks in folded runs; 0 where ranks have their numbers
POSTED = 41  # tick of its last receive
CROSSED = 42  # stamp of who came to the end of the barrier
WAITED = 43  # stamp of who waited there
# While it waits in a queue
CAME = 2  # tick in which it came
BYTES = 3  # bytes it is about to send
HELD = 30  # in a direct all-reduce, whether a packet waits for the end of the tick
PHASES = 48  # from here on, per phase: queue * 4 + tree * 2 + direction
GROUP_DELAY = 10  # endpoint delay in comm groups, ns
