"""Lay out the links of the network, and the routing tables."""

from __future__ import annotations

import numpy as np

from studio.sim.config import Topology
from studio.sim.kernel import records as k
from studio.sim.links import Float64, build_neighbours, compute_first_records, link_table
from studio.sim.planning import Planning
from studio.trace import Int64


def put_links(planning: Planning, head: Int64) -> Float64:
    """Lay out links and routing tables; returns the real numbers that follow those of the dimensions."""
    config, arena = planning.config, planning.arena
    dims, graph = config.topology.dims, config.links
    aware = config.congestion == "aware"
    none = np.zeros(0, np.float64)
    if not aware and graph is None:
        return none
    # With symmetric ties what links do is the same for all networks.
    alone = graph is None and len(dims) == 1 and not dims[0].message_overhead_ns and not planning.symmetric
    if alone and not (dims[0].kind == "ring" and dims[0].size == 2):
        head[k.Head.AWARE] = k.Network.ONE_DIMENSION
        head[k.Head.LINKS] = arena.room(8 * compute_first_records(config.topology)[-1])
        if planning.folding is not None:
            head[k.Head.LINK_ORDER] = arena.room(2 * compute_first_records(config.topology)[-1])
        return none
    table = link_table(config)
    rates = np.zeros((table.records, 2), np.float64)
    rates[table.record, 0], rates[table.record, 1] = table.latency_ns, table.bytes_per_ns
    head[k.Head.LINK_FLOATS] = k.Real.DIMS + 3 * len(dims)
    if aware:
        head[k.Head.LINKS] = arena.room(8 * table.records)
        head[k.Head.JOINED] = arena.room(table.records) if planning.symmetric else 0
        head[k.Head.AWARE] = k.Network.PRODUCT if graph is None else k.Network.SINGLE_LINKS
    if graph is None:
        head[k.Head.COORDINATES] = arena.put(_compute_coordinates(config.topology))
        head[k.Head.LINK_BASES] = arena.put(np.array(compute_first_records(config.topology), np.int64))
        return rates.reshape(-1)
    near = build_neighbours(graph, table)
    devices = graph.npus + graph.switches
    record = np.zeros(k.Graph.RECORD_WORDS, np.int64)
    head[k.Head.GRAPH] = arena.room(k.Graph.RECORD_WORDS)
    pairs = np.stack((near.device, near.first, near.count, np.zeros_like(near.count)), axis=1)
    targets = np.zeros(table.records, np.int64)
    targets[table.record] = table.target
    record[k.Graph.DEVICES], record[k.Graph.BITS] = devices, near.bits
    record[k.Graph.PER], record[k.Graph.WORDS] = near.per_word, near.row_words
    for field, values in (
        (k.Graph.OUT, near.out),
        (k.Graph.PAIRS, pairs),
        (k.Graph.INTO, near.into),
        (k.Graph.SOURCES, near.sources),
        (k.Graph.TARGETS, targets),
    ):
        record[field] = arena.put(values)
    for field, words in (
        (k.Graph.ROWS, near.row_words * graph.npus),
        (k.Graph.KNOWN, graph.npus),
        (k.Graph.DISTANCE, devices),
        (k.Graph.QUEUE, devices),
    ):
        record[field] = arena.room(words)
    record[k.Graph.LEAST] = head[k.Head.LINK_FLOATS] + rates.size
    record[k.Graph.REACH] = record[k.Graph.LEAST] + len(near.latency_ns)
    arena.parts.append((int(head[k.Head.GRAPH]), record))
    return np.concatenate((rates.reshape(-1), near.latency_ns, np.zeros(devices)))


def _compute_coordinates(topology: Topology) -> Int64:
    """Return (N, D) the coordinate of each NPU in each dimension."""
    rest, columns = np.arange(topology.npus), []
    for dim in topology.dims:
        columns.append(rest % dim.size)
        rest = rest // dim.size
    return np.stack(columns, axis=1)
