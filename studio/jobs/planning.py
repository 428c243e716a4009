"""The fastest layouts of a model, looked for in the background; kept by the session."""

from __future__ import annotations

from studio.generation.options import BY_KEY
from studio.jobs.generating import Generating
from studio.layout_search.layout_plan import LayoutPlan
from studio.layout_search.layout_plan import plan as find_layouts
from studio.session import Session
from studio.store.tasks import Report, Task, Tasks, submit
from studio.units import format_counted

SHOWN = 8
"""Layouts of which the page shows the fastest."""
_FEW = ("steps",)
"""Options that are the same for all layouts and change nothing but how long a search takes."""


def start_planning(tasks: Tasks, session: Session, wanted: Generating) -> Task:
    """Queue the search for the fastest layouts; `get_plan` has the answer once the task is done.

    Args:
        tasks: The queue.
        session: Keeps the answer.
        wanted: The model, the ranks, and what is fixed of the layout; the GPU is among it.

    Raises:
        OSError: The workspace cannot be written.
    """
    name = wanted.model if isinstance(wanted.model, str) else wanted.model.name

    def work(report: Report) -> str:
        def report_progress(phase: str, done: int, total: int) -> None:
            report.running(done, total, phase=phase)

        def make() -> LayoutPlan:
            given = {key: value for key, value in wanted.given if key in BY_KEY and key not in _FEW}
            return find_layouts(
                wanted.model, ranks=wanted.ranks, top=SHOWN, progress=report_progress, **given
            )

        session.keep((), ("layouts", wanted), make)
        return report.id

    return submit(tasks, "plan", f"layouts of {name} on {format_counted(wanted.ranks, 'rank')}", work)


def get_plan(session: Session, wanted: Generating) -> LayoutPlan | None:
    """Return the fastest layouts, None where nobody has looked for them, or they were dropped."""
    plan: LayoutPlan | None = session.get_kept((), ("layouts", wanted))
    return plan
