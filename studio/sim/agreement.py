"""Find disagreements between ranks: members of a comm group, and both ends of a message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from studio.analysis.collectives.clocks import estimate_clock_leads
from studio.analysis.collectives.matching import (
    Collectives,
    Disagreement,
    GroupMatching,
    compute_issue_order,
    find_disagreement,
    list_edges,
)
from studio.analysis.collectives.messages import Messages
from studio.analysis.collectives.unmatched import find_unmatched
from studio.analysis.graph.digraph import build_network, find_reachable
from studio.analysis.job.completeness import is_recording
from studio.columns import join_columns
from studio.sim.config import SystemConfig
from studio.sim.extensions import EXTENDED_MODE
from studio.sim.unrecorded import find_unrecorded_ranks
from studio.trace import (
    NONE,
    UNEVEN_TYPES,
    CollectiveType,
    Finding,
    Graph,
    Int64,
    Level,
    Trace,
    label_collective,
    read_int_column,
)
from studio.units import format_bytes, format_count, format_counted

_NAMED = 4
"""Comm groups that are named; the rest is counted."""
_SHOWN = 8
"""Findings of one kind that are listed one by one; the rest is counted."""


def check_groups(trace: Trace, config: SystemConfig, groups: Sequence[GroupMatching]) -> Iterator[Finding]:
    """Find comm groups with wrong or missing members, and members with different collectives."""
    yield from _check_members(trace, config, groups)
    if config.extensions is None:
        yield from _check_names(groups)
    compared = _ignore_sizes(config, groups)
    if config.extensions is not None and config.extensions.communication_times == "recorded":
        # Of recordings that lack calls nothing is matched in a replay.
        lacking = find_unrecorded_ranks(trace)
        compared = [group for group in compared if lacking.isdisjoint(group.members)]
        if is_recording(trace):
            yield from _limit_findings(_find_unmet(trace, compared))
            compared = []
    yield from _limit_findings(_find_disagreements(trace, compared))
    if config.extensions is None:
        yield from _check_stream_numbers(trace, config, groups)


def check_messages(trace: Trace, messages: Messages, groups: Sequence[GroupMatching]) -> Iterator[Finding]:
    """Find sends and receives without a partner, or that name the wrong rank.

    Args:
        trace: The job.
        messages: Its messages, or all of those between some ranks.
        groups: The matched collectives of all ranks, which tell how far clocks are apart.
    """
    yield from _find_self_sends(trace, messages)
    yield from _find_foreign(trace, messages)
    yield from _find_unmatched(trace, messages, groups)


# ---------------------------------------------------------------------------------------------------
# Words


def format_ranks(numbers: Sequence[int]) -> str:
    """Format rank numbers, consecutive ones as a range.

    Example:
        >>> format_ranks([3]), format_ranks([0, 1, 2, 3, 8]), format_ranks([])
        ('rank 3', 'ranks 0–3, 8', 'no rank')
    """
    if not numbers:
        return "no rank"
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    texts = [str(first) if first == last else f"{first}–{last}" for first, last in runs]
    shown = ", ".join(texts[:_SHOWN]) + (", …" if len(texts) > _SHOWN else "")
    return f"rank{'s' if len(numbers) > 1 else ''} {shown}"


def label_node(graph: Graph, row: int) -> str:
    """Format a node for messages: its id, and its name if it adds anything."""
    name = graph.strings[int(graph.name[row])] if graph.name[row] >= 0 else ""
    return f"node {int(graph.id[row])}" + (f" ({name[:60]})" if name else "")


def label_group(group: GroupMatching) -> str:
    """Format a comm group for messages."""
    return f"group {group.name}" if group.name else "the group of all ranks"


# ---------------------------------------------------------------------------------------------------
# Comm groups


def _limit_findings(findings: Iterator[Finding]) -> Iterator[Finding]:
    """Yield the first findings, then one that counts the rest."""
    for index, finding in enumerate(findings):
        if index < _SHOWN:
            yield finding
        else:
            rest = 1 + sum(1 for _ in findings)
            yield Finding(
                finding.level,
                finding.code,
                f"{format_counted(rest, 'more group is', 'more groups are')} like this.",
            )
            return


def _check_members(trace: Trace, config: SystemConfig, groups: Sequence[GroupMatching]) -> Iterator[Finding]:
    npus = config.topology.npus
    listed = {group.name: group for group in (trace.groups if config.groups is None else config.groups)}
    wrong = [
        group
        for group in listed.values()
        if config.needs_every_rank and not all(0 <= rank < npus for rank in group.ranks)
    ]
    for group in wrong[:1]:
        beyond = [rank for rank in group.ranks if not 0 <= rank < npus]
        message = (
            f"Group {group.name} names {format_ranks(beyond)}; the system has ranks 0 to {npus - 1}"
            f"{_describe_more_groups(len(wrong) - 1)}."
        )
        yield Finding("error", "group-beyond", message, "Correct the group, or enlarge the system.")
    unlisted = [
        used for used in groups if used.name and (used.name not in listed or listed[used.name].inferred)
    ]
    if unlisted:
        level: Level = "error" if config.groups is not None else "warning"
        yield Finding(
            level, "group-unlisted", _describe_unlisted(unlisted, level), "List it in the comm group file."
        )
    outside = [used for used in groups if used.outsiders]
    for used in outside[:1]:
        message = (
            f"Nodes of {format_ranks(used.outsiders)} name {label_group(used)}, whose members are "
            f"{format_ranks(used.members)}{_describe_more_groups(len(outside) - 1)}."
        )
        yield Finding("error", "group-outsider", message, "Add them to the group, or name another group.")


def _describe_unlisted(unlisted: Sequence[GroupMatching], level: Level) -> str:
    """Say once which groups are listed nowhere."""
    first = unlisted[0]
    if len(unlisted) == 1:
        taken = "." if level == "error" else ", taken to be its members."
        return f"Group {first.name} is listed nowhere; nodes of {format_ranks(first.members)} name it{taken}"
    names = ", ".join(f"{used.name} ({format_ranks(used.members)})" for used in unlisted[:_NAMED])
    more = ", …" if len(unlisted) > _NAMED else ""
    taken = "." if level == "error" else ". Their members are taken to be the ranks that name them."
    return f"{len(unlisted):,} comm groups are named by nodes but listed nowhere: {names}{more}{taken}"


def _describe_more_groups(count: int) -> str:
    return f"; {count:,} more group{'s are' if count > 1 else ' is'} like this" if count else ""


def _check_names(groups: Sequence[GroupMatching]) -> Iterator[Finding]:
    texts = [repr(group.name) for group in groups if group.name and not group.name.isdecimal()]
    if texts:
        shown = ", ".join(texts[:_SHOWN]) + (", …" if len(texts) > _SHOWN else "")
        some = "1 comm group has a name that is no whole number"
        several = f"{len(texts):,} comm groups have names that are no whole numbers"
        message = f"{some if len(texts) == 1 else several}: {shown}."
        hint = f"The reference knows groups by numbers from 1 alone; the {EXTENDED_MODE} takes any text."
        yield Finding("error", "group-name", message, hint)


def _check_stream_numbers(
    trace: Trace, config: SystemConfig, groups: Sequence[GroupMatching]
) -> Iterator[Finding]:
    """Yield the first collective of all ranks that the reference would number differently on two ranks.

    Each rank has one counter for the chunks of collectives of all ranks, and those of comm groups advance
    it too. Ranks that took part in different numbers of them wait for each other for ever.
    """
    world = next((group for group in groups if not group.name), None)
    if world is None or len(groups) == 1:
        return
    places = [compute_issue_order(graph) for graph in trace.graphs]
    members: dict[int, list[Collectives]] = {rank.number: [] for rank in trace.ranks}
    for group in groups:
        if group.name:
            for number, position in zip(group.members, group.sequence_of.tolist(), strict=True):
                if position != NONE and number in members:
                    members[number].append(group.sequences[position])
    before: dict[tuple[int, ...], Int64] = {}
    first: tuple[int, Int64] | None = None
    for rank in trace.ranks:
        own = world.find_sequence(rank.number)
        key = (id(own), *sorted(map(id, members[rank.number])))
        if key not in before:
            before[key] = _count_chunks_before(own, members[rank.number], places[rank.graph], config)
        counts = before[key]
        first = first or (rank.number, counts)
        both = min(len(counts), len(first[1]))
        unequal = np.flatnonzero(counts[:both] != first[1][:both])
        if len(unequal):
            position = int(unequal[0])
            message = (
                f"collective {position} of the group of all ranks: rank {rank.number} has begun {format_counted(int(counts[position]), 'chunk')} of "
                f"comm groups before it, rank {first[0]} {int(first[1][position]):,}. The reference numbers the chunks of "
                "both with one counter, so these ranks would wait for each other for ever"
            )
            hint = (
                f"Use the {EXTENDED_MODE}, or name a comm group of all ranks for it: the chunks of each group are numbered "
                "on their own."
            )
            yield Finding("warning", "chunk-numbers", f"{message}.", hint, rank.number)
            return


def _count_chunks_before(
    world: Collectives, others: Sequence[Collectives], place: Int64, config: SystemConfig
) -> Int64:
    """Return (C,) the chunks of other groups that begin before each collective of all ranks."""
    rows = join_columns(sequence.rows for sequence in others)
    chunks = join_columns(_count_chunks(sequence, config) for sequence in others)
    order = np.argsort(place[rows], kind="stable")
    total = np.concatenate([[0], np.cumsum(chunks[order])])
    return total[np.searchsorted(place[rows][order], place[world.rows])]


def _count_chunks(collectives: Collectives, config: SystemConfig) -> Int64:
    """Return (C,) the chunks each collective is cut into: a remainder makes one more, a small one is rounded up."""
    npus, splits = config.topology.npus, config.splits
    chunk = collectives.bytes // splits
    small = (chunk < npus) & (collectives.type != CollectiveType.ALL_GATHER)
    size = np.where(small, splits * npus, collectives.bytes)
    chunk = np.maximum(np.where(small, npus, chunk), 1)
    moving = collectives.type != CollectiveType.BROADCAST
    return np.where(moving, -(-size // chunk), 0)


def find_dispute(group: GroupMatching) -> Disagreement | None:
    """Return where members of a group first differ in type or number of collectives, whatever these move; None where they agree."""
    return find_disagreement(_without_sizes(group, tuple(CollectiveType)))


def _find_unmet(trace: Trace, groups: Sequence[GroupMatching]) -> Iterator[Finding]:
    """Find groups of a recording whose members differ in their collectives: the job ran, but which ones met is not known."""
    for group in groups:
        disputed = find_dispute(group)
        if disputed is not None:
            own, other = describe_disputed(trace, disputed)
            yield Finding(
                "warning",
                "replay-unmatched",
                f"Collective {disputed.position} of {label_group(group)}: rank {disputed.rank} has {own} where rank {disputed.other_rank} has "
                f"{other}. Which ones met is not known, so those of the group take the time they recorded, waiting for others included.",
                "Record whole steps on all ranks, with studio.collect for example.",
                disputed.rank,
            )


def _ignore_sizes(config: SystemConfig, groups: Sequence[GroupMatching]) -> Sequence[GroupMatching]:
    """Ignore sizes that may differ between members: in the extended mode those of all-to-alls, with a cost model more, in a replay all."""
    if config.extensions is None:
        return groups
    uneven: tuple[CollectiveType, ...] = UNEVEN_TYPES if config.flows else (CollectiveType.ALL_TO_ALL,)
    if config.extensions.communication_times == "recorded":
        # Times are those of the recording, whatever was moved. Not all recorders tell what a member of a scatter receives.
        uneven = tuple(CollectiveType)
    return [_without_sizes(group, uneven) for group in groups]


def _without_sizes(group: GroupMatching, kinds: tuple[CollectiveType, ...]) -> GroupMatching:
    """Return a group whose collectives of some kinds are of 0 bytes each."""
    sequences = (
        replace(sequence, bytes=np.where(np.isin(sequence.type, kinds), 0, sequence.bytes))
        for sequence in group.sequences
    )
    return replace(group, sequences=tuple(sequences))


def _find_disagreements(trace: Trace, groups: Sequence[GroupMatching]) -> Iterator[Finding]:
    for group in groups:
        disputed = find_disagreement(group)
        if disputed:
            yield _describe_disagreement(trace, group, disputed)


def _describe_disagreement(trace: Trace, group: GroupMatching, disputed: Disagreement) -> Finding:
    sure = is_certain(trace, group, disputed)
    own, other = describe_disputed(trace, disputed)
    message = (
        f"collective {disputed.position} of {label_group(group)}: rank {disputed.rank} has {own} where rank "
        f"{disputed.other_rank} has {other}"
    )
    if not sure:
        message += (
            "; both have the same collectives in another order, and their order is not fixed by dependencies"
        )
    hint = (
        "All members of a group must issue the same collectives, of the same size, in the same order."
        if sure
        else "Make each of them depend on the one before, in the same order on all ranks."
    )
    return Finding("error" if sure else "warning", "collectives-disagree", message, hint, disputed.rank)


def describe_disputed(trace: Trace, disputed: Disagreement) -> tuple[str, str]:
    """Format the two collectives in which ranks differ, to the byte where they would read alike."""
    places = (disputed.rank, disputed.row), (disputed.other_rank, disputed.other_row)
    contents = [_read_content(trace, *place) for place in places if place[1] != NONE]
    sizes = [size for _, size in contents]
    exact = len(set(sizes)) > len({format_bytes(size) for size in sizes})
    own, other = (describe_collective(trace, *place, exact=exact) for place in places)
    return own, other


def describe_collective(trace: Trace, number: int, row: int, *, exact: bool = False) -> str:
    """Format a rank's collective for messages; row -1 means none. `exact` gives its size to the byte."""
    if row == NONE:
        return "none"
    kind, size = _read_content(trace, number, row)
    name = "a collective without type" if kind == NONE else label_collective(kind)
    text = "no size" if size == NONE else f"{size:,} B" if exact else format_bytes(size)
    rank = trace.rank(number)
    assert rank is not None
    return f"{name} of {text} (node {int(trace.graph_of(rank).id[row])})"


def _read_content(trace: Trace, number: int, row: int) -> tuple[int, int]:
    """Return the type and the size of a rank's collective, -1 for what it does not name."""
    rank = trace.rank(number)
    assert rank is not None
    values = []
    for key in ("comm_type", "comm_size"):
        rows, column = read_int_column(trace.graph_of(rank), key)
        where = np.flatnonzero(rows == row)
        values.append(int(column[where[0]]) if len(where) else NONE)
    return values[0], values[1]


def is_certain(trace: Trace, group: GroupMatching, disputed: Disagreement) -> bool:
    """Whether the ranks disagree independently of timing: different collectives, or an order fixed by dependencies."""
    if group.by_number:
        return True
    first, second = (group.find_sequence(number) for number in (disputed.rank, disputed.other_rank))
    if sorted(zip(first.type.tolist(), first.bytes.tolist(), strict=True)) != sorted(
        zip(second.type.tolist(), second.bytes.tolist(), strict=True)
    ):
        return True
    return all(
        _is_fixed(trace, number, sequence, disputed.position)
        for number, sequence in ((disputed.rank, first), (disputed.other_rank, second))
    )


def _is_fixed(trace: Trace, number: int, sequence: Collectives, position: int) -> bool:
    """Whether on this rank every earlier collective comes before the one at `position`, and that before every later one."""
    rank = trace.rank(number)
    assert rank is not None
    graph = trace.graph_of(rank)
    (ctrl_of, ctrl), (data_of, data) = list_edges(graph.ctrl), list_edges(graph.data)
    network = build_network(len(graph), np.concatenate([ctrl, data]), np.concatenate([ctrl_of, data_of]))
    row = int(sequence.rows[position])
    before, after = find_reachable(network, row, backwards=True), find_reachable(network, row)
    return bool(
        np.isin(sequence.rows[:position], before).all() and np.isin(sequence.rows[position:], after).all()
    )


# ---------------------------------------------------------------------------------------------------
# Sends and receives


def _find_self_sends(trace: Trace, messages: Messages) -> Iterator[Finding]:
    itself = np.flatnonzero(messages.source == messages.target)
    for row in itself[:1].tolist():
        half = describe_half(trace, messages, row, receives=bool(messages.send_row[row] == NONE))
        message = f"Rank {int(messages.source[row])} sends to itself{_format_repeats(len(itself))}: {half}."
        yield Finding("error", "self-message", message, "Remove the send and its receive.")


def _find_unmatched(trace: Trace, messages: Messages, groups: Sequence[GroupMatching]) -> Iterator[Finding]:
    # Messages without a known source or target have a finding of their own, and so have ranks that are missing.
    unmatched = find_unmatched(trace, messages, lambda: estimate_clock_leads(trace, groups))
    numbers = [rank.number for rank in trace.ranks]
    both = np.isin(messages.source, numbers) & np.isin(messages.target, numbers)
    receives, sends = (rows[both[rows]] for rows in (unmatched.receives, unmatched.sends))
    for row in receives[:_SHOWN].tolist():
        message = f"{describe_half(trace, messages, row, receives=True)} is never sent"
        near = unmatched.nearest(messages, row, receives=True)
        message += (
            f"; nearest is {describe_half(trace, messages, near, receives=False)}" if near is not None else ""
        )
        hint = "Source, target, tag and size of both sides must agree."
        yield Finding("error", "receive-unmatched", f"{message}.", hint, int(messages.target[row]))
    if len(receives) > _SHOWN:
        yield Finding(
            "error",
            "receive-unmatched",
            f"{format_counted(len(receives) - _SHOWN, 'more receive has', 'more receives have')} no send.",
        )
    if len(sends):
        rest = f", and {format_count(len(sends) - 1)} more" if len(sends) > 1 else ""
        message = f"{describe_half(trace, messages, int(sends[0]), receives=False)} is never received{rest}."
        yield Finding("warning", "send-unmatched", message, "It completes all the same, on arrival.")


def _format_repeats(count: int) -> str:
    return "" if count == 1 else f", {count:,} times"


def describe_half(trace: Trace, messages: Messages, message: int, *, receives: bool) -> str:
    """Format the send or the receive of a message."""
    rank = trace.ranks[int((messages.receive_rank if receives else messages.send_rank)[message])]
    row = int((messages.receive_row if receives else messages.send_row)[message])
    what = f"{format_counted(int(messages.bytes[message]), 'byte')}, tag {int(messages.tag[message])}, {label_node(trace.graph_of(rank), row)}"
    source, target = int(messages.source[message]), int(messages.target[message])
    if receives:
        return f"rank {rank.number}'s receive from rank {source} ({what})"
    return f"rank {rank.number}'s send to rank {target} ({what})"


def _find_foreign(trace: Trace, messages: Messages) -> Iterator[Finding]:
    """Find sends whose source, and receives whose target, is another rank."""
    numbers = np.array([*(rank.number for rank in trace.ranks), NONE], np.int64)
    wrong = (messages.send_row != NONE) & (numbers[messages.send_rank] != messages.source)
    wrong |= (messages.receive_row != NONE) & (numbers[messages.receive_rank] != messages.target)
    rows = np.flatnonzero(wrong)
    if len(rows):
        first = int(rows[0])
        side = "send" if messages.send_row[first] != NONE else "receive"
        rank = int(numbers[(messages.send_rank if side == "send" else messages.receive_rank)[first]])
        key = "comm_src" if side == "send" else "comm_dst"
        named = messages.source if side == "send" else messages.target
        message = (
            f"Rank {rank} has a {side} whose {key} is rank {int(named[first])}{_format_repeats(len(rows))}."
        )
        yield Finding(
            "error", "foreign-message", message, f"{key} of a {side} is its own rank, or left out.", rank
        )
