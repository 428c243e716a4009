"""Repairs of what stands beside the graphs of a job: its comm groups and the clocks of its ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from studio.doctor import edit
from studio.doctor.changes import SHOWN, Change, Tick
from studio.doctor.diagnosis import Case
from studio.sim.agreement import format_ranks
from studio.trace import Graph, Trace
from studio.units import format_counted, format_ns


def list_groups(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    """Add comm groups that nodes name and the job does not list."""
    case = Case(trace, tick)
    members = {
        usage.name: usage.members for usage in case.groups if usage.name and usage.name not in case.listed
    }
    known = {group.name for group in trace.groups}
    groups = [
        replace(group, ranks=members[group.name], inferred=False) if group.name in members else group
        for group in trace.groups
    ]
    assert known.issuperset(members), "every group that nodes name is listed or inferred"
    first = [f"{name}: {format_ranks(sorted(ranks))}" for name, ranks in members.items()]
    what = f"{format_counted(len(members), 'comm group')} listed"
    return replace(trace, groups=tuple(groups)), [Change(what, len(members), tuple(first[:SHOWN]))]


def align_clocks(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    """Move the recorded times of ranks whose clocks are ahead of or behind the others."""
    offset = {clock.rank: clock.offset_ns for clock in Case(trace, tick).clocks if clock.is_skewed}
    wanted = {index: offset[rank.number] for index, rank in enumerate(trace.ranks) if rank.number in offset}
    # Times count from 0: where a clock would go below, all ranks move up by as much.
    starts = [trace.graph_of(rank).start_ns for rank in trace.ranks]
    earliest = [int(times[times >= 0].min(initial=2**62)) for times in starts]
    lift = max(0, -min((earliest[index] - by for index, by in wanted.items()), default=0))
    if lift:
        wanted = {index: wanted.get(index, 0) - lift for index in range(len(trace.ranks))}

    def change(graph: Graph, by: object) -> Graph:
        assert isinstance(by, int)
        moved = np.minimum(graph.start_ns, 2**63 - 1 + min(by, 0)) - by
        return replace(graph, start_ns=np.where(graph.start_ns >= 0, moved, graph.start_ns))

    repaired = edit.change_ranks(trace, wanted, change, tick) if offset else trace
    first = tuple(
        f"rank {rank}: {format_ns(abs(by))} {'earlier' if by > 0 else 'later'}" for rank, by in offset.items()
    )
    return repaired, [Change(f"{format_counted(len(offset), 'clock')} moved", len(offset), first[:SHOWN])]
