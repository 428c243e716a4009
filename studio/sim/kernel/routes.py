"""Single links: which way messages go.

Messages take a way of fewest hops; among those, at every device, one whose latencies add up to the least; and among
equals, in rising order of device numbers, the one numbered destination mod count where an odd number of hops is left,
destination div count mod count where an even one is. In fat trees of two and three levels that is D-mod-K routing, which
spreads destinations evenly over the ways up (Zahavi, Fat-tree routing and node ordering providing contention free
traffic for MPI global collectives, JPDC 72(11), 2012). Of several links between two devices it is, in the order they are
listed, the one numbered (source + destination) mod count. So the way depends on source and destination alone.
"""

from __future__ import annotations

from studio.sim.kernel.records import Error, Graph, Head, Message


def find_routes(m, f, dst):
    """Find out for every device where a message for `dst` goes next: a search from `dst` backwards."""
    g = m[Head.GRAPH]
    distance = m[g + Graph.DISTANCE]
    queue = m[g + Graph.QUEUE]
    reach = m[g + Graph.REACH]
    row = m[g + Graph.ROWS] + dst * m[g + Graph.WORDS]
    for v in range(m[g + Graph.DEVICES]):
        m[distance + v] = -1
    m[distance + dst] = 0
    f[reach + dst] = 0
    m[queue] = dst
    reached = 1
    i = 0
    while i < reached:
        v = m[queue + i]
        i += 1
        if v != dst:
            entry = choose_pair(m, f, g, v, dst)
            per = m[g + Graph.PER]
            m[row + v // per] |= entry << (m[g + Graph.BITS] * (v % per))
        for j in range(m[m[g + Graph.INTO] + v], m[m[g + Graph.INTO] + v + 1]):
            u = m[m[g + Graph.SOURCES] + j]
            if m[distance + u] < 0:
                m[distance + u] = m[distance + v] + 1
                m[queue + reached] = u
                reached += 1
    m[m[g + Graph.KNOWN] + dst] = 1


def choose_pair(m, f, g, v, dst):
    """Return which neighbour of a device comes next, from 1, where those nearer to `dst` are known."""
    left = m[m[g + Graph.DISTANCE] + v]
    first = m[m[g + Graph.OUT] + v]
    last = m[m[g + Graph.OUT] + v + 1]
    count = 0
    best = 0.0
    for turn in range(2):
        pick = dst
        if turn == 1:
            if left % 2 == 0:
                pick //= count
            pick %= count
        for i in range(first, last):
            u = m[m[g + Graph.PAIRS] + Graph.PAIR_WORDS * i]
            if m[m[g + Graph.DISTANCE] + u] != left - 1:
                continue
            latency = f[m[g + Graph.LEAST] + i] + f[m[g + Graph.REACH] + u]
            if turn == 0:
                if count == 0 or latency < best:
                    best = latency
                    count = 0
                if latency == best:
                    count += 1
            elif latency == best:
                if pick == 0:
                    f[m[g + Graph.REACH] + v] = best
                    return i - first + 1
                pick -= 1
    return 0


def find_single_link(m, f, at, src, dst):
    """Return the link on the way from `src` to `dst` that leaves device `at`; -1 where there is no way."""
    g = m[Head.GRAPH]
    if m[m[g + Graph.KNOWN] + dst] == 0:
        find_routes(m, f, dst)
    per = m[g + Graph.PER]
    bits = m[g + Graph.BITS]
    entry = m[m[g + Graph.ROWS] + dst * m[g + Graph.WORDS] + at // per] >> (bits * (at % per)) & (
        (1 << bits) - 1
    )
    if entry == 0:
        m[Head.ERROR] = Error.ROUTE
        m[Head.ERROR_RANK] = src
        m[Head.ERROR_PEER] = dst
        return -1
    pair = m[g + Graph.PAIRS] + Graph.PAIR_WORDS * (m[m[g + Graph.OUT] + at] + entry - 1)
    return m[pair + 1] + (src + dst) % m[pair + 2]


def find_next_single(m, f, e, at, to):
    """Return the single link towards `to`, and note the device it leads to."""
    link = find_single_link(m, f, at, m[e + Message.SOURCE], to)
    if link >= 0:
        m[e + Message.DEVICE] = m[m[m[Head.GRAPH] + Graph.TARGETS] + link]
    return link


def compute_route_delay(m, f, src, dst, size):
    """Return the time of a message over single links without contention.

    The latencies of its way, plus size over the smallest bandwidth on it, truncated once: it is cut through,
    not stored, at every device, as in the dimensions of the congestion-unaware network.
    """
    latency = 0.0
    slowest = 0.0
    at = src
    while at != dst:
        link = find_single_link(m, f, at, src, dst)
        if link < 0:
            return 0
        rate = f[m[Head.LINK_FLOATS] + 2 * link + 1]
        latency += f[m[Head.LINK_FLOATS] + 2 * link]
        if slowest == 0.0 or rate < slowest:
            slowest = rate
        at = m[m[m[Head.GRAPH] + Graph.TARGETS] + link]
    return int(latency + size / slowest)
