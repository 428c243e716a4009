"""Lay out the records of ranks: nodes, slots, queues, buses, memory, and meetings."""

from __future__ import annotations

import numpy as np

from studio.sim.flow_records import put_flows
from studio.sim.kernel import records as k
from studio.sim.matched import find_meetings, rank_starts
from studio.sim.phase_lists import count_turn_words
from studio.sim.planning import GraphPlan, Planning
from studio.sim.slots import put_slots
from studio.trace import Int64


def put_ranks(planning: Planning, plans: dict[int, GraphPlan], node_at: dict[int, int]) -> int:
    """Lay out the records of the simulated ranks; returns their offset. `node_at` has the offsets of graphs' nodes."""
    config, arena = planning.config, planning.arena
    count = len(planning.simulated)
    records = np.zeros((count, k.Rank.WORDS), np.int64)
    start = planning.ranks_at = arena.room(records.size)
    dims = len(config.topology.dims)
    records[:, k.Rank.NUMBER] = planning.places()
    records[:, k.Rank.FINISH] = -1
    for column, words in zip(
        (k.Rank.QUEUES, k.Rank.POINTERS, k.Rank.TREES), count_turn_words(planning, dims), strict=True
    ):
        step = (words + 7) // 8 * 8
        records[:, column] = arena.room(step * count) + step * np.arange(count)
    if planning.folding is not None:
        order = np.zeros((count, k.Order.WORDS), np.int64)
        order[:, [k.Order.TICK, k.Order.FROZEN, k.Order.POSTED]] = -1
        records[:, k.Rank.ORDER] = arena.put(order) + k.Order.WORDS * np.arange(count)
    else:
        _put_pools(planning, records)
    if config.shared_bus is not None:
        _put_buses(planning, records)
    times = {index: arena.put(plans[index].durations) for index in {r.graph for r in planning.simulated}}
    for rank, record in zip(planning.simulated, records, strict=True):
        plan = plans[rank.graph]
        count = len(plan.order)
        record[k.Rank.NODES], record[k.Rank.COUNT] = node_at[planning.first_alike[rank.graph]], count
        record[k.Rank.TIMES] = times[rank.graph]
        record[k.Rank.PARENTS] = arena.put(plan.parents)
        record[k.Rank.LINKS] = arena.room(2 * count + 2)
        record[k.Rank.SLOTS] = put_slots(planning, rank, plan)
    if planning.replays:
        records[:, k.Rank.MEETINGS] = _put_meetings(planning, plans)
    if planning.flows is not None:
        assert planning.uses is not None
        records[:, k.Rank.MEETINGS] = put_flows(planning, plans, planning.uses, planning.rests_at)
    if planning.extensions is not None and planning.extensions.rank_starts == "recorded":
        records[:, k.Rank.BEGIN] = rank_starts(planning.trace)
    arena.parts.append((start, records.reshape(-1)))
    return start


def _put_meetings(planning: Planning, plans: dict[int, GraphPlan]) -> list[int]:
    """Lay out meetings, and for each rank which of its nodes comes to which; nodes are identified by their `PEER`."""
    meeting = find_meetings(planning.trace, planning.config.groups)
    records = np.zeros((len(meeting.count), k.Meeting.WORDS), np.int64)
    records[:, k.Meeting.LEFT] = meeting.count
    first = planning.arena.put(records)
    tables = []
    order = np.argsort(meeting.rank, kind="stable")
    bounds = np.searchsorted(meeting.rank[order], np.arange(len(planning.simulated) + 1))
    for index, rank in enumerate(planning.simulated):
        entries = order[bounds[index] : bounds[index + 1]]
        plan = plans[rank.graph]
        place = np.empty(len(plan.order), np.int64)
        place[plan.order] = np.arange(len(plan.order))
        table = np.zeros((len(entries), 2), np.int64)
        number = plan.nodes[place[meeting.row[entries]], k.Node.PEER]
        table[number, 0] = first + k.Meeting.WORDS * meeting.meeting[entries]
        table[number, 1] = np.where(
            meeting.waits[entries], meeting.time_ns[entries], -meeting.time_ns[entries]
        )
        tables.append(planning.arena.put(table))
    return tables


def _put_pools(planning: Planning, records: Int64) -> None:
    memory = planning.config.remote_memory
    if memory is None or memory.sharing == "per_npu":
        return
    per_pool = planning.npus if memory.sharing == "pool" else memory.npus_per_node
    pools = -(-planning.npus // per_pool)
    records[:, k.Rank.MEMORY] = planning.arena.room(8 * pools) + 8 * (np.arange(planning.npus) // per_pool)


def _put_buses(planning: Planning, records: Int64) -> None:
    ends = np.zeros((planning.npus, 4, k.Bus.WORDS), np.int64)
    ends[:, :, k.Bus.SIDE] = np.arange(4)
    start = planning.arena.room(ends.size)
    # Records of ranks are laid out first, because buses refer to them.
    first = planning.ranks_at
    ends[:, :, k.Bus.RANK] = (first + k.Rank.WORDS * np.arange(planning.npus))[:, None]
    planning.arena.parts.append((start, ends.reshape(-1)))
    records[:, k.Rank.BUS] = start + 4 * k.Bus.WORDS * np.arange(planning.npus)
