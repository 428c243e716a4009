"""Read the one job that a command works on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from studio.errors import TraceError
from studio.et import Progress, discover, read_job
from studio.et.format import UNSAID, JobSize
from studio.et.ranks import ranks_by_file
from studio.et.source import open_sources
from studio.trace import Trace


def read_one_job(
    paths: Sequence[Path],
    numbers: Mapping[str, int],
    progress: Progress | None,
    *,
    verb: str,
    size: JobSize = UNSAID,
) -> tuple[str, Trace]:
    """Return the name and the trace of the job at the paths.

    Args:
        paths: Files, folders or archives.
        numbers: Rank numbers by file name, for files that do not tell theirs.
        progress: Told how far it is.
        verb: What the command does with a job, for its advice.
        size: NPUs and passes, where a workload leaves them open.

    Raises:
        TraceError: They hold several jobs.
        TraceFormatError: A file cannot be read.
    """
    with open_sources(paths) as files:
        jobs = discover(files)
        if len(jobs) > 1:
            names = ", ".join(job.name for job in jobs[:6])
            raise TraceError(f"{len(jobs)} jobs found, not one: {names}.", hint=f"{verb} them one by one.")
        return jobs[0].name, read_job(
            jobs[0], ranks=ranks_by_file(files, numbers), progress=progress, size=size
        )
