"""Run simulations as background tasks.

They are tasks of `studio.store.tasks`. What one finds is saved as a run of the job, after which the simulation itself is
only a line in the list until it is dismissed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import msgspec

from studio.decoding import convert_value
from studio.errors import StudioError
from studio.session import Session
from studio.sim.deadlock import DeadlockError, Stuck
from studio.sim.doubt import Cured
from studio.sim.parts import CUSTOM, PER_NODE_CUSTOM, Parts, interpret
from studio.store import tasks as queue
from studio.store.runs import Run
from studio.store.tasks import Problem, Report, Task, TaskCancelled, Tasks

Status = Literal["queued", "compiling", "running", "done", "failed", "cancelled", "interrupted"]
ACTIVE: tuple[Status, ...] = ("queued", "compiling", "running")


@dataclass(frozen=True, slots=True)
class Simulation:
    """The state of a simulation.

    Attributes:
        id: Made by the studio.
        job: Id of the job.
        name: What the user calls it; untrusted text.
        tables: The system it runs on.
        created: When it was asked for, seconds since the epoch.
        status: "compiling" is the wait for the engine, once per installation; "interrupted" means that the studio
            that ran it has gone.
        done, total: Nodes completed, and nodes in all; 0 of 0 before it has begun.
        left_s: The least and the most seconds it may still take; None where that cannot be told.
        started, ended: When it began and stopped, seconds since the epoch; None where it has not.
        run: Id of the run it became.
        error: Why it failed.
        stuck: Where it failed because ranks wait for ever: which, and for what.
        cures: The doubtful run that it is the cure of.
    """

    id: str
    job: str
    name: str
    tables: Parts
    created: float
    status: Status = "queued"
    done: int = 0
    total: int = 0
    left_s: tuple[float, float] | None = None
    started: float | None = None
    ended: float | None = None
    run: str | None = None
    error: Problem | None = None
    stuck: tuple[Stuck, ...] = ()
    cures: Cured | None = None


@dataclass(frozen=True, slots=True)
class _Details:
    """Details stored with a simulation task."""

    tables: Parts
    stuck: tuple[Stuck, ...] = ()
    cures: Cured | None = None


Work = Callable[[Simulation, Report], str]
"""Simulates, saves the run and returns its id; may raise TaskCancelled."""


@dataclass(frozen=True, slots=True)
class Simulations:
    """The simulations among the tasks of a workspace."""

    tasks: Tasks
    work: Work

    def now(self) -> float:
        """Return the time, seconds since the epoch."""
        return self.tasks.now()


def start(
    simulations: Simulations, job: str, parts: Parts, name: str, cures: Cured | None = None
) -> Simulation:
    """Queue a simulation.

    Args:
        simulations: The queue.
        job: Id of the job.
        parts: The system.
        name: What to call the run.
        cures: The doubtful run that it is the cure of.

    Raises:
        StudioError: The configuration cannot be kept, or the workspace cannot be written.
    """
    if parts.system.keys() & {*CUSTOM, PER_NODE_CUSTOM}:
        raise StudioError(
            "Algorithms given as traces are simulated by the command line only.",
            hint="Use chakra-studio simulate --system system.json.",
        )
    details = msgspec.to_builtins(_Details(parts, cures=cures))

    def work(report: Report) -> str | None:
        simulation = get(simulations, report.id)
        if simulation is None:
            raise TaskCancelled
        try:
            return simulations.work(simulation, report)
        except DeadlockError as error:
            stuck = msgspec.to_builtins(error.stuck)
            report.fail(Problem(error.message, error.hint), {**details, "stuck": stuck})
            return None

    task = queue.submit(simulations.tasks, "simulation", name, work, job=job, details=details)
    return _build_simulation(task, simulations.now())


def cancel(simulations: Simulations, simulation_id: str) -> None:
    """Cancel a simulation: its status changes at once, the engine stops at its next check."""
    queue.cancel(simulations.tasks, simulation_id)


def dismiss(simulations: Simulations, simulation_id: str) -> None:
    """Remove an ended simulation from the list."""
    queue.dismiss(simulations.tasks, simulation_id)


def dismiss_ended(simulations: Simulations, job: str, *, but: str) -> None:
    """Remove a job's failed and cancelled simulations from the list, except `but`, which was just started."""
    for simulation in list_simulations(simulations, job):
        if simulation.id != but and simulation.status != "done":
            dismiss(simulations, simulation.id)


def get(simulations: Simulations, simulation_id: str) -> Simulation | None:
    """Return the state of a simulation; None if the id is unknown."""
    task = queue.get(simulations.tasks, simulation_id)
    return _build_simulation(task, simulations.now()) if task and task.kind == "simulation" else None


def list_simulations(simulations: Simulations, job: str | None = None) -> list[Simulation]:
    """Return the simulations of the workspace, or of one job, newest first."""
    now = simulations.now()
    return [_build_simulation(task, now) for task in queue.list_tasks(simulations.tasks, "simulation", job)]


def _build_simulation(task: Task, now: float) -> Simulation:
    details = convert_value(task.details, _Details)
    return Simulation(
        task.id,
        task.job,
        task.title,
        details.tables,
        task.created,
        "compiling" if task.status == "preparing" else task.status,
        task.done,
        task.total,
        task.remaining_s(now),
        task.phase_started,
        task.ended,
        task.result,
        task.error,
        details.stuck,
        details.cures,
    )


# ---------------------------------------------------------------------------------------------------
# What a simulation does


def simulate_jobs(session: Session) -> Work:
    """Return the task function that simulates a job and saves the result as a run."""

    def work(simulation: Simulation, report: Report) -> str:
        from studio.sim import simulate
        from studio.sim.engine import Cancelled

        started = time.monotonic()
        trace = session.trace(simulation.job)
        config = interpret(simulation.tables).config
        try:
            result = simulate(
                trace,
                config,
                progress=report.running,
                cancel=report.is_cancelled,
                notice=lambda _why: report.preparing(),
            )
        except Cancelled:
            raise TaskCancelled from None
        if report.is_cancelled():
            raise TaskCancelled
        spent_s = time.monotonic() - started
        run = Run(simulation.name, result, simulation.tables, spent_s, cures=simulation.cures)
        run_id = session.workspace.save_run(simulation.job, run)
        if not report.finish(run_id):
            # Cancelled while it was being written, which takes seconds where there are many events.
            session.workspace.delete_run(simulation.job, run_id)
            raise TaskCancelled
        return run_id

    return work
