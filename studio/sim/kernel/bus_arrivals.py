"""What an end of the shared bus does with what has come (SEMANTICS.md, section 12)."""

from __future__ import annotations

from studio.sim.kernel.bus import (
    move_through_inner,
    queue_back,
    queue_send,
    queue_work,
    send_next,
    start_work,
)
from studio.sim.kernel.clock import release
from studio.sim.kernel.endings import end_phase
from studio.sim.kernel.order import later
from studio.sim.kernel.phases import use_packet
from studio.sim.kernel.records import Action, Bus, Head, Rank, Request, Stream


def deliver(m, f, r):
    """A request has come to its end: let the packet go on, or the request of the outer pair it stands for."""
    what = m[r + Request.WHAT]
    of = m[r + Request.OF]
    red = m[r + Request.REDUCTION]
    release(m, r)
    if what == Request.TO_RETIRE:
        red = m[of + Request.REDUCTION]
        r = of
        of = m[r + Request.OF]
        release(m, r)
        what = Request.TO_PACKET
    if what == Request.TO_PACKET:
        if red > 0:
            later(m, m[of + Stream.RANK], red - 1, Action.FREE, of, 0)
        elif use_packet(m, f, of):
            end_phase(m, f, of)
        return
    s = of
    while m[s + Request.WHAT] != Request.TO_PACKET:
        s = m[s + Request.OF]
    end = m[m[m[s + Request.OF] + Stream.RANK] + Rank.BUS]
    if what == Request.TO_WORK:
        queue_work(m, end, of)
        send_next(m, f, end)
    else:
        queue_send(m, f, end, of)


def pass_on(m, f, end, r):
    """After reception or reduction: send a request back, or deliver it."""
    outer = m[end + Bus.SIDE] == Bus.OUTER_NPU
    if m[r + Request.BACK] != 0:
        m[r + Request.BACK] = 0
        if outer:
            move_through_inner(m, f, end, r, Request.TO_SEND, 1, Bus.INNER_NPU)
        else:
            queue_back(m, end, r)
    elif outer:
        move_through_inner(m, f, end, r, Request.TO_RETIRE, 0, Bus.INNER_NPU)
    else:
        deliver(m, f, r)


def finish_bus_receive(m, f, end):
    """An end has received: reduce, send back or deliver what came."""
    m[end + Bus.LAST] = m[Head.NOW]
    m[end + Bus.BEFORE] = m[end + Bus.STATE]
    if m[end + Bus.PENDING] < 2:
        m[end + Bus.STATE] = Bus.IDLE
    r = m[end + Bus.GETS]
    m[end + Bus.GETS] = m[r + Request.NEXT]
    m[end + Bus.PENDING] -= 1
    if m[r + Request.REDUCE] != 0:
        m[r + Request.REDUCE] = 0
        if m[end + Bus.SIDE] == Bus.OUTER_NPU:
            move_through_inner(m, f, end, r, Request.TO_WORK, 1, Bus.INNER_NPU)
        else:
            queue_work(m, end, r)
    else:
        pass_on(m, f, end, r)
    send_next(m, f, end)


def finish_bus_reduction(m, f, end):
    """A reduction has ended."""
    r = m[end + Bus.WORK]
    m[end + Bus.WORK] = m[r + Request.NEXT]
    m[end + Bus.WORKING] = 0
    pass_on(m, f, end, r)
    start_work(m, end)
    send_next(m, f, end)
