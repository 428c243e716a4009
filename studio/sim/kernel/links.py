"""The network (SEMANTICS.md, section 7): the time of a message, and links on which messages wait for each other.

Links of the congestion-aware network are store and forward: a message enters the next link when all of it has come.
"""

from __future__ import annotations

from studio.sim.kernel.clock import prefetch, push
from studio.sim.kernel.order import create_label, stamp_order
from studio.sim.kernel.records import Callback, Dimension, Head, Link, Message, Network, Rank, Real
from studio.sim.kernel.routes import compute_route_delay, find_next_single
from studio.sim.kernel.turns import join_link


def find_lowest_dimension(m, src, dst):
    """Return the lowest dimension in which two ranks differ."""
    at = m[Head.DIMS]
    d = 0
    while src % m[at + Dimension.SIZE] == dst % m[at + Dimension.SIZE]:
        src //= m[at + Dimension.SIZE]
        dst //= m[at + Dimension.SIZE]
        at += Dimension.WORDS
        d += 1
    return d


def count_traffic(m, number, d, count, size):
    """Count messages that a rank sends into a dimension."""
    at = m[Head.TRAFFIC] + Network.TRAFFIC_WORDS * (number * m[Head.DIM_COUNT] + d)
    m[at] += count * size
    m[at + 1] += count


def compute_crossing(m, f, d, hops, size):
    """Return the time of a message in a dimension: overhead plus hops times latency plus size over bandwidth.

    It is truncated once. The overhead is what LogGP calls the gap: what a message costs its sender's port,
    whatever its size (Alexandrov et al., LogGP: Incorporating Long Messages into the LogP Model, SPAA 1995).
    The reference has none, so it is 0 in the compatible mode.
    """
    at = Real.DIMS + 2 * d
    time = hops * f[at] + size / f[at + 1]
    return int(time + f[Real.DIMS + 2 * m[Head.DIM_COUNT] + d])


def compute_delay(m, f, src, dst, size, count):
    """Return the time of a message without contention; counts `count` such messages.

    Only the lowest dimension in which the two ranks differ counts. Hops: fully connected 1, switch 2, ring
    the shorter way round. What a rank sends itself, as the ring of a group of one rank does, passes no link.
    """
    if src == dst:
        return 0
    d = 0
    a = src
    b = dst
    at = m[Head.DIMS]
    while True:
        n = m[at + Dimension.SIZE]
        x = a % n
        y = b % n
        if x != y:
            break
        a //= n
        b //= n
        at += Dimension.WORDS
        d += 1
    count_traffic(m, src, d, count, size)
    if m[Head.GRAPH] != 0:
        return compute_route_delay(m, f, src, dst, size)
    kind = m[at + Dimension.KIND]
    hops = 1
    if kind == Network.SWITCH:
        hops = 2
    elif kind == Network.RING:
        hops = abs(x - y)
        if n - hops < hops:
            hops = n - hops
    return compute_crossing(m, f, d, hops, size)


def transmit(m, e, link):
    """Start sending a message over a link of the only dimension."""
    occupy(m, e, link, m[e + Message.WIRE], m[e + Message.TIME])


def occupy(m, e, link, busy, time):
    """Take a link for a message that is under way for `time`."""
    now = m[Head.NOW]
    m[link + Link.BUSY] = 1
    m[link + Link.BYTES] += m[e + Message.SIZE]
    m[link + Link.BUSY_NS] += busy
    m[link + Link.MESSAGES] += 1
    push(m, now + time, Callback.HOP | e << Callback.WHAT, 0)
    y = 0
    if m[Head.WATCH] != 0:
        y = create_label(m, 0)
    push(m, now + busy, Callback.LINK_FREE | link << Callback.WHAT, y)


def carry(m, f, e, link):
    """Start sending a message over a link of several dimensions or of a network of single links.

    The link is taken for overhead + size / bandwidth, the message arrives a latency later. The overhead is
    that of the dimension, paid on the first link in it.
    """
    at = m[Head.LINK_FLOATS] + (link - m[Head.LINKS]) // 4
    wire = m[e + Message.SIZE] / f[at + 1]
    if m[Head.AWARE] == Network.PRODUCT and m[e + Message.CROSSING] & 1 != 0:
        wire += f[Real.DIMS + 2 * m[Head.DIM_COUNT] + (m[e + Message.CROSSING] >> 1) - 1]
    occupy(m, e, link, int(wire), int(f[at] + wire))


def wait_for_link(m, e, link):
    """Let a message wait until a link is free."""
    m[e + Message.NEXT] = 0
    if m[link + Link.FIRST] == 0:
        m[link + Link.FIRST] = e
    else:
        m[m[link + Link.LAST] + Message.NEXT] = e
    m[link + Link.LAST] = e
    m[link + Link.WAITING] += 1
    if m[link + Link.WAITING] > m[link + Link.MOST_WAITING]:
        m[link + Link.MOST_WAITING] = m[link + Link.WAITING]


def free_link(m, f, link):
    """A link has sent a message: it takes the next one, if any waits."""
    e = m[link + Link.FIRST]
    if e == 0:
        m[link + Link.BUSY] = 0
        return
    after = m[e + Message.NEXT]
    m[link + Link.FIRST] = after
    m[link + Link.WAITING] -= 1
    # Of many messages that wait on many links none is in the cache when its turn comes, nor is its channel.
    prefetch(m, after)
    prefetch(m, m[e + Message.CHANNEL])
    if m[Head.AWARE] == Network.ONE_DIMENSION:
        transmit(m, e, link)
    else:
        carry(m, f, e, link)


def enter_link(m, f, e, at, to):
    """Send a message that is at device `at` one device on towards `to`, or let it wait for the link."""
    if m[Head.AWARE] == Network.ONE_DIMENSION:
        link = find_only_link(m, e, at, to)
        if m[Head.WATCH] != 0:
            # A link serves the rank it leaves, or, behind a switch, the one it leads to.
            owner = at
            if at == m[Head.NPUS]:
                owner = to
            record = m[Head.LINK_ORDER] + 2 * link
            m[record] = m[Head.RANKS] + Rank.WORDS * m[m[Head.PEERS] + owner]
            stamp_order(m, m[record], record + 1)
        link = m[Head.LINKS] + Link.WORDS * link
        if m[link + Link.BUSY] == 0:
            transmit(m, e, link)
        else:
            wait_for_link(m, e, link)
        return
    link = (
        find_next_link(m, e, at, to)
        if m[Head.AWARE] == Network.PRODUCT
        else find_next_single(m, f, e, at, to)
    )
    if m[Head.ERROR] != 0:
        return
    if m[Head.STANDS] != 0:
        link = m[m[Head.STANDS] + link]
    link = m[Head.LINKS] + Link.WORDS * link
    if m[Head.SYMMETRIC] != 0:
        join_link(m, e, link)
        return
    if m[link + Link.BUSY] == 0:
        carry(m, f, e, link)
    else:
        wait_for_link(m, e, link)


def find_only_link(m, e, at, to):
    """Return the link towards `to` in the only dimension, and note the device it leads to."""
    n = m[Head.NPUS]
    kind = m[m[Head.DIMS] + Dimension.KIND]
    if kind == Network.FULLY_CONNECTED:
        link = at * n + to
        nxt = to
    elif kind == Network.SWITCH:
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
    m[e + Message.DEVICE] = nxt
    return link


def find_next_link(m, e, at, to):
    """Return the link towards `to` in several dimensions, the lowest first, and note where it leads.

    The switch of a line is device NPUs × (1 + dimension) + the line's first rank.
    """
    npus = m[Head.NPUS]
    if at >= npus:
        d = (m[e + Message.CROSSING] >> 1) - 1
        y = m[m[Head.COORDINATES] + m[Head.DIM_COUNT] * to + d]
        nxt = at - npus * (1 + d) + y * m[m[Head.DIMS] + Dimension.WORDS * d + Dimension.STRIDE]
        m[e + Message.DEVICE] = nxt
        m[e + Message.CROSSING] &= -2
        return m[m[Head.LINK_BASES] + d] + npus + nxt
    a = m[Head.COORDINATES] + m[Head.DIM_COUNT] * at
    b = m[Head.COORDINATES] + m[Head.DIM_COUNT] * to
    d = 0
    while m[a + d] == m[b + d]:
        d += 1
    x = m[a + d]
    y = m[b + d]
    dim = m[Head.DIMS] + Dimension.WORDS * d
    stride = m[dim + Dimension.STRIDE]
    kind = m[dim + Dimension.KIND]
    link = m[m[Head.LINK_BASES] + d]
    if m[e + Message.CROSSING] >> 1 != d + 1:
        m[e + Message.CROSSING] = 2 * d + 3
        number = at
        if m[Head.STANDS] != 0:
            number = m[m[Head.RANKS] + Rank.WORDS * m[m[Head.PEERS] + at] + Rank.NUMBER]
        count_traffic(m, number, d, 1, m[e + Message.SIZE])
    else:
        m[e + Message.CROSSING] = 2 * d + 2
    if kind == Network.FULLY_CONNECTED:
        m[e + Message.DEVICE] = at + (y - x) * stride
        return link + at * m[dim + Dimension.SIZE] + y
    if kind == Network.SWITCH:
        m[e + Message.DEVICE] = npus * (1 + d) + at - x * stride
        return link + at
    n = m[dim + Dimension.SIZE]
    up = y - x
    if up < 0:
        up += n
    if 2 * up <= n:
        y = x + 1
        if y == n:
            y = 0
    else:
        y = x - 1
        if y < 0:
            y = n - 1
        link += npus
    m[e + Message.DEVICE] = at + (y - x) * stride
    return link + at
