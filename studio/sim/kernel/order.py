"""The order within a tick: watched where one rank stands for many, put off to its end with symmetric ties.

Where one rank stands for many, see `studio.sim.folding`: of two things that happen to a rank in one tick the one
scheduled in the earlier tick comes first; of two scheduled in the same tick by the same rank the one scheduled first.
That holds for every rank of a class. Otherwise their order may depend on rank numbers. So what happens to a rank belongs
to a group, the things scheduled in one tick, and within it to a chain, the things known to follow each other; whoever
does something whose order matters leaves the stamp of his chain there, and a different stamp of the same group means
that the order is not known.

Symmetric ties: whatever depends on the order of a rank's events within a tick is put off until all of them have run, and
then done in an order that depends on nothing but the rank's own state: packets that wait for the messages of an
all-reduce, completions by node and one sweep, queues (`loop.settle_next`). What that schedules for the same tick runs
then, and the round repeats. So it makes no difference in which order the messages of a tick come, and ranks in equal
states do the same.
"""

from __future__ import annotations

from studio.sim.kernel.clock import alloc, list_of, merge, register, release
from studio.sim.kernel.layout import (
    A_MARK,
    A_OPEN,
    CHAIN,
    E_ORDER,
    ERROR,
    ERROR_RANK,
    EXTENDED,
    L_CHAIN,
    L_CODE,
    L_TICK,
    L_WILD,
    LIST_SHIFT,
    MOST_CHAINS,
    NOW,
    O_BASE,
    O_CHAIN,
    O_CHAINS,
    O_COUNT,
    O_FROZEN,
    O_GROUP,
    O_IN_CHAIN,
    O_IN_SINCE,
    O_SINCE,
    O_STAMP,
    O_TICK,
    OWN,
    R_NUMBER,
    R_ORDER,
    RANK_BITS,
    RANKS,
    S_HELD,
    S_RANK,
    SOON,
    STAMP,
    STAMPS,
    T_EVENTS,
    T_READ,
    TOUCHED,
    TOUCHED_LINKS,
    WATCH,
    X_PACKETS,
    X_TOUCHED,
)


def fresh(m):
    """Begin a chain of its own: nothing is known of its place in the group."""
    m[STAMPS] += 1
    m[CHAIN] = m[STAMPS]
    m[STAMP] = m[STAMPS]


def label(m, code):
    """Return a label for something that is scheduled now."""
    r = alloc(m)
    m[r + L_TICK] = m[NOW]
    m[r + L_CHAIN] = m[CHAIN]
    m[r + L_CODE] = code
    m[r + L_WILD] = 0
    return r


def mark(m, rank, tick):
    """Note in a rank's list for a tick when and in which chain the next action is registered."""
    at = list_of(m, m[SOON] + ((rank - m[RANKS]) >> LIST_SHIFT), tick)
    if at == 0:
        register(m, rank, tick, A_OPEN, 0, label(m, 0))
    else:
        t = m[at + 1]
        if t != 0 and m[t + T_READ] == t + T_EVENTS:
            r = m[t + T_EVENTS + 1]
            if m[r + L_TICK] == m[NOW] and m[r + L_CHAIN] != m[CHAIN]:
                # Who registered first, which decides where the list runs, is not known.
                m[STAMPS] += 1
                m[r + L_CHAIN] = m[STAMPS]
    register(m, rank, tick, A_MARK, 0, label(m, 0))


def later(m, rank, delta, kind, x, y):
    """Register an action of a rank, `delta` ticks from now."""
    if m[WATCH] != 0:
        mark(m, rank, m[NOW] + delta)
    register(m, rank, m[NOW] + delta, kind, x, y)


def find_chain(m, o, source, chain):
    """Take up a chain of the present group, by where it comes from."""
    at = o + O_CHAINS
    for i in range(m[o + O_COUNT]):
        if m[at + 2 * i] == source and m[at + 2 * i + 1] == chain:
            m[CHAIN] = i
            m[STAMP] = m[o + O_GROUP] + 1 + i
            return
    i = m[o + O_COUNT]
    if i == MOST_CHAINS or m[o + O_FROZEN] == m[NOW]:
        fresh(m)
        return
    m[at + 2 * i] = source
    m[at + 2 * i + 1] = chain
    m[o + O_COUNT] = i + 1
    m[CHAIN] = i
    m[STAMP] = m[o + O_GROUP] + 1 + i


def enter(m, rank, since, source, chain):
    """Something scheduled at tick `since` by `source` in one of its chains happens to a rank."""
    o = m[rank + R_ORDER]
    new = m[o + O_TICK] != m[NOW]
    if new:
        m[o + O_TICK] = m[NOW]
        m[o + O_BASE] = m[STAMPS]
    if new or (m[o + O_SINCE] != since and m[o + O_FROZEN] != m[NOW]):
        m[o + O_SINCE] = since
        m[o + O_GROUP] = m[STAMPS]
        m[o + O_COUNT] = 0
        m[STAMPS] += MOST_CHAINS
    find_chain(m, o, source, chain)


def freeze(m, rank):
    """Something has happened to a rank whose place in the tick is not known at all."""
    o = m[rank + R_ORDER]
    m[o + O_FROZEN] = m[NOW]
    m[o + O_GROUP] = m[o + O_BASE]
    m[o + O_COUNT] = 0
    fresh(m)


def open_list(m, rank, r):
    """A rank's list for this tick begins to run."""
    enter(m, rank, m[r + L_TICK], OWN, m[r + L_CHAIN])
    release(m, r)
    o = m[rank + R_ORDER]
    m[o + O_CHAIN] = m[CHAIN]
    m[o + O_STAMP] = m[STAMP]
    m[o + O_IN_SINCE] = -2


def next_action(m, rank, r):
    """The next action of a rank's list begins to run."""
    o = m[rank + R_ORDER]
    since = m[r + L_TICK]
    chain = m[r + L_CHAIN]
    release(m, r)
    if m[o + O_IN_SINCE] != since:
        m[o + O_IN_SINCE] = since
        m[o + O_IN_CHAIN] = chain
    if m[o + O_IN_CHAIN] == chain:
        m[CHAIN] = m[o + O_CHAIN]
        m[STAMP] = m[o + O_STAMP]
    elif m[o + O_CHAIN] < MOST_CHAINS:
        find_chain(m, o, OWN - 1 - m[o + O_CHAIN], chain)
    else:
        fresh(m)


def check_order(m, rank, at):
    """Stop where the order of what happens now and of what left its stamp at `at` is not known."""
    last = m[at]
    if last > m[m[rank + R_ORDER] + O_GROUP] and last != m[STAMP]:
        m[ERROR] = E_ORDER
        m[ERROR_RANK] = m[rank + R_NUMBER]


def in_order(m, rank, at):
    """The same, and leave a stamp."""
    if m[WATCH] != 0:
        check_order(m, rank, at)
        m[at] = m[STAMP]


def extended_of(m, rank):
    """Return the extended mode's record of a rank."""
    return m[EXTENDED] + ((rank - m[RANKS]) >> RANK_BITS << 3)


def touch(m, rank):
    """Note that something of a rank is put off to the end of the tick; returns its record."""
    x = extended_of(m, rank)
    if m[x + X_TOUCHED] == 0:
        m[x + X_TOUCHED] = 1
        links = m[TOUCHED_LINKS]
        i = ((rank - m[RANKS]) >> RANK_BITS) + 1
        m[links + 2 * i] = 0
        m[links + 2 * i + 1] = 0
        m[TOUCHED] = merge(m, links, m[TOUCHED], i)
    return x


def hold_packet(m, s):
    """Let the free packets of a direct all-reduce look again at the end of the tick whether all messages have come."""
    if m[s + S_HELD] == 0:
        m[s + S_HELD] = 1
        at = touch(m, m[s + S_RANK]) + X_PACKETS
        m[s] = m[at]
        m[at] = s
