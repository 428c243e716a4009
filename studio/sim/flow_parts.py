"""Tell, after a run on a system with a cost model, what the time of each collective and message went to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.notebook import one_line
from studio.sim.charges import Flows, plan_flows
from studio.sim.result import SimResult
from studio.timeline import NodeTimes
from studio.trace import Int64


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

    __repr__ = one_line


def flow_parts(result: SimResult, times: NodeTimes | None = None) -> FlowParts | None:
    """Return what the time of communication nodes went to; None where no cost model timed them.

    A receive that begins after its send has waited for nothing, and has of the fixed time and of the bytes what is left.

    Args:
        result: The run.
        times: `result.node_times()`, where it is known already.
    """
    if not result.config.flows:
        return None
    times = times or result.node_times()
    flows = plan_flows(result.trace, result.config)
    # Ranks that one was simulated for share its times.
    own = np.flatnonzero(result.representative[flows.place] == flows.place)
    every = times.first[flows.place] + flows.row
    begun = np.zeros(len(flows), np.int64)
    counted = np.flatnonzero(flows.counts)
    np.maximum.at(begun, flows.flow[counted], times.start_ns[every[counted]])
    entry, flow = every[own], flows.flow[own]
    start, end = times.start_ns[entry], times.end_ns[entry]
    came = np.clip(begun[flow], start, end)
    moves = np.clip(begun[flow] + flows.fixed_ns[flow], came, end)
    transfer = np.minimum(end - moves, (flows.total_ns - flows.fixed_ns)[flow])
    return FlowParts(flows, entry, flow, came - start, moves - came, end - moves - transfer, transfer)
