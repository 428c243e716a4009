"""Times where the time of a large recording went: `python benchmarks/answers.py [RANKS NODES ...]`.

Pairs of numbers are jobs of so many ranks with so many nodes each: compute in a chain of two dependencies a node, an all-reduce
of all ranks in every fifth, times that differ by rank. Printed are the CPU seconds of the ledger, of exposed time by comm
group, of whom ranks waited for, of the critical path through all ranks, of its words, of the slack of all nodes, and of the table of kernels.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks.graph import rank_of
from studio.analysis.compare.sides import build_recorded_side
from studio.analysis.job.blame import compute_blame
from studio.analysis.job.group_times import sum_group_times
from studio.analysis.job.kernels import list_kernels
from studio.analysis.path.critical import find_critical_path
from studio.analysis.path.slack import compute_slack
from studio.analysis.path.words import compute_path_shares, describe_path
from studio.timeline import collect_node_times, recorded
from studio.trace import Int64, NodeType, Rank, Trace

JOBS = ((1, 1_000_000), (8, 125_000), (1024, 1000))


def recording(ranks: int, nodes: int) -> Trace:
    """A recorded job: each rank has a graph and times of its own."""
    [graph] = rank_of(nodes).graphs
    start, length = _times(ranks, nodes, graph.type == NodeType.COMM_COLL)
    graphs = tuple(replace(graph, start_ns=start[rank], duration_ns=length[rank]) for rank in range(ranks))
    return Trace(graphs, tuple(Rank(rank, rank, (), "1.1.1") for rank in range(ranks)), ())


def _times(ranks: int, nodes: int, meets: np.ndarray) -> tuple[Int64, Int64]:
    """Return (ranks, nodes) start and duration: members leave an all-reduce together, 2 µs after the last came."""
    random = np.random.default_rng(1)
    length = random.integers(3_000, 9_000, (ranks, nodes))
    gap = random.integers(0, 300, (ranks, nodes))
    start, now = np.zeros((ranks, nodes), np.int64), np.zeros(ranks, np.int64)
    for node in range(nodes):
        start[:, node] = now = now + gap[:, node]
        if meets[node]:
            length[:, node] = int(now.max()) + 2_000 - now
        now = now + length[:, node]
    return start, length


def measure(ranks: int, nodes: int) -> None:
    """Print a row of the table."""
    trace = recording(ranks, nodes)
    side = build_recorded_side(trace, collect_node_times(trace, recorded(trace)))
    spent: list[float] = []

    def timed(work: Callable[[], object]) -> object:
        began = time.process_time()
        made = work()
        spent.append(time.process_time() - began)
        return made

    account = side.ledger()
    timed(side.ledger)
    timed(lambda: sum_group_times(trace, account))
    timed(lambda: compute_blame(trace, side.times, account))
    path = find_critical_path(trace, side.times, account)
    timed(lambda: find_critical_path(trace, side.times, account))
    shares = compute_path_shares(trace, side.times, account, path)
    timed(lambda: compute_path_shares(trace, side.times, account, path))
    timed(lambda: compute_slack(trace, side.times, account))
    timed(lambda: list_kernels(trace, side.times))
    cells = " | ".join(f"{seconds:.2f}" for seconds in spent)
    print(f"| {ranks:,} × {nodes:,} | {cells} | {sum(spent):.2f} | {len(path):,} |  {describe_path(shares)}")


if __name__ == "__main__":
    given = list(map(int, sys.argv[1:]))
    print(
        "| ranks × nodes | ledger | groups | blame | path | words | slack | kernels | together | segments |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for ranks, nodes in zip(given[::2], given[1::2], strict=True) if given else JOBS:
        measure(ranks, nodes)
