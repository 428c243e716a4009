"""The list of a job's runs: what each is called, its model, when it finishes, and how its settings differ."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from dash import dcc, html

from studio.pages.base.asked import EDIT, RUNS, build_click_request
from studio.pages.base.export import with_copy_button
from studio.pages.base.widgets import build_address, build_aria_label, build_hint, build_rounded_value
from studio.pages.simulate.believing import show_mark
from studio.pages.simulate.naming import describe_model
from studio.sim.setting_values import describe_differences
from studio.store.run_infos import RunInfo
from studio.units import format_ns

_HEAD = ("Run", "Model", "Finish", "vs fastest", "Differs in", "When", "Actions")
_NUMERIC = (2, 3)
_ACTIONS = 6
"""Read out, not seen: what the column holds is plain to see."""
_FASTEST = (
    "How much later it finishes than the fastest run of the same model. Runs of different models are not ranked: "
    "they differ in what is simulated, not only in the system."
)


def build_run_table(infos: Sequence[RunInfo], shown: str | None, renaming: str | None, job: str) -> Any:
    """Return the table of a job's runs: model, finish, and the settings in which they differ from the shown one."""
    if not infos:
        return html.Div(
            [html.H2("Runs of this job"), html.P("No run of this job yet.", className="cs-dim")],
            className="sim-none",
        )
    base = next((info for info in infos if info.id == shown), infos[0])
    of_model: dict[str, list[int]] = {}
    for info in infos:
        of_model.setdefault(describe_model(info.tables), []).append(info.makespan_ns)
    rows = [
        html.Tr(
            [
                html.Td(_build_name(info, renaming, job)),
                html.Td(model := describe_model(info.tables), title=model, className="cs-dim"),
                html.Td(
                    [
                        show_mark(info),
                        " ",
                        build_rounded_value(format_ns(info.makespan_ns), f"{info.makespan_ns:,} ns"),
                    ],
                    className="cs-num",
                ),
                html.Td(_compare_with_fastest(info.makespan_ns, of_model[model]), className="cs-num"),
                _list_differences(info, base),
                html.Td(_describe_day(info.created), title=_describe_moment(info.created)),
                html.Td(_build_actions(info), className="cs-row-actions"),
            ],
            **_mark_current(info.id == shown),
        )
        for info in infos
    ]
    head = [
        html.Th(
            _build_heading(index, name),
            scope="col",
            className="cs-num" if index in _NUMERIC else None,
        )
        for index, name in enumerate(_HEAD)
    ]
    grid = html.Table([html.Thead(html.Tr(head)), html.Tbody(rows)], className="cs-table sim-runs")
    scroll = html.Div(
        grid, className="sim-runs-scroll", tabIndex=0, role="region", **build_aria_label("Runs of this job")
    )
    return html.Section([html.H2("Runs of this job"), with_copy_button(scroll, "the runs")])


def _build_heading(index: int, name: str) -> Any:
    if index == _ACTIONS:
        return html.Span(name, className="sim-unseen")
    return [name, " ", build_hint("the fastest", _FASTEST)] if index == _NUMERIC[1] else name


def _compare_with_fastest(makespan_ns: int, of_model: Sequence[int]) -> str:
    """Say how much later a run finishes than the fastest of its model; nothing where it has none beside it."""
    fastest = min(of_model)
    if len(of_model) < 2 or not fastest:
        return ""
    return "fastest" if makespan_ns == fastest else f"+{100 * (makespan_ns / fastest - 1):.1f} %"


def _describe_moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _describe_day(at: float) -> str:
    """Return the time of day, and of moments of another day the date."""
    today = time.localtime(at)[:3] == time.localtime()[:3]
    return time.strftime("%H:%M" if today else "%b %d", time.localtime(at))


def _mark_current(yes: bool) -> dict[str, Any]:
    return {"aria-current": "true"} if yes else {}


def _build_name(info: RunInfo, renaming: str | None, job: str) -> Any:
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
                html.Button(
                    "Save",
                    className="cs-button-quiet",
                    **build_click_request(RUNS, "save", _join_job_and_run(info)),
                ),
            ],
            className="cs-renaming",
        )
    select: dict[str, Any] = {"data-view": json.dumps({"run": info.id})}
    here = build_address("/simulate", {"job": job, "run": info.id})
    return html.A(info.name, href=here, title=info.name, **select)


def _join_job_and_run(info: RunInfo) -> str:
    """Return job and run for a button: by its next click the page may show another job."""
    return f"{info.job} {info.id}"


def _build_actions(info: RunInfo) -> Any:
    def build_button(text: str, store: str, verb: str, of: str, about: str) -> Any:
        return html.Button(
            text,
            className="cs-button-quiet",
            **build_click_request(store, verb, of),
            **build_aria_label(about),
        )

    compare: dict[str, Any] = {"data-compare": f"{info.job}/{info.id}", "data-compare-name": info.name}
    choices = [
        html.Button(
            "Compare +", className="cs-button-quiet", **compare, **build_aria_label(f"Compare {info.name}")
        ),
        build_button("Edit its system", EDIT, "load", info.id, f"Edit the system of {info.name}"),
        build_button("Rename", RUNS, "rename", _join_job_and_run(info), f"Rename {info.name}"),
        build_button("Delete", RUNS, "delete", _join_job_and_run(info), f"Delete {info.name}"),
    ]
    what = f"What to do with {info.name}"
    opener = html.Summary("⋯", title="Compare, edit, rename, delete", **build_aria_label(what))
    return html.Details(
        [opener, html.Div(choices, role="group", **build_aria_label(what))], className="cs-menu"
    )


def _list_differences(info: RunInfo, base: RunInfo) -> Any:
    """Return the cell that says how the settings of a run differ from the base run's: the first few, all in its title."""
    if info.id == base.id:
        return html.Td("shown", className="sim-differs")
    differing = describe_differences(info.tables, base.tables)
    if not differing:
        return html.Td("the same system", className="sim-differs")
    whole = f"Against {base.name}: {' · '.join(differing)}"
    more = f"{len(differing)} settings: " if len(differing) > 1 else ""
    return html.Td(more + " · ".join(differing), className="sim-differs", title=whole)
