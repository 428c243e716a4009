"""The members of all comm groups in one list, to find a rank in its group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from studio.sim.fold_job import Unfoldable
from studio.trace import CommGroup, Int64


@dataclass(slots=True)
class GroupMembers:
    """The comm groups that ranks use, their members in one list.

    G groups, M members of all groups together.

    Attributes:
        names: Of the groups.
        start, size: (G,) where the members of each begin, and how many they are.
        members: (M,) their ranks.
        slot: (M,) the first slot in which the member names the group, -1 where it does not.
        by_rank: (M,) places sorted by group and rank.
        key: (M,) group × ranks + rank in that order.
    """

    names: list[str]
    start: Int64
    size: Int64
    members: Int64
    slot: Int64
    by_rank: Int64
    key: Int64

    @staticmethod
    def of(groups: Sequence[CommGroup], npus: int) -> GroupMembers:
        """Return the members of groups in a job on so many NPUs.

        Raises:
            Unfoldable: A group has a rank that is not there, or twice.
        """
        size = np.array([len(group.ranks) for group in groups], np.int64)
        start = np.cumsum(size) - size
        members = np.fromiter((r for group in groups for r in group.ranks), np.int64, int(size.sum()))
        if len(members) and (members.min() < 0 or members.max() >= npus):
            raise Unfoldable("a comm group has a rank that is not there")
        key = np.repeat(np.arange(len(groups)), size) * npus + members
        by_rank = np.argsort(key, kind="stable")
        key = key[by_rank]
        if (key[1:] == key[:-1]).any():
            raise Unfoldable("a comm group has a rank twice")
        names = [group.name for group in groups]
        return GroupMembers(names, start, size, members, np.full(len(members), -1, np.int64), by_rank, key)

    def entries(self, group: Int64, rank: Int64, npus: int) -> Int64:
        """Return where in the list of members the ranks are; -1 where they are no members."""
        if not len(self.key):
            return np.full(len(rank), -1, np.int64)
        position = np.minimum(np.searchsorted(self.key, group * npus + rank), len(self.key) - 1)
        entry: Int64 = np.where(self.key[position] == group * npus + rank, self.by_rank[position], -1)
        return entry
