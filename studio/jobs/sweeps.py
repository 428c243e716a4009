"""Sweeps in the background: what was asked for, its results so far, and points that become runs.

    jobs/<job>/sweeps/<id>/asked.json         what was asked for
    jobs/<job>/sweeps/<id>/results.parquet    the results; beside it, while it runs or was cut off, its journal

They lie with their job, so that deleting it takes them along.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from studio.completion.scale import scale_mesh
from studio.decoding import build_decoder
from studio.errors import ConfigError, StudioError
from studio.files import PRIVATE_FOLDER, read_file
from studio.generation.recipe import infer_mesh
from studio.jobs.completing import Scaling, make_scaled
from studio.jobs.simulations import Simulation, Simulations, start
from studio.session import Session
from studio.store.durable_files import write_json
from studio.store.tasks import ACTIVE, Report, Task, Tasks, list_tasks, submit
from studio.sweep.costs import Costs
from studio.sweep.durations import check_preset_durations
from studio.sweep.journal import name_journal, read_journal
from studio.sweep.running import Row
from studio.sweep.search import Plan, Target, list_points
from studio.sweep.space import PRESET, REPLICAS, Space, parse_space
from studio.sweep.sweep import Sweep, refuse_impossible, run_sweep
from studio.sweep.systems import Base, build_parts_at
from studio.sweep.tables import read_rows

_ID = re.compile(r"[0-9a-f]{12}")
_OUTPUT = "results.parquet"
PREFIX = "sweep point "
"""What runs that were made from points are called by."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a sweep was asked for.

    Attributes:
        job: Id of the job.
        varied: KEY=VALUES each.
        preset: The system that is varied, by name; "" where it is that of a run.
        run: Id of that run; "" where it is a preset.
        draw: So many points at random; None for all.
        created: When, seconds since the epoch.
        bisect: Setting that is bisected; "" for none.
        under_ns: Finish that the bisection looks for.
        scheduler: Address of a Dask scheduler that simulates the points; "" for this machine.
        doubt: What is doubtful of every point, in words; "" where nothing is.
    """

    job: str
    varied: tuple[str, ...]
    preset: str = ""
    run: str = ""
    draw: int | None = None
    created: float = 0.0
    bisect: str = ""
    under_ns: int = 0
    scheduler: str = ""
    doubt: str = ""


_asked = build_decoder(Asked)


@dataclass(frozen=True, slots=True)
class Kept:
    """A sweep of a job.

    Attributes:
        id: Made by the studio.
        asked: What it is.
        folder: Where it lies.
    """

    id: str
    asked: Asked
    folder: Path

    @property
    def output(self) -> Path:
        """Its results, once it has ended."""
        return self.folder / _OUTPUT

    @property
    def space(self) -> Space:
        """What it varies."""
        return parse_space(self.asked.varied)

    @property
    def target(self) -> Target | None:
        """What it looks for by bisection."""
        return build_target(self.asked)

    @property
    def is_whole(self) -> bool:
        """Whether it has come to its end."""
        return self.output.exists()

    def rows(self) -> list[Row]:
        """Return the results so far, in the order of points."""
        # The journal goes once the results are there: whoever looks in between looks again.
        for _ in range(2):
            with contextlib.suppress(FileNotFoundError):
                return read_rows(self.output) if self.is_whole else read_journal(name_journal(self.output))
        return []


def build_target(asked: Asked) -> Target | None:
    """Return what a sweep looks for by bisection; None where it simulates points that are known beforehand."""
    return Target(asked.bisect, asked.under_ns) if asked.bisect else None


def build_sweep(session: Session, asked: Asked) -> Sweep:
    """Return the sweep that is asked for.

    Raises:
        ConfigError: A setting is wrong, there are too many points, or no system.
        StudioError: There is no such run.
    """
    space = parse_space(asked.varied)
    if not space.axes:
        raise ConfigError("no setting is varied; allowed: one or more", hint="Write KEY=VALUES, one a line.")
    tables = session.workspace.run_info(asked.job, asked.run).tables if asked.run else None
    sweep = Sweep(space, Base(asked.preset or None, tables), Plan(asked.draw, target=build_target(asked)))
    list_points(space, sweep.plan)
    return sweep


def start_sweep(tasks: Tasks, session: Session, asked: Asked) -> Kept:
    """Queue a sweep.

    Raises:
        ConfigError: It is asked for wrongly, or no point of it can be simulated.
        StudioError: There is no such job, or the workspace cannot be written.
    """
    sweep, trace = build_sweep(session, asked), session.trace(asked.job)
    refuse_impossible(sweep, len(trace.ranks))
    doubt = check_preset_durations(trace, sweep)
    words = "" if doubt is None else f"{doubt.message} {doubt.hint}"
    asked = replace(asked, created=time.time(), doubt=words)
    name = secrets.token_hex(6)
    kept = Kept(name, asked, _get_folder(session, asked.job) / name)
    for folder in (kept.folder.parent, kept.folder):
        folder.mkdir(PRIVATE_FOLDER, exist_ok=True)
    write_json(kept.folder / "asked.json", asked)
    continue_sweep(tasks, session, kept)
    return kept


def continue_sweep(tasks: Tasks, session: Session, kept: Kept) -> Task:
    """Queue what is left of a sweep that was cancelled or cut off."""
    job = kept.asked.job

    def work(report: Report) -> str:
        sweep, trace = build_sweep(session, kept.asked), session.trace(job)

        def tell(phase: str, done: int, total: int) -> None:
            report.running(done, total, phase=phase)

        run_sweep(trace, sweep, kept.output, scheduler=kept.asked.scheduler or None, progress=tell)
        return kept.id

    title = ", ".join(kept.space.keys)
    return submit(tasks, "sweep", title, work, job=job, details={"sweep": kept.id})


def find_task(tasks: Tasks, kept: Kept) -> Task | None:
    """Return the newest task of a sweep; None where it was forgotten."""
    listed = list_tasks(tasks, "sweep", kept.asked.job)
    return next((task for task in listed if task.details.get("sweep") == kept.id), None)


def is_under_way(tasks: Tasks, kept: Kept) -> bool:
    """Whether a sweep is running or waits for its turn."""
    task = find_task(tasks, kept)
    return task is not None and task.status in ACTIVE


def list_sweeps(session: Session, job: str) -> list[Kept]:
    """Return the sweeps of a job, newest first; what cannot be read is left out."""
    sweeps = []
    for folder in _get_folder(session, job).glob("*/asked.json"):
        with contextlib.suppress(OSError, msgspec.MsgspecError, StudioError):
            kept = Kept(folder.parent.name, _asked(read_file(folder)), folder.parent)
            if _ID.fullmatch(kept.id) and kept.space.axes:
                sweeps.append(kept)
    return sorted(sweeps, key=lambda kept: (-kept.asked.created, kept.id))


def delete_sweep(tasks: Tasks, session: Session, kept: Kept) -> None:
    """Delete a sweep that is not under way."""
    if not is_under_way(tasks, kept) and _get_folder(session, kept.asked.job) in kept.folder.parents:
        shutil.rmtree(kept.folder, ignore_errors=True)


def start_point(simulations: Simulations, session: Session, kept: Kept, index: int) -> Simulation | Task:
    """Simulate a point again and keep it as a run of the job; of the job at another size once that is made.

    Returns:
        The simulation; where the job has to be scaled first, the task that does so, whose result is the larger job's id.

    Raises:
        ConfigError: The point is impossible.
    """
    point = kept.space.point(index)
    sweep, job, name = build_sweep(session, kept.asked), kept.asked.job, name_point(index, point)
    if REPLICAS not in point:
        ranks = len(session.trace(job).ranks)
        return start(simulations, job, build_parts_at(sweep.base, point, ranks), name)

    def work(report: Report) -> str:
        mesh = infer_mesh(session.trace(job))
        larger = scale_mesh(mesh, dp=int(point[REPLICAS]))
        parts = build_parts_at(sweep.base, point, larger.world)
        job_id = make_scaled(simulations.tasks, session, job, Scaling(mesh.layout, larger.world), report)
        start(simulations, job_id, parts, name)
        return job_id

    title = f"{session.workspace.info(job).name} at {REPLICAS} {point[REPLICAS]}"
    return submit(simulations.tasks, "scale", title, work, job=job)


def name_point(index: int, point: Mapping[str, str]) -> str:
    """Return what the run of a point is called.

    Example:
        >>> name_point(7, {"bandwidth[1]": "50", "preset": "hgx-h100"})
        'sweep point 7: bandwidth[1]=50, preset=hgx-h100'
    """
    return f"{PREFIX}{index}: {', '.join(f'{key}={value}' for key, value in point.items())}"[:120]


def price_rows(rows: list[Row], costs: Costs, kept: Kept) -> list[Row]:
    """Return results with the costs of systems by other prices."""
    space = kept.space
    varied = PRESET in space.keys

    def price(row: Row) -> float:
        name = space.point(row.index)[PRESET] if varied else kept.asked.preset
        return costs.of(row.npus, row.port_gb_per_s, name)

    return [replace(row, cost=price(row)) if row.npus else row for row in rows]


def _get_folder(session: Session, job: str) -> Path:
    return session.workspace.root / "jobs" / session.workspace.info(job).id / "sweeps"
