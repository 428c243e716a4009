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
from studio.sim.kernel.layout import (
    A_FREE,
    A_MEMORY,
    ARRIVE,
    B_BEFORE,
    B_GETS,
    B_LAST,
    B_PENDING,
    B_SIDE,
    B_STATE,
    B_WORK,
    B_WORKING,
    FREE_STREAM,
    GROW_BY,
    IDLE,
    INNER_NPU,
    L_CHAIN,
    L_CODE,
    L_TICK,
    NOW,
    O_POSTED,
    OUTER_NPU,
    OWN,
    P_HOP,
    P_LEFT,
    P_RANK,
    P_RECV,
    P_SEND,
    P_STREAM,
    PH_LAST,
    PH_SCALE,
    PHASE_WORDS,
    Q_BACK,
    Q_OF,
    Q_PACKET,
    Q_RED,
    Q_REDUCE,
    Q_RETIRE,
    Q_SEND,
    Q_WHAT,
    Q_WORK,
    R_BUS,
    R_MEMORY,
    R_NUMBER,
    R_ORDER,
    R_TIMES,
    RANK_WORDS,
    RANKS,
    REDUCING,
    S_A,
    S_COLL,
    S_INDEX,
    S_MESSAGE,
    S_N,
    S_PHASE,
    S_PHASES,
    S_POSTED,
    S_QUEUE,
    S_RANK,
    S_RECV,
    S_SEND,
    S_X,
    SHRINK,
    UNCLAIMED,
    W_CUSTOM,
    W_NODE,
    W_RECV,
    W_RING,
    W_SEND,
    W_SENT,
    W_STREAM,
    WATCH,
    WHAT,
)
from studio.sim.kernel.messages import channel, launch, post, settle, stream_of, take_waiter
from studio.sim.kernel.nodes import complete
from studio.sim.kernel.order import enter, freeze, fresh, in_order, label, later
from studio.sim.kernel.packets import custom_done, packet_free, ring_received, stream_received
from studio.sim.kernel.queues import enqueue, start_waiting


def deliver(m, f, r):
    """A request has come to its end: let the packet go on, or the request of the outer pair it stands for."""
    what = m[r + Q_WHAT]
    of = m[r + Q_OF]
    red = m[r + Q_RED]
    release(m, r)
    if what == Q_RETIRE:
        red = m[of + Q_RED]
        r = of
        of = m[r + Q_OF]
        release(m, r)
        what = Q_PACKET
    if what == Q_PACKET:
        if red > 0:
            later(m, m[of + S_RANK], red - 1, A_FREE, of, 0)
        elif packet_free(m, f, of):
            end_phase(m, f, of)
        return
    s = of
    while m[s + Q_WHAT] != Q_PACKET:
        s = m[s + Q_OF]
    end = m[m[m[s + Q_OF] + S_RANK] + R_BUS]
    if what == Q_WORK:
        queue_work(m, end, of)
        send_next(m, f, end)
    else:
        queue_send(m, f, end, of)


def pass_on(m, f, end, r):
    """After reception or reduction: send a request back, or deliver it."""
    outer = m[end + B_SIDE] == OUTER_NPU
    if m[r + Q_BACK] != 0:
        m[r + Q_BACK] = 0
        if outer:
            through_inner(m, f, end, r, Q_SEND, 1, INNER_NPU)
        else:
            queue_back(m, end, r)
    elif outer:
        through_inner(m, f, end, r, Q_RETIRE, 0, INNER_NPU)
    else:
        deliver(m, f, r)


def bus_got(m, f, end):
    """An end has received: reduce, send back or deliver what came."""
    m[end + B_LAST] = m[NOW]
    m[end + B_BEFORE] = m[end + B_STATE]
    if m[end + B_PENDING] < 2:
        m[end + B_STATE] = IDLE
    r = m[end + B_GETS]
    m[end + B_GETS] = m[r]
    m[end + B_PENDING] -= 1
    if m[r + Q_REDUCE] != 0:
        m[r + Q_REDUCE] = 0
        if m[end + B_SIDE] == OUTER_NPU:
            through_inner(m, f, end, r, Q_WORK, 1, INNER_NPU)
        else:
            queue_work(m, end, r)
    else:
        pass_on(m, f, end, r)
    send_next(m, f, end)


def bus_reduced(m, f, end):
    """A reduction has ended."""
    r = m[end + B_WORK]
    m[end + B_WORK] = m[r]
    m[end + B_WORKING] = 0
    pass_on(m, f, end, r)
    start_work(m, end)
    send_next(m, f, end)


def ring_free(m, f, g):
    """A packet of a ring has done its waits: send its message and post its receive, or end the phase."""
    left = m[g + P_LEFT]
    if left >> REDUCING == 0:
        s = m[g + P_STREAM]
        release(m, g)
        end_phase(m, f, s)
        return
    m[g + P_LEFT] = left - (1 << REDUCING)
    c = m[g + P_SEND]
    hop = m[g + P_HOP]
    if hop >= 0:
        # Most messages of most simulations go this way: nothing but the channel and the time is needed.
        m[c + 7] += 1
        y = 0
        if m[WATCH] != 0:
            y = label(m, 0)
        push(m, m[NOW] + hop, ARRIVE | c << WHAT, y)
    else:
        s = m[g + P_STREAM]
        launch(m, f, c, m[m[g + P_RANK] + R_NUMBER], m[s + S_A], m[s + S_MESSAGE], -1, 0)
    post(m, m[g + P_RECV], g * 8 + W_RING)


def end_phase(m, f, s):
    """End a stream's phase: tell the collective, move on to the next phase, let others start."""
    q = m[s + S_QUEUE]
    ph = m[s + S_PHASE]
    c = m[s + S_SEND]
    if c != 0:
        m[c + 7] -= 1
        settle(m, c)
        c = m[s + S_RECV]
        m[c + 7] -= 1
        settle(m, c)
    coll = m[s + S_COLL]
    rank = m[coll + 1]
    in_order(m, rank, q + 3)
    index = m[s + S_INDEX] + 1
    if m[ph + PH_LAST] != 0:
        in_order(m, rank, coll + 4)
        m[coll + 3] -= 1
        if m[coll + 3] == 0:
            pos = m[coll + 2]
            release(m, coll)
            complete(m, f, rank, pos)
        m[s] = m[FREE_STREAM]
        m[FREE_STREAM] = s
        m[q] -= 1
        start_waiting(m, f, rank, q)
        return
    if m[ph + PH_SCALE] == SHRINK:
        m[s + S_X] //= m[s + S_N]
    elif m[ph + PH_SCALE] == GROW_BY:
        m[s + S_X] *= m[s + S_N]
    m[s + S_INDEX] = index
    m[s + S_PHASE] = ph + PHASE_WORDS
    after = m[s + S_PHASES + index] >> 2
    in_order(m, rank, after + 3)
    enqueue(m, after, s)
    m[q] -= 1
    start_waiting(m, f, rank, q)
    start_waiting(m, f, rank, after)


def memory_done(m, f, rank, pos):
    """A request of shared memory ends: its node completes, then the next request starts."""
    pool = m[rank + R_MEMORY]
    complete(m, f, rank, pos)
    r = m[pool + 1]
    if r == 0:
        m[pool] = 0
        return
    m[pool + 1] = m[r]
    other = m[r + 1]
    at = m[r + 2]
    release(m, r)
    later(m, other, m[m[other + R_TIMES] + at], A_MEMORY, 0, at)


def fire(m, f, code):
    """Tell whoever waits for a message, or for its arrival."""
    kind = code & 7
    x = code >> 3
    if kind == W_RING:
        ring_received(m, x)
    elif kind == W_STREAM:
        stream_received(m, f, x)
    elif kind == W_NODE:
        complete(m, f, m[RANKS] + RANK_WORDS * (x & 0xFFFFF), x >> 20)
    elif kind == W_SENT:
        wait_on_bus(m, f, x, m[x + S_MESSAGE], 0, False, False)
    elif kind == W_CUSTOM:
        if custom_done(m, f, x >> 20, x & 0xFFFFF):
            end_phase(m, f, x >> 20)
    elif W_SEND <= kind <= W_RECV:
        tag = m[x + 1]
        src = m[x + 2]
        dst = m[x + 3]
        size = m[x + 4]
        code = m[x + 5]
        c = channel(m, tag, m[x + 6], size)
        release(m, x)
        if kind == W_SEND:
            launch(m, f, c, src, dst, size, -1, code)
        else:
            post(m, c, code)


def wake(m, f, code, r, source, wild):
    """Fire what happens to a rank because of something labelled `r`."""
    rank = 0
    s = stream_of(m, code)
    if s != 0:
        rank = m[s + S_RANK]
    elif code & 7 == W_NODE:
        rank = m[RANKS] + RANK_WORDS * ((code >> 3) & 0xFFFFF)
    if rank == 0:
        fresh(m)
    else:
        enter(m, rank, m[r + L_TICK], source, m[r + L_CHAIN])
        if wild:
            freeze(m, rank)
    fire(m, f, code)


def arrive_watched(m, f, c, r):
    """A message reaches its destination where the order within a tick is watched."""
    m[c + 7] -= 1
    source = m[c + 2]
    code = m[r + L_CODE]
    if m[c + 5] == 0:
        m[c + 4] += 1
        m[UNCLAIMED] = m[NOW]
        if code != 0:
            wake(m, f, code, r, OWN, False)
        release(m, r)
        return
    w = take_waiter(m, c)
    settle(m, c)
    if code != 0:
        wake(m, f, code, r, OWN, False)
    posted = -1
    s = stream_of(m, w)
    if s != 0:
        posted = m[s + S_POSTED]
    elif w & 7 == W_NODE:
        posted = m[m[m[RANKS] + RANK_WORDS * ((w >> 3) & 0xFFFFF) + R_ORDER] + O_POSTED]
    # Whether the message or the receive came first is not known where both came in this tick.
    wake(m, f, w, r, source, posted == m[NOW])
    release(m, r)


def arrive(m, f, c, code):
    """A message reaches its destination."""
    if m[WATCH] != 0:
        arrive_watched(m, f, c, code)
        return
    m[c + 7] -= 1
    if m[c + 5] != 0:
        w = take_waiter(m, c)
        settle(m, c)
        if code != 0:
            fire(m, f, code)
        fire(m, f, w)
        return
    m[c + 4] += 1
    if code != 0:
        fire(m, f, code)
