"""Where the time went, on Overview: activity of the ranks over time, and the time of each rank."""

from __future__ import annotations

from typing import Any

import numpy as np
from dash import dcc, html

from studio.analysis.job.breakdown import RankUse
from studio.analysis.job.occupancy import Occupancy
from studio.figures.occupancy import occupancy_areas
from studio.figures.ranks import rank_times
from studio.pages.base.export import Table, exports
from studio.pages.base.rank_table import rank_table
from studio.pages.base.state import session, workspace
from studio.pages.base.widgets import hint, link
from studio.units import format_ns

_STILL: Any = {"displaylogo": False, "displayModeBar": False}
_EXPOSED = (
    "Communication under way while no compute node ran. Communication that compute hides costs nothing here."
)
_COPIES = (
    "Copies (memcpy, memset) under way while neither compute nor communication was. Copies are no compute: what they "
    "share with communication counts as exposed communication."
)
_STANDS_OUT = 0.005


def times_panel(job: str, run: str | None, *, dark: bool) -> Any:
    """Return both figures of a run; "" is the recording, None a job without times."""
    if run is None:
        simulate = dcc.Link("Simulate it", href=link("/simulate", {"job": job}))
        return html.P(
            ["The files hold no times. ", simulate, " to see where the time would go."], className="cs-dim"
        )
    use, over_time = session().rank_use(job, run)
    name = f"simulated: {workspace().run_info(job, run).name}" if run else "as recorded"
    return html.Div(
        [
            _section(
                ("ranks-over-time", "What the ranks did over time"),
                occupancy_areas(over_time, dark=dark),
                _over_time(over_time),
                [f"{name} · share of the ranks; what overlaps counts once, compute first; idle stays empty"],
            ),
            _section(
                ("time-of-ranks", "Where the time of each rank went"),
                rank_times(use.times, use.finish_ns, use.numbers, dark=dark),
                rank_table(use.times, use.finish_ns, use.numbers),
                _in_words(use),
            ),
        ],
        className="cs-columns",
    )


def _section(name: tuple[str, str], figure: Any, table: Table, words: list[Any]) -> Any:
    """Return a figure with its title, save buttons and caption; `name` is the name of saved files and the title."""
    shown = f"overview-{name[0]}"
    return html.Div(
        [
            html.Div(
                [html.H2(name[1]), exports(name[0], figure=shown, table=table)], className="cs-figure-head"
            ),
            dcc.Graph(id=shown, figure=figure, config=_STILL, className="cs-figure"),
            html.P(words, className="cs-dim"),
        ],
        className="cs-section",
    )


def _in_words(use: RankUse) -> list[Any]:
    """Say how the mean rank spends its time, and which rank computes much longer than others."""
    last = int(use.finish_ns.max())

    def share(column: Any) -> str:
        return f"{100 * float(column.mean()) / max(last, 1):.1f} %"

    times = use.times
    busy = use.finish_ns - times.idle_ns
    said: list[Any] = [
        f"Shares of the finish ({format_ns(last)}), mean rank: compute {share(times.compute_ns)}",
        f", exposed communication {share(times.exposed_communication_ns)}",
        hint("exposed communication", _EXPOSED),
    ]
    alone = busy - times.compute_ns - times.exposed_communication_ns - times.exposed_copy_ns
    rest = {
        "memory and CPU alone": alone,
        "idle": times.idle_ns,
        "done before the last rank": last - use.finish_ns,
    }
    if times.exposed_copy_ns.any():
        said += [f", copies alone {share(times.exposed_copy_ns)}", hint("copies alone", _COPIES)]
    said += [f", {name} {share(column)}" for name, column in rest.items() if name == "idle" or column.any()]
    most, mean = int(times.compute_ns.max()), float(times.compute_ns.mean())
    if len(use.numbers) > 1 and most > mean * (1 + _STANDS_OUT):
        longest = np.flatnonzero(times.compute_ns == most).tolist()
        who = (
            f"{len(longest)} ranks compute"
            if len(longest) > 1
            else f"rank {use.numbers[longest[0]]} computes"
        )
        said.append(f" · {who} longest, {format_ns(most)}, {100 * (most / mean - 1):.0f} % above the mean")
    return said


def _over_time(occupancy: Occupancy) -> Table:
    head = ("from_ns", "to_ns", "compute", "exposed_communication", "copies", "memory", "cpu")
    edges = occupancy.edges_ns.tolist()
    rows = [
        (round(low), round(high), *(round(share, 6) for share in shares))
        for low, high, shares in zip(edges, edges[1:], occupancy.share.T.tolist(), strict=False)
    ]
    return Table(head, rows)
