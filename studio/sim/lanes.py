"""Threads and streams: nodes of one run in turn, those of different ones in parallel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.sim.extensions import Extensions
from studio.sim.ordered_graph import is_ordered
from studio.trace import NONE, Graph, Int64, read_dense_column

HOST, COMPUTE = 0, 1
"""The slots, as node records number them, that may be divided."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """Slots of a graph's threads and streams.

    N nodes.

    Attributes:
        lane: (N,) number of the slot a node takes, from 1; 0 where it takes that of its kind. None where all do.
        count: The largest number.
    """

    lane: Int64 | None
    count: int


def assign_lanes(graph: Graph, order: Int64, slot: Int64, extensions: Extensions | None) -> Lanes:
    """Return which slot every node takes.

    Args:
        graph: The graph.
        order: (N,) the row of each position.
        slot: (N,) by position, the slot a node takes where nothing is divided.
        extensions: What is divided.
    """
    if extensions is None:
        return Lanes(None, 0)
    lane, count = np.zeros(len(order), np.int64), 0
    divided = (
        (HOST, extensions.host_slots == "per_thread", number_threads),
        (COMPUTE, extensions.compute_slots == "per_stream", _number_streams),
    )
    for kind, wanted, named in divided:
        among = np.flatnonzero(slot == kind)
        if not wanted or not len(among):
            continue
        # Nodes in the order of their recording wait for what they ran after: those of a stream that overlapped do so again.
        names = np.arange(len(among)) if is_ordered(graph) else named(graph)[order[among]]
        if (names == NONE).all():
            continue
        _, number = np.unique(names, return_inverse=True)
        lane[among] = count + 1 + number.reshape(-1)
        count = int(lane[among].max())
    return Lanes(lane if count else None, count)


def number_threads(graph: Graph) -> Int64:
    """Return (N,) a number for the thread each node names, -1 where it names none; the profiler's name counts before the number."""
    named = read_dense_column(graph, "tid", NONE)
    rows, where = graph.rows_with("thread")
    # Thread names sort before thread numbers, which recorders assign arbitrarily.
    named[named >= 0] = named[named >= 0] * 2 + 1
    named[rows] = graph.attrs.value[where] * 2
    return named


def _number_streams(graph: Graph) -> Int64:
    """Return (N,) a number for the stream and device each node names, -1 where it names no stream."""
    stream, device = read_dense_column(graph, "stream", NONE), read_dense_column(graph, "device", NONE)
    _, device = np.unique(device, return_inverse=True)
    count = int(device.max(initial=0)) + 1
    return np.where(stream >= 0, stream * count + device.reshape(-1), NONE)
