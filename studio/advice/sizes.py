"""Changes of sizes: collectives to which ranks bring different sizes, and the experts behind them.

Bytes are conserved: what one rank brings less, others of its group bring more. Under a replay the time of a collective follows its
largest member as `studio.advice.collective_times` says; on a system the simulation tells it.

The compute of experts is found by its amount: operations of all ranks, matched by name, whose work is in proportion to the bytes of
the uneven all-to-all that last began before them, each rank's share of the mean within `ALIKE`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from studio.advice.advice import NODES_NAMED, Change, Kind
from studio.advice.baseline import Scene
from studio.advice.candidates import Candidate, group_words, plural, rank_words, schema_name
from studio.advice.collective_times import Took, carried_bytes, collective_costs
from studio.advice.edits import ScaleTimes, SetSizes, ShiftTimes
from studio.advice.work import Work, work_of
from studio.trace import NONE, Bool, CollectiveType, Float64, Int64

ALIKE = 0.02
"""How far a rank's share of the work may be from its share of the bytes for the work to count as its experts'."""
ALIKE_TIMED = 0.1
"""The same where the trace tells no operations, so that durations stand for work."""
_UNEVEN = 1.005
_MAY_DIFFER = (
    CollectiveType.ALL_TO_ALL,
    CollectiveType.ALL_GATHER,
    CollectiveType.REDUCE_SCATTER,
    CollectiveType.GATHER,
    CollectiveType.SCATTER,
)
_FAMILIES = 4


@dataclass(frozen=True, slots=True)
class Family:
    """Collectives of one type in one group to which ranks bring different sizes.

    C collectives, R ranks, in the order of the group's rising ranks.

    Attributes:
        group, type: Index into the groups of the members, and CollectiveType.
        collectives: (C,) index into the members' collectives, by time.
        places: (R,) places of the ranks.
        rows: (C, R) nodes.
        bytes: (C, R) what each brings.
    """

    group: int
    type: int
    collectives: Int64
    places: Int64
    rows: Int64
    bytes: Int64

    @property
    def total(self) -> Int64:
        """(R,) bytes of each rank over all collectives."""
        return np.asarray(self.bytes.sum(axis=0))

    @property
    def imbalance(self) -> float:
        """Bytes of the rank with most by the mean of all."""
        return float(self.total.max() / self.total.mean())

    @property
    def largest(self) -> float:
        """The mean, over collectives, of the largest member by the mean member."""
        return float((self.bytes.max(axis=1) / np.maximum(self.bytes.mean(axis=1), 1)).mean())


def uneven_families(scene: Scene) -> list[Family]:
    """Return the families of collectives with uneven sizes, those with most bytes above the mean first; at most `_FAMILIES`."""
    members = scene.members
    found: list[tuple[float, Family]] = []
    for kind in _MAY_DIFFER:
        of_kind = np.flatnonzero(members.type == kind)
        for group in np.unique(members.group[of_kind]).tolist():
            mine = of_kind[members.group[of_kind] == group]
            count = np.diff(members.offsets)[mine]
            mine = mine[count == count.max()]
            where = members.offsets[mine][:, None] + np.arange(int(count.max()))
            family = Family(
                group,
                int(kind),
                mine,
                members.rank[where[0]].astype(np.int64),
                members.row[where].astype(np.int64),
                members.bytes[where],
            )
            above = np.maximum(family.bytes - family.bytes.mean(axis=1, keepdims=True), 0).sum()
            if family.bytes.shape[1] > 1 and family.largest > _UNEVEN:
                found.append((float(above), family))
    found.sort(key=lambda item: -item[0])
    return [family for _, family in found[:_FAMILIES]]


def balanced_sizes(scene: Scene) -> Iterator[Candidate]:
    """Yield each uneven family with every member bringing the mean of its collective; with the experts' compute too."""
    took = collective_costs(scene.members) if scene.is_replay else None
    for family in uneven_families(scene):
        even = _shared_out(family.bytes)
        yield _candidate(scene, family, even, took, "balance-sizes", _balance_words(scene, family))
        bound = _bound_work(scene, family) if family.type == CollectiveType.ALL_TO_ALL else None
        if bound is None:
            continue
        words = f"Spread the experts' load of {_family_words(scene, family)} evenly, with the compute that follows it: {_worst_words(scene, family)}."
        yield _candidate(scene, family, even, took, "balance-experts", words, bound)
        placed = _placed(family, _slowness(bound))
        if not np.array_equal(placed, family.bytes):
            moved = int((placed != family.bytes).any(axis=1).sum())
            words = (
                f"Place the experts of {_family_words(scene, family)} anew: in {moved:,} of {len(placed):,} collectives the largest load goes to "
                f"the rank that computes experts fastest, the next to the next."
            )
            yield _candidate(scene, family, placed, took, "place-experts", words, bound)


def _shared_out(size: Int64) -> Int64:
    """Return (C, R) the same bytes shared out evenly; what does not divide goes to those who brought most."""
    total, count = size.sum(axis=1), size.shape[1]
    order = np.argsort(-size, axis=1, kind="stable")
    even = np.repeat((total // count)[:, None], count, axis=1)
    extra = np.arange(count)[None, :] < (total % count)[:, None]
    np.put_along_axis(even, order, np.take_along_axis(even, order, axis=1) + extra, axis=1)
    return even


def _placed(family: Family, slowness: Float64) -> Int64:
    """Return (C, R) the loads of each collective anew: the largest on the rank that takes least time for the same work.

    For the longest rank of one collective that is the best permutation: two ranks that are the other way round can be exchanged
    without making the longer of them longer.
    """
    fastest = np.argsort(slowness, kind="stable")
    placed = family.bytes.copy()
    # Where ranks compute equally fast, or loads already fall with slowness, nothing has to move.
    falling = -np.sort(-family.bytes, axis=1)
    now = family.bytes * slowness
    better = falling[:, np.argsort(fastest, kind="stable")]
    gains = (better * slowness).max(axis=1) < now.max(axis=1)
    placed[gains] = better[gains]
    return placed


def _candidate(
    scene: Scene,
    family: Family,
    target: Int64,
    took: Took | None,
    kind: Kind,
    action: str,
    bound: _Bound | None = None,
) -> Candidate:
    graphs = [scene.trace.graphs[rank.graph] for rank in scene.trace.ranks]
    sizes = {place: np.full(len(graphs[place]), NONE, np.int64) for place in family.places.tolist()}
    for column, place in enumerate(family.places.tolist()):
        sizes[place][family.rows[:, column]] = target[:, column]
    edits: list[Callable[..., object]] = [SetSizes(sizes)]
    if took is not None:
        edits.append(_other_times(scene, family, target, took))
    if bound is not None:
        edits.append(_other_work(scene, family, target, bound))
    name = scene.members.groups[family.group]
    worst = np.flatnonzero(family.total == family.total.max())
    heavy = int(family.places[worst[0]])
    levers = {f"sizes of {schema_name(family.type)} {name}"}
    if bound is not None:
        levers |= {f"experts of {scene.trace.ranks[place].number}" for place in family.places.tolist()}
    return Candidate(
        kind,
        action,
        Change(tuple(edits)),  # type: ignore[arg-type]  # each is an edit of a trace
        frozenset(levers),
        schema_name(family.type),
        name or None,
        _heavy_ranks(scene, family),
        scene.node_ids(heavy, family.rows[:, int(worst[0])], NODES_NAMED),
    )


def _other_times(scene: Scene, family: Family, target: Int64, took: Took) -> ShiftTimes:
    """Return the edit that gives collectives the time of their new sizes, in a replay."""
    carried = carried_bytes(scene.members, target.max(axis=1), family.collectives)
    scale = took.scale(family.collectives, family.group, carried)
    time = took.time_ns[family.collectives]
    shift = np.where(time > 0, np.rint(time * (scale - 1)), 0).astype(np.int64)
    shifts = {}
    for column, place in enumerate(family.places.tolist()):
        shifts[place] = np.zeros(len(scene.trace.graph_of(scene.trace.ranks[place])), np.int64)
        shifts[place][family.rows[:, column]] = shift
    return ShiftTimes(shifts)


# ---------------------------------------------------------------------------------------------------
# Words


def _heavy_ranks(scene: Scene, family: Family) -> tuple[int, ...]:
    total = family.total
    worst = family.places[total == total.max()]
    return tuple(sorted(scene.trace.ranks[place].number for place in worst.tolist()))


def _family_words(scene: Scene, family: Family) -> str:
    return f"the {plural(family.type)} of {group_words(scene.members.groups[family.group])}"


def _worst_words(scene: Scene, family: Family) -> str:
    ranks = _heavy_ranks(scene, family)
    if family.imbalance < _UNEVEN:
        return f"the largest member of a collective brings {family.largest:.4g} × the mean"
    verb = "brings" if len(ranks) == 1 else "bring"
    return f"{rank_words(ranks)} {verb} {family.imbalance:.4g} × the mean"


def _balance_words(scene: Scene, family: Family) -> str:
    return f"Balance the sizes of {_family_words(scene, family)}: {_worst_words(scene, family)}."


# ---------------------------------------------------------------------------------------------------
# The compute of experts


@dataclass(frozen=True, slots=True)
class _Bound:
    """Compute in proportion to the bytes of a collective.

    Attributes:
        work: Compute of the ranks of the group.
        operations: (B,) index into the operations of `work`.
        collective: (B,) index into the collectives of the family.
    """

    work: Work
    operations: Int64
    collective: Int64


def _bound_work(scene: Scene, family: Family) -> _Bound | None:
    """Return the compute that is in proportion to the bytes of the family; None where there is none."""
    work = work_of(scene, family.places)
    if not len(work.rows):
        return None
    counted = (work.amount > 0).all(axis=1)
    amount = np.where(counted[:, None], work.amount, work.took_ns).astype(np.float64)
    some = amount.sum(axis=1) > 0
    share = amount / np.maximum(amount.mean(axis=1, keepdims=True), 1e-9)
    load = family.bytes / np.maximum(family.bytes.mean(axis=1, keepdims=True), 1e-9)
    before = _last_before(scene, family, work)
    some &= before >= 0
    near = np.abs(share - load[np.maximum(before, 0)]).max(axis=1)
    uneven: Bool = load.max(axis=1)[np.maximum(before, 0)] > _UNEVEN
    mine = np.flatnonzero(some & uneven & (near <= np.where(counted, ALIKE, ALIKE_TIMED)))
    return _Bound(work, mine, before[mine]) if len(mine) else None


def _last_before(scene: Scene, family: Family, work: Work) -> Int64:
    """Return (K,) the collective that last began before each operation on its first rank, -1 where none had."""
    place = int(family.places[0])
    start = scene.starts_ns(place)
    begun = start[family.rows[:, 0]]
    order = np.argsort(begun, kind="stable")
    at = np.searchsorted(begun[order], start[work.rows[:, 0]], side="right") - 1
    return np.where(at >= 0, order[np.maximum(at, 0)], NONE)


def _slowness(bound: _Bound) -> Float64:
    """Return (R,) what experts take on each rank for the same work, by the mean of all."""
    took = bound.work.took_ns[bound.operations].astype(np.float64)
    amount = bound.work.amount[bound.operations].astype(np.float64)
    if (amount <= 0).any():
        return np.ones(took.shape[1])
    per = np.median(took / amount / (took / amount).mean(axis=1, keepdims=True), axis=0)
    return np.asarray(per / per.mean())


def _other_work(scene: Scene, family: Family, target: Int64, bound: _Bound) -> ScaleTimes:
    factors = {
        place: np.ones(len(scene.trace.graph_of(scene.trace.ranks[place])))
        for place in family.places.tolist()
    }
    scale = np.divide(target, family.bytes, out=np.ones(target.shape), where=family.bytes > 0)
    for column, place in enumerate(family.places.tolist()):
        factors[place][bound.work.rows[bound.operations, column]] = scale[bound.collective, column]
    return ScaleTimes(factors, work=scene.config.roofline is not None)
