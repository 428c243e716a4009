"""Who came last to collectives, and what lasted longer there: beside the heatmap, and below the table by size."""

from __future__ import annotations

from typing import Any

from dash import dcc, html

from studio.analysis.collectives.heat import Shown
from studio.analysis.job.late_ranks import Late, count_awaited, count_last_ranks, describe_causes
from studio.analysis.job.node_refs import format_node_ref
from studio.pages.base.export import Table, build_export_buttons
from studio.pages.base.state import get_session
from studio.pages.base.widgets import build_address, build_rounded_value, build_table, with_hint
from studio.trace import NONE, Int64
from studio.units import format_count, format_counted, format_ns
from studio.views.collectives import collect_times, compute_lateness, list_late_ranks

_BESIDE, _LISTED = 3, 16
_WAITED = "How long all others waited for this rank in collectives, no work hiding it: what Overview and breakdown call waiting."
_SKEW = "How long the first member of each collective that this rank came last to was there before it, added up, whether work hid it or not; and the longest."
_LONGER = (
    "From the last moment at which all members had met until each came, by the innermost node under way: what lasted longer on this rank "
    "than on the others in the mean, in its eight longest skews at most."
)


def build_late_list(job: str, run: str, view: dict[str, Any]) -> Any:
    """Return the ranks that came last, for the side of the heatmap; None where no rank waited for another."""
    late_ranks = list_late_ranks(get_session(), job, run, _LISTED)
    if not late_ranks:
        return None
    times = collect_times(get_session(), job, run)
    total = count_awaited(times)
    items = [
        html.Li(
            [
                dcc.Link(
                    f"rank {late.rank}",
                    href=_build_node_address(job, view, "/timeline", late),
                    className="cs-worst-name",
                ),
                html.Div(
                    [
                        f"last to {format_count(late.collectives)} of {format_count(total)}, waited for ",
                        build_rounded_value(format_ns(late.waited_ns), f"{late.waited_ns:,} ns"),
                    ],
                    className="cs-worst-ranks",
                ),
                html.Div(
                    [
                        html.Span(f"longer there: {cause} · " if (cause := late.cause()) else ""),
                        dcc.Link("node", href=_build_node_address(job, view, "/nodes", late)),
                        " · ",
                        dcc.Link("timeline", href=_build_node_address(job, view, "/timeline", late)),
                    ],
                    className="cs-dim",
                ),
            ]
        )
        for late in late_ranks[:_BESIDE]
    ]
    more = count_last_ranks(times) - _BESIDE
    rest = f"and {format_counted(more, 'more rank')}, under By size" if more > 0 else ""
    return html.Div(
        [
            html.H2(with_hint("Who comes last", _LONGER)),
            html.Ol(items, className="cs-worst"),
            html.P(rest, className="cs-dim") if rest else None,
        ],
        className="cs-coll-late",
    )


def build_late_table(job: str, run: str, view: dict[str, Any]) -> Any:
    """Return the table of ranks that came last; None where no rank waited for another."""
    late_ranks = list_late_ranks(get_session(), job, run, _LISTED)
    if not late_ranks:
        return None
    times = collect_times(get_session(), job, run)
    total = count_awaited(times)
    rows = [
        (
            html.Span(
                [
                    dcc.Link(f"rank {late.rank}", href=_build_node_address(job, view, "/timeline", late)),
                    " · ",
                    dcc.Link("node", href=_build_node_address(job, view, "/nodes", late)),
                ]
            ),
            f"{format_count(late.collectives)} of {format_count(total)}",
            build_rounded_value(format_ns(late.waited_ns), f"{late.waited_ns:,} ns"),
            build_rounded_value(format_ns(late.skew_ns), f"{late.skew_ns:,} ns"),
            build_rounded_value(format_ns(late.longest_ns), f"{late.longest_ns:,} ns"),
            html.Bdi(late.cause() or "–"),
        )
        for late in late_ranks
    ]
    more = count_last_ranks(times) - len(late_ranks)
    head = (
        "Rank", "Last to", with_hint("Waited for", _WAITED), with_hint("Skew", _SKEW), "Most", with_hint("Longer there than on the others", _LONGER),
    )  # fmt: skip
    return html.Div(
        [
            html.Div(
                [
                    html.H2("Who comes last, and what takes longer there"),
                    build_export_buttons("ranks-that-come-last", table=_build_numbers(late_ranks)),
                ],
                className="cs-figure-head",
            ),
            html.Div(build_table(head, rows, numeric=(1, 2, 3, 4)), className="cs-scroll"),
            html.P(f"and {format_counted(more, 'more rank')}", className="cs-dim") if more > 0 else None,
        ],
        className="cs-coll-late-table",
    )


def find_last_member(shown: Shown, cells: Int64) -> tuple[int, int, int] | None:
    """Return the member that came last to the collective of a single cell: place of its rank, its node, and how much earlier the cell's rank came.

    None where the cell adds up several, its rank came last itself, or nothing tells.
    """
    members = shown.heat.members
    if len(cells) != 1:
        return None
    cell = int(cells[0])
    which = int(members.offsets.searchsorted(cell, side="right")) - 1
    start = int(members.start_ns[cell])
    if start == NONE or members.apart[which]:
        return None
    of = slice(int(members.offsets[which]), int(members.offsets[which + 1]))
    last = of.start + int(members.start_ns[of].argmax())
    waited = int(members.start_ns[last]) - start
    return (int(members.rank[last]), int(members.row[last]), waited) if waited > 0 else None


def explain_waiting(shown: Shown, cells: Int64, job: str, run: str, view: dict[str, Any]) -> list[Any]:
    """Say by how much the rank of a cell came earlier than the last one, and what lasted longer there; nothing where it did not."""
    last = find_last_member(shown, cells)
    if last is None:
        return []
    place, row, waited = last
    rank = shown.trace.ranks[place]
    keep = {"job": job, "run": view.get("run"), "rank": str(rank.number)}
    node = format_node_ref(shown.trace.graph_of(rank), row)
    why = compute_lateness(get_session(), job, run).at(place, row)
    cause = describe_causes(why[1]) if why else ""
    return [
        build_rounded_value(format_ns(waited), f"{waited:,} ns"),
        " than ",
        dcc.Link(f"rank {rank.number}", href=build_address("/timeline", keep, node=node)),
        html.Bdi(f": {cause}" if cause else ""),
    ]


def _build_node_address(job: str, view: dict[str, Any], page: str, late: Late) -> str:
    """Return the address of the node of a rank in the collective of its longest skew."""
    node = format_node_ref(get_session().trace(job).graph_of(late.rank), late.row)
    return build_address(page, {"job": job, "run": view.get("run")}, rank=str(late.rank), node=node)


def _build_numbers(late_ranks: list[Late]) -> Table:
    columns = (
        "rank", "collectives", "waited_ns", "skew_ns", "longest_ns", "looked_at", "late_ns", "part", "name", "there_ns", "others_ns",
    )  # fmt: skip
    rows: list[tuple[Any, ...]] = []
    for late in late_ranks:
        about = (
            late.rank,
            late.collectives,
            late.waited_ns,
            late.skew_ns,
            late.longest_ns,
            late.looked_at,
            late.late_ns,
        )
        rows += [(*about, each.part, each.name, each.ns, each.others_ns) for each in late.longer] or [
            (*about, "", "", None, None)
        ]
    return Table(columns, rows)
