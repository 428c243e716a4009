"""The content of a report: where the time of each run went, and how several runs differ."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from studio import __version__
from studio.analysis.collectives.apart import describe_apart
from studio.analysis.collectives.imbalance import (
    build_matrix,
    build_rows,
    compute_own_means,
    compute_spread,
    find_worst_rows,
)
from studio.analysis.collectives.members import Members, collect_members
from studio.analysis.collectives.times import CollectiveTimes, compute_collective_times, describe_presence
from studio.analysis.compare.changes import NodeChange
from studio.analysis.compare.runs import Comparison, Figure
from studio.analysis.compare.sides import Side
from studio.analysis.compare.words import (
    describe_basis,
    describe_comparison,
    describe_side_node,
    explain_devices,
    explain_mean,
    format_difference_share,
    format_signed_bytes,
    format_signed_ns,
    format_signed_share,
)
from studio.analysis.job.alike import count_alike, find_first_alike
from studio.analysis.job.blame import describe_assumed_host, sum_assumed_ns
from studio.analysis.job.completeness import describe_assumed
from studio.analysis.job.device_parts import DeviceParts
from studio.analysis.job.function_names import shorten_distinctly
from studio.analysis.job.kernels import describe_receives, list_kernels
from studio.analysis.job.launch_words import DELAY, describe_launches, describe_queue
from studio.analysis.job.launches import find_launches
from studio.analysis.job.ledger import PARTS, Ledger
from studio.analysis.job.part_words import ABOUT, NAMES
from studio.analysis.job.summary import summarise
from studio.comparing import (
    LETTERS,
    Compared,
    Progress,
    build_settings_table,
    compare_sides,
    compute_side_use,
)
from studio.distinct import find_distinct
from studio.figures.beside import draw_beside
from studio.figures.occupancy import draw_occupancy_areas
from studio.figures.queues import MOST_LINES, queue_lines
from studio.figures.ranks import draw_rank_times
from studio.figures.waterfall import draw_waterfall
from studio.reporting.advice import write_advice
from studio.reporting.answers import write_path, write_waits
from studio.reporting.document import Cell, Document
from studio.reporting.memory import write_memory
from studio.sim.doubts import format_cure_options
from studio.trace import CommGroup, Float64, Int64, Trace, compute_trace_digest, label_collective
from studio.units import format_bytes, format_count, format_counted, format_ns, format_percent, format_rate

_LISTED = 12
_NAME_WIDTH = 120
_FINDINGS = 20
_ROWS = 400
_RANKS_NAMED = 6


def build_report(sides: Sequence[Compared], progress: Progress | None = None) -> str:
    """Return a report about one run, or comparing several with the first, as one HTML file.

    It holds its figures and the script that draws them, and asks for nothing from any network. `progress` is told how
    many runs are compared and drawn.
    """
    tell = progress or (lambda _phase, _done, _total: None)
    title = " against ".join(side.name for side in sides)
    document = Document(f"{title} · Chakra Studio")
    document.heading(1, title)
    for letter, side in zip(LETTERS, sides, strict=False):
        _write_doubts(document, side, letter if len(sides) > 1 else "")
    if len(sides) > 1:
        for letter, other, comparison in zip(
            LETTERS[1:], sides[1:], compare_sides(sides, progress), strict=False
        ):
            _write_difference(document, comparison, (sides[0], other), letter)
        _write_settings(document, sides)
    for done, (letter, side) in enumerate(zip(LETTERS, sides, strict=False)):
        tell("drawing", done, len(sides) + 1)
        if len(sides) > 1:
            document.heading(2, f"{letter}: {side.name}")
        _write_run(document, side, tell, alone=len(sides) == 1)
    date = time.strftime("%Y-%m-%d %H:%M", time.localtime())
    hashes = ", ".join(dict.fromkeys(compute_trace_digest(side.side.trace)[:12] for side in sides))
    tell("drawing", len(sides), len(sides) + 1)
    html = document.html(f"Chakra Studio {__version__} · {date} · traces {hashes}")
    tell("drawing", len(sides) + 1, len(sides) + 1)
    return html


def _write_doubts(document: Document, run: Compared, letter: str) -> None:
    """Write the notice above a report: why a run is doubtful, what to simulate instead, and what could be quicker."""
    subject = f"{letter} ({run.name})" if letter else run.name
    if run.check:
        document.paragraph(f"{subject} is not to be believed as it stands: {run.check}", "verdict")
    if run.slower_way:
        document.paragraph(f"{subject}: {run.slower_way}", "dim")
    if not run.doubts:
        return
    document.paragraph(f"{subject} is not to be believed as it stands:", "verdict")
    document.bullets(
        [f"{'impossible' if doubt.impossible else 'doubtful'}: {doubt.message}" for doubt in run.doubts]
    )
    if options := format_cure_options(run.doubts):
        document.paragraph(f"Simulate again with {options}.", "dim")


# ---------------------------------------------------------------------------------------------------
# Several runs


def _write_difference(
    document: Document, comparison: Comparison, sides: tuple[Compared, Compared], letter: str
) -> None:
    document.heading(2, f"From A to {letter}")
    document.paragraph(
        describe_comparison(comparison, f"A ({sides[0].name})", f"{letter} ({sides[1].name})"), "verdict"
    )
    fall = comparison.waterfall("busiest")
    if comparison.difference_ns:
        document.figure(
            "Where the difference comes from",
            draw_waterfall(fall, ("A", letter), NAMES, dark=False),
            " ".join(
                filter(
                    None,
                    (
                        explain_mean(comparison, letter) or f"{describe_basis(fall).capitalize()}.",
                        explain_devices(comparison, letter),
                    ),
                )
            ),
        )
    document.table(
        ["part of the finish", "A", letter, "difference", "share of it"],
        [
            *(
                [
                    NAMES[step.part],
                    _format_time(step.a_ns),
                    _format_time(step.b_ns),
                    _format_change(step.difference_ns),
                    format_difference_share(step.share),
                ]
                for step in fall.steps
                if step.a_ns or step.b_ns
            ),
            [
                "finish",
                _format_time(fall.a_ns),
                _format_time(fall.b_ns),
                _format_change(fall.b_ns - fall.a_ns),
                "",
            ],
        ],
        numeric=(1, 2, 3, 4),
        caption="The parts add up exactly. Where others outweigh a part, so that it is more than the difference, no share is given.",
    )
    _write_figures(document, "Means over ranks", comparison.figures, letter)
    about = dict.fromkeys(side.side.dimensions.about for side in sides)
    caption = " Or: ".join(words for words in about if words)
    _write_figures(document, "Dimensions of the network", comparison.dimensions, letter, carried=caption)
    _write_changes(document, "Nodes that take longer", comparison, comparison.slower, letter)
    _write_changes(document, "Nodes that take less", comparison, comparison.faster, letter)
    alignment = comparison.alignment
    document.paragraph(
        f"{format_percent(alignment.share)} of the nodes could be matched, by {alignment.by}; {format_count(comparison.added_count)} "
        f"are in {letter} alone, {format_count(comparison.removed_count)} in A alone.",
        "dim",
    )


def _write_figures(
    document: Document, title: str, figures: Sequence[Figure], letter: str, *, carried: str = ""
) -> None:
    rows: list[list[Cell]] = []
    # A recording knows nothing of what the network carried.
    for difference in (figure for figure in figures if figure.difference is not None):
        shown, change = _SHOWN[difference.unit]
        change_text = change(difference.difference or 0)
        cells = ["" if value is None else shown(value) for value in (difference.a, difference.b)]
        name = f"{NAMES.get(difference.key, difference.key)}{_UNIT_NOTES[difference.unit] if carried else ''}"
        rows.append([name, *cells, change_text])
    if rows:
        document.heading(3, title)
        document.table(
            ["", "A", letter, "difference"],
            rows,
            numeric=(1, 2, 3),
            caption=carried,
        )


def _write_changes(
    document: Document, title: str, comparison: Comparison, changes: Sequence[NodeChange], letter: str
) -> None:
    if not changes:
        return
    rows: list[list[Cell]] = []
    for change in changes[:_LISTED]:
        node = describe_side_node(comparison.a, change.rank_a, change.row_a)
        rows.append(
            [
                node["name"] or "(no name)",
                str(node["rank"]),
                node["node"],
                _format_time(change.a_ns),
                _format_time(change.b_ns),
                _format_change(change.difference_ns),
            ]
        )
    document.heading(3, title)
    document.table(["node", "rank", "id", "A", letter, "difference"], rows, numeric=(1, 2, 3, 4, 5))


def _write_settings(document: Document, sides: Sequence[Compared]) -> None:
    rows = build_settings_table(sides)
    document.heading(2, "What differs in their settings")
    if not rows:
        document.paragraph("Nothing.")
        return
    document.table(
        ["setting", *LETTERS[: len(sides)]],
        [[key, *(value if value[0] else "–" for value in values)] for key, values in rows],
    )


# ---------------------------------------------------------------------------------------------------
# One run


def _write_run(document: Document, run: Compared, progress: Progress, *, alone: bool) -> None:
    side = run.side
    account, busy = compute_side_use(side)
    devices = side.device_parts(account)
    document.facts(_list_facts(side, account, devices))
    document.figure(
        "What the ranks were doing over time",
        draw_occupancy_areas(busy, dark=False),
        "Share of all ranks; a moment counts for one part only. What stays empty is idle: bubbles and stalls.",
    )
    arriving = sum_assumed_ns(side.trace, side.times, account)
    caption = (describe_assumed_host(account, arriving), "" if devices is None else devices.words())
    document.figure(
        "Where the time of each rank went",
        draw_rank_times(account, dark=False, assumed_ns=arriving),
        " ".join(filter(None, caption)),
    )
    _write_parts(document, account, devices)
    write_path(document, side, account)
    write_waits(document, side, account)
    if alone:
        write_advice(document, run, progress)
    every = [rank.number for rank in side.trace.ranks]
    members = collect_members(side.trace, side.times, side.groups)
    _write_kernels(document, side)
    write_memory(document, side)
    _write_collectives(document, side, members, every)
    _write_network(document, side)
    if alone:
        document.heading(3, "Settings")
        document.table(
            ["setting", "value"], [[key, (value.text, value.exact)] for key, value in run.settings.items()]
        )
    _write_findings(document, side)


def _write_kernels(document: Document, side: Side) -> None:
    """Write what runs longest by name."""
    ranked = list_kernels(side.trace, side.times)
    if not ranked:
        return
    document.heading(3, "What runs longest")
    rest = sum(kernel.share for kernel in ranked[_LISTED:])
    names = shorten_distinctly([kernel.name for kernel in ranked[:_LISTED]], _NAME_WIDTH)
    document.table(
        ["name", "kind", "count", "total", "share", "median", "longest"],
        [
            [
                name,
                kernel.kind,
                format_count(kernel.count),
                _format_time(kernel.total_ns),
                format_percent(kernel.share),
                _format_time(kernel.median_ns),
                _format_time(kernel.most_ns),
            ]
            for name, kernel in zip(names, ranked[:_LISTED], strict=True)
        ],
        numeric=(2, 3, 4, 5, 6),
        caption=f"Durations added up; * stands for numbers of steps and layers. All other names: {format_percent(rest)}. {describe_receives(side.trace)}".rstrip(),
    )
    _write_launches(document, side)


def _write_launches(document: Document, side: Side) -> None:
    """Write how late after their launch operations of devices began, and the queues of the first rank."""
    launches = find_launches(side.trace) if side.is_recording else None
    if launches is None:
        return
    first = [queue for queue in launches.queues if queue.rank == launches.queues[0].rank][:MOST_LINES]
    document.figure(
        "Launches and queues",
        queue_lines(first, dark=False),
        f"Operations launched and not ended. Launch delay: {DELAY[0].lower()}{DELAY[1:]}",
    )
    document.bullets(
        [*describe_launches(launches), *(describe_queue(queue, launches.queues) for queue in first)]
    )


def _list_facts(side: Side, account: Ledger, devices: DeviceParts | None) -> list[tuple[str, Cell]]:
    times, finish = account.totals() if devices is None else devices.times, account.finish_ns
    whose = "rank" if devices is None else "device"
    facts: list[tuple[str, Cell]] = [("finish", _format_time(side.makespan_ns))]
    for key, values in times.figures().items():
        words = f"{NAMES[key]}, mean of a {whose}" if key == "compute" else NAMES[key]
        facts.append((words, _format_mean(values, side.makespan_ns)))
    facts.append(("first to last rank", _format_time(int(finish.max() - finish.min()))))
    facts.append(("ranks", format_count(len(side.trace.ranks))))
    facts.append(("nodes", format_count(side.trace.node_count)))
    if assumed := describe_assumed(side.trace):
        facts.append(("recorded", assumed))
    return facts


def _format_mean(values: Int64, whole: int) -> Cell:
    mean = float(values.mean())
    return f"{format_ns(mean)} · {format_percent(mean / max(whole, 1))}", f"{mean:,.0f} ns"


def _write_parts(document: Document, account: Ledger, devices: DeviceParts | None) -> None:
    """Write each part of a rank's time, or a device's, and its definition; the parts add up to the finish."""
    times = account.totals() if devices is None else devices.times
    whose = "rank" if devices is None else "device"
    columns: dict[str, Int64] = {part: times.of(part) for part in PARTS}
    columns["after_finish"] = times.after_finish_ns
    rows: list[list[Cell]] = []
    for part, values in columns.items():
        if not values.any():
            continue
        ends = [_format_time(int(end)) for end in (values.min(), values.max())]
        rows.append([NAMES[part], _format_mean(values, account.makespan_ns), *ends, ABOUT[part]])
    document.table(
        ["part", f"mean of a {whose}", "least", "most", "what counts"],
        rows,
        numeric=(1, 2, 3),
        caption=f"Every nanosecond of a {whose} stands in one part; they add up to the finish of the run.",
    )


def _bin_rows(table: Float64) -> Float64:
    """Return a table of (L, R) reduced to at most `_ROWS` rows, each the maximum of its neighbours."""
    if len(table) <= _ROWS:
        return table
    edges = np.linspace(0, len(table), _ROWS + 1).astype(np.int64)[:-1]
    lowered = np.where(np.isnan(table), -np.inf, table)
    most: Float64 = np.maximum.reduceat(lowered, edges, axis=0)
    return np.where(np.isinf(most), np.nan, most)


def _write_collectives(document: Document, side: Side, members: Members, numbers: Sequence[int]) -> None:
    times = compute_collective_times(side.trace, side.times, side.groups)
    if apart := describe_apart(times.apart_by_group()):
        document.paragraph(apart[0].upper() + apart[1:] + ".")
    if not len(times):
        document.paragraph("No collective of this run has times.", "dim")
        return
    rows: list[list[Cell]] = []
    for kind in find_distinct(times.type).tolist():
        of_kind = times.type == kind
        taken = times.duration_ns[of_kind]
        rows.append(
            [
                label_collective(kind),
                format_count(int(of_kind.sum())),
                _format_size(float(times.bytes[of_kind].sum())) if times.bytes.any() else "not recorded",
                _format_time(int(taken.sum())),
                _format_time(int(taken.max())),
                _format_time(int(times.skew_ns[of_kind].sum())) if times.tells_skew[of_kind].any() else "–",
                _format_median_rate(times.bus_bytes_per_ns[of_kind]),
            ]
        )
    document.heading(3, "Collectives by type")
    document.table(
        [
            "type",
            "count",
            "bytes of the largest member",
            "total time",
            "longest",
            "waiting for the last",
            "bus bandwidth, median",
        ],
        rows,
        numeric=(1, 2, 3, 4, 5, 6),
        caption="Time from the first member's beginning to the last one's end; bandwidth as nccl-tests defines it, from the last arrival.",
    )
    table = _bin_rows(build_matrix(members, build_rows(members), "duration"))
    if table.size and not np.isnan(table).all():
        document.figure(
            "When collectives took long, and on which ranks",
            draw_beside([table], [numbers], ["duration"], dark=False),
            "Rows in order of time. Where there are many, a row stands for several and shows the longest. Colours "
            "follow the logarithm.",
        )
    _write_slowest(document, side.trace, times, side.groups)
    _write_uneven(document, members)


def _write_slowest(
    document: Document, trace: Trace, times: CollectiveTimes, groups: Sequence[CommGroup] | None
) -> None:
    kinds, alike = find_first_alike(
        times.type, times.members, times.bytes, times.duration_ns, times.skew_ns, times.present
    )
    order = np.argsort(-times.duration_ns[kinds], kind="stable")[:_LISTED]
    rows: list[list[Cell]] = [
        [
            label_collective(int(times.type[index])),
            count_alike(_label_group(trace, times, index, groups), count),
            str(int(times.position[index])),
            _format_size(float(times.bytes[index])) if times.bytes.any() else "not recorded",
            _format_time(int(times.duration_ns[index])),
            _format_time(int(times.skew_ns[index])) if times.tells_skew[index] else "–",
            str(int(times.last_rank[index])) if times.tells_skew[index] else "–",
            _format_median_rate(times.bus_bytes_per_ns[index : index + 1]),
        ]
        for index, count in zip(kinds[order].tolist(), alike[order].tolist(), strict=True)
    ]
    document.heading(3, "Longest collectives")
    document.table(
        [
            "type",
            "comm group",
            "number",
            "bytes",
            "time",
            "waiting for the last",
            "last rank",
            "bus bandwidth",
        ],
        rows,
        numeric=(2, 3, 4, 5, 6, 7),
    )


def _label_group(trace: Trace, times: CollectiveTimes, index: int, groups: Sequence[CommGroup] | None) -> str:
    """Return a collective's comm group, with which part of its members has the collective where not all have."""
    name = times.groups[int(times.group[index])]
    partly = describe_presence(trace, name, int(times.present[index]), groups)
    return f"{name or 'all ranks'}{f' ({partly})' if partly else ''}"


def _write_uneven(document: Document, members: Members) -> None:
    rows = build_rows(members)
    table = build_matrix(members, rows, "size")
    worst = find_worst_rows(
        table, compute_spread(table, compute_own_means(members, rows, table)), most=_LISTED
    )
    document.heading(3, "Collectives in which ranks carry unequal loads")
    if not members.sized:
        document.paragraph("Not known: the trace does not record how much they move.")
        return
    if not worst:
        document.paragraph("All ranks of a group put equally much into each collective.")
        return
    cells: list[list[Cell]] = []
    for offender in worst:
        first = int(rows.first[offender.row])
        heavy = ", ".join(map(str, offender.heavy[:_RANKS_NAMED])) + (
            " …" if len(offender.heavy) > _RANKS_NAMED else ""
        )
        cells.append(
            [
                members.titles[int(members.title[first])] or "(no name)",
                members.groups[int(members.group[first])] or "all ranks",
                heavy,
                _format_size(offender.most),
                f"{offender.max:.3f}",
                _format_size(offender.excess),
            ]
        )
    document.table(
        ["collective", "comm group", "ranks above the mean", "most", "max / mean", "to move for balance"],
        cells,
        numeric=(3, 4, 5),
    )


def _write_network(document: Document, side: Side) -> None:
    for title, carried in (("Dimensions of the network", side.dimensions), ("Busiest links", side.links)):
        if not carried.names:
            continue
        are_links = title == "Busiest links"
        chosen = np.arange(len(carried.names))
        alike = np.ones(len(chosen), np.int64)
        if are_links:
            chosen, alike = find_first_alike(carried.bytes, carried.busy_ns)
            order = np.argsort(-carried.busy_ns[chosen], kind="stable")[:_LISTED]
            chosen, alike = chosen[order], alike[order]
        document.heading(3, title)
        document.table(
            ["", "bytes", "share of the finish spent sending" if are_links else "offered load"],
            [
                [
                    count_alike(carried.names[index], count),
                    _format_size(float(carried.bytes[index])),
                    _format_load(float(carried.load[index])),
                ]
                for index, count in zip(chosen.tolist(), alike.tolist(), strict=True)
            ],
            numeric=(1, 2),
            caption=carried.about,
        )


def _write_findings(document: Document, side: Side) -> None:
    findings = side.trace.findings
    document.heading(3, "What the reader noticed")
    if not findings:
        document.paragraph(f"No findings in {format_counted(summarise(side.trace).nodes, 'node')}.")
        return
    document.bullets([f"{finding.level}: {finding.message}" for finding in findings[:_FINDINGS]])
    if len(findings) > _FINDINGS:
        document.paragraph(
            f"{format_count(len(findings) - _FINDINGS)} more: chakra-studio info lists all.", "dim"
        )


# ---------------------------------------------------------------------------------------------------
# Numbers


def _format_time(ns: float) -> Cell:
    return format_ns(ns), f"{ns:,.0f} ns"


def _format_change(ns: float) -> Cell:
    return format_signed_ns(ns), f"{ns:+,.0f} ns"


def _format_size(size: float) -> Cell:
    return format_bytes(size), f"{size:,.0f} bytes"


def _format_load(load: float) -> Cell:
    return "–" if np.isnan(load) else (format_percent(load), f"{100 * load:.6g} %")


def _format_median_rate(rates: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Cell:
    known = rates[~np.isnan(rates)]
    if not len(known):
        return "–"
    middle = float(np.median(known))
    return format_rate(middle), f"{middle:.6g} bytes per ns"


_SHOWN = {
    "ns": (_format_time, format_signed_ns),
    "bytes": (_format_size, format_signed_bytes),
    "share": (_format_load, format_signed_share),
}
_UNIT_NOTES = {"ns": ", time one port takes to send it", "bytes": ", bytes of all", "share": ", offered load"}
