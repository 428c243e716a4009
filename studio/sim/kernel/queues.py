"""Queues of a dimension (SEMANTICS.md, sections 5.4 and 5.5): which stream takes which queue, and which may run.

Queues limit how many phases run; waiting streams start by priority.
"""

from __future__ import annotations

from studio.sim.kernel.order import touch
from studio.sim.kernel.phases import start_phase
from studio.sim.kernel.records import Collective, Extended, Head, Member, Phase, Queue, Rank, Stream


def stays_ahead(m, a, s):
    """Return whether waiting stream `a` stays ahead of one that joins its queue.

    Higher priority goes first; with `chunk_order` smallest, then the fewer bytes to send; then who came
    first. With symmetric ties, of those that came in one tick the lower stream number.
    """
    d = m[a + Stream.PRIORITY] - m[s + Stream.PRIORITY]
    if d != 0:
        return d > 0
    if m[Head.SMALLEST] != 0:
        d = m[s + Stream.BYTES] - m[a + Stream.BYTES]
        if d != 0:
            return d > 0
    return (
        m[Head.SYMMETRIC] == 0
        or m[a + Stream.CAME] < m[s + Stream.CAME]
        or m[a + Stream.TAG] < m[s + Stream.TAG]
    )


def enqueue(m, q, s):
    """Let a stream wait in a queue, behind those that stay ahead."""
    m[s + Stream.QUEUE] = q
    if m[Head.EXTENDED] != 0:
        m[s + Stream.CAME] = m[Head.NOW]
        m[s + Stream.BYTES] = m[s + Stream.SIZE]
        ph = m[s + Stream.PHASE]
        if m[ph + Phase.TYPE] == Collective.ALL_REDUCE:
            m[s + Stream.BYTES] = 2 * m[s + Stream.SIZE]
        elif m[ph + Phase.SCALE] == Phase.GROW_BY:
            m[s + Stream.BYTES] = m[s + Stream.SIZE] * m[ph + Phase.N]
    tail = m[q + Queue.LAST]
    if m[q + Queue.FIRST] == 0:
        m[s + Stream.NEXT] = 0
        m[q + Queue.FIRST] = s
        m[q + Queue.LAST] = s
        return
    if stays_ahead(m, tail, s):
        m[s + Stream.NEXT] = 0
        m[tail + Stream.NEXT] = s
        m[q + Queue.LAST] = s
        return
    c = m[q + Queue.FIRST]
    before = 0
    while stays_ahead(m, c, s):
        before = c
        c = m[c + Stream.NEXT]
    m[s + Stream.NEXT] = c
    if before == 0:
        m[q + Queue.FIRST] = s
    else:
        m[before + Stream.NEXT] = s


def start_waiting(m, f, rank, q):
    """Start waiting streams of a queue while fewer than allowed run; with symmetric ties, at the end of the tick."""
    if m[Head.SYMMETRIC] == 0:
        start_streams(m, f, q)
    elif m[q + Queue.NEXT] == 0:
        at = touch(m, rank) + Extended.QUEUES
        while m[at] > 0 and m[at] < q:
            at = m[at] + Queue.NEXT
        # Not 0, so that the last one is known to be there.
        m[q + Queue.NEXT] = m[at] if m[at] != 0 else -1
        m[at] = q


def start_streams(m, f, q):
    """Start waiting streams of a queue while fewer than allowed run."""
    while m[q + Queue.RUNNING] < m[Head.ACTIVE] and m[q + Queue.FIRST] != 0:
        s = m[q + Queue.FIRST]
        m[q + Queue.FIRST] = m[s + Stream.NEXT]
        m[q + Queue.RUNNING] += 1
        start_phase(m, f, s)


def assign_queue(m, rank, member, ph):
    """Take the next queue of a phase's dimension; returns queue * 4 + tree bit * 2 + direction bit."""
    q = m[Head.QUEUES]
    d = m[ph + Phase.DIM]
    role = m[ph + Phase.ROLE]
    queues = m[rank + Rank.QUEUES]
    pointers = m[rank + Rank.POINTERS]
    trees = m[rank + Rank.TREES]
    if member != 0 and m[Head.OWN_QUEUES] != 0:
        queues = m[member + Member.QUEUES]
        pointers = m[member + Member.POINTERS]
        trees = m[member + Member.TREES]
    low = 0
    high = q
    half = q // 2
    if q > 1:
        if role == Phase.UP:
            high = half
        elif role == Phase.DOWN:
            low = half
    at = pointers + 3 * d + role
    i = m[at]
    if i < low:
        i = low
    m[at] = i + 1
    if i + 1 >= high:
        m[at] = low
    back = 0
    if role == Phase.DOWN or (role == Phase.NORMAL and q > 1 and i >= half):
        back = 1
    tree = 0
    if m[ph + Phase.TREE] >= 0:
        at = trees + m[ph + Phase.TREE]
        tree = m[at]
        m[at] = 1 - tree
    return (queues + Queue.WORDS * (d * q + i)) * 4 + tree * 2 + back
