"""The tables of Overview: nodes by type, communication by type, bytes of groups and ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dash import dcc, html

from studio.analysis.collectives.groups import GroupUse
from studio.analysis.job.files import LEFT_OUT
from studio.analysis.job.kinds import ASSUMED_ARRIVAL, DEVICE_GAP, HOST_GAP, LIBRARY_KERNEL
from studio.analysis.job.summary import Summary, describe_unknown_kernels
from studio.analysis.job.type_times import TypeTime
from studio.doctor.diagnosis import Diagnosis
from studio.pages.base.export import Table, with_copy_button
from studio.pages.base.widgets import (
    build_address,
    build_aria_label,
    build_hint,
    build_rounded_value,
    build_table,
    build_term,
)
from studio.pages.simulate.believing import choose_mark
from studio.store.run_infos import RunInfo
from studio.trace import NONE
from studio.units import format_bytes, format_count, format_count_range, format_ns


def build_use_table(use: GroupUse) -> Table:
    """Return the numbers behind the matrix of groups and ranks."""
    arrays = (use.group, use.rank, use.count, use.bytes, use.sized)
    rows = [
        (use.groups[g] or "all ranks", use.ranks[r], count, size if sized or not count else "not recorded")
        for g, r, count, size, sized in zip(*(array.tolist() for array in arrays), strict=True)
    ]
    return Table(("group", "rank", "nodes", "bytes"), rows)


_STANDS_OUT = 1.005
_ADDED = (
    "Durations of the nodes added up. Each counts in full where several are under way at once, so that a type can have "
    "more than the whole takes."
)
_NOT_COMPUTE: Mapping[str, str] = {
    ASSUMED_ARRIVAL: "Time before a collective for which a rank that was not recorded is assumed to be on the host, as long as recorded ranks "
    "may have waited for it. No recording has it.",
    HOST_GAP: "Time of the processor that belongs to no operator: the program between operators, the rest of a call, what came after "
    "waiting. Where nothing else is under way meanwhile it is part of idle.",
    DEVICE_GAP: "Time for which a stream of the device stood idle between two of its operations. Where nothing else is under way "
    "meanwhile it is part of idle.",
    LIBRARY_KERNEL: "Kernels that communicate of which neither size nor group is known, as where they were launched before the "
    "recording began, or where no recorder writes what they move. Their time is communication; in a simulation they keep it on every network.",
}
_PATHS_NAMED, _PATHS_LISTED = 2, 500
_COLOUR = {
    "COMP": "compute",
    "COMM_COLL": "collective",
    "COMM_SEND": "p2p",
    "COMM_RECV": "p2p",
    "COPY": "copy",
    LIBRARY_KERNEL: "collective",
    "MEM_LOAD": "memory",
    "MEM_STORE": "memory",
}


def build_doubt_lines(info: RunInfo | None) -> Any:
    """Say why the times of a run are not to be believed as they stand, None where nothing is doubtful."""
    if info is None or not info.doubts:
        return None
    more = dcc.Link(
        "Simulate: what to do about it", href=build_address("/simulate", {"job": info.job, "run": info.id})
    )
    items = [
        html.Li(
            [
                html.Span(
                    choose_mark([doubt]), className=f"cs-level-{'error' if doubt.impossible else 'warning'}"
                ),
                f" {doubt.message}",
            ]
        )
        for doubt in info.doubts
    ]
    return html.Section(
        [html.Ul(items), more], className="sim-doubts", **build_aria_label("Why this run is doubtful")
    )


def select_findings(diagnoses: Sequence[Diagnosis]) -> list[Diagnosis]:
    """Return what Overview lists of a check: files that are no part of the job stand in the list of files."""
    return [
        diagnosis for diagnosis in diagnoses if diagnosis.level != "info" or diagnosis.code not in LEFT_OUT
    ]


def collect_recorded_times(summary: Summary) -> dict[str, TypeTime]:
    """Return the recorded times of types, as wide in a table as those of a run that is still added up."""
    return {
        share.name: TypeTime(share.duration_ns or 1, share.duration_most_ns or 1, share.duration_most_rank)
        for share in summary.types
    }


def build_types_table(
    summary: Summary, run: Mapping[str, TypeTime] | None = None, *, ran: bool = True
) -> Any:
    """Return the table of nodes by type; times of a run, if one is shown, stand before those of the files, if these hold some.

    Args:
        summary: What the job consists of.
        run: Times of a run by type.
        ran: Whether the job ran and was recorded: durations of other files are estimates of whoever wrote them.
    """
    rows = []
    recorded = summary.duration_ns > 0
    for share in summary.types:
        swatch = html.Span(
            className="cs-swatch", style={"background": f"var(--cs-{_COLOUR.get(share.name, 'host')})"}
        )
        row = [
            html.Span([swatch, share.name, *_build_type_hint(share.name)], className="cs-type"),
            format_count(share.nodes),
            format_count_range(share.rank_least, share.rank_most),
        ]
        if run is not None:
            took = run.get(share.name, TypeTime(0, 0, NONE))
            row += _build_mean_cells(took, summary.ranks)
        if recorded:
            held = TypeTime(share.duration_ns, share.duration_most_ns, share.duration_most_rank)
            row += _build_mean_cells(held, summary.ranks)
        rows.append(row)
    head: list[Any] = ["Type", "Nodes", "On each rank"]
    if run is not None:
        head += [
            ["In run, mean rank", build_hint("time in the run", _ADDED)],
            _build_ratio_head("time in the run"),
        ]
    if recorded:
        name, what = ("Recorded", "recorded time") if ran else ("In the files", "time in the files")
        head += [[f"{name}, mean rank", build_hint(what, _ADDED)], _build_ratio_head(what)]
    return with_copy_button(build_table(head, rows, numeric=range(1, len(head))), "nodes by type")


def _build_type_hint(name: str) -> list[Any]:
    return [build_hint(name, _NOT_COMPUTE[name])] if name in _NOT_COMPUTE else []


def _build_mean_cells(took: TypeTime, ranks: int) -> list[Any]:
    """Return cells with the mean time of a rank, and the largest relative to it."""
    mean_ns = took.total_ns / ranks
    return [
        build_rounded_value(format_ns(mean_ns), f"{mean_ns:,.0f} ns") if took.total_ns else "–",
        _build_worst_cell(took.most_ns, mean_ns, took.most_rank, "ns"),
    ]


def _build_worst_cell(most: int, mean: float, rank: int, unit: str) -> Any:
    """Return a cell with max / mean, and the rank that has the maximum."""
    if not most:
        return "–"
    ratio = most / mean
    # Where the ranks are level, or several have most, none of them stands out.
    which = f" on rank {rank}" if ratio >= _STANDS_OUT and rank != NONE else ""
    return build_rounded_value(f"{ratio:.2f}{which}", f"{most:,} / {mean:,.1f} {unit}")


def _build_size_cell(size: float, nodes: int, lacking: int) -> Any:
    """Return a cell with a size; says if it was not recorded for all nodes."""
    if not lacking:
        return build_rounded_value(format_bytes(size), f"{size:,.10g} bytes")
    if lacking == nodes:
        return html.Span("not recorded", title="No node of this type has a size (comm_size).")
    title = f"{size:,.10g} bytes; {lacking:,} of {nodes:,} nodes have no size (comm_size)"
    return build_rounded_value(f"{format_bytes(size)} and more", title)


def _build_ratio_head(what: str) -> Any:
    return html.Span(
        "Max / mean", title=f"The rank with most {what} over the mean of all ranks: 1 is balanced"
    )


def build_collectives_table(summary: Summary, lacking: Mapping[str, int]) -> Any:
    """Return the table of communication by type; `lacking` counts the nodes of each that have no size."""
    if not summary.collectives:
        unknown = describe_unknown_kernels(summary)
        return html.P(unknown or "This job has no communication nodes.", className="cs-dim")
    rows = [
        (
            share.name,
            format_count(share.nodes),
            _build_size_cell(share.bytes, share.nodes, lacking.get(share.name, 0)),
            _build_size_cell(share.bytes_mean, share.nodes, lacking.get(share.name, 0)),
            _build_worst_cell(share.bytes_most, share.bytes_mean, share.bytes_most_rank, "bytes"),
        )
        for share in summary.collectives
    ]
    head = (
        "Type",
        "Nodes",
        build_term("bytes", "Bytes, all ranks"),
        "Mean per rank",
        _build_ratio_head("bytes"),
    )
    return with_copy_button(build_table(head, rows, numeric=(1, 2, 3, 4)), "communication by type")


def build_source(source: str) -> Any:
    """Return the sources of a job: its file or folder, or a list that opens.

    Args:
        source: As the workspace keeps it, a path a line.
    """
    paths = source.splitlines()
    if len(paths) < 2:
        words = html.Bdi(f"imported from {source}") if source else ""
        return html.Span(words, className="cs-dim cs-source", title=source)
    bases = [path.rstrip("/").rpartition("/")[2] for path in paths[:_PATHS_NAMED]]
    more = len(paths) - len(bases)
    words = f"imported from {', '.join(bases)}" + (f" and {format_count(more)} more" if more else "")
    listed = [html.Li(html.Bdi(path)) for path in paths[:_PATHS_LISTED]]
    rest = len(paths) - len(listed)
    if rest:
        listed.append(html.Li(f"and {format_count(rest)} more", className="cs-dim"))
    return html.Div(
        html.Details(
            [
                html.Summary(html.Bdi(words), title="Show all paths"),
                html.Div(
                    html.Ul(listed), role="region", tabIndex=0, **build_aria_label("Sources of the job")
                ),
            ],
            className="cs-menu cs-source-list",
        ),
        className="cs-dim cs-source",
    )
