"""What to change: the largest savings, each simulated, beside where the time goes."""

from __future__ import annotations

from typing import Any

from dash import html

from studio.advice.terms import MOST_DEVIATION, WORTH, Advice, Advised
from studio.advice.words import build_bars, describe_doubt, describe_miss, describe_together, group_by_reason
from studio.errors import StudioError
from studio.figures.tornado import draw_tornado
from studio.jobs.advice_search import get_advice, is_sought, start_advising
from studio.jobs.advising import keep_baseline, keep_run
from studio.pages.base.asked import ADVICE, build_click_request
from studio.pages.base.export import Table, build_export_buttons
from studio.pages.base.figures import build_figure
from studio.pages.base.followed import list_tasks_again
from studio.pages.base.state import get_session, get_tasks, get_workspace
from studio.pages.base.widgets import build_address, build_hint, build_loading, build_rounded_value
from studio.store.tasks import Problem
from studio.units import format_count, format_counted, format_ns

_SHOWN, _FEWEST_BARS = 6, 3
_TORNADO = "overview-tornado-figure"
_BY_ITSELF = 300_000
"""Nodes of different graphs up to which advice is looked for unasked: some seconds of simulations."""
_ABOUT = (
    "Each change was made to the job, or to the system, and simulated again: the saving is the finish before less the finish "
    "after. Savings do not add up; the best combination is simulated as one."
)


def build_advice_section(job: str, run: str) -> Any:
    """Return the advice for a run, "" for the recording; begins to look for it where the job is not too large."""
    return html.Div(
        [
            html.Div(
                html.H2(["What to change", build_hint("what to change", _ABOUT)]), className="cs-figure-head"
            ),
            html.Div(_build_content(job, run), className="cs-advice"),
        ],
        className="cs-section",
    )


def build_tornado_section(job: str, run: str, *, dark: bool) -> Any:
    """Return what each change would do to the finish, as a figure; None where there is little to compare."""
    advised = get_advice(get_session(), job, run)
    rows = build_bars(advised) if isinstance(advised, Advised) else []
    if len(rows) < _FEWEST_BARS:
        return None
    numbers = Table(
        ("change", "saves_percent", "opposite_costs_percent", "low_percent", "high_percent"),
        [
            (row.label, row.better_percent, row.worse_percent, row.low_percent, row.high_percent)
            for row in rows
        ],
    )
    return html.Div(
        [
            html.Div(
                [
                    html.H2("What each change would do to the finish"),
                    build_export_buttons("advice", figure=_TORNADO, table=numbers),
                ],
                className="cs-figure-head",
            ),
            build_figure(_TORNADO, draw_tornado(rows, dark=dark)),
            html.P(
                "To the left what it saves; to the right, for rates and latencies, what half as good a one costs.",
                className="cs-dim",
            ),
        ],
        className="cs-section",
    )


def _build_content(job: str, run: str) -> Any:
    advised = get_advice(get_session(), job, run)
    if isinstance(advised, Advised):
        return _build_list(advised, job, run)
    if isinstance(advised, Problem):
        return html.Div(
            [
                html.P(advised.message),
                html.P(advised.hint, className="cs-dim"),
                _build_button("Look again", job, run),
            ]
        )
    # Ranks that share a graph are mostly simulated as one.
    nodes = sum(len(graph) for graph in get_session().trace(job).graphs)
    began = not is_sought(get_tasks(), job, run)
    if began:
        if nodes > _BY_ITSELF:
            words = f"The job has {format_count(nodes)} different nodes: some minutes of simulations."
            return html.Div(
                [
                    html.P(words, className="cs-dim"),
                    _build_button("Simulate what changes would save", job, run),
                ]
            )
        start_advising(get_tasks(), get_session(), job, run)
    list_tasks_again(began=began)
    return build_loading("Simulating what changes would save…")


def _build_button(words: str, job: str, run: str) -> Any:
    return html.Button(words, className="cs-button", **build_click_request(ADVICE, "seek", f"{job} {run}"))


def _build_list(advised: Advised, job: str, run: str) -> Any:
    worth = advised.worth_it
    parts: list[Any] = []
    if doubt := describe_doubt(advised):
        parts.append(html.P(doubt, className="cs-level-warning"))
    if advised.baseline.misses:
        parts.append(
            html.P(
                f"The replay misses the recorded time by {describe_miss(advised.baseline)}, more than "
                f"{100 * MOST_DEVIATION:.0f} %: savings are ranges.",
                className="cs-dim",
            )
        )
    if worth:
        parts.append(
            html.Ol([_build_item(item, number, job, run) for number, item in enumerate(worth[:_SHOWN])])
        )
    else:
        parts.append(
            html.P(f"No change that was simulated saves more than {100 * WORTH:.0f} % of the finish.")
        )
    if advised.combined is not None and advised.combined.is_worth_it:
        parts.append(
            html.Ul(
                _build_item(
                    advised.combined,
                    len(advised.advice),
                    job,
                    run,
                    _describe_combination(advised, advised.combined),
                )
            )
        )
    more = len(worth) - _SHOWN
    notes = [f"{format_counted(advised.considered, 'simulation')}, {advised.baseline.words}"]
    if more > 0:
        notes.append(f"{format_count(more)} more above {100 * WORTH:.0f} %")
    parts.append(html.P(" · ".join(notes), className="cs-dim"))
    if advised.refused:
        parts.append(_build_not_simulated(advised))
    return html.Div(parts)


def _describe_combination(advised: Advised, combined: Advice) -> str:
    """Name what is in the list by its number, and only spell out what is not."""
    listed = advised.worth_it[:_SHOWN]
    shown = set(map(id, listed))
    return describe_together(combined, listed, [item for item in advised.advice if id(item) not in shown])


def _build_not_simulated(advised: Advised) -> Any:
    """Return which kinds of change were not simulated and why, folded."""
    count = format_counted(len(advised.refused), "kind")
    return html.Details(
        [
            html.Summary(f"{count} of change not simulated"),
            html.Ul([html.Li(f"{kinds}: {reason}.") for kinds, reason in group_by_reason(advised)]),
        ],
        className="cs-dim",
    )


def _build_item(item: Advice, number: int, job: str, run: str, words: str = "") -> Any:
    saves = f"−{format_ns(item.saving_ns)}"
    of = f"{item.saving_percent:.1f} %"
    between = ""
    if item.saving_low_ns is not None and item.saving_high_ns is not None:
        between = f" ({format_ns(item.saving_low_ns)} to {format_ns(item.saving_high_ns)})"
    return html.Li(
        [
            html.Div(html.Bdi(words or item.action)),
            html.Div(
                [
                    build_rounded_value(saves, f"{item.saving_ns:,} ns", classes="cs-saving"),
                    html.Span(f" {of}{between}", className="cs-dim"),
                    html.Button(
                        "Compare",
                        className="cs-button-quiet",
                        title="Keep the changed run and open it beside this one",
                        **build_click_request(ADVICE, "compare", f"{job} {run} {number}"),
                    ),
                ]
            ),
        ]
    )


def keep_advised(job: str, run: str, number: int) -> str:
    """Keep the run of a change, and return the address that compares it with the run that it changes.

    Of a recording that is its replay, which is kept too: so the difference is the change alone.

    Args:
        job: The job.
        run: The run that the advice is for, "" for the recording.
        number: Which advice, by its place in `Advised.advice`; one more than the last is the best set.

    Raises:
        StudioError: The advice is not known any more, or the workspace cannot be written.
    """
    advised = get_advice(get_session(), job, run)
    items = [*advised.advice, advised.combined] if isinstance(advised, Advised) else []
    item = items[number] if 0 <= number < len(items) else None
    if item is None or not isinstance(advised, Advised):
        raise StudioError(
            "This advice is not known any more.", hint="Open the page again to look for it anew."
        )
    kept = keep_run(get_workspace(), job, get_session().trace(job), item)
    before = run or get_session().keep_of_job(
        "advice baseline", job, lambda: keep_baseline(get_workspace(), job, get_session().trace(job), advised)
    )
    return build_address("/compare", {"job": job, "run": before, "with": kept})
