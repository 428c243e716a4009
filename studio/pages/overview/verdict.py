"""The verdict at the top of Overview: how long a step takes, where the time of the ranks goes, how even the layout is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from dash import ClientsideFunction, Input, Output, clientside_callback, dcc, html

from studio.analysis.collectives.groups import sum_group_use
from studio.analysis.job.awaited import find_alike, find_most_awaited
from studio.analysis.job.blame import Blame, compute_blame
from studio.analysis.job.device_parts import DeviceParts
from studio.analysis.job.kinds import lacks_host, runs_on_processor
from studio.analysis.job.layout_imbalance import Unevenness, find_unevenness
from studio.analysis.job.ledger import AFTER_FINISH, Ledger
from studio.analysis.job.measures import share_of_finish
from studio.analysis.job.part_words import ABOUT, DID, NAMES, NO_HOST
from studio.analysis.job.rank_rows import (
    RankRow,
    build_rank_rows,
    describe_unrecorded,
    label_ranks,
    sum_lost_ns,
)
from studio.analysis.job.step_spans import StepSpans
from studio.analysis.job.together import describe_ready_waits
from studio.completion import list_layouts
from studio.completion.clues import describe_dimension
from studio.completion.mesh import Mesh
from studio.doctor.believed import select_time_findings
from studio.errors import StudioError
from studio.figures.rank_bars import compute_bars_height_px, draw_rank_bars
from studio.pages.base.export import build_export_buttons
from studio.pages.base.figures import build_figure
from studio.pages.base.rank_table import rank_table
from studio.pages.base.state import get_session
from studio.pages.base.widgets import (
    build_address,
    build_hint,
    build_loading,
    build_rounded_value,
    build_table,
    build_term,
    with_hint,
)
from studio.trace import NONE, Float64, Int64, Trace
from studio.units import format_count, format_counted, format_ns

_ROWS = 8
_EVEN = 0.005
_MOSTLY = 0.5
"""The share of the finish from which on the host is what a job waits for."""
_SHARES = {
    "compute": -1.0,
    "overlapped": 0.0,
    "copy": _EVEN,
    "exposed": -1.0,
    "idle": 0.0,
    AFTER_FINISH: _EVEN,
}
"""Parts of the headline, and up to which share of the finish they are left out."""
_BARS = "overview-bars"
_TITLE = "Where the time of each rank goes"
_STEP = (
    "The median over steps and ranks, each from its first node to that of the next step. Steps are told by names such as "
    "step0.layer3, or by PyTorch's annotation ProfilerStep."
)
_SPREAD = "Longest less shortest, as a share of the step time: of steps, each the median of its ranks; of ranks, each the median of its steps."
_FINISH = "From the beginning of the run to the end of the last rank. No node tells a training step."
_UNEVEN = (
    "How uneven the dimension is. Ranks that differ in the other dimensions only share a place along this one, and count with their mean. The most loaded "
    "place over the mean of all places: 1 is even."
)


def build_verdict_skeleton(ranks: int) -> Any:
    """Return what holds the place of the verdict's figure while it is worked out."""
    return html.Div(
        [
            html.Div(html.H2(_TITLE), className="cs-figure-head"),
            html.Div(
                build_loading("Adding up the times of the nodes…"),
                style={"height": f"{compute_bars_height_px(min(ranks, _ROWS))}px"},
            ),
            html.P(className="cs-dim cs-verdict-caption"),
        ],
        className="cs-section",
    )


def build_headline_skeleton() -> Any:
    """Return what holds the place of the headline."""
    return html.Dl(html.Div([html.Dt("step time"), html.Dd("…")]), className="cs-facts cs-headline")


def build_headline(job: str, run: str) -> Any:
    """Return step time, spread, exposed communication and idle of a run; "" is the recording."""
    account, _ = get_session().rank_use(job, run)
    steps = get_steps(job, run)
    finish = account.makespan_ns
    facts: list[tuple[Any, Any]] = []
    if steps is not None:
        count = len(steps.steps)
        facts.append(
            (
                with_hint("step time", _STEP),
                [
                    build_rounded_value(format_ns(steps.typical_ns), f"{steps.typical_ns:,} ns"),
                    _build_aside(format_counted(count, "step")),
                ],
            )
        )
    facts.append(
        (
            with_hint("finish", _FINISH if steps is None else ABOUT["finish"]),
            build_rounded_value(format_ns(finish), f"{finish:,} ns"),
        )
    )
    spreads = _format_spreads(steps, account)
    if spreads:
        facts.append((with_hint("spread", _SPREAD), spreads))
    facts += [
        (with_hint(NAMES[key], ABOUT[key]), f"{100 * share:.1f} %")
        for key, share in _compute_shares(account, get_session().device_parts(job, run))
    ]
    facts.append(("health", _build_health_link(job)))
    return html.Dl(
        [html.Div([html.Dt(label), html.Dd(value)]) for label, value in facts],
        className="cs-facts cs-headline",
    )


def _compute_shares(account: Ledger, devices: DeviceParts | None = None) -> list[tuple[str, float]]:
    """Return the mean rank's shares of the finish, where ranks have several devices the mean device's; together they are all of it, but for trifles."""
    times, finish = account.totals() if devices is None else devices.times, account.makespan_ns
    shares = [(key, share_of_finish(times, key, finish)) for key in _SHARES]
    return [(key, share) for key, share in shares if share > _SHARES[key]]


def _build_health_link(job: str) -> Any:
    """Return how many problems the Doctor found, as a link to them."""
    levels = get_session().levels_found(job)
    if levels is None:
        return "not checked" if job in get_session().unexamined else "checking…"
    counts = [format_counted(levels[level], level) for level in ("error", "warning") if levels.get(level)]
    return dcc.Link(", ".join(counts) or "no problems", href=build_address("/findings", {"job": job}))


def _build_aside(words: str) -> Any:
    return html.Span(f" {words}", className="cs-dim cs-aside-words")


def _format_spreads(steps: StepSpans | None, account: Ledger) -> str:
    if steps is not None:
        spreads = [f"steps {100 * steps.spread_of_steps:.1f} %"] if len(steps.steps) > 1 else []
        spreads += [f"ranks {100 * steps.spread_of_ranks:.1f} %"] if len(steps.ranks) > 1 else []
        return ", ".join(spreads)
    ends = account.finish_ns
    return (
        f"ranks {100 * float(ends.max() - ends.min()) / max(int(ends.max()), 1):.1f} %"
        if len(ends) > 1
        else ""
    )


def get_steps(job: str, run: str) -> StepSpans | None:
    """Return the step times of a run; "" is the recording."""
    return get_session().step_spans(job, run)


def build_rank_section(job: str, run: str, *, dark: bool) -> Any:
    """Return the figure of where the time of each rank goes, with the rank others wait for in words."""
    account, _ = get_session().rank_use(job, run)
    rank_blame = get_session().keep_of_job(
        "blame",
        job,
        lambda: compute_blame(get_session().trace(job), get_session().times(job, run), account),
        run,
    )
    devices = get_session().device_parts(job, run)
    rows = build_rank_rows(account, _ROWS, rank_blame.of_culprits(len(account)))
    view = {"job": job, **({"run": run} if run else {})}
    links = [
        build_address("/timeline", view, rank=str(row.ranks[0])) if not row.is_mean else "" for row in rows
    ]
    return html.Div(
        [
            html.Div(
                [
                    html.H2(_TITLE),
                    build_export_buttons("time-of-ranks", figure=_BARS, table=rank_table(account)),
                ],
                className="cs-figure-head",
            ),
            build_figure(
                _BARS,
                draw_rank_bars(
                    rows,
                    dark=dark,
                    links=links,
                    notes=describe_awaited(rows, account, rank_blame),
                    room=min(len(account), _ROWS),
                ),
            ),
            html.P(
                [
                    _explain_doubtful_times(get_session().trace(job), account),
                    describe_devices(devices),
                    describe_idle(get_session().trace(job), account, devices),
                    *_describe_differences(rows, account, rank_blame, view),
                ],
                className="cs-dim cs-verdict-caption",
            ),
        ],
        className="cs-section",
    )


def describe_devices(devices: DeviceParts | None) -> str:
    """Say what bars and shares of ranks with several devices are; "" where each rank has one."""
    return (
        "" if devices is None else f"{devices.words()} Shares of the finish, here and above, are a device's. "
    )


def describe_idle(trace: Trace, account: Ledger, devices: DeviceParts | None = None) -> str:
    """Say what keeps devices idle for most of the finish, and what would tell or help; "" where they are not, or there are none."""
    if any(map(lacks_host, trace.graphs)):
        return f"{NO_HOST[0].upper()}{NO_HOST[1:]}. "
    times = account.totals() if devices is None else devices.times
    share = share_of_finish(times, "host", account.makespan_ns)
    if share < _MOSTLY or runs_on_processor(trace):
        return ""
    return (
        f"For {100 * share:.0f} % of the finish {'the device' if devices is None else 'a device'} has nothing to do because of the host: the lanes of its threads in the Timeline show "
        "what it does then. Larger batches, CUDA or HIP graphs and compiled code need less of it. "
    )


def describe_awaited(rows: Sequence[RankRow], account: Ledger, rank_blame: Blame) -> list[str]:
    """Say of each row whom its ranks wait for most; "" where they wait for nobody."""
    place = {number: index for index, number in enumerate(account.numbers)}
    sentences = []
    for row in rows:
        waits = np.isin(rank_blame.waiter, [place[rank] for rank in row.ranks])
        is_own = waits & (rank_blame.culprit != NONE)
        total = np.bincount(rank_blame.culprit[is_own], rank_blame.ns[is_own], minlength=len(account))
        if not total.any():
            sentences.append("")
            continue
        most = int(total.argmax())
        part, _ = rank_blame.mostly(is_own & (rank_blame.culprit == most))
        share = 100 * total[most] / rank_blame.ns[waits].sum()
        sentences.append(f"{share:.0f} % of it for rank {account.numbers[most]}, which meanwhile {DID[part]}")
    return sentences


def _describe_blamed(account: Ledger, rank_blame: Blame) -> str:
    """Say for which rank the others wait most, or for which equal ones; "" where that is hardly anything, or for all alike."""
    most = find_most_awaited(account, rank_blame)
    if most is None or most.ns <= _EVEN * int(account.totals().ns.sum()):
        return ""
    part, during = rank_blame.mostly(np.isin(rank_blame.culprit, most.places))
    bubbles = ", bubbles included," if account.totals().of("bubble").any() else ""
    return (
        f"{100 * most.share:.0f} % of all waiting{bubbles} is for {label_ranks(most.ranks)}: for {100 * during:.0f} % of that time "
        f"{'they' if len(most.ranks) > 1 else 'it'} {DID[part]}. "
    )


def _label_ranks(account: Ledger, places: Int64) -> str:
    return label_ranks(tuple(sorted(account.numbers[place] for place in places.tolist())))


def _describe_longest(account: Ledger, place: int, verbs: tuple[str, str]) -> str:
    """Return a rank and those that are like it, with what they do: of one, of several."""
    alike = find_alike(account, place)
    label, verb = _label_ranks(account, alike), verbs[len(alike) > 1]
    return f"{label[0].upper()}{label[1:]} {verb} longest"


def _describe_differences(
    rows: Sequence[RankRow], account: Ledger, rank_blame: Blame, view: dict[str, Any]
) -> list[Any]:
    """Say how the bars are ordered, and how far ranks differ in work."""
    times, finish = account.totals(), account.makespan_ns
    waits = sum_lost_ns(account)
    content: list[Any] = []
    if len(account) > 1:
        least, most = int(waits.min()), int(waits.max())
        if most - least > _EVEN * finish:
            waiter = int(waits.argmax())
            several = len(rows[0].ranks) > 1
            first = (
                "others wait for most"
                if len(rank_blame)
                else f"{'wait or stall' if several else 'waits or stalls'} least"
            )
            content.append(
                f"The bar at the top is {'of the ranks' if several else 'the rank'} that {first}. "
                f"{_describe_longest(account, waiter, ('waits or stalls', 'wait or stall'))}: "
                f"{format_ns(most - least)} more than the rank that does so least "
                f"({100 * (most - least) / max(finish, 1):.1f} % of the finish). "
            )
        work = times.of("compute", "overlapped")
        mean = float(work.mean())
        if mean and work.max() > mean * (1 + _EVEN):
            place = int(work.argmax())
            content.append(
                f"{_describe_longest(account, place, ('computes', 'compute'))}, {100 * (float(work.max()) / mean - 1):.0f} % above the mean. "
            )
    content.append(_describe_blamed(account, rank_blame))
    if words := describe_ready_waits(account):
        content.append(f"{words} ")
    if before := describe_unrecorded(account, account.before_ns):
        content.append(f"{before[0].upper()}{before[1:]}. ")
    content.append(
        dcc.Link("Open in Timeline", href=build_address("/timeline", view, rank=str(rows[0].ranks[0])))
    )
    return content


def _explain_doubtful_times(trace: Trace, account: Ledger) -> str:
    """Say why the times of a recording are in doubt, of the first rank of which that was noticed; "" where nothing was."""
    doubts = select_time_findings(trace) if account.is_recording else []
    if not doubts:
        return ""
    more = f" So it is with {format_counted(len(doubts) - 1, 'more rank')}." if len(doubts) > 1 else ""
    return f"{doubts[0].message}{more} "


# ---------------------------------------------------------------------------------------------------
# The layout


def build_layout_section(job: str, run: str | None) -> Any:
    """Return the parallel layout inferred from comm groups and messages, with how uneven each dimension is."""
    trace = get_session().trace(job)
    mesh = get_session().keep_of_job("mesh", job, lambda: _infer_mesh(trace))
    head = html.Div([html.H2(["Parallel layout", build_term("comm group", "")])], className="cs-figure-head")
    if mesh is None or not any(axis.size > 1 for axis in mesh.axes):
        words = (
            "One rank alone."
            if len(trace.ranks) == 1
            else "The comm groups of this job form no regular layout."
            if trace.groups
            else "The files name no comm groups, so nothing tells how the ranks are laid out."
        )
        return html.Div([head, html.P(words, className="cs-dim")], className="cs-section")
    measures = _list_measures(job, run, trace)
    rows = []
    for axis in mesh.axes:
        cells = [
            _build_unevenness_cell(find_unevenness(values, ranks, axis.size, axis.stride))
            for _, values, ranks in measures
        ]
        rows.append(
            (describe_dimension(axis.name), format_count(axis.size), format_count(axis.stride), *cells)
        )
    evidence = dcc.Link("evidence", href=build_address("/ranks", {"job": job}))
    head.children.append(
        html.Span(["inferred from comm groups and messages: ", evidence], className="cs-dim")
    )
    titles = [html.Span([name.capitalize(), build_hint(name, _UNEVEN)]) for name, _, _ in measures]
    numbered = range(1, 3 + len(titles))
    return html.Div(
        [
            head,
            build_table(
                (
                    "Dimension",
                    "Ranks",
                    html.Span(["Stride", build_hint("stride", "Distance of neighbours, in rank numbers.")]),
                    *titles,
                ),
                rows,
                numeric=tuple(numbered),
            ),
        ],
        className="cs-section",
    )


def _infer_mesh(trace: Trace) -> Mesh | None:
    try:
        return next(iter(list_layouts(trace)), None)
    except StudioError:
        return None


def _list_measures(job: str, run: str | None, trace: Trace) -> list[tuple[str, Float64, list[int]]]:
    """Return what the dimensions are compared by: a name, a figure of each rank, and the ranks."""
    measures: list[tuple[str, Float64, list[int]]] = []
    if run is not None:
        account, _ = get_session().rank_use(job, run)
        work = account.totals().of("compute", "overlapped").astype(np.float64)
        measures.append(("compute", work, account.numbers))
    use = sum_group_use(trace)
    size = np.bincount(use.rank, use.bytes, minlength=len(use.ranks)).astype(np.float64)
    measures.append(("bytes", size, list(use.ranks)))
    return measures


def _build_unevenness_cell(unevenness: Unevenness | None) -> Any:
    if unevenness is None:
        return "–"
    where = f" at place {unevenness.place}" if unevenness.ratio >= 1 + _EVEN else ""
    return build_rounded_value(f"{unevenness.ratio:.2f}{where}", f"{unevenness.ratio:.6g}")


clientside_callback(
    ClientsideFunction("studio_frame", "visitMark"),
    Output(_BARS, "clickData"),
    Input(_BARS, "clickData"),
    prevent_initial_call=True,
)
