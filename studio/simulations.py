"""Simulations that run in the background of the studio, and are found again whatever page is open.

Layout below the workspace folder:

    simulations/<id>.json   what is simulated and where it stands; replaced as a whole, never edited

A simulation belongs to the studio whose token its state names. When that studio is gone the simulation counts as
interrupted; nothing has to be written for that. How far it is lives in memory alone. What it finds is saved as a run
of the job, after which the simulation itself is only a line in the list until it is dismissed.
"""

from __future__ import annotations

import contextlib
import logging
import re
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Literal

import msgspec

from studio.decoding import decoder
from studio.errors import StudioError
from studio.session import Session
from studio.sim.deadlock import DeadlockError, Stuck
from studio.sim.parts import Parts, imported
from studio.store.imports import Problem, Registry, is_running, write_json
from studio.store.runs import Run, Tables

Status = Literal["queued", "compiling", "running", "done", "failed", "cancelled", "interrupted"]
ACTIVE: tuple[Status, ...] = ("queued", "compiling", "running")

_ID = re.compile(r"[0-9a-f]{16}")
_AT_ONCE = 2
_CLOSE_S = 5
_KEEP_ENDED_S = 86_400
_LOG = logging.getLogger(__name__)


class SimulationCancelled(Exception):  # noqa: N818 (a wish fulfilled is no error)
    """Raised inside a simulation once the user has cancelled it."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """A simulation, as it stands.

    Attributes:
        id: Made by the studio.
        job: Id of the job.
        name: What the user calls it; untrusted text.
        tables: The system it runs on.
        created: When it was asked for, seconds since the epoch.
        status: "compiling" is the wait for the engine, once per installation; "interrupted" means that the studio
            that ran it has gone.
        done, total: Nodes completed, and nodes in all; 0 of 0 before it has begun.
        started, ended: When it began and stopped, seconds since the epoch; None where it has not.
        run: Id of the run it became.
        error: Why it failed.
        stuck: Where it failed because ranks wait for ever: which, and for what.
    """

    id: str
    job: str
    name: str
    tables: Tables
    created: float
    status: Status = "queued"
    done: int = 0
    total: int = 0
    started: float | None = None
    ended: float | None = None
    run: str | None = None
    error: Problem | None = None
    stuck: tuple[Stuck, ...] = ()

    def remaining_s(self, now: float) -> float | None:
        """Return how long it may still take, by the nodes completed so far; None while nobody can tell."""
        if self.status != "running" or self.started is None or not 0 < self.done <= self.total:
            return None
        return (now - self.started) * (self.total - self.done) / self.done


@dataclass(frozen=True, slots=True)
class _Stored:
    owner: str
    simulation: Simulation


_stored = decoder(_Stored)


@dataclass(frozen=True, slots=True)
class Told:
    """What a simulation tells while it runs, and asks.

    Attributes:
        compiling: Called before the engine is compiled.
        running: Called with the nodes completed and the nodes in all.
        cancelled: Whether to stop.
        saved: Called with the id of the run once it is there; False where the simulation was cancelled meanwhile,
            and the run has to go again.
    """

    compiling: Callable[[], None]
    running: Callable[[int, int], None]
    cancelled: Callable[[], bool]
    saved: Callable[[str], bool]


Work = Callable[[Simulation, Told], str]
"""Simulates, saves the run and returns its id; may raise SimulationCancelled."""


@dataclass(frozen=True, slots=True)
class Simulations:
    """The simulations of a workspace as one running studio sees them; opened by `open_simulations`."""

    root: Path
    imports: Registry
    now: Callable[[], float]
    mutex: threading.RLock = field(default_factory=threading.RLock)
    live: dict[str, Simulation] = field(default_factory=dict)
    cancels: dict[str, threading.Event] = field(default_factory=dict)
    queue: SimpleQueue[str | None] = field(default_factory=SimpleQueue)
    workers: list[threading.Thread] = field(default_factory=list)


def open_simulations(
    workspace: Path, imports: Registry, work: Work, *, now: Callable[[], float] = time.time
) -> Simulations:
    """Open the simulations of a workspace and start the threads that run them, two at a time."""
    root = workspace / "simulations"
    root.mkdir(parents=True, exist_ok=True)
    found = Simulations(root, imports, now)
    _tidy(found)
    for number in range(_AT_ONCE):
        worker = threading.Thread(target=_serve, args=(found, work), name=f"simulation-{number}", daemon=True)
        found.workers.append(worker)
        worker.start()
    return found


def close_simulations(simulations: Simulations) -> None:
    """Stop; what is not finished counts as interrupted from now on."""
    for _ in simulations.workers:
        simulations.queue.put(None)
    for cancel_event in list(simulations.cancels.values()):
        cancel_event.set()
    for worker in simulations.workers:
        worker.join(_CLOSE_S)


def start(simulations: Simulations, job: str, parts: Parts, name: str) -> Simulation:
    """Queue a simulation.

    Raises:
        StudioError: The configuration cannot be kept, or the workspace cannot be written.
    """
    if parts.custom or parts.custom_nodes:
        raise StudioError(
            "Algorithms given as traces are simulated by the command line only.",
            hint="Use chakra-studio simulate --system system.json.",
        )
    made = Simulation(secrets.token_hex(8), job, name, Tables.of(parts), simulations.now())
    with simulations.mutex:
        _save(simulations, made)
        simulations.live[made.id] = made
        simulations.cancels[made.id] = threading.Event()
    simulations.queue.put(made.id)
    return made


def cancel(simulations: Simulations, simulation_id: str) -> None:
    """Stop a simulation; it counts as cancelled at once, and the engine stops when it next asks."""
    with simulations.mutex:
        if simulation_id in simulations.cancels:
            simulations.cancels[simulation_id].set()
        found = simulations.live.get(simulation_id)
        if found and found.status in ACTIVE:
            _change(simulations, simulation_id, status="cancelled", ended=simulations.now())


def dismiss(simulations: Simulations, simulation_id: str) -> None:
    """Take a simulation that has ended out of the list."""
    with simulations.mutex:
        found = get(simulations, simulation_id)
        if found and found.status not in ACTIVE:
            (simulations.root / f"{simulation_id}.json").unlink(missing_ok=True)
            simulations.live.pop(simulation_id, None)
            simulations.cancels.pop(simulation_id, None)


def dismiss_ended(simulations: Simulations, job: str, *, but: str) -> None:
    """Take those of a job that ended without a run out of the list; `but` is kept: it has only just been started."""
    for one in listed(simulations, job):
        if one.id != but and one.status != "done":
            dismiss(simulations, one.id)


def get(simulations: Simulations, simulation_id: str) -> Simulation | None:
    """Return a simulation as it stands; None where there is none of this id."""
    with simulations.mutex:
        if simulation_id in simulations.live:
            return simulations.live[simulation_id]
    if not _ID.fullmatch(simulation_id):
        return None
    try:
        stored = _stored((simulations.root / f"{simulation_id}.json").read_bytes())
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    found = stored.simulation
    gone = found.status in ACTIVE and not is_running(simulations.imports, stored.owner)
    # One that this very studio has started is in `live`, so an unknown one of its token is nobody's.
    orphan = found.status in ACTIVE and stored.owner == simulations.imports.token
    return replace(found, status="interrupted") if gone or orphan else found


def listed(simulations: Simulations, job: str | None = None) -> list[Simulation]:
    """Return the simulations of the workspace, or of one job, the newest first."""
    names = [path.stem for path in simulations.root.glob("*.json")]
    found = [one for name in names if (one := get(simulations, name)) and job in (None, one.job)]
    return sorted(found, key=lambda one: (-one.created, one.id))


def _serve(simulations: Simulations, work: Work) -> None:
    while (simulation_id := simulations.queue.get()) is not None:
        stop = simulations.cancels.get(simulation_id)
        if stop is None or stop.is_set():  # cancelled, and perhaps dismissed, before its turn came
            continue
        try:
            _run(simulations, simulation_id, work, stop)
        except (OSError, StudioError):
            # The workspace cannot be written: the simulation counts as interrupted later on.
            _LOG.exception("simulation %s could not be finished", simulation_id)


def _run(simulations: Simulations, simulation_id: str, work: Work, stop: threading.Event) -> None:
    """Run a queued simulation in this thread; how it ends is in its state, never raised."""

    def compiling() -> None:
        _change(simulations, simulation_id, status="compiling")

    def running(done: int, total: int) -> None:
        if stop.is_set():
            raise SimulationCancelled
        found = simulations.live[simulation_id]
        started = found.started if found.status == "running" else simulations.now()
        _change(simulations, simulation_id, status="running", done=done, total=total, started=started)

    def saved(run: str) -> bool:
        return _change(simulations, simulation_id, status="done", run=run, ended=simulations.now())

    try:
        running(0, 0)
        run = work(simulations.live[simulation_id], Told(compiling, running, stop.is_set, saved))
    except SimulationCancelled:
        return
    except StudioError as error:
        stuck = error.stuck if isinstance(error, DeadlockError) else ()
        _fail(simulations, simulation_id, Problem(error.message, error.hint), stuck)
    except MemoryError:
        problem = Problem("The memory is not enough for this simulation.", "Simulate fewer ranks or chunks.")
        _fail(simulations, simulation_id, problem)
    except Exception as error:  # noqa: BLE001 (a bug of the engine must not end the thread that serves all simulations)
        _LOG.error("simulation %s failed", simulation_id, exc_info=error)
        message = f"An internal error of the studio ({type(error).__name__}); the terminal shows the details."
        _fail(simulations, simulation_id, Problem(message, "Report it with the details."))
    else:
        saved(run)


def _fail(
    simulations: Simulations, simulation_id: str, problem: Problem, stuck: tuple[Stuck, ...] = ()
) -> None:
    now = simulations.now()
    _change(simulations, simulation_id, status="failed", error=problem, stuck=stuck, ended=now)


def _change(simulations: Simulations, simulation_id: str, **changes: object) -> bool:
    """Note where a simulation stands, and return whether that was taken: one that was cancelled stays so."""
    with simulations.mutex:
        found = simulations.live.get(simulation_id)
        if found is None or found.status not in ACTIVE:
            return False
        changed = replace(found, **changes)  # type: ignore[arg-type]  # fields of Simulation
        simulations.live[simulation_id] = changed
        if changed.status != found.status:
            _save(simulations, changed)
    return True


def _save(simulations: Simulations, simulation: Simulation) -> None:
    stored = _Stored(simulations.imports.token, simulation)
    write_json(simulations.root / f"{simulation.id}.json", stored, durable=False)


def _tidy(simulations: Simulations) -> None:
    """Forget simulations that ended long ago: their runs are in the list of runs."""
    for path in simulations.root.glob("*.json"):
        found = get(simulations, path.stem)
        ended = found is not None and found.status not in (*ACTIVE, "interrupted")
        with contextlib.suppress(OSError):
            if (found is None or ended) and simulations.now() - path.stat().st_mtime > _KEEP_ENDED_S:
                path.unlink()


# ---------------------------------------------------------------------------------------------------
# What a simulation does


def simulate_jobs(session: Session) -> Work:
    """Return the work that simulates a job of the workspace and saves what it finds as a run of that job."""

    def work(simulation: Simulation, told: Told) -> str:
        from studio.sim import simulate
        from studio.sim.engine import Cancelled

        started = time.monotonic()
        trace = session.trace(simulation.job)
        config = imported(simulation.tables.parts).config
        try:
            result = simulate(
                trace,
                config,
                progress=told.running,
                cancel=told.cancelled,
                notice=lambda _why: told.compiling(),
            )
        except Cancelled:
            raise SimulationCancelled from None
        if told.cancelled():
            raise SimulationCancelled
        run = Run(simulation.name, result, simulation.tables.parts, time.monotonic() - started)
        run_id = session.workspace.save_run(simulation.job, run)
        if not told.saved(run_id):
            # Cancelled while it was being written, which takes seconds where there are many events.
            session.workspace.delete_run(simulation.job, run_id)
            raise SimulationCancelled
        return run_id

    return work
