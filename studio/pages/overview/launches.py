"""How late work of devices began after its launch, and what streams had before them, on Overview."""

from __future__ import annotations

from typing import Any

from dash import html

from studio.analysis.job.launch_words import DELAY, QUEUE, launch_words, queue_words
from studio.analysis.job.launches import Launches, Queue, launches
from studio.figures.queues import MOST_LINES, queue_lines
from studio.pages.base.export import Table, exports
from studio.pages.base.figures import drawn_figure
from studio.pages.base.state import session
from studio.pages.base.widgets import as_sentence, hint

_TITLE = "Launches and queues"
_FIGURE = "overview-queues"
_COLUMNS = ("rank", "device", "stream", "count", "mean", "most", "waiting_mean", "waiting_most", "empty")


def launches_section(job: str, *, dark: bool) -> Any:
    """Return the launches of a recording with the queues of its first rank over time; None where it tells none."""
    found: Launches | None = session().keep_of_job("launches", job, lambda: launches(session().trace(job)))
    return None if found is None else shown_launches(found, dark=dark)


def shown_launches(found: Launches, *, dark: bool) -> Any:
    """Return launches in words, and the queues of the first rank over time."""
    first = [queue for queue in found.queues if queue.rank == found.queues[0].rank]
    delay, *more = launch_words(found)
    return html.Div(
        [
            html.Div(
                [
                    html.H2(_TITLE),
                    exports("queues", figure=_FIGURE, table=_numbers(found.queues)),
                ],
                className="cs-figure-head",
            ),
            html.P(
                [
                    as_sentence(delay),
                    hint("launch delay", DELAY),
                    " ",
                    *(as_sentence(line) + " " for line in more),
                ]
            ),
            drawn_figure(_FIGURE, queue_lines(first, dark=dark)),
            html.P(
                [
                    "Operations launched and not ended",
                    hint("queue", QUEUE),
                    *(f" · {queue_words(queue, found.queues)}" for queue in first[:MOST_LINES]),
                ],
                className="cs-dim cs-overview-caption",
            ),
        ],
        className="cs-section",
    )


def _numbers(queues: tuple[Queue, ...]) -> Table:
    rows = [
        tuple(round(value, 6) if isinstance(value, float) else value for value in values)
        for values in ([getattr(queue, column) for column in _COLUMNS] for queue in queues)
    ]
    return Table(_COLUMNS, rows)
