"""The shared bus (SEMANTICS.md, section 12): two chained LogGP channels per rank in place of the endpoint delay.

The outer pair joins NPU and memory; whatever passes its NPU end also passes the inner pair attached there. What has come
is in `arrivals`.
"""

from __future__ import annotations

from studio.sim.kernel.clock import alloc
from studio.sim.kernel.order import later
from studio.sim.kernel.records import Action, Bus, Head, Phase, Rank, Real, Request, Stream


def wait_on_bus(m, f, s, size, red, plain, back):
    """Let a packet wait at its rank; `red` is one more than the time of its reduction, 0 for none."""
    if m[Head.BUS] == 0 or m[m[s + Stream.PHASE] + Phase.LOCAL] != 0:
        if red > 0:
            later(m, m[s + Stream.RANK], m[s + Stream.DELAY], Action.BUS, s, red - 1)
        else:
            later(m, m[s + Stream.RANK], m[s + Stream.DELAY], Action.FREE, s, 0)
        return
    r = alloc(m)
    m[r + Request.SIZE] = size
    m[r + Request.REDUCE] = 0
    m[r + Request.REDUCTION] = red
    if red > 0:
        m[r + Request.REDUCE] = 1
    m[r + Request.BACK] = 0
    if back:
        m[r + Request.BACK] = 1
    m[r + Request.WHAT] = Request.TO_PACKET
    m[r + Request.OF] = s
    end = m[m[s + Stream.RANK] + Rank.BUS]
    if plain:
        move_through_inner(m, f, end, r, Request.TO_SEND, 0, Bus.INNER_MEMORY)
    else:
        queue_send(m, f, end + Bus.WORDS * Bus.OUTER_MEMORY, r)


def get_partner(m, end):
    """Return the other end of a channel."""
    if m[end + Bus.SIDE] & 1:
        return end - Bus.WORDS
    return end + Bus.WORDS


def move_through_inner(m, f, end, r, what, back, side):
    """Move a request of the outer NPU end through the inner pair; `what` is done with it then."""
    i = alloc(m)
    m[i + Request.SIZE] = m[r + Request.SIZE]
    m[i + Request.REDUCE] = 0
    m[i + Request.BACK] = back
    m[i + Request.WHAT] = what
    m[i + Request.OF] = r
    queue_send(m, f, end + Bus.WORDS * (side - m[end + Bus.SIDE]), i)


def queue_send(m, f, end, r):
    """Queue a request for sending."""
    queue_back(m, end, r)
    send_next(m, f, end)


def send_next(m, f, end):
    """Send what waits if the end is idle; after more than 8 sends in a row it gives way to its partner."""
    if m[end + Bus.STATE] != Bus.IDLE or m[end + Bus.SENDS] == 0:
        return
    other = get_partner(m, end)
    if m[end + Bus.COUNT] > Bus.TURN and m[other + Bus.SENDS] != 0 and m[other + Bus.COUNT] <= Bus.TURN:
        if m[other + Bus.STATE] != Bus.IDLE:
            return
        end = other
        other = get_partner(m, end)
    now = m[Head.NOW]
    offset = m[Head.BUS_O]
    since = now - m[end + Bus.LAST]
    if m[end + Bus.BEFORE] == Bus.SENDING and m[Head.BUS_O] + since <= m[Head.BUS_GAP]:
        offset = m[Head.BUS_GAP] - since
    r = m[end + Bus.SENDS]
    m[end + Bus.SENDS] = m[r + Request.NEXT]
    gap = f[Real.BUS_G]
    if m[end + Bus.SIDE] >= Bus.INNER_NPU:
        gap = f[Real.BUS_INNER_G]
    wire = gap * (m[r + Request.SIZE] - 1)
    m[r + Request.NEXT] = 0
    if m[other + Bus.GETS] == 0:
        m[other + Bus.GETS] = r
    else:
        m[m[other + Bus.GETS_END] + Request.NEXT] = r
    m[other + Bus.GETS_END] = r
    m[other + Bus.PENDING] += 1
    m[other + Bus.BEFORE] = m[other + Bus.STATE]
    m[other + Bus.STATE] = Bus.RECEIVING
    m[other + Bus.COUNT] = 0
    rank = m[end + Bus.RANK]
    later(m, rank, int(offset + wire + m[Head.BUS_L] + m[Head.BUS_O]), Action.GOT, other, 0)
    m[end + Bus.STATE] = Bus.SENDING
    later(m, rank, int(offset + wire), Action.SENT, end, 0)


def finish_bus_send(m, f, end):
    """An end has sent."""
    m[end + Bus.LAST] = m[Head.NOW]
    m[end + Bus.BEFORE] = m[end + Bus.STATE]
    m[end + Bus.STATE] = Bus.IDLE
    m[end + Bus.COUNT] += 1
    send_next(m, f, end)


def start_work(m, end):
    """Start the next reduction of an end if none is under way."""
    if m[end + Bus.WORKING] == 0 and m[end + Bus.WORK] != 0:
        m[end + Bus.WORKING] = 1
        time = m[m[end + Bus.WORK] + Request.SIZE] // 100 * m[Head.BUS_REDUCE] + 50
        later(m, m[end + Bus.RANK], time, Action.REDUCED, end, 0)


def queue_work(m, end, r):
    """Queue a request for reduction."""
    m[r + Request.NEXT] = 0
    if m[end + Bus.WORK] == 0:
        m[end + Bus.WORK] = r
    else:
        m[m[end + Bus.WORK_END] + Request.NEXT] = r
    m[end + Bus.WORK_END] = r
    start_work(m, end)


def queue_back(m, end, r):
    """Queue a request for sending; the caller sees to the sending."""
    m[r + Request.NEXT] = 0
    if m[end + Bus.SENDS] == 0:
        m[end + Bus.SENDS] = r
    else:
        m[m[end + Bus.SENDS_END] + Request.NEXT] = r
    m[end + Bus.SENDS_END] = r
