"""What a query is asked of: jobs and runs, opened only when a table of theirs is named."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from studio.errors import ConfigError, StudioError
from studio.store.job_infos import JobInfo
from studio.store.run_infos import RunInfo
from studio.store.workspace import Workspace
from studio.trace import Trace

if TYPE_CHECKING:
    from studio.comparing import Compared
    from studio.session import Session
    from studio.sim.result import SimResult

SIMULATED = "simulated"
"""What the column `run` says of a simulation that is not kept in a workspace."""
Keep = Callable[[Hashable, Callable[[], Any]], Any]
"""Returns what is kept under a name, made where it is not there."""


@dataclass(frozen=True, slots=True)
class JobSource:
    """A job that a query is asked of.

    Attributes:
        label: What the column `job` says: its id in the workspace, or the path it was read from.
        trace: Opens it.
        keep: Keeps what is made of it for the next query.
        info: Its entry in the workspace; None where it was read from files.
    """

    label: str
    trace: Callable[[], Trace]
    keep: Keep
    info: JobInfo | None = None


@dataclass(frozen=True, slots=True)
class RunSource:
    """A run, or a recording, that a query is asked of.

    Attributes:
        job: The job it is of.
        label: What the column `run` says: its id, or `recorded`.
        side: Opens its times.
        result: Opens what was simulated; None for a recording.
        keep: Keeps what is made of it for the next query.
    """

    job: JobSource
    label: str
    side: Callable[[], Compared]
    result: Callable[[], SimResult] | None
    keep: Keep


@dataclass(frozen=True, slots=True)
class Sources:
    """All that a query is asked of.

    Attributes:
        runs: Runs and recordings, each with its job; a recording may hold no times.
        jobs: The jobs, each once.
        workspace: Where `jobs` and `runs` are listed; None where there is none.
        listed: Ids of the jobs to list; None lists all of the workspace.
    """

    jobs: tuple[JobSource, ...] = ()
    runs: tuple[RunSource, ...] = ()
    workspace: Workspace | None = None
    listed: tuple[str, ...] | None = None

    def job_infos(self) -> list[JobInfo]:
        """Return the jobs of the workspace that are listed, the newest first."""
        if self.workspace is None:
            return []
        if self.listed is None:
            return self.workspace.jobs()
        return [self.workspace.info(job) for job in self.listed]

    def count_again(self, jobs: Sequence[JobInfo]) -> list[JobInfo]:
        """Return jobs with their numbers as they are counted now: those that were stored when they meant something else are stored anew.

        Without recorded times nothing changed that tables tell. A job that cannot be read stays as it was stored.
        """
        return [
            self._count_one(info) if info.has_old_summary and info.summary.timed_nodes else info
            for info in jobs
        ]

    def _count_one(self, info: JobInfo) -> JobInfo:
        opened = next((job for job in self.jobs if job.info is not None and job.info.id == info.id), None)
        try:
            assert self.workspace is not None, "it lists the job"
            trace = self.workspace.load(info.id) if opened is None else opened.trace()
            return self.workspace.renew_summary(info.id, trace)
        except StudioError:
            return info

    def run_infos(self, jobs: Sequence[JobInfo]) -> list[RunInfo]:
        """Return the runs of jobs."""
        if self.workspace is None:
            return []
        return [run for job in jobs if job.runs for run in self.workspace.runs(job.id)]


def build_workspace_source(workspace: Workspace) -> Sources:
    """Return a workspace without any of its jobs opened: `jobs` and `runs` are all that can be asked for."""
    return Sources(workspace=workspace)


def build_file_source(
    name: str, files: Sequence[Path], open_trace: Callable[[Sequence[Path]], Trace]
) -> Sources:
    """Return the job in some files, with its recording where it holds times.

    Args:
        name: What to call it.
        files: Where it is.
        open_trace: Reads it.
    """
    # Lists of the workspace need none of it.
    from studio.comparing import RECORDED, build_compared_recording, name_in_errors

    keep = _build_keeper()

    def load_trace() -> Trace:
        with name_in_errors(name):
            opened: Trace = keep("trace", lambda: open_trace(files))
        return opened

    job = JobSource(name, load_trace, keep)
    run = RunSource(
        job, RECORDED, lambda: keep("side", lambda: build_compared_recording(load_trace(), name)), None, keep
    )
    return Sources((job,), (run,))


def build_result_source(name: str, result: SimResult) -> Sources:
    """Return a simulation that is at hand.

    Args:
        name: What to call it.
        result: What was simulated.
    """
    from studio.comparing import Compared
    from studio.sim.compared import build_side

    keep = _build_keeper()
    job = JobSource(name, lambda: result.trace, keep)
    run = RunSource(
        job,
        SIMULATED,
        lambda: keep("side", lambda: Compared(name, build_side(result), run=SIMULATED)),
        lambda: result,
        keep,
    )
    return Sources((job,), (run,))


def _build_keeper() -> Keep:
    """Return what keeps things for as long as it is there itself."""
    values: dict[Hashable, Any] = {}

    def keep(what: Hashable, make: Callable[[], Any]) -> Any:
        if what not in values:
            values[what] = make()
        return values[what]

    return keep


def build_stored_source(session: Session, job: str, run: str = "") -> Sources:
    """Return a job of the workspace with one of its runs, or for "" its recording.

    Args:
        session: The workspace, and what is open of it.
        job: Id of the job.
        run: Id of the run; "" and `recorded` stand for the times in the job's files.

    Raises:
        StudioError: There is no such job or run.
    """
    from studio.comparing import RECORDED

    stored = "" if run == RECORDED else run
    session.workspace.require(job, stored)
    info = session.workspace.info(job)
    of_job = JobSource(
        job,
        lambda: session.trace(job),
        lambda what, make: session.keep_of_job(("sql", what), job, make),
        info,
    )
    of_run = RunSource(
        of_job,
        stored or RECORDED,
        lambda: session.load_side(job, stored or RECORDED),
        (lambda: session.run(job, stored).result) if stored else None,
        lambda what, make: session.keep_of_job(("sql", what), job, make, stored),
    )
    return Sources((of_job,), (of_run,), session.workspace, (job,))


def merge_sources(sources: Sequence[Sources]) -> Sources:
    """Return several sources as one; jobs and runs that are named twice count once.

    Raises:
        ConfigError: Files and a job of the workspace have one name.
    """
    jobs: dict[str, JobSource] = {}
    for source in (source for each in sources for source in each.jobs):
        known = jobs.setdefault(source.label, source)
        if (known.info is None) != (source.info is None):
            raise ConfigError(
                f"{source.label!r} names files and a job of the workspace",
                hint="Name the files by another path, such as ./NAME.",
            )
    runs: dict[tuple[str, str], RunSource] = {}
    for run in (run for each in sources for run in each.runs):
        runs.setdefault((run.job.label, run.label), run)
    return Sources(
        tuple(jobs.values()),
        tuple(runs.values()),
        next((each.workspace for each in sources if each.workspace), None),
        tuple(dict.fromkeys(job for each in sources for job in each.listed or ())),
    )
