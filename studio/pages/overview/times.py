"""What the ranks do over time, on Overview, and the shares of the mean rank in words."""

from __future__ import annotations

from typing import Any

import numpy as np
from dash import dcc, html

from studio.analysis.job.device_parts import DeviceParts
from studio.analysis.job.ledger import MADE_OF, PARTS, Ledger
from studio.analysis.job.occupancy import Occupancy
from studio.analysis.job.part_words import ABOUT, NAMES
from studio.figures.occupancy import draw_occupancy_areas
from studio.figures.theme import FIGURE_PX
from studio.pages.base.export import Table, build_export_buttons
from studio.pages.base.figures import build_figure
from studio.pages.base.state import get_session, get_workspace
from studio.pages.base.widgets import build_address, build_hint, build_loading
from studio.units import format_ns

_STANDS_OUT = 0.005
_OVER_TIME = "What the ranks do over time"


def build_times_skeleton() -> Any:
    """Return what holds the place of the figure while it is worked out."""
    return html.Div(
        [
            html.Div(html.H2(_OVER_TIME), className="cs-figure-head"),
            html.Div(build_loading("Adding up the times of the nodes…"), style={"height": f"{FIGURE_PX}px"}),
            html.P(className="cs-dim cs-overview-caption"),
        ],
        className="cs-section",
    )


def build_untimed_notice(job: str, has_durations: bool, *, is_gone: bool = False) -> Any:
    """Return what is said of a job of which nothing says when it ran, or of a run that is not there."""
    if is_gone:
        sentence = "The run that the address names is not there. Choose another one in the bar above."
        return html.P(sentence, className="cs-dim")
    simulate = dcc.Link("Simulate it", href=build_address("/simulate", {"job": job}))
    reason = (
        "The files say how long nodes take, not when they ran. "
        if has_durations
        else "The files hold no times. "
    )
    return html.P([reason, simulate, " to see where the time would go."], className="cs-dim")


def build_over_time_section(job: str, run: str, *, dark: bool) -> Any:
    """Return what the ranks of a run do over time; "" is the recording."""
    use, over_time = get_session().rank_use(job, run)
    name = f"simulated: {get_workspace().run_info(job, run).name}" if run else "as recorded"
    return _build_section(
        ("ranks-over-time", _OVER_TIME),
        draw_occupancy_areas(over_time, dark=dark),
        _build_share_table(over_time),
        [
            f"{name} · share of the ranks; a moment counts for one part only; idle (bubble, stall) stays empty. ",
            *_describe_use(use, get_session().device_parts(job, run)),
        ],
    )


def _build_section(name: tuple[str, str], figure: Any, table: Table, words: list[Any]) -> Any:
    """Return a figure with its title, save buttons and caption; `name` is the name of saved files and the title."""
    shown = f"overview-{name[0]}"
    return html.Div(
        [
            html.Div(
                [html.H2(name[1]), build_export_buttons(name[0], figure=shown, table=table)],
                className="cs-figure-head",
            ),
            build_figure(shown, figure),
            html.P(words, className="cs-dim cs-overview-caption"),
        ],
        className="cs-section",
    )


def _describe_use(use: Ledger, devices: DeviceParts | None = None) -> list[Any]:
    """Say how the mean rank, of ranks with several devices the mean device, spends its time, and which rank works much longer than others."""
    last = int(use.finish_ns.max())

    def format_share(column: Any) -> str:
        return f"{100 * float(column.mean()) / max(last, 1):.1f} %"

    times = use.totals() if devices is None else devices.times
    whose = "rank" if devices is None else "device"
    content: list[Any] = [f"Shares of the finish ({format_ns(last)}), mean {whose}: "]
    figures = times.figures()
    for key, column in figures.items():
        words = f"{NAMES[key]} {format_share(column)}"
        parts = [part for part in MADE_OF.get(key, ()) if times.of(part).any()]
        # One part alone would only say its number again.
        if len(parts) > 1:
            words += f" ({', '.join(f'{NAMES[part]} {format_share(times.of(part))}' for part in parts)})"
        start, number, unit = words.rsplit(" ", 2)
        # On one line: else a line could begin with the question mark, or with the comma behind it.
        end = [
            f"{number} {unit}",
            build_hint(NAMES[key], ABOUT[key]),
            *([","] if key != [*figures][-1] else []),
        ]
        content += [f"{start} ", html.Span(end, className="cs-term"), " "]
    compute = use.totals().of("compute", "overlapped")
    most, mean = int(compute.max()), float(compute.mean())
    if len(use.numbers) > 1 and most > mean * (1 + _STANDS_OUT):
        longest = np.flatnonzero(compute == most).tolist()
        who = f"{len(longest)} ranks work" if len(longest) > 1 else f"rank {use.numbers[longest[0]]} works"
        content.append(f"· {who} longest, {format_ns(most)}, {100 * (most / mean - 1):.0f} % above the mean")
    return content


def _build_share_table(occupancy: Occupancy) -> Table:
    edges = occupancy.edges_ns.tolist()
    rows = [
        (round(low), round(high), *(round(share, 6) for share in shares))
        for low, high, shares in zip(edges, edges[1:], occupancy.share.T.tolist(), strict=False)
    ]
    return Table(("from_ns", "to_ns", *PARTS), rows)
