"""Which part of which graph the Graph page draws, worked out once per part."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any, cast

import numpy as np

from studio.analysis.graph.critical import list_gates
from studio.analysis.graph.map import GraphMap, build_graph_map
from studio.analysis.graph.neighbours import (
    MOST_ELEMENTS,
    Adjacency,
    Direction,
    Part,
    find_neighbourhood,
    select_whole_graph,
)
from studio.analysis.graph.paths import build_walkable, find_between
from studio.analysis.graph.search import Kinds, find_rows, number_kinds
from studio.analysis.job.kinds import (
    ASSUMED_ARRIVAL_TYPE,
    DEVICE_GAP_TYPE,
    HOST_GAP_TYPE,
    LIBRARY_KERNEL_TYPE,
    infer_counted_types,
    label_counted_type,
)
from studio.analysis.job.node_refs import find_node, format_node_ref
from studio.comparing import RECORDED
from studio.distinct import find_distinct
from studio.errors import TraceError
from studio.figures.graph import build_elements, get_look, label_communication
from studio.figures.graph_colours import Swatch
from studio.session import Session, keep_result
from studio.trace import COPY, Graph, Int64, NodeType, Rank
from studio.units import TIME_UNITS, format_count, time_unit
from studio.views.address import choose_shown_run, list_run_options, rank_of
from studio.views.graph_fold import (
    build_name_parts,
    build_tree,
    choose_asked_level,
    compute_adjacency,
    fold_elements,
    fold_graph,
    get_depths,
    parse_open_paths,
    reveal,
)
from studio.views.graph_paint import paint, schedule_of
from studio.views.graph_request import COLOURS, DEEPEST, DEPTH, KINDS, Colour, Mode, Request

_LONGEST_CHAIN = 500
_COMMUNICATION = (NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.COMM_RECV)


def read_request(session: Session, view: dict[str, Any]) -> tuple[Request, str]:
    """Read a request from a view; also return a note for the user, or "".

    Raises:
        TraceError: The job has no ranks, or not the one named.
    """
    trace = session.trace(view["job"])
    if not trace.ranks:
        raise TraceError("This job has no ranks.", hint="Import it again with at least one trace file.")
    rank = rank_of(trace, view)
    deps = view["deps"] if view.get("deps") in KINDS else "both"
    unit = time_unit.get() if time_unit.get() in TIME_UNITS else ""
    asked = _look(Request(session, view["job"], rank.graph, deps, unit=unit), view, rank)
    graph = trace.graph_of(rank)
    mode, note = _choose_mode(graph, len(graph) + len(get_adjacency(asked).edges), view)
    if mode == "fold":
        return _fold(replace(asked, mode="fold"), view), note
    if mode == "whole":
        return asked, note
    depth = str(view.get("depth", DEPTH))
    direction = view["dir"] if view.get("dir") in ("up", "down") else "both"
    asked = replace(
        asked,
        mode=mode,
        anchor=find_node_row(graph, view.get("anchor")) if mode == "path" else -1,
        depth=min(max(int(depth), 1), DEEPEST) if depth.isdecimal() else DEPTH,
        direction=cast("Direction", direction),
    )
    centre, more = _choose_centre(graph, asked, view)
    return replace(asked, centre=centre), note + more


def _choose_mode(graph: Graph, size: int, view: dict[str, Any]) -> tuple[Mode, str]:
    """Return how to draw a graph of `size` nodes and dependencies, and a note for the user, or ""."""
    wanted = view.get("show")
    fits = size <= MOST_ELEMENTS
    if not len(graph):
        return "whole", ""
    if wanted in ("fold", "near", "path", "gate"):
        return wanted, ""
    if fits:
        return "whole", ""
    if wanted == "whole":
        return "fold", (
            f"The whole graph has {format_count(size)} nodes and dependencies; {format_count(MOST_ELEMENTS)} can be drawn. "
        )
    # A link from another page with a node should show the surroundings of that node.
    return ("near" if find_node_row(graph, view.get("node")) >= 0 else "fold"), ""


def _look(asked: Request, view: dict[str, Any], rank: Rank) -> Request:
    """Add to a request what colours nodes, and the run whose times that needs."""
    colour: Colour = next((name for name in COLOURS if name == view.get("colour")), "type")
    known = (
        [option["value"] for option in list_other_runs(asked.session, asked.job, view)]
        if colour == "difference"
        else []
    )
    other = view["with"] if view.get("with") in known else next(iter(known), None)
    asked = replace(
        asked,
        colour=colour,
        critical=view.get("crit") == "1",
        wide=view.get("wide") == "1",
        names=tuple(map(str, rank.slots)) if colour == "group" else (),
        against="" if other == RECORDED else other,
    )
    timed = asked.critical or asked.wide or colour in ("duration", "slack", "difference")
    return _with_times(asked, view) if timed or view.get("show") == "gate" else asked


def list_other_runs(session: Session, job: str, view: dict[str, Any]) -> list[dict[str, str]]:
    """Return the other runs of a job, and its recording, as options to compare the shown run with."""
    shown = choose_shown_run(session, job, view) or RECORDED
    return [option for option in list_run_options(session, job) if option["value"] != shown]


def _with_times(asked: Request, view: dict[str, Any]) -> Request:
    """Add to a request the run whose times are shown, and the rank if times differ between ranks of a graph."""
    trace, run = asked.session.trace(asked.job), choose_shown_run(asked.session, asked.job, view)
    by_rank = bool(run or asked.against)
    return replace(asked, run=run, rank=trace.ranks.index(rank_of(trace, view)) if by_rank else 0)


def _fold(asked: Request, view: dict[str, Any]) -> Request:
    """Make a request for a folded drawing, with blocks opened as the view says and around the selected node."""
    trace = asked.session.trace(asked.job)
    rank = rank_of(trace, view)
    by = choose_asked_level(asked, view.get("by"))
    names = tuple(map(str, rank.slots)) if "group" in (by, asked.colour) else ()
    asked = replace(_with_times(asked, view), by=by, opened=parse_open_paths(view.get("open")), names=names)
    if view.get("open") is None:
        asked = replace(asked, opened=build_tree(asked).blocks.to_begin_with())
    node = find_node_row(trace.graph_of(rank), view.get("node"))
    return replace(asked, opened=reveal(asked, node)) if node >= 0 else asked


def _choose_centre(graph: Graph, asked: Request, view: dict[str, Any]) -> tuple[int, str]:
    """Return the node in the middle, and a note for the user, or ""."""
    node, centre = find_node_row(graph, view.get("node")), find_node_row(graph, view.get("at"))
    # The centre stays while the selected node is in its neighbourhood, else the selected node is the new centre.
    if centre >= 0 and (node < 0 or node in build_part(replace(asked, centre=centre)).rows):
        return centre, ""
    if node >= 0:
        return node, ""
    rows = np.flatnonzero(np.isin(graph.type, _COMMUNICATION))
    if len(rows):
        return int(rows[0]), "No node is selected, so this starts at the first communication node. "
    return 0, "No node is selected, so this starts at the first node. "


def find_node_row(graph: Graph, ref: str | None) -> int:
    """Return the row of a node, -1 if there is none; the inspector reports wrong names."""
    try:
        return find_node(graph, str(ref)) if ref else -1
    except TraceError:
        return -1


def get_graph(asked: Request) -> Graph:
    """Return the graph asked about."""
    return asked.session.trace(asked.job).graphs[asked.graph]


def get_adjacency(asked: Request) -> Adjacency:
    """Return the adjacency of the requested kinds of dependencies."""
    return compute_adjacency(asked.session, asked.job, asked.graph, asked.deps)


@keep_result
def build_part(asked: Request) -> Part:
    """Return the part asked for."""
    near = get_adjacency(asked)
    if asked.centre < 0:
        return select_whole_graph(near)
    if asked.mode == "path":
        rows, count = _find_path_rows(asked)
        return Part(rows, near.within(rows), count - len(rows))
    if asked.mode == "gate":
        chain = list_gates(schedule_of(asked), asked.centre, _LONGEST_CHAIN)
        rows = np.sort(chain)
        return Part(rows, near.within(rows))
    return find_neighbourhood(near, asked.centre, asked.depth, direction=asked.direction)


def _find_path_rows(asked: Request) -> tuple[Int64, int]:
    """Return nodes on the requested paths, and how many there are in all; only both ends if there is no path."""
    ends = find_distinct(np.array([row for row in (asked.anchor, asked.centre) if row >= 0], np.int64))
    if asked.anchor < 0 or asked.anchor == asked.centre:
        return ends, len(ends)
    network = _build_network(asked.session, asked.job, asked.graph, asked.deps)
    rows, count = find_between(network, asked.anchor, asked.centre, MOST_ELEMENTS // 3)
    return (rows, count) if count else (ends, len(ends))


@keep_result
def _build_network(session: Session, job: str, graph: int, deps: str) -> Any:
    return build_walkable(compute_adjacency(session, job, graph, deps))


def _get_layers(asked: Request) -> Int64:
    return get_depths(asked.session, asked.job, asked.graph, "both").layer


def build_asked_elements(asked: Request) -> list[dict[str, Any]]:
    """Return the part asked for as Cytoscape draws it."""
    return build_drawing(asked)[0]


@keep_result
def build_drawing(asked: Request) -> tuple[list[dict[str, Any]], list[Swatch]]:
    """Return the elements for Cytoscape, and the legend of their colours (empty if coloured by type)."""
    if asked.mode == "fold":
        shapes, rows = fold_elements(asked), [block.rows for block in fold_graph(asked).shown]
    else:
        part = build_part(asked)
        shapes, rows = (
            build_elements(get_graph(asked), part, get_adjacency(asked), _get_layers(asked)),
            list(part.rows[:, None]),
        )
    return paint(asked, shapes, rows)


def build_drawing_key(asked: Request) -> str:
    """Return a key that is equal for equal drawings."""
    parts = [getattr(asked, spec.name) for spec in fields(asked) if spec.name != "session"]
    return json.dumps(parts)


@keep_result
def find_hits(session: Session, job: str, graph: int, text: str, groups: tuple[str, ...] = ()) -> Int64:
    """Return the rows that match a search, see `analysis.graph.search`.

    Raises:
        TraceError: A regular expression cannot be read.
    """
    names, kinds = build_name_parts(session, job, graph), _collect_kinds(session, job, graph)
    return find_rows(session.trace(job).graphs[graph], names, kinds, text, _name_kind, groups)


@keep_result
def _collect_kinds(session: Session, job: str, graph: int) -> Kinds:
    return number_kinds(session.trace(job).graphs[graph])


def _name_kind(number: int, collective: int) -> str:
    """Return the text that a search by type matches: names of the kind in legend, drawing and schema."""
    names = [
        get_look(number).title,
        label_counted_type(number).lower(),
        label_communication(number, collective if collective >= 0 else None),
    ]
    return " ".join(names)


def build_shown_elements(session: Session, view: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what Cytoscape draws of a view."""
    return build_asked_elements(read_request(session, view)[0])


def map_shown(session: Session, view: dict[str, Any]) -> GraphMap:
    """Return the map of the graph that a view shows."""
    asked = read_request(session, {"job": view["job"], "rank": view.get("rank"), "show": "near"})[0]
    return _build_map(asked.session, asked.job, asked.graph)


_BEYOND = (COPY, HOST_GAP_TYPE, DEVICE_GAP_TYPE, ASSUMED_ARRIVAL_TYPE, LIBRARY_KERNEL_TYPE)
"""Types of nodes beside those of files, as `KINDS` of assets/graph/map.mjs has them behind these."""


@keep_result
def _build_map(session: Session, job: str, graph: int) -> GraphMap:
    types = infer_counted_types(session.trace(job).graphs[graph])
    # The picture has a byte a pixel: what no file tells apart follows the types of the schema, other types count as none of them.
    kinds = np.where((types < 0) | (types > max(NodeType)), NodeType.INVALID, types).astype(np.int32)
    for place, own in enumerate(_BEYOND, max(NodeType) + 1):
        kinds[types == own] = place
    return build_graph_map(get_depths(session, job, graph, "both"), kinds)


def format_node_reference(session: Session, view: dict[str, Any], row: int) -> str:
    """Return the reference of a row of the shown graph, as addresses write it."""
    trace = session.trace(view["job"])
    return format_node_ref(trace.graph_of(rank_of(trace, view)), row)
