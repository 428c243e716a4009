"""The upper part of Compare: the runs compared, a sentence per difference, and the waterfall."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dash import html

from studio.analysis.compare.words import (
    describe_basis,
    describe_before,
    describe_comparison,
    explain_devices,
    explain_doubt,
    explain_mean,
)
from studio.analysis.job.completeness import describe_assumed
from studio.analysis.job.part_words import NAMES
from studio.comparing import LETTERS, Lineup
from studio.figures.waterfall import FIGURE_PX, draw_waterfall
from studio.pages.base.export import Table, build_export_buttons
from studio.pages.base.figures import build_figure, build_placeholder
from studio.pages.base.state import RECORDED, get_workspace
from studio.pages.base.widgets import build_address, build_aria_label, build_hint, build_loading
from studio.units import format_distinct

_BASES = ("Rank that waits least", "Mean of all ranks")
_BASIS = (
    "Every nanosecond from the first node to the last end stands in exactly one part, the first that holds, so that the steps "
    "add up: overlapped (work and communication), compute, copies; then, by the earliest issued communication, waiting "
    "for the last member or, between pipeline stages, bubble, and the rest of communication; then host, and stall where "
    "nothing runs; after finish, once the rank is done and the last one is not. Where a recording is compared, the rest of "
    "communication is one part on both sides. The rank that waits least, idles least and finishes late is most often one that the others wait for; where "
    "it is another one in each run, only the mean is shown: the difference between two ranks is none between the runs. "
    "A rank with several devices counts as these in the mean, as on Overview: two devices that work half of the time each are "
    "at work for half of it, also where they take turns."
)


def show_sides(sides: Sequence[Sequence[str]], view: dict[str, Any]) -> list[Any]:
    """Show the compared runs, each with buttons that remove it or make it the base.

    Raises:
        StudioError: There is no such job or run.
    """
    chips = []
    for index, (job, run) in enumerate(sides):
        name, full_name = name_side(job, run, among=sides), name_side(job, run)
        others = [side for place, side in enumerate(sides) if place != index]
        actions = []
        if index:
            changes = _build_view_change([[job, run], *others])
            actions.append(_make_link("make base", view, changes, f"Compare the others with {name}"))
        if len(sides) > 1:
            actions.append(
                _make_link("×", view, _build_view_change(others), f"Take {name} out of the comparison")
            )
        chips.append(
            html.Span(
                [
                    html.Strong(LETTERS[index], className=f"cs-side cs-side-{index}"),
                    html.Bdi(name, title=full_name),
                    *actions,
                ],
                className="cs-compare-chip",
            )
        )
    return chips


def name_side(job: str, run: str, *, among: Sequence[Sequence[str]] = ()) -> str:
    """Return the name of a run, with its job's unless all runs of `among` are of one job.

    Raises:
        StudioError: There is no such job or run.
    """
    info = get_workspace().info(job)
    name = "recorded" if run == RECORDED else get_workspace().run_info(job, run).label
    return (
        name
        if len(among) > 1 and len({other_job for other_job, _ in among}) == 1
        else f"{info.name} · {name}"
    )


def find_unranked_sides(sides: Sequence[Sequence[str]]) -> list[bool]:
    """Return which sides are simulations of another model than the first, so that neither is better.

    Raises:
        StudioError: There is no such job or run.
    """
    models = ["" if run == RECORDED else get_workspace().run_info(job, run).model for job, run in sides]
    return [bool(model and models[0] and model != models[0]) for model in models]


def _build_view_change(sides: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return the change of the view that compares these runs."""
    first, *rest = sides
    more = ",".join(f"{job}/{run}" for job, run in rest)
    # Nodes and moments of another run mean nothing in this one.
    gone = {"pair": None, "from": None, "to": None, "align": None, "rank": None, "node": None}
    return {"job": first[0], "run": first[1], "with": more or None, **gone}


def _make_link(text: str, view: dict[str, Any], changes: dict[str, Any], about: str) -> Any:
    how: dict[str, Any] = {"data-view": json.dumps(changes), **build_aria_label(about)}
    return html.A(
        text, href=build_address("/compare", view, **changes), className="cs-button-quiet", title=about, **how
    )


def show_strip(shown: Lineup, pair: int, basis: str, *, dark: bool) -> Any:
    """Show one sentence per run on how much it differs, and the waterfall of one of them."""
    comparison = shown.comparisons[pair - 1]
    fall = comparison.waterfall("mean" if basis == "mean" else "busiest")
    letter = LETTERS[pair]
    figure = draw_waterfall(fall, ("A", letter), NAMES, dark=dark)
    table = Table(
        ("part", "a_ns", "b_ns", "difference_ns", "share"),
        [(step.part, step.a_ns, step.b_ns, step.difference_ns, step.share) for step in fall.steps],
    )
    head = html.Div(
        [
            html.H2(["Where the difference comes from", build_hint("the waterfall", _BASIS)]),
            _make_toggle(
                _BASES[0],
                {"basis": None},
                on=fall.basis == "busiest",
                off=explain_mean(comparison, letter),
            ),
            _make_toggle(_BASES[1], {"basis": "mean"}, on=fall.basis == "mean"),
            html.Span(describe_basis(fall), className="cs-dim"),
            html.Span(style={"flex": 1}),
            build_export_buttons("waterfall", figure="compare-waterfall", table=table, title="the waterfall"),
        ],
        className="cs-compare-controls",
    )
    notes = (
        explain_mean(comparison, letter),
        explain_devices(comparison, letter),
        describe_before(fall, letter),
    )
    why = [html.P(words, className="cs-dim") for words in notes if words]
    graph = build_figure("compare-waterfall", figure)
    return html.Section(
        [_show_verdicts(shown, pair, basis), head, *why, graph],
        className="cs-section",
        **build_aria_label("How much and why"),
    )


def build_strip_skeleton() -> Any:
    """Return what holds the place of the strip of two runs while they are compared."""
    verdict_line = html.P("\N{NO-BREAK SPACE}", className="cs-compare-verdict")
    verdicts = html.Div([verdict_line, html.P("\N{NO-BREAK SPACE}")], className="cs-compare-verdicts")
    bases = [html.Button(words, className="cs-button") for words in _BASES]
    room = html.Span("on the rank that waits least (0)", className="cs-dim")
    save = build_export_buttons("waterfall", figure="compare-waterfall-later", title="the waterfall")
    row = [html.H2(["Where the difference comes from", build_hint("the waterfall", _BASIS)]), *bases, room]
    head = html.Div([*row, html.Span(style={"flex": 1}), save], className="cs-compare-controls")
    coming = html.Div(build_loading("Comparing the runs…"), style={"height": f"{FIGURE_PX}px"})
    return html.Section([verdicts, build_placeholder(head), coming], className="cs-section")


def _show_verdicts(shown: Lineup, pair: int, basis: str) -> Any:
    lines = []
    for place, comparison in enumerate(shown.comparisons, start=1):
        grew = comparison.difference_ns
        sentence = describe_comparison(
            comparison, "A", LETTERS[place], basis="mean" if basis == "mean" else "busiest"
        )
        kind = "worse" if grew > 0 else "better" if grew < 0 else "same"
        # Neither is better where the work may be another.
        kind = "unranked" if comparison.unranked or explain_doubt(comparison) else kind
        arrow = {"worse": "▲", "better": "▼", "same": "=", "unranked": "≠"}[kind]
        content: list[Any] = [html.Span(arrow, className=f"cs-{kind}"), " ", sentence]
        if len(shown.comparisons) > 1:
            content.append(_make_toggle("Why", {"pair": str(place) if place > 1 else None}, on=place == pair))
        lines.append(html.P(content, className="cs-compare-verdict", title=f"{grew:+,} ns"))
    times = format_distinct([side.side.makespan_ns for side in shown.sides])
    finishes = " · ".join(f"{LETTERS[index]} {time}" for index, time in enumerate(times))
    return html.Div(
        [*lines, html.P(f"Finish: {finishes}", className="cs-dim"), *_name_assumed_sides(shown)],
        id="compare-verdict",
        className="cs-compare-verdicts",
    )


def _name_assumed_sides(shown: Lineup) -> list[Any]:
    """Say which sides have ranks that were not recorded; sides of which the same holds together."""
    by_words: dict[str, list[str]] = {}
    for letter, side in zip(LETTERS, shown.sides, strict=False):
        if words := describe_assumed(side.side.trace):
            by_words.setdefault(words, []).append(letter)
    sentence = "; ".join(f"{' and '.join(letters)}: {words}" for words, letters in by_words.items())
    return [html.P(f"{sentence}.", className="cs-dim")] if sentence else []


def _make_toggle(text: str, changes: dict[str, Any], *, on: bool, off: str = "") -> Any:
    """Return a button that changes the view; `off` is why it cannot be pressed."""
    how: dict[str, Any] = {"data-view": json.dumps(changes), "aria-pressed": "true" if on else "false"}
    if off:
        how |= {"disabled": True, "title": off}
    return html.Button(text, className="cs-button", **how)
