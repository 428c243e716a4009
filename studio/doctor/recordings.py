"""Checks of whether the recordings of the ranks fit together: of one run, as long as each other, and with times that can be."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from studio.analysis.collectives.clocks import tells_meetings
from studio.analysis.collectives.matching import GroupMatching, find_disagreement, find_empty
from studio.analysis.job.recorded import Runs
from studio.distinct import find_distinct
from studio.doctor.across import drop_uneven_sizes
from studio.doctor.diagnosis import Case, Found, NodeAt
from studio.doctor.inferred import are_counted
from studio.sim.agreement import format_ranks, label_group
from studio.trace import NEEDS_ALL, NONE, RECORDED_LATE_NS, Graph, Int64, NodeType, Rank
from studio.units import format_count, format_counted, format_ns

_LARGEST_DRIFT = 200e-6
"""Crystals are better: what clocks of several machines may run apart by."""
_CALL = re.compile(r"_?c10d(?:_functional)?(?:_autograd)?::|record_param_comms")
"""How calls begin that only hand a collective over: they end before others come, as they do not wait."""
_GROUPS_LISTED = 8
_RUNS_LISTED = 4


# ---------------------------------------------------------------------------------------------------
# Files of several runs


def check_mixed_runs(case: Case) -> Iterator[Found]:
    """Yield machines and comm groups some of whose ranks were recorded when others were not."""
    windows = case.windows
    zero = min((begin for begin, _ in windows.values()), default=0)
    for machine, runs in case.runs.items():
        if not _communicate(case, runs):
            # Nothing says that these ranks have to do with each other.
            continue
        spans = [
            (run, min(windows[rank][0] for rank in run) - zero, max(windows[rank][1] for rank in run) - zero)
            for run in runs
        ]
        words = [
            f"{format_ranks(run)} for {format_ns(end - begin)} from {format_ns(begin)} on"
            for run, begin, end in spans[:_RUNS_LISTED]
        ]
        more = f", and {format_count(len(spans) - _RUNS_LISTED)} more" if len(spans) > _RUNS_LISTED else ""
        ranks = tuple(sorted(number for run in runs for number in run))
        yield Found(
            "error",
            f"The files of {format_ranks(ranks)} name one machine, {machine}, but were not recorded at the same time: "
            f"{'; '.join(words)}{more}. Files of {format_counted(len(runs), 'run')}, or moments of one, are mixed.",
            ranks,
            (),
            len(runs),
            tuple(
                (f"before {format_ranks(later)}", f"nothing recorded for {format_ns(begin - end)}")
                for (_, _, end), (later, begin, _) in list(itertools.pairwise(spans))[:_RUNS_LISTED]
            ),
        )

    mixed_ranks = {number for runs in case.runs.values() for run in runs for number in run}
    for group, parts in case.moments:
        ranks = tuple(sorted(number for part in parts for number in part))
        if mixed_ranks.issuperset(ranks):
            continue
        mixed_ranks.update(ranks)
        first, second = (format_ranks(part) for part in parts[:2])
        # A rank that joined a run later, or was started anew, may count its steps from there.
        by_steps = are_counted(case, group)
        evidence = (
            "the names of their steps. No recorder numbered these collectives and no times tell more: each rank may count steps from its "
            "own beginning"
            if by_steps
            else "their numbers"
        )
        yield Found(
            "warning" if by_steps else "error",
            f"{format_ranks(ranks).capitalize()} {'seem to have been' if by_steps else 'were'} recorded at "
            f"{format_counted(len(parts), 'moment')} of a run: {first} took part in none of the collectives of {label_group(group)} that "
            f"{second} took part in, by {evidence}.",
            ranks,
            (),
            len(parts),
        )


def _communicate(case: Case, runs: Runs) -> bool:
    """Whether ranks recorded at different times communicate with each other: in one comm group, or by messages."""
    run_of = {number: place for place, run in enumerate(runs) for number in run}
    for group in case.groups:
        calling = zip(group.members, group.sequence_of.tolist(), strict=True)
        met = {run_of.get(member, NONE) for member, at in calling if at != NONE and len(group.sequences[at])}
        if len(met - {NONE}) > 1:
            return True
    sends = {
        run_of.get(number, NONE)
        for graph_case in case.graphs
        if np.isin(graph_case.graph.type, (NodeType.COMM_SEND, NodeType.COMM_RECV)).any()
        for number in graph_case.ranks
    }
    return len(sends - {NONE}) > 1


# ---------------------------------------------------------------------------------------------------
# Recordings that stop early


def check_early_ends(case: Case) -> Iterator[Found]:
    """Yield ranks whose recordings stop before those of the others."""
    if not case.early:
        return
    windows = case.windows
    zero = min(begin for begin, _ in windows.values())
    numbers = {end.rank for end in case.early}
    others = [windows[number][1] - zero for number in windows if number not in numbers]
    span = " to ".join(dict.fromkeys(format_ns(end) for end in (min(others), max(others))))
    for end in case.early[:_GROUPS_LISTED]:
        lacks = []
        if end.lacking:
            lacks.append(
                f"lacks {format_count(end.lacking)} of {format_counted(end.among, 'collective')} that the others have"
            )
        if end.steps:
            named = ", ".join(map(str, end.steps[:_GROUPS_LISTED]))
            lacks.append(
                f"has no whole step {named}" if len(end.steps) == 1 else f"has not all of steps {named}"
            )
        yield Found(
            "warning",
            f"The recording of rank {end.rank} ends at {format_ns(windows[end.rank][1] - zero)}, those of the others at {span}: "
            f"it {' and '.join(lacks)}.",
            (end.rank,),
            (),
            max(end.lacking, len(end.steps)),
            (
                (
                    "collectives recorded",
                    f"{format_count(end.among - end.lacking)} of {format_count(end.among)}",
                ),
                *((("steps without an end", format_count(len(end.steps))),) if end.steps else ()),
            ),
        )
    if len(case.early) > _GROUPS_LISTED:
        rest = case.early[_GROUPS_LISTED:]
        yield Found(
            "warning",
            f"{format_counted(len(rest), 'more rank')} {'ends' if len(rest) == 1 else 'end'} early.",
            tuple(end.rank for end in rest),
            (),
            len(rest),
        )


# ---------------------------------------------------------------------------------------------------
# Times that cannot be


@dataclass(frozen=True, slots=True)
class _Times:
    """When the collectives of a group began and ended on members that recorded equally many.

    K members, C collectives that need all members.

    Attributes:
        numbers: (K,) the ranks.
        clocks: (K,) what tells the clock of each; those of one clock are equal.
        starts, ends: (K, C) in nanoseconds, each sorted: with the k-th, k have begun or ended.
        start_rows, end_rows: (K, C) the nodes that begin and end then.
    """

    numbers: tuple[int, ...]
    clocks: tuple[object, ...]
    starts: Int64
    ends: Int64
    start_rows: Int64
    end_rows: Int64


@dataclass(frozen=True, slots=True)
class _Impossible:
    """Where k collectives had ended on one rank before as many had begun on another.

    Attributes:
        by_ns: How long before.
        count: How many k there are.
        ended, began: Places of the two ranks.
        turn: k, counted from 0.
        one_clock: Whether both have one clock; else no distance of their clocks makes it possible.
    """

    by_ns: int
    count: int
    ended: int
    began: int
    turn: int
    one_clock: bool


def check_impossible_times(case: Case) -> Iterator[Found]:
    """Yield groups whose collectives ended on one member before as many had begun on another, which cannot be; else such messages.

    It does not matter which collective is which: when k have ended somewhere, k have begun everywhere.
    """
    listed = 0
    for group in case.groups:
        if case.mixes(group.members) or find_disagreement(drop_uneven_sizes(group)) is not None:
            continue
        times = _collect_times(case, group)
        if times is None:
            continue
        worst = max(
            (*_find_on_one_clock(times), *_find_on_several_clocks(times)),
            key=lambda place: place.by_ns,
            default=None,
        )
        if worst is None:
            continue
        listed += 1
        if listed <= _GROUPS_LISTED:
            yield _build_impossible_finding(case, group, times, worst)
    if listed > _GROUPS_LISTED:
        rest = listed - _GROUPS_LISTED
        yield Found(
            "warning", f"{format_counted(rest, 'more group')} {'is' if rest == 1 else 'are'} like this."
        )
    if not listed and len(case.windows) > 1:
        yield from _find_impossible_messages(case)


def _find_impossible_messages(case: Case) -> Iterator[Found]:
    """Yield the ranks of one clock of which one has received most before the other sent it, if that is so of any.

    When k messages have been received from a rank, it has begun to send k. What has no other half leaves out its ranks.
    """
    messages = case.messages
    pairs, channel = np.unique(
        np.stack((messages.source, messages.target), axis=1), axis=0, return_inverse=True
    )
    partial = np.bincount(
        channel.reshape(-1), (messages.send_row == NONE) | (messages.receive_row == NONE), len(pairs)
    )
    order = np.argsort(channel.reshape(-1), kind="stable")
    bounds = np.searchsorted(channel.reshape(-1)[order], np.arange(len(pairs) + 1))
    contradictions = []
    for place in np.flatnonzero(partial == 0).tolist():
        source, target = pairs[place].tolist()
        ranks = case.rank_of.get(source), case.rank_of.get(target)
        clocks = [None if rank is None else _read_clock(rank) for rank in ranks]
        if None in clocks or clocks[0] != clocks[1] or case.mixes((source, target)):
            continue
        rows = order[bounds[place] : bounds[place + 1]]
        times = _pair_times(case, (source, target), messages.send_row[rows], messages.receive_row[rows])
        if times is None:
            continue
        begun, ended, sent, received = times
        before = begun - ended
        turn = int(before.argmax())
        if before[turn] > RECORDED_LATE_NS:
            nodes = NodeAt(target, int(received[turn])), NodeAt(source, int(sent[turn]))
            contradictions.append((before, turn, int(begun[turn]), int(ended[turn]), nodes))
    if contradictions:
        worst = max(contradictions, key=lambda contradiction: int(contradiction[0].max()))
        yield _build_impossible_message_finding(case, *worst)


def _pair_times(
    case: Case, numbers: tuple[int, int], sent: Int64, received: Int64
) -> tuple[Int64, Int64, Int64, Int64] | None:
    """Return when sends began and receives ended, each sorted, and their rows; None where that is not known."""
    source, target = (case.by_rank[number].graph for number in numbers)
    begun, ended = _find_call_begins(source, sent), target.start_ns[received]
    if (begun < 0).any() or (ended < 0).any() or _are_calls(target, received):
        return None
    ended = ended + np.maximum(target.duration_ns[received], 0)
    by_begin, by_end = np.argsort(begun, kind="stable"), np.argsort(ended, kind="stable")
    return begun[by_begin], ended[by_end], sent[by_begin], received[by_end]


def _find_call_begins(graph: Graph, rows: Int64) -> Int64:
    """Return when each node began, or the call that handed it over: gloo notes a send down when it is under way, or was received."""
    begun = graph.start_ns[rows].copy()
    for place, row in enumerate(rows.tolist()):
        for dependencies in (graph.ctrl, graph.data):
            before = dependencies.rows[dependencies.offsets[row] : dependencies.offsets[row + 1]]
            calls = [call for call in before.tolist() if call >= 0 and _are_calls(graph, np.array([call]))]
            begun[place] = min([begun[place], *graph.start_ns[calls].tolist()])
    return begun


def _build_impossible_message_finding(
    case: Case, before: Int64, turn: int, begun_ns: int, ended_ns: int, nodes: tuple[NodeAt, NodeAt]
) -> Found:
    """Return the finding about messages from one rank to another."""
    receiver, sender = (node.rank for node in nodes)
    zero = min(begin for begin, _ in case.windows.values())
    count = int((before > RECORDED_LATE_NS).sum())
    return Found(
        "warning",
        f"Rank {receiver} has received {format_counted(turn + 1, 'message')} of rank {sender} at {format_ns(ended_ns - zero)}, but rank "
        f"{sender} begins to send the {_format_ordinal(turn + 1)} at {format_ns(begun_ns - zero)}: none can be received before it is sent.",
        tuple(sorted((receiver, sender))),
        nodes,
        count,
        (
            ("messages that contradict", f"{format_count(count)} of {format_count(len(before))}"),
            ("by up to", format_ns(int(before.max()))),
        ),
    )


def _read_clock(rank: Rank) -> object:
    """Return what tells the clock of a rank, None where its times do not tell when it met others."""
    machine = rank.metadata_value("clock_host")
    if machine is None or not tells_meetings(rank):
        return None
    return machine, *(rank.metadata_value(f"clock_{key}") for key in ("offset_ns", "drift_ppb"))


def _collect_times(case: Case, group: GroupMatching) -> _Times | None:
    """Return the times of a group's collectives, None where no two members have as many."""
    of_member: dict[int, tuple[Int64, ...]] = {}
    clocks: dict[int, object] = {}
    for member, index in zip(group.members, group.sequence_of.tolist(), strict=True):
        rank = case.rank_of.get(member)
        if index == NONE or rank is None or not tells_meetings(rank):
            continue
        sequence, graph = group.sequences[index], case.by_rank[member].graph
        # Of empty tensors a library waits for nobody.
        waits = np.isin(sequence.type, NEEDS_ALL) & ~find_empty(graph, sequence)
        rows = sequence.rows[waits & (sequence.rows != NONE)]
        start = graph.start_ns[rows]
        if not len(rows) or (start < 0).any() or _are_calls(graph, rows):
            continue
        end = start + np.maximum(graph.duration_ns[rows], 0)
        by_start, by_end = np.argsort(start, kind="stable"), np.argsort(end, kind="stable")
        of_member[member] = start[by_start], end[by_end], rows[by_start], rows[by_end]
        clock = _read_clock(rank)
        clocks[member] = member if clock is None else clock
    most = max((len(start) for start, *_ in of_member.values()), default=0)
    numbers = tuple(member for member, (start, *_) in of_member.items() if len(start) == most)
    if len(numbers) < 2:
        return None
    starts, ends, start_rows, end_rows = (
        np.stack([of_member[member][column] for member in numbers]) for column in range(4)
    )
    return _Times(numbers, tuple(clocks[member] for member in numbers), starts, ends, start_rows, end_rows)


def _are_calls(graph: Graph, rows: Int64) -> bool:
    """Whether some of the nodes are only calls, which do not wait for the collective."""
    codes = find_distinct(graph.name[rows]).tolist()
    return any(_CALL.match(graph.strings[code]) is not None for code in codes if code >= 0)


def _find_on_one_clock(times: _Times) -> Iterator[_Impossible]:
    """Yield the worst place of the ranks of each clock, if it is one that cannot be."""
    for clock in dict.fromkeys(times.clocks):
        places = np.array([place for place, own in enumerate(times.clocks) if own == clock])
        starts, ends = times.starts[places], times.ends[places]
        before = starts.max(axis=0) - ends.min(axis=0)
        turn = int(before.argmax())
        if before[turn] > RECORDED_LATE_NS:
            count = int((before > RECORDED_LATE_NS).sum())
            ended, began = int(places[ends[:, turn].argmin()]), int(places[starts[:, turn].argmax()])
            yield _Impossible(int(before[turn]), count, ended, began, turn, one_clock=True)


def _find_on_several_clocks(times: _Times) -> Iterator[_Impossible]:
    """Yield the ranks whose times fit those of the first rank by no distance of their clocks."""
    starts, ends = times.starts, times.ends
    allowed = RECORDED_LATE_NS + _LARGEST_DRIFT * float(ends.max() - starts.min())
    for place in range(1, len(times.numbers)):
        if times.clocks[place] == times.clocks[0]:
            continue
        # What may be added to the times of this rank at least, and at most.
        least, most = starts[0] - ends[place], ends[0] - starts[place]
        apart = int(least.max() - most.min())
        if apart > allowed:
            middle = (int(least.max()) + int(most.min())) // 2
            count = int((least > middle).sum() + (most < middle).sum())
            yield _Impossible(apart, count, 0, place, int(most.argmin()), one_clock=False)


def _build_impossible_finding(case: Case, group: GroupMatching, times: _Times, worst: _Impossible) -> Found:
    """Return the finding about a group."""
    ended, began, turn = worst.ended, worst.began, worst.turn
    ranks = times.numbers[ended], times.numbers[began]
    zero = min(begin for begin, _ in case.windows.values())
    collectives = format_counted(turn + 1, "collective")
    if worst.one_clock:
        what = (
            f"Rank {ranks[0]} has ended {collectives} of {label_group(group)} at {format_ns(int(times.ends[ended, turn]) - zero)}, but rank "
            f"{ranks[1]} begins its {_format_ordinal(turn + 1)} at {format_ns(int(times.starts[began, turn]) - zero)}: none can end before "
            "all members have begun it."
        )
    else:
        what = (
            f"However the clocks of ranks {ranks[0]} and {ranks[1]} are moved, collectives of {label_group(group)} end on one of them "
            f"before they begin on the other, by {format_ns(worst.by_ns // 2)} at least: none can end before all members have begun it."
        )
    rows = ((ranks[0], times.end_rows[ended, turn]), (ranks[1], times.start_rows[began, turn]))
    return Found(
        "warning",
        what,
        tuple(sorted(ranks)),
        tuple(NodeAt(rank, int(row)) for rank, row in rows),
        worst.count,
        (
            (
                "collectives that contradict",
                f"{format_count(worst.count)} of {format_count(times.starts.shape[1])}",
            ),
            ("by up to", format_ns(worst.by_ns)),
        ),
    )


def _format_ordinal(number: int) -> str:
    """Return a place in words.

    Example:
        >>> [_format_ordinal(number) for number in (1, 2, 3, 11, 22)]
        ['1st', '2nd', '3rd', '11th', '22nd']
    """
    last = "th" if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{last}"
