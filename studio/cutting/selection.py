"""Find the nodes of a job that are asked for: by rank, by training step, by time, or by their distance from one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from studio.analysis.collectives.matching import compute_issue_order, list_edges
from studio.analysis.job.completeness import format_ranges, group_ranges
from studio.analysis.job.node_refs import find_node
from studio.analysis.job.steps import find_graph_steps
from studio.analysis.job.windows import step_numbers
from studio.errors import ConfigError
from studio.timeline import NodeTimes
from studio.trace import NONE, Bool, Graph, Int64, Trace
from studio.units import format_counted, format_ns

NodeRef = tuple[int, str]
"""A node: the number of its rank, and its id as addresses have it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What is to be cut out of a job; what is said of several kinds must hold at once.

    Attributes:
        ranks: Numbers of ranks; None takes all.
        steps: Training steps; None takes all nodes.
        from_ns, to_ns: A window of time, from the beginning of the recording or run; None is its beginning or its end.
        around: A node whose surroundings are taken; None takes all nodes.
        depth: So many dependencies away from it, up and down.
        nodes: Nodes that are taken one by one.
    """

    ranks: frozenset[int] | None = None
    steps: frozenset[int] | None = None
    from_ns: int | None = None
    to_ns: int | None = None
    around: NodeRef | None = None
    depth: int = 5
    nodes: tuple[NodeRef, ...] = ()

    @property
    def is_subgraph(self) -> bool:
        """Whether nodes are named, so that the other side of what they communicate is to be taken along."""
        return self.around is not None or bool(self.nodes)

    @property
    def words(self) -> str:
        """What is asked for, in words."""
        parts = []
        if self.ranks is not None:
            parts.append(format_ranges(group_ranges(sorted(self.ranks))))
        if self.steps is not None:
            parts.append(format_ranges(group_ranges(sorted(self.steps))).replace("rank", "step"))
        if self.from_ns is not None or self.to_ns is not None:
            end = "the end" if self.to_ns is None else format_ns(self.to_ns)
            parts.append(f"from {format_ns(self.from_ns or 0)} to {end}")
        if self.around is not None:
            parts.append(f"{self.depth} dependencies around node {self.around[1]} of rank {self.around[0]}")
        if self.nodes:
            parts.append(f"{format_counted(len(self.nodes), 'node')} by name")
        return ", ".join(parts)


def select_nodes(trace: Trace, choice: Choice, times: NodeTimes | None = None) -> dict[int, Bool]:
    """Return (N,) which nodes are asked for, by place of the ranks that are.

    Args:
        trace: The job.
        choice: What is asked for.
        times: Times of a simulation, which a window is of; without them it is of the recording.

    Raises:
        ConfigError: Nothing is asked for, or the job has no such rank or step, or holds no times.
        TraceError: The job has no such node.
    """
    if not choice.words:
        raise ConfigError(
            "nothing says what to cut out", hint="Give --ranks, --steps, --from or --to, --around or --nodes."
        )
    places = _find_places(trace, choice)
    masks = {place: np.ones(len(trace.graph_of(trace.ranks[place])), np.bool_) for place in places}
    if choice.steps is not None:
        _keep_steps(trace, choice.steps, masks)
    if choice.from_ns is not None or choice.to_ns is not None:
        if times is None:
            _keep_window(trace, choice, masks)
        else:
            _keep_window_of_run(choice, times, masks)
    if choice.is_subgraph:
        _keep_named(trace, choice, masks)
    return masks


def _find_places(trace: Trace, choice: Choice) -> list[int]:
    """Return the places of the ranks asked for."""
    known = {rank.number: place for place, rank in enumerate(trace.ranks)}
    absent = sorted((choice.ranks or frozenset()) - known.keys())
    if absent:
        raise ConfigError(
            f"the job has no {format_ranges(group_ranges(absent))}; allowed: {format_ranges(group_ranges(sorted(known)))}"
        )
    return [
        place for number, place in sorted(known.items()) if choice.ranks is None or number in choice.ranks
    ]


def _filter_by_graph(trace: Trace, masks: Mapping[int, Bool], chosen: Callable[[Graph], Bool]) -> None:
    """Take nodes out of the masks that are not chosen of their graph; each graph is looked at once."""
    mask_of: dict[int, Bool] = {}
    for place, mask in masks.items():
        index = trace.ranks[place].graph
        if index not in mask_of:
            mask_of[index] = chosen(trace.graphs[index])
        np.logical_and(mask, mask_of[index], out=mask)


def _keep_steps(trace: Trace, steps: frozenset[int], masks: dict[int, Bool]) -> None:
    known_steps = step_numbers(trace)
    absent = sorted(steps - set(known_steps))
    if absent:
        listed = ", ".join(map(str, known_steps[:8])) + (", …" if len(known_steps) > 8 else "")
        raise ConfigError(
            f"no rank has a training step {absent[0]}; allowed: {listed or 'none, the job has no marked steps'}"
        )
    wanted = np.array(sorted(steps), np.int64)
    _filter_by_graph(trace, masks, lambda graph: np.isin(assign_steps(graph), wanted))


def assign_steps(graph: Graph) -> Int64:
    """Return (N,) the training step of every node; one that nothing marks is of the latest step that it waits for.

    Nodes before the first step are of the first that waits for them.
    """
    steps = find_graph_steps(graph)
    if (steps != NONE).all() or (steps == NONE).all():
        return steps
    (ctrl_of, ctrl), (data_of, data) = list_edges(graph.ctrl), list_edges(graph.data)
    of, waited = np.concatenate([ctrl_of, data_of]), np.concatenate([ctrl, data])
    place = compute_issue_order(graph)
    known: list[int] = steps.tolist()
    for child, parent in _sort_edges(of, waited, place[of]):
        if known[child] == NONE or (steps[child] == NONE and known[parent] > known[child]):
            known[child] = known[parent]
    forward = np.array(known, np.int64)
    for child, parent in _sort_edges(of, waited, -place[waited]):
        if forward[parent] == NONE and known[child] != NONE:
            known[parent] = known[child] if known[parent] == NONE else min(known[parent], known[child])
    return np.array(known, np.int64)


def _sort_edges(of: Int64, waited: Int64, by: Int64) -> list[tuple[int, int]]:
    order = np.argsort(by, kind="stable")
    return list(zip(of[order].tolist(), waited[order].tolist(), strict=True))


def _keep_window(trace: Trace, choice: Choice, masks: dict[int, Bool]) -> None:
    begins = [graph.start_ns[graph.start_ns >= 0] for graph in trace.graphs]
    if not any(map(len, begins)):
        raise ConfigError(
            "no node of the job has a start, so no window of time can be cut out",
            hint="Cut ranks, steps or a subgraph, or name the files of a recording or a run of the workspace.",
        )
    origin = min(int(begin.min()) for begin in begins if len(begin))
    last = max(int(begin.max()) for begin in begins if len(begin))
    low, high = _choose_window(choice, last - origin, "the first start of the recording")
    _filter_by_graph(
        trace,
        masks,
        lambda graph: (
            (graph.start_ns >= 0) & (graph.start_ns >= origin + low) & (graph.start_ns - origin < high)
        ),
    )


def _keep_window_of_run(choice: Choice, times: NodeTimes, masks: dict[int, Bool]) -> None:
    low, high = _choose_window(choice, int(times.start_ns.max(initial=0)), "the beginning of the run")
    for place, mask in masks.items():
        first = int(times.first[place])
        if first < 0:
            mask[:] = False
            continue
        start = times.start_ns[first : first + len(mask)]
        np.logical_and(mask, (start >= 0) & (start >= low) & (start < high), out=mask)


def _choose_window(choice: Choice, last_ns: int, counted_from: str) -> tuple[int, int]:
    """Return the window that is asked for.

    Raises:
        ConfigError: Nothing begins in it.
    """
    low, high = choice.from_ns or 0, choice.to_ns
    if low > last_ns or (high is not None and high <= low):
        raise ConfigError(
            f"from {format_ns(low)} to {'the end' if high is None else format_ns(high)}; allowed: a "
            f"window between 0 and the last start, {format_ns(last_ns)}",
            hint=f"Times count from {counted_from}.",
        )
    return low, 2**63 - 1 if high is None else high


def _keep_named(trace: Trace, choice: Choice, masks: dict[int, Bool]) -> None:
    """Keep the nodes that are named, and those around one."""
    place_of: Mapping[int, int] = {trace.ranks[place].number: place for place in masks}
    wanted = {place: np.zeros_like(mask) for place, mask in masks.items()}
    named = [*choice.nodes, *([choice.around] if choice.around is not None else [])]
    for number, ref in named:
        if number not in place_of:
            raise ConfigError(
                f"node {ref} is of rank {number}, which is not among {format_ranges(group_ranges(sorted(place_of)))}",
                hint="Name a node of one of these ranks.",
            )
        place = place_of[number]
        graph = trace.graph_of(trace.ranks[place])
        row = find_node(graph, ref)
        wanted[place][row] = True
        if (number, ref) == choice.around:
            wanted[place] |= _find_surroundings(graph, row, choice.depth)
    for place, mask in masks.items():
        np.logical_and(mask, wanted[place], out=mask)


def _find_surroundings(graph: Graph, row: int, depth: int) -> Bool:
    """Return (N,) which nodes are at most so many dependencies away from one."""
    (ctrl_of, ctrl), (data_of, data) = list_edges(graph.ctrl), list_edges(graph.data)
    of, waited = np.concatenate([ctrl_of, data_of]), np.concatenate([ctrl, data])
    near = np.zeros(len(graph), np.bool_)
    near[row] = True
    for _ in range(depth):
        reached = near.copy()
        reached[waited[near[of]]] = True
        reached[of[near[waited]]] = True
        if (reached == near).all():
            break
        near = reached
    return near
