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
    UNEVEN_TYPES,
    CommGroup,
    Float64,
    Graph,
    Int64,
    NodeType,
    Rank,
    Trace,
    group_slots,
    read_dense_column,
)

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
        sources: The known rank that it copies, where that is not the one of its stage.
        sizes: Its sizes of collectives, where those of the known ranks are uneven.
        words: What was measured, and what could not be.
    """

    factors: Mapping[int, float]
    sources: Mapping[int, Rank] = field(default_factory=dict)
    sizes: Mapping[int, Sizes] = field(default_factory=dict)
    words: str = ""


def measure_compute_ns(graph: Graph) -> int:
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


def measure_imbalance(known: Known, mesh: Mesh, sources: Mapping[int, Rank], seed: int) -> Measured:
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
    work = {rank.number: measure_compute_ns(known.trace.graph_of(rank)) for rank in known.trace.ranks}
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
    factors: dict[int, float] = {}
    copied: dict[int, Rank] = {}
    sizes: dict[int, Sizes] = {}
    for stage, source in sources.items():
        missing = [n for n in range(mesh.world) if mesh.stage(n) == stage and n not in work]
        places = (np.random.default_rng([seed, stage]).permutation(len(missing)) + 0.5) / max(len(missing), 1)
        ordered = sorted(several.get(stage, ()), key=lambda rank: (work[rank.number], rank.number))
        uneven = _find_uneven_sizes(known, mesh, ordered)
        for number, place in zip(missing, places.tolist(), strict=True):
            nearest = round(place * (len(ordered) - 1)) if ordered else 0
            copied[number] = ordered[nearest] if ordered else source
            base = float(np.log(work[copied[number].number]))
            factors[number] = float(np.exp(_interpolate(logs.get(stage, pooled + base), place) - base))
            if ordered and len(uneven.sizes.T):
                sizes[number] = Sizes(uneven.rows[nearest], uneven.at(place))
    measured = list(logs.values())
    least, most = (np.exp(max(own[-1] - own[0] for own in measured)) - 1), len(pooled)
    words = f"imbalance measured on {most} ranks, of which the heaviest of a stage computes {100 * least:.1f} % longer than the lightest"
    if sizes:
        count = max(len(size.rows) for size in sizes.values())
        words += f"; {count:,} collectives a rank are uneven, their sizes drawn likewise"
    return Measured(factors, copied, sizes, words)


def _interpolate(values: Float64, place: float) -> float:
    """Return the value at a place from 0 (the first) to 1 (the last) of rising values."""
    return float(np.interp(place, np.linspace(0, 1, len(values)), values))


@dataclass(frozen=True, slots=True)
class _Uneven:
    """Collectives of which the known ranks of a stage have different sizes.

    Attributes:
        rows: (R, C) their rows in the graph of each rank, the ranks from the lightest to the heaviest.
        sizes: (R, C) sizes, likewise.
    """

    rows: Int64
    sizes: Int64

    def at(self, place: float) -> Int64:
        """Return (C,) the sizes at a place from 0 (the lightest rank) to 1 (the heaviest)."""
        step = np.maximum(np.gcd.reduce(self.sizes, axis=0), 1)
        known = np.linspace(0, 1, len(self.sizes))
        drawn = np.array([np.interp(place, known, column) for column in self.sizes.T])
        return np.asarray(np.maximum(np.rint(drawn / step), 1) * step, np.int64)


def _find_uneven_sizes(known: Known, mesh: Mesh, ordered: Sequence[Rank]) -> _Uneven:
    """Return the collectives whose sizes differ between known ranks of a stage; none where they issue different ones."""
    rows, sizes = (np.zeros((len(ordered), 0), np.int64) for _ in range(2))
    listed = [_group_collectives(known.trace, rank, mesh, known.groups) for rank in ordered]
    for role in listed[0] if listed else ():
        kinds = [own[role].kinds if role in own else np.zeros(0, np.int64) for own in listed]
        if all(np.array_equal(other, kinds[0]) for other in kinds):
            table = np.array([own[role].sizes for own in listed])
            differs = (
                (table != table[0]).any(axis=0) & (table > 0).all(axis=0) & np.isin(kinds[0], UNEVEN_TYPES)
            )
            rows = np.concatenate([rows, np.array([own[role].rows for own in listed])[:, differs]], axis=1)
            sizes = np.concatenate([sizes, table[:, differs]], axis=1)
    return _Uneven(rows, sizes)


@dataclass(frozen=True, slots=True)
class _Issued:
    """Collectives of a rank in one group.

    Attributes:
        rows, kinds, sizes: (C,) rows of its graph, their types and bytes, in order.
    """

    rows: Int64
    kinds: Int64
    sizes: Int64


def _group_collectives(
    trace: Trace, rank: Rank, mesh: Mesh, groups: Mapping[str, CommGroup]
) -> dict[tuple[object, ...], _Issued]:
    """Return a rank's collectives by the dimensions along which their group lies, and which of several such groups it is."""
    graph = trace.graph_of(rank)
    rows = np.flatnonzero(graph.type == NodeType.COMM_COLL)
    kinds = read_dense_column(graph, "comm_type", NONE)[rows]
    sizes = read_dense_column(graph, "comm_size", NONE)[rows]
    slots = group_slots(graph)[rows]
    by_role: dict[tuple[object, ...], _Issued] = {}
    for slot in dict.fromkeys(slots.tolist()):
        name = str(rank.slots[slot]) if slot != NONE else ""
        members = groups[name].ranks if name in groups else ()
        axes = tuple(axis.name for axis in mesh.axes if len({axis.place(member) for member in members}) > 1)
        number = sum(role[0] == axes for role in by_role)
        here = slots == slot
        by_role[axes, number] = _Issued(rows[here], kinds[here], sizes[here])
    return by_role


def measure_jitter(known: Known, mesh: Mesh) -> float:
    """Return the standard deviation of the logarithm of a compute node's duration, between known ranks of a pipeline stage.

    Nodes of two ranks correspond where both graphs have the same names in the same order. What a whole rank is slower is taken
    out (the median), long nodes weigh more, and a difference of two ranks has twice the variance of one.

    Raises:
        ConfigError: No two known ranks of a stage have corresponding nodes.
    """
    deviations, weights = [], []
    for first, second in _iterate_pairs(known.trace, mesh):
        left, right = known.trace.graph_of(first), known.trace.graph_of(second)
        if len(left) != len(right) or _list_names(left) != _list_names(right):
            continue
        both = (left.type == NodeType.COMP) & (left.duration_ns > 0) & (right.duration_ns > 0)
        if both.any():
            logs = np.log(right.duration_ns[both] / left.duration_ns[both])
            deviations.append(np.abs(logs - np.median(logs)))
            weights.append(np.sqrt(left.duration_ns[both] * right.duration_ns[both].astype(np.float64)))
    if not deviations:
        raise ConfigError(
            "the spread of nodes cannot be measured: no two known ranks of one pipeline stage have the same nodes with durations",
            hint="Give the traces of two ranks that run the same program, or a number such as 0.05.",
        )
    every, weight = np.concatenate(deviations), np.concatenate(weights)
    usual = every <= np.percentile(every, _PERCENTILE, method="higher")
    spread = float(np.sqrt(np.average(every[usual] ** 2, weights=weight[usual]) / 2))
    return min(spread, 1.0)


def _iterate_pairs(trace: Trace, mesh: Mesh) -> Iterable[tuple[Rank, Rank]]:
    """Yield the ranks of each stage with the next known of it."""
    last: dict[int, Rank] = {}
    for rank in sorted(trace.ranks, key=lambda rank: rank.number):
        stage = mesh.stage(rank.number)
        if stage in last:
            yield last[stage], rank
        last[stage] = rank


def _list_names(graph: Graph) -> list[bytes]:
    return [graph.strings.raw(code) for code in graph.name.tolist()]
