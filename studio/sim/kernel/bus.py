"""The shared bus: two chained LogGP channels per rank in place of the endpoint delay.

The outer pair joins NPU and memory; whatever passes its NPU end also passes the inner pair attached there. What has come
is in `arrivals`.
"""

from __future__ import annotations

from studio.sim.kernel.clock import alloc
from studio.sim.kernel.layout import (
    A_BUS,
    A_FREE,
    A_GOT,
    A_REDUCED,
    A_SENT,
    B_BEFORE,
    B_COUNT,
    B_GETS,
    B_GETS_END,
    B_LAST,
    B_PENDING,
    B_RANK,
    B_SENDS,
    B_SENDS_END,
    B_SIDE,
    B_STATE,
    B_WORK,
    B_WORK_END,
    B_WORKING,
    BUS,
    BUS_G,
    BUS_GAP,
    BUS_INNER_G,
    BUS_L,
    BUS_O,
    BUS_REDUCE,
    BUS_WORDS,
    IDLE,
    INNER_MEMORY,
    INNER_NPU,
    NOW,
    OUTER_MEMORY,
    PH_LOCAL,
    Q_BACK,
    Q_OF,
    Q_PACKET,
    Q_RED,
    Q_REDUCE,
    Q_SEND,
    Q_SIZE,
    Q_WHAT,
    R_BUS,
    RECEIVING,
    S_DELAY,
    S_PHASE,
    S_RANK,
    SENDING,
    TURN,
)
from studio.sim.kernel.order import later


def wait_on_bus(m, f, s, size, red, plain, back):
    """Let a packet wait at its rank; `red` is one more than the time of its reduction, 0 for none."""
    if m[BUS] == 0 or m[m[s + S_PHASE] + PH_LOCAL] != 0:
        if red > 0:
            later(m, m[s + S_RANK], m[s + S_DELAY], A_BUS, s, red - 1)
        else:
            later(m, m[s + S_RANK], m[s + S_DELAY], A_FREE, s, 0)
        return
    r = alloc(m)
    m[r + Q_SIZE] = size
    m[r + Q_REDUCE] = 0
    m[r + Q_RED] = red
    if red > 0:
        m[r + Q_REDUCE] = 1
    m[r + Q_BACK] = 0
    if back:
        m[r + Q_BACK] = 1
    m[r + Q_WHAT] = Q_PACKET
    m[r + Q_OF] = s
    end = m[m[s + S_RANK] + R_BUS]
    if plain:
        through_inner(m, f, end, r, Q_SEND, 0, INNER_MEMORY)
    else:
        queue_send(m, f, end + BUS_WORDS * OUTER_MEMORY, r)


def partner_of(m, end):
    """Return the other end of a channel."""
    if m[end + B_SIDE] & 1:
        return end - BUS_WORDS
    return end + BUS_WORDS


def through_inner(m, f, end, r, what, back, side):
    """Move a request of the outer NPU end through the inner pair; `what` is done with it then."""
    i = alloc(m)
    m[i + Q_SIZE] = m[r + Q_SIZE]
    m[i + Q_REDUCE] = 0
    m[i + Q_BACK] = back
    m[i + Q_WHAT] = what
    m[i + Q_OF] = r
    queue_send(m, f, end + BUS_WORDS * (side - m[end + B_SIDE]), i)


def queue_send(m, f, end, r):
    """Queue a request for sending."""
    queue_back(m, end, r)
    send_next(m, f, end)


def send_next(m, f, end):
    """Send what waits if the end is idle; after more than 8 sends in a row it gives way to its partner."""
    if m[end + B_STATE] != IDLE or m[end + B_SENDS] == 0:
        return
    other = partner_of(m, end)
    if m[end + B_COUNT] > TURN and m[other + B_SENDS] != 0 and m[other + B_COUNT] <= TURN:
        if m[other + B_STATE] != IDLE:
            return
        end = other
        other = partner_of(m, end)
    now = m[NOW]
    offset = m[BUS_O]
    since = now - m[end + B_LAST]
    if m[end + B_BEFORE] == SENDING and m[BUS_O] + since <= m[BUS_GAP]:
        offset = m[BUS_GAP] - since
    r = m[end + B_SENDS]
    m[end + B_SENDS] = m[r]
    gap = f[BUS_G]
    if m[end + B_SIDE] >= INNER_NPU:
        gap = f[BUS_INNER_G]
    wire = gap * (m[r + Q_SIZE] - 1)
    m[r] = 0
    if m[other + B_GETS] == 0:
        m[other + B_GETS] = r
    else:
        m[m[other + B_GETS_END]] = r
    m[other + B_GETS_END] = r
    m[other + B_PENDING] += 1
    m[other + B_BEFORE] = m[other + B_STATE]
    m[other + B_STATE] = RECEIVING
    m[other + B_COUNT] = 0
    rank = m[end + B_RANK]
    later(m, rank, int(offset + wire + m[BUS_L] + m[BUS_O]), A_GOT, other, 0)
    m[end + B_STATE] = SENDING
    later(m, rank, int(offset + wire), A_SENT, end, 0)


def bus_sent(m, f, end):
    """An end has sent."""
    m[end + B_LAST] = m[NOW]
    m[end + B_BEFORE] = m[end + B_STATE]
    m[end + B_STATE] = IDLE
    m[end + B_COUNT] += 1
    send_next(m, f, end)


def start_work(m, end):
    """Start the next reduction of an end if none is under way."""
    if m[end + B_WORKING] == 0 and m[end + B_WORK] != 0:
        m[end + B_WORKING] = 1
        time = m[m[end + B_WORK] + Q_SIZE] // 100 * m[BUS_REDUCE] + 50
        later(m, m[end + B_RANK], time, A_REDUCED, end, 0)


def queue_work(m, end, r):
    """Queue a request for reduction."""
    m[r] = 0
    if m[end + B_WORK] == 0:
        m[end + B_WORK] = r
    else:
        m[m[end + B_WORK_END]] = r
    m[end + B_WORK_END] = r
    start_work(m, end)


def queue_back(m, end, r):
    """Queue a request for sending; the caller sees to the sending."""
    m[r] = 0
    if m[end + B_SENDS] == 0:
        m[end + B_SENDS] = r
    else:
        m[m[end + B_SENDS_END]] = r
    m[end + B_SENDS_END] = r
