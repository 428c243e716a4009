"""Advise what to change in a job or its system, each change simulated: what it saves.

JOB|RUN is a folder, files or the prefix of files of traces, or, in the workspace, a run (RUN or JOB/RUN) or a job: its
recording (JOB/recorded), else its newest run. A recording is replayed: compute and communication take their recorded
times, and the replay is held against the recording first. With --preset, or --system and --network, it is simulated
on that system.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from studio.advice.advice import Advised, advise
from studio.advice.words import as_data, format_advice
from studio.analysis.job.completeness import infer_completeness
from studio.commands.base.given_job import choose_workspace_folder, open_workspace
from studio.commands.base.names import find_stored_run
from studio.commands.base.options import (
    EXISTING_FILE,
    NameOrPath,
    allow_damaged,
    json_option,
    rank_option,
    workspace_option,
)
from studio.commands.base.output import build_progress_line, end_with_losses, show
from studio.commands.base.prefix import find_by_prefix
from studio.commands.base.terminal import escape_controls
from studio.comparing import RECORDED
from studio.errors import ConfigError
from studio.et import Progress, read
from studio.sim import astra
from studio.sim.models import MODELS, Model, with_model
from studio.sim.parts import Parts
from studio.sim.presets import infer_npu_count, preset
from studio.sim.remote_memory import with_memory_for
from studio.sim.setting_edits import with_settings
from studio.trace import Finding, Trace


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `advise`.

    Attributes:
        names: Folders or files, the common prefix of files, or the name of a run or job in the workspace.
        preset: A system by name or a system file.
        system, network, remote_memory: ASTRA-sim's files.
        model: `full` or `astra-sim`; None is full for a preset, and what the files ask for else.
        settings: KEY=VALUE each, the last word on any key of the system.
        keep: Whether to keep the runs in the workspace.
        workspace: Its folder; None is the user's.
        ranks: Rank numbers by file name, for files that do not tell theirs.
    """

    names: tuple[str, ...]
    preset: str | None = None
    system: Path | None = None
    network: Path | None = None
    remote_memory: Path | None = None
    model: Model | None = None
    settings: tuple[str, ...] = ()
    keep: bool = False
    workspace: Path | None = None
    ranks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Advice for what was named.

    Attributes:
        name: What was named.
        advised: The advice.
        findings: What the readers noticed.
    """

    name: str
    advised: Advised
    findings: tuple[Finding, ...] = ()


def run(request: Request, *, progress: Progress | None = None) -> Outcome:
    """Find what to change.

    Raises:
        ConfigError: Nothing is called so, or the system cannot be simulated.
        TraceError: The job cannot be simulated, or holds no times and no system is given.
    """
    trace, job, parts = _open_job(request, progress)
    system = _choose_system(request, trace) or parts

    def tell(done: int, total: int) -> None:
        if progress:
            progress("simulating", done, total)

    advised = advise(trace, system, progress=tell)
    if request.keep:
        from studio.jobs.advising import keep_advice

        def report_progress(done: int, total: int) -> None:
            if progress:
                progress("storing", done, total)

        advised = keep_advice(open_workspace(request.workspace), job, trace, advised, tell=report_progress)
    return Outcome(", ".join(request.names), advised, trace.findings)


def _open_job(request: Request, progress: Progress | None) -> tuple[Trace, str, Parts | None]:
    """Return the job, its id where it is kept or stored, and the system of the run that was named."""
    names = request.names
    files: list[Path] = [Path(name) for name in names if Path(name).exists()]
    files = files if len(files) == len(names) else list(find_by_prefix(names[0])) if len(names) == 1 else []
    if files:
        if not request.keep:
            return read(files, ranks=request.ranks, progress=progress), "", None
        from studio.jobs.importing import open_paths

        workspace = open_workspace(request.workspace)
        jobs = open_paths(workspace, files, ranks=request.ranks, progress=progress)
        if len(jobs) > 1:
            raise ConfigError(
                f"{len(jobs)} jobs are named: {', '.join(jobs)}; allowed: one",
                hint="Name the files of one of them.",
            )
        return workspace.load(jobs[0]), jobs[0], None
    absent = next(name for name in names if not Path(name).exists())
    if len(names) > 1 or not choose_workspace_folder(request.workspace).is_dir():
        raise ConfigError(
            f"{absent!r}: no file or folder, no files {absent}.<rank>.et, and no workspace with runs"
            if len(names) == 1
            else f"{absent!r}: there is no such file or folder",
            hint="Name a folder of traces.",
        )
    workspace = open_workspace(request.workspace)
    job, stored = find_stored_run(workspace, absent)
    if stored == RECORDED:
        return workspace.load(job), job, None
    opened = workspace.load_run(job, stored)
    return opened.result.trace, job, opened.parts


def _choose_system(request: Request, trace: Trace) -> Parts | None:
    """Return the system that the options describe; None where they name none.

    Raises:
        ConfigError: There is no such preset or setting, or the files describe half a system.
    """
    if not (request.preset or request.system or request.network):
        given = "--model" if request.model else "--set" if request.settings else ""
        if given or request.remote_memory:
            raise ConfigError(
                f"{given or '--remote-memory'} is given without a system; allowed: beside --preset, or --system and --network",
                hint="`chakra-studio presets` lists the presets.",
            )
        return None
    if not request.preset and not (request.system and request.network):
        lacking = "--network" if request.system else "--system"
        raise ConfigError(f"{lacking} is missing", hint="ASTRA-sim's system and network files go together.")
    parts = Parts({}, {})
    if request.preset:
        npus = infer_npu_count(request.preset) or infer_completeness(trace).world
        parts = with_memory_for(preset(request.preset, npus).under(request.model or "full"), trace)
    given_files = astra.load_given(request.system, request.network, None, request.remote_memory)
    parts = replace(parts, **{**given_files, "names": {**parts.names, **given_files["names"]}})
    if request.model and not request.preset:
        parts = with_model(parts, request.model)
    return with_settings(parts, request.settings)


def report(outcome: Outcome) -> dict[str, Any]:
    """Return advice as plain data, times in nanoseconds."""
    return {"name": outcome.name, **as_data(outcome.advised)}


def text(outcome: Outcome) -> str:
    """Format advice for a terminal."""
    first, *rest = format_advice(outcome.advised)
    return "\n".join(escape_controls(line) for line in (f"{outcome.name}: {first}", *rest))


@click.command(help=__doc__, epilog="Example: chakra-studio advise traces/ --json")
@click.argument("names", metavar="JOB|RUN", nargs=-1, required=True, type=NameOrPath())
@click.option(
    "--preset",
    metavar="NAME",
    help="Simulate on this system, or system file (.yml); `chakra-studio presets` lists them.",
)
@click.option("--system", type=EXISTING_FILE, metavar="S.json", help="ASTRA-sim's system file.")
@click.option("--network", type=EXISTING_FILE, metavar="N.yml", help="ASTRA-sim's network file.")
@click.option("--remote-memory", type=EXISTING_FILE, metavar="M.json", help="Remote memory.")
@click.option(
    "--model", type=click.Choice(MODELS), help="Everything that is modelled, or the answers of ASTRA-sim."
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a key of the system; may be repeated."
)
@click.option(
    "--keep",
    is_flag=True,
    help="Keep the run of each saving above 1 % in the workspace, to open and compare it.",
)
@workspace_option
@json_option
@allow_damaged
@rank_option
@click.pass_context
def command(ctx: click.Context, /, as_json: bool, allow_damaged: bool, **given: Any) -> None:
    """Carry out `advise`."""
    outcome = run(Request(**given), progress=build_progress_line())
    show(outcome, as_json, report, text)
    end_with_losses(ctx, outcome.findings, allow_damaged, warned=False)
