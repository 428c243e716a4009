"""Carry out a sweep from a job to a file of results, resumed where one was interrupted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from studio.errors import ConfigError, StudioError
from studio.et.executors import connect_scheduler, start_local_processes
from studio.notebook import format_record
from studio.sim.models import get_model
from studio.sim.parts import Parts
from studio.sim.settings import BY_KEY
from studio.sweep.analysis import list_doubtful, select_possible
from studio.sweep.costs import Costs
from studio.sweep.journal import Journal, compute_fingerprint, name_journal
from studio.sweep.running import Elsewhere, Here, Row, Runner, store_job
from studio.sweep.search import Plan, Progress, Progressing, Sweeping, carry_out, list_points
from studio.sweep.space import MODEL, PRESET, REPLICAS, Space
from studio.sweep.systems import Base, build_parts_at
from studio.sweep.tables import write_parquet
from studio.trace import Finding, Trace

_FEW = 48
"""So few points are simulated by this process: others take longer to start."""
_FEW_NODES = 200_000
"""The same for fewer nodes of all points together."""
_TELLS_TIMES = {MODEL, "communication-times", "replay-only"}
"""Settings that say whether communication takes its recorded time."""
_TRIED = 64
"""So many points have to be impossible before a sweep is refused."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Definition of a sweep: the varied settings, the system they start from, and the points to simulate.

    Attributes:
        space: The settings and their values.
        base: The system they change.
        plan: Which points.
        costs: Prices; None for none.
        read: The job by number of NPUs, where `npus` is varied and a workload does not say how many run it; why it cannot be read
            for so many in its place.
    """

    space: Space
    base: Base
    plan: Plan = field(default_factory=Plan)
    costs: Costs | None = None
    read: Mapping[int, Trace | str] = field(default_factory=dict)

    __repr__ = format_record


@dataclass(frozen=True, slots=True)
class Swept:
    """The results of a sweep.

    Attributes:
        sweep: What was asked for.
        rows: Results in the order of points.
        resumed: How many of them an interrupted run had left.
    """

    sweep: Sweep
    rows: tuple[Row, ...]
    resumed: int = 0

    __repr__ = format_record

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is doubtful of points, each doubt once, with how many and which points it concerns."""
        every = len(select_possible(self.rows))
        return tuple(Finding("warning", each.code, each.words(every)) for each in list_doubtful(self.rows))


def refuse_impossible(sweep: Sweep, ranks: int) -> None:
    """Refuse a sweep when the system of none of its points can be made: a setting may be one that the system lacks.

    Where only some cannot, results say which. Of many points a few are tried, evenly spread. How many ranks a job has that is
    scaled is known only when it is, so nothing is said of those.

    Args:
        sweep: What is to be simulated.
        ranks: Ranks of the job.

    Raises:
        StudioError: What is wrong with the first point.
    """
    space, wrong = sweep.space, None
    if REPLICAS in space.keys:
        return
    for index in range(0, space.size, -(-space.size // _TRIED)):
        try:
            parts = build_parts_at(sweep.base, space.point(index), ranks)
        except StudioError as error:
            wrong = wrong or error
        else:
            _refuse_replay(space, parts)
            return
    if wrong is not None:
        raise wrong


def _refuse_replay(space: Space, parts: Parts) -> None:
    """Refuse to vary the network of a replay, in which communication takes its recorded time whatever the network is.

    Raises:
        ConfigError: The system is a replay, and a setting of its network is varied.
    """
    plain = [key.removeprefix("extended.").partition("[")[0].partition(".")[0] for key in space.keys]
    if get_model(parts) != "replay" or _TELLS_TIMES & set(plain):
        return
    for key, name in zip(space.keys, plain, strict=True):
        if name.endswith("-implementation") or (name in BY_KEY and BY_KEY[name].file == "network"):
            raise ConfigError(
                f"{key} is varied, and the system is a replay, in which communication takes its recorded time whatever the network is; "
                "allowed: settings of compute",
                hint="Choose a preset or a run that simulates the network, or vary model=full.",
            )


def run_sweep(
    trace: Trace,
    sweep: Sweep,
    output: Path,
    *,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> Swept:
    """Simulate a job at every point asked for and write the results.

    A sweep that was killed continues where it was when it is run again, and writes the same bytes.

    Args:
        trace: The job.
        sweep: What to simulate.
        output: A Parquet file; while the sweep runs, what is done lies beside it.
        scheduler: Address of a Dask scheduler, whose workers see the folder of the output; None simulates on this machine.
        progress: Told the phase, points done and points in all; may raise to stop, and what is done stays.

    Raises:
        ConfigError: There are too many points, or the scheduler cannot be reached.
        StudioError: The output cannot be written, or holds another sweep.
    """
    if not output.parent.is_dir():
        raise StudioError(
            f"{output}: there is no folder {output.parent}.", hint="Make it, or name another file."
        )
    list_points(sweep.space, sweep.plan)
    if sweep.base.tables is not None and not {PRESET, REPLICAS} & set(sweep.space.keys):
        _refuse_replay(sweep.space, sweep.base.tables)
    journal = Journal(name_journal(output), compute_fingerprint(trace, sweep.base, sweep.space, sweep.costs))
    try:
        resumed = len(journal.rows)
        with _open_runner(trace, sweep, output, scheduler, resumed) as runner:
            sweeping = Sweeping(sweep.space, journal, runner, Progressing(progress))
            rows = carry_out(sweeping, sweep.plan)
        write_parquet(output, sweep.space, rows)
    except BaseException:
        journal.close()
        raise
    journal.remove()
    return Swept(sweep, tuple(rows), resumed)


@contextmanager
def _open_runner(
    trace: Trace, sweep: Sweep, output: Path, scheduler: str | None, known: int
) -> Iterator[Runner]:
    """Yield who simulates the points."""
    points = sweep.space.size if sweep.plan.draw is None else min(sweep.plan.draw, sweep.space.size)
    nodes = sum(map(len, trace.graphs)) * (points - known)
    if scheduler is None and (points - known <= _FEW or nodes < _FEW_NODES or sweep.plan.target is not None):
        yield Here(trace, sweep.base, sweep.costs, sweep.read)
        return
    job = output.with_name(f"{output.name}.job")
    try:
        stored = store_job(trace, job, sweep.read)
        if scheduler is not None:
            with connect_scheduler(scheduler) as (executor, threads):
                yield Elsewhere(stored, sweep.base, sweep.costs, executor, threads)
        else:
            with start_local_processes() as processes:
                yield Elsewhere(stored, sweep.base, sweep.costs, processes, len(processes.workers))
    finally:
        job.unlink(missing_ok=True)


def index_values(space: Space, key: str, rows: Sequence[Row]) -> dict[int, float]:
    """Return the value of a numeric setting by point."""
    return {row.index: float(space.point(row.index)[key]) for row in rows}
