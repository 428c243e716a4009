"""Network traffic: bytes, messages and busy time per link and dimension.

Every message is counted, control messages of the rendezvous protocol included.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.analysis.job.alike import find_first_alike
from studio.notebook import format_record
from studio.sim.config import SystemConfig
from studio.sim.flow_plans import Flows
from studio.sim.kernel import records as k
from studio.sim.links import Float64, LinkTable, link_table
from studio.sim.topology import compute_port_rate, count_ports, link_rate
from studio.trace import Int64


@dataclass(frozen=True, slots=True)
class LinkTraffic:
    """Traffic of each directed link of the congestion-aware network; empty for the unaware one.

    L links.

    Attributes:
        npus: NPUs. Devices from this number on are switches.
        source, target: (L,) what the link joins.
        bytes: (L,) bytes sent over it.
        messages: (L,) messages sent over it.
        busy_ns: (L,) time it was sending.
        peak_queue: (L,) most messages that waited for it at a time.
    """

    npus: int
    source: Int64
    target: Int64
    bytes: Int64
    messages: Int64
    busy_ns: Int64
    peak_queue: Int64

    __repr__ = format_record

    def __len__(self) -> int:
        """Return the number of links."""
        return len(self.source)

    def name(self, link: int) -> str:
        """Format the ends of a link: `3 → 4`, `3 → switch 0`."""
        only = len(self) and int(max(self.source.max(), self.target.max())) == self.npus
        ends = (int(self.source[link]), int(self.target[link]))
        return " → ".join(
            str(end) if end < self.npus else "switch" if only else f"switch {end - self.npus}" for end in ends
        )

    def busiest(self, count: int) -> list[int]:
        """Return the busiest links, by busy time; idle ones are left out."""
        order = np.argsort(-self.busy_ns, kind="stable")[:count]
        links: list[int] = order[self.messages[order] > 0].tolist()
        return links

    def busiest_kinds(self, count: int) -> list[tuple[int, int]]:
        """Return the first of each kind of links that carried the same, and how many they are, the busiest first."""
        first, alike = find_first_alike(self.bytes, self.messages, self.busy_ns, self.peak_queue)
        order = np.argsort(-self.busy_ns[first], kind="stable")[:count]
        pairs = zip(first[order].tolist(), alike[order].tolist(), strict=True)
        return [(link, links) for link, links in pairs if self.messages[link] > 0]


@dataclass(frozen=True, slots=True)
class DimensionTraffic:
    """Traffic that the ranks sent into one dimension.

    R ranks. A message counts once, where it is sent, however many links it crosses. Where congestion counts,
    one that crosses several dimensions counts in each, at the NPU from which it enters; in the unaware
    network, and among single links, in the lowest dimension in which its two ends differ.

    Attributes:
        bytes: (R,) bytes sent by each rank.
        messages: (R,) messages sent by each rank.
        busy_ns: (R,) how long sending them takes one port, one after another: overheads and size over
            bandwidth. 0 among single links.
        capacity_bytes_per_ns: What one NPU can send, all its ports of the dimension together. 0 among single
            links.
    """

    bytes: Int64
    messages: Int64
    busy_ns: Float64
    capacity_bytes_per_ns: float

    __repr__ = format_record

    def offered_load(self, time_ns: float) -> float:
        """Return bytes sent over what all ports of all NPUs could have sent in a time: 1 is all of the bandwidth.

        More than 1 says that the unaware network let messages pass for which the ports have no room. Among
        single links it is 0.
        """
        room = self.capacity_bytes_per_ns * len(self.bytes) * time_ns
        return float(self.bytes.sum()) / room if room else 0.0


def explain_offered_load(config: SystemConfig) -> str:
    """Explain the offered load of a dimension, and whether it can exceed 100 %."""
    what = (
        "Bytes that all NPUs send into the dimension over what all their ports could send in that time: 100 % is "
        "its bandwidth."
    )
    if config.flows and config.congestion == "aware":
        return (
            f"{what} Bytes are those that the cost model has a rank send. Collectives and messages share the ports of "
            "their NPUs, so that over a whole run it is never more than 100 %. There are no links to look at."
        )
    if config.congestion == "unaware":
        return (
            f"{what} It is what is offered, not what a network could carry: without congestion, messages pass a "
            "port side by side, as many as there are, so that it can be more than 100 %."
        )
    return f"{what} With congestion messages wait for each other, so that over a whole run it is never more than 100 %."


def read_link_traffic(config: SystemConfig, m: Int64) -> LinkTraffic:
    """Read the traffic of links from the engine's array."""
    if not m[k.Head.AWARE]:
        none = np.zeros(0, np.int64)
        return LinkTraffic(config.topology.npus, none, none, none, none, none, none)
    table: LinkTable = link_table(config)
    records = m[m[k.Head.LINKS] : m[k.Head.LINKS] + 8 * table.records].reshape(-1, 8)[table.record]
    size, busy, messages, peak = (records[:, column].copy() for column in (3, 4, 5, 7))
    return LinkTraffic(table.npus, table.source, table.target, size, messages, busy, peak)


def read_dimension_traffic(
    config: SystemConfig, m: Int64, representative: Int64
) -> tuple[DimensionTraffic, ...]:
    """Return the traffic per dimension; `representative` (R,) is the simulated rank for each rank."""
    dims = config.topology.dims
    words = k.Network.TRAFFIC_WORDS * int(m[k.Head.NPUS]) * len(dims)
    start = int(m[k.Head.TRAFFIC])
    counted = m[start : start + words].reshape(-1, len(dims), k.Network.TRAFFIC_WORDS)[representative]
    carried = []
    for index, dim in enumerate(dims):
        size, messages = counted[:, index, 0].copy(), counted[:, index, 1].copy()
        if config.links is not None:
            carried.append(DimensionTraffic(size, messages, np.zeros(len(size)), 0.0))
            continue
        rate = link_rate(dim)
        busy = messages * dim.message_overhead_ns + size / rate
        carried.append(DimensionTraffic(size, messages, busy, rate * count_ports(dim)))
    return tuple(carried)


def sum_flow_traffic(
    config: SystemConfig, flows: Flows, representative: Int64
) -> tuple[DimensionTraffic, ...]:
    """Return the traffic per dimension of collectives and messages that a cost model times.

    A message is a collective or message here; its bytes are those that the cost model has its busiest member send.

    Args:
        config: The system.
        flows: Those of the ranks that were simulated, at least.
        representative: (R,) the rank that was simulated for each rank.
    """
    ranks = config.topology.npus
    size, count = flows.sent(ranks)[representative], flows.sendings(ranks)[representative]
    carried = []
    for index, dim in enumerate(config.topology.dims):
        rate = compute_port_rate(dim)
        sent = np.rint(size[:, index]).astype(np.int64)
        carried.append(DimensionTraffic(sent, count[:, index], sent / rate, rate))
    return tuple(carried)
