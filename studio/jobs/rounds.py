"""Go through several jobs in one background task: what cannot be done for one of them does not keep the others from it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from studio.session import Session
from studio.store.tasks import (
    ACTIVE,
    KindName,
    Problem,
    Report,
    Task,
    TaskCancelled,
    Tasks,
    build_problem,
    list_tasks,
    submit,
)
from studio.units import format_counted

_Item = TypeVar("_Item", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Round(Generic[_Item]):
    """What is done for each of several jobs.

    Attributes:
        kind: Of the task.
        work: Does it for one, and calls what it is given while that takes long, so that it can be cancelled in between.
        problems: Why it could not be done, of those for which it is not tried again by itself; the task adds to them.
        cancelled: What to say of those that a cancelled task did not come to.
    """

    kind: KindName
    work: Callable[[_Item, Callable[[], None]], None]
    problems: dict[_Item, Problem]
    cancelled: Problem


def start_round(tasks: Tasks, session: Session, each: Round[_Item], items: Sequence[_Item]) -> bool:
    """Queue a round through those that are left to try, one per job; returns whether there are any, and no such task was under way."""
    left = [item for item in items if item not in each.problems]
    if not left or is_under_way(tasks, each.kind):
        return False
    waiting = dict.fromkeys(left)

    def note(_task: Task) -> None:
        for item in list(waiting):
            each.problems.setdefault(item, each.cancelled)

    def go_through(report: Report) -> str:
        try:
            for done, item in enumerate(left):
                _do_one(each, item, partial(report.running, done, len(left)))
                waiting.pop(item)
            report.running(len(left), len(left))
        finally:
            # Pages hear of it even where it was over before they asked.
            session.rounds_ended += 1
        return ""

    tasks.on_cancel[each.kind] = note
    submit(tasks, each.kind, format_counted(len(left), "job"), go_through)
    return True


def is_under_way(tasks: Tasks, kind: KindName) -> bool:
    """Return whether a task of a kind waits or runs, in any studio."""
    return any(task.status in ACTIVE for task in list_tasks(tasks, kind))


def _do_one(each: Round[_Item], item: _Item, tell: Callable[[], None]) -> None:
    tell()
    try:
        each.work(item, tell)
    except TaskCancelled:
        raise
    except Exception as error:  # noqa: BLE001 - one job for which it cannot be done must not keep the others from it
        each.problems[item] = build_problem(each.kind, error)
