"""How many members a comm group has, where not all ranks of the job are open.

A listed group has the ranks of its list. Of others a trace of few of many ranks tells less: old recordings name no group, so that all their
collectives seem to be of one, which has at least the open ranks. What a collective takes in and gives may still tell its members.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from studio.analysis.collectives.matching import GroupMatching
from studio.analysis.job.completeness import lacks_world_size, read_world_size
from studio.analysis.job.inferred_facts import is_inferred
from studio.distinct import find_distinct
from studio.trace import NONE, WORLD, Bool, CollectiveType, CommGroup, Int64, Rank, Trace, read_int_column

_GATHERS = (CollectiveType.ALL_GATHER, CollectiveType.GATHER)
_REDUCES = (CollectiveType.REDUCE_SCATTER, CollectiveType.REDUCE_SCATTER_BLOCK)


@dataclass(frozen=True, slots=True)
class GroupSize:
    """The members of a comm group.

    Attributes:
        members: How many there are, at least.
        is_open: Whether there may be more: nothing tells.
    """

    members: int
    is_open: bool = False


def find_group_sizes(
    trace: Trace, matchings: Sequence[GroupMatching], groups: Sequence[CommGroup] | None = None
) -> list[GroupSize]:
    """Return the size of each matched group.

    Args:
        trace: The job.
        matchings: Its collectives by group.
        groups: Comm groups in place of the trace's.
    """
    world = read_job_size(trace)
    if _are_all_there(trace, world):
        return [GroupSize(len(group.members)) for group in matchings]
    place = {rank.number: index for index, rank in enumerate(trace.ranks)}
    listed = _list_names(trace.groups if groups is None else groups)
    return [
        GroupSize(len(group.members))
        if group.name in listed
        else _find_unlisted_size(trace, group.name, len(group.members), _find_member(group, place), world)
        for group in matchings
    ]


def find_group_size(trace: Trace, name: str, known: int, member: tuple[int, int]) -> GroupSize:
    """Return the size of a comm group of the trace.

    Args:
        trace: The job.
        name: The group's name; "" is the group of all ranks.
        known: How many members are known.
        member: A rank, as its place among the trace's ranks, and its node that names the group.
    """
    world = read_job_size(trace)
    if _are_all_there(trace, world) or name in _list_names(trace.groups):
        return GroupSize(known)
    return _find_unlisted_size(trace, name, known, member, world)


def _are_all_there(trace: Trace, world: int) -> bool:
    """Whether a job has no other ranks than those that are open, as far as its files say."""
    return not lacks_world_size(trace) if world == NONE else world <= len(trace.ranks)


def _list_names(groups: Sequence[CommGroup]) -> set[str]:
    return {group.name for group in groups if group.ranks and not group.inferred}


def read_job_size(trace: Trace) -> int:
    """Return the ranks of the job as its files say, -1 where they do not."""
    if lacks_world_size(trace):
        return NONE
    return max((read_world_size(rank) for rank in trace.ranks), default=NONE)


def _find_unlisted_size(
    trace: Trace, name: str, known: int, member: tuple[int, int] | None, world: int
) -> GroupSize:
    """Return the size of a group that nothing lists, in a job of which some ranks are not open."""
    listed_size = max((_read_listed_size(rank, name) for rank in trace.ranks), default=NONE)
    if listed_size >= known:
        return GroupSize(listed_size)
    if world == NONE:
        return GroupSize(known, is_open=True)
    if name == WORLD and member is not None:
        rank, row = member
        if not is_inferred(trace.graph_of(trace.ranks[rank]), row, "group"):
            return GroupSize(world)
    return GroupSize(known, is_open=known < world)


def infer_member_counts(trace: Trace, place: Int64, row: Int64, kind: Int64) -> Int64:
    """Return (C,) how many members collectives have by what one of them puts in and gets, -1 where that does not tell.

    Args:
        trace: The job.
        place: (C,) a member of each, its place among the trace's ranks.
        row: (C,) its node.
        kind: (C,) CollectiveType.
    """
    given, taken = np.full((2, len(row)), NONE, np.int64)
    for rank in find_distinct(place).tolist():
        chosen = np.flatnonzero(place == rank)
        held = trace.ranks[rank]
        for key, column in (("comm_size", given), ("bytes_out", taken)):
            rows, values = read_int_column(trace.graph_of(held), key, held.slots)
            at = dict(zip(rows.tolist(), values.tolist(), strict=True))
            column[chosen] = [at.get(node, NONE) for node in row[chosen].tolist()]
    gathers = np.isin(kind, _GATHERS)
    whole, part = np.where(gathers, taken, given), np.where(gathers, given, taken)
    tells = (gathers | np.isin(kind, _REDUCES)) & (part > 0) & (whole >= part)
    tells &= whole % np.maximum(part, 1) == 0
    return np.where(tells, whole // np.maximum(part, 1), NONE)


def settle_members(
    trace: Trace, sizes: tuple[Int64, Bool], place: Int64, row: Int64, kind: Int64
) -> tuple[Int64, Bool]:
    """Return (C,) the members of collectives, and whether there may be more.

    Args:
        trace: The job.
        sizes: (C,) members of the group of each, and whether it may have more.
        place: (C,) a member of each, its place among the trace's ranks.
        row: (C,) its node.
        kind: (C,) CollectiveType.
    """
    members, is_open = sizes[0].copy(), sizes[1].copy()
    chosen = np.flatnonzero(is_open)
    if len(chosen):
        counts = infer_member_counts(trace, place[chosen], row[chosen], kind[chosen])
        world = read_job_size(trace)
        fits = (counts >= members[chosen]) & ((counts <= world) | (world == NONE))
        members[chosen[fits]], is_open[chosen[fits]] = counts[fits], False
    return members, is_open


def _find_member(group: GroupMatching, place: dict[int, int]) -> tuple[int, int] | None:
    """Return a member's place among the trace's ranks, and its first node in the group."""
    for member, index in zip(group.members, group.sequence_of.tolist(), strict=True):
        rows = group.sequences[index].rows if index != NONE else np.zeros(0, np.int64)
        rows = rows[rows != NONE]
        if len(rows):
            return place[member], int(rows[0])
    return None


def _read_listed_size(rank: Rank, name: str) -> int:
    """Return the size that a rank's list of process groups gives a group of which it lists no ranks, -1 where it gives none."""
    text = rank.metadata_value("process_groups")
    try:
        listed: Any = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return NONE
    for entry in listed if isinstance(listed, list) else ():
        if (
            isinstance(entry, dict)
            and entry.get("pg_name") == name
            and isinstance(entry.get("group_size"), int)
        ):
            return int(entry["group_size"])
    return NONE


def explain_open(members: int, world: int) -> str:
    """Say what a number of members with a + behind it means.

    Example:
        >>> explain_open(2, 128)
        '2+: the files name no comm group with a list of ranks, and the job has 128: how many more take part is not known, so there is no busbw'
    """
    job = f"and the job has {world:,}" if world != NONE else "nor how many the job has"
    return (
        f"{members:,}+: the files name no comm group with a list of ranks, {job}: how many more take part is "
        "not known, so there is no busbw"
    )
