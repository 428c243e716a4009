"""Read the one job that a command works on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from studio.commands.base.names import find_job
from studio.commands.base.prefix import find_by_prefix
from studio.errors import ConfigError, TraceError
from studio.et import Progress, discover, read_job
from studio.et.format import UNSAID, JobSize
from studio.et.ranks import index_ranks_by_file
from studio.et.source import open_sources
from studio.store.workspace import Workspace
from studio.trace import Trace


def read_one_job(
    paths: Sequence[Path],
    numbers: Mapping[str, int],
    progress: Progress | None,
    *,
    verb: str,
    size: JobSize = UNSAID,
    workspace: Path | None = None,
) -> tuple[str, Trace]:
    """Return the name and the trace of the job at the paths, or of the one that is stored under a name.

    Args:
        paths: Files, folders or archives; or one prefix of files, or the id or name of a job in the workspace.
        numbers: Rank numbers by file name, for files that do not tell theirs.
        progress: Told how far it is.
        verb: What the command does with a job, for its advice.
        size: NPUs and passes, where a workload leaves them open.
        workspace: Folder of imported jobs; None is the user's.

    Raises:
        ConfigError: One path is no file, and nothing else is called so.
        TraceError: They hold several jobs.
        TraceFormatError: A file cannot be read.
    """
    if len(paths) == 1 and not paths[0].exists():
        files_of_prefix = find_by_prefix(str(paths[0]))
        root = workspace or Workspace.default_root()
        if not files_of_prefix and root.is_dir():
            return _load_job(Workspace(root), str(paths[0]))
        paths = files_of_prefix or paths
    with open_sources(paths, progress) as files:
        jobs = discover(files, progress)
        if len(jobs) > 1:
            names = ", ".join(job.name for job in jobs[:6])
            raise TraceError(f"{len(jobs)} jobs found, not one: {names}.", hint=f"{verb} them one by one.")
        return jobs[0].name, read_job(
            jobs[0], ranks=index_ranks_by_file(files, numbers), progress=progress, size=size
        )


def _load_job(workspace: Workspace, name: str) -> tuple[str, Trace]:
    """Return the name and the trace of a job of the workspace.

    Raises:
        ConfigError: There is none.
    """
    try:
        job = find_job(workspace, name)
    except ConfigError as error:
        raise ConfigError(
            f"{name[:80]!r}: no file or folder, no files {name[:80]}.<rank>.et. {error.message}",
            hint=error.hint,
        ) from error
    return job.name, workspace.load(job.id)
