"""The job that WORKLOAD names: files, the prefix of files, or a job in the workspace."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from studio.commands.base.prefix import find_by_prefix
from studio.commands.base.simulation_request import SimulationRequest, infer_job_size
from studio.errors import ConfigError, StudioError
from studio.et import Progress, read
from studio.trace import Trace

if TYPE_CHECKING:
    from studio.store.workspace import Workspace


def read_job(request: SimulationRequest, progress: Progress | None = None) -> Trace:
    """Read the job named on the command line.

    Raises:
        StudioError: There is nothing of this name, or it cannot be read.
    """
    files = _list_given_files(request)
    if files:
        size = infer_job_size(request)
        return read(files, ranks=request.ranks, progress=progress, npus=size.npus, passes=size.passes)
    return open_workspace(request.workspace).load(_find_job(request))


def import_job(request: SimulationRequest, progress: Progress | None = None) -> str:
    """Return the stored job; files not yet in the workspace are imported.

    Raises:
        StudioError: There is nothing of this name, or it cannot be read or stored.
    """
    files = _list_given_files(request)
    if not files:
        return _find_job(request)
    from studio.jobs.importing import open_paths

    size = infer_job_size(request)
    jobs = open_paths(
        open_workspace(request.workspace), files, ranks=request.ranks, progress=progress, size=size
    )
    if len(jobs) > 1:
        raise ConfigError(
            f"WORKLOAD holds {len(jobs)} jobs: {', '.join(jobs)}; allowed: one",
            hint="Name the files of one of them.",
        )
    return jobs[0]


_FEW_FILES, _FEW_BYTES = 4, 256 << 20
"""So much is read before a missing system is reported: what was recorded tells its device, and a job of one rank needs none."""
_GRAPHS = ".et"
"""Suffix of files of which more than a few are mostly of a generated job, which tells no device."""


def is_soon_read(request: SimulationRequest) -> bool:
    """Whether the workload is stored, may be a recording, or is soon read."""
    given = map(Path, _list_given_files(request))
    each = chain.from_iterable(path.rglob("*") if path.is_dir() else (path,) for path in given)
    number, size = 0, 0
    for path in each:
        if path.is_dir():
            continue
        if path.suffix != _GRAPHS:
            return True
        number += 1
        size += path.lstat().st_size
        if number > _FEW_FILES and size > _FEW_BYTES:
            return False
    return True


def _list_given_files(request: SimulationRequest) -> list[Path | str]:
    """Return the files or folders that the workload names; empty if it may name a stored job."""
    names = list(request.workload)
    absent = [name for name in names if not Path(name).exists()]
    if not absent:
        return list(names)
    if len(names) > 1:
        raise ConfigError(
            f"WORKLOAD {absent[0]!r}: there is no such file or folder",
            hint="Check the spelling. A job of the workspace can only be given alone.",
        )
    return list(find_by_prefix(absent[0]))


def open_workspace(folder: Path | None) -> Workspace:
    """Return the workspace that holds stored jobs and runs: that of a folder, or the user's."""
    from studio.store.workspace import Workspace

    return Workspace(choose_workspace_folder(folder))


def choose_workspace_folder(given: Path | None) -> Path:
    """Return the folder of the workspace: the given one, or the user's."""
    # Most simulations need no workspace; what it imports takes longer than they do.
    from studio.store.workspace import Workspace

    return given or Workspace.default_root()


def _find_job(request: SimulationRequest) -> str:
    """Find the stored job that the workload names."""
    [name] = request.workload
    nothing = f"WORKLOAD {name!r}: no file or folder, no files {name}.<rank>.et"
    root = choose_workspace_folder(request.workspace)
    if not root.is_dir():
        raise ConfigError(f"{nothing}, and no workspace with jobs", hint="Name a folder of traces.")
    try:
        return open_workspace(request.workspace).info(name).id
    except StudioError as error:
        raise ConfigError(
            f"{nothing}, no job of the workspace {root}",
            hint=error.hint if "nearest" in error.hint else "Name a folder of traces.",
        ) from error
