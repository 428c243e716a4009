"""Generate small jobs with known content, to test readers, simulators and checks with.

Fourteen micro-cases, of the names and contents of Chakra's own generator; one case for each type of collective; one for each
collective algorithm, with the system that runs it; and one for each fault that the Doctor knows. Micro-cases lie in DIR side by
side, each other case in a folder of its own. --list says what each shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from studio.commands.base.options import PathOption, json_option, quiet_option
from studio.commands.base.output import build_progress_line, show
from studio.commands.base.terminal import describe_written, escape_controls
from studio.et import Progress
from studio.generation.cases import Case, Sizes, select_cases, write_cases

_MOST_RANKS = 1 << 16
_SIZE = click.IntRange(0, 2**50)


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `generate cases`.

    Attributes:
        target: Folder for the cases; None lists them.
        names: Cases or kinds of cases; none stand for all.
        sizes: Ranks, durations and bytes.
    """

    target: Path | None
    names: Sequence[str] = ()
    sizes: Sizes = field(default_factory=Sizes)


@dataclass(frozen=True, slots=True)
class Done:
    """Cases, and the files written."""

    cases: Sequence[Case]
    files: Sequence[Path]


def run(request: Request, *, progress: Progress | None = None) -> Done:
    """Write cases, or list them.

    Raises:
        ConfigError: There is no case of a name.
    """
    wanted = select_cases(request.names)
    if request.target is None:
        return Done(wanted, ())
    return Done(wanted, write_cases(wanted, request.target, request.sizes, progress=progress))


def report(done: Done) -> dict[str, Any]:
    """Return what `--json` prints."""
    return {
        "cases": [{"name": case.name, "kind": case.kind, "shows": case.shows} for case in done.cases],
        "files": [str(path) for path in done.files],
    }


def text(done: Done) -> str:
    """Format the result for a terminal."""
    if done.files:
        count = f"{len(done.cases)} cases" if len(done.cases) > 1 else "1 case"
        return escape_controls(f"{count}, {describe_written(done.files)}")
    width = max(len(case.name) for case in done.cases)
    return "\n".join(f"{case.name:<{width}}  {case.shows}" for case in done.cases)


@click.command(
    help=__doc__, epilog="Example: chakra-studio generate cases -o cases/ --case micro --case fault_cycle"
)
@click.option(
    "-o", "--out", "target", metavar="DIR", type=PathOption(file_okay=False), help="Folder for the cases."
)
@click.option(
    "--case",
    "names",
    multiple=True,
    metavar="NAME",
    help="A case, or micro, collective, algorithm or fault; may be repeated.  [default: all]",
)
@click.option("--list", "listed", is_flag=True, help="List the cases, and write nothing.")
@click.option(
    "--npus", type=click.IntRange(1, _MOST_RANKS), default=4, show_default=True, metavar="N",
    help="Ranks of a case; some faults need another number.",
)  # fmt: skip
@click.option(
    "--runtime",
    type=click.IntRange(0, 10**9),
    default=5,
    show_default=True,
    metavar="US",
    help="Duration of compute nodes.",
)
@click.option(
    "--tensor-size", type=_SIZE, default=1024, show_default=True, metavar="BYTES",
    help="Size of tensors that are loaded, stored and sent.",
)  # fmt: skip
@click.option(
    "--comm-size", type=_SIZE, default=65536, show_default=True, metavar="BYTES", help="Size of collectives."
)
@quiet_option
@json_option
def command(
    *,
    target: Path | None,
    names: tuple[str, ...],
    listed: bool,
    npus: int,
    runtime: int,
    tensor_size: int,
    comm_size: int,
    quiet: bool,
    as_json: bool,
) -> None:
    """Carry out `generate cases`."""
    if (target is None) != listed:
        raise click.UsageError("Give -o DIR to write the cases, or --list to list them.")
    request = Request(target, names, Sizes(npus, runtime, tensor_size, comm_size))
    done = run(request, progress=build_progress_line())
    if as_json or not quiet:
        show(done, as_json, report, text)
