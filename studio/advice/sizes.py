"""Changes of sizes: collectives to which ranks bring different sizes, and the experts behind them.

Bytes are conserved: what one rank brings less, others of its group bring more. Under a replay the time of a collective follows its
largest member as `studio.advice.collective_times` says; on a system the simulation tells it.

The compute of experts is found by its amount: operations of all ranks, matched by name, whose work is in proportion to the bytes of
the uneven all-to-all that last began before them, each rank's share of the mean within `ALIKE`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from studio.advice.baseline import Scene
from studio.advice.candidates import (
    Candidate,
    Found,
    Refusal,
    describe_ranks,
    find_schema_name,
    label_collectives,
)
from studio.advice.collective_times import Took, compute_carried_bytes, estimate_collective_costs
from studio.advice.edits import ScaleTimes, SetSizes, ShiftTimes
from studio.advice.terms import NODES_NAMED, Change, Kind
from studio.advice.work import Work, describe_groups, find_parallel_groups, match_work, select_complete
from studio.trace import NONE, Bool, CollectiveType, Float64, Int64, Trace

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
    def above(self) -> float:
        """Bytes above the mean of their collective, over all collectives."""
        return float(np.maximum(self.bytes - self.bytes.mean(axis=1, keepdims=True), 0).sum())

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


def find_uneven_families(scene: Scene) -> list[list[Family]]:
    """Return collectives with uneven sizes, of one type, in groups that do the same side by side; at most `_FAMILIES`.

    Those with most bytes above the mean come first, of groups too.
    """
    members = scene.members
    of_group = members.by_group()
    families = []
    for groups in find_parallel_groups(members):
        for kind in _MAY_DIFFER:
            alike = [_find_family(scene, (group, of_group[group]), int(kind)) for group in groups]
            uneven = [family for family in alike if family is not None and family.largest > _UNEVEN]
            if uneven:
                uneven.sort(key=lambda family: -family.above)
                families.append(uneven)
    families.sort(key=lambda alike: -sum(family.above for family in alike))
    return families[:_FAMILIES]


def _find_family(scene: Scene, of: tuple[int, Int64], kind: int) -> Family | None:
    members, (group, collectives) = scene.members, of
    collectives = collectives[members.type[collectives] == kind]
    if not len(collectives):
        return None
    collectives, where = select_complete(members, collectives)
    rank, row = members.rank[where].astype(np.int64), members.row[where].astype(np.int64)
    return Family(group, kind, collectives, rank[0], row, members.bytes[where])


def propose_balanced_sizes(scene: Scene) -> Iterator[Found]:
    """Yield uneven collectives with every member bringing the mean; with the experts' compute too, and with experts placed anew."""
    took = estimate_collective_costs(scene.members) if scene.is_replay else None
    families = find_uneven_families(scene)
    if not families:
        yield Refusal("balance-sizes", "all members of each collective bring equal sizes")
    for alike in families:
        even = [_share_out(family.bytes) for family in alike]
        what, worst = _describe_families(scene, alike), _describe_worst(scene, alike[0])
        yield _build_candidate(
            scene, _Moved(alike, even), took, "balance-sizes", f"Balance the sizes of {what}: {worst}."
        )
        if alike[0].type != CollectiveType.ALL_TO_ALL:
            continue
        bound = [
            pair for pair in ((family, _bound_work(scene, family)) for family in alike) if pair[1] is not None
        ]
        if len(bound) < len(alike):
            yield Refusal("balance-experts", "no compute is in proportion to the bytes of the all-to-alls")
            continue
        experts = [work for _, work in bound if work is not None]
        words = f"Spread the experts' load of {what} evenly, with the compute that follows it: {worst}."
        yield _build_candidate(scene, _Moved(alike, even, experts), took, "balance-experts", words)
        placed = [
            _place_loads(family, _compute_slowness(work)) for family, work in zip(alike, experts, strict=True)
        ]
        moved = sum(int((new != old.bytes).any(axis=1).sum()) for new, old in zip(placed, alike, strict=True))
        if not moved:
            yield Refusal(
                "place-experts",
                "no permutation of the loads over the ranks shortens the longest of a collective",
            )
            continue
        words = (
            f"Place the experts of {what} anew: in {moved:,} of {sum(map(len, placed)):,} collectives the largest load goes to the rank that "
            f"computes experts fastest, the next to the next."
        )
        yield _build_candidate(scene, _Moved(alike, placed, experts), took, "place-experts", words)


def _share_out(size: Int64) -> Int64:
    """Return (C, R) the same bytes shared out evenly; what does not divide goes to those who brought most."""
    total, count = size.sum(axis=1), size.shape[1]
    order = np.argsort(-size, axis=1, kind="stable")
    even = np.repeat((total // count)[:, None], count, axis=1)
    extra = np.arange(count)[None, :] < (total % count)[:, None]
    np.put_along_axis(even, order, np.take_along_axis(even, order, axis=1) + extra, axis=1)
    return even


def _place_loads(family: Family, slowness: Float64) -> Int64:
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


@dataclass(frozen=True, slots=True)
class _Moved:
    """Sizes that members are to bring.

    Attributes:
        alike: Collectives of groups that do the same side by side.
        targets: For each of `alike`, (C, R) what members bring then.
        experts: For each of `alike` the compute that follows its bytes; none where it stays as it is.
    """

    alike: Sequence[Family]
    targets: Sequence[Int64]
    experts: Sequence[_Bound] = ()


def _build_candidate(scene: Scene, moved: _Moved, took: Took | None, kind: Kind, action: str) -> Candidate:
    alike, targets, experts = moved.alike, moved.targets, moved.experts
    graphs = [scene.trace.graphs[rank.graph] for rank in scene.trace.ranks]
    sizes: dict[int, Int64] = {}
    shifts: dict[int, Int64] = {}
    factors: dict[int, Float64] = {}
    for family, target in zip(alike, targets, strict=True):
        shift = _compute_extra_times(scene, family, target, took) if took is not None else None
        for column, place in enumerate(family.places.tolist()):
            sizes[place] = np.full(len(graphs[place]), NONE, np.int64)
            sizes[place][family.rows[:, column]] = target[:, column]
            if shift is not None:
                shifts[place] = np.zeros(len(graphs[place]), np.int64)
                shifts[place][family.rows[:, column]] = shift
    for family, target, work in zip(alike, targets, experts, strict=False):
        scale = np.divide(target, family.bytes, out=np.ones(target.shape), where=family.bytes > 0)
        for column, place in enumerate(family.places.tolist()):
            factors[place] = np.ones(len(graphs[place]))
            factors[place][work.work.rows[work.operations, column]] = scale[work.collective, column]
    edits: list[Callable[[Trace], Trace]] = [SetSizes(sizes)]
    if shifts:
        edits.append(ShiftTimes(shifts))
    if factors:
        edits.append(ScaleTimes(factors, work=scene.config.roofline is not None))
    names = [scene.members.groups[family.group] for family in alike]
    worst = alike[0]
    heavy = int(np.flatnonzero(worst.total == worst.total.max())[0])
    levers = {f"sizes of {find_schema_name(worst.type)} {name}" for name in names}
    if experts:
        levers |= {f"experts of {scene.trace.ranks[place].number}" for place in sizes}
    return Candidate(
        kind,
        action,
        Change(tuple(edits)),
        frozenset(levers),
        find_schema_name(worst.type),
        names[0] or None,
        _find_heavy_ranks(scene, worst),
        scene.node_ids(int(worst.places[heavy]), worst.rows[:, heavy], NODES_NAMED),
    )


def _compute_extra_times(scene: Scene, family: Family, target: Int64, took: Took) -> Int64:
    """Return (C,) how much longer collectives take with their new sizes, in a replay."""
    carried = compute_carried_bytes(scene.members, target.max(axis=1), family.collectives)
    scale = took.scale(family.collectives, family.group, carried)
    time = took.time_ns[family.collectives]
    return np.where(time > 0, np.rint(time * (scale - 1)), 0).astype(np.int64)


# ---------------------------------------------------------------------------------------------------
# Words


def _find_heavy_ranks(scene: Scene, family: Family) -> tuple[int, ...]:
    total = family.total
    worst = family.places[total == total.max()]
    return tuple(sorted(scene.trace.ranks[place].number for place in worst.tolist()))


def _describe_families(scene: Scene, alike: list[Family]) -> str:
    names = [scene.members.groups[family.group] for family in alike]
    return f"the {label_collectives(alike[0].type)} of {describe_groups(names)}"


def _describe_worst(scene: Scene, family: Family) -> str:
    ranks = _find_heavy_ranks(scene, family)
    if family.imbalance < _UNEVEN:
        return f"the largest member of a collective brings {family.largest:.4g} × the mean"
    verb = "brings" if len(ranks) == 1 else "bring"
    return f"{describe_ranks(ranks)} {verb} {family.imbalance:.4g} × the mean"


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
    work = match_work(scene, family.places)
    if not len(work.rows):
        return None
    counted: Bool = np.asarray((work.amount > 0).all(axis=1))
    amount = np.where(counted[:, None], work.amount, work.took_ns).astype(np.float64)
    some = amount.sum(axis=1) > 0
    share = amount / np.maximum(amount.mean(axis=1, keepdims=True), 1e-9)
    load = family.bytes / np.maximum(family.bytes.mean(axis=1, keepdims=True), 1e-9)
    before = _find_last_before(scene, family, work)
    some &= before >= 0
    near = np.abs(share - load[np.maximum(before, 0)]).max(axis=1)
    most: Float64 = np.asarray(load.max(axis=1))
    uneven: Bool = most[np.maximum(before, 0)] > _UNEVEN
    chosen = np.flatnonzero(some & uneven & (near <= np.where(counted, ALIKE, ALIKE_TIMED)))
    return _Bound(work, chosen, before[chosen]) if len(chosen) else None


def _find_last_before(scene: Scene, family: Family, work: Work) -> Int64:
    """Return (K,) the collective that last began before each operation on its first rank, -1 where none had."""
    place = int(family.places[0])
    start = scene.starts_ns(place)
    begun = start[family.rows[:, 0]]
    order = np.argsort(begun, kind="stable")
    at = np.searchsorted(begun[order], start[work.rows[:, 0]], side="right") - 1
    return np.where(at >= 0, order[np.maximum(at, 0)], NONE)


def _compute_slowness(bound: _Bound) -> Float64:
    """Return (R,) what experts take on each rank for the same work, by the mean of all."""
    took = bound.work.took_ns[bound.operations].astype(np.float64)
    amount = bound.work.amount[bound.operations].astype(np.float64)
    if (amount <= 0).any():
        return np.ones(took.shape[1])
    per = np.median(took / amount / (took / amount).mean(axis=1, keepdims=True), axis=0)
    return np.asarray(per / per.mean())
