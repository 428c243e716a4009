"""How the phases of streams begin, algorithm by algorithm."""

from __future__ import annotations

from studio.sim.kernel.bus import wait_on_bus
from studio.sim.kernel.clock import alloc
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
from studio.sim.kernel.records import (
    Action,
    Algorithm,
    Channel,
    Collective,
    Custom,
    Dimension,
    Group,
    Head,
    Member,
    Network,
    Op,
    Phase,
    Rank,
    Ring,
    Stream,
    Waiter,
)


def start_tree(m, f, s, n, tree):
    """Find a rank's place in one of the two trees, and take its first step."""
    v = m[s + Stream.PLACE]
    top = 0
    if tree == 0:
        v += 1
        top = n
    me = m[m[s + Stream.RANK] + Rank.NUMBER]
    tag = m[s + Stream.TAG]
    x = m[s + Stream.SIZE]
    shift = 1 - tree
    w = s * 8 + Waiter.STREAM
    if v == top:
        m[s + Stream.COUNT] = 2
        m[s + Stream.A] = peer(m, s, n // 2 - shift)
        receive(m, f, tag, (m[s + Stream.A] << 20) | me, m[s + Stream.A], me, x, w)
        return
    b = v & -v
    up = (v - b) | (2 * b)
    if up == n:
        up = top
    m[s + Stream.C] = peer(m, s, up - shift)
    if b == 1:
        m[s + Stream.COUNT] = 0
        wait_on_bus(m, f, s, x, 0, True, False)
        return
    m[s + Stream.COUNT] = 1
    m[s + Stream.A] = peer(m, s, v - b // 2 - shift)
    m[s + Stream.B] = peer(m, s, v + b // 2 - shift)
    receive(m, f, tag, (m[s + Stream.A] << 20) | me, m[s + Stream.A], me, x, w)
    receive(m, f, tag, (m[s + Stream.B] << 20) | me, m[s + Stream.B], me, x, w)


def start_halving(m, f, s, n, kind):
    """Set up halving-doubling: distance and size of the first packet."""
    x = m[s + Stream.SIZE]
    rounds = 0
    while (1 << rounds) < n:
        rounds += 1
    m[s + Stream.LEFT] = rounds
    m[s + Stream.BARRIER] = 0
    m[s + Stream.DIRECTION] = 1
    m[s + Stream.DISTANCE] = 1
    m[s + Stream.MESSAGE] = x // 2
    # Whether packets of this cycle reduce, and what the flag of two cycles adds up to.
    m[s + Stream.REDUCTION] = 0
    m[s + Stream.TOGGLE] = 0
    if kind == Collective.ALL_REDUCE:
        m[s + Stream.LEFT] = 2 * rounds
        m[s + Stream.BARRIER] = 1
        m[s + Stream.REDUCTION] = 1
        m[s + Stream.TOGGLE] = 1
    elif kind == Collective.ALL_GATHER:
        m[s + Stream.DIRECTION] = -1
        m[s + Stream.DISTANCE] = n // 2
        m[s + Stream.MESSAGE] = x
    else:
        m[s + Stream.REDUCTION] = 1
        m[s + Stream.TOGGLE] = 2
    m[s + Stream.CYCLE] = rounds
    insert_halving(m, f, s)


def start_ring(m, f, s, ph, n, kind):
    """Set up the ring or the direct algorithm, and insert the first packets."""
    x = m[s + Stream.SIZE]
    direct = m[ph + Phase.ALGORITHM] == Algorithm.DIRECT
    size = x
    if kind != Collective.ALL_GATHER:
        size = x // n
    m[s + Stream.MESSAGE] = size
    left = n - 1
    # One more than the time, so that 0 says "no reduction".
    red = reduction(f, size) + 1
    m[s + Stream.REDUCTION] = 0
    m[s + Stream.TOGGLE] = 0
    m[s + Stream.BARRIER] = -1
    if kind == Collective.ALL_REDUCE:
        left = 2 * (n - 1)
        m[s + Stream.REDUCTION] = red
        m[s + Stream.TOGGLE] = red
        if direct:
            m[s + Stream.BARRIER] = n - 1
    elif kind == Collective.REDUCE_SCATTER:
        m[s + Stream.REDUCTION] = red
        m[s + Stream.TOGGLE] = 2 * red
    elif kind == Collective.ALL_TO_ALL and not direct:
        left = n * (n - 1) // 2
    m[s + Stream.LEFT] = left
    p = 1
    if direct:
        p = n - 1
        if m[ph + Phase.WINDOW] > 0 and m[ph + Phase.WINDOW] < p:
            p = m[ph + Phase.WINDOW]
    m[s + Stream.PLAIN] = p
    m[s + Stream.CYCLE] = n
    if direct:
        m[s + Stream.CYCLE] = 2 * p
        if m[ph + Phase.LOCAL] != 0:
            m[s + Stream.CYCLE] = n * p
    m[s + Stream.USED] = 0
    m[s + Stream.HELD] = 0
    m[s + Stream.HOP] = -1
    if m[ph + Phase.FIXED] >= 0 and m[Head.AWARE] == 0 and m[Head.RENDEZVOUS] == 0:
        # Neighbours in one dimension, or no ring: every message of the phase takes the same time.
        hops = 1
        d = m[ph + Phase.FIXED]
        kind = m[m[Head.DIMS] + Dimension.WORDS * d + Dimension.KIND]
        if kind == Network.SWITCH:
            hops = 2
        if kind != Network.RING or not direct:
            m[s + Stream.HOP] = crossing(m, f, d, hops, size)
            account(m, m[m[s + Stream.RANK] + Rank.NUMBER], d, left, size)
    if not direct:
        me = m[s + Stream.PLACE]
        after = me + m[s + Stream.DIRECTION]
        before = me - m[s + Stream.DIRECTION]
        if after == n:
            after = 0
        if after < 0:
            after = n - 1
        if before == n:
            before = 0
        if before < 0:
            before = n - 1
        number = m[m[s + Stream.RANK] + Rank.NUMBER]
        m[s + Stream.A] = peer(m, s, after)
        m[s + Stream.B] = peer(m, s, before)
        if m[Head.RENDEZVOUS] == 0:
            far = m[s + Stream.DIRECTION] % n
            c = channel(m, m[s + Stream.TAG], named(m, s, me, after, far), size)
            m[c + Channel.USES] += 1
            m[s + Stream.SEND] = c
            c = channel(m, m[s + Stream.TAG], named(m, s, before, me, far), size)
            m[c + Channel.USES] += 1
            m[s + Stream.RECV] = c
            if m[s + Stream.HOP] < 0 and m[Head.AWARE] == 0:
                m[s + Stream.HOP] = delay(m, f, number, m[s + Stream.A], size, left)
            if m[Head.BUS] == 0:
                # From here on the ring keeps its own, shorter books. The first packet does not reduce, the
                # n - 1 after it do where messages are reduced at all; and with one packet at a time, one
                # that comes free is sent at once, so the phase ends with the first for which no message is
                # left. The pieces of the general way add up to the same.
                g = alloc(m)
                m[g + Ring.STREAM] = s
                m[g + Ring.RANK] = m[s + Stream.RANK]
                m[g + Ring.LEFT] = left << Ring.REDUCING
                if m[s + Stream.REDUCTION] != 0:
                    m[g + Ring.LEFT] += n - 1
                m[g + Ring.REDUCTION] = red - 1
                m[g + Ring.DELAY] = m[s + Stream.DELAY]
                m[g + Ring.SEND] = m[s + Stream.SEND]
                m[g + Ring.RECV] = m[s + Stream.RECV]
                m[g + Ring.HOP] = m[s + Stream.HOP]
                later(m, m[s + Stream.RANK], m[s + Stream.DELAY], Action.RING, g, 0)
                return
    for _ in range(p):
        insert_packet(m, f, s)


def start_custom(m, f, s, ph):
    """Play the trace of a rank's place in the group from its nodes that wait for nothing."""
    place = m[s + Stream.PLACE]
    if m[ph + Phase.N] == 0:
        place = m[m[s + Stream.MEMBER] + Member.SORTED]
    table = m[ph + Phase.TABLE] + 8 * place
    m[s + Stream.C] = table
    count = m[table + Custom.COUNT]
    pend = m[Head.TOP]
    m[Head.TOP] = pend + (count + 7) // 8 * 8
    m[s + Stream.A] = pend
    m[s + Stream.LEFT] = count
    for pos in range(count):
        m[pend + pos] = m[m[table + Custom.PARENTS] + pos]
    for pos in range(count):
        if m[m[table + Custom.PARENTS] + pos] == 0:
            issue_custom(m, f, s, pos)


def start_program(m, f, s, ph, flags):
    """Start what a rank does in a phase according to a program, see `studio.sim.programs`."""
    at = m[s + Stream.PLACE]
    if m[ph + Phase.N] != 0:
        at = m[m[s + Stream.RANK] + Rank.NUMBER]
    op = m[m[m[ph + Phase.TABLE] + (flags & 3)] + at]
    m[s + Stream.A] = op
    m[s + Stream.B] = 0
    m[s + Stream.MESSAGE] = m[s + Stream.SIZE]
    if m[op] == Op.STEP:
        m[s + Stream.A] = op + Op.WORDS
        m[s + Stream.COUNT] = 1
        wait_on_bus(m, f, s, 0, 0, True, False)
    else:
        next_step(m, f, s)


def start_phase(m, f, s):
    """Start the current phase of a stream."""
    ph = m[s + Stream.PHASE]
    rank = m[s + Stream.RANK]
    n = m[ph + Phase.N]
    stride = m[ph + Phase.STRIDE]
    number = m[rank + Rank.NUMBER]
    if n == 0:
        member = m[s + Stream.MEMBER]
        group = m[member + Member.GROUP]
        n = m[group + Group.SIZE]
        m[s + Stream.PLACE] = m[member + Member.PLACE]
        m[s + Stream.BASE] = m[group + Group.RANKS]
    else:
        me = number // stride % n
        m[s + Stream.PLACE] = me
        m[s + Stream.BASE] = number - me * stride
    m[s + Stream.N] = n
    m[s + Stream.STRIDE] = stride
    m[s + Stream.DELAY] = m[Head.ENDPOINT]
    if m[ph + Phase.LOCAL] != 0:
        m[s + Stream.DELAY] = Stream.GROUP_DELAY
    flags = m[s + Stream.PHASES + m[s + Stream.INDEX]]
    m[s + Stream.DIRECTION] = 1
    if flags & 1:
        m[s + Stream.DIRECTION] = -1
    algorithm = m[ph + Phase.ALGORITHM]
    m[s + Stream.ALGORITHM] = algorithm
    m[s + Stream.FREE] = 0
    m[s + Stream.POSITION] = 0
    m[s + Stream.RECEIVED] = 0
    m[s + Stream.SEND] = 0
    m[s + Stream.POSTED] = -1
    m[s + Stream.CROSSED] = 0
    m[s + Stream.WAITED] = 0
    kind = m[ph + Phase.TYPE]
    if algorithm <= Algorithm.DIRECT:
        start_ring(m, f, s, ph, n, kind)
    elif algorithm == Algorithm.HALVING:
        start_halving(m, f, s, n, kind)
    elif algorithm == Algorithm.TREE:
        m[s + Stream.TREE_REDUCTION] = reduction(f, m[s + Stream.SIZE])
        start_tree(m, f, s, n, (flags >> 1) & 1)
    elif algorithm == Algorithm.PROGRAM:
        start_program(m, f, s, ph, flags)
    else:
        start_custom(m, f, s, ph)
