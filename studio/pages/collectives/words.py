"""The words of the Collectives page: metrics and measures with their formulas, and the list of worst offenders."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dash import dcc, html

from studio.analysis.collectives.cell import FORMATS, format_exact
from studio.analysis.collectives.heat import Shown, find_worst_lines, label_line
from studio.analysis.collectives.imbalance import Metric, Offender
from studio.analysis.job.node_refs import format_node_ref
from studio.pages.base.export import build_export_buttons
from studio.pages.base.widgets import build_address, build_hint, build_rounded_value
from studio.pages.collectives.late import explain_waiting, find_last_member
from studio.trace import NONE, Float64, Int64, label_collective
from studio.units import format_count

METRIC_NAMES: dict[Metric, str] = {
    "size": "size",
    "duration": "duration",
    "waiting": "lead",
    "lateness": "lateness",
    "algorithm": "algorithm bandwidth",
    "bus": "bus bandwidth",
}
METRIC_HINTS: dict[Metric, str] = {
    "size": "Bytes the rank puts into the collective (comm_size).",
    "duration": "From the rank's own beginning of the collective to its own end.",
    "waiting": "arrival of the last member − own arrival, whether work hides that time or not; that of the first member is the skew. Waiting, as a part of a rank's time, is what no work hides.",
    "lateness": "own arrival − arrival of the first member. The largest of a row is the skew of the collective.",
    "algorithm": "size of the whole array ÷ (own end − last arrival), as nccl-tests define it (algbw).",
    "bus": "algorithm bandwidth × the factor of the collective, 2(n−1)/n for an all-reduce, (n−1)/n for all-gather, "
    "reduce-scatter and all-to-all, 1 for a broadcast: comparable with the speed of a link (nccl-tests, busbw).",
}
WAITED: tuple[Metric, ...] = ("duration", "waiting", "lateness")
"""Metrics beside which stands who came last, and why."""
_WAITERS: tuple[Metric, ...] = ("duration", "waiting")
"""Metrics of which those have most who wait."""
BY_STARTS: tuple[Metric, ...] = ("waiting", "lateness")
"""Metrics that tell nothing where all members are recorded to begin together."""
SORT_NAMES = {
    "time": "order of time",
    "max": "max / mean",
    "variation": "coefficient of variation",
    "gini": "Gini coefficient",
    "excess": "amount to move",
}
SORT_HINTS = {
    "time": "Rows in the order in which the collectives begin; without times, in which they are issued.",
    "max": "max / mean = the largest figure ÷ the mean of its group, the most of the row. 1 is balanced; all wait for the largest.",
    "variation": "coefficient of variation = √(Σ(xᵢ ÷ x̄ − 1)² / n) over the n ranks of the row, x̄ the mean of the rank's group. 0 is balanced.",
    "gini": "Gini = Σ(2i − n − 1)·xᵢ ÷ (n·Σxᵢ), x the figures by the mean of their group, rising, i from 1 to n. 0 is balanced, near 1 where one rank has all.",
    "excess": "amount to move = Σ max(0, xᵢ − x̄), x̄ the mean of the rank's group: all that lies above, and would have to move "
    "within the groups for balance.",
}
GROUPING_NAMES = {"none": "nothing", "group": "comm group", "type": "type", "step": "step", "name": "name"}
_RANKS_NAMED = 6
_FAR = 1.5
"""From this multiple of its share of the rows on a rank stands out."""
_LISTED = 40
_COMPARED = 4096
"""Uneven rows that are looked through for those of which the same is to be said."""


def build_worst_list(shown: Shown, run: str | None, view: dict[str, Any], source: str) -> list[Any]:
    """List the most uneven rows, with the overloaded ranks, the amount to move, for whom those with most waited, and links.

    Args:
        shown: The heatmap.
        run: What times are of, see `HeatmapRequest`.
        view: The address.
        source: Where the CSV of all of them is.
    """
    heat = shown.heat
    offenders = find_worst_lines(shown, _COMPARED)
    if not offenders:
        what = METRIC_NAMES[shown.look.metric]
        sentence = f"No row is uneven in {what}: the ranks of each group agree within half a percent."
        if len(heat.columns) == 1:
            sentence = "Only one rank is known: whether ranks differ cannot be told."
        some = bool((heat.lines >= 0).any())
        return [html.P(sentence if some else "No collective has this figure.", className="cs-dim")]
    lead = _describe_lead(
        [rank.number for rank in shown.trace.ranks], heat.table, [offender for _, offender in offenders]
    )
    alike: dict[tuple[Any, ...], list[tuple[int, Offender]]] = {}
    for line, offender in offenders:
        alike.setdefault(_build_entry_key(shown, offender), []).append((line, offender))
    items = [
        _describe_offender(shown, run, view, same[0], [line for line, _ in same[1:]])
        for same in list(alike.values())[:_LISTED]
    ]
    save = build_export_buttons("imbalances", source=source, title="the worst imbalances")
    return [lead, html.Ol(items, className="cs-worst"), save]


def _build_entry_key(shown: Shown, offender: Offender) -> tuple[Any, ...]:
    """Return the list's text about an uneven row without its name; rows with equal texts share an entry."""
    heat, form = shown.heat, FORMATS[shown.look.metric]
    members, first = heat.members, int(heat.rows.first[offender.row])
    kind = NONE if heat.rows.folded else int(members.type[first])
    last = None
    if shown.look.metric in _WAITERS:
        last = find_last_member(shown, _list_cells(shown, offender))
    figures = kind, offender.highest, f"{offender.max:.3g}", form(offender.excess), form(offender.mean)
    return (*figures, *(last[:1] if last else ()))


def _list_cells(shown: Shown, offender: Offender) -> Int64:
    """Return the members that the largest figure of an uneven row adds up."""
    heat = shown.heat
    line = int((heat.lines == offender.row).argmax())
    return heat.cells(line, int((heat.columns == offender.worst).argmax()))


def _describe_lead(numbers: Sequence[int], table: Float64, offenders: Sequence[Offender]) -> Any:
    """Say which rank most often has the largest value, ties left out."""
    worst = [
        offender.worst for offender in offenders if int((table[offender.row] == offender.most).sum()) == 1
    ]
    if not worst:
        return html.P("In each of them several ranks tie for the most.")
    often = max(set(worst), key=worst.count)
    # Of two ranks each has most in half of the rows by chance.
    if worst.count(often) < len(offenders) * max(0.25, _FAR / len(numbers)):
        return html.P("No single rank stands out: which rank has most changes from row to row.")
    number = numbers[often]
    rows = f"{format_count(worst.count(often))} of the {format_count(len(offenders))} most uneven rows"
    if len(offenders) == 1:
        rows = "the one uneven row"
    return html.P([html.Strong(f"Rank {number}"), f" has most in {rows}."])


def _describe_offender(
    shown: Shown,
    run: str | None,
    view: dict[str, Any],
    line_offender: tuple[int, Offender],
    others: Sequence[int],
) -> Any:
    """Describe an uneven row, given with its line, and name the lines of which the same is to be said."""
    line, offender = line_offender
    heat, metric = shown.heat, shown.look.metric
    members = heat.members
    number = [rank.number for rank in shown.trace.ranks]
    name = label_line(heat, line)
    column = int((heat.columns == offender.worst).argmax())
    cells = heat.cells(line, column)
    change: dict[str, Any] = {"rank": number[offender.worst]}
    if len(cells) == 1:
        rank = shown.trace.ranks[offender.worst]
        change["node"] = format_node_ref(shown.trace.graph_of(rank), int(members.row[cells[0]]))
    goto: dict[str, Any] = {
        "data-view": json.dumps(change),
        "data-line": str(line),
        "data-column": str(column),
    }
    first = int(heat.rows.first[offender.row])
    kind = "" if heat.rows.folded else f" · {label_collective(int(members.type[first]))}"
    facts = [
        html.A(
            html.Bdi(name),
            href=build_address("/collectives", {**view, **change}),
            className="cs-worst-name",
            title=name,
            **goto,
        ),
        _describe_highest(shown, offender),
        html.Div(
            [
                html.Span(_describe_excess(shown, offender)),
                html.Span([kind, *_build_links(shown, view, name, cells, change)]),
            ],
            className="cs-dim",
        ),
    ]
    if metric in _WAITERS and run is not None:
        waited = explain_waiting(shown, cells, str(view.get("job")), run, view)
        if waited:
            facts.append(
                html.Div(
                    [html.Span("came earlier by ", className="cs-dim"), *waited], className="cs-worst-whom"
                )
            )
    return html.Li([*facts, _build_similar_lines(shown, offender, others)])


def _describe_highest(shown: Shown, offender: Offender) -> Any:
    """Say by how much the largest value of a row is beyond the mean, and of which ranks it is."""
    metric = shown.look.metric
    highest = ", ".join(str(shown.trace.ranks[rank].number) for rank in offender.highest[:_RANKS_NAMED])
    left_out = len(offender.highest) - _RANKS_NAMED
    more = f" and {format_count(left_out)} more" if left_out > 0 else ""
    return html.Div(
        [
            build_rounded_value(
                f"{offender.max:.3g}×",
                f"max / mean = {format_exact(metric, offender.most)} / {format_exact(metric, offender.mean)}",
            ),
            html.Span(f" rank{'s' if len(offender.highest) > 1 else ''} {highest}{more}"),
        ],
        className="cs-worst-ranks",
    )


def _describe_excess(shown: Shown, offender: Offender) -> list[Any]:
    """Say how much there is above the mean in total; of rates, which do not add up, how fast the fastest is."""
    metric = shown.look.metric
    form = FORMATS[metric]
    if metric in ("algorithm", "bus"):
        return [f"fastest {form(offender.most)}, mean {form(offender.mean)}"]
    words = "above the mean in total"
    if metric == "size":
        # What one group has too much of is of no use to another.
        several = shown.heat.spread.own.shape[1] > 1
        words = "would have to move within the groups" if several else "would have to move"
    return [
        build_rounded_value(form(offender.excess), format_exact(metric, offender.excess)),
        f" {words}",
    ]


def _build_similar_lines(shown: Shown, offender: Offender, lines: Sequence[int]) -> Any:
    """List further lines of which the same is to be said, folded; None where there are none."""
    if not lines:
        return None
    number = shown.trace.ranks[offender.worst].number
    column = str(int((shown.heat.columns == offender.worst).argmax()))
    items = []
    for line in lines[:_LISTED]:
        goto: dict[str, Any] = {
            "data-view": json.dumps({"rank": number}),
            "data-line": str(line),
            "data-column": column,
        }
        items.append(html.Li(html.Button(label_line(shown.heat, line), className="cs-button-quiet", **goto)))
    rest = len(lines) - _LISTED
    if rest > 0:
        items.append(html.Li(f"and {format_count(rest)} more", className="cs-dim"))
    return html.Details(
        [html.Summary(f"and {format_count(len(lines))} more like this"), html.Ul(items)],
        className="cs-worst-more",
    )


def _build_links(
    shown: Shown, view: dict[str, Any], name: str, cells: Any, change: dict[str, Any]
) -> list[Any]:
    """Return links from an uneven row to its nodes and its place in the timeline."""
    keep = {"job": view.get("job"), "run": view.get("run"), **change}
    members = shown.heat.members
    leads = []
    if not shown.heat.rows.folded:
        leads.append(dcc.Link("nodes", href=build_address("/nodes", keep, q=name.rsplit(" #", 1)[0])))
    if len(cells):
        start, end = members.start_ns[cells], members.end_ns[cells]
        known = start >= 0
        if known.any():
            low, high = int(start[known].min()) - shown.origin_ns, int(end[known].max()) - shown.origin_ns
            room = max((high - low) // 4, 1000)
            span = {"from": max(low - room, 0), "to": high + room}
            leads.append(dcc.Link("timeline", href=build_address("/timeline", {**keep, **span})))
    return [part for lead in leads for part in (" · ", lead)]


def build_measure_hint(sort: str) -> Any:
    """Return the hint beside the order of rows: the formula of its measure."""
    return build_hint(SORT_NAMES[sort], SORT_HINTS[sort])


def build_metric_hint(metric: Metric) -> Any:
    """Return the hint beside the metric: its definition."""
    return build_hint(METRIC_NAMES[metric], METRIC_HINTS[metric])


def choose_title(shown: Shown) -> tuple[str, str]:
    """Return the title of the heatmap (the question it answers) and the subtitle (what it shows)."""
    look = shown.look
    asks = {
        "size": "Which ranks move too much",
        "duration": "Which collectives take long, and on which ranks",
        "waiting": "Who comes before the others",
        "lateness": "Who comes late",
        "algorithm": "How fast collectives are",
        "bus": "How fast collectives use the links",
    }[look.metric]
    unit = METRIC_NAMES[look.metric]
    rows = "group of collectives" if look.fold else "collective"
    return asks, f"{unit} per {rows}{', relative to the mean of its group' if shown.relative else ''}"
