"""Find everything a node waits for, directly or not, and everything that waits for it."""

from __future__ import annotations

from dataclasses import dataclass

from studio.analysis.graph.neighbours import Direction, find_neighbourhood
from studio.analysis.timeline.gantt import Bar, Gantt, find_leaving

LINKS_AT_MOST = 3000
"""Nodes and dependencies, to either side, that a browser draws without delay. Those nearest come first."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A node with all its predecessors and successors.

    Attributes:
        bars: Those that have times.
        edges: (before, after, whether data), places in `bars`.
        more: Whether there is more than was looked for.
    """

    bars: tuple[Bar, ...]
    edges: tuple[tuple[int, int, bool], ...]
    more: bool


_Box = tuple[int, int, int]
"""Row, start and end of a drawn span."""


def list_chain_boxes(gantt: Gantt, chain: Chain) -> tuple[list[_Box], list[tuple[int, int, bool]]]:
    """Return the spans of a chain that are outlined and linked, and its edges between these.

    Of recorded calls, which are drawn in pieces, these are the first and those from which an edge leaves.
    """
    if gantt.coverage.goes_on is None:
        return [(bar.row, bar.start_ns, bar.end_ns) for bar in chain.bars], list(chain.edges)
    pieces = [gantt.pieces_of(bar) for bar in chain.bars]
    places: dict[tuple[int, int], int] = {(bar, 0): bar for bar in range(len(pieces))}
    edges = []
    for before, after, is_data in chain.edges:
        nth = find_leaving(pieces[before], pieces[after])
        edges.append((places.setdefault((before, nth), len(places)), after, is_data))
    boxes: list[_Box] = [tuple(pieces[bar][:, nth].tolist()) for bar, nth in places]
    return boxes, edges


def chain_of(gantt: Gantt, bar: Bar) -> Chain:
    """Return all predecessors and successors of a bar on its rank."""
    near = gantt.adjacency_of(bar.rank)
    place: dict[int, int] = {}
    bars: list[Bar] = []
    edges: dict[tuple[int, int, bool], None] = {}
    more = False
    sides: tuple[Direction, ...] = ("up", "down")
    for side in sides:
        part = find_neighbourhood(near, bar.node, LINKS_AT_MOST, direction=side, most=LINKS_AT_MOST)
        more = more or part.left_out > 0 or len(part.rows) > LINKS_AT_MOST
        for row in part.rows.tolist():
            next_bar = gantt.bar(bar.rank, row)
            if next_bar is not None and row not in place:
                place[row] = len(bars)
                bars.append(next_bar)
        columns = (part.edges.before, part.edges.after, part.edges.is_data)
        for before, after, data in zip(*(column.tolist() for column in columns), strict=True):
            if before in place and after in place:
                edges[place[before], place[after], data] = None
    return Chain(tuple(bars), tuple(edges), more)
