"""The header of the array: one cell for each thing of which there is one."""

from __future__ import annotations

# The clock and the storage
NOW = 0  # present tick
TOP = 1  # from here on the array is free
MARGIN = 2  # words that one callback may need at most
FREE = 3  # first of the free records of 8 words
FREE_BLOCK = 40  # first of the free blocks of 16 words
FREE_STREAM = 4  # first of the free streams
STREAM_WORDS = 5  # words of a stream, its phases included
STEPS = 6  # callbacks and actions so far
LOG = 7  # where the next event is written
LOG_START = 34  # where the first one is
LIST = 8  # the tick that runs; 0 between two ticks
BUCKET = 9  # where the callback of the rank's list that runs is written; 0 where none does
WHEEL = 10  # wheel of ticks to come
TICKS = 11  # hash table of the ticks that are not near
TICK_MASK = 12  # its size less 1
CHANNELS = 13  # hash table of channels
CHANNEL_MASK = 14  # its size less 1
CHANNEL_COUNT = 15  # channels there are
SOON = 41  # `Lists` of the ranks

# The job and the system
RANKS = 17  # rank records
COUNT = 48  # ranks that are simulated
NPUS = 18  # NPUs of the system
DIMS = 19  # size and kind of each dimension
DIM_COUNT = 20  # how many there are
ENDPOINT = 24  # endpoint delay, ns
QUEUES = 25  # queues per dimension
ACTIVE = 26  # phases that may run at once in a queue
POLICY = 27  # see `Policy`
RENDEZVOUS = 22  # whether messages are announced before they are sent
TRAFFIC = 58  # bytes and messages each rank sends into each dimension

# The network, see `Network`
AWARE = 21  # which links messages wait on
LINKS = 23  # link records
LINK_BASES = 56  # first link of each dimension
LINK_FLOATS = 57  # latency and bandwidth of each link among the real numbers
GRAPH = 59  # network of single links; 0 where there is none

# The shared bus
BUS = 35  # whether there is one
BUS_L = 36  # latency, ns
BUS_O = 37  # overhead, ns
BUS_GAP = 38  # least time between sends, ns
BUS_REDUCE = 39  # reduction delay, ns

# What goes on
STARTED = 32  # ranks that have begun
FINISHED = 33  # ranks that have finished
SWEEPING = 28  # whether a sweep goes on
PENDING = 29  # nodes that became ready during it
ERROR = 30  # see `Error`
ERROR_RANK = 31  # rank it is about
ERROR_PEER = 60  # the other rank it is about

# Folded runs
PEERS = 49  # class of every rank; 0 where every rank stands for itself
WATCH = 50  # whether the order within a tick is watched
CHAIN = 51  # chain of what runs
STAMP = 52  # its stamp
STAMPS = 53  # stamps given so far
COORDINATES = 76  # per NPU its coordinate in each dimension
STANDS = 77  # per link the one that stands for it; 0 where each stands for itself
UNCLAIMED = 54  # tick of the last message that nobody waited for
LINK_ORDER = 55  # per link whom it serves, and the stamp of who used it last

# The extended mode
EXTENDED = 64  # `Extended` records of the ranks; 0 in the compatible mode
SYMMETRIC = 65  # whether ties are symmetric
SLOTS = 66  # collectives and messages a rank may have under way
OWN_QUEUES = 67  # whether comm groups have queues of their own
SMALLEST = 68  # whether the smallest chunk goes first
SPEEDS = 69  # compute speeds of the NPUs among the real numbers; 0 where all are 1
LANES = 74  # whether threads and streams have slots of their own
WOKEN = 70  # whether a node that takes no time has completed in this sweep
TOUCHED = 71  # heap of the ranks of which something is put off to the end of the tick
TOUCHED_LINKS = 72  # links of that heap
JOINED = 78  # list of the links that messages have come to in this tick
JOINED_COUNT = 79  # how many there are
SETTLING = 73  # whether what was put off is being done
CHANGED = 75  # flows of which a port has changed in this tick, see `Flow`

TURNS = 80  # turns in which something has changed in this tick, see `Turn`

WORDS = 88  # words of the header
RECORDS = 64  # records made at once: what ranks begin with lies side by side, in the order in which it is used again
