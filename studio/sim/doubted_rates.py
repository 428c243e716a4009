"""Doubts about rates: more than ports, links and messages of a network can carry."""

from __future__ import annotations

import numpy as np

from studio.analysis.collectives.matching import match_collectives
from studio.analysis.collectives.messages import Channels, match_channels
from studio.sim.config import SystemConfig
from studio.sim.crossings import check_crossings
from studio.sim.doubt_facts import FULL_CURE, Facts, Found
from studio.sim.matched import matches_by_number
from studio.sim.topology import link_rate
from studio.trace import Bool, CollectiveType, Float64, NodeType
from studio.units import format_count, format_ns, format_rate

MARGIN = 1.001
"""So far beyond a port a rate may lie by rounding to nanoseconds."""


def find_dimensions(facts: Facts) -> Found:
    """Find dimensions into which a rank sent more than its ports carry while it communicated."""
    if not facts.simulated:
        return
    named = []
    for index, carried in enumerate(facts.result.dimensions):
        if carried.capacity_bytes_per_ns:
            room = carried.capacity_bytes_per_ns * facts.communication_ns
            load = max(float((carried.bytes / room).max()), carried.offered_load(facts.result.makespan_ns))
            if load > MARGIN:
                named.append(f"dimension {index} {100 * load:.0f} %")
    if named:
        yield (
            (
                f"More was sent than the ports can carry ({', '.join(named)}): without congestion messages pass a port at the "
                "same time, as many as there are, so times are too short and bandwidths too high."
            ),
            FULL_CURE,
        )


def find_collectives(facts: Facts) -> Found:
    """Find collectives whose bus bandwidth is beyond the ports of their members."""
    if not facts.simulated or not len(facts.times):
        return
    times = facts.times
    bus = np.nan_to_num(times.bus_bytes_per_ns)
    if facts.costs:
        # A switch that reduces carries a buffer once where ports alone would carry it twice.
        bus = np.where(
            times.type == CollectiveType.ALL_REDUCE, np.nan_to_num(times.algorithm_bytes_per_ns), bus
        )
    rates = np.array([facts.site(name)[0] for name in times.groups])
    beyond = bus > rates[times.group] * MARGIN
    if beyond.any():
        worst = int(np.argmax(np.where(beyond, bus / np.maximum(rates[times.group], 1e-9), 0)))
        count = int(facts.alike[beyond].sum())
        more = f" ({format_count(count)} collectives in all)" if count > 1 else ""
        attained, carried = float(bus[worst]), float(rates[int(times.group[worst])])
        yield (
            (
                f"{times.name(worst)} runs at {format_rate(attained)} of bus bandwidth over "
                f"ports that carry {format_rate(carried)}{more}."
            ),
            FULL_CURE,
        )


def find_messages(facts: Facts) -> Found:
    """Find messages that took less time than the slowest link on their way needs for their bytes."""
    config, result = facts.config, facts.result
    sends = any((graph.type == NodeType.COMM_SEND).any() for graph in result.trace.graphs)
    if not (facts.simulated and sends and config.links is None):
        return
    channels = facts.channels
    rates = _find_slowest_rates(config, channels)
    rate_of = np.unique(rates, return_inverse=True)[1].reshape(-1)
    shown, which = channels.alike(result.representative, rate_of)
    alike = np.bincount(which, minlength=len(shown))
    messages = channels.expand(shown)
    channel = np.repeat(np.arange(len(shown)), channels.messages[shown])
    whole = (messages.send_rank >= 0) & (messages.receive_rank >= 0) & messages.known
    channel = channel[whole]
    times = result.node_times()
    began = times.start_ns[times.first[messages.send_rank[whole]] + messages.send_row[whole]]
    ended = times.end_ns[times.first[messages.receive_rank[whole]] + messages.receive_row[whole]]
    # Equal messages of a channel arrive as they were sent, whatever the ids of their nodes.
    key = (messages.bytes[whole], messages.tag[whole], channel)
    began, ended = began[np.lexsort((began, *key))], ended[np.lexsort((ended, *key))]
    order = np.lexsort(key)
    channel, size = channel[order], messages.bytes[whole][order]
    rate = rates[shown[channel]]
    quick: Bool = np.maximum(ended - began + 1, 1) * rate * MARGIN < size
    if quick.any():
        first = int(np.flatnonzero(quick)[0])
        took, count = int(ended[first] - began[first]), int(alike[channel[quick]].sum())
        source, target = channels.source[shown[channel[first]]], channels.target[shown[channel[first]]]
        more = f" ({format_count(count)} messages in all)" if count > 1 else ""
        yield (
            (
                f"A message from rank {source} to rank {target} took {format_ns(took)}; the slowest link on its way "
                f"({format_rate(float(rate[first]))}) needs {format_ns(float(size[first] / rate[first]))} for its bytes{more}."
            ),
            FULL_CURE,
        )


def _find_slowest_rates(config: SystemConfig, channels: Channels) -> Float64:
    """Return (C,) what the slowest link on the way of each channel carries."""
    rate = np.full(len(channels), np.inf)
    below = 1
    for dim in config.topology.dims:
        crosses = channels.source // below % dim.size != channels.target // below % dim.size
        rate[crosses] = np.minimum(rate[crosses], link_rate(dim))
        below *= dim.size
    return rate


def find_links(facts: Facts) -> Found:
    """Find NPUs that sent more than the single links from them carry, in a network where messages do not wait."""
    config = facts.config
    if config.links is None or not facts.simulated or config.congestion == "aware":
        return
    sent = sum(
        (carried.bytes for carried in facts.result.dimensions),
        np.zeros(len(facts.communication_ns), np.int64),
    )
    out: Float64 = np.array([facts.port_bytes_per_ns([npu]) for npu in range(config.links.npus)])
    load = sent / np.maximum(out * facts.communication_ns, 1e-9)
    worst = int(np.argmax(load))
    if load[worst] > MARGIN:
        yield (
            (
                f"The links from NPU {worst} carry {format_rate(float(out[worst]))} and were sent {100 * load[worst]:.0f} % of "
                "that: without congestion a slow link holds up nobody."
            ),
            FULL_CURE,
        )


def find_crossings(facts: Facts) -> Found:
    """Find messages that cross several dimensions and are timed in the lowest alone."""
    config = facts.config
    if not facts.simulated or config.congestion == "aware" or len(config.topology.dims) == 1:
        return
    trace = facts.result.trace
    groups = match_collectives(trace, config.groups, by_number=matches_by_number(config))
    for finding in check_crossings(config, groups, match_channels(trace)):
        yield finding.message, FULL_CURE
