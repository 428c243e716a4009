"""Ring and direct algorithms (SEMANTICS.md, section 6): a cycle of packets, each of which sends and receives once.

The direct algorithm has several packets under way, and peers that move on. Its all-reduce has a barrier between the halves.
"""

from __future__ import annotations

from studio.sim.kernel.bus import wait_on_bus
from studio.sim.kernel.clock import alloc, alloc_block, push, release, release_block
from studio.sim.kernel.links import compute_crossing, compute_delay, count_traffic
from studio.sim.kernel.messages import ensure_channel, launch, post, receive, send
from studio.sim.kernel.order import begin_chain, check_order, create_label, hold_packet, later
from studio.sim.kernel.packets import compute_reduction, get_peer, name_message
from studio.sim.kernel.records import (
    Action,
    Algorithm,
    Callback,
    Channel,
    Collective,
    Dimension,
    Head,
    Network,
    Phase,
    Rank,
    Ring,
    Stream,
    Waiter,
)
from studio.sim.kernel.turns import compute_key


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
    red = compute_reduction(f, size) + 1
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
    if m[ph + Phase.MESSAGE_DIM] >= 0 and m[Head.AWARE] == 0 and m[Head.RENDEZVOUS] == 0:
        # Neighbours in one dimension, or no ring: every message of the phase takes the same time.
        hops = 1
        d = m[ph + Phase.MESSAGE_DIM]
        kind = m[m[Head.DIMS] + Dimension.WORDS * d + Dimension.KIND]
        if kind == Network.SWITCH:
            hops = 2
        if kind != Network.RING or not direct:
            m[s + Stream.HOP] = compute_crossing(m, f, d, hops, size)
            count_traffic(m, m[m[s + Stream.RANK] + Rank.NUMBER], d, left, size)
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
        m[s + Stream.NEXT_RANK] = get_peer(m, s, after)
        m[s + Stream.PREVIOUS_RANK] = get_peer(m, s, before)
        if m[Head.RENDEZVOUS] == 0:
            far = m[s + Stream.DIRECTION] % n
            c = ensure_channel(m, m[s + Stream.TAG], name_message(m, s, me, after, far), size)
            m[c + Channel.USES] += 1
            m[s + Stream.SEND] = c
            c = ensure_channel(m, m[s + Stream.TAG], name_message(m, s, before, me, far), size)
            m[c + Channel.USES] += 1
            m[s + Stream.RECV] = c
            if m[s + Stream.HOP] < 0 and m[Head.AWARE] == 0:
                m[s + Stream.HOP] = compute_delay(m, f, number, m[s + Stream.NEXT_RANK], size, left)
            if m[Head.BUS] == 0:
                # From here on the ring keeps its own, shorter books. The first packet does not reduce, the
                # n - 1 after it do where messages are reduced at all; and with one packet at a time, one
                # that comes free is sent at once, so the phase ends with the first for which no message is
                # left. The pieces of the general way add up to the same.
                g = alloc(m) if m[Head.AWARE] == 0 else alloc_block(m)
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
                if m[Head.AWARE] != 0:
                    m[g + Ring.NUMBER] = number
                    m[g + Ring.TO] = m[s + Stream.NEXT_RANK]
                    m[g + Ring.SIZE] = size
                    m[g + Ring.KEY] = compute_key(m, s, far)
                schedule_ring_packet(m, g, m[s + Stream.DELAY])
                return
    for _ in range(p):
        insert_packet(m, f, s)


def schedule_ring_packet(m, g, delta):
    """Let a packet of a ring wait; with symmetric ties it needs no place among what its rank does in that tick."""
    if m[Head.SYMMETRIC] != 0:
        push(m, m[Head.NOW] + delta, Callback.RING | g << Callback.WHAT, 0)
    else:
        later(m, m[g + Ring.RANK], delta, Action.RING, g, 0)


def ring_received(m, g):
    """A message for a ring has come: let the next packet wait at its rank."""
    left = m[g + Ring.LEFT]
    if left & ((1 << Ring.REDUCING) - 1) != 0:
        m[g + Ring.LEFT] = left - 1
        if m[Head.SYMMETRIC] != 0:
            schedule_ring_packet(m, g, m[g + Ring.DELAY] + m[g + Ring.REDUCTION])
        else:
            later(m, m[g + Ring.RANK], m[g + Ring.DELAY], Action.WAIT, g, m[g + Ring.REDUCTION])
    else:
        schedule_ring_packet(m, g, m[g + Ring.DELAY])


def ring_free(m, f, g):
    """A packet of a ring has done its waits: send its message and post its receive; returns the stream whose phase ends; 0 for none."""
    left = m[g + Ring.LEFT]
    if left >> Ring.REDUCING == 0:
        s = m[g + Ring.STREAM]
        if m[Head.AWARE] == 0:
            release(m, g)
        else:
            release_block(m, g)
        return s
    m[g + Ring.LEFT] = left - (1 << Ring.REDUCING)
    c = m[g + Ring.SEND]
    hop = m[g + Ring.HOP]
    if hop >= 0:
        # Most messages of most simulations go this way: nothing but the channel and the time is needed.
        m[c + Channel.USES] += 1
        y = 0
        if m[Head.WATCH] != 0:
            y = create_label(m, 0)
        push(m, m[Head.NOW] + hop, Callback.ARRIVE | c << Callback.WHAT, y)
    else:
        launch(m, f, c, m[g + Ring.NUMBER], m[g + Ring.TO], m[g + Ring.SIZE], -1, 0, m[g + Ring.KEY])
    post(m, m[g + Ring.RECV], g * 8 + Waiter.RING)
    return 0


def send_ring(m, f, s):
    """Send the message of a ring's free packet and post its receive, where the ring keeps no short books."""
    c = m[s + Stream.SEND]
    rank = m[m[s + Stream.RANK] + Rank.NUMBER]
    size = m[s + Stream.MESSAGE]
    n = m[s + Stream.N]
    step = m[s + Stream.DIRECTION]
    key = compute_key(m, s, step % n)
    if c != 0:
        launch(m, f, c, rank, m[s + Stream.NEXT_RANK], size, m[s + Stream.HOP], 0, key)
        post(m, m[s + Stream.RECV], s * 8 + Waiter.STREAM)
        return
    me = m[s + Stream.PLACE]
    pair = name_message(m, s, me, (me + step) % n, step % n)
    send(m, f, m[s + Stream.TAG], pair, rank, m[s + Stream.NEXT_RANK], size, 0, key)
    pair = name_message(m, s, (me - step) % n, me, step % n)
    receive(
        m, f, m[s + Stream.TAG], pair, m[s + Stream.PREVIOUS_RANK], rank, size, s * 8 + Waiter.STREAM, key
    )


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
    to = get_peer(m, s, after)
    tag = m[s + Stream.TAG]
    me = m[s + Stream.PLACE]
    pair = name_message(m, s, me, after, step % n)
    key = compute_key(m, s, step % n)
    if m[Head.RENDEZVOUS] == 0:
        launch(m, f, ensure_channel(m, tag, pair, size), rank, to, size, m[s + Stream.HOP], 0, key)
    else:
        send(m, f, tag, pair, rank, to, size, 0, key)
    pair = name_message(m, s, before, me, step % n)
    receive(m, f, tag, pair, get_peer(m, s, before), rank, size, s * 8 + Waiter.STREAM, key)


def watch_barrier(m, s):
    """A message for the direct algorithm has come; with several under way they are told apart by no one."""
    if m[s + Stream.PLAIN] > 1:
        begin_chain(m)
    if m[s + Stream.RECEIVED] == m[s + Stream.BARRIER]:
        check_order(m, m[s + Stream.RANK], s + Stream.WAITED)
        m[s + Stream.CROSSED] = m[Head.STAMP]


def watch_packet(m, s):
    """A packet of the direct algorithm is free; with several under way they are told apart by no one."""
    if m[s + Stream.PLAIN] > 1:
        begin_chain(m)
    if m[s + Stream.LEFT] <= m[s + Stream.BARRIER]:
        if m[s + Stream.RECEIVED] < m[s + Stream.BARRIER]:
            m[s + Stream.WAITED] = m[Head.STAMP]
        else:
            check_order(m, m[s + Stream.RANK], s + Stream.CROSSED)


def use_ring_packet(m, f, s):
    """Use a free packet of the ring or direct algorithm; returns whether that ends the phase."""
    algorithm = m[s + Stream.ALGORITHM]
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
