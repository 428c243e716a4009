"""The directed links of a network: what they join, how fast they are, and where the engine keeps them.

A network of dimensions is a product: along every dimension lie lines of NPUs that differ in one coordinate.
A ring line has a link from every NPU to the next one and one to the previous one (of two NPUs one each way),
a fully connected line one from every NPU to every other, a switch line a switch of its own with a link up
from every NPU and one down to it. Messages cross the dimensions in rising order, as dimension-order routing
does (Dally and Towles, Principles and Practices of Interconnection Networks, 2004, section 8.4.2); in a ring
the shorter way, at a tie towards rising coordinates.

A `LinkGraph` says its links itself. Which way its messages go is in `studio.sim.kernel.routes`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from studio.errors import ConfigError
from studio.sim.config import SystemConfig, Topology
from studio.sim.extensions import Link, LinkGraph
from studio.trace import Int64

Float64 = NDArray[np.float64]

MOST_ROUTING_BYTES = 1 << 30
"""Largest table of next hops that a network of single links may need."""


@dataclass(frozen=True, slots=True)
class LinkTable:
    """The links of a network.

    L links.

    Attributes:
        npus: NPUs. Devices from this number on are switches.
        source, target: (L,) devices the links join.
        bytes_per_ns: (L,) bandwidth that messages get.
        latency_ns: (L,) latency.
        dimension: (L,) dimension each link belongs to; -1 in a network of single links.
        record: (L,) which of the engine's records each link has.
        records: Records of the engine; some stand for no link.
    """

    npus: int
    source: Int64
    target: Int64
    bytes_per_ns: Float64
    latency_ns: Float64
    dimension: Int64
    record: Int64
    records: int


def link_table(config: SystemConfig) -> LinkTable:
    """Return the links that messages share in the congestion-aware network of a configuration."""
    return _build_graph_table(config.links) if config.links is not None else build_link_table(config.topology)


def compute_first_records(topology: Topology) -> list[int]:
    """Return per dimension the first of its records, and how many there are in all.

    Example:
        >>> from studio.sim.config import Dimension
        >>> compute_first_records(Topology((Dimension("fully_connected", 4, 50.0), Dimension("ring", 2, 50.0))))
        [0, 32, 48]
    """
    firsts = [0]
    for dim in topology.dims:
        per_npu = dim.size if dim.kind == "fully_connected" else 2
        firsts.append(firsts[-1] + topology.npus * per_npu)
    return firsts


def build_link_table(topology: Topology) -> LinkTable:
    """Return the links of a network of dimensions, dimension after dimension.

    Records: fully connected NPU × size + coordinate of the target; ring the link to the next NPU per NPU,
    then the one to the previous; switch the link up per NPU, then the one down. Switches are numbered on
    from the NPUs, dimension after dimension, line after line.

    Example:
        >>> from studio.sim.config import Dimension
        >>> table = build_link_table(Topology((Dimension("switch", 2, 50.0), Dimension("ring", 2, 50.0))))
        >>> list(zip(table.source.tolist(), table.target.tolist()))[2:6]
        [(2, 5), (3, 5), (4, 0), (4, 1)]
    """
    npus, stride, switches = topology.npus, 1, topology.npus
    columns: list[tuple[Int64, Int64, Int64]] = []
    dims: list[Int64] = []
    npu = np.arange(npus)
    *firsts, records = compute_first_records(topology)
    for d, (dim, first) in enumerate(zip(topology.dims, firsts, strict=True)):
        n, x = dim.size, npu // stride % dim.size
        line = npu - x * stride
        if dim.kind == "fully_connected":
            sender, y = np.repeat(npu, n), np.tile(np.arange(n), npus)
            parts = [(sender, np.repeat(line, n) + y * stride, first + np.arange(npus * n))]
            parts = [tuple(column[y != np.repeat(x, n)] for column in parts[0])]
        elif dim.kind == "switch":
            device = switches + npu // (stride * n) * stride + npu % stride
            parts = [(npu, device, first + npu), (device, npu, first + npus + npu)]
            switches += npus // n
        else:
            parts = [(npu, line + (x + 1) % n * stride, first + npu)]
            if n > 2:
                parts.append((npu, line + (x - 1) % n * stride, first + npus + npu))
        columns += parts
        dims += [np.full(len(source), d) for source, _, _ in parts]
        stride *= n
    source, target, record = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    dimension = np.concatenate(dims)
    rate = np.array([dim.bytes_per_ns * dim.efficiency for dim in topology.dims])
    latency = np.array([dim.latency_ns for dim in topology.dims], np.float64)
    return LinkTable(npus, source, target, rate[dimension], latency[dimension], dimension, record, records)


def link_graph(topology: Topology) -> LinkGraph:
    """Return a network of dimensions as single links, to fail or slow down some of them.

    Messages that differ in one coordinate go the same way, but where a ring offers two equally short ones.
    A message overhead has no place in single links and is left out.
    """
    table = build_link_table(topology)
    devices = int(max(table.source.max(), table.target.max())) + 1
    columns = (table.source, table.target, table.bytes_per_ns, table.latency_ns)
    links = [Link(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]
    return LinkGraph(topology.npus, max(devices - topology.npus, 0), tuple(links))


def _build_graph_table(graph: LinkGraph) -> LinkTable:
    """Return the links of a graph as they are listed; records are sorted by source and target."""
    source = np.array([link.source for link in graph.links], np.int64)
    target = np.array([link.target for link in graph.links], np.int64)
    record = np.empty(len(source), np.int64)
    record[np.lexsort((target, source))] = np.arange(len(source))
    return LinkTable(
        graph.npus,
        source,
        target,
        np.array([link.bytes_per_ns for link in graph.links], np.float64),
        np.array([link.latency_ns for link in graph.links], np.float64),
        np.full(len(source), -1),
        record,
        len(source),
    )


# ---------------------------------------------------------------------------------------------------
# Routing tables


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The neighbours of every device of a graph, in rising order, for routing.

    V devices, P pairs of devices joined by links in one direction, Q of them the other way round.

    Attributes:
        out: (V + 1,) where the pairs of each device begin.
        device, first, count: (P,) the neighbour, the first record of the links to it, and how many there are.
        latency_ns: (P,) the least latency of those links.
        into: (V + 1,) where the devices that have links to each device begin.
        sources: (P,) those devices.
        bits: Bits that number the pairs of one device from 1, 0 for none.
        per_word: How many such numbers share a word.
        row_words: Words for the next hops of all devices.
    """

    out: Int64
    device: Int64
    first: Int64
    count: Int64
    latency_ns: Float64
    into: Int64
    sources: Int64
    bits: int
    per_word: int
    row_words: int


def build_neighbours(graph: LinkGraph, table: LinkTable) -> Neighbours:
    """Return what routing over a graph needs.

    Raises:
        ConfigError: The routing table would be too large.
    """
    devices = graph.npus + graph.switches
    order = np.empty(table.records, np.int64)
    order[table.record] = np.arange(table.records)
    source, target = table.source[order], table.target[order]
    pair, first, count = np.unique(source * devices + target, return_index=True, return_counts=True)
    start, end = pair // devices, pair % devices
    latency = np.minimum.reduceat(table.latency_ns[order], first)
    out, into = np.zeros(devices + 1, np.int64), np.zeros(devices + 1, np.int64)
    np.cumsum(np.bincount(start, minlength=devices), out=out[1:])
    np.cumsum(np.bincount(end, minlength=devices), out=into[1:])
    sources = start[np.lexsort((start, end))]
    bits = int(np.diff(out).max()).bit_length()
    per_word = 63 // bits
    row_words = -(-devices // per_word)
    if row_words * graph.npus * 8 > MOST_ROUTING_BYTES:
        raise ConfigError(
            f"links join {graph.npus:,} NPUs and {graph.switches:,} switches; allowed: as many as a routing table "
            f"of {MOST_ROUTING_BYTES >> 20:,} MiB holds, and this one takes {row_words * graph.npus >> 17:,}",
            hint="Use dimensions, which need no routing table.",
        )
    return Neighbours(out, end, first, count, latency, into, sources, bits, per_word, row_words)
