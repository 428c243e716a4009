"""Draw the network of a system: NPUs, switches and links, folded where there are many.

The drawing is a list of shapes without colours: the browser makes SVG of them, and the stylesheet gives each class its
colour in either theme. Dimension 0 lies nearest the NPU. One dimension is drawn as the circle or the star that it is;
several are nested, dimension 0 as a row of NPUs, dimension 1 as rows below each other, dimension 2 beside each other
again, and so on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from studio.sim.config import Dimension, Topology
from studio.units import format_count, format_ns, format_rate

_NPU, _GAP, _PAD = 16.0, 10.0, 8.0
_BAR = 9.0
_ALL_ON_CIRCLE = 32
_ROOM = ((16, 6), (8, 3))
_LITTLE_ROOM = ((8, 3), (4, 2), (4, 2))
"""Per nested dimension of a few, or of three and more: how many are drawn, and of more than that how many before the gap."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape of the drawing, in its own units, y downwards.

    Attributes:
        kind: "rect", "line", "path" or "text".
        at: x, y, width and height of a rect; x1, y1, x2, y2 of a line; x, y of a text; nothing of a path.
        look: Class that gives it its colour.
        width: Width of its line; 0 is the class's own.
        d: The path.
        text: What a text says.
        title: What is said when it is pointed at.
    """

    kind: str
    at: tuple[float, ...] = ()
    look: str = ""
    width: float = 0.0
    d: str = ""
    text: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A drawing of `width` × `height`, with a sentence that describes it."""

    width: float
    height: float
    shapes: tuple[Shape, ...]
    sentence: str


@dataclass(frozen=True, slots=True)
class _Block:
    width: float
    height: float
    shapes: tuple[Shape, ...]


def draw_topology(topology: Topology) -> Drawing:
    """Draw a network.

    Example:
        >>> drawing = draw_topology(Topology((Dimension("ring", 4, 50.0, 500.0),)))
        >>> sum(shape.kind == "rect" for shape in drawing.shapes), drawing.sentence
        (4, '4 NPUs in a ring')
    """
    dims = topology.dims
    widths = _compute_widths(dims)
    if len(dims) == 1 and dims[0].kind != "switch":
        block = _draw_circle(dims[0], widths[0])
    else:
        block = _draw_npu()
        stride = 1
        for level, dim in enumerate(dims):
            block = _nest(block, dim, level, (widths[level], stride), _choose_room(len(dims), level))
            stride *= dim.size
    margin = 4.0
    shapes = tuple(move_shape(shape, margin, margin) for shape in block.shapes)
    return Drawing(block.width + 2 * margin, block.height + 2 * margin, shapes, describe_topology(topology))


def describe_topology(topology: Topology) -> str:
    """Describe a network in words, the innermost dimension first.

    Example:
        >>> dims = Dimension("switch", 8, 400.0), Dimension("ring", 4, 50.0)
        >>> describe_topology(Topology(dims))
        '8 NPUs behind a switch; 4 of these in a ring: 32 NPUs'
    """
    how = {"ring": "in a ring", "fully_connected": "fully connected", "switch": "behind a switch"}
    parts = [
        f"{format_count(dim.size)} {'NPUs' if level == 0 else 'of these'} {how[dim.kind]}"
        for level, dim in enumerate(topology.dims)
    ]
    return "; ".join(parts) + f": {format_count(topology.npus)} NPUs" if len(parts) > 1 else parts[0]


def describe_links(dim: Dimension, level: int) -> str:
    """Describe the links of a dimension in words; no latency where it is 0, as beside the costs of a library, which hold it."""
    what = {"ring": "ring", "fully_connected": "fully connected", "switch": "switch"}[dim.kind]
    latency = f" and {format_ns(dim.latency_ns)}" if dim.latency_ns else ""
    return f"dimension {level}: {what} of {format_count(dim.size)}, {format_rate(dim.bytes_per_ns)}{latency} per link"


def _compute_widths(dims: Sequence[Dimension]) -> list[float]:
    """Return line widths: twice the bandwidth is half a unit wider, within visible limits."""
    least = min(dim.bytes_per_ns for dim in dims)
    return [min(1.2 + 0.5 * math.log2(dim.bytes_per_ns / least), 4.0) for dim in dims]


def _draw_npu() -> _Block:
    return _Block(_NPU, _NPU, (Shape("rect", (0, 0, _NPU, _NPU), "sim-npu", title="NPU"),))


def move_shape(shape: Shape, x: float, y: float) -> Shape:
    """Return a shape elsewhere, further by `x` and `y`."""
    if shape.kind == "path":
        words = shape.d.split(" ")
        path, horizontal = [], True
        for word in words:
            if word.isalpha():
                path.append(word)
                continue
            path.append(f"{float(word) + (x if horizontal else y):.1f}")
            horizontal = not horizontal
        return replace(shape, d=" ".join(path))
    if shape.kind == "line":
        x1, y1, x2, y2 = shape.at
        return replace(shape, at=(x1 + x, y1 + y, x2 + x, y2 + y))
    return replace(shape, at=(shape.at[0] + x, shape.at[1] + y, *shape.at[2:]))


# ---------------------------------------------------------------------------------------------------
# One dimension


def _draw_circle(dim: Dimension, width: float) -> _Block:
    """Draw a ring as a circle, and a fully connected dimension as a circle with chords."""
    count = min(dim.size, _ALL_ON_CIRCLE)
    folded = dim.size > count
    places = count + 2 if folded else count
    radius = max(46.0, places * (_NPU + 8) / (2 * math.pi))
    centre = radius + _NPU / 2
    link, title = "sim-link sim-dim-0", describe_links(dim, 0)

    def compute_point(index: int) -> tuple[float, float]:
        # The gap of a folded circle is at the bottom, where its label has room.
        angle = math.pi / 2 + 2 * math.pi * (index + (1.5 if folded else 0)) / places
        return centre + radius * math.cos(angle), centre + radius * math.sin(angle)

    points = [compute_point(index) for index in range(count)]
    shapes: list[Shape] = []
    if dim.kind == "ring":
        pairs = [(index, index + 1) for index in range(count - 1)] + (
            [(count - 1, 0)] if not folded and count > 2 else []
        )
    else:
        pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    for a, b in pairs:
        thin = width if dim.kind == "ring" or count <= 12 else 0.5
        shapes.append(Shape("line", (*points[a], *points[b]), link, thin, title=title))
    if folded and dim.kind == "ring":
        for end, beside in ((points[0], compute_point(-1)), (points[-1], compute_point(count))):
            middle = (end[0] + beside[0]) / 2, (end[1] + beside[1]) / 2
            shapes.append(Shape("line", (*end, *middle), f"{link} sim-faint", width, title=title))
    for index, (x, y) in enumerate(points):
        number = dim.size - 1 if folded and index == count - 1 else index
        shapes.append(_draw_npu_at(x, y, number))
    if folded:
        shapes.append(_draw_text(centre, 2 * radius + _NPU + 8, f"⋯ {format_count(dim.size - count)} more ⋯"))
    side = 2 * radius + _NPU
    return _Block(side, side + (14 if folded else 0), tuple(shapes))


def _draw_npu_at(x: float, y: float, number: int) -> Shape:
    half = _NPU / 2
    return Shape("rect", (x - half, y - half, _NPU, _NPU), "sim-npu", title=f"NPU {number}")


def _draw_text(x: float, y: float, text: str) -> Shape:
    return Shape("text", (x, y), "sim-text", text=text)


# ---------------------------------------------------------------------------------------------------
# Several


def _choose_room(dims: int, level: int) -> tuple[int, int]:
    rooms = _ROOM if dims <= len(_ROOM) else _LITTLE_ROOM
    return rooms[min(level, len(rooms) - 1)]


def _nest(
    child: _Block, dim: Dimension, level: int, drawn: tuple[float, int], room: tuple[int, int]
) -> _Block:
    """Draw `dim.size` blocks and their connection, in a row on even levels, else in a column."""
    across = level % 2 == 0
    width, stride = drawn
    most, before = room
    folded = dim.size > most
    indices = [*range(before), dim.size - 1] if folded else list(range(dim.size))
    gap = _GAP if level == 0 else _GAP + 6 * level
    if level:
        child = _draw_box(child)
    extent = child.width if across else child.height
    fold_room = 64.0 if across else 26.0
    starts, position = [], 0.0
    for index in range(len(indices)):
        starts.append(position)
        position += extent + (fold_room if folded and index == before - 1 else gap)
    length = starts[-1] + extent
    shapes: list[Shape] = []
    for start, index in zip(starts, indices, strict=True):
        x, y = (start, 0.0) if across else (0.0, start)
        shapes += [move_shape(_name_copy(shape, index, stride), x, y) for shape in child.shapes]
    thick = child.height if across else child.width
    joints, before_side, after_side = _draw_joints(dim, level, width, starts, extent, thick)
    if folded:
        middle = starts[before] - fold_room / 2
        label = f"⋯ {format_count(dim.size - len(indices))} more"
        joints.append(
            _draw_text(middle, thick / 2 + 4, label) if across else _draw_text(thick / 2, middle + 4, label)
        )
    turned = [
        _turn(shape) if not across and shape.look.startswith(("sim-link", "sim-switch")) else shape
        for shape in joints
    ]
    dx, dy = (0.0, before_side) if across else (0.0, 0.0)
    placed = tuple(move_shape(shape, dx, dy) for shape in (*turned, *shapes))
    if across:
        return _Block(length, thick + before_side + after_side, placed)
    return _Block(thick + before_side + after_side, length, placed)


def _name_copy(shape: Shape, index: int, stride: int) -> Shape:
    """Return the shape of a copied block; an NPU gets its number."""
    if shape.look != "sim-npu":
        return shape
    number = int(shape.title.removeprefix("NPU") or 0) + index * stride
    return replace(shape, title=f"NPU {number}")


def _draw_box(block: _Block) -> _Block:
    shapes = tuple(move_shape(shape, _PAD, _PAD) for shape in block.shapes)
    width, height = block.width + 2 * _PAD, block.height + 2 * _PAD
    return _Block(width, height, (Shape("rect", (0, 0, width, height), "sim-box"), *shapes))


def _draw_joints(
    dim: Dimension, level: int, width: float, starts: list[float], extent: float, thick: float
) -> tuple[list[Shape], float, float]:
    """Return the connections of blocks in a row, and the space they take above and below.

    For a column the same is turned: above becomes right, where `thick` is what the blocks measure across.
    """
    link, title = f"sim-link sim-dim-{min(level, 3)}", describe_links(dim, level)
    across = level % 2 == 0
    middles = [start + extent / 2 for start in starts]
    first, last = middles[0], middles[-1]
    # Blocks in a row carry switches and arcs above them, blocks in a column to their right.
    edge, out = (0.0, -1.0) if across else (thick, 1.0)
    if dim.kind == "switch":
        reach = 12.0
        bar_at = edge + out * (reach + _BAR) if out < 0 else edge + reach
        shapes = [
            Shape("line", (middle, edge, middle, edge + out * reach), link, width, title=title)
            for middle in middles
        ]
        shapes.append(Shape("rect", (first - 8, bar_at, last - first + 16, _BAR), "sim-switch", title=title))
        room = reach + _BAR
        return shapes, room, 0.0
    if dim.kind == "fully_connected":
        shapes, highest = [], 0.0
        for a in range(len(middles)):
            for b in range(a + 1, len(middles)):
                height = 8.0 + 7.0 * (b - a)
                highest = max(highest, height)
                top = edge + out * height * 4 / 3
                d = f"M {middles[a]} {edge} C {middles[a]} {top} {middles[b]} {top} {middles[b]} {edge}"
                shapes.append(Shape("path", (), link, min(width, 2.0), d=d, title=title))
        return shapes, highest + 2, 0.0
    centre = thick / 2
    shapes = [
        Shape("line", (a + extent, centre, b, centre), link, width, title=title) for a, b in pairwise(starts)
    ]
    if dim.size > 2:
        top = edge + out * 15.0
        d = f"M {first} {edge} C {first} {top} {last} {top} {last} {edge}"
        shapes.append(Shape("path", (), link, width, d=d, title=title))
    return shapes, 13.0 if dim.size > 2 else 0.0, 0.0


def _turn(shape: Shape) -> Shape:
    """Return a shape with x and y swapped."""
    if shape.kind == "path":
        words = shape.d.split(" ")
        numbers = [word for word in words if not word.isalpha()]
        swapped = iter([n for x, y in zip(numbers[::2], numbers[1::2], strict=True) for n in (y, x)])
        return replace(shape, d=" ".join(word if word.isalpha() else next(swapped) for word in words))
    if shape.kind == "line":
        x1, y1, x2, y2 = shape.at
        return replace(shape, at=(y1, x1, y2, x2))
    x, y, width, height = shape.at
    return replace(shape, at=(y, x, height, width))
