"""Find what a query is asked of: jobs and runs given by name on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from studio.sql.sources import (
    Sources,
    build_file_source,
    build_stored_source,
    build_workspace_source,
    merge_sources,
)
from studio.store.workspace import Workspace
from studio.trace import Finding, Trace

if TYPE_CHECKING:
    from studio.et import JobSize, Progress
    from studio.session import Session


def find_sources(
    names: Sequence[str],
    workspace: Path | None,
    ranks: Mapping[str, int],
    progress: Progress | None,
    findings: list[Finding],
    size: JobSize | None = None,
) -> Sources:
    """Find jobs and runs by name; without names, the workspace.

    A name is a path of traces, or, in the workspace: `job/run`, a run, a job (its recording, else its newest run).

    Args:
        names: Any number of them.
        workspace: Folder of imported jobs; None is the user's.
        ranks: Rank numbers by file name, for files that do not tell theirs.
        progress: Told how far reading is.
        findings: Gets what readers notice, once files are read.
        size: NPUs and passes, where a workload leaves them open; None where nothing is said.

    Raises:
        ConfigError: Nothing is called so; names the nearest.
    """
    root = workspace or Workspace.default_root()
    if not names:
        return build_workspace_source(Workspace(root)) if root.is_dir() else Sources()

    # Lists of the workspace need none of it.
    from studio.commands.base.names import find_stored_run
    from studio.commands.base.prefix import build_missing_job_error, find_by_prefix
    from studio.et import read
    from studio.session import Session

    npus, passes = (size.npus, size.passes) if size else (None, None)

    def open_trace(files: Sequence[Path]) -> Trace:
        trace = read(files, ranks=ranks, progress=progress, npus=npus, passes=passes)
        findings.extend(trace.findings)
        return trace

    session: Session | None = None
    sources: list[Sources] = []
    for name in names:
        files = [Path(name)] if Path(name).exists() else find_by_prefix(name)
        if files:
            sources.append(build_file_source(name, files, open_trace))
            continue
        if session is None and root.is_dir():
            session = Session(Workspace(root))
        if session is None:
            raise build_missing_job_error(name, "runs")
        sources.append(build_stored_source(session, *find_stored_run(session.workspace, name)))
    return merge_sources(sources)
