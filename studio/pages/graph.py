"""Graph: who waits for whom on one rank, whole where it fits, else around a node."""

from __future__ import annotations

import json
from typing import Any

import dash
import dash_cytoscape as cyto
import dash_mantine_components as dmc
import numpy as np
from dash import ClientsideFunction, Input, Output, State, callback, clientside_callback, dcc, html, no_update

from studio.analysis.graph_search import HELP as SEARCH_HELP
from studio.analysis.levels import TITLES
from studio.analysis.nodes import node_ref
from studio.errors import StudioError
from studio.figures.blocks import block_ref
from studio.figures.graph import Look, legend, node_refs, stylesheet
from studio.figures.graph_colours import Swatch, hue_colour, hue_styles
from studio.figures.theme import palette
from studio.pages._graph import (
    asked_for,
    drawing_of,
    elements_of,
    graph_of,
    hits_of,
    key_of,
    near_of,
    node_row,
    part_of,
)
from studio.pages._graph_fold import fold_sentence, folded_of, hits_in_blocks, levels_of
from studio.pages._graph_paint import critical_sentence
from studio.pages._graph_request import COLOURS, DEEPEST, KINDS, Request
from studio.pages._graph_words import gate_sentence, path_sentence
from studio.pages._state import rank_of, runs_of, trace
from studio.pages._widgets import error_box, no_job
from studio.units import format_count

dash.register_page(__name__, path="/graph", name="Graph", title="Graph · Chakra Studio", order=3)

_KEYS = (
    ("↑ ↓ ← →", "walk along dependencies and beside"),
    ("Enter", "open a block; centre a node"),
    ("Backspace", "close the block around"),
    ("double click", "open or close a block; centre a node"),
    ("/", "search"),
    ("n N", "next and previous hit"),
    ("+ −", "closer, further"),
    ("0", "full size"),
    ("F", "fit"),
    ("C", "critical path"),
    ("W", "width by time"),
    ("P", "a path begins here"),
    ("Esc", "clear the selection"),
    ("?", "this list"),
)
_SHOWN_KEYS = ("↑ ↓ ← →", "Enter", "Backspace", "/", "F")


def layout(**_query: str) -> Any:
    """Return the page; controls, drawing and texts follow the view."""
    return html.Div(
        [
            html.Div(id="graph-notice"),
            html.Div(
                [_controls(), _map(), _canvas(), _foot()], id="graph-page", className="cs-graph", hidden=True
            ),
            dcc.Store(id="graph-drawn", data={}),
            dcc.Store(id="graph-hits-drawn", data=[]),
            html.Div(id="graph-sync", hidden=True),
        ]
    )


def _controls() -> Any:
    return html.Div(
        [
            html.H1("Graph"),
            _labelled("rank", _select("graph-rank", "Rank", [], 84, searchable=True, limit=200)),
            dmc.SegmentedControl(
                id="graph-show",
                data=[
                    {"value": "fold", "label": "Folded"},
                    {"value": "whole", "label": "Whole"},
                    {"value": "near", "label": "Around a node"},
                    {"value": "path", "label": "Path"},
                    {"value": "gate", "label": "Gates"},
                ],
                size="xs",
                **_aria(label="What is drawn"),
            ),
            _labelled("fold by", _select("graph-by", "Fold by", [], 128)),
            _labelled("depth", _select("graph-depth", "Depth", [str(n) for n in range(1, DEEPEST + 1)], 58)),
            _labelled(
                "direction",
                _select(
                    "graph-dir",
                    "Direction",
                    [
                        {"value": "both", "label": "up and down"},
                        {"value": "up", "label": "upwards"},
                        {"value": "down", "label": "downwards"},
                    ],
                    126,
                ),
            ),
            _labelled(
                "dependencies",
                _select(
                    "graph-deps",
                    "Dependencies",
                    [
                        {"value": "both", "label": "all"},
                        {"value": "data", "label": "data"},
                        {"value": "ctrl", "label": "control"},
                    ],
                    92,
                ),
            ),
            _labelled(
                "colour",
                _select(
                    "graph-colour",
                    "Colour by",
                    [{"value": one, "label": title} for one, title in COLOURS.items()],
                    116,
                ),
            ),
            _labelled("with", _select("graph-with", "Compare durations with", [], 150)),
            _toggle("graph-crit", "Critical path", "Draw what holds the rank up on top (C)"),
            _toggle("graph-wide", "Width = time", "Draw nodes as wide as they are long in time (W)"),
            html.Span(style={"flex": 1}),
            html.Div(
                [_search(), html.Div(id="graph-hits", className="cs-graph-hits", role="status")],
                className="cs-graph-find",
            ),
            html.Button("Fit", id="graph-fit", className="cs-button", title="Show all that is drawn (F)"),
            _save(),
        ],
        className="cs-graph-controls",
    )


def _save() -> Any:
    """Return the menu that saves what is shown."""
    kinds = [("png", "PNG"), ("svg", "SVG"), ("graphml", "GraphML"), ("dot", "DOT"), ("csv", "CSV")]
    about: list[dict[str, Any]] = [{"data-graph-save": kind} for kind, _ in kinds]
    buttons = [
        html.Button(text, className="cs-button-quiet", **told)
        for (_, text), told in zip(kinds, about, strict=True)
    ]
    return html.Details(
        [html.Summary("Save", className="cs-button"), html.Div(buttons)], className="cs-graph-save"
    )


def _toggle(name: str, text: str, title: str) -> Any:
    return html.Button(
        text, id=name, className="cs-button cs-graph-toggle", title=title, **_aria(pressed="false")
    )


def _aria(**names: str) -> dict[str, Any]:
    return {f"aria-{name}": value for name, value in names.items()}


def _labelled(text: str, control: Any) -> Any:
    return html.Span(
        [html.Span(text, className="cs-dim", **_aria(hidden="true")), control], className="cs-graph-field"
    )


def _select(name: str, title: str, data: list[Any], width: int, **more: Any) -> Any:
    return dmc.Select(
        id=name,
        data=data,
        size="xs",
        w=width,
        allowDeselect=False,
        comboboxProps={"shadow": "sm"},
        **_aria(label=title),
        **more,
    )


def _search() -> Any:
    return dmc.TextInput(
        id="graph-q",
        placeholder="Name, id, /regex/, type:…",
        size="xs",
        w=170,
        debounce=200,
        **_aria(label="Search nodes by name, id, type or group", description=SEARCH_HELP),
    )


def _map() -> Any:
    """Return where `assets/graph_map.js` draws the whole graph."""
    about = "Map of the whole graph: depth from left to right; what lies equally deep from top to bottom. Click to go there."
    canvas: Any = html.Canvas(id="graph-map-canvas", title=about)
    return html.Div(
        [canvas, html.Div(id="graph-map-marks")],
        id="graph-map",
        className="cs-graph-map",
        role="img",
        **_aria(label=about),
    )


def _canvas() -> Any:
    return html.Div(
        [
            cyto.Cytoscape(
                id="graph-cy",
                elements=[],
                layout={"name": "preset", "fit": False},
                autoRefreshLayout=False,
                autoungrabify=True,
                autounselectify=True,
                boxSelectionEnabled=False,
                responsive=False,
                minZoom=0.02,
                maxZoom=3,
                style={"width": "100%", "height": "100%"},
                stylesheet=_worn(dark=False),
            ),
            html.Div(id="graph-tip", className="cs-graph-tip", hidden=True),
        ],
        id="graph-canvas",
        className="cs-graph-canvas",
        tabIndex=0,
        role="application",
        **_aria(label="Graph of dependencies", describedby="graph-sentence graph-keys"),
    )


def _foot() -> Any:
    short = {"↑ ↓ ← →": "walk", "Enter": "open", "Backspace": "close", "/": "search", "F": "fit"}
    keys: list[Any] = [part for key in _SHOWN_KEYS for part in (html.Kbd(key), f" {short[key]} ")]
    keys.append(html.Button("? all keys", id="graph-help", className="cs-button-quiet"))
    rows = [html.Tr([html.Td(html.Kbd(key)), html.Td(does)]) for key, does in _KEYS]
    every: Any = html.Dialog(
        [
            html.H2("Keys of the Graph page"),
            html.Table(html.Tbody(rows)),
            html.Button("Close", id="graph-help-close", className="cs-button"),
        ],
        id="graph-help-list",
        className="cs-graph-help",
        **_aria(label="Keys of the Graph page"),
    )
    return html.Div(
        [
            html.Span(id="graph-sentence", role="status"),
            html.Div(keys, id="graph-keys", className="cs-graph-keys"),
            every,
            html.Div(id="graph-legend", className="cs-graph-legend"),
        ],
        className="cs-graph-foot",
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
        return _answer(notice=no_job(), hidden=True, drawn={}, elements=[])
    try:
        asked, note = asked_for(view)
    except StudioError as error:
        return _answer(
            notice=html.Div(error_box(error), className="cs-page"), hidden=True, drawn={}, elements=[]
        )
    ranks = [str(rank.number) for rank in trace(view["job"]).ranks]
    key = key_of(asked)
    shown = _answer(notice=None, hidden=False, ranks=ranks, sentence=_said(asked, note))
    if drawn.get("key") == key:
        return shown
    graph = graph_of(asked)
    found, swatches = drawing_of(asked)
    nodes = [one["data"] for one in found if one["group"] == "nodes"]
    centre = node_ref(graph, asked.centre) if asked.centre >= 0 else None
    rows = np.arange(len(graph)) if asked.mode == "fold" else part_of(asked).rows
    if asked.mode == "fold":
        levels = [
            {"value": one, "label": TITLES[one]} for one in levels_of(asked.root, asked.job, asked.graph)
        ]
        shown |= {"levels": levels}
    return shown | {
        "elements": found,
        "drawn": {
            "key": key,
            "nodes": len(nodes),
            "first": nodes[0]["id"] if nodes else None,
            "centre": centre,
            "mode": asked.mode,
            "by": asked.by,
            "anchor": node_ref(graph, asked.anchor) if asked.anchor >= 0 else None,
            "colour": asked.colour,
            "opened": [block_ref(one.path) for one in folded_of(asked).frames]
            if asked.mode == "fold"
            else [],
        },
        "legend": _legend(asked, legend(graph, rows), swatches),
        "runs": runs_of(asked.job) if asked.colour == "difference" else no_update,
    }


def _answer(**changed: Any) -> dict[str, Any]:
    names = ("notice", "hidden", "elements", "drawn", "sentence", "legend", "ranks", "levels", "runs")
    return {name: changed.get(name, no_update) for name in names}


def _said(asked: Request, note: str) -> str:
    return _sentence(asked, note) + (critical_sentence(asked) if asked.critical else "")


def _sentence(asked: Request, note: str) -> str:
    """Return in words what is drawn and what is not."""
    if asked.mode == "fold":
        return note + fold_sentence(asked)
    graph, near, part = graph_of(asked), near_of(asked), part_of(asked)
    kinds = {"both": "", "data": "data ", "ctrl": "control "}[asked.deps]
    if asked.mode == "path":
        return note + path_sentence(asked)
    if asked.mode == "gate":
        return note + gate_sentence(asked)
    if asked.centre < 0:
        nodes = len(part.rows)
        text = (
            "This rank has no nodes."
            if not nodes
            else f"All {_n(nodes, 'node')} and {_n(len(part.edges), kinds + 'dependency')} drawn."
        )
    else:
        name = graph.strings[int(graph.name[asked.centre])] or f"node {node_ref(graph, asked.centre)}"
        which = {"both": "of", "up": "above", "down": "below"}[asked.direction]
        text = f"{note}{format_count(len(part.rows))} of {_n(len(near), 'node')} drawn: within {_n(asked.depth, kinds + 'dependency')} {which} {name}."
        if part.left_out:
            text += f" {format_count(part.left_out)} more did not fit."
    dangling = sum(len(getattr(graph, kind).dangling) for kind in KINDS[asked.deps])
    if dangling:
        text += (
            f" {_n(dangling, 'id')} that nodes wait for {'is' if dangling == 1 else 'are'} not in the file."
        )
    return text


def _n(count: int, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{format_count(count)} {noun if count == 1 else plural}"


def _legend(asked: Request, looks: list[tuple[Look, int]], swatches: list[Swatch]) -> list[Any]:
    """Return what colours, shapes and lines mean; a click on a colour hides and shows what has it."""
    if asked.colour == "type":
        items = [
            _legend_item(
                one.kind,
                html.Span(
                    className=f"cs-shape cs-shape-{one.shape}",
                    style={"background": f"var(--cs-{one.colour})"},
                ),
                one.title,
                count,
            )
            for one, count in looks
        ]
    else:
        items = [
            _legend_item(
                one.hue,
                html.Span(className="cs-hue", style={"background": _swatch(one.hue)}),
                one.title,
                one.count,
            )
            for one in swatches
        ]
    lines = [
        html.Span([html.Span(className="cs-line"), "data"]),
        html.Span([html.Span(className="cs-line cs-line-dashed"), "control"]),
    ]
    if asked.critical:
        lines.append(html.Span([html.Span(className="cs-line cs-line-thick"), "critical path"]))
    if asked.mode == "fold" and asked.colour == "type":
        lines.append(
            html.Span("A block shows which share of its nodes is of which type.", className="cs-dim")
        )
    return [*items, *lines]


def _swatch(hue: str) -> str:
    light, dark = (hue_colour(hue, palette(dark), dark) for dark in (False, True))
    return f"light-dark({light}, {dark})"


def _legend_item(key: str, sign: Any, title: str, count: int) -> Any:
    about: dict[str, Any] = {"data-filter": key, **_aria(pressed="true")}
    shown = [sign, f"{title} ", html.Span(format_count(count), className="cs-dim")]
    return html.Button(shown, className="cs-legend-item", title="Click to hide or show", **about)


# ---------------------------------------------------------------------------------------------------
# Search


@callback(Output("graph-hits", "children"), Output("graph-hits-drawn", "data"), Input("view", "data"))
def search(view: dict[str, Any]) -> tuple[Any, list[str]]:
    """Count the hits, and say which comes before and after the selected node."""
    if not view.get("job") or not view.get("q"):
        return None, []
    try:
        asked, _ = asked_for(view)
        graph = graph_of(asked)
        groups = (
            tuple(map(str, rank_of(trace(view["job"]), view).slots)) if view["q"].startswith("group:") else ()
        )
        rows = hits_of(asked.root, asked.job, asked.graph, view["q"], groups)
    except StudioError as error:
        return html.Span(error.message, className="cs-dim", title=error.hint), []
    if not len(rows):
        return html.Span("no node found", className="cs-dim"), []
    node = node_row(graph, view.get("node"))
    at = int(np.searchsorted(rows, node))
    is_hit = at < len(rows) and rows[at] == node
    count = f"{format_count(at + 1)} of {format_count(len(rows))}" if is_hit else format_count(len(rows))
    shown = [
        html.Span(count, className="cs-graph-count"),
        _step("graph-previous", "‹", "Previous hit (Shift Enter, N)", asked, int(rows[at - 1])),
        _step("graph-next", "›", "Next hit (Enter, n)", asked, int(rows[(at + is_hit) % len(rows)])),
    ]
    if asked.mode == "fold":
        drawn = hits_in_blocks(asked, rows)
        blocks = [
            one for one in elements_of(asked) if one["group"] == "nodes" and one["data"]["kind"] != "frame"
        ]
        return shown, [blocks[one]["data"]["id"] for one in drawn]
    return shown, node_refs(graph, np.intersect1d(rows, part_of(asked).rows))


def _step(name: str, text: str, title: str, asked: Request, row: int) -> Any:
    patch: dict[str, Any] = {"node": node_ref(graph_of(asked), row)}
    if asked.mode == "fold":
        patch |= {"show": "fold", "block": None}
    change: dict[str, Any] = {"data-view": json.dumps(patch), "aria-label": title}
    return html.Button(text, id=name, className="cs-button cs-graph-step", title=title, **change)


# ---------------------------------------------------------------------------------------------------
# What the browser does by itself


def _worn(*, dark: bool) -> list[dict[str, Any]]:
    """Return how nodes look, hues after what their types look like and before what is selected."""
    plain = stylesheet(dark)
    at = next(number for number, rule in enumerate(plain) if rule["selector"] == 'edge[dep = "ctrl"]')
    return [*plain[:at], *hue_styles(palette(dark), dark), *plain[at:]]


@callback(Output("graph-cy", "stylesheet"), Input("theme", "data"), State("graph-cy", "stylesheet"))
def dress(theme: str, worn: list[dict[str, Any]]) -> Any:
    """Draw in the colours of the theme; every new stylesheet costs the browser a look at every element."""
    wanted = _worn(dark=theme == "dark")
    return no_update if wanted == worn else wanted


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
