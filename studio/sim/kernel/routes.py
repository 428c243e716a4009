"""Single links: which way messages go.

Messages take a way of fewest hops; among those, at every device, one whose latencies add up to the least; and among
equals, in rising order of device numbers, the one numbered destination mod count where an odd number of hops is left,
destination div count mod count where an even one is. In fat trees of two and three levels that is D-mod-K routing, which
spreads destinations evenly over the ways up (Zahavi, Fat-tree routing and node ordering providing contention free
traffic for MPI global collectives, JPDC 72(11), 2012). Of several links between two devices it is, in the order they are
listed, the one numbered (source + destination) mod count. So the way depends on source and destination alone.
"""

from __future__ import annotations

from studio.sim.kernel.layout import (
    E_ROUTE,
    ERROR,
    ERROR_PEER,
    ERROR_RANK,
    G_BITS,
    G_DEVICES,
    G_DISTANCE,
    G_INTO,
    G_KNOWN,
    G_LEAST,
    G_OUT,
    G_PAIRS,
    G_PER,
    G_QUEUE,
    G_REACH,
    G_ROWS,
    G_SOURCES,
    G_TARGETS,
    G_WORDS,
    GRAPH,
    LINK_FLOATS,
    PAIR_WORDS,
)


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
