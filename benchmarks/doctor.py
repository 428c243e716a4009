"""Benchmark: the doctor on a million nodes.

python benchmarks/doctor.py [NODES]
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from studio.doctor import repair_all, run_checks
from studio.doctor.edit import with_numbers
from studio.trace import (
    NONE,
    Attributes,
    CollectiveType,
    Dependencies,
    Graph,
    NodeType,
    Rank,
    Strings,
    Trace,
    ValueKind,
)

_LANES = 16


def graph_of(count: int) -> Graph:
    """Return lanes of nodes, each waiting for the one before it and some for another lane; one in ten reduces."""
    rng = np.random.default_rng(1)
    rows = np.arange(count)
    before = np.maximum(rows - _LANES, 0)
    other = np.maximum(rows - rng.integers(1, 4 * _LANES, count), 0)
    waits = np.where(rows < _LANES, 0, 2)
    offsets = np.concatenate([[0], np.cumsum(waits)])
    parents = np.stack([before, other], axis=1)[_LANES:].reshape(-1)
    reduces = np.flatnonzero((rows % 10 == 9) & (rows >= _LANES))
    kind = np.full(count, NodeType.COMP, np.int32)
    kind[reduces] = NodeType.COMM_COLL
    texts = Strings.of(["node", "comm_type", "comm_size"])
    where = np.repeat(reduces, 2)
    attrs = Attributes(
        offsets=np.searchsorted(where, np.arange(count + 1)).astype(np.int64),
        key=np.tile(np.array([1, 2], np.int32), len(reduces)),
        doc=np.full(len(where), NONE, np.int32),
        kind=np.full(len(where), ValueKind.INT64, np.uint8),
        value=np.tile(np.array([CollectiveType.ALL_REDUCE, 1 << 20], np.int64), len(reduces)),
        length=np.zeros(len(where), np.int32),
        slot=np.zeros(len(where), np.bool_),
        items=np.zeros(0, np.int64),
    )
    none = np.zeros(0, np.int32)
    return Graph(
        id=rows.astype(np.uint64),
        type=kind,
        name=np.zeros(count, np.int32),
        start_ns=rows.astype(np.int64) * 1000,
        duration_ns=np.full(count, 900, np.int64),
        ctrl=Dependencies(np.zeros(count + 1, np.int64), none, np.zeros(0, np.uint64)),
        data=Dependencies(offsets.astype(np.int64), parents.astype(np.int32), np.zeros(0, np.uint64)),
        io=np.zeros((0, 6), np.int32),
        attrs=attrs,
        slot_key=none,
        extra_row=none,
        extra=none,
        strings=texts,
    )


def broken(graph: Graph) -> Graph:
    """Add a thousand cycles to a graph and shuffle its ids."""
    rng = np.random.default_rng(2)
    rows = graph.data.rows.copy()
    # The one before waits for this one: with its lane the other way about that is a circle of two.
    for row in rng.choice(np.arange(2 * _LANES, len(graph)), 1000, replace=False).tolist():
        rows[graph.data.offsets[row - _LANES] + 1] = row
    data = Dependencies(graph.data.offsets, rows, graph.data.dangling)
    return replace(graph, data=data, id=rng.permutation(len(graph)).astype(np.uint64))


def jobs(count: int) -> Iterator[tuple[str, Trace]]:
    """Yield jobs of this many nodes with their names."""
    graph = graph_of(count)
    together = tuple(Rank(number, 0) for number in range(8))
    rng = np.random.default_rng(3)
    yield "in order", Trace((graph,), together)
    shuffled = replace(graph, id=rng.permutation(len(graph)).astype(np.uint64))
    yield "ids in any order", Trace((shuffled,), together)
    part = graph_of(count // 8)
    rows = np.arange(len(part))
    for words, own in (
        ("", part),
        (", ids in any order", replace(part, id=rng.permutation(len(part)).astype(np.uint64))),
        (", on streams", with_numbers(part, "stream", rows, rows // 7 % _LANES)),
    ):
        yield f"a graph for each rank{words}", _apart(own)
    yield "1,000 circles", Trace((broken(graph),), together)


def _apart(graph: Graph) -> Trace:
    """Return the job of eight ranks that have such a graph each, no two of them equal."""
    graphs = tuple(replace(graph, start_ns=graph.start_ns + number) for number in range(8))
    return Trace(graphs, tuple(Rank(number, number) for number in range(8)))


def main() -> None:
    """Print a table."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    print("| job | examined, s of CPU | repaired, s of CPU | findings |\n| --- | --- | --- | --- |")
    for name, trace in jobs(count):
        begun = time.process_time()
        result = run_checks(trace)
        examined = time.process_time()
        repair_all(trace)
        repaired = time.process_time()
        codes = ", ".join(diagnosis.code for diagnosis in result.diagnoses) or "none"
        print(f"| {name} | {examined - begun:.2f} | {repaired - examined:.2f} | {codes} |")
    print(f"\npeak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB")


if __name__ == "__main__":
    main()
