"""The tables of Compare: figures, settings, nodes and operations; and the heatmaps of collectives."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
from dash import dcc, html

from studio.analysis.collectives.imbalance import build_joined_matrix, build_rows
from studio.analysis.collectives.members import collect_members
from studio.analysis.compare.alone import AloneName, group_alone_by_name
from studio.analysis.compare.changes import NodeAlone, NodeChange
from studio.analysis.compare.runs import Comparison, Figure
from studio.analysis.compare.sides import Side
from studio.analysis.compare.words import describe_side_node, format_signed_ns
from studio.analysis.job.part_words import ABOUT, NAMES
from studio.comparing import LETTERS, Compared, Lineup, build_settings_table
from studio.distinct import find_distinct
from studio.figures.beside import draw_beside
from studio.pages.base.export import Table, build_export_buttons, with_copy_button
from studio.pages.base.widgets import (
    build_address,
    build_aria_label,
    build_hint,
    build_rounded_value,
    build_table,
)
from studio.pages.compare.carried import BESIDE, build_time_change, build_wide_table, show_carried
from studio.units import format_count, format_counted, format_ns

_LISTED = 12
_OPERATIONS = 16
_NAMES = 2000
"""Names of nodes of one side that a file holds."""
_CELLS = 20_000
_MATCHED = (
    "Nodes of one job are matched by rank and id. Nodes of different jobs are matched by structure: type, name, size and "
    "role of the comm group, the n-th in order of issue with the n-th; then with the numbers in names left out, and at "
    "last sizes and groups too."
)


def show_summary(shown: Lineup) -> Any:
    """Show the figures of every run, and their differences from the first."""
    keys = [
        figure.key
        for figure in shown.comparisons[0].figures
        if any(_has_figure(pair, figure.key) for pair in shown.comparisons)
    ]
    rows = [
        (
            _name_with_hint(key),
            NAMES[key],
            _list_figures(shown, lambda pair, key=key: _find_figure(pair.figures, key, "ns")),
        )
        for key in keys
    ]
    whose = "device" if any(pair.whose == "device" for pair in shown.comparisons) else "rank"
    parts = [html.H2("In numbers"), _show_figures(shown, f"Mean per {whose}", rows, "the figures")]
    parts += show_carried(shown, "dimensions") + show_carried(shown, "links")
    return html.Section(parts, className="cs-section")


def _has_figure(pair: Comparison, key: str) -> bool:
    figure = _find_figure(pair.figures, key, "ns")
    return figure is not None and bool(figure.a or figure.b)


def _find_figure(figures: Sequence[Figure], key: str, unit: str) -> Figure | None:
    return next((figure for figure in figures if figure.key == key and figure.unit == unit), None)


def _name_with_hint(key: str) -> Any:
    definition = ABOUT.get(key)
    return [NAMES[key], build_hint(NAMES[key], definition)] if definition else NAMES[key]


def _list_figures(shown: Lineup, pick: Any) -> list[Figure | None]:
    return [pick(pair) for pair in shown.comparisons]


def _show_figures(
    shown: Lineup, first: str, table_rows: Sequence[tuple[Any, str, list[Figure | None]]], name: str
) -> Any:
    """Return a table of figures; each row has a label for the page, one for files, and a `Figure` per other run."""
    side_by_side = len(shown.sides) <= BESIDE
    others = LETTERS[1 : len(shown.sides)]
    head = [first, "A"]
    for letter in others:
        head += [letter, f"{letter} \N{MINUS SIGN} A"] if side_by_side else [letter]
    rows, exactly = [], []
    for words, plain, figures in table_rows:
        base = next((figure for figure in figures if figure is not None), None)
        cells = [words, _build_value(base.a if base else None)]
        numbers: list[Any] = [plain, base.a if base else None]
        for figure in figures:
            value, difference = _build_value(figure.b if figure else None), _build_difference(figure)
            below = html.Div(difference, className="cs-compare-below")
            cells += [value, difference] if side_by_side else [html.Span([value, below])]
            numbers += [figure.b, figure.difference] if figure else [None, None]
        rows.append(cells)
        exactly.append(numbers)
    named = [part for letter in others for part in (letter, f"{letter} - A")]
    return build_wide_table(head, rows, Table((f"{first}, ns", "A", *named), exactly), name)


def _build_value(ns: float | None) -> Any:
    return "–" if ns is None else build_rounded_value(format_ns(round(ns)), f"{ns:,.1f} ns")


def _build_difference(figure: Figure | None) -> Any:
    return "–" if figure is None or figure.difference is None else build_time_change(figure.difference)


# ---------------------------------------------------------------------------------------------------
# Settings


def build_settings_section(shown: Lineup, *, everything: bool) -> Any:
    """Show the settings of all runs: those that differ, or all."""
    rows = build_settings_table(shown.sides, differing=not everything)
    head = ["Setting", *(LETTERS[index] for index in range(len(shown.sides)))]
    cells = [
        [
            key,
            *(
                build_rounded_value(text, precise) if text else html.Span("–", className="cs-dim")
                for text, precise in values
            ),
        ]
        for key, values in rows
    ]
    body = (
        html.Div(
            with_copy_button(build_table(head, cells), "the settings"),
            className="cs-compare-wide",
            tabIndex=0,
            role="region",
            **build_aria_label("Settings"),
        )
        if rows
        else html.P(_explain_equal_settings(shown), className="cs-dim")
    )
    change = {"settings": None if everything else "all"}
    text = "Only those that differ" if everything else "All settings"
    how: dict[str, Any] = {"data-view": json.dumps(change)}
    button = html.Button(text, className="cs-button-quiet", id="compare-settings", **how)
    title = "All settings" if everything else "Settings that differ"
    return html.Section(
        [html.Div([html.H2(title), button], className="cs-compare-controls"), body], className="cs-section"
    )


def _explain_equal_settings(shown: Lineup) -> str:
    """Say what differs where no setting does."""
    names = {side.job: side.name for side in shown.sides}
    if len(names) < 2:
        return "The settings are the same; only the runs differ."
    return "The settings are the same; the programs differ, which are those of different jobs."


# ---------------------------------------------------------------------------------------------------
# Nodes


def build_nodes_tables(shown: Lineup, pair: int, sides: Sequence[Sequence[str]]) -> Any:
    """List the nodes that changed most, those that only one run has, and sums per operation."""
    comparison, letter = shown.comparisons[pair - 1], LETTERS[pair]
    a, b = sides[0], sides[pair]
    parts = [
        _list_changes(comparison, f"Slower in {letter}", comparison.slower, letter, a),
        _list_changes(comparison, f"Faster in {letter}", comparison.faster, letter, a),
        _list_alone(comparison, f"Only in {letter}", b, of_b=True),
        _list_alone(comparison, "Only in A", a, of_b=False),
    ]
    return html.Section(
        [
            html.H2(f"Nodes of A and {letter}"),
            html.P(_describe_matching(comparison, letter), id="compare-matching"),
            html.Div(parts, className="cs-compare-columns"),
            _list_operations(comparison, letter),
        ],
        className="cs-section",
    )


def _describe_matching(comparison: Comparison, letter: str) -> list[Any]:
    alignment = comparison.alignment
    how = "by rank and id" if alignment.by == "id" else "by structure"
    sentence = (
        f"{100 * alignment.share:.1f} % of both sides matched {how}: {format_count(alignment.matched)} of "
        f"{format_count(alignment.nodes_a)} nodes in A and {format_count(alignment.nodes_b)} in {letter}"
    )
    alone = [
        f"only {name} has {format_count(len(places))} of the ranks"
        for name, places in (("A", alignment.alone_a), (letter, alignment.alone_b))
        if len(places)
    ]
    return ["; ".join([sentence, *alone]) + ".", build_hint("how nodes are matched", _MATCHED)]


def _list_changes(
    comparison: Comparison, title: str, changes: Sequence[NodeChange], letter: str, side: Sequence[str]
) -> Any:
    if not changes:
        return html.Div([html.H3(title), html.P("none", className="cs-dim")])
    rows = []
    listed = [
        (change, describe_side_node(comparison.a, change.rank_a, change.row_a))
        for change in changes[:_LISTED]
    ]
    often = Counter((words["rank"], words["name"]) for _, words in listed)
    for change, words in listed:
        several = often[words["rank"], words["name"]] > 1
        rows.append(
            (
                _build_node_link(words, side, select=True, several=several),
                str(words["rank"]),
                build_rounded_value(format_ns(change.a_ns), f"{change.a_ns:,} ns"),
                build_rounded_value(format_ns(change.b_ns), f"{change.b_ns:,} ns"),
                _build_coloured_change(change.difference_ns),
                build_rounded_value(
                    format_signed_ns(change.total_ns),
                    f"{change.total_ns:+,} ns on {format_counted(change.ranks, 'rank')}",
                ),
            )
        )
    head = ("Node", "on rank", "A", letter, f"{letter} − A", "all ranks")
    return html.Div(
        [html.H3(title), _build_node_table(head, rows, title)],
    )


def _build_node_table(head: Sequence[str], rows: Sequence[Sequence[Any]], title: str) -> Any:
    shown = build_table(head, rows, numeric=range(1, len(head)))
    return html.Div(
        with_copy_button(shown, title),
        className="cs-compare-wide cs-compare-nodes",
        tabIndex=0,
        role="region",
        **build_aria_label(title),
    )


def _build_node_link(
    words: dict[str, Any], side: Sequence[str], *, select: bool, several: bool = False
) -> Any:
    """Return a link to a node; with its id if several in the table have its name."""
    changes = {"rank": words["rank"], "node": words["node"]}
    name = words["name"] or f"node {words['node']}"
    shown = f"{name} ({words['node']})" if several and words["name"] else name
    to = build_address("/timeline", {"job": side[0], "run": side[1], **changes})
    how: dict[str, Any] = {"data-view": json.dumps(changes)} if select else {}
    return html.A(html.Bdi(shown), href=to, title=f"{name} · {words['type']} · id {words['node']}", **how)


def _build_coloured_change(ns: int) -> Any:
    kind = "cs-worse" if ns > 0 else "cs-better" if ns < 0 else ""
    return build_rounded_value(format_signed_ns(ns), f"{ns:+,} ns", classes=kind)


def _list_alone(comparison: Comparison, title: str, address: Sequence[str], *, of_b: bool) -> Any:
    """List what only one side has, a row for each name, and below, folded, the longest nodes one by one."""
    side = comparison.b if of_b else comparison.a
    nodes, count = (
        (comparison.added, comparison.added_count) if of_b else (comparison.removed, comparison.removed_count)
    )
    if not nodes:
        return html.Div([html.H3(title), html.P("none", className="cs-dim")])
    names = group_alone_by_name(side, comparison.alignment, of_b=of_b)
    rows = [
        (
            _build_alone_name(side, entry, address),
            format_count(entry.count),
            _build_duration(entry.total_ns if entry.longest_ns >= 0 else -1),
            format_count(entry.ranks),
            _build_longest_link(side, entry, address),
        )
        for entry in names[:_LISTED]
    ]
    rest = names[_LISTED:]
    if rest:
        more, total = sum(entry.count for entry in rest), sum(entry.total_ns for entry in rest)
        rows.append(
            (f"{format_count(len(rest))} more names", format_count(more), _build_duration(total), "", "")
        )
    ran = format_ns(sum(entry.total_ns for entry in names))
    timed = any(entry.longest_ns >= 0 for entry in names)
    head = f"{title}: {format_counted(count, 'node')}" + (f", {ran} together" if timed else "")
    data = [
        (entry.name, entry.count, entry.total_ns, entry.ranks, entry.longest_ns) for entry in names[:_NAMES]
    ]
    columns = ("name", "nodes", "total_ns", "ranks", "longest_ns")
    heading = html.Div(
        [
            html.H3(head),
            html.Span(style={"flex": 1}),
            build_export_buttons(f"only-{'b' if of_b else 'a'}", table=Table(columns, data), title=title),
        ],
        className="cs-compare-controls",
    )
    return html.Div(
        [
            heading,
            _build_node_table(("Name", "nodes", "together", "ranks", "longest"), rows, title),
            html.Details(
                [html.Summary("Single nodes, the longest"), _build_single_nodes(side, nodes, address, title)],
                className="cs-compare-single",
            ),
        ]
    )


def _build_single_nodes(side: Side, alone: Sequence[NodeAlone], address: Sequence[str], title: str) -> Any:
    rows = []
    for node in alone[:_LISTED]:
        words = describe_side_node(side, node.rank, node.row)
        shown = _build_node_link(words, address, select=False, several=True)
        rows.append((shown, str(words["rank"]), _build_duration(node.ns), format_count(node.ranks)))
    return _build_node_table(("Node", "on rank", "lasts", "ranks"), rows, f"{title}, single nodes")


def _build_duration(ns: int) -> Any:
    return build_rounded_value(format_ns(ns), f"{ns:,} ns") if ns >= 0 else "no time"


def _build_alone_name(side: Side, entry: AloneName, address: Sequence[str]) -> Any:
    """Return the name, as a link to the list of its nodes where it stands for one recorded name."""
    words = describe_side_node(side, entry.rank, entry.row)
    name = entry.name or "(no name)"
    if entry.name and entry.name == words["name"]:
        filters = json.dumps({"name": ["equals", entry.name]}, ensure_ascii=False)
        to = build_address("/nodes", {"job": address[0], "run": address[1], "f": filters})
        return html.A(html.Bdi(name), href=to, title=f"{name}: list the nodes of this name")
    return html.Bdi(name, title=f"{name} \N{MIDDLE DOT} {words['type']}")


def _build_longest_link(side: Side, entry: AloneName, address: Sequence[str]) -> Any:
    """Return a link to the longest node of a name."""
    words = describe_side_node(side, entry.rank, entry.row)
    to = build_address(
        "/timeline", {"job": address[0], "run": address[1], "rank": words["rank"], "node": words["node"]}
    )
    shown = format_ns(entry.longest_ns) if entry.longest_ns >= 0 else "first"
    return html.A(
        shown, href=to, title=f"{words['name']} \N{MIDDLE DOT} rank {words['rank']}, id {words['node']}"
    )


def _list_operations(comparison: Comparison, letter: str) -> Any:
    changed = [
        operation
        for operation in comparison.operations
        if operation.difference_ns or operation.count_a != operation.count_b
    ]
    rows = [
        (
            html.Bdi(operation.name or "(no name)", title=f"{operation.name} · {operation.type}"),
            operation.type.removeprefix("COMM_"),
            format_count(operation.count_a),
            format_count(operation.count_b),
            build_rounded_value(format_ns(operation.a_ns), f"{operation.a_ns:,} ns"),
            build_rounded_value(format_ns(operation.b_ns), f"{operation.b_ns:,} ns"),
            _build_coloured_change(operation.difference_ns),
        )
        for operation in changed[:_OPERATIONS]
    ]
    head = ("Operation", "Type", "Nodes A", letter, "Time A", letter, f"{letter} − A")
    data = [
        (
            operation.type,
            operation.name,
            operation.count_a,
            operation.count_b,
            operation.a_ns,
            operation.b_ns,
            operation.difference_ns,
        )
        for operation in comparison.operations[:2000]
    ]
    columns = ("type", "name", "count_a", "count_b", "a_ns", "b_ns", "difference_ns")
    shown = build_table(head, rows, numeric=range(2, len(head)))
    title = html.Div(
        [
            html.H3("Operations: nodes of one type and name, on all ranks, numbers in names left out"),
            html.Span(style={"flex": 1}),
            build_export_buttons("operations", table=Table(columns, data), title="operations"),
        ],
        className="cs-compare-controls",
    )
    if not rows:
        return html.Div(
            [title, html.P("Every operation takes equally long on both sides.", className="cs-dim")]
        )
    region = build_aria_label("Operations")
    return html.Div(
        [
            title,
            html.Div(
                shown, className="cs-compare-wide cs-compare-nodes", tabIndex=0, role="region", **region
            ),
        ]
    )


# ---------------------------------------------------------------------------------------------------
# Collectives


def build_heatmaps(shown: Lineup, *, dark: bool) -> Any:
    """Show the time of each rank in each collective, all runs on one colour scale."""
    sides = shown.sides
    tables = [_compute_durations(side) for side in sides]
    if not any(matrix.size for matrix, _ in tables):
        return None
    names = LETTERS[: len(sides)]
    graph = dcc.Graph(
        id="compare-heatmaps",
        figure=draw_beside(
            [durations for durations, _ in tables],
            [[rank.number for rank in side.side.trace.ranks] for side in sides],
            names,
            dark=dark,
            rows=[labels for _, labels in tables],
        ),
        config={"displaylogo": False, "displayModeBar": False},
        className="cs-figure",
    )
    rows = (
        (name, label, side.side.trace.ranks[rank].number, int(durations[row, rank]))
        for name, side, (durations, labels) in zip(names, sides, tables, strict=True)
        for row, label in enumerate(labels)
        for rank in np.flatnonzero(~np.isnan(durations[row])).tolist()
    )
    count = sum(int((~np.isnan(durations)).sum()) for durations, _ in tables)
    title = "time in collectives"
    if count > _CELLS:
        title += f", the first {_CELLS:,} of {count:,} cells"
    head = html.Div(
        [
            html.H2("Time of each rank in collectives"),
            html.Span(
                "in order of time, all sides on one colour scale, which follows the logarithm",
                className="cs-dim",
            ),
            html.Span(style={"flex": 1}),
            dcc.Link(
                "Open A and B in Collectives",
                href=_build_collectives_address(*sides[:2]),
                className="cs-button",
            ),
            build_export_buttons(
                "collectives",
                figure="compare-heatmaps",
                table=Table(("side", "collectives", "rank", "duration_ns"), list(islice(rows, _CELLS))),
                title=title,
            ),
        ],
        className="cs-compare-controls",
    )
    return html.Section([head, graph], className="cs-section")


def _build_collectives_address(first: Compared, other: Compared) -> str:
    """Return the address of Collectives with these two runs."""
    view = {"job": first.job, "run": first.run, "with": f"{other.job}/{other.run}", "metric": "duration"}
    return build_address("/collectives", view)


_ROWS = 120
_NAME_AT_MOST = 60


def _compute_durations(compared: Compared) -> tuple[Any, list[str]]:
    """Return (L, R) times of ranks in collectives, with names of the lines; neighbours share a line if there are many."""
    side = compared.side
    members = collect_members(side.trace, side.times, side.groups)
    if not len(members):
        return np.zeros((0, len(side.trace.ranks))), []
    rows = build_rows(members)
    edges = find_distinct(np.linspace(0, len(rows), min(len(rows), _ROWS) + 1).astype(int))[:-1]
    lines = np.searchsorted(edges, np.arange(len(rows)), side="right") - 1
    ends = [*edges[1:].tolist(), len(rows)]
    labels = []
    for low, high in zip(edges.tolist(), ends, strict=True):
        name = members.titles[int(members.title[rows.first[low]])][-_NAME_AT_MOST:]
        labels.append(f"{low} · {name}" if high - low == 1 else f"{low}–{high - 1} · {name} and more")
    return build_joined_matrix(members, rows, "duration", lines), labels
