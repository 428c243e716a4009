"""Collectives (SEMANTICS.md, sections 5.1 and 5.2): how they are cut into streams."""

from __future__ import annotations

from studio.sim.kernel.clock import alloc
from studio.sim.kernel.order import stamp_order
from studio.sim.kernel.queues import assign_queue, enqueue, start_waiting
from studio.sim.kernel.records import (
    Channel,
    Group,
    Head,
    Job,
    Key,
    Member,
    Node,
    Phase,
    PhaseList,
    Policy,
    Queue,
    Rank,
    Stream,
)


def issue_collective(m, f, rank, pos, node):
    """Cut a collective into streams and let them wait for their first phases."""
    member = 0
    if m[node + Node.GROUP] >= 0:
        member = m[m[rank + Rank.SLOTS] + m[node + Node.GROUP]]
    phases = m[node + Node.WORLD]
    if member != 0 and m[m[member + Member.GROUP] + Group.SIZE] != m[Head.NPUS]:
        phases = m[node + Node.GROUPED]
        if m[Head.EXTENDED] != 0:
            phases = m[m[m[member + Member.GROUP] + Group.PHASES] + phases]
    count = m[node + Node.STREAMS]
    if m[phases + PhaseList.COUNT] == 0 or count == 0:
        # Nothing would ever end such a collective: its node stays in progress.
        return
    priority = m[rank + Rank.PRIORITY]
    if m[Head.POLICY] == Policy.LIFO:
        m[rank + Rank.PRIORITY] = priority + 1
    elif m[Head.POLICY] == Policy.FIFO:
        m[rank + Rank.PRIORITY] = priority - 1
    else:
        priority = m[node + Node.PRIORITY]
    coll = alloc(m)
    m[coll + Job.RANK] = rank
    m[coll + Job.NODE] = pos
    m[coll + Job.LEFT] = count
    m[coll + Job.STAMP] = 0
    single = m[phases + PhaseList.SINGLE]
    for i in range(count):
        number = m[rank + Rank.STREAMS]
        if member == 0 or m[Head.EXTENDED] == 0:
            m[rank + Rank.STREAMS] = number + 1
        tags = Channel.STREAM_TAG
        if m[Head.EXTENDED] != 0 and m[node + Node.COLLECTIVE] == Node.UNEVEN:
            tags += Channel.UNEVEN_TAG
        if member != 0:
            number = m[member + Member.NUMBER]
            m[member + Member.NUMBER] = number + 1
            tags += m[member + Member.TAGS]
        if single != 0:
            phases = m[single + i]
        s = m[Head.FREE_STREAM]
        if s != 0:
            m[Head.FREE_STREAM] = m[s + Stream.NEXT]
        else:
            s = m[Head.TOP]
            m[Head.TOP] = s + m[Head.STREAM_WORDS]
        m[s + Stream.RANK] = rank
        m[s + Stream.SIZE] = m[node + Node.SIZE]
        m[s + Stream.PHASE] = phases + PhaseList.PHASES
        m[s + Stream.INDEX] = 0
        m[s + Stream.COLLECTIVE] = coll
        m[s + Stream.TAG] = tags + number % Channel.STREAM_TAG
        m[s + Stream.PRIORITY] = priority
        m[s + Stream.MEMBER] = member
        m[s + Stream.KEY] = (number & Key.STREAM) << Key.STREAM_SHIFT
        if member != 0:
            m[s + Stream.KEY] |= (m[member + Member.SLOT] & Key.SLOT) << Key.SLOT_SHIFT
        m[s + Stream.CODES] = m[Head.PEERS]
        if member != 0 and m[Head.PEERS] != 0:
            m[s + Stream.CODES] = m[m[member + Member.GROUP] + Group.CODES]
        for at in range(m[phases + PhaseList.COUNT]):
            m[s + Stream.PHASES + at] = assign_queue(
                m, rank, member, phases + PhaseList.PHASES + Phase.WORDS * at
            )
        q = m[s + Stream.PHASES] >> 2
        stamp_order(m, rank, q + Queue.STAMP)
        enqueue(m, q, s)
        start_waiting(m, f, rank, q)
