"""Streams and their queues: how a collective is cut into streams, and which of them may run.

A collective is cut into streams that pass through phases, one per dimension. Queues of a dimension limit how many phases
run; waiting ones start by priority. A queue is: running phases, first and last waiting stream, next of the queues put
off to the end of the tick.
"""

from __future__ import annotations

from studio.sim.kernel.clock import alloc
from studio.sim.kernel.layout import (
    ACTIVE,
    ALL_REDUCE,
    DOWN,
    EXTENDED,
    FREE_STREAM,
    G_PHASES,
    GROW_BY,
    M_NUMBER,
    M_POINTERS,
    M_QUEUES,
    M_TAGS,
    M_TREES,
    N_COLLECTIVE,
    N_GROUP,
    N_GROUPED,
    N_PRIORITY,
    N_SIZE,
    N_STREAMS,
    N_WORLD,
    NORMAL,
    NOW,
    NPUS,
    OWN_QUEUES,
    PEERS,
    PH_DIM,
    PH_N,
    PH_ROLE,
    PH_SCALE,
    PH_TREE,
    PH_TYPE,
    PHASE_WORDS,
    POLICY,
    QUEUES,
    R_POINTERS,
    R_PRIORITY,
    R_QUEUES,
    R_SLOTS,
    R_STREAMS,
    R_TREES,
    S_BYTES,
    S_CAME,
    S_CODES,
    S_COLL,
    S_INDEX,
    S_MEMBER,
    S_PHASE,
    S_PHASES,
    S_PRIORITY,
    S_QUEUE,
    S_RANK,
    S_TAG,
    S_X,
    SMALLEST,
    STREAM_TAG,
    STREAM_WORDS,
    SYMMETRIC,
    TOP,
    UNEVEN,
    UNEVEN_TAG,
    UP,
    X_QUEUES,
)
from studio.sim.kernel.order import in_order, touch
from studio.sim.kernel.phases import start_phase


def ahead(m, a, s):
    """Return whether waiting stream `a` stays ahead of one that joins its queue.

    Higher priority goes first; with `chunk_order` smallest, then the fewer bytes to send; then who came
    first. With symmetric ties, of those that came in one tick the lower stream number.
    """
    d = m[a + S_PRIORITY] - m[s + S_PRIORITY]
    if d != 0:
        return d > 0
    if m[SMALLEST] != 0:
        d = m[s + S_BYTES] - m[a + S_BYTES]
        if d != 0:
            return d > 0
    return m[SYMMETRIC] == 0 or m[a + S_CAME] < m[s + S_CAME] or m[a + S_TAG] < m[s + S_TAG]


def enqueue(m, q, s):
    """Let a stream wait in a queue, behind those that stay ahead."""
    m[s + S_QUEUE] = q
    if m[EXTENDED] != 0:
        m[s + S_CAME] = m[NOW]
        m[s + S_BYTES] = m[s + S_X]
        ph = m[s + S_PHASE]
        if m[ph + PH_TYPE] == ALL_REDUCE:
            m[s + S_BYTES] = 2 * m[s + S_X]
        elif m[ph + PH_SCALE] == GROW_BY:
            m[s + S_BYTES] = m[s + S_X] * m[ph + PH_N]
    tail = m[q + 2]
    if m[q + 1] == 0:
        m[s] = 0
        m[q + 1] = s
        m[q + 2] = s
        return
    if ahead(m, tail, s):
        m[s] = 0
        m[tail] = s
        m[q + 2] = s
        return
    c = m[q + 1]
    before = 0
    while ahead(m, c, s):
        before = c
        c = m[c]
    m[s] = c
    if before == 0:
        m[q + 1] = s
    else:
        m[before] = s


def start_waiting(m, f, rank, q):
    """Start waiting streams of a queue while fewer than allowed run; with symmetric ties, at the end of the tick."""
    if m[SYMMETRIC] == 0:
        start_streams(m, f, q)
    elif m[q + 3] == 0:
        at = touch(m, rank) + X_QUEUES
        while m[at] > 0 and m[at] < q:
            at = m[at] + 3
        # Not 0, so that the last one is known to be there.
        m[q + 3] = m[at] if m[at] != 0 else -1
        m[at] = q


def start_streams(m, f, q):
    """Start waiting streams of a queue while fewer than allowed run."""
    while m[q] < m[ACTIVE] and m[q + 1] != 0:
        s = m[q + 1]
        m[q + 1] = m[s]
        m[q] += 1
        start_phase(m, f, s)


def assign_queue(m, rank, member, ph):
    """Take the next queue of a phase's dimension; returns queue * 4 + tree bit * 2 + direction bit."""
    q = m[QUEUES]
    d = m[ph + PH_DIM]
    role = m[ph + PH_ROLE]
    queues = m[rank + R_QUEUES]
    pointers = m[rank + R_POINTERS]
    trees = m[rank + R_TREES]
    if member != 0 and m[OWN_QUEUES] != 0:
        queues = m[member + M_QUEUES]
        pointers = m[member + M_POINTERS]
        trees = m[member + M_TREES]
    low = 0
    high = q
    half = q // 2
    if q > 1:
        if role == UP:
            high = half
        elif role == DOWN:
            low = half
    at = pointers + 3 * d + role
    i = m[at]
    if i < low:
        i = low
    m[at] = i + 1
    if i + 1 >= high:
        m[at] = low
    back = 0
    if role == DOWN or (role == NORMAL and q > 1 and i >= half):
        back = 1
    tree = 0
    if m[ph + PH_TREE] >= 0:
        at = trees + m[ph + PH_TREE]
        tree = m[at]
        m[at] = 1 - tree
    return (queues + 4 * (d * q + i)) * 4 + tree * 2 + back


def issue_collective(m, f, rank, pos, node):
    """Cut a collective into streams and let them wait for their first phases."""
    member = 0
    if m[node + N_GROUP] >= 0:
        member = m[m[rank + R_SLOTS] + m[node + N_GROUP]]
    phases = m[node + N_WORLD]
    if member != 0 and m[m[member]] != m[NPUS]:
        phases = m[node + N_GROUPED]
        if m[EXTENDED] != 0:
            phases = m[m[m[member] + G_PHASES] + phases]
    count = m[node + N_STREAMS]
    if m[phases] == 0 or count == 0:
        # Nothing would ever end such a collective: its node stays in progress.
        return
    priority = m[rank + R_PRIORITY]
    if m[POLICY] == 0:
        m[rank + R_PRIORITY] = priority + 1
    elif m[POLICY] == 1:
        m[rank + R_PRIORITY] = priority - 1
    else:
        priority = m[node + N_PRIORITY]
    coll = alloc(m)
    m[coll + 1] = rank
    m[coll + 2] = pos
    m[coll + 3] = count
    m[coll + 4] = 0
    single = m[phases + 1]
    for i in range(count):
        number = m[rank + R_STREAMS]
        if member == 0 or m[EXTENDED] == 0:
            m[rank + R_STREAMS] = number + 1
        tags = STREAM_TAG
        if m[EXTENDED] != 0 and m[node + N_COLLECTIVE] == UNEVEN:
            tags += UNEVEN_TAG
        if member != 0:
            number = m[member + M_NUMBER]
            m[member + M_NUMBER] = number + 1
            tags += m[member + M_TAGS]
        if single != 0:
            phases = m[single + i]
        s = m[FREE_STREAM]
        if s != 0:
            m[FREE_STREAM] = m[s]
        else:
            s = m[TOP]
            m[TOP] = s + m[STREAM_WORDS]
        m[s + S_RANK] = rank
        m[s + S_X] = m[node + N_SIZE]
        m[s + S_PHASE] = phases + 8
        m[s + S_INDEX] = 0
        m[s + S_COLL] = coll
        m[s + S_TAG] = tags + number % STREAM_TAG
        m[s + S_PRIORITY] = priority
        m[s + S_MEMBER] = member
        m[s + S_CODES] = m[PEERS]
        if member != 0 and m[PEERS] != 0:
            m[s + S_CODES] = m[m[member] + 2]
        for at in range(m[phases]):
            m[s + S_PHASES + at] = assign_queue(m, rank, member, phases + 8 + PHASE_WORDS * at)
        q = m[s + S_PHASES] >> 2
        in_order(m, rank, q + 3)
        enqueue(m, q, s)
        start_waiting(m, f, rank, q)
