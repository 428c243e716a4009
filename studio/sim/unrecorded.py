"""Say what a recording lacks so that its communication cannot be matched across ranks: a job that ran does not hang by itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from studio.trace import Finding, NodeType, Trace, read_int_column
from studio.units import format_counted

COMPLETE = (
    "studio.complete, or `chakra-studio complete`, makes missing ranks of recorded ones; `with_recorded_times()` of a system's config, or --replay, "
    "replays the known ones with their recorded times."
)
"""What to do about a job of which some ranks are missing."""
_TALKS = (NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.COMM_RECV)


def explain_incomplete_group(ranks: Sequence[int], npus: int) -> str:
    """Return what to do about a comm group that has not each rank from 0 to the number of NPUs once.

    Example:
        >>> explain_incomplete_group([0, 0], 2)
        'Correct the comm group file.'
    """
    if any(rank >= npus for rank in ranks):
        return f"Ranks of the group are missing from the job: {COMPLETE}"
    return "Correct the comm group file."


def check_missing_facts(trace: Trace) -> Finding | None:
    """Return what was not recorded of a job's communication, None where nothing known to matter is missing.

    Args:
        trace: A job that cannot be simulated as it is.
    """
    untimed = many = lost = 0
    counts: dict[int, int] = {}
    for rank in trace.ranks:
        graph = trace.graph_of(rank)
        talks = np.isin(graph.type, _TALKS)
        if not (graph.start_ns >= 0).any():
            continue
        many += int(talks.sum())
        counts[rank.number] = int((graph.type == NodeType.COMM_COLL).sum())
        untimed += int((talks & (graph.start_ns < 0)).sum())
        receives = np.flatnonzero(graph.type == NodeType.COMM_RECV)
        lost += int(np.isin(receives, read_int_column(graph, "comm_src", rank.slots)[0], invert=True).sum())
    if untimed:
        return Finding(
            "warning",
            "communication-unrecorded",
            f"{format_counted(untimed, 'communication node')} of {many:,} have no recorded time, as calls on threads "
            "of the script that the profiler did not record: neither their order nor their comm group is known.",
            "Record with studio.collect, which records all threads and the group of every call.",
        )
    if lost:
        return Finding(
            "warning",
            "communication-unrecorded",
            f"The recording holds no send for {format_counted(lost, 'receive')} from any rank: it began before the recording, "
            "or on a rank that is not there.",
            "Record from the beginning of a step on all ranks, or name the source where the script receives.",
        )
    if (
        len(trace.groups) == 1
        and len(counts) > 1
        and len(set(trace.groups[0].ranks) & counts.keys()) == len(counts)
    ):
        most, least = (choose(counts, key=counts.__getitem__) for choose in (max, min))
        if counts[most] > counts[least]:
            return Finding(
                "warning",
                "communication-unrecorded",
                f"The recording holds {format_counted(counts[most], 'collective')} of rank {most} and {counts[least]:,} of rank {least}, all "
                "in one comm group: calls on threads that the profiler did not record, or at the border of the recording, are missing.",
                "Record whole steps with studio.collect, which records all threads.",
            )
    return None


def find_unrecorded_ranks(trace: Trace) -> set[int]:
    """Return the ranks whose recordings lack collectives, or have some without a time."""
    return {rank.number for rank in trace.ranks if rank.lacks_calls}


def format_first_ranks(ranks: Sequence[int]) -> str:
    """Return ranks in the order of their group as text, the first eight one by one.

    Example:
        >>> format_first_ranks((2, 0)), format_first_ranks(range(1024))
        ('2, 0', '0, 1, 2, 3, 4, 5, 6, 7, … (1,024 in all)')
    """
    shown = ", ".join(map(str, ranks[:8]))
    return f"{shown}, … ({len(ranks):,} in all)" if len(ranks) > 8 else shown
