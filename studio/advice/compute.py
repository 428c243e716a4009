"""Changes of compute: a slow rank, ranks that arrive apart, a stage that computes faster, gaps of the host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from studio.advice.baseline import Scene
from studio.advice.candidates import Candidate, Refusal, describe_ranks, find_schema_name, label_collectives
from studio.advice.edits import ScaleTimes
from studio.advice.host_words import describe_remedy, describe_start_gap
from studio.advice.terms import NODES_NAMED, Change
from studio.advice.work import (
    Work,
    describe_groups,
    find_parallel_groups,
    find_stages,
    index_compute_rows,
    index_group_ranks,
    match_work,
    select_complete,
)
from studio.analysis.job.awaited import find_most_awaited
from studio.analysis.job.blame import Blame, compute_blame
from studio.analysis.job.group_times import build_group_filter
from studio.analysis.job.kinds import lacks_host
from studio.analysis.job.ledger import Ledger
from studio.analysis.job.part_words import NO_HOST
from studio.distinct import find_distinct
from studio.timeline import NodeTimes
from studio.trace import (
    NONE,
    Bool,
    Float64,
    Graph,
    Int32,
    Int64,
    NodeType,
    are_device_waits,
    is_flagged,
    read_int_column,
)
from studio.units import format_ns

SLOW = 1.05
"""From this multiple of the median on a rank counts as slow: within a stage compute is balanced within 5 %."""
FASTER = 0.9
"""What faster compute takes, by what it takes now."""
_MATCHED = 0.5
"""Share of a stage's compute that has to be matched for ranks to be compared by equal operations."""
_MOSTLY = 0.5
_COMPILED = re.compile(rb"Torch-Compiled Region|## Call CompiledFxGraph")
"""What the profiler notes round code that torch.compile has made."""
_GROUPS_ASKED = 4


def propose_faster_ranks(scene: Scene) -> Iterator[Candidate]:
    """Yield, per stage, its slowest rank brought to the median of the stage, and all slow ranks."""
    for places in find_stages(scene.trace, index_group_ranks(scene)):
        if len(places) < 3:
            # Of two ranks neither is the usual one.
            continue
        work = match_work(scene, places)
        same, took = _compute_rank_times(work)
        median = float(np.median(took))
        if median <= 0:
            continue
        ratio = took / median
        slow = np.flatnonzero(ratio > SLOW)
        if not len(slow):
            continue
        slowest = np.flatnonzero(ratio == ratio.max())
        yield _build_median_candidate(scene, work, slowest, ratio, same=same)
        if len(slow) > len(slowest):
            yield _build_median_candidate(scene, work, slow, ratio, same=same)


def _compute_rank_times(work: Work) -> tuple[bool, Float64]:
    """Return whether ranks are compared by operations that are as much work on all of them, and what each took."""
    matched = work.took_ns[work.equal].sum(axis=0)
    if len(matched) and matched.sum() >= _MATCHED * work.total_ns.sum() > 0:
        return True, matched.astype(np.float64)
    return False, work.total_ns.astype(np.float64)


def _build_median_candidate(
    scene: Scene, work: Work, chosen: Int64, ratio: Float64, *, same: bool
) -> Candidate:
    factors: dict[int, Float64] = {}
    nodes: list[tuple[int, int]] = []
    rows_of = index_compute_rows(scene.trace, work.places[chosen].tolist())
    for column in chosen.tolist():
        place = int(work.places[column])
        rows = rows_of[place]
        factor = np.ones(len(scene.trace.graph_of(scene.trace.ranks[place])))
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
        f"Bring {describe_ranks(ranks)} to the compute time of the median rank: "
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


def propose_equal_arrivals(scene: Scene) -> Iterator[Candidate]:
    """Yield, for the groups whose members begin furthest apart, equal compute of all members before each collective.

    The work between two collectives of a group is shared out evenly: each member's is scaled to the mean of all. Groups that do
    the same side by side are changed together. Who is waited for, and how long, is told by waiting as a part of the ranks' time.
    """
    members = scene.members
    if not len(members):
        return
    last = np.maximum.reduceat(members.start_ns, members.offsets[:-1])
    of = members.of
    earlier = np.where(members.start_ns >= 0, last[of] - members.start_ns, 0)
    by_group = np.bincount(members.group[of], earlier, minlength=len(members.groups))
    of_group = members.by_group()
    families = [(float(by_group[groups].sum()), groups) for groups in find_parallel_groups(members)]
    families.sort(key=lambda item: -item[0])
    asked: list[frozenset[bytes]] = []
    waited = None
    for waiting, groups in families:
        if waiting <= 0 or len(asked) >= _GROUPS_ASKED:
            break
        # Of several groups of the same ranks those whose members begin furthest apart stand for all.
        alike = [select_complete(members, of_group[group]) for group in groups]
        ranks = frozenset(members.rank[where[0]].tobytes() for _, where in alike)
        if ranks not in asked:
            asked.append(ranks)
            arriving = [
                _compute_arrivals(scene, group, *own) for group, own in zip(groups, alike, strict=True)
            ]
            if any(group.factors for group in arriving):
                waited = waited or scene.measure_waits()
                yield from _propose_joint_arrival(scene, *waited, arriving)


@dataclass(frozen=True, slots=True)
class _Arrivals:
    """When the ranks of a group begin its collectives, and what they compute before.

    R ranks, C collectives by time.

    Attributes:
        group: Index into the groups.
        types: Its types of collectives.
        places: (R,) places of the ranks.
        begun: (R, C) when each began.
        factors: (N,) by what each node's time is to be multiplied, by place; empty where nothing can be shared out.
    """

    group: int
    types: Int32
    places: Int64
    begun: Int64
    factors: dict[int, Float64]


def _compute_arrivals(scene: Scene, group: int, collectives: Int64, where: Int64) -> _Arrivals:
    """Return the arrivals of a group at its collectives, whose members stand at `where` (C, R)."""
    members = scene.members
    places = members.rank[where[0]].astype(np.int64)
    begun = np.sort(members.start_ns[where].T, axis=1)
    types = find_distinct(members.type[collectives])
    if (begun < 0).any():
        return _Arrivals(group, types, places, begun, {})
    work = np.zeros(begun.shape)
    segments, rows_of = [], []
    computing = index_compute_rows(scene.trace, places.tolist())
    for index, place in enumerate(places.tolist()):
        rows = computing[place]
        start = scene.starts_ns(place)[rows]
        segment = np.searchsorted(begun[index], start, side="right")
        inside = (segment < len(collectives)) & (start >= 0)
        rows, segment = rows[inside], segment[inside]
        work[index] = np.bincount(segment, scene.took_ns(place)[rows], minlength=len(collectives))
        segments.append(segment)
        rows_of.append(rows)
    even = (work > 0).all(axis=0)
    scale = np.where(even, np.divide(work.mean(axis=0), work, out=np.ones(work.shape), where=work > 0), 1.0)
    factors = {}
    for index, place in enumerate(places.tolist()):
        factors[place] = np.ones(len(scene.trace.graph_of(scene.trace.ranks[place])))
        factors[place][rows_of[index]] = scale[index][segments[index]]
    return _Arrivals(group, types, places, begun, {} if np.allclose(scale, 1.0) else factors)


def _propose_joint_arrival(
    scene: Scene, times: NodeTimes, account: Ledger, groups: list[_Arrivals]
) -> Iterator[Candidate]:
    factors = {place: factor for group in groups for place, factor in group.factors.items()}
    by_name = {scene.members.groups[group.group]: group for group in groups}
    blame = _compute_group_blame(scene, times, account, frozenset(by_name))
    most = find_most_awaited(account, blame)
    every = {scene.trace.ranks[place].number: place for place in sorted(factors)}
    ranks = tuple(rank for rank in most.ranks if rank in every) if most else ()
    caused = dict(zip(account.places.tolist(), blame.of_culprits(len(account)).tolist(), strict=True))
    names = sorted(
        by_name, key=lambda name: -max(caused.get(place, 0) for place in by_name[name].places.tolist())
    )
    kinds = find_distinct(np.concatenate([group.types for group in groups]))
    what = label_collectives(int(kinds[0])) if len(kinds) == 1 else "collectives"
    mean_ns = int(blame.ns.sum()) / sum(len(group.places) for group in groups)
    waits = f"a member waits {format_ns(mean_ns)} in the mean" if mean_ns else "work hides all they wait"
    whom = f", {100 * most.share:.0f} % of it for {describe_ranks(ranks)}" if most and ranks else ""
    first = every[min(ranks or every)]
    yield Candidate(
        "equal-arrivals",
        f"Share the compute before the {what} of {describe_groups(names)} evenly, so that members arrive together: {waits}{whom}.",
        Change((ScaleTimes(factors, work=_computes_work(scene)),)),
        frozenset({f"speed of {rank}" for rank in every} | {f"experts of {rank}" for rank in every}),
        find_schema_name(int(kinds[0])) if len(kinds) == 1 else None,
        names[0] or None,
        ranks or tuple(sorted(every)),
        scene.node_ids(first, np.flatnonzero(factors[first] != 1), NODES_NAMED),
    )


def _compute_group_blame(scene: Scene, times: NodeTimes, account: Ledger, names: frozenset[str]) -> Blame:
    """Return whom ranks waited for in some comm groups, no work hiding it: what `breakdown --group` tells of them."""
    fits = build_group_filter(scene.trace, names, scene.config.groups)

    def is_wanted(place: int, rows: Int64) -> Bool:
        kind = scene.trace.graph_of(scene.trace.ranks[place]).type[rows]
        return np.asarray(fits(place, rows) & (kind != NodeType.COMM_SEND) & (kind != NodeType.COMM_RECV))

    return compute_blame(scene.trace, times, account, wanted=is_wanted)


def propose_faster_stages(scene: Scene) -> Iterator[Candidate]:
    """Yield each pipeline stage with faster compute."""
    every = find_stages(scene.trace, index_group_ranks(scene))
    for number, places in enumerate(every):
        factors = {}
        rows_of = index_compute_rows(scene.trace, places.tolist())
        for place, rows in rows_of.items():
            factors[place] = np.ones(len(scene.trace.graph_of(scene.trace.ranks[place])))
            factors[place][rows] = FASTER
        ranks = tuple(scene.trace.ranks[place].number for place in places.tolist())
        where = "on all ranks" if len(every) == 1 else f"of stage {number} ({describe_ranks(ranks)})"
        first = int(places[0])
        yield Candidate(
            "compute",
            f"Make the compute {where} take {100 * (1 - FASTER):.0f} % less time: begin with what runs longest.",
            Change((ScaleTimes(factors, work=_computes_work(scene)),)),
            frozenset({f"compute of stage {number}"}),
            ranks=ranks,
            nodes=scene.node_ids(first, rows_of[first], NODES_NAMED),
        )


def propose_no_host_gaps(scene: Scene) -> Iterator[Candidate | Refusal]:
    """Yield the job without the time between the operators of the host; why not where nothing of a host was recorded."""
    if any(map(lacks_host, scene.trace.graphs)):
        yield Refusal("host-gaps", NO_HOST)
    factors, total, ranks = {}, [], []
    nodes: list[tuple[int, int]] = []
    starting: list[str] = []
    compiled, is_compiled = 0, False
    gaps_of = [_list_host_gaps(graph) for graph in scene.trace.graphs]
    for place, rank in enumerate(scene.trace.ranks):
        graph, rows = scene.trace.graphs[rank.graph], gaps_of[rank.graph]
        if len(rows):
            factors[place] = np.ones(len(graph))
            factors[place][rows] = 0.0
            total.append(int(scene.took_ns(place)[rows].sum()))
            nodes += scene.node_ids(place, rows, NODES_NAMED)
            ranks.append(rank.number)
            regions = _list_compiled_regions(graph)
            compiled += int(scene.took_ns(place)[rows[_are_inside(graph, rows, regions)]].sum())
            is_compiled |= len(regions) > 0
            starting.append(describe_start_gap(graph, rows, scene.took_ns(place)[rows]))
    if not factors:
        return
    worst = int(np.argmax(total))
    most = f"up to {format_ns(max(total))} on a rank, most on rank {ranks[worst]}"
    where = most if len(ranks) > 1 else f"{format_ns(max(total))} on rank {ranks[worst]}"
    share = compiled / max(sum(total), 1)
    inside = f", {100 * share:.0f} % of it inside compiled regions" if compiled else ""
    action = (
        f"Remove the time of the host that belongs to no operator, such as Python{'' if share > _MOSTLY else ' and data loading'}: "
        f"{where}{inside}. {starting[worst]}{describe_remedy(scene.trace, is_compiled=is_compiled)}"
    )
    yield Candidate(
        "host-gaps",
        action,
        Change((ScaleTimes(factors),)),
        frozenset({"host gaps"}),
        ranks=tuple(ranks),
        nodes=tuple(nodes[:NODES_NAMED]),
    )


def _list_host_gaps(graph: Graph) -> Int64:
    """Return the rows that stand for time of the host between its operators."""
    gaps = np.zeros(len(graph), np.bool_)
    gaps[graph.rows_with("gap")[0]] = True
    if gaps.any():
        gaps &= ~are_device_waits(graph)
        gaps &= is_flagged(graph, "is_cpu_op") & (graph.duration_ns > 0)
    return np.flatnonzero(gaps)


def _list_compiled_regions(graph: Graph) -> Int64:
    """Return the rows of operations that stand for regions of the program that PyTorch compiled."""
    is_compiled = np.zeros(len(graph.strings), np.bool_)
    if _COMPILED.search(graph.strings.data.tobytes()):
        used = find_distinct(graph.name).tolist()
        is_compiled[used] = [_COMPILED.match(graph.strings.raw(code)) is not None for code in used]
    return np.flatnonzero(is_compiled[graph.name] & (graph.start_ns >= 0))


def _are_inside(graph: Graph, rows: Int64, regions: Int64) -> Bool:
    """Return (S,) which rows began inside a region of their thread, of those in some rows."""
    inside = np.zeros(len(rows), np.bool_)
    if not len(regions):
        return inside
    thread = np.full(len(graph), NONE, np.int64)
    known, where = graph.rows_with("thread")
    thread[known] = graph.attrs.value[where]
    spans = graph.duration_ns.copy()
    wide, whole = read_int_column(graph, "inclusive_ns")
    spans[wide] = whole
    for region in regions.tolist():
        begin = int(graph.start_ns[region])
        within = (graph.start_ns[rows] >= begin) & (graph.start_ns[rows] < begin + int(spans[region]))
        inside |= within & (thread[rows] == thread[region])
    return inside


def _computes_work(scene: Scene) -> bool:
    """Whether a roofline may make times from the operations of nodes."""
    return scene.config.roofline is not None
