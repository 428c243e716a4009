"""Split a master trace into the files it was merged from: one for each rank, comm groups, tables of copies.

MASTER is a file that `merge` wrote, or - for the standard input. The files get the names and the content that they had, byte
for byte; those that were compressed are compressed again. What can be read of a damaged master trace is written; the exit code
is then 4.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import click

from studio.commands.base.options import PathOption, allow_damaged, json_option, quiet_option
from studio.commands.base.output import build_progress_line, end_with_losses, show, warn
from studio.commands.base.terminal import describe_written, escape_controls
from studio.errors import TraceError, TraceFormatError
from studio.et import Progress
from studio.et.merged.reading import sniff
from studio.et.merged.split import Master, iterate_rank_pieces, open_master
from studio.et.source import SourceFile, load
from studio.et.write import pack_pieces, write_together
from studio.trace import Finding
from studio.units import format_counted

_STANDARD = Path("-")


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `split`.

    Attributes:
        source: The master trace, `-` for the standard input.
        target: Folder for the files.
    """

    source: Path
    target: Path


@dataclass(frozen=True, slots=True)
class Split:
    """What was written of a master trace, and what was lost."""

    master: Master
    files: tuple[Path, ...]
    findings: tuple[Finding, ...]


def run(request: Request, *, progress: Progress | None = None) -> Split:
    """Split a master trace.

    Raises:
        TraceError: A file would be written outside of the folder, or two of one name.
        TraceFormatError: It is no master trace.
    """
    data, findings = _read_content(request.source)
    name = "standard input" if request.source == _STANDARD else request.source.name
    if not sniff(bytes(data[: 1 << 16])):
        raise TraceFormatError(
            f"{name}: not a master trace: its metadata does not begin with merged.ranks.",
            hint="`chakra-studio merge JOB -o MASTER` writes one. To write a job of any other form as Chakra files: "
            "`chakra-studio convert JOB DIR`.",
        )
    master = open_master(data, name)
    contents: dict[str, tuple[Iterable[bytes], bool]] = {}
    beside = [(file.file, [file.content], file.gzip) for file in (*master.heads.groups, *master.heads.copies)]
    for path, pieces, gzip in (
        *((head.file, iterate_rank_pieces(master, head.rank), head.gzip) for head in master.heads.ranks),
        *beside,
    ):
        _refuse_outside(name, path)
        if path in contents:
            raise TraceError(f"{name}: names two files {path!r}.", hint="Merge the job again.")
        contents[path] = pieces, gzip
    written = []
    with write_together() as put:
        for index, (path, (pieces, gzip)) in enumerate(contents.items()):
            target = request.target / path
            put(target, pack_pieces(pieces, gzip))
            written.append(target)
            if progress:
                progress("writing", index + 1, len(contents))
    return Split(master, tuple(written), (*findings, *master.findings))


def _read_content(source: Path) -> tuple[bytes | memoryview, tuple[Finding, ...]]:
    """Return a master trace, not compressed."""
    if source == _STANDARD:
        raw = sys.stdin.buffer.read()
        if not raw.startswith(b"\x1f\x8b"):
            return raw, ()
        try:
            return zlib.decompress(raw, wbits=31), ()
        except zlib.error as error:
            raise TraceFormatError(
                f"standard input: the gzip stream is damaged: {error}.",
                hint="Is the stream complete? Compress the trace again.",
            ) from error
    return load(SourceFile(source.name, source, named=True))


def _refuse_outside(name: str, path: str) -> None:
    """Raise an error if a file would lie outside of the folder, or has a name that is none."""
    parts = PurePosixPath(path).parts
    plain = path.isprintable() and "\\" not in path and "\0" not in path and path == "/".join(parts)
    if not parts or not plain or any(part in ("..", ".") or part.startswith("/") for part in parts):
        raise TraceError(
            f"{name}: names a file {path!r}, which is not a path within a folder; nothing was written.",
            hint="Somebody has changed the master trace; merge the job again.",
        )


def report(done: Split) -> dict[str, Any]:
    """Return what `--json` prints."""
    return {
        "ranks": [
            {"rank": head.rank, "file": head.file, "nodes": done.master.nodes.get(head.rank, 0)}
            for head in done.master.heads.ranks
        ],
        "files": [str(path) for path in done.files],
        "findings": [finding.message for finding in done.findings],
    }


def text(done: Split) -> str:
    """Format the result for a terminal."""
    ranks, nodes = len(done.master.heads.ranks), sum(done.master.nodes.values())
    line = f"{done.master.name}: {format_counted(ranks, 'rank')}, {format_counted(nodes, 'node')}"
    return f"{escape_controls(line)}\n{escape_controls(describe_written(done.files))}"


@click.command(help=__doc__, epilog="Example: chakra-studio split master.et -o traces/")
@click.argument(
    "source", metavar="MASTER", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
)
@click.option(
    "-o", "--out", "target", required=True, metavar="DIR", type=PathOption(file_okay=False), help="Folder for the files."
)  # fmt: skip
@quiet_option
@json_option
@allow_damaged
@click.pass_context
def command(
    ctx: click.Context, source: Path, target: Path, quiet: bool, as_json: bool, allow_damaged: bool
) -> None:
    """Carry out `split`."""
    done = run(Request(source, target), progress=build_progress_line())
    for finding in done.findings:
        warn(finding)
    if as_json or not quiet:
        show(done, as_json, report, text)
    end_with_losses(ctx, done.findings, allow_damaged)
