"""A job small enough to see every answer: two ranks that share a graph but not their comm groups, and one alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from studio.trace import CollectiveType, CommGroup, Graph, NodeType, Rank, Strings, Trace, ValueKind
from tests.graphs import graph


def grouped(made: Graph, slots: Mapping[int, int], key: str = "pg_name") -> Graph:
    """Return a graph whose `numbers` hold slot numbers under `key`, with those made slots."""
    is_slot = made.attrs.key == made.strings.find(key)
    kind = np.where(is_slot, ValueKind.STRING, made.attrs.kind).astype(np.uint8)
    assert is_slot.sum() == len(slots)
    return replace(
        made,
        attrs=replace(made.attrs, slot=is_slot, kind=kind),
        slot_key=np.full(len(set(slots.values())), made.strings.find(key), np.int32),
    )


def timed(made: Graph, times: Mapping[int, tuple[int, int]]) -> Graph:
    """Return a graph with starts and durations."""
    start, duration = made.start_ns.copy(), made.duration_ns.copy()
    for row, (begin, length) in times.items():
        start[row], duration[row] = begin, length
    return replace(made, start_ns=start, duration_ns=duration)


def with_strings(made: Graph, texts: Sequence[str | bytes]) -> Graph:
    """Return a graph with these texts in place of its first ones."""
    kept = [made.strings.raw(index) for index in range(len(texts), len(made.strings))]
    return replace(made, strings=Strings.of([*texts, *kept]))


COLL, SEND = NodeType.COMM_COLL, NodeType.COMM_SEND


def five() -> Trace:
    """Five nodes on ranks 0 and 4, which share a graph, and one on rank 7.

    row  name     type       collective  group on 0/4  bytes  operations  start  duration  waits for
    0    embed    COMP                                        1000        5,000  200
    1    Reduce   COMM_COLL  ALL_REDUCE  tp0 / tp1     4096               5,200  300       1
    2    gather   COMM_COLL  ALL_GATHER  (none)        512                                 1
    3    send     COMM_SEND                            100                               1 + a dangling one
    4    head     COMP                                        3000        5,100  0         2
    """
    slots = {1: 0}
    shared = graph(
        5,
        data=[(0, 1), (1, 2), (2, 3), (-1, 3), (3, 4)],
        ctrl=[(0, 4)],
        names={0: "embed", 1: "Reduce", 2: "gather", 3: "send", 4: "head"},
        types={1: COLL, 2: COLL, 3: SEND},
        numbers={
            "comm_type": {1: CollectiveType.ALL_REDUCE, 2: CollectiveType.ALL_GATHER},
            "comm_size": {1: 4096, 2: 512, 3: 100},
            "num_ops": {0: 1000, 4: 3000},
            "pg_name": slots,
        },
        ids=[10, 11, 11, 13, 2**64 - 1],
    )
    alone = graph(
        1, names={0: "reduce"}, types={0: COLL}, numbers={"comm_type": {0: 0}, "comm_size": {0: 4000}}
    )
    shared = grouped(timed(shared, {0: (5000, 200), 1: (5200, 300), 4: (5100, 0)}), slots)
    ranks = (
        Rank(0, 0, ("tp0",), "1.1.1"),
        Rank(4, 0, ("tp1",), "1.1.1"),
        Rank(7, 1, (), "1.0.0"),
    )
    return Trace((shared, alone), ranks, (CommGroup("tp0", (0, 5)), CommGroup("tp1", (4, 7))))
