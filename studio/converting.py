"""Traces from one form to another: what `chakra-studio convert` does."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from studio.analysis.timeline.chrome import HEAD, chrome_events
from studio.analysis.timeline.gantt import Gantt
from studio.analysis.timeline.perfetto import INSTALL, cannot_write, perfetto_events
from studio.errors import StudioError, TraceError
from studio.et import Progress, discover, events, read_job, write
from studio.et.format import JobSize
from studio.et.ranks import ranks_by_file
from studio.et.source import open_sources
from studio.et.write import rank_file, written_together
from studio.timeline import recorded
from studio.trace import Finding, Trace

TIMELINES = (".json", ".pftrace", ".csv")
"""Forms of a timeline, by the suffix that asks for them."""
_SUFFIXES = (".et", ".et.gz")


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
        target: A file ending in `.et` or `.et.gz` for a single rank; in `.json` for a Chrome trace, `.pftrace` for
            Perfetto's own format or `.csv` for issue and callback lines of all ranks; else a folder, made where it is not there.
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
            hint="Name a folder, a file ending in .et or .et.gz, or a new one ending in .json, .pftrace or .csv.",
        )
    timeline = path.suffix in TIMELINES and not path.is_dir()
    if timeline:
        refuse_unwritable(path)
    with open_sources([source]) as files:
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
    if timeline:
        return [write_timeline(trace, path)]
    if path.is_dir() or not path.name.endswith(_SUFFIXES):
        return write(trace, path, _file_name(jobs[0].name), compress=compress, progress=progress)
    if len(trace.ranks) > 1:
        raise TraceError(
            f"{path}: {len(trace.ranks)} ranks do not fit one file.",
            hint="Name a folder instead; it gets one file per rank.",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    nodes = (0, trace.node_count)
    with written_together() as put:
        pieces = rank_file(
            trace, trace.ranks[0], compress=path.suffix == ".gz", progress=progress, nodes=nodes
        )
        put(path, pieces)
    return [path]


def write_timeline(trace: Trace, path: Path) -> Path:
    """Write when everything was recorded to have run, in the form that the suffix asks for.

    Raises:
        TraceError: No node has a start.
        StudioError: The form is Perfetto's own, and the package that writes it is not there.
    """
    if not any((graph.start_ns >= 0).any() for graph in trace.graphs):
        raise TraceError(
            f"{path}: no node of the trace has a start, so there is no timeline to write.",
            hint="Simulate the trace first: chakra-studio simulate … --events FILE writes a timeline.",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_together() as put:
        put(path, _timeline(trace, path.suffix))
    return path


def _timeline(trace: Trace, suffix: str) -> Iterator[bytes]:
    if suffix == ".csv":
        return (line.encode() for line in events.write(trace))
    return gantt_file(Gantt(trace, recorded(trace)), suffix)


def gantt_file(gantt: Gantt, suffix: str) -> Iterator[bytes]:
    """Yield a timeline for other viewers: a Chrome trace (`.json`), or Perfetto's own format (`.pftrace`).

    Raises:
        StudioError: The package that writes Perfetto's format is not there.
    """
    if suffix == ".pftrace":
        return perfetto_events(gantt)
    return (piece.encode() for piece in chrome_events(gantt))


def refuse_unwritable(path: Path) -> None:
    """Raise where a form cannot be written here, before anything is read or simulated.

    Raises:
        StudioError: The form is Perfetto's own, and the package that writes it is not there.
    """
    reason = cannot_write() if path.suffix == ".pftrace" else ""
    if reason:
        raise StudioError(
            f"{path}: {reason[0].lower()}{reason[1:]}",
            hint=f"{INSTALL}, or name a file ending in .json: a Chrome trace, which Perfetto opens, too.",
        )


def _is_timeline(path: Path) -> bool:
    """Whether a file is one that `write_timeline` wrote."""
    with path.open("rb") as stream:
        start = stream.read(4096)
    if path.suffix == ".pftrace":
        # Packets alone, each of which begins so.
        return start[:1] == b"\n"
    return (path.suffix == ".csv" and events.sniff(start)) or (
        path.suffix == ".json" and start.startswith(HEAD.encode())
    )
