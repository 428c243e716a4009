"""The course of a job whose ranks are never held up by others than they wait for: what each node takes alone.

Ranks that run the same graph are one here, so a job of any size is as many nodes as its graphs have. A path through them is
a path through nodes of ranks: a receive waits for the send that it is matched with, which is at the same row of its
sender's graph whichever rank of the graph receives. No simulation is faster than its longest path, since nodes take no less than alone: ports that
are shared only slow what passes them, and members of a collective wait for the last of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from studio.sim.config import SystemConfig
from studio.sim.flow_plans import RECEIVES, SENDS
from studio.sim.graph_plans import plan_graphs
from studio.sim.kernel import records as k
from studio.sim.planning import Planning
from studio.trace import Graph, NodeType, Trace, group_slots


@dataclass(frozen=True, slots=True)
class Course:
    """The nodes of a job's graphs, one rank of each, numbered one graph after the other in the order of rows.

    Attributes:
        bounds: Per graph the numbers of its nodes.
        parents: Per node those it waits for.
        takes_ns: Per node the least it takes; 0 of a receive.
        sender: Per node the send that a receive is matched with; -1 for others.
        computes: Per node whether it computes.
        group: Per collective the slot of its comm group, other than that of other graphs; -1 for others.
        names: Per node its name.
    """

    bounds: list[range]
    parents: list[list[int]]
    takes_ns: list[int]
    sender: list[int]
    computes: list[bool]
    group: list[int]
    names: list[str]

    def is_of_micro_batch(self, node: int) -> bool:
        """Whether a node's name says which micro-batch it is of."""
        return bool(_parse_micro_batch(self.names[node]))


def build_course(trace: Trace, config: SystemConfig) -> Course:
    """Return the course of a job on a system."""
    planning = Planning(trace, config)
    first = {rank.graph: place for place, rank in reversed(list(enumerate(trace.ranks)))}
    starts = np.cumsum([0, *(len(graph) for graph in trace.graphs)])
    takes = np.zeros(int(starts[-1]), np.int64)
    sender = np.full(int(starts[-1]), -1, np.int64)
    fastest = max([1.0, *(config.extensions.compute_speeds or {}).values()]) if config.extensions else 1.0
    computes, parents, groups, names = [], [], [], []
    for index, plan in plan_graphs(planning).items():
        graph = trace.graphs[index]
        compute = graph.type == NodeType.COMP
        instant = plan.nodes[:, k.Node.KIND] == k.Kind.INSTANT
        takes[starts[index] + plan.order] = np.where(instant, 0, plan.durations)
        span = slice(starts[index], starts[index + 1])
        takes[span] = np.where(compute, np.floor(takes[span] / fastest), 0)
        computes += compute.tolist()
        parents += _list_parents(graph, int(starts[index]))
        groups += np.where(graph.type == NodeType.COMM_COLL, group_slots(graph), -1).tolist()
        names += [graph.strings[name] for name in graph.name.tolist()]
    bundles = planning.bundles
    if bundles is not None:
        assert planning.costs is not None
        own_bundles = bundles.of_ranks(np.array(list(first.values()), np.int64))
        flows = bundles.add_costs(bundles.expand(own_bundles), planning.costs)
        graph_at = np.array([rank.graph for rank in trace.ranks], np.int64)
        sends = flows.role == SENDS
        send_of = np.full(len(flows), -1, np.int64)
        send_of[flows.flow[sends]] = starts[graph_at[flows.place[sends]]] + flows.row[sends]
        chosen = np.isin(flows.place, list(first.values()))
        node = starts[graph_at[flows.place[chosen]]] + flows.row[chosen]
        flow, receives = flows.flow[chosen], flows.role[chosen] == RECEIVES
        takes[node[~receives]] = flows.total_ns[flow[~receives]]
        sender[node[receives]] = send_of[flow[receives]]
    bounds = [range(low, high) for low, high in pairwise(starts.tolist())]
    return Course(bounds, parents, takes.tolist(), sender.tolist(), computes, groups, names)


def _list_parents(graph: Graph, start: int) -> list[list[int]]:
    parents: list[list[int]] = [[] for _ in range(len(graph))]
    for deps in (graph.ctrl, graph.data):
        rows = deps.list_waiting()
        for row, parent in zip(rows.tolist(), deps.rows.tolist(), strict=True):
            if parent >= 0:
                parents[row].append(start + parent)
    return parents


def compute_longest_paths(course: Course) -> tuple[list[int], list[int]]:
    """Return per node the longest path to its beginning, and from its end to the end of the job."""
    children: list[list[int]] = [[] for _ in course.parents]
    received: list[list[int]] = [[] for _ in course.parents]
    for node, parents in enumerate(course.parents):
        for parent in parents:
            children[parent].append(node)
        if course.sender[node] >= 0:
            received[course.sender[node]].append(node)
    takes = course.takes_ns
    before, ends = [0] * len(takes), [0] * len(takes)
    order = _order_nodes(course, children, received)
    for node in order:
        ends[node] = max(ends[node], before[node] + takes[node])
        # A message ends on both sides at once; its receive may have begun before it.
        for other in received[node]:
            ends[other] = max(ends[other], ends[node])
        for child in children[node]:
            before[child] = max(before[child], ends[node])
    after, rest = [0] * len(takes), [0] * len(takes)
    for node in reversed(order):
        after[node] = max((rest[child] for child in children[node]), default=0)
        met = max((after[other] for other in received[node]), default=0)
        rest[node] = takes[node] + max(after[node], met)
    return before, after


def _order_nodes(course: Course, children: list[list[int]], received: list[list[int]]) -> list[int]:
    """Return nodes so that each comes after those it waits for, a receive after its send."""
    waits = [len(parents) + (send >= 0) for parents, send in zip(course.parents, course.sender, strict=True)]
    ready = [node for node, count in enumerate(waits) if not count]
    order = []
    while ready:
        node = ready.pop()
        order.append(node)
        for other in (*received[node], *children[node]):
            waits[other] -= 1
            if not waits[other]:
                ready.append(other)
    return order


def iterate_passes(course: Course, graph: int, *, split_weights: bool) -> Iterator[tuple[str, list[int]]]:
    """Yield the passes of a graph's micro-batches in order: which of `WAYS`, and the compute nodes in the order of their stream.

    Args:
        course: The course.
        graph: The graph.
        split_weights: Whether gradients of weights are passes of their own.
    """
    current: list[int] = []
    key = "", ""
    for node in course.bounds[graph]:
        batch = _parse_micro_batch(course.names[node])
        if not course.computes[node] or not batch:
            continue
        way = _parse_way(course.names[node], split_weights=split_weights)
        if (batch, way) != key and current:
            yield key[1], current
            current = []
        key = batch, way
        current.append(node)
    if current:
        yield key[1], current


WAYS = ("fwd", "bwd", "wgrad")
"""Forward and backward passes, and those of gradients of weights where they are passes of their own."""


def _parse_micro_batch(name: str) -> str:
    """Return step and micro-batch of a node's name, such as `step0.mb1`; "" where it is of none."""
    step, _, rest = name.partition(".")
    batch = rest.partition(".")[0]
    return f"{step}.{batch}" if batch.startswith("mb") else ""


def _parse_way(name: str, *, split_weights: bool) -> str:
    parts = name.split(".")
    # What a backward pass computes again is part of it.
    if parts[-1] == "fwd" and "again" not in parts:
        return "fwd"
    return "wgrad" if split_weights and parts[-1] == "wgrad" else "bwd"


def compute_pass_lengths(course: Course, nodes: list[int], cuts: list[int]) -> list[int]:
    """Return the longest paths within a pass, from its beginning, or the end of the compute node before, to each cut.

    Args:
        course: The course.
        nodes: Compute nodes of the pass, in order.
        cuts: Indices into `nodes`, rising: a path ends at the end of each of them, and the next begins there.
    """
    lengths, begin = [], 0
    start = -1
    for cut in cuts:
        low, high = nodes[begin] if start < 0 else start, nodes[cut]
        ends = {start: 0} if start >= 0 else {nodes[0]: course.takes_ns[nodes[0]]}
        for node in range(low + 1, high + 1):
            known = [ends[parent] for parent in course.parents[node] if parent in ends]
            if known:
                own = max(known)
                ends[node] = own + course.takes_ns[node]
            # What a rank receives within a pass its peer sends at the same place of its own.
            send = course.sender[node]
            if send in ends:
                ends[node] = max(ends.get(node, 0), ends[send])
        lengths.append(ends.get(high, 0))
        start, begin = high, cut + 1
    return lengths
