"""List stored simulations of all jobs, or of the JOB with this id or name."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec

from studio.commands.base.names import find_job
from studio.commands.base.options import NameOrPath, json_option, workspace_option
from studio.commands.base.output import show
from studio.commands.base.replay import NO_NETWORK
from studio.commands.base.terminal import escape_controls, shorten
from studio.sim.parts import EXTENDED
from studio.store.job_infos import JobInfo
from studio.store.run_infos import RunInfo
from studio.store.workspace import Workspace
from studio.units import format_bytes, format_ns

_SYSTEM_WIDTH = 48

JobRuns = tuple[JobInfo, list[RunInfo]]


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `runs`.

    Attributes:
        workspace: Its folder; None is the user's.
        job: A job by id or name; None for all jobs that have runs.
    """

    workspace: Path | None = None
    job: str | None = None


def run(request: Request) -> list[JobRuns]:
    """Return the runs of the job, or of all jobs that have some, the newest job first.

    Raises:
        ConfigError: There is no such job, or several have the name.
    """
    folder = request.workspace or Workspace.default_root()
    if not folder.is_dir() and request.job is None:
        return []
    workspace = Workspace(folder)
    if request.job is not None:
        job = find_job(workspace, request.job)
        return [(job, workspace.runs(job.id))]
    return [(job, workspace.runs(job.id)) for job in workspace.jobs() if job.runs]


def report(jobs: Sequence[JobRuns]) -> list[dict[str, Any]]:
    """Return runs as plain data."""
    return [{**msgspec.to_builtins(run), "model": run.model} for _, runs in jobs for run in runs]


def text(jobs: Sequence[JobRuns]) -> str:
    """Format runs for a terminal."""
    lines: list[str] = []
    for job, runs in jobs:
        lines += [
            escape_controls(f"{job.name} ({job.id})"),
            *(f"  {line}" for line in _format_runs(runs)),
            "",
        ]
    return (
        "\n".join(lines).rstrip() or "No runs yet. `chakra-studio simulate WORKLOAD … --out NAME` keeps one."
    )


def _format_runs(runs: Sequence[RunInfo]) -> Iterator[str]:
    if not runs:
        yield "no runs"
        return
    systems = [_format_topology(run) for run in runs]
    wide = max(map(len, [*systems, "system"]))
    yield (
        f"{'run':24}{'finish':>12}{'exposed':>12}{'NPUs':>9}  {'system':{wide}}  {'model':20}"
        f"{'made':18}{'size':>10}  name"
    )
    for run, system in zip(runs, systems, strict=True):
        figures = (run.makespan_ns, run.summary.exposed_ns)
        cells = "".join(f"{'–' if figure is None else format_ns(figure):>12}" for figure in figures)
        size = format_bytes(run.stored_bytes)
        created = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.created))
        yield (
            f"{run.id:24}{cells}{run.npus:>9,}  {system:{wide}}  {run.model:20}"
            f"{created:18}{size:>10}  {escape_controls(run.name)}{_format_mark(run)}"
        )


def _format_mark(run: RunInfo) -> str:
    """Return the mark of a run that is not to be believed as it stands."""
    worst = max(run.doubts, key=lambda doubt: doubt.impossible, default=None)
    return f"  {worst.mark}" if worst is not None else ""


def _format_topology(run: RunInfo) -> str:
    """Format the topology of a run, `Switch 8 × Ring 2`; a replay has none."""
    extended = run.tables.system.get(EXTENDED)
    if isinstance(extended, Mapping) and extended.get("communication-times") == "recorded":
        return NO_NETWORK
    columns = [run.tables.network.get(key) for key in ("topology", "npus_count")]
    kinds, sizes = (column if isinstance(column, list | tuple) else [column] for column in columns)
    text = " × ".join(f"{kind} {size}" for kind, size in zip(kinds, sizes, strict=False))
    return shorten(escape_controls(text), _SYSTEM_WIDTH)


@click.command(help=__doc__, epilog="Example: chakra-studio runs")
@click.argument("job", required=False, type=NameOrPath())
@json_option
@workspace_option
def command(job: str | None, as_json: bool, workspace: Path | None) -> None:
    """Carry out `runs`."""
    show(run(Request(workspace, job)), as_json, report, text)
