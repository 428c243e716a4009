"""Write the graph of a rank as one self-contained HTML page with zoom, search and the attributes of each node."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from studio.figures.graph import LOOKS, OTHER, mix
from studio.figures.graph_files import OUTLINES, Caption, get_size
from studio.figures.rank_graph import RankGraph
from studio.figures.theme import Palette, choose_palette
from studio.trace import Graph, Rank, list_node_attributes
from studio.units import format_ns

_TEMPLATE = Path(__file__).with_name("graph_page.html")
_LONGEST = 600
"""Letters of a value that the page shows; the whole text is in the trace."""
_KINDS = [*LOOKS.values(), OTHER]


def render_graph_page(drawn: RankGraph, graph: Graph, rank: Rank, caption: Caption) -> str:
    """Return a drawing as a page.

    Args:
        drawn: The drawing.
        graph: The graph it is of.
        rank: The rank.
        caption: What is said above it.
    """
    nodes = [element for element in drawn.elements if element["group"] == "nodes"]
    shown = [node for node in nodes if node["data"]["kind"] != "frame"]
    number = {node["data"]["id"]: index for index, node in enumerate(shown)}
    kinds = {look.kind: index for index, look in enumerate(_KINDS)} | {"block": len(_KINDS)}
    data = {
        "title": caption.title,
        "words": caption.words,
        "critical": caption.critical,
        "centre": next((index for index, node in enumerate(shown) if "centre" in node["data"]), -1),
        "legend": [[look.kind, look.title, count] for look, count in caption.kinds],
        "kinds": [*({"kind": look.kind, "shape": look.shape} for look in _KINDS), {"kind": "block", "shape": ""}],
        "outlines": OUTLINES,
        "colours": {"light": _collect_colours(choose_palette(False)), "dark": _collect_colours(choose_palette(True))},
        "frames": [_build_frame(node) for node in nodes if node["data"]["kind"] == "frame"],
        "nodes": [
            _build_node(node, kinds, _list_attributes(node["data"], graph, rank, rows.tolist()))
            for node, rows in zip(shown, drawn.rows, strict=True)
        ],
        "lines": [_build_line(element["data"], number) for element in drawn.elements if element["group"] == "edges"],
    }  # fmt: skip
    # Within a script no text may look like its end, or like a comment.
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c").replace("&", "\\u0026")
    before, after = _TEMPLATE.read_text(encoding="utf-8").split("@DATA@")
    return before.replace("@TITLE@", escape(caption.title)) + text + after


def _collect_colours(colours: Palette) -> dict[str, Any]:
    kinds = {
        look.kind: [getattr(colours, look.colour), mix(getattr(colours, look.colour), colours.panel, 0.2)]
        for look in _KINDS
    }
    return {
        "background": colours.background,
        "text": colours.text,
        "dim": colours.dim,
        "accent": colours.accent,
        "line": mix(colours.dim, colours.background, 0.75),
        "frame": mix(colours.border, colours.background, 0.28),
        "kinds": kinds | {"block": [colours.dim, colours.panel]},
    }


def _build_frame(node: dict[str, Any]) -> dict[str, Any]:
    data = node["data"]
    return {**node["position"], "w": data["w"], "h": data["h"], "name": data["name"]}


def _build_node(node: dict[str, Any], kinds: dict[str, int], attrs: list[list[str]]) -> dict[str, Any]:
    data = node["data"]
    wide, high = get_size(data)
    drawn = {
        **node["position"],
        "w": wide,
        "h": high,
        "k": kinds[data["kind"]],
        "l": data["label"],
        "id": data["id"],
        "name": data["name"],
        "type": data.get("type", ""),
        "attrs": attrs,
    }
    if data["kind"] == "block":
        drawn |= {"b": 1, "parts": data["parts"]}
    return drawn | ({"p": 1} if "crit" in data else {})


def _list_attributes(data: dict[str, Any], graph: Graph, rank: Rank, rows: list[int]) -> list[list[str]]:
    """Return what a node or block says, as names and texts."""
    if data["kind"] == "block":
        facts = {"nodes": f"{data['count']:,}", "time": data["time"], "bytes": data["bytes"]}
        return [[name, value] for name, value in facts.items() if value]
    [row] = rows
    facts = {"id": str(int(graph.id[row])), "type": data["type"]}
    if graph.start_ns[row] >= 0:
        facts["start"] = format_ns(int(graph.start_ns[row]))
    if graph.duration_ns[row]:
        facts["duration"] = format_ns(int(graph.duration_ns[row]))
    if "crossing" in data:
        facts["critical path"] = data["crossing"]
    pairs = [[name, value] for name, value in facts.items()]
    if len(graph.io):
        for name, code in zip(
            ("inputs", "shapes", "types", "outputs", "shapes", "types"), graph.io[row].tolist(), strict=True
        ):
            pairs += [[name, _shorten_text(graph.strings[code])]] if code >= 0 else []
    pairs += [
        [attr.name, _shorten_text(_format_value(attr.value))]
        for attr in list_node_attributes(graph, row, rank.slots)
    ]
    return pairs


def _format_value(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return ", ".join(map(_format_value, value)) if isinstance(value, list) else str(value)


def _shorten_text(text: str) -> str:
    more = len(text) - _LONGEST
    return text if more <= 0 else f"{text[:_LONGEST]}… ({more:,} more letters)"


def _build_line(data: dict[str, Any], number: dict[str, int]) -> dict[str, Any]:
    line: dict[str, Any] = {"s": number[data["source"]], "t": number[data["target"]]}
    if data["dep"] == "ctrl":
        line["c"] = 1
    if data["far"]:
        line["f"] = 1
    if "crit" in data:
        line["p"] = 1
    return line | ({"n": data["times"]} if "times" in data else {})
