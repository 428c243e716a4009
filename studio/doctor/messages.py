"""Checks of messages: sends and receives that do not fit each other or the job."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

import numpy as np

from studio.analysis.collectives.messages import Messages
from studio.analysis.job.completeness import format_ranges, group_ranges, is_recording
from studio.distinct import find_distinct
from studio.doctor.diagnosis import NODES_NAMED, Case, Found, NodeAt, convert_places
from studio.doctor.inferred import choose_missing_level
from studio.sim.agreement import describe_half, format_ranks, label_node
from studio.trace import NONE, Graph, Int64, compute_recorded_ends
from studio.units import format_count, format_counted


def _list_ends(case: Case, chosen: Int64, *, receives: bool) -> tuple[tuple[int, ...], tuple[NodeAt, ...]]:
    """Return the ranks and first nodes of one side of messages."""
    messages = case.messages
    rank = (messages.receive_rank if receives else messages.send_rank)[chosen]
    row = (messages.receive_row if receives else messages.send_row)[chosen]
    numbers = sorted({case.trace.ranks[index].number for index in find_distinct(rank).tolist()})
    nodes = convert_places(
        case.trace, zip(rank[:NODES_NAMED].tolist(), row[:NODES_NAMED].tolist(), strict=True)
    )
    return tuple(numbers), tuple(nodes)


def check_unmatched_receives(case: Case) -> Iterator[Found]:
    """Yield receives without a send."""
    case = case.settled
    yield from _report_unmatched(case, case.unmatched.receives, receives=True)


def check_unmatched_sends(case: Case) -> Iterator[Found]:
    """Yield sends without a receive."""
    case = case.settled
    yield from _report_unmatched(case, case.unmatched.sends, receives=False)


def _report_unmatched(case: Case, chosen: Int64, *, receives: bool) -> Iterator[Found]:
    if not len(chosen):
        return
    ranks, nodes = _list_ends(case, chosen, receives=receives)
    first = describe_half(case.trace, case.messages, int(chosen[0]), receives=receives)
    noun, verb = ("receive", "sent") if receives else ("send", "received")
    near = case.unmatched.nearest(case.messages, int(chosen[0]), receives=receives)
    nearest = ""
    if near is not None:
        nearest = f"; nearest is {describe_half(case.trace, case.messages, near, receives=not receives)}"
    outside = receives and _are_cut_off(case, chosen)
    remark = " The job ran: they were sent before or after what the sender recorded." if outside else ""
    yield Found(
        "error" if receives and not outside else "warning",
        f"{format_counted(len(chosen), noun)} of {format_ranks(ranks)} {'is' if len(chosen) == 1 else 'are'} never {verb}: "
        f"{first}{nearest}.{remark}",
        ranks,
        nodes,
        len(chosen),
        (("messages in the job", format_count(len(case.messages))),),
    )


_Line = tuple[int, int, int]
"""Sender, receiver and tag of messages."""
_Spans = dict[_Line, list[tuple[int, int]]]
"""When the halves of messages began and ended, in order, by line."""


def _are_cut_off(case: Case, unsent: Int64) -> bool:
    """Whether the receives that lack a send were of messages from before or after the sender's recording.

    That is so where the first began before it or the last ended after it, and the others end no earlier than their sends begin; not where
    the sender sent such a message to another rank, which was recorded then and did not receive it.
    """
    messages, trace = case.messages, case.trace
    windows: dict[int, tuple[int, int]] = {}
    for rank in trace.ranks:
        graph = trace.graph_of(rank)
        timed = graph.start_ns >= 0
        if not timed.any():
            return False
        ends = compute_recorded_ends(graph)[timed]
        windows[rank.number] = int(graph.start_ns[timed].min()), int(ends.max())
    if _are_sent_elsewhere(case, unsent, windows):
        return False
    lines = {_get_line(messages, message) for message in unsent.tolist()}
    sent = _group_spans(case, lines, messages.send_rank, messages.send_row)
    received = _group_spans(case, lines, messages.receive_rank, messages.receive_row)
    for line in lines:
        first, last = windows[line[0]]
        sends, receives = sent.get(line, []), received[line]
        surplus = len(receives) - len(sends)
        if surplus <= 0:
            # As many were sent: one of them is of another size.
            return False
        before = min(sum(begin < first for begin, _ in receives), surplus)
        behind = receives[len(receives) - (surplus - before) :]
        late = all(end > last for _, end in behind)
        in_order = all(end >= begin for (begin, _), (_, end) in zip(sends, receives[before:], strict=False))
        if not late or not in_order:
            return False
    return True


def _are_sent_elsewhere(case: Case, unsent: Int64, windows: Mapping[int, tuple[int, int]]) -> bool:
    """Whether the sender of a receive sent a message of its tag and size to another rank, and that was recorded and did not receive it."""
    messages, trace = case.messages, case.trace
    alike = (messages.source, messages.tag, messages.bytes)
    wanted = set(zip(*(column[unsent].tolist() for column in alike), strict=True))
    for message in case.unmatched.sends.tolist():
        source, target, tag = _get_line(messages, message)
        if target not in windows:
            continue
        graph = trace.graph_of(trace.ranks[int(messages.send_rank[message])])
        row, (first, last) = int(messages.send_row[message]), windows[target]
        begin = int(graph.start_ns[row])
        within = first <= begin and begin + int(graph.duration_ns[row]) <= last
        if within and (source, tag, int(messages.bytes[message])) in wanted:
            return True
    return False


def _get_line(messages: Messages, message: int) -> _Line:
    return int(messages.source[message]), int(messages.target[message]), int(messages.tag[message])


def _group_spans(case: Case, lines: Collection[_Line], ranks: Int64, rows: Int64) -> _Spans:
    """Return when the halves of the lines' messages began and ended."""
    spans_of: _Spans = {}
    for message in np.flatnonzero(rows != NONE).tolist():
        line = _get_line(case.messages, message)
        if line in lines:
            graph = case.trace.graph_of(case.trace.ranks[int(ranks[message])])
            begin = int(graph.start_ns[rows[message]])
            spans_of.setdefault(line, []).append((begin, begin + int(graph.duration_ns[rows[message]])))
    return {line: sorted(spans) for line, spans in spans_of.items()}


def check_self_messages(case: Case) -> Iterator[Found]:
    """Yield messages a rank sends to itself."""
    messages = case.messages
    chosen = np.flatnonzero(messages.source == messages.target)
    if len(chosen):
        message = int(chosen[0])
        receives = bool(messages.send_row[message] == NONE)
        ranks, nodes = _list_ends(case, chosen[messages.send_row[chosen] != NONE], receives=False)
        if not ranks:
            ranks, nodes = _list_ends(case, chosen, receives=True)
        first = describe_half(case.trace, messages, message, receives=receives)
        yield Found(
            "error",
            f"{format_counted(len(chosen), 'message')} of {format_ranks(ranks)} {'goes' if len(chosen) == 1 else 'go'} to the "
            f"rank {'it comes' if len(chosen) == 1 else 'they come'} from: {first}.",
            ranks,
            nodes,
            len(chosen),
        )


def check_unknown_peers(case: Case) -> Iterator[Found]:
    """Yield sends without a destination and receives without a source."""
    messages = case.messages
    for receives, row, key in (
        (False, messages.send_row, "comm_dst"),
        (True, messages.receive_row, "comm_src"),
    ):
        chosen = np.flatnonzero((row != NONE) & ~messages.known)
        if not len(chosen):
            continue
        ranks, nodes = _list_ends(case, chosen, receives=receives)
        # No recorder writes whose message a receive from any rank took; that may have been sent before the recording of the sender.
        never = receives or len(chosen) == int((row != NONE).sum())
        noun = "receive" if receives else "send"
        whom = "where they come from" if receives else "where they go"
        if len(chosen) == 1:
            whom = "where it comes from" if receives else "where it goes"
        yield Found(
            choose_missing_level(case, everywhere=never),
            f"{format_counted(len(chosen), noun)} of {format_ranks(ranks)} {'does' if len(chosen) == 1 else 'do'} not say {whom} "
            f"({key} is not recorded): {label_node(_get_graph(case, nodes[0]), nodes[0].row)} of rank {nodes[0].rank}.",
            ranks,
            nodes,
            len(chosen),
            ((f"{noun}s in the job", format_count(int((row != NONE).sum()))),),
            is_repairable=_is_any_misnamed(case, chosen, receives=receives),
        )


def _is_any_misnamed(case: Case, chosen: Int64, *, receives: bool) -> bool:
    """Whether it is evident to which other half some of these sends or receives belong, that name a wrong rank or none."""
    by_send, by_receive = case.unmatched.misnamed
    return bool(np.isin(chosen, by_receive[0] if receives else by_send[1]).any())


def check_outside_peers(case: Case) -> Iterator[Found]:
    """Yield messages with ranks that the job does not have, and whose absence nothing else tells."""
    messages = case.messages
    for receives, chosen in zip((False, True), case.unmatched.outside, strict=True):
        if not len(chosen):
            continue
        ranks, nodes = _list_ends(case, chosen, receives=receives)
        first = describe_half(case.trace, messages, int(chosen[0]), receives=receives)
        known = format_ranges(group_ranges([rank.number for rank in case.trace.ranks]))
        yield Found(
            "warning" if is_recording(case.trace) else "error",
            f"{format_counted(len(chosen), 'receive' if receives else 'send')} of {format_ranks(ranks)} "
            f"{'names' if len(chosen) == 1 else 'name'} a rank that the job does not have; it has {known}: {first}.",
            ranks,
            nodes,
            len(chosen),
            is_repairable=_is_any_misnamed(case, chosen, receives=receives),
        )


def _get_graph(case: Case, node: NodeAt) -> Graph:
    rank = case.trace.rank(node.rank)
    assert rank is not None
    return case.trace.graph_of(rank)


def check_foreign_messages(case: Case) -> Iterator[Found]:
    """Yield sends with another rank as source, and receives with another rank as destination."""
    messages = case.messages
    numbers = np.array([*(rank.number for rank in case.trace.ranks), NONE], np.int64)
    sides: list[tuple[bool, str, Callable[[], Int64]]] = [
        (
            False,
            "comm_src",
            lambda: (messages.send_row != NONE) & (numbers[messages.send_rank] != messages.source),
        ),
        (
            True,
            "comm_dst",
            lambda: (messages.receive_row != NONE) & (numbers[messages.receive_rank] != messages.target),
        ),
    ]
    for receives, key, wrong in sides:
        chosen = np.flatnonzero(wrong())
        if len(chosen):
            ranks, nodes = _list_ends(case, chosen, receives=receives)
            side = "receive" if receives else "send"
            lone = (messages.send_row if receives else messages.receive_row)[chosen] == NONE
            named = int((messages.target if receives else messages.source)[chosen[0]])
            yield Found(
                "error",
                f"{format_counted(len(chosen), side)} of {format_ranks(ranks)} {'names' if len(chosen) == 1 else 'name'} another "
                f"rank in {key}, such as rank {named}; it is the own rank there, or nothing.",
                ranks,
                nodes,
                len(chosen),
                is_repairable=bool(lone.any()),
            )
