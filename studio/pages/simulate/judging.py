"""Callbacks of the Simulate page that check the form: invalid values, rates of the network, and problems a run would have."""

from __future__ import annotations

from typing import Any

from dash import ALL, Input, Output, State, callback, html, no_update
from dash.exceptions import PreventUpdate

from studio.analysis.job.completeness import infer_completeness, is_recording
from studio.pages.base.state import get_session, get_trace, get_workspace
from studio.pages.simulate.edits import list_findings
from studio.pages.simulate.form import collect_problem_texts, find_place, foretell
from studio.pages.simulate.live import build_legend, describe_findings, draw_network, show_facts
from studio.pages.simulate.proposals import show_compute
from studio.pages.simulate.recompute import show_recompute, show_unfit
from studio.pages.simulate.system import FormState
from studio.sim.problems import Examined, examine_parts
from studio.store.drafts import load_draft


@callback(
    Output("sim-facts", "children"),
    Output("sim-scene", "data"),
    Output("sim-legend", "children"),
    Output("sim-run", "disabled"),
    Output({"sim": ALL}, "error"),
    Output({"sim-said": ALL}, "children"),
    Output("sim-undo", "disabled"),
    Input("sim-state", "data"),
    State({"sim": ALL}, "id"),
    State({"sim-said": ALL}, "id"),
    prevent_initial_call=True,
)
def judge(
    state: FormState | None, fields: list[dict[str, str] | None], places: list[dict[str, str] | None]
) -> Any:
    """Mark invalid fields with messages, and show figures and drawing of the network."""
    known = [field["sim"] for field in fields if field]
    spots = [place["sim-said"] for place in places if place]
    if not state or len(known) < len(fields) or len(spots) < len(places):
        raise PreventUpdate  # the form was replaced meanwhile
    draft = load_draft(get_workspace().root, state["config"])
    system = examine_parts(draft.tables)
    messages = collect_problem_texts(system.problems)
    general = [text for spot, texts in messages.items() if spot not in spots for text in texts]
    errors = [key in system.problems or _is_list_invalid(key, system) for key in known]
    shown = [[*messages.get(spot, []), *(general if spot == "" else [])] for spot in spots]
    # Not nothing: what stands below is shown once this has come.
    live: list[Any] = [html.Span(), None, None]
    partial = False
    if system.config and not _is_topology_invalid(system):
        topology = system.config.topology
        job, recorded = infer_completeness(get_trace(state["job"])), is_recording(get_trace(state["job"]))
        # What the ranks that are there did is known, what they waited for is not: the replay is offered instead.
        partial = recorded and not job.is_whole and system.config.needs_every_rank
        live = [
            [
                *show_facts(system.config, job, state["job"], recorded=recorded),
                show_compute(get_trace(state["job"]), system.config),
                show_recompute(get_trace(state["job"]), system.config, draft.origin),
                show_unfit(
                    get_session().memory(state["job"], "") if recorded else (), system.config, draft.origin
                ),
            ],
            draw_network(topology),
            build_legend(topology),
        ]
    elif system.config:
        live = [no_update] * 3
    return *live, bool(system.problems) or partial, errors, shown, not draft.before


def _is_list_invalid(key: str, system: Examined) -> bool:
    """Return whether the whole list of an entry is invalid."""
    return key.partition("[")[0] in system.problems


def _is_topology_invalid(system: Examined) -> bool:
    return any(find_place(key) == "network" or find_place(key).startswith("dim-") for key in system.problems)


@callback(
    Output("sim-findings", "children"),
    Output("sim-run", "children"),
    Output({"sim-foretold": ALL}, "children"),
    Input("sim-state", "data"),
    State({"sim-foretold": ALL}, "id"),
    prevent_initial_call=True,
)
def foresee(state: FormState | None, places: list[dict[str, str] | None]) -> Any:
    """List what would go wrong in a run, and say it beside the fields that lead to it."""
    spots = [place["sim-foretold"] if place else "" for place in places]
    if not state:
        return None, "Run", [None] * len(spots)
    draft = load_draft(get_workspace().root, state["config"])
    system = examine_parts(draft.tables)
    if system.usable is None:
        return (
            html.P("Fix the marked settings before running.", className="cs-dim"),
            "Run",
            [None] * len(spots),
        )
    findings = list_findings(get_trace(state["job"]), system.usable, draft.tables)
    # Where the ranks of a recording are missing, no run starts: a replay of the others is offered beside.
    anyway = any(finding.level == "error" and finding.code != "ranks-unknown" for finding in findings)
    by_place = foretell(findings)
    return (
        describe_findings(findings),
        "Run anyway" if anyway else "Run",
        [by_place.get(spot) for spot in spots],
    )
