"""Build the array that the engine runs on from a trace and a configuration.

What can be known to fail is refused while it is made, before anything runs: the reference would abort, or end in
silence with ranks missing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.analysis.job.completeness import infer_completeness
from studio.errors import ConfigError
from studio.sim.arena import allocate_aligned
from studio.sim.config import SystemConfig
from studio.sim.flow_plans import Flows
from studio.sim.folding import Folding
from studio.sim.graph_plans import plan_graphs, put_graph
from studio.sim.kernel import records as k
from studio.sim.known import Known
from studio.sim.link_records import put_links
from studio.sim.links import Float64
from studio.sim.planning import GraphPlan, Planning
from studio.sim.rank_classes import fold_ranks, name_neighbourhoods, put_uses
from studio.sim.rank_records import put_ranks
from studio.sim.unrecorded import COMPLETE
from studio.trace import Int64, Trace
from studio.units import format_counted

DIMENSION_CODE = {
    "fully_connected": k.Network.FULLY_CONNECTED,
    "switch": k.Network.SWITCH,
    "ring": k.Network.RING,
}
POLICY_CODE = {"lifo": k.Policy.LIFO, "fifo": k.Policy.FIFO, "explicit": k.Policy.EXPLICIT}
INNER_GAP_NS = 0.0038
"""Time per byte in the inner channel of the shared bus."""


@dataclass(slots=True)
class Plan:
    """The arrays that the engine starts from.

    Attributes:
        m: The engine's array.
        f: Its real numbers.
        graphs: One plan per graph of the trace.
        graph_of: (R,) graph index of each rank.
        instances: Nodes of all ranks together.
        log: Where in `m` the events are written.
        steps: About how many callbacks and actions it takes, by which compiling is found to be worth it.
        folding: Which ranks stand for which; None where each stands for itself.
        unfolded: Why there is none.
        flows: The collectives and messages in which ranks take part that are simulated, where a cost model times them; else None.
    """

    m: Int64
    f: Float64
    graphs: list[GraphPlan]
    graph_of: Int64
    instances: int
    log: int
    steps: int
    folding: Folding | None = None
    unfolded: str = ""
    flows: Flows | None = None


def make_plan(
    trace: Trace, config: SystemConfig, *, folded: bool = False, known: Known | None = None
) -> Plan:
    """Build the plan to simulate `trace` on `config`.

    Args:
        trace: The job.
        config: The system.
        folded: Whether to simulate only one rank of each class of equivalent ranks, where that can be done.
        known: What earlier simulations of the trace have in common with this one.

    Raises:
        TraceError: The trace cannot be simulated; names rank, node and reason.
        ConfigError: The configuration does not fit the trace.
    """
    _check_ranks(trace, config)
    return _lay_out(Planning(trace, config, known), folded)


def _check_ranks(trace: Trace, config: SystemConfig) -> None:
    npus = config.topology.npus
    numbers = [rank.number for rank in trace.ranks]
    if not config.needs_every_rank and 0 < len(numbers) <= npus:
        return
    if numbers != list(range(npus)):
        missing = sorted(set(range(npus)) - set(numbers))[:3]
        what = f"; rank {missing[0]} is missing" if missing else ""
        raise ConfigError(
            f"the topology has {format_counted(npus, 'NPU')}, the trace {format_counted(len(numbers), 'rank')}{what}; "
            "allowed: one rank per NPU, numbered from 0",
            hint=_explain_size(trace, len(numbers)),
        )


def _explain_size(trace: Trace, count: int) -> str:
    known = infer_completeness(trace)
    if not known.is_whole:
        return f"{known.sentence()} {COMPLETE}"
    return (
        "Change the sizes of the dimensions so that their product is the number of ranks; "
        f"a preset takes it: preset(NAME, npus={count})."
    )


def _lay_out(planning: Planning, folded: bool) -> Plan:
    """Lay out every part and assemble the array."""
    config, arena, npus = planning.config, planning.arena, planning.npus
    head = np.zeros(k.Head.WORDS, np.int64)
    plans = plan_graphs(planning)
    unfolded = fold_ranks(planning, plans) if folded else "folding was not asked for"
    count = len(planning.simulated)
    node_at = {index: put_graph(planning, plans[index]) for index in set(planning.first_alike.values())}
    dims = config.topology.dims
    head[k.Head.WHEEL] = arena.room(k.Wheel.LEVELS * k.Wheel.SPAN)
    # With the direct algorithm every rank sends to every other in the first tick.
    channels = npus * count if planning.uses_direct else 8 * count
    for base, mask, words in (
        (k.Head.TICKS, k.Head.TICK_MASK, 16 * count),
        (k.Head.CHANNELS, k.Head.CHANNEL_MASK, channels),
    ):
        size = min(max(1 << (words - 1).bit_length(), 1024), 1 << 20)
        head[base], head[mask] = arena.room(size), size - 1
    strides = np.cumprod([1, *(d.size for d in dims[:-1])]).tolist()
    rows = [[d.size, DIMENSION_CODE[d.kind], stride, 0] for d, stride in zip(dims, strides, strict=True)]
    head[k.Head.DIMS] = arena.put(np.array(rows, np.int64))
    head[k.Head.DIM_COUNT], head[k.Head.NPUS] = len(dims), npus
    head[k.Head.COUNT], head[k.Head.STAMPS], head[k.Head.UNCLAIMED] = count, k.Order.MOST_CHAINS, -1
    if planning.folding is not None:
        head[k.Head.PEERS] = arena.put(planning.folding.class_of)
        head[k.Head.WATCH] = not planning.symmetric
        name_neighbourhoods(planning, planning.folding)
        if planning.folding.links is not None:
            head[k.Head.STANDS] = arena.put(planning.folding.links)
    head[k.Head.RENDEZVOUS] = config.rendezvous
    head[k.Head.TRAFFIC] = arena.room(k.Network.TRAFFIC_WORDS * npus * len(dims))
    planning.rests_at = k.Real.DIMS + 3 * len(dims)
    put_uses(planning)
    link_floats = put_links(planning, head) if planning.flows is None else np.zeros(len(planning.flows))
    head[k.Head.ENDPOINT], head[k.Head.QUEUES] = config.packet_delay_ns, config.queues_per_dimension
    head[k.Head.ACTIVE] = -(-config.active_chunks // config.queues_per_dimension)
    bus = config.shared_bus
    if bus is not None:
        head[k.Head.BUS], head[k.Head.BUS_L], head[k.Head.BUS_O] = 1, bus.latency_ns, bus.overhead_ns
        head[k.Head.BUS_GAP], head[k.Head.BUS_REDUCE] = bus.gap_ns, bus.reduction_delay_ns
    head[k.Head.POLICY] = POLICY_CODE[config.scheduling]
    head[k.Head.STREAM_WORDS] = (k.Stream.PHASES + planning.stream_phases + 7) // 8 * 8
    _put_extensions(planning, head, plans)
    head[k.Head.RANKS] = put_ranks(planning, plans, node_at)
    lists = np.zeros((count, k.Lists.WORDS), np.int64)
    lists[:, [k.Lists.FIRST, k.Lists.SECOND, k.Lists.THIRD]] = -1
    head[k.Head.SOON] = arena.put(lists)
    instances = sum(len(plans[r.graph].order) for r in planning.simulated)
    head[k.Head.LOG] = head[k.Head.LOG_START] = arena.room(4 * instances)
    head[k.Head.MARGIN] = _compute_margin(planning, plans)
    head[k.Head.TOP] = arena.top
    m = allocate_aligned(arena.top + 2 * int(head[k.Head.MARGIN]) + 64 * count)
    f = np.concatenate((_build_floats(planning), link_floats, _list_speeds(planning)))
    if planning.extensions is not None and planning.extensions.compute_speeds:
        head[k.Head.SPEEDS] = len(f) - npus
    m[: k.Head.WORDS] = head
    for start, values in arena.parts:
        m[start : start + len(values)] = values
    graph_of = np.array([r.graph for r in planning.trace.ranks], np.int64)
    listed = [plans.get(i) for i in range(len(planning.trace.graphs))]
    steps = sum(_estimate_steps(planning, plans[r.graph]) for r in planning.simulated)
    numbers = instances, int(head[k.Head.LOG]), steps
    return Plan(m, f, listed, graph_of, *numbers, planning.folding, unfolded, planning.every_flow)  # type: ignore[arg-type]


def _estimate_steps(planning: Planning, plan: GraphPlan) -> int:
    """Return about how many callbacks and actions a rank takes: five per message, two per node."""
    if planning.flows is not None:
        # Collectives are flows: nobody sends messages for them.
        return 2 * len(plan.nodes)
    if id(plan.nodes) not in planning.steps:
        nodes = plan.nodes[plan.nodes[:, k.Node.KIND] == k.Kind.COLLECTIVE]
        lists = np.where(nodes[:, k.Node.GROUP] < 0, nodes[:, k.Node.WORLD], nodes[:, k.Node.GROUPED])
        starts, which = np.unique(lists, return_inverse=True)
        each = np.array([planning.messages.get(start, 1) for start in starts.tolist()], np.int64)
        messages = int((each[which.reshape(-1)] * nodes[:, k.Node.STREAMS]).sum()) if len(nodes) else 0
        planning.steps[id(plan.nodes)] = 2 * len(plan.nodes) + 5 * messages
    return planning.steps[id(plan.nodes)]


def _build_floats(planning: Planning) -> Float64:
    dims = planning.config.topology.dims
    f = np.zeros(k.Real.DIMS + 3 * len(dims), np.float64)
    f[k.Real.LOCAL_MEMORY] = planning.config.local_memory_bytes_per_ns * 1e9
    if planning.config.shared_bus is not None:
        f[k.Real.BUS_G] = np.float32(planning.config.shared_bus.gap_per_byte_ns)
        f[k.Real.BUS_INNER_G] = INNER_GAP_NS
    for index, dim in enumerate(dims):
        f[k.Real.DIMS + 2 * index] = dim.latency_ns
        f[k.Real.DIMS + 2 * index + 1] = dim.bytes_per_ns * dim.efficiency
        f[k.Real.DIMS + 2 * len(dims) + index] = dim.message_overhead_ns
    return f


def _list_speeds(planning: Planning) -> Float64:
    """Return the compute speed of each NPU, the last thing in the real numbers; empty where all are 1."""
    given = planning.extensions.compute_speeds if planning.extensions is not None else None
    if not given:
        return np.zeros(0, np.float64)
    npus = planning.config.topology.npus
    outside = [npu for npu in given if not 0 <= npu < npus]
    if outside:
        raise ConfigError(
            f"compute_speeds names NPU {outside[0]}; allowed: 0 to {npus - 1}",
            hint="Speeds are given by NPU, numbered as the ranks.",
        )
    numbers = [rank.number for rank in planning.trace.ranks]
    return np.array([given.get(number, 1.0) for number in numbers], np.float64)


def _put_extensions(planning: Planning, head: Int64, plans: dict[int, GraphPlan]) -> None:
    """Write what the extended mode switches on into the header."""
    extensions = planning.extensions
    head[k.Head.SLOTS] = 1
    if extensions is None:
        return
    head[k.Head.EXTENDED] = _put_records(planning, plans)
    head[k.Head.LANES] = any(plan.lanes for plan in plans.values())
    head[k.Head.SYMMETRIC] = extensions.tie_order == "symmetric"
    head[k.Head.SLOTS] = extensions.communication_slots
    head[k.Head.OWN_QUEUES] = planning.own_queues
    head[k.Head.SMALLEST] = extensions.chunk_order == "smallest"
    head[k.Head.TOUCHED_LINKS] = planning.arena.room(2 * planning.npus + 2)


def _put_records(planning: Planning, plans: dict[int, GraphPlan]) -> int:
    """Lay out what the extended mode knows about ranks, and the slots of their threads and streams."""
    records = np.zeros((planning.npus, 8), np.int64)
    for record, rank in zip(records, planning.simulated, strict=False):
        count = plans[rank.graph].lanes
        record[k.Extended.LANES] = planning.arena.room(2 * count + 2) if count else 0
    return planning.arena.put(records)


def _compute_margin(planning: Planning, plans: dict[int, GraphPlan]) -> int:
    """Return words that one callback can need at most: whatever a single sweep may issue."""
    widest = max(len(p.order) for p in plans.values())
    per_stream = (k.Stream.PHASES + planning.stream_phases + 7) // 8 * 8 + 128
    margin = 4096 + 8 * k.Head.RECORDS + 96 * widest + planning.most_streams * per_stream
    margin += 96 * planning.longest_custom * (planning.config.active_chunks + 1)
    margin += 64 * planning.longest_step * (4 * planning.config.active_chunks + 8)
    if planning.extensions is not None:
        # All callbacks of a rank's tick may be delayed to its end.
        margin *= 2
    if planning.uses_direct:
        margin += 8 * planning.npus * (8 + min(planning.most_streams, 4 * planning.config.active_chunks + 64))
    # If the order within a tick is checked, every callback has a label.
    return margin if planning.folding is None else 4 * margin
