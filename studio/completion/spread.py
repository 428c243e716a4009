"""Spread the durations of copied ranks, which in a real job differ from rank to rank and from operation to operation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from studio.completion.measured import Measured, Sizes
from studio.errors import ConfigError
from studio.trace import Graph, NodeType, Trace, are_assumed_arrivals

MEASURED: Literal["measured"] = "measured"
Share = float | Literal["measured"]
Arrivals = Literal["recorded", "together"]


@dataclass(frozen=True, slots=True)
class Spread:
    """How durations of copies differ from those recorded.

    Attributes:
        jitter: Standard deviation of the logarithm of each compute node's duration; `measured` takes that between known ranks.
        imbalance: The same of a factor that all compute nodes of a rank share; `measured` draws between the known ranks.
        seed: Two runs with the same seed draw the same.
        arrivals: Whether copies come to collectives as late as the known ranks, by their waiting, saw others come
            (`recorded`), or `together` with them; None is as recorded unless `imbalance` says how ranks differ.
    """

    jitter: Share = 0.0
    imbalance: Share = 0.0
    seed: int = 0
    arrivals: Arrivals | None = None

    @property
    def as_late(self) -> bool:
        """Whether copies come to collectives as late as the known ranks saw others come."""
        return self.arrivals == "recorded" or (self.arrivals is None and not self.imbalance)

    def __post_init__(self) -> None:
        for name, value in (("jitter", self.jitter), ("imbalance", self.imbalance)):
            if isinstance(value, str):
                continue
            if not 0 <= value <= 1:
                raise ConfigError(f"{name} is {value:g}; allowed: 0 to 1, or {MEASURED}")


NO_SPREAD = Spread()
NOT_MEASURED = Measured({})


def parse_share(name: str, text: str) -> Share:
    """Parse a spread as it is typed: a number from 0 to 1, or `measured`.

    Raises:
        ConfigError: It is neither.

    Example:
        >>> parse_share("jitter", "0.1"), parse_share("jitter", "measured")
        (0.1, 'measured')
    """
    if text.strip() == MEASURED:
        return MEASURED
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{name} is {text!r}; allowed: 0 to 1, or {MEASURED}") from None


def spread_durations(
    trace: Trace, spread: Spread, recorded: frozenset[int], measured: Measured = NOT_MEASURED
) -> Trace:
    """Return a job whose copied ranks compute for longer or shorter; recorded ranks stay as they are.

    Every copy gets a graph of its own then. Factors that are drawn are log-normal with mean 1, so that no duration is negative
    and the mean of many ranks is the recorded one.

    Args:
        trace: The job.
        spread: Numbers; what was measured stands in `measured`, or for jitter is a number too.
        recorded: Ranks that stay as they are.
        measured: Factors and sizes of collectives that were measured.
    """
    imbalance, jitter = _get_number(spread.imbalance), _get_number(spread.jitter)
    if not (jitter or imbalance or measured.factors):
        return trace
    _refuse_without_durations(trace)
    graphs, ranks = list(trace.graphs), []
    for rank in trace.ranks:
        if rank.number in recorded:
            ranks.append(rank)
            continue
        draw = np.random.default_rng([spread.seed, rank.number])
        graph = trace.graph_of(rank)
        factor = np.exp(imbalance * draw.standard_normal() - imbalance**2 / 2)
        factor *= measured.factors.get(rank.number, 1.0)
        each = np.exp(jitter * draw.standard_normal(len(graph)) - jitter**2 / 2)
        computes = (graph.type == NodeType.COMP) & (graph.duration_ns > 0) & ~are_assumed_arrivals(graph)
        times = np.where(
            computes, np.maximum(np.rint(graph.duration_ns * factor * each), 1), graph.duration_ns
        )
        graph = _with_sizes(graph, measured.sizes.get(rank.number))
        graphs.append(replace(graph, duration_ns=times.astype(np.int64)))
        ranks.append(replace(rank, graph=len(graphs) - 1))
    used = sorted({rank.graph for rank in ranks})
    place = {graph: index for index, graph in enumerate(used)}
    return replace(
        trace,
        graphs=tuple(graphs[graph] for graph in used),
        ranks=tuple(replace(rank, graph=place[rank.graph]) for rank in ranks),
    )


def _get_number(share: Share) -> float:
    return 0.0 if isinstance(share, str) else share


def _refuse_without_durations(trace: Trace) -> None:
    """Raise an error where there is nothing to spread.

    Raises:
        ConfigError: No compute node has a duration.
    """
    if not any(bool((graph.duration_ns[graph.type == NodeType.COMP] > 0).any()) for graph in trace.graphs):
        raise ConfigError(
            "durations cannot be spread: no compute node of the job has one",
            hint="Take no spread: such a job's times follow from its operations.",
        )


def _with_sizes(graph: Graph, sizes: Sizes | None) -> Graph:
    """Return a graph with other sizes of some collectives."""
    if sizes is None:
        return graph
    at, where = graph.rows_with("comm_size")
    value = graph.attrs.value.copy()
    new = dict(zip(sizes.rows.tolist(), sizes.bytes.tolist(), strict=True))
    for row, place in zip(at.tolist(), where.tolist(), strict=True):
        if row in new:
            value[place] = new[row]
    return replace(graph, attrs=replace(graph.attrs, value=value))
