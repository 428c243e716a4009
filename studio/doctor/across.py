"""Checks across ranks: who is missing, and where ranks disagree with each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from studio.analysis.matching import Collectives, Disagreement, GroupMatching, disagreement
from studio.doctor.clocks import clock_offsets
from studio.doctor.content import metadata_number
from studio.doctor.diagnosis import NODES_NAMED, Case, Found, NodeAt, by_rank
from studio.doctor.structure import counted
from studio.sim.agreement import (
    collective_label,
    group_label,
    half_label,
    is_certain,
    node_label,
    rank_list,
)
from studio.trace import NONE, CollectiveType, Graph, Int64, Level
from studio.units import format_bytes, format_count, format_ns

_CLOCKS_TOLD = 8
_FAR_APART_NS = 1_000_000
_GROUPS_TOLD = 8
"""Groups told one by one; the rest is counted."""


# ---------------------------------------------------------------------------------------------------
# Ranks and groups


def missing_ranks(case: Case) -> Iterator[Found]:
    """Yield ranks that the numbers of the others, the files or the comm groups tell of."""
    present = {rank.number for rank in case.trace.ranks}
    if not present:
        return
    told: list[tuple[str, set[int]]] = [("the numbers of the others", set(range(max(present) + 1)))]
    world = max(metadata_number(rank, "world_size") for rank in case.trace.ranks)
    if max(present) < world <= max(1 << 20, 2 * len(present)):
        told.append((f"a world of {world:,} ranks in the files", set(range(world))))
    used = {group.name for group in case.groups}
    named = {rank for name, group in case.listed.items() if name in used for rank in group.ranks}
    told.append(("the comm groups", named))
    absent = sorted({rank for _, ranks in told for rank in ranks} - present)
    if absent:
        sources = [text for text, ranks in told if ranks - present]
        yield Found(
            "error",
            f"{rank_list(absent)[0].upper()}{rank_list(absent)[1:]} {'is' if len(absent) == 1 else 'are'} missing, "
            f"as {' and '.join(sources)} tell.",
            tuple(absent),
            (),
            len(absent),
            (("ranks in the job", format_count(len(present))), ("missing", format_count(len(absent)))),
        )


def group_outsiders(case: Case) -> Iterator[Found]:
    """Yield nodes that name a comm group their rank is not in."""
    for at, group in enumerate(one for one in case.groups if one.outsiders):
        if at == _GROUPS_TOLD:
            rest = sum(1 for one in case.groups if one.outsiders) - _GROUPS_TOLD
            yield Found("error", f"{counted(rest, 'more group')} {'is' if rest == 1 else 'are'} like this.")
            return
        members = rank_list(sorted(group.members))
        yield Found(
            "error",
            f"Nodes of {rank_list(sorted(group.outsiders))} name {group_label(group)}, whose members are {members}.",
            tuple(sorted(group.outsiders)),
            (),
            len(group.outsiders),
        )


def unlisted_groups(case: Case) -> Iterator[Found]:
    """Yield comm groups whose members are written nowhere."""
    found = [one for one in case.groups if one.name and one.name not in case.listed]
    if found:
        names = ", ".join(f"{one.name} ({rank_list(sorted(one.members))})" for one in found[:4])
        more = ", …" if len(found) > 4 else "."
        yield Found(
            "warning",
            f"{counted(len(found), 'comm group')} {'is' if len(found) == 1 else 'are'} listed nowhere; the ranks whose "
            f"nodes name {'it' if len(found) == 1 else 'them'} were taken for members: {names}{more}",
            tuple(sorted({rank for one in found for rank in one.members})),
            (),
            len(found),
        )


# ---------------------------------------------------------------------------------------------------
# Collectives


def comparable(group: GroupMatching) -> GroupMatching:
    """Return a group without the sizes of its all-to-alls, to which ranks may bring different ones."""
    return replace(
        group,
        sequences=tuple(
            replace(one, bytes=np.where(one.type == CollectiveType.ALL_TO_ALL, 0, one.bytes))
            for one in group.sequences
        ),
    )


def collectives(case: Case) -> Iterator[Found]:
    """Yield the first collective of each group in which its members do different things."""
    told = 0
    for group, ordered in zip(case.groups, case.ordered, strict=True):
        plain = comparable(group)
        found = disagreement(plain)
        if found is None and group.by_number:
            plain = comparable(ordered)
            found = disagreement(plain)
        if found is None:
            continue
        told += 1
        if told <= _GROUPS_TOLD:
            yield _disagreement(case, plain, found)
    if told > _GROUPS_TOLD:
        rest = told - _GROUPS_TOLD
        yield Found("error", f"{counted(rest, 'more group')} {'disagrees' if rest == 1 else 'disagree'}.")


def _disagreement(case: Case, group: GroupMatching, found: Disagreement) -> Found:
    certain = is_certain(case.trace, group, found)
    own = collective_label(case.trace, found.rank, found.row)
    other = collective_label(case.trace, found.other_rank, found.other_row)
    will = "will hang" if certain else "may hang"
    message = (
        f"This job {will} in a simulator at collective {found.position} of {group_label(group)}, because "
        f"rank {found.rank} has {own} where rank {found.other_rank} has {other}."
    )
    if not certain:
        message += " Both have the same collectives in another order, and no dependencies fix their order."
    nodes = ((found.rank, found.row), (found.other_rank, found.other_row))
    counts = [group.sequences[at].count for at in group.sequence_of.tolist() if at != NONE]
    level: Level = "error" if certain else "warning"
    return Found(
        level,
        message,
        tuple(sorted({found.rank, found.other_rank})),
        tuple(NodeAt(rank, row) for rank, row in nodes if row != NONE),
        1,
        (
            ("they differ in", _differs_in(group, found)),
            ("members", rank_list(sorted(group.members))),
            ("collectives of a member", _range(min(counts), max(counts))),
        ),
        mends=not certain,
    )


def _range(least: int, most: int) -> str:
    return format_count(least) if least == most else f"{format_count(least)} to {format_count(most)}"


def _differs_in(group: GroupMatching, found: Disagreement) -> str:
    """Return in what two ranks differ: number, membership, order, type or size."""
    one, other = (
        group.sequences[int(group.sequence_of[group.members.index(number)])]
        for number in (found.rank, found.other_rank)
    )
    if not one.count or not other.count:
        return "membership: one of them has no collective of the group"
    if NONE in (found.row, found.other_row):
        missing = f"; number {_number(one, found)} is missing" if group.by_number else ""
        return f"number: {counted(one.count, 'collective')} and {counted(other.count, 'collective')}{missing}"
    contents = [sorted(zip(each.type.tolist(), each.bytes.tolist(), strict=True)) for each in (one, other)]
    if contents[0] == contents[1]:
        return "order"
    return "type" if one.type[found.position] != other.type[found.position] else "size"


def _number(sequence: Collectives, found: Disagreement) -> int:
    return int(sequence.number[found.position])


def uneven_sizes(case: Case) -> Iterator[Found]:
    """Yield groups whose members bring different sizes to an all-to-all, and agree in all else."""
    worst: tuple[float, GroupMatching, int, Int64] | None = None
    uneven = []
    for group in case.groups:
        if disagreement(group) is None or disagreement(comparable(group)) is not None:
            continue
        uneven.append(group)
        present = group.sequence_of[group.sequence_of >= 0]
        sizes = np.stack([one.bytes for one in group.sequences])[present]
        apart = (sizes.max(axis=0) - sizes.min(axis=0)).astype(np.float64)
        at = int(np.argmax(apart))
        if worst is None or apart[at] > worst[0]:
            worst = (float(apart[at]), group, at, sizes[:, at])
    if worst is not None:
        _, group, at, sizes = worst
        names = ", ".join(group_label(one) for one in uneven[:4]) + (", …" if len(uneven) > 4 else "")
        mean = float(sizes.astype(np.float64).mean())
        yield Found(
            "warning",
            f"Members of {names} bring different sizes to the same all-to-alls: in collective {at} of "
            f"{group_label(group)} {format_bytes(int(sizes.min()))} to {format_bytes(int(sizes.max()))}.",
            tuple(sorted({rank for one in uneven for rank in one.members})),
            (),
            len(uneven),
            (("max / mean there", f"{float(sizes.max()) / mean:.3f}" if mean else "–"),),
        )


# ---------------------------------------------------------------------------------------------------
# Messages


def _pairs(case: Case, chosen: Int64, *, receives: bool) -> tuple[tuple[int, ...], tuple[NodeAt, ...]]:
    """Return the ranks and first nodes of one side of some messages."""
    messages = case.messages
    rank = (messages.receive_rank if receives else messages.send_rank)[chosen]
    row = (messages.receive_row if receives else messages.send_row)[chosen]
    numbers = sorted({case.trace.ranks[at].number for at in np.unique(rank).tolist()})
    nodes = by_rank(case.trace, zip(rank[:NODES_NAMED].tolist(), row[:NODES_NAMED].tolist(), strict=True))
    return tuple(numbers), tuple(nodes)


def unsent(case: Case) -> Int64:
    """Return the messages that are received and never sent; those of which one end is not recorded may well be."""
    return np.flatnonzero((case.messages.send_row == NONE) & case.messages.known)


def unreceived(case: Case) -> Int64:
    """Return the messages that are sent and never received, likewise."""
    return np.flatnonzero((case.messages.receive_row == NONE) & case.messages.known)


def receives_unmatched(case: Case) -> Iterator[Found]:
    """Yield receives that nobody sends."""
    yield from _unmatched(case, unsent(case), receives=True)


def sends_unmatched(case: Case) -> Iterator[Found]:
    """Yield sends that nobody receives."""
    yield from _unmatched(case, unreceived(case), receives=False)


def _unmatched(case: Case, chosen: Int64, *, receives: bool) -> Iterator[Found]:
    if not len(chosen):
        return
    ranks, nodes = _pairs(case, chosen, receives=receives)
    first = half_label(case.trace, case.messages, int(chosen[0]), receives=receives)
    noun, verb = ("receive", "sent") if receives else ("send", "received")
    near = _nearest(case, int(chosen[0]), unreceived(case) if receives else unsent(case))
    nearest = ""
    if near is not None:
        nearest = f"; nearest is {half_label(case.trace, case.messages, near, receives=not receives)}"
    yield Found(
        "error" if receives else "warning",
        f"{counted(len(chosen), noun)} of {rank_list(ranks)} {'is' if len(chosen) == 1 else 'are'} never {verb}: "
        f"{first}{nearest}.",
        ranks,
        nodes,
        len(chosen),
        (("messages in the job", format_count(len(case.messages))),),
    )


def _nearest(case: Case, at: int, others: Int64) -> int | None:
    """Return a half without partner between the same ranks, of the same tag if there is one."""
    messages = case.messages
    same = others[
        (messages.source[others] == messages.source[at]) & (messages.target[others] == messages.target[at])
    ]
    if not len(same):
        return None
    return int(same[np.argmax(messages.tag[same] == messages.tag[at])])


def self_messages(case: Case) -> Iterator[Found]:
    """Yield messages a rank sends to itself."""
    messages = case.messages
    chosen = np.flatnonzero(messages.source == messages.target)
    if len(chosen):
        at = int(chosen[0])
        receives = bool(messages.send_row[at] == NONE)
        ranks, nodes = _pairs(case, chosen[messages.send_row[chosen] != NONE], receives=False)
        if not ranks:
            ranks, nodes = _pairs(case, chosen, receives=True)
        first = half_label(case.trace, messages, at, receives=receives)
        yield Found(
            "error",
            f"{counted(len(chosen), 'message')} of {rank_list(ranks)} {'goes' if len(chosen) == 1 else 'go'} to the "
            f"rank {'it comes' if len(chosen) == 1 else 'they come'} from: {first}.",
            ranks,
            nodes,
            len(chosen),
        )


def unknown_peers(case: Case) -> Iterator[Found]:
    """Yield sends that do not say where to, and receives that do not say where from."""
    messages = case.messages
    for receives, row, key in (
        (False, messages.send_row, "comm_dst"),
        (True, messages.receive_row, "comm_src"),
    ):
        chosen = np.flatnonzero((row != NONE) & ~messages.known)
        if not len(chosen):
            continue
        ranks, nodes = _pairs(case, chosen, receives=receives)
        noun = "receive" if receives else "send"
        whom = "where they come from" if receives else "where they go"
        if len(chosen) == 1:
            whom = "where it comes from" if receives else "where it goes"
        yield Found(
            "error",
            f"{counted(len(chosen), noun)} of {rank_list(ranks)} {'does' if len(chosen) == 1 else 'do'} not say {whom} "
            f"({key} is not recorded): {node_label(_graph_of(case, nodes[0]), nodes[0].row)} of rank {nodes[0].rank}.",
            ranks,
            nodes,
            len(chosen),
            ((f"{noun}s in the job", format_count(int((row != NONE).sum()))),),
        )


def _graph_of(case: Case, node: NodeAt) -> Graph:
    rank = case.trace.rank(node.rank)
    assert rank is not None
    return case.trace.graph_of(rank)


def foreign_messages(case: Case) -> Iterator[Found]:
    """Yield sends in another rank's name, and receives for another rank."""
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
            ranks, nodes = _pairs(case, chosen, receives=receives)
            side = "receive" if receives else "send"
            named = int((messages.target if receives else messages.source)[chosen[0]])
            yield Found(
                "error",
                f"{counted(len(chosen), side)} of {rank_list(ranks)} {'names' if len(chosen) == 1 else 'name'} another "
                f"rank in {key}, such as rank {named}; it is the own rank there, or nothing.",
                ranks,
                nodes,
                len(chosen),
            )


# ---------------------------------------------------------------------------------------------------
# Clocks


def clock_skew(case: Case) -> Iterator[Found]:
    """Yield ranks whose clocks are apart, as the ends of matched collectives show, and such as linking moved far."""
    yield from _moved_clocks(case)
    offsets = clock_offsets(case)
    skewed = [one for one in offsets if one.is_skewed]
    if skewed:
        worst = max(skewed, key=lambda one: abs(one.offset_ns))
        ahead = "ahead of" if worst.offset_ns > 0 else "behind"
        base = min(one.rank for one in offsets)
        yield Found(
            "warning",
            f"The clock{'s' if len(skewed) > 1 else ''} of {rank_list([one.rank for one in skewed])} "
            f"{'differ' if len(skewed) > 1 else 'differs'} from that of rank {base}: rank {worst.rank} is "
            f"{format_ns(abs(worst.offset_ns))} {ahead} it.",
            tuple(one.rank for one in skewed),
            (),
            len(skewed),
            (
                ("largest offset", f"{worst.offset_ns:+,} ns (rank {worst.rank})"),
                ("median distance that stays", format_ns(max(one.residual_ns for one in skewed))),
                ("collectives compared", format_count(worst.matched)),
            ),
        )


def _moved_clocks(case: Case) -> Iterator[Found]:
    """Yield what linking wrote about clocks that were far apart before it aligned them."""
    moved = {rank.number: metadata_number(rank, "clock_offset_ns") for rank in case.trace.ranks}
    # -1 stands for no such number; a nanosecond is no skew either.
    far = {rank: by for rank, by in moved.items() if abs(by) >= _FAR_APART_NS}
    if not far:
        return
    worst = max(far, key=lambda rank: abs(far[rank]))
    residual = {rank.number: metadata_number(rank, "clock_residual_ns") for rank in case.trace.ranks}
    yield Found(
        "info",
        f"Linking moved the clock{'s' if len(far) > 1 else ''} of {rank_list(sorted(far))}, by up to "
        f"{format_ns(abs(far[worst]))} (rank {worst}), so that matched collectives end together.",
        tuple(sorted(far)),
        (),
        len(far),
        tuple(
            (f"rank {rank}", f"{far[rank]:+,} ns, {format_ns(max(residual[rank], 0))} stays")
            for rank in sorted(far)[:_CLOCKS_TOLD]
        ),
        "Times of different ranks can be compared as far as the distance that stays allows.",
        mends=False,
    )
