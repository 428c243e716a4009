"""The loop (SEMANTICS.md, section 1): callbacks and actions in their order, from the first tick to the last."""

from __future__ import annotations

from studio.sim.kernel.arrivals import arrive, fire, wake
from studio.sim.kernel.bus import finish_bus_send
from studio.sim.kernel.bus_arrivals import finish_bus_receive, finish_bus_reduction
from studio.sim.kernel.clock import drop_list, forget_list, merge, next_of, next_tick, release
from studio.sim.kernel.custom import complete_custom_node
from studio.sim.kernel.endings import end_memory_request, end_phase
from studio.sim.kernel.flows import advance_flow, pace_flow
from studio.sim.kernel.group_turns import give_turn
from studio.sim.kernel.links import enter_link, free_link
from studio.sim.kernel.messages import rehash
from studio.sim.kernel.nodes import complete, finish_node, go_on, make_ready, resume_from_meeting, sweep
from studio.sim.kernel.order import begin_next_action, enter, get_extended, later, open_list, stamp_order
from studio.sim.kernel.phases import use_packet
from studio.sim.kernel.queues import start_streams
from studio.sim.kernel.records import (
    Action,
    Callback,
    Channel,
    Extended,
    Head,
    Label,
    Message,
    Order,
    Outcome,
    Queue,
    Rank,
    Stream,
    Tick,
)
from studio.sim.kernel.ring import ring_free
from studio.sim.kernel.turns import take_turn


def settle_next(m, f):
    """Do what was put off for the rank of lowest number."""
    links = m[Head.TOUCHED_LINKS]
    i = m[Head.TOUCHED]
    m[Head.TOUCHED] = merge(m, links, m[links + 2 * i], m[links + 2 * i + 1])
    rank = m[Head.RANKS] + Rank.WORDS * (i - 1)
    x = get_extended(m, rank)
    s = m[x + Extended.PACKETS]
    m[x + Extended.PACKETS] = 0
    while s != 0:
        after = m[s]
        m[s + Stream.HELD] = 0
        if m[s + Stream.RECEIVED] >= m[s + Stream.BARRIER]:
            # One of those that wait comes free again.
            m[s + Stream.FREE] -= 1
            if use_packet(m, f, s):
                end_phase(m, f, s)
        s = after
    if m[x + Extended.DONE] != 0:
        links = m[rank + Rank.LINKS]
        while m[x + Extended.DONE] != 0:
            i = m[x + Extended.DONE]
            m[x + Extended.DONE] = merge(m, links, m[links + 2 * i], m[links + 2 * i + 1])
            finish_node(m, rank, i - 1)
        go_on(m, f, rank)
    while m[x + Extended.QUEUES] > 0:
        q = m[x + Extended.QUEUES]
        m[x + Extended.QUEUES] = m[q + Queue.NEXT]
        m[q + Queue.NEXT] = 0
        start_streams(m, f, q)
    m[x + Extended.TOUCHED] = 0


def act(m, f, rank, kind, x, y):
    """Run an action of a rank."""
    if kind == Action.RING:
        s = ring_free(m, f, x)
        if s != 0:
            end_phase(m, f, s)
    elif kind == Action.WAIT:
        later(m, rank, y, Action.RING, x, 0)
    elif kind == Action.BUS:
        later(m, rank, y, Action.FREE, x, 0)
    elif kind == Action.FREE:
        if use_packet(m, f, x):
            end_phase(m, f, x)
    elif kind == Action.NODE:
        complete(m, f, rank, y)
    elif kind == Action.MEMORY:
        end_memory_request(m, f, rank, y)
    elif kind == Action.CUSTOM:
        if complete_custom_node(m, f, x, y):
            end_phase(m, f, x)
    elif kind == Action.SENT:
        finish_bus_send(m, f, x)
    elif kind == Action.GOT:
        finish_bus_receive(m, f, x)
    elif kind == Action.REDUCED:
        finish_bus_reduction(m, f, x)
    elif kind == Action.BEGIN:
        go_on(m, f, rank)
    elif kind == Action.OPEN:
        m[Head.STEPS] -= 1
        open_list(m, rank, y)
    elif kind == Action.MARK:
        m[Head.STEPS] -= 1
        begin_next_action(m, rank, y)


def start_rank(m, f, rank):
    """Let a rank issue the nodes that wait for nothing, at tick 0, or later where it begins later."""
    pend = m[rank + Rank.PARENTS]
    for pos in range(m[rank + Rank.COUNT]):
        if m[pend + pos] == 0:
            make_ready(m, rank, pos)
    if m[Head.WATCH] != 0:
        enter(m, rank, -1, Order.OWN, 0)
    if m[rank + Rank.BEGIN] != 0:
        later(m, rank, m[rank + Rank.BEGIN], Action.BEGIN, 0, 0)
    elif m[Head.EXTENDED] != 0:
        go_on(m, f, rank)
    else:
        sweep(m, f, rank)


def call_back(m, f, kind, x, y):
    """Run a callback of the global queue that is no rank's list."""
    if kind == Callback.ARRIVE:
        arrive(m, f, x, y)
    elif kind == Callback.LATE:
        if m[Head.WATCH] != 0:
            wake(m, f, m[y + Label.CODE], y, Order.OWN, m[y + Label.WILD] != 0)
            release(m, y)
        else:
            fire(m, f, y)
    elif kind == Callback.HOP:
        if m[Head.WATCH] != 0:
            # What was scheduled last is the way over the link before this device.
            m[m[x + Message.CODE] + Label.TICK] = m[Head.NOW] - m[x + Message.TIME]
            m[Head.STAMPS] += 1
            m[m[x + Message.CODE] + Label.CHAIN] = m[Head.STAMPS]
            if m[x + Message.DEVICE] == m[Head.NPUS]:
                rank = m[Head.RANKS] + Rank.WORDS * m[m[Head.PEERS] + m[x + Message.DESTINATION]]
                enter(
                    m,
                    rank,
                    m[Head.NOW] - m[x + Message.TIME],
                    m[m[x + Message.CHANNEL] + Channel.PAIR],
                    m[Head.STAMPS],
                )
        if m[x + Message.DEVICE] == m[x + Message.DESTINATION]:
            c = m[x + Message.CHANNEL]
            y = m[x + Message.CODE]
            release(m, x)
            arrive(m, f, c, y)
        else:
            enter_link(m, f, x, m[x + Message.DEVICE], m[x + Message.DESTINATION])
    elif kind == Callback.RING:
        s = ring_free(m, f, x)
        if s != 0:
            end_phase(m, f, s)
    elif kind == Callback.OVER:
        resume_from_meeting(m, f, x)
    elif kind == Callback.FLOW:
        advance_flow(m, f, x)
    else:
        if m[Head.WATCH] != 0:
            record = m[Head.LINK_ORDER] + ((x - m[Head.LINKS]) >> 2)
            enter(m, m[record], m[y + Label.TICK], Order.OWN, m[y + Label.CHAIN])
            release(m, y)
            stamp_order(m, m[record], record + 1)
        free_link(m, f, x)


def run(m, f, room, budget):
    """Run callbacks until `budget` of them have run, none is left, or the `room` words of `m` run full.

    A step is a callback or an action; a rank's list is a callback of its own. In between two steps all is in
    `m`: the tick that runs, how far it was read (T_READ), and, where a rank's list runs, its callback.
    """
    steps = 0
    limit = room - m[Head.MARGIN]
    while m[Head.STARTED] < m[Head.COUNT] and m[Head.TOP] <= limit:
        m[Head.STARTED] += 1
        start_rank(m, f, m[Head.RANKS] + Rank.WORDS * (m[Head.STARTED] - 1))
    if m[Head.STARTED] < m[Head.COUNT]:
        return Outcome.GROW
    t = m[Head.LIST]
    slot = m[Head.BUCKET]
    ranks = m[Head.RANKS]
    settling = m[Head.SETTLING] != 0
    while steps < budget and m[Head.TOP] <= limit:
        if slot == 0:
            at = 0
            if t != 0:
                at = m[t + Tick.READ]
            if settling or t == 0 or at == m[t + Tick.WRITE]:
                if m[Head.TOUCHED] != 0:
                    settling = True
                    m[Head.SETTLING] = 1
                    steps += 1
                    settle_next(m, f)
                    continue
                if m[Head.JOINED_COUNT] != 0:
                    settling = True
                    m[Head.SETTLING] = 1
                    steps += 1
                    take_turn(m, f)
                    continue
                if settling:
                    settling = False
                    m[Head.SETTLING] = 0
                    if t != 0 and at != m[t + Tick.WRITE]:
                        continue
                if m[Head.TURNS] != 0:
                    steps += 1
                    give_turn(m)
                    continue
                if m[Head.CHANGED] != 0:
                    steps += 1
                    pace_flow(m, f)
                    continue
                if t != 0:
                    drop_list(m, t)
                m[Head.LIST] = 0
                t = 0
                if m[Head.ERROR] != 0:
                    break
                if m[Head.CHANNEL_COUNT] > 2 * m[Head.CHANNEL_MASK]:
                    if m[Head.TOP] + 4 * m[Head.CHANNEL_MASK] + 4 > limit:
                        break
                    rehash(m)
                t = next_tick(m)
                m[Head.LIST] = t
                if t == 0:
                    m[Head.STEPS] += steps
                    return Outcome.DONE
                at = t + Tick.EVENTS
            at = next_of(m, t, at)
            m[t + Tick.READ] = at + 2
            x = m[at]
            y = m[at + 1]
            steps += 1
            kind = x & Callback.KIND
            if kind < Callback.RANK_LIST:
                call_back(m, f, kind, x >> Callback.WHAT, y)
                continue
            slot = at
            rank = ranks + (x & Action.RANK)
            if kind != Callback.MANY:
                m[slot] = x | Callback.MANY
                m[slot + 1] = 0
                kind -= Callback.RANK_LIST
        else:
            kind = Callback.MANY
            rank = ranks + (m[slot] & Action.RANK)
        if kind == Callback.MANY:
            b = m[slot + 1]
            at = next_of(m, b, m[b + Tick.READ])
            m[b + Tick.READ] = at + 2
            x = m[at]
            y = m[at + 1]
            kind = x & Callback.KIND
        steps += 1
        act(m, f, rank, kind, x >> Action.WHAT, y)
        b = m[slot + 1]
        if b == 0 or m[b + Tick.READ] == m[b + Tick.WRITE]:
            if b != 0:
                drop_list(m, b)
            forget_list(m, rank)
            slot = 0
        m[Head.BUCKET] = slot
    m[Head.STEPS] += steps
    if m[Head.ERROR] != 0:
        return Outcome.FAILED
    if steps < budget:
        return Outcome.GROW
    return Outcome.PAUSED


def data_of(array):
    """Return what the functions index: the list itself, or, compiled, the address of the array's items."""
    return array


def entry(m, f, budget):
    """Run over whole arrays, see `run`."""
    return run(data_of(m), data_of(f), len(m), budget)
