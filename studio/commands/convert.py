"""Write the traces IN as Chakra files, or their recorded times as a timeline.

OUT is a file ending in .et or .et.gz, for a single rank, or a folder, which gets <job>.<rank>.et for every rank
and <job>.json with the comm groups. A file ending in .json becomes a Chrome trace of all ranks, and one in
.pftrace a trace in Perfetto's own format, both with flows; one in .csv gets
issue and callback lines, and one in .log the same as ASTRA-sim logs them.

What can be read of damaged files is written; the exit code is then 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import msgspec

from studio.commands.base.for_astra_sim import Reader, adapt_for_reader
from studio.commands.base.forms import CHAKRA, find_form
from studio.commands.base.options import (
    PathOption,
    add_size_options,
    allow_damaged,
    for_option,
    json_option,
    rank_option,
    refuse_own_input,
)
from studio.commands.base.output import build_progress_line, end_with_losses, show, warn
from studio.commands.base.terminal import describe_written, escape_controls
from studio.commands.base.timelines import SUFFIXES as TIMELINES
from studio.commands.base.timelines import is_timeline, refuse_unwritable, write_timeline
from studio.errors import TraceError
from studio.et import Progress, discover, read_job, write
from studio.et.format import UNSAID, JobSize
from studio.et.naming import format_file_name
from studio.et.ranks import index_ranks_by_file
from studio.et.source import open_sources
from studio.et.write import iterate_rank_file, write_together
from studio.trace import Finding, Trace

_SUFFIXES = CHAKRA.suffixes


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `convert`.

    Attributes:
        source: A file, folder or archive with one job.
        target: A file ending in `.et` or `.et.gz` for a single rank; in `.json` for a Chrome trace, `.pftrace` for
            Perfetto's own format or `.csv` for issue and callback lines of all ranks; else a folder, made where it is
            not there.
        compress: Whether files in a folder become `.et.gz`.
        reader: The simulator that is to read the files, where it stops at something; None for any.
        ranks: Rank numbers by file name, for files that do not tell theirs.
        size: NPUs and passes, where a workload leaves them open.
    """

    source: Path
    target: Path
    compress: bool = False
    reader: Reader | None = None
    ranks: Mapping[str, int] = field(default_factory=dict)
    size: JobSize = UNSAID


@dataclass(frozen=True, slots=True)
class Converted:
    """The files written, and the findings of reading."""

    files: tuple[Path, ...]
    findings: tuple[Finding, ...]


def run(
    request: Request, *, progress: Progress | None = None, notice: Callable[[Finding], None] | None = None
) -> Converted:
    """Read traces and write them as Chakra files, or as a timeline.

    Args:
        request: What to convert.
        progress: Told the bytes read and the ranks written.
        notice: Told each finding of the reader before anything is written: what was lost in a damaged file is lost in
            what is written, too.

    Raises:
        TraceError: Several ranks do not fit one file, several jobs are given, a timeline is asked for and no node
            has a start, or the suffix of the target is none that this command writes.
        ConfigError: `ranks` names a file that is not there.
    """
    path = request.target
    find_form(path, "convert")
    _refuse_other_file(path)
    if _is_timeline(path):
        refuse_unwritable(path)
    name, trace = _read(request, progress)
    if notice:
        for finding in trace.findings:
            notice(finding)
    return Converted(tuple(_write(trace, name, request, progress)), trace.findings)


def report(converted: Converted) -> dict[str, Any]:
    """Return what `--json` prints."""
    files = [str(file) for file in converted.files]
    return {"files": files, "findings": [msgspec.to_builtins(finding) for finding in converted.findings]}


def text(converted: Converted) -> str:
    """Say which files were written."""
    return escape_controls(describe_written(converted.files))


def _refuse_other_file(path: Path) -> None:
    """Raise an error if the target is not a file that this command writes."""
    known = path.name.endswith(_SUFFIXES)
    if path.exists() and not path.is_dir() and not known and not is_timeline(path):
        raise TraceError(
            f"{path}: there is a file of this name that is no trace.",
            hint="Name a folder, a file ending in .et or .et.gz, or a new one ending in .json, .pftrace or .csv.",
        )


def _is_timeline(path: Path) -> bool:
    return path.suffix in TIMELINES and not path.is_dir()


def _read(request: Request, progress: Progress | None) -> tuple[str, Trace]:
    """Return the job's name and trace."""
    with open_sources([request.source], progress) as files:
        jobs = discover(files, progress)
        if len(jobs) > 1:
            names = ", ".join(job.name for job in jobs[:6])
            raise TraceError(
                f"{request.source}: holds {len(jobs)} jobs, not one: {names}.",
                hint="Convert them one by one.",
            )
        numbers = index_ranks_by_file(files, request.ranks)
        trace = read_job(jobs[0], ranks=numbers, progress=progress, size=request.size)
    return jobs[0].name, adapt_for_reader(trace, request.reader)


def _write(trace: Trace, name: str, request: Request, progress: Progress | None) -> list[Path]:
    """Write the trace in the format the target's suffix names; returns the files."""
    path = request.target
    if _is_timeline(path):
        return [write_timeline(trace, path)]
    if path.is_dir() or not path.name.endswith(_SUFFIXES):
        name = format_file_name(name)
        ending = ".et.gz" if request.compress else ".et"
        if not all((path / f"{name}.{rank.number}{ending}").exists() for rank in trace.ranks):
            # Otherwise each file takes the place of the one it was read from.
            refuse_own_input([request.source], path)
        return write(trace, path, name, compress=request.compress, progress=progress)
    if len(trace.ranks) > 1:
        raise TraceError(
            f"{path}: {len(trace.ranks)} ranks do not fit one file.",
            hint="Name a folder instead; it gets one file per rank.",
        )
    nodes = (0, trace.node_count)
    with write_together() as put:
        pieces = iterate_rank_file(
            trace, trace.ranks[0], compress=path.suffix == ".gz", progress=progress, nodes=nodes
        )
        put(path, pieces)
    return [path]


@click.command(help=__doc__, epilog="Example: chakra-studio convert traces.zip out/")
@click.argument("source", metavar="IN", type=PathOption())
@click.argument("target", metavar="OUT", type=PathOption())
@click.option("--gzip", "compress", is_flag=True, help="Compress the files of a folder.")
@for_option
@json_option
@allow_damaged
@rank_option
@add_size_options
@click.pass_context
def command(
    ctx: click.Context,
    source: Path,
    target: Path,
    compress: bool,
    reader: Reader | None,
    as_json: bool,
    allow_damaged: bool,
    ranks: dict[str, int],
    npus: int | None,
    passes: int | None,
) -> None:
    """Carry out `convert`."""
    if compress and target.name.endswith(".et") and not target.is_dir():
        raise click.UsageError(
            f"--gzip compresses the files of a folder; for one file, name it {target.name}.gz."
        )

    request = Request(source, target, compress, reader, ranks, JobSize(npus, passes))
    converted = run(request, progress=build_progress_line(), notice=warn)
    show(converted, as_json, report, text)
    end_with_losses(ctx, converted.findings, allow_damaged)
