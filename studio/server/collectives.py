"""Routes of the Collectives page: windows of the heatmap, descriptions of cells, positions of nodes, and CSV."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from flask import Blueprint, Response, request, stream_with_context

from studio.analysis.collectives.cell import UNITS, cell_words
from studio.analysis.collectives.heat import (
    Heat,
    Shown,
    Tile,
    line_name,
    node_name,
    strongest,
    tile,
    worst_lines,
)
from studio.analysis.collectives.imbalance import ratios
from studio.analysis.job.nodes import find_node, node_ref
from studio.distinct import find_distinct
from studio.errors import StudioError, TraceError
from studio.figures.theme import DIVERGING, SEQUENTIAL
from studio.server.answers import FARTHEST, as_json, csv_line, exact_number, harmless, refusal, session, whole
from studio.server.packed import pack_arrays
from studio.trace import NONE, Int64, collective_name
from studio.views.collectives import shown_of

_NAME_AT_MOST = 300
_EVEN = 0.005
_USUAL, _OUTLYING = 0.95, 2.5
"""Share of the uneven figures that the colours serve, and how many times as far the farthest has to be to be cut off."""


def collectives_blueprint() -> Blueprint:
    """Make the routes below /api/jobs."""
    routes = Blueprint("collectives", __name__, url_prefix="/api/jobs")
    routes.register_error_handler(StudioError, refusal)

    @routes.get("/<job>/collectives")
    def window(job: str) -> Response:
        return _tile(shown_of(session(), job, request.args))

    @routes.get("/<job>/collectives/cell")
    def cell(job: str) -> Response:
        return as_json(_cell(shown_of(session(), job, request.args)))

    @routes.get("/<job>/collectives/find")
    def find(job: str) -> Response:
        return as_json(_find(shown_of(session(), job, request.args)))

    @routes.get("/<job>/collectives/imbalances.csv")
    def imbalances(job: str) -> Response:
        return Response(
            stream_with_context(_imbalances(shown_of(session(), job, request.args))), mimetype="text/csv"
        )

    @routes.get("/<job>/collectives.csv")
    def numbers(job: str) -> Response:
        shown = shown_of(session(), job, request.args)
        return Response(stream_with_context(_csv(shown, _window(shown.heat))), mimetype="text/csv")

    return routes


def _tile(shown: Shown) -> Response:
    heat = shown.heat
    part = tile(heat, _window(heat), relative=shown.relative)
    lines = heat.lines[part.low : part.high : part.down]
    known = lines != NONE
    rows = np.maximum(lines, 0)
    first = heat.rows.first[rows] if len(heat.rows) else rows
    members = heat.members

    def of(column: Any) -> Any:
        return np.where(known, column, NONE).astype(np.int32)

    names, name = _names(heat, of(members.title[first]), of(members.type[first]))
    groups, group = _texts(members.groups, of(members.group[first]))
    kinds = find_distinct(members.type[first]).tolist() if len(first) else []
    header = {
        "lines": len(heat.lines),
        "ranks": len(heat.columns),
        "window": [part.low, part.high, part.left, part.right],
        "down": part.down,
        "across": part.across,
        "shape": list(part.values.shape),
        "unit": "ratio" if shown.relative else UNITS[shown.look.metric],
        "measured": UNITS[shown.look.metric],
        "metric": shown.look.metric,
        "relative": shown.relative,
        "folded": heat.rows.folded,
        "timed": members.timed,
        "names": [text[:_NAME_AT_MOST] for text in names],
        "groups": groups,
        "types": {str(kind): collective_name(kind) if kind != NONE else "" for kind in kinds},
        "sections": [text[:_NAME_AT_MOST] for text in heat.rows.sections]
        if len(heat.rows.sections) <= 4096
        else [],
        "range": _range(shown, part),
        "colours": {"sequential": SEQUENTIAL, "diverging": DIVERGING},
    }
    spread = heat.spread
    columns = {
        "values": part.values.ravel(),
        **({} if part.figures is None else {"figures": part.figures.ravel()}),
        "numbers": _numbers(shown)[part.left : part.right].astype(np.int32),
        "name": name,
        "group": group
        if heat.rows.folded is False and len(heat.rows) == len(members)
        else np.full(len(rows), NONE, np.int32),
        "type": of(members.type[first]),
        "section": of(heat.rows.section[rows]),
        "nth": np.where(heat.alike[rows] > 1, heat.nth[rows], NONE).astype(np.int32),
        **{
            key: np.where(known, getattr(spread, key)[rows], np.nan).astype(np.float64)
            for key in ("max", "variation", "gini", "excess")
        },
    }
    return pack_arrays(header, columns)


def _texts(pool: tuple[str, ...], codes: Any) -> tuple[list[str], Any]:
    """Return the texts that codes refer to, and codes into these."""
    used, inverse = np.unique(codes, return_inverse=True)
    return [pool[code] if code != NONE else "" for code in used.tolist()], inverse.astype(np.int32)


def _names(heat: Heat, title: Any, kind: Any) -> tuple[list[str], Any]:
    """Return what nodes of titles and types are called, and codes into these; the title is -1 where there is none."""
    used, inverse = np.unique(np.stack([title, kind]), axis=1, return_inverse=True)
    names = [node_name(heat, *pair) if pair[0] != NONE else "" for pair in used.T.tolist()]
    return names, inverse.astype(np.int32)


def _numbers(shown: Shown) -> Int64:
    numbers = np.array([rank.number for rank in shown.trace.ranks], np.int64)
    return numbers[shown.heat.columns]


def _range(shown: Shown, part: Tile) -> dict[str, float | None]:
    """Return minimum and maximum over all lines, so that colours stay the same in every window."""
    heat = shown.heat
    whole = part.down == part.across == 1 and part.values.shape == (len(heat.lines), len(heat.columns))
    rows = heat.lines[heat.lines != NONE]
    present: Any = part.values
    if not whole:
        present = ratios(heat.table[rows], heat.spread.own[rows]) if shown.relative else heat.table[rows]
    present = present[~np.isnan(present)]
    above = present[present > 0]
    return {
        "least": float(present.min()) if len(present) else None,
        "most": float(present.max()) if len(present) else None,
        "positive": float(above.min()) if len(above) else None,
        **_usual(present, relative=shown.relative),
    }


def _usual(values: Any, *, relative: bool) -> dict[str, float | None]:
    """Return up to which figure, or of ratios how far from 1, colours are told apart; None for all.

    A few figures far beyond the others would else leave these a single colour: so the farthest twentieth is left out,
    but only where the farthest is several times as far as the rest.
    """
    apart = np.sort(np.abs(values - 1) if relative else values)
    apart = apart[apart > _EVEN]
    usual = float(apart[int((len(apart) - 1) * _USUAL)]) if len(apart) else 0.0
    return {"usual": usual if usual and float(apart[-1]) > _OUTLYING * usual else None}


def _cell(shown: Shown) -> dict[str, Any]:
    heat = shown.heat
    if "high" in request.args:
        box = (
            whole("line", FARTHEST),
            whole("high", FARTHEST),
            whole("column", FARTHEST),
            whole("right", FARTHEST),
        )
        line, column = strongest(heat, box, relative=shown.relative)
    else:
        line, column = whole("line", FARTHEST), whole("column", FARTHEST)
    if line >= len(heat.lines) or column >= len(heat.columns):
        raise TraceError("There is no such cell.", hint="Reload the page.")
    rank = shown.trace.ranks[int(heat.columns[column])]
    cells = heat.cells(line, column)
    single = len(cells) == 1
    node = node_ref(shown.trace.graph_of(rank), int(heat.members.row[cells[0]])) if single else None
    section = heat.rows.sections[int(heat.rows.section[heat.lines[line]])] if heat.lines[line] != NONE else ""
    return {
        "line": line,
        "column": column,
        "rank": rank.number,
        "node": node,
        "count": len(cells),
        "section": section,
        "words": cell_words(shown, line, column),
    }


def _find(shown: Shown) -> dict[str, Any]:
    number = whole("rank", FARTHEST)
    place = next((index for index, rank in enumerate(shown.trace.ranks) if rank.number == number), None)
    if place is None:
        return {"line": None}
    try:
        row = find_node(shown.trace.graph_of(shown.trace.ranks[place]), request.args.get("node", ""))
    except TraceError:
        return {"line": None}
    position = shown.heat.find(place, row)
    return {"line": None} if position is None else {"line": position[0], "column": position[1]}


def _csv(shown: Shown, window: tuple[int, int, int, int]) -> Iterator[str]:
    """Yield CSV: per row its name, measures of imbalance, and the value of each rank (empty if none)."""
    heat, members = shown.heat, shown.heat.members
    low, high, left, right = window
    unit = UNITS[shown.look.metric]
    columns = heat.columns[left:right]
    ranks = [f"rank {number}" for number in _numbers(shown)[left:right].tolist()]
    head = (
        "collective",
        "type",
        "group",
        "step",
        f"mean_{unit}",
        "max_over_mean",
        "variation",
        "gini",
        f"excess_{unit}",
    )
    yield csv_line([*head, *ranks])
    alone = not heat.rows.folded
    for line in range(low, min(high, len(heat.lines))):
        row = int(heat.lines[line])
        if row == NONE:
            continue
        first = int(heat.rows.first[row])
        what = [harmless(line_name(heat, line, whole=True))]
        what += (
            [
                collective_name(int(members.type[first])),
                members.groups[int(members.group[first])] or "all ranks",
            ]
            if alone
            else ["", ""]
        )
        what.append(str(int(members.step[first])) if alone and members.step[first] >= 0 else "")
        spread = [getattr(heat.spread, key)[row] for key in ("mean", "max", "variation", "gini", "excess")]
        yield csv_line([*what, *map(_figure, spread), *map(_figure, heat.table[row, columns].tolist())])


def _imbalances(shown: Shown) -> Iterator[str]:
    """Yield CSV of the uneven rows, the worst by the shown measure first."""
    unit = UNITS[shown.look.metric]
    number = [rank.number for rank in shown.trace.ranks]
    yield csv_line(
        [
            "collective",
            "metric",
            "max_over_mean",
            f"most_{unit}",
            f"mean_{unit}",
            f"to_move_{unit}",
            "worst_rank",
            "ranks_above_mean",
        ]
    )
    for line, offender in worst_lines(shown):
        heavy = " ".join(str(number[rank]) for rank in offender.heavy)
        figures = map(_figure, (offender.max, offender.most, offender.mean, offender.excess))
        yield csv_line(
            [
                harmless(line_name(shown.heat, line, whole=True)),
                shown.look.metric,
                *figures,
                str(number[offender.worst]),
                heavy,
            ]
        )


def _figure(value: float) -> str:
    return "" if np.isnan(value) else exact_number(float(value))


def _window(heat: Heat) -> tuple[int, int, int, int]:
    return window_of(len(heat.lines), len(heat.columns))


def window_of(lines: int, columns: int) -> tuple[int, int, int, int]:
    """Return the window that the address of a request names, ends exclusive; all where it names none."""
    low, high = _span("rows", lines)
    left, right = _span("cols", columns)
    return low, high, left, right


def _span(name: str, most: int) -> tuple[int, int]:
    """Parse a range such as `rows=120-240`, 0-based and inclusive; return everything if it is invalid."""
    low, _, high = request.args.get(name, "").partition("-")
    if not (_is_number(low) and _is_number(high)) or int(low) > int(high) or int(low) >= most:
        return 0, most
    return int(low), min(int(high) + 1, most)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 12
