"""What has come to its end, and who goes on: phases, requests of the bus and of shared memory, messages."""

from __future__ import annotations

from studio.sim.kernel.bus import (
    queue_back,
    queue_send,
    queue_work,
    send_next,
    start_work,
    through_inner,
    wait_on_bus,
)
from studio.sim.kernel.clock import push, release
from studio.sim.kernel.messages import channel, launch, post, settle, stream_of, take_waiter
from studio.sim.kernel.nodes import complete
from studio.sim.kernel.order import enter, freeze, fresh, in_order, label, later
from studio.sim.kernel.packets import custom_done, packet_free, ring_received, stream_received
from studio.sim.kernel.queues import enqueue, start_waiting
from studio.sim.kernel.records import (
    Action,
    Announcement,
    Bus,
    Callback,
    Channel,
    Head,
    Job,
    Label,
    Order,
    Phase,
    Pool,
    Queue,
    Rank,
    Request,
    Ring,
    Stream,
    Waiter,
    Waiting,
)


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
        elif packet_free(m, f, of):
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
            through_inner(m, f, end, r, Request.TO_SEND, 1, Bus.INNER_NPU)
        else:
            queue_back(m, end, r)
    elif outer:
        through_inner(m, f, end, r, Request.TO_RETIRE, 0, Bus.INNER_NPU)
    else:
        deliver(m, f, r)


def bus_got(m, f, end):
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
            through_inner(m, f, end, r, Request.TO_WORK, 1, Bus.INNER_NPU)
        else:
            queue_work(m, end, r)
    else:
        pass_on(m, f, end, r)
    send_next(m, f, end)


def bus_reduced(m, f, end):
    """A reduction has ended."""
    r = m[end + Bus.WORK]
    m[end + Bus.WORK] = m[r + Request.NEXT]
    m[end + Bus.WORKING] = 0
    pass_on(m, f, end, r)
    start_work(m, end)
    send_next(m, f, end)


def ring_free(m, f, g):
    """A packet of a ring has done its waits: send its message and post its receive, or end the phase."""
    left = m[g + Ring.LEFT]
    if left >> Ring.REDUCING == 0:
        s = m[g + Ring.STREAM]
        release(m, g)
        end_phase(m, f, s)
        return
    m[g + Ring.LEFT] = left - (1 << Ring.REDUCING)
    c = m[g + Ring.SEND]
    hop = m[g + Ring.HOP]
    if hop >= 0:
        # Most messages of most simulations go this way: nothing but the channel and the time is needed.
        m[c + Channel.USES] += 1
        y = 0
        if m[Head.WATCH] != 0:
            y = label(m, 0)
        push(m, m[Head.NOW] + hop, Callback.ARRIVE | c << Callback.WHAT, y)
    else:
        s = m[g + Ring.STREAM]
        launch(m, f, c, m[m[g + Ring.RANK] + Rank.NUMBER], m[s + Stream.A], m[s + Stream.MESSAGE], -1, 0)
    post(m, m[g + Ring.RECV], g * 8 + Waiter.RING)


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
    in_order(m, rank, q + Queue.STAMP)
    index = m[s + Stream.INDEX] + 1
    if m[ph + Phase.LAST] != 0:
        in_order(m, rank, coll + Job.STAMP)
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
    m[s + Stream.PHASE] = ph + Phase.WORDS
    after = m[s + Stream.PHASES + index] >> 2
    in_order(m, rank, after + Queue.STAMP)
    enqueue(m, after, s)
    m[q + Queue.RUNNING] -= 1
    start_waiting(m, f, rank, q)
    start_waiting(m, f, rank, after)


def memory_done(m, f, rank, pos):
    """A request of shared memory ends: its node completes, then the next request starts."""
    pool = m[rank + Rank.MEMORY]
    complete(m, f, rank, pos)
    r = m[pool + Pool.FIRST]
    if r == 0:
        m[pool + Pool.BUSY] = 0
        return
    m[pool + Pool.FIRST] = m[r + Waiting.NEXT]
    other = m[r + Waiting.RANK]
    at = m[r + Waiting.NODE]
    release(m, r)
    later(m, other, m[m[other + Rank.TIMES] + at], Action.MEMORY, 0, at)


def fire(m, f, code):
    """Tell whoever waits for a message, or for its arrival."""
    kind = code & 7
    x = code >> 3
    if kind == Waiter.RING:
        ring_received(m, x)
    elif kind == Waiter.STREAM:
        stream_received(m, f, x)
    elif kind == Waiter.NODE:
        complete(m, f, m[Head.RANKS] + Rank.WORDS * (x & 0xFFFFF), x >> 20)
    elif kind == Waiter.SENT:
        wait_on_bus(m, f, x, m[x + Stream.MESSAGE], 0, False, False)
    elif kind == Waiter.CUSTOM:
        if custom_done(m, f, x >> 20, x & 0xFFFFF):
            end_phase(m, f, x >> 20)
    elif Waiter.SEND <= kind <= Waiter.RECV:
        tag = m[x + Announcement.TAG]
        src = m[x + Announcement.FROM]
        dst = m[x + Announcement.TO]
        size = m[x + Announcement.SIZE]
        code = m[x + Announcement.CODE]
        c = channel(m, tag, m[x + Announcement.PAIR], size)
        release(m, x)
        if kind == Waiter.SEND:
            launch(m, f, c, src, dst, size, -1, code)
        else:
            post(m, c, code)


def wake(m, f, code, r, source, wild):
    """Fire what happens to a rank because of something labelled `r`."""
    rank = 0
    s = stream_of(m, code)
    if s != 0:
        rank = m[s + Stream.RANK]
    elif code & 7 == Waiter.NODE:
        rank = m[Head.RANKS] + Rank.WORDS * ((code >> 3) & 0xFFFFF)
    if rank == 0:
        fresh(m)
    else:
        enter(m, rank, m[r + Label.TICK], source, m[r + Label.CHAIN])
        if wild:
            freeze(m, rank)
    fire(m, f, code)


def arrive_watched(m, f, c, r):
    """A message reaches its destination where the order within a tick is watched."""
    m[c + Channel.USES] -= 1
    source = m[c + Channel.PAIR]
    code = m[r + Label.CODE]
    if m[c + Channel.WAITER] == 0:
        m[c + Channel.UNCLAIMED] += 1
        m[Head.UNCLAIMED] = m[Head.NOW]
        if code != 0:
            wake(m, f, code, r, Order.OWN, False)
        release(m, r)
        return
    w = take_waiter(m, c)
    settle(m, c)
    if code != 0:
        wake(m, f, code, r, Order.OWN, False)
    posted = -1
    s = stream_of(m, w)
    if s != 0:
        posted = m[s + Stream.POSTED]
    elif w & 7 == Waiter.NODE:
        posted = m[m[m[Head.RANKS] + Rank.WORDS * ((w >> 3) & 0xFFFFF) + Rank.ORDER] + Order.POSTED]
    # Whether the message or the receive came first is not known where both came in this tick.
    wake(m, f, w, r, source, posted == m[Head.NOW])
    release(m, r)


def arrive(m, f, c, code):
    """A message reaches its destination."""
    if m[Head.WATCH] != 0:
        arrive_watched(m, f, c, code)
        return
    m[c + Channel.USES] -= 1
    if m[c + Channel.WAITER] != 0:
        w = take_waiter(m, c)
        settle(m, c)
        if code != 0:
            fire(m, f, code)
        fire(m, f, w)
        return
    m[c + Channel.UNCLAIMED] += 1
    if code != 0:
        fire(m, f, code)
