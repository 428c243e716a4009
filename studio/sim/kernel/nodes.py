"""Nodes (SEMANTICS.md, section 3): which are ready, which are issued, and what their completion makes possible.

Per rank one slot each for CPU, compute and communication; receives need none. A sweep visits the nodes that are ready in
ascending id and issues each whose slot is free at that moment. It happens at the start and after every completion. Nodes
that become ready during a sweep wait for the next one.

Ready nodes of a slot wait in a skew heap by position, which is the order of ids; positions count from 1 there, two links
per node.
"""

from __future__ import annotations

from studio.sim.kernel.clock import alloc, merge, push, release
from studio.sim.kernel.collectives import issue_collective
from studio.sim.kernel.group_turns import ask_turn
from studio.sim.kernel.memory import request_memory
from studio.sim.kernel.messages import receive, send
from studio.sim.kernel.order import get_extended, later, stamp_order, touch
from studio.sim.kernel.records import (
    Action,
    Callback,
    Extended,
    Flow,
    Head,
    Kind,
    Log,
    Meeting,
    Member,
    Node,
    Order,
    Rank,
    Slot,
    Waiter,
    Waiting,
)
from studio.sim.kernel.turns import compute_peer_key


def make_ready(m, rank, pos):
    """A node's last parent has completed."""
    m[rank + Rank.READY] += 1
    links = m[rank + Rank.LINKS]
    x = pos + 1
    if m[Head.SWEEPING] != 0:
        m[links + 2 * x] = m[Head.PENDING]
        m[Head.PENDING] = x
        return
    m[links + 2 * x] = 0
    m[links + 2 * x + 1] = 0
    heap = rank + Rank.HEAP + m[m[rank + Rank.NODES] + Node.WORDS * pos + Node.SLOT]
    m[heap] = merge(m, links, m[heap], x)


def log(m, rank, pos, kind):
    """Record that a node is issued (0) or completes (1)."""
    at = m[Head.LOG]
    m[at + Log.TICK] = m[Head.NOW]
    m[at + Log.WHAT] = (m[rank + Rank.NUMBER] << Log.RANK) + 2 * pos + kind
    m[Head.LOG] = at + Log.WORDS


def finish_node(m, rank, pos):
    """Record a completion, free the slot, update the children."""
    log(m, rank, pos, 1)
    node = m[rank + Rank.NODES] + Node.WORDS * pos
    slot = m[node + Node.SLOT]
    if slot < Slot.NONE:
        m[rank + Rank.SLOT + slot] = 0
    if slot == Slot.COMMUNICATION and m[Head.SLOTS] > 1:
        m[get_extended(m, rank) + Extended.USED] -= 1
        if m[node + Node.KIND] == Kind.COLLECTIVE:
            free_turn(m, rank, group_state(m, rank, node), rank + Rank.HEAP + Slot.COMMUNICATION)
    if m[node + Node.LANE] != 0:
        at = m[get_extended(m, rank) + Extended.LANES] + 2 * m[node + Node.LANE]
        free_turn(m, rank, at, rank + Rank.HEAP + slot)
    m[rank + Rank.BUSY] -= 1
    pend = m[rank + Rank.PARENTS]
    at = m[node + Node.CHILDREN]
    for i in range(at, at + m[node + Node.CHILD_COUNT]):
        child = m[i]
        m[pend + child] -= 1
        if m[pend + child] == 0:
            make_ready(m, rank, child)


def group_state(m, rank, node):
    """Return where it is noted whether a collective of a node's group is under way, and which ones wait for that."""
    if m[node + Node.GROUP] >= 0:
        member = m[m[rank + Rank.SLOTS] + m[node + Node.GROUP]]
        if member != 0:
            return member + Member.BUSY
    return get_extended(m, rank) + Extended.BUSY


def waits_for_group(m, rank, x):
    """Let a collective wait if another one of its group is under way; returns whether it waits."""
    node = m[rank + Rank.NODES] + Node.WORDS * (x - 1)
    if m[node + Node.KIND] != Kind.COLLECTIVE:
        return False
    return waits_in_turn(m, rank, x, group_state(m, rank, node))


def waits_for_lane(m, rank, x):
    """Let a node wait if another one of its thread or stream is under way; returns whether it waits."""
    lane = m[m[rank + Rank.NODES] + Node.WORDS * (x - 1) + Node.LANE]
    return lane != 0 and waits_in_turn(m, rank, x, m[get_extended(m, rank) + Extended.LANES] + 2 * lane)


def waits_in_turn(m, rank, x, at):
    """Take a slot if it is free, else wait for it; returns whether it waits."""
    if m[at] == 0:
        m[at] = 1
        return False
    links = m[rank + Rank.LINKS]
    m[links + 2 * x] = 0
    m[links + 2 * x + 1] = 0
    m[at + 1] = merge(m, links, m[at + 1], x)
    return True


def free_turn(m, rank, at, heap):
    """A slot is free: the node of lowest id that waits for it is ready again."""
    m[at] = 0
    x = m[at + 1]
    if x != 0:
        links = m[rank + Rank.LINKS]
        m[at + 1] = merge(m, links, m[links + 2 * x], m[links + 2 * x + 1])
        m[links + 2 * x] = 0
        m[links + 2 * x + 1] = 0
        m[heap] = merge(m, links, m[heap], x)


def issue(m, f, rank, pos):
    """Issue a node: record it, then let it take effect."""
    node = m[rank + Rank.NODES] + Node.WORDS * pos
    log(m, rank, pos, 0)
    m[rank + Rank.BUSY] += 1
    slot = m[node + Node.SLOT]
    if slot < Slot.NONE and m[node + Node.LANE] == 0:
        m[rank + Rank.SLOT + slot] = 1
    if slot == Slot.COMMUNICATION and m[Head.SLOTS] > 1:
        at = get_extended(m, rank) + Extended.USED
        m[at] += 1
        if m[at] < m[Head.SLOTS]:
            m[rank + Rank.SLOT + slot] = 0
    kind = m[node + Node.KIND]
    if kind == Kind.DELAY:
        time = m[m[rank + Rank.TIMES] + pos]
        if slot == Slot.COMPUTE and m[Head.SPEEDS] != 0:
            time = max(int(time / f[m[Head.SPEEDS] + m[rank + Rank.NUMBER]]), 1)
        later(m, rank, time, Action.NODE, 0, pos)
    elif kind == Kind.MEET:
        meet(m, rank, pos, node)
    elif kind == Kind.FLOW:
        join_flow(m, rank, pos, node)
    elif kind == Kind.COLLECTIVE:
        issue_collective(m, f, rank, pos, node)
    elif kind == Kind.INSTANT:
        finish_node(m, rank, pos)
        m[Head.WOKEN] = m[Head.EXTENDED]
    elif kind == Kind.MEMORY:
        request_memory(m, rank, pos)
    else:
        number = m[rank + Rank.NUMBER]
        other = m[m[rank + Rank.SLOTS] + m[node + Node.PEER]]
        code = ((pos << 20) | ((rank - m[Head.RANKS]) >> Rank.BITS)) * 8 + Waiter.NODE
        key = compute_peer_key(m[node + Node.TAG], m[node + Node.PEER])
        # In a folded run the names of messages to and from a peer stand before the slots.
        pairs = m[rank + Rank.SLOTS] - 2 - 2 * m[node + Node.PEER]
        if kind == Kind.SEND:
            pair = (number << 20) | other
            if m[Head.PEERS] != 0:
                pair = m[pairs]
            send(m, f, m[node + Node.TAG], pair, number, other, m[node + Node.SIZE], code, key)
        else:
            pair = (other << 20) | number
            if m[Head.PEERS] != 0:
                pair = m[pairs + 1]
            receive(m, f, m[node + Node.TAG], pair, other, number, m[node + Node.SIZE], code, key)


def meet(m, rank, pos, node):
    """Let a node join the nodes of other ranks; all go on when the last has joined."""
    at = m[rank + Rank.MEETINGS] + 2 * m[node + Node.PEER]
    v = m[at]
    time = m[at + 1]
    m[v + Meeting.LEFT] -= 1
    if time < 0:
        later(m, rank, -time, Action.NODE, 0, pos)
    else:
        r = alloc(m)
        m[r + Waiting.NEXT] = 0
        m[r + Waiting.RANK] = rank
        m[r + Waiting.NODE] = pos
        m[r + Waiting.TIME] = time
        if m[v + Meeting.FIRST] == 0:
            m[v + Meeting.FIRST] = r
        else:
            m[m[v + Meeting.LAST] + Waiting.NEXT] = r
        m[v + Meeting.LAST] = r
    if m[v + Meeting.LEFT] == 0 and m[v + Meeting.FIRST] != 0:
        push(m, m[Head.NOW] + 1, Callback.OVER + (v << Callback.WHAT), 0)


def join_flow(m, rank, pos, node):
    """A node comes to its flow, which begins when all have come that it waits for; it goes on when the flow has ended."""
    at = m[rank + Rank.MEETINGS] + 2 * m[node + Node.PEER]
    v = m[at]
    if m[v + Flow.STATE] == Flow.OVER:
        later(m, rank, 0, Action.NODE, 0, pos)
        return
    r = alloc(m)
    m[r + Waiting.NEXT] = 0
    m[r + Waiting.RANK] = rank
    m[r + Waiting.NODE] = pos
    m[r + Waiting.LOG] = m[Head.LOG] - Log.WORDS
    if m[v + Flow.FIRST] == 0:
        m[v + Flow.FIRST] = r
    else:
        m[m[v + Flow.LAST] + Waiting.NEXT] = r
    m[v + Flow.LAST] = r
    m[v + Flow.LEFT] -= m[at + 1]
    if m[at + 1] != 0 and m[v + Flow.LEFT] == 0:
        ask_turn(m, v)


def resume_from_meeting(m, f, v):
    """All had come to a meeting in the tick before: the first who waits takes its time, the others follow in this tick."""
    r = m[v + Meeting.FIRST]
    m[v + Meeting.FIRST] = m[r + Waiting.NEXT]
    if m[r + Waiting.NEXT] != 0:
        push(m, m[Head.NOW], Callback.OVER + (v << Callback.WHAT), 0)
    rank = m[r + Waiting.RANK]
    pos = m[r + Waiting.NODE]
    time = m[r + Waiting.TIME]
    release(m, r)
    if time > 1:
        later(m, rank, time - 1, Action.NODE, 0, pos)
    else:
        complete(m, f, rank, pos)


def sweep(m, f, rank):
    """Visit the ready nodes of a rank in ascending id; issue each whose slot is free at that moment."""
    m[Head.SWEEPING] = 1
    while True:
        best = 0
        slot = 0
        for i in range(Slot.COUNT):
            root = m[rank + Rank.HEAP + i]
            if root != 0 and (best == 0 or root < best) and (i == Slot.NONE or m[rank + Rank.SLOT + i] == 0):
                best = root
                slot = i
        if best == 0:
            break
        links = m[rank + Rank.LINKS]
        m[rank + Rank.HEAP + slot] = merge(m, links, m[links + 2 * best], m[links + 2 * best + 1])
        if slot == Slot.COMMUNICATION and m[Head.SLOTS] > 1 and waits_for_group(m, rank, best):
            continue
        if m[Head.LANES] != 0 and waits_for_lane(m, rank, best):
            continue
        m[rank + Rank.READY] -= 1
        issue(m, f, rank, best - 1)
    m[Head.SWEEPING] = 0
    x = m[Head.PENDING]
    m[Head.PENDING] = 0
    while x != 0:
        after = m[m[rank + Rank.LINKS] + 2 * x]
        m[rank + Rank.READY] -= 1
        make_ready(m, rank, x - 1)
        x = after


def go_on(m, f, rank):
    """Issue what has become possible, and see whether the rank has finished.

    In the extended mode what waits for a node that takes no time goes on at once: with symmetric ties
    always, else where the rank would stand still otherwise, as it does in the reference.
    """
    m[Head.WOKEN] = 0
    sweep(m, f, rank)
    while (
        m[Head.WOKEN] != 0
        and m[rank + Rank.READY] != 0
        and (m[Head.SYMMETRIC] != 0 or m[rank + Rank.BUSY] == 0)
    ):
        m[Head.WOKEN] = 0
        sweep(m, f, rank)
    if m[rank + Rank.FINISH] < 0 and m[rank + Rank.READY] == 0 and m[rank + Rank.BUSY] == 0:
        m[rank + Rank.FINISH] = m[Head.NOW]
        m[Head.FINISHED] += 1


def complete(m, f, rank, pos):
    """Complete a node, issue what that makes possible, and see whether the rank has finished."""
    if m[Head.SYMMETRIC] == 0:
        stamp_order(m, rank, m[rank + Rank.ORDER] + Order.LOG)
        finish_node(m, rank, pos)
        go_on(m, f, rank)
        return
    at = touch(m, rank) + Extended.DONE
    links = m[rank + Rank.LINKS]
    m[links + 2 * pos + 2] = 0
    m[links + 2 * pos + 3] = 0
    m[at] = merge(m, links, m[at], pos + 1)
