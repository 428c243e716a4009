"""What lies where in the array that the kernel runs over, and what the numbers in it mean."""

from __future__ import annotations

# ---------------------------------------------------------------------------------------------------
# Header cells of `m`

NOW, TOP, MARGIN, FREE, FREE_STREAM, STREAM_WORDS, STEPS, LOG, LIST, BUCKET = range(10)
WHEEL, TICKS, TICK_MASK, CHANNELS, CHANNEL_MASK, CHANNEL_COUNT = range(10, 16)
RANKS, NPUS, DIMS, DIM_COUNT, AWARE, RENDEZVOUS, LINKS, ENDPOINT, QUEUES, ACTIVE = range(17, 27)
POLICY, SWEEPING, PENDING, ERROR, ERROR_RANK, STARTED, FINISHED, LOG_START, BUS = range(27, 36)
BUS_L, BUS_O, BUS_GAP, BUS_REDUCE = range(36, 40)
FREE_BLOCK, SOON = range(40, 42)
# Folded runs: ranks simulated, class of every rank (0: nothing is folded), whether the order within a tick is
# watched, chain of what runs, its stamp, stamps given, tick of the last message nobody waited for,
# and per link whom it serves and the stamp of who used it last
COUNT, PEERS, WATCH, CHAIN, STAMP, STAMPS, UNCLAIMED, LINK_ORDER = range(48, 56)
# Networks of several dimensions or of single links, and what is counted
LINK_BASES, LINK_FLOATS, TRAFFIC, GRAPH, ERROR_PEER = range(56, 61)
# The extended mode; EXTENDED says where its records of the ranks are
EXTENDED, SYMMETRIC, SLOTS, OWN_QUEUES, SMALLEST, SPEEDS, WOKEN, TOUCHED, TOUCHED_LINKS, SETTLING = range(
    64, 74
)
LANES = 74
"""Whether threads and streams have slots of their own."""
HEADER = 80

# Real numbers in `f`
LOCAL_MEMORY, BUS_G, BUS_INNER_G = range(3)
F_HEADER = 8
"""From here on: latency and bandwidth of each dimension, one after another; then their message overheads."""

# Rank records
R_NUMBER, R_FINISH, R_SLOT, R_READY, R_BUSY, R_HEAP, R_NODES, R_PEND, R_LINKS = 0, 1, 2, 5, 6, 7, 11, 12, 13
R_SLOTS, R_PRIORITY, R_STREAMS, R_QUEUES, R_POINTERS, R_TREES = range(14, 20)
R_MEMORY, R_BUS, R_COUNT, R_ORDER, R_MEETINGS, R_BEGIN = range(20, 26)
# How long each of its nodes takes: ranks that differ in nothing else share their nodes
R_TIMES = 26
# What the extended mode knows besides about a rank: communication nodes under way, whether a collective of all
# ranks is, and those that wait for it; what is put off to the end of the tick, see `order.touch`; and its lanes, for each
# whether a node is under way and those that wait for it
X_USED, X_BUSY, X_WAITING, X_TOUCHED, X_DONE, X_PACKETS, X_QUEUES, X_LANES = range(8)
# A rank's place in a comm group; from M_BUSY on in the extended mode
M_GROUP, M_PLACE, M_NUMBER, M_SORTED, M_TAGS, M_BUSY, M_WAITING, M_QUEUES, M_POINTERS, M_TREES = range(10)
# A comm group: its size, where its ranks are listed, and where its lists of phases are
G_SIZE, G_RANKS, G_CODES, G_PHASES = range(4)
RANK_BITS = 5
RANK_WORDS = 1 << RANK_BITS
# What every message touches of a rank, rank beside rank: three of the ticks to come for which the rank has a
# list, each followed by where the list's callback is written, and the further ones.
L_FIRST, L_SECOND, L_THIRD, L_MORE, L_LAST = 0, 2, 4, 6, 7
LIST_WORDS = 8
LIST_SHIFT = 2
"""Records of ranks are four times as long."""

# Node records. N_DURATION is read of collectives given as traces only, see R_TIMES.
N_KIND, N_CLASS, N_DURATION, N_SIZE, N_STREAMS, N_GROUP, N_PEER, N_TAG, N_PRIORITY = range(9)
N_CHILDREN, N_CHILD_COUNT, N_WORLD, N_GROUPED, N_COLLECTIVE, N_LANE = range(9, 15)
NODE_WORDS = 16
UNEVEN = 6
"""The collective type whose ranks may bring different sizes."""
K_DELAY, K_INSTANT, K_COLLECTIVE, K_SEND, K_RECV, K_MEMORY, K_MEET = range(7)
# Meetings, from whose last arrival on nodes take their recorded time: ranks still to come, and who waits. A rank's
# table has two words for each node that comes to one: the meeting, and the time, below 0 for who does not wait.
V_LEFT, V_FIRST, V_LAST = range(3)
MEETING_WORDS = 8

# Phase lists: count, where the lists of single streams are (0: this one serves all), 6 unused words, phases
PH_TYPE, PH_ALGORITHM, PH_WINDOW, PH_N, PH_STRIDE, PH_DIM, PH_ROLE, PH_TREE, PH_LOCAL, PH_FIXED = range(10)
PH_TABLE, PH_LAST, PH_SCALE, PH_NAME = 10, 11, 12, 13
PHASE_WORDS = 16
ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL = range(4)
RING, DIRECT, HALVING, TREE, CUSTOM, PROGRAM = range(6)
KEEP, SHRINK, GROW_BY = range(3)
"""What becomes of the size in a phase over n ranks: it stays, is divided by n, or multiplied by n."""
OP_SEND, OP_SEND_WAIT, OP_RECEIVE, OP_REDUCE, OP_STEP, OP_END = range(6)
OP_WORDS = 4
"""A step of a program: its messages (what, place of the peer, divisor and factor of the size), then OP_STEP, how
often the step is done, and the words it takes. OP_STEP before the first step lets a packet wait first."""
NORMAL, UP, DOWN = range(3)

# Collectives given as traces: per place in the group the offset of nodes, parents, slots, and their number
C_NODES, C_PARENTS, C_SLOTS, C_COUNT = range(4)

# Streams
S_NEXT, S_FREE, S_POS, S_PLAIN, S_CYCLE, S_RECEIVED, S_BARRIER, S_ALGORITHM = range(8)
S_RANK, S_LEFT, S_GONE, S_RED, S_DELAY, S_SEND, S_RECV, S_HOP = range(8, 16)
S_MESSAGE, S_X, S_PHASE, S_INDEX, S_COLL, S_TAG, S_PRIORITY, S_QUEUE = range(16, 24)
S_ME, S_DIR, S_N, S_STRIDE, S_BASE, S_USED, S_O, S_PO = range(24, 32)
S_PM, S_R, S_MEMBER, S_COUNT, S_A, S_B, S_C, S_TOGGLE = range(32, 40)
S_CODES, S_POSTED, S_CROSSED, S_WAITED = range(40, 44)
# While a stream waits in a queue
S_CAME, S_BYTES = S_POS, S_PLAIN
# In a direct all-reduce: whether a packet waits for the end of the tick
S_HELD = S_O
S_PHASES = 48
"""From here on, per phase: queue record * 4 + tree bit * 2 + direction bit."""

# Ticks. A tick, and a rank's list of several actions, is a block with room for four callbacks; more follow in
# blocks of seven. A callback or action is two words: `kind + what * 32` and a second argument; where a rank
# acts, `kind + RANK_WORDS * rank + what * 2^25`.
T_TICK, T_READ, T_WRITE, T_CHAIN, T_WHEEL = range(5)
T_EVENTS = 6
BLOCK = 16
BLOCK_END = 14
KIND = 31
WHAT = 5
RANK_WHAT = 25
RANK_MASK = (1 << RANK_WHAT) - 1 - KIND

# The short books of a ring, a cache line. P_LEFT: messages to send * 2^21 + packets to come that reduce.
P_STREAM, P_RANK, P_LEFT, P_RED, P_DELAY, P_SEND, P_RECV, P_HOP = range(8)
REDUCING = 21

# What is known of the order within a tick, per rank: tick, stamps given when the tick and when the present group
# began, the group's tick of origin, tick in which groups are not told apart, chain and stamp of the list that
# runs, origin and chain of its last action, stamp of the last completion, number of the group's chains, tick of
# the last receive of a node; then the chains, each by where it comes from
O_TICK, O_BASE, O_GROUP, O_SINCE, O_FROZEN, O_CHAIN, O_STAMP, O_IN_SINCE, O_IN_CHAIN, O_LOG = range(10)
O_COUNT, O_POSTED = 10, 11
O_CHAINS = 12
MOST_CHAINS = 8
ORDER_WORDS = O_CHAINS + 2 * MOST_CHAINS + 4
OWN = -1
"""Stands for the rank itself where something else may come from another."""
# Labels: tick and chain something was scheduled in, what it carries, whether its place in the tick is unknown
L_TICK, L_CHAIN, L_CODE, L_WILD = range(1, 5)

# Callbacks of the global queue; from RANK_LIST on: a rank's list of one action of a kind, or of many
ARRIVE, LATE, HOP, LINK_FREE, OVER = range(5)
RANK_LIST = 16
# Actions of a rank
A_BUS, A_FREE, A_WAIT, A_RING, A_NODE, A_MEMORY, A_CUSTOM, A_SENT, A_GOT, A_REDUCED, A_OPEN, A_MARK = range(
    12
)
A_BEGIN = 12
MANY = 31

# What waits for a message, or for its arrival: payload * 8 + kind
W_STREAM, W_NODE, W_SEND, W_RECV, W_CUSTOM, W_RING, W_SENT = range(1, 8)

# Ends of the shared bus; four per rank, each followed by its partner or preceded by it
B_STATE, B_BEFORE, B_LAST, B_COUNT, B_SENDS, B_SENDS_END, B_GETS, B_GETS_END, B_PENDING = range(9)
B_WORK, B_WORK_END, B_WORKING, B_RANK, B_SIDE = range(9, 14)
BUS_WORDS = 16
OUTER_NPU, OUTER_MEMORY, INNER_NPU, INNER_MEMORY = range(4)
IDLE, SENDING, RECEIVING = range(3)
# Requests: next, size, whether to reduce, whether to send back, what delivery means, to what, reduction time
Q_SIZE, Q_REDUCE, Q_BACK, Q_WHAT, Q_OF, Q_RED = range(1, 7)
Q_PACKET, Q_SEND, Q_WORK, Q_RETIRE = range(4)
TURN = 8

FULLY_CONNECTED, SWITCH, RING_DIM = range(3)

# What AWARE says: messages wait for nothing, or on links of one dimension, of several, or on single links
UNAWARE, ONE_DIMENSION, PRODUCT, SINGLE_LINKS = range(4)
# The network of single links: tables, see `studio.sim.links.Neighbours`, and room for the search
G_DEVICES, G_OUT, G_PAIRS, G_INTO, G_SOURCES, G_TARGETS, G_BITS, G_PER, G_WORDS, G_ROWS = range(10)
G_KNOWN, G_DISTANCE, G_QUEUE, G_LEAST, G_REACH = range(10, 15)
GRAPH_WORDS = 16
PAIR_WORDS = 4
TRAFFIC_WORDS = 2

PAUSED, DONE, GROW, FAILED = range(4)
E_NONE, E_CLOCK, E_SELF, E_ROUTE, E_ORDER = range(5)

RECORDS = 64
"""Records made at once. What ranks begin with then lies side by side, in the order in which it is used again."""
LEVELS = 6
LEVEL_BITS = 10
SLOTS_AT = 33
SPAN = SLOTS_AT + (1 << LEVEL_BITS)
CONTROL_BYTES = 8192
CONTROL_TAG = 1000000000
STREAM_TAG = 500000000
UNEVEN_TAG = 1 << 52
"""From here on sizes do not tell messages apart: ranks may bring different sizes to an all-to-all (extended mode)."""
GROUP_DELAY = 10
MAX_TICK = 1 << 59
