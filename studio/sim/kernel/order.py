"""The order within a tick: watched where one rank stands for many, put off to its end with symmetric ties.

The rule itself is in SEMANTICS.md, section 1.

Where one rank stands for many, see `studio.sim.folding`: of two things that happen to a rank in one tick the one
scheduled in the earlier tick comes first; of two scheduled in the same tick by the same rank the one scheduled first.
That holds for every rank of a class. Otherwise their order may depend on rank numbers. So what happens to a rank belongs
to a group, the things scheduled in one tick, and within it to a chain, the things known to follow each other; whoever
does something whose order matters leaves the stamp of his chain there, and a different stamp of the same group means
that the order is not known.

Symmetric ties: whatever depends on the order of a rank's events within a tick is put off until all of them have run, and
then done in an order that depends on nothing but the rank's own state: packets that wait for the messages of an
all-reduce, completions by node and one sweep, queues (`loop.settle_next`), and last the messages that have come to links
(`turns`). What that schedules for the same tick runs
then, and the round repeats. So it makes no difference in which order the messages of a tick come, and ranks in equal
states do the same.
"""

from __future__ import annotations

from studio.sim.kernel.clock import alloc, list_of, merge, register, release
from studio.sim.kernel.records import Action, Error, Extended, Head, Label, Lists, Order, Rank, Stream, Tick


def begin_chain(m):
    """Begin a chain of its own: nothing is known of its place in the group."""
    m[Head.STAMPS] += 1
    m[Head.CHAIN] = m[Head.STAMPS]
    m[Head.STAMP] = m[Head.STAMPS]


def create_label(m, code):
    """Return a label for something that is scheduled now."""
    r = alloc(m)
    m[r + Label.TICK] = m[Head.NOW]
    m[r + Label.CHAIN] = m[Head.CHAIN]
    m[r + Label.CODE] = code
    m[r + Label.WILD] = 0
    return r


def mark(m, rank, tick):
    """Note in a rank's list for a tick when and in which chain the next action is registered."""
    at = list_of(m, m[Head.SOON] + ((rank - m[Head.RANKS]) >> Lists.SHIFT), tick)
    if at == 0:
        register(m, rank, tick, Action.OPEN, 0, create_label(m, 0))
    else:
        t = m[at + 1]
        if t != 0 and m[t + Tick.READ] == t + Tick.EVENTS:
            r = m[t + Tick.EVENTS + 1]
            if m[r + Label.TICK] == m[Head.NOW] and m[r + Label.CHAIN] != m[Head.CHAIN]:
                # Who registered first, which decides where the list runs, is not known.
                m[Head.STAMPS] += 1
                m[r + Label.CHAIN] = m[Head.STAMPS]
    register(m, rank, tick, Action.MARK, 0, create_label(m, 0))


def later(m, rank, delta, kind, x, y):
    """Register an action of a rank, `delta` ticks from now."""
    if m[Head.WATCH] != 0:
        mark(m, rank, m[Head.NOW] + delta)
    register(m, rank, m[Head.NOW] + delta, kind, x, y)


def find_chain(m, o, source, chain):
    """Take up a chain of the present group, by where it comes from."""
    at = o + Order.CHAINS
    for i in range(m[o + Order.COUNT]):
        if m[at + 2 * i] == source and m[at + 2 * i + 1] == chain:
            m[Head.CHAIN] = i
            m[Head.STAMP] = m[o + Order.GROUP] + 1 + i
            return
    i = m[o + Order.COUNT]
    if i == Order.MOST_CHAINS or m[o + Order.FROZEN] == m[Head.NOW]:
        begin_chain(m)
        return
    m[at + 2 * i] = source
    m[at + 2 * i + 1] = chain
    m[o + Order.COUNT] = i + 1
    m[Head.CHAIN] = i
    m[Head.STAMP] = m[o + Order.GROUP] + 1 + i


def enter(m, rank, since, source, chain):
    """Something scheduled at tick `since` by `source` in one of its chains happens to a rank."""
    o = m[rank + Rank.ORDER]
    new = m[o + Order.TICK] != m[Head.NOW]
    if new:
        m[o + Order.TICK] = m[Head.NOW]
        m[o + Order.BASE] = m[Head.STAMPS]
    if new or (m[o + Order.SINCE] != since and m[o + Order.FROZEN] != m[Head.NOW]):
        m[o + Order.SINCE] = since
        m[o + Order.GROUP] = m[Head.STAMPS]
        m[o + Order.COUNT] = 0
        m[Head.STAMPS] += Order.MOST_CHAINS
    find_chain(m, o, source, chain)


def freeze(m, rank):
    """Something has happened to a rank whose place in the tick is not known at all."""
    o = m[rank + Rank.ORDER]
    m[o + Order.FROZEN] = m[Head.NOW]
    m[o + Order.GROUP] = m[o + Order.BASE]
    m[o + Order.COUNT] = 0
    begin_chain(m)


def open_list(m, rank, r):
    """A rank's list for this tick begins to run."""
    enter(m, rank, m[r + Label.TICK], Order.OWN, m[r + Label.CHAIN])
    release(m, r)
    o = m[rank + Rank.ORDER]
    m[o + Order.CHAIN] = m[Head.CHAIN]
    m[o + Order.STAMP] = m[Head.STAMP]
    m[o + Order.IN_SINCE] = -2


def begin_next_action(m, rank, r):
    """The next action of a rank's list begins to run."""
    o = m[rank + Rank.ORDER]
    since = m[r + Label.TICK]
    chain = m[r + Label.CHAIN]
    release(m, r)
    if m[o + Order.IN_SINCE] != since:
        m[o + Order.IN_SINCE] = since
        m[o + Order.IN_CHAIN] = chain
    if m[o + Order.IN_CHAIN] == chain:
        m[Head.CHAIN] = m[o + Order.CHAIN]
        m[Head.STAMP] = m[o + Order.STAMP]
    elif m[o + Order.CHAIN] < Order.MOST_CHAINS:
        find_chain(m, o, Order.OWN - 1 - m[o + Order.CHAIN], chain)
    else:
        begin_chain(m)


def check_order(m, rank, at):
    """Stop where the order of what happens now and of what left its stamp at `at` is not known."""
    last = m[at]
    if last > m[m[rank + Rank.ORDER] + Order.GROUP] and last != m[Head.STAMP]:
        m[Head.ERROR] = Error.ORDER
        m[Head.ERROR_RANK] = m[rank + Rank.NUMBER]


def stamp_order(m, rank, at):
    """The same, and leave a stamp."""
    if m[Head.WATCH] != 0:
        check_order(m, rank, at)
        m[at] = m[Head.STAMP]


def get_extended(m, rank):
    """Return the extended mode's record of a rank."""
    return m[Head.EXTENDED] + ((rank - m[Head.RANKS]) >> Rank.BITS << 3)


def touch(m, rank):
    """Note that something of a rank is put off to the end of the tick; returns its record."""
    x = get_extended(m, rank)
    if m[x + Extended.TOUCHED] == 0:
        m[x + Extended.TOUCHED] = 1
        links = m[Head.TOUCHED_LINKS]
        i = ((rank - m[Head.RANKS]) >> Rank.BITS) + 1
        m[links + 2 * i] = 0
        m[links + 2 * i + 1] = 0
        m[Head.TOUCHED] = merge(m, links, m[Head.TOUCHED], i)
    return x


def hold_packet(m, s):
    """Let the free packets of a direct all-reduce look again at the end of the tick whether all messages have come."""
    if m[s + Stream.HELD] == 0:
        m[s + Stream.HELD] = 1
        at = touch(m, m[s + Stream.RANK]) + Extended.PACKETS
        m[s] = m[at]
        m[at] = s
