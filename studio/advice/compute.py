"""Changes of compute: a slow rank, ranks that arrive apart, a stage that computes faster, gaps of the host."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from studio.advice.advice import NODES_NAMED, Change
from studio.advice.baseline import Scene
from studio.advice.candidates import Candidate, group_words, plural, rank_words, schema_name
from studio.advice.edits import ScaleTimes
from studio.advice.work import Work, compute_rows, group_ranks, stages, work_of
from studio.trace import NONE, Float64, Int64, int_column
from studio.units import format_ns

SLOW = 1.05
"""From this multiple of the median on a rank counts as slow: within a stage compute is balanced within 5 %."""
FASTER = 0.9
"""What faster compute takes, by what it takes now."""
_MATCHED = 0.5
"""Share of a stage's compute that has to be matched for ranks to be compared by equal operations."""
_GROUPS_ASKED = 4


def slow_ranks(scene: Scene) -> Iterator[Candidate]:
    """Yield, per stage, its slowest rank brought to the median of the stage, and all slow ranks."""
    for places in stages(scene.trace, group_ranks(scene)):
        if len(places) < 3:
            # Of two ranks neither is the usual one.
            continue
        work = work_of(scene, places)
        same, took = _compared(work)
        median = float(np.median(took))
        if median <= 0:
            continue
        ratio = took / median
        slow = np.flatnonzero(ratio > SLOW)
        if not len(slow):
            continue
        slowest = np.flatnonzero(ratio == ratio.max())
        yield _to_median(scene, work, slowest, ratio, same=same)
        if len(slow) > len(slowest):
            yield _to_median(scene, work, slow, ratio, same=same)


def _compared(work: Work) -> tuple[bool, Float64]:
    """Return whether ranks are compared by operations that are as much work on all of them, and what each took."""
    matched = work.took_ns[work.equal].sum(axis=0)
    if len(matched) and matched.sum() >= _MATCHED * work.total_ns.sum() > 0:
        return True, matched.astype(np.float64)
    return False, work.total_ns.astype(np.float64)


def _to_median(scene: Scene, work: Work, chosen: Int64, ratio: Float64, *, same: bool) -> Candidate:
    factors, nodes = {}, []
    for column in chosen.tolist():
        place = int(work.places[column])
        graph = scene.trace.graph_of(scene.trace.ranks[place])
        rows = compute_rows(graph)
        factor = np.ones(len(graph))
        factor[rows] = 1 / ratio[column]
        factors[place] = factor
        nodes += scene.node_ids(place, rows, NODES_NAMED)
    ranks = tuple(sorted(scene.trace.ranks[int(work.places[column])].number for column in chosen.tolist()))
    worst = ratio[chosen]
    how = (
        f"{worst[0]:.2f} times"
        if worst.max() - worst.min() < 0.005
        else f"{worst.min():.2f} to {worst.max():.2f} times"
    )
    whose = "for the same operations" if same else "in all"
    action = (
        f"Bring {rank_words(ranks)} to the compute time of the median rank: "
        f"{'it computes' if len(ranks) == 1 else 'they compute'} {how} as long {whose}."
    )
    return Candidate(
        "slow-rank",
        action,
        Change((ScaleTimes(factors, work=_computes_work(scene)),)),
        frozenset({f"speed of {rank}" for rank in ranks}),
        ranks=ranks,
        nodes=tuple(nodes[:NODES_NAMED]),
    )


def equal_arrivals(scene: Scene) -> Iterator[Candidate]:
    """Yield, for the groups whose members wait longest, equal compute of all members before each collective.

    The work between two collectives of a group is shared out evenly: each member's is scaled to the mean of all.
    """
    members = scene.members
    if not len(members):
        return
    starts = members.offsets[:-1]
    last = np.maximum.reduceat(members.start_ns, starts)
    waited = np.where(members.start_ns >= 0, last[members.of] - members.start_ns, 0)
    by_group = np.bincount(members.group[members.of], waited, minlength=len(members.groups))
    seen: set[bytes] = set()
    for group in np.argsort(-by_group, kind="stable").tolist():
        if not by_group[group] or len(seen) == _GROUPS_ASKED:
            return
        of_group = np.flatnonzero(members.group == group)
        first = int(of_group[0])
        ranks = members.rank[members.offsets[first] : members.offsets[first + 1]]
        if len(ranks) < 2 or ranks.tobytes() in seen:
            continue
        seen.add(ranks.tobytes())
        candidate = _evened(scene, group, of_group)
        if candidate is not None:
            yield candidate


def _evened(scene: Scene, group: int, of_group: Int64) -> Candidate | None:
    members = scene.members
    places = np.unique(
        np.concatenate([members.rank[slice(*members.offsets[at : at + 2])] for at in of_group.tolist()])
    )
    column = {place: index for index, place in enumerate(places.tolist())}
    begun = np.full((len(places), len(of_group)), NONE, np.int64)
    for position, at in enumerate(of_group.tolist()):
        mine = slice(*members.offsets[at : at + 2])
        begun[[column[place] for place in members.rank[mine].tolist()], position] = members.start_ns[mine]
    if (begun < 0).any():
        return None
    begun = np.maximum.accumulate(np.sort(begun, axis=1), axis=1)
    work = np.zeros(begun.shape)
    segment_of, rows_of = [], []
    for index, place in enumerate(places.tolist()):
        rows = compute_rows(scene.trace.graph_of(scene.trace.ranks[place]))
        start = scene.starts_ns(place)[rows]
        segment = np.searchsorted(begun[index], start, side="right")
        inside = (segment < len(of_group)) & (start >= 0)
        rows, segment = rows[inside], segment[inside]
        work[index] = np.bincount(segment, scene.took_ns(place)[rows], minlength=len(of_group))[
            : len(of_group)
        ]
        segment_of.append(segment)
        rows_of.append(rows)
    even = (work > 0).all(axis=0)
    factor = np.where(even, np.divide(work.mean(axis=0), work, out=np.ones(work.shape), where=work > 0), 1.0)
    if np.allclose(factor, 1.0):
        return None
    factors = {}
    for index, place in enumerate(places.tolist()):
        every = np.ones(len(scene.trace.graph_of(scene.trace.ranks[place])))
        every[rows_of[index]] = factor[index][segment_of[index]]
        factors[place] = every
    late = begun.argmax(axis=0)
    uneven = begun.max(axis=0) > begun.min(axis=0)
    counts = np.bincount(late[uneven], minlength=len(places))
    worst = int(counts.argmax())
    kinds = np.unique(members.type[of_group])
    name = members.groups[group]
    rank = scene.trace.ranks[int(places[worst])].number
    waits = format_ns(float((begun.max(axis=0)[None, :] - begun).sum() / len(places)))
    what = plural(int(kinds[0])) if len(kinds) == 1 else "collectives"
    action = (
        f"Share the compute before the {what} of {group_words(name)} evenly, so that members arrive together: rank {rank} is "
        f"last at {counts[worst]:,} of {len(of_group):,}, and a member waits {waits} in all."
    )
    ranks = tuple(sorted(scene.trace.ranks[place].number for place in places.tolist()))
    levers = {f"speed of {number}" for number in ranks} | {f"experts of {number}" for number in ranks}
    return Candidate(
        "equal-arrivals",
        action,
        Change((ScaleTimes(factors, work=_computes_work(scene)),)),
        frozenset(levers),
        schema_name(int(kinds[0])) if len(kinds) == 1 else None,
        name or None,
        (rank,),
        scene.node_ids(int(places[worst]), rows_of[worst], NODES_NAMED),
    )


def faster_stages(scene: Scene) -> Iterator[Candidate]:
    """Yield each pipeline stage with faster compute."""
    every = stages(scene.trace, group_ranks(scene))
    for number, places in enumerate(every):
        factors = {}
        for place in places.tolist():
            graph = scene.trace.graph_of(scene.trace.ranks[place])
            factors[place] = np.ones(len(graph))
            factors[place][compute_rows(graph)] = FASTER
        ranks = tuple(scene.trace.ranks[place].number for place in places.tolist())
        where = "on all ranks" if len(every) == 1 else f"of stage {number} ({rank_words(ranks)})"
        first = int(places[0])
        yield Candidate(
            "compute",
            f"Make the compute {where} take {100 * (1 - FASTER):.0f} % less time.",
            Change((ScaleTimes(factors, work=_computes_work(scene)),)),
            frozenset({f"compute of stage {number}"}),
            ranks=ranks,
            nodes=scene.node_ids(
                first, compute_rows(scene.trace.graph_of(scene.trace.ranks[first])), NODES_NAMED
            ),
        )


def host_gaps(scene: Scene) -> Iterator[Candidate]:
    """Yield the job without the time between the operators of the host."""
    factors, total, nodes, ranks = {}, [], [], []
    for place, rank in enumerate(scene.trace.ranks):
        graph = scene.trace.graphs[rank.graph]
        gaps = np.zeros(len(graph), np.bool_)
        gaps[graph.rows_with("gap")[0]] = True
        cpu, values = int_column(graph, "is_cpu_op")
        on_cpu = np.zeros(len(graph), np.bool_)
        on_cpu[cpu[values != 0]] = True
        rows = np.flatnonzero(gaps & on_cpu & (graph.duration_ns > 0))
        if len(rows):
            factors[place] = np.ones(len(graph))
            factors[place][rows] = 0.0
            total.append(int(scene.took_ns(place)[rows].sum()))
            nodes += scene.node_ids(place, rows, NODES_NAMED)
            ranks.append(rank.number)
    if not factors:
        return
    longest = ranks[int(np.argmax(total))]
    action = f"Remove the gaps between operators of the host: up to {format_ns(max(total))} on a rank, most on rank {longest}."
    yield Candidate(
        "host-gaps",
        action,
        Change((ScaleTimes(factors),)),
        frozenset({"host gaps"}),
        ranks=tuple(ranks),
        nodes=tuple(nodes[:NODES_NAMED]),
    )


def _computes_work(scene: Scene) -> bool:
    """Whether a roofline may make times from the operations of nodes."""
    return scene.config.roofline is not None
