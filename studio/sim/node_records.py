"""Fill the node records that the engine reads.

Nodes that cannot be simulated are refused here, with rank, node and reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from studio.distinct import find_distinct
from studio.errors import ConfigError, TraceError
from studio.sim.collectives import (
    EXTENDED_KIND_OF,
    KIND_OF,
    build_group_phases,
    build_stream_phases,
    compute_chunks,
)
from studio.sim.compute import ComputeColumns, Source, compute_attainable, compute_sources
from studio.sim.kernel import records as k
from studio.sim.kinds import ROOTED_KINDS, CollectiveKind
from studio.sim.ordered_graph import is_ordered, read_meeting_rows
from studio.sim.phase_lists import put_phase_list, put_stream_lists
from studio.sim.planning import Planning, Variety
from studio.trace import (
    INT_KINDS,
    ROOT_KEYS,
    CollectiveType,
    Graph,
    Int32,
    Int64,
    NodeType,
    Rank,
    Trace,
    ValueKind,
    label_collective,
    type_name,
)

_COMM = (NodeType.COMM_SEND, NodeType.COMM_RECV, NodeType.COMM_COLL)
MEMORY_TYPES = (NodeType.MEM_LOAD, NodeType.MEM_STORE)
_WHOLE = np.isin(np.arange(256), [*INT_KINDS, ValueKind.BOOL])
"""Whether values of a kind are whole numbers."""


@dataclass(slots=True)
class Columns:
    """Attributes of a graph's nodes as columns in the order of positions."""

    graph: Graph
    order: Int64
    place: Int64 = field(init=False)

    def __post_init__(self) -> None:
        self.place = np.empty(len(self.order), np.int64)
        self.place[self.order] = np.arange(len(self.order))

    def where(self, key: str) -> tuple[Int64, Int64]:
        """Return the positions of nodes with an attribute, and the attribute's row."""
        rows, where = self.graph.rows_with(key)
        return self.place[rows], where

    def values(self, key: str, default: int) -> tuple[Int64, Any]:
        """Return (N,) values of an integer attribute, and (N,) whether the node has it."""
        count = len(self.order)
        numbers, is_present = np.full(count, default, np.int64), np.zeros(count, np.bool_)
        positions, where = self.where(key)
        if len(where):
            kinds = self.graph.attrs.kind[where]
            wrong = ~_WHOLE[kinds]
            if wrong.any():
                position = int(positions[int(np.argmax(wrong))])
                node = name_node(self.graph, int(self.order[position]))
                raise TraceError(
                    f"{node}: attribute {key!r} is no whole number",
                    hint="Write the attribute as a whole number (`int64_val` in the file), or leave it out.",
                )
            numbers[positions], is_present[positions] = self.graph.attrs.value[where], True
        return numbers, is_present


class Draft:
    """Fills the node records of one graph.

    `custom_lists` lays out a collective given as a trace and returns its lists of phases, for the world and for groups;
    it is None where the graph is of such a trace itself.
    """

    def __init__(
        self,
        planning: Planning,
        columns: Columns,
        rank: Rank,
        nodes: Int64,
        custom_lists: Callable[[Trace], tuple[int, int]] | None,
    ) -> None:
        graph, order = columns.graph, columns.order
        self.planning, self.graph, self.order, self.rank = planning, graph, order, rank
        self.columns, self.nodes, self.config = columns, nodes, planning.config
        self.extensions = planning.extensions
        self.type, self.custom_lists = graph.type[order], custom_lists
        self.literals: list[tuple[str, int | str]] = []
        self.collective_slots: dict[int, set[int]] = {}
        self.peer_slots: set[int] = set()

    def fail(self, pos: int, what: str, hint: str = "") -> TraceError:
        """Return the error that names a node and says what is wrong with it."""
        node = name_node(self.graph, int(self.order[pos]))
        return TraceError(f"rank {self.rank.number}: {node}: {what}", hint=hint)

    def fill(self) -> None:
        """Fill the records of all nodes."""
        nodes, types = self.nodes, self.type
        self._check_types()
        if self.custom_lists is None:
            self._fill_custom()
            return
        cpu = self.columns.values("is_cpu_op", 0)[0] != 0
        slot = np.full(len(types), 2, np.int64)
        slot[types == NodeType.COMP] = 1
        slot[types == NodeType.COMM_RECV] = 3
        # Nodes of a job in the order of its recording wait for what they ran after, whatever threads ran beside each other.
        slot[cpu] = 3 if self.planning.replays and is_ordered(self.graph) else 0
        nodes[:, k.Node.SLOT] = slot
        nodes[:, k.Node.DURATION] = np.maximum(self.graph.duration_ns[self.order], 1)
        nodes[:, k.Node.KIND] = k.Kind.DELAY
        nodes[:, k.Node.GROUP] = -1
        if self.config.replay_only:
            return
        for pos in np.flatnonzero(cpu & np.isin(types, _COMM)).tolist():
            name = type_name(int(types[pos]))
            raise self.fail(pos, f"{name} is a CPU operation; allowed: communication beside the CPU")
        nothing = np.isin(types, (NodeType.INVALID, NodeType.METADATA))
        nodes[nothing, k.Node.KIND] = k.Kind.INSTANT
        if self.extensions is not None and self.extensions.tie_order == "symmetric":
            nodes[nothing, k.Node.SLOT] = 3
        self._compute(~cpu & (types == NodeType.COMP))
        self._fill_memory(np.isin(types, MEMORY_TYPES))
        if self.planning.replays:
            self._fill_meetings(types, k.Kind.MEET)
            return
        if self.planning.bundles is not None:
            self._check_communication(types)
            self._fill_meetings(types, k.Kind.FLOW)
            return
        self._fill_collectives(types == NodeType.COMM_COLL)
        self._fill_messages(types == NodeType.COMM_SEND, k.Kind.SEND, "comm_dst", "comm_src")
        self._fill_messages(types == NodeType.COMM_RECV, k.Kind.RECV, "comm_src", "comm_dst")

    def retime(self, known: ComputeColumns) -> None:
        """Give compute nodes of records that were filled of another graph the times of this one, which differs in nothing else."""
        nodes = self.nodes
        nodes[:, k.Node.DURATION] = np.maximum(self.graph.duration_ns[self.order], 1)
        computing = (self.type == NodeType.COMP) & (nodes[:, k.Node.SLOT] == 1)
        nodes[computing, k.Node.KIND] = k.Kind.DELAY
        self._compute(computing, known)
        if np.isin(self.type, (NodeType.COMM_SEND, NodeType.COMM_RECV)).any():
            # Which ranks messages name is in slots, which are each rank's own.
            self._check_communication(self.type)

    def _check_communication(self, types: Any) -> None:
        """Refuse communication that lacks what flows are made of."""
        collectives = types == NodeType.COMM_COLL
        if collectives.any() and self.config.topology.npus > 1:
            kinds = self._require("comm_type", collectives)
            for pos in np.flatnonzero(collectives & ~np.isin(kinds, list(EXTENDED_KIND_OF)))[:1].tolist():
                allowed = ", ".join(map(label_collective, EXTENDED_KIND_OF))
                name = label_collective(int(kinds[pos]))
                raise self.fail(
                    pos, f"comm_type {kinds[pos]} ({name}) cannot be simulated; allowed: {allowed}"
                )
            self._require("comm_size", collectives & (kinds != CollectiveType.BARRIER))
        for kind, peer, own in (
            (NodeType.COMM_SEND, "comm_dst", "comm_src"),
            (NodeType.COMM_RECV, "comm_src", "comm_dst"),
        ):
            among = types == kind
            if among.any():
                self._require("comm_size", among)
                self._require("comm_tag", among)
                is_present = np.zeros(len(among), np.bool_)
                is_present[self.columns.where(peer)[0]] = True
                for pos in np.flatnonzero(among & ~is_present)[:1].tolist():
                    raise self.fail(pos, f"attribute {peer!r} is missing")
                self._check_own(own, among)

    def _fill_meetings(self, types: Any, kind: int) -> None:
        """Let communication meet that of other ranks: number the nodes and give them no slot."""
        among = np.flatnonzero(np.isin(types, _COMM))
        self.nodes[among, k.Node.SLOT] = 3
        among = self.columns.place[read_meeting_rows(self.graph)[self.order[among]]]
        self.nodes[among, k.Node.KIND] = kind
        self.nodes[among, k.Node.SLOT] = 3
        self.nodes[among, k.Node.PEER] = np.arange(len(among))

    def _fill_custom(self) -> None:
        nodes, types = self.nodes, self.type
        allowed = np.isin(types, (NodeType.COMP, NodeType.COMM_SEND, NodeType.COMM_RECV))
        for pos in np.flatnonzero(~allowed)[:1].tolist():
            name = type_name(int(types[pos]))
            raise self.fail(
                pos, f"{name} in the trace of a collective; allowed: send, receive and compute nodes"
            )
        nodes[:, k.Node.DURATION] = np.maximum(self.graph.duration_ns[self.order], 1)
        nodes[:, k.Node.KIND] = k.Kind.DELAY
        self._fill_messages(types == NodeType.COMM_SEND, k.Kind.SEND, "comm_dst", "comm_src")
        self._fill_messages(types == NodeType.COMM_RECV, k.Kind.RECV, "comm_src", "comm_dst")

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

    def _require(self, key: str, among: Any, least: int = 0) -> Int64:
        values, is_present = self.columns.values(key, 0)
        for pos in np.flatnonzero(among & ~is_present)[:1].tolist():
            raise self.fail(pos, f"attribute {key!r} is missing")
        for pos in np.flatnonzero(among & (values < least))[:1].tolist():
            raise self.fail(pos, f"attribute {key!r} is {values[pos]}; allowed: {least} and above")
        return values

    def _compute(self, among: Any, known: ComputeColumns | None = None) -> None:
        """Give compute nodes the time the roofline gives them.

        intensity = operations / bytes; performance = min(bandwidth × intensity, peak); time = operations /
        performance, truncated to ns. A node without bytes completes at once.
        """
        if self.config.roofline is None or not among.any():
            return
        if self.extensions is not None:
            sources = compute_sources(self.graph, self.config, known)
            among = among & (sources == Source.ROOFLINE)[self.order]
        if known is not None and known.are_whole:
            ops, size = self._gather(known.ops), self._gather(known.size)
        else:
            ops, size = self._require("num_ops", among), self._require("tensor_size", among)
        nothing = among & (size == 0)
        self.nodes[nothing, k.Node.KIND] = k.Kind.INSTANT
        some = np.flatnonzero(among & ~nothing)
        for pos in some[ops[some] == 0][:1].tolist():
            raise self.fail(pos, "attribute 'num_ops' is 0; allowed with the roofline model: 1 and above")
        performance = compute_attainable(self.config, ops[some], size[some])[1]
        self.nodes[some, k.Node.DURATION] = (ops[some].astype(np.float64) / performance * 1e9).astype(
            np.int64
        )

    def _gather(self, column: tuple[Int32, Int64]) -> Int64:
        """Return (N,) the values of a column of which it is known where they stand; those whom a roofline times have one."""
        rows, where = column
        values = np.zeros(len(self.order), np.int64)
        values[self.columns.place[rows]] = self.graph.attrs.value[where]
        return values

    def _fill_memory(self, among: Any) -> None:
        if self.planning.replays:
            recorded = among & (self.graph.duration_ns[self.order] > 0)
            # Its recorded time holds what it waited for memory; nothing more is to be waited for.
            self.nodes[recorded, k.Node.SLOT] = 3
            among = among & ~recorded
        if not among.any():
            return
        memory = self.config.remote_memory
        if memory is None:
            raise self.fail(
                int(np.flatnonzero(among)[0]),
                "a memory node, but the system has no remote memory",
                "Give it one: settings memory-type=PER_NPU_MEMORY_EXPANSION, remote-mem-bw=64 (GB/s) and "
                "remote-mem-latency=1000 (ns) of a preset, or read_config(…, remote_memory=FILE).",
            )
        size = self._require("tensor_size", among)
        time = memory.latency_ns + (size / memory.bytes_per_ns).astype(np.int64)
        self.nodes[among, k.Node.KIND] = k.Kind.MEMORY
        self.nodes[among, k.Node.DURATION] = time[among]

    def _point_to_slots(self, key: str, among: Any, column: int) -> Int64:
        """Point nodes to the slot that holds their peer or group; returns those that have none."""
        is_present = np.zeros(len(among), np.bool_)
        positions, where = self.columns.where(key)
        attrs, strings = self.graph.attrs, self.graph.strings
        positions, where = positions[among[positions]], where[among[positions]]
        is_present[positions] = True
        slots = attrs.slot[where] != 0
        self.nodes[positions[slots], column] = attrs.value[where[slots]]
        for pos, index in zip(positions[~slots].tolist(), where[~slots].tolist(), strict=True):
            kind = ValueKind(int(attrs.kind[index]))
            if kind.is_list or kind not in (*INT_KINDS, ValueKind.STRING):
                raise self.fail(pos, f"attribute {key!r} is neither a number nor a text")
            value = int(attrs.value[index])
            self.nodes[pos, column] = self._number_literal(
                key, strings[value] if kind == ValueKind.STRING else value
            )
        return np.flatnonzero(among & ~is_present)

    def _number_literal(self, key: str, value: int | str) -> int:
        if (key, value) not in self.literals:
            self.literals.append((key, value))
        return len(self.graph.slot_key) + self.literals.index((key, value))

    def _fill_collectives(self, among: Any) -> None:
        if not among.any():
            return
        nodes, planning = self.nodes, self.planning
        if planning.config.topology.npus == 1:
            # One rank has nobody to wait for and nothing to send: the shortest time there is.
            nodes[among, k.Node.DURATION] = 1
            return
        types = self._require("comm_type", among)
        sized = among & (types != CollectiveType.BARRIER) if self.all_collectives else among
        sizes = self._require("comm_size", sized)
        nodes[:, k.Node.PRIORITY] = self.columns.values("comm_priority", 0)[0]
        self._point_to_slots("pg_name", among, k.Node.GROUP)
        masks = self._read_involved_dimensions(among)
        live = np.flatnonzero(among & (self.all_collectives | (types != CollectiveType.BROADCAST)))
        custom = self._find_custom_numbers()
        columns = (types, sizes, masks, nodes[:, k.Node.GROUP], custom, self._read_roots())
        keys = np.stack([column[live] for column in columns])
        distinct, first, inverse = _find_distinct_columns(keys)
        planned = []
        for pos, kind, size, mask, slot, own, root in zip(
            live[first].tolist(), *distinct.tolist(), strict=True
        ):
            key = kind, size, mask, own, root
            if key not in planning.collectives:
                planning.collectives[key] = self._plan_collective(pos, *key)
            planned.append(planning.collectives[key])
            if slot >= 0:
                self.collective_slots.setdefault(slot, set()).add(planned[-1][-1])
        records = np.array(planned, np.int64).reshape(-1, 5)
        nodes[live, k.Node.KIND] = k.Kind.COLLECTIVE
        picked = records[inverse]
        for column, values in zip(
            (k.Node.SIZE, k.Node.STREAMS, k.Node.WORLD, k.Node.GROUPED), picked.T, strict=False
        ):
            nodes[live, column] = values
        nodes[live, k.Node.COLLECTIVE] = types[live]
        planning.most_streams = max(planning.most_streams, int(nodes[live, k.Node.STREAMS].max(initial=1)))

    def _find_custom_numbers(self) -> Int64:
        """Return (N,) the number of the node's own algorithm among `custom_nodes`, -1 where it has none."""
        numbers = np.full(len(self.order), -1, np.int64)
        for index, node in enumerate(self.config.custom_nodes):
            numbers[self.graph.id[self.order] == node] = index
        return numbers

    def _read_involved_dimensions(self, among: Any) -> Int64:
        """Return (N,) which dimensions a collective involves as bits, -1 where it does not say."""
        masks = np.full(len(among), -1, np.int64)
        attrs = self.graph.attrs
        positions, where = self.columns.where("involved_dim")
        for pos, index in zip(positions.tolist(), where.tolist(), strict=True):
            if attrs.kind[index] != ValueKind.BOOL_LIST:
                raise self.fail(pos, "attribute 'involved_dim' is no list of booleans")
            start = int(attrs.value[index])
            items = attrs.items[start : start + int(attrs.length[index])].tolist()
            masks[pos] = sum(1 << bit for bit, item in enumerate(items) if item)
        return masks

    @property
    def all_collectives(self) -> bool:
        """Whether more than the four collectives of the compatible mode are known."""
        return self.extensions is not None and self.extensions.collectives == "all"

    def _read_roots(self) -> Int64:
        """Return (N,) the root a node names, a rank of the job; -1 where it names none."""
        roots = np.full(len(self.order), -1, np.int64)
        if self.all_collectives:
            for key in reversed(ROOT_KEYS):
                values, is_present = self.columns.values(key, -1)
                roots[is_present] = values[is_present]
        return roots

    def _plan_collective(
        self, pos: int, number: int, size: int, mask: int, own: int, named: int
    ) -> tuple[int, int, int, int, int]:
        """Return chunk, streams, phase lists (of the world and of a group) and variety of one kind of collective."""
        known = EXTENDED_KIND_OF if self.all_collectives else KIND_OF
        kind = known.get(number)
        if kind is None:
            allowed = ", ".join(label_collective(n) for n in (*KIND_OF, CollectiveType.BROADCAST))
            raise self.fail(
                pos,
                f"comm_type {number} ({label_collective(number)}) cannot be simulated; allowed: {allowed}",
                "The extended mode knows all collectives.",
            )
        config, planning = self.config, self.planning
        root = named if named >= 0 and kind in ROOTED_KINDS else None
        custom = list(config.custom_nodes.values())[own] if own >= 0 else config.custom.get(kind)
        variety = planning.variety(Variety(kind, root, custom))
        if custom is not None:
            if config.splits != 1:
                raise ConfigError(
                    f"splits is {config.splits}; allowed with collectives given as traces: 1",
                    hint="Set preferred-dataset-splits to 1.",
                )
            assert self.custom_lists is not None
            world_list, group_list = self.custom_lists(custom)
            return size, 1, world_list, group_list if self.extensions is None else variety, variety
        chunk, count = self._split_chunks(pos, kind, size)
        involved = None if mask < 0 else [bool(mask >> bit & 1) for bit in range(mask.bit_length())]
        if kind in ROOTED_KINDS:
            root = self._choose_world_root(pos, root)
        world = build_stream_phases(config, kind, involved, root, (chunk, count))
        if not world[0]:
            raise self.fail(
                pos,
                "no dimension is involved in the collective, so it would never end",
                "Set involved_dim to true for a dimension that the algorithms cover.",
            )
        world_at = put_stream_lists(planning, world)
        if self.extensions is not None:
            return chunk, count, world_at, variety, variety
        return chunk, count, world_at, put_phase_list(planning, build_group_phases(config, kind)), variety

    def _split_chunks(self, pos: int, kind: CollectiveKind, size: int) -> tuple[int, int]:
        splits = self.config.splits
        if kind == "all_to_all" and self.all_collectives:
            # The number of chunks does not depend on the rank's size, because sizes may differ.
            return max(-(-size // splits), self.planning.npus), splits
        chunk, count = compute_chunks(kind, size, splits, self.planning.npus)
        if count:
            return chunk, count
        if self.extensions is not None:
            return size, 1
        raise self.fail(
            pos,
            f"an all-gather of {size} bytes cannot be cut into {self.config.splits} chunks",
            "Use fewer splits (preferred-dataset-splits), or leave out the empty collective.",
        )

    def _choose_world_root(self, pos: int, root: int | None) -> int:
        """Return the root of a collective of all ranks: the one it names, or the first rank."""
        if root is None:
            return 0
        if root >= self.planning.npus:
            raise self.fail(
                pos,
                f"the root is rank {root}; allowed: 0 to {self.planning.npus - 1}",
                f"It is what {', '.join(ROOT_KEYS)} say.",
            )
        return root

    def _fill_messages(self, among: Any, kind: int, peer: str, own: str) -> None:
        if not among.any():
            return
        nodes = self.nodes
        nodes[among, k.Node.KIND] = kind
        nodes[among, k.Node.SIZE] = self._require("comm_size", among)[among]
        nodes[among, k.Node.TAG] = self._require("comm_tag", among)[among] % k.Channel.STREAM_TAG
        for pos in self._point_to_slots(peer, among, k.Node.PEER)[:1].tolist():
            raise self.fail(pos, f"attribute {peer!r} is missing")
        self.peer_slots.update(find_distinct(nodes[among, k.Node.PEER]).tolist())
        if self.custom_lists is not None:
            self._check_own(own, among)

    def _check_own(self, key: str, among: Any) -> None:
        """Check that the source of a send, or the target of a receive, is the rank itself."""
        positions, where = self.columns.where(key)
        attrs, trace = self.graph.attrs, self.planning.trace
        named = {
            int(attrs.value[i]): p
            for p, i in zip(positions.tolist(), where.tolist(), strict=True)
            if among[p]
        }
        if not named:
            return
        alike = self.planning.first_alike
        for rank in trace.ranks:
            if alike[rank.graph] != alike[self.rank.graph]:
                continue
            for slot, pos in named.items():
                if slot < len(rank.slots) and rank.slots[slot] != rank.number:
                    raise TraceError(
                        f"rank {rank.number}: {name_node(self.graph, int(self.order[pos]))}: {key} is "
                        f"{rank.slots[slot]!r}; allowed: the rank itself",
                        hint="Leave the attribute out, or set it to the rank of the file.",
                    )


def _find_distinct_columns(columns: Int64) -> tuple[Int64, Int64, Int64]:
    """Return (C, D) the distinct columns of (C, N), (D,) where each is first, and (N,) which of them each is.

    `numpy.unique` does the same along an axis, and takes four times as long for a few hundred.
    """
    order = np.lexsort(columns[::-1])
    ordered = columns[:, order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
    which = np.empty(len(order), np.int64)
    which[order] = np.cumsum(new) - 1
    first = order[new]
    return columns[:, first], first, which


def name_node(graph: Graph, row: int) -> str:
    """Return what messages call a node."""
    return f"node {graph.id[row]} ({graph.strings[int(graph.name[row])]!r})"
