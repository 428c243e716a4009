"""Flows: collectives and messages that a cost model times, see `studio.sim.flow_plans`.

A flow begins when the last member that it waits for has come, and when it is its turn (`group_turns`). A fixed time passes, then its bytes move and take up a part of
each port they pass; a port holds `Flow.WHOLE`. Where flows together ask for more, all that pass the port are slowed by as
much, each by the fullest port it passes: it runs at 1 / its load, the load being no less than whole. So a flow that begins
or ends changes the pace of those it shares ports with, and no others. All members end together.

What becomes of ports in a tick is only noted, and the pace of flows worked out at the tick's end, where it depends on
nothing but which flows move; so the order of events within a tick makes no difference.
"""

from __future__ import annotations

from studio.sim.kernel.clock import push, release
from studio.sim.kernel.group_turns import end_turn
from studio.sim.kernel.nodes import complete
from studio.sim.kernel.records import Callback, Flow, Head, Port, Use, Waiting


def advance_flow(m, f, v):
    """Do what a flow was to do in this tick: let its bytes move, end it, or let a member go on."""
    state = m[v + Flow.STATE]
    if state == Flow.FIXING:
        start_flow(m, f, v)
    elif state == Flow.MOVING:
        # Ends that were put off or brought forward are still in the clock.
        if m[v + Flow.END] == m[Head.NOW]:
            end_flow(m, f, v)
    elif state == Flow.OVER:
        resume_from_flow(m, f, v)


def start_flow(m, f, v):
    """The fixed time has passed: the bytes of a flow begin to move."""
    if m[v + Flow.WORK] == 0:
        end_flow(m, f, v)
        return
    m[v + Flow.STATE] = Flow.MOVING
    m[v + Flow.NEXT_LOAD] = Flow.WHOLE
    f[m[v + Flow.REST]] = m[v + Flow.WORK]
    note_flow(m, v, Flow.RAISED)
    u = m[v + Flow.USES]
    for _ in range(m[v + Flow.USE_COUNT]):
        port = m[u + Use.PORT]
        m[u + Use.NEXT] = m[port + Port.FIRST]
        m[port + Port.FIRST] = u
        load = m[port + Port.LOAD] + m[u + Use.AMOUNT]
        m[port + Port.LOAD] = load
        if load > Flow.WHOLE:
            raise_port(m, port, load)
        u += Use.WORDS


def raise_port(m, port, load):
    """A port is fuller than full: note the flows that are slowed by that."""
    u = m[port + Port.FIRST]
    while u != 0:
        v = m[u + Use.FLOW]
        if m[v + Flow.NEXT_LOAD] < load:
            m[v + Flow.NEXT_LOAD] = load
            note_flow(m, v, Flow.RAISED)
        u = m[u + Use.NEXT]


def end_flow(m, f, v):
    """A flow has ended: it leaves its ports, and its members go on."""
    if m[v + Flow.STATE] == Flow.MOVING:
        u = m[v + Flow.USES]
        for _ in range(m[v + Flow.USE_COUNT]):
            leave_port(m, m[u + Use.PORT], u)
            u += Use.WORDS
    m[v + Flow.STATE] = Flow.OVER
    if m[v + Flow.TURN] != 0:
        end_turn(m, m[v + Flow.TURN])
    resume_from_flow(m, f, v)


def leave_port(m, port, use):
    """Take a use off a port, and note the flows that were slowed by this port."""
    u = m[port + Port.FIRST]
    if u == use:
        m[port + Port.FIRST] = m[use + Use.NEXT]
    else:
        while m[u + Use.NEXT] != use:
            u = m[u + Use.NEXT]
        m[u + Use.NEXT] = m[use + Use.NEXT]
    before = m[port + Port.LOAD]
    m[port + Port.LOAD] = before - m[use + Use.AMOUNT]
    if before > Flow.WHOLE:
        u = m[port + Port.FIRST]
        while u != 0:
            v = m[u + Use.FLOW]
            if m[v + Flow.NEXT_LOAD] == before:
                note_flow(m, v, Flow.LOWERED)
            u = m[u + Use.NEXT]


def note_flow(m, v, what):
    """Note that a port of a flow has changed."""
    if m[v + Flow.CHANGED] == Flow.SAME:
        m[v + Flow.NEXT] = m[Head.CHANGED]
        m[Head.CHANGED] = v
    m[v + Flow.CHANGED] |= what


def pace_flow(m, f):
    """At the end of a tick, work out anew when a flow ends of which a port has changed."""
    v = m[Head.CHANGED]
    m[Head.CHANGED] = m[v + Flow.NEXT]
    what = m[v + Flow.CHANGED]
    m[v + Flow.CHANGED] = Flow.SAME
    if m[v + Flow.STATE] != Flow.MOVING:
        return
    if what & Flow.LOWERED != 0:
        most = Flow.WHOLE
        u = m[v + Flow.USES]
        for _ in range(m[v + Flow.USE_COUNT]):
            most = max(most, m[m[u + Use.PORT] + Port.LOAD])
            u += Use.WORDS
        m[v + Flow.NEXT_LOAD] = most
    load = m[v + Flow.NEXT_LOAD]
    before = m[v + Flow.LOAD]
    if load == before:
        return
    now = m[Head.NOW]
    rest = f[m[v + Flow.REST]]
    if before != 0:
        rest -= (now - m[v + Flow.SINCE]) / before * Flow.WHOLE
        rest = max(rest, 0.0)
        f[m[v + Flow.REST]] = rest
    m[v + Flow.LOAD] = load
    m[v + Flow.SINCE] = now
    takes = rest * load / Flow.WHOLE
    end = int(takes)
    if takes - end > Flow.TOLERANCE:
        end += 1
    m[v + Flow.END] = now + end
    push(m, now + end, Callback.FLOW + (v << Callback.WHAT), 0)


def resume_from_flow(m, f, v):
    """The first member that waits for the end of a flow goes on, the others follow in this tick."""
    r = m[v + Flow.FIRST]
    if r == 0:
        return
    m[v + Flow.FIRST] = m[r + Waiting.NEXT]
    if m[r + Waiting.NEXT] != 0:
        push(m, m[Head.NOW], Callback.FLOW + (v << Callback.WHAT), 0)
    rank = m[r + Waiting.RANK]
    pos = m[r + Waiting.NODE]
    release(m, r)
    complete(m, f, rank, pos)
