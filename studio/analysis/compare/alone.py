"""Nodes that only one of two runs has, added up by name."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from studio.analysis.compare.alignment import Alignment
from studio.analysis.compare.runs import Side, durations
from studio.analysis.job.kernels import family
from studio.notebook import one_line


@dataclass(frozen=True, slots=True)
class AloneName:
    """Nodes of one name that only one side has, among ranks that both have.

    Attributes:
        name: As recorded, with * for numbers of steps, layers and the like; untrusted text.
        count: How many there are, on all ranks.
        total_ns: How long they run, added up; those without times do not count.
    """

    name: str
    count: int
    total_ns: int

    __repr__ = one_line


def alone_by_name(side: Side, alignment: Alignment, *, of_b: bool) -> list[AloneName]:
    """Return the nodes that only one side has by their names, those that take most first.

    Args:
        side: The side that has them.
        alignment: Which node is which of the other side.
        of_b: Whether it is the second side.
    """
    counts: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    ranks = alignment.rank_b if of_b else alignment.rank_a
    for index, pairs in enumerate(alignment.pairs):
        rows = pairs.only_b if of_b else pairs.only_a
        mine = ranks[alignment.pairs_of == index]
        if not len(rows) or not len(mine):
            continue
        graph = side.trace.graph_of(side.trace.ranks[int(mine[0])])
        codes, code = np.unique(graph.name[rows], return_inverse=True)
        names = [family(graph.strings[text]) for text in codes.tolist()]
        for name, count in zip(names, np.bincount(code).tolist(), strict=True):
            counts[name] += count * len(mine)
        # Ranks with equal times are looked at once.
        _, distinct, many = np.unique(side.times.first[mine], return_index=True, return_counts=True)
        for rank, times in zip(mine[distinct].tolist(), many.tolist(), strict=True):
            total = np.zeros(len(codes), np.int64)
            np.add.at(total, code, np.maximum(durations(side, rank, rows), 0))
            for name, ns in zip(names, total.tolist(), strict=True):
                totals[name] += times * ns
    found = [AloneName(name, count, totals[name]) for name, count in counts.items()]
    return sorted(found, key=lambda one: (-one.total_ns, -one.count, one.name))
