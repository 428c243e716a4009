"""Edits of a job: each is data, and returns a changed trace when it is called.

No edit adds or removes nodes or moves their rows, so that edits follow each other in any order, and a changed job is compared
with its original node by node. Ranks that shared a graph and are changed alike share one afterwards.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from studio.trace import NONE, Bool, Dependencies, Float64, Graph, Int32, Int64, NodeType, Trace

_WORK = ("num_ops", "tensor_size")
"""Attributes from which a roofline makes the time of a compute node."""


def with_graphs(trace: Trace, marks: Mapping[int, bytes], change: Callable[[Graph, int], Graph]) -> Trace:
    """Return the job with other graphs for some ranks.

    Args:
        trace: The job.
        marks: By place of a rank what tells its change apart: ranks of one graph and one mark share the changed graph.
        change: Returns the changed graph of the rank at a place.
    """
    index_of: dict[tuple[int, bytes], int] = {}
    graphs, ranks = list(trace.graphs), list(trace.ranks)
    for place, mark in marks.items():
        key = trace.ranks[place].graph, mark
        if key not in index_of:
            index_of[key] = len(graphs)
            graphs.append(change(trace.graphs[key[0]], place))
        ranks[place] = replace(ranks[place], graph=index_of[key])
    # In the order of what they were made of, so that a job whose ranks all keep a graph of their own numbers them as before.
    made_of = [*range(len(trace.graphs)), *(graph for graph, _ in index_of)]
    used = sorted(dict.fromkeys(rank.graph for rank in ranks), key=made_of.__getitem__)
    number = {graph: index for index, graph in enumerate(used)}
    return replace(
        trace,
        graphs=tuple(graphs[index] for index in used),
        ranks=tuple(replace(rank, graph=number[rank.graph]) for rank in ranks),
    )


def _mark(*columns: Int64 | Float64) -> bytes:
    state = hashlib.blake2b(digest_size=16)
    for column in columns:
        state.update(np.ascontiguousarray(column).data)
        state.update(b"|")
    return state.digest()


@dataclass(frozen=True, slots=True, eq=False)
class ScaleTimes:
    """Multiplies durations of nodes, rounded to the nanosecond; nothing that took time takes less than 1 ns.

    Attributes:
        factors: (N,) factors of each node, by place of the rank.
        work: Whether operations and bytes are multiplied too, for systems that take times from them.
    """

    factors: Mapping[int, Float64]
    work: bool = False

    def __call__(self, trace: Trace) -> Trace:
        """Return the changed job."""
        marks = {place: _mark(factor) for place, factor in self.factors.items()}
        return with_graphs(trace, marks, self._change_graph)

    def _change_graph(self, graph: Graph, place: int) -> Graph:
        factor = self.factors[place]
        changed = factor != 1
        duration = np.where(
            changed & (graph.duration_ns > 0),
            np.maximum(np.rint(graph.duration_ns * factor).astype(np.int64), 1),
            graph.duration_ns,
        )
        scaled = replace(graph, duration_ns=duration)
        return _scale_work(scaled, factor, changed) if self.work else scaled


def _scale_work(graph: Graph, factor: Float64, changed: Bool) -> Graph:
    """Return a graph with other operations and bytes of compute nodes; their ratio stays."""
    value = graph.attrs.value.copy()
    for key in _WORK:
        rows, where = graph.rows_with(key)
        chosen = changed[rows] & (graph.type[rows] == NodeType.COMP)
        rows, where = rows[chosen], where[chosen]
        value[where] = np.maximum(
            np.rint(value[where] * factor[rows]).astype(np.int64), np.minimum(value[where], 1)
        )
    return replace(graph, attrs=replace(graph.attrs, value=value))


@dataclass(frozen=True, slots=True, eq=False)
class ShiftTimes:
    """Adds to the durations of nodes; none falls below 1 ns.

    Attributes:
        shifts: (N,) nanoseconds for each node, by place of the rank.
    """

    shifts: Mapping[int, Int64]

    def __call__(self, trace: Trace) -> Trace:
        """Return the changed job."""
        marks = {place: _mark(shift) for place, shift in self.shifts.items()}
        return with_graphs(trace, marks, self._change_graph)

    def _change_graph(self, graph: Graph, place: int) -> Graph:
        shift = self.shifts[place]
        duration = np.where(shift != 0, np.maximum(graph.duration_ns + shift, 1), graph.duration_ns)
        return replace(graph, duration_ns=duration)


@dataclass(frozen=True, slots=True, eq=False)
class SetSizes:
    """Gives communication nodes other sizes (`comm_size`).

    Attributes:
        sizes: (N,) bytes of each node, -1 where it keeps its own, by place of the rank.
    """

    sizes: Mapping[int, Int64]

    def __call__(self, trace: Trace) -> Trace:
        """Return the changed job."""
        marks = {place: _mark(size) for place, size in self.sizes.items()}
        return with_graphs(trace, marks, self._change_graph)

    def _change_graph(self, graph: Graph, place: int) -> Graph:
        size = self.sizes[place]
        value = graph.attrs.value.copy()
        rows, where = graph.rows_with("comm_size")
        chosen = (size[rows] != NONE) & ~graph.attrs.slot[where]
        value[where[chosen]] = size[rows[chosen]]
        return replace(graph, attrs=replace(graph.attrs, value=value))


@dataclass(frozen=True, slots=True, eq=False)
class Wiring:
    """The dependencies of a graph after a change.

    N nodes, D and E control and data dependencies, X further ones.

    Attributes:
        ctrl, data: (D,), (E,) rows waited for, in place of those of the graph; a dependency that is dropped names one that its
            node has anyway, so that lists of reasons stay as long as they are.
        further: (2, X) waiting nodes, and nodes they wait for besides; control dependencies.
        gone: (N,) nodes that take no time and do nothing any more.
    """

    ctrl: Int32
    data: Int32
    further: Int64
    gone: Bool


@dataclass(frozen=True, slots=True, eq=False)
class Rewire:
    """Lets nodes wait for others than before.

    Attributes:
        wirings: By place of the rank.
    """

    wirings: Mapping[int, Wiring]

    def __call__(self, trace: Trace) -> Trace:
        """Return the changed job."""
        marks = {
            place: _mark(
                *(
                    column.astype(np.int64)
                    for column in (wiring.ctrl, wiring.data, wiring.further, wiring.gone)
                )
            )
            for place, wiring in self.wirings.items()
        }
        return with_graphs(trace, marks, self._change_graph)

    def _change_graph(self, graph: Graph, place: int) -> Graph:
        wiring = self.wirings[place]
        return replace(
            graph,
            type=np.where(wiring.gone, np.int32(NodeType.METADATA), graph.type),
            duration_ns=np.where(wiring.gone, 0, graph.duration_ns),
            ctrl=_add_dependencies(replace(graph.ctrl, rows=wiring.ctrl), wiring.further),
            data=replace(graph.data, rows=wiring.data),
        )


def _add_dependencies(deps: Dependencies, further: Int64) -> Dependencies:
    """Return dependencies with further ones, which stand behind those of their node."""
    if not further.shape[1]:
        return deps
    count = len(deps.offsets) - 1
    of = np.concatenate([deps.list_waiting(), further[0]])
    rows = np.concatenate([deps.rows, further[1].astype(np.int32)])
    order = np.argsort(of, kind="stable")
    offsets = np.append(0, np.cumsum(np.bincount(of, minlength=count)))
    return replace(deps, offsets=offsets, rows=rows[order])
