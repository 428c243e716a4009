"""Find the best layout: what the Workloads page says of a search, and the layouts that it found."""

from __future__ import annotations

from typing import Any

from dash import dcc, html

from studio.figures.layouts import HEIGHT_PX, front_figure
from studio.generation.options import BY_KEY
from studio.jobs.generating import Generating
from studio.layout_search.layout_plan import LayoutPlan
from studio.layout_search.search import Item
from studio.layout_search.space import list_degrees
from studio.layout_search.unfit import describe_layout
from studio.layout_search.why import list_reasons
from studio.pages.base.asked import WORKLOADS, build_click_request
from studio.pages.base.export import Table, build_export_buttons, with_copy_button
from studio.pages.base.widgets import build_aria_label, build_hint, build_rounded_value, build_table
from studio.pages.workloads.asking import Filled
from studio.pages.workloads.texts import replace_options
from studio.store.pace import describe_remaining
from studio.store.tasks import Task
from studio.units import format_count, format_counted, format_ns, format_si

_ABOUT = (
    "Every layout that divides and fits is simulated, but for those that a lower bound of their time rules out. What is filled in stays "
    "fixed; what is empty or proposed is tried. The batch is the same for all."
)
_MOST_REASONS = 4
FIGURE = "workload-front"


def build_place() -> Any:
    """Return the place of the search on the page."""
    button = html.Button(
        "Find the best layout",
        id="workload-plan-go",
        className="cs-button",
        disabled=True,
        **build_click_request(WORKLOADS, "plan"),
    )
    return html.Div(
        [
            html.Div(
                [html.H2(["The best layout", build_hint("the best layout", _ABOUT)]), button],
                className="wl-plan-head",
            ),
            html.Div(id="workload-plan-said", role="status"),
            html.Div(id="workload-plan-found"),
        ],
        className="cs-section",
    )


def build_search(filled: Filled) -> Generating:
    """Return what a search is for: the form without what is proposed."""
    wanted = filled.wanted
    given = tuple(pair for pair in wanted.given if pair[0] not in filled.proposed)
    return Generating(wanted.model, wanted.ranks, given)


def build_progress(task: Task | None, now: float) -> Any:
    """Say how far a search is, with a button that ends it."""
    if task is None:
        return None
    counted = f" · {format_count(task.done)} of {format_count(task.total)} layouts" if task.total else ""
    left = describe_remaining(task.remaining_s(now))
    stop = html.Button(
        "Cancel", className="cs-button-quiet", **build_click_request(WORKLOADS, "stop", task.id)
    )
    return html.P(
        [f"{replace_options(task.phase or 'waiting')}{counted}{f', {left}' if left else ''} ", stop]
    )


def build_results(plan: LayoutPlan, *, dark: bool) -> Any:
    """Return the layouts that were found: the front, the fastest, and why the others are slower."""
    why = list_reasons(plan)[:_MOST_REASONS]
    config: Any = {"displaylogo": False, "displayModeBar": False}
    return html.Div(
        [
            html.P(_describe_plan(plan)),
            html.Div(
                [
                    html.H3("Step time against memory"),
                    build_export_buttons(
                        "layouts", figure=FIGURE, table=_build_export_table(plan), title="the layouts"
                    ),
                ],
                className="cs-figure-head",
            ),
            dcc.Graph(
                id=FIGURE,
                figure=front_figure(plan, dark=dark),
                config=config,
                className="cs-figure",
                style={"height": f"{HEIGHT_PX}px"},
            ),
            html.Div(_build_fastest_table(plan), className="cs-scroll"),
            html.Ul([html.Li(line) for line in why], className="wl-why") if why else None,
        ]
    )


def _describe_plan(plan: LayoutPlan) -> str:
    frame = plan.frame
    without = f" None fits without host memory (offload). {plan.without_host}" if plan.without_host else ""
    return (
        f"{frame.model.name} on {frame.ranks:,} × {plan.gpu.name}, {format_counted(frame.batch, 'sequence')} a step ({frame.batch_from}): "
        f"{len(plan.items):,} layouts fit, {len(plan.simulated):,} were simulated; the others are slower for certain.{without}"
    )


def _build_fastest_table(plan: LayoutPlan) -> Any:
    head = ("Layout", "Step", "MFU", "Memory", "")
    rows = [
        (
            describe_layout(item.candidate),
            build_rounded_value(format_ns(plan.step_ns(item)), f"{plan.step_ns(item):,.0f} ns"),
            build_rounded_value(f"{100 * plan.mfu(item):.1f} %", f"{plan.mfu(item):.6f}"),
            build_rounded_value(format_si(item.held.total, "B"), item.held.total),
            _build_use_button(item),
        )
        for item in plan.ranked
    ]
    return with_copy_button(build_table(head, rows, numeric=(1, 2, 3)), "the fastest layouts")


def _build_use_button(item: Item) -> Any:
    return html.Button(
        "Use",
        className="cs-button-quiet",
        **build_click_request(WORKLOADS, "set", _spell_layout(item)),
        **build_aria_label(f"Use {describe_layout(item.candidate)}"),
    )


def _spell_layout(item: Item) -> str:
    """Return the texts of the fields of a layout; what is the default is left empty, so that rules apply."""
    options, layout = item.candidate.options, item.candidate.layout
    texts = {degree.key: _format_value(degree.key, options.get(degree.key)) for degree in list_degrees()}
    texts |= {"offload": _format_value("offload", options.get("offload")), "batch": str(layout.batch)}
    return " ".join(f"{key}={text}" for key, text in texts.items())


def _format_value(key: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    # Degrees that are proposed where they are empty are said.
    return (
        "" if value == BY_KEY[key].default and key in ("schedule", "micro_batch", "offload") else str(value)
    )


def _build_export_table(plan: LayoutPlan) -> Table:
    rows = [
        (
            describe_layout(item.candidate),
            item.held.total,
            plan.step_ns(item),
            "simulated" if item.answer is not None else "at least",
        )
        for item in (*plan.simulated, *plan.left_out)
    ]
    return Table(("layout", "memory_bytes", "step_ns", "time"), rows)
