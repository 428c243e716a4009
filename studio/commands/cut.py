"""Cut a part out of a job, as a job by itself that can be checked and simulated.

JOB is files, folders or archives of one job. The part is of ranks, of training steps, of a window of the recording, of the
surroundings of a node, or of nodes; what is given of several must hold at once. OUT gets one Chakra file for each rank, whose
numbers begin at 0, and the comm groups of the ranks that are left.

A node that waited for one outside waits for what that one waited for, as far as it is inside. Collectives and messages of which
not every side is inside are left out; around a node and for named nodes their other sides are added instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from studio.commands.base.one_job import read_one_job
from studio.commands.base.options import (
    PathOption,
    allow_damaged,
    json_option,
    paths_argument,
    quiet_option,
    rank_option,
    refuse_own_input,
)
from studio.commands.base.output import end_with_losses, progress_line, show, warn
from studio.commands.base.terminal import printable, written_line
from studio.cutting import Choice, Cut, cut
from studio.cutting.selection import NodeRef
from studio.errors import ConfigError
from studio.et import Progress, write
from studio.et.naming import file_name
from studio.trace import Finding
from studio.units import format_count, format_counted, parse_ns

_RUN = re.compile(r"\s*(\d{1,9})(?:\s*-\s*(\d{1,9}))?\s*")
_NODE = re.compile(r"\s*(\d{1,9}):(\d{1,20}(?:\.\d{1,9})?)\s*")
_MOST_NUMBERS = 1 << 20


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `cut`.

    Attributes:
        paths: Files, folders or archives of one job.
        target: Folder for the part.
        choice: What to cut out.
        numbers: Rank numbers by file name, for files that do not tell theirs.
        compress: Whether files become `.et.gz`.
    """

    paths: tuple[Path, ...]
    target: Path
    choice: Choice
    numbers: Mapping[str, int] = field(default_factory=dict)
    compress: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """A part that was cut out, the files written, and what was lost when the job was read."""

    name: str
    part: Cut
    files: tuple[Path, ...]
    findings: tuple[Finding, ...]


def run(
    request: Request, *, progress: Progress | None = None, notice: Callable[[Finding], None] | None = None
) -> Done:
    """Read a job, and write a part of it.

    Raises:
        ConfigError: Nothing is asked for, or the job has nothing so.
        TraceError: The paths hold several jobs, or no node is left.
    """
    refuse_own_input(request.paths, request.target)
    name, trace = read_one_job(request.paths, request.numbers, progress, verb="Cut")
    if notice:
        for finding in trace.findings:
            notice(finding)
    part = cut(trace, request.choice)
    files = write(part.trace, request.target, file_name(name), compress=request.compress, progress=progress)
    return Done(name, part, tuple(files), trace.findings)


def report(done: Done) -> dict[str, Any]:
    """Return what `--json` prints."""
    part = done.part
    return {
        "name": done.name,
        "cut": part.words,
        "ranks": [{"rank": new, "was": old} for new, old in enumerate(part.ranks)],
        "emptied": list(part.emptied),
        "nodes": part.trace.node_count,
        "nodes_before": part.nodes_before,
        "groups": len(part.trace.groups),
        "groups_before": part.groups_before,
        "left_out": {"collectives": part.collectives, "messages": part.messages},
        "joined": part.joined,
        "dependencies": {
            "satisfied": part.satisfied,
            "bridged": part.bridged,
            "dangling": part.dangling,
            "ordered": part.ordered,
        },
        "files": [str(path) for path in done.files],
    }


def text(done: Done) -> str:
    """Format the result for a terminal."""
    part = done.part
    same = part.ranks == tuple(range(len(part.ranks)))
    count, ranks = format_count(part.trace.node_count), format_counted(len(part.trace.ranks), "rank")
    lines = [
        f"{done.name}: {part.words}: {count} of {format_counted(part.nodes_before, 'node')}, {ranks}",
        "" if same else f"ranks are numbered anew; they were {_listed(part.ranks)}",
        f"no node is left of ranks {_listed(part.emptied)}" if part.emptied else "",
        _counted(part.satisfied, "dependency", "on nodes outside, taken as satisfied"),
        _counted(part.bridged, "dependency", "that leads over nodes outside", "that lead over nodes outside"),
        _counted(part.dangling, "dependency", "on nodes that the job does not have, left out"),
        _counted(part.ordered, "dependency", "added, so that all ranks communicate in one order"),
        _counted(part.collectives, "collective", "left out, of which not every member is inside"),
        _counted(
            part.messages,
            "send or receive",
            "left out, whose other side is not inside",
            plural="sends or receives",
        ),
        _counted(part.joined, "node", "added, the other sides of collectives and messages"),
        written_line(done.files),
    ]
    return "\n".join(printable(line) for line in lines if line)


def _counted(count: int, what: str, words: str, more: str = "", *, plural: str = "") -> str:
    if not count:
        return ""
    many = plural or (f"{what[:-1]}ies" if what.endswith("y") else f"{what}s")
    return f"{format_count(count)} {what if count == 1 else many} {words if count == 1 or not more else more}"


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers[:12])) + (", …" if len(numbers) > 12 else "")


def _numbers(_ctx: click.Context, _param: click.Parameter, text: str | None) -> frozenset[int] | None:
    """Parse numbers and runs of them, as 0-3,8."""
    if text is None:
        return None
    found: set[int] = set()
    for item in text.split(","):
        match = _RUN.fullmatch(item)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last or last - first >= _MOST_NUMBERS:
            raise click.BadParameter(f"{item!r} is no number and no run of them; allowed: such as 0-3,8.")
        found.update(range(first, last + 1))
    return frozenset(found)


def _refs(_ctx: click.Context, _param: click.Parameter, text: str | None) -> tuple[NodeRef, ...]:
    """Parse nodes, as 0:118,1:118."""
    refs = []
    for item in text.split(",") if text is not None else ():
        match = _NODE.fullmatch(item)
        if match is None:
            raise click.BadParameter(f"{item!r} is no node; allowed: RANK:ID, such as 0:118.")
        refs.append((int(match[1]), match[2]))
    return tuple(refs)


def _time(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    """Parse the time of an option."""
    try:
        return None if text is None else parse_ns(text)
    except ConfigError as error:
        raise click.BadParameter(f"{error.message}. {error.hint}") from error


@click.command(help=__doc__, epilog="Example: chakra-studio cut traces/ -o part/ --ranks 0-3,8 --steps 2")
@paths_argument
@click.option(
    "-o", "--out", "target", required=True, metavar="DIR", type=PathOption(file_okay=False), help="Folder for the part."
)  # fmt: skip
@click.option("--ranks", "chosen", callback=_numbers, metavar="RANKS", help="Ranks, such as 0-3,8.")
@click.option("--steps", callback=_numbers, metavar="STEPS", help="Training steps, such as 2-3.")
@click.option(
    "--from", "from_ns", callback=_time, metavar="TIME", help="Nodes that begin from here on, as 2ms."
)
@click.option("--to", "to_ns", callback=_time, metavar="TIME", help="Nodes that begin before this, as 5ms.")
@click.option("--around", callback=_refs, metavar="RANK:ID", help="A node and its surroundings.")
@click.option(
    "--depth", type=click.IntRange(0, 1_000_000), default=5, show_default=True, metavar="N",
    help="Of its surroundings so many dependencies up and down.",
)  # fmt: skip
@click.option("--nodes", callback=_refs, metavar="RANK:ID,...", help="Nodes one by one.")
@click.option("--gzip", "compress", is_flag=True, help="Compress the files.")
@quiet_option
@json_option
@allow_damaged
@rank_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    paths: tuple[Path, ...],
    target: Path,
    ranks: dict[str, int],
    quiet: bool,
    as_json: bool,
    allow_damaged: bool,
    **given: Any,
) -> None:
    """Carry out `cut`."""
    if len(given["around"]) > 1:
        raise click.UsageError("--around takes one node; --nodes takes several.")
    around = given["around"][0] if given["around"] else None
    choice = Choice(
        given["chosen"],
        given["steps"],
        given["from_ns"],
        given["to_ns"],
        around,
        given["depth"],
        given["nodes"],
    )
    request = Request(paths, target, choice, ranks, given["compress"])
    done = run(request, progress=progress_line(), notice=warn)
    if as_json or not quiet:
        show(done, as_json, report, text)
    end_with_losses(ctx, done.findings, allow_damaged)
