"""Turn a Chakra file into JSON, or JSON into the Chakra file that it stands for.

IN is a Chakra file (.et, .et.gz), which becomes JSON, or JSON, which becomes a Chakra file; its content decides. JSON is one document
{"metadata": ..., "nodes": [...]} or, with --lines and in files ending in .jsonl, an object per line. Objects with nothing between,
as Chakra's own jsonizer prints them, are read too. A file that went there and back has the bytes it had.

OUT ending in .gz is compressed. IN or OUT is - for standard input or output. What can be read of a damaged Chakra file is written; the
exit code is then 4.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import msgspec

from studio.commands.base.options import PathOption, allow_damaged, json_option, quiet_option
from studio.commands.base.output import build_progress_line, end_with_losses, show, warn
from studio.commands.base.terminal import escape_controls
from studio.errors import TraceError, TraceFormatError
from studio.et.jsonize import Content, Source, Tally, infer_content, write_chakra, write_json
from studio.et.reading_meter import Progress
from studio.et.write import compress_pieces, write_together
from studio.files import SpecialFileError, open_file
from studio.trace import Finding
from studio.units import format_count, format_counted

STANDARD = Path("-")
_CHAKRA = (".et", ".et.gz")
_LINES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `jsonize`.

    Attributes:
        source: The file that is read; `-` for standard input.
        target: The file that is written; `-` for standard output.
        lines: Whether JSON has an object per line.
    """

    source: Path
    target: Path
    lines: bool = False


@dataclass(frozen=True, slots=True)
class Jsonized:
    """A finished conversion of a Chakra file to JSON, or back.

    Attributes:
        request: What was asked for.
        read: What the source holds.
        tally: What was noticed.
    """

    request: Request
    read: Content
    tally: Tally = field(default_factory=Tally)

    @property
    def findings(self) -> list[Finding]:
        """What was lost."""
        return self.tally.findings


def run(request: Request, *, progress: Progress | None = None) -> Jsonized:
    """Turn one file into the other.

    Raises:
        TraceError: The target is the source, has the name of what the source is already, or there is no source.
        TraceFormatError: The source is neither, or damaged JSON.
    """
    with ExitStack() as open_files:
        source = _open(request.source, progress, open_files)
        done = Jsonized(request, infer_content(source))
        _refuse_unfit(request, done.read)
        if done.read == "chakra":
            lines = request.lines or request.target.name.lower().endswith(_LINES)
            pieces = write_json(source, done.tally, lines=lines)
        else:
            pieces = write_chakra(source, done.tally)
        _put(request.target, pieces)
    return done


def _open(path: Path, progress: Progress | None, open_files: ExitStack) -> Source:
    """Return the source, whose progress is told by the bytes read."""
    if path == STANDARD:
        return Source(sys.stdin.buffer, "standard input")
    try:
        stream = open_files.enter_context(open_file(path))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise TraceError(f"{path}: no such file.", hint="Check the spelling.") from error
    except SpecialFileError as error:
        raise TraceFormatError(
            f"{path}: {error.strerror}.", hint="Name - and send it to standard input."
        ) from error
    except IsADirectoryError as error:
        raise TraceError(
            f"{path}: this is a folder; one file is turned into one file.",
            hint='For each: for file in FOLDER/*.et; do chakra-studio jsonize "$file" -o "$file.json"; done',
        ) from error
    total = path.stat().st_size
    return Source(stream, str(path), (lambda done: progress("reading", done, total)) if progress else None)


def _refuse_unfit(request: Request, read: Content) -> None:
    """Raise an error if the target says that it holds what the source is, or is the source."""
    target = request.target
    named_chakra = target.name.lower().endswith(_CHAKRA)
    if read == "chakra" and named_chakra:
        raise TraceError(
            f"{target}: {request.source} is a Chakra file, of which JSON is made, and this name is a Chakra file's.",
            hint="Name it .json, .jsonl, or either with .gz; `chakra-studio convert` copies Chakra files.",
        )
    if read == "json" and target != STANDARD and not named_chakra:
        raise TraceError(
            f"{target}: {request.source} is JSON, of which a Chakra file is made; allowed: names ending in .et or .et.gz.",
            hint=f"Name it {target.name}.et.",
        )
    if read == "json" and request.lines:
        raise TraceError(
            f"{request.source} is JSON, of which a Chakra file is made; --lines says how JSON is written.",
            hint="Leave --lines out.",
        )
    if target.exists() and request.source.exists() and target.samefile(request.source):
        raise TraceError(f"{target}: this is the file that is read.", hint="Name another.")


def _put(target: Path, pieces: Iterator[bytes]) -> None:
    whole: Iterable[bytes] = compress_pieces(pieces) if target.name.endswith(".gz") else pieces
    if target == STANDARD:
        for piece in whole:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    with write_together() as put:
        put(target, whole)


def report(done: Jsonized) -> dict[str, Any]:
    """Return what `--json` prints."""
    return {
        "source": str(done.request.source),
        "target": str(done.request.target),
        "read": done.read,
        "nodes": done.tally.nodes,
        "kept_as_bytes": done.tally.kept,
        "changed": done.tally.changed,
        "findings": [msgspec.to_builtins(finding) for finding in done.findings],
    }


def text(done: Jsonized) -> str:
    """Format which file was written, and what is unusual about it."""
    lines = [f"{format_counted(done.tally.nodes, 'node')} written: {done.request.target}"]
    if done.tally.kept:
        lines.append(
            f"{format_count(done.tally.kept)} of the records are written otherwise than protobuf would; their bytes stand in @bytes."
        )
    if done.tally.changed:
        lines.append(
            f"{format_count(done.tally.changed)} of the objects were changed since; their values were written, not their @bytes."
        )
    return "\n".join(escape_controls(line) for line in lines)


@click.command(help=__doc__, epilog="Example: chakra-studio jsonize job.0.et -o job.0.json")
@click.argument("source", metavar="IN", type=PathOption())
@click.option(
    "-o", "--out", "target", required=True, metavar="OUT", type=PathOption(), help="The file that is written; - prints it."
)  # fmt: skip
@click.option("--lines", is_flag=True, help="Write JSON Lines: an object per line, the metadata first.")
@json_option
@quiet_option
@allow_damaged
@click.pass_context
def command(
    ctx: click.Context,
    source: Path,
    target: Path,
    lines: bool,
    as_json: bool,
    quiet: bool,
    allow_damaged: bool,
) -> None:
    """Carry out `jsonize`."""
    if as_json and target == STANDARD:
        raise click.UsageError("--json prints about the file written, and OUT is standard output already.")
    done = run(Request(source, target, lines), progress=build_progress_line())
    for finding in done.findings:
        warn(finding)
    if target == STANDARD:
        if not quiet:
            click.echo(text(done).replace(f" written: {target}", " written."), err=True)
    elif as_json or not quiet:
        show(done, as_json, report, text)
    end_with_losses(ctx, done.findings, allow_damaged)
