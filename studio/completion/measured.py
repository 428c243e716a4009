"""Measure on the known ranks how much ranks of a job differ, and draw the missing ranks from that.

The known ranks of a pipeline stage, ordered by how long they compute, stand at equal distances from 0 (the lightest) to 1 (the
heaviest). Each of N missing ranks of the stage gets one of the places (k + ½) / N, dealt by the seed. It computes for as long as
lies there between its two neighbours, geometrically, and its uneven collectives have the size that lies there, linearly, in whole
multiples of the greatest common divisor of the known sizes. Where one rank of a stage is known, the factors of the other stages hold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from studio.completion.clues import Known
from studio.completion.mesh import Mesh
from studio.errors import ConfigError
from studio.trace import (
    NONE,
    CollectiveType,
    CommGroup,
    Float64,
    Graph,
    Int64,
    NodeType,
    Rank,
    Trace,
    dense_column,
    group_slots,
)

_UNEVEN = (
    CollectiveType.ALL_TO_ALL,
    CollectiveType.ALL_GATHER,
    CollectiveType.GATHER,
    CollectiveType.SCATTER,
)
"""Collectives to which members may bring different sizes."""
_PERCENTILE = 99.0
"""Larger differences of single nodes than those of 99 in 100 are hiccups of the recording, not of the job."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of collectives of a rank that take the place of those of the rank it copies.

    Attributes:
        rows: (C,) rows of the graph.
        bytes: (C,) sizes.
    """

    rows: Int64
    bytes: Int64


@dataclass(frozen=True, slots=True)
class Measured:
    """How missing ranks differ from the ones they copy.

    Attributes:
        factors: How many times as long each missing rank computes as the one it copies.
        sizes: Its sizes of collectives, where those of the known ranks are uneven.
        words: What was measured, and what could not be.
    """

    factors: Mapping[int, float]
    sizes: Mapping[int, Sizes] = field(default_factory=dict)
    words: str = ""


def compute_ns(graph: Graph) -> int:
    """Return how long compute nodes of a graph are under way: the union of their recorded times, else the sum of their durations.

    Threads and streams that compute at once count once, since the slowest decides.
    """
    computes = (graph.type == NodeType.COMP) & (graph.duration_ns > 0)
    if (graph.start_ns[computes] < 0).any():
        return int(graph.duration_ns[computes].sum())
    order = np.argsort(graph.start_ns[computes], kind="stable")
    start = graph.start_ns[computes][order]
    end = start + graph.duration_ns[computes][order]
    latest = np.maximum.accumulate(end)
    before = np.concatenate([start[:1], latest[:-1]])
    return int((latest - np.maximum(start, before)).clip(min=0).sum())


def measured_imbalance(known: Known, mesh: Mesh, sources: Mapping[int, Rank], seed: int) -> Measured:
    """Return how the missing ranks differ from those they copy, as the known ranks differ from each other.

    Args:
        known: The job.
        mesh: Its mesh.
        sources: The rank that serves as the copy of each pipeline stage.
        seed: Deals the places between the known ranks.

    Raises:
        ConfigError: No stage has two known ranks, or no compute node has a duration.
    """
    stages: dict[int, list[Rank]] = defaultdict(list)
    for rank in known.trace.ranks:
        stages[mesh.stage(rank.number)].append(rank)
    work = {rank.number: compute_ns(known.trace.graph_of(rank)) for rank in known.trace.ranks}
    several = {stage: ranks for stage, ranks in stages.items() if len(ranks) > 1}
    if not several or not all(work.values()):
        why = (
            "some known rank has no compute node with a recorded duration"
            if several
            else f"no two of the known ranks ({', '.join(map(str, sorted(work)))}) are of one pipeline stage"
        )
        raise ConfigError(
            f"imbalance cannot be measured: {why}",
            hint="Give the traces of two ranks, best the lightest and the heaviest, or a number such as --imbalance 0.1.",
        )
    logs = {stage: np.log(sorted(work[rank.number] for rank in ranks)) for stage, ranks in several.items()}
    pooled = np.sort(np.concatenate([own - own.mean() for own in logs.values()]))
    present = set(work)
    factors: dict[int, float] = {}
    sizes: dict[int, Sizes] = {}
    uneven = 0
    for stage, source in sources.items():
        missing = [
            number for number in range(mesh.world) if mesh.stage(number) == stage and number not in present
        ]
        places = (np.random.default_rng([seed, stage]).permutation(len(missing)) + 0.5) / max(len(missing), 1)
        base = float(np.log(work[source.number]))
        own = logs[stage] if stage in logs and source in several[stage] else pooled + base
        for number, place in zip(missing, places.tolist(), strict=True):
            factors[number] = float(np.exp(_between(own, place) - base))
        if stage in several and source in several[stage]:
            columns = _uneven_sizes(known, mesh, several[stage], source, work)
            uneven += len(columns.rows)
            for number, place in zip(missing, places.tolist(), strict=True):
                if len(columns.rows):
                    sizes[number] = Sizes(columns.rows, columns.at(place))
    measured = list(logs.values())
    least, most = (np.exp(max(own[-1] - own[0] for own in measured)) - 1), len(pooled)
    words = f"imbalance measured on {most} ranks, of which the heaviest of a stage computes {100 * least:.1f} % longer than the lightest"
    if uneven:
        words += f"; {uneven:,} collectives a rank are uneven, their sizes drawn likewise"
    return Measured(factors, sizes, words)


def _between(values: Float64, place: float) -> float:
    """Return the value at a place from 0 (the first) to 1 (the last) of rising values."""
    return float(np.interp(place, np.linspace(0, 1, len(values)), values))


@dataclass(frozen=True, slots=True)
class _Uneven:
    """Collectives of which the known ranks of a stage have different sizes.

    Attributes:
        rows: (C,) rows of the graph that is copied.
        sizes: (R, C) sizes, the ranks from the lightest to the heaviest.
    """

    rows: Int64
    sizes: Int64

    def at(self, place: float) -> Int64:
        """Return (C,) the sizes at a place from 0 (the lightest rank) to 1 (the heaviest)."""
        step = np.maximum(np.gcd.reduce(self.sizes, axis=0), 1)
        known = np.linspace(0, 1, len(self.sizes))
        drawn = np.array([np.interp(place, known, column) for column in self.sizes.T])
        return np.asarray(np.maximum(np.rint(drawn / step), 1) * step, np.int64)


def _uneven_sizes(
    known: Known, mesh: Mesh, ranks: Sequence[Rank], source: Rank, work: Mapping[int, int]
) -> _Uneven:
    """Return the collectives whose sizes differ between known ranks of a stage; none where they issue different ones."""
    groups = known.groups
    ordered = sorted(ranks, key=lambda rank: (work[rank.number], rank.number))
    listed = {rank.number: _collectives(known.trace, rank, mesh, groups) for rank in ordered}
    mine = listed[source.number]
    rows, sizes = [np.zeros(0, np.int64)], [np.zeros((len(ordered), 0), np.int64)]
    for role, (own_rows, own_kinds, _) in mine.items():
        others = [listed[rank.number].get(role) for rank in ordered]
        alike = [other for other in others if other is not None and np.array_equal(other[1], own_kinds)]
        if len(alike) == len(ordered):
            table = np.array([other[2] for other in alike])
            differs = (table != table[0]).any(axis=0) & (table > 0).all(axis=0) & np.isin(own_kinds, _UNEVEN)
            rows.append(own_rows[differs])
            sizes.append(table[:, differs])
    return _Uneven(np.concatenate(rows), np.concatenate(sizes, axis=1))


def _collectives(
    trace: Trace, rank: Rank, mesh: Mesh, groups: Mapping[str, CommGroup]
) -> dict[tuple[object, ...], tuple[Int64, Int64, Int64]]:
    """Return rows, types and sizes of a rank's collectives, in order, by the dimensions along which their group lies."""
    graph = trace.graph_of(rank)
    rows = np.flatnonzero(graph.type == NodeType.COMM_COLL)
    kinds = dense_column(graph, "comm_type", NONE)[rows]
    sizes = dense_column(graph, "comm_size", NONE)[rows]
    slots = group_slots(graph)[rows]
    found: dict[tuple[object, ...], tuple[Int64, Int64, Int64]] = {}
    for slot in dict.fromkeys(slots.tolist()):
        name = str(rank.slots[slot]) if slot != NONE else ""
        members = groups[name].ranks if name in groups else ()
        axes = tuple(axis.name for axis in mesh.axes if len({axis.place(member) for member in members}) > 1)
        number = sum(role[0] == axes for role in found)
        here = slots == slot
        found[axes, number] = rows[here], kinds[here], sizes[here]
    return found


def measured_jitter(known: Known, mesh: Mesh) -> float:
    """Return the standard deviation of the logarithm of a compute node's duration, between known ranks of a pipeline stage.

    Nodes of two ranks correspond where both graphs have the same names in the same order. What a whole rank is slower is taken
    out (the median), long nodes weigh more, and a difference of two ranks has twice the variance of one.

    Raises:
        ConfigError: No two known ranks of a stage have corresponding nodes.
    """
    deviations, weights = [], []
    for first, second in _pairs(known.trace, mesh):
        one, two = known.trace.graph_of(first), known.trace.graph_of(second)
        if len(one) != len(two) or _names(one) != _names(two):
            continue
        both = (one.type == NodeType.COMP) & (one.duration_ns > 0) & (two.duration_ns > 0)
        if both.any():
            logs = np.log(two.duration_ns[both] / one.duration_ns[both])
            deviations.append(np.abs(logs - np.median(logs)))
            weights.append(np.sqrt(one.duration_ns[both] * two.duration_ns[both].astype(np.float64)))
    if not deviations:
        raise ConfigError(
            "jitter cannot be measured: no two known ranks of one pipeline stage have the same nodes with durations",
            hint="Give the traces of two ranks that run the same program, or a number such as --jitter 0.05.",
        )
    every, weight = np.concatenate(deviations), np.concatenate(weights)
    usual = every <= np.percentile(every, _PERCENTILE, method="higher")
    spread = float(np.sqrt(np.average(every[usual] ** 2, weights=weight[usual]) / 2))
    return min(spread, 1.0)


def _pairs(trace: Trace, mesh: Mesh) -> Iterable[tuple[Rank, Rank]]:
    """Yield the ranks of each stage with the next known of it."""
    last: dict[int, Rank] = {}
    for rank in sorted(trace.ranks, key=lambda rank: rank.number):
        stage = mesh.stage(rank.number)
        if stage in last:
            yield last[stage], rank
        last[stage] = rank


def _names(graph: Graph) -> list[bytes]:
    return [graph.strings.raw(code) for code in graph.name.tolist()]
