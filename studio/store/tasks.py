"""The queue of background tasks: imports, checks, measures and numbers of many jobs, repairs, generated jobs, simulations, sweeps. Each task has one owner.

    tasks/<id>.json               a task as it stands; replaced as a whole, never edited
    tasks/.studios/<token>.lock   held by each running studio for as long as it lives

A task belongs to the studio whose token its file names. When that studio is gone its lock is free, so nothing has to be
written for its tasks to count as interrupted.
"""

from __future__ import annotations

import contextlib
import logging
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec
from filelock import FileLock, Timeout

from studio.decoding import build_decoder
from studio.errors import StudioError
from studio.files import PRIVATE_FILE, PRIVATE_FOLDER, read_file
from studio.store.durable_files import write_json
from studio.store.pace import Pace, estimate_remaining_s, with_progress

KindName = Literal[
    "import",
    "check",
    "measure",
    "summary",
    "repair",
    "complete",
    "scale",
    "generate",
    "plan",
    "simulation",
    "advice",
    "sweep",
]
Status = Literal["queued", "preparing", "running", "done", "failed", "cancelled", "interrupted"]
ACTIVE: Final[tuple[Status, ...]] = ("queued", "preparing", "running")

_ID = re.compile(r"[0-9a-f]{16}")
_CLOSE_S = 5
_KEEP_ENDED_S = 86_400
_SAVED_EVERY_S = 1.0
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Problem:
    """The error of a failed task.

    Attributes:
        message, hint: For the user.
        ranks_for: Files whose rank the user is asked for.
        npus_for: Files that leave open how many NPUs there are, which the user is asked for.
    """

    message: str
    hint: str = ""
    ranks_for: tuple[str, ...] = ()
    npus_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of background task: how it counts, runs and is listed.

    Attributes:
        unit: What their progress counts.
        at_once: How many of them run together.
        memory: What to say where the memory does not suffice.
        kept: Whether those that have ended stay listed; others are known elsewhere.
    """

    unit: str
    at_once: int
    memory: Problem
    kept: bool = True


KINDS: Final[Mapping[KindName, Kind]] = MappingProxyType(
    {
        "import": Kind(
            "steps",
            1,
            Problem("Not enough memory for this job.", "Close other programs, or open fewer ranks."),
            kept=False,
        ),
        "check": Kind(
            "checks",
            1,
            Problem("Not enough memory to check this job.", "Close other programs."),
            kept=False,
        ),
        "measure": Kind(
            "jobs",
            1,
            Problem("Not enough memory to measure these jobs.", "Close other programs."),
            kept=False,
        ),
        "summary": Kind(
            "jobs",
            1,
            Problem("Not enough memory to count these jobs again.", "Close other programs."),
            kept=False,
        ),
        "repair": Kind("steps", 1, Problem("Not enough memory to repair this job.", "Close other programs.")),
        "complete": Kind(
            "steps", 1, Problem("Not enough memory to complete this job.", "Choose a layout of fewer ranks.")
        ),
        "scale": Kind("steps", 1, Problem("Not enough memory to scale this job.", "Choose fewer ranks.")),
        "generate": Kind(
            "steps",
            1,
            Problem("Not enough memory to make this job.", "Choose fewer micro-batches, layers or steps."),
        ),
        "plan": Kind(
            "layouts",
            1,
            Problem(
                "Not enough memory to try these layouts.", "Fix more of the layout, or close other programs."
            ),
        ),
        "simulation": Kind(
            "nodes",
            2,
            Problem("Not enough memory for this simulation.", "Simulate fewer ranks or chunks."),
        ),
        "advice": Kind(
            "simulations",
            1,
            Problem("Not enough memory to simulate what changes would save.", "Close other programs."),
            kept=False,
        ),
        "sweep": Kind(
            "points",
            1,
            Problem("Not enough memory for this sweep.", "Simulate fewer ranks or chunks."),
        ),
    }
)


class TaskCancelled(Exception):  # noqa: N818 (a wish fulfilled is no error)
    """Raised inside a task once the user has cancelled it."""


@dataclass(frozen=True, slots=True)
class Task:
    """The state of a task.

    Attributes:
        id: Made by the studio.
        kind: A key of `KINDS`.
        job: Id of the job it is about, "" where there is none yet.
        title: What the user calls it; untrusted text.
        created: When it was asked for, seconds since the epoch.
        status: "preparing" is work before it can be counted; "interrupted" means that its studio has gone.
        done, total, unit: How much of it is done, of what; 0 of 0 before it has begun.
        phase: What it is at, where it has several parts.
        phase_started: When that began.
        pace: How much of it was done when.
        started, ended: When the task began and stopped; None where it has not.
        result: Id of what it made.
        error: Why it failed.
        details: What else is known of tasks of its kind, as JSON has it.
    """

    id: str
    kind: KindName
    job: str
    title: str
    created: float
    status: Status = "queued"
    done: int = 0
    total: int = 0
    unit: str = ""
    phase: str = ""
    phase_started: float | None = None
    pace: Pace = ()
    started: float | None = None
    ended: float | None = None
    result: str | None = None
    error: Problem | None = None
    details: dict[str, Any] = field(default_factory=dict)

    def remaining_s(self, now: float) -> tuple[float, float] | None:
        """Estimate the least and the most seconds left in this phase; None if unknown."""
        return estimate_remaining_s(self.pace, now, self.total) if self.status == "running" else None


@dataclass(frozen=True, slots=True)
class _Stored:
    owner: str
    task: Task


_stored = build_decoder(_Stored)


@dataclass(frozen=True, slots=True)
class Tasks:
    """The tasks of a workspace, for one running studio; opened by `open_tasks`.

    Attributes:
        root: The folder of all tasks.
        token: Names this studio in what it works on.
        now: The clock, seconds since the epoch.
        on_cancel: Called with a task that was cancelled, by kind.

    The others are the inside of this module.
    """

    root: Path
    token: str
    now: Callable[[], float]
    alive: FileLock
    on_cancel: dict[KindName, Callable[[Task], None]] = field(default_factory=dict)
    mutex: threading.RLock = field(default_factory=threading.RLock)
    live: dict[str, Task] = field(default_factory=dict)
    saved: dict[str, float] = field(default_factory=dict)
    cancels: dict[str, threading.Event] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    queues: dict[KindName, SimpleQueue[tuple[str, Work] | None]] = field(default_factory=dict)
    workers: list[threading.Thread] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Report:
    """Callbacks of a running task for progress and cancellation."""

    tasks: Tasks
    id: str
    kind: KindName
    stop: threading.Event

    def preparing(self) -> None:
        """Report a phase without a count."""
        _change(self.tasks, self.id, status="preparing")

    def running(self, done: int, total: int, *, phase: str = "", unit: str = "") -> None:
        """Report progress.

        Raises:
            TaskCancelled: It was cancelled.
        """
        task, now = self.tasks.live.get(self.id), self.tasks.now()
        if task is None or self.stop.is_set():
            raise TaskCancelled
        goes_on = task.status == "running" and task.phase == phase
        _change(
            self.tasks,
            self.id,
            status="running",
            done=done,
            total=total,
            phase=phase,
            unit=unit or KINDS[self.kind].unit,
            phase_started=task.phase_started if goes_on else now,
            pace=with_progress(task.pace if goes_on and task.total == total else (), now, done),
            started=now if task.started is None else task.started,
        )

    def is_cancelled(self) -> bool:
        """Whether the user cancelled the task."""
        return self.stop.is_set()

    def finish(self, result: str) -> bool:
        """Save the result; False if the task was cancelled, and the result must be deleted."""
        return _change(self.tasks, self.id, status="done", result=result, ended=self.tasks.now())

    def fail(self, problem: Problem, details: dict[str, Any] | None = None) -> None:
        """Save why the task failed, and its details."""
        known = {} if details is None else {"details": details}
        _change(self.tasks, self.id, status="failed", error=problem, ended=self.tasks.now(), **known)


Work = Callable[[Report], str | None]
"""Does a task and returns the id of what it made, None where it has reported its end; may raise TaskCancelled."""


def open_tasks(workspace: Path, *, now: Callable[[], float] = time.time) -> Tasks:
    """Open the tasks of a workspace and start the worker threads."""
    root = workspace / "tasks"
    studios = root / ".studios"
    for folder in (root, studios):
        folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
    token = secrets.token_hex(8)
    alive = FileLock(studios / f"{token}.lock", mode=PRIVATE_FILE, thread_local=False)
    alive.acquire(timeout=10)
    tasks = Tasks(root, token, now, alive)
    _tidy(tasks)
    for name, kind in KINDS.items():
        tasks.queues[name] = SimpleQueue()
        for number in range(kind.at_once):
            worker = threading.Thread(target=_serve, args=(tasks, name), name=f"{name}-{number}", daemon=True)
            tasks.workers.append(worker)
            worker.start()
    return tasks


def close_tasks(tasks: Tasks) -> None:
    """Stop the workers; unfinished tasks count as interrupted."""
    tasks.gone.add(tasks.token)
    for name, queue in tasks.queues.items():
        for _ in range(KINDS[name].at_once):
            queue.put(None)
    for stop in list(tasks.cancels.values()):
        stop.set()
    for worker in tasks.workers:
        worker.join(_CLOSE_S)
    tasks.alive.release()
    (tasks.root / ".studios" / f"{tasks.token}.lock").unlink(missing_ok=True)


def is_running(tasks: Tasks, token: str) -> bool:
    """Whether the studio with this token still runs, by its file lock."""
    if token in tasks.gone or not _ID.fullmatch(token):
        return False
    if token == tasks.token:
        return True
    path = tasks.root / ".studios" / f"{token}.lock"
    lock = FileLock(path, mode=PRIVATE_FILE)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    lock.release()
    path.unlink(missing_ok=True)
    tasks.gone.add(token)
    return False


def submit(
    tasks: Tasks,
    kind: KindName,
    title: str,
    work: Work,
    *,
    job: str = "",
    details: dict[str, Any] | None = None,
) -> Task:
    """Queue a task.

    Raises:
        OSError: The workspace cannot be written.
    """
    task = Task(
        secrets.token_hex(8), kind, job, title, tasks.now(), unit=KINDS[kind].unit, details=details or {}
    )
    with tasks.mutex:
        _save(tasks, task)
        tasks.live[task.id] = task
        tasks.cancels[task.id] = threading.Event()
    tasks.queues[kind].put((task.id, work))
    return task


def cancel(tasks: Tasks, task_id: str) -> None:
    """Cancel a task of this studio: its status changes at once, its work stops at the next check."""
    with tasks.mutex:
        task = tasks.live.get(task_id)
        if task is None or task.status not in ACTIVE:
            return
        tasks.cancels[task_id].set()
        _change(tasks, task_id, status="cancelled", ended=tasks.now())
    if hook := tasks.on_cancel.get(task.kind):
        hook(task)


def dismiss(tasks: Tasks, task_id: str) -> None:
    """Remove an ended task from the list."""
    with tasks.mutex:
        task = get(tasks, task_id)
        if task and task.status not in ACTIVE:
            _forget(tasks, task_id)


def get(tasks: Tasks, task_id: str) -> Task | None:
    """Return the state of a task; None if the id is unknown."""
    with tasks.mutex:
        if task_id in tasks.live:
            return tasks.live[task_id]
    if not _ID.fullmatch(task_id):
        return None
    try:
        stored = _stored(read_file(tasks.root / f"{task_id}.json"))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    task = stored.task
    # Tasks started by this studio are in `live`; others with its token have no owner.
    gone = stored.owner == tasks.token or not is_running(tasks, stored.owner)
    return replace(task, status="interrupted") if task.status in ACTIVE and gone else task


def list_tasks(tasks: Tasks, kind: KindName | None = None, job: str | None = None) -> list[Task]:
    """Return the tasks of the workspace, newest first; optionally of one kind or one job."""
    known = [get(tasks, path.stem) for path in tasks.root.glob("*.json")]
    wanted = [task for task in known if task and kind in (None, task.kind) and job in (None, task.job)]
    return sorted(wanted, key=lambda task: (-task.created, task.id))


def wait(tasks: Tasks, task_id: str, seconds: float) -> Task | None:
    """Wait for a task to end, at most this many seconds; returns its state, None once it is no longer listed."""
    until = time.monotonic() + seconds
    while (task := get(tasks, task_id)) and task.status in ACTIVE and time.monotonic() < until:
        time.sleep(0.01)
    return task


def _serve(tasks: Tasks, kind: KindName) -> None:
    while (entry := tasks.queues[kind].get()) is not None:
        task_id, work = entry
        stop = tasks.cancels.get(task_id)
        if stop is None or stop.is_set():  # cancelled, and perhaps dismissed, before its turn came
            continue
        try:
            _run(Report(tasks, task_id, kind, stop), work)
        except (OSError, StudioError):
            # The workspace cannot be written: the task counts as interrupted later on.
            _LOG.exception("task %s could not be finished", task_id)


def build_problem(kind: KindName, error: Exception) -> Problem:
    """Return what to tell the user of the error that ended a task."""
    if isinstance(error, StudioError):
        return Problem(error.message, error.hint)
    if isinstance(error, MemoryError):
        return KINDS[kind].memory
    message = (
        f"An internal error of the studio ({type(error).__name__}); the terminal says where the details are."
    )
    return Problem(message, "Report it with the details.")


def _run(report: Report, work: Work) -> None:
    """Run a task in this thread and save its outcome; raises nothing."""
    try:
        report.running(0, 0)
        result = work(report)
    except TaskCancelled:
        # Unless the studio closes: then others see that it was interrupted.
        if report.tasks.token not in report.tasks.gone:
            _change(report.tasks, report.id, status="cancelled", ended=report.tasks.now())
    except Exception as error:  # noqa: BLE001 (a mistake in one must not end the thread that serves all)
        if not isinstance(error, StudioError | MemoryError):
            _LOG.error("%s %s failed", report.kind, report.id, exc_info=error)
        report.fail(build_problem(report.kind, error))
    else:
        if result is not None:
            report.finish(result)


def _change(tasks: Tasks, task_id: str, **changes: Any) -> bool:
    """Update a task's state; returns False if it was cancelled meanwhile."""
    with tasks.mutex:
        task = tasks.live.get(task_id)
        if task is None or task.status not in ACTIVE:
            return False
        changed = replace(task, **changes)
        if changed.status not in ACTIVE and not KINDS[task.kind].kept:
            _forget(tasks, task_id)
            return True
        tasks.live[task_id] = changed
        if changed.status != task.status or tasks.now() - tasks.saved[task_id] >= _SAVED_EVERY_S:
            _save(tasks, changed)
    return True


def _save(tasks: Tasks, task: Task) -> None:
    tasks.saved[task.id] = tasks.now()
    write_json(tasks.root / f"{task.id}.json", _Stored(tasks.token, task), durable=False)


def _forget(tasks: Tasks, task_id: str) -> None:
    (tasks.root / f"{task_id}.json").unlink(missing_ok=True)
    for known in (tasks.live, tasks.cancels, tasks.saved):
        known.pop(task_id, None)


def _tidy(tasks: Tasks) -> None:
    """Delete old ended tasks, those shown elsewhere, and the locks of ended studios."""
    for path in list(tasks.root.glob("*.json")):
        task = get(tasks, path.stem)
        with contextlib.suppress(OSError):
            if task is None or task.status not in (*ACTIVE, "interrupted"):
                if tasks.now() - path.stat().st_mtime > _KEEP_ENDED_S:
                    path.unlink()
            elif task.status == "interrupted" and not KINDS[task.kind].kept:
                path.unlink()
    for lock in list((tasks.root / ".studios").glob("*.lock")):
        is_running(tasks, lock.stem)
