"""Draw the mesh of a job's ranks: which were recorded, which repeat others; of many the first, the last and the recorded ones.

The first dimension goes across, the second down, further ones make blocks beside and below each other. A job of one
dimension is written in rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from studio.completion.clues import describe_dimension
from studio.completion.mesh import Axis, Mesh
from studio.figures.drawing import Drawing, Shape, move_shape
from studio.units import format_count, format_counted

_DIGIT, _AROUND = 7.0, 14.0
_HIGH, _NARROWEST = 34.0, 34.0
_GAP, _APART, _TITLE = 3.0, 16.0, 18.0
_SKIPPED = 22.0
_ROW = 16
_ROOM = {1: (_ROW * 4,), 2: (16, 10), 3: (8, 8, 3), 4: (8, 4, 4, 2)}
_LITTLE_ROOM = (4, 4, 2, 2, 2, 2)
"""Places that are drawn of each dimension, by how many dimensions there are."""


@dataclass(frozen=True, slots=True)
class Cell:
    """How a rank is drawn.

    Attributes:
        look: Class that gives it its colour.
        below: What stands below its number.
        title: What is said when it is pointed at, before its place in the mesh.
        is_hatched: Whether lines cross it.
    """

    look: str
    below: str = ""
    title: str = ""
    is_hatched: bool = False


def build_assumed_cell(rank: int, source: int | None, word: str = "recorded") -> Cell:
    """Return how a rank is drawn that repeats another one, or none (None): then `word` says what it is."""
    if source is None:
        return Cell("rk-recorded", "", f"rank {rank}: {word}")
    return Cell("rk-assumed", f"= {source}", f"rank {rank}: assumed equal to rank {source}", is_hatched=True)


def draw_mesh(mesh: Mesh, cell_of: Callable[[int], Cell], shown: Sequence[int] = ()) -> Drawing:
    """Draw a mesh.

    Args:
        mesh: The mesh.
        cell_of: How a rank is drawn.
        shown: Ranks that are to be seen wherever they are, such as the recorded ones.

    Example:
        >>> drawing = draw_mesh(Mesh.of([("dp", 4)]), lambda rank: build_assumed_cell(rank, None if rank == 0 else 0))
        >>> sum(shape.look == "rk-assumed" for shape in drawing.shapes), drawing.sentence
        (3, '4 ranks: 4 along data (dp)')
    """
    axes = [axis for axis in mesh.axes if axis.size > 1] or list(mesh.axes[:1])
    rooms = _ROOM.get(len(axes), _LITTLE_ROOM)
    places = [_select_places(axis, room, shown) for axis, room in zip(axes, rooms, strict=False)]
    pen = _Pen(mesh, cell_of, max(_AROUND + _DIGIT * len(str(mesh.world - 1)), _NARROWEST))
    block = pen.rows(axes[0], places[0]) if len(axes) == 1 else pen.block(axes, places, 0)
    drawn = sum(shape.look.startswith("rk-") and shape.kind == "rect" for shape in block.shapes)
    axes_words = " × ".join(
        f"{format_count(axis.size)} along {describe_dimension(axis.name)}" for axis in axes
    )
    rest = f"; {format_count(drawn)} of them are drawn" if drawn < mesh.world else ""
    return Drawing(
        block.width + 2,
        block.height + 2,
        tuple(move_shape(shape, 1, 1) for shape in block.shapes),
        f"{format_counted(mesh.world, 'rank')}: {axes_words}{rest}",
    )


def describe_directions(mesh: Mesh) -> str:
    """Say which way each dimension of a drawing goes.

    Example:
        >>> describe_directions(Mesh.of([("tp", 4), ("dp", 2), ("pp", 2)]))
        'across: tensor (tp) · down: data (dp) · blocks beside each other: pipeline (pp)'
    """
    axes = [axis for axis in mesh.axes if axis.size > 1]
    if len(axes) < 2:
        return f"in rows: {describe_dimension(axes[0].name)}" if axes else ""
    ways = ["across", "down"]
    ways += [f"blocks {'beside' if level % 2 == 0 else 'below'} each other" for level in range(2, len(axes))]
    return " · ".join(f"{way}: {describe_dimension(axis.name)}" for way, axis in zip(ways, axes, strict=True))


def _select_places(axis: Axis, room: int, shown: Sequence[int]) -> list[int]:
    """Return the places along a dimension that are drawn, rising."""
    if axis.size <= room:
        return list(range(axis.size))
    # Those of the ranks to be seen, the first ones and the last one; a row of one dimension ends as a row.
    wanted = [*dict.fromkeys(axis.place(rank) for rank in shown)][: room - 1]
    first = [place for place in range(room - 1 - len(wanted)) if place not in wanted]
    return sorted({*wanted, *first, axis.size - 1})


@dataclass(frozen=True, slots=True)
class _Block:
    width: float
    height: float
    shapes: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class _Pen:
    """Draws parts of a mesh.

    Attributes:
        mesh: The mesh.
        cell_of: How a rank is drawn.
        wide: Width of a cell.
    """

    mesh: Mesh
    cell_of: Callable[[int], Cell]
    wide: float

    def cell(self, rank: int) -> _Block:
        """Draw a rank."""
        cell = self.cell_of(rank)
        at = " · ".join(f"{axis.name} {axis.place(rank)}" for axis in self.mesh.axes)
        title = f"{cell.title or f'rank {rank}'} · {at}"
        middle = self.wide / 2
        shapes = [Shape("rect", (0, 0, self.wide, _HIGH), cell.look, title=title)]
        if cell.is_hatched:
            shapes.append(Shape("path", (), "rk-hatch", d=_draw_hatch(self.wide, _HIGH)))
        shapes.append(
            Shape("text", (middle, 15 if cell.below else 21), f"rk-number {cell.look}-number", text=str(rank))
        )
        if cell.below:
            shapes.append(Shape("text", (middle, 28), "rk-below", text=cell.below))
        return _Block(self.wide, _HIGH, tuple(shapes))

    def rows(self, axis: Axis, places: Sequence[int]) -> _Block:
        """Draw the ranks of the only dimension in rows."""
        lines: list[_Block] = []
        for start in range(0, len(places), _ROW):
            run = places[start : start + _ROW]
            lines.append(self._line_up([self.cell(place * axis.stride) for place in run], run, across=True))
        firsts = [place // _ROW for place in places[::_ROW]]
        return self._line_up(lines, firsts, across=False)

    def block(self, axes: Sequence[Axis], places: Sequence[Sequence[int]], first: int) -> _Block:
        """Draw the ranks along some dimensions from rank `first` on."""
        if not axes:
            return self.cell(first)
        level, axis = len(axes) - 1, axes[-1]
        parts = []
        for place in places[level]:
            part = self.block(axes[:-1], places[:-1], first + place * axis.stride)
            parts.append(_add_title(part, f"{axis.name} {place}") if level > 1 else part)
        return self._line_up(parts, places[level], across=level % 2 == 0, apart=_APART if level > 1 else _GAP)

    def _line_up(
        self, parts: Sequence[_Block], places: Sequence[int], *, across: bool, apart: float = _GAP
    ) -> _Block:
        """Put parts beside or below each other, with a gap where places are left out."""
        shapes: list[Shape] = []
        at, other, before = 0.0, 0.0, -1
        other = max((part.height if across else part.width) for part in parts)
        for place, part in zip(places, parts, strict=True):
            if place > before + 1:
                left_out = place - before - 1
                centre = (at + _SKIPPED / 2, other / 2 + 4) if across else (other / 2, at + _SKIPPED / 2 + 2)
                words = "⋯" if across else f"⋮ {format_count(left_out)} more"
                shapes.append(
                    Shape("text", centre, "rk-more", text=words, title=f"{format_count(left_out)} more")
                )
                at += _SKIPPED + apart
            shapes += [move_shape(shape, at if across else 0, 0 if across else at) for shape in part.shapes]
            at += (part.width if across else part.height) + apart
            before = place
        along = at - apart
        return _Block(along, other, tuple(shapes)) if across else _Block(other, along, tuple(shapes))


def _add_title(block: _Block, title: str) -> _Block:
    """Put a title above a block."""
    shapes = [
        Shape("text", (0, 11), "rk-title", text=title),
        *(move_shape(shape, 0, _TITLE) for shape in block.shapes),
    ]
    return _Block(max(block.width, _DIGIT * len(title)), block.height + _TITLE, tuple(shapes))


def _draw_hatch(width: float, height: float, step: float = 7.0) -> str:
    """Return the path of slanted lines across a cell."""
    lines = []
    reach = step
    while reach < width + height:
        x0, y0 = (reach, 0.0) if reach <= width else (width, reach - width)
        x1, y1 = (0.0, reach) if reach <= height else (reach - height, height)
        lines.append(f"M {x0:.1f} {y0:.1f} L {x1:.1f} {y1:.1f}")
        reach += step
    return " ".join(lines)
