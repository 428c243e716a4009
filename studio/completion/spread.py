"""Spread the durations of copied ranks, which in a real job differ from rank to rank and from operation to operation."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from studio.errors import ConfigError
from studio.trace import NodeType, Trace


@dataclass(frozen=True, slots=True)
class Spread:
    """How durations of copies differ from those recorded.

    Attributes:
        jitter: Standard deviation of the logarithm of each compute node's duration.
        imbalance: The same of a factor that all compute nodes of a rank share.
        seed: Two runs with the same seed draw the same.
    """

    jitter: float = 0.0
    imbalance: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in (("jitter", self.jitter), ("imbalance", self.imbalance)):
            if not 0 <= value <= 1:
                raise ConfigError(f"{name} is {value:g}; allowed: 0 to 1")


NO_SPREAD = Spread()


def spread_durations(trace: Trace, spread: Spread, recorded: frozenset[int]) -> Trace:
    """Return a job whose copied ranks compute for longer or shorter; recorded ranks stay as they are.

    Every copy gets a graph of its own then. Factors are log-normal with mean 1, so that no duration is negative and the
    mean of many ranks is the recorded one.
    """
    if not spread.jitter and not spread.imbalance:
        return trace
    graphs, ranks = list(trace.graphs), []
    for rank in trace.ranks:
        if rank.number in recorded:
            ranks.append(rank)
            continue
        draw = np.random.default_rng([spread.seed, rank.number])
        graph = trace.graph_of(rank)
        factor = np.exp(spread.imbalance * draw.standard_normal() - spread.imbalance**2 / 2)
        each = np.exp(spread.jitter * draw.standard_normal(len(graph)) - spread.jitter**2 / 2)
        computes = (graph.type == NodeType.COMP) & (graph.duration_ns > 0)
        times = np.where(
            computes, np.maximum(np.rint(graph.duration_ns * factor * each), 1), graph.duration_ns
        )
        graphs.append(replace(graph, duration_ns=times.astype(np.int64)))
        ranks.append(replace(rank, graph=len(graphs) - 1))
    used = sorted({rank.graph for rank in ranks})
    place = {graph: index for index, graph in enumerate(used)}
    return replace(
        trace,
        graphs=tuple(graphs[graph] for graph in used),
        ranks=tuple(replace(rank, graph=place[rank.graph]) for rank in ranks),
    )
