"""The event loop of the simulator, over one flat array.

Everything the simulation knows lies in one int64 array `m`: a header, tables that do not change (nodes,
phases, groups), the state of every rank, and records that come and go (events, messages, streams). A record
is named by its offset in `m`. Nothing moves: when `m` runs full, a longer copy takes its place. So the
functions pass one array and a few numbers, which is what makes the compiled loop fast, and the same source
runs interpreted over a plain list. `f` holds the few real numbers.

Rules of the clock (the order of events is part of the answer):

- One tick is one nanosecond. Callbacks of a tick run in the order they were scheduled; one scheduled for
  the tick that runs is appended and runs in the same pass.
- Actions of a rank are registered in the rank's own list for a tick. The first one schedules one callback
  that runs the whole list, so all actions of a rank in a tick run where the first was registered. A list
  may grow while it runs.

Nodes: per rank one slot each for CPU, compute and communication; receives need none. A sweep visits the
nodes that are ready in ascending id and issues each whose slot is free at that moment. It happens at the
start and after every completion. Nodes that become ready during a sweep wait for the next one.

Streams: a collective is cut into streams that pass through phases, one per dimension. Queues of a dimension
limit how many phases run; waiting ones start by priority. Packets wait the endpoint delay, then, where they
reduce, the time of two reads and a write (a second action, even where it takes no time), then let the
algorithm send one message and post one receive.
"""

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
# ranks is, and those that wait for it; what is put off to the end of the tick, see `touch`; and its lanes, for each
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


# ---------------------------------------------------------------------------------------------------
# Records


def alloc(m):
    """Return a free record of 8 words; its content is undefined."""
    r = m[FREE]
    if r == 0:
        return more_records(m)
    m[FREE] = m[r]
    return r


def more_records(m):
    """Make room for records, next to each other, and return the first of them."""
    r = m[TOP]
    m[TOP] = r + 8 * RECORDS
    for i in range(1, RECORDS - 1):
        m[r + 8 * i] = r + 8 * i + 8
    m[r + 8 * (RECORDS - 1)] = 0
    m[FREE] = r + 8
    return r


def release(m, r):
    """Give a record of 8 words back."""
    m[r] = m[FREE]
    m[FREE] = r


def alloc_block(m):
    """Return a free block of 16 words, which starts at a multiple of 16; its content is undefined."""
    b = m[FREE_BLOCK]
    if b != 0:
        m[FREE_BLOCK] = m[b]
        return b
    b = m[TOP]
    if b & 8 != 0:
        release(m, b)
        b += 8
    m[TOP] = b + BLOCK
    return b


def release_block(m, b):
    """Give a block back."""
    m[b] = m[FREE_BLOCK]
    m[FREE_BLOCK] = b


# ---------------------------------------------------------------------------------------------------
# The clock: a wheel of six levels with 1,024 slots each holds the ticks to come; ticks are found by a hash. A level
# is a mask of 32 bits that says which of the 32 masks after it are not 0, which say which of the slots after them
# are not. Callbacks of a tick lie one behind the other, so the next ones are in the cache when their turn comes.


def put_tick(m, t, tick):
    """Put a tick into the wheel, relative to the present."""
    d = tick ^ m[NOW]
    s = tick
    base = m[WHEEL]
    while d >> LEVEL_BITS != 0:
        d >>= LEVEL_BITS
        s >>= LEVEL_BITS
        base += SPAN
    slot = s & ((1 << LEVEL_BITS) - 1)
    word = slot >> 5
    m[base] |= 1 << word
    m[base + 1 + word] |= 1 << (slot & 31)
    at = base + SLOTS_AT + slot
    m[t + T_WHEEL] = m[at]
    m[at] = t


def next_tick(m):
    """Take the next tick out of the wheel and make it the present; 0 where none is left."""
    while True:
        base = m[WHEEL]
        level = 0
        while m[base] == 0:
            base += SPAN
            level += 1
            if level == LEVELS:
                return 0
        word = lowest(m[base])
        bits = m[base + 1 + word]
        slot = lowest(bits)
        bits ^= 1 << slot
        m[base + 1 + word] = bits
        if bits == 0:
            m[base] ^= 1 << word
        at = base + SLOTS_AT + 32 * word + slot
        t = m[at]
        m[at] = 0
        c = m[t + T_WHEEL]
        if c == 0:
            m[NOW] = m[t]
            return t
        # Several ticks of one slot go down, as seen from where the slot begins.
        shift = LEVEL_BITS * level
        m[NOW] = (m[t] >> shift) << shift
        put_tick(m, t, m[t])
        while c != 0:
            t = c
            c = m[t + T_WHEEL]
            put_tick(m, t, m[t])


def new_tick(m, tick, h):
    """Make the record of a tick."""
    if tick > MAX_TICK or tick < 0:
        m[ERROR] = E_CLOCK
        tick = MAX_TICK
    t = alloc_block(m)
    m[t] = tick
    m[t + T_READ] = t + T_EVENTS
    m[t + T_WRITE] = t + T_EVENTS
    m[t + T_CHAIN] = m[h]
    m[h] = t
    put_tick(m, t, tick)
    return t


def append(m, t, x, y):
    """Write a callback behind the others of a tick, or an action behind the others of a list; return where."""
    at = m[t + T_WRITE]
    if at & (BLOCK - 1) == BLOCK_END:
        b = alloc_block(m)
        m[at] = b
        at = b
    m[at] = x
    m[at + 1] = y
    m[t + T_WRITE] = at + 2
    return at


def push(m, tick, x, y):
    """Schedule a callback as the last one of a tick; return where it is written."""
    h = m[TICKS] + (tick & m[TICK_MASK])
    t = m[h]
    while t != 0 and m[t] != tick:
        t = m[t + T_CHAIN]
    if t == 0:
        t = new_tick(m, tick, h)
    return append(m, t, x, y)


def drop_tick(m, t):
    """Forget a tick whose callbacks have all run."""
    h = m[TICKS] + (m[t] & m[TICK_MASK])
    if m[h] == t:
        m[h] = m[t + T_CHAIN]
    else:
        c = m[h]
        while m[c + T_CHAIN] != t:
            c = m[c + T_CHAIN]
        m[c + T_CHAIN] = m[t + T_CHAIN]
    drop_list(m, t)


def drop_list(m, t):
    """Give the blocks of a list back that has been read to its end."""
    at = m[t + T_READ]
    if at < t or at - t > BLOCK:
        release_block(m, at & -BLOCK)
    release_block(m, t)


def next_of(m, t, at):
    """Return where the callback at `at` of a list is, which is in the next block where this one is read."""
    if at & (BLOCK - 1) == BLOCK_END:
        after = m[at]
        if at - t != BLOCK_END:
            release_block(m, at - BLOCK_END)
        return after
    return at


# The lists of a rank. Three of the coming ticks stand in a record of the rank, further ones in a sorted list
# of records: next, tick, where the callback is written. A list of one action is a callback itself; with the
# second action it becomes a callback MANY with a block.


def later(m, rank, delta, kind, x, y):
    """Register an action of a rank, `delta` ticks from now."""
    if m[WATCH] != 0:
        mark(m, rank, m[NOW] + delta)
    register(m, rank, m[NOW] + delta, kind, x, y)


def list_of(m, soon, tick):
    """Return where the callback of a rank's list for a tick is written; 0 where there is none."""
    if m[soon + L_FIRST] == tick:
        return m[soon + L_FIRST + 1]
    if m[soon + L_SECOND] == tick:
        return m[soon + L_SECOND + 1]
    if m[soon + L_THIRD] == tick:
        return m[soon + L_THIRD + 1]
    if m[soon + L_MORE] != 0:
        return find_list(m, soon, tick)
    return 0


def register(m, rank, tick, kind, x, y):
    """Put an action on a rank's list for a tick."""
    number = rank - m[RANKS]
    soon = m[SOON] + (number >> LIST_SHIFT)
    at = list_of(m, soon, tick)
    if at != 0:
        join_list(m, at, kind, x, y)
        return
    at = push(m, tick, (RANK_LIST + kind) | number | (x << RANK_WHAT), y)
    if m[soon + L_FIRST] < 0:
        m[soon + L_FIRST] = tick
        m[soon + L_FIRST + 1] = at
    elif m[soon + L_SECOND] < 0:
        m[soon + L_SECOND] = tick
        m[soon + L_SECOND + 1] = at
    elif m[soon + L_THIRD] < 0:
        m[soon + L_THIRD] = tick
        m[soon + L_THIRD + 1] = at
    else:
        note_list(m, soon, tick, at)


def find_list(m, soon, tick):
    """Return where the callback of a rank's list for a tick is written, among the further ones; else 0."""
    c = m[soon + L_LAST]
    if m[c + 1] < tick:
        return 0
    if m[c + 1] > tick:
        c = m[soon + L_MORE]
        while m[c + 1] < tick:
            c = m[c]
        if m[c + 1] != tick:
            return 0
    return m[c + 2]


def note_list(m, soon, tick, at):
    """Note a rank's list among the further ones."""
    r = alloc(m)
    m[r] = 0
    m[r + 1] = tick
    m[r + 2] = at
    c = m[soon + L_MORE]
    if c == 0:
        m[soon + L_MORE] = r
        m[soon + L_LAST] = r
        return
    last = m[soon + L_LAST]
    if m[last + 1] < tick:
        m[last] = r
        m[soon + L_LAST] = r
        return
    if m[c + 1] > tick:
        m[r] = c
        m[soon + L_MORE] = r
        return
    while m[m[c] + 1] < tick:
        c = m[c]
    m[r] = m[c]
    m[c] = r


def join_list(m, at, kind, x, y):
    """Add an action to the list whose callback is written at `at`."""
    first = m[at]
    t = m[at + 1]
    if first & KIND != MANY or t == 0:
        t = alloc_block(m)
        m[t + T_READ] = t + T_EVENTS
        m[t + T_WRITE] = t + T_EVENTS
        if first & KIND != MANY:
            append(m, t, (first & KIND) - RANK_LIST | (first >> RANK_WHAT) << RANK_WHAT, m[at + 1])
            m[at] = first | MANY
        m[at + 1] = t
    append(m, t, kind | (x << RANK_WHAT), y)


def forget_list(m, rank):
    """The rank's list of this tick has run."""
    now = m[NOW]
    soon = m[SOON] + ((rank - m[RANKS]) >> LIST_SHIFT)
    if m[soon + L_FIRST] == now:
        m[soon + L_FIRST] = -1
    elif m[soon + L_SECOND] == now:
        m[soon + L_SECOND] = -1
    elif m[soon + L_THIRD] == now:
        m[soon + L_THIRD] = -1
    else:
        # Those of other ticks are later, so this one is the first.
        r = m[soon + L_MORE]
        m[soon + L_MORE] = m[r]
        release(m, r)


# ---------------------------------------------------------------------------------------------------
# The order within a tick, watched where one rank stands for many: see `folding`. Of two things that happen to a
# rank in one tick the one scheduled in the earlier tick comes first; of two scheduled in the same tick by the
# same rank the one scheduled first. That holds for every rank of a class. Otherwise their order may depend on
# rank numbers. So what happens to a rank belongs to a group, the things scheduled in one tick, and within it to
# a chain, the things known to follow each other; whoever does something whose order matters leaves the stamp of
# his chain there, and a different stamp of the same group means that the order is not known.


def fresh(m):
    """Begin a chain of its own: nothing is known of its place in the group."""
    m[STAMPS] += 1
    m[CHAIN] = m[STAMPS]
    m[STAMP] = m[STAMPS]


def label(m, code):
    """Return a label for something that is scheduled now."""
    r = alloc(m)
    m[r + L_TICK] = m[NOW]
    m[r + L_CHAIN] = m[CHAIN]
    m[r + L_CODE] = code
    m[r + L_WILD] = 0
    return r


def mark(m, rank, tick):
    """Note in a rank's list for a tick when and in which chain the next action is registered."""
    at = list_of(m, m[SOON] + ((rank - m[RANKS]) >> LIST_SHIFT), tick)
    if at == 0:
        register(m, rank, tick, A_OPEN, 0, label(m, 0))
    else:
        t = m[at + 1]
        if t != 0 and m[t + T_READ] == t + T_EVENTS:
            r = m[t + T_EVENTS + 1]
            if m[r + L_TICK] == m[NOW] and m[r + L_CHAIN] != m[CHAIN]:
                # Who registered first, which decides where the list runs, is not known.
                m[STAMPS] += 1
                m[r + L_CHAIN] = m[STAMPS]
    register(m, rank, tick, A_MARK, 0, label(m, 0))


def find_chain(m, o, source, chain):
    """Take up a chain of the present group, by where it comes from."""
    at = o + O_CHAINS
    for i in range(m[o + O_COUNT]):
        if m[at + 2 * i] == source and m[at + 2 * i + 1] == chain:
            m[CHAIN] = i
            m[STAMP] = m[o + O_GROUP] + 1 + i
            return
    i = m[o + O_COUNT]
    if i == MOST_CHAINS or m[o + O_FROZEN] == m[NOW]:
        fresh(m)
        return
    m[at + 2 * i] = source
    m[at + 2 * i + 1] = chain
    m[o + O_COUNT] = i + 1
    m[CHAIN] = i
    m[STAMP] = m[o + O_GROUP] + 1 + i


def enter(m, rank, since, source, chain):
    """Something scheduled at tick `since` by `source` in one of its chains happens to a rank."""
    o = m[rank + R_ORDER]
    new = m[o + O_TICK] != m[NOW]
    if new:
        m[o + O_TICK] = m[NOW]
        m[o + O_BASE] = m[STAMPS]
    if new or (m[o + O_SINCE] != since and m[o + O_FROZEN] != m[NOW]):
        m[o + O_SINCE] = since
        m[o + O_GROUP] = m[STAMPS]
        m[o + O_COUNT] = 0
        m[STAMPS] += MOST_CHAINS
    find_chain(m, o, source, chain)


def freeze(m, rank):
    """Something has happened to a rank whose place in the tick is not known at all."""
    o = m[rank + R_ORDER]
    m[o + O_FROZEN] = m[NOW]
    m[o + O_GROUP] = m[o + O_BASE]
    m[o + O_COUNT] = 0
    fresh(m)


def open_list(m, rank, r):
    """A rank's list for this tick begins to run."""
    enter(m, rank, m[r + L_TICK], OWN, m[r + L_CHAIN])
    release(m, r)
    o = m[rank + R_ORDER]
    m[o + O_CHAIN] = m[CHAIN]
    m[o + O_STAMP] = m[STAMP]
    m[o + O_IN_SINCE] = -2


def next_action(m, rank, r):
    """The next action of a rank's list begins to run."""
    o = m[rank + R_ORDER]
    since = m[r + L_TICK]
    chain = m[r + L_CHAIN]
    release(m, r)
    if m[o + O_IN_SINCE] != since:
        m[o + O_IN_SINCE] = since
        m[o + O_IN_CHAIN] = chain
    if m[o + O_IN_CHAIN] == chain:
        m[CHAIN] = m[o + O_CHAIN]
        m[STAMP] = m[o + O_STAMP]
    elif m[o + O_CHAIN] < MOST_CHAINS:
        find_chain(m, o, OWN - 1 - m[o + O_CHAIN], chain)
    else:
        fresh(m)


def check_order(m, rank, at):
    """Stop where the order of what happens now and of what left its stamp at `at` is not known."""
    last = m[at]
    if last > m[m[rank + R_ORDER] + O_GROUP] and last != m[STAMP]:
        m[ERROR] = E_ORDER
        m[ERROR_RANK] = m[rank + R_NUMBER]


def in_order(m, rank, at):
    """The same, and leave a stamp."""
    if m[WATCH] != 0:
        check_order(m, rank, at)
        m[at] = m[STAMP]


# ---------------------------------------------------------------------------------------------------
# Messages. A channel is a key (tag, pair, size): next of the hash chain, tag, pair, size, messages arrived
# unclaimed, first waiter, further waiters (circular), uses (messages under way and streams that remember the
# channel). The k-th message of a channel belongs to the k-th receive; messages of one key cannot overtake each
# other. A pair is source << 20 | destination, or, where one rank stands for many, what source and destination
# are to each other, see `named`.


def chain_of(m, tag, pair, size):
    """Return where the hash chain of a key starts: the middle bits of a product depend on all lower ones."""
    h = tag * 0x1E3779B97F4A7C15 + pair * 0x42B2AE3D27D4EB4F + size * 0x165667B19E3779F9
    return m[CHANNELS] + ((h >> 31) & m[CHANNEL_MASK])


def channel(m, tag, pair, size):
    """Return the channel of a key, made where there is none."""
    if tag >= UNEVEN_TAG:
        size = 0
    h = chain_of(m, tag, pair, size)
    c = m[h]
    while c != 0:
        if m[c + 2] == pair and m[c + 1] == tag and m[c + 3] == size:
            return c
        c = m[c]
    c = alloc(m)
    m[c] = m[h]
    m[c + 1] = tag
    m[c + 2] = pair
    m[c + 3] = size
    m[c + 4] = 0
    m[c + 5] = 0
    m[c + 6] = 0
    m[c + 7] = 0
    m[h] = c
    m[CHANNEL_COUNT] += 1
    return c


def drop_channel(m, c):
    """Forget a channel nobody uses."""
    h = chain_of(m, m[c + 1], m[c + 2], m[c + 3])
    if m[h] == c:
        m[h] = m[c]
    else:
        p = m[h]
        while m[p] != c:
            p = m[p]
        m[p] = m[c]
    m[CHANNEL_COUNT] -= 1
    release(m, c)


def settle(m, c):
    """Forget a channel if nobody uses it."""
    if m[c + 7] == 0 and m[c + 5] == 0 and m[c + 4] == 0:
        drop_channel(m, c)


def rehash(m):
    """Give the channels a table of four times the size; the caller has seen to the room."""
    old = m[CHANNELS]
    size = m[CHANNEL_MASK] + 1
    new = m[TOP]
    m[TOP] = new + 4 * size
    for i in range(4 * size):
        m[new + i] = 0
    m[CHANNELS] = new
    m[CHANNEL_MASK] = 4 * size - 1
    for i in range(size):
        c = m[old + i]
        while c != 0:
            after = m[c]
            h = chain_of(m, m[c + 1], m[c + 2], m[c + 3])
            m[c] = m[h]
            m[h] = c
            c = after


def stream_of(m, w):
    """Return the stream that waits; 0 where something else does."""
    if w & 7 == W_STREAM:
        return w >> 3
    if w & 7 == W_RING:
        return m[(w >> 3) + P_STREAM]
    return 0


def note_post(m, w):
    """Note when a receive was posted."""
    s = stream_of(m, w)
    if s != 0:
        m[s + S_POSTED] = m[NOW]
    elif w & 7 == W_NODE:
        m[m[m[RANKS] + RANK_WORDS * ((w >> 3) & 0xFFFFF) + R_ORDER] + O_POSTED] = m[NOW]


def post(m, c, w):
    """Wait for the next message of a channel; one that is there already is handed over in this tick."""
    if m[c + 4] > 0:
        m[c + 4] -= 1
        settle(m, c)
        if m[WATCH] != 0:
            w = label(m, w)
            # Whether the message or the receive came first is not known where both came in this tick.
            if m[UNCLAIMED] == m[NOW]:
                m[w + L_WILD] = 1
        push(m, m[NOW], LATE, w)
        return
    if m[WATCH] != 0:
        note_post(m, w)
    if m[c + 5] == 0:
        m[c + 5] = w
        return
    a = alloc(m)
    m[a + 1] = w
    end = m[c + 6]
    if end == 0:
        m[a] = a
    else:
        m[a] = m[end]
        m[end] = a
    m[c + 6] = a


def take_waiter(m, c):
    """Return the first waiter of a channel, taken off; 0 where there is none."""
    w = m[c + 5]
    end = m[c + 6]
    if end == 0:
        m[c + 5] = 0
        return w
    a = m[end]
    m[c + 5] = m[a + 1]
    if a == end:
        m[c + 6] = 0
    else:
        m[end] = m[a]
    release(m, a)
    return w


def dimension(m, src, dst):
    """Return the lowest dimension in which two ranks differ."""
    at = m[DIMS]
    d = 0
    while src % m[at] == dst % m[at]:
        src //= m[at]
        dst //= m[at]
        at += 2
        d += 1
    return d


def account(m, number, d, count, size):
    """Count messages that a rank sends into a dimension."""
    at = m[TRAFFIC] + TRAFFIC_WORDS * (number * m[DIM_COUNT] + d)
    m[at] += count * size
    m[at + 1] += count


def crossing(m, f, d, hops, size):
    """Return the time of a message in a dimension: overhead plus hops times latency plus size over bandwidth.

    It is truncated once. The overhead is what LogGP calls the gap: what a message costs its sender's port,
    whatever its size (Alexandrov et al., LogGP: Incorporating Long Messages into the LogP Model, SPAA 1995).
    The reference has none, so it is 0 in the compatible mode.
    """
    at = F_HEADER + 2 * d
    time = hops * f[at] + size / f[at + 1]
    return int(time + f[F_HEADER + 2 * m[DIM_COUNT] + d])


def delay(m, f, src, dst, size, count):
    """Return the time of a message without contention; counts `count` such messages.

    Only the lowest dimension in which the two ranks differ counts. Hops: fully connected 1, switch 2, ring
    the shorter way round.
    """
    d = 0
    a = src
    b = dst
    at = m[DIMS]
    while True:
        n = m[at]
        x = a % n
        y = b % n
        if x != y:
            break
        a //= n
        b //= n
        at += 2
        d += 1
    account(m, src, d, count, size)
    if m[GRAPH] != 0:
        return route_delay(m, f, src, dst, size)
    kind = m[at + 1]
    hops = 1
    if kind == SWITCH:
        hops = 2
    elif kind == RING_DIM:
        hops = abs(x - y)
        if n - hops < hops:
            hops = n - hops
    return crossing(m, f, d, hops, size)


def stride_of(m, d):
    """Return the distance, in rank numbers, of neighbours in a dimension."""
    stride = 1
    at = m[DIMS]
    for _ in range(d):
        stride *= m[at]
        at += 2
    return stride


# Links of the congestion-aware network: busy, first and last waiting message, bytes, busy time, messages,
# messages waiting now, and at most. Store and forward: a message enters the next link when all of it has
# come. A message on its way is an event record: next, kind, channel, what waits for its arrival, device it
# goes to, destination, serialisation, serialisation and latency. In other networks than one dimension these
# two are worked out link by link; instead it holds, in several dimensions, one more than the dimension it is
# in, and whether the link is its first one there; among single links its source.


def transmit(m, e, link):
    """Start sending a message over a link of the only dimension."""
    occupy(m, e, link, m[e + 6], m[e + 7])


def occupy(m, e, link, busy, time):
    """Take a link for a message that is under way for `time`."""
    now = m[NOW]
    m[link] = 1
    m[link + 3] += m[e + 1]
    m[link + 4] += busy
    m[link + 5] += 1
    push(m, now + time, HOP | e << WHAT, 0)
    y = 0
    if m[WATCH] != 0:
        y = label(m, 0)
    push(m, now + busy, LINK_FREE | link << WHAT, y)


def carry(m, f, e, link):
    """Start sending a message over a link of several dimensions or of a network of single links.

    The link is taken for overhead + size / bandwidth, the message arrives a latency later. The overhead is
    that of the dimension, paid on the first link in it.
    """
    at = m[LINK_FLOATS] + (link - m[LINKS]) // 4
    wire = m[e + 1] / f[at + 1]
    if m[AWARE] == PRODUCT and m[e + 7] != 0:
        wire += f[F_HEADER + 2 * m[DIM_COUNT] + m[e + 6] - 1]
    occupy(m, e, link, int(wire), int(f[at] + wire))


def wait_for_link(m, e, link):
    """Let a message wait until a link is free."""
    m[e] = 0
    if m[link + 1] == 0:
        m[link + 1] = e
    else:
        m[m[link + 2]] = e
    m[link + 2] = e
    m[link + 6] += 1
    if m[link + 6] > m[link + 7]:
        m[link + 7] = m[link + 6]


def free_link(m, f, link):
    """A link has sent a message: it takes the next one, if any waits."""
    e = m[link + 1]
    if e == 0:
        m[link] = 0
        return
    m[link + 1] = m[e]
    m[link + 6] -= 1
    if m[AWARE] == ONE_DIMENSION:
        transmit(m, e, link)
    else:
        carry(m, f, e, link)


def enter_link(m, f, e, at, to):
    """Send a message that is at device `at` one device on towards `to`, or let it wait for the link."""
    if m[AWARE] == ONE_DIMENSION:
        link = only_link(m, e, at, to)
        if m[WATCH] != 0:
            # A link serves the rank it leaves, or, behind a switch, the one it leads to.
            owner = at
            if at == m[NPUS]:
                owner = to
            mine = m[LINK_ORDER] + 2 * link
            m[mine] = m[RANKS] + RANK_WORDS * m[m[PEERS] + owner]
            in_order(m, m[mine], mine + 1)
        link = m[LINKS] + 8 * link
        if m[link] == 0:
            transmit(m, e, link)
        else:
            wait_for_link(m, e, link)
        return
    link = next_link(m, e, at, to) if m[AWARE] == PRODUCT else next_single(m, f, e, at, to)
    if m[ERROR] != 0:
        return
    link = m[LINKS] + 8 * link
    if m[link] == 0:
        carry(m, f, e, link)
    else:
        wait_for_link(m, e, link)


def only_link(m, e, at, to):
    """Return the link towards `to` in the only dimension, and note the device it leads to."""
    n = m[NPUS]
    kind = m[m[DIMS] + 1]
    if kind == FULLY_CONNECTED:
        link = at * n + to
        nxt = to
    elif kind == SWITCH:
        link = at
        nxt = n
        if at == n:
            link = n + to
            nxt = to
    else:
        up = to - at
        if up < 0:
            up += n
        if 2 * up <= n:
            link = at
            nxt = at + 1
            if nxt == n:
                nxt = 0
        else:
            link = n + at
            nxt = at - 1
            if nxt < 0:
                nxt = n - 1
    m[e + 4] = nxt
    return link


def next_link(m, e, at, to):
    """Return the link towards `to` in several dimensions, the lowest first, and note where it leads.

    The switch of a line is device NPUs × (1 + dimension) + the line's first rank.
    """
    npus = m[NPUS]
    if at >= npus:
        d = at // npus - 1
        stride = stride_of(m, d)
        n = m[m[DIMS] + 2 * d]
        nxt = at % npus + to // stride % n * stride
        m[e + 4] = nxt
        m[e + 7] = 0
        return m[m[LINK_BASES] + d] + npus + nxt
    d = dimension(m, at, to)
    stride = stride_of(m, d)
    n = m[m[DIMS] + 2 * d]
    kind = m[m[DIMS] + 2 * d + 1]
    x = at // stride % n
    y = to // stride % n
    link = m[m[LINK_BASES] + d]
    line = at - x * stride
    m[e + 7] = 0
    if m[e + 6] != d + 1:
        m[e + 6] = d + 1
        m[e + 7] = 1
        account(m, at, d, 1, m[e + 1])
    if kind == FULLY_CONNECTED:
        m[e + 4] = line + y * stride
        return link + at * n + y
    if kind == SWITCH:
        m[e + 4] = npus * (1 + d) + line
        return link + at
    if 2 * ((y - x) % n) <= n:
        m[e + 4] = line + (x + 1) % n * stride
        return link + at
    m[e + 4] = line + (x + n - 1) % n * stride
    return link + npus + at


# Single links. Messages take a way of fewest hops; among those, at every device, one whose latencies add up
# to the least; and among equals, in rising order of device numbers, the one numbered destination mod count
# where an odd number of hops is left, destination div count mod count where an even one is. In fat trees of two
# and three levels that is D-mod-K routing, which spreads destinations evenly over the ways up (Zahavi, Fat-tree
# routing and node ordering providing contention free traffic for MPI global collectives, JPDC 72(11), 2012).
# Of several links between two devices it is, in the order they are listed, the one numbered (source +
# destination) mod count. So the way depends on source and destination alone.


def find_routes(m, f, dst):
    """Find out for every device where a message for `dst` goes next: a search from `dst` backwards."""
    g = m[GRAPH]
    distance = m[g + G_DISTANCE]
    queue = m[g + G_QUEUE]
    reach = m[g + G_REACH]
    row = m[g + G_ROWS] + dst * m[g + G_WORDS]
    for v in range(m[g + G_DEVICES]):
        m[distance + v] = -1
    m[distance + dst] = 0
    f[reach + dst] = 0
    m[queue] = dst
    found = 1
    i = 0
    while i < found:
        v = m[queue + i]
        i += 1
        if v != dst:
            entry = best_pair(m, f, g, v, dst)
            per = m[g + G_PER]
            m[row + v // per] |= entry << (m[g + G_BITS] * (v % per))
        for j in range(m[m[g + G_INTO] + v], m[m[g + G_INTO] + v + 1]):
            u = m[m[g + G_SOURCES] + j]
            if m[distance + u] < 0:
                m[distance + u] = m[distance + v] + 1
                m[queue + found] = u
                found += 1
    m[m[g + G_KNOWN] + dst] = 1


def best_pair(m, f, g, v, dst):
    """Return which neighbour of a device comes next, from 1, where those nearer to `dst` are known."""
    left = m[m[g + G_DISTANCE] + v]
    first = m[m[g + G_OUT] + v]
    last = m[m[g + G_OUT] + v + 1]
    count = 0
    best = 0.0
    for turn in range(2):
        pick = dst
        if turn == 1:
            if left % 2 == 0:
                pick //= count
            pick %= count
        for i in range(first, last):
            u = m[m[g + G_PAIRS] + PAIR_WORDS * i]
            if m[m[g + G_DISTANCE] + u] != left - 1:
                continue
            latency = f[m[g + G_LEAST] + i] + f[m[g + G_REACH] + u]
            if turn == 0:
                if count == 0 or latency < best:
                    best = latency
                    count = 0
                if latency == best:
                    count += 1
            elif latency == best:
                if pick == 0:
                    f[m[g + G_REACH] + v] = best
                    return i - first + 1
                pick -= 1
    return 0


def single_link(m, f, at, src, dst):
    """Return the link on the way from `src` to `dst` that leaves device `at`; -1 where there is no way."""
    g = m[GRAPH]
    if m[m[g + G_KNOWN] + dst] == 0:
        find_routes(m, f, dst)
    per = m[g + G_PER]
    bits = m[g + G_BITS]
    entry = m[m[g + G_ROWS] + dst * m[g + G_WORDS] + at // per] >> (bits * (at % per)) & ((1 << bits) - 1)
    if entry == 0:
        m[ERROR] = E_ROUTE
        m[ERROR_RANK] = src
        m[ERROR_PEER] = dst
        return -1
    pair = m[g + G_PAIRS] + PAIR_WORDS * (m[m[g + G_OUT] + at] + entry - 1)
    return m[pair + 1] + (src + dst) % m[pair + 2]


def next_single(m, f, e, at, to):
    """Return the single link towards `to`, and note the device it leads to."""
    link = single_link(m, f, at, m[e + 6], to)
    if link >= 0:
        m[e + 4] = m[m[m[GRAPH] + G_TARGETS] + link]
    return link


def route_delay(m, f, src, dst, size):
    """Return the time of a message over single links without contention.

    The latencies of its way, plus size over the smallest bandwidth on it, truncated once: it is cut through,
    not stored, at every device, as in the dimensions of the congestion-unaware network.
    """
    latency = 0.0
    slowest = 0.0
    at = src
    while at != dst:
        link = single_link(m, f, at, src, dst)
        if link < 0:
            return 0
        rate = f[m[LINK_FLOATS] + 2 * link + 1]
        latency += f[m[LINK_FLOATS] + 2 * link]
        if slowest == 0.0 or rate < slowest:
            slowest = rate
        at = m[m[m[GRAPH] + G_TARGETS] + link]
    return int(latency + size / slowest)


def launch(m, f, c, src, dst, size, time, code):
    """Put a message of channel `c` on the network; `time` is its delay where that is known, else -1."""
    m[c + 7] += 1
    if m[WATCH] != 0:
        code = label(m, code)
    aware = m[AWARE]
    if aware != UNAWARE:
        e = alloc(m)
        m[e + 1] = size
        m[e + 2] = c
        m[e + 3] = code
        m[e + 5] = dst
        if aware == ONE_DIMENSION:
            wire = size / f[F_HEADER + 1]
            m[e + 6] = int(wire)
            m[e + 7] = int(f[F_HEADER] + wire)
            account(m, src, 0, 1, size)
            if m[PEERS] != 0 and m[m[DIMS] + 1] == SWITCH:
                # The link behind the switch is that of the rank which stands for the receiver.
                dst = m[m[RANKS] + RANK_WORDS * m[m[PEERS] + dst] + R_NUMBER]
                m[e + 5] = dst
        elif aware == PRODUCT:
            m[e + 6] = 0
        else:
            m[e + 6] = src
            account(m, src, dimension(m, src, dst), 1, size)
        enter_link(m, f, e, src, dst)
        return
    if time < 0:
        time = delay(m, f, src, dst, size, 1)
    push(m, m[NOW] + time, ARRIVE | c << WHAT, code)


def send(m, f, tag, pair, src, dst, size, code):
    """Send a message; `code` says what its arrival means to the sender."""
    if src == dst:
        m[ERROR] = E_SELF
        m[ERROR_RANK] = src
        return
    if m[RENDEZVOUS] == 0:
        launch(m, f, channel(m, tag, pair, size), src, dst, size, -1, code)
        return
    r = alloc(m)
    m[r + 1] = tag
    m[r + 2] = src
    m[r + 3] = dst
    m[r + 4] = size & 0xFFFFFFFF
    m[r + 5] = code
    m[r + 6] = pair
    # Control messages bear the name of the message they are about; their tags are their own.
    post(m, channel(m, tag + CONTROL_TAG, pair, CONTROL_BYTES), r * 8 + W_SEND)


def receive(m, f, tag, pair, src, dst, size, w):
    """Post a receive; `w` is what waits for the message."""
    if src == dst:
        m[ERROR] = E_SELF
        m[ERROR_RANK] = src
        return
    if m[RENDEZVOUS] == 0:
        post(m, channel(m, tag, pair, size), w)
        return
    r = alloc(m)
    m[r + 1] = tag
    m[r + 2] = src
    m[r + 3] = dst
    m[r + 4] = size & 0xFFFFFFFF
    m[r + 5] = w
    m[r + 6] = pair
    c = channel(m, tag + CONTROL_TAG, pair, CONTROL_BYTES)
    launch(m, f, c, dst, src, CONTROL_BYTES, -1, r * 8 + W_RECV)


# ---------------------------------------------------------------------------------------------------
# The shared bus: two chained LogGP channels per rank in place of the endpoint delay. The outer pair joins NPU
# and memory; whatever passes its NPU end also passes the inner pair attached there.


def wait_on_bus(m, f, s, size, red, plain, back):
    """Let a packet wait at its rank; `red` is one more than the time of its reduction, 0 for none."""
    if m[BUS] == 0 or m[m[s + S_PHASE] + PH_LOCAL] != 0:
        if red > 0:
            later(m, m[s + S_RANK], m[s + S_DELAY], A_BUS, s, red - 1)
        else:
            later(m, m[s + S_RANK], m[s + S_DELAY], A_FREE, s, 0)
        return
    r = alloc(m)
    m[r + Q_SIZE] = size
    m[r + Q_REDUCE] = 0
    m[r + Q_RED] = red
    if red > 0:
        m[r + Q_REDUCE] = 1
    m[r + Q_BACK] = 0
    if back:
        m[r + Q_BACK] = 1
    m[r + Q_WHAT] = Q_PACKET
    m[r + Q_OF] = s
    end = m[m[s + S_RANK] + R_BUS]
    if plain:
        through_inner(m, f, end, r, Q_SEND, 0, INNER_MEMORY)
    else:
        queue_send(m, f, end + BUS_WORDS * OUTER_MEMORY, r)


def partner_of(m, end):
    """Return the other end of a channel."""
    if m[end + B_SIDE] & 1:
        return end - BUS_WORDS
    return end + BUS_WORDS


def through_inner(m, f, end, r, what, back, side):
    """Move a request of the outer NPU end through the inner pair; `what` is done with it then."""
    i = alloc(m)
    m[i + Q_SIZE] = m[r + Q_SIZE]
    m[i + Q_REDUCE] = 0
    m[i + Q_BACK] = back
    m[i + Q_WHAT] = what
    m[i + Q_OF] = r
    queue_send(m, f, end + BUS_WORDS * (side - m[end + B_SIDE]), i)


def queue_send(m, f, end, r):
    """Queue a request for sending."""
    queue_back(m, end, r)
    send_next(m, f, end)


def send_next(m, f, end):
    """Send what waits if the end is idle; after more than 8 sends in a row it gives way to its partner."""
    if m[end + B_STATE] != IDLE or m[end + B_SENDS] == 0:
        return
    other = partner_of(m, end)
    if m[end + B_COUNT] > TURN and m[other + B_SENDS] != 0 and m[other + B_COUNT] <= TURN:
        if m[other + B_STATE] != IDLE:
            return
        end = other
        other = partner_of(m, end)
    now = m[NOW]
    offset = m[BUS_O]
    since = now - m[end + B_LAST]
    if m[end + B_BEFORE] == SENDING and m[BUS_O] + since <= m[BUS_GAP]:
        offset = m[BUS_GAP] - since
    r = m[end + B_SENDS]
    m[end + B_SENDS] = m[r]
    gap = f[BUS_G]
    if m[end + B_SIDE] >= INNER_NPU:
        gap = f[BUS_INNER_G]
    wire = gap * (m[r + Q_SIZE] - 1)
    m[r] = 0
    if m[other + B_GETS] == 0:
        m[other + B_GETS] = r
    else:
        m[m[other + B_GETS_END]] = r
    m[other + B_GETS_END] = r
    m[other + B_PENDING] += 1
    m[other + B_BEFORE] = m[other + B_STATE]
    m[other + B_STATE] = RECEIVING
    m[other + B_COUNT] = 0
    rank = m[end + B_RANK]
    later(m, rank, int(offset + wire + m[BUS_L] + m[BUS_O]), A_GOT, other, 0)
    m[end + B_STATE] = SENDING
    later(m, rank, int(offset + wire), A_SENT, end, 0)


def bus_sent(m, f, end):
    """An end has sent."""
    m[end + B_LAST] = m[NOW]
    m[end + B_BEFORE] = m[end + B_STATE]
    m[end + B_STATE] = IDLE
    m[end + B_COUNT] += 1
    send_next(m, f, end)


def start_work(m, end):
    """Start the next reduction of an end if none is under way."""
    if m[end + B_WORKING] == 0 and m[end + B_WORK] != 0:
        m[end + B_WORKING] = 1
        time = m[m[end + B_WORK] + Q_SIZE] // 100 * m[BUS_REDUCE] + 50
        later(m, m[end + B_RANK], time, A_REDUCED, end, 0)


def queue_work(m, end, r):
    """Queue a request for reduction."""
    m[r] = 0
    if m[end + B_WORK] == 0:
        m[end + B_WORK] = r
    else:
        m[m[end + B_WORK_END]] = r
    m[end + B_WORK_END] = r
    start_work(m, end)


def deliver(m, f, r):
    """A request has come to its end: let the packet go on, or the request of the outer pair it stands for."""
    what = m[r + Q_WHAT]
    of = m[r + Q_OF]
    red = m[r + Q_RED]
    release(m, r)
    if what == Q_RETIRE:
        red = m[of + Q_RED]
        r = of
        of = m[r + Q_OF]
        release(m, r)
        what = Q_PACKET
    if what == Q_PACKET:
        if red > 0:
            later(m, m[of + S_RANK], red - 1, A_FREE, of, 0)
        elif packet_free(m, f, of):
            end_phase(m, f, of)
        return
    s = of
    while m[s + Q_WHAT] != Q_PACKET:
        s = m[s + Q_OF]
    end = m[m[m[s + Q_OF] + S_RANK] + R_BUS]
    if what == Q_WORK:
        queue_work(m, end, of)
        send_next(m, f, end)
    else:
        queue_send(m, f, end, of)


def pass_on(m, f, end, r):
    """After reception or reduction: send a request back, or deliver it."""
    outer = m[end + B_SIDE] == OUTER_NPU
    if m[r + Q_BACK] != 0:
        m[r + Q_BACK] = 0
        if outer:
            through_inner(m, f, end, r, Q_SEND, 1, INNER_NPU)
        else:
            queue_back(m, end, r)
    elif outer:
        through_inner(m, f, end, r, Q_RETIRE, 0, INNER_NPU)
    else:
        deliver(m, f, r)


def queue_back(m, end, r):
    """Queue a request for sending; the caller sees to the sending."""
    m[r] = 0
    if m[end + B_SENDS] == 0:
        m[end + B_SENDS] = r
    else:
        m[m[end + B_SENDS_END]] = r
    m[end + B_SENDS_END] = r


def bus_got(m, f, end):
    """An end has received: reduce, send back or deliver what came."""
    m[end + B_LAST] = m[NOW]
    m[end + B_BEFORE] = m[end + B_STATE]
    if m[end + B_PENDING] < 2:
        m[end + B_STATE] = IDLE
    r = m[end + B_GETS]
    m[end + B_GETS] = m[r]
    m[end + B_PENDING] -= 1
    if m[r + Q_REDUCE] != 0:
        m[r + Q_REDUCE] = 0
        if m[end + B_SIDE] == OUTER_NPU:
            through_inner(m, f, end, r, Q_WORK, 1, INNER_NPU)
        else:
            queue_work(m, end, r)
    else:
        pass_on(m, f, end, r)
    send_next(m, f, end)


def bus_reduced(m, f, end):
    """A reduction has ended."""
    r = m[end + B_WORK]
    m[end + B_WORK] = m[r]
    m[end + B_WORKING] = 0
    pass_on(m, f, end, r)
    start_work(m, end)
    send_next(m, f, end)


# ---------------------------------------------------------------------------------------------------
# Phases of streams


def peer(m, s, index):
    """Return the rank at a place of the stream's current dimension or group."""
    stride = m[s + S_STRIDE]
    if stride > 0:
        return m[s + S_BASE] + index * stride
    return m[m[s + S_BASE] + index]


def named(m, s, a, b, far):
    """Return what names a message from place `a` to place `b` of a stream's dimension or group, `far` apart.

    Where one rank stands for many: the classes of both (in a group with the number that each has for the group),
    the kind of neighbourhood, and how far they are apart.
    """
    codes = m[s + S_CODES]
    if codes == 0:
        return (peer(m, s, a) << 20) | peer(m, s, b)
    if m[s + S_STRIDE] > 0:
        a = peer(m, s, a)
        b = peer(m, s, b)
    return (m[m[s + S_PHASE] + PH_NAME] << 60) | (far << 40) | (m[codes + a] << 20) | m[codes + b]


def reduction(f, size):
    """Return the time of reducing a message: two reads and a write of local memory, each truncated."""
    if f[LOCAL_MEMORY] == 0:
        return 0
    return 3 * int(size / f[LOCAL_MEMORY] * 1e9)


def insert_packet(m, f, s):
    """Let the next packet of a stream wait at its rank."""
    pos = m[s + S_POS]
    red = 0
    plain = m[s + S_PLAIN]
    if pos >= plain:
        red = m[s + S_RED]
    if m[BUS] != 0:
        back = pos >= plain and pos < m[s + S_CYCLE] - plain
        wait_on_bus(m, f, s, m[s + S_MESSAGE], red, pos < plain, back)
    elif red > 0:
        later(m, m[s + S_RANK], m[s + S_DELAY], A_BUS, s, red - 1)
    else:
        later(m, m[s + S_RANK], m[s + S_DELAY], A_FREE, s, 0)
    pos += 1
    if pos == m[s + S_CYCLE]:
        pos = 0
        m[s + S_RED] = m[s + S_TOGGLE] - m[s + S_RED]
    m[s + S_POS] = pos


def insert_halving(m, f, s):
    """The same for halving-doubling: note distance and size, then step on to the next ones."""
    o = m[s + S_O]
    size = m[s + S_MESSAGE]
    m[s + S_PO] = o
    m[s + S_PM] = size
    pos = m[s + S_POS]
    red = 0
    if pos >= 1 and m[s + S_RED] != 0:
        red = reduction(f, size) + 1
    wait_on_bus(m, f, s, size, red, pos == 0, pos >= 1 and pos < m[s + S_CYCLE] - 1)
    pos += 1
    if pos == m[s + S_CYCLE]:
        pos = 0
        m[s + S_RED] = m[s + S_TOGGLE] - m[s + S_RED]
    m[s + S_POS] = pos
    if m[s + S_DIR] > 0:
        o *= 2
        size //= 2
        if o == m[s + S_N] and m[s + S_BARRIER] != 0:
            o //= 2
            size *= 2
            m[s + S_DIR] = -1
    else:
        o //= 2
        size *= 2
    m[s + S_O] = o
    m[s + S_MESSAGE] = size


def start_tree(m, f, s, n, tree):
    """Find a rank's place in one of the two trees, and take its first step."""
    v = m[s + S_ME]
    top = 0
    if tree == 0:
        v += 1
        top = n
    me = m[m[s + S_RANK] + R_NUMBER]
    tag = m[s + S_TAG]
    x = m[s + S_X]
    shift = 1 - tree
    w = s * 8 + W_STREAM
    if v == top:
        m[s + S_COUNT] = 2
        m[s + S_A] = peer(m, s, n // 2 - shift)
        receive(m, f, tag, (m[s + S_A] << 20) | me, m[s + S_A], me, x, w)
        return
    b = v & -v
    up = (v - b) | (2 * b)
    if up == n:
        up = top
    m[s + S_C] = peer(m, s, up - shift)
    if b == 1:
        m[s + S_COUNT] = 0
        wait_on_bus(m, f, s, x, 0, True, False)
        return
    m[s + S_COUNT] = 1
    m[s + S_A] = peer(m, s, v - b // 2 - shift)
    m[s + S_B] = peer(m, s, v + b // 2 - shift)
    receive(m, f, tag, (m[s + S_A] << 20) | me, m[s + S_A], me, x, w)
    receive(m, f, tag, (m[s + S_B] << 20) | me, m[s + S_B], me, x, w)


def start_halving(m, f, s, n, kind):
    """Set up halving-doubling: distance and size of the first packet."""
    x = m[s + S_X]
    rounds = 0
    while (1 << rounds) < n:
        rounds += 1
    m[s + S_LEFT] = rounds
    m[s + S_BARRIER] = 0
    m[s + S_DIR] = 1
    m[s + S_O] = 1
    m[s + S_MESSAGE] = x // 2
    # Whether packets of this cycle reduce, and what the flag of two cycles adds up to.
    m[s + S_RED] = 0
    m[s + S_TOGGLE] = 0
    if kind == ALL_REDUCE:
        m[s + S_LEFT] = 2 * rounds
        m[s + S_BARRIER] = 1
        m[s + S_RED] = 1
        m[s + S_TOGGLE] = 1
    elif kind == ALL_GATHER:
        m[s + S_DIR] = -1
        m[s + S_O] = n // 2
        m[s + S_MESSAGE] = x
    else:
        m[s + S_RED] = 1
        m[s + S_TOGGLE] = 2
    m[s + S_CYCLE] = rounds
    insert_halving(m, f, s)


def start_ring(m, f, s, ph, n, kind):
    """Set up the ring or the direct algorithm, and insert the first packets."""
    x = m[s + S_X]
    direct = m[ph + PH_ALGORITHM] == DIRECT
    size = x
    if kind != ALL_GATHER:
        size = x // n
    m[s + S_MESSAGE] = size
    left = n - 1
    # One more than the time, so that 0 says "no reduction".
    red = reduction(f, size) + 1
    m[s + S_RED] = 0
    m[s + S_TOGGLE] = 0
    m[s + S_BARRIER] = -1
    if kind == ALL_REDUCE:
        left = 2 * (n - 1)
        m[s + S_RED] = red
        m[s + S_TOGGLE] = red
        if direct:
            m[s + S_BARRIER] = n - 1
    elif kind == REDUCE_SCATTER:
        m[s + S_RED] = red
        m[s + S_TOGGLE] = 2 * red
    elif kind == ALL_TO_ALL and not direct:
        left = n * (n - 1) // 2
    m[s + S_LEFT] = left
    p = 1
    if direct:
        p = n - 1
        if m[ph + PH_WINDOW] > 0 and m[ph + PH_WINDOW] < p:
            p = m[ph + PH_WINDOW]
    m[s + S_PLAIN] = p
    m[s + S_CYCLE] = n
    if direct:
        m[s + S_CYCLE] = 2 * p
        if m[ph + PH_LOCAL] != 0:
            m[s + S_CYCLE] = n * p
    m[s + S_USED] = 0
    m[s + S_HELD] = 0
    m[s + S_HOP] = -1
    if m[ph + PH_FIXED] >= 0 and m[AWARE] == 0 and m[RENDEZVOUS] == 0:
        # Neighbours in one dimension, or no ring: every message of the phase takes the same time.
        hops = 1
        d = m[ph + PH_FIXED]
        kind = m[m[DIMS] + 2 * d + 1]
        if kind == SWITCH:
            hops = 2
        if kind != RING_DIM or not direct:
            m[s + S_HOP] = crossing(m, f, d, hops, size)
            account(m, m[m[s + S_RANK] + R_NUMBER], d, left, size)
    if not direct:
        me = m[s + S_ME]
        after = me + m[s + S_DIR]
        before = me - m[s + S_DIR]
        if after == n:
            after = 0
        if after < 0:
            after = n - 1
        if before == n:
            before = 0
        if before < 0:
            before = n - 1
        number = m[m[s + S_RANK] + R_NUMBER]
        m[s + S_A] = peer(m, s, after)
        m[s + S_B] = peer(m, s, before)
        if m[RENDEZVOUS] == 0:
            far = m[s + S_DIR] % n
            c = channel(m, m[s + S_TAG], named(m, s, me, after, far), size)
            m[c + 7] += 1
            m[s + S_SEND] = c
            c = channel(m, m[s + S_TAG], named(m, s, before, me, far), size)
            m[c + 7] += 1
            m[s + S_RECV] = c
            if m[s + S_HOP] < 0 and m[AWARE] == 0:
                m[s + S_HOP] = delay(m, f, number, m[s + S_A], size, left)
            if m[BUS] == 0:
                # From here on the ring keeps its own, shorter books. The first packet does not reduce, the
                # n - 1 after it do where messages are reduced at all; and with one packet at a time, one
                # that comes free is sent at once, so the phase ends with the first for which no message is
                # left. The pieces of the general way add up to the same.
                g = alloc(m)
                m[g + P_STREAM] = s
                m[g + P_RANK] = m[s + S_RANK]
                m[g + P_LEFT] = left << REDUCING
                if m[s + S_RED] != 0:
                    m[g + P_LEFT] += n - 1
                m[g + P_RED] = red - 1
                m[g + P_DELAY] = m[s + S_DELAY]
                m[g + P_SEND] = m[s + S_SEND]
                m[g + P_RECV] = m[s + S_RECV]
                m[g + P_HOP] = m[s + S_HOP]
                later(m, m[s + S_RANK], m[s + S_DELAY], A_RING, g, 0)
                return
    for _ in range(p):
        insert_packet(m, f, s)


def issue_custom(m, f, s, pos):
    """Issue a node of a collective given as a trace: no slots, no endpoint or reduction delay."""
    table = m[s + S_C]
    node = m[table + C_NODES] + NODE_WORDS * pos
    kind = m[node + N_KIND]
    rank = m[s + S_RANK]
    if kind == K_DELAY:
        later(m, rank, m[node + N_DURATION], A_CUSTOM, s, pos)
        return
    me = m[rank + R_NUMBER]
    other = m[m[table + C_SLOTS] + m[node + N_PEER]]
    code = ((s << 20) | pos) * 8 + W_CUSTOM
    if kind == K_SEND:
        send(m, f, m[node + N_TAG], (me << 20) | other, me, other, m[node + N_SIZE], code)
    else:
        receive(m, f, m[node + N_TAG], (other << 20) | me, other, me, m[node + N_SIZE], code)


def start_custom(m, f, s, ph):
    """Play the trace of a rank's place in the group from its nodes that wait for nothing."""
    place = m[s + S_ME]
    if m[ph + PH_N] == 0:
        place = m[m[s + S_MEMBER] + 3]
    table = m[ph + PH_TABLE] + 8 * place
    m[s + S_C] = table
    count = m[table + C_COUNT]
    pend = m[TOP]
    m[TOP] = pend + (count + 7) // 8 * 8
    m[s + S_A] = pend
    m[s + S_LEFT] = count
    for pos in range(count):
        m[pend + pos] = m[m[table + C_PARENTS] + pos]
    for pos in range(count):
        if m[m[table + C_PARENTS] + pos] == 0:
            issue_custom(m, f, s, pos)


def custom_done(m, f, s, pos):
    """A node of a collective given as a trace completes; returns whether it was the last one."""
    node = m[m[s + S_C] + C_NODES] + NODE_WORDS * pos
    pend = m[s + S_A]
    at = m[node + N_CHILDREN]
    for i in range(at, at + m[node + N_CHILD_COUNT]):
        child = m[i]
        m[pend + child] -= 1
        if m[pend + child] == 0:
            issue_custom(m, f, s, child)
    m[s + S_LEFT] -= 1
    return m[s + S_LEFT] == 0


def start_program(m, f, s, ph, flags):
    """Start what a rank does in a phase according to a program, see `studio.sim.programs`."""
    at = m[s + S_ME]
    if m[ph + PH_N] != 0:
        at = m[m[s + S_RANK] + R_NUMBER]
    op = m[m[m[ph + PH_TABLE] + (flags & 3)] + at]
    m[s + S_A] = op
    m[s + S_B] = 0
    m[s + S_MESSAGE] = m[s + S_X]
    if m[op] == OP_STEP:
        m[s + S_A] = op + OP_WORDS
        m[s + S_COUNT] = 1
        wait_on_bus(m, f, s, 0, 0, True, False)
    else:
        next_step(m, f, s)


def next_step(m, f, s):
    """Send and post the messages of the next step of a program; returns whether that ends the phase.

    A step is over when its messages have come, and waited as packets do; those of the rank's own that it
    waits for, at their destination.
    """
    op = m[s + S_A]
    if m[op] == OP_END:
        return True
    tag = m[s + S_TAG]
    here = m[s + S_ME]
    n = m[s + S_N]
    me = m[m[s + S_RANK] + R_NUMBER]
    m[s + S_FREE] = 0
    count = 0
    m[s + S_R] = 0
    while m[op] < OP_STEP:
        size = m[s + S_X] // m[op + 2] * m[op + 3]
        there = m[op + 1]
        other = peer(m, s, there)
        m[s + S_MESSAGE] = size
        what = m[op]
        op += OP_WORDS
        if what == OP_SEND:
            send(m, f, tag, named(m, s, here, there, (there - here) % n), me, other, size, 0)
            continue
        count += 1
        if what == OP_SEND_WAIT:
            send(m, f, tag, named(m, s, here, there, (there - here) % n), me, other, size, s * 8 + W_SENT)
            continue
        if what == OP_REDUCE:
            m[s + S_R] = reduction(f, size) + 1
        receive(m, f, tag, named(m, s, there, here, (here - there) % n), other, me, size, s * 8 + W_STREAM)
    m[s + S_COUNT] = count
    m[s + S_B] += 1
    if m[s + S_B] < m[op + 1]:
        op -= m[op + 2]
    else:
        m[s + S_B] = 0
        op += OP_WORDS
    m[s + S_A] = op
    return m[op] == OP_END and count == 0


def start_phase(m, f, s):
    """Start the current phase of a stream."""
    ph = m[s + S_PHASE]
    rank = m[s + S_RANK]
    n = m[ph + PH_N]
    stride = m[ph + PH_STRIDE]
    number = m[rank + R_NUMBER]
    if n == 0:
        member = m[s + S_MEMBER]
        group = m[member]
        n = m[group]
        m[s + S_ME] = m[member + 1]
        m[s + S_BASE] = m[group + 1]
    else:
        me = number // stride % n
        m[s + S_ME] = me
        m[s + S_BASE] = number - me * stride
    m[s + S_N] = n
    m[s + S_STRIDE] = stride
    m[s + S_DELAY] = m[ENDPOINT]
    if m[ph + PH_LOCAL] != 0:
        m[s + S_DELAY] = GROUP_DELAY
    flags = m[s + S_PHASES + m[s + S_INDEX]]
    m[s + S_DIR] = 1
    if flags & 1:
        m[s + S_DIR] = -1
    algorithm = m[ph + PH_ALGORITHM]
    m[s + S_ALGORITHM] = algorithm
    m[s + S_FREE] = 0
    m[s + S_POS] = 0
    m[s + S_RECEIVED] = 0
    m[s + S_SEND] = 0
    m[s + S_POSTED] = -1
    m[s + S_CROSSED] = 0
    m[s + S_WAITED] = 0
    kind = m[ph + PH_TYPE]
    if algorithm <= DIRECT:
        start_ring(m, f, s, ph, n, kind)
    elif algorithm == HALVING:
        start_halving(m, f, s, n, kind)
    elif algorithm == TREE:
        m[s + S_R] = reduction(f, m[s + S_X])
        start_tree(m, f, s, n, (flags >> 1) & 1)
    elif algorithm == PROGRAM:
        start_program(m, f, s, ph, flags)
    else:
        start_custom(m, f, s, ph)


def stream_received(m, f, s):
    """A message for a stream's current phase has come."""
    algorithm = m[s + S_ALGORITHM]
    if algorithm <= DIRECT:
        m[s + S_RECEIVED] += 1
        if m[WATCH] != 0:
            watch_barrier(m, s)
        insert_packet(m, f, s)
    elif algorithm == HALVING:
        insert_halving(m, f, s)
    elif algorithm == PROGRAM:
        wait_on_bus(m, f, s, m[s + S_MESSAGE], m[s + S_R], False, False)
    else:
        m[s + S_RECEIVED] += 1
        red = 0
        back = False
        if m[s + S_COUNT] > 0:
            red = m[s + S_R] + 1
            back = m[s + S_COUNT] == 2 or m[s + S_RECEIVED] > 1
        wait_on_bus(m, f, s, m[s + S_X], red, False, back)


def ring_received(m, g):
    """A message for a ring has come: let the next packet wait at its rank."""
    left = m[g + P_LEFT]
    if left & ((1 << REDUCING) - 1) != 0:
        m[g + P_LEFT] = left - 1
        later(m, m[g + P_RANK], m[g + P_DELAY], A_WAIT, g, m[g + P_RED])
    else:
        later(m, m[g + P_RANK], m[g + P_DELAY], A_RING, g, 0)


def ring_free(m, f, g):
    """A packet of a ring has done its waits: send its message and post its receive, or end the phase."""
    left = m[g + P_LEFT]
    if left >> REDUCING == 0:
        s = m[g + P_STREAM]
        release(m, g)
        end_phase(m, f, s)
        return
    m[g + P_LEFT] = left - (1 << REDUCING)
    c = m[g + P_SEND]
    hop = m[g + P_HOP]
    if hop >= 0:
        # Most messages of most simulations go this way: nothing but the channel and the time is needed.
        m[c + 7] += 1
        y = 0
        if m[WATCH] != 0:
            y = label(m, 0)
        push(m, m[NOW] + hop, ARRIVE | c << WHAT, y)
    else:
        s = m[g + P_STREAM]
        launch(m, f, c, m[m[g + P_RANK] + R_NUMBER], m[s + S_A], m[s + S_MESSAGE], -1, 0)
    post(m, m[g + P_RECV], g * 8 + W_RING)


def send_ring(m, f, s):
    """Send the message of a ring's free packet and post its receive, where the ring keeps no short books."""
    c = m[s + S_SEND]
    rank = m[m[s + S_RANK] + R_NUMBER]
    size = m[s + S_MESSAGE]
    if c != 0:
        launch(m, f, c, rank, m[s + S_A], size, m[s + S_HOP], 0)
        post(m, m[s + S_RECV], s * 8 + W_STREAM)
        return
    me = m[s + S_ME]
    n = m[s + S_N]
    step = m[s + S_DIR]
    pair = named(m, s, me, (me + step) % n, step % n)
    send(m, f, m[s + S_TAG], pair, rank, m[s + S_A], size, 0)
    pair = named(m, s, (me - step) % n, me, step % n)
    receive(m, f, m[s + S_TAG], pair, m[s + S_B], rank, size, s * 8 + W_STREAM)


def send_direct(m, f, s):
    """Send the message of a direct packet and post its receive; peers move on one place per packet."""
    rank = m[m[s + S_RANK] + R_NUMBER]
    size = m[s + S_MESSAGE]
    n = m[s + S_N]
    used = m[s + S_USED] + 1
    step = used * m[s + S_DIR]
    after = m[s + S_ME] + step
    before = m[s + S_ME] - step
    if after >= n:
        after -= n
    if after < 0:
        after += n
    if before >= n:
        before -= n
    if before < 0:
        before += n
    if used == n - 1:
        used = 0
    m[s + S_USED] = used
    to = peer(m, s, after)
    tag = m[s + S_TAG]
    me = m[s + S_ME]
    pair = named(m, s, me, after, step % n)
    if m[RENDEZVOUS] == 0:
        launch(m, f, channel(m, tag, pair, size), rank, to, size, m[s + S_HOP], 0)
    else:
        send(m, f, tag, pair, rank, to, size, 0)
    pair = named(m, s, before, me, step % n)
    receive(m, f, tag, pair, peer(m, s, before), rank, size, s * 8 + W_STREAM)


def watch_barrier(m, s):
    """A message for the direct algorithm has come; with several under way they are told apart by no one."""
    if m[s + S_PLAIN] > 1:
        fresh(m)
    if m[s + S_RECEIVED] == m[s + S_BARRIER]:
        check_order(m, m[s + S_RANK], s + S_WAITED)
        m[s + S_CROSSED] = m[STAMP]


def watch_packet(m, s):
    """A packet of the direct algorithm is free; with several under way they are told apart by no one."""
    if m[s + S_PLAIN] > 1:
        fresh(m)
    if m[s + S_LEFT] <= m[s + S_BARRIER]:
        if m[s + S_RECEIVED] < m[s + S_BARRIER]:
            m[s + S_WAITED] = m[STAMP]
        else:
            check_order(m, m[s + S_RANK], s + S_CROSSED)


def packet_free(m, f, s):
    """A packet of a stream has done its waits; returns whether that ends the phase."""
    algorithm = m[s + S_ALGORITHM]
    if algorithm <= DIRECT:
        if m[WATCH] != 0:
            watch_packet(m, s)
        free = m[s + S_FREE] + 1
        left = m[s + S_LEFT]
        tries = 1
        if left <= m[s + S_BARRIER]:
            # Where packets are held to the end of the tick, those that come free after them wait with them.
            if m[s + S_RECEIVED] < m[s + S_BARRIER] or (m[SYMMETRIC] != 0 and m[s + S_HELD] != 0):
                m[s + S_FREE] = free
                if m[SYMMETRIC] != 0:
                    hold_packet(m, s)
                return False
            tries = m[s + S_PLAIN]
        while tries > 0 and left > 0 and free > 0:
            if algorithm == RING:
                send_ring(m, f, s)
            else:
                send_direct(m, f, s)
            left -= 1
            free -= 1
            tries -= 1
        m[s + S_FREE] = free
        m[s + S_LEFT] = left
        return left == 0 and free == m[s + S_PLAIN]
    tag = m[s + S_TAG]
    me = m[m[s + S_RANK] + R_NUMBER]
    w = s * 8 + W_STREAM
    if algorithm == HALVING:
        if m[s + S_LEFT] == 0:
            return True
        m[s + S_LEFT] -= 1
        o = m[s + S_PO]
        here = m[s + S_ME]
        at = here + o
        if o != 0 and here // o % 2 != 0:
            at = here - o
        to = peer(m, s, at)
        size = m[s + S_PM]
        send(m, f, tag, named(m, s, here, at, o), me, to, size, 0)
        receive(m, f, tag, named(m, s, at, here, o), to, me, size, w)
        return False
    free = m[s + S_FREE] + 1
    m[s + S_FREE] = free
    if algorithm == PROGRAM:
        return free == m[s + S_COUNT] and next_step(m, f, s)
    x = m[s + S_X]
    role = m[s + S_COUNT]
    if role == 2:
        send(m, f, tag, (me << 20) | m[s + S_A], me, m[s + S_A], x, 0)
        return True
    if role == 0:
        if free == 2:
            return True
        send(m, f, tag, (me << 20) | m[s + S_C], me, m[s + S_C], x, 0)
        receive(m, f, tag, (m[s + S_C] << 20) | me, m[s + S_C], me, x, w)
        return False
    if free == 2:
        send(m, f, tag, (me << 20) | m[s + S_C], me, m[s + S_C], x, 0)
        receive(m, f, tag, (m[s + S_C] << 20) | me, m[s + S_C], me, x, w)
    if free == 3:
        send(m, f, tag, (me << 20) | m[s + S_A], me, m[s + S_A], x, 0)
        send(m, f, tag, (me << 20) | m[s + S_B], me, m[s + S_B], x, 0)
        return True
    return False


# Queues: running phases, first and last waiting stream, next of the queues put off to the end of the tick.


def ahead(m, a, s):
    """Return whether waiting stream `a` stays ahead of one that joins its queue.

    Higher priority goes first; with `chunk_order` smallest, then the fewer bytes to send; then who came
    first. With symmetric ties, of those that came in one tick the lower stream number.
    """
    d = m[a + S_PRIORITY] - m[s + S_PRIORITY]
    if d != 0:
        return d > 0
    if m[SMALLEST] != 0:
        d = m[s + S_BYTES] - m[a + S_BYTES]
        if d != 0:
            return d > 0
    return m[SYMMETRIC] == 0 or m[a + S_CAME] < m[s + S_CAME] or m[a + S_TAG] < m[s + S_TAG]


def enqueue(m, q, s):
    """Let a stream wait in a queue, behind those that stay ahead."""
    m[s + S_QUEUE] = q
    if m[EXTENDED] != 0:
        m[s + S_CAME] = m[NOW]
        m[s + S_BYTES] = m[s + S_X]
        ph = m[s + S_PHASE]
        if m[ph + PH_TYPE] == ALL_REDUCE:
            m[s + S_BYTES] = 2 * m[s + S_X]
        elif m[ph + PH_SCALE] == GROW_BY:
            m[s + S_BYTES] = m[s + S_X] * m[ph + PH_N]
    tail = m[q + 2]
    if m[q + 1] == 0:
        m[s] = 0
        m[q + 1] = s
        m[q + 2] = s
        return
    if ahead(m, tail, s):
        m[s] = 0
        m[tail] = s
        m[q + 2] = s
        return
    c = m[q + 1]
    before = 0
    while ahead(m, c, s):
        before = c
        c = m[c]
    m[s] = c
    if before == 0:
        m[q + 1] = s
    else:
        m[before] = s


def start_waiting(m, f, rank, q):
    """Start waiting streams of a queue while fewer than allowed run; with symmetric ties, at the end of the tick."""
    if m[SYMMETRIC] == 0:
        start_streams(m, f, q)
    elif m[q + 3] == 0:
        at = touch(m, rank) + X_QUEUES
        while m[at] > 0 and m[at] < q:
            at = m[at] + 3
        # Not 0, so that the last one is known to be there.
        m[q + 3] = m[at] if m[at] != 0 else -1
        m[at] = q


def start_streams(m, f, q):
    """Start waiting streams of a queue while fewer than allowed run."""
    while m[q] < m[ACTIVE] and m[q + 1] != 0:
        s = m[q + 1]
        m[q + 1] = m[s]
        m[q] += 1
        start_phase(m, f, s)


def assign_queue(m, rank, member, ph):
    """Take the next queue of a phase's dimension; returns queue * 4 + tree bit * 2 + direction bit."""
    q = m[QUEUES]
    d = m[ph + PH_DIM]
    role = m[ph + PH_ROLE]
    queues = m[rank + R_QUEUES]
    pointers = m[rank + R_POINTERS]
    trees = m[rank + R_TREES]
    if member != 0 and m[OWN_QUEUES] != 0:
        queues = m[member + M_QUEUES]
        pointers = m[member + M_POINTERS]
        trees = m[member + M_TREES]
    low = 0
    high = q
    half = q // 2
    if q > 1:
        if role == UP:
            high = half
        elif role == DOWN:
            low = half
    at = pointers + 3 * d + role
    i = m[at]
    if i < low:
        i = low
    m[at] = i + 1
    if i + 1 >= high:
        m[at] = low
    back = 0
    if role == DOWN or (role == NORMAL and q > 1 and i >= half):
        back = 1
    tree = 0
    if m[ph + PH_TREE] >= 0:
        at = trees + m[ph + PH_TREE]
        tree = m[at]
        m[at] = 1 - tree
    return (queues + 4 * (d * q + i)) * 4 + tree * 2 + back


def issue_collective(m, f, rank, pos, node):
    """Cut a collective into streams and let them wait for their first phases."""
    member = 0
    if m[node + N_GROUP] >= 0:
        member = m[m[rank + R_SLOTS] + m[node + N_GROUP]]
    phases = m[node + N_WORLD]
    if member != 0 and m[m[member]] != m[NPUS]:
        phases = m[node + N_GROUPED]
        if m[EXTENDED] != 0:
            phases = m[m[m[member] + G_PHASES] + phases]
    count = m[node + N_STREAMS]
    if m[phases] == 0 or count == 0:
        # Nothing would ever end such a collective: its node stays in progress.
        return
    priority = m[rank + R_PRIORITY]
    if m[POLICY] == 0:
        m[rank + R_PRIORITY] = priority + 1
    elif m[POLICY] == 1:
        m[rank + R_PRIORITY] = priority - 1
    else:
        priority = m[node + N_PRIORITY]
    coll = alloc(m)
    m[coll + 1] = rank
    m[coll + 2] = pos
    m[coll + 3] = count
    m[coll + 4] = 0
    single = m[phases + 1]
    for i in range(count):
        number = m[rank + R_STREAMS]
        if member == 0 or m[EXTENDED] == 0:
            m[rank + R_STREAMS] = number + 1
        tags = STREAM_TAG
        if m[EXTENDED] != 0 and m[node + N_COLLECTIVE] == UNEVEN:
            tags += UNEVEN_TAG
        if member != 0:
            number = m[member + M_NUMBER]
            m[member + M_NUMBER] = number + 1
            tags += m[member + M_TAGS]
        if single != 0:
            phases = m[single + i]
        s = m[FREE_STREAM]
        if s != 0:
            m[FREE_STREAM] = m[s]
        else:
            s = m[TOP]
            m[TOP] = s + m[STREAM_WORDS]
        m[s + S_RANK] = rank
        m[s + S_X] = m[node + N_SIZE]
        m[s + S_PHASE] = phases + 8
        m[s + S_INDEX] = 0
        m[s + S_COLL] = coll
        m[s + S_TAG] = tags + number % STREAM_TAG
        m[s + S_PRIORITY] = priority
        m[s + S_MEMBER] = member
        m[s + S_CODES] = m[PEERS]
        if member != 0 and m[PEERS] != 0:
            m[s + S_CODES] = m[m[member] + 2]
        for at in range(m[phases]):
            m[s + S_PHASES + at] = assign_queue(m, rank, member, phases + 8 + PHASE_WORDS * at)
        q = m[s + S_PHASES] >> 2
        in_order(m, rank, q + 3)
        enqueue(m, q, s)
        start_waiting(m, f, rank, q)


def end_phase(m, f, s):
    """End a stream's phase: tell the collective, move on to the next phase, let others start."""
    q = m[s + S_QUEUE]
    ph = m[s + S_PHASE]
    c = m[s + S_SEND]
    if c != 0:
        m[c + 7] -= 1
        settle(m, c)
        c = m[s + S_RECV]
        m[c + 7] -= 1
        settle(m, c)
    coll = m[s + S_COLL]
    rank = m[coll + 1]
    in_order(m, rank, q + 3)
    index = m[s + S_INDEX] + 1
    if m[ph + PH_LAST] != 0:
        in_order(m, rank, coll + 4)
        m[coll + 3] -= 1
        if m[coll + 3] == 0:
            pos = m[coll + 2]
            release(m, coll)
            complete(m, f, rank, pos)
        m[s] = m[FREE_STREAM]
        m[FREE_STREAM] = s
        m[q] -= 1
        start_waiting(m, f, rank, q)
        return
    if m[ph + PH_SCALE] == SHRINK:
        m[s + S_X] //= m[s + S_N]
    elif m[ph + PH_SCALE] == GROW_BY:
        m[s + S_X] *= m[s + S_N]
    m[s + S_INDEX] = index
    m[s + S_PHASE] = ph + PHASE_WORDS
    after = m[s + S_PHASES + index] >> 2
    in_order(m, rank, after + 3)
    enqueue(m, after, s)
    m[q] -= 1
    start_waiting(m, f, rank, q)
    start_waiting(m, f, rank, after)


# ---------------------------------------------------------------------------------------------------
# Nodes. Ready nodes of a slot wait in a skew heap by position, which is the order of ids; positions count
# from 1 there, two links per node.


def merge(m, links, a, b):
    """Merge two heaps; returns the root."""
    if a == 0:
        return b
    if b == 0:
        return a
    if b < a:
        a, b = b, a
    root = a
    while True:
        r = m[links + 2 * a + 1]
        m[links + 2 * a + 1] = m[links + 2 * a]
        if r == 0:
            m[links + 2 * a] = b
            return root
        if b < r:
            m[links + 2 * a] = b
            a = b
            b = r
        else:
            m[links + 2 * a] = r
            a = r


def make_ready(m, rank, pos):
    """A node's last parent has completed."""
    m[rank + R_READY] += 1
    links = m[rank + R_LINKS]
    x = pos + 1
    if m[SWEEPING] != 0:
        m[links + 2 * x] = m[PENDING]
        m[PENDING] = x
        return
    m[links + 2 * x] = 0
    m[links + 2 * x + 1] = 0
    heap = rank + R_HEAP + m[m[rank + R_NODES] + NODE_WORDS * pos + N_CLASS]
    m[heap] = merge(m, links, m[heap], x)


def log(m, rank, pos, kind):
    """Record that a node is issued (0) or completes (1)."""
    at = m[LOG]
    m[at] = m[NOW]
    m[at + 1] = (m[rank + R_NUMBER] << 40) + 2 * pos + kind
    m[LOG] = at + 2


def finish_node(m, rank, pos):
    """Record a completion, free the slot, update the children."""
    log(m, rank, pos, 1)
    node = m[rank + R_NODES] + NODE_WORDS * pos
    slot = m[node + N_CLASS]
    if slot < 3:
        m[rank + R_SLOT + slot] = 0
    if slot == 2 and m[SLOTS] > 1:
        m[extended_of(m, rank) + X_USED] -= 1
        if m[node + N_KIND] == K_COLLECTIVE:
            free_turn(m, rank, group_state(m, rank, node), rank + R_HEAP + 2)
    if m[node + N_LANE] != 0:
        at = m[extended_of(m, rank) + X_LANES] + 2 * m[node + N_LANE]
        free_turn(m, rank, at, rank + R_HEAP + slot)
    m[rank + R_BUSY] -= 1
    pend = m[rank + R_PEND]
    at = m[node + N_CHILDREN]
    for i in range(at, at + m[node + N_CHILD_COUNT]):
        child = m[i]
        m[pend + child] -= 1
        if m[pend + child] == 0:
            make_ready(m, rank, child)


def group_state(m, rank, node):
    """Return where it is noted whether a collective of a node's group is under way, and which ones wait for that."""
    if m[node + N_GROUP] >= 0:
        member = m[m[rank + R_SLOTS] + m[node + N_GROUP]]
        if member != 0:
            return member + M_BUSY
    return extended_of(m, rank) + X_BUSY


def waits_for_group(m, rank, x):
    """Let a collective wait if another one of its group is under way; returns whether it waits."""
    node = m[rank + R_NODES] + NODE_WORDS * (x - 1)
    if m[node + N_KIND] != K_COLLECTIVE:
        return False
    return waits_in_turn(m, rank, x, group_state(m, rank, node))


def waits_for_lane(m, rank, x):
    """Let a node wait if another one of its thread or stream is under way; returns whether it waits."""
    lane = m[m[rank + R_NODES] + NODE_WORDS * (x - 1) + N_LANE]
    return lane != 0 and waits_in_turn(m, rank, x, m[extended_of(m, rank) + X_LANES] + 2 * lane)


def waits_in_turn(m, rank, x, at):
    """Take a slot if it is free, else wait for it; returns whether it waits."""
    if m[at] == 0:
        m[at] = 1
        return False
    links = m[rank + R_LINKS]
    m[links + 2 * x] = 0
    m[links + 2 * x + 1] = 0
    m[at + 1] = merge(m, links, m[at + 1], x)
    return True


def free_turn(m, rank, at, heap):
    """A slot is free: the node of lowest id that waits for it is ready again."""
    m[at] = 0
    x = m[at + 1]
    if x != 0:
        links = m[rank + R_LINKS]
        m[at + 1] = merge(m, links, m[links + 2 * x], m[links + 2 * x + 1])
        m[links + 2 * x] = 0
        m[links + 2 * x + 1] = 0
        m[heap] = merge(m, links, m[heap], x)


def issue(m, f, rank, pos):
    """Issue a node: record it, then let it take effect."""
    node = m[rank + R_NODES] + NODE_WORDS * pos
    log(m, rank, pos, 0)
    m[rank + R_BUSY] += 1
    slot = m[node + N_CLASS]
    if slot < 3 and m[node + N_LANE] == 0:
        m[rank + R_SLOT + slot] = 1
    if slot == 2 and m[SLOTS] > 1:
        at = extended_of(m, rank) + X_USED
        m[at] += 1
        if m[at] < m[SLOTS]:
            m[rank + R_SLOT + slot] = 0
    kind = m[node + N_KIND]
    if kind == K_DELAY:
        time = m[m[rank + R_TIMES] + pos]
        if slot == 1 and m[SPEEDS] != 0:
            time = max(int(time / f[m[SPEEDS] + m[rank + R_NUMBER]]), 1)
        later(m, rank, time, A_NODE, 0, pos)
    elif kind >= K_MEET:
        meet(m, rank, pos, node)
    elif kind == K_COLLECTIVE:
        issue_collective(m, f, rank, pos, node)
    elif kind == K_INSTANT:
        finish_node(m, rank, pos)
        m[WOKEN] = m[EXTENDED]
    elif kind == K_MEMORY:
        pool = m[rank + R_MEMORY]
        if pool == 0:
            later(m, rank, m[m[rank + R_TIMES] + pos], A_NODE, 0, pos)
        elif m[pool] == 0:
            m[pool] = 1
            later(m, rank, m[m[rank + R_TIMES] + pos], A_MEMORY, 0, pos)
        else:
            r = alloc(m)
            m[r] = 0
            m[r + 1] = rank
            m[r + 2] = pos
            if m[pool + 1] == 0:
                m[pool + 1] = r
            else:
                m[m[pool + 2]] = r
            m[pool + 2] = r
    else:
        number = m[rank + R_NUMBER]
        other = m[m[rank + R_SLOTS] + m[node + N_PEER]]
        code = ((pos << 20) | ((rank - m[RANKS]) >> RANK_BITS)) * 8 + W_NODE
        # In a folded run the names of messages to and from a peer stand before the slots.
        pairs = m[rank + R_SLOTS] - 2 - 2 * m[node + N_PEER]
        if kind == K_SEND:
            pair = (number << 20) | other
            if m[PEERS] != 0:
                pair = m[pairs]
            send(m, f, m[node + N_TAG], pair, number, other, m[node + N_SIZE], code)
        else:
            pair = (other << 20) | number
            if m[PEERS] != 0:
                pair = m[pairs + 1]
            receive(m, f, m[node + N_TAG], pair, other, number, m[node + N_SIZE], code)


def meet(m, rank, pos, node):
    """A node comes to where it meets those of other ranks; who waits goes on when all have come."""
    at = m[rank + R_MEETINGS] + 2 * m[node + N_PEER]
    v = m[at]
    time = m[at + 1]
    m[v + V_LEFT] -= 1
    if time < 0:
        later(m, rank, -time, A_NODE, 0, pos)
    else:
        r = alloc(m)
        m[r] = 0
        m[r + 1] = rank
        m[r + 2] = pos
        m[r + 3] = time
        if m[v + V_FIRST] == 0:
            m[v + V_FIRST] = r
        else:
            m[m[v + V_LAST]] = r
        m[v + V_LAST] = r
    if m[v + V_LEFT] == 0 and m[v + V_FIRST] != 0:
        push(m, m[NOW] + 1, OVER + (v << WHAT), 0)


def part(m, f, v):
    """All had come to a meeting in the tick before: the first who waits takes its time, the others follow in this tick."""
    r = m[v + V_FIRST]
    m[v + V_FIRST] = m[r]
    if m[r] != 0:
        push(m, m[NOW], OVER + (v << WHAT), 0)
    rank = m[r + 1]
    pos = m[r + 2]
    time = m[r + 3]
    release(m, r)
    if time > 1:
        later(m, rank, time - 1, A_NODE, 0, pos)
    else:
        complete(m, f, rank, pos)


def sweep(m, f, rank):
    """Visit the ready nodes of a rank in ascending id; issue each whose slot is free at that moment."""
    m[SWEEPING] = 1
    while True:
        best = 0
        slot = 0
        for i in range(4):
            root = m[rank + R_HEAP + i]
            if root != 0 and (best == 0 or root < best) and (i == 3 or m[rank + R_SLOT + i] == 0):
                best = root
                slot = i
        if best == 0:
            break
        links = m[rank + R_LINKS]
        m[rank + R_HEAP + slot] = merge(m, links, m[links + 2 * best], m[links + 2 * best + 1])
        if slot == 2 and m[SLOTS] > 1 and waits_for_group(m, rank, best):
            continue
        if m[LANES] != 0 and waits_for_lane(m, rank, best):
            continue
        m[rank + R_READY] -= 1
        issue(m, f, rank, best - 1)
    m[SWEEPING] = 0
    x = m[PENDING]
    m[PENDING] = 0
    while x != 0:
        after = m[m[rank + R_LINKS] + 2 * x]
        m[rank + R_READY] -= 1
        make_ready(m, rank, x - 1)
        x = after


def go_on(m, f, rank):
    """Issue what has become possible, and see whether the rank has finished.

    In the extended mode what waits for a node that takes no time goes on at once: with symmetric ties
    always, else where the rank would stand still otherwise, as it does in the reference.
    """
    m[WOKEN] = 0
    sweep(m, f, rank)
    while m[WOKEN] != 0 and m[rank + R_READY] != 0 and (m[SYMMETRIC] != 0 or m[rank + R_BUSY] == 0):
        m[WOKEN] = 0
        sweep(m, f, rank)
    if m[rank + R_FINISH] < 0 and m[rank + R_READY] == 0 and m[rank + R_BUSY] == 0:
        m[rank + R_FINISH] = m[NOW]
        m[FINISHED] += 1


def complete(m, f, rank, pos):
    """Complete a node, issue what that makes possible, and see whether the rank has finished."""
    if m[SYMMETRIC] == 0:
        in_order(m, rank, m[rank + R_ORDER] + O_LOG)
        finish_node(m, rank, pos)
        go_on(m, f, rank)
        return
    at = touch(m, rank) + X_DONE
    links = m[rank + R_LINKS]
    m[links + 2 * pos + 2] = 0
    m[links + 2 * pos + 3] = 0
    m[at] = merge(m, links, m[at], pos + 1)


# ---------------------------------------------------------------------------------------------------
# Symmetric ties: whatever depends on the order of a rank's events within a tick is put off until all of
# them have run, and then done in an order that depends on nothing but the rank's own state: packets that wait
# for the messages of an all-reduce, completions by node and one sweep, queues. What that schedules for the
# same tick runs then, and the round repeats. So it makes no difference in which order the messages of a tick
# come, and ranks in equal states do the same.


def extended_of(m, rank):
    """Return the extended mode's record of a rank."""
    return m[EXTENDED] + ((rank - m[RANKS]) >> RANK_BITS << 3)


def touch(m, rank):
    """Note that something of a rank is put off to the end of the tick; returns its record."""
    x = extended_of(m, rank)
    if m[x + X_TOUCHED] == 0:
        m[x + X_TOUCHED] = 1
        links = m[TOUCHED_LINKS]
        i = ((rank - m[RANKS]) >> RANK_BITS) + 1
        m[links + 2 * i] = 0
        m[links + 2 * i + 1] = 0
        m[TOUCHED] = merge(m, links, m[TOUCHED], i)
    return x


def hold_packet(m, s):
    """Let the free packets of a direct all-reduce look again at the end of the tick whether all messages have come."""
    if m[s + S_HELD] == 0:
        m[s + S_HELD] = 1
        at = touch(m, m[s + S_RANK]) + X_PACKETS
        m[s] = m[at]
        m[at] = s


def settle_next(m, f):
    """Do what was put off for the rank of lowest number."""
    links = m[TOUCHED_LINKS]
    i = m[TOUCHED]
    m[TOUCHED] = merge(m, links, m[links + 2 * i], m[links + 2 * i + 1])
    rank = m[RANKS] + RANK_WORDS * (i - 1)
    x = extended_of(m, rank)
    s = m[x + X_PACKETS]
    m[x + X_PACKETS] = 0
    while s != 0:
        after = m[s]
        m[s + S_HELD] = 0
        if m[s + S_RECEIVED] >= m[s + S_BARRIER]:
            # One of those that wait comes free again.
            m[s + S_FREE] -= 1
            if packet_free(m, f, s):
                end_phase(m, f, s)
        s = after
    if m[x + X_DONE] != 0:
        links = m[rank + R_LINKS]
        while m[x + X_DONE] != 0:
            i = m[x + X_DONE]
            m[x + X_DONE] = merge(m, links, m[links + 2 * i], m[links + 2 * i + 1])
            finish_node(m, rank, i - 1)
        go_on(m, f, rank)
    while m[x + X_QUEUES] > 0:
        q = m[x + X_QUEUES]
        m[x + X_QUEUES] = m[q + 3]
        m[q + 3] = 0
        start_streams(m, f, q)
    m[x + X_TOUCHED] = 0


def memory_done(m, f, rank, pos):
    """A request of shared memory ends: its node completes, then the next request starts."""
    pool = m[rank + R_MEMORY]
    complete(m, f, rank, pos)
    r = m[pool + 1]
    if r == 0:
        m[pool] = 0
        return
    m[pool + 1] = m[r]
    other = m[r + 1]
    at = m[r + 2]
    release(m, r)
    later(m, other, m[m[other + R_TIMES] + at], A_MEMORY, 0, at)


# ---------------------------------------------------------------------------------------------------
# The loop


def fire(m, f, code):
    """Tell whoever waits for a message, or for its arrival."""
    kind = code & 7
    x = code >> 3
    if kind == W_RING:
        ring_received(m, x)
    elif kind == W_STREAM:
        stream_received(m, f, x)
    elif kind == W_NODE:
        complete(m, f, m[RANKS] + RANK_WORDS * (x & 0xFFFFF), x >> 20)
    elif kind == W_SENT:
        wait_on_bus(m, f, x, m[x + S_MESSAGE], 0, False, False)
    elif kind == W_CUSTOM:
        if custom_done(m, f, x >> 20, x & 0xFFFFF):
            end_phase(m, f, x >> 20)
    elif W_SEND <= kind <= W_RECV:
        tag = m[x + 1]
        src = m[x + 2]
        dst = m[x + 3]
        size = m[x + 4]
        code = m[x + 5]
        c = channel(m, tag, m[x + 6], size)
        release(m, x)
        if kind == W_SEND:
            launch(m, f, c, src, dst, size, -1, code)
        else:
            post(m, c, code)


def wake(m, f, code, r, source, wild):
    """Fire what happens to a rank because of something labelled `r`."""
    rank = 0
    s = stream_of(m, code)
    if s != 0:
        rank = m[s + S_RANK]
    elif code & 7 == W_NODE:
        rank = m[RANKS] + RANK_WORDS * ((code >> 3) & 0xFFFFF)
    if rank == 0:
        fresh(m)
    else:
        enter(m, rank, m[r + L_TICK], source, m[r + L_CHAIN])
        if wild:
            freeze(m, rank)
    fire(m, f, code)


def arrive_watched(m, f, c, r):
    """A message reaches its destination where the order within a tick is watched."""
    m[c + 7] -= 1
    source = m[c + 2]
    code = m[r + L_CODE]
    if m[c + 5] == 0:
        m[c + 4] += 1
        m[UNCLAIMED] = m[NOW]
        if code != 0:
            wake(m, f, code, r, OWN, False)
        release(m, r)
        return
    w = take_waiter(m, c)
    settle(m, c)
    if code != 0:
        wake(m, f, code, r, OWN, False)
    posted = -1
    s = stream_of(m, w)
    if s != 0:
        posted = m[s + S_POSTED]
    elif w & 7 == W_NODE:
        posted = m[m[m[RANKS] + RANK_WORDS * ((w >> 3) & 0xFFFFF) + R_ORDER] + O_POSTED]
    # Whether the message or the receive came first is not known where both came in this tick.
    wake(m, f, w, r, source, posted == m[NOW])
    release(m, r)


def arrive(m, f, c, code):
    """A message reaches its destination."""
    if m[WATCH] != 0:
        arrive_watched(m, f, c, code)
        return
    m[c + 7] -= 1
    if m[c + 5] != 0:
        w = take_waiter(m, c)
        settle(m, c)
        if code != 0:
            fire(m, f, code)
        fire(m, f, w)
        return
    m[c + 4] += 1
    if code != 0:
        fire(m, f, code)


def act(m, f, rank, kind, x, y):
    """Run an action of a rank."""
    if kind == A_RING:
        ring_free(m, f, x)
    elif kind == A_WAIT:
        later(m, rank, y, A_RING, x, 0)
    elif kind == A_BUS:
        later(m, rank, y, A_FREE, x, 0)
    elif kind == A_FREE:
        if packet_free(m, f, x):
            end_phase(m, f, x)
    elif kind == A_NODE:
        complete(m, f, rank, y)
    elif kind == A_MEMORY:
        memory_done(m, f, rank, y)
    elif kind == A_CUSTOM:
        if custom_done(m, f, x, y):
            end_phase(m, f, x)
    elif kind == A_SENT:
        bus_sent(m, f, x)
    elif kind == A_GOT:
        bus_got(m, f, x)
    elif kind == A_REDUCED:
        bus_reduced(m, f, x)
    elif kind == A_BEGIN:
        go_on(m, f, rank)
    elif kind == A_OPEN:
        m[STEPS] -= 1
        open_list(m, rank, y)
    elif kind == A_MARK:
        m[STEPS] -= 1
        next_action(m, rank, y)


def start_rank(m, f, rank):
    """Let a rank issue the nodes that wait for nothing, at tick 0, or later where it begins later."""
    pend = m[rank + R_PEND]
    for pos in range(m[rank + R_COUNT]):
        if m[pend + pos] == 0:
            make_ready(m, rank, pos)
    if m[WATCH] != 0:
        enter(m, rank, -1, OWN, 0)
    if m[rank + R_BEGIN] != 0:
        later(m, rank, m[rank + R_BEGIN], A_BEGIN, 0, 0)
    elif m[EXTENDED] != 0:
        go_on(m, f, rank)
    else:
        sweep(m, f, rank)


def call_back(m, f, kind, x, y):
    """Run a callback of the global queue that is no rank's list."""
    if kind == ARRIVE:
        arrive(m, f, x, y)
    elif kind == LATE:
        if m[WATCH] != 0:
            wake(m, f, m[y + L_CODE], y, OWN, m[y + L_WILD] != 0)
            release(m, y)
        else:
            fire(m, f, y)
    elif kind == HOP:
        if m[WATCH] != 0:
            # What was scheduled last is the way over the link before this device.
            m[m[x + 3] + L_TICK] = m[NOW] - m[x + 7]
            m[STAMPS] += 1
            m[m[x + 3] + L_CHAIN] = m[STAMPS]
            if m[x + 4] == m[NPUS]:
                rank = m[RANKS] + RANK_WORDS * m[m[PEERS] + m[x + 5]]
                enter(m, rank, m[NOW] - m[x + 7], m[m[x + 2] + 2], m[STAMPS])
        if m[x + 4] == m[x + 5]:
            c = m[x + 2]
            y = m[x + 3]
            release(m, x)
            arrive(m, f, c, y)
        else:
            enter_link(m, f, x, m[x + 4], m[x + 5])
    elif kind == OVER:
        part(m, f, x)
    else:
        if m[WATCH] != 0:
            mine = m[LINK_ORDER] + ((x - m[LINKS]) >> 2)
            enter(m, m[mine], m[y + L_TICK], OWN, m[y + L_CHAIN])
            release(m, y)
            in_order(m, m[mine], mine + 1)
        free_link(m, f, x)


def run(m, f, room, budget):
    """Run callbacks until `budget` of them have run, none is left, or the `room` words of `m` run full.

    A step is a callback or an action; a rank's list is a callback of its own. In between two steps all is in
    `m`: the tick that runs, how far it was read (T_READ), and, where a rank's list runs, its callback.
    """
    steps = 0
    limit = room - m[MARGIN]
    while m[STARTED] < m[COUNT] and m[TOP] <= limit:
        m[STARTED] += 1
        start_rank(m, f, m[RANKS] + RANK_WORDS * (m[STARTED] - 1))
    if m[STARTED] < m[COUNT]:
        return GROW
    t = m[LIST]
    slot = m[BUCKET]
    ranks = m[RANKS]
    settling = m[SETTLING] != 0
    while steps < budget and m[TOP] <= limit:
        if slot == 0:
            at = 0
            if t != 0:
                at = m[t + T_READ]
            if settling or t == 0 or at == m[t + T_WRITE]:
                settling = m[TOUCHED] != 0
                m[SETTLING] = settling
                if settling:
                    steps += 1
                    settle_next(m, f)
                    continue
                if t != 0 and at != m[t + T_WRITE]:
                    continue
                if t != 0:
                    drop_tick(m, t)
                m[LIST] = 0
                t = 0
                if m[ERROR] != 0:
                    break
                if m[CHANNEL_COUNT] > 2 * m[CHANNEL_MASK]:
                    if m[TOP] + 4 * m[CHANNEL_MASK] + 4 > limit:
                        break
                    rehash(m)
                t = next_tick(m)
                m[LIST] = t
                if t == 0:
                    m[STEPS] += steps
                    return DONE
                continue
            at = next_of(m, t, at)
            m[t + T_READ] = at + 2
            x = m[at]
            y = m[at + 1]
            steps += 1
            kind = x & KIND
            if kind < RANK_LIST:
                call_back(m, f, kind, x >> WHAT, y)
                continue
            slot = at
            rank = ranks + (x & RANK_MASK)
            if kind != MANY:
                m[slot] = x | MANY
                m[slot + 1] = 0
                kind -= RANK_LIST
        else:
            kind = MANY
            rank = ranks + (m[slot] & RANK_MASK)
        if kind == MANY:
            b = m[slot + 1]
            at = next_of(m, b, m[b + T_READ])
            m[b + T_READ] = at + 2
            x = m[at]
            y = m[at + 1]
            kind = x & KIND
        steps += 1
        act(m, f, rank, kind, x >> RANK_WHAT, y)
        b = m[slot + 1]
        if b == 0 or m[b + T_READ] == m[b + T_WRITE]:
            if b != 0:
                drop_list(m, b)
            forget_list(m, rank)
            slot = 0
        m[BUCKET] = slot
    m[STEPS] += steps
    if m[ERROR] != 0:
        return FAILED
    if steps < budget:
        return GROW
    return PAUSED


def lowest(mask):
    """Return the index of the lowest bit of a mask; compiled, one instruction."""
    return (mask & -mask).bit_length() - 1


def data_of(array):
    """Return what the functions index: the list itself, or, compiled, the address of the array's items."""
    return array


def entry(m, f, budget):
    """Run over whole arrays, see `run`."""
    return run(data_of(m), data_of(f), len(m), budget)
