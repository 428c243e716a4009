"""Levels by which nodes can be folded: step, scope, phase, lane, comm group, type, calls, order.

A level gives every node a key at a depth; nodes of equal keys make a block. Levels with one depth are flat. Only what
the trace tells is used: a node of which nothing is known has the key `UNTOLD`, and a level that tells nothing apart is
not offered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow.compute as pc

from studio.analysis.graph.nameparts import NameParts
from studio.analysis.graph.neighbours import Adjacency
from studio.analysis.job.kinds import infer_counted_types, label_counted_type
from studio.analysis.numbering import find_first_places
from studio.trace import (
    NONE,
    STEP,
    Graph,
    Int64,
    communicates,
    group_slots,
    is_flagged,
    read_dense_column,
    read_int_column,
    read_named_lanes,
)

LevelName = Literal["step", "scope", "calls", "phase", "lane", "group", "type", "order"]
TITLES: dict[LevelName, str] = {
    "step": "step",
    "scope": "name scope",
    "calls": "call tree",
    "phase": "phase",
    "lane": "thread or stream",
    "group": "comm group",
    "type": "type",
    "order": "order",
}
"""Every level, in the order in which they are offered."""

UNTOLD = -1
_PHASES = ("forward", "backward", "optimizer", "communication")
_FORWARD, _BACKWARD, _OPTIMIZER, _COMMUNICATION = range(4)
_PHASE_WORDS = (
    (_FORWARD, r"(?i)\b(forward|fwd)\b|[_.](forward|fwd)([_.]|$)"),
    (_BACKWARD, r"(?i)backward|\bbwd|autograd::engine|AccumulateGrad|_grad\b|_grad@"),
    (_OPTIMIZER, r"(?i)optimizer|\badamw?\b|zero_grad"),
)
_STG_NAME = r"@\d+_(COMP|[XY]\d*_?(COMM|SEND|RECV))$"
_STG_GRADIENT = r"(^|[./])d[a-z0-9]*@\d+_"
"""The symbolic tensor graph generator calls the gradient of a tensor by the tensor's name with a d before it."""
_STEP = re.compile(rf"(?i)(?:{STEP}#|(?:step|iteration|iter)[ _#]?)(\d+)")
_STEPS_AT_MOST = 20_000
"""Parts of names that are looked at: where there are more, they count something else."""
_SAMPLE = 20_000
_DEEPEST_CALL = 200


@dataclass(frozen=True, slots=True)
class Level:
    """One way to group nodes.

    Attributes:
        name: Which.
        flat: Whether it has one depth only.
        keys: Returns for (R,) rows and a depth the (R,) keys, `UNTOLD` where there is none.
        label: Returns what the block of a row is called at a depth.
    """

    name: LevelName
    flat: bool
    keys: Callable[[Int64, int], Int64]
    label: Callable[[int, int], str]


@dataclass(frozen=True, slots=True)
class Source:
    """A graph as levels of folding read it.

    Attributes:
        graph, near: The graph and its dependencies.
        parts: Its names, in parts.
        groups: Names of the comm groups, by slot.
    """

    graph: Graph
    near: Adjacency
    parts: NameParts
    groups: tuple[str, ...]


def list_levels(source: Source) -> list[LevelName]:
    """Return the levels that distinguish nodes of a graph; of many names a sample decides about phases."""
    graph = source.graph
    types = infer_counted_types(graph)
    available = {
        "step": _may_have_steps(source),
        "scope": source.parts.share_with_parts() >= 0.2,
        "calls": _may_have_calls(graph),
        "phase": _may_have_phases(source),
        "lane": any(graph.has_attribute(key) for key in ("tid", "thread", "stream")),
        "group": bool((group_slots(graph) != NONE).any()),
        "type": bool((types != types[:1]).any()),
        "order": True,
    }
    return [name for name in TITLES if available[name]]


def build_level(source: Source, name: LevelName) -> Level:
    """Return a level of a graph."""
    graph = source.graph
    if name == "scope":
        return Level(name, False, source.parts.keys, source.parts.label)
    if name == "calls":
        return _build_call_level(source, _find_callers(source))
    if name == "step":
        return _build_flat(
            name, _find_steps(source), lambda key: "outside of steps" if key == UNTOLD else f"step {key}"
        )
    if name == "phase":
        return _build_flat(
            name, _infer_phases(source), lambda key: _PHASES[key] if key >= 0 else "phase unknown"
        )
    if name == "lane":
        lane, names = find_thread_lanes(graph)
        return _build_flat(name, lane, lambda key: names[key] if key >= 0 else "no thread or stream")
    if name == "group":
        return _build_flat(name, group_slots(graph), lambda key: _label_group(source.groups, key))
    if name == "type":
        return _build_flat(name, infer_counted_types(graph).astype(np.int64), label_counted_type)
    return _build_flat(name, np.zeros(len(graph), np.int64), lambda _key: "all")


def choose_level(available: Sequence[LevelName]) -> LevelName:
    """Return the default level to fold by."""
    # What a profiler calls operators and kernels, such as aten::mm, is no scope of a model.
    return next(name for name in ("step", "calls", "scope", "lane", "order") if name in available)


def _build_flat(name: LevelName, column: Int64, label: Callable[[int], str]) -> Level:
    return Level(name, True, lambda rows, _depth: column[rows], lambda row, _depth: label(int(column[row])))


def _label_group(groups: tuple[str, ...], slot: int) -> str:
    if slot == UNTOLD:
        return "no comm group"
    return f"comm group {groups[slot] or 'of all ranks'}" if slot < len(groups) else f"comm group {slot}"


def _may_have_steps(source: Source) -> bool:
    """Whether names count at least two steps; of many nodes a sample is checked."""
    graph = source.graph
    rows = np.flatnonzero(source.parts.containing(f"{STEP}#", ignore_case=False))
    if not len(rows):
        rows = np.arange(0, len(graph), max(1, len(graph) // _SAMPLE))
    steps = _parse_steps(source, rows)
    counted = steps[steps >= 0]
    return bool((counted != counted[:1]).any())


def _parse_steps(source: Source, rows: Int64) -> Int64:
    """Return (R,) the steps in the first two parts of node names."""
    steps = np.full(len(rows), UNTOLD, np.int64)
    for depth in (0, 1):
        keys = source.parts.keys(rows, depth)
        key, first = find_first_places(keys)
        labels = source.parts.labels(rows[first][:_STEPS_AT_MOST], depth)
        matches = map(_STEP.fullmatch, labels)
        number = [int(match.group(1)[:9]) if match else UNTOLD for match in matches]
        # One more, for what has no such part.
        of_key = np.full(int(key.max(initial=UNTOLD)) + 2, UNTOLD, np.int64)
        of_key[key[: len(number)]] = number
        steps = np.where((steps == UNTOLD) & (keys >= 0), of_key[keys], steps)
    return steps


def _find_steps(source: Source) -> Int64:
    """Return (N,) steps: from names, and from profiler steps around what a thread ran."""
    graph = source.graph
    steps = _parse_steps(source, np.arange(len(graph)))
    end_ns = _compute_call_ends(graph)
    spans = np.flatnonzero((steps >= 0) & (graph.start_ns >= 0) & (end_ns > graph.start_ns))
    if len(spans) and (steps < 0).any():
        spans = spans[np.argsort(graph.start_ns[spans], kind="stable")]
        span = np.searchsorted(graph.start_ns[spans], graph.start_ns, side="right") - 1
        within = (span >= 0) & (graph.start_ns >= 0) & (end_ns[spans[span]] > graph.start_ns) & (steps < 0)
        steps = np.where(within, steps[spans[span]], steps)
    return steps


def find_thread_lanes(graph: Graph) -> tuple[Int64, list[str]]:
    """Return (N,) the thread or stream of every node, and their names."""
    lane = np.full(len(graph), UNTOLD, np.int64)
    names: list[str] = []
    for key, what in (("tid", "thread"), ("thread", "thread"), ("stream", "stream")):
        rows, number, texts = read_named_lanes(graph, key)
        lane[rows] = number + len(names)
        names += [f"{what} {text}" for text in texts]
    return lane, names


# ---------------------------------------------------------------------------------------------------
# Calls: what was called by what, from times on one thread


def _may_have_calls(graph: Graph) -> bool:
    on_thread = np.concatenate([read_int_column(graph, "tid")[0], graph.rows_with("thread")[0]])
    on_thread = on_thread[read_dense_column(graph, "is_cpu_op", 0)[on_thread] != 0]
    return len(on_thread) * 2 > len(graph) and bool((graph.start_ns[on_thread] >= 0).any())


def _compute_call_ends(graph: Graph) -> Int64:
    """Return (N,) when calls returned; recorded durations may leave out nested calls, and say so."""
    inclusive = read_dense_column(graph, "inclusive_ns", 0)
    return np.asarray(graph.start_ns + np.maximum(graph.duration_ns, inclusive), np.int64)


def _find_callers(source: Source) -> Int64:
    """Return (N,) the row of each node's caller, -1 where there is none or threads and times are missing.

    A node of a device belongs to the node of a thread that it waits for, else where the node of the device before it belongs.
    """
    graph = source.graph
    tid, end_ns = find_thread_lanes(graph)[0], _compute_call_ends(graph)
    tid[~is_flagged(graph, "is_cpu_op")] = UNTOLD
    timed = np.flatnonzero((tid >= 0) & (graph.start_ns >= 0))
    order = timed[np.lexsort((-end_ns[timed], graph.start_ns[timed], tid[timed]))]
    parent = np.full(len(graph), UNTOLD, np.int64)
    parent[order] = _find_enclosing(order, tid[order], end_ns[order])
    host = np.full(len(graph), False)
    host[timed] = True
    device = np.flatnonzero(~host)
    for row in device[np.argsort(graph.start_ns[device], kind="stable")].tolist():
        before = source.near.edges.before[source.near.up[row] : source.near.up[row + 1]]
        launched = before[host[before]]
        if len(launched):
            parent[row] = launched[-1]
        elif len(followed := before[parent[before] >= 0]):
            # Behind a gap of its stream, of which the launch is told there.
            parent[row] = parent[followed[-1]]
    return parent


def _find_enclosing(rows: Int64, thread: Int64, end_ns: Int64) -> list[int]:
    """Return the interval around each of `rows`, sorted by thread, start and falling end."""
    enclosing = []
    stack: list[tuple[int, int]] = []
    current = None
    for row, tid, end in zip(rows.tolist(), thread.tolist(), end_ns.tolist(), strict=True):
        if tid != current:
            stack, current = [], tid
        while stack and stack[-1][1] < end:
            stack.pop()
        enclosing.append(stack[-1][0] if stack else UNTOLD)
        stack.append((row, end))
    return enclosing


def _build_call_level(source: Source, parent: Int64) -> Level:
    graph, depth = source.graph, _compute_call_depths(parent)
    # Such as kernels that ran already when the recording began.
    unlaunched = (parent < 0) & ~is_flagged(graph, "is_cpu_op")

    def find_ancestors(rows: Int64, level: int) -> Int64:
        ancestors = np.where((depth[rows] >= level) & ~unlaunched[rows], rows, UNTOLD)
        for _ in range(_DEEPEST_CALL):
            deeper = (ancestors >= 0) & (depth[ancestors] > level)
            if not deeper.any():
                break
            ancestors = np.where(deeper, parent[ancestors], ancestors)
        return ancestors

    def label_call(row: int, level: int) -> str:
        caller = int(find_ancestors(np.array([row]), level)[0])
        if caller < 0:
            return "launch not recorded" if unlaunched[row] else "itself"
        return graph.strings[int(graph.name[caller])]

    return Level("calls", False, find_ancestors, label_call)


def _compute_call_depths(parent: Int64) -> Int64:
    """Return (N,) the number of callers above each node."""
    depth = np.zeros(len(parent), np.int64)
    up = parent.copy()
    for _ in range(_DEEPEST_CALL):
        has_caller = up >= 0
        if not has_caller.any():
            break
        depth += has_caller
        up = np.where(has_caller, parent[up], UNTOLD)
    return depth


# ---------------------------------------------------------------------------------------------------
# Phases


def _may_have_phases(source: Source) -> bool:
    sample = source.parts.sample()
    has_words = [pc.any(pc.match_substring_regex(sample, pattern=words)).as_py() for _, words in _PHASE_WORDS]
    stg = pc.any(pc.match_substring_regex(sample, pattern=_STG_GRADIENT)).as_py()
    return (
        bool(stg)
        or sum(map(bool, has_words)) > 1
        or bool((read_int_column(source.graph, "scope")[1] == 1).any())
    )


def _infer_phases(source: Source) -> Int64:
    """Return (N,) phases: of communication by type, else from names, autograd scopes and callers."""
    graph, parts = source.graph, source.parts
    phase = np.full(len(graph), UNTOLD, np.int64)
    for number, words in _PHASE_WORDS:
        phase[parts.matching(words)] = number
    gradients = parts.matching(_STG_GRADIENT)
    if gradients.any():
        # That generator names every tensor: what is no gradient belongs to the forward pass.
        phase[parts.matching(_STG_NAME) & (phase == UNTOLD)] = _FORWARD
        phase[gradients] = _BACKWARD
    rows, scope = read_int_column(graph, "scope")
    phase[rows[(scope == 1) & (phase[rows] == UNTOLD)]] = _BACKWARD
    if _may_have_calls(graph):
        _inherit(phase, _find_callers(source))
    phase[communicates(graph)] = _COMMUNICATION
    return phase


def _inherit(phase: Int64, parent: Int64) -> None:
    """Give calls without a phase that of their callers."""
    for _ in range(_DEEPEST_CALL):
        open_rows = np.flatnonzero((phase == UNTOLD) & (parent >= 0))
        inherited = phase[parent[open_rows]]
        if not (inherited != UNTOLD).any():
            break
        phase[open_rows] = inherited
