"""Turns that the collectives of a comm group take, where a cost model times them and nothing says in which order they run.

Collectives of a group are carried out one at a time. Of those all of whose members have come, the first by number begins as
soon as the one before it has ended. One whose members are still to come keeps no other waiting: which of two collectives
that do not depend on each other a program calls for first is the program's choice, and one that calls for them in the
order in which they can be carried out is the one that is simulated.

Turns are given at the end of a tick, so that the order of events within it makes no difference.
"""

from __future__ import annotations

from studio.sim.kernel.clock import merge, push
from studio.sim.kernel.records import Callback, Flow, Head, Log, Turn, Waiting


def ask_turn(m, v):
    """All members of a flow have come: it begins, at once or when its turn comes."""
    turn = m[v + Flow.TURN]
    if turn == 0:
        begin_flow(m, v)
        return
    links = m[turn + Turn.LINKS]
    x = (v - m[turn + Turn.FLOWS]) // Flow.WORDS + 1
    m[links + 2 * x] = 0
    m[links + 2 * x + 1] = 0
    m[turn + Turn.READY] = merge(m, links, m[turn + Turn.READY], x)
    note_turn(m, turn)


def end_turn(m, turn):
    """The flow that was under way has ended: the next one may begin."""
    m[turn + Turn.UNDER_WAY] = 0
    m[turn + Turn.LAST] = m[Head.NOW]
    note_turn(m, turn)


def note_turn(m, turn):
    """Note that a turn may be given at the end of this tick, when all that come in it have come."""
    if m[turn + Turn.NOTED] == 0:
        m[turn + Turn.NOTED] = 1
        m[turn + Turn.NEXT] = m[Head.TURNS]
        m[Head.TURNS] = turn


def give_turn(m):
    """At the end of a tick, let the first of the flows begin that are ready to take a turn, if none is under way."""
    turn = m[Head.TURNS]
    m[Head.TURNS] = m[turn + Turn.NEXT]
    m[turn + Turn.NOTED] = 0
    x = m[turn + Turn.READY]
    if x == 0 or m[turn + Turn.UNDER_WAY] != 0:
        return
    links = m[turn + Turn.LINKS]
    m[turn + Turn.READY] = merge(m, links, m[links + 2 * x], m[links + 2 * x + 1])
    m[turn + Turn.UNDER_WAY] = 1
    v = m[turn + Turn.FLOWS] + Flow.WORDS * (x - 1)
    postpone_issues(m, v, m[turn + Turn.LAST])
    begin_flow(m, v)


def postpone_issues(m, v, tick):
    """Note that members which came while another collective of the group was under way were issued when that one ended."""
    r = m[v + Flow.FIRST]
    while r != 0:
        at = m[r + Waiting.LOG]
        if m[at + Log.TICK] < tick:
            m[at + Log.TICK] = tick
            m[at + Log.WHAT] |= Log.POSTPONED
        r = m[r + Waiting.NEXT]


def begin_flow(m, v):
    """Let the fixed time of a flow pass."""
    m[v + Flow.STATE] = Flow.FIXING
    push(m, m[Head.NOW] + m[v + Flow.FIXED_TIME], Callback.FLOW + (v << Callback.WHAT), 0)
