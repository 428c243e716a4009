"""Write a run, or a comparison of runs with the first, as one HTML file that opens from disk.

A and the others are named as for compare. The file holds its figures and needs no network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from studio.commands.base.checked import warn_of_check, with_stored_check
from studio.commands.base.names import find_runs
from studio.commands.base.options import (
    NameOrPath,
    PathOption,
    allow_damaged,
    json_option,
    rank_option,
    workspace_option,
)
from studio.commands.base.output import build_progress_line, end_with_losses, list_findings, show
from studio.commands.base.terminal import describe_written, escape_controls
from studio.comparing import Compared
from studio.et import Progress
from studio.store.durable_files import write_atomically


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `report`.

    Attributes:
        sides: Names of runs, as `names.find_runs` takes them; the others are compared with the first.
        out: The HTML file to write.
        workspace: Its folder; None is the user's.
        ranks: Rank numbers by file name, for files that do not tell theirs.
    """

    sides: tuple[str, ...]
    out: Path
    workspace: Path | None = None
    ranks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reported:
    """The file written and the runs in it."""

    file: Path
    sides: tuple[Compared, ...]


def run(request: Request, *, progress: Progress | None = None) -> Reported:
    """Read the runs and write the file; it appears when it is complete.

    Raises:
        ConfigError: Nothing is called so, or the file cannot be written.
        StudioError: What is named cannot be read, or holds no times.
    """
    runs = find_runs(request.sides, request.workspace, ranks=request.ranks, progress=progress, least=1)
    sides = [with_stored_check(side, request.workspace) for side in runs]
    if progress:
        # Imported late: drawing figures is slow to import.
        progress("drawing", 0, len(sides) + 1)
    from studio.reporting import build_report as write_html

    html = write_html(sides, progress)
    with write_atomically(request.out, "--out") as stream:
        stream.write(html)
    return Reported(request.out, tuple(sides))


def report(reported: Reported) -> dict[str, Any]:
    """Return what `--json` prints."""
    sides = [{"name": side.name, "job": side.job, "run": side.run} for side in reported.sides]
    return {"file": str(reported.file), "sides": sides}


def text(reported: Reported) -> str:
    """Say which files were written."""
    return escape_controls(describe_written([reported.file]))


@click.command(help=__doc__, epilog="Example: chakra-studio report fast slow -o report.html")
@click.argument("sides", metavar="A [B]...", nargs=-1, required=True, type=NameOrPath())
@click.option(
    "-o",
    "--out",
    required=True,
    metavar="FILE",
    type=PathOption(dir_okay=False),
    help="The HTML file to write.",
)
@json_option
@workspace_option
@allow_damaged
@rank_option
@click.pass_context
def command(
    ctx: click.Context,
    sides: tuple[str, ...],
    out: Path,
    as_json: bool,
    workspace: Path | None,
    allow_damaged: bool,
    ranks: dict[str, int],
) -> None:
    """Carry out `report`."""
    written = run(Request(sides, out, workspace, ranks), progress=build_progress_line())
    warn_of_check(written.sides)
    show(written, as_json, report, text)
    end_with_losses(ctx, list_findings(written.sides), allow_damaged, warned=False)
