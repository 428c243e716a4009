"""The folded drawing of the Graph page: its blocks, computed once per graph and level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from studio.analysis.graph.blocks import BlockTree, Folded, Path
from studio.analysis.graph.depth import Depths, compute_depths
from studio.analysis.graph.layout import Layout
from studio.analysis.graph.levels import LevelName, Source, choose_level, list_levels
from studio.analysis.graph.nameparts import NameParts
from studio.analysis.graph.neighbours import Adjacency, build_adjacency
from studio.analysis.job.kinds import infer_counted_types
from studio.distinct import find_distinct
from studio.figures.blocks import Figures, Weights, build_folded_elements
from studio.session import Session, keep_result
from studio.trace import Int64, read_dense_column
from studio.units import format_count, format_counted
from studio.views.graph_request import KINDS, Request
from studio.views.graph_times import collect_node_spans

_THEN: tuple[LevelName, ...] = ("calls", "scope", "order")
"""Levels used inside blocks that the chosen level cannot split: the first that the graph has."""
_MOST_OPEN = 400


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree of blocks, with caches of their layouts, and of their figures by run and rank."""

    blocks: BlockTree
    layouts: dict[Path, Layout] = field(default_factory=dict)
    figures: dict[tuple[str | None, int], dict[Path, Figures]] = field(default_factory=dict)


@keep_result
def compute_adjacency(session: Session, job: str, graph: int, deps: str) -> Adjacency:
    """Return the adjacency of a graph by the kinds of dependencies named in `deps`."""
    return build_adjacency(session.trace(job).graphs[graph], KINDS[deps])


@keep_result
def get_depths(session: Session, job: str, graph: int, deps: str) -> Depths:
    """Return the depths of a graph's nodes."""
    near = compute_adjacency(session, job, graph, deps)
    return compute_depths(len(near), near.edges)


@keep_result
def build_name_parts(session: Session, job: str, graph: int) -> NameParts:
    """Return the names of a graph's nodes, ready to be searched."""
    return NameParts(session.trace(job).graphs[graph])


def build_source(asked: Request) -> Source:
    """Return the inputs from which levels of folding are computed."""
    near = compute_adjacency(asked.session, asked.job, asked.graph, asked.deps)
    names = build_name_parts(asked.session, asked.job, asked.graph)
    return Source(asked.session.trace(asked.job).graphs[asked.graph], near, names, asked.names)


@keep_result
def get_levels(session: Session, job: str, graph: int) -> list[LevelName]:
    """Return the levels that a graph can be folded by."""
    near = compute_adjacency(session, job, graph, "both")
    return list_levels(
        Source(session.trace(job).graphs[graph], near, build_name_parts(session, job, graph), ())
    )


def choose_asked_level(asked: Request, wanted: str | None) -> LevelName:
    """Return the wanted level if the graph has it, else the default."""
    levels = get_levels(asked.session, asked.job, asked.graph)
    return next((level for level in levels if level == wanted), choose_level(levels))


def build_tree(asked: Request) -> Tree:
    """Return the blocks of the level that is asked for."""
    return _build_tree(asked.session, asked.job, asked.graph, asked.deps, asked.by, asked.names)


@keep_result
def _build_tree(
    session: Session, job: str, graph: int, deps: str, by: LevelName, names: tuple[str, ...]
) -> Tree:
    levels = get_levels(session, job, graph)
    source = build_source(Request(session, job, graph, deps, by=by, names=names))
    # Calls and scopes of names both group nodes; calls are the better evidence.
    then = [level for level in _THEN if level in levels or level == "order"]
    return Tree(BlockTree(source, get_depths(session, job, graph, deps), by, [then[0], *then[-1:]]))


@keep_result
def fold_graph(asked: Request) -> Folded:
    """Return the blocks that are drawn."""
    return build_tree(asked).blocks.fold(asked.opened)


@keep_result
def compute_weights(session: Session, job: str, graph: int, deps: str, run: str | None, rank: int) -> Weights:
    """Return what blocks sum up: times of the shown run, else the durations in the files."""
    columns = session.trace(job).graphs[graph]
    start, end = collect_node_spans(session, job, graph, run, rank)
    busy = np.where(start >= 0, end - start, columns.duration_ns if not run else 0)
    size = read_dense_column(columns, "comm_size", 0)
    layer = get_depths(session, job, graph, deps).layer
    return Weights(
        infer_counted_types(columns),
        busy,
        size,
        layer,
        (int(layer.min(initial=0)), int(layer.max(initial=0))),
    )


def fold_elements(asked: Request) -> list[dict[str, Any]]:
    """Return the folded drawing for Cytoscape."""
    tree = build_tree(asked)
    weights = compute_weights(asked.session, asked.job, asked.graph, asked.deps, asked.run, asked.rank)
    graph = asked.session.trace(asked.job).graphs[asked.graph]
    known = tree.figures.setdefault((asked.run, asked.rank), {})
    return build_folded_elements(graph, tree.blocks, fold_graph(asked), weights, (tree.layouts, known))


def parse_open_paths(text: str | None) -> tuple[Path, ...]:
    """Return the blocks that an address says are open, such as `0,0.3`."""
    paths: list[Path] = []
    for part in str(text or "").split(",")[:_MOST_OPEN]:
        numbers = part.split(".")
        if all(number.isascii() and number.isdigit() and len(number) < 5 for number in numbers):
            paths.append(tuple(map(int, numbers)))
    return tuple(dict.fromkeys(paths))


def reveal(asked: Request, row: int) -> tuple[Path, ...]:
    """Return the open blocks, with those around a node added, so that it is drawn."""
    around = build_tree(asked).blocks.path_of(row)
    inner = tuple(around[:depth] for depth in range(1, len(around)))
    return (*(path for path in asked.opened if path not in inner), *inner)


def fold_sentence(asked: Request) -> str:
    """Return the sentence that counts what is drawn and what is folded."""
    folded, nodes = fold_graph(asked), len(asked.session.trace(asked.job).graphs[asked.graph])
    blocks = [block for block in folded.shown if not block.is_node]
    hidden, alone = sum(len(block.rows) for block in blocks), len(folded.shown) - len(blocks)
    by_itself = f"{format_counted(alone, 'node')} drawn, " if alone else ""
    some = "All" if hidden == nodes else f"{format_count(hidden)} of"
    text = f"{by_itself}{some} {format_counted(nodes, 'node')} folded into {format_counted(len(blocks), 'block')}"
    if not blocks:
        text = f"All {format_counted(nodes, 'node')} drawn"
    within = int(len(build_source(asked).near.edges) - folded.count.sum())
    text += f"; {format_counted(int(folded.count.sum()), 'dependency', 'dependencies')} as {format_counted(len(folded.count), 'line')}"
    text += f", {format_count(within)} within blocks." if within and blocks else "."
    if folded.lines_left_out:
        text += f" {format_counted(folded.lines_left_out, 'line')} of the fewest dependencies left out."
    if folded.closed:
        text += f" {format_counted(len(folded.closed), 'block')} closed again to make room."
    return text


def find_hits_in_blocks(asked: Request, rows: Int64) -> Sequence[int]:
    """Return the indices of drawn nodes and blocks that contain any of these rows."""
    return find_distinct(fold_graph(asked).of[rows]).tolist() if len(rows) else []
