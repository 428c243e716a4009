"""Scale a job: the same program on more replicas, pipeline stages, tensor-parallel ranks, or ranks for its experts.

PATHS are a whole job: files, folders or archives, their prefix, or the id or name of a job in the workspace. Every rank of the
larger job has the graph of the rank with its place in all other dimensions; sizes of collectives change by the rules that are
printed. The batch grows with the replicas, or is shared by them.

OUT gets one trace per graph, a table of the other ranks and the comm groups, as `complete` writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

from studio.commands.base.one_job import read_one_job
from studio.commands.base.options import (
    PathOption,
    allow_damaged,
    json_option,
    paths_argument,
    rank_option,
    refuse_own_input,
    workspace_option,
)
from studio.commands.base.output import build_progress_line, end_with_losses, show, warn
from studio.commands.base.terminal import describe_written, escape_controls
from studio.completion.mesh import NAMES, Mesh
from studio.completion.rules import (
    SCALABLE,
    Layers,
    Rule,
    build_refusal,
    explain_refusal,
    select_applying_rules,
)
from studio.completion.scale import refuse_missing
from studio.et import Progress
from studio.et.write import write_with_copies
from studio.generation.recipe import Growth, infer_mesh, scale_job
from studio.trace import Trace
from studio.units import format_count, format_counted


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `scale`.

    Attributes:
        paths: Files, folders or archives of one job, or the name of a stored one.
        target: Folder for the scaled job.
        dp: Replicas of the larger job.
        ranks: Its ranks, in place of `dp`.
        layout: The mesh of the job as it is, or the path of a file with it; None infers it.
        pp: Its pipeline stages; None keeps those there are.
        ep: Ranks along its expert dimension, likewise.
        tp: Its tensor-parallel ranks, likewise.
        strong: Whether more replicas share the batch.
        layers: Whether more stages share the layers of the model, or each has as many as before.
        numbers: Rank numbers by file name, for files that do not tell theirs.
        workspace: Folder of imported jobs; None is the user's.
    """

    paths: tuple[Path, ...]
    target: Path
    dp: int | None = None
    ranks: int | None = None
    layout: str | None = None
    pp: int | None = None
    ep: int | None = None
    tp: int | None = None
    strong: bool = False
    layers: Layers = "divided"
    numbers: Mapping[str, int] = field(default_factory=dict)
    workspace: Path | None = None


@dataclass(frozen=True, slots=True)
class Scaled:
    """A scaled job.

    Attributes:
        name: What its files are called.
        known: The job before.
        trace: The job after.
        before, after: The layouts.
        rules: What changed, and what stayed.
        files: The files written.
    """

    name: str
    known: Trace
    trace: Trace
    before: Mesh
    after: Mesh
    rules: tuple[Rule, ...]
    files: tuple[Path, ...]


def run(request: Request, *, progress: Progress | None = None) -> Scaled:
    """Read a job, scale it and write it.

    Raises:
        ConfigError: The numbers do not fit the job's mesh, or sizes do not divide.
        TraceError: The paths hold several jobs, or ranks are missing.
    """
    refuse_own_input(request.paths, request.target)
    name, known = read_one_job(
        request.paths, request.numbers, progress, verb="Scale", workspace=request.workspace
    )
    before = infer_mesh(known, request.layout)
    refuse_missing(known, before)
    wanted = Growth(
        request.dp, request.ranks, request.pp, request.ep, request.tp, request.strong, request.layers
    )
    scaled, after, rules = scale_job(known, before, wanted)
    written = write_with_copies(scaled, request.target, name, progress=progress)
    return Scaled(
        name, known, scaled, before, after, select_applying_rules(rules, known, before), tuple(written)
    )


def report(done: Scaled) -> dict[str, Any]:
    """Return what `--json` prints."""
    return {
        "files": [str(path) for path in done.files],
        "world_size": done.after.world,
        "before": done.before.layout,
        "layout": done.after.layout,
        "rules": [asdict(rule) for rule in done.rules],
        "graphs": len(done.trace.graphs),
        "groups": len(done.trace.groups),
    }


def text(done: Scaled) -> str:
    """Format the result for a terminal."""
    ranks = f"{format_count(done.before.world)} → {format_counted(done.after.world, 'rank')}"
    lines = [f"{done.name}: {ranks}, {done.before.layout} → {done.after.layout}"]
    lines += [f"  {rule.about}: {rule.change} ({rule.why})" for rule in done.rules]
    lines.append(describe_written(done.files))
    return "\n".join(escape_controls(line) for line in lines)


def _refuse(_ctx: click.Context, param: click.Parameter, given: int | None) -> None:
    """Refuse to scale a dimension of which a trace does not tell how."""
    if given is not None:
        raise build_refusal(str(param.name))


def _add_refused_options(command: Any) -> Any:
    """Add an option for each dimension that cannot be scaled, which says why."""
    for name, meaning in reversed(list(NAMES.items())):
        if name not in SCALABLE:
            option = click.option(
                f"--{name}",
                type=int,
                metavar="N",
                expose_value=False,
                callback=_refuse,
                help=f"Refused, {meaning} parallel: {explain_refusal(name)}.",
            )
            command = option(command)
    return command


@click.command(help=__doc__, epilog="Example: chakra-studio scale job/ -o larger/ --dp 64")
@paths_argument
@click.option(
    "-o", "--out", "target", required=True, metavar="DIR", type=PathOption(file_okay=False),
    help="Folder for the scaled job.",
)  # fmt: skip
@click.option("--dp", type=click.IntRange(min=1), metavar="N", help="Replicas of the larger job.")
@click.option(
    "--ranks",
    "world",
    type=click.IntRange(min=1),
    metavar="N",
    help="Ranks of the larger job, in place of --dp.",
)
@click.option("--strong", is_flag=True, help="More replicas share the batch: each has fewer micro-batches.")
@click.option("--pp", type=click.IntRange(min=1), metavar="N", help="Pipeline stages of the larger job.")
@click.option(
    "--layers", type=click.Choice(["divided", "kept"]), default="divided", show_default=True,
    help="Whether more stages share the layers of the model, or each has as many as before: a deeper model.",
)  # fmt: skip
@click.option(
    "--ep", type=click.IntRange(min=1), metavar="N",
    help="Ranks along the expert dimension; tokens are taken to be routed evenly.",
)  # fmt: skip
@click.option(
    "--tp", type=click.IntRange(min=1), metavar="N",
    help="Tensor-parallel ranks: of a generated job any that its model allows; of a recorded one a multiple of those there are, "
    "where shapes say how operators are divided.",
)  # fmt: skip
@click.option(
    "--layout",
    metavar="DIM=SIZE,...",
    help="The mesh of the job as it is, or a file with it, where it cannot be inferred.",
)
@_add_refused_options
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
    """Carry out `scale`."""
    if given["dp"] is not None and given["world"] is not None:
        raise click.UsageError("Give one of --dp and --ranks.")
    if all(given[name] is None for name in ("dp", "world", "pp", "ep", "tp")):
        raise click.UsageError("Give one of --dp and --ranks, or --pp, --ep or --tp.")
    kept = {name: given[name] for name in ("layout", "pp", "ep", "tp", "strong", "layers", "workspace")}
    done = run(
        Request(paths, target, given["dp"], given["world"], numbers=ranks, **kept),
        progress=build_progress_line(),
    )
    for finding in done.trace.findings:
        warn(finding)
    show(done, as_json, report, text)
    end_with_losses(ctx, done.known.findings, allow_damaged)
