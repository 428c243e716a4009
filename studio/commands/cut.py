"""Cut a part out of a job, as a job by itself that can be checked and simulated.

JOB is files, folders or archives of one job, or, in the workspace, a job or a run (RUN or JOB/RUN). The part is of ranks, of
training steps, of a window of the recording or of the run, of the surroundings of a node, or of nodes; what is given of several
must hold at once. OUT gets one Chakra file for each rank, whose numbers begin at 0, and the comm groups of the ranks that are left.

A node that waited for one outside waits for what that one waited for, as far as it is inside. Comm groups shrink to the ranks that
are left, and what was waited for ranks outside counts as communication then. A collective that not every rank left has inside, and
a message of which not both sides are, are left out; around a node and for named nodes their other sides are added instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from studio.commands.base.names import find_stored_run
from studio.commands.base.one_job import read_one_job
from studio.commands.base.options import (
    PathOption,
    allow_damaged,
    json_option,
    parse_time,
    paths_argument,
    quiet_option,
    rank_option,
    refuse_own_input,
    workspace_option,
)
from studio.commands.base.output import build_progress_line, end_with_losses, show, warn
from studio.commands.base.terminal import describe_written, escape_controls
from studio.comparing import RECORDED
from studio.cutting import Choice, Cut, cut
from studio.cutting.selection import NodeRef
from studio.errors import ConfigError
from studio.et import Progress, write
from studio.et.naming import format_file_name
from studio.sim.timed import build_simulated_trace, build_timed_trace
from studio.store.workspace import Workspace
from studio.timeline import NodeTimes
from studio.trace import Finding, Trace
from studio.units import format_count, format_counted

_RUN = re.compile(r"\s*(\d{1,9})(?:\s*-\s*(\d{1,9}))?\s*")
_NODE = re.compile(r"\s*(\d{1,9}):(\d{1,20}(?:\.\d{1,9})?)\s*")
_MOST_NUMBERS = 1 << 20
TRACE, RUN = "trace", "run"
"""What durations can be of."""


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `cut`.

    Attributes:
        paths: Files, folders or archives of one job.
        target: Folder for the part.
        choice: What to cut out.
        numbers: Rank numbers by file name, for files that do not tell theirs.
        compress: Whether files become `.et.gz`.
        durations: Whether nodes of a run keep their durations of the `trace`, or get times of the `run`.
        workspace: Its folder; None is the user's.
    """

    paths: tuple[Path, ...]
    target: Path
    choice: Choice
    numbers: Mapping[str, int] = field(default_factory=dict)
    compress: bool = False
    durations: str = TRACE
    workspace: Path | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """A part that was cut out, the files written, and what was lost when the job was read.

    Attributes:
        name: What it was cut out of.
        part: The part.
        files: The files.
        findings: What was noticed.
        run: The run that times are of; "" for a recording.
        durations: Of what the durations are: the `trace`, or the `run`.
    """

    name: str
    part: Cut
    files: tuple[Path, ...]
    findings: tuple[Finding, ...]
    run: str = ""
    durations: str = TRACE


@dataclass(frozen=True, slots=True)
class _Source:
    """What is cut: a job, and the times of a run of it."""

    name: str
    trace: Trace
    run: str = ""
    times: NodeTimes | None = None


def run(
    request: Request, *, progress: Progress | None = None, notice: Callable[[Finding], None] | None = None
) -> Done:
    """Read a job, and write a part of it.

    Raises:
        ConfigError: Nothing is asked for, or the job has nothing so.
        TraceError: The paths hold several jobs, or no node is left.
    """
    refuse_own_input(request.paths, request.target)
    source = _read(request, progress)
    if notice:
        for finding in source.trace.findings:
            notice(finding)
    part = cut(source.trace, request.choice, source.times)
    files = write(
        part.trace,
        request.target,
        format_file_name(source.name),
        compress=request.compress,
        progress=progress,
    )
    return Done(source.name, part, tuple(files), source.trace.findings, source.run, request.durations)


def _read(request: Request, progress: Progress | None) -> _Source:
    """Return the job, and of a run its times.

    Raises:
        ConfigError: Nothing is called so, or durations of a run are asked for and none is named.
    """
    root = request.workspace or Workspace.default_root()
    [first, *others] = request.paths
    if others or first.exists() or not root.is_dir():
        source = _Source(*read_one_job(request.paths, request.numbers, progress, verb="Cut"))
    else:
        store = Workspace(root)
        job, run = find_stored_run(store, str(first))
        title = store.info(job).name
        if run == RECORDED:
            source = _Source(title, store.load(job))
        else:
            stored = store.load_run(job, run)
            trace = (
                build_timed_trace(stored.result)
                if request.durations == RUN
                else build_simulated_trace(stored.result)
            )
            source = _Source(title, trace, stored.name, stored.result.node_times())
    if request.durations == RUN and not source.run:
        raise ConfigError(
            f"--durations run: {escape_controls(str(first))} is no run",
            hint="Name a run of the workspace; `chakra-studio runs` lists them.",
        )
    return source


def report(done: Done) -> dict[str, Any]:
    """Return what `--json` prints."""
    part = done.part
    return {
        "name": done.name,
        "cut": part.words,
        "run": done.run or None,
        "durations": done.durations,
        "ranks": [{"rank": new, "was": old} for new, old in enumerate(part.ranks)],
        "emptied": list(part.emptied),
        "nodes": part.trace.node_count,
        "nodes_before": part.nodes_before,
        "groups": len(part.trace.groups),
        "groups_before": part.groups_before,
        "shrunk": {"groups": part.shrunk, "collectives": part.shrunk_collectives},
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
        f"times are of the run {done.run}, durations of the {done.durations}" if done.run else "",
        "" if same else f"ranks are numbered anew; they were {_format_numbers(part.ranks)}",
        f"no node is left of ranks {_format_numbers(part.emptied)}" if part.emptied else "",
        _describe_count(part.satisfied, "dependency", "on nodes outside, taken as satisfied"),
        _describe_count(
            part.bridged, "dependency", "that leads over nodes outside", "that lead over nodes outside"
        ),
        _describe_count(part.dangling, "dependency", "on nodes that the job does not have, left out"),
        _describe_count(part.ordered, "dependency", "added, so that all ranks communicate in one order"),
        _describe_shrunk(part),
        _describe_count(
            part.collectives, "collective", "left out, which not every rank left of its group has inside"
        ),
        _describe_count(
            part.messages,
            "send or receive",
            "left out, whose other side is not inside",
            plural="sends or receives",
        ),
        _describe_count(part.joined, "node", "added, the other sides of collectives and messages"),
        describe_written(done.files),
    ]
    return "\n".join(escape_controls(line) for line in lines if line)


def _describe_shrunk(part: Cut) -> str:
    """Say what of the job's waiting can no longer be told; "" where all comm groups are whole."""
    if not part.shrunk:
        return ""
    groups, collectives = (
        format_counted(part.shrunk, "comm group"),
        format_counted(part.shrunk_collectives, "collective"),
    )
    return f"{groups} shrunk to the ranks that are left: what was waited for ranks outside in {collectives} counts as communication now"


def _describe_count(count: int, what: str, words: str, more: str = "", *, plural: str = "") -> str:
    if not count:
        return ""
    many = plural or (f"{what[:-1]}ies" if what.endswith("y") else f"{what}s")
    return f"{format_count(count)} {what if count == 1 else many} {words if count == 1 or not more else more}"


def _format_numbers(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers[:12])) + (", …" if len(numbers) > 12 else "")


def _parse_numbers(_ctx: click.Context, _param: click.Parameter, text: str | None) -> frozenset[int] | None:
    """Parse numbers and runs of them, as 0-3,8."""
    if text is None:
        return None
    numbers: set[int] = set()
    for item in text.split(","):
        match = _RUN.fullmatch(item)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last or last - first >= _MOST_NUMBERS:
            raise click.BadParameter(f"{item!r} is no number and no run of them; allowed: such as 0-3,8.")
        numbers.update(range(first, last + 1))
    return frozenset(numbers)


def _parse_refs(_ctx: click.Context, _param: click.Parameter, text: str | None) -> tuple[NodeRef, ...]:
    """Parse nodes, as 0:118,1:118."""
    refs = []
    for item in text.split(",") if text is not None else ():
        match = _NODE.fullmatch(item)
        if match is None:
            raise click.BadParameter(f"{item!r} is no node; allowed: RANK:ID, such as 0:118.")
        refs.append((int(match[1]), match[2]))
    return tuple(refs)


@click.command(help=__doc__, epilog="Example: chakra-studio cut traces/ -o part/ --ranks 0-3,8 --steps 2")
@paths_argument
@click.option(
    "-o", "--out", "target", required=True, metavar="DIR", type=PathOption(file_okay=False), help="Folder for the part."
)  # fmt: skip
@click.option("--ranks", "chosen", callback=_parse_numbers, metavar="RANKS", help="Ranks, such as 0-3,8.")
@click.option("--steps", callback=_parse_numbers, metavar="STEPS", help="Training steps, such as 2-3.")
@click.option(
    "--from", "from_ns", callback=parse_time, metavar="TIME", help="Nodes that begin from here on, as 2ms."
)
@click.option(
    "--to", "to_ns", callback=parse_time, metavar="TIME", help="Nodes that begin before this, as 5ms."
)
@click.option("--around", callback=_parse_refs, metavar="RANK:ID", help="A node and its surroundings.")
@click.option(
    "--depth", type=click.IntRange(0, 1_000_000), default=5, show_default=True, metavar="N",
    help="Of its surroundings so many dependencies up and down.",
)  # fmt: skip
@click.option("--nodes", callback=_parse_refs, metavar="RANK:ID,...", help="Nodes one by one.")
@click.option(
    "--durations", type=click.Choice([TRACE, RUN]), default=TRACE, show_default=True,
    help="Of a run: whether nodes keep the durations of its trace or get its times.",
)  # fmt: skip
@click.option("--gzip", "compress", is_flag=True, help="Compress the files.")
@quiet_option
@json_option
@workspace_option
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
    workspace: Path | None,
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
    request = Request(paths, target, choice, ranks, given["compress"], given["durations"], workspace)
    done = run(request, progress=build_progress_line(), notice=warn)
    if as_json or not quiet:
        show(done, as_json, report, text)
    end_with_losses(ctx, done.findings, allow_damaged)
