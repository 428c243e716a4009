"""Find collectives and messages at the borders of a recording, which some ranks were not recorded long enough to have.

Profilers that are started by time, and threads that communicate regardless of training steps, stop on each rank at another collective.
Such a job ran: what a member lacks there lies before or after its recording, not in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from studio.analysis.collectives.lone import number_alike
from studio.analysis.collectives.matching import GroupMatching, find_disagreement
from studio.analysis.collectives.messages import match_messages
from studio.analysis.job.inferred_facts import INFERRED, is_inferred
from studio.analysis.job.recorded import Windows, find_recorded_windows
from studio.distinct import find_distinct
from studio.trace import NEEDS_ALL, NONE, RECORDED_LATE_NS, Bool, Int64, NodeType, Trace, read_dense_column

TURN = "comm_turn"
"""The attribute with which linking numbers messages between ranks whose recordings begin apart."""

_SOON = 0.05
"""Share of a recording within which those have to begin elsewhere that were under way when it began."""
_MET = 0.9
"""Share of the collectives all have that has to have met; the last one of a recording may be cut."""


@dataclass(frozen=True, slots=True)
class BorderCollectives:
    """Collectives that not all members of their groups recorded, before or after which the recordings of the others lie; and such messages.

    Attributes:
        rows: Rows of such collectives and messages, rising, by place of the graph in the trace.
        counts: How many collectives each rank has, by number; ranks without any are left out.
        lacking: Numbers of the ranks that were not recorded then, rising.
        names: Their comm groups; "" is that of all ranks.
        messages: How many receives each rank has, like `counts`.
    """

    rows: Mapping[int, Int64]
    counts: Mapping[int, int]
    lacking: tuple[int, ...]
    names: tuple[str, ...]
    messages: Mapping[int, int]

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self.rows)

    def without_waiting(self, trace: Trace) -> Trace:
        """Return the job in which these collectives wait for nobody: computation, which takes the time they were recorded with."""
        graphs = list(trace.graphs)
        for index, rows in self.rows.items():
            kinds = graphs[index].type.copy()
            kinds[rows] = NodeType.COMP
            graphs[index] = replace(graphs[index], type=kinds)
        return replace(trace, graphs=tuple(graphs)) if self.rows else trace


def find_border_collectives(
    trace: Trace, groups: Iterable[GroupMatching], windows: Windows | None = None
) -> BorderCollectives:
    """Return the collectives at the borders of a recording.

    In a comm group that was not inferred and whose members number their collectives, each member has all from its first to its last,
    and those that all have met in time. What others have beyond the last of a member did not end before the recording of that member
    did, and what they have before its first began at the beginning of that recording at the latest. Messages are there that are numbered
    (`comm_turn`), as linking does by steps, and lie before or after all that their other end recorded.

    Args:
        trace: The job.
        groups: Its matched collectives.
        windows: When its ranks were recorded, see `find_recorded_windows`; None works it out.
    """
    rows: dict[int, set[int]] = {}
    counts: dict[int, int] = {}
    lacking: set[int] = set()
    names = []
    for group in groups:
        if not group.by_number or find_disagreement(group) is None:
            continue
        windows = find_recorded_windows(trace) if windows is None else windows
        border = _find_in_group(trace, group, windows)
        if border is None:
            continue
        names.append(group.name)
        lacking.update(border.lacking)
        for number, own in border.rows.items():
            rows.setdefault(trace.known_rank(number).graph, set()).update(own)
            counts[number] = counts.get(number, 0) + len(own)
    messages = _find_border_messages(trace)
    for number, halves in messages.items():
        rows.setdefault(trace.known_rank(number).graph, set()).update(halves)
    return BorderCollectives(
        {index: np.array(sorted(chosen), np.int64) for index, chosen in rows.items()},
        dict(sorted(counts.items())),
        tuple(sorted(lacking)),
        tuple(names),
        {number: len(halves) for number, halves in sorted(messages.items())},
    )


def has_numbered_messages(trace: Trace) -> bool:
    """Whether some messages are numbered, since the recordings of their two ranks begin apart."""
    return any(len(graph.rows_with(TURN)[0]) for graph in trace.graphs)


def _find_border_messages(trace: Trace) -> dict[int, list[int]]:
    """Return the rows of the receives, by rank, of what was sent before or after all that its sender recorded of their line.

    Sends wait for nobody, whoever receives them.
    """
    if not has_numbered_messages(trace):
        return {}
    messages = match_messages(trace)
    number = number_alike(messages)
    turns = [read_dense_column(graph, TURN, NONE) for graph in trace.graphs]
    sides = (messages.send_rank, messages.send_row), (messages.receive_rank, messages.receive_row)
    sent, received = (_read_turns(trace, turns, *side) for side in sides)
    least, most = np.full(len(messages) + 1, _NEVER), np.full(len(messages) + 1, NONE, np.int64)
    has = sent != NONE
    np.minimum.at(least, number[has], sent[has])
    np.maximum.at(most, number[has], sent[has])
    lone = (received != NONE) & (messages.send_row == NONE) & (most[number] != NONE)
    outside = lone & ((received < least[number]) | (received > most[number]))
    cut_off: dict[int, list[int]] = {}
    for place in np.flatnonzero(outside).tolist():
        rank = trace.ranks[int(messages.receive_rank[place])]
        cut_off.setdefault(rank.number, []).append(int(messages.receive_row[place]))
    return cut_off


def _read_turns(trace: Trace, turns: list[Int64], ranks: Int64, rows: Int64) -> Int64:
    """Return the numbers (M,) of sends or receives on some ranks (M,), -1 where there is none."""
    turn = np.full(len(ranks), NONE, np.int64)
    for place in find_distinct(ranks[ranks != NONE]).tolist():
        own = np.flatnonzero(ranks == place)
        turn[own] = turns[trace.ranks[place].graph][rows[own]]
    return turn


@dataclass(frozen=True, slots=True)
class _OfGroup:
    """The collectives at the borders of a comm group.

    Attributes:
        rows: Rows of each member that has some.
        lacking: Members that lack some.
    """

    rows: Mapping[int, list[int]]
    lacking: tuple[int, ...]


def _find_in_group(trace: Trace, group: GroupMatching, windows: Windows) -> _OfGroup | None:
    """Return those of a comm group, None where what a member lacks is not explained by when it was recorded."""
    is_present = group.sequence_of != NONE
    members = [member for member, known in zip(group.members, is_present.tolist(), strict=True) if known]
    if not all(member in windows for member in members):
        return None
    rows = group.rows()[is_present]
    has = rows != NONE
    for at, member in enumerate(members):
        _leave_out_cut(trace, member, rows[at], has[at])
    if not has.any(axis=1).all():
        return None
    count = has.shape[1]
    first, last = has.argmax(axis=1), count - 1 - has[:, ::-1].argmax(axis=1)
    begin_of_all, end_of_all = int(first.max()), int(last.min()) + 1
    is_whole = (has.sum(axis=1) == last - first + 1).all()
    if not is_whole or begin_of_all >= end_of_all:
        return None
    begin, end = _read_times(trace, members, rows)
    if (begin < 0).any():
        return None
    common = slice(begin_of_all, end_of_all)
    waits = np.isin(group.find_sequence(members[0]).type[common], NEEDS_ALL)
    met = begin[:, common].max(axis=0) <= end[:, common].min(axis=0) + RECORDED_LATE_NS
    if not waits.any() or met[waits].mean() < _MET:
        return None
    if not _are_outside([windows[member] for member in members], has, begin, end):
        return None
    short = [member for member, own in zip(members, rows != NONE, strict=True) if not own.all()]
    outside = np.ones(count, np.bool_)
    outside[common] = False
    chosen = {member: rows[at, (rows[at] != NONE) & outside].tolist() for at, member in enumerate(members)}
    # Where groups of a member were inferred, what it seems to lack may be in another one.
    if any(
        _infers_groups(trace, member)
        for member in (*short, *(number for number, own in chosen.items() if own))
    ):
        return None
    return _OfGroup({member: own for member, own in chosen.items() if own}, tuple(short))


def _leave_out_cut(trace: Trace, member: int, rows: Int64, has: Bool) -> None:
    """Clear in `has` (C,) the last collectives of a member whose end was not recorded: they went on beyond its recording."""
    graph = trace.graph_of(member)
    for place in np.flatnonzero(rows != NONE)[::-1].tolist():
        if not is_inferred(graph, int(rows[place]), "end"):
            return
        has[place] = False


def _are_outside(spans: list[tuple[int, int]], has: Bool, begin: Int64, end: Int64) -> bool:
    """Whether what members lack lies outside of their recordings: what follows their last ends late enough, what precedes their first begins early enough.

    Args:
        spans: When the members (M) were recorded.
        has: (M, C) which collectives each has.
        begin: (M, C) when they began.
        end: (M, C) when they ended.
    """
    count = has.shape[1]
    first, last = has.argmax(axis=1), count - 1 - has[:, ::-1].argmax(axis=1)
    latest_end = end.max(axis=0, where=has, initial=-1)
    earliest_begin = begin.min(axis=0, where=has, initial=_NEVER)
    for (opened, closed), before, after in zip(spans, (first - 1).tolist(), (last + 1).tolist(), strict=True):
        # One that was under way when a recording began is not in it, and others may have come to it later.
        soon = max(RECORDED_LATE_NS, int(_SOON * (closed - opened)))
        if before >= 0 and earliest_begin[before] > opened + soon:
            return False
        if after < count and latest_end[after] < closed - RECORDED_LATE_NS:
            return False
    return True


def _infers_groups(trace: Trace, member: int) -> bool:
    """Whether the comm group of some node of a rank was inferred."""
    graph = trace.graph_of(member)
    rows, _ = graph.rows_with(INFERRED)
    return any(is_inferred(graph, row, "group") for row in rows.tolist())


_NEVER = np.iinfo(np.int64).max


def _read_times(trace: Trace, members: list[int], rows: Int64) -> tuple[Int64, Int64]:
    """Return when the collectives (M, C) of members began, -1 where that is not known, and ended; both 0 where a member has none."""
    begin, end = np.zeros_like(rows), np.zeros_like(rows)
    for at, member in enumerate(members):
        graph, own = trace.graph_of(member), rows[at] != NONE
        begin[at, own] = graph.start_ns[rows[at, own]]
        end[at, own] = begin[at, own] + np.maximum(graph.duration_ns[rows[at, own]], 0)
    return begin, end
