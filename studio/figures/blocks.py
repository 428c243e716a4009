"""Cytoscape elements of a folded graph: blocks, frames around open ones, single nodes, and lines with counts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from studio.analysis.graph.blocks import Block, BlockTree, Folded, Path
from studio.analysis.graph.layout import Layout, compute_layered_layout
from studio.figures.graph import (
    HEIGHT,
    STEP_X,
    STEP_Y,
    WIDTH,
    build_node_data,
    compute_layer_span,
    get_look,
    shorten,
)
from studio.trace import Float64, Graph, Int32, Int64
from studio.units import format_bytes, format_count, format_counted, format_ns

BLOCK_WIDTH, BLOCK_HEIGHT = 172, 52
_BLOCK_STEP_X, _BLOCK_STEP_Y = 200, 84
_FRAME_TOP, _FRAME_SIDE = 34, 16
_COLUMN_GAP = 60
_NAME, _SHORT_NAME = 24, 16
"""Characters of a block's name that fit, in a label and in the larger print of a short label."""
_CALLS, _TO = " › ", " to "
"""What stands in the names of blocks between calls, and between the ends of a run."""
_END = 8
"""Characters from which on an end of a run can be told from others."""
_LIBRARY = re.compile(r"^.*(?:::|: )(?=.)")
"""What stands before the name of an operator or of a gradient: its library, and what evaluates it."""
_END_WORD = re.compile(r"[\w:]*$")
"""The last word of a text, which may go on in another way."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in the drawing, in pixels at zoom 1; x and y are its upper left corner."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> dict[str, float]:
        """The centre, which Cytoscape positions by."""
        return {"x": round(self.x + self.width / 2, 1), "y": round(self.y + self.height / 2, 1)}


@dataclass(frozen=True, slots=True)
class Weights:
    """Values that blocks sum up.

    N nodes.

    Attributes:
        type: (N,) types of nodes as they are shown.
        busy_ns: (N,) how long each node ran, 0 where that is not known.
        bytes: (N,) what it communicates.
        layer: (N,) how deep it lies.
        layers: The least and the greatest layer.
    """

    type: Int32
    busy_ns: Int64
    bytes: Int64
    layer: Int64
    layers: tuple[int, int]


def arrange(tree: BlockTree, folded: Folded, layouts: dict[Path, Layout]) -> dict[Path, Box]:
    """Return the position of every block and frame.

    What is closed stands where it always stands among its neighbours; what is open pushes those right of it and those
    below it away by what it is larger, so that closing it gives the same drawing as before.

    Args:
        tree: The blocks.
        folded: Which of them are open.
        layouts: What was worked out before, by block; filled in.
    """
    opened = {frame.path for frame in folded.frames}
    boxes: dict[Path, Box] = {}

    def measure(block: Block) -> tuple[float, float, list[tuple[Block, Box]]]:
        children = tree.children(block).blocks
        sizes: list[tuple[float, float]] = []
        inner: dict[Path, list[tuple[Block, Box]]] = {}
        for child in children:
            if child.path in opened:
                wide, high, inside = measure(child)
                inner[child.path] = inside
                sizes.append((wide + 2 * _FRAME_SIDE, high + _FRAME_TOP + _FRAME_SIDE))
            else:
                sizes.append((WIDTH, HEIGHT) if child.is_node else (BLOCK_WIDTH, BLOCK_HEIGHT))
        placed = _pack(
            _lay_out_block(tree, block, layouts), sizes, all(child_block.is_node for child_block in children)
        )
        boxes: list[tuple[Block, Box]] = []
        for child, box in zip(children, placed, strict=True):
            boxes.append((child, box))
            boxes += [
                (
                    inner_block,
                    Box(
                        box.x + _FRAME_SIDE + inner_box.x,
                        box.y + _FRAME_TOP + inner_box.y,
                        inner_box.width,
                        inner_box.height,
                    ),
                )
                for inner_block, inner_box in inner.get(child.path, ())
            ]
        wide = max((box.x + box.width for box in placed), default=0.0)
        return wide, max((box.y + box.height for box in placed), default=0.0), boxes

    for block, box in measure(tree.root)[2]:
        boxes[block.path] = box
    return boxes


def _lay_out_block(tree: BlockTree, block: Block, layouts: dict[Path, Layout]) -> Layout:
    layout = layouts.get(block.path)
    if layout is None:
        children = tree.children(block)
        first = np.array([tree.first_place(child) for child in children.blocks], np.int64)
        # Lines may lead both ways: what comes first stands above, and what leads back goes upwards.
        down = first[children.before] < first[children.after]
        steps = (
            (STEP_X, STEP_Y)
            if all(child.is_node for child in children.blocks)
            else (_BLOCK_STEP_X, _BLOCK_STEP_Y)
        )
        layout = compute_layered_layout(
            len(children.blocks),
            children.before[down],
            children.after[down],
            aspect=16 / 9 * steps[1] / steps[0],
        )
        layouts[block.path] = layout
    return layout


def _pack(layout: Layout, sizes: Sequence[tuple[float, float]], small: bool) -> list[Box]:
    """Return the boxes of things of various sizes, laid out as if they were of one size."""
    step_x, step_y, wide, high = (
        (STEP_X, STEP_Y, WIDTH, HEIGHT)
        if small
        else (_BLOCK_STEP_X, _BLOCK_STEP_Y, BLOCK_WIDTH, BLOCK_HEIGHT)
    )
    boxes = [Box(0, 0, 0, 0)] * len(sizes)
    left = 0.0
    # Not np.unique, which imports masked arrays where it is asked for nothing more.
    for column in sorted(set(layout.column.tolist())):
        members = np.flatnonzero(layout.column == column)
        origin, top, right = float(layout.x[members].min()), 0.0, left
        for row in sorted(set(layout.y[members].tolist())):
            here = members[layout.y[members] == row]
            pushed, tallest = 0.0, float(high)
            for index in here[np.argsort(layout.x[here], kind="stable")].tolist():
                width, height = sizes[index]
                # A single node stands in the middle of the room that a block would take.
                inset = max(0.0, (wide - width) / 2)
                x = left + (layout.x[index] - origin) * step_x + pushed + inset
                boxes[index] = Box(x, top + max(0.0, (high - height) / 2), width, height)
                pushed += max(0.0, width - wide)
                tallest, right = max(tallest, height), max(right, x + width + inset)
            top += tallest + step_y - high
        left = right + _COLUMN_GAP
    return boxes


def format_block_ref(path: Path) -> str:
    """Return the address of a block, also used in the drawing."""
    return ".".join(map(str, path))


def build_folded_elements(
    graph: Graph,
    tree: BlockTree,
    folded: Folded,
    weights: Weights,
    kept: tuple[dict[Path, Layout], dict[Path, Figures]],
) -> list[dict[str, Any]]:
    """Return frames, blocks, nodes and lines for Cytoscape.

    Blocks have the data `id` ("b" and their path), `block` (their path), `name`, `label`, `short`, `count`, `time` and
    `bytes` (texts), `parts` (kind and share of each kind of nodes) and `m` (where their layers begin and end, as parts of
    all layers); frames likewise with `id` "f" and their path, `w` and `h`; lines `times` (dependencies, a text) and `lw`.

    Args:
        graph: The graph.
        tree: Its blocks.
        folded: Which of them are open.
        weights: What blocks add up.
        kept: Layouts and figures that were worked out before, by block; filled in. Figures are of these weights.
    """
    layouts, known = kept
    boxes = arrange(tree, folded, layouts)
    rows = np.array([shown_block.rows[0] for shown_block in folded.shown if shown_block.is_node], np.int64)
    singles = iter(build_node_data(graph, rows))

    def describe(block: Block) -> dict[str, Any]:
        if block.path not in known:
            known[block.path] = sum_figures(block, weights)
        return _build_block_data(block, known[block.path])

    elements: list[dict[str, Any]] = []
    for frame in folded.frames:
        box = boxes[frame.path]
        data = describe(frame) | {"id": f"f{format_block_ref(frame.path)}", "kind": "frame"}
        data["short"] = data["short"].partition("\n")[0]  # their head is a line high
        data |= {"w": round(box.width, 1), "h": round(box.height, 1)}
        elements.append({"group": "nodes", "data": data, "position": box.middle, "selectable": False})
    ids = []
    for block in folded.shown:
        data = (
            next(singles) | {"hidden": 0, "m": compute_layer_span(weights.layer, block.rows, weights.layers)}
            if block.is_node
            else describe(block)
        )
        data["inside"] = format_block_ref(block.path[:-1])
        elements.append({"group": "nodes", "data": data, "position": boxes[block.path].middle})
        ids.append(data["id"])
    _tell_apart([element["data"] for element in elements if "block" in element["data"]])
    return elements + _build_lines(folded, ids, [boxes[drawn_block.path] for drawn_block in folded.shown])


@dataclass(frozen=True, slots=True)
class Figures:
    """The sums of a block, as shown in the drawing.

    Attributes:
        parts: Kinds of nodes with their shares, the largest first.
        time_ns, bytes: Sums over its nodes.
        span: Where its layers begin and end, as parts of all layers.
    """

    parts: list[list[Any]]
    time_ns: int
    bytes: int
    span: list[float]


def sum_figures(block: Block, weights: Weights) -> Figures:
    """Return the sums of a block."""
    kinds, count = np.unique(weights.type[block.rows], return_counts=True)
    return Figures(
        _compute_shares(kinds, count),
        int(weights.busy_ns[block.rows].sum()),
        int(weights.bytes[block.rows].sum()),
        compute_layer_span(weights.layer, block.rows, weights.layers),
    )


def _build_block_data(block: Block, figures: Figures) -> dict[str, Any]:
    time_ns, in_bytes = figures.time_ns, figures.bytes
    figures_shown = [format_ns(time_ns)] if time_ns else []
    name = " ".join(block.name.split())
    counted = format_counted(len(block.rows), "node")
    return {
        "id": f"b{format_block_ref(block.path)}",
        "block": format_block_ref(block.path),
        "kind": "block",
        "name": block.name,
        "label": f"{_fit_name(name, _NAME)}\n{' · '.join([counted, *figures_shown])}",
        # Of a run only the first end may have room: many begin alike, and their counts tell them apart.
        "short": f"{_fit_name(name, _SHORT_NAME)}\n{counted}",
        "count": len(block.rows),
        "time": format_ns(time_ns) if time_ns else "",
        "bytes": format_bytes(in_bytes) if in_bytes else "",
        "parts": figures.parts,
        "m": figures.span,
    }


def _fit_name(name: str, most: int) -> str:
    """Return the name of a block as it fits: without the calls around it, then without libraries, of a run both ends.

    Example:
        >>> _fit_name("ProfilerStep#6 › aten::dropout to aten::scaled_dot_product_attention", 24)
        'dropout to scaled…ention'
        >>> _fit_name("autograd::engine::evaluate_function: AddmmBackward0", 16)
        'AddmmBackward0'
    """
    if len(name) <= most:
        return name
    name = name.rpartition(_CALLS)[2]
    if len(name) <= most:
        return name
    ends = [_LIBRARY.sub("", end) or end for end in name.split(_TO, 1)]
    if len(ends) == 1:
        return shorten(ends[0], most)
    low, high = ends
    room = most - len(_TO)
    if room < 2 * _END:
        return f"{shorten(low, room - 1)}{_TO}…"
    first = min(len(low), max(room // 2, room - len(high)))
    return f"{shorten(low, first)}{_TO}{shorten(high, room - first)}"


def _tell_apart(blocks: Sequence[dict[str, Any]]) -> None:
    """Let the labels of blocks side by side that look alike say what tells these apart: where their names differ, else which of them it is."""
    for key, most in (("label", _NAME), ("short", _SHORT_NAME)):
        alike: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for data in sorted(blocks, key=lambda data: [int(part) for part in data["block"].split(".")]):
            shown = data[key].partition("\n")[0]
            alike.setdefault((data["block"].rpartition(".")[0], shown), []).append(data)
        for (_, shown), group in alike.items():
            if len({data["count"] for data in group}) == len(group):
                continue  # How many nodes they have tells.
            names = _distinguish_names([" ".join(data["name"].split()) for data in group], shown, most)
            for data, name in zip(group, names, strict=True):
                data[key] = name + data[key][len(shown) :]


def _distinguish_names(names: Sequence[str], shown: str, most: int) -> list[str]:
    """Return a text for each of several names that are shown alike, none equal to another.

    Example:
        >>> _distinguish_names(["aten::add to aten::mm", "aten::add to aten::sum"], "add to …", 16)
        ['add…mm', 'add…sum']
        >>> _distinguish_names(["aten::as_strided"] * 2, "aten::as_strided", 16)
        ['as_strided #1', 'as_strided #2']
    """
    begin = shown.removesuffix(f"{_TO}…")
    parts = [_LIBRARY.sub("", part) for part in _cut_common(names)]
    texts = [f"{shorten(begin, most - len(part) - 1)}…{part}" for part in parts if 0 < len(part) <= most // 2]
    if len(set(texts)) == len(names):
        return texts
    marks = [f" #{number}" for number in range(1, len(names) + 1)]
    room = most - len(marks[-1])
    begin = begin if len(begin) <= room else _LIBRARY.sub("", begin)
    if room >= 2 * _END + len(_TO):  # Both ends of a run have room.
        return [f"{_fit_name(name, room)}{mark}" for name, mark in zip(names, marks, strict=True)]
    return [f"{shorten(begin, room)}{mark}" for mark in marks]


def _cut_common(names: Sequence[str]) -> list[str]:
    """Return what of names lies between the words that all begin with and those that all end with."""
    first = _END_WORD.sub("", _find_common_start(names))
    rest = [name[len(first) :] for name in names]
    last = _END_WORD.sub("", _find_common_start([name[::-1] for name in rest]))
    return [name[: len(name) - len(last)] for name in rest]


def _find_common_start(texts: Sequence[str]) -> str:
    low, high = min(texts), max(texts)
    return next((low[:place] for place, letter in enumerate(low) if high[place : place + 1] != letter), low)


def _compute_shares(kinds: Int32, count: Int64) -> list[list[Any]]:
    """Return the kinds of nodes in a block with their shares, the largest first."""
    total: dict[str, int] = {}
    for number, nodes in zip(kinds.tolist(), count.tolist(), strict=True):
        if nodes:
            total[get_look(number).kind] = total.get(get_look(number).kind, 0) + nodes
    whole = sum(total.values())
    return [
        [name, round(nodes / whole, 4)] for name, nodes in sorted(total.items(), key=lambda item: -item[1])
    ]


def _build_lines(folded: Folded, ids: list[str], boxes: list[Box]) -> list[dict[str, Any]]:
    lines = []
    widths = _compute_widths(folded.count)
    for this, other, count, data_count, width in zip(
        folded.before.tolist(),
        folded.after.tolist(),
        folded.count.tolist(),
        folded.data_count.tolist(),
        widths.tolist(),
        strict=True,
    ):
        back = boxes[other].y < boxes[this].y
        apart = folded.shown[this].path[:-1] != folded.shown[other].path[:-1]
        data = {
            "id": f"{ids[this]}>{ids[other]}",
            "source": ids[this],
            "target": ids[other],
            "dep": "data" if data_count else "ctrl",
            "far": int(back or apart),
            "lw": width,
        }
        if count > 1:
            data["times"] = format_count(count)
        lines.append({"group": "edges", "data": data})
    return lines


def _compute_widths(count: Int64) -> Float64:
    """Return (L,) the widths of lines: the logarithm of the number of dependencies."""
    width: Float64 = np.round(1.2 + 0.55 * np.log10(np.maximum(count, 1)), 2)
    return width
