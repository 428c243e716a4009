"""Complete a job of which some ranks were recorded, and write it.

Ranks of a parallel job are copies of few roles: every missing rank gets the graph of a known rank of its pipeline stage, with its
own comm groups and peers. The layout of the ranks is inferred from comm groups and messages. Where several fit, they are
printed as --layout values, the likeliest first, and the exit code is 2.

PATHS are files, folders or archives of one job, their prefix, or the id or name of a job in the workspace. OUT gets one trace per
graph, a table of the other ranks and the comm groups; every command and page reads it, and `convert OUT DIR` writes one file a rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from studio.analysis.job.completeness import describe_assumed, infer_completeness
from studio.commands.base.one_job import read_one_job
from studio.commands.base.options import (
    PathOption,
    add_gpu_options,
    allow_damaged,
    json_option,
    paths_argument,
    rank_option,
    refuse_own_input,
    workspace_option,
)
from studio.commands.base.output import build_progress_line, end_with_losses, show, warn
from studio.commands.base.terminal import describe_written, escape_controls
from studio.completion import LayoutNeededError, Mesh, Spread
from studio.completion.clues import collect_facts, describe_dimension
from studio.completion.complete import choose_mesh, complete_on
from studio.completion.layout import read_layout
from studio.completion.spread import parse_share
from studio.errors import TraceError
from studio.et import Progress
from studio.et.write import write_with_copies
from studio.sim.retargeting import retarget
from studio.trace import Trace, describe_assumed_stage, get_assumed_source


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `complete`.

    Attributes:
        paths: Files, folders or archives of one job, or the name of a stored one.
        target: Folder for the completed job.
        layout: The mesh of its ranks, or the path of a file with it; None infers it.
        ranks: How many ranks it has, where its files do not say; None asks the files.
        first: Whether the likeliest layout is taken where several fit.
        spread: How durations of copies differ from those recorded.
        numbers: Rank numbers by file name, for files that do not tell theirs.
        damaged: Whether a job of which something could not be read is completed.
        gpu: The GPU that durations are recomputed for; None keeps what was recorded.
        recorded_gpu: The GPU they were recorded on; None is the one that the trace names.
        workspace: Folder of imported jobs; None is the user's.
    """

    paths: tuple[Path, ...]
    target: Path
    layout: str | None = None
    ranks: int | None = None
    first: bool = False
    spread: Spread = field(default_factory=Spread)
    numbers: Mapping[str, int] = field(default_factory=dict)
    damaged: bool = False
    gpu: str | None = None
    recorded_gpu: str | None = None
    workspace: Path | None = None


@dataclass(frozen=True, slots=True)
class Completed:
    """A completed job.

    Attributes:
        name: What its files are called.
        known: The job as it was read.
        trace: The completed job.
        mesh: Its layout.
        files: The files written.
        recomputed: What became of its durations, where they were recomputed for another GPU.
    """

    name: str
    known: Trace
    trace: Trace
    mesh: Mesh
    files: tuple[Path, ...]
    recomputed: str = ""


def run(request: Request, *, progress: Progress | None = None) -> Completed:
    """Read a job, complete it and write it.

    Raises:
        LayoutNeededError: The layout has to be chosen.
        ConfigError: The layout does not fit what is known.
        TraceError: The paths hold several jobs, something of the job could not be read, or no rank of some pipeline stage is
            known.
    """
    refuse_own_input(request.paths, request.target)
    name, known = read_one_job(
        request.paths, request.numbers, progress, verb="Complete", workspace=request.workspace
    )
    lost = next((finding for finding in known.findings if finding.level == "error"), None)
    if lost and not request.damaged:
        raise TraceError(
            f"Copies would repeat what could not be read: {lost.message}",
            hint="Record the rank again, or give --allow-damaged.",
        )
    recomputed = ""
    if request.gpu is not None:
        known, outcome = retarget(known, request.gpu, request.recorded_gpu, keep_starts=False)
        recomputed = outcome.words
    given = read_layout(request.layout) if request.layout is not None else None
    facts = collect_facts(known, given)
    mesh = choose_mesh(facts, given, request.ranks, first=request.first)
    completed = complete_on(facts, mesh, request.spread, axes=given.axes if given else {})
    written = write_with_copies(completed, request.target, name, progress=progress)
    return Completed(name, known, completed, mesh, tuple(written), recomputed)


def report(done: Completed) -> dict[str, Any]:
    """Return what `--json` prints."""
    return {
        "files": [str(path) for path in done.files],
        "world_size": done.mesh.world,
        "layout": done.mesh.layout,
        "recomputed": done.recomputed,
        "mesh": [
            {"dimension": axis.name, "size": axis.size, "stride": axis.stride, "evidence": axis.evidence}
            for axis in done.mesh.axes
        ],
        "recorded": [rank.number for rank in done.trace.ranks if get_assumed_source(rank) is None],
        "assumed": {
            str(rank.number): source
            for rank in done.trace.ranks
            if (source := get_assumed_source(rank)) is not None
        },
        "built_stages": sorted(
            {words for rank in done.trace.ranks if (words := describe_assumed_stage(rank))}
        ),
        "measured": [f.message for f in done.trace.findings if f.code == "spread-measured"],
        "late_arrivals": [f.message for f in done.trace.findings if f.code == "late-arrivals"],
        "graphs": len(done.trace.graphs),
        "groups": len(done.trace.groups),
    }


def text(done: Completed) -> str:
    """Format the result for a terminal."""
    job = infer_completeness(done.known)
    lines = [
        f"{done.name}: {describe_assumed(done.trace) or 'every rank was recorded'} ({job.known_words()} known)"
    ]
    lines += [f"layout {done.mesh.layout}, the dimension of adjacent ranks first:", *format_mesh(done.mesh)]
    lines += [done.recomputed] if done.recomputed else []
    lines += [f.message for f in done.trace.findings if f.code in ("spread-measured", "late-arrivals")]
    lines.append(describe_written(done.files))
    return "\n".join(escape_controls(line) for line in lines)


def format_mesh(mesh: Mesh) -> list[str]:
    """Return the dimensions of a mesh as a table for a terminal."""
    width = max(len(describe_dimension(axis.name)) for axis in mesh.axes)
    return [
        f"  {describe_dimension(axis.name):<{width}}  {axis.size:>6,} {'rank, ' if axis.size == 1 else 'ranks,'} {axis.stride:,} apart   {axis.evidence}"
        for axis in mesh.axes
    ]


@click.command(
    help=__doc__, epilog="Example: chakra-studio complete rank0.json.gz -o job/ --layout tp=8,dp=4"
)
@paths_argument
@click.option(
    "-o", "--out", "target", required=True, metavar="DIR", type=PathOption(file_okay=False),
    help="Folder for the completed job.",
)  # fmt: skip
@click.option(
    "--layout", metavar="DIM=SIZE,...",
    help="The mesh of ranks, the dimension whose ranks have adjacent numbers first: tp, sp, cp, ep, dp and pp; or a file with it "
    "(.yml, .json), which can list members of comm groups too.",
)  # fmt: skip
@click.option(
    "--ranks",
    "world",
    type=click.IntRange(min=1),
    metavar="N",
    help="Ranks of the job, where its files do not say.",
)
@click.option("--yes", "first", is_flag=True, help="Take the likeliest layout where several fit.")
@click.option(
    "--jitter", default="0", metavar="SHARE", show_default=True,
    help="Spread of each compute node's duration on copied ranks: the standard deviation of its logarithm, or `measured`, "
    "that between known ranks of a stage.",
)  # fmt: skip
@click.option(
    "--imbalance", default="0", metavar="SHARE", show_default=True,
    help="The same of a factor that all compute nodes of a copied rank share, or `measured`: between the known ranks, best the "
    "lightest and the heaviest, sizes of uneven collectives too.",
)  # fmt: skip
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Equal seeds draw the same."
)
@click.option(
    "--arrivals", type=click.Choice(["recorded", "together"]),
    help="When copied ranks come to collectives: as late as known ranks may have waited for them, by the time that these took beyond "
    "the usual (an assumption; the default, unless --imbalance says how ranks differ), or together with them.",
)  # fmt: skip
@add_gpu_options
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
    as_json: bool,
    allow_damaged: bool,
    **given: Any,
) -> None:
    """Carry out `complete`."""
    shares = [parse_share(name, given[name]) for name in ("jitter", "imbalance")]
    spread = Spread(shares[0], shares[1], given["seed"], given["arrivals"])
    request = Request(
        paths, target, given["layout"], given["world"], given["first"], spread, ranks, allow_damaged,
        given["gpu"], given["recorded_gpu"], given["workspace"],
    )  # fmt: skip
    try:
        done = run(request, progress=build_progress_line())
    except LayoutNeededError as error:
        raise click.UsageError(str(error)) from error
    for finding in done.trace.findings:
        warn(finding)
    show(done, as_json, report, text)
    end_with_losses(ctx, done.known.findings, allow_damaged)
