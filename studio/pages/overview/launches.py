"""How late work of devices began after its launch, and what streams had before them, on Overview."""

from __future__ import annotations

from typing import Any

from dash import html

from studio.analysis.job.launch_words import DELAY, QUEUE, describe_launches, describe_queue
from studio.analysis.job.launches import Launches, Queue, find_launches
from studio.figures.queues import MOST_LINES, queue_lines
from studio.pages.base.export import Table, build_export_buttons
from studio.pages.base.figures import build_figure
from studio.pages.base.state import get_session
from studio.pages.base.widgets import as_sentence, build_hint

_TITLE = "Launches and queues"
_FIGURE = "overview-queues"
_COLUMNS = ("rank", "device", "stream", "count", "mean", "most", "waiting_mean", "waiting_most", "empty")


def build_launches_section(job: str, *, dark: bool) -> Any:
    """Return the launches of a recording with the queues of its first rank over time; None where it tells none."""
    job_launches: Launches | None = get_session().keep_of_job(
        "launches", job, lambda: find_launches(get_session().trace(job))
    )
    return None if job_launches is None else build_launches(job_launches, dark=dark)


def build_launches(job_launches: Launches, *, dark: bool) -> Any:
    """Return launches in words, and the queues of the first rank over time."""
    first = [queue for queue in job_launches.queues if queue.rank == job_launches.queues[0].rank]
    delay, *more = describe_launches(job_launches)
    return html.Div(
        [
            html.Div(
                [
                    html.H2(_TITLE),
                    build_export_buttons("queues", figure=_FIGURE, table=_build_numbers(job_launches.queues)),
                ],
                className="cs-figure-head",
            ),
            html.P(
                [
                    as_sentence(delay),
                    build_hint("launch delay", DELAY),
                    " ",
                    *(as_sentence(line) + " " for line in more),
                ]
            ),
            build_figure(_FIGURE, queue_lines(first, dark=dark)),
            html.P(
                [
                    "Operations launched and not ended",
                    build_hint("queue", QUEUE),
                    *(f" · {describe_queue(queue, job_launches.queues)}" for queue in first[:MOST_LINES]),
                ],
                className="cs-dim cs-overview-caption",
            ),
        ],
        className="cs-section",
    )


def _build_numbers(queues: tuple[Queue, ...]) -> Table:
    rows = [
        tuple(round(value, 6) if isinstance(value, float) else value for value in values)
        for values in ([getattr(queue, column) for column in _COLUMNS] for queue in queues)
    ]
    return Table(_COLUMNS, rows)
