"""How much later each node could have ended without the run finishing later.

Everything that comes after is taken to begin as soon as it may and to take as long as it did. Held fixed are how long each
node took from the moment it had all it waited for, how long messages and collectives took from their last arrival, and the
order of what ran in each lane. So a node's slack is the least, over all that waited for it, of theirs and of the time
between; that of a node nothing waited for lasts until the finish of the run. Of a collective it is that of all its members,
since they end together; who waits in it may come later by as much as it waits, besides.
"""

from __future__ import annotations

import numpy as np

from studio.analysis.job.ledger import Ledger
from studio.analysis.path.courses import Courses
from studio.columns import join_columns
from studio.timeline import NodeTimes
from studio.trace import NONE, Int64, Trace

NEAR = 0.01
"""Nodes whose slack is at most this share of the finish are near-critical."""
_PASSES = 8


def compute_slack(trace: Trace, times: NodeTimes, account: Ledger) -> Int64:
    """Return (T,) the slack of each node in ns, by the times' entries; -1 where a node has none.

    Args:
        trace: The job.
        times: When its nodes ran.
        account: Where the time of its ranks went.
    """
    courses = Courses(trace, times, account)
    start, end, place = _align_entries(courses)
    finish = int((account.finish_ns - courses.shift_ns[account.places]).max(initial=0))
    meeting = _Meetings(courses, start, end)
    before, after, gap = _list_pairs(courses, start, end, meeting)
    count = len(start) + meeting.count
    initial = np.full(count, np.iinfo(np.int64).max // 4)
    timed = start >= 0
    initial[: len(start)][timed] = np.maximum(finish - end[timed], 0)
    when = np.concatenate([np.where(meeting.of >= 0, meeting.begun[meeting.of], start), meeting.begun[:-1]])
    # Meetings stand before their members: members end after it.
    rises = np.concatenate([place, np.full(meeting.count, NONE, np.int64)])
    least = _propagate(initial, before, after, gap, when, rises)
    members = meeting.of >= 0
    result = np.where(timed, least[: len(start)], NONE)
    result[members] = least[len(start) + meeting.of[members]]
    return result


def _align_entries(courses: Courses) -> tuple[Int64, Int64, Int64]:
    """Return (T,) aligned start and end of all entries, -1 where there are none, and their places along dependencies."""
    times = courses.times
    start, end, place = (np.full(len(times.start_ns), NONE, np.int64) for _ in range(3))
    for first, rank in courses.distinct():
        entries = slice(first, first + len(courses.order(rank).place))
        is_timed, zero = times.start_ns[entries] >= 0, courses.zero(rank)
        start[entries] = np.where(is_timed, times.start_ns[entries] - zero, NONE)
        end[entries] = np.where(is_timed, times.over_ns[entries] - zero, NONE)
        place[entries] = courses.order(rank).place
    return start, end, place


class _Meetings:
    """Collectives, and recorded messages: what their members do is joined where the last one begins.

    T entries of the times, C meetings.

    Attributes:
        count: C.
        of: (T,) the meeting a node takes part in and waits at, -1 for none.
        begun: (C + 1,) when the last member began, on aligned clocks; one more so that -1 can be looked up.
        came: Entries of members, also of those that left before the last came, and their meetings.
    """

    def __init__(self, courses: Courses, start: Int64, end: Int64) -> None:
        arrivals, first = courses.account.arrivals, courses.times.first
        self.of = np.full(len(start), NONE, np.int64)
        begun, entries, numbers = [], [], []
        self.count = 0
        known: set[bytes] = set()
        for group in arrivals.groups:
            base = first[group.member]
            key = base.tobytes() + group.rows.tobytes()
            # Groups whose members were simulated as one are one.
            if key in known:
                continue
            known.add(key)
            is_present = group.rows != NONE
            entry = base[:, None] + group.rows
            number = self.count + np.broadcast_to(np.arange(group.rows.shape[1]), entry.shape)
            entries.append(entry[is_present])
            numbers.append(number[is_present])
            begun.append(
                np.where(is_present, start[np.where(is_present, entry, 0)], NONE).max(axis=0, initial=NONE)
            )
            self.count += group.rows.shape[1]
        if courses.account.is_recording and arrivals.ran is not None:
            messages = arrivals.ran.messages
            send = first[messages.send_rank] + messages.send_row
            receive = first[messages.receive_rank] + messages.receive_row
            entries += [send, receive]
            numbers += [self.count + np.arange(len(send))] * 2
            begun.append(np.maximum(start[send], start[receive]))
            self.count += len(send)
        self.begun = join_columns(begun)
        entry, number = (join_columns(part) for part in (entries, numbers))
        self.came = entry, number
        stays = end[entry] >= self.begun[number]
        self.of[entry[stays]] = number[stays]
        self.begun = np.append(self.begun, 0)


def _list_pairs(courses: Courses, start: Int64, end: Int64, meeting: _Meetings) -> tuple[Int64, Int64, Int64]:
    """Return what waited for what, and how much later the first could have ended before that counts; meetings follow entries."""
    before, after, gap = [], [], []
    for first, rank in courses.distinct():
        gates = courses.gates(rank)
        _, until = courses.spans(rank)
        before.append(first + gates.before)
        after.append(first + gates.after)
        gap.append(np.maximum(gates.ready_ns[gates.after] - until[gates.before], 0))
    this, other, spare = (join_columns(part) for part in (before, after, gap))
    # What a member of a meeting waited for may come later by as much as the member waited there.
    met = meeting.of[other]
    spare = spare + np.where(met >= 0, meeting.begun[met] - start[other], 0)
    ran = courses.account.arrivals.ran
    if ran is not None and not courses.account.is_recording:
        messages, base = ran.messages, courses.times.first
        send = base[messages.send_rank] + messages.send_row
        receive = base[messages.receive_rank] + messages.receive_row
        waited = np.zeros(len(start), np.int64)
        waited[receive] = end[receive] - start[receive]
        spare = spare + waited[other]
        this, other = np.append(this, send), np.append(other, receive)
        spare, met = np.append(spare, np.zeros(len(send), np.int64)), np.append(met, np.full(len(send), NONE))
    other = np.where(met >= 0, len(start) + met, other)
    joined = np.flatnonzero(meeting.of >= 0)
    this = np.concatenate([this, len(start) + meeting.of[joined]])
    other = np.concatenate([other, joined])
    return this, other, np.append(spare, np.zeros(len(joined), np.int64))


def _propagate(initial: Int64, before: Int64, after: Int64, gap: Int64, when: Int64, rises: Int64) -> Int64:
    """Return the least of each one's own slack, and of that of what waited for it with the time between."""
    least = initial
    kept = (when[before] >= 0) & (when[after] >= 0)
    before, after, gap = before[kept], after[kept], gap[kept]
    place = np.empty(len(when), np.int64)
    place[np.lexsort((rises, when))] = np.arange(len(when))
    order = np.argsort(place[before], kind="stable")[::-1]
    columns = [column[order].tolist() for column in (before, after, gap)]
    # One pass suffices unless what took no time at all stands in the wrong order.
    for _ in range(_PASSES):
        values = least.tolist()
        for this, other, spare in zip(*columns, strict=True):
            most = values[other] + spare
            if most < values[this]:
                values[this] = most
        least = np.array(values, np.int64)
        if (least[before] <= least[after] + gap).all():
            break
    return least
