"""Phases of streams (SEMANTICS.md, sections 5.3 and 6): how they begin, and which algorithm goes on."""

from __future__ import annotations

from studio.sim.kernel.bus import wait_on_bus
from studio.sim.kernel.custom import start_custom
from studio.sim.kernel.halving import insert_halving, start_halving, use_halving_packet
from studio.sim.kernel.packets import compute_reduction
from studio.sim.kernel.programs import start_program, use_program_packet
from studio.sim.kernel.records import Algorithm, Group, Head, Member, Phase, Rank, Stream
from studio.sim.kernel.ring import insert_packet, start_ring, use_ring_packet, watch_barrier
from studio.sim.kernel.trees import handle_tree_message, start_tree, use_tree_packet


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
        m[s + Stream.STEP_REDUCTION] = compute_reduction(f, m[s + Stream.SIZE])
        start_tree(m, f, s, n, (flags >> 1) & 1)
    elif algorithm == Algorithm.PROGRAM:
        start_program(m, f, s, ph, flags)
    else:
        start_custom(m, f, s, ph)


def handle_stream_message(m, f, s):
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
        wait_on_bus(m, f, s, m[s + Stream.MESSAGE], m[s + Stream.STEP_REDUCTION], False, False)
    else:
        handle_tree_message(m, f, s)


def use_packet(m, f, s):
    """A packet of a stream has done its waits; returns whether that ends the phase."""
    algorithm = m[s + Stream.ALGORITHM]
    if algorithm <= Algorithm.DIRECT:
        return use_ring_packet(m, f, s)
    if algorithm == Algorithm.HALVING:
        return use_halving_packet(m, f, s)
    if algorithm == Algorithm.PROGRAM:
        return use_program_packet(m, f, s)
    return use_tree_packet(m, f, s)
