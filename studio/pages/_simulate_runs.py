"""Simulations under way, what a run found, and the runs of a job beside each other."""

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
from studio.pages._asked import EDIT, ORDER, RUNS, asks
from studio.pages._export import copied, exports
from studio.pages._rank_table import rank_table
from studio.pages._widgets import error_box, exact, hint, labelled, link, table
from studio.sim.parts import Parts
from studio.sim.result import SimResult, breakdown_of
from studio.sim.setting_values import differences
from studio.sim.traffic import offered_load_words
from studio.store.runs import Run, RunInfo
from studio.units import format_bytes, format_count, format_ns, format_rate

_BUSIEST = 6
_NAMED = 4
_EXPOSED = "Time in which communication was under way on a rank and no compute was: what a faster network could save at most."
_WAITING = "Ranks that have finished wait for the one that finishes last; with it the times of a rank fill the whole finish."
_OVER = (
    "the unaware network lets messages pass a port at the same time, as many as there are; try congestion aware, "
    "in which they wait for each other."
)
_CLASSES = "Ranks that do the same at the same times form a class; one of each was simulated and stands for the others."


# ---------------------------------------------------------------------------------------------------
# Under way


def listing(simulations: Sequence[Simulation]) -> list[Any]:
    """Return what tells two lists of simulations apart, but for how far those are that are under way."""
    return [[one.id, "" if one.status in ACTIVE else one.status] for one in _in_order(simulations)]


def how_far(simulations: Sequence[Simulation], now: float) -> list[dict[str, Any]]:
    """Return where the simulations stand that are under way, for `assets/simulate/simulate.mjs` to write into their list."""
    active = [one for one in _in_order(simulations) if one.status in ACTIVE]
    return [
        {"id": one.id, "said": said(one, ahead, now), "done": one.done, "total": one.total}
        for ahead, one in enumerate(active)
    ]


def _in_order(simulations: Sequence[Simulation]) -> list[Simulation]:
    """Return the simulations of a job that are under way or ended without a run; those that say the same once."""
    ordered = sorted(simulations, key=lambda one: one.created)
    newest = {(one.name, one.status): one.id for one in ordered if one.status not in ACTIVE}
    return [
        one
        for one in ordered
        if one.status != "done" and (one.status in ACTIVE or newest[one.name, one.status] == one.id)
    ]


def progress_list(simulations: Sequence[Simulation], now: float) -> Any:
    """Return the simulations of a job that are under way or ended without a run."""
    stand = {one["id"]: one["said"] for one in how_far(simulations, now)}
    return [
        _under_way(one, stand[one.id]) if one.id in stand else _ended(one) for one in _in_order(simulations)
    ]


def _under_way(one: Simulation, stand: str) -> Any:
    cancel = html.Button(
        "Cancel",
        className="cs-button",
        **asks(ORDER, "stop", one.id),
        **labelled(f"Cancel {one.name}"),
    )
    bar = (
        html.Progress(value=str(one.done), max=str(one.total), **labelled(f"Progress of {one.name}"))
        if one.total
        else html.Progress(**labelled(f"Progress of {one.name}"))
    )
    this: dict[str, Any] = {"data-progress": one.id}
    words = html.Span([html.Strong(one.name), " · ", html.Span(stand, className="sim-stand")])
    return html.Div([words, cancel, bar], className="sim-progress", **this)


def said(one: Simulation, ahead: int, now: float) -> str:
    """Return where a simulation stands, in a sentence."""
    if one.status == "queued":
        return f"waits for {ahead} before it" if ahead else "starts at once"
    if one.status == "compiling":
        return "compiling the simulator, once per installation; this takes about half a minute"
    spent = format_ns((now - (one.started or now)) * 1e9)
    if not one.total:
        return f"preparing, {spent}"
    done = f"{100 * one.done // one.total} %, {format_count(one.done)} of {format_count(one.total)} nodes, {spent}"
    left = one.remaining_s(now)
    return f"{done}, about {format_ns(left * 1e9)} left" if left is not None else done


def _ended(one: Simulation) -> Any:
    buttons = [
        html.Button(
            "Dismiss",
            className="cs-button-quiet",
            **asks(ORDER, "dismiss", one.id),
            **labelled(f"Dismiss {one.name}"),
        ),
        html.Button(
            "Run again",
            className="cs-button-quiet",
            **asks(ORDER, "again", one.id),
            **labelled(f"Run {one.name} again"),
        ),
    ]
    if one.status == "failed" and one.error:
        title = f"{one.name}: no result"
        box = error_box(StudioError(one.error.message, hint=one.error.hint), title=title)
        return html.Div([box, _stuck(one), *buttons])
    why = {"cancelled": "was cancelled.", "interrupted": "was interrupted: the studio was closed."}
    return html.P([f"{one.name} {why.get(one.status, one.status)} ", *buttons])


def _stuck(one: Simulation) -> Any:
    """Return the ranks that never finish, each with the nodes at which it waits."""
    if not one.stuck:
        return None
    rows = [
        (
            html.Span(f"rank {stuck.rank}"),
            html.Span([part for node in stuck.nodes for part in (_node(one.job, stuck.rank, node), " ")]),
            stuck.reason,
        )
        for stuck in one.stuck
    ]
    return html.Details(
        [
            html.Summary(f"{len(rows)} stuck ranks and what they wait for"),
            copied(table(("Rank", "Nodes", "Waits"), rows), "the stuck ranks"),
        ]
    )


def _node(job: str, rank: int, node: int) -> Any:
    return dcc.Link(str(node), href=link("/graph", {"job": job, "rank": rank, "node": node}))


# ---------------------------------------------------------------------------------------------------
# A result


def result(run: Run, info: RunInfo, in_form: Parts, *, dark: bool) -> Any:
    """Return what a run found, and in what its system is not the one in the form."""
    found = run.result
    times = breakdown_of(found)
    numbers = [rank.number for rank in found.trace.ranks]
    run_of = {"job": info.job, "run": info.id}
    slowest = link("/collectives", {**run_of, "metric": "duration", "sort": "time"})
    onward = [
        dcc.Link("Collectives", href=slowest, className="cs-button"),
        dcc.Link("Open the timeline", href=link("/timeline", run_of), className="cs-button"),
    ]
    return html.Section(
        [
            html.Div([html.H2(info.name), html.Span(style={"flex": 1}), *onward], className="sim-row"),
            html.Div(made_with(info, in_form), id={"sim-made": info.id}),
            _figures(found, times, numbers),
            html.Div(
                [
                    html.P(spread(found, numbers)),
                    exports(
                        "ranks",
                        figure="sim-ranks",
                        table=rank_table(times, found.finish_ns, numbers),
                        title="where the time of each rank went",
                    ),
                ],
                className="cs-figure-head",
            ),
            dcc.Graph(
                id="sim-ranks",
                figure=rank_times(times, found.finish_ns, numbers, dark=dark),
                config={"displaylogo": False, "displayModeBar": False},
                className="cs-figure",
            ),
            _links(found),
        ],
        className="sim-result",
        **labelled("Result"),
    )


def made_with(info: RunInfo, in_form: Parts) -> Any:
    """Return whether a run was made with the settings in the form; where not, which it has, and a way to have them there."""
    found = differences(info.tables, in_form)
    if not found:
        return html.P("Simulated with the settings in the form.", className="cs-dim sim-made")
    button = html.Button(
        "Load its settings",
        className="cs-button-quiet",
        title=f"Put the settings of {info.name} into the form; Undo brings back what is there now",
        **asks(EDIT, "load", info.id),
    )
    rest = len(found) - _NAMED
    more = [f" · and {rest} more ", hint(f"how {info.name} differs from the form", " · ".join(found))]
    return html.P(
        [
            html.Strong("Settings that differ from the form: "),
            " · ".join(found[:_NAMED]),
            *(more if rest > 0 else []),
            " ",
            button,
        ],
        className="sim-made",
    )


def _figures(found: SimResult, times: Breakdown, numbers: Sequence[int]) -> Any:
    whole = max(found.makespan_ns, 1)

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
                exact(format_ns(found.makespan_ns), f"{found.makespan_ns:,} ns"), className="sim-finish"
            ),
        ),
        ("compute, mean per rank", share(times.compute_ns)),
        ("communication", share(times.communication_ns)),
        (["exposed", hint("exposed communication", _EXPOSED)], share(times.exposed_communication_ns)),
        ("idle", share(times.idle_ns)),
    ]
    # What is under way beside compute or communication is told by those: so the shares of the finish add up.
    alone = found.finish_ns - times.idle_ns - times.compute_ns - times.exposed_communication_ns
    if alone.any():
        shown.insert(-1, ("memory and CPU alone", share(alone)))
    waiting = found.makespan_ns - found.finish_ns
    if waiting.any():
        shown.append(
            (["done before the last rank", hint("done before the last rank", _WAITING)], share(waiting))
        )
    classes = len(np.unique(found.representative))
    if classes < len(numbers):
        shown.append((["classes", hint("classes of ranks", _CLASSES)], f"{classes:,} of {len(numbers):,}"))
    return html.Dl(
        [html.Div([html.Dt(name), html.Dd(value)]) for name, value in shown], className="cs-facts sim-facts"
    )


def spread(found: SimResult, numbers: Sequence[int]) -> str:
    """Return how far apart the ranks finish, in a sentence."""
    finish = found.finish_ns
    least, most = int(finish.min()), int(finish.max())
    if format_ns(least) == format_ns(most):
        return _level(least, most, len(numbers))

    def who(time_ns: int) -> str:
        at = np.flatnonzero(finish == time_ns).tolist()
        return f"{len(at):,} ranks" if len(at) > 1 else f"rank {numbers[at[0]]}"

    return (
        f"Ranks finish from {format_ns(least)} ({who(least)}) to {format_ns(most)} ({who(most)}), "
        f"{format_ns(float(finish.mean()))} on average: {format_ns(most - least)} or "
        f"{100 * (most - least) / most:.2g} % apart."
    )


def _level(least: int, most: int, ranks: int) -> str:
    """Return when all ranks finish, where they do at times that read the same."""
    if ranks == 1:
        return "One rank."
    if least == most:
        return f"All {ranks:,} ranks finish at {format_ns(most)}."
    return f"All {ranks:,} ranks finish at {format_ns(most)}, {format_ns(most - least)} apart."


def _links(found: SimResult) -> Any:
    """Return the busiest links where messages waited for each other, and what each dimension carried."""
    whole = max(found.makespan_ns, 1)
    links = found.links
    rows = [
        (
            links.name(at),
            exact(f"{100 * int(links.busy_ns[at]) / whole:.1f} %", f"{int(links.busy_ns[at]):,} ns"),
            exact(format_bytes(int(links.bytes[at])), f"{int(links.bytes[at]):,} bytes"),
            format_rate(int(links.bytes[at]) / whole),
            format_count(int(links.peak_queue[at])),
        )
        for at in links.busiest(_BUSIEST)
    ]
    busiest = [
        html.H2("Busiest links"),
        copied(
            table(("Link", "Busy", "Carried", "Mean rate", "Longest queue"), rows, numeric=(1, 2, 3, 4)),
            "the busiest links",
        ),
    ]
    return html.Div([*(busiest if rows else []), _dimensions(found)])


def _dimensions(found: SimResult) -> Any:
    whole = max(found.makespan_ns, 1)
    rows, over = [], []
    for at, (dim, one) in enumerate(zip(found.config.topology.dims, found.dimensions, strict=False)):
        rate = float(one.bytes.mean()) / whole
        load = one.offered_load(whole)
        share = f"{100 * load:.1f} %" if one.capacity_bytes_per_ns else "–"
        if found.config.congestion == "unaware" and load > 1:
            over.append(f"dimension {at}")
        kind = dim.kind.replace("_", " ")
        total = int(one.bytes.sum())
        rows.append(
            (
                f"{at} · {kind} of {format_count(dim.size)}",
                exact(format_bytes(total), f"{total:,} bytes"),
                format_count(int(one.messages.sum())),
                format_rate(rate),
                share,
            )
        )
    load_head = ["Offered load", hint("offered load", offered_load_words(found.config))]
    head = ("Dimension", "Sent by all", "Messages", "Mean per NPU", load_head)
    warning = (
        html.P(f"More than {' and '.join(over)} can carry: {_OVER}", className="cs-level-warning")
        if over
        else None
    )
    shown = copied(table(head, rows, numeric=(1, 2, 3, 4)), "the dimensions")
    return html.Div([html.H2("Traffic per dimension"), shown, warning])


# ---------------------------------------------------------------------------------------------------
# Runs beside each other


def runs_table(infos: Sequence[RunInfo], shown: str | None, renaming: str | None, job: str) -> Any:
    """Return the runs of a job: how long, on what, and the settings in which they differ."""
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
                html.Td(_differs(differs, info, base), className="sim-differs"),
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
            copied(
                html.Table(
                    [
                        html.Thead(
                            html.Tr(
                                [
                                    html.Th(name, scope="col", className="cs-num" if at in numeric else None)
                                    for at, name in enumerate(head)
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
    """Return how a button names a run: by the time of a second click the page may show another job."""
    return f"{info.job} {info.id}"


def _actions(info: RunInfo) -> list[Any]:
    def button(text: str, store: str, verb: str, of: str, about: str) -> Any:
        return html.Button(text, className="cs-button-quiet", **asks(store, verb, of), **labelled(about))

    compare: dict[str, Any] = {"data-compare": f"{info.job}/{info.id}", "data-compare-name": info.name}
    return [
        html.Button("Compare +", className="cs-button-quiet", **compare, **labelled(f"Compare {info.name}")),
        button("Edit", EDIT, "load", info.id, f"Edit the system of {info.name}"),
        button("Rename", RUNS, "rename", _job_and_run(info), f"Rename {info.name}"),
        button("Delete", RUNS, "delete", _job_and_run(info), f"Delete {info.name}"),
    ]


def _differs(found: Sequence[str], info: RunInfo, base: RunInfo) -> Any:
    """Return in what a run differs from the one the others are compared with: a few settings, all of them on demand."""
    if info.id == base.id:
        return html.Span("compared with", className="cs-dim")
    if not found:
        return "the same system"
    named = " · ".join(found[:_NAMED])
    if len(found) <= _NAMED:
        return named
    more = f" · and {len(found) - _NAMED} more "
    return [named, more, hint(f"the system of {info.name} against {base.name}", " · ".join(found))]
