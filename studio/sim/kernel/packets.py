"""Packets of streams: what they wait for, and what they send and receive when they are free.

Packets wait the endpoint delay, then, where they reduce, the time of two reads and a write (a second action, even where
it takes no time), then let the algorithm send one message and post one receive.
"""

from __future__ import annotations

from studio.sim.kernel.bus import wait_on_bus
from studio.sim.kernel.layout import (
    A_BUS,
    A_CUSTOM,
    A_FREE,
    A_RING,
    A_WAIT,
    BUS,
    C_NODES,
    C_SLOTS,
    DIRECT,
    HALVING,
    K_DELAY,
    K_SEND,
    LOCAL_MEMORY,
    N_CHILD_COUNT,
    N_CHILDREN,
    N_DURATION,
    N_KIND,
    N_PEER,
    N_SIZE,
    N_TAG,
    NODE_WORDS,
    OP_END,
    OP_REDUCE,
    OP_SEND,
    OP_SEND_WAIT,
    OP_STEP,
    OP_WORDS,
    P_DELAY,
    P_LEFT,
    P_RANK,
    P_RED,
    PH_NAME,
    PROGRAM,
    R_NUMBER,
    REDUCING,
    RENDEZVOUS,
    RING,
    S_A,
    S_ALGORITHM,
    S_B,
    S_BARRIER,
    S_BASE,
    S_C,
    S_CODES,
    S_COUNT,
    S_CROSSED,
    S_CYCLE,
    S_DELAY,
    S_DIR,
    S_FREE,
    S_HELD,
    S_HOP,
    S_LEFT,
    S_ME,
    S_MESSAGE,
    S_N,
    S_O,
    S_PHASE,
    S_PLAIN,
    S_PM,
    S_PO,
    S_POS,
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
    STAMP,
    SYMMETRIC,
    W_CUSTOM,
    W_SENT,
    W_STREAM,
    WATCH,
)
from studio.sim.kernel.messages import channel, launch, post, receive, send
from studio.sim.kernel.order import check_order, fresh, hold_packet, later


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
