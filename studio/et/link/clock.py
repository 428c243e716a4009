"""Align the clocks of ranks: all members leave an all-reduce at about the same moment.

Ranks without a common collective are compared by their messages: none is received before it is sent, so messages both ways
bound the offset from both sides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from studio.distinct import find_distinct
from studio.et.link.draft import Clock, RankDraft
from studio.et.link.facts import Facts
from studio.et.link.names import RECEIVE, SEND
from studio.trace import NEEDS_ALL, NONE, RECORDED_LATE_NS, Finding, Int64
from studio.units import format_counted, format_ns

_LEAST_CONTRADICTING = 2
_LEAST_FOR_DRIFT = 16
_MOST_LISTED = 8
_LARGEST_DRIFT_PPB = 200_000.0
"""Crystals are better than 200 ppm; a larger slope is not a clock's."""

_NO_EVIDENCE = 10
"""How many times the distance that stays may exceed a move. What is left out by this is a tenth of what is not known anyway."""

_Key = tuple[str, int, bool]
"""Group, kind, and whether it ran on the device: a call ends long before the kernel that it launches."""


@dataclass(frozen=True, slots=True)
class _Meetings:
    """Collectives of one key, by when they began.

    C collectives.

    Attributes:
        begins: (C,) when they began.
        ends: (C,) when they ended.
        numbers: (C,) the numbers that the recorder gave them, or by which recordings begin apart, each once; empty where there are none.
        digest: Equal where the numbers are.
    """

    begins: Int64
    ends: Int64
    numbers: Int64
    digest: bytes

    def count_common(self, other: _Meetings) -> int:
        """Return how many of these another rank has, see `common`."""
        if self.digest == other.digest or not len(self.numbers) or not len(other.numbers):
            return len(self.ends) if len(self.ends) == len(other.ends) else 0
        return len(np.intersect1d(self.numbers, other.numbers, assume_unique=True))

    def common(self, other: _Meetings) -> tuple[Int64, Int64]:
        """Return the places of those that met, here and there: those of one number, or all where as many have no numbers.

        Recordings that begin at different moments may hold as many collectives, and not the same.
        """
        if self.digest == other.digest or not len(self.numbers) or not len(other.numbers):
            every = np.arange(len(self.ends) if len(self.ends) == len(other.ends) else 0)
            return every, every
        _, own_places, other_places = np.intersect1d(
            self.numbers, other.numbers, assume_unique=True, return_indices=True
        )
        return own_places.astype(np.int64), other_places.astype(np.int64)


_Line = tuple[int, int, int]
"""Other end and tag of messages, and the size of those that are numbered, else -1."""


@dataclass(frozen=True, slots=True)
class _Times:
    """When messages were sent or received: (M,) times, and (M,) their numbers or -1."""

    times: Int64
    turns: Int64

    def common(self, other: _Times) -> tuple[Int64, Int64]:
        """Return the times here and there of the messages that both have: those of one number, or all where as many have no numbers."""
        if (self.turns < 0).any() or (other.turns < 0).any():
            both = len(self.times) == len(other.times)
            return (self.times, other.times) if both else (_NONE, _NONE)
        _, own, theirs = np.intersect1d(self.turns, other.turns, return_indices=True)
        return self.times[own], other.times[theirs]


@dataclass(frozen=True, slots=True)
class _Evidence:
    """What the times of a rank can be compared by.

    Attributes:
        collectives: Those that end together on all members.
        sent: When the rank began to send to others, by receiver and tag, in order; of numbered messages by size, too.
        received: When it had received, by sender and tag, likewise.
        number: The rank.
    """

    collectives: dict[_Key, _Meetings]
    sent: dict[_Line, _Times]
    received: dict[_Line, _Times]
    number: int

    def bounds(self, other: _Evidence) -> tuple[Int64, Int64]:
        """Return what may be added to the other's times at most, and at least: nothing is received before it is sent."""
        most, least = [_NONE], [_NONE]
        for (peer, tag, size), own in self.received.items():
            if peer == other.number and (self.number, tag, size) in other.sent:
                received, sent = own.common(other.sent[self.number, tag, size])
                most.append(received - sent)
        for (peer, tag, size), own in self.sent.items():
            if peer == other.number and (self.number, tag, size) in other.received:
                sent, received = own.common(other.received[self.number, tag, size])
                least.append(sent - received)
        return np.concatenate(most), np.concatenate(least)

    def count_shared(self, other: _Evidence) -> int:
        """Return how many collectives and messages two ranks share; messages count if they go both ways."""
        most, least = self.bounds(other)
        both = len(most) + len(least) if len(most) and len(least) else 0
        return self.count_collectives(other) + both

    def count_collectives(self, other: _Evidence) -> int:
        """Return how many collectives two ranks share."""
        return sum(
            own.count_common(other.collectives[key])
            for key, own in self.collectives.items()
            if key in other.collectives
        )


_NONE = np.zeros(0, np.int64)


def align(drafts: Sequence[RankDraft]) -> list[Finding]:
    """Set the clock of every draft, relative to the first rank's.

    Ranks on one machine share its clock: it is left alone and only the residual is reported. Where no collective took place on both at
    one time by it, times were shifted, or files are of two runs, and it is moved like others.
    """
    if len(drafts) < 2:
        return []
    every = range(len(drafts))
    ends = [
        _drop_collectives(_collect_evidence(drafts[rank]))
        if _may_mislead(drafts, rank)
        else _collect_evidence(drafts[rank])
        for rank in every
    ]
    # A rank whose files were cut off is no measure: it may match none of the others.
    first = next(
        (
            rank
            for rank in every
            if any(ends[rank].count_shared(ends[other]) for other in every if other != rank)
        ),
        0,
    )
    waiting = set(every) - {first}
    drafts[first].clock = Clock(residual_ns=0)
    # By rank that waits: how much it shares with one that is done, and that one.
    shared = dict.fromkeys(waiting, (0, NONE))
    newest = first
    while waiting:
        for other in waiting:
            shared[other] = max(shared[other], (ends[newest].count_shared(ends[other]), newest))
        count, other = max((shared[other][0], -other) for other in waiting)
        if count == 0:
            break
        newest, reference = -other, shared[-other][1]
        if have_same_clock(drafts[reference], drafts[newest]) and _is_contradicted(
            ends[reference], ends[newest]
        ):
            # It is the other one of the two whose clock is another.
            settled = (rank for rank in every if rank not in waiting)
            agreeing = (rank for rank in settled if _shares_clock(drafts, ends, rank, newest))
            reference = next(agreeing, reference)
        drafts[newest].clock = _fit_clock(drafts[reference], ends[reference], drafts[newest], ends[newest])
        waiting.discard(newest)
    for rank in [rank for rank in waiting if have_same_clock(drafts[first], drafts[rank])]:
        # Nothing to compare, and no need to.
        drafts[rank].clock = drafts[first].clock
        waiting.discard(rank)
    return _build_findings(drafts, waiting)


def _may_mislead(drafts: Sequence[RankDraft], rank: int) -> bool:
    """Whether the n-th collectives of a rank may be none of the others', and nothing has to be compared: it shares its clock."""
    lacking = drafts[rank].communication.unrecorded > 0
    return lacking and any(
        have_same_clock(drafts[rank], other) for other in drafts if other is not drafts[rank]
    )


def _drop_collectives(evidence: _Evidence) -> _Evidence:
    return replace(evidence, collectives={})


def _collect_collective_times(rank_draft: RankDraft) -> dict[_Key, _Meetings]:
    """Return the collectives whose members end together, by group, kind and side.

    Those of no bytes are none: for empty tensors a library waits for nobody.
    """
    if rank_draft.device is None or rank_draft.launched is None:
        return {}
    by_key: dict[_Key, list[tuple[int, int, int]]] = {}
    operations, device = rank_draft.operations, rank_draft.device
    for row, facts in rank_draft.communication.operators.items():
        if _ends_together(facts) and operations.start_ns[row] >= 0:
            key = facts.group or "", facts.kind, False
            by_key.setdefault(key, []).append(
                (
                    int(operations.start_ns[row]),
                    int(operations.end_ns[row]),
                    _find_proven_number(rank_draft, facts),
                )
            )
    for place, facts in rank_draft.communication.devices.items():
        if _ends_together(facts):
            event = int(rank_draft.launched.event[place])
            start = int(device.start_ns[event])
            end = start + int(device.duration_ns[event])
            by_key.setdefault((facts.group or "", facts.kind, True), []).append(
                (start, end, _find_proven_number(rank_draft, facts))
            )
    return {key: _build_meetings(times) for key, times in by_key.items()}


def _find_proven_number(rank_draft: RankDraft, facts: Facts) -> int:
    """Return the number of a collective in its group, -1 where it was counted from the beginning of the recording."""
    counted = "seq" in facts.inferred and (facts.group or "") not in rank_draft.communication.begins_apart
    return NONE if counted else facts.seq


def _build_meetings(times: Sequence[tuple[int, int, int]]) -> _Meetings:
    """Return collectives by when they began, of which begin, end and number, -1 for none, are given."""
    begins, ends, numbers = np.array(sorted(times), np.int64).T
    if int(numbers.min()) < 0 or len(find_distinct(numbers)) < len(numbers):
        numbers = _NONE
    return _Meetings(begins, ends, numbers, numbers.tobytes())


def _ends_together(facts: Facts) -> bool:
    return facts.kind in NEEDS_ALL and not facts.is_empty


def _collect_evidence(rank_draft: RankDraft) -> _Evidence:
    """Return what the times of a rank can be compared by."""
    sent: dict[_Line, list[tuple[int, int]]] = {}
    received: dict[_Line, list[tuple[int, int]]] = {}
    for _, begin, end, facts in sorted(_iterate_message_times(rank_draft), key=lambda each: each[0]):
        line = facts.peer, facts.tag, facts.bytes if facts.turn >= 0 else NONE
        if facts.kind == SEND:
            sent.setdefault(line, []).append((begin, facts.turn))
        else:
            received.setdefault(line, []).append((end, facts.turn))
    return _Evidence(
        _collect_collective_times(rank_draft),
        {line: _Times(*np.array(times, np.int64).T) for line, times in sent.items()},
        {line: _Times(*np.array(times, np.int64).T) for line, times in received.items()},
        rank_draft.number or 0,
    )


def _iterate_message_times(rank_draft: RankDraft) -> Iterator[tuple[int, int, int, Facts]]:
    """Yield the messages of a rank whose peer is known: when their turn was, their start and end, and the facts."""
    operations, device, launched = rank_draft.operations, rank_draft.device, rank_draft.launched
    communication = rank_draft.communication
    if device is None:
        return
    for row, facts in communication.operators.items():
        if facts.kind in (SEND, RECEIVE) and facts.peer != NONE and operations.start_ns[row] >= 0:
            # gloo may note a send down after it was received.
            call = communication.issued_by.get(row, row)
            begin = min(int(operations.start_ns[row]), int(operations.begin[call]))
            yield int(operations.begin[row]), begin, int(operations.end_ns[row]), facts
    for place, facts in communication.devices.items():
        if facts.kind in (SEND, RECEIVE) and facts.peer != NONE and launched is not None:
            event = int(launched.event[place])
            start = int(device.start_ns[event])
            yield start, start, start + int(device.duration_ns[event]), facts


def _fit_clock(
    reference: RankDraft, evidence: _Evidence, other: RankDraft, other_evidence: _Evidence
) -> Clock:
    """Return the clock of `other` relative to that of `reference`: by collectives where they share any, else by messages."""
    _, ends, _, theirs = _collect_common_times(evidence, other_evidence)
    if not len(theirs):
        return _fit_messages(reference, evidence, other, other_evidence)
    measure = correct_times(ends, reference.clock)
    difference = measure - theirs
    if have_same_clock(reference, other) and not _is_contradicted(evidence, other_evidence):
        clock = reference.clock
        residual = int(np.median(np.abs(measure - correct_times(theirs, clock))))
        return Clock(clock.offset_ns, clock.drift_ppb, clock.about_ns, residual, len(theirs))
    about = int(theirs.min())
    offset, drift = float(np.median(difference)), 0.0
    plain = float(np.median(np.abs(difference - offset)))
    if len(theirs) >= _LEAST_FOR_DRIFT:
        slope, _ = np.polyfit((theirs - about).astype(float), difference.astype(float), 1)
        straight = difference - slope * (theirs - about)
        if (
            abs(slope) * 1e9 < _LARGEST_DRIFT_PPB
            and np.median(np.abs(straight - np.median(straight))) < 0.5 * plain
        ):
            offset, drift = float(np.median(straight)), slope * 1e9
    if not drift and plain > _NO_EVIDENCE * abs(offset - reference.clock.offset_ns):
        offset, drift, about = reference.clock.offset_ns, reference.clock.drift_ppb, reference.clock.about_ns
    clock = Clock(round(offset), drift, about)
    residual = int(np.median(np.abs(measure - correct_times(theirs, clock))))
    return Clock(clock.offset_ns, drift, about, residual, len(theirs))


def _is_contradicted(this: _Evidence, other: _Evidence) -> bool:
    """Whether all collectives of the processor ended on one rank before they began on the other: then they do not share a clock, whatever they say."""
    # A device's times are converted to the clock of its machine, each by its own profiler.
    begins, ends, other_begins, other_ends = _collect_common_times(this, other, on_device=False)
    if not len(ends):
        return False
    apart = np.maximum(other_begins - ends, begins - other_ends)
    return len(apart) >= _LEAST_CONTRADICTING and bool(apart.min() > RECORDED_LATE_NS)


def _collect_common_times(
    this: _Evidence, other: _Evidence, *, on_device: bool = True
) -> tuple[Int64, Int64, Int64, Int64]:
    """Return begins and ends of the collectives that two ranks share, on this rank and on the other; without those of devices if so asked."""
    times: list[list[Int64]] = [[_NONE], [_NONE], [_NONE], [_NONE]]
    for key, own in this.collectives.items():
        if key in other.collectives and (on_device or not key[2]):
            theirs = other.collectives[key]
            own_places, other_places = own.common(theirs)
            columns = (
                own.begins[own_places],
                own.ends[own_places],
                theirs.begins[other_places],
                theirs.ends[other_places],
            )
            for kept, column in zip(times, columns, strict=True):
                kept.append(column)
    begins, ends, other_begins, other_ends = map(np.concatenate, times)
    return begins, ends, other_begins, other_ends


def _shares_clock(drafts: Sequence[RankDraft], ends: Sequence[_Evidence], first: int, second: int) -> bool:
    """Whether two ranks name one machine, and their collectives bear that out."""
    if not have_same_clock(drafts[first], drafts[second]) or not ends[first].count_collectives(ends[second]):
        return False
    return not _is_contradicted(ends[first], ends[second])


def _fit_messages(
    reference: RankDraft, evidence: _Evidence, other: RankDraft, other_evidence: _Evidence
) -> Clock:
    """Return the clock that is in the middle of what the messages of two ranks allow."""
    most, least = evidence.bounds(other_evidence)
    upper, lower = int(most.min()), int(least.max())
    matched = len(most) + len(least)
    if have_same_clock(reference, other):
        clock = reference.clock
        # Half of what the clocks may be apart by, or by how much the messages contradict a common clock.
        residual = max(lower, -upper, 0)
        return Clock(clock.offset_ns, clock.drift_ppb, clock.about_ns, residual, matched)
    offset = (lower + upper) // 2 + reference.clock.offset_ns
    return Clock(offset, 0.0, 0, abs(upper - lower) // 2, matched)


def have_same_clock(this: RankDraft, other: RankDraft) -> bool:
    """Whether two ranks ran on one machine and count from a known time, or are devices of one process."""
    if this.device is None or other.device is None:
        return False
    first, second = this.device.head, other.device.head
    if first.place and second.place and this.device.file == other.device.file:
        return True
    based = first.base_ns is not None and second.base_ns is not None
    return based and first.host != "" and first.host == second.host


def correct_times(times_ns: Int64, clock: Clock) -> Int64:
    """Return times (M,) by the common clock."""
    moved = times_ns + clock.offset_ns
    if clock.drift_ppb:
        moved = moved + np.rint((times_ns - clock.about_ns) * (clock.drift_ppb * 1e-9)).astype(np.int64)
    return moved


def _describe_drift(moved: Sequence[RankDraft]) -> str:
    drifts = [abs(rank_draft.clock.drift_ppb) for rank_draft in moved if rank_draft.clock.drift_ppb]
    return f" and for a drift of up to {max(drifts) / 1000:.2f} ppm" if drifts else ""


def _build_findings(drafts: Sequence[RankDraft], waiting: set[int]) -> list[Finding]:
    findings = []
    timed = [rank_draft for rank_draft in drafts if rank_draft.device is not None]
    aligned = [rank_draft for rank_draft in drafts if rank_draft.clock.matched]
    if aligned:
        worst = max(aligned, key=lambda rank_draft: rank_draft.clock.residual_ns)
        moved = [
            rank_draft for rank_draft in aligned if rank_draft.clock.offset_ns or rank_draft.clock.drift_ppb
        ]
        largest = max((abs(rank_draft.clock.offset_ns) for rank_draft in moved), default=0)
        how = (
            f"{format_counted(len(moved), 'clock')} {'was' if len(moved) == 1 else 'were'} moved, by up to {format_ns(largest)}{_describe_drift(moved)}"
            if moved
            else "all ranks share the clock of one machine, so none was moved"
            if all(have_same_clock(timed[0], rank_draft) for rank_draft in timed[1:])
            else "no distance of clocks stands out from that of the ends, so none was moved"
        )
        message = (
            f"Clocks compared by {max(rank_draft.clock.matched for rank_draft in aligned):,} matched collectives or messages: {how}; "
            f"median distance of matched ends at most {format_ns(worst.clock.residual_ns)} (rank {worst.number})."
        )
        findings.append(Finding("info", "clock", message))
    lost = [drafts[rank] for rank in sorted(waiting) if drafts[rank].device is not None]
    if lost and len(timed) > 1:
        findings += _build_uncompared_findings(lost)
    return findings


def _build_uncompared_findings(lost: Sequence[RankDraft]) -> list[Finding]:
    """Return findings about ranks whose clocks could not be compared; damaged files are the first reason."""
    findings = []
    damaged = [rank_draft for rank_draft in lost if _list_damaged_files(rank_draft)]
    others = [rank_draft for rank_draft in lost if not _list_damaged_files(rank_draft)]
    for rank_draft in damaged[:_MOST_LISTED]:
        message = (
            f"{' and '.join(_list_damaged_files(rank_draft))} {'is' if len(_list_damaged_files(rank_draft)) == 1 else 'are'} cut off or broken: what is left "
            f"of rank {rank_draft.number} has no collectives that match those of another rank, so its clock could not be compared."
        )
        hint = f"Times of rank {rank_draft.number} may be shifted against the others. Record or copy its files again."
        findings.append(
            Finding(
                "warning",
                "clock",
                message,
                hint,
                rank=rank_draft.number,
                file=_list_damaged_files(rank_draft)[0],
            )
        )
    others += damaged[_MOST_LISTED:]
    if others:
        several = len(others) > 1
        ranks = ", ".join(str(rank_draft.number) for rank_draft in others[:_MOST_LISTED]) + (
            ", …" if len(others) > _MOST_LISTED else ""
        )
        message = (
            f"{'Clocks of ranks' if several else 'The clock of rank'} {ranks} could not be compared: no collective of "
            f"{'theirs' if several else 'its own'} matches one of another rank, and no messages go both ways."
        )
        hint = f"Times of {'these ranks' if several else 'this rank'} may be shifted against the others."
        findings.append(Finding("warning", "clock", message, hint))
    return findings


def _list_damaged_files(rank_draft: RankDraft) -> list[str]:
    """Return the files of a rank that are cut off or broken."""
    return [
        trace.file for trace in (rank_draft.host, rank_draft.device) if trace is not None and trace.damaged
    ]
