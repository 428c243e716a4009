"""A trace to files: `<job>.<rank>.et` for every rank, and the comm groups beside them."""

from __future__ import annotations

import errno
import os
import re
import secrets
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from studio.errors import TraceError
from studio.et import chrome, encode, events, groups
from studio.et.format import JobSize
from studio.et.job import Progress, discover, read_job
from studio.et.ranks import ranks_by_file
from studio.et.source import opened
from studio.trace import Finding, Rank, Trace

_SUFFIXES = (".et", ".et.gz")
_TIMELINES = {".json": chrome.write, ".csv": events.write}
"""Forms of a recorded timeline, by the suffix that asks for them."""
_NAME = re.compile(r"[^./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]{0,199}")


def write(
    trace: Trace, folder: Path | str, name: str, *, compress: bool = False, progress: Progress | None = None
) -> list[Path]:
    """Write every rank of a trace, and its listed comm groups.

    All files are written aside and then renamed, so that an error leaves none of them, and never half of one.

    Args:
        trace: What to write.
        folder: Where to; made where it is not there.
        name: The files become `<name>.<rank>.et` and `<name>.json`.
        compress: Whether to write `.et.gz`.
        progress: Told the nodes written.

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
    done, total = 0, sum(len(trace.graph_of(rank)) for rank in trace.ranks)
    with _written_together() as put:
        for rank in trace.ranks:
            path = target / f"{name}.{rank.number}.et{'.gz' if compress else ''}"
            count = len(trace.graph_of(rank))
            put(path, _packed(_told(trace, rank, progress, (done, total)), compress))
            written.append(path)
            done += count
        if groups.listed(trace):
            path = target / f"{name}.json"
            put(path, [groups.write(trace).encode()])
            written.append(path)
    return written


def _told(trace: Trace, rank: Rank, progress: Progress | None, nodes: tuple[int, int]) -> Iterator[bytes]:
    """Yield the file of a rank in pieces, and tell the nodes written, counted on from those of other ranks."""
    before, total = nodes
    graph = trace.graph_of(rank)
    for at, piece in enumerate(encode.write(graph, rank)):
        yield piece
        # The first piece is the metadata.
        if progress and (at or not len(graph)):
            progress("writing", before + min(at * encode.NODES_AT_ONCE, len(graph)), total)


@contextmanager
def _written_together() -> Iterator[Callable[[Path, Iterable[bytes]], None]]:
    """Give a function that writes files aside; they get their names at the end, after an error none is left."""
    asides: dict[Path, Path] = {}

    def put(path: Path, pieces: Iterable[bytes]) -> None:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        asides[path] = path.with_name(f".{secrets.token_hex(8)}.new")
        with asides[path].open("wb") as stream:
            stream.writelines(pieces)

    try:
        yield put
        for path, aside in asides.items():
            aside.replace(path)
    finally:
        for aside in asides.values():
            aside.unlink(missing_ok=True)


def _packed(pieces: Iterable[bytes], compress: bool) -> Iterator[bytes]:
    if not compress:
        yield from pieces
        return
    # A gzip stream, which bears no time: equal traces give equal files.
    packer = zlib.compressobj(wbits=31)
    yield from map(packer.compress, pieces)
    yield packer.flush()


def _file_name(name: str) -> str:
    r"""Return a job's name as it can be part of a file's.

    Example:
        >>> _file_name(".a\x1bb"), _file_name("llama 70b")
        ('_a_b', 'llama 70b')
    """
    # Half a character, or the stand-in for a byte that is none, cannot be written.
    plain = re.sub(r"^\.|[/\\\x00-\x1f\x7f\ud800-\udfff]", "_", name)
    return plain.encode()[:180].decode("utf-8", "ignore") or "job"


def convert(  # noqa: PLR0913 (each an option of the command)
    source: Path | str,
    target: Path | str,
    *,
    compress: bool = False,
    ranks: Mapping[str, int] | None = None,
    progress: Progress | None = None,
    notice: Callable[[Finding], None] | None = None,
    npus: int | None = None,
    passes: int | None = None,
    change: Callable[[Trace], Trace] = lambda trace: trace,
) -> list[Path]:
    """Read the traces at `source` and write them as Chakra files, or as a timeline.

    Args:
        source: A file, folder or archive with one job.
        target: A file ending in `.et` or `.et.gz` for a single rank; in `.json` for a Chrome trace or in `.csv` for
            issue and callback lines of all ranks; else a folder, made where it is not there.
        compress: Whether files in a folder become `.et.gz`.
        ranks: Rank numbers by file name, for files that do not tell theirs.
        progress: Told the bytes read and the ranks written.
        notice: Told each finding of the reader: what was lost in a damaged file is lost in what is written, too.
        npus: How many NPUs run a text workload that does not say it.
        passes: How many times a text workload runs; once where nothing is said.
        change: Makes what is written of what was read.

    Returns:
        The files written.

    Raises:
        TraceError: Several ranks do not fit one file, several jobs are given, or a timeline is asked for and no node
            has a start.
        ConfigError: `ranks` names a file that is not there.
    """
    path = Path(target)
    if path.exists() and not path.is_dir() and not path.name.endswith(_SUFFIXES) and not _is_timeline(path):
        raise TraceError(
            f"{path}: there is a file of this name that is no trace.",
            hint="Name a folder, a file ending in .et or .et.gz, or a new one ending in .json or .csv.",
        )
    with opened([source]) as files:
        jobs = discover(files)
        if len(jobs) > 1:
            names = ", ".join(job.name for job in jobs[:6])
            raise TraceError(
                f"{source}: holds {len(jobs)} jobs, not one: {names}.", hint="Convert them one by one."
            )
        numbers = ranks_by_file(files, ranks or {})
        trace = change(read_job(jobs[0], ranks=numbers, progress=progress, size=JobSize(npus, passes)))
    if notice:
        for finding in trace.findings:
            notice(finding)
    if path.suffix in _TIMELINES and not path.is_dir():
        return [write_timeline(trace, path)]
    if path.is_dir() or not path.name.endswith(_SUFFIXES):
        return write(trace, path, _file_name(jobs[0].name), compress=compress, progress=progress)
    if len(trace.ranks) > 1:
        raise TraceError(
            f"{path}: {len(trace.ranks)} ranks do not fit one file.",
            hint="Name a folder instead; it gets one file per rank.",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with _written_together() as put:
        put(
            path, _packed(_told(trace, trace.ranks[0], progress, (0, trace.node_count)), path.suffix == ".gz")
        )
    return [path]


def write_timeline(trace: Trace, path: Path) -> Path:
    """Write when everything was recorded to have run, as the suffix asks: a Chrome trace, or issue and callback lines.

    Raises:
        TraceError: No node has a start.
    """
    if not any((graph.start_ns >= 0).any() for graph in trace.graphs):
        raise TraceError(
            f"{path}: no node of the trace has a start, so there is no timeline to write.",
            hint="Simulate the trace first: chakra-studio simulate … --events FILE.csv writes a timeline.",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{secrets.token_hex(8)}.new")
    try:
        with aside.open("w", encoding="utf-8", newline="\n") as stream:
            stream.writelines(_TIMELINES[path.suffix](trace))
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    return path


def _is_timeline(path: Path) -> bool:
    """Whether a file is one that `write_timeline` wrote."""
    with path.open("rb") as stream:
        start = stream.read(4096)
    return (path.suffix == ".csv" and events.sniff(start)) or (
        path.suffix == ".json" and start.startswith(chrome.HEAD.encode())
    )
