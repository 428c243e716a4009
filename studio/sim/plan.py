"""Turns a trace and a configuration into the array the engine runs over.

Tables are laid out once per distinct graph, not per rank: ranks that share a graph share its node table and
bring their own slots (peers, comm groups). Graphs that differ in recorded times only share it too. What can be known to fail is refused here, before anything runs:
the reference would abort, or end in silence with ranks missing.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from studio.errors import ConfigError, TraceError
from studio.sim import kernel as k
from studio.sim.collectives import (
    ROOT_KEYS,
    ROOTED,
    Phase,
    check_group,
    chunks,
    group_phases,
    stream_phases,
)
from studio.sim.config import CollectiveKind, SystemConfig
from studio.sim.folding import WORLD, WORLD_NAMES, Folding, GraphUse, Job, Neighbourhood, Unfoldable, fold
from studio.sim.lanes import Lanes, lanes
from studio.sim.links import first_records, link_table, neighbours
from studio.sim.matched import (
    by_number,
    meetings,
    rank_starts,
    replays_communication,
    sequence_alone,
    sequences,
)
from studio.sim.programs import Program, Recipe, programs
from studio.trace import (
    INT_KINDS,
    CollectiveType,
    CommGroup,
    Graph,
    Int64,
    NodeType,
    Rank,
    Trace,
    ValueKind,
    arrays,
    collective_name,
    type_name,
)

Float64 = np.ndarray[Any, np.dtype[np.float64]]

COLLECTIVES: dict[int, CollectiveKind] = {
    CollectiveType.ALL_REDUCE: "all_reduce",
    CollectiveType.ALL_GATHER: "all_gather",
    CollectiveType.ALL_TO_ALL: "all_to_all",
    CollectiveType.REDUCE_SCATTER: "reduce_scatter",
}
EXTENDED_COLLECTIVES: dict[int, CollectiveKind] = {
    **COLLECTIVES,
    CollectiveType.REDUCE: "reduce",
    CollectiveType.GATHER: "gather",
    CollectiveType.SCATTER: "scatter",
    CollectiveType.BROADCAST: "broadcast",
    CollectiveType.REDUCE_SCATTER_BLOCK: "reduce_scatter_block",
    CollectiveType.BARRIER: "barrier",
}
KIND_CODE: dict[str, int] = {
    "all_reduce": k.ALL_REDUCE,
    "all_gather": k.ALL_GATHER,
    "reduce_scatter": k.REDUCE_SCATTER,
    "all_to_all": k.ALL_TO_ALL,
    "reduce": 4,
    "gather": 5,
    "scatter": 6,
    "broadcast": 7,
    "reduce_scatter_block": 8,
    "barrier": 9,
}
_SCALE = {
    "reduce_scatter": k.SHRINK,
    "scatter": k.SHRINK,
    "all_gather": k.GROW_BY,
    "gather": k.GROW_BY,
}
_OPS = {"send": k.OP_SEND, "send_wait": k.OP_SEND_WAIT, "receive": k.OP_RECEIVE, "reduce": k.OP_REDUCE}
_TAGS_PER_GROUP = 2 * k.CONTROL_TAG
ALGORITHM_CODE = {
    "ring": k.RING,
    "direct": k.DIRECT,
    "halving_doubling": k.HALVING,
    "double_binary_tree": k.TREE,
}
ROLE_CODE = {"normal": k.NORMAL, "up": k.UP, "down": k.DOWN}
DIMENSION_CODE = {"fully_connected": k.FULLY_CONNECTED, "switch": k.SWITCH, "ring": k.RING_DIM}
POLICY_CODE = {"lifo": 0, "fifo": 1, "explicit": 2}

INT_KEYS = (
    "is_cpu_op",
    "comm_type",
    "comm_size",
    "comm_tag",
    "comm_priority",
    "num_ops",
    "tensor_size",
    "comm_src",
    "comm_dst",
    "pg_name",
)
LONGEST_NS = k.MAX_TICK
INNER_GAP_NS = 0.0038
"""Time per byte in the inner channel of the shared bus."""
_HUGE_PAGE = 1 << 21
_COMM = (NodeType.COMM_SEND, NodeType.COMM_RECV, NodeType.COMM_COLL)
_MEM = (NodeType.MEM_LOAD, NodeType.MEM_STORE)
_UNREAD = ("start_ns", "duration_ns", "attrs.value")
_MOST_COMPARED = 16
"""Graphs of the same sizes with which another one is compared."""
_NO_PAIRS = np.zeros((2, 0), np.int64)


@dataclass(frozen=True, slots=True)
class GraphPlan:
    """One graph as the engine sees it: nodes in the order of their ids.

    N nodes, C dependencies.

    Attributes:
        graph: The graph.
        order: (N,) the row of each position.
        nodes: (N, NODE_WORDS) node records; children count from the graph's own list.
        children: (C,) positions of children, node after node.
        parents: (N,) parents per position.
        durations: (N,) how long the node at each position takes, in ns, where nothing but time passes.
        literals: Peers and groups that are no slots, as (key, value); numbered on from the graph's slots.
        collective_slots: Slots that name groups of collectives, and which varieties of collectives.
        peer_slots: Slots that name peers of messages.
        lanes: Threads and streams that have a slot of their own.
    """

    graph: Graph
    order: Int64
    nodes: Int64
    children: Int64
    parents: Int64
    durations: Int64
    literals: tuple[tuple[str, int | str], ...]
    collective_slots: dict[int, set[int]]
    peer_slots: frozenset[int]
    lanes: int = 0


@dataclass(frozen=True, slots=True)
class _Variety:
    """What decides how a comm group carries out a collective.

    Attributes:
        kind: The collective.
        root: Its root as the trace names it, a rank of the job; None where it names none.
        custom: The trace that gives it; None where an algorithm does.
    """

    kind: CollectiveKind
    root: int | None
    custom: Trace | None

    def __hash__(self) -> int:
        return hash((self.kind, self.root, id(self.custom)))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Variety)
            and (self.kind, self.root) == (other.kind, other.root)
            and self.custom is other.custom
        )


@dataclass(slots=True)
class Plan:
    """What the engine starts from.

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


class _Arena:
    """Hands out room in the array to come."""

    def __init__(self, start: int) -> None:
        self.top = start
        self.parts: list[tuple[int, Int64]] = []

    def room(self, words: int) -> int:
        at = self.top
        self.top += (words + 7) // 8 * 8
        return at

    def put(self, values: Int64) -> int:
        flat = np.ascontiguousarray(values, np.int64).reshape(-1)
        at = self.room(len(flat))
        self.parts.append((at, flat))
        return at


def make_plan(trace: Trace, config: SystemConfig, *, folded: bool = False) -> Plan:
    """Return what the engine needs to simulate `trace` on `config`.

    Args:
        trace: The job.
        config: The system.
        folded: Whether to simulate only one rank of each class of equivalent ranks, where that can be done.

    Raises:
        TraceError: The trace cannot be simulated; names rank, node and reason.
        ConfigError: The configuration does not fit the trace.
    """
    npus = config.topology.npus
    _check_ranks(trace, npus)
    builder = _Builder(trace, config)
    return builder.plan(folded)


def _check_ranks(trace: Trace, npus: int) -> None:
    numbers = [rank.number for rank in trace.ranks]
    if numbers != list(range(npus)):
        missing = sorted(set(range(npus)) - set(numbers))[:3]
        what = f"; rank {missing[0]} is missing" if missing else ""
        raise ConfigError(
            f"the topology has {npus:,} NPUs, the trace {len(numbers):,} ranks{what}; "
            "allowed: one rank per NPU, numbered from 0",
            hint="Change the sizes of the dimensions so that their product is the number of ranks.",
        )


class _Builder:
    def __init__(self, trace: Trace, config: SystemConfig) -> None:
        self.trace, self.config = trace, config
        self.npus = config.topology.npus
        self.arena = _Arena(k.HEADER)
        self.groups = {g.name: g for g in (trace.groups if config.groups is None else config.groups)}
        self.extensions = config.extensions
        self.varieties: dict[_Variety, int] = {}
        self.group_phases: dict[str, Int64] = {}
        self.group_at: dict[str, int] = {}
        self.group_checked: set[tuple[str, _Variety]] = set()
        self.lists: dict[tuple[object, ...], int] = {}
        self.stream_phases = 1
        self.most_streams = 1
        self.uses_direct = False
        self.messages: dict[int, int] = {}
        self.steps: dict[int, int] = {}
        self.longest_custom = 0
        self.longest_step = 0
        self.programs: dict[tuple[object, ...], Int64] = {}
        self.ranks_at = 0
        self.phases_of: dict[int, frozenset[Phase]] = {}
        self.folding: Folding | None = None
        self.simulated: Sequence[Rank] = trace.ranks
        self.first_alike: dict[int, int] = {}
        groups = config.groups
        self.follows = sequences(trace, groups) if by_number(config) and not self.replays else {}

    @property
    def replays(self) -> bool:
        """Whether communication takes its recorded time."""
        return replays_communication(self.config) and not self.config.replay_only

    def plan(self, folded: bool) -> Plan:
        config, arena, npus = self.config, self.arena, self.npus
        head = np.zeros(k.HEADER, np.int64)
        plans = self._plans()
        unfolded = self._fold(plans) if folded else "folding was not asked for"
        count = len(self.simulated)
        node_at = {index: self._put_graph(plans[index]) for index in set(self.first_alike.values())}
        dims = config.topology.dims
        head[k.WHEEL] = arena.room(k.LEVELS * k.SPAN)
        # With the direct algorithm every rank sends to every other in the first tick.
        channels = npus * count // 2 if self.uses_direct else 8 * count
        for base, mask, words in ((k.TICKS, k.TICK_MASK, 4 * count), (k.CHANNELS, k.CHANNEL_MASK, channels)):
            size = min(max(1 << (words - 1).bit_length(), 1024), 1 << 20)
            head[base], head[mask] = arena.room(size), size - 1
        head[k.DIMS] = arena.put(np.array([[d.size, DIMENSION_CODE[d.kind]] for d in dims], np.int64))
        head[k.DIM_COUNT], head[k.NPUS] = len(dims), npus
        head[k.COUNT], head[k.STAMPS], head[k.UNCLAIMED] = count, k.MOST_CHAINS, -1
        if self.folding is not None:
            head[k.PEERS] = arena.put(self.folding.class_of)
            head[k.WATCH] = not self.symmetric
            self._name_neighbourhoods(self.folding)
        head[k.RENDEZVOUS] = config.rendezvous
        head[k.TRAFFIC] = arena.room(k.TRAFFIC_WORDS * npus * len(dims))
        link_floats = self._put_links(head)
        head[k.ENDPOINT], head[k.QUEUES] = config.packet_delay_ns, config.queues_per_dimension
        head[k.ACTIVE] = -(-config.active_chunks // config.queues_per_dimension)
        bus = config.shared_bus
        if bus is not None:
            head[k.BUS], head[k.BUS_L], head[k.BUS_O] = 1, bus.latency_ns, bus.overhead_ns
            head[k.BUS_GAP], head[k.BUS_REDUCE] = bus.gap_ns, bus.reduction_delay_ns
        head[k.POLICY] = POLICY_CODE[config.scheduling]
        head[k.STREAM_WORDS] = (k.S_PHASES + self.stream_phases + 7) // 8 * 8
        self._put_extensions(head, plans)
        head[k.RANKS] = self._put_ranks(plans, node_at)
        lists = np.zeros((count, k.LIST_WORDS), np.int64)
        lists[:, [k.L_FIRST, k.L_SECOND, k.L_THIRD]] = -1
        head[k.SOON] = arena.put(lists)
        instances = sum(len(plans[r.graph].order) for r in self.simulated)
        head[k.LOG] = head[k.LOG_START] = arena.room(4 * instances)
        head[k.MARGIN] = self._margin(plans)
        head[k.TOP] = arena.top
        m = aligned(arena.top + 2 * int(head[k.MARGIN]) + 64 * count)
        f = np.concatenate((self._floats(), link_floats, self._speeds()))
        if self.extensions is not None and self.extensions.compute_speeds:
            head[k.SPEEDS] = len(f) - npus
        m[: k.HEADER] = head
        for at, values in arena.parts:
            m[at : at + len(values)] = values
        graph_of = np.array([r.graph for r in self.trace.ranks], np.int64)
        listed = [plans.get(i) for i in range(len(self.trace.graphs))]
        steps = sum(self._steps(plans[r.graph]) for r in self.simulated)
        numbers = instances, int(head[k.LOG]), steps
        return Plan(m, f, listed, graph_of, *numbers, self.folding, unfolded)  # type: ignore[arg-type]

    def _steps(self, plan: GraphPlan) -> int:
        """Return about how many callbacks and actions a rank takes: five per message, two per node."""
        if id(plan.nodes) not in self.steps:
            nodes = plan.nodes[plan.nodes[:, k.N_KIND] == k.K_COLLECTIVE]
            lists = np.where(nodes[:, k.N_GROUP] < 0, nodes[:, k.N_WORLD], nodes[:, k.N_GROUPED])
            messages = sum(
                count * self.messages.get(at, 1)
                for at, count in zip(lists.tolist(), nodes[:, k.N_STREAMS].tolist(), strict=True)
            )
            self.steps[id(plan.nodes)] = 2 * len(plan.nodes) + 5 * messages
        return self.steps[id(plan.nodes)]

    def _floats(self) -> Float64:
        dims = self.config.topology.dims
        f = np.zeros(k.F_HEADER + 3 * len(dims), np.float64)
        f[k.LOCAL_MEMORY] = self.config.local_memory_bytes_per_ns * 1e9
        if self.config.shared_bus is not None:
            f[k.BUS_G] = np.float32(self.config.shared_bus.gap_per_byte_ns)
            f[k.BUS_INNER_G] = INNER_GAP_NS
        for at, dim in enumerate(dims):
            f[k.F_HEADER + 2 * at] = dim.latency_ns
            f[k.F_HEADER + 2 * at + 1] = dim.bytes_per_ns * dim.efficiency
            f[k.F_HEADER + 2 * len(dims) + at] = dim.message_overhead_ns
        return f

    def _speeds(self) -> Float64:
        """Return the compute speed of each NPU, the last thing in the real numbers; empty where all are 1."""
        given = self.extensions.compute_speeds if self.extensions is not None else None
        if not given:
            return np.zeros(0, np.float64)
        outside = [npu for npu in given if not 0 <= npu < self.npus]
        if outside:
            raise ConfigError(
                f"compute_speeds names NPU {outside[0]}; allowed: 0 to {self.npus - 1}",
                hint="Speeds are given by NPU, numbered as the ranks.",
            )
        speeds = np.ones(self.npus, np.float64)
        speeds[list(given)] = list(given.values())
        return speeds

    def _put_extensions(self, head: Int64, plans: dict[int, GraphPlan]) -> None:
        """Write what the extended mode switches on into the header."""
        extensions = self.extensions
        head[k.SLOTS] = 1
        if extensions is None:
            return
        head[k.EXTENDED] = self._put_records(plans)
        head[k.LANES] = any(plan.lanes for plan in plans.values())
        head[k.SYMMETRIC] = extensions.tie_order == "symmetric"
        head[k.SLOTS] = extensions.communication_slots
        head[k.OWN_QUEUES] = self.own_queues
        head[k.SMALLEST] = extensions.chunk_order == "smallest"
        head[k.TOUCHED_LINKS] = self.arena.room(2 * self.npus + 2)

    def _put_records(self, plans: dict[int, GraphPlan]) -> int:
        """Lay out what the extended mode knows about ranks, and the slots of their threads and streams."""
        records = np.zeros((self.npus, 8), np.int64)
        for record, rank in zip(records, self.simulated, strict=False):
            count = plans[rank.graph].lanes
            record[k.X_LANES] = self.arena.room(2 * count + 2) if count else 0
        return self.arena.put(records)

    @property
    def own_queues(self) -> bool:
        """Whether each comm group has queues of its own, and takes its turns in them by itself."""
        extensions = self.extensions
        return extensions is not None and (
            extensions.tie_order == "symmetric" or extensions.communication_slots > 1
        )

    def _put_links(self, head: Int64) -> Float64:
        """Lay out the links and how they are found; returns the real numbers that follow those of the dimensions."""
        config, arena = self.config, self.arena
        dims, graph = config.topology.dims, config.links
        aware = config.congestion == "aware"
        none = np.zeros(0, np.float64)
        if not aware and graph is None:
            return none
        alone = graph is None and len(dims) == 1 and not dims[0].message_overhead_ns
        if alone and not (dims[0].kind == "ring" and dims[0].size == 2):
            head[k.AWARE] = k.ONE_DIMENSION
            head[k.LINKS] = arena.room(8 * first_records(config.topology)[-1])
            if self.folding is not None:
                head[k.LINK_ORDER] = arena.room(2 * first_records(config.topology)[-1])
            return none
        table = link_table(config)
        rates = np.zeros((table.records, 2), np.float64)
        rates[table.record, 0], rates[table.record, 1] = table.latency_ns, table.bytes_per_ns
        head[k.LINK_FLOATS] = k.F_HEADER + 3 * len(dims)
        if aware:
            head[k.LINKS] = arena.room(8 * table.records)
            head[k.AWARE] = k.PRODUCT if graph is None else k.SINGLE_LINKS
        if graph is None:
            head[k.LINK_BASES] = arena.put(np.array(first_records(config.topology), np.int64))
            return rates.reshape(-1)
        near = neighbours(graph, table)
        devices = graph.npus + graph.switches
        record = np.zeros(k.GRAPH_WORDS, np.int64)
        head[k.GRAPH] = arena.room(k.GRAPH_WORDS)
        pairs = np.stack((near.device, near.first, near.count, np.zeros_like(near.count)), axis=1)
        targets = np.zeros(table.records, np.int64)
        targets[table.record] = table.target
        record[k.G_DEVICES], record[k.G_BITS] = devices, near.bits
        record[k.G_PER], record[k.G_WORDS] = near.per_word, near.row_words
        for at, values in (
            (k.G_OUT, near.out),
            (k.G_PAIRS, pairs),
            (k.G_INTO, near.into),
            (k.G_SOURCES, near.sources),
            (k.G_TARGETS, targets),
        ):
            record[at] = arena.put(values)
        for at, words in (
            (k.G_ROWS, near.row_words * graph.npus),
            (k.G_KNOWN, graph.npus),
            (k.G_DISTANCE, devices),
            (k.G_QUEUE, devices),
        ):
            record[at] = arena.room(words)
        record[k.G_LEAST] = head[k.LINK_FLOATS] + rates.size
        record[k.G_REACH] = record[k.G_LEAST] + len(near.latency_ns)
        arena.parts.append((int(head[k.GRAPH]), record))
        return np.concatenate((rates.reshape(-1), near.latency_ns, np.zeros(devices)))

    def _margin(self, plans: dict[int, GraphPlan]) -> int:
        """Return words that one callback can need at most: whatever a single sweep may issue."""
        widest = max(len(p.order) for p in plans.values())
        per_stream = (k.S_PHASES + self.stream_phases + 7) // 8 * 8 + 128
        margin = 4096 + 8 * k.RECORDS + 96 * widest + self.most_streams * per_stream
        margin += 96 * self.longest_custom * (self.config.active_chunks + 1)
        margin += 64 * self.longest_step * (4 * self.config.active_chunks + 8)
        if self.extensions is not None:
            # A rank's whole tick may be put off to its end.
            margin *= 2
        if self.uses_direct:
            margin += 8 * self.npus * (8 + min(self.most_streams, 4 * self.config.active_chunks + 64))
        # Where the order within a tick is watched, everything that is scheduled has a label.
        return margin if self.folding is None else 4 * margin

    # -------------------------------------------------------------------------------------------
    # Classes of ranks

    @property
    def symmetric(self) -> bool:
        """Whether nothing depends on the order of a rank's events within a tick."""
        return self.extensions is not None and self.extensions.tie_order == "symmetric"

    def _fold(self, plans: dict[int, GraphPlan]) -> str:
        """Find the ranks to simulate; returns why it is all of them, "" where it is not."""
        graph_of = np.array([rank.graph for rank in self.trace.ranks], np.int64)
        number_of = self._group_number if self.extensions is None else None
        try:
            if self.replays:
                raise Unfoldable("communication takes its recorded times")
            if self.extensions is not None and self.extensions.rank_starts == "recorded":
                raise Unfoldable("ranks begin at their recorded times")
            uses = [self._use(plan, np.flatnonzero(graph_of == index)) for index, plan in plans.items()]
            self.folding = fold(Job(self.config, uses, graph_of, self.groups, self._is_world, number_of))
        except Unfoldable as reason:
            return str(reason)
        self.simulated = [self.trace.ranks[at] for at in self.folding.representatives.tolist()]
        return ""

    def _use(self, plan: GraphPlan, ranks: Int64) -> GraphUse:
        """Return what decides about the classes of the ranks of a graph."""
        kind, memory = plan.nodes[:, k.N_KIND], self.config.remote_memory
        if memory is not None and memory.sharing != "per_npu" and (kind == k.K_MEMORY).any():
            raise Unfoldable("NPUs wait for shared memory in the order of their numbers")
        nodes = plan.nodes[kind == k.K_COLLECTIVE]
        world: dict[int, frozenset[Phase]] = {}
        grouped: dict[int, frozenset[Phase]] = {}
        columns = (k.N_GROUP, k.N_WORLD, k.N_GROUPED)
        for slot, all_, part in np.unique(nodes[:, columns], axis=0).tolist():
            if all_ not in self.phases_of:
                raise Unfoldable("a collective is given as a trace")
            at = slot if slot >= 0 else WORLD
            world[at] = world.get(at, frozenset()) | self.phases_of[all_]
            grouped[at] = grouped.get(at, frozenset()) | self._grouped_phases(part)
        slots = tuple(sorted(plan.collective_slots)), tuple(sorted(plan.peer_slots))
        own, mine = len(plan.graph.slot_key), [self.trace.ranks[at] for at in ranks.tolist()]
        values: dict[int, Sequence[int | str]] = {}
        for slot in (*slots[0], *slots[1]):
            if slot < own:
                values[slot] = [rank.slots[slot] for rank in mine]
            else:
                values[slot] = [plan.literals[slot - own][1]] * len(mine)
        return GraphUse(ranks, *slots, values, int(nodes[:, k.N_STREAMS].sum()), world, grouped)

    def _grouped_phases(self, part: int) -> frozenset[Phase]:
        """Return the phases in comm groups that nodes name: as a list, or in the extended mode as a variety."""
        if self.extensions is None:
            return self.phases_of[part]
        return frozenset(group_phases(self.config, list(self.varieties)[part].kind))

    def _name_neighbourhoods(self, folding: Folding) -> None:
        """Write into the phases there are what their kind of neighbourhood is called."""
        placed = dict(self.arena.parts)
        for key, at in self.lists.items():
            if key[0] == "phases":
                for i, phase in enumerate(key[2:]):
                    assert isinstance(phase, Phase)
                    record = placed[at][8 + k.PHASE_WORDS * i :]
                    record[k.PH_NAME] = folding.kinds.get(Neighbourhood.of(phase), 0)

    # -------------------------------------------------------------------------------------------
    # Ranks

    def _put_ranks(self, plans: dict[int, GraphPlan], node_at: dict[int, int]) -> int:
        config, arena = self.config, self.arena
        count = len(self.simulated)
        records = np.zeros((count, k.RANK_WORDS), np.int64)
        at = self.ranks_at = arena.room(records.size)
        dims = len(config.topology.dims)
        records[:, k.R_NUMBER] = [rank.number for rank in self.simulated]
        records[:, k.R_FINISH] = -1
        for column, words in zip((k.R_QUEUES, k.R_POINTERS, k.R_TREES), self._turns(dims), strict=True):
            step = (words + 7) // 8 * 8
            records[:, column] = arena.room(step * count) + step * np.arange(count)
        if self.folding is not None:
            order = np.zeros((count, k.ORDER_WORDS), np.int64)
            order[:, [k.O_TICK, k.O_FROZEN, k.O_POSTED]] = -1
            records[:, k.R_ORDER] = arena.put(order) + k.ORDER_WORDS * np.arange(count)
        else:
            self._put_pools(records)
        if config.shared_bus is not None:
            self._put_buses(records)
        times = {index: arena.put(plans[index].durations) for index in {r.graph for r in self.simulated}}
        for rank, record in zip(self.simulated, records, strict=True):
            plan = plans[rank.graph]
            count = len(plan.order)
            record[k.R_NODES], record[k.R_COUNT] = node_at[self.first_alike[rank.graph]], count
            record[k.R_TIMES] = times[rank.graph]
            record[k.R_PEND] = arena.put(plan.parents)
            record[k.R_LINKS] = arena.room(2 * count + 2)
            record[k.R_SLOTS] = self._put_slots(rank, plan)
        if self.replays:
            records[:, k.R_MEETINGS] = self._put_meetings(plans)
        if self.extensions is not None and self.extensions.rank_starts == "recorded":
            records[:, k.R_BEGIN] = rank_starts(self.trace)
        arena.parts.append((at, records.reshape(-1)))
        return at

    def _put_meetings(self, plans: dict[int, GraphPlan]) -> list[int]:
        """Lay out meetings, and for each rank which of its nodes comes to which; nodes are told by `N_PEER`."""
        found = meetings(self.trace, self.config.groups)
        records = np.zeros((len(found.count), k.MEETING_WORDS), np.int64)
        records[:, k.V_LEFT] = found.count
        first = self.arena.put(records)
        tables = []
        order = np.argsort(found.rank, kind="stable")
        bounds = np.searchsorted(found.rank[order], np.arange(len(self.simulated) + 1))
        for at, rank in enumerate(self.simulated):
            mine = order[bounds[at] : bounds[at + 1]]
            plan = plans[rank.graph]
            place = np.empty(len(plan.order), np.int64)
            place[plan.order] = np.arange(len(plan.order))
            table = np.zeros((len(mine), 2), np.int64)
            number = plan.nodes[place[found.row[mine]], k.N_PEER]
            table[number, 0] = first + k.MEETING_WORDS * found.meeting[mine]
            table[number, 1] = np.where(found.waits[mine], found.time_ns[mine], -found.time_ns[mine])
            tables.append(self.arena.put(table))
        return tables

    def _turns(self, dims: int) -> tuple[int, int, int]:
        """Return the words for queues, for the turns of queues and for those of trees in some dimensions."""
        kinds = len(KIND_CODE) if self.extensions is not None else 4
        return 4 * dims * self.config.queues_per_dimension, 3 * dims, kinds * len(self.config.topology.dims)

    def _put_pools(self, records: Int64) -> None:
        memory = self.config.remote_memory
        if memory is None or memory.sharing == "per_npu":
            return
        per_pool = self.npus if memory.sharing == "pool" else memory.npus_per_node
        pools = -(-self.npus // per_pool)
        records[:, k.R_MEMORY] = self.arena.room(8 * pools) + 8 * (np.arange(self.npus) // per_pool)

    def _put_buses(self, records: Int64) -> None:
        ends = np.zeros((self.npus, 4, k.BUS_WORDS), np.int64)
        ends[:, :, k.B_SIDE] = np.arange(4)
        at = self.arena.room(ends.size)
        # Ranks are addressed as records, which are laid out before.
        first = self.ranks_at
        ends[:, :, k.B_RANK] = (first + k.RANK_WORDS * np.arange(self.npus))[:, None]
        self.arena.parts.append((at, ends.reshape(-1)))
        records[:, k.R_BUS] = at + 4 * k.BUS_WORDS * np.arange(self.npus)

    def _put_slots(self, rank: Rank, plan: GraphPlan) -> int:
        graph = plan.graph
        keys = [graph.strings[i] for i in graph.slot_key.tolist()]
        pairs = [*zip(keys, rank.slots, strict=True), *plan.literals]
        values = np.zeros(max(len(pairs), 1), np.int64)
        for at, (key, value) in enumerate(pairs):
            if at in plan.collective_slots:
                values[at] = self._membership(rank, value, plan.collective_slots[at])
            elif at in plan.peer_slots:
                values[at] = self._peer(rank, key, value)
        names = self.folding.pairs.get(rank.number) if self.folding is not None else None
        if names is None:
            return self.arena.put(values)
        # The names of messages to and from the peers stand before the slots, the first slot's last.
        before = np.zeros((len(values), 2), np.int64)
        for at, name in names.items():
            before[-1 - at] = name
        return self.arena.put(np.concatenate([before.reshape(-1), values])) + 2 * len(values)

    def _peer(self, rank: Rank, key: str, value: int | str) -> int:
        if isinstance(value, str) or not 0 <= value < self.npus:
            raise TraceError(
                f"rank {rank.number}: {key} is {value!r}; allowed: a rank from 0 to {self.npus - 1}",
                hint="The peer of a send or a receive must be a rank of the job.",
            )
        return value

    def _membership(self, rank: Rank, value: int | str, varieties: set[int]) -> int:
        """Return the record that says which place the rank has in a group; 0 for the world."""
        name = str(value)
        group = self.groups.get(name)
        if self._is_world(name, group):
            return 0
        if group is None:
            known = ", ".join(list(self.groups)[:8]) or "none"
            raise TraceError(
                f"rank {rank.number}: a collective names comm group {name!r}; groups known: {known}",
                hint="Give the list of its ranks in the comm group file.",
            )
        if rank.number not in group.ranks:
            raise TraceError(
                f"rank {rank.number}: a collective names comm group {name!r}, which has the ranks "
                f"{_some(group.ranks)} and not this one",
                hint="Correct pg_name in the trace, or the comm group file.",
            )
        self._use_group(group, varieties)
        key = (group.name, rank.number)
        if key not in self.lists:
            self.lists[key] = self.arena.put(self._member(group, rank))
        return self.lists[key]

    def _is_world(self, name: str, group: CommGroup | None) -> bool:
        """Whether a name means all ranks; in the extended mode 0 does not where a list says otherwise."""
        if name not in WORLD_NAMES or self.extensions is None or group is None or group.inferred:
            return name in WORLD_NAMES
        return name == "" or set(group.ranks) == set(range(self.npus))

    def _member(self, group: CommGroup, rank: Rank) -> Int64:
        record = np.zeros(16, np.int64)
        record[k.M_GROUP] = self._group(group)
        record[k.M_PLACE] = group.ranks.index(rank.number)
        record[k.M_SORTED] = sorted(group.ranks).index(rank.number)
        if self.extensions is None:
            # The streams of equivalent groups have the same numbers.
            record[k.M_NUMBER] = 1_000_000 * (1 if self.folding is not None else self._group_number(group))
            return record
        # Streams count from 0 in each group; tags of different groups, and of all ranks, are apart.
        number = list(self.group_at).index(group.name) if self.folding is None else 0
        record[k.M_TAGS] = (1 + number) * _TAGS_PER_GROUP
        if self.own_queues:
            dims = 1 if len(group.ranks) < self.npus else len(self.config.topology.dims)
            columns = (k.M_QUEUES, k.M_POINTERS, k.M_TREES)
            for column, words in zip(columns, self._turns(dims), strict=True):
                record[column] = self.arena.room(words)
        return record

    def _use_group(self, group: CommGroup, varieties: set[int]) -> None:
        """See to it that a group has phases for what it does, and can do it."""
        if len(group.ranks) == self.npus:
            return
        every = list(self.varieties)
        for number in varieties:
            variety = every[number]
            if (group.name, variety) in self.group_checked:
                continue
            self.group_checked.add((group.name, variety))
            if variety.custom is None:
                for phase in group_phases(self.config, variety.kind):
                    check_group(self.config, variety.kind, phase.algorithm, len(group.ranks), group.name)
            if self.extensions is not None:
                table = self.group_phases.setdefault(group.name, np.zeros(len(every), np.int64))
                table[number] = at = self._group_list(group, variety)
                # Nodes name the variety where in the compatible mode they name the list.
                self.messages[number] = max(self.messages.get(number, 1), self.messages.get(at, 1))

    def _group_list(self, group: CommGroup, variety: _Variety) -> int:
        """Return the phases of a comm group, which in the extended mode depend on its size and root."""
        if variety.custom is not None:
            return self.custom_lists(variety.custom)[1]
        place = None
        if variety.kind in ROOTED:
            root = group.ranks[0] if variety.root is None else variety.root
            if root not in group.ranks:
                raise TraceError(
                    f"a {variety.kind} of comm group {group.name!r} has rank {root} for its root; "
                    f"allowed: its ranks, {_some(group.ranks)}",
                    hint="The root is a rank of the job, and one of the group.",
                )
            place = group.ranks.index(root)
        return self.phase_list(group_phases(self.config, variety.kind, place), len(group.ranks))

    def _group_number(self, group: CommGroup) -> int:
        if not group.name.isdecimal() or int(group.name) == 0:
            raise TraceError(
                f"comm group {group.name!r}: the compatible mode knows groups by numbers; allowed: 1 and above",
                hint="Rename the group to a number in trace and comm group file, or use the extended mode.",
            )
        return int(group.name)

    def _group(self, group: CommGroup) -> int:
        if group.name not in self.group_at:
            ranks = group.ranks
            if len(set(ranks)) != len(ranks) or not all(0 <= r < self.npus for r in ranks):
                raise ConfigError(
                    f"comm group {group.name!r} has the ranks {_some(ranks)}; "
                    f"allowed: each rank from 0 to {self.npus - 1} once"
                )
            members = self.arena.put(np.array(ranks, np.int64))
            record = np.array([len(ranks), members, 0, 0], np.int64)
            if self.folding is not None:
                record[k.G_CODES] = self.arena.put(self.folding.names[group.name])
            if group.name in self.group_phases:
                record[k.G_PHASES] = self.arena.put(self.group_phases[group.name])
            self.group_at[group.name] = self.arena.put(record)
        return self.group_at[group.name]

    # -------------------------------------------------------------------------------------------
    # Graphs

    def _plans(self) -> dict[int, GraphPlan]:
        """Return the plan of every graph in use, by its number."""
        first_rank: dict[int, Rank] = {}
        for rank in self.trace.ranks:
            first_rank.setdefault(rank.graph, rank)
        graphs = {index: self.trace.graphs[index] for index in sorted(first_rank)}
        config = self.config
        # Only where nodes take what was recorded do they all differ in times alone.
        recorded = config.roofline is None and config.remote_memory is None
        # What a number's collectives follow, and when communication was recorded, is told of each graph apart.
        recorded = recorded and not self.follows and not self.replays
        self.first_alike = first_alike(graphs) if recorded else {index: index for index in graphs}
        plans: dict[int, GraphPlan] = {}
        for index, graph in graphs.items():
            first = self.first_alike[index]
            if first == index:
                plans[index] = self._graph(graph, first_rank[index])
            else:
                durations = np.maximum(graph.duration_ns[plans[first].order], 1)
                plans[index] = replace(plans[first], graph=graph, durations=durations)
        return plans

    def _put_graph(self, plan: GraphPlan) -> int:
        plan.nodes[:, k.N_CHILDREN] += self.arena.put(plan.children)
        return self.arena.put(plan.nodes)

    def _graph(self, graph: Graph, rank: Rank, custom: bool = False) -> GraphPlan:
        count = len(graph)
        if not count:
            raise TraceError(f"rank {rank.number} ({rank.file or 'no file'}): the trace has no nodes")
        order = np.argsort(graph.id, kind="stable")
        children, offsets, parents = self._edges(graph, order, rank, custom=custom)
        columns = _Columns(graph, order)
        nodes = np.zeros((count, k.NODE_WORDS), np.int64)
        nodes[:, k.N_CHILDREN] = offsets[:-1]
        nodes[:, k.N_CHILD_COUNT] = np.diff(offsets)
        draft = _Draft(self, columns, rank, nodes, custom=custom)
        draft.fill()
        own = lanes(graph, order, nodes[:, k.N_CLASS], self.extensions) if not custom else Lanes(None, 0)
        if own.lane is not None:
            nodes[:, k.N_LANE] = own.lane
        return GraphPlan(
            graph,
            order,
            nodes,
            children,
            parents,
            nodes[:, k.N_DURATION].copy(),
            tuple(draft.literals),
            draft.collective_slots,
            frozenset(draft.peer_slots),
            own.count,
        )

    def _edges(self, graph: Graph, order: Int64, rank: Rank, *, custom: bool) -> tuple[Int64, Int64, Int64]:
        """Return children, node after node, where each node's begin, and the number of parents of each."""
        count = len(graph)
        place = np.empty(count, np.int64)
        place[order] = np.arange(count)
        pairs = []
        for deps in (graph.ctrl, graph.data):
            if len(deps.dangling):
                row = int(np.searchsorted(deps.offsets, np.flatnonzero(deps.rows < 0)[0], side="right")) - 1
                raise TraceError(
                    f"rank {rank.number}: {_node(graph, row)} waits for node {deps.dangling[0]}, which is not there",
                    hint="The trace is incomplete: record it again, or remove the dependency.",
                )
            child = np.repeat(np.arange(count), np.diff(deps.offsets))
            pairs.append(place[deps.rows] * count + place[child])
        if self.replays and not custom:
            pairs[1] = pairs[1][~sequence_alone(graph)]
        before, after = self.follows.get(rank.graph, _NO_PAIRS) if not custom else _NO_PAIRS
        pairs.append(place[before] * count + place[after])
        both = np.unique(np.concatenate(pairs)) if sum(map(len, pairs)) else np.zeros(0, np.int64)
        parent, child = both // count, both % count
        parents = np.bincount(child, minlength=count).astype(np.int64)
        if parents.all():
            raise TraceError(
                f"rank {rank.number}: no node is without dependencies, so none can start",
                hint="The dependencies form a cycle.",
            )
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum(np.bincount(parent, minlength=count), out=offsets[1:])
        return child, offsets, parents

    def variety(self, variety: _Variety) -> int:
        """Return the number of a variety of collectives."""
        return self.varieties.setdefault(variety, len(self.varieties))

    def phase_list(self, phases: Sequence[Phase], group_size: int = 0) -> int:
        """Return where the records of some phases lie.

        Args:
            phases: The phases, in order.
            group_size: Ranks of the comm group they are for, where that matters; 0 for all ranks.
        """
        key = ("phases", group_size, *phases)
        if key not in self.lists:
            records = np.zeros(8 + k.PHASE_WORDS * len(phases), np.int64)
            records[0] = len(phases)
            for at, phase in enumerate(phases):
                record = records[8 + k.PHASE_WORDS * at :]
                self._phase(record, phase, phases)
                record[k.PH_LAST] = at == len(phases) - 1
                if self.folding is not None:
                    record[k.PH_NAME] = self.folding.kinds.get(Neighbourhood.of(phase), 0)
                if self.extensions is not None:
                    self._program(record, phase, phase.size or group_size)
            self.lists[key] = self.arena.put(records)
            self.phases_of[self.lists[key]] = frozenset(phases)
            self.messages[self.lists[key]] = sum(map(self._messages, phases))
            self.stream_phases = max(self.stream_phases, len(phases))
        return self.lists[key]

    def _messages(self, phase: Phase) -> int:
        """Return about how many messages a rank sends in a phase."""
        n = phase.size or max((len(group.ranks) for group in self.groups.values()), default=self.npus)
        if phase.algorithm.kind in ("ring", "direct"):
            return 2 * n
        return 2 * n.bit_length()

    def stream_lists(self, streams: Sequence[Sequence[Phase]]) -> int:
        """Return a list of phases that stands for those of single streams."""
        if len(streams) == 1:
            return self.phase_list(streams[0])
        lists = np.array([self.phase_list(phases) for phases in streams], np.int64)
        head = np.zeros(8, np.int64)
        head[0], head[1] = len(streams[0]), self.arena.put(lists)
        at = self.arena.put(head)
        self.messages[at] = self.messages[int(lists[0])]
        self.phases_of[at] = frozenset(phase for phases in streams for phase in phases)
        return at

    def _program(self, record: Int64, phase: Phase, ranks: int) -> None:
        """Let a phase run by a program where the engine has no algorithm of its own for it."""
        kind, algorithm = phase.kind, phase.algorithm
        halving, tree = algorithm.kind == "halving_doubling", algorithm.kind == "double_binary_tree"
        if kind == "barrier" and not (halving or tree):
            # Of nothing: what counts is that all have heard of all.
            record[k.PH_TYPE] = k.ALL_GATHER
            return
        odd = ranks & (ranks - 1) != 0 or (tree and phase.size == 0) or ranks == 1
        own_form = kind in ROOTED or (halving and kind in ("barrier", "all_to_all"))
        if not own_form and not ((halving or tree) and odd):
            return
        record[k.PH_ALGORITHM] = k.PROGRAM
        tables = []
        for bits in range(4):
            recipe = Recipe(
                kind,
                algorithm.kind,
                ranks,
                window=algorithm.window or 0,
                backwards=bool(bits & 1) and algorithm.kind in ("ring", "direct"),
                second=bool(bits & 2) and tree,
            )
            tables.append(self._program_table(recipe, phase))
        record[k.PH_TABLE] = self.arena.put(np.array(tables, np.int64))

    def _program_table(self, recipe: Recipe, phase: Phase) -> int:
        """Return where it is written at which step each rank, in a comm group each place, begins."""
        key = ("table", recipe, phase.stride, phase.root, phase.line)
        if key not in self.lists:
            ranks = np.arange(self.npus if phase.size else recipe.size)
            place = ranks // phase.stride % phase.size if phase.size else ranks
            root = 0
            takes_part = np.ones(len(ranks), np.bool_)
            if phase.root is not None:
                root = phase.root // phase.stride % phase.size if phase.size else phase.root
                for stride, size in phase.line:
                    takes_part &= ranks // stride % size == phase.root // stride % size
            begin = self._programs(replace(recipe, root=root))
            self.lists[key] = self.arena.put(np.where(takes_part, begin[place], begin[-1]))
        return self.lists[key]

    def _programs(self, recipe: Recipe) -> Int64:
        """Return (n + 1,) where the program of each place begins, and one that does nothing."""
        key = ("programs", recipe)
        if key not in self.programs:
            begin = [self._put_program(program) for program in programs(recipe)]
            self.programs[key] = np.array([*begin, self._put_program(())], np.int64)
        return self.programs[key]

    def _put_program(self, program: Program) -> int:
        ops: list[tuple[int, int, int, int]] = []
        # A packet waits at its rank before it is sent; a receive that comes first is posted at once.
        if not program or any(message.what.startswith("send") for message in program[0].messages):
            ops.append((k.OP_STEP, 0, 0, 0))
        for step in program:
            ops += [(_OPS[one.what], one.peer, one.divisor, one.factor) for one in step.messages]
            ops.append((k.OP_STEP, step.times, k.OP_WORDS * len(step.messages), 0))
            self.longest_step = max(self.longest_step, len(step.messages))
        ops.append((k.OP_END, 0, 0, 0))
        return self.arena.put(np.array(ops, np.int64))

    def custom_lists(self, trace: Trace) -> tuple[int, int]:
        """Return the phase lists (of the world and of groups) of a collective given as a trace."""
        key = ("custom", id(trace))
        if key not in self.lists:
            # Places without a trace have no nodes: their phase never ends, and the report says so.
            tables = np.zeros((max(len(trace.ranks), self.npus), 8), np.int64)
            plans = {}
            for place, rank in enumerate(trace.ranks):
                if rank.graph not in plans:
                    plan = self._graph(trace.graphs[rank.graph], rank, custom=True)
                    plans[rank.graph] = plan, self._put_graph(plan), self.arena.put(plan.parents)
                    self.longest_custom = max(self.longest_custom, len(plan.order))
                plan, nodes, parents = plans[rank.graph]
                tables[place, :4] = nodes, parents, self._put_slots(rank, plan), len(plan.order)
            at = self.arena.put(tables)
            self.lists[key] = self._custom_list(at, self.npus)
            self.lists[key, "group"] = self._custom_list(at, 0)
        return self.lists[key], self.lists[key, "group"]

    def _custom_list(self, table: int, size: int) -> int:
        record = np.zeros(8 + k.PHASE_WORDS, np.int64)
        record[0] = 1
        phase = record[8:]
        phase[k.PH_ALGORITHM], phase[k.PH_TABLE], phase[k.PH_TREE] = k.CUSTOM, table, -1
        phase[k.PH_N], phase[k.PH_STRIDE] = size, 1 if size else 0
        phase[k.PH_LAST] = 1
        return self.arena.put(record)

    def _phase(self, record: Int64, phase: Phase, phases: Sequence[Phase]) -> None:
        algorithm, dims = phase.algorithm, self.config.topology.dims
        self.uses_direct |= algorithm.kind == "direct"
        record[k.PH_TYPE] = KIND_CODE[phase.kind]
        record[k.PH_ALGORITHM] = ALGORITHM_CODE[algorithm.kind]
        if algorithm.kind != "double_binary_tree" or phase.kind in ROOTED:
            # The reference's trees carry out an all-reduce, whatever they are asked for.
            record[k.PH_SCALE] = _SCALE.get(phase.kind, k.KEEP)
        record[k.PH_WINDOW] = algorithm.window or 0
        record[k.PH_N], record[k.PH_STRIDE] = phase.size, phase.stride
        record[k.PH_DIM], record[k.PH_ROLE] = phase.dim, ROLE_CODE[phase.role]
        record[k.PH_TREE] = -1
        if algorithm.kind == "double_binary_tree":
            # All phases of an all-reduce count together.
            kind = "all_reduce" if any(p.kind == "all_reduce" for p in phases) else phase.kind
            record[k.PH_TREE] = KIND_CODE[kind] * len(dims) + phase.dim
        record[k.PH_LOCAL] = phase.size == 0
        free = phase.size == 0 or (algorithm.single and len(dims) > 1) or self.config.links is not None
        record[k.PH_FIXED] = -1 if free else phase.dim


@dataclass(slots=True)
class _Columns:
    """Attributes of a graph's nodes as columns in the order of positions."""

    graph: Graph
    order: Int64
    place: Int64 = field(init=False)

    def __post_init__(self) -> None:
        self.place = np.empty(len(self.order), np.int64)
        self.place[self.order] = np.arange(len(self.order))

    def where(self, key: str) -> tuple[Int64, Int64]:
        """Return positions of the nodes with an attribute, and where it lies."""
        rows, where = self.graph.rows_with(key)
        return self.place[rows], where

    def values(self, key: str, default: int) -> tuple[Int64, Any]:
        """Return (N,) values of an integer attribute, and (N,) whether the node has it."""
        count = len(self.order)
        found, there = np.full(count, default, np.int64), np.zeros(count, np.bool_)
        at, where = self.where(key)
        if len(where):
            kinds = self.graph.attrs.kind[where]
            wrong = np.isin(kinds, [*INT_KINDS, ValueKind.BOOL], invert=True)
            if wrong.any():
                node = _node(self.graph, int(self.order[at[np.flatnonzero(wrong)[0]]]))
                raise TraceError(f"{node}: attribute {key!r} is no whole number")
            found[at], there[at] = self.graph.attrs.value[where], True
        return found, there


class _Draft:
    """Fills the node records of one graph."""

    def __init__(
        self, builder: _Builder, columns: _Columns, rank: Rank, nodes: Int64, *, custom: bool
    ) -> None:
        graph, order = columns.graph, columns.order
        self.builder, self.graph, self.order, self.rank = builder, graph, order, rank
        self.columns, self.nodes, self.config = columns, nodes, builder.config
        self.extensions = builder.extensions
        self.type, self.custom = graph.type[order], custom
        self.literals: list[tuple[str, int | str]] = []
        self.collective_slots: dict[int, set[int]] = {}
        self.peer_slots: set[int] = set()

    def fail(self, pos: int, what: str, hint: str = "") -> TraceError:
        node = _node(self.graph, int(self.order[pos]))
        return TraceError(f"rank {self.rank.number}: {node}: {what}", hint=hint)

    def fill(self) -> None:
        nodes, types = self.nodes, self.type
        self._check_types()
        if self.custom:
            self._fill_custom()
            return
        cpu = self.columns.values("is_cpu_op", 0)[0] != 0
        slot = np.full(len(types), 2, np.int64)
        slot[types == NodeType.COMP] = 1
        slot[types == NodeType.COMM_RECV] = 3
        slot[cpu] = 0
        nodes[:, k.N_CLASS] = slot
        nodes[:, k.N_DURATION] = np.maximum(self.graph.duration_ns[self.order], 1)
        nodes[:, k.N_KIND] = k.K_DELAY
        nodes[:, k.N_GROUP] = -1
        if self.config.replay_only:
            return
        for pos in np.flatnonzero(cpu & np.isin(types, _COMM)).tolist():
            name = type_name(int(types[pos]))
            raise self.fail(pos, f"{name} is a CPU operation; allowed: communication beside the CPU")
        nothing = np.isin(types, (NodeType.INVALID, NodeType.METADATA))
        nodes[nothing, k.N_KIND] = k.K_INSTANT
        if self.extensions is not None and self.extensions.tie_order == "symmetric":
            nodes[nothing, k.N_CLASS] = 3
        self._compute(~cpu & (types == NodeType.COMP))
        self._memory(np.isin(types, _MEM))
        if self.builder.replays:
            self._meetings(types)
            return
        self._collectives(types == NodeType.COMM_COLL)
        self._messages(types == NodeType.COMM_SEND, k.K_SEND, "comm_dst", "comm_src")
        self._messages(types == NodeType.COMM_RECV, k.K_RECV, "comm_src", "comm_dst")

    def _meetings(self, types: Any) -> None:
        """Let communication take its recorded time: number the nodes, and give them no slot."""
        among = np.flatnonzero(np.isin(types, _COMM))
        self.nodes[among, k.N_KIND] = k.K_MEET
        self.nodes[among, k.N_CLASS] = 3
        self.nodes[among, k.N_PEER] = np.arange(len(among))

    def _fill_custom(self) -> None:
        nodes, types = self.nodes, self.type
        allowed = np.isin(types, (NodeType.COMP, NodeType.COMM_SEND, NodeType.COMM_RECV))
        for pos in np.flatnonzero(~allowed)[:1].tolist():
            name = type_name(int(types[pos]))
            raise self.fail(
                pos, f"{name} in the trace of a collective; allowed: send, receive and compute nodes"
            )
        nodes[:, k.N_DURATION] = np.maximum(self.graph.duration_ns[self.order], 1)
        nodes[:, k.N_KIND] = k.K_DELAY
        self._messages(types == NodeType.COMM_SEND, k.K_SEND, "comm_dst", "comm_src")
        self._messages(types == NodeType.COMM_RECV, k.K_RECV, "comm_src", "comm_dst")

    def _check_types(self) -> None:
        known = np.isin(self.type, list(NodeType))
        if self.extensions is None:
            known &= self.type != NodeType.METADATA
        if known.all():
            return
        pos = int(np.flatnonzero(~known)[0])
        raise self.fail(
            pos,
            f"{type_name(int(self.type[pos]))} nodes cannot be simulated; "
            "allowed: compute, communication, memory and invalid nodes",
            "Remove the node, or use the extended mode.",
        )

    def _required(self, key: str, among: Any, least: int = 0) -> Int64:
        values, there = self.columns.values(key, 0)
        for pos in np.flatnonzero(among & ~there)[:1].tolist():
            raise self.fail(pos, f"attribute {key!r} is missing")
        for pos in np.flatnonzero(among & (values < least))[:1].tolist():
            raise self.fail(pos, f"attribute {key!r} is {values[pos]}; allowed: {least} and above")
        return values

    def _compute(self, among: Any) -> None:
        """Give compute nodes the time the roofline gives them.

        intensity = operations / bytes; performance = min(bandwidth × intensity, peak); time = operations /
        performance, truncated to ns. A node without bytes completes at once.
        """
        if self.config.roofline is None or not among.any():
            return
        ops, size = self._required("num_ops", among), self._required("tensor_size", among)
        nothing = among & (size == 0)
        self.nodes[nothing, k.N_KIND] = k.K_INSTANT
        some = np.flatnonzero(among & ~nothing)
        for pos in some[ops[some] == 0][:1].tolist():
            raise self.fail(pos, "attribute 'num_ops' is 0; allowed with the roofline model: 1 and above")
        performance = roofline(self.config, ops[some], size[some])[1]
        self.nodes[some, k.N_DURATION] = (ops[some].astype(np.float64) / performance * 1e9).astype(np.int64)

    def _memory(self, among: Any) -> None:
        if not among.any():
            return
        memory = self.config.remote_memory
        if memory is None:
            raise self.fail(
                int(np.flatnonzero(among)[0]),
                "a memory node, but the system has no remote memory",
                "Give a remote memory configuration.",
            )
        size = self._required("tensor_size", among)
        time = memory.latency_ns + (size / memory.bytes_per_ns).astype(np.int64)
        self.nodes[among, k.N_KIND] = k.K_MEMORY
        self.nodes[among, k.N_DURATION] = time[among]

    def _slot(self, key: str, among: Any, column: int) -> Int64:
        """Point nodes to the slot that holds their peer or group; returns those that have none."""
        there = np.zeros(len(among), np.bool_)
        at, where = self.columns.where(key)
        attrs, strings = self.graph.attrs, self.graph.strings
        for pos, index in zip(at.tolist(), where.tolist(), strict=True):
            if not among[pos]:
                continue
            there[pos] = True
            if attrs.slot[index]:
                self.nodes[pos, column] = attrs.value[index]
                continue
            kind = ValueKind(int(attrs.kind[index]))
            if kind.is_list or kind not in (*INT_KINDS, ValueKind.STRING):
                raise self.fail(pos, f"attribute {key!r} is neither a number nor a text")
            value = int(attrs.value[index])
            self.nodes[pos, column] = self._literal(
                key, strings[value] if kind == ValueKind.STRING else value
            )
        return np.flatnonzero(among & ~there)

    def _literal(self, key: str, value: int | str) -> int:
        if (key, value) not in self.literals:
            self.literals.append((key, value))
        return len(self.graph.slot_key) + self.literals.index((key, value))

    def _collectives(self, among: Any) -> None:
        if not among.any():
            return
        nodes, builder = self.nodes, self.builder
        types = self._required("comm_type", among)
        sized = among & (types != CollectiveType.BARRIER) if self.all_collectives else among
        sizes = self._required("comm_size", sized)
        nodes[:, k.N_PRIORITY] = self.columns.values("comm_priority", 0)[0]
        self._slot("pg_name", among, k.N_GROUP)
        masks = self._involved(among)
        live = np.flatnonzero(among & (self.all_collectives | (types != CollectiveType.BROADCAST)))
        custom = self._custom_numbers()
        columns = (types, sizes, masks, nodes[:, k.N_GROUP], custom, self._roots())
        keys = np.stack([column[live] for column in columns])
        distinct, first, inverse = np.unique(keys, axis=1, return_index=True, return_inverse=True)
        found = np.zeros((distinct.shape[1], 4), np.int64)
        for at, (kind, size, mask, slot, own, root) in enumerate(distinct.T.tolist()):
            found[at] = self._collective(int(live[first[at]]), kind, size, mask, (slot, own, root))
        nodes[live, k.N_KIND] = k.K_COLLECTIVE
        picked = found[inverse.reshape(-1)]
        for column, values in zip((k.N_SIZE, k.N_STREAMS, k.N_WORLD, k.N_GROUPED), picked.T, strict=True):
            nodes[live, column] = values
        nodes[live, k.N_COLLECTIVE] = types[live]
        builder.most_streams = max(builder.most_streams, int(nodes[live, k.N_STREAMS].max(initial=1)))

    def _custom_numbers(self) -> Int64:
        """Return (N,) the number of the node's own algorithm among `custom_nodes`, -1 where it has none."""
        numbers = np.full(len(self.order), -1, np.int64)
        for at, node in enumerate(self.config.custom_nodes):
            numbers[self.graph.id[self.order] == node] = at
        return numbers

    def _involved(self, among: Any) -> Int64:
        """Return (N,) which dimensions a collective involves as bits, -1 where it does not say."""
        masks = np.full(len(among), -1, np.int64)
        attrs = self.graph.attrs
        at, where = self.columns.where("involved_dim")
        for pos, index in zip(at.tolist(), where.tolist(), strict=True):
            if attrs.kind[index] != ValueKind.BOOL_LIST:
                raise self.fail(pos, "attribute 'involved_dim' is no list of booleans")
            start = int(attrs.value[index])
            items = attrs.items[start : start + int(attrs.length[index])].tolist()
            masks[pos] = sum(1 << bit for bit, item in enumerate(items) if item)
        return masks

    @property
    def all_collectives(self) -> bool:
        return self.extensions is not None and self.extensions.collectives == "all"

    def _roots(self) -> Int64:
        """Return (N,) the root a node names, a rank of the job; -1 where it names none."""
        roots = np.full(len(self.order), -1, np.int64)
        if self.all_collectives:
            for key in reversed(ROOT_KEYS):
                values, there = self.columns.values(key, -1)
                roots[there] = values[there]
        return roots

    def _collective(
        self, pos: int, number: int, size: int, mask: int, places: tuple[int, int, int]
    ) -> tuple[int, int, int, int]:
        """Return chunk, streams and phase lists (of the world and of a group) of one kind of collective."""
        known = EXTENDED_COLLECTIVES if self.all_collectives else COLLECTIVES
        kind = known.get(number)
        if kind is None:
            allowed = ", ".join(collective_name(n) for n in (*COLLECTIVES, CollectiveType.BROADCAST))
            raise self.fail(
                pos,
                f"comm_type {number} ({collective_name(number)}) cannot be simulated; allowed: {allowed}",
                "The extended mode knows all collectives.",
            )
        config, builder = self.config, self.builder
        slot, own, named = places
        root = named if named >= 0 and kind in ROOTED else None
        custom = list(config.custom_nodes.values())[own] if own >= 0 else config.custom.get(kind)
        variety = builder.variety(_Variety(kind, root, custom))
        if slot >= 0:
            self.collective_slots.setdefault(slot, set()).add(variety)
        if custom is not None:
            if config.splits != 1:
                raise ConfigError(
                    f"splits is {config.splits}; allowed with collectives given as traces: 1",
                    hint="Set preferred-dataset-splits to 1.",
                )
            world_list, group_list = builder.custom_lists(custom)
            return size, 1, world_list, group_list if self.extensions is None else variety
        chunk, count = self._chunks(pos, kind, size)
        involved = None if mask < 0 else [bool(mask >> bit & 1) for bit in range(mask.bit_length())]
        if kind in ROOTED:
            root = self._world_root(pos, root)
        world = stream_phases(config, kind, involved, root, (chunk, count))
        if not world[0]:
            raise self.fail(
                pos,
                "no dimension is involved in the collective, so it would never end",
                "Set involved_dim to true for a dimension that the algorithms cover.",
            )
        world_at = builder.stream_lists(world)
        if self.extensions is not None:
            return chunk, count, world_at, variety
        return chunk, count, world_at, builder.phase_list(group_phases(config, kind))

    def _chunks(self, pos: int, kind: CollectiveKind, size: int) -> tuple[int, int]:
        splits = self.config.splits
        if kind == "all_to_all" and self.all_collectives:
            # As many chunks whatever a rank brings, for ranks may bring different sizes.
            return max(-(-size // splits), self.builder.npus), splits
        chunk, count = chunks(kind, size, splits, self.builder.npus)
        if count:
            return chunk, count
        if self.extensions is not None:
            return size, 1
        raise self.fail(
            pos,
            f"an all-gather of {size} bytes cannot be cut into {self.config.splits} chunks",
            "Use fewer splits (preferred-dataset-splits), or leave out the empty collective.",
        )

    def _world_root(self, pos: int, root: int | None) -> int:
        """Return the root of a collective of all ranks: the one it names, or the first rank."""
        if root is None:
            return 0
        if root >= self.builder.npus:
            raise self.fail(
                pos,
                f"the root is rank {root}; allowed: 0 to {self.builder.npus - 1}",
                f"It is what {', '.join(ROOT_KEYS)} say.",
            )
        return root

    def _messages(self, among: Any, kind: int, peer: str, own: str) -> None:
        if not among.any():
            return
        nodes = self.nodes
        nodes[among, k.N_KIND] = kind
        nodes[among, k.N_SIZE] = self._required("comm_size", among)[among]
        nodes[among, k.N_TAG] = self._required("comm_tag", among)[among] % k.STREAM_TAG
        for pos in self._slot(peer, among, k.N_PEER)[:1].tolist():
            raise self.fail(pos, f"attribute {peer!r} is missing")
        self.peer_slots.update(np.unique(nodes[among, k.N_PEER]).tolist())
        if not self.custom:
            self._own(own, among)

    def _own(self, key: str, among: Any) -> None:
        """Check that a message's own end, where it is written, is the rank itself, on every rank."""
        at, where = self.columns.where(key)
        attrs, trace = self.graph.attrs, self.builder.trace
        named = {int(attrs.value[i]): p for p, i in zip(at.tolist(), where.tolist(), strict=True) if among[p]}
        if not named:
            return
        alike = self.builder.first_alike
        for rank in trace.ranks:
            if alike[rank.graph] != alike[self.rank.graph]:
                continue
            for slot, pos in named.items():
                if slot < len(rank.slots) and rank.slots[slot] != rank.number:
                    raise TraceError(
                        f"rank {rank.number}: {_node(self.graph, int(self.order[pos]))}: {key} is "
                        f"{rank.slots[slot]!r}; allowed: the rank itself",
                        hint="Leave the attribute out, or set it to the rank of the file.",
                    )


def roofline(config: SystemConfig, ops: Int64, size_bytes: Int64) -> tuple[Float64, Float64]:
    """Return intensity (operations per byte) and attainable performance (operations per second)."""
    assert config.roofline is not None
    bandwidth, peak = config.local_memory_bytes_per_ns * 1e9, config.roofline.peak_tera_ops_per_s * 1e12
    intensity = ops.astype(np.float64) / size_bytes.astype(np.float64)
    return intensity, np.minimum(bandwidth * intensity, peak)


def first_alike(graphs: dict[int, Graph]) -> dict[int, int]:
    """Return for each graph the first that differs from it in what decides about recorded times only.

    These are the times, operations and sizes of tensors; graphs are told by their numbers.
    """
    found: dict[int, int] = {}
    seen: dict[tuple[int, ...], list[tuple[int, list[Any]]]] = {}
    for index, graph in graphs.items():
        parts = [values for name, values in arrays(graph) if name not in _UNREAD]
        # Of graphs of the same sizes that are not alike only some are looked at: it is no loss but of time.
        others = seen.setdefault(tuple(map(len, parts)), [])
        for first, theirs in others:
            same = all(a is b or np.array_equal(a, b) for a, b in zip(parts, theirs, strict=True))
            if same and _values_alike(graph, graphs[first]):
                found[index] = first
                break
        else:
            found[index] = index
            if len(others) < _MOST_COMPARED:
                others.append((index, parts))
    return found


def _values_alike(graph: Graph, other: Graph) -> bool:
    """Whether equal attributes of two graphs have equal values, but for operations and sizes of tensors."""
    if graph.attrs.value is other.attrs.value:
        return True
    codes = set(graph.attrs.key[graph.attrs.value != other.attrs.value].tolist())
    return {graph.strings[code] for code in codes} <= {"num_ops", "tensor_size"}


def aligned(words: int) -> Int64:
    """Return zeros that start at a cache line, in huge pages where they are many and the system has them."""
    if words * 8 < _HUGE_PAGE // 2 or not hasattr(mmap, "MADV_HUGEPAGE"):
        raw = np.zeros(words + 8, np.int64)
        skip = -raw.ctypes.data % 64 // 8
        return raw[skip : skip + words]
    size = -(-words * 8 // _HUGE_PAGE) * _HUGE_PAGE
    block = mmap.mmap(-1, size + _HUGE_PAGE)
    # A refusal costs nothing but time.
    with suppress(OSError):
        block.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(block, np.int64)
    skip = -whole.ctypes.data % _HUGE_PAGE // 8
    return whole[skip : skip + words]


def _node(graph: Graph, row: int) -> str:
    return f"node {graph.id[row]} ({graph.strings[int(graph.name[row])]!r})"


def _some(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return f"{shown}, … ({len(ranks):,} in all)" if len(ranks) > 8 else shown
