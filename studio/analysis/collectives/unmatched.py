"""Tell which sends and receives have no other half, and which of them evidently belong together.

Messages alike are paired in their order. So where one half is lost or differs, the last of those alike is left over, whichever it
was. What it was is told by the order of all that passes between two ranks, where as many are received as are sent; else by
recorded times; else it is the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from studio.analysis.collectives.lone import Recorded, find_lone_halves, number_alike, number_runs
from studio.analysis.collectives.matching import compute_issue_order
from studio.analysis.collectives.messages import Messages
from studio.analysis.job.completeness import MOST_RANKS, Completeness, infer_completeness, is_recording
from studio.trace import NONE, Int64, Trace

_NOTHING = np.zeros(0, np.int64)
_NO_PAIRS = np.zeros((2, 0), np.int64)


@dataclass(frozen=True, slots=True)
class Unmatched:
    """Sends and receives that have no other half.

    A message stands for its send or receive, which may be paired with another half: then that one belongs elsewhere.

    Attributes:
        receives: (R,) messages whose receive has no send, rising.
        sends: (S,) messages whose send has no receive, rising.
        pairs: (2, P) those of the receives, and those of the sends that they evidently belong to.
        misnamed: Other receives and the sends that evidently belong to them, of which one half names a wrong rank or none: (2, Q) those
            where it is the send, and (2, W) those where it is the receive.
        crossed: Those of the receives and sends of which one half evidently names the wrong rank of the job, as `misnamed`.
        outside: Sends to ranks that the job does not have, and receives from such.
    """

    receives: Int64
    sends: Int64
    pairs: Int64
    misnamed: tuple[Int64, Int64] = (_NO_PAIRS, _NO_PAIRS)
    crossed: tuple[Int64, Int64] = (_NO_PAIRS, _NO_PAIRS)
    outside: tuple[Int64, Int64] = (_NOTHING, _NOTHING)

    def nearest(self, messages: Messages, message: int, *, receives: bool) -> int | None:
        """Return the half that a receive or send belongs to, else one between the same ranks, with the same tag if there is one.

        Args:
            messages: The messages of the job.
            message: One of those that have no other half.
            receives: Whether it is a receive, and the other one a send.
        """
        pairs = np.concatenate((self.pairs, *self.crossed), axis=1)
        own, others = pairs if receives else pairs[::-1]
        belongs = others[own == message]
        if len(belongs):
            return int(belongs[0])
        near = np.setdiff1d(self.sends if receives else self.receives, others)
        near = near[
            (messages.source[near] == messages.source[message])
            & (messages.target[near] == messages.target[message])
        ]
        return int(near[np.argmax(messages.tag[near] == messages.tag[message])]) if len(near) else None


def find_unmatched(trace: Trace, messages: Messages, ahead: Callable[[], Int64]) -> Unmatched:
    """Return which halves of messages are left over, of those whose other end is recorded and in the job.

    Nothing can be said of what ranks do that are not in the job. Nor is anything left over that evidently belongs to a half that names
    a wrong rank, or none: what is wrong is told of that half.

    Args:
        trace: The job.
        messages: Its messages, or all of those between some ranks.
        ahead: Returns (R,) how far the clock of each rank is ahead, in ns; called only where times have to tell.
    """
    numbers = [rank.number for rank in trace.ranks]
    receives = np.flatnonzero((messages.send_row == NONE) & messages.known)
    receives = receives[np.isin(messages.source[receives], numbers)]
    sends = np.flatnonzero((messages.receive_row == NONE) & messages.known)
    sends = sends[np.isin(messages.target[sends], numbers)]
    job = infer_completeness(trace)
    wrong, outside = _find_wrong_ends(trace, messages, numbers, job)
    misnamed = (_NO_PAIRS, _NO_PAIRS)
    if len(receives) or len(sends):
        receives, sends, misnamed = _set_misnamed_apart(messages, receives, sends, wrong, np.array(numbers))
    if job.is_open:
        # There may be more ranks. One of them sends and receives: a rank that is named once is a slip, and so is what the job misses.
        slips = _find_named_once(messages, outside) if len(numbers) > 1 else (_NOTHING, _NOTHING)
        outside = (
            np.intersect1d(outside[0], np.append(misnamed[0][1], slips[0])),
            np.intersect1d(outside[1], np.append(misnamed[1][0], slips[1])),
        )
    if not len(receives) and not len(sends):
        return Unmatched(_NOTHING, _NOTHING, _NO_PAIRS, misnamed, outside=outside)
    unmatched = _find_rest(trace, messages, ahead, receives, sends)
    return replace(unmatched, misnamed=misnamed, outside=outside, crossed=_find_crossed(messages, unmatched))


def _find_wrong_ends(
    trace: Trace, messages: Messages, numbers: Sequence[int], job: Completeness
) -> tuple[tuple[Int64, Int64], tuple[Int64, Int64]]:
    """Return lone sends and receives that name a wrong rank or none, and those whose other end the job does not have.

    Of a recording that does not say how many ranks there were any other rank may just not have been recorded.
    """
    world = MOST_RANKS if job.is_open and is_recording(trace) else job.world
    groups = {rank for group in trace.groups for rank in group.ranks}
    own = np.array([*numbers, NONE], np.int64)
    wrong, outside = [], []
    for row, other_row, rank, near, far in (
        (messages.send_row, messages.receive_row, messages.send_rank, messages.source, messages.target),
        (messages.receive_row, messages.send_row, messages.receive_rank, messages.target, messages.source),
    ):
        lone = np.flatnonzero((row != NONE) & (other_row == NONE))
        beyond = (far[lone] != NONE) & ((far[lone] < 0) | (far[lone] >= world))
        beyond &= ~np.isin(far[lone], list(groups))
        is_wrong = beyond | (far[lone] == NONE) | (far[lone] == near[lone]) | (own[rank[lone]] != near[lone])
        wrong.append(lone[is_wrong])
        outside.append(lone[beyond])
    return (wrong[0], wrong[1]), (outside[0], outside[1])


def _find_named_once(messages: Messages, outside: tuple[Int64, Int64]) -> tuple[Int64, Int64]:
    """Return the sends and receives whose other end no other of them names."""
    sends, receives = outside
    named = np.concatenate((messages.target[sends], messages.source[receives]))
    _, place, count = np.unique(named, return_inverse=True, return_counts=True)
    once = count[place] == 1
    return sends[once[: len(sends)]], receives[once[len(sends) :]]


def _set_misnamed_apart(
    messages: Messages, receives: Int64, sends: Int64, wrong: tuple[Int64, Int64], numbers: Int64
) -> tuple[Int64, Int64, tuple[Int64, Int64]]:
    """Return receives and sends that are left over, and those that are not, each with the half that misses it, see `Unmatched`.

    They agree in tag and size, and the half that names a wrong rank is on the rank that the other half names.
    """
    wrong_sends, wrong_receives = wrong
    receives, sends = np.setdiff1d(receives, wrong_receives), np.setdiff1d(sends, wrong_sends)

    def pair_with(halves: Int64, far: Int64, misnamed: Int64, ranks: Int64) -> Int64:
        place = np.zeros(len(messages), np.int64)
        place[halves], place[misnamed] = far[halves], numbers[ranks[misnamed]]
        return _pair_in_order(halves, misnamed, (place, messages.tag, messages.bytes))

    by_send = pair_with(receives, messages.source, wrong_sends, messages.send_rank)
    by_receive = pair_with(sends, messages.target, wrong_receives, messages.receive_rank)[::-1]
    return np.setdiff1d(receives, by_send[0]), np.setdiff1d(sends, by_receive[1]), (by_send, by_receive)


def _find_crossed(messages: Messages, unmatched: Unmatched) -> tuple[Int64, Int64]:
    """Return the receives and sends that are one of each of their tag and size from a rank, or to one, see `Unmatched`.

    Where both are to one rank the receive names another than the sender; where both are from one rank the send names another than the
    receiver.
    """
    receives, sends = (
        np.setdiff1d(halves, paired)
        for halves, paired in zip((unmatched.receives, unmatched.sends), unmatched.pairs, strict=True)
    )
    crossed = []
    for end in (messages.target, messages.source):
        code = np.unique(np.stack([end, messages.tag, messages.bytes]), axis=1, return_inverse=True)[
            1
        ].reshape(-1)
        pairs = _pair_in_order(_select_lone(code, receives), _select_lone(code, sends), (code,))
        receives, sends = (
            np.setdiff1d(halves, paired) for halves, paired in zip((receives, sends), pairs, strict=True)
        )
        crossed.append(pairs)
    return crossed[1], crossed[0]


def _find_rest(
    trace: Trace, messages: Messages, ahead: Callable[[], Int64], receives: Int64, sends: Int64
) -> Unmatched:
    """Return which halves are left over, of those that name ranks of the job, and which of them belong together."""
    # Messages are in the order of their ranks: a number for those between the same ones.
    channel = number_runs(messages.source, messages.target)
    ordered = _find_by_order(trace, messages, channel, receives, sends)
    done = channel[ordered.receives]
    later, rest = (halves[~np.isin(channel[halves], done)] for halves in (receives, sends))
    recorded = None
    if (len(later) and len(rest)) or _is_any_alike(messages, later, rest):
        recorded = Recorded(trace, messages, ahead())
        later, rest = (
            find_lone_halves(recorded, halves, receives=side)
            for halves, side in ((later, True), (rest, False))
        )
    pairs = _find_evident_pairs(messages, channel, later, rest, recorded)
    return Unmatched(
        np.sort(np.append(ordered.receives, later)),
        np.sort(np.append(ordered.sends, rest)),
        np.append(ordered.pairs, pairs, axis=1),
    )


def _is_any_alike(messages: Messages, receives: Int64, sends: Int64) -> bool:
    """Whether some that are left are like a message with both halves, which may be the wrong ones."""
    # A half that is left comes after those alike that have both.
    before = np.append(receives, sends) - 1
    before = before[before >= 0]
    whole = before[(messages.send_row[before] != NONE) & (messages.receive_row[before] != NONE)]
    number = number_alike(messages)
    return bool((number[whole] == number[whole + 1]).any())


def _find_by_order(
    trace: Trace, messages: Messages, channel: Int64, receives: Int64, sends: Int64
) -> Unmatched:
    """Return what is left between ranks that send and receive as many, where as many differ by order as are left.

    Where the first of several sends alike is another, the last receive is left; what it should have received went to one before it.
    """
    places: dict[int, Int64] = {}

    def order_by_issue(chosen: Int64, ranks: Int64, rows: Int64) -> Int64:
        present = chosen[rows[chosen] != NONE]
        place = np.empty(len(present), np.int64)
        graphs = graph_of[ranks[present]]
        for graph in set(graphs.tolist()):
            if graph not in places:
                places[graph] = compute_issue_order(trace.graphs[graph])
            in_graph = graphs == graph
            place[in_graph] = places[graph][rows[present[in_graph]]]
        ordered: Int64 = present[np.argsort(place, kind="stable")]
        return ordered

    graph_of = np.array([rank.graph for rank in trace.ranks], np.int64)
    left = [np.unique(channel[halves], return_counts=True) for halves in (receives, sends)]
    at = _find_common(left[0][0], left[1][0])
    counts = [count[where] for (_, count), where in zip(left, at, strict=True)]
    as_many = counts[0] == counts[1]
    both, count = left[0][0][at[0][as_many]], counts[0][as_many]
    bounds = zip(
        np.searchsorted(channel, both).tolist(),
        np.searchsorted(channel, both, side="right").tolist(),
        count.tolist(),
        strict=True,
    )
    lacking: list[Int64] = [np.zeros((2, 0), np.int64)]
    pairs = lacking.copy()
    for begin, end, expected in bounds:
        chosen = np.arange(begin, end)
        ordered = np.stack(
            [
                order_by_issue(chosen, messages.receive_rank, messages.receive_row),
                order_by_issue(chosen, messages.send_rank, messages.send_row),
            ]
        )
        tag, size = messages.tag[ordered], messages.bytes[ordered]
        differing = ordered[:, (tag[0] != tag[1]) | (size[0] != size[1])]
        if differing.shape[1] == expected:
            lacking.append(differing)
            evident = _find_evident_pairs(messages, channel, *np.sort(differing))
            pairs.append(differing if evident.shape[1] == expected else evident)
    of_receives, of_sends = np.concatenate(lacking, axis=1)
    return Unmatched(of_receives, of_sends, np.concatenate(pairs, axis=1))


def _find_evident_pairs(
    messages: Messages, channel: Int64, receives: Int64, sends: Int64, recorded: Recorded | None = None
) -> Int64:
    """Return (2, P) receives without a send, and the sends without a receive that they evidently belong to.

    Both are between the same ranks, and agree on the tag or the size; where one of each is left, they belong together too.
    Of several the first belongs to the first, of those that recorded times leave.
    """
    pairs = [np.zeros((2, 0), np.int64)]
    for agreed in (messages.tag, messages.bytes):
        pairs.append(_pair_in_order(receives, sends, (channel, agreed), recorded))
        receives, sends = (
            np.setdiff1d(halves, paired, assume_unique=True)
            for halves, paired in zip((receives, sends), pairs[-1], strict=True)
        )
    pairs.append(_pair_in_order(_select_lone(channel, receives), _select_lone(channel, sends), (channel,)))
    return np.concatenate(pairs, axis=1)


def _select_lone(channel: Int64, chosen: Int64) -> Int64:
    """Return the messages that are the only one chosen of their number, such as that of the ranks they are between."""
    number, count = np.unique(channel[chosen], return_counts=True)
    return chosen[np.isin(channel[chosen], number[count == 1])]


def _pair_in_order(
    receives: Int64, sends: Int64, key: tuple[Int64, ...], recorded: Recorded | None = None
) -> Int64:
    """Return (2, P) receives and sends of equal key: the first of each, the second of each, and so on."""
    both = np.append(receives, sends)
    code = np.zeros(len(both), np.int64)
    for column in key:
        number = np.unique(column[both], return_inverse=True)[1].reshape(-1)
        code = np.unique(code * (len(both) + 1) + number, return_inverse=True)[1].reshape(-1)
    codes = code[: len(receives)], code[len(receives) :]
    if recorded is not None:
        counts = [np.bincount(part, minlength=len(both)) for part in codes]
        for group in np.flatnonzero((counts[0] != counts[1]) & (counts[0] > 0) & (counts[1] > 0)).tolist():
            _leave_out(recorded, receives, sends, codes, group)
    of_receives, of_sends = _find_common(_number_occurrences(codes[0]), _number_occurrences(codes[1]))
    return np.stack([receives[of_receives], sends[of_sends]])


def _leave_out(
    recorded: Recorded, receives: Int64, sends: Int64, codes: tuple[Int64, Int64], group: int
) -> None:
    """Give those of a group that have no other half in it, by recorded times, codes of their own.

    Args:
        recorded: When they began and ended.
        receives: Receives without a send.
        sends: Sends without a receive.
        codes: The groups of both; changed.
        group: One of them, of more receives than sends, or fewer.
    """
    chosen = [np.flatnonzero(part == group) for part in codes]
    more = len(chosen[0]) > len(chosen[1])
    (own, at), (other, near) = [(receives, chosen[0]), (sends, chosen[1])][:: 1 if more else -1]
    own_span, other_span = (
        recorded.spans(own[at], receives=more),
        recorded.spans(other[near], receives=not more),
    )
    if own_span is None or other_span is None:
        return
    # Those of different tags or sizes are not in the order in which they began.
    at, near = at[np.argsort(own_span[0], kind="stable")], near[np.argsort(other_span[0], kind="stable")]
    lone = recorded.left_over(own[at], other[near], receives=more)
    if lone is not None:
        codes[0 if more else 1][at[lone]] = -1 - at[lone]


def _find_common(first: Int64, second: Int64) -> tuple[Int64, Int64]:
    """Return where two arrays, in each of which a number is once, have the numbers that both have."""
    places = np.intersect1d(first, second, assume_unique=True, return_indices=True)[1:]
    return places[0].astype(np.int64), places[1].astype(np.int64)


def _number_occurrences(code: Int64) -> Int64:
    """Return (N,) distinct numbers; the n-th of those of a code has the same one whatever else there is."""
    order = np.argsort(code, kind="stable")
    sorted_ = code[order]
    number = np.empty(len(code), np.int64)
    number[order] = sorted_ * _MOST + np.arange(len(code)) - np.searchsorted(sorted_, sorted_)
    return number


_MOST = 1 << 31
"""More messages than are alike."""
