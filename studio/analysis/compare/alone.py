"""Nodes that only one of two runs has, added up by name."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from studio.analysis.compare.alignment import Alignment
from studio.analysis.compare.sides import Side, compute_durations
from studio.analysis.job.kernels import mask_numbers
from studio.notebook import format_record


@dataclass(frozen=True, slots=True)
class AloneName:
    """Nodes of one name that only one side has, among ranks that both have.

    Attributes:
        name: As recorded, with * for numbers of steps, layers and the like; untrusted text.
        count: How many there are, on all ranks.
        total_ns: How long they run, added up; those without times do not count.
        ranks: How many ranks have some.
        rank, row: Place in the trace, and row of the graph, of the one that runs longest; the first where none has times.
        longest_ns: How long that one runs, -1 where it has no times.
    """

    name: str
    count: int
    total_ns: int
    ranks: int
    rank: int
    row: int
    longest_ns: int

    __repr__ = format_record


def group_alone_by_name(side: Side, alignment: Alignment, *, of_b: bool) -> list[AloneName]:
    """Return the nodes that only one side has by their names, those that take most first.

    Args:
        side: The side that has them.
        alignment: Which node is which of the other side.
        of_b: Whether it is the second side.
    """
    counts: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    having: Counter[str] = Counter()
    longest: dict[str, tuple[int, int, int]] = {}
    ranks = alignment.rank_b if of_b else alignment.rank_a
    for index, pairs in enumerate(alignment.pairs):
        rows = pairs.only_b if of_b else pairs.only_a
        own_ranks = ranks[alignment.pairs_of == index]
        if not len(rows) or not len(own_ranks):
            continue
        graph = side.trace.graph_of(side.trace.ranks[int(own_ranks[0])])
        codes, code = np.unique(graph.name[rows], return_inverse=True)
        names = [mask_numbers(graph.strings[text]) for text in codes.tolist()]
        for name, count in zip(names, np.bincount(code).tolist(), strict=True):
            counts[name] += count * len(own_ranks)
        for name in {*names}:
            having[name] += len(own_ranks)
        # Ranks with equal times are looked at once.
        _, distinct, many = np.unique(side.times.first[own_ranks], return_index=True, return_counts=True)
        for rank, times in zip(own_ranks[distinct].tolist(), many.tolist(), strict=True):
            lasted = compute_durations(side, rank, rows)
            total = np.zeros(len(codes), np.int64)
            np.add.at(total, code, np.maximum(lasted, 0))
            # The last of each name in the order of time is its longest, of equal ones the first in the file.
            order = np.lexsort((-rows, lasted, code))
            ends = order[np.searchsorted(code[order], np.arange(len(codes)), side="right") - 1]
            for name, ns, place in zip(names, total.tolist(), ends.tolist(), strict=True):
                totals[name] += times * ns
                entry = (int(lasted[place]), rank, int(rows[place]))
                if name not in longest or entry[0] > longest[name][0]:
                    longest[name] = entry
    summed = [
        AloneName(
            name, count, totals[name], having[name], longest[name][1], longest[name][2], longest[name][0]
        )
        for name, count in counts.items()
    ]
    return sorted(summed, key=lambda item: (-item.total_ns, -item.count, item.name))
