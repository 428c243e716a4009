"""The results of a sweep: a line of words, figures, the best points, and one point in detail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import dcc, html

from studio.analysis.job.part_words import ABOUT, NAMES
from studio.errors import StudioError
from studio.figures.sweeps import MOST_LINES, draw_importance, draw_parallel, draw_slice
from studio.jobs.simulations import ACTIVE, list_simulations
from studio.jobs.sweeps import PREFIX, Kept
from studio.pages.base.asked import SWEEP, build_click_request
from studio.pages.base.export import Table, build_export_buttons
from studio.pages.base.figures import build_figure
from studio.pages.base.state import get_session, get_simulations, get_workspace
from studio.pages.base.widgets import as_sentence, build_address, build_hint, build_rounded_value, build_table
from studio.sim.network import UNIT
from studio.sim.presets import PRESETS
from studio.sim.setting_values import get_unit, rate_of
from studio.sweep.analysis import (
    IMPORTANCE,
    LITTLE,
    NOTHING_MATTERS,
    Importance,
    choose_cheap_enough,
    compute_importance,
    count_reasons,
    describe_finishes,
    describe_little,
    find_slower_with_more,
    finish_varies,
    list_doubtful,
    list_models,
    mark_point,
    select_best,
    select_doubted,
    select_front,
    select_possible,
)
from studio.sweep.running import Row
from studio.sweep.search import choose_cheapest
from studio.sweep.space import Space
from studio.sweep.sweep import index_values
from studio.sweep.tables import build_columns
from studio.units import format_count, format_counted, format_ns, format_si

_BEST = 8
_REASONS = 4
_MOST_ROWS = 5_000
FRONT = "Points that no other one beats in both cost and finish. All others cost more or take longer than one of these."
"""What the front is."""
_SHOWN = ("compute", "overlapped", "exposed", "idle", "after_finish")


def build_results(kept: Kept, rows: list[Row], key: str, *, dark: bool) -> Any:
    """Return what is known of a sweep."""
    ranked, space = select_possible(rows), kept.space
    if not ranked:
        return None if rows else html.P("No results yet.", className="cs-dim")
    shares = compute_importance(space, rows)
    step = -(-len(ranked) // MOST_LINES)
    lines = f" (1 in {step} drawn)" if step > 1 else ""
    units = collect_units(kept)
    numbers = build_columns(space, rows[:_MOST_ROWS])
    every = Table(list(numbers), list(zip(*numbers.values(), strict=True)))
    return html.Div(
        [
            html.P(kept.asked.doubt, className="cs-level-warning") if kept.asked.doubt else None,
            _describe_doubts(rows),
            *_describe_doubtful(rows),
            _name_cheapest(kept, rows),
            build_conclusion(kept.space, rows, kept.asked.job) if kept.target is None else None,
            html.Div(
                [
                    html.Div(
                        [
                            _build_head(f"What {key} does", "sweep-slice", None),
                            build_figure("sweep-slice", draw_slice(space, rows, key, dark=dark, units=units)),
                        ]
                    ),
                    html.Div(
                        [
                            html.Div(
                                [
                                    html.H2("Which setting matters"),
                                    build_hint("how much a setting matters", IMPORTANCE),
                                ],
                                className="cs-figure-head",
                            ),
                            html.P(as_sentence(little)) if (little := describe_little(rows)) else None,
                            build_figure("sweep-importance", draw_importance(shares, dark=dark))
                            if shares and finish_varies(rows)
                            else html.P(_say_why_unexplained(shares), className="cs-dim"),
                        ]
                    ),
                ],
                className="sweep-pair",
            ),
            _build_head(
                f"All settings side by side, the quickest drawn over the others{lines}",
                "sweep-parallel",
                every,
            ),
            build_figure("sweep-parallel", draw_parallel(space, rows, dark=dark, units=units)),
            html.H2("Least finish"),
            html.Div(_build_point_table(kept, rows), className="sweep-points"),
        ]
    )


def _describe_doubts(rows: list[Row]) -> Any:
    """Say how many points no such network could have, and why the first cannot be; None where there are none."""
    marked = select_doubted(rows)
    if not marked:
        return None
    some = (
        " They are ranked last, and left out of the front and the shares."
        if len(marked) < len(select_possible(rows))
        else ""
    )
    many = (
        f"{format_counted(len(marked), 'point')} that no such network could have, such as {marked[0].index}"
    )
    return html.P(f"{many}: {marked[0].doubt}{some}", className="cs-level-warning")


def _describe_doubtful(rows: list[Row]) -> list[Any]:
    """Say what is doubtful of points, each doubt once with the points it concerns."""
    every = len(select_possible(rows))
    return [
        html.P(f"Doubtful: {each.words(every)}", className="cs-level-warning") for each in list_doubtful(rows)
    ]


def _format_finish(row: Row, rows: Sequence[Row] = ()) -> Any:
    """Return the finish of a point with why it is not to be believed, and marked where it is not believed and some of others are."""
    reasons = [row.doubt] if row.doubt else list(row.doubtful.values())
    words = f"{format_ns(row.finish_ns or 0)} {mark_point(row, rows)}".rstrip()
    return build_rounded_value(words, " ".join([f"{row.finish_ns:,} ns{'.' if reasons else ''}", *reasons]))


def _name_cheapest(kept: Kept, rows: list[Row]) -> Any:
    """Say which point is the cheapest in time, of a sweep that looks for it."""
    target = kept.target
    if target is None:
        return None
    under = format_ns(target.under_ns)
    row = choose_cheapest(rows, index_values(kept.space, target.key, rows), target)
    if row is None and not kept.is_whole:
        return None
    if row is None:
        least = min(row.finish_ns or 0 for row in select_possible(rows))
        return html.P(
            f"No point that was simulated finishes within {under}; the least takes {format_ns(least)}."
        )
    values = _list_values(kept.space, row)
    costs = "" if row.cost is None else f" for {format_si(row.cost)}"
    return html.Div(
        [
            html.Span(
                [
                    "Cheapest within ",
                    under,
                    ": ",
                    html.Bdi(values),
                    f", {format_ns(row.finish_ns or 0)}{costs}",
                ]
            ),
            html.Span(style={"flex": 1}),
            build_run_button(kept, row),
        ],
        className="sweep-row sweep-found",
    )


def build_conclusion(space: Space, rows: list[Row], job: str) -> Any:
    """Say which point is the quickest, which is nearly as quick and cheaper, and where more bandwidth takes longer; None where nothing compares."""
    if len(list_models(rows)) > 1 or not finish_varies(rows):
        return None
    quickest, near = select_best(rows, 1)[0], choose_cheap_enough(rows)
    sentences: list[Any] = ["Quickest: ", html.Bdi(_describe_point(space, quickest)), "."]
    if near is not None and quickest.cost and (near.cost or 0.0) < quickest.cost * (1 - LITTLE / 10):
        less = 100 * (1 - (near.cost or 0.0) / quickest.cost)
        sentences += [
            f" Within {100 * LITTLE:.0f} % of it, {less:.2g} % cheaper: ",
            html.Bdi(_describe_point(space, near)),
            ".",
        ]
    if slower := find_slower_with_more(space, rows):
        key, row = slower
        value = space.point(row.index)[key]
        sentences += [
            f" More {key} is not quicker: with {value} it takes {format_ns(row.finish_ns or 0)}, all else equal.",
            " Libraries choose the way of a collective by estimates of their own; ",
            dcc.Link("Explain", href=build_address("/explain", {"job": job})),
            " compares the ways.",
        ]
    return html.P(sentences, className="sweep-conclusion")


def _describe_point(space: Space, row: Row) -> str:
    values = _list_values(space, row)
    costs = "" if row.cost is None else f" for {format_si(row.cost)}"
    return f"{values}: {format_ns(row.finish_ns or 0)}{costs}"


def _list_values(space: Space, row: Row) -> str:
    """Return the values of a point for the settings that differ between points."""
    point = space.point(row.index)
    return ", ".join(f"{key}={point[key]}" for key in space.varied)


def _say_why_unexplained(shares: list[Importance]) -> str:
    """Say why there are no shares to show."""
    if not shares:
        return "One value each: nothing to explain."
    return as_sentence(NOTHING_MATTERS)


def _build_head(title: str, figure: str, numbers: Table | None) -> Any:
    saves = build_export_buttons(figure, figure=figure, table=numbers, title=title)
    return html.Div([html.H2(title), saves], className="cs-figure-head")


def describe_results(kept: Kept, rows: list[Row]) -> str:
    """Say what is known of a sweep in one line."""
    ranked = select_possible(rows)
    words = [f"{format_counted(len(rows), 'point')}"]
    if ranked:
        words += [describe_finishes(rows)]
        words += [f"{format_count(len(select_front(rows)))} on the front"]
    if len(list_models(rows)) > 1:
        words += [f"of several models ({', '.join(list_models(rows))}), whose times do not compare"]
    return f"{', '.join(kept.space.varied)}: {' · '.join(words)}"


def describe_sweep(kept: Kept) -> str:
    """Say what was varied, and on which system: the form beside the results is for a new sweep."""
    asked = kept.asked
    words = [f"Varied on {_describe_system(kept)}: {'; '.join(asked.varied)}"]
    if asked.draw is not None:
        words += [f"{format_counted(asked.draw, 'point')} at random"]
    if asked.bisect:
        words += [f"{asked.bisect} bisected for a finish within {format_ns(asked.under_ns)}"]
    return " · ".join(words)


def _describe_system(kept: Kept) -> str:
    if not kept.asked.run:
        return kept.asked.preset or "the presets named"
    try:
        return f"the system of run {get_workspace().run_info(kept.asked.job, kept.asked.run).label}"
    except StudioError:
        return "the system of a run that was deleted"


def collect_units(kept: Kept) -> dict[str, str]:
    """Return the unit of each setting that is varied and has one that is the same at all points."""
    rate_units = _collect_rate_units(kept)
    rate = rate_units.pop() if len(rate_units) == 1 else ""
    named = {key: get_unit(key, rate) for key in kept.space.keys}
    return {key: unit for key, unit in named.items() if unit}


def _collect_rate_units(kept: Kept) -> set[str]:
    """Return what the systems of a sweep count bandwidths of the network in; nothing where that is not known."""
    asked, axes = kept.asked, {axis.key: axis.values for axis in kept.space.axes}
    if UNIT in axes:
        return set(axes[UNIT])
    try:
        if asked.run and "preset" not in axes:
            return {rate_of(get_workspace().run_info(asked.job, asked.run).tables)}
        ranks = len(get_session().trace(asked.job).ranks)
        return {rate_of(PRESETS[name].system.parts(ranks)) for name in axes.get("preset", (asked.preset,))}
    except (StudioError, KeyError):
        return set()  # the run was deleted, or a preset is named with a size


def build_impossible_list(rows: list[Row]) -> Any:
    """Say how many points cannot be simulated, and why; None where all can."""
    bad = len(rows) - len(select_possible(rows))
    if not bad:
        return None
    listed = count_reasons(rows)
    items = [
        html.Li(f"{format_count(count)} × {error.splitlines()[0]}") for error, count in listed[:_REASONS]
    ]
    if len(listed) > _REASONS:
        items.append(html.Li(f"and {format_counted(len(listed) - _REASONS, 'other reason')}"))
    return html.Div(
        [
            html.Span(f"{format_counted(bad, 'point')} cannot be simulated:", className="cs-level-warning"),
            html.Ul(items),
        ],
        className="sweep-impossible",
    )


def _build_point_table(kept: Kept, rows: list[Row]) -> Any:
    """Return the points with the least finish."""
    keys = kept.space.varied
    head = ("Point", *keys, "Finish", "Exposed", "Cost", "")
    lines = []
    for row in select_best(rows, _BEST):
        point = kept.space.point(row.index)
        exposed = row.parts_ns.get("exposed", 0.0)
        lines.append(
            (
                format_count(row.index),
                *(point[key] for key in keys),
                _format_finish(row, rows),
                build_rounded_value(format_ns(exposed), f"{exposed:,.1f} ns"),
                "" if row.cost is None else build_rounded_value(format_si(row.cost), f"{row.cost:,.2f}"),
                build_run_button(kept, row),
            )
        )
    wide = len(keys)
    return build_table(head, lines, numeric=(0, *range(1, wide + 4)))


def build_run_button(kept: Kept, row: Row) -> Any:
    """Return the button that makes a point a run."""
    return html.Button(
        "Make a run",
        className="cs-button",
        title=f"Simulate point {row.index} again and keep it as a run, with timeline and comparison",
        **build_click_request(SWEEP, "point", f"{kept.id} {row.index}"),
    )


def build_chosen_point(kept: Kept, row: Row) -> Any:
    """Return what is known of the point that was clicked."""
    point = kept.space.point(row.index)
    facts: list[tuple[Any, Any]] = [(key, html.Bdi(value)) for key, value in point.items()]
    facts += [("finish", _format_finish(row))]
    facts += [
        (
            [NAMES[part], build_hint(NAMES[part], ABOUT[part])],
            build_rounded_value(format_ns(row.parts_ns[part]), f"mean {row.parts_ns[part]:,.1f} ns"),
        )
        for part in _SHOWN
        if row.parts_ns.get(part)
    ]
    facts += (
        [] if row.cost is None else [("cost", build_rounded_value(format_si(row.cost), f"{row.cost:,.2f}"))]
    )
    return html.Section(
        [
            html.Div(
                [html.H2(f"Point {row.index:,}"), html.Span(style={"flex": 1}), build_run_button(kept, row)],
                className="sweep-row",
            ),
            html.Dl(
                [html.Div([html.Dt(name), html.Dd(value)]) for name, value in facts], className="cs-facts"
            ),
        ],
        className="sweep-point",
    )


def build_run_list(job: str) -> Any:
    """Return the runs that were made of points: under way, failed, and kept, with the way to compare them."""
    infos = [info for info in get_workspace().runs(job) if info.name.startswith(PREFIX)]
    others = [
        simulation
        for simulation in list_simulations(get_simulations(), job)
        if simulation.name.startswith(PREFIX)
    ]
    items: list[Any] = [
        html.Li([html.Bdi(simulation.name), f" · {simulation.status}"])
        for simulation in others
        if simulation.status in ACTIVE
    ]
    items += [
        html.Li(
            [
                html.Bdi(simulation.name),
                html.Span(f" · {simulation.error.message}", className="cs-level-error"),
            ]
        )
        for simulation in others
        if simulation.error is not None
    ]
    items += [
        html.Li(
            [
                html.Bdi(info.name),
                " ",
                dcc.Link("Timeline", href=build_address("/timeline", {"job": job, "run": info.id})),
                " · ",
                dcc.Link("Result", href=build_address("/simulate", {"job": job, "run": info.id})),
            ]
        )
        for info in infos
    ]
    if not items:
        return None
    sides = [f"{job}/{info.id}" for info in infos[1:8]]
    compare = (
        build_address("/compare", {"job": job, "run": infos[0].id, "with": ",".join(sides)}) if sides else ""
    )
    return html.Section(
        [
            html.Div(
                [
                    html.H2("Runs made of points"),
                    html.Span(style={"flex": 1}),
                    dcc.Link("Compare them", href=compare, className="cs-button") if compare else None,
                ],
                className="sweep-row",
            ),
            html.Ul(items, className="sweep-made"),
        ]
    )
