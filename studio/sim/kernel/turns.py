"""Symmetric ties at links: messages that come to a link in one tick take it in the order of their keys.

A message's key is what it is to its sender: the stream's number, the slot that names the comm group or the peer, the
phase, and how far it goes there; then how many links it has passed. Ranks in equal states send messages of equal keys, so
on which links these meet, and in which order they pass, does not depend on rank numbers. What comes to a link is put off
until all events of the tick have run, and all that ranks had put off (`order.touch`).

A link serves who came first, so when it will have sent a message is known as soon as that takes its turn: the link needs
no callback, only the tick until which it is taken.
"""

from __future__ import annotations

from studio.sim.kernel.clock import alloc, push, release
from studio.sim.kernel.records import Callback, Error, Head, Key, Link, Message, Network, Real, Stream


def join_link(m, e, link):
    """Let a message wait for its turn among those that come to a link in this tick."""
    last = m[link + Link.LAST]
    m[e + Message.NEXT] = 0
    if m[link + Link.FIRST] == 0:
        m[link + Link.FIRST] = e
        m[link + Link.LAST] = e
        m[m[Head.JOINED] + m[Head.JOINED_COUNT]] = link
        m[Head.JOINED_COUNT] += 1
    elif goes_before(m, last, e):
        m[last + Message.NEXT] = e
        m[link + Link.LAST] = e
    else:
        c = m[link + Link.FIRST]
        before = 0
        while goes_before(m, c, e):
            before = c
            c = m[c + Message.NEXT]
        m[e + Message.NEXT] = c
        if before == 0:
            m[link + Link.FIRST] = e
        else:
            m[before + Message.NEXT] = e


def goes_before(m, a, e):
    """Return whether a message that waits for its turn stays before one that joins.

    Of two with the same key the one that came first goes first. Where one rank stands for many, that is known only
    of messages of one channel.
    """
    if m[e + Message.KEY] != m[a + Message.KEY]:
        return m[e + Message.KEY] > m[a + Message.KEY]
    if m[Head.PEERS] != 0 and m[a + Message.CHANNEL] != m[e + Message.CHANNEL]:
        m[Head.ERROR] = Error.ORDER
        m[Head.ERROR_RANK] = m[e + Message.DESTINATION]
    return True


def take_turn(m, f):
    """Let the next message of a link that messages have come to take it, as soon as it is free."""
    at = m[Head.JOINED] + m[Head.JOINED_COUNT] - 1
    link = m[at]
    e = m[link + Link.FIRST]
    m[link + Link.FIRST] = m[e + Message.NEXT]
    if m[e + Message.NEXT] == 0:
        m[Head.JOINED_COUNT] -= 1
    real = m[Head.LINK_FLOATS] + (link - m[Head.LINKS]) // 4
    wire = m[e + Message.SIZE] / f[real + 1]
    if m[Head.AWARE] == Network.PRODUCT and m[e + Message.CROSSING] & 1 != 0:
        wire += f[Real.DIMS + 2 * m[Head.DIM_COUNT] + (m[e + Message.CROSSING] >> 1) - 1]
    busy = int(wire)
    start = m[link + Link.BUSY_UNTIL]
    if start > m[Head.NOW]:
        note_wait(m, link, start)
    else:
        start = m[Head.NOW]
    m[link + Link.BUSY_UNTIL] = start + busy
    m[link + Link.BYTES] += m[e + Message.SIZE]
    m[link + Link.BUSY_NS] += busy
    m[link + Link.MESSAGES] += 1
    m[e + Message.KEY] += Key.HOP
    push(m, start + int(f[real] + wire), Callback.HOP | e << Callback.WHAT, 0)


def note_wait(m, link, start):
    """Count the messages that wait for a link, one more of which does until tick `start`.

    They form a circle of records, next and start and number, of which the link knows the last.
    """
    r = alloc(m)
    m[r + 1] = start
    last = m[link + Link.WAITING]
    if last == 0:
        m[r] = r
        m[r + 2] = 0
    else:
        m[r] = m[last]
        m[last] = r
        m[r + 2] = m[last + 2] + 1
    m[link + Link.WAITING] = r
    first = m[r]
    while m[first + 1] <= m[Head.NOW]:
        m[r] = m[first]
        release(m, first)
        first = m[r]
    count = m[r + 2] - m[first + 2] + 1
    if count > m[link + Link.MOST_WAITING]:
        m[link + Link.MOST_WAITING] = count


def compute_key(m, s, far):
    """Return the key of a stream's message to the rank that is `far` away in its dimension or group."""
    return m[s + Stream.KEY] | far << Key.FAR_SHIFT


def compute_peer_key(tag, slot):
    """Return the key of a message that a node sends to the rank a slot names."""
    return Key.PEER | (tag & Key.TAG) << Key.TAG_SHIFT | (slot & Key.PEERS) << Key.FAR_SHIFT
