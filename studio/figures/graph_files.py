"""Export the drawing of the Graph page as SVG, GraphML, DOT and CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

from studio.figures.graph import HEIGHT, LOOKS, OTHER, POLYGONS, WIDTH, Look, mix
from studio.figures.graph_colours import choose_ink, compute_hue_colour
from studio.figures.theme import Palette, choose_palette

FileKind = Literal["svg", "graphml", "dot", "csv"]
Element = dict[str, Any]
_Boxes = tuple[dict[str, tuple[float, float]], dict[str, tuple[float, float]]]
"""Middles and sizes of what is drawn, by its id."""

_MARGIN = 24
_LOOK = {known.kind: known for known in [*LOOKS.values(), OTHER]}
OUTLINES: dict[str, list[tuple[float, float]]] = {
    **POLYGONS,
    "tag": [(-1, -1), (0.5, -1), (1, 0), (0.5, 1), (-1, 1)],
    "concave-hexagon": [(-1, -1), (1, -1), (0.8, 0), (1, 1), (-1, 1), (-0.8, 0)],
    "cut-rectangle": [(-1, -0.6), (-0.9, -1), (0.9, -1), (1, -0.6), (1, 0.6), (0.9, 1), (-0.9, 1), (-1, 0.6)],
}
"""Corners of shapes, from -1 to 1."""
_COLUMNS = ("id", "name", "kind", "type", "count", "time", "bytes", "value")
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_drawing(kind: FileKind, elements: list[Element], *, dark: bool = False) -> str:
    """Return a drawing as a file of the given kind."""
    if kind == "svg":
        return render_svg(elements, dark=dark)
    return {"graphml": render_graphml, "dot": render_dot, "csv": render_csv}[kind](elements)


def _split(elements: list[Element]) -> tuple[list[Element], list[Element]]:
    nodes = [element for element in elements if element["group"] == "nodes"]
    return nodes, [element for element in elements if element["group"] == "edges"]


def render_csv(elements: list[Element]) -> str:
    """Return the nodes and blocks of a drawing as CSV."""
    text = io.StringIO()
    write = csv.writer(text, lineterminator="\n").writerow
    write(_COLUMNS)
    for node in _split(elements)[0]:
        write([_defuse_formula(node["data"].get(key, "")) for key in _COLUMNS])
    return text.getvalue()


def _defuse_formula(value: Any) -> Any:
    """Return a value that a spreadsheet does not read as a formula."""
    text = str(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def render_dot(elements: list[Element]) -> str:
    """Return a drawing for Graphviz, with fixed positions (`neato -n` keeps them)."""
    nodes, edges = _split(elements)
    lines = ["digraph chakra {", "  node [shape=box, fontname=Helvetica];"]
    for node in nodes:
        data = node["data"]
        if data["kind"] == "frame":
            continue
        position = f"{node['position']['x']:.0f},{-node['position']['y']:.0f}"
        lines.append(
            f"  {quote_dot(data['id'])} [label={quote_dot(data['label'])}, pos={quote_dot(position)}];"
        )
    for node in edges:
        data = node["data"]
        style = ["style=dashed"] if data["dep"] == "ctrl" else []
        style += [f"label={quote_dot(data['times'])}"] if "times" in data else []
        more = f" [{', '.join(style)}]" if style else ""
        lines.append(f"  {quote_dot(data['source'])} -> {quote_dot(data['target'])}{more};")
    return "\n".join([*lines, "}", ""])


def quote_dot(text: str) -> str:
    """Return a text as DOT quotes it."""
    plain = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\0", "")
    return f'"{plain}"'


def render_graphml(elements: list[Element]) -> str:
    """Return a drawing as GraphML, with the data of nodes and lines as attributes, and positions as x and y."""
    import networkx as nx

    network: nx.MultiDiGraph[str] = nx.MultiDiGraph()
    nodes, edges = _split(elements)
    for node in nodes:
        if node["data"]["kind"] != "frame":
            network.add_node(node["data"]["id"], **_clean_data(node["data"]), **node["position"])
    for node in edges:
        network.add_edge(node["data"]["source"], node["data"]["target"], **_clean_data(node["data"]))
    return "\n".join(nx.generate_graphml(network)) + "\n"


def _clean_data(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of an element that a file can hold, without characters that XML forbids."""
    keep = {key: value for key, value in data.items() if isinstance(value, str | int | float)}
    for key in ("id", "source", "target", "drawing", "hue", "short", "far", "lw", "wd", "inside"):
        keep.pop(key, None)
    return {key: clean_xml(value) if isinstance(value, str) else value for key, value in keep.items()}


def clean_xml(text: str) -> str:
    """Return a text without characters that XML forbids."""
    return _FORBIDDEN.sub("\ufffd", text)


# ---------------------------------------------------------------------------------------------------
# SVG


@dataclass(frozen=True, slots=True)
class Caption:
    """What is written above a drawing that stands alone.

    Attributes:
        title: Of what it is.
        words: What is drawn.
        kinds: Kinds of nodes, and how many of each.
        critical: Whether the critical path is marked.
    """

    title: str
    words: str
    kinds: Sequence[tuple[Look, int]]
    critical: bool = False


def render_svg(elements: list[Element], *, dark: bool, caption: Caption | None = None) -> str:
    """Return a drawing as SVG in a theme, with text as text; a caption brings a legend along."""
    colours = choose_palette(dark)
    nodes, edges = _split(elements)
    sizes = {node["data"]["id"]: get_size(node["data"]) for node in nodes}
    places = {node["data"]["id"]: (node["position"]["x"], node["position"]["y"]) for node in nodes}
    low_x = min((places[ref][0] - sizes[ref][0] / 2 for ref in places), default=0) - _MARGIN
    low_y = min((places[ref][1] - sizes[ref][1] / 2 for ref in places), default=0) - _MARGIN
    wide = max((places[ref][0] + sizes[ref][0] / 2 for ref in places), default=0) + _MARGIN - low_x
    high = max((places[ref][1] + sizes[ref][1] / 2 for ref in places), default=0) + _MARGIN - low_y
    line = mix(colours.dim, colours.background, 0.75)
    above: list[str] = []
    if caption:
        above, more, least = _draw_caption(caption, (low_x, low_y), wide, colours)
        low_y, high, wide = low_y - more, high + more, max(wide, least)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide:.0f}" height="{high:.0f}" '
            f'viewBox="{low_x:.1f} {low_y:.1f} {wide:.1f} {high:.1f}" font-family="system-ui, sans-serif">'
        ),
        f"<title>{_escape_text(caption.title) if caption else 'Graph of dependencies'}</title>",
        (
            f'<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
            f'<path d="M0 0L8 4L0 8z" fill="{line}"/></marker>'
            f'<marker id="c" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="2.8" markerHeight="2.8" orient="auto">'
            f'<path d="M0 0L8 4L0 8z" fill="{colours.text}"/></marker></defs>'
        ),
        f'<rect x="{low_x:.1f}" y="{low_y:.1f}" width="{wide:.1f}" height="{high:.1f}" fill="{colours.background}"/>',
    ]
    parts += above
    parts += [_draw_frame(node, colours) for node in nodes if node["data"]["kind"] == "frame"]
    # Of many lines that lead far each is fainter, so that what lies under them can be seen.
    faint = round(0.4 * max(min(1.0, (6000 / max(len(edges), 1)) ** 0.8), 0.03), 3)
    if len(edges) > _MANY_LINES:
        parts += _draw_far_lines(edges, (places, sizes), line, max(1.0, wide / 3000))
        edges = [edge for edge in edges if not _is_faint(edge["data"])]
    parts += [_draw_line(edge["data"], (places, sizes), line, colours, faint) for edge in edges]
    parts += [_draw_node(node, colours, dark) for node in nodes if node["data"]["kind"] != "frame"]
    return "\n".join([*parts, "</svg>", ""])


_LETTER = 6.1
"""Width of a letter of the legend, about, at the size of 11."""


def _draw_caption(
    caption: Caption, corner: tuple[float, float], wide: float, colours: Palette
) -> tuple[list[str], float, float]:
    """Return title, words and legend above a drawing, how much room they take, and how wide they are."""
    # Of a large drawing they can be read when it fills a screen.
    scale = min(max(wide / 1600, 1.0), 8.0)
    entries = [(f"{look.title} ({count:,})", look) for look, count in caption.kinds]
    marks: list[str] = []
    x, y = 0.0, 62.0
    room = max(wide / scale - 2 * _MARGIN, 420.0)

    def place_entry(length: float) -> float:
        nonlocal x, y
        if x and x + length > room:
            x, y = 0.0, y + 22
        here = x
        x += length + 18
        return here

    for words, look in entries:
        at = place_entry(34 + _LETTER * len(words))
        edge = getattr(colours, look.colour)
        style = f'fill="{mix(edge, colours.panel, 0.2)}" stroke="{edge}" stroke-width="1.4"'
        marks.append(_draw_shape(look.shape, at + 13, y, 26, 14, style))
        marks.append(
            f'<text x="{at + 32:.1f}" y="{y + 4:.1f}" font-size="11" fill="{colours.text}">{_escape_text(words)}</text>'
        )
    line = mix(colours.dim, colours.background, 0.75)
    lines = [
        ("data dependency", line, "1.3", ""),
        ("control dependency", line, "1.3", ' stroke-dasharray="5 4"'),
    ]
    lines += [("critical path", colours.text, "4", "")] if caption.critical else []
    for words, stroke, width, dash in lines:
        at = place_entry(40 + _LETTER * len(words))
        marks.append(
            f'<path d="M{at:.1f} {y:.1f}H{at + 30:.1f}" stroke="{stroke}" stroke-width="{width}"{dash} fill="none"/>'
        )
        marks.append(
            f'<text x="{at + 37:.1f}" y="{y + 4:.1f}" font-size="11" fill="{colours.text}">{words}</text>'
        )
    high = y + 26
    head = [
        f'<text x="0" y="16" font-size="16" font-weight="bold" fill="{colours.text}">{_escape_text(caption.title)}</text>',
        f'<text x="0" y="37" font-size="12" fill="{colours.dim}">{_escape_text(caption.words)}</text>',
    ]
    least = max(len(caption.title) * 9.0, len(caption.words) * 6.7, 440.0) + 2 * _MARGIN
    left, top = corner[0] + _MARGIN, corner[1] - high * scale + _MARGIN
    group = f'<g transform="translate({left:.1f} {top:.1f}) scale({scale:.3f})">'
    return [group, *head, *marks, "</g>"], high * scale, least * scale


def get_size(data: dict[str, Any]) -> tuple[float, float]:
    """Return width and height of a node, block or frame."""
    if data["kind"] == "frame":
        return data["w"], data["h"]
    wide, high = (172, 52) if data["kind"] == "block" else (WIDTH, HEIGHT)
    return data.get("wd", wide), high


def _draw_frame(node: Element, colours: Palette) -> str:
    wide, high = get_size(node["data"])
    x, y = node["position"]["x"], node["position"]["y"]
    fill = mix(colours.border, colours.background, 0.28)
    return (
        f'<rect x="{x - wide / 2:.1f}" y="{y - high / 2:.1f}" width="{wide:.1f}" height="{high:.1f}" rx="6" '
        f'fill="{fill}" stroke="{colours.dim}" stroke-width="0.8"/>'
        f'<text x="{x:.1f}" y="{y - high / 2 + 20:.1f}" text-anchor="middle" font-size="12" font-weight="bold" '
        f'fill="{colours.text}">{_escape_text(node["data"]["name"])}</text>'
    )


_MANY_LINES, _LINES_AT_ONCE = 20_000, 200
"""Of more lines those that lead far are drawn many at once and without heads: no viewer takes a hundred thousand elements."""


def _is_faint(data: dict[str, Any]) -> bool:
    return bool(data["far"]) and "crit" not in data and "times" not in data


def _draw_far_lines(edges: list[Element], boxes: _Boxes, colour: str, width: float) -> list[str]:
    """Return the lines that lead far, many in one path."""
    places, sizes = boxes
    drawn = []
    for dep, dash in (("data", ""), ("ctrl", ' stroke-dasharray="5 4"')):
        bits = []
        for edge in edges:
            data = edge["data"]
            if data["dep"] == dep and _is_faint(data):
                this, other = data["source"], data["target"]
                x1, y1 = _find_border(places[this], sizes[this], places[other])
                x2, y2 = _find_border(places[other], sizes[other], places[this])
                bits.append(f"M{x1:.0f} {y1:.0f}L{x2:.0f} {y2:.0f}")
        style = f'stroke="{colour}" fill="none" stroke-width="{width:.1f}" opacity="0.06"{dash}'
        drawn += [
            f'<path d="{"".join(bits[at : at + _LINES_AT_ONCE])}" {style}/>'
            for at in range(0, len(bits), _LINES_AT_ONCE)
        ]
    return drawn


def _draw_line(
    data: dict[str, Any],
    boxes: _Boxes,
    colour: str,
    colours: Palette,
    faint: float,
) -> str:
    places, sizes = boxes
    this, other = data["source"], data["target"]
    x1, y1 = _find_border(places[this], sizes[this], places[other])
    x2, y2 = _find_border(places[other], sizes[other], places[this])
    critical = "crit" in data
    head = "c" if critical else "a"
    dash = ' stroke-dasharray="5 4"' if data["dep"] == "ctrl" else ""
    faded = f' opacity="{faint}"' if data["far"] and not critical else ""
    drawn = (
        f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{colours.text if critical else colour}" fill="none" '
        f'stroke-width="{4 if critical else data.get("lw", 1.3)}" marker-end="url(#{head})"{dash}{faded}/>'
    )
    if "times" in data:
        drawn += (
            f'<text x="{(x1 + x2) / 2 + 4:.1f}" y="{(y1 + y2) / 2:.1f}" font-size="10" '
            f'fill="{colours.dim}">{data["times"]}</text>'
        )
    return drawn


def _find_border(
    middle: tuple[float, float], size: tuple[float, float], towards: tuple[float, float]
) -> tuple[float, float]:
    """Return where a line from the centre of a box towards a point leaves the box."""
    dx, dy = towards[0] - middle[0], towards[1] - middle[1]
    if not dx and not dy:
        return middle
    scale = min(size[0] / 2 / abs(dx) if dx else 1e9, size[1] / 2 / abs(dy) if dy else 1e9)
    return middle[0] + dx * scale, middle[1] + dy * scale


def _draw_node(node: Element, colours: Palette, dark: bool) -> str:
    data = node["data"]
    x, y = node["position"]["x"], node["position"]["y"]
    wide, high = get_size(data)
    look = _LOOK.get(data["kind"], OTHER)
    edge = colours.dim if data["kind"] == "block" else getattr(colours, look.colour)
    fill, text = mix(edge, colours.panel, 0.2), colours.text
    if "hue" in data:
        hue = compute_hue_colour(data["hue"], colours, dark)
        fill = mix(hue, colours.panel, 0.3) if data["hue"][0] == "c" else hue
        edge, text = (hue if data["hue"][0] == "c" else colours.dim), choose_ink(fill)
    stroke = (
        f'stroke="{colours.text}" stroke-width="4"'
        if "crit" in data
        else f'stroke="{edge}" stroke-width="1.4"'
    )
    drawn = ""
    if "centre" in data:
        ring = f'fill="none" stroke="{colours.accent}" stroke-width="3"'
        drawn = _draw_shape(look.shape, x, y, wide + 10, high + 10, ring)
    if data["kind"] == "block" and "hue" not in data:
        fill = "none"
        drawn += _draw_bands(data["parts"], x - wide / 2, y - high / 2, wide, high, colours)
    drawn += _draw_shape(
        look.shape if data["kind"] != "block" else "", x, y, wide, high, f'fill="{fill}" {stroke}'
    )
    lines = data["label"].split("\n")
    size = 12 if data["kind"] == "block" else 10.5
    for index, line in enumerate(lines):
        down = y + (index - (len(lines) - 1) / 2) * size * 1.15 + size * 0.35
        drawn += f'<text x="{x:.1f}" y="{down:.1f}" text-anchor="middle" font-size="{size}" fill="{text}">{_escape_text(line)}</text>'
    crossing = f": critical path {data['crossing']}" if "crossing" in data else ""
    return f"<g><title>{_escape_text((data['name'] or data['id']) + crossing)}</title>{drawn}</g>"


def _draw_shape(shape: str, x: float, y: float, wide: float, high: float, style: str) -> str:
    if shape == "ellipse":
        return f'<ellipse cx="{x:.1f}" cy="{y:.1f}" rx="{wide / 2:.1f}" ry="{high / 2:.1f}" {style}/>'
    if shape in OUTLINES:
        points = " ".join(f"{x + px * wide / 2:.1f},{y + py * high / 2:.1f}" for px, py in OUTLINES[shape])
        return f'<polygon points="{points}" {style}/>'
    return f'<rect x="{x - wide / 2:.1f}" y="{y - high / 2:.1f}" width="{wide:.1f}" height="{high:.1f}" rx="5" {style}/>'


def _draw_bands(
    parts: list[tuple[str, float]], x: float, y: float, wide: float, high: float, colours: Palette
) -> str:
    bands, offset = [], 0.0
    for kind, share in parts:
        fill = mix(getattr(colours, _LOOK.get(kind, OTHER).colour), colours.panel, 0.24)
        bands.append(
            f'<rect x="{x + offset * wide:.1f}" y="{y:.1f}" width="{share * wide:.1f}" height="{high:.1f}" fill="{fill}"/>'
        )
        offset += share
    return "".join(bands)


def _escape_text(text: str) -> str:
    return escape(clean_xml(text))


SAID: dict[FileKind, str] = {
    "svg": "image/svg+xml",
    "graphml": "application/graphml+xml",
    "dot": "text/vnd.graphviz",
    "csv": "text/csv",
}
"""Media types."""
