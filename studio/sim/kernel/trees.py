"""Double binary trees (SEMANTICS.md, section 6): up to the root, and down again."""

from __future__ import annotations

from studio.sim.kernel.bus import wait_on_bus
from studio.sim.kernel.messages import receive, send
from studio.sim.kernel.packets import get_peer
from studio.sim.kernel.records import Rank, Stream, TreeRole, Waiter
from studio.sim.kernel.turns import compute_key


def start_tree(m, f, s, n, tree):
    """Find a rank's place in one of the two trees, and take its first step."""
    v = m[s + Stream.PLACE]
    top = 0
    if tree == 0:
        v += 1
        top = n
    me = m[m[s + Stream.RANK] + Rank.NUMBER]
    tag = m[s + Stream.TAG]
    x = m[s + Stream.SIZE]
    shift = 1 - tree
    w = s * 8 + Waiter.STREAM
    if v == top:
        m[s + Stream.TREE_ROLE] = TreeRole.ROOT
        m[s + Stream.LEFT_CHILD] = get_peer(m, s, n // 2 - shift)
        receive(
            m,
            f,
            tag,
            (m[s + Stream.LEFT_CHILD] << 20) | me,
            m[s + Stream.LEFT_CHILD],
            me,
            x,
            w,
            compute_key(m, s, 0),
        )
        return
    b = v & -v
    up = (v - b) | (2 * b)
    if up == n:
        up = top
    m[s + Stream.PARENT] = get_peer(m, s, up - shift)
    if b == 1:
        m[s + Stream.TREE_ROLE] = TreeRole.LEAF
        wait_on_bus(m, f, s, x, 0, True, False)
        return
    m[s + Stream.TREE_ROLE] = TreeRole.INNER
    m[s + Stream.LEFT_CHILD] = get_peer(m, s, v - b // 2 - shift)
    m[s + Stream.RIGHT_CHILD] = get_peer(m, s, v + b // 2 - shift)
    receive(
        m,
        f,
        tag,
        (m[s + Stream.LEFT_CHILD] << 20) | me,
        m[s + Stream.LEFT_CHILD],
        me,
        x,
        w,
        compute_key(m, s, 0),
    )
    receive(
        m,
        f,
        tag,
        (m[s + Stream.RIGHT_CHILD] << 20) | me,
        m[s + Stream.RIGHT_CHILD],
        me,
        x,
        w,
        compute_key(m, s, 1),
    )


def handle_tree_message(m, f, s):
    """A message for a tree has come: the messages of the children reduce."""
    m[s + Stream.RECEIVED] += 1
    red = 0
    back = False
    if m[s + Stream.TREE_ROLE] != TreeRole.LEAF:
        red = m[s + Stream.STEP_REDUCTION] + 1
        back = m[s + Stream.TREE_ROLE] == TreeRole.ROOT or m[s + Stream.RECEIVED] > 1
    wait_on_bus(m, f, s, m[s + Stream.SIZE], red, False, back)


def use_tree_packet(m, f, s):
    """Use a free packet of a tree; returns whether that ends the phase."""
    tag = m[s + Stream.TAG]
    me = m[m[s + Stream.RANK] + Rank.NUMBER]
    w = s * 8 + Waiter.STREAM
    free = m[s + Stream.FREE] + 1
    m[s + Stream.FREE] = free
    x = m[s + Stream.SIZE]
    role = m[s + Stream.TREE_ROLE]
    if role == TreeRole.ROOT:
        send(
            m,
            f,
            tag,
            (me << 20) | m[s + Stream.LEFT_CHILD],
            me,
            m[s + Stream.LEFT_CHILD],
            x,
            0,
            compute_key(m, s, 0),
        )
        return True
    if role == TreeRole.LEAF:
        if free == 2:
            return True
        send(
            m, f, tag, (me << 20) | m[s + Stream.PARENT], me, m[s + Stream.PARENT], x, 0, compute_key(m, s, 2)
        )
        receive(
            m, f, tag, (m[s + Stream.PARENT] << 20) | me, m[s + Stream.PARENT], me, x, w, compute_key(m, s, 2)
        )
        return False
    if free == 2:
        send(
            m, f, tag, (me << 20) | m[s + Stream.PARENT], me, m[s + Stream.PARENT], x, 0, compute_key(m, s, 2)
        )
        receive(
            m, f, tag, (m[s + Stream.PARENT] << 20) | me, m[s + Stream.PARENT], me, x, w, compute_key(m, s, 2)
        )
    if free == 3:
        send(
            m,
            f,
            tag,
            (me << 20) | m[s + Stream.LEFT_CHILD],
            me,
            m[s + Stream.LEFT_CHILD],
            x,
            0,
            compute_key(m, s, 0),
        )
        send(
            m,
            f,
            tag,
            (me << 20) | m[s + Stream.RIGHT_CHILD],
            me,
            m[s + Stream.RIGHT_CHILD],
            x,
            0,
            compute_key(m, s, 1),
        )
        return True
    return False
