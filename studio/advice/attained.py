"""Recorded collectives that take much longer than the recorded GPUs attain, brought to that time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from studio.advice.baseline import Scene
from studio.advice.candidates import Candidate, find_schema_name, label_collectives
from studio.advice.collective_times import estimate_collective_costs
from studio.advice.edits import ScaleTimes
from studio.advice.terms import NODES_NAMED, Change
from studio.advice.work import describe_groups
from studio.analysis.collectives.size_classes import SizeClass, list_size_classes
from studio.analysis.collectives.times import compute_collective_times
from studio.errors import ConfigError
from studio.sim.attained import Attained, find_attained
from studio.trace import CollectiveType, Float64, Int64
from studio.units import format_bytes, format_ns

SLOW = 2.0
"""From this multiple of the attained time on collectives count as slow: costs of presets are off by less."""


@dataclass(slots=True)
class _Slow:
    """Slow collectives of one type, which are changed together.

    Attributes:
        classes: Their classes with the time that the system attains, the class that takes longest in total first.
        factors: By place of a rank, (N,) by what the time of each node is multiplied.
        rows: By place of a rank, their nodes.
    """

    classes: list[tuple[SizeClass, int]] = field(default_factory=list)
    factors: dict[int, Float64] = field(default_factory=dict)
    rows: dict[int, list[int]] = field(default_factory=dict)


def propose_faster_collectives(scene: Scene) -> Iterator[Candidate]:
    """Yield, by type, collectives that took `SLOW` times as long as the recorded GPUs attain, in the attained time.

    Times count from the last known arrival. On a system collectives take what it attains, so nothing is asked there.
    """
    if not scene.is_replay or not len(scene.members):
        return
    classes = list_size_classes(
        scene.trace, compute_collective_times(scene.trace, scene.times, scene.trace.groups)
    )
    try:
        attained = find_attained(scene.trace, classes)
    except ConfigError:  # the family of the GPUs has no system of this size
        return
    if attained is None:
        return
    for kind, slow in _find_slow_collectives(scene, classes, attained).items():
        yield _build_candidate(scene, kind, slow, attained.system)


def _find_slow_collectives(scene: Scene, classes: list[SizeClass], attained: Attained) -> dict[int, _Slow]:
    members, took = scene.members, estimate_collective_costs(scene.members).time_ns
    most = np.maximum.reduceat(members.bytes, members.offsets[:-1])
    by_type: dict[int, _Slow] = {}
    for each, ns in zip(classes, attained.ns, strict=True):
        if ns is None or each.median_ns < SLOW * ns:
            continue
        kind = int(CollectiveType[each.type])
        of_class = (members.type == kind) & (members.size == each.members)
        of_class &= (most >= each.least_bytes) & (most <= each.most_bytes) & (took >= SLOW * ns)
        chosen = np.flatnonzero(of_class)
        if len(chosen):
            slow = by_type.setdefault(kind, _Slow())
            slow.classes.append((each, ns))
            _note_factors(scene, slow, chosen, ns / took[chosen])
    return by_type


def _note_factors(scene: Scene, slow: _Slow, collectives: Int64, factor: Float64) -> None:
    """Note the nodes of collectives with what their times are multiplied by."""
    members = scene.members
    for collective, by in zip(collectives.tolist(), factor.tolist(), strict=True):
        span = slice(int(members.offsets[collective]), int(members.offsets[collective + 1]))
        for place, row in zip(members.rank[span].tolist(), members.row[span].tolist(), strict=True):
            if place not in slow.factors:
                slow.factors[place] = np.ones(len(scene.trace.graph_of(scene.trace.ranks[place])))
                slow.rows[place] = []
            slow.factors[place][row] = by
            slow.rows[place].append(row)


def _build_candidate(scene: Scene, kind: int, slow: _Slow, system: str) -> Candidate:
    worst, attained_ns = slow.classes[0]
    groups = list(dict.fromkeys(name for each, _ in slow.classes for name in each.groups))
    recorded = {rank.number for rank in scene.trace.ranks}
    listed = {group.name: group.ranks for group in scene.trace.groups}
    is_known = all(set(listed.get(name, recorded)) <= recorded for name in groups)
    why = (
        "all had arrived, so it is the network, its settings, or kernels that compute meanwhile"
        if is_known and worst.members <= len(recorded)
        else "either members that were not recorded come late, or the network is slow"
    )
    first = min(slow.rows)
    return Candidate(
        "slow-collectives",
        f"Find out why the {label_collectives(kind)} of {describe_groups(groups)} take {worst.median_ns / attained_ns:.0f} times as long as {system} "
        f"attains: {format_ns(worst.median_ns)} for {format_bytes(worst.most_bytes)}, not {format_ns(attained_ns)}; {why}.",
        Change((ScaleTimes(slow.factors),)),
        frozenset({f"time of {label_collectives(kind)}"}),
        find_schema_name(kind),
        groups[0] or None,
        tuple(sorted(scene.trace.ranks[place].number for place in slow.rows)),
        scene.node_ids(first, np.array(slow.rows[first], np.int64), NODES_NAMED),
    )
