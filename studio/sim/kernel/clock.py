"""The clock (SEMANTICS.md, section 1): ticks to come, the callbacks in them, and the lists of ranks.

Rules (the order of events is part of the answer):

- One tick is one nanosecond. Callbacks of a tick run in the order they were scheduled; one scheduled for
  the tick that runs is appended and runs in the same pass.
- Actions of a rank are registered in the rank's own list for a tick. The first one schedules one callback
  that runs the whole list, so all actions of a rank in a tick run where the first was registered. A list
  may grow while it runs.
"""

from __future__ import annotations

from studio.sim.kernel.records import Action, Callback, Error, Head, Lists, Tick, Wheel


def alloc(m):
    """Return a free record of 8 words; its content is undefined."""
    r = m[Head.FREE]
    if r == 0:
        return reserve_records(m)
    after = m[r]
    m[Head.FREE] = after
    prefetch(m, after)
    return r


def reserve_records(m):
    """Make room for records, next to each other, and return the first of them."""
    r = m[Head.TOP]
    m[Head.TOP] = r + 8 * Head.RECORDS
    for i in range(1, Head.RECORDS - 1):
        m[r + 8 * i] = r + 8 * i + 8
    m[r + 8 * (Head.RECORDS - 1)] = 0
    m[Head.FREE] = r + 8
    return r


def release(m, r):
    """Give a record of 8 words back."""
    m[r] = m[Head.FREE]
    m[Head.FREE] = r


def alloc_block(m):
    """Return a free block of 16 words, which starts at a multiple of 16; its content is undefined."""
    b = m[Head.FREE_BLOCK]
    if b != 0:
        m[Head.FREE_BLOCK] = m[b]
        return b
    b = m[Head.TOP]
    if b & 8 != 0:
        release(m, b)
        b += 8
    m[Head.TOP] = b + Tick.BLOCK
    return b


def release_block(m, b):
    """Give a block back."""
    m[b] = m[Head.FREE_BLOCK]
    m[Head.FREE_BLOCK] = b


def merge(m, links, a, b):
    """Merge two heaps; returns the root."""
    if a == 0:
        return b
    if b == 0:
        return a
    if b < a:
        a, b = b, a
    root = a
    while True:
        r = m[links + 2 * a + 1]
        m[links + 2 * a + 1] = m[links + 2 * a]
        if r == 0:
            m[links + 2 * a] = b
            return root
        if b < r:
            m[links + 2 * a] = b
            a = b
            b = r
        else:
            m[links + 2 * a] = r
            a = r


# A wheel of six levels with 1,024 slots each holds the ticks to come. A level is a mask of 32 bits that says which of
# the 32 masks after it are not 0, which say which of the slots after them are not. A slot of the lowest level is one
# tick, so it says which; ticks of the others are found by a hash. Callbacks of a tick lie one behind the other, so
# the next ones are in the cache when their turn comes.


def put_tick(m, t, tick):
    """Put a tick into the wheel, relative to the present."""
    d = tick ^ m[Head.NOW]
    s = tick
    base = m[Head.WHEEL]
    while d >> Wheel.BITS != 0:
        d >>= Wheel.BITS
        s >>= Wheel.BITS
        base += Wheel.SPAN
    slot = s & ((1 << Wheel.BITS) - 1)
    word = slot >> 5
    m[base] |= 1 << word
    m[base + 1 + word] |= 1 << (slot & 31)
    at = base + Wheel.SLOTS + slot
    m[t + Tick.WHEEL] = m[at]
    m[at] = t


def next_tick(m):
    """Take the next tick out of the wheel and make it the present; 0 where none is left."""
    while True:
        base = m[Head.WHEEL]
        level = 0
        while m[base] == 0:
            base += Wheel.SPAN
            level += 1
            if level == Wheel.LEVELS:
                return 0
        word = lowest(m[base])
        bits = m[base + 1 + word]
        slot = lowest(bits)
        bits ^= 1 << slot
        m[base + 1 + word] = bits
        if bits == 0:
            m[base] ^= 1 << word
        at = base + Wheel.SLOTS + 32 * word + slot
        t = m[at]
        m[at] = 0
        c = m[t + Tick.WHEEL]
        if c == 0:
            m[Head.NOW] = m[t]
            if level != 0:
                forget_tick(m, t)
            if bits != 0:
                prefetch(m, m[base + Wheel.SLOTS + 32 * word + lowest(bits)])
            return t
        # Several ticks of one slot go down, as seen from where the slot begins.
        shift = Wheel.BITS * level
        m[Head.NOW] = (m[t] >> shift) << shift
        lower_tick(m, t)
        while c != 0:
            t = c
            c = m[t + Tick.WHEEL]
            lower_tick(m, t)


def lower_tick(m, t):
    """Put a tick into a lower level of the wheel."""
    tick = m[t]
    if (tick ^ m[Head.NOW]) >> Wheel.BITS == 0:
        forget_tick(m, t)
    put_tick(m, t, tick)


def forget_tick(m, t):
    """Take a tick out of the hash."""
    h = m[Head.TICKS] + (m[t] & m[Head.TICK_MASK])
    if m[h] == t:
        m[h] = m[t + Tick.CHAIN]
    else:
        c = m[h]
        while m[c + Tick.CHAIN] != t:
            c = m[c + Tick.CHAIN]
        m[c + Tick.CHAIN] = m[t + Tick.CHAIN]


def new_tick(m, tick):
    """Make the record of a tick, and put it into the wheel."""
    t = alloc_block(m)
    m[t] = tick
    m[t + Tick.READ] = t + Tick.EVENTS
    m[t + Tick.WRITE] = t + Tick.EVENTS
    put_tick(m, t, tick)
    return t


def near_tick(m, tick):
    """Return a tick of the wheel's lowest level, made where there is none."""
    t = m[m[Head.WHEEL] + Wheel.SLOTS + (tick & ((1 << Wheel.BITS) - 1))]
    if t == 0 and tick == m[Head.NOW]:
        # The tick that runs is in the wheel no more.
        t = m[Head.LIST]
    if t == 0:
        t = new_tick(m, tick)
    return t


def far_tick(m, tick):
    """Return a tick of a higher level, made where there is none."""
    h = m[Head.TICKS] + (tick & m[Head.TICK_MASK])
    t = m[h]
    while t != 0 and m[t] != tick:
        t = m[t + Tick.CHAIN]
    if t == 0:
        if tick > Tick.MAX or tick < 0:
            m[Head.ERROR] = Error.CLOCK
            tick = Tick.MAX
        t = new_tick(m, tick)
        m[t + Tick.CHAIN] = m[h]
        m[h] = t
    return t


def append(m, t, x, y):
    """Write a callback behind the others of a tick, or an action behind the others of a list; return where."""
    at = m[t + Tick.WRITE]
    if at & (Tick.BLOCK - 1) == Tick.BLOCK_END:
        b = alloc_block(m)
        m[at] = b
        at = b
    m[at] = x
    m[at + 1] = y
    m[t + Tick.WRITE] = at + 2
    return at


def push(m, tick, x, y):
    """Schedule a callback as the last one of a tick; return where it is written."""
    near = (tick ^ m[Head.NOW]) >> Wheel.BITS == 0
    t = near_tick(m, tick) if near else far_tick(m, tick)
    return append(m, t, x, y)


def drop_list(m, t):
    """Give the blocks of a list back that has been read to its end."""
    at = m[t + Tick.READ]
    if at < t or at - t > Tick.BLOCK:
        release_block(m, at & -Tick.BLOCK)
    release_block(m, t)


def next_of(m, t, at):
    """Return where the callback at `at` of a list is, which is in the next block where this one is read."""
    if at & (Tick.BLOCK - 1) == Tick.BLOCK_END:
        after = m[at]
        if at - t != Tick.BLOCK_END:
            release_block(m, at - Tick.BLOCK_END)
        return after
    return at


# The lists of a rank. Three of the coming ticks stand in a record of the rank, further ones in a sorted list
# of records: next, tick, where the callback is written. A list of one action is a callback itself; with the
# second action it becomes a callback MANY with a block.


def list_of(m, soon, tick):
    """Return where the callback of a rank's list for a tick is written; 0 where there is none."""
    if m[soon + Lists.FIRST] == tick:
        return m[soon + Lists.FIRST + 1]
    if m[soon + Lists.SECOND] == tick:
        return m[soon + Lists.SECOND + 1]
    if m[soon + Lists.THIRD] == tick:
        return m[soon + Lists.THIRD + 1]
    if m[soon + Lists.MORE] != 0:
        return find_list(m, soon, tick)
    return 0


def register(m, rank, tick, kind, x, y):
    """Put an action on a rank's list for a tick."""
    number = rank - m[Head.RANKS]
    soon = m[Head.SOON] + (number >> Lists.SHIFT)
    at = list_of(m, soon, tick)
    if at != 0:
        join_list(m, at, kind, x, y)
        return
    at = push(m, tick, (Callback.RANK_LIST + kind) | number | (x << Action.WHAT), y)
    if m[soon + Lists.FIRST] < 0:
        m[soon + Lists.FIRST] = tick
        m[soon + Lists.FIRST + 1] = at
    elif m[soon + Lists.SECOND] < 0:
        m[soon + Lists.SECOND] = tick
        m[soon + Lists.SECOND + 1] = at
    elif m[soon + Lists.THIRD] < 0:
        m[soon + Lists.THIRD] = tick
        m[soon + Lists.THIRD + 1] = at
    else:
        note_list(m, soon, tick, at)


def find_list(m, soon, tick):
    """Return where the callback of a rank's list for a tick is written, among the further ones; else 0."""
    c = m[soon + Lists.LAST]
    if m[c + 1] < tick:
        return 0
    if m[c + 1] > tick:
        c = m[soon + Lists.MORE]
        while m[c + 1] < tick:
            c = m[c]
        if m[c + 1] != tick:
            return 0
    return m[c + 2]


def note_list(m, soon, tick, at):
    """Note a rank's list among the further ones."""
    r = alloc(m)
    m[r] = 0
    m[r + 1] = tick
    m[r + 2] = at
    c = m[soon + Lists.MORE]
    if c == 0:
        m[soon + Lists.MORE] = r
        m[soon + Lists.LAST] = r
        return
    last = m[soon + Lists.LAST]
    if m[last + 1] < tick:
        m[last] = r
        m[soon + Lists.LAST] = r
        return
    if m[c + 1] > tick:
        m[r] = c
        m[soon + Lists.MORE] = r
        return
    while m[m[c] + 1] < tick:
        c = m[c]
    m[r] = m[c]
    m[c] = r


def join_list(m, at, kind, x, y):
    """Add an action to the list whose callback is written at `at`."""
    first = m[at]
    t = m[at + 1]
    if first & Callback.KIND != Callback.MANY or t == 0:
        t = alloc_block(m)
        m[t + Tick.READ] = t + Tick.EVENTS
        m[t + Tick.WRITE] = t + Tick.EVENTS
        if first & Callback.KIND != Callback.MANY:
            append(
                m,
                t,
                (first & Callback.KIND) - Callback.RANK_LIST | (first >> Action.WHAT) << Action.WHAT,
                m[at + 1],
            )
            m[at] = first | Callback.MANY
        m[at + 1] = t
    append(m, t, kind | (x << Action.WHAT), y)


def forget_list(m, rank):
    """The rank's list of this tick has run."""
    now = m[Head.NOW]
    soon = m[Head.SOON] + ((rank - m[Head.RANKS]) >> Lists.SHIFT)
    if m[soon + Lists.FIRST] == now:
        m[soon + Lists.FIRST] = -1
    elif m[soon + Lists.SECOND] == now:
        m[soon + Lists.SECOND] = -1
    elif m[soon + Lists.THIRD] == now:
        m[soon + Lists.THIRD] = -1
    else:
        # Those of other ticks are later, so this one is the first.
        r = m[soon + Lists.MORE]
        m[soon + Lists.MORE] = m[r]
        release(m, r)


def lowest(mask):
    """Return the index of the lowest bit of a mask; compiled, one instruction."""
    return (mask & -mask).bit_length() - 1


def prefetch(m, at):
    """Bring what lies at `at` into the cache, where it is wanted soon; compiled, one instruction."""
