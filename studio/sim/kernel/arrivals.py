"""Messages that reach their destination (SEMANTICS.md, section 8), and who waits for them."""

from __future__ import annotations

from studio.sim.kernel.bus import wait_on_bus
from studio.sim.kernel.clock import release
from studio.sim.kernel.custom import complete_custom_node
from studio.sim.kernel.endings import end_phase
from studio.sim.kernel.messages import ensure_channel, get_stream, launch, post, settle, take_waiter
from studio.sim.kernel.nodes import complete
from studio.sim.kernel.order import begin_chain, enter, freeze
from studio.sim.kernel.phases import handle_stream_message
from studio.sim.kernel.records import Announcement, Channel, Head, Label, Order, Rank, Stream, Waiter
from studio.sim.kernel.ring import ring_received


def fire(m, f, code):
    """Tell whoever waits for a message, or for its arrival."""
    kind = code & 7
    x = code >> 3
    if kind == Waiter.RING:
        ring_received(m, x)
    elif kind == Waiter.STREAM:
        handle_stream_message(m, f, x)
    elif kind == Waiter.NODE:
        complete(m, f, m[Head.RANKS] + Rank.WORDS * (x & 0xFFFFF), x >> 20)
    elif kind == Waiter.SENT:
        wait_on_bus(m, f, x, m[x + Stream.MESSAGE], 0, False, False)
    elif kind == Waiter.CUSTOM:
        if complete_custom_node(m, f, x >> 20, x & 0xFFFFF):
            end_phase(m, f, x >> 20)
    elif Waiter.SEND <= kind <= Waiter.RECV:
        tag = m[x + Announcement.TAG]
        src = m[x + Announcement.FROM]
        dst = m[x + Announcement.TO]
        size = m[x + Announcement.SIZE]
        code = m[x + Announcement.CODE]
        key = m[x + Announcement.KEY]
        c = ensure_channel(m, tag, m[x + Announcement.PAIR], size)
        release(m, x)
        if kind == Waiter.SEND:
            launch(m, f, c, src, dst, size, -1, code, key)
        else:
            post(m, c, code)


def wake(m, f, code, r, source, wild):
    """Fire what happens to a rank because of something labelled `r`."""
    rank = 0
    s = get_stream(m, code)
    if s != 0:
        rank = m[s + Stream.RANK]
    elif code & 7 == Waiter.NODE:
        rank = m[Head.RANKS] + Rank.WORDS * ((code >> 3) & 0xFFFFF)
    if rank == 0:
        begin_chain(m)
    else:
        enter(m, rank, m[r + Label.TICK], source, m[r + Label.CHAIN])
        if wild:
            freeze(m, rank)
    fire(m, f, code)


def arrive_watched(m, f, c, r):
    """A message reaches its destination where the order within a tick is watched."""
    m[c + Channel.USES] -= 1
    source = m[c + Channel.PAIR]
    code = m[r + Label.CODE]
    if m[c + Channel.WAITER] == 0:
        m[c + Channel.UNCLAIMED] += 1
        m[Head.UNCLAIMED] = m[Head.NOW]
        if code != 0:
            wake(m, f, code, r, Order.OWN, False)
        release(m, r)
        return
    w = take_waiter(m, c)
    settle(m, c)
    if code != 0:
        wake(m, f, code, r, Order.OWN, False)
    posted = -1
    s = get_stream(m, w)
    if s != 0:
        posted = m[s + Stream.POSTED]
    elif w & 7 == Waiter.NODE:
        posted = m[m[m[Head.RANKS] + Rank.WORDS * ((w >> 3) & 0xFFFFF) + Rank.ORDER] + Order.POSTED]
    # Whether the message or the receive came first is not known where both came in this tick.
    wake(m, f, w, r, source, posted == m[Head.NOW])
    release(m, r)


def arrive(m, f, c, code):
    """A message reaches its destination."""
    if m[Head.WATCH] != 0:
        arrive_watched(m, f, c, code)
        return
    m[c + Channel.USES] -= 1
    if m[c + Channel.WAITER] != 0:
        w = take_waiter(m, c)
        settle(m, c)
        if code != 0:
            fire(m, f, code)
        fire(m, f, w)
        return
    m[c + Channel.UNCLAIMED] += 1
    if code != 0:
        fire(m, f, code)
