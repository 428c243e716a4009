"""Repaired jobs: new jobs that record their origin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from studio.doctor import REPAIRS, repair
from studio.errors import StudioError
from studio.jobs.checking import start_check
from studio.session import Session
from studio.store.job_infos import JobInfo
from studio.store.tasks import Report, Task, TaskCancelled, Tasks, submit

_MARK = "repair"


@dataclass(frozen=True, slots=True)
class Origin:
    """The job a repaired job was made from, and the repairs.

    Attributes:
        job: Id of the job that was repaired; it may be gone by now.
        repairs: Codes of the repairs.
    """

    job: str
    repairs: tuple[str, ...]


def start_repair(tasks: Tasks, session: Session, job: str, codes: Sequence[str]) -> Task:
    """Queue the repair of a job; the task's result is the new job's id, see `repair_job`.

    Raises:
        StudioError: There is no such job.
    """
    name = session.workspace.info(job).name

    def work(report: Report) -> str:
        job_id = repair_job(session, job, codes, report)
        start_check(tasks, session, job_id)
        return job_id

    return submit(tasks, "repair", name, work, job=job)


def repair_job(session: Session, job: str, codes: Sequence[str], report: Report | None = None) -> str:
    """Store a repaired copy of a job and return its id; an identical earlier repair is reused.

    Raises:
        TraceError: There is no such repair.
        StudioError: There is no such job, nothing to repair, or the workspace cannot be written.
        TaskCancelled: The user has cancelled it, by `report`.
    """
    workspace = session.workspace
    info = workspace.info(job)
    wanted = [code for code in REPAIRS if code in codes]
    mark = f"{_MARK}:{job}:{','.join(wanted)}"
    known = workspace.find(mark)
    if known:
        return known.id
    trace, changes = session.trace(job), 0
    for done, code in enumerate([*wanted, *(code for code in codes if code not in REPAIRS)]):
        title = REPAIRS[code].title if code in REPAIRS else code

        def tell(count: int = done, title: str = title) -> None:
            if report:
                # Of one repair there is nothing to count.
                total = len(wanted) if len(wanted) > 1 else 0
                report.running(count, total, phase=title, unit="repairs")

        tell()
        repaired = repair(trace, code, tell)
        trace, changes = repaired.trace, changes + len(repaired.changes)
    if not changes:
        raise StudioError(
            f"{info.name}: there is nothing to repair.", hint="It may have been repaired already."
        )

    def tick(done: int, total: int) -> None:
        if report:
            report.running(done, total, phase="storing", unit="graphs")

    name = f"{info.name[:180]} (repaired)" if not info.name.endswith("(repaired)") else info.name
    job_id = workspace.save(trace, name, source=f"{info.name}, repaired", fingerprint=mark, tick=tick)
    if report and not report.finish(job_id):
        workspace.delete(job_id)
        raise TaskCancelled
    return job_id


def get_origin(info: JobInfo) -> Origin | None:
    """Return the origin of a repaired job; None for an imported job.

    Example:
        >>> parse_origin("repair:llama-1a2b3c:cycle,self-loop")
        Origin(job='llama-1a2b3c', repairs=('cycle', 'self-loop'))
    """
    return parse_origin(info.fingerprint)


def parse_origin(mark: str) -> Origin | None:
    """Parse the origin from a job's fingerprint."""
    kind, _, rest = mark.partition(":")
    job, _, codes = rest.partition(":")
    return Origin(job, tuple(codes.split(","))) if kind == _MARK and job else None
