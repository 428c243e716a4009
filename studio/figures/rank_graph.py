"""Draw the graph of a rank for a file: all of it, what lies around a node, or blocks of it, with the critical path marked."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from studio.analysis.graph.blocks import BlockTree
from studio.analysis.graph.critical import Schedule, compute_schedule
from studio.analysis.graph.depth import Depths, compute_depths
from studio.analysis.graph.levels import LevelName, Source, find_thread_lanes, list_levels
from studio.analysis.graph.nameparts import NameParts
from studio.analysis.graph.neighbours import (
    Adjacency,
    Part,
    build_adjacency,
    find_neighbourhood,
    select_whole_graph,
)
from studio.analysis.job.kinds import infer_counted_types
from studio.analysis.path.of_rank import RankPath
from studio.errors import TraceError
from studio.figures.blocks import Weights, build_folded_elements
from studio.figures.graph import build_elements, count_looks
from studio.trace import NONE, Graph, Int64, Rank, read_dense_column
from studio.units import format_count, format_counted, format_ns

MOST_DRAWN = 300_000
"""Nodes and dependencies that are drawn in one picture; more would be neither read nor opened by anything."""
_RANKS_NAMED = 6
_INTO, _OUT_OF = ("\N{LEFTWARDS ARROW}", "from"), ("\N{RIGHTWARDS ARROW}", "to")
_THEN: tuple[LevelName, ...] = ("calls", "scope", "order")


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be drawn.

    Attributes:
        around: Row of the node in the middle, -1 for the whole graph.
        depth: How many dependencies away from it a node may be.
        fold: What the graph is folded by; None to draw each node.
        critical: Whether the critical path is marked.
        path: What is on the rank of the critical path through all ranks; None for that of the rank alone.
    """

    around: int = NONE
    depth: int = 2
    fold: LevelName | None = None
    critical: bool = False
    path: PathHere | None = None


@dataclass(frozen=True, slots=True)
class PathHere:
    """The critical path through all ranks, where it is on the rank that is drawn.

    Attributes:
        on_rank: Its nodes there, and where it comes and goes.
        by: By which collective or message it comes or goes, for each crossing.
        numbers: Numbers of the job's ranks, by place.
    """

    on_rank: RankPath
    by: tuple[str, ...]
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RankGraph:
    """A drawing of the graph of a rank.

    Attributes:
        elements: Nodes, blocks, frames and lines, as `figures.graph` and `figures.blocks` describe them.
        rows: The nodes of each node or block of `elements`, frames left out, in their order.
        part: The nodes drawn, and the dependencies between them.
        kinds: What nodes there are: look and how many.
        caption: What is drawn, in a sentence or two.
        critical: How many nodes of the drawing are on the critical path.
    """

    elements: list[dict[str, Any]]
    rows: list[Int64]
    part: Part
    kinds: list[tuple[Any, int]]
    caption: str
    critical: int


def select_rank_part(near: Adjacency, asked: Asked) -> Part:
    """Return the nodes that are asked for, all of them however many."""
    if asked.around == NONE:
        return select_whole_graph(near)
    most = len(near) + len(near.edges)
    return find_neighbourhood(near, asked.around, asked.depth, most=most)


def draw_rank(graph: Graph, rank: Rank, asked: Asked, times: tuple[Int64, Int64] | None = None) -> RankGraph:
    """Draw the graph of a rank.

    Args:
        graph: Its graph.
        rank: The rank.
        asked: What is to be drawn.
        times: (N,) starts and ends of its nodes in a simulation, -1 where unknown; None for the recorded ones.

    Raises:
        TraceError: It cannot be folded by that, or there is too much to draw.
    """
    near = build_adjacency(graph)
    deep = compute_depths(len(near), near.edges)
    part = select_rank_part(near, asked)
    if asked.fold:
        drawn, rows, words = _draw_folded(graph, rank, near, deep, asked.fold, times)
    else:
        if part.elements > MOST_DRAWN:
            raise TraceError(
                f"{format_counted(len(part.rows), 'node')} and {format_counted(len(part.edges), 'dependency', 'dependencies')} "
                f"are too many for a drawing; allowed: {format_count(MOST_DRAWN)} together.",
                hint="Draw blocks of them (--fold scope), or what lies around one (--around ID), or write .graphml or .dot.",
            )
        drawn, rows = build_elements(graph, part, near), list(part.rows[:, None])
        if asked.around != NONE:
            drawn[int(np.searchsorted(part.rows, asked.around))]["data"]["centre"] = 1
        words = _describe_part(graph, part)
    on_path, path_words = 0, ""
    if asked.critical and len(graph):
        if asked.path is not None:
            on_path = _mark(drawn, rows, asked.path.on_rank.rows, len(graph))
            _mark_crossings(drawn, rows, asked.path)
            path_words = _describe_whole_path(asked.path, times is not None)
        else:
            plan = _build_schedule(graph, near, deep, times)
            on_path = _mark(drawn, rows, plan.path, len(graph))
            path_words = _describe_path(plan, times is not None)
    return RankGraph(drawn, rows, part, count_looks(graph, part.rows), words + path_words, on_path)


def _describe_part(graph: Graph, part: Part) -> str:
    edges = format_counted(len(part.edges), "dependency", "dependencies")
    some = "" if len(part.rows) == len(graph) else f" of {format_count(len(graph))}"
    return f"{format_count(len(part.rows))}{some} nodes, {edges}."


def _draw_folded(
    graph: Graph,
    rank: Rank,
    near: Adjacency,
    deep: Depths,
    by: LevelName,
    times: tuple[Int64, Int64] | None,
) -> tuple[list[dict[str, Any]], list[Int64], str]:
    """Return the blocks of a graph, opened as far as the Graph page opens them at first."""
    source = Source(graph, near, NameParts(graph), tuple(map(str, rank.slots)))
    offered = list_levels(source)
    if by not in offered:
        raise TraceError(
            f"This graph cannot be folded by {by}, which tells no nodes of it apart; allowed: {', '.join(offered)}.",
            hint=f"--fold {offered[0]}",
        )
    then = [level for level in _THEN if level in offered or level == "order"]
    tree = BlockTree(source, deep, by, [then[0], *then[-1:]])
    folded = tree.fold(tree.to_begin_with())
    start, end = times or (graph.start_ns, graph.start_ns + graph.duration_ns)
    busy = np.where(start >= 0, end - start, 0 if times else graph.duration_ns)
    layers = (int(deep.layer.min(initial=0)), int(deep.layer.max(initial=0)))
    size = read_dense_column(graph, "comm_size", 0)
    weights = Weights(infer_counted_types(graph), busy, size, deep.layer, layers)
    drawn = build_folded_elements(graph, tree, folded, weights, ({}, {}))
    blocks = sum(not block.is_node for block in folded.shown)
    alone = len(folded.shown) - blocks
    by_itself = f" and {format_counted(alone, 'single node')}" if alone else ""
    words = (
        f"{format_counted(len(graph), 'node')} folded by {by} into {format_counted(blocks, 'block')}{by_itself}; "
        f"{format_counted(int(folded.count.sum()), 'dependency', 'dependencies')} between them."
    )
    if folded.lines_left_out:
        words += f" {format_counted(folded.lines_left_out, 'line')} of the fewest dependencies left out."
    return drawn, [block.rows for block in folded.shown], words


def _build_schedule(
    graph: Graph, near: Adjacency, deep: Depths, times: tuple[Int64, Int64] | None
) -> Schedule:
    start, end = times or (
        graph.start_ns,
        np.where(graph.start_ns >= 0, graph.start_ns + graph.duration_ns, NONE),
    )
    lane = None if times else find_thread_lanes(graph)[0]
    return compute_schedule(near.edges, deep, start, end, duration_ns=graph.duration_ns, lane=lane)


def _mark(drawn: list[dict[str, Any]], rows: list[Int64], on_path: Int64, count: int) -> int:
    """Mark nodes, blocks and lines on the critical path; returns how many nodes and blocks are."""
    # The last entry is of what is no node.
    of = np.full(count + 1, NONE, np.int64)
    for index, here in enumerate(rows):
        of[here] = index
    nodes = _select_nodes(drawn)
    path = of[on_path]
    for index in set(path.tolist()) - {NONE}:
        nodes[index]["crit"] = 1
    steps = {
        (nodes[this]["id"], nodes[other]["id"])
        for this, other in pairwise(path.tolist())
        if this != other and NONE not in (this, other)
    }
    for element in drawn:
        data = element["data"]
        if element["group"] == "edges" and (data["source"], data["target"]) in steps:
            data["crit"] = 1
    return sum("crit" in data for data in nodes)


def _select_nodes(drawn: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what nodes and blocks say, in the order of their rows."""
    return [
        element["data"]
        for element in drawn
        if element["group"] == "nodes" and element["data"]["kind"] != "frame"
    ]


def _mark_crossings(drawn: list[dict[str, Any]], rows: list[Int64], path: PathHere) -> None:
    """Note on nodes from which rank the critical path comes, and to which rank it goes on."""
    at = {
        int(here[0]): data
        for here, data in zip(rows, _select_nodes(drawn), strict=True)
        if data["kind"] != "block"
    }
    by_row: dict[int, list[tuple[str, str]]] = {}
    for crossing, by in zip(path.on_rank.crossings, path.by, strict=True):
        arrow, word = _INTO if crossing.enters else _OUT_OF
        number = path.numbers[crossing.other]
        words = f"{word} rank {number} by {by} at {format_ns(crossing.at_ns)}"
        by_row.setdefault(crossing.row, []).append((f"{arrow} rank {number}", words))
    for row in by_row.keys() & at.keys():
        # A node has room for two lines.
        name = at[row]["label"].split("\n")[-1 if at[row]["kind"] == "comp" else 0]
        at[row]["label"] = f"{name}\n{', '.join(dict.fromkeys(short for short, _ in by_row[row]))}"
        at[row]["crossing"] = ", ".join(words for _, words in by_row[row])


def _describe_whole_path(path: PathHere, simulated: bool) -> str:
    on_rank, how = path.on_rank, "simulated" if simulated else "recorded"
    here = format_counted(len(set(on_rank.rows.tolist()) - {NONE}), "node")
    words = f" Critical path through all ranks by {how} times, {format_ns(on_rank.length_ns)}: "
    if not on_rank.ns and here.startswith("0 "):
        some = ", ".join(str(path.numbers[place]) for place in on_rank.places[:_RANKS_NAMED])
        return f"{words}nothing of it is on this rank; it is on ranks {some}."
    words += f"{here} and {format_ns(on_rank.ns)} of it are on this rank."
    ways = []
    for verb, side, way in (("comes", "from", True), ("goes", "to", False)):
        others = [path.numbers[c.other] for c in on_rank.crossings if c.enters == way]
        if others:
            distinct = list(dict.fromkeys(others))
            named = ", ".join(map(str, distinct[:_RANKS_NAMED])) + (
                ", …" if len(distinct) > _RANKS_NAMED else ""
            )
            of = "rank" if len(distinct) == 1 else "ranks"
            ways.append(f"{verb} {format_counted(len(others), 'time')} {side} {of} {named}")
    return f"{words} It {' and '.join(ways)}." if ways else words


def _describe_path(plan: Schedule, simulated: bool) -> str:
    nodes = format_counted(len(plan.path), "node")
    if plan.basis == "nodes":
        return f" Critical path without times or durations, the longest chain: {nodes}."
    how = "durations laid out along the dependencies"
    if plan.basis == "times":
        how = "simulated times" if simulated else "recorded times"
    return f" Critical path of the rank by {how}: {nodes}, {format_ns(plan.length_ns)}."
