"""Nodes: which are ready, which are issued, and what their completion makes possible.

Per rank one slot each for CPU, compute and communication; receives need none. A sweep visits the nodes that are ready in
ascending id and issues each whose slot is free at that moment. It happens at the start and after every completion. Nodes
that become ready during a sweep wait for the next one.

Ready nodes of a slot wait in a skew heap by position, which is the order of ids; positions count from 1 there, two links
per node.
"""

from __future__ import annotations

from studio.sim.kernel.clock import alloc, merge, push, release
from studio.sim.kernel.layout import (
    A_MEMORY,
    A_NODE,
    EXTENDED,
    FINISHED,
    K_COLLECTIVE,
    K_DELAY,
    K_INSTANT,
    K_MEET,
    K_MEMORY,
    K_SEND,
    LANES,
    LOG,
    M_BUSY,
    N_CHILD_COUNT,
    N_CHILDREN,
    N_CLASS,
    N_GROUP,
    N_KIND,
    N_LANE,
    N_PEER,
    N_SIZE,
    N_TAG,
    NODE_WORDS,
    NOW,
    O_LOG,
    OVER,
    PEERS,
    PENDING,
    R_BUSY,
    R_FINISH,
    R_HEAP,
    R_LINKS,
    R_MEETINGS,
    R_MEMORY,
    R_NODES,
    R_NUMBER,
    R_ORDER,
    R_PEND,
    R_READY,
    R_SLOT,
    R_SLOTS,
    R_TIMES,
    RANK_BITS,
    RANKS,
    SLOTS,
    SPEEDS,
    SWEEPING,
    SYMMETRIC,
    V_FIRST,
    V_LAST,
    V_LEFT,
    W_NODE,
    WHAT,
    WOKEN,
    X_BUSY,
    X_DONE,
    X_LANES,
    X_USED,
)
from studio.sim.kernel.messages import receive, send
from studio.sim.kernel.order import extended_of, in_order, later, touch
from studio.sim.kernel.queues import issue_collective


def make_ready(m, rank, pos):
    """A node's last parent has completed."""
    m[rank + R_READY] += 1
    links = m[rank + R_LINKS]
    x = pos + 1
    if m[SWEEPING] != 0:
        m[links + 2 * x] = m[PENDING]
        m[PENDING] = x
        return
    m[links + 2 * x] = 0
    m[links + 2 * x + 1] = 0
    heap = rank + R_HEAP + m[m[rank + R_NODES] + NODE_WORDS * pos + N_CLASS]
    m[heap] = merge(m, links, m[heap], x)


def log(m, rank, pos, kind):
    """Record that a node is issued (0) or completes (1)."""
    at = m[LOG]
    m[at] = m[NOW]
    m[at + 1] = (m[rank + R_NUMBER] << 40) + 2 * pos + kind
    m[LOG] = at + 2


def finish_node(m, rank, pos):
    """Record a completion, free the slot, update the children."""
    log(m, rank, pos, 1)
    node = m[rank + R_NODES] + NODE_WORDS * pos
    slot = m[node + N_CLASS]
    if slot < 3:
        m[rank + R_SLOT + slot] = 0
    if slot == 2 and m[SLOTS] > 1:
        m[extended_of(m, rank) + X_USED] -= 1
        if m[node + N_KIND] == K_COLLECTIVE:
            free_turn(m, rank, group_state(m, rank, node), rank + R_HEAP + 2)
    if m[node + N_LANE] != 0:
        at = m[extended_of(m, rank) + X_LANES] + 2 * m[node + N_LANE]
        free_turn(m, rank, at, rank + R_HEAP + slot)
    m[rank + R_BUSY] -= 1
    pend = m[rank + R_PEND]
    at = m[node + N_CHILDREN]
    for i in range(at, at + m[node + N_CHILD_COUNT]):
        child = m[i]
        m[pend + child] -= 1
        if m[pend + child] == 0:
            make_ready(m, rank, child)


def group_state(m, rank, node):
    """Return where it is noted whether a collective of a node's group is under way, and which ones wait for that."""
    if m[node + N_GROUP] >= 0:
        member = m[m[rank + R_SLOTS] + m[node + N_GROUP]]
        if member != 0:
            return member + M_BUSY
    return extended_of(m, rank) + X_BUSY


def waits_for_group(m, rank, x):
    """Let a collective wait if another one of its group is under way; returns whether it waits."""
    node = m[rank + R_NODES] + NODE_WORDS * (x - 1)
    if m[node + N_KIND] != K_COLLECTIVE:
        return False
    return waits_in_turn(m, rank, x, group_state(m, rank, node))


def waits_for_lane(m, rank, x):
    """Let a node wait if another one of its thread or stream is under way; returns whether it waits."""
    lane = m[m[rank + R_NODES] + NODE_WORDS * (x - 1) + N_LANE]
    return lane != 0 and waits_in_turn(m, rank, x, m[extended_of(m, rank) + X_LANES] + 2 * lane)


def waits_in_turn(m, rank, x, at):
    """Take a slot if it is free, else wait for it; returns whether it waits."""
    if m[at] == 0:
        m[at] = 1
        return False
    links = m[rank + R_LINKS]
    m[links + 2 * x] = 0
    m[links + 2 * x + 1] = 0
    m[at + 1] = merge(m, links, m[at + 1], x)
    return True


def free_turn(m, rank, at, heap):
    """A slot is free: the node of lowest id that waits for it is ready again."""
    m[at] = 0
    x = m[at + 1]
    if x != 0:
        links = m[rank + R_LINKS]
        m[at + 1] = merge(m, links, m[links + 2 * x], m[links + 2 * x + 1])
        m[links + 2 * x] = 0
        m[links + 2 * x + 1] = 0
        m[heap] = merge(m, links, m[heap], x)


def issue(m, f, rank, pos):
    """Issue a node: record it, then let it take effect."""
    node = m[rank + R_NODES] + NODE_WORDS * pos
    log(m, rank, pos, 0)
    m[rank + R_BUSY] += 1
    slot = m[node + N_CLASS]
    if slot < 3 and m[node + N_LANE] == 0:
        m[rank + R_SLOT + slot] = 1
    if slot == 2 and m[SLOTS] > 1:
        at = extended_of(m, rank) + X_USED
        m[at] += 1
        if m[at] < m[SLOTS]:
            m[rank + R_SLOT + slot] = 0
    kind = m[node + N_KIND]
    if kind == K_DELAY:
        time = m[m[rank + R_TIMES] + pos]
        if slot == 1 and m[SPEEDS] != 0:
            time = max(int(time / f[m[SPEEDS] + m[rank + R_NUMBER]]), 1)
        later(m, rank, time, A_NODE, 0, pos)
    elif kind >= K_MEET:
        meet(m, rank, pos, node)
    elif kind == K_COLLECTIVE:
        issue_collective(m, f, rank, pos, node)
    elif kind == K_INSTANT:
        finish_node(m, rank, pos)
        m[WOKEN] = m[EXTENDED]
    elif kind == K_MEMORY:
        pool = m[rank + R_MEMORY]
        if pool == 0:
            later(m, rank, m[m[rank + R_TIMES] + pos], A_NODE, 0, pos)
        elif m[pool] == 0:
            m[pool] = 1
            later(m, rank, m[m[rank + R_TIMES] + pos], A_MEMORY, 0, pos)
        else:
            r = alloc(m)
            m[r] = 0
            m[r + 1] = rank
            m[r + 2] = pos
            if m[pool + 1] == 0:
                m[pool + 1] = r
            else:
                m[m[pool + 2]] = r
            m[pool + 2] = r
    else:
        number = m[rank + R_NUMBER]
        other = m[m[rank + R_SLOTS] + m[node + N_PEER]]
        code = ((pos << 20) | ((rank - m[RANKS]) >> RANK_BITS)) * 8 + W_NODE
        # In a folded run the names of messages to and from a peer stand before the slots.
        pairs = m[rank + R_SLOTS] - 2 - 2 * m[node + N_PEER]
        if kind == K_SEND:
            pair = (number << 20) | other
            if m[PEERS] != 0:
                pair = m[pairs]
            send(m, f, m[node + N_TAG], pair, number, other, m[node + N_SIZE], code)
        else:
            pair = (other << 20) | number
            if m[PEERS] != 0:
                pair = m[pairs + 1]
            receive(m, f, m[node + N_TAG], pair, other, number, m[node + N_SIZE], code)


def meet(m, rank, pos, node):
    """A node comes to where it meets those of other ranks; who waits goes on when all have come."""
    at = m[rank + R_MEETINGS] + 2 * m[node + N_PEER]
    v = m[at]
    time = m[at + 1]
    m[v + V_LEFT] -= 1
    if time < 0:
        later(m, rank, -time, A_NODE, 0, pos)
    else:
        r = alloc(m)
        m[r] = 0
        m[r + 1] = rank
        m[r + 2] = pos
        m[r + 3] = time
        if m[v + V_FIRST] == 0:
            m[v + V_FIRST] = r
        else:
            m[m[v + V_LAST]] = r
        m[v + V_LAST] = r
    if m[v + V_LEFT] == 0 and m[v + V_FIRST] != 0:
        push(m, m[NOW] + 1, OVER + (v << WHAT), 0)


def part(m, f, v):
    """All had come to a meeting in the tick before: the first who waits takes its time, the others follow in this tick."""
    r = m[v + V_FIRST]
    m[v + V_FIRST] = m[r]
    if m[r] != 0:
        push(m, m[NOW], OVER + (v << WHAT), 0)
    rank = m[r + 1]
    pos = m[r + 2]
    time = m[r + 3]
    release(m, r)
    if time > 1:
        later(m, rank, time - 1, A_NODE, 0, pos)
    else:
        complete(m, f, rank, pos)


def sweep(m, f, rank):
    """Visit the ready nodes of a rank in ascending id; issue each whose slot is free at that moment."""
    m[SWEEPING] = 1
    while True:
        best = 0
        slot = 0
        for i in range(4):
            root = m[rank + R_HEAP + i]
            if root != 0 and (best == 0 or root < best) and (i == 3 or m[rank + R_SLOT + i] == 0):
                best = root
                slot = i
        if best == 0:
            break
        links = m[rank + R_LINKS]
        m[rank + R_HEAP + slot] = merge(m, links, m[links + 2 * best], m[links + 2 * best + 1])
        if slot == 2 and m[SLOTS] > 1 and waits_for_group(m, rank, best):
            continue
        if m[LANES] != 0 and waits_for_lane(m, rank, best):
            continue
        m[rank + R_READY] -= 1
        issue(m, f, rank, best - 1)
    m[SWEEPING] = 0
    x = m[PENDING]
    m[PENDING] = 0
    while x != 0:
        after = m[m[rank + R_LINKS] + 2 * x]
        m[rank + R_READY] -= 1
        make_ready(m, rank, x - 1)
        x = after


def go_on(m, f, rank):
    """Issue what has become possible, and see whether the rank has finished.

    In the extended mode what waits for a node that takes no time goes on at once: with symmetric ties
    always, else where the rank would stand still otherwise, as it does in the reference.
    """
    m[WOKEN] = 0
    sweep(m, f, rank)
    while m[WOKEN] != 0 and m[rank + R_READY] != 0 and (m[SYMMETRIC] != 0 or m[rank + R_BUSY] == 0):
        m[WOKEN] = 0
        sweep(m, f, rank)
    if m[rank + R_FINISH] < 0 and m[rank + R_READY] == 0 and m[rank + R_BUSY] == 0:
        m[rank + R_FINISH] = m[NOW]
        m[FINISHED] += 1


def complete(m, f, rank, pos):
    """Complete a node, issue what that makes possible, and see whether the rank has finished."""
    if m[SYMMETRIC] == 0:
        in_order(m, rank, m[rank + R_ORDER] + O_LOG)
        finish_node(m, rank, pos)
        go_on(m, f, rank)
        return
    at = touch(m, rank) + X_DONE
    links = m[rank + R_LINKS]
    m[links + 2 * pos + 2] = 0
    m[links + 2 * pos + 3] = 0
    m[at] = merge(m, links, m[at], pos + 1)
