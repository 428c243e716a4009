"""Exposed communication and bubbles of each rank by comm group and collective."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from studio.analysis.job.blame import Wanted
from studio.analysis.job.ledger import EXPOSED, PARTS, Ledger, Part
from studio.analysis.job.windows import build_whole_windows
from studio.notebook import format_record
from studio.trace import (
    NONE,
    WORLD,
    Bool,
    CommGroup,
    Graph,
    Int64,
    NodeType,
    Trace,
    group_slots,
    label_collective,
    list_world_names,
    read_dense_column,
)

COLUMNS: tuple[Part, ...] = ("bubble", *EXPOSED)
"""The parts that belong to communication and are not hidden by work."""
_COLUMN = np.array([COLUMNS.index(part) if part in COLUMNS else NONE for part in PARTS])
_SEND, _RECEIVE = 1 << 20, 1 << 20 | 1
_TYPES = {_SEND: "SEND", _RECEIVE: "RECV"}


@dataclass(frozen=True, slots=True)
class GroupTimes:
    """Time of each rank in the communication of one type and group, that no work hid; by rank, the longest first.

    G entries, K ranks with times.

    Attributes:
        rank: (G,) index into the ranks of the ledger.
        group: (G,) name of the comm group, "" for the group of all ranks and for messages that name none.
        type: (G,) name of the collective; SEND and RECV are messages.
        ns: (G, 6) time in each of `COLUMNS`.
    """

    rank: Int64
    group: tuple[str, ...]
    type: tuple[str, ...]
    ns: Int64

    __repr__ = format_record

    def __len__(self) -> int:
        return len(self.rank)

    def only(self, group: str) -> GroupTimes:
        """Return the entries of one comm group."""
        at = [index for index, name in enumerate(self.group) if name == group]
        types = tuple(self.type[index] for index in at)
        return GroupTimes(self.rank[at], (group,) * len(at), types, self.ns[at])


def sum_group_times(
    trace: Trace, account: Ledger, windows: Int64 | None = None, groups: Sequence[CommGroup] | None = None
) -> GroupTimes:
    """Return whose communication each rank's exposed time and bubbles are; they add up to those of the ledger.

    Args:
        trace: The job.
        account: Where the time of its ranks went.
        windows: (K, 2) what is looked at of each rank, in ns after the beginning of the run; None is all of it.
        groups: Comm groups in place of the trace's.
    """
    shown = build_whole_windows(account) if windows is None else windows
    world = list_world_names(
        trace.groups if groups is None else groups, [rank.number for rank in trace.ranks]
    )
    codes = {index: _number_groups(trace.graphs[index]) for index in {rank.graph for rank in trace.ranks}}
    stretches, rows = account.stretches, []
    exposed = np.flatnonzero((_COLUMN[stretches.kind] != NONE) & (account.owner != NONE))
    bounds = np.searchsorted(exposed, stretches.bounds)
    for rank, (place, course) in enumerate(
        zip(account.places.tolist(), account.course.tolist(), strict=True)
    ):
        chosen = exposed[bounds[course] : bounds[course + 1]]
        start, end = shown[rank].tolist()
        time = np.minimum(stretches.end[chosen], end) - np.maximum(stretches.start[chosen], start)
        chosen, time = chosen[time > 0], time[time > 0]
        code = codes[trace.ranks[place].graph][account.owner[chosen] - account.first[place]]
        used, of = np.unique(code, return_inverse=True)
        table = np.zeros((len(used), len(COLUMNS)), np.int64)
        np.add.at(table, (of, _COLUMN[stretches.kind[chosen]]), time)
        total = table.sum(axis=1)
        for at in np.lexsort((used, -total)).tolist():
            slot, kind = divmod(int(used[at]), 1 << 32)
            name = WORLD if slot == 0 else str(trace.ranks[place].slots[slot - 1])
            kind_name = _TYPES.get(kind) or label_collective(kind - 1)
            rows.append((rank, WORLD if name in world else name, kind_name, table[at]))
    return GroupTimes(
        np.array([row[0] for row in rows], np.int64),
        tuple(row[1] for row in rows),
        tuple(row[2] for row in rows),
        np.array([row[3] for row in rows], np.int64).reshape(-1, len(COLUMNS)),
    )


def build_group_filter(
    trace: Trace, wanted: Collection[str], groups: Sequence[CommGroup] | None = None
) -> Wanted:
    """Return what tells whether nodes of a rank name one of some comm groups; "" is the group of all ranks."""
    world = list_world_names(
        trace.groups if groups is None else groups, [rank.number for rank in trace.ranks]
    )
    slots = {index: group_slots(trace.graphs[index]) for index in {rank.graph for rank in trace.ranks}}

    def is_wanted(place: int, rows: Int64) -> Bool:
        rank = trace.ranks[place]
        names = [WORLD, *map(str, rank.slots)]
        fits = np.array(
            [(WORLD if own_name in world else own_name) in wanted for own_name in names], np.bool_
        )
        return np.asarray(fits[slots[rank.graph][rows] + 1])

    return is_wanted


def _number_groups(graph: Graph) -> Int64:
    """Return (N,) group slot and type of each node as one number, both one higher than they are written."""
    kind = read_dense_column(graph, "comm_type", NONE) + 1
    kind[graph.type == NodeType.COMM_SEND] = _SEND
    kind[graph.type == NodeType.COMM_RECV] = _RECEIVE
    return np.asarray(((group_slots(graph) + 1) << 32) + np.clip(kind, 0, (1 << 31) - 1), np.int64)
