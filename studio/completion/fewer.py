"""Take micro-batches or layers out of a graph: what waited for them waits for what they waited for."""

from __future__ import annotations

import numpy as np

from studio.completion.layers import parse_layers, parse_micro_batches
from studio.completion.surgery import edit_graph
from studio.distinct import find_distinct
from studio.errors import ConfigError
from studio.trace import NONE, Bool, Graph, Int64, NodeType


def with_fewer_micro_batches(graph: Graph, factor: int) -> Graph:
    """Return a graph with a share of its micro-batches, the first ones.

    Raises:
        ConfigError: No node names a micro-batch, or their number does not divide.
    """
    numbers = parse_micro_batches(graph)
    if not (numbers != NONE).any():
        raise ConfigError(
            "replicas cannot share the batch: no node of the job names a micro-batch",
            hint="Names such as mb3 or micro_batch_3 tell them. Without --strong each replica has a batch of its own.",
        )
    return _keep_first(graph, numbers, np.ones(len(graph), np.bool_), factor, "micro-batches of a replica")


def with_fewer_layers(graph: Graph, factor: int) -> Graph:
    """Return the graph of a pipeline stage with a share of its layers, the first ones; messages to other stages stay.

    Raises:
        ConfigError: No node names the number of a layer, or their number does not divide.
    """
    numbers = parse_layers(graph)
    if not (numbers != NONE).any():
        raise ConfigError(
            "pipeline stages cannot share the layers: no node of the job names the number of a layer",
            hint="Names such as layer3 or transformer.3 tell them. --layers kept gives each stage as many as before.",
        )
    inside = ~np.isin(graph.type, (NodeType.COMM_SEND, NodeType.COMM_RECV))
    return _keep_first(graph, numbers, inside, factor, "layers of a pipeline stage")


def _keep_first(graph: Graph, numbers: Int64, among: Bool, factor: int, what: str) -> Graph:
    """Return a graph without the nodes of all but the first share of what is numbered."""
    present = find_distinct(numbers[(numbers != NONE) & among])
    if len(present) % factor:
        raise ConfigError(
            f"{len(present):,} {what} cannot be shared by {factor:,} times as many",
            hint="Choose a number that divides them.",
        )
    gone = np.isin(numbers, present[len(present) // factor :]) & among
    return edit_graph(graph, np.flatnonzero(gone).tolist(), ())
