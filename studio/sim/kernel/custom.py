"""Collectives given as traces (SEMANTICS.md, section 12)."""

from __future__ import annotations

from studio.sim.kernel.messages import receive, send
from studio.sim.kernel.order import later
from studio.sim.kernel.records import (
    Action,
    Custom,
    Head,
    Kind,
    Member,
    Node,
    Phase,
    Rank,
    Stream,
    Waiter,
)
from studio.sim.kernel.turns import compute_key


def start_custom(m, f, s, ph):
    """Play the trace of a rank's place in the group from its nodes that wait for nothing."""
    place = m[s + Stream.PLACE]
    if m[ph + Phase.N] == 0:
        place = m[m[s + Stream.MEMBER] + Member.SORTED]
    table = m[ph + Phase.TABLE] + 8 * place
    m[s + Stream.TABLE] = table
    count = m[table + Custom.COUNT]
    pend = m[Head.TOP]
    m[Head.TOP] = pend + (count + 7) // 8 * 8
    m[s + Stream.PENDING] = pend
    m[s + Stream.LEFT] = count
    for pos in range(count):
        m[pend + pos] = m[m[table + Custom.PARENTS] + pos]
    for pos in range(count):
        if m[m[table + Custom.PARENTS] + pos] == 0:
            issue_custom(m, f, s, pos)


def issue_custom(m, f, s, pos):
    """Issue a node of a collective given as a trace: no slots, no endpoint or reduction delay."""
    table = m[s + Stream.TABLE]
    node = m[table + Custom.NODES] + Node.WORDS * pos
    kind = m[node + Node.KIND]
    rank = m[s + Stream.RANK]
    if kind == Kind.DELAY:
        later(m, rank, m[node + Node.DURATION], Action.CUSTOM, s, pos)
        return
    me = m[rank + Rank.NUMBER]
    other = m[m[table + Custom.SLOTS] + m[node + Node.PEER]]
    code = ((s << 20) | pos) * 8 + Waiter.CUSTOM
    key = compute_key(m, s, pos)
    if kind == Kind.SEND:
        send(m, f, m[node + Node.TAG], (me << 20) | other, me, other, m[node + Node.SIZE], code, key)
    else:
        receive(m, f, m[node + Node.TAG], (other << 20) | me, other, me, m[node + Node.SIZE], code, key)


def complete_custom_node(m, f, s, pos):
    """A node of a collective given as a trace completes; returns whether it was the last one."""
    node = m[m[s + Stream.TABLE] + Custom.NODES] + Node.WORDS * pos
    pend = m[s + Stream.PENDING]
    at = m[node + Node.CHILDREN]
    for i in range(at, at + m[node + Node.CHILD_COUNT]):
        child = m[i]
        m[pend + child] -= 1
        if m[pend + child] == 0:
            issue_custom(m, f, s, child)
    m[s + Stream.LEFT] -= 1
    return m[s + Stream.LEFT] == 0
