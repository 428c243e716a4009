"""Algorithms given as programs: steps of messages, see `studio.sim.programs` (extended mode)."""

from __future__ import annotations

from studio.sim.kernel.bus import wait_on_bus
from studio.sim.kernel.messages import receive, send
from studio.sim.kernel.packets import compute_reduction, get_peer, name_message
from studio.sim.kernel.records import Op, Phase, Rank, Stream, Waiter
from studio.sim.kernel.turns import compute_key


def start_program(m, f, s, ph, flags):
    """Start what a rank does in a phase according to a program, see `studio.sim.programs`."""
    at = m[s + Stream.PLACE]
    if m[ph + Phase.N] != 0:
        at = m[m[s + Stream.RANK] + Rank.NUMBER]
    op = m[m[m[ph + Phase.TABLE] + (flags & 3)] + at]
    m[s + Stream.OP] = op
    m[s + Stream.ROUND] = 0
    m[s + Stream.MESSAGE] = m[s + Stream.SIZE]
    if m[op] == Op.STEP:
        m[s + Stream.OP] = op + Op.WORDS
        m[s + Stream.AWAITED] = 1
        wait_on_bus(m, f, s, 0, 0, True, False)
    else:
        start_next_step(m, f, s)


def start_next_step(m, f, s):
    """Send and post the messages of the next step of a program; returns whether that ends the phase.

    A step is over when its messages have come, and waited as packets do; those of the rank's own that it
    waits for, at their destination.
    """
    op = m[s + Stream.OP]
    if m[op] == Op.END:
        return True
    tag = m[s + Stream.TAG]
    here = m[s + Stream.PLACE]
    n = m[s + Stream.N]
    me = m[m[s + Stream.RANK] + Rank.NUMBER]
    m[s + Stream.FREE] = 0
    count = 0
    m[s + Stream.STEP_REDUCTION] = 0
    while m[op] < Op.STEP:
        size = m[s + Stream.SIZE] // m[op + 2] * m[op + 3]
        peer_place = m[op + 1]
        other = get_peer(m, s, peer_place)
        m[s + Stream.MESSAGE] = size
        what = m[op]
        op += Op.WORDS
        far = (peer_place - here) % n
        pair = name_message(m, s, here, peer_place, far)
        key = compute_key(m, s, far)
        if what == Op.SEND:
            send(m, f, tag, pair, me, other, size, 0, key)
            continue
        count += 1
        if what == Op.SEND_WAIT:
            send(m, f, tag, pair, me, other, size, s * 8 + Waiter.SENT, key)
            continue
        if what == Op.REDUCE:
            m[s + Stream.STEP_REDUCTION] = compute_reduction(f, size) + 1
        far = (here - peer_place) % n
        pair = name_message(m, s, peer_place, here, far)
        receive(m, f, tag, pair, other, me, size, s * 8 + Waiter.STREAM, compute_key(m, s, far))
    m[s + Stream.AWAITED] = count
    m[s + Stream.ROUND] += 1
    if m[s + Stream.ROUND] < m[op + 1]:
        op -= m[op + 2]
    else:
        m[s + Stream.ROUND] = 0
        op += Op.WORDS
    m[s + Stream.OP] = op
    return m[op] == Op.END and count == 0


def use_program_packet(m, f, s):
    """Use a free packet of a program; returns whether that ends the phase."""
    free = m[s + Stream.FREE] + 1
    m[s + Stream.FREE] = free
    return free == m[s + Stream.AWAITED] and start_next_step(m, f, s)
