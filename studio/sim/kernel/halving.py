"""Halving-doubling (SEMANTICS.md, section 6): one packet at a time, to peers at distances that double or halve."""

from __future__ import annotations

from studio.sim.kernel.bus import wait_on_bus
from studio.sim.kernel.messages import receive, send
from studio.sim.kernel.packets import compute_reduction, get_peer, name_message
from studio.sim.kernel.records import Collective, Rank, Stream, Waiter
from studio.sim.kernel.turns import compute_key


def start_halving(m, f, s, n, kind):
    """Set up halving-doubling: distance and size of the first packet."""
    x = m[s + Stream.SIZE]
    rounds = 0
    while (1 << rounds) < n:
        rounds += 1
    m[s + Stream.LEFT] = rounds
    m[s + Stream.TURNS] = 0
    m[s + Stream.DIRECTION] = 1
    m[s + Stream.DISTANCE] = 1
    m[s + Stream.MESSAGE] = x // 2
    # Whether packets of this cycle reduce, and what the flag of two cycles adds up to.
    m[s + Stream.REDUCTION] = 0
    m[s + Stream.TOGGLE] = 0
    if kind == Collective.ALL_REDUCE:
        m[s + Stream.LEFT] = 2 * rounds
        m[s + Stream.TURNS] = 1
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


def insert_halving(m, f, s):
    """Let the next packet of a stream wait: note its distance and size, then step on to the next ones."""
    o = m[s + Stream.DISTANCE]
    size = m[s + Stream.MESSAGE]
    m[s + Stream.PACKET_DISTANCE] = o
    m[s + Stream.PACKET_SIZE] = size
    pos = m[s + Stream.POSITION]
    red = 0
    if pos >= 1 and m[s + Stream.REDUCTION] != 0:
        red = compute_reduction(f, size) + 1
    wait_on_bus(m, f, s, size, red, pos == 0, pos >= 1 and pos < m[s + Stream.CYCLE] - 1)
    pos += 1
    if pos == m[s + Stream.CYCLE]:
        pos = 0
        m[s + Stream.REDUCTION] = m[s + Stream.TOGGLE] - m[s + Stream.REDUCTION]
    m[s + Stream.POSITION] = pos
    if m[s + Stream.DIRECTION] > 0:
        o *= 2
        size //= 2
        if o == m[s + Stream.N] and m[s + Stream.TURNS] != 0:
            o //= 2
            size *= 2
            m[s + Stream.DIRECTION] = -1
    else:
        o //= 2
        size *= 2
    m[s + Stream.DISTANCE] = o
    m[s + Stream.MESSAGE] = size


def use_halving_packet(m, f, s):
    """Use a free packet of halving-doubling; returns whether that ends the phase."""
    tag = m[s + Stream.TAG]
    me = m[m[s + Stream.RANK] + Rank.NUMBER]
    w = s * 8 + Waiter.STREAM
    if m[s + Stream.LEFT] == 0:
        return True
    m[s + Stream.LEFT] -= 1
    o = m[s + Stream.PACKET_DISTANCE]
    here = m[s + Stream.PLACE]
    at = here + o
    if o != 0 and here // o % 2 != 0:
        at = here - o
    to = get_peer(m, s, at)
    size = m[s + Stream.PACKET_SIZE]
    send(m, f, tag, name_message(m, s, here, at, o), me, to, size, 0, compute_key(m, s, o))
    receive(m, f, tag, name_message(m, s, at, here, o), to, me, size, w, compute_key(m, s, o))
    return False
