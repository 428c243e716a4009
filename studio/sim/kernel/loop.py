"""The loop: callbacks and actions in their order, from the first tick to the last."""

from __future__ import annotations

from studio.sim.kernel.arrivals import (
    arrive,
    bus_got,
    bus_reduced,
    end_phase,
    fire,
    memory_done,
    ring_free,
    wake,
)
from studio.sim.kernel.bus import bus_sent
from studio.sim.kernel.clock import drop_list, forget_list, merge, next_of, next_tick, release
from studio.sim.kernel.layout import (
    A_BEGIN,
    A_BUS,
    A_CUSTOM,
    A_FREE,
    A_GOT,
    A_MARK,
    A_MEMORY,
    A_NODE,
    A_OPEN,
    A_REDUCED,
    A_RING,
    A_SENT,
    A_WAIT,
    ARRIVE,
    BUCKET,
    CHANNEL_COUNT,
    CHANNEL_MASK,
    COUNT,
    DONE,
    ERROR,
    EXTENDED,
    FAILED,
    GROW,
    HOP,
    KIND,
    L_CHAIN,
    L_CODE,
    L_TICK,
    L_WILD,
    LATE,
    LINK_ORDER,
    LINKS,
    LIST,
    MANY,
    MARGIN,
    NOW,
    NPUS,
    OVER,
    OWN,
    PAUSED,
    PEERS,
    R_BEGIN,
    R_COUNT,
    R_LINKS,
    R_PEND,
    RANK_LIST,
    RANK_MASK,
    RANK_WHAT,
    RANK_WORDS,
    RANKS,
    S_BARRIER,
    S_FREE,
    S_HELD,
    S_RECEIVED,
    SETTLING,
    STAMPS,
    STARTED,
    STEPS,
    T_EVENTS,
    T_READ,
    T_WRITE,
    TOP,
    TOUCHED,
    TOUCHED_LINKS,
    WATCH,
    WHAT,
    X_DONE,
    X_PACKETS,
    X_QUEUES,
    X_TOUCHED,
)
from studio.sim.kernel.links import enter_link, free_link
from studio.sim.kernel.messages import rehash
from studio.sim.kernel.nodes import complete, finish_node, go_on, make_ready, part, sweep
from studio.sim.kernel.order import enter, extended_of, in_order, later, next_action, open_list
from studio.sim.kernel.packets import custom_done, packet_free
from studio.sim.kernel.queues import start_streams


def settle_next(m, f):
    """Do what was put off for the rank of lowest number."""
    links = m[TOUCHED_LINKS]
    i = m[TOUCHED]
    m[TOUCHED] = merge(m, links, m[links + 2 * i], m[links + 2 * i + 1])
    rank = m[RANKS] + RANK_WORDS * (i - 1)
    x = extended_of(m, rank)
    s = m[x + X_PACKETS]
    m[x + X_PACKETS] = 0
    while s != 0:
        after = m[s]
        m[s + S_HELD] = 0
        if m[s + S_RECEIVED] >= m[s + S_BARRIER]:
            # One of those that wait comes free again.
            m[s + S_FREE] -= 1
            if packet_free(m, f, s):
                end_phase(m, f, s)
        s = after
    if m[x + X_DONE] != 0:
        links = m[rank + R_LINKS]
        while m[x + X_DONE] != 0:
            i = m[x + X_DONE]
            m[x + X_DONE] = merge(m, links, m[links + 2 * i], m[links + 2 * i + 1])
            finish_node(m, rank, i - 1)
        go_on(m, f, rank)
    while m[x + X_QUEUES] > 0:
        q = m[x + X_QUEUES]
        m[x + X_QUEUES] = m[q + 3]
        m[q + 3] = 0
        start_streams(m, f, q)
    m[x + X_TOUCHED] = 0


def act(m, f, rank, kind, x, y):
    """Run an action of a rank."""
    if kind == A_RING:
        ring_free(m, f, x)
    elif kind == A_WAIT:
        later(m, rank, y, A_RING, x, 0)
    elif kind == A_BUS:
        later(m, rank, y, A_FREE, x, 0)
    elif kind == A_FREE:
        if packet_free(m, f, x):
            end_phase(m, f, x)
    elif kind == A_NODE:
        complete(m, f, rank, y)
    elif kind == A_MEMORY:
        memory_done(m, f, rank, y)
    elif kind == A_CUSTOM:
        if custom_done(m, f, x, y):
            end_phase(m, f, x)
    elif kind == A_SENT:
        bus_sent(m, f, x)
    elif kind == A_GOT:
        bus_got(m, f, x)
    elif kind == A_REDUCED:
        bus_reduced(m, f, x)
    elif kind == A_BEGIN:
        go_on(m, f, rank)
    elif kind == A_OPEN:
        m[STEPS] -= 1
        open_list(m, rank, y)
    elif kind == A_MARK:
        m[STEPS] -= 1
        next_action(m, rank, y)


def start_rank(m, f, rank):
    """Let a rank issue the nodes that wait for nothing, at tick 0, or later where it begins later."""
    pend = m[rank + R_PEND]
    for pos in range(m[rank + R_COUNT]):
        if m[pend + pos] == 0:
            make_ready(m, rank, pos)
    if m[WATCH] != 0:
        enter(m, rank, -1, OWN, 0)
    if m[rank + R_BEGIN] != 0:
        later(m, rank, m[rank + R_BEGIN], A_BEGIN, 0, 0)
    elif m[EXTENDED] != 0:
        go_on(m, f, rank)
    else:
        sweep(m, f, rank)


def call_back(m, f, kind, x, y):
    """Run a callback of the global queue that is no rank's list."""
    if kind == ARRIVE:
        arrive(m, f, x, y)
    elif kind == LATE:
        if m[WATCH] != 0:
            wake(m, f, m[y + L_CODE], y, OWN, m[y + L_WILD] != 0)
            release(m, y)
        else:
            fire(m, f, y)
    elif kind == HOP:
        if m[WATCH] != 0:
            # What was scheduled last is the way over the link before this device.
            m[m[x + 3] + L_TICK] = m[NOW] - m[x + 7]
            m[STAMPS] += 1
            m[m[x + 3] + L_CHAIN] = m[STAMPS]
            if m[x + 4] == m[NPUS]:
                rank = m[RANKS] + RANK_WORDS * m[m[PEERS] + m[x + 5]]
                enter(m, rank, m[NOW] - m[x + 7], m[m[x + 2] + 2], m[STAMPS])
        if m[x + 4] == m[x + 5]:
            c = m[x + 2]
            y = m[x + 3]
            release(m, x)
            arrive(m, f, c, y)
        else:
            enter_link(m, f, x, m[x + 4], m[x + 5])
    elif kind == OVER:
        part(m, f, x)
    else:
        if m[WATCH] != 0:
            mine = m[LINK_ORDER] + ((x - m[LINKS]) >> 2)
            enter(m, m[mine], m[y + L_TICK], OWN, m[y + L_CHAIN])
            release(m, y)
            in_order(m, m[mine], mine + 1)
        free_link(m, f, x)


def run(m, f, room, budget):
    """Run callbacks until `budget` of them have run, none is left, or the `room` words of `m` run full.

    A step is a callback or an action; a rank's list is a callback of its own. In between two steps all is in
    `m`: the tick that runs, how far it was read (T_READ), and, where a rank's list runs, its callback.
    """
    steps = 0
    limit = room - m[MARGIN]
    while m[STARTED] < m[COUNT] and m[TOP] <= limit:
        m[STARTED] += 1
        start_rank(m, f, m[RANKS] + RANK_WORDS * (m[STARTED] - 1))
    if m[STARTED] < m[COUNT]:
        return GROW
    t = m[LIST]
    slot = m[BUCKET]
    ranks = m[RANKS]
    settling = m[SETTLING] != 0
    while steps < budget and m[TOP] <= limit:
        if slot == 0:
            at = 0
            if t != 0:
                at = m[t + T_READ]
            if settling or t == 0 or at == m[t + T_WRITE]:
                if m[TOUCHED] != 0:
                    settling = True
                    m[SETTLING] = 1
                    steps += 1
                    settle_next(m, f)
                    continue
                if settling:
                    settling = False
                    m[SETTLING] = 0
                    if t != 0 and at != m[t + T_WRITE]:
                        continue
                if t != 0:
                    drop_list(m, t)
                m[LIST] = 0
                t = 0
                if m[ERROR] != 0:
                    break
                if m[CHANNEL_COUNT] > 2 * m[CHANNEL_MASK]:
                    if m[TOP] + 4 * m[CHANNEL_MASK] + 4 > limit:
                        break
                    rehash(m)
                t = next_tick(m)
                m[LIST] = t
                if t == 0:
                    m[STEPS] += steps
                    return DONE
                at = t + T_EVENTS
            at = next_of(m, t, at)
            m[t + T_READ] = at + 2
            x = m[at]
            y = m[at + 1]
            steps += 1
            kind = x & KIND
            if kind < RANK_LIST:
                call_back(m, f, kind, x >> WHAT, y)
                continue
            slot = at
            rank = ranks + (x & RANK_MASK)
            if kind != MANY:
                m[slot] = x | MANY
                m[slot + 1] = 0
                kind -= RANK_LIST
        else:
            kind = MANY
            rank = ranks + (m[slot] & RANK_MASK)
        if kind == MANY:
            b = m[slot + 1]
            at = next_of(m, b, m[b + T_READ])
            m[b + T_READ] = at + 2
            x = m[at]
            y = m[at + 1]
            kind = x & KIND
        steps += 1
        act(m, f, rank, kind, x >> RANK_WHAT, y)
        b = m[slot + 1]
        if b == 0 or m[b + T_READ] == m[b + T_WRITE]:
            if b != 0:
                drop_list(m, b)
            forget_list(m, rank)
            slot = 0
        m[BUCKET] = slot
    m[STEPS] += steps
    if m[ERROR] != 0:
        return FAILED
    if steps < budget:
        return GROW
    return PAUSED


def data_of(array):
    """Return what the functions index: the list itself, or, compiled, the address of the array's items."""
    return array


def entry(m, f, budget):
    """Run over whole arrays, see `run`."""
    return run(data_of(m), data_of(f), len(m), budget)
