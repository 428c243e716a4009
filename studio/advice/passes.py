"""Tell the passes of a pipeline apart in a graph: forward and backward, of which micro-batch, in which order.

Names give the micro-batch (`mb3`, `micro_batch_3`) and the way (`fwd`, `bwd`, `dgrad`, `wgrad`, `forward`, `backward`); what stands
before the micro-batch in a name is the step. Nodes that every micro-batch of a step repeats are work of a micro-batch; all others, such
as sums of gradients, are work of the step.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from studio.advice.orders import are_order_only
from studio.analysis.collectives.matching import compute_issue_order
from studio.completion.layers import MICRO_BATCH
from studio.distinct import find_distinct
from studio.et.link.dep_kinds import is_linked
from studio.trace import NONE, Bool, Graph, Int64, NodeType

_BACKWARD = re.compile(r"(?:^|[^a-z])(?:bwd|backward|[dw]?grad)(?![a-z])|Backward\d", re.IGNORECASE)
FORWARD, BACKWARD = 0, 1


@dataclass(frozen=True, slots=True)
class Passes:
    """The passes of a graph, in the order of its program.

    N nodes, P passes.

    Attributes:
        at: (N,) the pass each node is part of; -1 for nodes before the first pass of a step, or after its last.
        number: (N,) the micro-batch that a node repeats the work of, -1 for work of the step.
        place: (N,) the order of issue.
        key: (N,) equal on nodes that are the same work of different micro-batches; each node of the step has one of its own.
        steps, numbers, ways: (P,) step, micro-batch and way (`FORWARD`, `BACKWARD`) of each pass.
        ordered: Whether dependencies say in which order passes run; else data alone does, and passes have no order.
    """

    at: Int64
    number: Int64
    place: Int64
    key: Int64
    steps: Int64
    numbers: Int64
    ways: Int64
    ordered: bool

    @property
    def micro_batches(self) -> int:
        """How many micro-batches a step has."""
        return int(self.numbers.max()) + 1

    def order(self, step: int) -> tuple[tuple[int, int], ...]:
        """Return way and micro-batch of the passes of a step, in order."""
        in_step = self.steps == step
        return tuple(zip(self.ways[in_step].tolist(), self.numbers[in_step].tolist(), strict=True))


@dataclass(slots=True)
class _Labels:
    """What names tell of each node: step, micro-batch, whether they say backward, and the rest of the name."""

    step: Int64
    number: Int64
    backward: Bool
    rest: Int64


def find_passes(graph: Graph) -> Passes | str:
    """Return the passes of a graph; else why they cannot be told apart, in words without a full stop."""
    place = compute_issue_order(graph)
    labels = _parse_labels(graph, place)
    if is_linked(graph):
        return "of linked recordings the host's calls would have to be told apart too"
    if not (labels.number != NONE).any():
        return "no name of a node tells its micro-batch, such as mb3 or micro_batch_3"
    repeated = _find_repeated(labels)
    if repeated is None:
        return "steps have different micro-batches"
    way = _infer_ways(graph, labels, place)
    named = labels.number != NONE
    if not _wait_in_order_only(graph, labels):
        listed, of = np.unique(np.stack([labels.step, labels.number])[:, named], axis=1, return_inverse=True)
        at = np.full(len(graph), NONE, np.int64)
        at[named] = of
        return _build_passes(
            graph,
            labels,
            repeated,
            (at, place, np.zeros_like(way)),
            (listed[0], listed[1], 0 * listed[0]),
            ordered=False,
        )
    # The order of passes is that of their compute: receives may be posted long before.
    computes = np.flatnonzero(named & repeated & (graph.type == NodeType.COMP))
    computes = computes[np.argsort(place[computes], kind="stable")]
    if not len(computes):
        return "no compute of a micro-batch is named"
    triples = np.stack([labels.step, labels.number, way])
    begins = np.append(True, (np.diff(triples[:, computes], axis=1) != 0).any(axis=0))
    listed = triples[:, computes[begins]]
    index = {key: number for number, key in enumerate(zip(*listed.tolist(), strict=True))}
    if len(index) < listed.shape[1]:
        return "passes of micro-batches take turns: their halves, or parts of stages, are interleaved"
    at = np.array(
        [index.get(key, NONE) if key[1] != NONE else NONE for key in zip(*triples.tolist(), strict=True)],
        np.int64,
    )
    if (at[named] == NONE).any():
        return "a pass of a micro-batch computes nothing"
    _attach(at, listed, place, named)
    return _build_passes(
        graph, labels, repeated, (at, place, way), (listed[0], listed[1], listed[2]), ordered=True
    )


def _build_passes(
    graph: Graph,
    labels: _Labels,
    repeated: Bool,
    columns: tuple[Int64, Int64, Int64],
    listed: tuple[Int64, Int64, Int64],
    *,
    ordered: bool,
) -> Passes:
    at, place, way = columns
    # Work of the step has a key of its own.
    key = np.where(repeated, labels.rest * 2 + way, -1 - np.arange(len(graph)))
    return Passes(at, np.where(repeated, labels.number, NONE), place, key, *listed, ordered)


def _wait_in_order_only(graph: Graph, labels: _Labels) -> bool:
    """Whether something waits for another micro-batch in an order only."""
    for deps, order in zip((graph.ctrl, graph.data), are_order_only(graph), strict=True):
        of = deps.list_waiting()[order & (deps.rows >= 0)]
        parent = deps.rows[order & (deps.rows >= 0)]
        known = (labels.number[of] != NONE) & (labels.number[parent] != NONE)
        if (known & (labels.number[of] != labels.number[parent])).any():
            return True
    return False


def _parse_labels(graph: Graph, place: Int64) -> _Labels:
    steps: dict[str, int] = {}
    rests: dict[str, int] = {}
    table = np.full((4, len(graph.strings)), NONE, np.int64)
    for code in find_distinct(graph.name).tolist():
        name = graph.strings[code]
        match = MICRO_BATCH.search(name)
        table[2, code] = _BACKWARD.search(name) is not None
        if match:
            rest = name[match.end() :]
            table[0, code] = steps.setdefault(name[: match.start()], len(steps))
            table[1, code] = int(match[1])
            table[3, code] = rests.setdefault(rest, len(rests))
    columns = table[:, graph.name]
    # Steps by the order in which they begin.
    named = columns[0] != NONE
    first = np.full(len(steps), len(graph))
    np.minimum.at(first, columns[0][named], place[named])
    columns[0][named] = np.argsort(np.argsort(first))[columns[0][named]]
    return _Labels(columns[0], columns[1], columns[2] == 1, columns[3])


def _find_repeated(labels: _Labels) -> Bool | None:
    """Return (N,) which nodes every micro-batch of their step has as often; None where steps have different micro-batches."""
    named = labels.number != NONE
    counts = {}
    for step in find_distinct(labels.step[named]).tolist():
        numbers = find_distinct(labels.number[named & (labels.step == step)])
        if not np.array_equal(numbers, np.arange(len(numbers))):
            return None
        counts[step] = len(numbers)
    if len(set(counts.values())) != 1:
        return None
    count = next(iter(counts.values()))
    keys = np.stack([labels.step, labels.rest])
    repeated: Bool = np.zeros(len(named), np.bool_)
    rows = np.flatnonzero(named)
    _, of, many = np.unique(keys[:, rows], axis=1, return_inverse=True, return_counts=True)
    pairs = np.unique(np.stack([of, labels.number[rows]]), axis=1)
    each = np.bincount(pairs[0], minlength=len(many))
    repeated[rows] = (each == count)[of] & (many % count == 0)[of]
    return repeated


def _infer_ways(graph: Graph, labels: _Labels, place: Int64) -> Int64:
    """Return (N,) the way of each node: backward where its name says so, or that of a node of its micro-batch that it waits for."""
    backward = labels.backward.tolist()
    step, number = labels.step.tolist(), labels.number.tolist()
    lists = [(deps.offsets.tolist(), deps.rows.tolist()) for deps in (graph.ctrl, graph.data)]
    for row in np.argsort(place, kind="stable").tolist():
        if backward[row] or number[row] == NONE:
            continue
        backward[row] = any(
            parent >= 0 and backward[parent] and number[parent] == number[row] and step[parent] == step[row]
            for offsets, rows in lists
            for parent in rows[offsets[row] : offsets[row + 1]]
        )
    return np.asarray(backward, np.int64)


def _attach(at: Int64, listed: Int64, place: Int64, named: Bool) -> None:
    """Give nodes without a micro-batch that were issued during a pass to it; those between the passes of two steps to none."""
    order = np.argsort(place, kind="stable")
    known = np.where(named[order], at[order], NONE)
    index = np.arange(len(order))
    before = np.maximum.accumulate(np.where(known != NONE, index, -1))
    after = np.minimum.accumulate(np.where(known != NONE, index, len(order))[::-1])[::-1]
    between = (known == NONE) & (before >= 0) & (after < len(order))
    last, first = known[before[between]], known[after[between]]
    same_step = listed[0][last] == listed[0][first]
    at[order[between]] = np.where(same_step, last, NONE)
