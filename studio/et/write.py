"""A trace to files: `<job>.<rank>.et` for every rank, and the comm groups beside them."""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Mapping
from pathlib import Path

from studio.errors import TraceError
from studio.et import chakra, groups
from studio.et.job import Progress, discover, read_job
from studio.et.source import opened
from studio.trace import Trace

_NAME = re.compile(r"[^./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]{0,199}")


def write(
    trace: Trace, folder: Path | str, name: str, *, compress: bool = False, progress: Progress | None = None
) -> list[Path]:
    """Write every rank of a trace, and its listed comm groups.

    Each file is written aside and renamed, so that none is ever half there.

    Args:
        trace: What to write.
        folder: Where to; made where it is not there.
        name: The files become `<name>.<rank>.et` and `<name>.json`.
        compress: Whether to write `.et.gz`.
        progress: Told the ranks written.

    Returns:
        The files, in order of rank, the comm groups last.

    Raises:
        TraceError: `name` cannot be part of a file name.
    """
    if not _NAME.fullmatch(name):
        raise TraceError(
            f"{name!r} cannot be the name of a job's files.",
            hint="Use up to 200 letters, digits and signs, without slashes and not starting with a dot.",
        )
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


def convert(
    source: Path | str,
    target: Path | str,
    *,
    compress: bool = False,
    ranks: Mapping[str, int] | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Read the traces at `source` and write them as Chakra files.

    Args:
        source: A file, folder or archive with one job.
        target: A file ending in `.et` or `.et.gz` for a single rank, else a folder.
        compress: Whether files in a folder become `.et.gz`.
        ranks: Rank numbers by file name, for files that do not tell theirs.
        progress: Told the bytes read and the ranks written.

    Returns:
        The files written.

    Raises:
        TraceError: Several ranks do not fit one file, or several jobs are given.
    """
    with opened([source]) as files:
        jobs = discover(files)
        if len(jobs) > 1:
            names = ", ".join(job.name for job in jobs[:6])
            raise TraceError(f"{source}: holds {len(jobs)} jobs, not one: {names}.", hint="Convert them one by one.")
        trace, name = read_job(jobs[0], ranks=ranks, progress=progress), jobs[0].name
    path = Path(target)
    if not path.name.endswith((".et", ".et.gz")):
        return write(trace, path, name, compress=compress, progress=progress)
    if len(trace.ranks) > 1:
        raise TraceError(
            f"{path}: {len(trace.ranks)} ranks do not fit one file.",
            hint="Name a folder instead; it gets one file per rank.",
        )
    content = b"".join(chakra.write(trace.graphs[0], trace.ranks[0]))
    path.parent.mkdir(parents=True, exist_ok=True)
    _replace(path, gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    return [path]
