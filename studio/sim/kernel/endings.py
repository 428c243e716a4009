"""What the end of a phase or a request makes possible (SEMANTICS.md, sections 5.5 and 9)."""

from __future__ import annotations

from studio.sim.kernel.clock import release
from studio.sim.kernel.memory import start_next_request
from studio.sim.kernel.messages import settle
from studio.sim.kernel.nodes import complete
from studio.sim.kernel.order import stamp_order
from studio.sim.kernel.queues import enqueue, start_waiting
from studio.sim.kernel.records import Channel, Head, Job, Key, Phase, Queue, Rank, Stream


def end_phase(m, f, s):
    """End a stream's phase: tell the collective, move on to the next phase, let others start."""
    q = m[s + Stream.QUEUE]
    ph = m[s + Stream.PHASE]
    c = m[s + Stream.SEND]
    if c != 0:
        m[c + Channel.USES] -= 1
        settle(m, c)
        c = m[s + Stream.RECV]
        m[c + Channel.USES] -= 1
        settle(m, c)
    coll = m[s + Stream.COLLECTIVE]
    rank = m[coll + Job.RANK]
    stamp_order(m, rank, q + Queue.STAMP)
    index = m[s + Stream.INDEX] + 1
    if m[ph + Phase.LAST] != 0:
        stamp_order(m, rank, coll + Job.STAMP)
        m[coll + Job.LEFT] -= 1
        if m[coll + Job.LEFT] == 0:
            pos = m[coll + Job.NODE]
            release(m, coll)
            complete(m, f, rank, pos)
        m[s + Stream.NEXT] = m[Head.FREE_STREAM]
        m[Head.FREE_STREAM] = s
        m[q + Queue.RUNNING] -= 1
        start_waiting(m, f, rank, q)
        return
    if m[ph + Phase.SCALE] == Phase.SHRINK:
        m[s + Stream.SIZE] //= m[s + Stream.N]
    elif m[ph + Phase.SCALE] == Phase.GROW_BY:
        m[s + Stream.SIZE] *= m[s + Stream.N]
    m[s + Stream.INDEX] = index
    m[s + Stream.KEY] += Key.PHASE
    m[s + Stream.PHASE] = ph + Phase.WORDS
    after = m[s + Stream.PHASES + index] >> 2
    stamp_order(m, rank, after + Queue.STAMP)
    enqueue(m, after, s)
    m[q + Queue.RUNNING] -= 1
    start_waiting(m, f, rank, q)
    start_waiting(m, f, rank, after)


def end_memory_request(m, f, rank, pos):
    """A request of shared memory ends: its node completes, then the next request starts."""
    complete(m, f, rank, pos)
    start_next_request(m, m[rank + Rank.MEMORY])
