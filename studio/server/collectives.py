"""Routes of the Collectives page: windows of the heatmap, descriptions of cells, positions of nodes, and CSV."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from flask import Blueprint, Response, request, stream_with_context

from studio.analysis.collectives.cell import UNITS, describe_cell
from studio.analysis.collectives.heat import (
    Heat,
    Shown,
    Tile,
    build_tile,
    find_strongest,
    find_worst_lines,
    label_line,
    label_nodes,
)
from studio.analysis.collectives.imbalance import compute_ratios
from studio.analysis.job.node_refs import find_node, format_node_ref
from studio.distinct import find_distinct
from studio.errors import StudioError, TraceError
from studio.figures.theme import DIVERGING, SEQUENTIAL
from studio.server.answers import (
    FARTHEST,
    as_json,
    escape_formula,
    format_csv_line,
    format_exact,
    get_session,
    handle_error,
    parse_whole,
)
from studio.server.packed import pack_arrays
from studio.trace import NONE, Int64, label_collective
from studio.views.collectives import build_shown_heatmap

_NAME_AT_MOST = 300
_EVEN = 0.005
_USUAL, _OUTLYING = 0.95, 2.5
"""Share of the uneven figures that the colours serve, and how many times as far the farthest has to be to be cut off."""


def build_collectives_blueprint() -> Blueprint:
    """Make the routes below /api/jobs."""
    routes = Blueprint("collectives", __name__, url_prefix="/api/jobs")
    routes.register_error_handler(StudioError, handle_error)

    @routes.get("/<job>/collectives")
    def serve_window(job: str) -> Response:
        return _serve_tile(build_shown_heatmap(get_session(), job, request.args))

    @routes.get("/<job>/collectives/cell")
    def serve_cell(job: str) -> Response:
        return as_json(_describe_cell(build_shown_heatmap(get_session(), job, request.args)))

    @routes.get("/<job>/collectives/find")
    def find(job: str) -> Response:
        return as_json(_find(build_shown_heatmap(get_session(), job, request.args)))

    @routes.get("/<job>/collectives/imbalances.csv")
    def serve_imbalances(job: str) -> Response:
        return Response(
            stream_with_context(_iterate_imbalances(build_shown_heatmap(get_session(), job, request.args))),
            mimetype="text/csv",
        )

    @routes.get("/<job>/collectives.csv")
    def serve_numbers(job: str) -> Response:
        shown = build_shown_heatmap(get_session(), job, request.args)
        return Response(
            stream_with_context(_iterate_csv(shown, _parse_heat_window(shown.heat))), mimetype="text/csv"
        )

    return routes


def _serve_tile(shown: Shown) -> Response:
    heat = shown.heat
    part = build_tile(heat, _parse_heat_window(heat), relative=shown.relative)
    lines = heat.lines[part.low : part.high : part.down]
    known = lines != NONE
    rows = np.maximum(lines, 0)
    first = heat.rows.first[rows] if len(heat.rows) else rows
    members = heat.members

    def mask_column(column: Any) -> Any:
        return np.where(known, column, NONE).astype(np.int32)

    names, name = _collect_names(heat, mask_column(members.title[first]), mask_column(members.type[first]))
    groups, group = _collect_texts(members.groups, mask_column(members.group[first]))
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
        "types": {str(kind): label_collective(kind) if kind != NONE else "" for kind in kinds},
        "sections": [text[:_NAME_AT_MOST] for text in heat.rows.sections]
        if len(heat.rows.sections) <= 4096
        else [],
        "range": _compute_range(shown, part),
        "colours": {"sequential": SEQUENTIAL, "diverging": DIVERGING},
    }
    spread = heat.spread
    columns = {
        "values": part.values.ravel(),
        **({} if part.figures is None else {"figures": part.figures.ravel()}),
        "numbers": _list_rank_numbers(shown)[part.left : part.right].astype(np.int32),
        "name": name,
        "group": group
        if heat.rows.folded is False and len(heat.rows) == len(members)
        else np.full(len(rows), NONE, np.int32),
        "type": mask_column(members.type[first]),
        "section": mask_column(heat.rows.section[rows]),
        "nth": np.where(heat.alike[rows] > 1, heat.nth[rows], NONE).astype(np.int32),
        **{
            key: np.where(known, getattr(spread, key)[rows], np.nan).astype(np.float64)
            for key in ("max", "variation", "gini", "excess")
        },
    }
    return pack_arrays(header, columns)


def _collect_texts(pool: tuple[str, ...], codes: Any) -> tuple[list[str], Any]:
    """Return the texts that codes refer to, and codes into these."""
    used, inverse = np.unique(codes, return_inverse=True)
    return [pool[code] if code != NONE else "" for code in used.tolist()], inverse.astype(np.int32)


def _collect_names(heat: Heat, title: Any, kind: Any) -> tuple[list[str], Any]:
    """Return what nodes of titles and types are called, and codes into these; the title is -1 where there is none."""
    used, inverse = np.unique(np.stack([title, kind]), axis=1, return_inverse=True)
    names = [label_nodes(heat, *pair) if pair[0] != NONE else "" for pair in used.T.tolist()]
    return names, inverse.astype(np.int32)


def _list_rank_numbers(shown: Shown) -> Int64:
    numbers = np.array([rank.number for rank in shown.trace.ranks], np.int64)
    return numbers[shown.heat.columns]


def _compute_range(shown: Shown, part: Tile) -> dict[str, float | None]:
    """Return minimum and maximum over all lines, so that colours stay the same in every window."""
    heat = shown.heat
    whole = part.down == part.across == 1 and part.values.shape == (len(heat.lines), len(heat.columns))
    rows = heat.lines[heat.lines != NONE]
    present: Any = part.values
    if not whole:
        present = (
            compute_ratios(heat.table[rows], heat.spread.own[rows]) if shown.relative else heat.table[rows]
        )
    present = present[~np.isnan(present)]
    above = present[present > 0]
    return {
        "least": float(present.min()) if len(present) else None,
        "most": float(present.max()) if len(present) else None,
        "positive": float(above.min()) if len(above) else None,
        **_compute_usual(present, relative=shown.relative),
    }


def _compute_usual(values: Any, *, relative: bool) -> dict[str, float | None]:
    """Return up to which figure, or of ratios how far from 1, colours are told apart; None for all.

    A few figures far beyond the others would else leave these a single colour: so the farthest twentieth is left out,
    but only where the farthest is several times as far as the rest.
    """
    apart = np.sort(np.abs(values - 1) if relative else values)
    apart = apart[apart > _EVEN]
    usual = float(apart[int((len(apart) - 1) * _USUAL)]) if len(apart) else 0.0
    return {"usual": usual if usual and float(apart[-1]) > _OUTLYING * usual else None}


def _describe_cell(shown: Shown) -> dict[str, Any]:
    heat = shown.heat
    if "high" in request.args:
        box = (
            parse_whole("line", FARTHEST),
            parse_whole("high", FARTHEST),
            parse_whole("column", FARTHEST),
            parse_whole("right", FARTHEST),
        )
        line, column = find_strongest(heat, box, relative=shown.relative)
    else:
        line, column = parse_whole("line", FARTHEST), parse_whole("column", FARTHEST)
    if line >= len(heat.lines) or column >= len(heat.columns):
        raise TraceError("There is no such cell.", hint="Reload the page.")
    rank = shown.trace.ranks[int(heat.columns[column])]
    cells = heat.cells(line, column)
    single = len(cells) == 1
    node = format_node_ref(shown.trace.graph_of(rank), int(heat.members.row[cells[0]])) if single else None
    section = heat.rows.sections[int(heat.rows.section[heat.lines[line]])] if heat.lines[line] != NONE else ""
    return {
        "line": line,
        "column": column,
        "rank": rank.number,
        "node": node,
        "count": len(cells),
        "section": section,
        "words": describe_cell(shown, line, column),
    }


def _find(shown: Shown) -> dict[str, Any]:
    number = parse_whole("rank", FARTHEST)
    place = next((index for index, rank in enumerate(shown.trace.ranks) if rank.number == number), None)
    if place is None:
        return {"line": None}
    try:
        row = find_node(shown.trace.graph_of(shown.trace.ranks[place]), request.args.get("node", ""))
    except TraceError:
        return {"line": None}
    position = shown.heat.find(place, row)
    return {"line": None} if position is None else {"line": position[0], "column": position[1]}


def _iterate_csv(shown: Shown, window: tuple[int, int, int, int]) -> Iterator[str]:
    """Yield CSV: per row its name, measures of imbalance, and the value of each rank (empty if none)."""
    heat, members = shown.heat, shown.heat.members
    low, high, left, right = window
    unit = UNITS[shown.look.metric]
    columns = heat.columns[left:right]
    ranks = [f"rank {number}" for number in _list_rank_numbers(shown)[left:right].tolist()]
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
    yield format_csv_line([*head, *ranks])
    alone = not heat.rows.folded
    for line in range(low, min(high, len(heat.lines))):
        row = int(heat.lines[line])
        if row == NONE:
            continue
        first = int(heat.rows.first[row])
        what = [escape_formula(label_line(heat, line, whole=True))]
        what += (
            [
                label_collective(int(members.type[first])),
                members.groups[int(members.group[first])] or "all ranks",
            ]
            if alone
            else ["", ""]
        )
        what.append(str(int(members.step[first])) if alone and members.step[first] >= 0 else "")
        spread = [getattr(heat.spread, key)[row] for key in ("mean", "max", "variation", "gini", "excess")]
        yield format_csv_line(
            [*what, *map(_format_figure, spread), *map(_format_figure, heat.table[row, columns].tolist())]
        )


def _iterate_imbalances(shown: Shown) -> Iterator[str]:
    """Yield CSV of the uneven rows, the worst by the shown measure first."""
    unit = UNITS[shown.look.metric]
    number = [rank.number for rank in shown.trace.ranks]
    yield format_csv_line(
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
    for line, offender in find_worst_lines(shown):
        heavy = " ".join(str(number[rank]) for rank in offender.heavy)
        figures = map(_format_figure, (offender.max, offender.most, offender.mean, offender.excess))
        yield format_csv_line(
            [
                escape_formula(label_line(shown.heat, line, whole=True)),
                shown.look.metric,
                *figures,
                str(number[offender.worst]),
                heavy,
            ]
        )


def _format_figure(value: float) -> str:
    return "" if np.isnan(value) else format_exact(float(value))


def _parse_heat_window(heat: Heat) -> tuple[int, int, int, int]:
    return parse_tile_window(len(heat.lines), len(heat.columns))


def parse_tile_window(lines: int, columns: int) -> tuple[int, int, int, int]:
    """Return the window that the address of a request names, ends exclusive; all where it names none."""
    low, high = _parse_range("rows", lines)
    left, right = _parse_range("cols", columns)
    return low, high, left, right


def _parse_range(name: str, most: int) -> tuple[int, int]:
    """Parse a range such as `rows=120-240`, 0-based and inclusive; return everything if it is invalid."""
    low, _, high = request.args.get(name, "").partition("-")
    if not (_is_number(low) and _is_number(high)) or int(low) > int(high) or int(low) >= most:
        return 0, most
    return int(low), min(int(high) + 1, most)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 12
