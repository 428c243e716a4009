"""Overview: what is this job?"""

from __future__ import annotations

from typing import Any

import dash
from dash import Input, Output, callback, dcc, html

from studio.analysis.communication import GroupUse, group_use
from studio.analysis.summary import Summary
from studio.figures.groups import group_matrix
from studio.pages._export import Table, copied, exports
from studio.pages._state import trace, workspace
from studio.pages._widgets import exact, findings_list, guarded, link, no_job, page, table, term
from studio.units import format_bytes, format_count, format_ns, format_si
from studio.workspace import JobInfo

dash.register_page(__name__, path="/overview", name="Overview", title="Overview · Chakra Studio", order=1)


def layout(**_query: str) -> Any:
    """Return the page; its content follows the view."""
    return html.Div(id="overview-body")


@callback(Output("overview-body", "children"), Input("view", "data"), Input("theme", "data"))
@guarded
def show(view: dict[str, Any], theme: str) -> Any:
    """Show the job of the view."""
    if not view.get("job"):
        return no_job()
    info = workspace().info(view["job"])
    found = trace(view["job"])
    summary = info.summary
    use = group_use(found)
    figure = group_matrix(use, dark=theme == "dark")
    return page(
        info.name,
        _facts(summary),
        html.Div(
            [
                html.Div([html.H2("Nodes by type"), _types(summary)], className="cs-section"),
                html.Div([html.H2("Communication by type"), _collectives(summary)], className="cs-section"),
            ],
            className="cs-columns",
        ),
        html.Div(
            [
                html.Div(
                    [
                        html.H2(["Which ranks communicate in which groups", term("comm group", "")]),
                        exports("groups-and-ranks", figure="overview-groups", table=_use_table(use))
                        if figure
                        else None,
                    ],
                    className="cs-figure-head",
                ),
                dcc.Graph(
                    id="overview-groups",
                    figure=figure,
                    config={"displaylogo": False, "displayModeBar": False},
                    className="cs-figure",
                )
                if figure
                else html.P("No collective names a comm group, and no group is listed.", className="cs-dim"),
            ],
            className="cs-section",
        ),
        html.Div(
            [
                html.H2("What the reader noticed"),
                findings_list(found.findings),
                html.P(
                    dcc.Link(
                        "Findings: what else may be wrong, what follows from it, what can be mended",
                        href=link("/findings", {"job": view["job"]}),
                    )
                ),
            ],
            className="cs-section",
        ),
        controls=_next(info, view),
    )


def _use_table(use: GroupUse) -> Table:
    """Return the numbers behind the matrix of groups and ranks."""
    columns = (use.group.tolist(), use.rank.tolist(), use.count.tolist(), use.bytes.tolist())
    rows = [
        (use.groups[g] or "all ranks", use.ranks[r], count, size)
        for g, r, count, size in zip(*columns, strict=True)
    ]
    return Table(("group", "rank", "nodes", "bytes"), rows)


def _next(info: JobInfo, view: dict[str, Any]) -> list[Any]:
    keep = {"job": view["job"]}
    return [
        html.Span(f"imported from {info.source}" if info.source else "", className="cs-dim"),
        html.Span(style={"flex": 1}),
        dcc.Link("See the graph", href=link("/graph", keep), className="cs-button"),
        dcc.Link("List the nodes", href=link("/nodes", keep), className="cs-button"),
    ]


def _facts(summary: Summary) -> Any:
    span = "none recorded" if summary.start_ns < 0 else format_ns(summary.end_ns - summary.start_ns)
    span_exact = (
        f"{summary.start_ns:,} to {summary.end_ns:,} ns"
        if summary.start_ns >= 0
        else "no node has a start time"
    )
    facts = [
        (term("rank", "ranks"), exact(format_count(summary.ranks), summary.ranks)),
        (term("graph", "distinct graphs"), exact(format_count(summary.graphs), summary.graphs)),
        (term("node", "nodes, all ranks"), exact(format_count(summary.nodes), summary.nodes)),
        (term("data dependency", "data dependencies"), exact(format_count(summary.data_dependencies), "")),
        (
            term("control dependency", "control dependencies"),
            exact(format_count(summary.control_dependencies), ""),
        ),
        (term("recorded span"), exact(span, span_exact)),
        (
            term("operations"),
            exact(format_si(summary.operations, "FLOP"), f"{summary.operations:,}")
            if summary.operations
            else "none named",
        ),
        ("schema", ", ".join(summary.schema) or "not named"),
    ]
    return html.Dl(
        [html.Div([html.Dt(label), html.Dd(value)]) for label, value in facts], className="cs-facts"
    )


def _range(least: int, most: int) -> str:
    return format_count(least) if least == most else f"{format_count(least)} to {format_count(most)}"


_STANDS_OUT = 1.005
_COLOUR = {
    "COMP": "compute",
    "COMM_COLL": "collective",
    "COMM_SEND": "p2p",
    "COMM_RECV": "p2p",
    "MEM_LOAD": "memory",
    "MEM_STORE": "memory",
}


def _types(summary: Summary) -> Any:
    rows = []
    for share in summary.types:
        swatch = html.Span(
            className="cs-swatch", style={"background": f"var(--cs-{_COLOUR.get(share.name, 'host')})"}
        )
        mean_ns = share.duration_ns / summary.ranks
        rows.append(
            (
                html.Span([swatch, share.name]),
                format_count(share.nodes),
                _range(share.rank_least, share.rank_most),
                exact(format_ns(mean_ns), f"{mean_ns:,.0f} ns") if share.duration_ns else "–",
                _worst(share.duration_most_ns, mean_ns, share.duration_most_rank, "ns"),
            )
        )
    head = ("Type", "Nodes", "On each rank", "Recorded, mean of a rank", _max_over_mean("recorded time"))
    return copied(table(head, rows, numeric=(1, 2, 3, 4)), "nodes by type")


def _worst(most: int, mean: float, rank: int, unit: str) -> Any:
    """Return how far the rank with most stands out, and which it is."""
    if not most:
        return "–"
    ratio = most / mean
    # Where the ranks are level none of them stands out.
    which = f" on rank {rank}" if ratio >= _STANDS_OUT else ""
    return exact(f"{ratio:.2f}{which}", f"{most:,} / {mean:,.1f} {unit}")


def _max_over_mean(what: str) -> Any:
    return html.Span(
        "Max / mean", title=f"The rank with most {what} over the mean of all ranks: 1 is balanced"
    )


def _collectives(summary: Summary) -> Any:
    if not summary.collectives:
        return html.P("This job has no communication nodes.", className="cs-dim")
    rows = [
        (
            share.name,
            format_count(share.nodes),
            exact(format_bytes(share.bytes), f"{share.bytes:,} bytes"),
            exact(format_bytes(share.bytes_mean), f"{share.bytes_mean:,.1f} bytes"),
            _worst(share.bytes_most, share.bytes_mean, share.bytes_most_rank, "bytes"),
        )
        for share in summary.collectives
    ]
    head = (
        "Type",
        "Nodes",
        term("bytes", "Bytes, all ranks"),
        "Mean of a rank",
        _max_over_mean("bytes"),
    )
    return copied(table(head, rows, numeric=(1, 2, 3, 4)), "communication by type")
