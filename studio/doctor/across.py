"""Checks across ranks: which ranks are missing, and where their comm groups and collectives contradict each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice

import numpy as np

from studio.analysis.collectives.matching import Collectives, Disagreement, GroupMatching, find_disagreement
from studio.analysis.job.completeness import format_ranges, infer_completeness, is_recording
from studio.analysis.job.files import LEFT_OUT
from studio.doctor.diagnosis import Case, Found, NodeAt
from studio.doctor.hangs import is_flight
from studio.doctor.inferred import RAN, are_counted
from studio.doctor.roots import find_wrong_root
from studio.doctor.splits import find_differing_split
from studio.et.rank_names import parse_rank_and_prefix
from studio.sim.agreement import describe_disputed, format_ranks, is_certain, label_group
from studio.sim.borders import describe_borders
from studio.trace import NONE, UNEVEN_TYPES, CollectiveType, Finding, Int64, Level
from studio.units import format_bytes, format_count, format_count_range, format_counted

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
        is_repairable=False,
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
        is_repairable=False,
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
        is_repairable=not certain and not several_runs,
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
