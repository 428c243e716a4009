"""Simulations in progress, the result of a run, and the list of a job's runs."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from dash import dcc, html

from studio.analysis.job.breakdown import Breakdown
from studio.errors import StudioError
from studio.figures.ranks import rank_times
from studio.jobs.simulations import ACTIVE, Simulation
from studio.pages.base.asked import EDIT, ORDER, RUNS, asks
from studio.pages.base.export import exports, with_copy_button
from studio.pages.base.rank_table import rank_table
from studio.pages.base.widgets import aria_label, error_box, exact, hint, link, table
from studio.sim.parts import Parts
from studio.sim.result import SimResult, breakdown_of
from studio.sim.setting_values import differences
from studio.sim.traffic import offered_load_words
from studio.store.runs import Run, RunInfo
from studio.units import format_bytes, format_count, format_counted, format_ns, format_rate

_BUSIEST = 6
_NAMED = 4
_EXPOSED = "Time in which communication was under way on a rank and no compute was: what a faster network could save at most."
_COPIES = "Time in which copies (memcpy, memset) were under way on a rank, and neither compute nor communication was."
_WAITING = "Ranks that have finished wait for the one that finishes last; with it the times of a rank fill the whole finish."
_OVER = (
    "the unaware network lets messages pass a port at the same time, as many as there are; try congestion aware, "
    "in which they wait for each other."
)
_CLASSES = "Ranks that do the same at the same times form a class; one of each was simulated and stands for the others."


# ---------------------------------------------------------------------------------------------------
# Under way


def list_key(simulations: Sequence[Simulation]) -> list[Any]:
    """Return a key of the list of simulations that changes when its entries do, but not with progress."""
    return [
        [simulation.id, "" if simulation.status in ACTIVE else simulation.status]
        for simulation in _in_order(simulations)
    ]


def report_progress(simulations: Sequence[Simulation], now: float) -> list[dict[str, Any]]:
    """Return the progress of active simulations; `assets/simulate/simulate.mjs` writes it into their list."""
    active = [simulation for simulation in _in_order(simulations) if simulation.status in ACTIVE]
    return [
        {
            "id": simulation.id,
            "said": describe_progress(simulation, ahead, now),
            "done": simulation.done,
            "total": simulation.total,
        }
        for ahead, simulation in enumerate(active)
    ]


def _in_order(simulations: Sequence[Simulation]) -> list[Simulation]:
    """Return active simulations and those that ended without a run, oldest first; equal ones once."""
    ordered = sorted(simulations, key=lambda simulation: simulation.created)
    newest = {
        (simulation.name, simulation.status): simulation.id
        for simulation in ordered
        if simulation.status not in ACTIVE
    }
    return [
        simulation
        for simulation in ordered
        if simulation.status != "done"
        and (simulation.status in ACTIVE or newest[simulation.name, simulation.status] == simulation.id)
    ]


def progress_list(simulations: Sequence[Simulation], now: float) -> Any:
    """Show active simulations and those that ended without a run."""
    stand = {progress["id"]: progress["said"] for progress in report_progress(simulations, now)}
    return [
        _show_active(simulation, stand[simulation.id]) if simulation.id in stand else _show_ended(simulation)
        for simulation in _in_order(simulations)
    ]


def _show_active(simulation: Simulation, stand: str) -> Any:
    cancel = html.Button(
        "Cancel",
        className="cs-button",
        **asks(ORDER, "stop", simulation.id),
        **aria_label(f"Cancel {simulation.name}"),
    )
    bar = (
        html.Progress(
            value=str(simulation.done),
            max=str(simulation.total),
            **aria_label(f"Progress of {simulation.name}"),
        )
        if simulation.total
        else html.Progress(**aria_label(f"Progress of {simulation.name}"))
    )
    this: dict[str, Any] = {"data-progress": simulation.id}
    words = html.Span([html.Strong(simulation.name), " · ", html.Span(stand, className="sim-stand")])
    return html.Div([words, cancel, bar], className="sim-progress", **this)


def describe_progress(simulation: Simulation, ahead: int, now: float) -> str:
    """Describe the progress of a simulation in one sentence."""
    if simulation.status == "queued":
        return f"queued behind {format_counted(ahead, 'simulation')}" if ahead else "starting"
    if simulation.status == "compiling":
        return "compiling the simulator, once per installation; this takes about half a minute"
    spent = format_ns((now - (simulation.started or now)) * 1e9)
    if not simulation.total:
        return f"preparing, {spent}"
    done = f"{100 * simulation.done // simulation.total} %, {format_count(simulation.done)} of {format_count(simulation.total)} nodes, {spent}"
    left = simulation.remaining_s(now)
    return f"{done}, about {format_ns(left * 1e9)} left" if left is not None else done


def _show_ended(simulation: Simulation) -> Any:
    buttons = [
        html.Button(
            "Dismiss",
            className="cs-button-quiet",
            **asks(ORDER, "dismiss", simulation.id),
            **aria_label(f"Dismiss {simulation.name}"),
        ),
        html.Button(
            "Run again",
            className="cs-button-quiet",
            **asks(ORDER, "again", simulation.id),
            **aria_label(f"Run {simulation.name} again"),
        ),
    ]
    if simulation.status == "failed" and simulation.error:
        title = f"{simulation.name}: no result"
        box = error_box(StudioError(simulation.error.message, hint=simulation.error.hint), title=title)
        return html.Div([box, _stuck(simulation), *buttons])
    why = {"cancelled": "was cancelled.", "interrupted": "was interrupted: the studio was closed."}
    return html.P([f"{simulation.name} {why.get(simulation.status, simulation.status)} ", *buttons])


def _stuck(simulation: Simulation) -> Any:
    """List the ranks that never finish, each with the nodes it is stuck at."""
    if not simulation.stuck:
        return None
    rows = [
        (
            html.Span(f"rank {stuck.rank}"),
            html.Span(
                [part for node in stuck.nodes for part in (_node(simulation.job, stuck.rank, node), " ")]
            ),
            stuck.reason,
        )
        for stuck in simulation.stuck
    ]
    return html.Details(
        [
            html.Summary(f"{format_counted(len(rows), 'stuck rank')} and what they wait for"),
            with_copy_button(table(("Rank", "Nodes", "Waits"), rows), "the stuck ranks"),
        ]
    )


def _node(job: str, rank: int, node: int) -> Any:
    return dcc.Link(str(node), href=link("/graph", {"job": job, "rank": rank, "node": node}))


# ---------------------------------------------------------------------------------------------------
# A result


def result(run: Run, info: RunInfo, in_form: Parts, *, dark: bool) -> Any:
    """Show the result of a run, and how its system differs from the form."""
    outcome = run.result
    times = breakdown_of(outcome)
    numbers = [rank.number for rank in outcome.trace.ranks]
    run_of = {"job": info.job, "run": info.id}
    slowest = link("/collectives", {**run_of, "metric": "duration", "sort": "time"})
    onward = [
        dcc.Link("Collectives", href=slowest, className="cs-button"),
        dcc.Link("Open the timeline", href=link("/timeline", run_of), className="cs-button"),
    ]
    return html.Section(
        [
            html.Div([html.H2(info.label), html.Span(style={"flex": 1}), *onward], className="sim-row"),
            html.Div(compare_with_form(info, in_form), id={"sim-made": info.id}),
            _figures(outcome, times, numbers),
            html.Div(
                [
                    html.P(describe_spread(outcome, numbers)),
                    exports(
                        "ranks",
                        figure="sim-ranks",
                        table=rank_table(times, outcome.finish_ns, numbers),
                        title="where the time of each rank went",
                    ),
                ],
                className="cs-figure-head",
            ),
            dcc.Graph(
                id="sim-ranks",
                figure=rank_times(times, outcome.finish_ns, numbers, dark=dark),
                config={"displaylogo": False, "displayModeBar": False},
                className="cs-figure",
            ),
            _links(outcome),
        ],
        className="sim-result",
        **aria_label("Result"),
    )


def compare_with_form(info: RunInfo, in_form: Parts) -> Any:
    """Say whether a run was simulated with the settings in the form; if not, list the differences and offer to load them."""
    differing = differences(info.tables, in_form)
    if not differing:
        return html.P("Simulated with the settings in the form.", className="cs-dim sim-made")
    button = html.Button(
        "Load its settings",
        className="cs-button-quiet",
        title=f"Put the settings of {info.name} into the form; Undo brings back what is there now",
        **asks(EDIT, "load", info.id),
    )
    rest = len(differing) - _NAMED
    more = [f" · and {rest} more ", hint(f"how {info.name} differs from the form", " · ".join(differing))]
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


def _figures(outcome: SimResult, times: Breakdown, numbers: Sequence[int]) -> Any:
    whole = max(outcome.makespan_ns, 1)

    def share(column: Any) -> Any:
        mean = float(column.mean())
        return exact(
            f"{format_ns(mean)} · {100 * mean / whole:.1f} % of the finish",
            f"least {int(column.min()):,} ns, mean {mean:,.1f} ns, most {int(column.max()):,} ns "
            f"on rank {numbers[int(column.argmax())]}",
        )

    shown: list[tuple[Any, Any]] = [
        (
            "finish",
            html.Span(
                exact(format_ns(outcome.makespan_ns), f"{outcome.makespan_ns:,} ns"), className="sim-finish"
            ),
        ),
        ("compute, mean per rank", share(times.compute_ns)),
        ("communication", share(times.communication_ns)),
        (["exposed", hint("exposed communication", _EXPOSED)], share(times.exposed_communication_ns)),
        ("idle", share(times.idle_ns)),
    ]
    # Only time without what stands above counts here, so that the shares of the finish add up.
    if times.exposed_copy_ns.any():
        shown.insert(-1, (["copies alone", hint("copies alone", _COPIES)], share(times.exposed_copy_ns)))
    busy = outcome.finish_ns - times.idle_ns
    alone = busy - times.compute_ns - times.exposed_communication_ns - times.exposed_copy_ns
    if alone.any():
        shown.insert(-1, ("memory and CPU alone", share(alone)))
    waiting = outcome.makespan_ns - outcome.finish_ns
    if waiting.any():
        shown.append(
            (["done before the last rank", hint("done before the last rank", _WAITING)], share(waiting))
        )
    classes = len(np.unique(outcome.representative))
    if classes < len(numbers):
        shown.append((["classes", hint("classes of ranks", _CLASSES)], f"{classes:,} of {len(numbers):,}"))
    return html.Dl(
        [html.Div([html.Dt(name), html.Dd(value)]) for name, value in shown], className="cs-facts sim-facts"
    )


def describe_spread(outcome: SimResult, numbers: Sequence[int]) -> str:
    """Say in one sentence how far apart the ranks finish."""
    finish = outcome.finish_ns
    least, most = int(finish.min()), int(finish.max())
    if format_ns(least) == format_ns(most):
        return _describe_level(least, most, len(numbers))

    def who(time_ns: int) -> str:
        places = np.flatnonzero(finish == time_ns).tolist()
        return f"{len(places):,} ranks" if len(places) > 1 else f"rank {numbers[places[0]]}"

    return (
        f"Ranks finish from {format_ns(least)} ({who(least)}) to {format_ns(most)} ({who(most)}), "
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


def _links(outcome: SimResult) -> Any:
    """Show the busiest links of a congestion-aware run, and the traffic of each dimension."""
    whole = max(outcome.makespan_ns, 1)
    links = outcome.links
    rows = [
        (
            links.name(link_row),
            exact(
                f"{100 * int(links.busy_ns[link_row]) / whole:.1f} %", f"{int(links.busy_ns[link_row]):,} ns"
            ),
            exact(format_bytes(int(links.bytes[link_row])), f"{int(links.bytes[link_row]):,} bytes"),
            format_rate(int(links.bytes[link_row]) / whole),
            format_count(int(links.peak_queue[link_row])),
        )
        for link_row in links.busiest(_BUSIEST)
    ]
    busiest = [
        html.H2("Busiest links"),
        with_copy_button(
            table(("Link", "Busy", "Carried", "Mean rate", "Longest queue"), rows, numeric=(1, 2, 3, 4)),
            "the busiest links",
        ),
    ]
    return html.Div([*(busiest if rows else []), _dimensions(outcome)])


def _dimensions(outcome: SimResult) -> Any:
    whole = max(outcome.makespan_ns, 1)
    rows, over = [], []
    for index, (dim, traffic) in enumerate(
        zip(outcome.config.topology.dims, outcome.dimensions, strict=False)
    ):
        rate = float(traffic.bytes.mean()) / whole
        load = traffic.offered_load(whole)
        share = f"{100 * load:.1f} %" if traffic.capacity_bytes_per_ns else "–"
        if outcome.config.congestion == "unaware" and load > 1:
            over.append(f"dimension {index}")
        kind = dim.kind.replace("_", " ")
        total = int(traffic.bytes.sum())
        rows.append(
            (
                f"{index} · {kind} of {format_count(dim.size)}",
                exact(format_bytes(total), f"{total:,} bytes"),
                format_count(int(traffic.messages.sum())),
                format_rate(rate),
                share,
            )
        )
    load_head = ["Offered load", hint("offered load", offered_load_words(outcome.config))]
    head = ("Dimension", "Sent by all", "Messages", "Mean per NPU", load_head)
    warning = (
        html.P(f"More than {' and '.join(over)} can carry: {_OVER}", className="cs-level-warning")
        if over
        else None
    )
    shown = with_copy_button(table(head, rows, numeric=(1, 2, 3, 4)), "the dimensions")
    return html.Div([html.H2("Traffic per dimension"), shown, warning])


# ---------------------------------------------------------------------------------------------------
# Runs beside each other


def runs_table(infos: Sequence[RunInfo], shown: str | None, renaming: str | None, job: str) -> Any:
    """Return the table of a job's runs: finish, system, and the settings in which they differ."""
    if not infos:
        return html.P("No run of this job yet.", className="cs-dim")
    best = min(info.makespan_ns for info in infos)
    base = next((info for info in infos if info.id == shown), None) or min(
        infos, key=lambda info: info.makespan_ns
    )
    differing = [differences(info.tables, base.tables) for info in infos]
    rows = [
        html.Tr(
            [
                html.Td(_name(info, renaming, job)),
                html.Td(exact(format_ns(info.makespan_ns), f"{info.makespan_ns:,} ns"), className="cs-num"),
                html.Td(
                    "best" if info.makespan_ns == best else f"+{100 * (info.makespan_ns / best - 1):.1f} %",
                    className="cs-num",
                ),
                html.Td(_list_differences(differs, info, base), className="sim-differs"),
                html.Td(time.strftime("%m-%d %H:%M", time.localtime(info.created))),
                html.Td(_actions(info), className="cs-row-actions"),
            ],
            **_current(info.id == shown),
        )
        for info, differs in zip(infos, differing, strict=True)
    ]
    head = ("Run", "Finish", "vs best", "Differs in", "Made", "")
    numeric = (1, 2)
    return html.Section(
        [
            html.H2("Runs of this job"),
            with_copy_button(
                html.Table(
                    [
                        html.Thead(
                            html.Tr(
                                [
                                    html.Th(
                                        name, scope="col", className="cs-num" if index in numeric else None
                                    )
                                    for index, name in enumerate(head)
                                ]
                            )
                        ),
                        html.Tbody(rows),
                    ],
                    className="cs-table sim-runs",
                ),
                "the runs",
            ),
        ]
    )


def _current(yes: bool) -> dict[str, Any]:
    return {"aria-current": "true"} if yes else {}


def _name(info: RunInfo, renaming: str | None, job: str) -> Any:
    if info.id == renaming:
        field = dcc.Input(
            value=info.name,
            className="cs-rename",
            maxLength=200,
            autoFocus=True,
        )
        return html.Span(
            [
                field,
                html.Button("Save", className="cs-button-quiet", **asks(RUNS, "save", _job_and_run(info))),
            ],
            className="cs-renaming",
        )
    select: dict[str, Any] = {"data-view": json.dumps({"run": info.id})}
    return html.A(info.name, href=link("/simulate", {"job": job, "run": info.id}), **select)


def _job_and_run(info: RunInfo) -> str:
    """Return job and run for a button: by its next click the page may show another job."""
    return f"{info.job} {info.id}"


def _actions(info: RunInfo) -> list[Any]:
    def button(text: str, store: str, verb: str, of: str, about: str) -> Any:
        return html.Button(text, className="cs-button-quiet", **asks(store, verb, of), **aria_label(about))

    compare: dict[str, Any] = {"data-compare": f"{info.job}/{info.id}", "data-compare-name": info.name}
    return [
        html.Button(
            "Compare +", className="cs-button-quiet", **compare, **aria_label(f"Compare {info.name}")
        ),
        button("Edit", EDIT, "load", info.id, f"Edit the system of {info.name}"),
        button("Rename", RUNS, "rename", _job_and_run(info), f"Rename {info.name}"),
        button("Delete", RUNS, "delete", _job_and_run(info), f"Delete {info.name}"),
    ]


def _list_differences(differing: Sequence[str], info: RunInfo, base: RunInfo) -> Any:
    """Show how the settings of a run differ from the base run's: the first few, all of them in the hint."""
    if info.id == base.id:
        return html.Span("base run", className="cs-dim")
    if not differing:
        return "the same system"
    named = " · ".join(differing[:_NAMED])
    if len(differing) <= _NAMED:
        return named
    more = f" · and {len(differing) - _NAMED} more "
    return [named, more, hint(f"the system of {info.name} against {base.name}", " · ".join(differing))]
