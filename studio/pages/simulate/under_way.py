"""Simulations in progress, and those that ended without a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import dcc, html

from studio.errors import StudioError
from studio.jobs.simulations import ACTIVE, Simulation
from studio.pages.base.asked import ORDER, build_click_request
from studio.pages.base.export import with_copy_button
from studio.pages.base.widgets import build_address, build_aria_label, build_error_box, build_table
from studio.store.pace import describe_remaining
from studio.units import format_count, format_counted, format_ns


def build_list_key(simulations: Sequence[Simulation]) -> list[Any]:
    """Return a key of the list of simulations that changes when its entries do, but not with progress."""
    return [
        [simulation.id, "" if simulation.status in ACTIVE else simulation.status]
        for simulation in _order_simulations(simulations)
    ]


def report_progress(simulations: Sequence[Simulation], now: float) -> list[dict[str, Any]]:
    """Return the progress of active simulations; `assets/simulate/simulate.mjs` writes it into their list."""
    active = [simulation for simulation in _order_simulations(simulations) if simulation.status in ACTIVE]
    return [
        {
            "id": simulation.id,
            "said": describe_progress(simulation, ahead, now),
            "done": simulation.done,
            "total": simulation.total,
        }
        for ahead, simulation in enumerate(active)
    ]


def _order_simulations(simulations: Sequence[Simulation]) -> list[Simulation]:
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


def build_progress_list(simulations: Sequence[Simulation], now: float) -> Any:
    """Show active simulations and those that ended without a run."""
    stand = {progress["id"]: progress["said"] for progress in report_progress(simulations, now)}
    return [
        _show_active(simulation, stand[simulation.id]) if simulation.id in stand else _show_ended(simulation)
        for simulation in _order_simulations(simulations)
    ]


def _show_active(simulation: Simulation, stand: str) -> Any:
    cancel = html.Button(
        "Cancel",
        className="cs-button",
        **build_click_request(ORDER, "stop", simulation.id),
        **build_aria_label(f"Cancel {simulation.name}"),
    )
    bar = (
        html.Progress(
            value=str(simulation.done),
            max=str(simulation.total),
            **build_aria_label(f"Progress of {simulation.name}"),
        )
        if simulation.total
        else html.Progress(**build_aria_label(f"Progress of {simulation.name}"))
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
    return ", ".join(filter(None, (done, describe_remaining(simulation.left_s))))


def _show_ended(simulation: Simulation) -> Any:
    buttons = [
        html.Button(
            "Dismiss",
            className="cs-button-quiet",
            **build_click_request(ORDER, "dismiss", simulation.id),
            **build_aria_label(f"Dismiss {simulation.name}"),
        ),
        html.Button(
            "Run again",
            className="cs-button-quiet",
            **build_click_request(ORDER, "again", simulation.id),
            **build_aria_label(f"Run {simulation.name} again"),
        ),
    ]
    if simulation.status == "failed" and simulation.error:
        title = f"{simulation.name}: no result"
        box = build_error_box(StudioError(simulation.error.message, hint=simulation.error.hint), title=title)
        return html.Div([box, _build_stuck_list(simulation), *buttons])
    why = {"cancelled": "was cancelled.", "interrupted": "was interrupted: the studio was closed."}
    return html.P([f"{simulation.name} {why.get(simulation.status, simulation.status)} ", *buttons])


def _build_stuck_list(simulation: Simulation) -> Any:
    """List the ranks that never finish, each with the nodes it is stuck at."""
    if not simulation.stuck:
        return None
    rows = [
        (
            html.Span(f"rank {stuck.rank}"),
            html.Span(
                [part for node in stuck.nodes for part in (_link_node(simulation.job, stuck.rank, node), " ")]
            ),
            stuck.reason,
        )
        for stuck in simulation.stuck
    ]
    return html.Details(
        [
            html.Summary(f"{format_counted(len(rows), 'stuck rank')} and what they wait for"),
            with_copy_button(build_table(("Rank", "Nodes", "Waits"), rows), "the stuck ranks"),
        ]
    )


def _link_node(job: str, rank: int, node: int) -> Any:
    return dcc.Link(str(node), href=build_address("/graph", {"job": job, "rank": rank, "node": node}))
