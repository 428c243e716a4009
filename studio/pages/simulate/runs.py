"""The result of a run: when it finishes, where its time went, and what its links carried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from dash import dcc, html

from studio.analysis.job.alike import count_alike
from studio.analysis.job.blame import describe_assumed_host, sum_assumed_ns
from studio.analysis.job.ledger import MADE_OF, PartTimes
from studio.analysis.job.part_words import ABOUT, NAMES
from studio.distinct import find_distinct
from studio.figures.ranks import draw_rank_times
from studio.pages.base.asked import EDIT, build_click_request
from studio.pages.base.export import build_export_buttons, with_copy_button
from studio.pages.base.figures import build_figure
from studio.pages.base.rank_table import rank_table
from studio.pages.base.widgets import (
    build_address,
    build_aria_label,
    build_hint,
    build_rounded_value,
    build_table,
)
from studio.pages.simulate.believing import show_mark
from studio.pages.simulate.proposals import describe_compute
from studio.sim.compute import compute_times
from studio.sim.parts import Parts
from studio.sim.result import SimResult, compute_ledger
from studio.sim.retargeting import recompute_words
from studio.sim.setting_values import describe_differences
from studio.sim.traffic import explain_offered_load
from studio.store.run_infos import RunInfo
from studio.store.runs import Run
from studio.units import format_bytes, format_count, format_counted, format_ns, format_rate

_BUSIEST = 6
_NAMED = 4
_CLASSES = "Ranks that do the same at the same times form a class; one of each was simulated and stands for the others."


def build_result(run: Run, info: RunInfo, in_form: Parts, *, dark: bool) -> Any:
    """Show the result of a run, and how its system differs from the form."""
    outcome = run.result
    account = compute_ledger(outcome)
    arriving = sum_assumed_ns(outcome.trace, outcome.node_times(), account)
    numbers = [rank.number for rank in outcome.trace.ranks]
    run_of = {"job": info.job, "run": info.id}
    slowest = build_address("/collectives", {**run_of, "metric": "duration", "sort": "time"})
    onward = [
        dcc.Link(
            "What to change",
            href=build_address("/overview", run_of),
            title="The verdict of this run: where its time goes, and what changes of the job or this system would save",
            className="cs-button",
        ),
        dcc.Link("Collectives", href=slowest, className="cs-button"),
        dcc.Link("Open the timeline", href=build_address("/timeline", run_of), className="cs-button"),
    ]
    return html.Section(
        [
            html.Div(
                [html.H2(info.label), show_mark(info), html.Span(style={"flex": 1}), *onward],
                className="sim-row",
            ),
            html.Div(compare_with_form(info, in_form), id={"sim-made": info.id}),
            _build_figures(outcome, account.totals(), numbers, show_mark(info)),
            html.P(
                " ".join(filter(None, [f"{info.assumed}.", describe_assumed_host(account, arriving)])),
                className="sim-assumed",
            )
            if info.assumed
            else None,
            html.P(_describe_compute(outcome), className="cs-dim"),
            html.Div(
                [
                    html.P(describe_spread(outcome, numbers)),
                    build_export_buttons(
                        "ranks",
                        figure="sim-ranks",
                        table=rank_table(account, arriving),
                        title="where the time of each rank went",
                    ),
                ],
                className="cs-figure-head",
            ),
            build_figure("sim-ranks", draw_rank_times(account, dark=dark, assumed_ns=arriving)),
            _build_link_table(outcome),
        ],
        className="sim-result",
        **build_aria_label("Result"),
    )


def _describe_compute(outcome: SimResult) -> str:
    """Say where the time of compute comes from."""
    again = recompute_words(outcome)
    if again:
        return f"Compute: {again}."
    return describe_compute(compute_times(outcome.trace, outcome.config))


def compare_with_form(info: RunInfo, in_form: Parts) -> Any:
    """Say whether a run was simulated with the settings in the form; if not, list the differences and offer to load them."""
    differing = describe_differences(info.tables, in_form)
    if not differing:
        return html.P("Simulated with the settings in the form.", className="cs-dim sim-made")
    button = html.Button(
        "Load its settings",
        className="cs-button-quiet",
        title=f"Put the settings of {info.name} into the form; Undo brings back what is there now",
        **build_click_request(EDIT, "load", info.id),
    )
    rest = len(differing) - _NAMED
    more = [
        f" · and {rest} more ",
        build_hint(f"how {info.name} differs from the form", " · ".join(differing)),
    ]
    return html.P(
        [
            html.Strong("Settings that differ from the form: "),
            " · ".join(differing[:_NAMED]),
            *(more if rest > 0 else []),
            " ",
            button,
        ],
        className="sim-made",
    )


def _build_figures(outcome: SimResult, times: PartTimes, numbers: Sequence[int], marked: Any = None) -> Any:
    whole = max(outcome.makespan_ns, 1)

    def format_share(column: Any) -> Any:
        mean = float(column.mean())
        return build_rounded_value(
            f"{format_ns(mean)} · {100 * mean / whole:.1f} % of the finish",
            f"least {int(column.min()):,} ns, mean {mean:,.1f} ns, most {int(column.max()):,} ns "
            f"on rank {numbers[int(column.argmax())]}",
        )

    shown: list[tuple[Any, Any]] = [
        (
            "finish",
            [
                html.Span(
                    build_rounded_value(format_ns(outcome.makespan_ns), f"{outcome.makespan_ns:,} ns"),
                    className="sim-finish",
                ),
                " ",
                marked,
            ],
        ),
    ]
    # The shares add up to the finish: parts, with what exposed communication and idle are made of behind their "?".
    for key, column in times.figures().items():
        words = f"{NAMES[key]}, mean per rank" if key == "compute" else NAMES[key]
        shown.append(([words, build_hint(NAMES[key], _explain_figure(key, times))], format_share(column)))
    classes = len(find_distinct(outcome.representative))
    if classes < len(numbers):
        shown.append(
            (["classes", build_hint("classes of ranks", _CLASSES)], f"{classes:,} of {len(numbers):,}")
        )
    return html.Dl(
        [html.Div([html.Dt(name), html.Dd(value)]) for name, value in shown], className="cs-facts sim-facts"
    )


def _explain_figure(key: str, times: PartTimes) -> str:
    """Return what a figure means and, of a sum, what it is made of here."""
    parts = [part for part in MADE_OF.get(key, ()) if times.of(part).any()]
    summands = [f"{NAMES[part]} {format_ns(float(times.of(part).mean()))}" for part in parts]
    return ABOUT[key] + (f" Here, in the mean: {', '.join(summands)}." if summands else "")


def describe_spread(outcome: SimResult, numbers: Sequence[int]) -> str:
    """Say in one sentence how far apart the ranks finish."""
    finish = outcome.finish_ns
    least, most = int(finish.min()), int(finish.max())
    if format_ns(least) == format_ns(most):
        return _describe_level(least, most, len(numbers))

    def describe_ranks(time_ns: int) -> str:
        places = np.flatnonzero(finish == time_ns).tolist()
        return f"{len(places):,} ranks" if len(places) > 1 else f"rank {numbers[places[0]]}"

    return (
        f"Ranks finish from {format_ns(least)} ({describe_ranks(least)}) to {format_ns(most)} ({describe_ranks(most)}), "
        f"{format_ns(float(finish.mean()))} on average: {format_ns(most - least)} or "
        f"{100 * (most - least) / most:.2g} % apart."
    )


def _describe_level(least: int, most: int, ranks: int) -> str:
    """Say when all ranks finish, if their times print alike."""
    if ranks == 1:
        return "One rank."
    if least == most:
        return f"All {ranks:,} ranks finish at {format_ns(most)}."
    return f"All {ranks:,} ranks finish at {format_ns(most)}, {format_ns(most - least)} apart."


def _build_link_table(outcome: SimResult) -> Any:
    """Show the busiest links of a congestion-aware run, and the traffic of each dimension."""
    whole = max(outcome.makespan_ns, 1)
    links = outcome.links
    rows = [
        (
            count_alike(links.name(link_row), alike),
            build_rounded_value(
                f"{100 * int(links.busy_ns[link_row]) / whole:.1f} %", f"{int(links.busy_ns[link_row]):,} ns"
            ),
            build_rounded_value(
                format_bytes(int(links.bytes[link_row])),
                format_counted(int(links.bytes[link_row]), "byte"),
            ),
            format_rate(int(links.bytes[link_row]) / whole),
            format_count(int(links.peak_queue[link_row])),
        )
        for link_row, alike in links.busiest_kinds(_BUSIEST)
    ]
    busiest = [
        html.H2("Busiest links"),
        with_copy_button(
            build_table(
                ("Link", "Busy", "Carried", "Mean rate", "Longest queue"), rows, numeric=(1, 2, 3, 4)
            ),
            "the busiest links",
        ),
    ]
    return html.Div([*(busiest if rows else []), _build_dimension_table(outcome)])


def _build_dimension_table(outcome: SimResult) -> Any:
    whole = max(outcome.makespan_ns, 1)
    rows = []
    for index, (dim, traffic) in enumerate(
        zip(outcome.config.topology.dims, outcome.dimensions, strict=False)
    ):
        rate = float(traffic.bytes.mean()) / whole
        load = traffic.offered_load(whole)
        share = f"{100 * load:.1f} %" if traffic.capacity_bytes_per_ns else "–"
        kind = dim.kind.replace("_", " ")
        total = int(traffic.bytes.sum())
        rows.append(
            (
                f"{index} · {kind} of {format_count(dim.size)}",
                build_rounded_value(format_bytes(total), format_counted(total, "byte")),
                format_count(int(traffic.messages.sum())),
                format_rate(rate),
                share,
            )
        )
    load_head = ["Offered load", build_hint("offered load", explain_offered_load(outcome.config))]
    head = ("Dimension", "Sent by all", "Messages", "Mean per NPU", load_head)
    shown = with_copy_button(build_table(head, rows, numeric=(1, 2, 3, 4)), "the dimensions")
    return html.Div([html.H2("Traffic per dimension"), shown])
