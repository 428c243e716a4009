"""Alignment of the timelines of a comparison: the choices, and the aligned moment of each run."""

from __future__ import annotations

from typing import Any

import numpy as np

from studio.analysis.collectives.times import compute_collective_times
from studio.analysis.compare.sides import Side
from studio.analysis.job.node_refs import find_node, format_node_ref
from studio.analysis.job.steps import find_graph_steps
from studio.comparing import Lineup
from studio.errors import TraceError
from studio.trace import NONE
from studio.units import format_bytes

ALIGN_START = "start"
_STEP, _NODE = "step", "node"
_COLLECTIVES = 40


def list_alignments(shown: Lineup, by: str) -> list[dict[str, Any]]:
    """Return the choices of alignment: the start, steps, and collectives of the first run, longest first.

    The current choice is included even if it is another node.
    """
    groups: list[dict[str, Any]] = [{"group": "Run", "items": [{"value": ALIGN_START, "label": "start"}]}]
    steps = [find_step_starts(side.side) for side in shown.sides]
    count = min(map(len, steps))
    if count:
        named = [
            {"value": f"{_STEP}:{index}", "label": f"step {list(steps[0])[index]}"} for index in range(count)
        ]
        groups.append({"group": "Step", "items": named})
    collectives = _list_collectives(shown.sides[0].side)
    if collectives:
        groups.append({"group": "Collective of A", "items": collectives})
    if by.startswith(f"{_NODE}:") and all(option["value"] != by for option in collectives):
        number, _, ref = by.removeprefix(f"{_NODE}:").partition(".")
        named = [{"value": by, "label": f"node {ref[:24]} of rank {number[:12]}"}]
        groups.append({"group": "Node of A", "items": named})
    return groups


def _list_collectives(side: Side) -> list[dict[str, str]]:
    times = compute_collective_times(side.trace, side.times, side.groups)
    graphs = {rank.number: side.trace.graph_of(rank) for rank in side.trace.ranks}
    items = []
    for index in np.argsort(-times.duration_ns, kind="stable")[:_COLLECTIVES].tolist():
        rank, row = int(times.last_rank[index]), int(times.last_row[index])
        label = times.name(index, 24)
        value = f"{_NODE}:{rank}.{format_node_ref(graphs[rank], row)}"
        items.append({"value": value, "label": f"{label} · {format_bytes(int(times.bytes[index]))}"})
    return items


def find_step_starts(side: Side) -> dict[int, int]:
    """Return the earliest start of each step, in ns after the beginning of the run; empty if steps are unknown."""
    starts: dict[int, int] = {}
    for index, graph in enumerate(side.trace.graphs):
        steps = find_graph_steps(graph)
        rows = np.flatnonzero(steps >= 0)
        places = [place for place, rank in enumerate(side.trace.ranks) if rank.graph == index]
        for first in set(side.times.first[places].tolist()) - {NONE}:
            begun = side.times.start_ns[first + rows]
            is_timed = begun >= 0
            order = np.argsort(begun[is_timed], kind="stable")
            numbers, earliest = np.unique(steps[rows][is_timed][order], return_index=True)
            for number, start in zip(
                numbers.tolist(), begun[is_timed][order][earliest].tolist(), strict=True
            ):
                starts[number] = min(starts.get(number, start), start)
    return {number: starts[number] - side.origin_ns for number in sorted(starts)}


def find_anchors(shown: Lineup, by: str) -> list[int | None]:
    """Return the aligned moment of each run, in ns after its beginning; None where a run has none.

    Args:
        shown: The runs.
        by: `start`, `step:N` for the N-th step counted from 0, or `node:RANK.NODE` for a node of the first side.

    Raises:
        TraceError: There is no such moment on the first side.
    """
    kind, _, what = by.partition(":")
    if kind == _STEP:
        steps = [list(find_step_starts(side.side).values()) for side in shown.sides]
        index = int(what) if what.isdecimal() and len(what) < 10 else len(steps[0])
        if index >= len(steps[0]):
            raise TraceError(
                f"A has no step number {what[:20]!r}; the runs are aligned by their start.",
                hint="Choose another moment to align by.",
            )
        return [starts[index] if index < len(starts) else None for starts in steps]
    if kind == _NODE:
        return _find_node_starts(shown, what)
    return [0 for _ in shown.sides]


def _find_node_starts(shown: Lineup, what: str) -> list[int | None]:
    side = shown.sides[0].side
    number, _, ref = what.partition(".")
    place = next((index for index, rank in enumerate(side.trace.ranks) if str(rank.number) == number), None)
    if place is None:
        raise TraceError(
            f"A has no rank {number[:20]!r}; the runs are aligned by their start.",
            hint="Choose another moment to align by.",
        )
    row = find_node(side.trace.graph_of(side.trace.ranks[place]), ref)
    starts: list[int | None] = []
    for compared, node in zip(shown.sides, shown.partners(0, place, row), strict=True):
        first = NONE if node is None else int(compared.side.times.first[node[0]])
        start = NONE if first == NONE or node is None else int(compared.side.times.start_ns[first + node[1]])
        starts.append(None if start == NONE else start - compared.side.origin_ns)
    return starts
