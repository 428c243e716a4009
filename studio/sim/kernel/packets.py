"""Packets of streams: what they wait for, and what they send and receive when they are free.

Packets wait the endpoint delay, then, where they reduce, the time of two reads and a write (a second action, even where
it takes no time), then let the algorithm send one message and post one receive.
"""

from __future__ import annotations

from studio.sim.kernel.bus import wait_on_bus
from studio.sim.kernel.messages import channel, launch, post, receive, send
from studio.sim.kernel.order import check_order, fresh, hold_packet, later
from studio.sim.kernel.records import (
    Action,
    Algorithm,
    Custom,
    Head,
    Kind,
    Node,
    Op,
    Phase,
    Rank,
    Real,
    Ring,
    Stream,
    Waiter,
)


def peer(m, s, index):
    """Return the rank at a place of the stream's current dimension or group."""
    stride = m[s + Stream.STRIDE]
    if stride > 0:
        return m[s + Stream.BASE] + index * stride
    return m[m[s + Stream.BASE] + index]


def named(m, s, a, b, far):
    """Return what names a message from place `a` to place `b` of a stream's dimension or group, `far` apart.

    Where one rank stands for many: the classes of both (in a group with the number that each has for the group),
    the kind of neighbourhood, and how far they are apart.
    """
    codes = m[s + Stream.CODES]
    if codes == 0:
        return (peer(m, s, a) << 20) | peer(m, s, b)
    if m[s + Stream.STRIDE] > 0:
        a = peer(m, s, a)
        b = peer(m, s, b)
    return (m[m[s + Stream.PHASE] + Phase.NAME] << 60) | (far << 40) | (m[codes + a] << 20) | m[codes + b]


def reduction(f, size):
    """Return the time of reducing a message: two reads and a write of local memory, each truncated."""
    if f[Real.LOCAL_MEMORY] == 0:
        return 0
    return 3 * int(size / f[Real.LOCAL_MEMORY] * 1e9)


def insert_packet(m, f, s):
    """Let the next packet of a stream wait at its rank."""
    pos = m[s + Stream.POSITION]
    red = 0
    plain = m[s + Stream.PLAIN]
    if pos >= plain:
        red = m[s + Stream.REDUCTION]
    if m[Head.BUS] != 0:
        back = pos >= plain and pos < m[s + Stream.CYCLE] - plain
        wait_on_bus(m, f, s, m[s + Stream.MESSAGE], red, pos < plain, back)
    elif red > 0:
        later(m, m[s + Stream.RANK], m[s + Stream.DELAY], Action.BUS, s, red - 1)
    else:
        later(m, m[s + Stream.RANK], m[s + Stream.DELAY], Action.FREE, s, 0)
    pos += 1
    if pos == m[s + Stream.CYCLE]:
        pos = 0
        m[s + Stream.REDUCTION] = m[s + Stream.TOGGLE] - m[s + Stream.REDUCTION]
    m[s + Stream.POSITION] = pos


def insert_halving(m, f, s):
    """The same for halving-doubling: note distance and size, then step on to the next ones."""
    o = m[s + Stream.DISTANCE]
    size = m[s + Stream.MESSAGE]
    m[s + Stream.PACKET_DISTANCE] = o
    m[s + Stream.PACKET_SIZE] = size
    pos = m[s + Stream.POSITION]
    red = 0
    if pos >= 1 and m[s + Stream.REDUCTION] != 0:
        red = reduction(f, size) + 1
    wait_on_bus(m, f, s, size, red, pos == 0, pos >= 1 and pos < m[s + Stream.CYCLE] - 1)
    pos += 1
    if pos == m[s + Stream.CYCLE]:
        pos = 0
        m[s + Stream.REDUCTION] = m[s + Stream.TOGGLE] - m[s + Stream.REDUCTION]
    m[s + Stream.POSITION] = pos
    if m[s + Stream.DIRECTION] > 0:
        o *= 2
        size //= 2
        if o == m[s + Stream.N] and m[s + Stream.BARRIER] != 0:
            o //= 2
            size *= 2
            m[s + Stream.DIRECTION] = -1
    else:
        o //= 2
        size *= 2
    m[s + Stream.DISTANCE] = o
    m[s + Stream.MESSAGE] = size


def issue_custom(m, f, s, pos):
    """Issue a node of a collective given as a trace: no slots, no endpoint or reduction delay."""
    table = m[s + Stream.C]
    node = m[table + Custom.NODES] + Node.WORDS * pos
    kind = m[node + Node.KIND]
    rank = m[s + Stream.RANK]
    if kind == Kind.DELAY:
        later(m, rank, m[node + Node.DURATION], Action.CUSTOM, s, pos)
        return
    me = m[rank + Rank.NUMBER]
    other = m[m[table + Custom.SLOTS] + m[node + Node.PEER]]
    code = ((s << 20) | pos) * 8 + Waiter.CUSTOM
    if kind == Kind.SEND:
        send(m, f, m[node + Node.TAG], (me << 20) | other, me, other, m[node + Node.SIZE], code)
    else:
        receive(m, f, m[node + Node.TAG], (other << 20) | me, other, me, m[node + Node.SIZE], code)


def custom_done(m, f, s, pos):
    """A node of a collective given as a trace completes; returns whether it was the last one."""
    node = m[m[s + Stream.C] + Custom.NODES] + Node.WORDS * pos
    pend = m[s + Stream.A]
    at = m[node + Node.CHILDREN]
    for i in range(at, at + m[node + Node.CHILD_COUNT]):
        child = m[i]
        m[pend + child] -= 1
        if m[pend + child] == 0:
            issue_custom(m, f, s, child)
    m[s + Stream.LEFT] -= 1
    return m[s + Stream.LEFT] == 0


def next_step(m, f, s):
    """Send and post the messages of the next step of a program; returns whether that ends the phase.

    A step is over when its messages have come, and waited as packets do; those of the rank's own that it
    waits for, at their destination.
    """
    op = m[s + Stream.A]
    if m[op] == Op.END:
        return True
    tag = m[s + Stream.TAG]
    here = m[s + Stream.PLACE]
    n = m[s + Stream.N]
    me = m[m[s + Stream.RANK] + Rank.NUMBER]
    m[s + Stream.FREE] = 0
    count = 0
    m[s + Stream.TREE_REDUCTION] = 0
    while m[op] < Op.STEP:
        size = m[s + Stream.SIZE] // m[op + 2] * m[op + 3]
        there = m[op + 1]
        other = peer(m, s, there)
        m[s + Stream.MESSAGE] = size
        what = m[op]
        op += Op.WORDS
        if what == Op.SEND:
            send(m, f, tag, named(m, s, here, there, (there - here) % n), me, other, size, 0)
            continue
        count += 1
        if what == Op.SEND_WAIT:
            send(
                m, f, tag, named(m, s, here, there, (there - here) % n), me, other, size, s * 8 + Waiter.SENT
            )
            continue
        if what == Op.REDUCE:
            m[s + Stream.TREE_REDUCTION] = reduction(f, size) + 1
        receive(
            m, f, tag, named(m, s, there, here, (here - there) % n), other, me, size, s * 8 + Waiter.STREAM
        )
    m[s + Stream.COUNT] = count
    m[s + Stream.B] += 1
    if m[s + Stream.B] < m[op + 1]:
        op -= m[op + 2]
    else:
        m[s + Stream.B] = 0
        op += Op.WORDS
    m[s + Stream.A] = op
    return m[op] == Op.END and count == 0


def stream_received(m, f, s):
    """A message for a stream's current phase has come."""
    algorithm = m[s + Stream.ALGORITHM]
    if algorithm <= Algorithm.DIRECT:
        m[s + Stream.RECEIVED] += 1
        if m[Head.WATCH] != 0:
            watch_barrier(m, s)
        insert_packet(m, f, s)
    elif algorithm == Algorithm.HALVING:
        insert_halving(m, f, s)
    elif algorithm == Algorithm.PROGRAM:
        wait_on_bus(m, f, s, m[s + Stream.MESSAGE], m[s + Stream.TREE_REDUCTION], False, False)
    else:
        m[s + Stream.RECEIVED] += 1
        red = 0
        back = False
        if m[s + Stream.COUNT] > 0:
            red = m[s + Stream.TREE_REDUCTION] + 1
            back = m[s + Stream.COUNT] == 2 or m[s + Stream.RECEIVED] > 1
        wait_on_bus(m, f, s, m[s + Stream.SIZE], red, False, back)


def ring_received(m, g):
    """A message for a ring has come: let the next packet wait at its rank."""
    left = m[g + Ring.LEFT]
    if left & ((1 << Ring.REDUCING) - 1) != 0:
        m[g + Ring.LEFT] = left - 1
        later(m, m[g + Ring.RANK], m[g + Ring.DELAY], Action.WAIT, g, m[g + Ring.REDUCTION])
    else:
        later(m, m[g + Ring.RANK], m[g + Ring.DELAY], Action.RING, g, 0)


def send_ring(m, f, s):
    """Send the message of a ring's free packet and post its receive, where the ring keeps no short books."""
    c = m[s + Stream.SEND]
    rank = m[m[s + Stream.RANK] + Rank.NUMBER]
    size = m[s + Stream.MESSAGE]
    if c != 0:
        launch(m, f, c, rank, m[s + Stream.A], size, m[s + Stream.HOP], 0)
        post(m, m[s + Stream.RECV], s * 8 + Waiter.STREAM)
        return
    me = m[s + Stream.PLACE]
    n = m[s + Stream.N]
    step = m[s + Stream.DIRECTION]
    pair = named(m, s, me, (me + step) % n, step % n)
    send(m, f, m[s + Stream.TAG], pair, rank, m[s + Stream.A], size, 0)
    pair = named(m, s, (me - step) % n, me, step % n)
    receive(m, f, m[s + Stream.TAG], pair, m[s + Stream.B], rank, size, s * 8 + Waiter.STREAM)


def send_direct(m, f, s):
    """Send the message of a direct packet and post its receive; peers move on one place per packet."""
    rank = m[m[s + Stream.RANK] + Rank.NUMBER]
    size = m[s + Stream.MESSAGE]
    n = m[s + Stream.N]
    used = m[s + Stream.USED] + 1
    step = used * m[s + Stream.DIRECTION]
    after = m[s + Stream.PLACE] + step
    before = m[s + Stream.PLACE] - step
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
    m[s + Stream.USED] = used
    to = peer(m, s, after)
    tag = m[s + Stream.TAG]
    me = m[s + Stream.PLACE]
    pair = named(m, s, me, after, step % n)
    if m[Head.RENDEZVOUS] == 0:
        launch(m, f, channel(m, tag, pair, size), rank, to, size, m[s + Stream.HOP], 0)
    else:
        send(m, f, tag, pair, rank, to, size, 0)
    pair = named(m, s, before, me, step % n)
    receive(m, f, tag, pair, peer(m, s, before), rank, size, s * 8 + Waiter.STREAM)


def watch_barrier(m, s):
    """A message for the direct algorithm has come; with several under way they are told apart by no one."""
    if m[s + Stream.PLAIN] > 1:
        fresh(m)
    if m[s + Stream.RECEIVED] == m[s + Stream.BARRIER]:
        check_order(m, m[s + Stream.RANK], s + Stream.WAITED)
        m[s + Stream.CROSSED] = m[Head.STAMP]


def watch_packet(m, s):
    """A packet of the direct algorithm is free; with several under way they are told apart by no one."""
    if m[s + Stream.PLAIN] > 1:
        fresh(m)
    if m[s + Stream.LEFT] <= m[s + Stream.BARRIER]:
        if m[s + Stream.RECEIVED] < m[s + Stream.BARRIER]:
            m[s + Stream.WAITED] = m[Head.STAMP]
        else:
            check_order(m, m[s + Stream.RANK], s + Stream.CROSSED)


def packet_free(m, f, s):
    """A packet of a stream has done its waits; returns whether that ends the phase."""
    algorithm = m[s + Stream.ALGORITHM]
    if algorithm <= Algorithm.DIRECT:
        if m[Head.WATCH] != 0:
            watch_packet(m, s)
        free = m[s + Stream.FREE] + 1
        left = m[s + Stream.LEFT]
        tries = 1
        if left <= m[s + Stream.BARRIER]:
            # Where packets are held to the end of the tick, those that come free after them wait with them.
            if m[s + Stream.RECEIVED] < m[s + Stream.BARRIER] or (
                m[Head.SYMMETRIC] != 0 and m[s + Stream.HELD] != 0
            ):
                m[s + Stream.FREE] = free
                if m[Head.SYMMETRIC] != 0:
                    hold_packet(m, s)
                return False
            tries = m[s + Stream.PLAIN]
        while tries > 0 and left > 0 and free > 0:
            if algorithm == Algorithm.RING:
                send_ring(m, f, s)
            else:
                send_direct(m, f, s)
            left -= 1
            free -= 1
            tries -= 1
        m[s + Stream.FREE] = free
        m[s + Stream.LEFT] = left
        return left == 0 and free == m[s + Stream.PLAIN]
    tag = m[s + Stream.TAG]
    me = m[m[s + Stream.RANK] + Rank.NUMBER]
    w = s * 8 + Waiter.STREAM
    if algorithm == Algorithm.HALVING:
        if m[s + Stream.LEFT] == 0:
            return True
        m[s + Stream.LEFT] -= 1
        o = m[s + Stream.PACKET_DISTANCE]
        here = m[s + Stream.PLACE]
        at = here + o
        if o != 0 and here // o % 2 != 0:
            at = here - o
        to = peer(m, s, at)
        size = m[s + Stream.PACKET_SIZE]
        send(m, f, tag, named(m, s, here, at, o), me, to, size, 0)
        receive(m, f, tag, named(m, s, at, here, o), to, me, size, w)
        return False
    free = m[s + Stream.FREE] + 1
    m[s + Stream.FREE] = free
    if algorithm == Algorithm.PROGRAM:
        return free == m[s + Stream.COUNT] and next_step(m, f, s)
    x = m[s + Stream.SIZE]
    role = m[s + Stream.COUNT]
    if role == 2:
        send(m, f, tag, (me << 20) | m[s + Stream.A], me, m[s + Stream.A], x, 0)
        return True
    if role == 0:
        if free == 2:
            return True
        send(m, f, tag, (me << 20) | m[s + Stream.C], me, m[s + Stream.C], x, 0)
        receive(m, f, tag, (m[s + Stream.C] << 20) | me, m[s + Stream.C], me, x, w)
        return False
    if free == 2:
        send(m, f, tag, (me << 20) | m[s + Stream.C], me, m[s + Stream.C], x, 0)
        receive(m, f, tag, (m[s + Stream.C] << 20) | me, m[s + Stream.C], me, x, w)
    if free == 3:
        send(m, f, tag, (me << 20) | m[s + Stream.A], me, m[s + Stream.A], x, 0)
        send(m, f, tag, (me << 20) | m[s + Stream.B], me, m[s + Stream.B], x, 0)
        return True
    return False
