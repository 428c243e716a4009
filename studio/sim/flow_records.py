"""Lay out flows, the ports they share, and which node of a rank comes to which flow."""

from __future__ import annotations

import numpy as np

from studio.sim.flow_plans import Flows
from studio.sim.flow_uses import Uses
from studio.sim.kernel import records as k
from studio.sim.planning import GraphPlan, Planning
from studio.trace import NONE, Int64


def put_flows(planning: Planning, plans: dict[int, GraphPlan], uses: Uses, rests: int) -> list[int]:
    """Lay out flows and ports; returns for each simulated rank the table of its nodes' flows.

    Args:
        planning: The plan.
        plans: Of its graphs.
        uses: What flows take of ports.
        rests: Where among the real numbers there is one for each flow.
    """
    flows, arena = planning.flows, planning.arena
    assert flows is not None
    ports, port = np.unique(uses.port, return_inverse=True)
    ports_at = arena.room(k.Port.WORDS * len(ports))
    count = len(flows)
    records = np.zeros((count, k.Flow.WORDS), np.int64)
    flows_at = arena.room(records.size)
    table = np.zeros((len(uses.flow), k.Use.WORDS), np.int64)
    table[:, k.Use.PORT] = ports_at + k.Port.WORDS * port.reshape(-1)
    table[:, k.Use.AMOUNT] = uses.amount
    table[:, k.Use.FLOW] = flows_at + k.Flow.WORDS * uses.flow
    uses_at = arena.put(table)
    bounds = np.searchsorted(uses.flow, np.arange(count + 1))
    records[:, k.Flow.LEFT] = flows.waits_for
    records[:, k.Flow.FIXED_TIME] = flows.fixed_ns
    records[:, k.Flow.WORK] = flows.total_ns - flows.fixed_ns
    records[:, k.Flow.USES] = uses_at + k.Use.WORDS * bounds[:-1]
    records[:, k.Flow.USE_COUNT] = np.diff(bounds)
    records[:, k.Flow.REST] = rests + np.arange(count)
    records[:, k.Flow.TURN] = _put_turns(planning, flows, flows_at)
    arena.parts.append((flows_at, records.reshape(-1)))
    return _put_tables(planning, plans, flows, flows_at)


def _put_turns(planning: Planning, flows: Flows, flows_at: int) -> Int64:
    """Lay out the turns that flows take; returns (M,) the one of each flow, or 0."""
    takes = flows.turn != NONE
    if not takes.any():
        return np.zeros(len(flows), np.int64)
    records = np.zeros((int(flows.turn.max()) + 1, k.Turn.WORDS), np.int64)
    records[:, k.Turn.FLOWS] = flows_at
    records[:, k.Turn.LINKS] = planning.arena.room(2 * len(flows) + 2)
    return np.where(takes, planning.arena.put(records) + k.Turn.WORDS * flows.turn, 0)


def _put_tables(planning: Planning, plans: dict[int, GraphPlan], flows: Flows, flows_at: int) -> list[int]:
    order = np.argsort(flows.place, kind="stable")
    places = np.array(planning.places(), np.int64)
    begins = np.searchsorted(flows.place[order], places)
    ends = np.searchsorted(flows.place[order], places, side="right")
    at = flows_at + k.Flow.WORDS * flows.flow.astype(np.int64)
    place_of: dict[int, Int64] = {}
    tables = []
    for rank, begin, end in zip(planning.simulated, begins.tolist(), ends.tolist(), strict=True):
        of_rank = order[begin:end]
        plan = plans[rank.graph]
        if rank.graph not in place_of:
            place_of[rank.graph] = np.empty(len(plan.order), np.int64)
            place_of[rank.graph][plan.order] = np.arange(len(plan.order))
        table = np.zeros((len(of_rank), 2), np.int64)
        number = plan.nodes[place_of[rank.graph][flows.row[of_rank]], k.Node.PEER]
        table[number, 0], table[number, 1] = at[of_rank], flows.counts[of_rank]
        tables.append(planning.arena.put(table))
    return tables
