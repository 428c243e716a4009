"""What the form proposes: systems that fit the job with the reasons, and how compute may be timed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import html

from studio.pages.base.asked import EDIT, build_click_request
from studio.pages.base.widgets import as_sentence, build_aria_label
from studio.session import Session, keep_result
from studio.sim.compute import ComputeTimes, compute_mean_times, compute_times
from studio.sim.config import SystemConfig
from studio.sim.systems.proposals import AlgorithmChoice, Proposal, propose
from studio.trace import Trace
from studio.units import format_bytes, format_ns

_SHOWN = 4
_CHOICES = {
    "recorded": "keep the job's times",
    "roofline": "at this GPU's peak rates, which hardware does not reach",
}


@keep_result
def find_proposals(session: Session, job: str) -> list[Proposal]:
    """Return the systems that fit a job."""
    return propose(session.trace(job))


def show_proposals(proposals: Sequence[Proposal], current: str) -> Any:
    """Return the systems that fit a job, folded: why each, its measured error, and what carries out its collectives."""
    if not proposals:
        return None
    line = html.Summary(
        [
            html.H2("Systems that fit this job"),
            html.Span(", ".join(proposal.system for proposal in proposals), className="cs-dim sim-set"),
        ]
    )
    items = [html.Li(_build_proposal(proposal, current == proposal.system)) for proposal in proposals]
    return html.Details([line, html.Ul(items, className="sim-proposals")], className="sim-section sim-fold")


def _build_proposal(proposal: Proposal, chosen: bool) -> list[Any]:
    button = html.Button(
        "Use",
        className="cs-button-quiet",
        disabled=chosen,
        **build_click_request(EDIT, "propose", proposal.system),
        **build_aria_label(f"Use {proposal.system}"),
    )
    return [
        html.Div([html.Strong(proposal.title), " ", button]),
        html.Div([proposal.why, " ", html.Span(proposal.measured_error, className="cs-dim")]),
        *[
            html.Div(_describe_algorithm(choice), className="cs-dim")
            for choice in proposal.algorithms[:_SHOWN]
        ],
        html.Div(f"and {len(proposal.algorithms) - _SHOWN} more", className="cs-dim")
        if len(proposal.algorithms) > _SHOWN
        else None,
    ]


def _describe_algorithm(choice: AlgorithmChoice) -> str:
    sizes = format_bytes(choice.least_bytes)
    if choice.most_bytes != choice.least_bytes:
        sizes = f"{sizes} to {format_bytes(choice.most_bytes)}"
    return f"{choice.kind.replace('_', '-')} of {sizes}, {choice.where}: {choice.algorithm}. {choice.why}"


def show_compute(trace: Trace, config: SystemConfig) -> Any:
    """Return where the time of compute comes from, and what the other choice would give; None where nothing computes.

    Where it is recomputed for another GPU, that is said elsewhere.

    The choice is offered where the system has a roofline and some node says its operations beside a recorded time.
    """
    times = compute_times(trace, config)
    recomputes = config.extensions is not None and config.extensions.recompute_for is not None
    if not times.words or not config.needs_every_rank or recomputes:
        return None
    words = html.Span(describe_compute(times))
    means = compute_mean_times(trace, config)
    if config.extensions is None or len(set(means.values())) < 2:
        return html.P(words, className="sim-fit cs-dim")
    chosen = config.extensions.compute_times
    buttons = [
        html.Button(
            f"{label}: {format_ns(means[key])} per rank",
            className="cs-button",
            **build_click_request(EDIT, "compute", key),
            **_mark_pressed(key == chosen),
        )
        for key, label in _CHOICES.items()
    ]
    return html.Div([words, html.Div(buttons, className="sim-row")], className="sim-fit")


def _mark_pressed(yes: bool) -> dict[str, Any]:
    return {"aria-pressed": "true" if yes else "false"}


def describe_compute(times: ComputeTimes) -> str:
    """Return the shares of recorded and computed times as a sentence; empty where nothing computes.

    Example:
        >>> describe_compute(ComputeTimes(98, 2, 0, is_generated=True))
        'Compute: generated on 98 % of nodes, roofline on 2 %, at peak rates: hardware takes longer.'
    """
    return as_sentence(times.words)
