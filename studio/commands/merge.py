"""Merge the files of all ranks of a job into one master trace, from which `split` makes the same files again.

JOB is files, folders or archives of one job. MASTER, which ends in .et or .et.gz, or is - for the standard output, is a Chakra
trace as any other: each node has the attribute `rank`, its id is the one in the rank's file plus 4294967296 times the rank, and
comm groups, names and metadata of the files are metadata. Every command opens it as the job it was made of.

Jobs of other formats are merged as the Chakra files that `convert` writes. What can be read of damaged files is merged; the
exit code is then 4.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from studio.commands.base.options import (
    PathOption,
    allow_damaged,
    json_option,
    paths_argument,
    quiet_option,
    rank_option,
)
from studio.commands.base.output import build_progress_line, end_with_losses, show, warn
from studio.commands.base.terminal import describe_written, escape_controls
from studio.errors import TraceError
from studio.et import Progress, discover
from studio.et.merged.merge import Merged, merge
from studio.et.ranks import index_ranks_by_file
from studio.et.source import open_sources
from studio.et.write import pack_pieces, write_together
from studio.units import format_counted

_SUFFIXES = (".et", ".et.gz")
_STANDARD = Path("-")


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `merge`.

    Attributes:
        paths: Files, folders or archives of one job.
        target: The master trace, `-` for the standard output.
        ranks: Rank numbers by file name, for files that do not tell theirs.
    """

    paths: tuple[Path, ...]
    target: Path
    ranks: Mapping[str, int] = field(default_factory=dict)


def run(request: Request, *, progress: Progress | None = None) -> Merged:
    """Merge a job.

    Raises:
        TraceError: The paths hold several jobs, two files claim one rank, or the target is no name of a trace.
        TraceFormatError: A file cannot be read, or could not be written again byte for byte.
    """
    path = request.target
    if path != _STANDARD and (not path.name.endswith(_SUFFIXES) or path.is_dir()):
        raise TraceError(
            f"{path}: not the name of a master trace.", hint="Name a file ending in .et or .et.gz, or -."
        )
    with open_sources(request.paths, progress) as files:
        if path != _STANDARD and any(path.exists() and path.samefile(file.path) for file in files):
            raise TraceError(f"{path}: a file of the job itself.", hint="Name another file.")
        jobs = discover(files, progress)
        if len(jobs) > 1:
            names = ", ".join(job.name for job in jobs[:6])
            raise TraceError(f"{len(jobs)} jobs found, not one: {names}.", hint="Merge them one by one.")
        merged = merge(jobs[0], ranks=index_ranks_by_file(files, request.ranks), progress=progress)
        if path == _STANDARD:
            sys.stdout.buffer.writelines(merged.pieces)
            sys.stdout.buffer.flush()
        else:
            with write_together() as put:
                put(path, pack_pieces(merged.pieces, path.suffix == ".gz"))
    return merged


def report(merged: Merged) -> dict[str, Any]:
    """Return what `--json` prints."""
    return {
        "name": merged.name,
        "ranks": [{"rank": head.rank, "file": head.file, "gzip": head.gzip} for head in merged.heads.ranks],
        "groups": [file.file for file in merged.heads.groups],
        "copies": [file.file for file in merged.heads.copies],
        "nodes": merged.counts["nodes"],
        "renumbered": merged.counts["renumbered"],
        "converted": merged.converted,
        "findings": [finding.message for finding in merged.findings],
    }


def text(merged: Merged) -> str:
    """Format the result for a terminal."""
    beside = len(merged.heads.groups) + len(merged.heads.copies)
    ranks, nodes = (
        format_counted(len(merged.heads.ranks), "rank"),
        format_counted(merged.counts["nodes"], "node"),
    )
    lines = [
        f"{merged.name}: {ranks}, {nodes}"
        + (f", {format_counted(beside, 'file')} beside them" if beside else "")
    ]
    if merged.counts["renumbered"]:
        lines.append(
            f"{format_counted(merged.counts['renumbered'], 'node')} got another number, since an id is repeated or too "
            "large; the id is the attribute original_id"
        )
    if merged.converted:
        lines.append("the job is of another format: split writes the Chakra files that convert would")
    return "\n".join(escape_controls(line) for line in lines)


@click.command(help=__doc__, epilog="Example: chakra-studio merge traces/ -o master.et")
@paths_argument
@click.option(
    "-o", "--out", "target", required=True, metavar="MASTER", type=PathOption(allow_dash=True), help="The master trace."
)  # fmt: skip
@quiet_option
@json_option
@allow_damaged
@rank_option
@click.pass_context
def command(
    ctx: click.Context,
    paths: tuple[Path, ...],
    target: Path,
    ranks: dict[str, int],
    quiet: bool,
    as_json: bool,
    allow_damaged: bool,
) -> None:
    """Carry out `merge`."""
    if target == _STANDARD and as_json:
        raise click.UsageError("--json prints to the standard output, where the master trace goes.")
    merged = run(Request(paths, target, ranks), progress=build_progress_line())
    for finding in merged.findings:
        warn(finding)
    if target == _STANDARD:
        click.echo("" if quiet else text(merged) + "\n", nl=False, err=True)
    elif as_json or not quiet:
        show(
            merged,
            as_json,
            report,
            lambda done: f"{text(done)}\n{escape_controls(describe_written([target]))}",
        )
    end_with_losses(ctx, merged.findings, allow_damaged)
