"""Checks across ranks: which ranks are missing, and where ranks contradict each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice

import numpy as np

from studio.analysis.collectives.matching import Collectives, Disagreement, GroupMatching, find_disagreement
from studio.analysis.collectives.messages import Messages
from studio.analysis.job.completeness import format_ranges, group_ranges, infer_completeness, is_recording
from studio.analysis.job.files import LEFT_OUT
from studio.distinct import find_distinct
from studio.doctor.diagnosis import NODES_NAMED, Case, Found, NodeAt, convert_places
from studio.doctor.hangs import is_flight
from studio.doctor.inferred import RAN, are_counted, choose_missing_level
from studio.doctor.roots import find_wrong_root
from studio.doctor.splits import find_differing_split
from studio.et.rank_names import parse_rank_and_prefix
from studio.sim.agreement import (
    UNEVEN_TYPES,
    describe_disputed,
    describe_half,
    format_ranks,
    is_certain,
    label_group,
    label_node,
)
from studio.sim.borders import describe_borders
from studio.trace import NONE, CollectiveType, Finding, Graph, Int64, Level, compute_recorded_ends
from studio.units import format_bytes, format_count, format_count_range, format_counted, format_ns

_CLOCKS_LISTED = 8
_FAR_APART_NS = 1_000_000
_RANKS_KEPT = 1 << 16
"""Missing ranks that are kept with a finding; the rest is counted."""
_SEVERAL_RUNS = "These ranks are of different runs (mixed-runs): open the files of one run together."

_LEFT_OUT_LISTED = 4
_REPLACE_FILE = "Put the file of that rank in the place of the one that was left out, and open the files of all ranks together."
_PUT_BACK = "Put the file of that rank in its place."
_GROUPS_LISTED = 8
"""Groups listed one by one; the rest is counted."""


# ---------------------------------------------------------------------------------------------------
# Ranks and groups


def check_missing_ranks(case: Case) -> Iterator[Found]:
    """Yield ranks that rank numbers, files or comm groups mention but that are absent.

    Every rank of a recording is whole by itself, so there a rank that was not recorded is no error; nor is it where the
    number of a single rank that communicates with none is all that tells of others.
    """
    present = {rank.number for rank in case.trace.ranks}
    if not present:
        return
    job = infer_completeness(case.trace)
    used = {group.name for group in case.groups}
    named = {rank for name, group in case.listed.items() if name in used for rank in group.ranks}
    # Where no rank could just have been left out, what names others is told by the check of messages.
    if job.is_open and not any(map(len, case.unmatched.outside)):
        yield Found("warning", job.sentence())
    # A comm group can name ranks beyond the world; what lies between was never mentioned.
    beyond = [range(rank, rank + 1) for rank in sorted(named) if rank >= job.world]
    gaps = [*job.missing(), *beyond]
    absent = sum(map(len, gaps))
    if absent:
        hints = [
            ("the other rank numbers", max(present) + 1 > len(present)),
            (f"a world of {job.file_world:,} ranks in the files", job.file_world > len(present)),
            ("the comm groups", bool(named - present)),
        ]
        words = format_ranges(gaps)
        left_out = [finding.message for finding in _find_left_out(case, gaps)]
        yield Found(
            "warning" if _are_whole(case, hints) else "error",
            f"{words[0].upper()}{words[1:]} {'is' if absent == 1 else 'are'} missing, "
            f"according to {' and '.join(text for text, true in hints if true)}."
            + (f" A file there is: {left_out[0]}" if left_out else ""),
            tuple(islice(chain.from_iterable(gaps), _RANKS_KEPT)),
            (),
            absent,
            (
                ("ranks in the job", format_count(len(present))),
                ("missing", format_count(absent)),
                *(("also", message) for message in left_out[1:_LEFT_OUT_LISTED]),
                *(
                    ("named by", f"group {name}: {format_ranks(sorted(group.ranks))}")
                    for name, group in case.listed.items()
                    if name in used and beyond and max(group.ranks, default=NONE) >= job.world
                ),
            ),
            advice=_REPLACE_FILE if left_out else "",
        )


def _find_left_out(case: Case, gaps: Sequence[range]) -> Iterator[Finding]:
    """Yield what readers found of files that were left out and are those of missing ranks by their names."""
    for finding in case.trace.findings:
        if finding.file and finding.code in LEFT_OUT:
            number = parse_rank_and_prefix(finding.file)[1]
            if number is not None and any(number in gap for gap in gaps):
                yield finding


def _are_whole(case: Case, hints: list[tuple[str, bool]]) -> bool:
    """Whether the ranks that are there are of use by themselves."""
    hint_values = [true for _, true in hints]
    alone = hint_values == [True, False, False] and len(case.trace.ranks) == 1
    return (
        is_recording(case.trace)
        or any(rank.metadata_number("link_host_operations") > 0 for rank in case.trace.ranks)
        or (alone and not any(graph_case.communicates.any() for graph_case in case.graphs))
    )


def check_group_outsiders(case: Case) -> Iterator[Found]:
    """Yield nodes that name a comm group their rank is not in."""
    for index, group in enumerate(usage for usage in case.groups if usage.outsiders):
        if index == _GROUPS_LISTED:
            rest = sum(1 for usage in case.groups if usage.outsiders) - _GROUPS_LISTED
            yield Found(
                "error", f"{format_counted(rest, 'more group')} {'is' if rest == 1 else 'are'} like this."
            )
            return
        members = format_ranks(sorted(group.members))
        copy = case.copy_words(sorted(group.outsiders))
        yield Found(
            "error",
            f"Nodes of {format_ranks(sorted(group.outsiders))} name {label_group(group)}, whose members are {members}."
            + (f" {copy}" if copy else ""),
            tuple(sorted(group.outsiders)),
            (),
            len(group.outsiders),
            advice=_PUT_BACK if copy else "",
        )


def check_unlisted_groups(case: Case) -> Iterator[Found]:
    """Yield comm groups without a list of members."""
    unlisted = [usage for usage in case.groups if usage.name and usage.name not in case.listed]
    if unlisted:
        names = ", ".join(f"{usage.name} ({format_ranks(sorted(usage.members))})" for usage in unlisted[:4])
        more = ", …" if len(unlisted) > 4 else "."
        yield Found(
            "warning",
            f"{format_counted(len(unlisted), 'comm group')} {'is' if len(unlisted) == 1 else 'are'} listed nowhere; the ranks whose "
            f"nodes name {'it' if len(unlisted) == 1 else 'them'} were taken as members: {names}{more}",
            tuple(sorted({rank for usage in unlisted for rank in usage.members})),
            (),
            len(unlisted),
        )


# ---------------------------------------------------------------------------------------------------
# Collectives


def drop_uneven_sizes(
    group: GroupMatching, kinds: Sequence[CollectiveType] = (CollectiveType.ALL_TO_ALL,)
) -> GroupMatching:
    """Return a group with the sizes of its all-to-alls set to 0, since ranks may bring different ones, or of other kinds."""
    return replace(
        group,
        sequences=tuple(
            replace(sequence, bytes=np.where(np.isin(sequence.type, kinds), 0, sequence.bytes))
            for sequence in group.sequences
        ),
    )


def check_collectives(case: Case) -> Iterator[Found]:
    """Yield the first collective of each group in which its members differ, in its root or parts alone where they agree otherwise.

    A flight recorder forgets the first operations, on each rank other ones; the check for hangs compares what is left. What lies
    before or after the recording of a member is told apart.
    """
    if is_flight(case.trace):
        return
    listed = 0
    case = case.settled
    for group, ordered in zip(case.groups, case.ordered, strict=True):
        plain = drop_uneven_sizes(group)
        difference = find_disagreement(plain)
        ran = difference is None and group.by_number and is_recording(case.trace)
        if difference is None and group.by_number:
            plain = drop_uneven_sizes(ordered)
            difference = find_disagreement(plain)
        if difference is not None and _is_defective(case, difference):
            # The check of sizes or types tells of that node.
            continue
        finding = (
            find_wrong_root(case, group) or find_differing_split(case, group)
            if difference is None
            else _report_size(case, plain, difference)
            or _report_disagreement(case, plain, difference, ran=ran)
        )
        if finding is None:
            continue
        listed += 1
        if listed <= _GROUPS_LISTED:
            yield finding
    if listed > _GROUPS_LISTED:
        rest = listed - _GROUPS_LISTED
        yield Found(
            "error", f"{format_counted(rest, 'more group')} {'disagrees' if rest == 1 else 'disagree'}."
        )


def _is_defective(case: Case, difference: Disagreement) -> bool:
    """Whether one of the collectives in which ranks differ lacks a size or type that the other has, or has none that can be true."""
    wrong = []
    for number, row in ((difference.rank, difference.row), (difference.other_rank, difference.other_row)):
        own = case.by_rank[number]
        wrong.append(
            row != NONE
            and not own.calls[row]
            and (int(own.sizes[row]) < 0 or int(own.collective[row]) not in set(CollectiveType))
        )
    return wrong[0] != wrong[1]


def check_border_collectives(case: Case) -> Iterator[Found]:
    """Yield which collectives some members were not recorded long enough to have."""
    if is_flight(case.trace) or not case.borders:
        return
    borders = case.borders
    yield Found(
        "warning",
        describe_borders(borders),
        tuple(sorted({*borders.counts, *borders.messages, *borders.lacking})),
        (),
        sum(borders.counts.values()) + sum(borders.messages.values()),
        tuple(
            (f"more on rank {number}", format_count(count))
            for number, count in islice(borders.counts.items(), _GROUPS_LISTED)
        ),
        mends=False,
    )


def _report_size(case: Case, group: GroupMatching, difference: Disagreement) -> Found | None:
    """Return how the sizes of two ranks differ where nothing else does, in a collective that the model full simulates all the same."""
    if NONE in (difference.row, difference.other_row):
        return None
    if find_disagreement(drop_uneven_sizes(group, UNEVEN_TYPES)) is not None:
        return None
    own, other = describe_disputed(case.trace, difference)
    ran = is_recording(case.trace)
    nodes = ((difference.rank, difference.row), (difference.other_rank, difference.other_row))
    return Found(
        "warning" if ran else "error",
        f"Members of {label_group(group)} bring different sizes to its collective {difference.position}: rank {difference.rank} has "
        f"{own}, rank {difference.other_rank} has {other}.",
        tuple(sorted({difference.rank, difference.other_rank})),
        tuple(NodeAt(rank, row) for rank, row in nodes),
        1,
        (("they differ in", "size"), ("members", format_ranks(sorted(group.members)))),
        "The model full takes the largest of them. ASTRA-sim's own program waits forever"
        f"{'' if ran else ', and so do libraries that need one size, such as NCCL'}.",
        "Give all members one size." if ran else "Correct the size of the rank that differs.",
        mends=False,
    )


def _report_disagreement(case: Case, group: GroupMatching, difference: Disagreement, *, ran: bool) -> Found:
    """Return how two ranks differ; `ran` where the job ran with them in one order, which others may leave."""
    certain = is_certain(case.trace, group, difference)
    ran = ran and not certain
    own, other = describe_disputed(case.trace, difference)
    will = "will hang" if certain else "may hang"
    message = (
        f"This job {will} in a simulator at collective {difference.position} of {label_group(group)}, because "
        f"rank {difference.rank} has {own} where rank {difference.other_rank} has {other}."
    )
    if not certain:
        message += " Both have the same collectives in another order, and no dependencies fix their order."
    if ran:
        message += f" {RAN}"
    seems = f"Rank {difference.rank} seems to have {own} as collective {difference.position} of {label_group(group)} where rank {difference.other_rank} has {other}."
    nodes = ((difference.rank, difference.row), (difference.other_rank, difference.other_row))
    several_runs = case.mixes((difference.rank, difference.other_rank))
    copy = case.copy_words((difference.rank, difference.other_rank))
    counts = [group.sequences[index].count for index in group.sequence_of.tolist() if index != NONE]
    unproved = any(group.name == other.name for other, _ in case.moments) and are_counted(case, group)
    level: Level = "error" if certain and not unproved else "info" if ran else "warning"
    return Found(
        level,
        seems if unproved else message,
        tuple(sorted({difference.rank, difference.other_rank})),
        tuple(NodeAt(rank, row) for rank, row in nodes if row != NONE),
        1,
        (
            ("they differ in", _describe_difference(group, difference)),
            ("members", format_ranks(sorted(group.members))),
            ("collectives of a member", format_count_range(min(counts), max(counts))),
        ),
        advice=_SEVERAL_RUNS if several_runs else f"{copy} {_PUT_BACK}" if copy else "",
        mends=not certain and not several_runs,
        doubtful="" if ran or several_runs or copy else seems,
    )


def _describe_difference(group: GroupMatching, difference: Disagreement) -> str:
    """Return how two ranks differ: number, membership, order, type or size."""
    this, other = (group.find_sequence(number) for number in (difference.rank, difference.other_rank))
    if not this.count or not other.count:
        return "membership: one of them has no collective of the group"
    if NONE in (difference.row, difference.other_row) or this.count != other.count:
        is_gap = group.by_number and NONE in (difference.row, difference.other_row)
        missing = f"; number {_get_number(this, difference)} is missing" if is_gap else ""
        return f"number: {format_counted(this.count, 'collective')} and {format_counted(other.count, 'collective')}{missing}"
    contents = [sorted(zip(each.type.tolist(), each.bytes.tolist(), strict=True)) for each in (this, other)]
    if contents[0] == contents[1]:
        return "order"
    return "type" if this.type[difference.position] != other.type[difference.position] else "size"


def _get_number(sequence: Collectives, difference: Disagreement) -> int:
    return int(sequence.number[difference.position])


def check_uneven_sizes(case: Case) -> Iterator[Found]:
    """Yield groups whose members bring different sizes to an all-to-all and agree otherwise."""
    worst: tuple[float, GroupMatching, int, Int64] | None = None
    uneven = []
    for group in case.groups:
        if find_disagreement(group) is None or find_disagreement(drop_uneven_sizes(group)) is not None:
            continue
        uneven.append(group)
        present = group.sequence_of[group.sequence_of >= 0]
        sizes = np.stack([sequence.bytes for sequence in group.sequences])[present]
        apart = (sizes.max(axis=0) - sizes.min(axis=0)).astype(np.float64)
        position = int(np.argmax(apart))
        if worst is None or apart[position] > worst[0]:
            worst = (float(apart[position]), group, position, sizes[:, position])
    if worst is not None:
        _, group, position, sizes = worst
        names = ", ".join(label_group(group) for group in uneven[:4]) + (", …" if len(uneven) > 4 else "")
        mean = float(sizes.astype(np.float64).mean())
        yield Found(
            "info",
            f"Members of {names} bring different sizes to the same all-to-alls: in collective {position} of "
            f"{label_group(group)} {format_bytes(int(sizes.min()))} to {format_bytes(int(sizes.max()))}.",
            tuple(sorted({rank for group in uneven for rank in group.members})),
            (),
            len(uneven),
            (("max / mean there", f"{float(sizes.max()) / mean:.3f}" if mean else "–"),),
        )


# ---------------------------------------------------------------------------------------------------
# Messages


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
            mends=_is_any_misnamed(case, chosen, receives=receives),
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
            mends=_is_any_misnamed(case, chosen, receives=receives),
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
                mends=bool(lone.any()),
            )


# ---------------------------------------------------------------------------------------------------
# Clocks


def check_clock_skew(case: Case) -> Iterator[Found]:
    """Yield ranks whose clocks differ, by the ends of matched collectives, or that linking moved far."""
    yield from _find_moved_clocks(case)
    skewed = [offset for offset in case.clocks if offset.is_skewed]
    if skewed:
        worst = max(skewed, key=lambda offset: abs(offset.offset_ns))
        ahead = "ahead of" if worst.offset_ns > 0 else "behind"
        base = min(offset.rank for offset in case.clocks)
        yield Found(
            "warning",
            f"The clock{'s' if len(skewed) > 1 else ''} of {format_ranks([offset.rank for offset in skewed])} "
            f"{'differ' if len(skewed) > 1 else 'differs'} from that of rank {base}: rank {worst.rank} is "
            f"{format_ns(abs(worst.offset_ns))} {ahead} it.",
            tuple(offset.rank for offset in skewed),
            (),
            len(skewed),
            (
                ("largest offset", f"{worst.offset_ns:+,} ns (rank {worst.rank})"),
                ("remaining median distance", format_ns(max(offset.residual_ns for offset in skewed))),
                ("collectives compared", format_count(worst.matched)),
            ),
        )


def _find_split_machines(case: Case, far: Mapping[int, int]) -> Iterator[Found]:
    """Yield a finding where linking moved the clock of a rank against that of another on the same machine."""
    machines: dict[str, list[int]] = {}
    for rank in case.trace.ranks:
        machines.setdefault(str(rank.metadata_value("clock_host", "")), []).append(rank.number)
    machines.pop("", None)
    for machine, numbers in machines.items():
        moved = {number: far.get(number, 0) for number in numbers}
        usual = Counter(moved.values()).most_common(1)[0][0]
        odd = [number for number in numbers if abs(moved[number] - usual) >= _FAR_APART_NS]
        if odd:
            by = max(abs(moved[number] - usual) for number in odd)
            several = len(odd) > 1
            yield Found(
                "warning",
                f"The files of {format_ranks(numbers)} name one machine, {machine}, which has one clock; but no collective took place on "
                f"{format_ranks(odd)} when it did on the others, by up to {format_ns(by)}. Linking moved "
                f"{'their times' if several else 'its times'} by that, so that matched collectives end together.",
                tuple(odd),
                (),
                len(odd),
                _format_clock_moves(case, moved, odd),
                "Where files of several runs are mixed, ranks seem to wait for each other that never met; where times were shifted, "
                "waits are known as far as the remaining distance allows.",
                "Times were shifted, or files of several runs are mixed: open those of one run together.",
                mends=False,
            )


def _format_clock_moves(
    case: Case, moved: Mapping[int, int], ranks: Sequence[int]
) -> tuple[tuple[str, str], ...]:
    """Return by how much linking moved the clock of each rank, and what distance of matched ends stays."""
    stays = {rank.number: max(rank.metadata_number("clock_residual_ns"), 0) for rank in case.trace.ranks}
    return tuple(
        (f"rank {rank}", f"{moved[rank]:+,} ns, {format_ns(stays[rank])} stays")
        for rank in ranks[:_CLOCKS_LISTED]
    )


def _find_moved_clocks(case: Case) -> Iterator[Found]:
    """Yield findings of linking about clocks that differed much before it aligned them."""
    moved = {rank.number: rank.metadata_number("clock_offset_ns") for rank in case.trace.ranks}
    # -1 stands for no such number; a nanosecond is no skew either.
    far = {rank: by for rank, by in moved.items() if abs(by) >= _FAR_APART_NS}
    if not far:
        return
    odd = list(_find_split_machines(case, far))
    yield from odd
    # What a warning has told is not told again as something that makes times comparable.
    warned = {rank for finding in odd for rank in finding.ranks}
    rest = sorted(far.keys() - warned)
    if not rest:
        return
    worst = max(rest, key=lambda rank: abs(far[rank]))
    yield Found(
        "info",
        f"Linking moved the clock{'s' if len(rest) > 1 else ''} of {format_ranks(rest)}, by up to "
        f"{format_ns(abs(far[worst]))} (rank {worst}), so that matched collectives end together.",
        tuple(rest),
        (),
        len(rest),
        _format_clock_moves(case, far, rest),
        "Times of different ranks can be compared as far as the remaining distance allows.",
        mends=False,
    )
