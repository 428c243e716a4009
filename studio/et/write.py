"""A trace to files: `<job>.<rank>.et` for every rank, and the comm groups beside them."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

from studio.errors import TraceError
from studio.et import chakra, groups
from studio.et.job import Progress
from studio.trace import Trace


def write(
    trace: Trace, folder: Path | str, name: str, *, compress: bool = False, progress: Progress | None = None
) -> list[Path]:
    """Write every rank of a trace, and its listed comm groups.

    Each file is written aside and renamed, so that none is ever half there.

    Args:
        folder: Where to; made where it is not there.
        name: The files become `<name>.<rank>.et` and `<name>.json`.
        compress: Whether to write `.et.gz`.
        progress: Told the ranks written.

    Returns:
        The files, in order of rank, the comm groups last.
    """
    if not name or "/" in name or "\\" in name:
        raise TraceError(f"{name!r} cannot be the name of a job's files.", hint="Use a name without slashes.")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for index, rank in enumerate(trace.ranks):
        path = target / f"{name}.{rank.number}.et{'.gz' if compress else ''}"
        content = b"".join(chakra.write(trace.graph_of(rank), rank))
        # Without a time stamp equal traces give equal files.
        _replace(path, gzip.compress(content, mtime=0) if compress else content)
        written.append(path)
        if progress:
            progress("writing", index + 1, len(trace.ranks))
    if any(not group.inferred for group in trace.groups):
        path = target / f"{name}.json"
        _replace(path, groups.write(trace).encode())
        written.append(path)
    return written


def _replace(path: Path, content: bytes) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_bytes(content)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
