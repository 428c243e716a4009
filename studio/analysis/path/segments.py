"""Make the visits of a walk along the critical path into segments with causes: of nodes, of what calls did, and of gaps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from studio.analysis.job.kinds import COMMUNICATION, COMPUTE, COPY, CPU, MEMORY, NOTHING
from studio.analysis.job.ledger import PARTS
from studio.analysis.path.courses import Courses
from studio.columns import group_places, join_ranges
from studio.notebook import build_html_table, format_record
from studio.trace import NONE, Bool, Int64, NodeType, UInt8, are_assumed_arrivals, are_device_waits, are_idle
from studio.units import format_ns

Cause = Literal[
    "compute",
    "copy",
    "collective",
    "message",
    "host",
    "launch",
    "stall",
    "waiting",
    "queueing",
    "sync",
    "before",
    "assumed",
]
CAUSES: tuple[Cause, ...] = get_args(Cause)
CAUSE_CODES = {cause: code for code, cause in enumerate(CAUSES)}
CAUSE_OF_KIND: Mapping[int, Cause] = {COMPUTE: "compute", COPY: "copy", MEMORY: "copy", CPU: "host"}
CAUSE_OF_PART: Mapping[str, Cause] = {
    "host": "host",
    "stall": "stall",
    "waiting": "waiting",
    "bubble": "waiting",
}
"""What a gap is called by what its rank did meanwhile; of other parts it was queueing behind other work."""


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The critical path of a run: the pieces of time, across ranks, that its finish consists of.

    S segments by time, one where the other ends, from 0 to the finish; R ranks.

    Attributes:
        rank: (S,) place of the rank in the trace's ranks.
        row: (S,) the node that ran, or, of a gap, that was about to; -1 for gaps after a rank's last node.
        start_ns, end_ns: (S,) after the beginning of the run, on aligned clocks; none is empty.
        cause: (S,) index into `CAUSES`.
        shift_ns: (R,) what the clock of each rank says at 0, after the beginning of the run as its ledger has it.
    """

    rank: Int64
    row: Int64
    start_ns: Int64
    end_ns: Int64
    cause: UInt8
    shift_ns: Int64

    __repr__ = format_record

    def __len__(self) -> int:
        return len(self.rank)

    def _repr_html_(self) -> str:
        """Return its time by cause."""
        rows = [(cause, format_ns(ns)) for cause, ns in self.by_cause().items()]
        return build_html_table(f"Critical path of {format_ns(self.length_ns)}", ["cause", "time"], rows)

    @property
    def length_ns(self) -> int:
        """From the beginning of the run to the latest finish."""
        return int(self.end_ns[-1]) if len(self) else 0

    @property
    def ns(self) -> Int64:
        """(S,) how long each segment is."""
        length: Int64 = self.end_ns - self.start_ns
        return length

    def by_cause(self) -> dict[Cause, int]:
        """Return how much of it each cause has, the largest first."""
        total = np.zeros(len(CAUSES), np.int64)
        np.add.at(total, self.cause, self.ns)
        order = np.argsort(-total, kind="stable").tolist()
        return {CAUSES[code]: int(total[code]) for code in order if total[code]}

    def rows_of(self, place: int) -> Int64:
        """Return the nodes of a rank that are on it, by time."""
        rows = self.row[(self.rank == place) & (self.row != NONE)]
        return np.array(list(dict.fromkeys(rows.tolist())), np.int64)


def explain_visits(courses: Courses, visits: Int64) -> CriticalPath:
    """Return the path with causes; gaps, and time for which a stream stalled, are cut where their rank did something else."""
    rank, row, top, bottom = visits[:, ::-1]
    # A gap ends where its node begins; visits are by rising time here.
    reached = np.append(0, top[:-1])
    cause = np.full(len(rank), CAUSE_CODES["stall"], np.int64)
    kinds = courses.account.kinds
    given, stalled = np.zeros(len(rank), np.bool_), np.zeros(len(rank), np.bool_)
    for place, places in group_places(rank):
        own_visits = places[row[places] != NONE]
        index, first = courses.trace.ranks[place].graph, int(courses.times.first[place])
        graph, kind = courses.trace.graphs[index], kinds[index]
        of = kind[row[own_visits]]
        for code, name in CAUSE_OF_KIND.items():
            cause[own_visits[of == code]] = CAUSE_CODES[name]
        talks = of == COMMUNICATION
        # Kernels of communication libraries of which nothing else is known are nodes of another type.
        is_message = np.isin(graph.type[row[own_visits]], (NodeType.COMM_SEND, NodeType.COMM_RECV))
        cause[own_visits[are_device_waits(graph)[row[own_visits]]]] = CAUSE_CODES["sync"]
        cause[own_visits[are_assumed_arrivals(graph)[row[own_visits]]]] = CAUSE_CODES["assumed"]
        stalled[own_visits] = are_idle(graph)[row[own_visits]] & (of == NOTHING)
        cause[own_visits[talks]] = np.where(
            is_message[talks], CAUSE_CODES["message"], CAUSE_CODES["collective"]
        )
        begun = courses.account.arrivals.begun_ns[first + row[own_visits]] - courses.zero(place)
        cause[own_visits[talks & (begun >= top[own_visits])]] = CAUSE_CODES["waiting"]
        gate = courses.gates(place).gate[row[own_visits]]
        given[own_visits] = (gate != NONE) & (kind[gate] == CPU) & np.isin(of, (COMPUTE, COPY, COMMUNICATION))
    solid, gap = top > bottom, bottom > reached
    # That one stream stood idle does not say that its rank did.
    held, ran = solid & stalled, solid & ~stalled
    spent = np.stack([column[ran] for column in (rank, row, bottom, top, cause)])
    before = np.stack([column[gap] for column in (rank, row, reached, bottom)])
    within = np.stack([column[held] for column in (rank, row, bottom, top)])
    gaps = np.concatenate([before, within], axis=1)
    ran_on, gaps, given = _take_calls(courses, gaps, np.append(given[gap], given[held]))
    every = np.concatenate([spent, ran_on, _cut_gaps(courses, gaps, given)], axis=1)
    every = every[:, np.argsort(every[2], kind="stable")]
    joined = _merge(every)
    _check(joined)
    rank, row, start, end, cause = joined
    return CriticalPath(rank, row, start, end, cause.astype(np.uint8), courses.shift_ns)


def _take_calls(courses: Courses, gaps: Int64, given: Bool) -> tuple[Int64, Int64, Bool]:
    """Take out of gaps what calls did themselves meanwhile on the threads of what was about to run.

    Args:
        courses: The ranks.
        gaps: (4, G) rank, row, start and end.
        given: (G,) see `_cut_gaps`.

    Returns:
        (5, P) the pieces of these calls, as `_cut_gaps`; and what is left of the gaps, with `given`.
    """
    if not any(map(len, courses.account.pieces)):
        return np.zeros((5, 0), np.int64), gaps, given
    taken, left, left_given = [np.zeros((5, 0), np.int64)], [], []
    for place, places in group_places(gaps[0]):
        pieces, lanes, zero = courses.pieces(place), courses.lanes(place), courses.zero(place)
        kind = courses.account.kinds[courses.trace.ranks[place].graph][pieces.row]
        names = np.full(int(kind.max(initial=0)) + 1, NONE)
        for code, name in CAUSE_OF_KIND.items():
            names[code : code + 1] = CAUSE_CODES[name]
        lane_of, cause = lanes[pieces.row], names[kind]
        gap_lane = np.where(gaps[1, places] == NONE, NONE, lanes[gaps[1, places]])
        for lane, of_lane in group_places(gap_lane):
            at = places[of_lane]
            own = np.flatnonzero((lane_of == lane) & (lane != NONE) & (cause != NONE))
            own = own[np.argsort(pieces.start_ns[own], kind="stable")]
            since, until = pieces.start_ns[own] - zero, np.maximum.accumulate(pieces.end_ns[own] - zero)
            since = np.maximum(since, np.append(since[:1], until[:-1]))
            start, end = gaps[2:, at]
            low = np.searchsorted(until, start, side="right")
            count = np.maximum(np.searchsorted(since, end, side="left") - low, 0)
            # A gap has as many pieces taken out, and one part more than that left.
            of = np.repeat(np.arange(len(at)), count)
            which = join_ranges(low, count)
            begin, close = np.maximum(since[which], start[of]), np.minimum(until[which], end[of])
            rows = pieces.row[own[which]]
            taken.append(np.stack([gaps[0, at[of]], rows, begin, close, cause[own[which]]]))
            edge = np.cumsum(count + 1)
            after = np.arange(len(of)) + of
            part = np.repeat(np.arange(len(at)), count + 1)
            begins, closes = np.empty(len(part), np.int64), np.empty(len(part), np.int64)
            begins[edge - count - 1], closes[edge - 1] = start, end
            begins[after + 1], closes[after] = close, begin
            kept = closes > begins
            part = at[part[kept]]
            left.append(np.stack([gaps[0, part], gaps[1, part], begins[kept], closes[kept]]))
            left_given.append(given[part])
    ran_on = np.concatenate(taken, axis=1)
    ran_on = ran_on[:, ran_on[3] > ran_on[2]]
    if not left:
        return ran_on, gaps, given
    return ran_on, np.concatenate(left, axis=1), np.concatenate(left_given)


def _cut_gaps(courses: Courses, gaps: Int64, given: Bool) -> Int64:
    """Return (5, P) gaps cut where what their rank did changes: rank, row, start, end, cause.

    Args:
        courses: The ranks.
        gaps: (4, G) rank, row, start and end.
        given: (G,) whether the gap lies between giving a device its work and the beginning of that.
    """
    account, (rank, row, start, end) = courses.account, gaps
    line_of = np.full(len(courses.trace.ranks), NONE, np.int64)
    line_of[account.places] = np.arange(len(account))
    course, shift = account.course[line_of[rank]], courses.shift_ns[rank]
    low = np.maximum(account.stretches.place(course, start + shift), account.stretches.bounds[course])
    high = np.maximum(account.stretches.place(course, end + shift - 1), low)
    count = high - low + 1
    of = np.repeat(np.arange(len(rank)), count)
    at = join_ranges(low, count)
    inside = at < account.stretches.bounds[course[of] + 1]
    part = np.where(inside, account.stretches.kind[np.minimum(at, len(account.stretches.kind) - 1)], 0)
    # The first and last piece reach to the ends of the gap, which may begin before the rank's own time does.
    first = np.append(True, of[1:] != of[:-1])[: len(of)]
    last = np.append(first[1:], True)[: len(of)]
    begin = np.where(first, start[of], account.stretches.start[at] - shift[of])
    until = np.where(last, end[of], account.stretches.end[at] - shift[of])
    names = np.array([CAUSE_CODES[CAUSE_OF_PART.get(part, "queueing")] for part in PARTS])
    cause = names[part]
    launched = given[of] & np.isin(cause, (CAUSE_CODES["host"], CAUSE_CODES["stall"]))
    cause = np.where(launched, CAUSE_CODES["launch"], cause)
    # Nothing is known of a rank before its recording begins, not even that it stalled.
    early = account.stretches.start[at] < account.before_ns[line_of[rank[of]]]
    cause = np.where(inside & early, CAUSE_CODES["before"], cause)
    return np.stack([rank[of], row[of], begin, until, cause])


def _merge(pieces: Int64) -> Int64:
    """Return segments with neighbours of one node and cause made one."""
    if not pieces.shape[1]:
        return pieces
    differs = pieces[1, 1:] != pieces[1, :-1]
    for column in (pieces[0], pieces[4]):
        differs |= column[1:] != column[:-1]
    first = np.flatnonzero(np.append(True, differs))
    if len(first) == pieces.shape[1]:
        return pieces
    joined = pieces[:, first]
    joined[3] = pieces[3, np.append(first[1:], pieces.shape[1]) - 1]
    return joined


def _check(segments: Int64) -> None:
    assert not segments.shape[1] or segments[2, 0] == 0, "the path begins with the run"
    assert (segments[2, 1:] == segments[3, :-1]).all(), "one segment ends where the next begins"
    assert (segments[3] > segments[2]).all(), "no segment is empty"
