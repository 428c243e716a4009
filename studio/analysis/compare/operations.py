"""Operations of two runs: all nodes of one type and name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.analysis.compare.alignment import simplify_name
from studio.analysis.compare.sides import Side, compute_durations
from studio.analysis.job.kinds import infer_counted_types, label_counted_type
from studio.notebook import format_record
from studio.trace import NONE, Graph, Int64


@dataclass(frozen=True, slots=True)
class Operation:
    """All nodes of one type and name, ignoring numbers in names, on all ranks.

    Attributes:
        type: Name of the node type, as nodes are counted by: gaps are apart from compute.
        name: What the nodes share of their names; untrusted text.
        count_a, count_b: How many ran.
        a_ns, b_ns: How long, added up.
    """

    type: str
    name: str
    count_a: int
    count_b: int
    a_ns: int
    b_ns: int

    __repr__ = format_record

    @property
    def difference_ns(self) -> int:
        """How much longer they run in B."""
        return self.b_ns - self.a_ns


def compare_operations(a: Side, b: Side) -> tuple[Operation, ...]:
    """Return how long nodes of each type and plain name run in A and in B, those that changed most first."""
    sums = _sum_operations(a), _sum_operations(b)
    operations = [
        Operation(kind, name, *(side.get((kind, name), (0, 0))[0] for side in sums),
                  *(side.get((kind, name), (0, 0))[1] for side in sums))
        for kind, name in dict.fromkeys((*sums[0], *sums[1]))
    ]  # fmt: skip
    operations.sort(key=lambda operation: (-abs(operation.difference_ns), operation.type, operation.name))
    return tuple(operations)


def _sum_operations(side: Side) -> dict[tuple[str, str], tuple[int, int]]:
    """Return how many nodes ran, and how long, by type and plain name."""
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    graph_of = np.array([rank.graph for rank in side.trace.ranks], np.int64)
    for index, graph in enumerate(side.trace.graphs):
        ranks = np.flatnonzero((graph_of == index) & (side.times.first != NONE))
        if not len(ranks) or not len(graph):
            continue
        code, keys = _number_operations(graph)
        count, total = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
        _, indices, many = np.unique(side.times.first[ranks], return_index=True, return_counts=True)
        for rank, times in zip(ranks[indices].tolist(), many.tolist(), strict=True):
            lasted = compute_durations(side, rank, np.arange(len(graph)))
            ran = lasted >= 0
            count += times * np.bincount(code[ran], minlength=len(keys))
            total += times * _sum_by_code(code[ran], lasted[ran], len(keys))
        for key, nodes, ns in zip(keys, count.tolist(), total.tolist(), strict=True):
            before = sums.get(key, (0, 0))
            if nodes:
                sums[key] = before[0] + nodes, before[1] + ns
    return sums


def _sum_by_code(code: Int64, values: Int64, codes: int) -> Int64:
    """Return (codes,) the sum of each code's values, in integers."""
    total = np.zeros(codes, np.int64)
    np.add.at(total, code, values)
    return total


def _number_operations(graph: Graph) -> tuple[Int64, list[tuple[str, str]]]:
    """Return (N,) the operation of each node, and the operations: type and plain name."""
    used, inverse = np.unique(graph.name, return_inverse=True)
    pool = list(graph.strings)
    number: dict[str, int] = {}
    plain = np.array(
        [number.setdefault(simplify_name(pool[code]), len(number)) for code in used.tolist()], np.int64
    )
    names = list(number)
    pair = infer_counted_types(graph).astype(np.int64) * len(names) + plain[inverse]
    kinds, code = np.unique(pair, return_inverse=True)
    keys = [(label_counted_type(kind // len(names)), names[kind % len(names)]) for kind in kinds.tolist()]
    return code, keys
