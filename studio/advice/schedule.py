"""Changes of when communication runs: earlier where only an order held it back, and small collectives as one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from studio.advice.baseline import Scene
from studio.advice.candidates import Candidate, Found, Refusal, find_schema_name, label_collectives
from studio.advice.collective_times import Took, estimate_collective_costs
from studio.advice.edits import Rewire, SetSizes, ShiftTimes, Wiring
from studio.advice.orders import are_order_only
from studio.advice.terms import NODES_NAMED, Change
from studio.advice.work import describe_groups, find_parallel_groups, select_complete
from studio.analysis.collectives.matching import compute_issue_order
from studio.distinct import find_distinct
from studio.trace import (
    NONE,
    Bool,
    CollectiveType,
    Graph,
    Int64,
    NodeType,
    Trace,
    group_slots,
    read_dense_column,
)
from studio.units import format_bytes

BUCKET_BYTES = 25 << 20
"""What merged collectives hold at most: the bucket of PyTorch's DistributedDataParallel (`bucket_cap_mb`, 25 MiB)."""
_MOST_NODES = 300_000
"""Larger graphs are not searched for collectives that can be merged, which takes a look at each dependency one by one."""
_FAMILIES = 4
_COMM = (NodeType.COMM_SEND, NodeType.COMM_RECV, NodeType.COMM_COLL)


# ---------------------------------------------------------------------------------------------------
# Earlier


def propose_overlap(scene: Scene) -> Iterator[Found]:
    """Yield, per type of collective, those of the job begun as soon as their data is there.

    Collectives of one group keep their order. In a replay those that followed other communication still do: it does not say how
    long two at once would take.
    """
    kinds = find_distinct(scene.members.type).tolist()
    for kind in kinds:
        wirings = {}
        by_graph: dict[int, Wiring | None] = {}
        dropped = 0
        for place, rank in enumerate(scene.trace.ranks):
            if rank.graph not in by_graph:
                by_graph[rank.graph] = _drop_order(
                    scene.trace.graphs[rank.graph], kind, behind_others=scene.is_replay
                )
            wiring = by_graph[rank.graph]
            if wiring is not None:
                wirings[place] = wiring
                graph = scene.trace.graphs[rank.graph]
                changed = (wiring.ctrl != graph.ctrl.rows).sum() + (wiring.data != graph.data.rows).sum()
                dropped += int(changed)
        if not dropped:
            continue
        nodes = _find_longest(scene, np.flatnonzero(scene.members.type == kind))
        kept = "1 dependency keeps" if dropped == 1 else f"{dropped:,} dependencies keep"
        behind = ", behind the communication that they follow" if scene.is_replay else ""
        yield Candidate(
            "overlap",
            f"Begin the {label_collectives(kind)} as soon as their data is there{behind}: {kept} an order only.",
            Change((Rewire(wirings),)),
            frozenset({"dependencies"}),
            find_schema_name(kind),
            nodes=nodes,
        )


def _drop_order(graph: Graph, kind: int, *, behind_others: bool) -> Wiring | None:
    """Return dependencies without those that only keep collectives of a type in an order; None where there are none."""
    chosen = (graph.type == NodeType.COMM_COLL) & (read_dense_column(graph, "comm_type", NONE) == kind)
    if not chosen.any():
        return None
    slots, place = group_slots(graph), compute_issue_order(graph)
    ctrl_order, data_order = are_order_only(graph)
    talks = np.isin(graph.type, _COMM)
    columns, drops = [], []
    for deps, order in ((graph.ctrl, ctrl_order), (graph.data, data_order)):
        of = deps.list_waiting()
        is_present = deps.rows >= 0
        parent = np.where(is_present, deps.rows, 0)
        drop = chosen[of] & is_present & order
        drop &= ~((slots[parent] == slots[of]) & (graph.type[parent] == NodeType.COMM_COLL))
        if behind_others:
            drop &= ~talks[parent]
        columns.append(of)
        drops.append(drop)
    # A node without another dependency would begin at once; what its data is nothing says.
    kept = np.zeros(len(graph), np.bool_)
    instead = np.full(len(graph), NONE, np.int64)
    for deps, of, drop in zip((graph.ctrl, graph.data), columns, drops, strict=True):
        stays = ~drop & (deps.rows >= 0)
        kept[of[stays]] = True
        instead[of[stays]] = deps.rows[stays]
    rows = []
    for deps, of, drop in zip((graph.ctrl, graph.data), columns, drops, strict=True):
        gone = drop & kept[of]
        rows.append(np.where(gone, instead[of], deps.rows).astype(np.int32))
    if np.array_equal(rows[0], graph.ctrl.rows) and np.array_equal(rows[1], graph.data.rows):
        return None
    return Wiring(
        rows[0],
        rows[1],
        _chain_collectives(np.flatnonzero(graph.type == NodeType.COMM_COLL), slots, place),
        np.zeros(len(graph), np.bool_),
    )


def _chain_collectives(rows: Int64, slots: Int64, place: Int64) -> Int64:
    """Return (2, X) the collectives of each group, each with the one before it: by these all members match them."""
    rows = rows[np.lexsort((place[rows], slots[rows]))]
    same = slots[rows[1:]] == slots[rows[:-1]]
    return np.stack([rows[1:][same], rows[:-1][same]])


def _find_longest(scene: Scene, collectives: Int64) -> tuple[tuple[int, int], ...]:
    """Return rank and node id of the members that took longest from the last arrival on, one of each collective."""
    members = scene.members
    lasted = (members.end_ns - members.start_ns)[members.offsets[:-1]]
    chosen = collectives[np.lexsort((collectives, -lasted[collectives]))][:NODES_NAMED]
    nodes = []
    for at in members.offsets[chosen].tolist():
        rank = scene.trace.ranks[int(members.rank[at])]
        nodes.append((rank.number, int(scene.trace.graph_of(rank).id[members.row[at]])))
    return tuple(nodes)


# ---------------------------------------------------------------------------------------------------
# As one


@dataclass(frozen=True, slots=True)
class _Buckets:
    """Collectives of a family that become one each.

    Attributes:
        group, type: Index into the groups, and CollectiveType.
        buckets: Collectives of each bucket, two or more, in the order of the group.
    """

    group: int
    type: int
    buckets: tuple[Int64, ...]

    @property
    def count(self) -> int:
        """Collectives that there are fewer of."""
        return sum(len(bucket) - 1 for bucket in self.buckets)


def propose_merging(scene: Scene) -> Iterator[Found]:
    """Yield the families of small collectives that can be carried out in fewer: those that take most time for no bytes."""
    if scene.config.extensions is None:
        yield Refusal(
            "merge",
            "in ASTRA-sim's model nothing can take the place of a collective that is left out; use --model full",
        )
        return
    if max(map(len, scene.trace.graphs), default=0) > _MOST_NODES:
        yield Refusal(
            "merge",
            f"graphs of more than {_MOST_NODES:,} nodes are not searched for collectives that can be merged",
        )
        return
    took = estimate_collective_costs(scene.members)
    of_group, size = scene.members.by_group(), scene.members.most_bytes
    needed = _Needed(scene)
    mergeable: list[tuple[float, list[_Buckets]]] = []
    for groups in find_parallel_groups(scene.members):
        by_type: dict[int, list[_Buckets]] = {}
        for group in groups:
            for buckets in _iterate_buckets(needed, took, (group, of_group[group]), size):
                if buckets.buckets:
                    by_type.setdefault(buckets.type, []).append(buckets)
        mergeable += [
            (sum(family.count * took.lines[family.group].fixed_ns for family in alike), alike)
            for alike in by_type.values()
        ]
    mergeable.sort(key=lambda item: -item[0])
    for _, alike in mergeable[:_FAMILIES]:
        yield _build_candidate(scene, took, alike)


def _iterate_buckets(needed: _Needed, took: Took, of: tuple[int, Int64], size: Int64) -> Iterator[_Buckets]:
    """Yield what can be merged of a group, given with its collectives, type by type."""
    group, collectives = of
    members, line = needed.scene.members, took.lines.get(group)
    if line is None:
        return
    collectives = collectives[np.argsort(members.position[collectives], kind="stable")]
    if len(select_complete(members, collectives)[0]) < len(collectives):
        # Of collectives that a member left out nothing says which of the others they belong to.
        return
    small = (took.carried[collectives] * line.ns_per_byte < line.fixed_ns) & (
        members.type[collectives] != CollectiveType.BARRIER
    )
    for kind in find_distinct(members.type[collectives[small]]).tolist():
        chosen = small & (members.type[collectives] == kind)
        if chosen.sum() > 1:
            yield _Buckets(group, kind, tuple(_iterate_runs(needed, collectives, chosen, size)))


def _iterate_runs(needed: _Needed, collectives: Int64, chosen: Bool, size: Int64) -> Iterator[Int64]:
    """Yield runs of small collectives, next to each other in their group, of which none needs another's result."""
    needs = needed.before(collectives)
    run: list[int] = []
    held = 0
    for position, collective in enumerate(collectives.tolist()):
        begin = position - len(run)
        fits = chosen[position] and held + size[collective] <= BUCKET_BYTES
        if run and (not fits or needs[position] >= begin):
            if len(run) > 1:
                yield np.array(run, np.int64)
            run, held = [], 0
        if chosen[position]:
            run.append(collective)
            held += int(size[collective])
    if len(run) > 1:
        yield np.array(run, np.int64)


class _Needed:
    """On which results of their group the collectives of a job depend; asked once of graphs that wait alike.

    Attributes:
        scene: The job.
    """

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._marks: dict[int, bytes] = {}
        self._known: dict[tuple[bytes, bytes], Int64] = {}

    def before(self, collectives: Int64) -> Int64:
        """Return (C,) the last collective of a group before each that it needs the result of, on any rank; -1 where none."""
        members, trace = self.scene.members, self.scene.trace
        needs = np.full(len(collectives), NONE, np.int64)
        count = int(np.diff(members.offsets)[collectives].min())
        for column in range(count):
            at = members.offsets[collectives] + column
            rank = trace.ranks[int(members.rank[at[0]])]
            rows = members.row[at].astype(np.int64)
            key = self._mark(rank.graph), rows.tobytes()
            if key not in self._known:
                self._known[key] = _find_last_needed(trace.graphs[rank.graph], rows)
            np.maximum(needs, self._known[key], out=needs)
        return needs

    def _mark(self, index: int) -> bytes:
        """Return what tells graphs apart of which nodes wait for others, or are issued in another order."""
        if index not in self._marks:
            graph = self.scene.trace.graphs[index]
            state = hashlib.blake2b(digest_size=16)
            for deps, order in zip((graph.ctrl, graph.data), are_order_only(graph), strict=True):
                for column in (deps.offsets, deps.rows, order):
                    state.update(f"{len(column)}|".encode())
                    state.update(np.ascontiguousarray(column).data)
            state.update(np.ascontiguousarray(compute_issue_order(graph)).data)
            self._marks[index] = state.digest()
        return self._marks[index]


def _find_last_needed(graph: Graph, rows: Int64) -> Int64:
    """Return, for collectives of a group in their order, the last one before each on whose result it depends; -1 where none.

    What only follows a collective in an order does not need its result.
    """
    of_family = np.full(len(graph), NONE, np.int64)
    of_family[rows] = np.arange(len(rows))
    parents: list[list[int]] = [[] for _ in range(len(graph))]
    for deps, order in zip((graph.ctrl, graph.data), are_order_only(graph), strict=True):
        of = deps.list_waiting()
        is_needed = deps.rows >= 0
        is_needed &= ~(order & (of_family[np.where(is_needed, deps.rows, 0)] != NONE))
        for child, parent in zip(of[is_needed].tolist(), deps.rows[is_needed].tolist(), strict=True):
            parents[child].append(parent)
    value = [NONE] * len(graph)
    needs = np.full(len(rows), NONE, np.int64)
    place = of_family.tolist()
    for row in np.argsort(compute_issue_order(graph), kind="stable").tolist():
        reached = max((value[parent] for parent in parents[row]), default=NONE)
        if place[row] != NONE:
            needs[place[row]] = reached
            reached = max(reached, place[row])
        value[row] = reached
    return needs


def _build_candidate(scene: Scene, took: Took, alike: Sequence[_Buckets]) -> Candidate:
    sizes: dict[int, Int64] = {}
    shifts: dict[int, Int64] = {}
    wirings: dict[int, Wiring] = {}
    for family in alike:
        _merge_family(scene, took, family, (sizes, shifts))
        first = int(family.buckets[0][0])
        for column, place in enumerate(_list_places(scene, first)):
            graph = scene.trace.graph_of(scene.trace.ranks[place])
            rows = [
                scene.members.row[scene.members.offsets[bucket] + column].astype(np.int64)
                for bucket in family.buckets
            ]
            wirings[place] = _join_buckets(
                graph, [(bucket_rows[:-1], int(bucket_rows[-1])) for bucket_rows in rows]
            )
    edits: list[Callable[[Trace], Trace]] = [Rewire(wirings), SetSizes(sizes)]
    if scene.is_replay:
        edits.append(ShiftTimes(shifts))
    members, kind = scene.members, alike[0].type
    names = [members.groups[family.group] for family in alike]
    every = np.concatenate([bucket for family in alike for bucket in family.buckets])
    left = sum(len(family.buckets) for family in alike)
    largest = int(members.most_bytes[every].max())
    return Candidate(
        "merge",
        f"Merge {len(every):,} small {label_collectives(kind)} of {describe_groups(names)}, of up to {format_bytes(largest)}, into {left:,}.",
        Change(tuple(edits)),
        frozenset({"dependencies", *(f"sizes of {find_schema_name(kind)} {name}" for name in names)}),
        find_schema_name(kind),
        names[0] or None,
        nodes=_find_longest(scene, every),
    )


def _list_places(scene: Scene, collective: int) -> list[int]:
    """Return the places of the members of a collective."""
    members = scene.members
    return [
        int(place) for place in members.rank[slice(*members.offsets[collective : collective + 2].tolist())]
    ]


def _merge_family(
    scene: Scene, took: Took, family: _Buckets, filled: tuple[dict[int, Int64], dict[int, Int64]]
) -> None:
    """Fill in, by place, the sizes of merged collectives, and in a replay how much longer they take."""
    members, line = scene.members, took.lines[family.group]
    sizes, shifts = filled
    places = _list_places(scene, int(family.buckets[0][0]))
    for place in places:
        count = len(scene.trace.graph_of(scene.trace.ranks[place]))
        sizes[place], shifts[place] = np.full(count, NONE, np.int64), np.zeros(count, np.int64)
    for bucket in family.buckets:
        time, carried = took.time_ns[bucket], took.carried[bucket]
        whole = line.at(np.array([carried.sum()]))[0] / line.at(carried).sum()
        shift = round(float(time.sum() * whole)) - int(time[-1]) if (time > 0).all() else 0
        for column, place in enumerate(places):
            at = members.offsets[bucket] + column
            last = int(members.row[at[-1]])
            sizes[place][last], shifts[place][last] = int(members.bytes[at].sum()), shift


def _join_buckets(graph: Graph, buckets: Sequence[tuple[Int64, int]]) -> Wiring:
    """Return dependencies in which the last collective of each bucket stands for all of it."""
    last = np.arange(len(graph))
    gone = np.zeros(len(graph), np.bool_)
    further = []
    for rows, row in buckets:
        last[rows], gone[rows] = row, True
        further.append(np.stack([np.full(len(rows), row), rows]))
    columns = []
    for deps, order in zip((graph.ctrl, graph.data), are_order_only(graph), strict=True):
        is_present = deps.rows >= 0
        needed = is_present & ~order & ~gone[deps.list_waiting()]
        columns.append(np.where(needed, last[np.where(is_present, deps.rows, 0)], deps.rows).astype(np.int32))
    return Wiring(columns[0], columns[1], np.concatenate(further, axis=1), gone)
