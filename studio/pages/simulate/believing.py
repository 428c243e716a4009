"""Why the result of a run is not to be believed as it stands, with one button that runs it properly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import html

from studio.pages.base.asked import ORDER, build_click_request
from studio.pages.base.widgets import as_sentence, build_aria_label
from studio.sim.doubt import Doubt
from studio.sim.doubts import format_cure_options
from studio.store.run_infos import RunInfo

_MARKS = {True: "impossible", False: "doubtful"}


def choose_mark(doubts: Sequence[Doubt]) -> str:
    """Return the word for an answer about which there are doubts; empty where there are none.

    Example:
        >>> choose_mark([]), choose_mark([Doubt("a", "", False), Doubt("b", "", True)])
        ('', 'impossible')
    """
    return _MARKS[any(doubt.impossible for doubt in doubts)] if doubts else ""


def show_mark(info: RunInfo) -> Any:
    """Return the mark that stands wherever the time of a run does; None where nothing is doubtful."""
    word = choose_mark(info.doubts)
    level = "error" if word == "impossible" else "warning"
    about = " ".join(doubt.message for doubt in info.doubts)
    if not word:
        return None
    sign: dict[str, Any] = {"role": "img", **build_aria_label(f"{word}: {about}")}
    return html.Span("⚠", className=f"cs-level-{level} sim-mark", title=f"{word}: {about}", **sign)


def show_warnings(info: RunInfo) -> Any:
    """Return what is doubtful about a run with the button that cures it, what a cure has changed, and what could be quicker."""
    changed = None
    if info.cures is not None:
        changed = html.P(as_sentence(info.cures.words(info.makespan_ns)), className="sim-cured")
    slower = html.P(info.slower_way) if info.slower_way else None
    if not info.doubts:
        return [part for part in (changed, slower) if part is not None] or None
    items = [
        html.Li(
            [
                html.Span(_MARKS[doubt.impossible], className=f"cs-level-{_choose_level(doubt)}"),
                html.Span(f" {doubt.message}"),
                html.Span(f" {doubt.cure.label}.", className="cs-dim") if doubt.cure else None,
            ]
        )
        for doubt in info.doubts
    ]
    options = format_cure_options(info.doubts)
    button = html.Button(
        f"Run with {options}",
        className="cs-button sim-run",
        title=f"Simulate {info.name} again with what cures this, and say what it changes",
        **build_click_request(ORDER, "cure", f"{info.job} {info.id}"),
    )
    return html.Section(
        [changed, html.Ul(items), button if options else None, slower],
        className="sim-doubts",
        **build_aria_label("Why this result is doubtful"),
    )


def _choose_level(doubt: Doubt) -> str:
    return "error" if doubt.impossible else "warning"
