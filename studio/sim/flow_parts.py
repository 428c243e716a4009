"""Tell, after a run on a system with a cost model, what the time of each collective and message went to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.distinct import find_distinct
from studio.notebook import format_record
from studio.sim.config import SystemConfig
from studio.sim.flow_plans import Flows, plan_flows
from studio.timeline import NodeTimes
from studio.trace import Int64, Trace


@dataclass(frozen=True, slots=True)
class FlowParts:
    """What the time of communication nodes went to; the four parts add up to it.

    N nodes, T times of the `NodeTimes` they go with.

    Attributes:
        flows: The flows that the nodes are part of, and what each costs alone.
        entry: (N,) index into the times.
        flow: (N,) index into the flows.
        waiting_ns: (N,) until all had come that the flow waits for.
        latency_ns: (N,) its fixed time: launch, hops, protocol.
        queueing_ns: (N,) what it took longer than alone, because others used its ports.
        transfer_ns: (N,) the time that its bytes take alone.
    """

    flows: Flows
    entry: Int64
    flow: Int64
    waiting_ns: Int64
    latency_ns: Int64
    queueing_ns: Int64
    transfer_ns: Int64

    __repr__ = format_record

    def spread(self, values: Int64, count: int) -> Int64:
        """Return (T,) values of the nodes at their places among T times; 0 for what does not communicate."""
        every = np.zeros(count, np.int64)
        every[self.entry] = values
        return every


def compute_flow_parts(
    trace: Trace,
    config: SystemConfig,
    times: NodeTimes,
    representative: Int64,
    flows: Flows | None = None,
) -> FlowParts | None:
    """Return what the time of communication nodes went to; None where no cost model timed them.

    A receive that begins after its send has waited for nothing, and has of the fixed time and of the bytes what is left.

    Args:
        trace: The job.
        config: The system it was simulated on.
        times: When its nodes ran.
        representative: (R,) the rank that was simulated for each rank.
        flows: Those that `plan_flows` finds of the ranks that were simulated, where they are known.
    """
    if not config.flows:
        return None
    if flows is None:
        flows = plan_flows(trace, config, find_distinct(representative))
    # Ranks that one was simulated for share its times.
    own = np.flatnonzero((representative[flows.place] == flows.place) & (times.first[flows.place] >= 0))
    every = times.first[flows.place] + flows.row
    begun = np.zeros(len(flows), np.int64)
    counted = np.flatnonzero(flows.counts)
    np.maximum.at(begun, flows.flow[counted], times.start_ns[every[counted]])
    entry, flow = every[own], flows.flow[own].astype(np.int64)
    start, end = times.start_ns[entry], times.end_ns[entry]
    came = np.clip(begun[flow], start, end)
    moves = np.clip(begun[flow] + flows.fixed_ns[flow], came, end)
    transfer = np.minimum(end - moves, (flows.total_ns - flows.fixed_ns)[flow])
    return FlowParts(flows, entry, flow, came - start, moves - came, end - moves - transfer, transfer)
