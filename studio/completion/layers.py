"""Tell the parts of a model apart by the names of a graph's nodes: layers, embedding, output layer and loss, micro-batches."""

from __future__ import annotations

import re

import numpy as np

from studio.distinct import find_distinct
from studio.trace import NONE, Bool, Graph, Int64

_LAYER = re.compile(
    r"(?:^|[^a-z0-9])(?:layers?|blocks?|transformer|encoder|decoder|h|stages?)[._\[]?(\d{1,5})(?![0-9])",
    re.IGNORECASE,
)
MICRO_BATCH = re.compile(r"(?:^|[^a-z0-9])(?:mb|micro_?batch|ubatch)[._]?(\d{1,5})(?![0-9])", re.IGNORECASE)
_END = re.compile(
    r"(?:^|[^a-z0-9])(?:out_emb\w*|output_layer|lm_head|head|logits?|loss|cross_?entropy|nll_loss|classifier)(?![a-z0-9])",
    re.IGNORECASE,
)
_BEGIN = re.compile(
    r"(?:^|[^a-z0-9])(?:in_emb\w*|embed\w*|\w*embeddings?|wte|wpe|tok_embeddings)(?![a-z0-9])", re.IGNORECASE
)


def parse_layers(graph: Graph) -> Int64:
    """Return (N,) the number of the layer that each node's name gives, -1 where it gives none.

    Names count as `layer3`, `transformer.3`, `blocks[3]`, `h.3` or the like.
    """
    return _parse_numbers(graph, _LAYER)


def parse_micro_batches(graph: Graph) -> Int64:
    """Return (N,) the number of the micro-batch that each node's name gives (`mb3`, `micro_batch_3`), -1 where it gives none."""
    return _parse_numbers(graph, MICRO_BATCH)


def match_embedding(graph: Graph) -> Bool:
    """Return (N,) which nodes belong to the embedding by their names, and to no layer."""
    chosen: Bool = match_names(graph, _BEGIN) & ~match_names(graph, _END) & (parse_layers(graph) == NONE)
    return chosen


def match_output(graph: Graph) -> Bool:
    """Return (N,) which nodes belong to the output layer or the loss by their names, and to no layer."""
    chosen: Bool = match_names(graph, _END) & (parse_layers(graph) == NONE)
    return chosen


def _parse_numbers(graph: Graph, pattern: re.Pattern[str]) -> Int64:
    by_name = np.full(len(graph.strings), NONE, np.int64)
    for code in find_distinct(graph.name).tolist():
        match = pattern.search(graph.strings[code])
        if match:
            by_name[code] = int(match[1])
    return np.asarray(by_name[graph.name], np.int64)


def match_names(graph: Graph, pattern: re.Pattern[str]) -> Bool:
    """Return (N,) which nodes have a name in which a pattern is found."""
    by_name = np.zeros(len(graph.strings), np.bool_)
    for code in find_distinct(graph.name).tolist():
        by_name[code] = bool(pattern.search(graph.strings[code]))
    return np.asarray(by_name[graph.name], np.bool_)
