"""Messages (SEMANTICS.md, section 8): how they are sent, received, and found by who waits for them.

A channel is a key: tag, pair, size. The k-th message of a channel belongs to the k-th receive; messages of one key cannot
overtake each other. A pair is source << 20 | destination, or, where one rank stands for many, what source and destination
are to each other, see `packets.name_message`.
"""

from __future__ import annotations

from studio.sim.kernel.clock import alloc, push, release
from studio.sim.kernel.links import compute_delay, count_traffic, enter_link, find_lowest_dimension
from studio.sim.kernel.order import create_label
from studio.sim.kernel.records import (
    Announcement,
    Callback,
    Channel,
    Dimension,
    Error,
    Head,
    Label,
    Message,
    Network,
    Order,
    Rank,
    Real,
    Ring,
    Stream,
    Waiter,
)


def chain_of(m, tag, pair, size):
    """Return where the hash chain of a key starts: the middle bits of a product depend on all lower ones.

    Keys that differ in their destination alone lie side by side, for who sends to many sends to them in turn.
    """
    h = tag * 0x1E3779B97F4A7C15 + (pair >> 20) * 0x42B2AE3D27D4EB4F + size * 0x165667B19E3779F9
    return m[Head.CHANNELS] + (((h >> 31) + pair) & m[Head.CHANNEL_MASK])


def ensure_channel(m, tag, pair, size):
    """Return the channel of a key, made where there is none."""
    if tag >= Channel.UNEVEN_TAG:
        size = 0
    h = chain_of(m, tag, pair, size)
    c = m[h]
    while c != 0:
        if m[c + Channel.PAIR] == pair and m[c + Channel.TAG] == tag and m[c + Channel.SIZE] == size:
            return c
        c = m[c + Channel.NEXT]
    c = alloc(m)
    m[c + Channel.NEXT] = m[h]
    m[c + Channel.TAG] = tag
    m[c + Channel.PAIR] = pair
    m[c + Channel.SIZE] = size
    m[c + Channel.UNCLAIMED] = 0
    m[c + Channel.WAITER] = 0
    m[c + Channel.MORE] = 0
    m[c + Channel.USES] = 0
    m[h] = c
    m[Head.CHANNEL_COUNT] += 1
    return c


def drop_channel(m, c):
    """Forget a channel nobody uses."""
    h = chain_of(m, m[c + Channel.TAG], m[c + Channel.PAIR], m[c + Channel.SIZE])
    if m[h] == c:
        m[h] = m[c + Channel.NEXT]
    else:
        p = m[h]
        while m[p + Channel.NEXT] != c:
            p = m[p + Channel.NEXT]
        m[p + Channel.NEXT] = m[c + Channel.NEXT]
    m[Head.CHANNEL_COUNT] -= 1
    release(m, c)


def settle(m, c):
    """Forget a channel if nobody uses it."""
    if m[c + Channel.USES] == 0 and m[c + Channel.WAITER] == 0 and m[c + Channel.UNCLAIMED] == 0:
        drop_channel(m, c)


def rehash(m):
    """Give the channels a table of four times the size; the caller has seen to the room."""
    old = m[Head.CHANNELS]
    size = m[Head.CHANNEL_MASK] + 1
    new = m[Head.TOP]
    m[Head.TOP] = new + 4 * size
    for i in range(4 * size):
        m[new + i] = 0
    m[Head.CHANNELS] = new
    m[Head.CHANNEL_MASK] = 4 * size - 1
    for i in range(size):
        c = m[old + i]
        while c != 0:
            after = m[c + Channel.NEXT]
            h = chain_of(m, m[c + Channel.TAG], m[c + Channel.PAIR], m[c + Channel.SIZE])
            m[c + Channel.NEXT] = m[h]
            m[h] = c
            c = after


def get_stream(m, w):
    """Return the stream that waits; 0 where something else does."""
    if w & 7 == Waiter.STREAM:
        return w >> 3
    if w & 7 == Waiter.RING:
        return m[(w >> 3) + Ring.STREAM]
    return 0


def note_post(m, w):
    """Note when a receive was posted."""
    s = get_stream(m, w)
    if s != 0:
        m[s + Stream.POSTED] = m[Head.NOW]
    elif w & 7 == Waiter.NODE:
        m[m[m[Head.RANKS] + Rank.WORDS * ((w >> 3) & 0xFFFFF) + Rank.ORDER] + Order.POSTED] = m[Head.NOW]


def post(m, c, w):
    """Wait for the next message of a channel; one that is there already is handed over in this tick."""
    if m[c + Channel.UNCLAIMED] > 0:
        m[c + Channel.UNCLAIMED] -= 1
        settle(m, c)
        if m[Head.WATCH] != 0:
            w = create_label(m, w)
            # Whether the message or the receive came first is not known where both came in this tick.
            if m[Head.UNCLAIMED] == m[Head.NOW]:
                m[w + Label.WILD] = 1
        push(m, m[Head.NOW], Callback.LATE, w)
        return
    if m[Head.WATCH] != 0:
        note_post(m, w)
    if m[c + Channel.WAITER] == 0:
        m[c + Channel.WAITER] = w
        return
    a = alloc(m)
    m[a + 1] = w
    end = m[c + Channel.MORE]
    if end == 0:
        m[a] = a
    else:
        m[a] = m[end]
        m[end] = a
    m[c + Channel.MORE] = a


def take_waiter(m, c):
    """Return the first waiter of a channel, taken off; 0 where there is none."""
    w = m[c + Channel.WAITER]
    end = m[c + Channel.MORE]
    if end == 0:
        m[c + Channel.WAITER] = 0
        return w
    a = m[end]
    m[c + Channel.WAITER] = m[a + 1]
    if a == end:
        m[c + Channel.MORE] = 0
    else:
        m[end] = m[a]
    release(m, a)
    return w


def launch(m, f, c, src, dst, size, time, code, key):
    """Put a message of channel `c` on the network; `time` is its delay where that is known, else -1; `key` see `turns`."""
    m[c + Channel.USES] += 1
    if m[Head.WATCH] != 0:
        code = create_label(m, code)
    aware = m[Head.AWARE]
    if aware != Network.UNAWARE:
        e = alloc(m)
        m[e + Message.KEY] = key
        m[e + Message.SIZE] = size
        m[e + Message.CHANNEL] = c
        m[e + Message.CODE] = code
        m[e + Message.DESTINATION] = dst
        if aware == Network.ONE_DIMENSION:
            wire = size / f[Real.DIMS + 1]
            m[e + Message.WIRE] = int(wire)
            m[e + Message.TIME] = int(f[Real.DIMS] + wire)
            count_traffic(m, src, 0, 1, size)
            if m[Head.PEERS] != 0 and m[m[Head.DIMS] + Dimension.KIND] == Network.SWITCH:
                # The link behind the switch is that of the rank which stands for the receiver.
                dst = m[m[Head.RANKS] + Rank.WORDS * m[m[Head.PEERS] + dst] + Rank.NUMBER]
                m[e + Message.DESTINATION] = dst
        elif aware == Network.PRODUCT:
            m[e + Message.CROSSING] = 0
        else:
            m[e + Message.SOURCE] = src
            count_traffic(m, src, find_lowest_dimension(m, src, dst), 1, size)
        enter_link(m, f, e, src, dst)
        return
    if time < 0:
        time = compute_delay(m, f, src, dst, size, 1)
    push(m, m[Head.NOW] + time, Callback.ARRIVE | c << Callback.WHAT, code)


def send(m, f, tag, pair, src, dst, size, code, key):
    """Send a message; `code` says what its arrival means to the sender, `key` what it is to him, see `turns`."""
    if src == dst:
        m[Head.ERROR] = Error.SELF
        m[Head.ERROR_RANK] = src
        return
    if m[Head.RENDEZVOUS] == 0:
        launch(m, f, ensure_channel(m, tag, pair, size), src, dst, size, -1, code, key)
        return
    r = alloc(m)
    m[r + Announcement.TAG] = tag
    m[r + Announcement.FROM] = src
    m[r + Announcement.TO] = dst
    m[r + Announcement.SIZE] = size & 0xFFFFFFFF
    m[r + Announcement.CODE] = code
    m[r + Announcement.PAIR] = pair
    m[r + Announcement.KEY] = key
    # Control messages bear the name of the message they are about; their tags are their own.
    post(m, ensure_channel(m, tag + Channel.CONTROL_TAG, pair, Channel.CONTROL_BYTES), r * 8 + Waiter.SEND)


def receive(m, f, tag, pair, src, dst, size, w, key):
    """Post a receive; `w` is what waits for the message."""
    if src == dst:
        m[Head.ERROR] = Error.SELF
        m[Head.ERROR_RANK] = src
        return
    if m[Head.RENDEZVOUS] == 0:
        post(m, ensure_channel(m, tag, pair, size), w)
        return
    r = alloc(m)
    m[r + Announcement.TAG] = tag
    m[r + Announcement.FROM] = src
    m[r + Announcement.TO] = dst
    m[r + Announcement.SIZE] = size & 0xFFFFFFFF
    m[r + Announcement.CODE] = w
    m[r + Announcement.PAIR] = pair
    c = ensure_channel(m, tag + Channel.CONTROL_TAG, pair, Channel.CONTROL_BYTES)
    launch(m, f, c, dst, src, Channel.CONTROL_BYTES, -1, r * 8 + Waiter.RECV, key)
