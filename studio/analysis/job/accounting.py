"""Work out where each nanosecond of the ranks of a run went: which part each moment is, by what was under way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from studio.analysis.collectives.arrivals import Arrivals, Matched, find_arrivals, without_joining
from studio.analysis.job.kinds import COMMUNICATION, COMPUTE, COPY, CPU, MEMORY, infer_work_kinds
from studio.analysis.job.ledger import PART_CODES, PARTS, Delays, Ledger
from studio.analysis.job.own_time import OwnPieces, find_own_pieces, list_busy_spans
from studio.analysis.job.stretches import Marked, Stretches, join_stretches
from studio.distinct import find_distinct
from studio.timeline import NodeSpans, NodeTimes, Timeline, collect_recorded_times
from studio.trace import NONE, Bool, CommGroup, Int64, NodeType, Trace, UInt8

_SENDS, _RECEIVES = 1, 2


@dataclass(frozen=True, slots=True)
class TimedRun:
    """A run whose time is to be told: when its nodes ran, and what is known of it besides.

    R ranks.

    Attributes:
        trace: The job.
        times: When its nodes ran.
        finish_ns: (R,) how long each rank took from the beginning of the run to its last end.
        groups: Comm groups in place of the trace's.
        origin_ns: When the run began.
        is_recording: Whether the times were measured: then clocks are aligned, and only waiting is told apart.
        joins: Whether ranks waited for each other in their communication.
        delays: What a simulation tells of its communication.
        matched: Who takes part in what, where it is known.
        pieces: When calls of each graph of a recording ran themselves, where it is known.
    """

    trace: Trace
    times: NodeTimes
    finish_ns: Int64
    groups: Sequence[CommGroup] | None = None
    origin_ns: int = 0
    is_recording: bool = False
    joins: bool = True
    delays: Delays | None = None
    matched: Matched | None = None
    pieces: tuple[OwnPieces, ...] | None = None


def build_ledger(run: TimedRun, own: Bool | None = None) -> Ledger:
    """Return where each nanosecond of the ranks with times went.

    Args:
        run: The run.
        own: (T,) of which of the nodes in its times the time is told: the others are waited for, but count as nothing; None for all.
    """
    trace, times, delays = run.trace, run.times, run.delays
    known = np.flatnonzero(times.first != NONE)
    # Ranks that share their times were simulated as one.
    _, index, course = np.unique(times.first[known], return_index=True, return_inverse=True)
    chosen = known[index]
    pieces = run.pieces
    if pieces is None:
        pieces = tuple(map(find_own_pieces, trace.graphs)) if run.is_recording else ()
    spans = list_busy_spans(trace, times, chosen, pieces)
    joined = find_arrivals(trace, times, run.groups, is_recording=run.is_recording, matched=run.matched)
    early = np.full((2, len(times.start_ns)), NONE, np.int64)
    if not run.joins:
        joined = without_joining(joined)
    elif run.is_recording:
        joined, early = _find_last_ready(times, joined, spans)
    begun_ns = joined.begun_ns
    if delays is not None:
        begun_ns = np.where(delays.waiting_ns > 0, times.start_ns + delays.waiting_ns, NONE)
    if own is not None:
        spans = spans.select(own[times.first[spans.rank] + spans.row])
    kinds = tuple(kind.astype(np.uint8) for kind in infer_work_kinds(trace))
    stretches, owner, unseen = _compute_courses(run, chosen, spans, kinds, begun_ns, early)
    numbers = [trace.ranks[place].number for place in known.tolist()]
    return Ledger(
        numbers,
        known,
        run.finish_ns[known],
        course,
        stretches,
        run.is_recording,
        owner,
        times.first,
        begun_ns,
        joined,
        run.origin_ns,
        kinds,
        unseen,
        pieces,
    )


def build_recorded_ledger(
    trace: Trace, timeline: Timeline, origin_ns: int, *, pieces: tuple[OwnPieces, ...] | None = None
) -> Ledger:
    """Return where each nanosecond went of a recording, given as a timeline that begins at `origin_ns`."""
    times = collect_recorded_times(trace, timeline)
    finish = times.finishes(trace, origin_ns)
    return build_ledger(TimedRun(trace, times, finish, origin_ns=origin_ns, is_recording=True, pieces=pieces))


def _find_last_ready(times: NodeTimes, joined: Arrivals, spans: NodeSpans) -> tuple[Arrivals, Int64]:
    """Return arrivals of a recording, and (2, T) from when until when ranks waited before collectives recorded to begin together.

    Some recorders note collectives only from the moment all members are there. The member that was ready last, all that it had begun
    before having ended, is then the one that the others waited for; -1 stands for nodes of other collectives, and for no wait.
    """
    waited = np.full((2, len(times.start_ns)), NONE, np.int64)
    groups, reaches = [], _Reaches(times, spans)
    for group in joined.groups:
        is_present = group.rows != NONE
        together = np.flatnonzero(
            (is_present.sum(axis=0) > 1)
            & ((group.start_ns == group.start_ns.max(axis=0)) | ~is_present).all(axis=0)
        )
        if not len(together):
            groups.append(group)
            continue
        ahead = joined.ahead_ns[group.member][:, None]
        entry = times.first[group.member][:, None] + group.rows[:, together]
        is_present = is_present[:, together]
        ready = np.full(entry.shape, np.iinfo(np.int64).min)
        for line, first in enumerate(times.first[group.member].tolist()):
            entries = entry[line][is_present[line]]
            ready[line][is_present[line]] = reaches.compute_ready_ns(first, entries) - ahead[line]
        last = group.last.copy()
        # Of several that were ready at the same moment nothing tells for which the others waited.
        alone = (ready == ready.max(axis=0)).sum(axis=0) == 1
        last[together] = np.where(alone, ready.argmax(axis=0), NONE)
        groups.append(replace(group, last=last))
        until = np.broadcast_to(ready.max(axis=0) + ahead, ready.shape)
        waits = is_present & (ready + ahead < until)
        waited[:, entry[waits]] = (ready + ahead)[waits], until[waits]
    return replace(joined, groups=tuple(groups)), waited


class _Reaches:
    """How far what the ranks had begun reached, by where their times begin; worked out for those that are asked for."""

    def __init__(self, times: NodeTimes, spans: NodeSpans) -> None:
        self._times, self._spans = times, spans
        self._first: Int64 | None = None
        self._known: dict[int, tuple[Int64, Int64]] = {}

    def compute_ready_ns(self, first: int, entry: Int64) -> Int64:
        """Return when all that a rank had begun before some of its nodes had ended; their own start where that is nothing, or later."""
        if self._first is None:
            self._first = self._times.first[self._spans.rank]
        if first not in self._known:
            own = np.flatnonzero(self._first == first)
            own = own[np.argsort(self._spans.start_ns[own], kind="stable")]
            self._known[first] = self._spans.start_ns[own], np.maximum.accumulate(self._spans.end_ns[own])
        begun, ended = self._known[first]
        start = self._times.start_ns[entry]
        before = np.searchsorted(begun, start, side="left") - 1
        return np.where(before < 0, start, np.minimum(ended[np.maximum(before, 0)], start))


def _find_early_waits(line: Int64, since: Int64, until: Int64, entry: Int64) -> Marked:
    """Return the time of each line for which ranks waited before collectives that are recorded to begin together."""
    order = np.lexsort((since, line))
    line, since, until, entry = (column[order] for column in (line, since, until, entry))
    begin = np.maximum(since, _reach_before(line, until))
    lasts = until > begin
    named = PART_CODES["waiting"] + (entry + 1) * len(PARTS)
    return Marked(line[lasts], begin[lasts], until[lasts], named[lasts])


def _compute_courses(
    run: TimedRun, chosen: Int64, spans: NodeSpans, kinds: tuple[UInt8, ...], begun: Int64, early: Int64
) -> tuple[Stretches, Int64, Bool]:
    """Return what each of the chosen ranks did when, the communication whose time each stretch is, and where none was noted yet."""
    trace, times, finish, origin = run.trace, run.times, run.finish_ns[chosen], run.origin_ns
    line_of = np.full(len(trace.ranks), NONE, np.int64)
    line_of[chosen] = np.arange(len(chosen))
    kind, messages = _read_kinds(trace, kinds, spans.rank, spans.row)
    line, start, end = line_of[spans.rank], spans.start_ns - origin, spans.end_ns - origin
    # What a finish leaves out is not the rank's time.
    start, end = (np.clip(column, 0, finish[line]) for column in (start, end))

    def select_spans(*kinds: int) -> Marked:
        selected = np.isin(kind, kinds) & (end > start)
        return Marked(line[selected], start[selected], end[selected], np.zeros(int(selected.sum()), np.int64))

    talks = np.flatnonzero((kind == COMMUNICATION) & (end > start))
    entry = times.first[spans.rank[talks]] + spans.row[talks]
    last = np.where(begun[entry] == NONE, start[talks], begun[entry] - origin)
    talk = _Talk(line[talks], start[talks], end[talks], last, messages[talks])
    noted = talk
    if run.is_recording and (talk.is_message == _RECEIVES).any():
        noted = replace(talk, start=_compute_wait_starts(talk, line, start, end))
    posted = _find_posted(noted, entry)
    begins = np.where(talk.is_message != 0, np.clip(talk.begun, talk.start, talk.end), talk.start)
    pieces = _split_communication(replace(talk, start=begins), entry, run.delays, run.is_recording)
    before = np.flatnonzero(early[1][entry] != NONE)
    since, until = np.maximum(early[:, entry[before]] - origin, 0)
    came = _find_early_waits(talk.line[before], since, until, entry[before])
    work, copying, hosted = select_spans(COMPUTE), select_spans(COPY, MEMORY), select_spans(CPU)
    cut = join_stretches((work, copying, pieces, posted, came, hosted), finish, _decide)
    # Marks of communication say whose time it is: its part, and times the number of parts one more than the entry.
    owner, part = np.divmod(cut.kind, len(PARTS))
    owner -= 1
    unseen = (part == PART_CODES["waiting"]) & (owner != NONE)
    unseen[unseen] = cut.start[unseen] < times.start_ns[owner[unseen]] - origin
    return replace(cut, kind=part.astype(np.uint8)), owner, unseen


def _decide(inside: tuple[Int64, ...]) -> Int64:
    """Return the part of each moment from the marks of work, copies, communication, what is posted, early members, and host.

    A mark is -1 for none. Where communication is what counts, its mark is returned, which names its node too.
    """
    work, copying, moving, posted, came, hosted = inside
    talking = np.where(moving >= 0, moving, np.where(posted >= 0, posted, came))
    busy = (work >= 0) | (copying >= 0)
    part = np.where(hosted >= 0, PART_CODES["host"], PART_CODES["stall"])
    part = np.where(talking >= 0, talking, part)
    part = np.where(copying >= 0, PART_CODES["copy"], part)
    part = np.where(work >= 0, PART_CODES["compute"], part)
    return np.asarray(np.where(busy & (moving >= 0), PART_CODES["overlapped"], part), np.int64)


def _read_kinds(trace: Trace, kinds: tuple[UInt8, ...], rank: Int64, row: Int64) -> tuple[Int64, Int64]:
    """Return (S,) the kind of work of each span, and whether it is half of a message: 0, `_SENDS` or `_RECEIVES`."""
    graph_of = np.array([owner.graph for owner in trace.ranks], np.int64)[rank]
    size = np.array([len(graph) for graph in trace.graphs], np.int64)
    entry = (np.cumsum(size) - size)[graph_of] + row
    kind = np.concatenate([np.zeros(0, np.uint8), *kinds])
    messages = np.concatenate(
        [
            np.zeros(0, np.uint8),
            *(
                (graph.type == NodeType.COMM_SEND) * np.uint8(_SENDS)
                + (graph.type == NodeType.COMM_RECV) * np.uint8(_RECEIVES)
                for graph in trace.graphs
            ),
        ]
    )
    return kind[entry].astype(np.int64), messages[entry].astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Talk:
    """Communication, by rank and row: its course, times, when all had begun, and which half of a message it is, 0 for none."""

    line: Int64
    start: Int64
    end: Int64
    begun: Int64
    is_message: Int64


def _compute_wait_starts(talk: _Talk, line: Int64, start: Int64, end: Int64) -> Int64:
    """Return the starts of communication, those of receives that begin with their messages moved to when all before had ended.

    Args:
        talk: The communication.
        line: The course of each span, whatever runs.
        start: When it began.
        end: When it ended.
    """
    since = talk.start.copy()
    late = np.flatnonzero((talk.is_message == _RECEIVES) & (talk.begun == talk.start))
    order = np.lexsort((start, line))
    bounds = np.searchsorted(line[order], np.arange(int(line.max(initial=0)) + 2))
    for course in find_distinct(talk.line[late]).tolist():
        entries, its = late[talk.line[late] == course], order[bounds[course] : bounds[course + 1]]
        reach = np.append(0, np.maximum.accumulate(end[its]))
        since[entries] = np.minimum(
            reach[np.searchsorted(start[its], talk.start[entries], side="left")], talk.start[entries]
        )
    return since


def _find_posted(talk: _Talk, entry: Int64) -> Marked:
    """Return the time of each line in which halves of messages waited for the others; of several the earliest issued counts."""
    posted = np.flatnonzero((talk.is_message != 0) & (talk.begun > talk.start))
    posted = posted[np.lexsort((talk.start[posted], talk.line[posted]))]
    line, start = talk.line[posted], talk.start[posted]
    end = np.minimum(talk.begun[posted], talk.end[posted])
    begin = np.maximum(start, _reach_before(line, end))
    lasts = end > begin
    named = PART_CODES["bubble"] + (entry[posted] + 1) * len(PARTS)
    return Marked(line[lasts], begin[lasts], end[lasts], named[lasts])


def _split_communication(talk: _Talk, entry: Int64, delays: Delays | None, is_recording: bool) -> Marked:
    """Return the time of each line in which communication was under way, each piece with its part.

    A moment is that of the earliest issued of what is under way; so a span has what lies after the ends of all before it. What a
    message waits for its other half is left out: see `_find_posted`.
    """
    order = np.lexsort((talk.start, talk.line))
    line, start, end = talk.line[order], talk.start[order], talk.end[order]
    own = np.maximum(start, _reach_before(line, end))
    waits = np.clip(talk.begun[order], start, end)
    zero = np.zeros(len(entry), np.int64)
    latency, queueing = (
        (zero, zero)
        if delays is None
        else (column[entry][order] for column in (delays.latency_ns, delays.queueing_ns))
    )
    lead = np.minimum(waits + latency, end)
    cuts = [start, waits, lead, np.minimum(lead + queueing, end), end]
    rest = PART_CODES["communication" if is_recording else "transfer"]
    marks = [
        np.full(len(line), code)
        for code in (PART_CODES["waiting"], PART_CODES["latency"], PART_CODES["queueing"], rest)
    ]
    pieces: list[tuple[Int64, ...]] = []
    for low, high, mark in zip(cuts, cuts[1:], marks, strict=False):
        begin = np.maximum(low, own)
        lasts = high > begin
        named = mark + (entry[order] + 1) * len(PARTS)
        pieces.append((line[lasts], begin[lasts], high[lasts], named[lasts]))
    columns = [np.concatenate([part[column] for part in pieces]) for column in range(4)]
    return Marked(*columns)


def _reach_before(line: Int64, end: Int64) -> Int64:
    """Return (S,) the latest end of the spans of the same line before each one; spans are sorted by line and start."""
    reach = end.copy()
    if not len(line):
        return reach
    first = np.flatnonzero(np.append(True, line[1:] != line[:-1]))
    for low, high in zip(first.tolist(), [*first[1:].tolist(), len(line)], strict=True):
        np.maximum.accumulate(end[low:high], out=reach[low:high])
    before = np.append(0, reach[:-1])
    before[first] = 0
    return before
