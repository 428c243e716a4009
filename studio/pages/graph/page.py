"""The Graph page: dependencies of one rank's nodes, whole if they fit, else folded or around a node."""

from __future__ import annotations

import json
from typing import Any

import dash
import numpy as np
from dash import ClientsideFunction, Input, Output, State, callback, clientside_callback, dcc, html, no_update

from studio.analysis.graph.levels import TITLES
from studio.analysis.job.node_refs import format_node_ref
from studio.errors import StudioError
from studio.figures.blocks import format_block_ref
from studio.figures.graph import count_looks, format_node_refs
from studio.pages.base.state import RECORDED, get_session
from studio.pages.base.widgets import build_error_box, build_loading, build_no_job_notice
from studio.pages.graph.layout import (
    build_canvas,
    build_controls,
    build_foot,
    build_themed_stylesheet,
    build_whole_map,
)
from studio.pages.graph.legend import build_legend
from studio.trace import Int64
from studio.units import format_count
from studio.views.address import rank_of
from studio.views.graph import (
    build_asked_elements,
    build_drawing,
    build_drawing_key,
    build_part,
    find_hits,
    find_node_row,
    get_adjacency,
    get_graph,
    list_other_runs,
    read_request,
)
from studio.views.graph_fold import find_hits_in_blocks, fold_graph, fold_sentence, get_levels
from studio.views.graph_paint import describe_critical_path
from studio.views.graph_request import KINDS, Request
from studio.views.graph_words import describe_difference, describe_paths, gate_sentence


def draw_ahead(view: dict[str, str]) -> None:
    """Begin the drawing of a view in the background: the browser asks for it once it has loaded and laid out the page."""
    if view.get("job"):
        opened = get_session()
        opened.awaited.prepare(_name_drawing(view), lambda: build_drawing(read_request(opened, view)[0]))


def _name_drawing(view: dict[str, Any]) -> str:
    return f"graph of {view['job']}"


dash.register_page(
    __name__,
    path="/graph",
    name="Graph",
    title="Graph · Chakra Studio",
    order=3,
    ahead=draw_ahead,
    libraries=("dash_cytoscape",),
)


def layout(**query: str) -> Any:
    """Return the page; controls, drawing and texts follow the view."""
    draw_ahead(query)
    return html.Div(
        [
            html.Div(build_loading("Laying out the graph…"), id="graph-notice"),
            html.Div(
                [build_controls(), build_whole_map(), build_canvas(), build_foot()],
                id="graph-page",
                className="cs-graph",
                hidden=True,
            ),
            dcc.Store(id="graph-drawn", data={}),
            dcc.Store(id="graph-hits-drawn", data=[]),
            html.Div(id="graph-sync", hidden=True),
        ]
    )


@callback(
    {
        "notice": Output("graph-notice", "children"),
        "hidden": Output("graph-page", "hidden"),
        "elements": Output("graph-cy", "elements"),
        "drawn": Output("graph-drawn", "data"),
        "sentence": Output("graph-sentence", "children"),
        "legend": Output("graph-legend", "children"),
        "ranks": Output("graph-rank", "data"),
        "levels": Output("graph-by", "data"),
        "runs": Output("graph-with", "data"),
    },
    Input("view", "data"),
    State("graph-drawn", "data"),
)
def draw(view: dict[str, Any], drawn: dict[str, Any]) -> dict[str, Any]:
    """Draw what the view asks for, unless it is drawn already."""
    if not view.get("job"):
        return _build_answer(notice=build_no_job_notice(), hidden=True, drawn={}, elements=[])
    get_session().awaited.settle(_name_drawing(view))
    try:
        asked, note = read_request(get_session(), view)
    except StudioError as error:
        return _build_answer(
            notice=html.Div(build_error_box(error), className="cs-page"), hidden=True, drawn={}, elements=[]
        )
    key = build_drawing_key(asked)
    # What the browser holds already is not sent again: every piece that is costs it as much as the drawing.
    shown = _build_answer(sentence=_describe_drawing(asked, note))
    if not drawn.get("key"):
        shown |= {"notice": None, "hidden": False}
    if drawn.get("key") == key:
        return shown
    graph = get_graph(asked)
    elements, swatches = build_drawing(asked)
    nodes = [element["data"] for element in elements if element["group"] == "nodes"]
    place, legend_key = [asked.job, asked.graph], [asked.mode, asked.colour, asked.critical]
    if drawn.get("place") != place:
        shown["ranks"] = [str(rank.number) for rank in get_session().trace(asked.job).ranks]
    if asked.mode == "fold" and drawn.get("levels") != place:
        levels = get_levels(asked.session, asked.job, asked.graph)
        shown["levels"] = [{"value": level, "label": TITLES[level]} for level in levels]
    # Blocks change the drawing, not what there is of which type.
    if legend_key[:2] != ["fold", "type"] or [drawn.get("place"), drawn.get("told")] != [place, legend_key]:
        rows = np.arange(len(graph)) if asked.mode == "fold" else build_part(asked).rows
        shown["legend"] = build_legend(asked, count_looks(graph, rows), swatches)
    frames = fold_graph(asked).frames if asked.mode == "fold" else ()
    about = {
        "key": key,
        "place": place,
        "told": legend_key,
        "levels": place if asked.mode == "fold" else drawn.get("levels"),
        "nodes": len(nodes),
        "first": nodes[0]["id"] if nodes else None,
        "centre": format_node_ref(graph, asked.centre) if asked.centre >= 0 else None,
        "anchor": format_node_ref(graph, asked.anchor) if asked.anchor >= 0 else None,
        "mode": asked.mode,
        "by": asked.by,
        "colour": asked.colour,
        "against": None if asked.against is None else asked.against or RECORDED,
        "opened": [format_block_ref(frame.path) for frame in frames],
    }
    return shown | {
        "elements": _attach_drawing(elements, about),
        "drawn": about,
        "runs": list_other_runs(get_session(), asked.job, view)
        if asked.colour == "difference"
        else no_update,
    }


def _attach_drawing(elements: list[dict[str, Any]], about: dict[str, Any]) -> list[dict[str, Any]]:
    """Attach facts about the drawing to its first node, so that the script can set the camera before painting."""
    index = next((place for place, element in enumerate(elements) if element["group"] == "nodes"), None)
    if index is None:
        return elements
    first = {**elements[index], "data": {**elements[index]["data"], "drawing": about}}
    return [*elements[:index], first, *elements[index + 1 :]]


def _build_answer(**changed: Any) -> dict[str, Any]:
    names = ("notice", "hidden", "elements", "drawn", "sentence", "legend", "ranks", "levels", "runs")
    return {name: changed.get(name, no_update) for name in names}


def _describe_drawing(asked: Request, note: str) -> str:
    more = describe_difference(asked) if asked.colour == "difference" else ""
    return _describe_counts(asked, note) + (describe_critical_path(asked) if asked.critical else "") + more


def _describe_counts(asked: Request, note: str) -> str:
    """Return the sentence that counts what is drawn and what is left out."""
    if asked.mode == "fold":
        return note + fold_sentence(asked)
    graph, near, part = get_graph(asked), get_adjacency(asked), build_part(asked)
    kinds = {"both": "", "data": "data ", "ctrl": "control "}[asked.deps]
    if asked.mode == "path":
        return note + describe_paths(asked)
    if asked.mode == "gate":
        return note + gate_sentence(asked)
    if asked.centre < 0:
        nodes = len(part.rows)
        text = (
            "This rank has no nodes."
            if not nodes
            else f"All {_format_counted(nodes, 'node')} and {_format_counted(len(part.edges), kinds + 'dependency')} drawn."
        )
    else:
        name = graph.strings[int(graph.name[asked.centre])] or f"node {format_node_ref(graph, asked.centre)}"
        which = {"both": "of", "up": "above", "down": "below"}[asked.direction]
        text = f"{note}{format_count(len(part.rows))} of {_format_counted(len(near), 'node')} drawn: within {_format_counted(asked.depth, kinds + 'dependency')} {which} {name}."
        if part.left_out:
            text += f" {format_count(part.left_out)} more did not fit."
    dangling = sum(len(getattr(graph, kind).dangling) for kind in KINDS[asked.deps])
    if dangling:
        text += f" {_format_counted(dangling, 'id')} that nodes wait for {'is' if dangling == 1 else 'are'} not in the file."
    return text


def _format_counted(count: int, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{format_count(count)} {noun if count == 1 else plural}"


# ---------------------------------------------------------------------------------------------------
# Search


@callback(
    Output("graph-hits", "children"),
    Output("graph-hits-drawn", "data"),
    Input("searched", "data"),
)
def search(searched: str | None) -> tuple[Any, list[str]]:
    """Show the number of hits, and buttons to the previous and next one."""
    view: dict[str, Any] = json.loads(searched or "{}")
    if not view.get("job"):
        return None, []
    try:
        asked, _ = read_request(get_session(), view)
        graph = get_graph(asked)
        groups = (
            tuple(map(str, rank_of(get_session().trace(view["job"]), view).slots))
            if view["q"].startswith("group:")
            else ()
        )
        rows = find_hits(asked.session, asked.job, asked.graph, view["q"], groups)
    except StudioError as error:
        return html.Span(error.message, className="cs-dim", title=error.hint), []
    if not len(rows):
        return html.Span("no node found", className="cs-dim"), []
    node = find_node_row(graph, view.get("node"))
    place = int(np.searchsorted(rows, node))
    is_hit = place < len(rows) and rows[place] == node
    count = f"{format_count(place + 1)} of {format_count(len(rows))}" if is_hit else format_count(len(rows))
    shown = [
        html.Span(count, className="cs-graph-count"),
        _build_step_button(
            "graph-previous", "‹", "Previous hit (Shift Enter, N)", asked, int(rows[place - 1])
        ),
        _build_step_button(
            "graph-next", "›", "Next hit (Enter, n)", asked, int(rows[(place + is_hit) % len(rows)])
        ),
    ]
    if asked.mode == "fold":
        drawn = find_hits_in_blocks(asked, rows)
        blocks = [
            element
            for element in build_asked_elements(asked)
            if element["group"] == "nodes" and element["data"]["kind"] != "frame"
        ]
        return shown, [blocks[index]["data"]["id"] for index in drawn]
    return shown, format_node_refs(graph, _select_common(build_part(asked).rows, rows))


def _select_common(some: Int64, rows: Int64) -> Int64:
    """Return the rows of `some` that are in `rows`; both are sorted."""
    places = np.minimum(np.searchsorted(rows, some), len(rows) - 1)
    common: Int64 = some[rows[places] == some]
    return common


def _build_step_button(name: str, text: str, title: str, asked: Request, row: int) -> Any:
    patch: dict[str, Any] = {"node": format_node_ref(get_graph(asked), row)}
    if asked.mode == "fold":
        patch |= {"show": "fold", "block": None}
    change: dict[str, Any] = {"data-view": json.dumps(patch), "aria-label": title}
    return html.Button(text, id=name, className="cs-button cs-graph-step", title=title, **change)


# ---------------------------------------------------------------------------------------------------
# What the browser does by itself


@callback(Output("graph-cy", "stylesheet"), Input("theme", "data"), State("graph-cy", "stylesheet"))
def dress(theme: str, before: list[dict[str, Any]]) -> Any:
    """Set the stylesheet of the theme, unless it is set: a new one makes the browser restyle every element."""
    wanted = build_themed_stylesheet(dark=theme == "dark")
    return no_update if wanted == before else wanted


_CONTROLS = ("rank", "show", "by", "depth", "dir", "deps", "q", "colour", "with")

clientside_callback(
    ClientsideFunction("studio_graph", "controls"),
    *[Output(f"graph-{name}", "value") for name in _CONTROLS],
    Input("view", "data"),
    Input("graph-drawn", "data"),
    Input("graph-rank", "data"),
)
clientside_callback(
    ClientsideFunction("studio_graph", "write"),
    Output("graph-sync", "title"),
    *[Input(f"graph-{name}", "value") for name in _CONTROLS],
    prevent_initial_call=True,
)
clientside_callback(
    ClientsideFunction("studio_graph", "show"),
    Output("graph-sync", "children"),
    Input("graph-drawn", "data"),
    Input("view", "data"),
    Input("graph-hits-drawn", "data"),
    Input("theme", "data"),
)
