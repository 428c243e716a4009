"""How the phases of streams begin, algorithm by algorithm."""

from __future__ import annotations

from studio.sim.kernel.bus import wait_on_bus
from studio.sim.kernel.clock import alloc
from studio.sim.kernel.layout import (
    A_RING,
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    AWARE,
    BUS,
    C_COUNT,
    C_PARENTS,
    DIMS,
    DIRECT,
    ENDPOINT,
    GROUP_DELAY,
    HALVING,
    OP_STEP,
    OP_WORDS,
    P_DELAY,
    P_HOP,
    P_LEFT,
    P_RANK,
    P_RECV,
    P_RED,
    P_SEND,
    P_STREAM,
    PH_ALGORITHM,
    PH_FIXED,
    PH_LOCAL,
    PH_N,
    PH_STRIDE,
    PH_TABLE,
    PH_TYPE,
    PH_WINDOW,
    PROGRAM,
    R_NUMBER,
    REDUCE_SCATTER,
    REDUCING,
    RENDEZVOUS,
    RING_DIM,
    S_A,
    S_ALGORITHM,
    S_B,
    S_BARRIER,
    S_BASE,
    S_C,
    S_COUNT,
    S_CROSSED,
    S_CYCLE,
    S_DELAY,
    S_DIR,
    S_FREE,
    S_HELD,
    S_HOP,
    S_INDEX,
    S_LEFT,
    S_ME,
    S_MEMBER,
    S_MESSAGE,
    S_N,
    S_O,
    S_PHASE,
    S_PHASES,
    S_PLAIN,
    S_POS,
    S_POSTED,
    S_R,
    S_RANK,
    S_RECEIVED,
    S_RECV,
    S_RED,
    S_SEND,
    S_STRIDE,
    S_TAG,
    S_TOGGLE,
    S_USED,
    S_WAITED,
    S_X,
    SWITCH,
    TOP,
    TREE,
    W_STREAM,
)
from studio.sim.kernel.links import account, crossing, delay
from studio.sim.kernel.messages import channel, receive
from studio.sim.kernel.order import later
from studio.sim.kernel.packets import (
    insert_halving,
    insert_packet,
    issue_custom,
    named,
    next_step,
    peer,
    reduction,
)


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
