"""Cytoscape elements of a part of a graph: positions, labels that fit, and styles."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from studio.analysis.graph.layout import Layout, compute_layered_layout
from studio.analysis.graph.neighbours import Adjacency, Part
from studio.analysis.job.function_names import shorten_function_name
from studio.analysis.job.kinds import (
    ASSUMED_ARRIVAL,
    ASSUMED_ARRIVAL_TYPE,
    DEVICE_GAP,
    DEVICE_GAP_TYPE,
    HOST_GAP,
    HOST_GAP_TYPE,
    LIBRARY_KERNEL,
    LIBRARY_KERNEL_TYPE,
    infer_counted_type,
    infer_counted_types,
    label_counted_type,
)
from studio.figures.theme import Palette, choose_palette
from studio.trace import COPY, Graph, Int64, NodeType, label_collective, read_int_column
from studio.units import format_bytes

STEP_X, STEP_Y = 100, 51
"""Pixels between neighbours of a row and between rows, at zoom 1."""

WIDTH, HEIGHT = 92, 35
_LINE, _SHORT_LINE = 14, 9
"""Characters of a line that fit into a node, in a label and in the larger print of a short label."""

_ABBREVIATED = {"reduce-scatter": "red-scatter", "reduce-scatter-block": "red-scatter"}

_TELLING = 4
"""Characters from which a level of a name is understood by itself."""

_FONT = "system-ui, Segoe UI, Roboto, Liberation Sans, DejaVu Sans, sans-serif"


@dataclass(frozen=True, slots=True)
class Look:
    """Colour and shape of a kind of node.

    Attributes:
        kind: Short name, used by stylesheets.
        title: What the legend calls it.
        colour: The palette's name of its colour.
        shape: Cytoscape's name of its shape, or one of `POLYGONS`.
    """

    kind: str
    title: str
    colour: str
    shape: str


LOOKS: dict[int, Look] = {
    NodeType.COMP: Look("comp", "compute", "compute", "round-rectangle"),
    NodeType.COMM_COLL: Look("coll", "collective", "collective", "hexagon"),
    NodeType.COMM_SEND: Look("send", "send", "p2p", "tag"),
    NodeType.COMM_RECV: Look("recv", "receive", "p2p", "concave-hexagon"),
    NodeType.MEM_LOAD: Look("load", "memory load", "memory", "barrel"),
    NodeType.MEM_STORE: Look("store", "memory store", "memory", "cut-rectangle"),
    COPY: Look("copy", "copy", "copy", "bottom-round-rectangle"),
    NodeType.METADATA: Look("meta", "metadata", "host", "ellipse"),
    # Written as compute, as which Timeline and Overview do not count them either.
    HOST_GAP_TYPE: Look("gap", HOST_GAP, "host", "rhomboid"),
    DEVICE_GAP_TYPE: Look("idle", DEVICE_GAP, "border", "right-rhomboid"),
    ASSUMED_ARRIVAL_TYPE: Look("arrival", ASSUMED_ARRIVAL, "host", "trapezoid"),
    LIBRARY_KERNEL_TYPE: Look("kernel", LIBRARY_KERNEL, "collective", "pentagon"),
}
OTHER = Look("other", "other", "host", "rectangle")
POLYGONS: dict[str, list[tuple[float, float]]] = {
    # Cytoscape's own hexagon and rhomboids are too pointed for two lines of text.
    "hexagon": [(-1, 0), (-0.87, -1), (0.87, -1), (1, 0), (0.87, 1), (-0.87, 1)],
    "rhomboid": [(-0.9, -1), (1, -1), (0.9, 1), (-1, 1)],
    "right-rhomboid": [(-1, -1), (0.9, -1), (1, 1), (-0.9, 1)],
    "trapezoid": [(-1, -1), (1, -1), (0.9, 1), (-0.9, 1)],
    "pentagon": [(-1, 0), (-0.87, -1), (1, -1), (1, 1), (-0.87, 1)],
}
"""Corners of shapes that are not Cytoscape's, from -1 to 1."""


def get_look(number: int) -> Look:
    """Return the look of a node type; undefined types look alike."""
    return LOOKS.get(number, OTHER)


def count_looks(graph: Graph, rows: Int64) -> list[tuple[Look, int]]:
    """Return the looks of some nodes with their counts, most frequent first."""
    counts: dict[Look, int] = {}
    for number, count in zip(*np.unique(infer_counted_types(graph)[rows], return_counts=True), strict=True):
        counts[get_look(int(number))] = counts.get(get_look(int(number)), 0) + int(count)
    return sorted(counts.items(), key=lambda item: -item[1])


def place_part(part: Part) -> Layout:
    """Return the layout of a part."""
    before, after = (np.searchsorted(part.rows, rows) for rows in (part.edges.before, part.edges.after))
    return compute_layered_layout(len(part.rows), before, after, aspect=16 / 9 * STEP_Y / STEP_X)


def build_elements(
    graph: Graph, part: Part, near: Adjacency, layer: Int64 | None = None
) -> list[dict[str, Any]]:
    """Return the nodes and edges of a part for Cytoscape.

    Nodes have the data `id` (their ref), `label`, `short`, `name`, `type`, `kind`, `bytes` (a text) and `hidden` (how
    many of their neighbours are not in the part); edges `dep` ("data" or "ctrl") and `far` (1 where they lead
    through other nodes). With the layers of all nodes, nodes have `m`, where theirs begins and ends as parts of all.
    """
    places = place_part(part)
    hidden = _count_hidden(part, near)
    layers = (0, 0) if layer is None or not len(layer) else (int(layer.min()), int(layer.max()))
    drawn: list[dict[str, Any]] = []
    for index, data in enumerate(build_node_data(graph, part.rows)):
        position = {"x": round(places.x[index] * STEP_X, 1), "y": round(places.y[index] * STEP_Y, 1)}
        data |= {"hidden": int(hidden[index])}
        if layer is not None:
            data["m"] = compute_layer_span(layer, part.rows[index : index + 1], layers)
        drawn.append({"group": "nodes", "data": data, "position": position})
    return drawn + _build_edges(part, places, [node["data"]["id"] for node in drawn])


def compute_layer_span(layer: Int64, rows: Int64, layers: tuple[int, int]) -> list[float]:
    """Return the first and last layer of some nodes, as fractions of all layers."""
    low, count = layers[0], layers[1] - layers[0] + 1
    here = layer[rows] - low
    return [round(int(here.min()) / count, 5), round((int(here.max()) + 1) / count, 5)]


def build_node_data(graph: Graph, rows: Int64) -> list[dict[str, Any]]:
    """Return the data of some nodes; their rows may be in any order."""
    refs = format_node_refs(graph, rows)
    sizes, collectives = _index_numbers(graph, "comm_size", rows), _index_numbers(graph, "comm_type", rows)
    entries = []
    for ref, row in zip(refs, rows.tolist(), strict=True):
        number = infer_counted_type(graph, row)
        name = graph.strings[int(graph.name[row])]
        shown = shorten_function_name(name)
        entries.append(
            {
                "id": ref,
                "label": label_node(shown or f"id {ref}", number, collectives.get(row), sizes.get(row)),
                "short": label_node_briefly(shown or ref, number, collectives.get(row)),
                "name": name,
                "type": _label_type(number, collectives.get(row)),
                "kind": get_look(number).kind,
                "bytes": format_bytes(sizes[row]) if row in sizes else "",
            }
        )
    return entries


def _build_edges(part: Part, places: Layout, refs: list[str]) -> list[dict[str, Any]]:
    before, after = (np.searchsorted(part.rows, rows) for rows in (part.edges.before, part.edges.after))
    # Edges of many rows or to another column would hide what lies under them: they are drawn faintly.
    far = (places.column[before] != places.column[after]) | (np.abs(places.y[after] - places.y[before]) > 3.5)
    drawn = []
    for this, other, is_data, is_far in zip(
        before.tolist(), after.tolist(), part.edges.is_data.tolist(), far.tolist(), strict=True
    ):
        dep = "data" if is_data else "ctrl"
        data = {"id": f"{refs[this]}>{refs[other]}:{dep}", "source": refs[this], "target": refs[other]}
        drawn.append({"group": "edges", "data": data | {"dep": dep, "far": int(is_far)}})
    return drawn


def _count_hidden(part: Part, near: Adjacency) -> Int64:
    """Return (N,) the number of dependencies of each node that lead out of the part."""
    degree = near.up[part.rows + 1] - near.up[part.rows] + near.down[part.rows + 1] - near.down[part.rows]
    drawn = np.zeros(len(part.rows), np.int64)
    for ends in (part.edges.before, part.edges.after):
        drawn += np.bincount(np.searchsorted(part.rows, ends), minlength=len(part.rows))
    return np.asarray(degree - drawn, np.int64)


def _index_numbers(graph: Graph, key: str, rows: Int64) -> dict[int, int]:
    """Return the values of an integer attribute, for nodes of a part that have it."""
    owners, values = read_int_column(graph, key, among=np.array(sorted(set(rows.tolist())), np.int64))
    return dict(zip(owners.tolist(), values.tolist(), strict=True))


def format_node_refs(graph: Graph, rows: Int64) -> list[str]:
    """Return the addresses of nodes: ids, with a count where ids repeat (see `analysis.job.node_refs.format_node_ref`)."""
    ids = graph.id[rows]
    same = np.flatnonzero(np.isin(graph.id, ids))
    order = same[np.lexsort((same, graph.id[same]))]
    sorted_ids = graph.id[order]
    starts = np.flatnonzero(np.append(True, sorted_ids[1:] != sorted_ids[:-1])) if len(order) else order
    again = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    number = dict(zip(order.tolist(), again.tolist(), strict=True))
    pairs = zip(ids.tolist(), (number[row] for row in rows.tolist()), strict=True)
    return [f"{number}.{count}" if count else str(number) for number, count in pairs]


def _label_type(number: int, collective: int | None) -> str:
    name = label_counted_type(number)
    return (
        f"{name} {label_collective(collective)}"
        if collective is not None and number == NodeType.COMM_COLL
        else name
    )


def label_node(name: str, number: int, collective: int | None = None, size: int | None = None) -> str:
    r"""Return the two-line text inside a node.

    Example:
        >>> label_node("mb0.transformer.1.mha.attn_kernel.dq@0_COMP", NodeType.COMP)
        '1.mha\nattn_kernel.dq'
        >>> label_node("mb0.transformer.0.mha.qkv@0_X1COMM", NodeType.COMM_COLL, 2, 4 * 2**20)
        'all-gather\n4.00 MiB'
    """
    last, rest = _take_last_levels(_split_levels(name), _LINE)
    what = label_communication(number, collective)
    if what:
        return f"{shorten(what, _LINE)}\n{last if size is None else format_bytes(size)}"
    first, _ = _take_last_levels(rest, _LINE)
    return f"{first}\n{last}" if first else last


def label_node_briefly(name: str, number: int, collective: int | None = None) -> str:
    """Return the one-line text inside a node at low zoom.

    Example:
        >>> label_node_briefly("mb0.transformer.1.mha.attn_kernel.dq@0_COMP", NodeType.COMP)
        'attn_….dq'
    """
    what = label_communication(number, collective)
    return (
        _ABBREVIATED.get(what, shorten(what, _SHORT_LINE + 1))
        if what
        else _take_last_levels(_split_levels(name), _SHORT_LINE)[0]
    )


def label_communication(number: int, collective: int | None) -> str:
    """Return the displayed name of a communication node, "" for other nodes."""
    if number == NodeType.COMM_COLL and collective is not None:
        return label_collective(collective).lower().replace("_", "-")
    return {int(NodeType.COMM_SEND): "send", int(NodeType.COMM_RECV): "receive"}.get(number, "")


_STG_SUFFIX = re.compile(r"@\d+_(?:COMP|X\d+_?COMM)$")
_SEPARATORS = re.compile(r"(?<=[./])|(?<=:)(?!:)")
"""Behind each separator; namespaces of C++ are set apart by two colons, which are one."""


def _split_levels(name: str) -> list[str]:
    """Return the levels of a hierarchical name, each with its separator."""
    # STG ends names with the kind of node, which colour and shape tell already.
    plain = _STG_SUFFIX.sub("", " ".join(name.split()))
    return [part for part in _SEPARATORS.split(plain) if part]


def _take_last_levels(parts: list[str], most: int) -> tuple[str, list[str]]:
    """Return as many of the last levels as fit on a line, and the levels before them."""
    for start in range(len(parts)):
        text = "".join(parts[start:]).rstrip("./:")
        if len(text) <= most:
            # A level such as "y" says nothing without a piece of the one above it.
            room = most - len(text) - 2
            if start and len(text) < _TELLING and room > 1:
                return f"{parts[start - 1][:room]}….{text}", parts[: start - 1]
            return text, parts[:start]
    return (shorten(parts[-1].rstrip("./:"), most), parts[:-1]) if parts else ("", [])


def shorten(text: str, most: int) -> str:
    """Return a text, cut in the middle if it is too long.

    Example:
        >>> shorten("convolution_backward_overrideable", 15)
        'convolu…ideable'
    """
    return text if len(text) <= most else f"{text[: most // 2]}…{text[len(text) - (most - most // 2 - 1) :]}"


def build_stylesheet(dark: bool) -> list[dict[str, Any]]:
    """Return the Cytoscape stylesheet of a theme."""
    colours = choose_palette(dark)
    looks = [*LOOKS.values(), OTHER]
    return [
        {"selector": "core", "style": {"active-bg-opacity": 0, "selection-box-opacity": 0}},
        {"selector": "node", "style": _build_node_style(colours)},
        *(
            {"selector": f'node[kind = "{node_look.kind}"]', "style": _build_kind_style(node_look, colours)}
            for node_look in looks
        ),
        {"selector": "node[hidden > 0]", "style": {"border-style": "dashed"}},
        {"selector": "edge", "style": _build_edge_style(colours)},
        {"selector": "edge[far = 1]", "style": {"opacity": 0.3, "width": 1}},
        *_build_block_styles(colours),
        {"selector": 'edge[dep = "ctrl"]', "style": {"line-style": "dashed", "line-dash-pattern": [5, 4]}},
        *_build_state_styles(colours),
    ]


def _build_node_style(colours: Palette) -> dict[str, Any]:
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "border-width": 1.5,
        "label": "data(label)",
        "color": colours.text,
        "font-family": _FONT,
        "font-size": 10.5,
        "line-height": 1.15,
        "text-wrap": "wrap",
        "text-max-width": 400,
        "text-valign": "center",
        "text-halign": "center",
        "min-zoomed-font-size": 6,
        "overlay-opacity": 0,
    }


def _build_kind_style(node_look: Look, colours: Palette) -> dict[str, Any]:
    colour = getattr(colours, node_look.colour)
    style = {
        "shape": node_look.shape,
        # What is drawn as faintly as lines are keeps an outline.
        "border-color": colours.dim if node_look.colour == "border" else colour,
        "background-color": mix(colour, colours.panel, 0.2),
    }
    if node_look.shape in ("tag", "concave-hexagon", *POLYGONS):
        style["width"] = WIDTH + 4
    if node_look.shape in POLYGONS:
        points = " ".join(f"{x:g} {y:g}" for x, y in POLYGONS[node_look.shape])
        style |= {"shape": "polygon", "shape-polygon-points": points}
    return style


def _build_block_styles(colours: Palette) -> list[dict[str, Any]]:
    """Return the styles of blocks, frames and the lines between them."""
    block = {
        "width": 172,
        "height": 52,
        "shape": "round-rectangle",
        "border-color": colours.dim,
        "border-width": 1.2,
        "background-color": colours.panel,
        "font-size": 12,
    }
    banded = {
        "background-fill": "linear-gradient",
        "background-gradient-direction": "to-right",
        "background-gradient-stop-colors": "data(colours)",
        "background-gradient-stop-positions": "data(stops)",
    }
    frame = {
        "width": "data(w)",
        "height": "data(h)",
        "shape": "round-rectangle",
        "border-color": colours.dim,
        "border-width": 0.8,
        "background-color": mix(colours.border, colours.background, 0.28),
        "text-valign": "top",
        "text-halign": "center",
        "text-margin-y": 20,
        "font-size": 12,
        "font-weight": "bold",
        "label": "data(name)",
        "text-wrap": "ellipsis",
        "text-max-width": "data(w)",
        "z-index": 0,
        "z-index-compare": "manual",
    }
    line = {
        "width": "data(lw)",
        "z-index": 1,
        "z-index-compare": "manual",
    }
    counted = {
        "label": "data(times)",
        "font-size": 10,
        "font-family": _FONT,
        "color": colours.dim,
        "text-background-color": colours.background,
        "text-background-opacity": 0.85,
        "text-background-padding": 1.5,
        "min-zoomed-font-size": 8,
    }
    return [
        {"selector": 'node[kind = "block"]', "style": block},
        {"selector": "node[stops]", "style": banded},
        {"selector": 'node[kind = "frame"]', "style": frame},
        {"selector": "edge[lw]", "style": line},
        {"selector": "edge[lw][far = 1]", "style": {"width": "data(lw)", "opacity": 0.4}},
        {"selector": "edge[times]", "style": counted},
        {"selector": "node[wd]", "style": {"width": "data(wd)"}},
    ]


def _build_edge_style(colours: Palette) -> dict[str, Any]:
    line = mix(colours.dim, colours.background, 0.75)
    return {
        "width": 1.3,
        "line-color": line,
        "target-arrow-color": line,
        "target-arrow-shape": "triangle",
        "arrow-scale": 0.8,
        "curve-style": "bezier",
        "overlay-opacity": 0,
        "events": "no",
    }


def _build_state_styles(colours: Palette) -> list[dict[str, Any]]:
    """Return the styles of selection, search hits and hover."""
    strong = {
        "line-color": colours.accent,
        "target-arrow-color": colours.accent,
        "opacity": 1,
        "width": 2.2,
        "z-index": 9,
    }
    hover = {"line-color": colours.text, "target-arrow-color": colours.text, "opacity": 1, "z-index": 8}
    hidden = {"opacity": 0.1}
    ring = {"outline-color": colours.accent, "outline-width": 3.5, "outline-offset": 2, "outline-opacity": 1}
    critical = {"line-color": colours.text, "target-arrow-color": colours.text, "opacity": 1, "width": 4.5}
    return [
        {"selector": "node[crit]", "style": {"border-color": colours.text, "border-width": 4}},
        {"selector": "edge[crit]", "style": {**critical, "z-index": 7}},
        {"selector": "node.cs-afar", "style": {"label": "data(short)", "font-size": 16}},
        {"selector": 'node.cs-afar[kind = "coll"]', "style": {"font-size": 14}},
        {"selector": "node.cs-afar[wd]", "style": {"text-wrap": "ellipsis", "text-max-width": "data(wd)"}},
        {"selector": "node.cs-off", "style": {"opacity": 0.6}},
        {"selector": "edge.cs-off", "style": {"opacity": 0.15}},
        {"selector": "node[crit].cs-off", "style": {"opacity": 0.85}},
        {"selector": "edge[crit].cs-off", "style": {"opacity": 0.6}},
        {"selector": "node.cs-hit", "style": {"opacity": 1, "border-width": 4, "font-weight": "bold"}},
        {"selector": "node.cs-near", "style": {"opacity": 1}},
        {"selector": "edge.cs-near", "style": strong},
        {"selector": "edge.cs-over", "style": hover},
        {"selector": "node.cs-over", "style": {"opacity": 1, "border-width": 3}},
        {"selector": "node.cs-on", "style": {"opacity": 1, "border-width": 2.5, "z-index": 10, **ring}},
        {"selector": ".cs-hidden", "style": hidden},
        # What is open lies below what it holds, selected or not.
        {"selector": 'node[kind = "frame"].cs-on', "style": {"z-index": 0}},
    ]


def mix(colour: str, ground: str, share: float) -> str:
    """Return a colour blended over a ground with opacity `share`.

    Example:
        >>> mix("#ff0000", "#000000", 0.5)
        '#800000'
    """
    parts = [
        (int(colour[offset : offset + 2], 16), int(ground[offset : offset + 2], 16)) for offset in (1, 3, 5)
    ]
    return "#" + "".join(f"{round(own * share + other * (1 - share)):02x}" for own, other in parts)
