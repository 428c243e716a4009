"""Doubts about choices: algorithms and times that no library would take, and that shape the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from studio.analysis.collectives.matching import GroupMatching
from studio.columns import group_places
from studio.operators.roofline import find_peak
from studio.sim.collectives import EXTENDED_KIND_OF, list_configured
from studio.sim.compute import compute_times
from studio.sim.config import Roofline, SystemConfig
from studio.sim.doubt import Cure
from studio.sim.doubt_facts import Facts, Found
from studio.sim.kinds import CollectiveKind
from studio.sim.models import Model
from studio.sim.settings import BY_KEY
from studio.sim.systems.gpus import find_gpu, match_gpu
from studio.sim.topology import count_hops
from studio.trace import (
    NONE,
    WORLD_NAMES,
    CollectiveType,
    Graph,
    Int64,
    NodeType,
    Trace,
    ValueKind,
    group_slots,
    list_recorded_devices,
    read_int_column,
)
from studio.units import format_count, format_counted

_LONG_RING = 64
"""Steps from which on a ring counts as long."""
_MOSTLY = 0.5


def find_open_order(facts: Facts) -> Found:
    """Find collectives that ran before one of a lower number in their comm group, since the job leaves their order open."""
    times, every = facts.times, int(facts.alike.sum())
    if not facts.costs or not every:
        return
    early = np.zeros(len(times), np.bool_)
    # Of each group its collectives by their place in the run: where one's number is higher than that of a later one, it ran early.
    for group, own in group_places(times.group):
        matching = facts.groups.matchings[group]
        if not matching.by_number:
            order = own[np.argsort(times.position[own], kind="stable")]
            number = _number_collectives(matching, times.last_rank[order], times.last_row[order])
            early[order] = number > np.minimum.accumulate(number[::-1])[::-1]
    count = int(facts.alike[early].sum())
    if count:
        message = (
            f"{format_count(count)} of {format_counted(every, 'collective')} ran before one of a lower number in their comm "
            "group: the job leaves their order open, where a program decides on one, and another order takes another time. "
            "Dependencies, or numbers (comm_seq), fix it."
        )
        yield message, None


def _number_collectives(matching: GroupMatching, rank: Int64, row: Int64) -> Int64:
    """Return (C,) which collective of its group each is in the order of issue.

    Args:
        matching: The group.
        rank: (C,) a member of each.
        row: (C,) its node there.
    """
    number = np.zeros(len(row), np.int64)
    for member, own in group_places(rank):
        rows = matching.find_sequence(member).rows
        order = np.argsort(rows, kind="stable")
        number[own] = order[np.searchsorted(rows[order], row[own])]
    return number


def find_instant(facts: Facts) -> Found:
    """Find collectives that took 1 ns because they take their recorded time and none was recorded."""
    config, trace = facts.config, facts.result.trace
    fixed = config.extensions is None or config.extensions.collectives == "reference"
    lacking = every = 0
    # Ranks of one graph have the same collectives.
    for graph, ranks in zip(trace.graphs, trace.count_ranks(), strict=True):
        replayed = graph.type == NodeType.COMM_COLL
        if config.needs_every_rank:
            rows, types = read_int_column(graph, "comm_type")
            broadcast = np.zeros(len(graph), bool)
            broadcast[rows] = types == CollectiveType.BROADCAST
            replayed = replayed & broadcast & fixed
        lacking += ranks * int((replayed & (graph.duration_ns <= 0)).sum())
        every += ranks * int(replayed.sum())
    if not lacking or config.topology.npus < 2:
        return
    what = "collectives" if not config.needs_every_rank else "broadcasts"
    settings = (
        ("extended.communication-times=simulated", "replay-only=0") if not config.needs_every_rank else ()
    )
    yield (
        f"{format_count(lacking)} of {format_count(every)} {what} took 1 ns: they take their recorded time, and none was recorded.",
        Cure("Simulate them on the network", "full", settings),
    )


_AS_ALL_REDUCE: tuple[CollectiveKind, ...] = ("all_gather", "reduce_scatter", "all_to_all")


def find_disguised(facts: Facts) -> Found:
    """Find collectives that a tree carries out as an all-reduce."""
    for kind in _list_used_kinds(facts):
        listed = list_configured(facts.config, kind)
        trees = [index for index, algorithm in enumerate(listed) if algorithm.kind == "double_binary_tree"]
        if kind in _AS_ALL_REDUCE and trees:
            name = "direct" if kind == "all_to_all" else "ring"
            cure = _build_algorithm_cure(facts.config, kind, trees, name)
            yield (
                f"{_label_kind(kind)} runs on a double binary tree, which carries out an all-reduce in its place.",
                cure,
            )


def find_ring_behind_switch(facts: Facts) -> Found:
    """Find all-to-alls passed round a ring although a switch joins all pairs."""
    if "all_to_all" not in _list_used_kinds(facts):
        return
    dims, listed = facts.config.topology.dims, list_configured(facts.config, "all_to_all")
    rings = [
        index
        for index, (dim, algorithm) in enumerate(zip(dims, listed, strict=False))
        if algorithm.kind == "ring" and dim.kind == "switch" and dim.size > 2
    ]
    if rings:
        sizes = " and ".join(f"{dims[index].size:,}" for index in rings)
        yield (
            (
                f"All-to-all is passed round a ring behind a switch of {sizes} NPUs: every byte crosses the switch again and "
                "again, where libraries send it to its rank at once."
            ),
            _build_algorithm_cure(facts.config, "all_to_all", rings, "direct"),
        )


def find_long_rings(facts: Facts) -> Found:
    """Find collectives whose time is mostly the latency of a long ring."""
    if not facts.simulated or facts.config.links is not None or not _list_used_kinds(facts):
        return
    times, config = facts.times, facts.config
    took = times.end_ns - times.arrived_ns
    for kind in _list_used_kinds(facts):
        of_kind = np.isin(
            times.type, [number for number, name in EXTENDED_KIND_OF.items() if name == kind]
        ) & (took > 0)
        if not of_kind.any():
            continue
        members, of = np.unique(times.members[of_kind], return_inverse=True)
        rings = [_compute_ring_latency(config, kind, int(count)) for count in members]
        steps, latency = (np.array([ring[column] for ring in rings])[of] for column in (0, 1))
        count = facts.alike[of_kind]
        share = float((count * np.minimum(latency, took[of_kind])).sum() / (count * took[of_kind]).sum())
        if share >= _MOSTLY and steps.max() >= _LONG_RING:
            places = list(range(len(list_configured(config, kind))))
            yield (
                (
                    f"{100 * share:.0f} % of the time of {_label_kind(kind).lower()} is latency, of up to {int(steps.max()):,} steps "
                    "round a ring; libraries take a tree or halve the distance there."
                ),
                _build_algorithm_cure(
                    config, kind, places, "direct" if kind == "all_to_all" else "halvingDoubling"
                ),
            )


def _compute_ring_latency(config: SystemConfig, kind: CollectiveKind, members: int) -> tuple[int, float]:
    """Return the steps of a collective's longest ring, and the latency of the steps of all its rings, in ns."""
    dims, listed = config.topology.dims, list_configured(config, kind)
    alone = members < config.topology.npus or any(algorithm.single for algorithm in listed[:1])
    if not listed or (alone and listed[0].kind != "ring"):
        return 0, 0.0
    worst = max(dims, key=lambda dim: count_hops(dim, 0, 1) * dim.latency_ns)
    rings = (
        [(members, worst)]
        if alone
        else [
            (dim.size, dim) for dim, algorithm in zip(dims, listed, strict=False) if algorithm.kind == "ring"
        ]
    )
    rounds = 2 if kind == "all_reduce" else 1
    steps = [rounds * (size - 1) for size, _ in rings]
    each = [count_hops(dim, 0, 1) * dim.latency_ns + config.packet_delay_ns for _, dim in rings]
    # Chunks that may not be under way at once follow each other, each with the latency of its own steps.
    rows = -(-config.splits // config.active_chunks)
    return max(steps, default=0), rows * sum(count * ns for count, ns in zip(steps, each, strict=True))


def find_partly_involved(facts: Facts) -> Found:
    """Find collectives of all ranks that name dimensions they involve, and not all, where a cost model times them among all ranks."""
    if not facts.costs or not facts.simulated:
        return
    trace = facts.result.trace
    per_graph = [_find_partial_slots(graph, facts.config) for graph in trace.graphs]
    if not any(map(len, per_graph)):
        return
    count = every = 0
    for rank in trace.ranks:
        slots = per_graph[rank.graph].tolist()
        count += sum(slot == NONE or str(rank.slots[slot]) in WORLD_NAMES for slot in slots)
        every += int((trace.graphs[rank.graph].type == NodeType.COMM_COLL).sum())
    if count:
        yield (
            (
                f"{format_count(count)} of {format_counted(every, 'collective node')} {'involves' if count == 1 else 'involve'} a part "
                "of the dimensions by involved_dim, which has no effect beside costs: all ranks carry them out together. Name a "
                "comm group of the ranks along these dimensions (pg_name, --comm-groups)."
            ),
            None,
        )


def _find_partial_slots(graph: Graph, config: SystemConfig) -> Int64:
    """Return (M,) the slots of the groups of collectives that name dimensions, and not all that the system has."""
    rows, where = graph.rows_with("involved_dim")
    is_list = (graph.type[rows] == NodeType.COMM_COLL) & (graph.attrs.kind[where] == ValueKind.BOOL_LIST)
    rows, where = rows[is_list], where[is_list]
    partly = np.zeros(len(rows), np.bool_)
    start, length = graph.attrs.value[where], graph.attrs.length[where]
    for index, dim in enumerate(config.topology.dims):
        named = np.flatnonzero(length > index)
        involved = np.zeros(len(rows), np.bool_)
        involved[named] = graph.attrs.items[start[named] + index] != 0
        partly |= ~involved & (dim.size > 1)
    slots: Int64 = group_slots(graph)[rows[partly]]
    return slots


def _list_used_kinds(facts: Facts) -> list[CollectiveKind]:
    """Return the kinds of collectives that algorithms carry out by messages; none where costs time them."""
    if not facts.simulated or facts.costs:
        return []
    kinds = [EXTENDED_KIND_OF[number] for number in sorted(facts.kinds) if number in EXTENDED_KIND_OF]
    return [kind for kind in kinds if kind not in facts.config.custom]


def _build_algorithm_cure(
    config: SystemConfig, kind: CollectiveKind, places: Sequence[int], name: str
) -> Cure:
    """Return the cure that sets another algorithm in some dimensions."""
    listed = [algorithm.name for algorithm in list_configured(config, kind)]
    for index in places:
        listed[index] = name
    setting = BY_KEY[f"{kind.replace('_', '-')}-implementation"]
    # Beyond the reference these run on any number of ranks.
    odd = any(dim.size & (dim.size - 1) for dim in config.topology.dims)
    model: Model | None = "full" if name == "halvingDoubling" and odd and config.extensions is None else None
    label = f"Simulate {_label_kind(kind).lower()} by {name}"
    return Cure(label, model, (f"{setting.path}=[{', '.join(listed)}]",))


def _label_kind(kind: CollectiveKind) -> str:
    return BY_KEY[f"{kind.replace('_', '-')}-implementation"].label


def find_timeless(facts: Facts) -> Found:
    """Find compute nodes without a recorded duration that no roofline serves: for want of one, or of operations and bytes."""
    trace, config = facts.result.trace, facts.config
    times = compute_times(trace, config)
    # What ASTRA-sim does without a time is its answer; the check before a run tells of it.
    if not times.unknown or config.extensions is None or not config.needs_every_rank:
        return
    served = times.unknown
    if config.roofline is None:
        served = compute_times(trace, _with_any_roofline(config)).unknown
    if unserved := times.unknown - served:
        yield (
            (
                f"{format_count(unserved)} of {format_count(times.all)} compute nodes took 1 ns: they have no recorded duration, and "
                "the system has no roofline for their operations and bytes."
            ),
            _build_roofline_cure(trace, config),
        )
    if served:
        yield (
            (
                f"{format_count(served)} of {format_count(times.all)} compute nodes took 1 ns: they have neither a recorded "
                "duration nor operations and bytes that a roofline could use. No setting can tell what they take: record them with "
                "durations (Kineto), or give them num_ops and tensor_size."
            ),
            None,
        )


def _with_any_roofline(config: SystemConfig) -> SystemConfig:
    """Return the system with a roofline that serves the nodes without a duration, whatever its peak."""
    extensions = replace(config.extensions, compute_times="recorded") if config.extensions else None
    return replace(config, roofline=Roofline(1.0), local_memory_bytes_per_ns=1.0, extensions=extensions)


def _build_roofline_cure(trace: Trace, config: SystemConfig) -> Cure:
    """Return the cure that computes nodes as a GPU would: the recorded one, that of the system's costs, else an H100."""
    named = next((known for name in list_recorded_devices(trace) if (known := match_gpu(name))), None)
    library = config.costs.library if config.costs is not None else ""
    gpu = find_gpu(named or _GPU_OF_LIBRARY.get(library, "h100"))
    tera_flops, gbytes = find_peak(gpu, "bf16") or find_peak(gpu, "fp16") or 0.0, gpu.memory_bytes_per_ns
    return Cure(
        f"Compute them as {gpu.name} would, {tera_flops:,.6g} TFLOP/s and {gbytes:,.6g} GB/s",
        None,
        (
            "roofline-enabled=1",
            f"peak-perf={tera_flops:.6g}",
            f"local-mem-bw={gbytes:.6g}",
            # Nodes with a recorded duration keep it.
            "extended.compute-times=recorded",
        ),
    )


_GPU_OF_LIBRARY = {
    "nccl-volta": "v100",
    "nccl-ampere": "a100",
    "nccl-hopper": "h100",
    "nccl-blackwell": "b200",
    "nccl-pcie": "l40s",
    "rccl": "mi300x",
}
"""The usual GPU that a library's costs are of."""
