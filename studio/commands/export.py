"""Write a job or run for other programs: a folder that another simulator runs unchanged, or tables as Parquet.

TARGET is parquet: the folder gets a file for each table that SQL can ask for (`chakra-studio sql --tables`), with times as they
were recorded or simulated. Or it is astra-sim: the folder holds the traces, comm groups, system, network and remote memory that its programs take,
run.sh, and README.md. JOB|RUN is a folder, files or the prefix of files of traces, or, in the workspace, a job or a run
(JOB/RUN). A run brings its system along; for a job --preset, or --system and --network, name it.

What ASTRA-sim would stop at is converted or left out, and counted by kind; what it cannot be made of is refused. The
exported job is simulated here as well: that is when ASTRA-sim should finish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import msgspec

from studio.analysis.job.completeness import infer_completeness
from studio.commands.base import parquet_folder
from studio.commands.base.astra_folder import refuse_taken, write_folder
from studio.commands.base.astra_job import Prepared, prepare
from studio.commands.base.backends import (
    BACKEND_NAMES,
    WORKLOAD,
    Backend,
    find_backend,
    get_analytical_backend,
)
from studio.commands.base.given_system import combine_parts
from studio.commands.base.names import find_stored_run
from studio.commands.base.options import (
    EXISTING_FILE,
    NameOrPath,
    PathOption,
    add_system_size_options,
    allow_damaged,
    json_option,
    quiet_option,
    rank_option,
    refuse_own_input,
    workspace_option,
)
from studio.commands.base.outcome import doubt_report
from studio.commands.base.output import build_progress_line, end_with_losses, show
from studio.commands.base.parquet_folder import Tables, write_tables
from studio.commands.base.prefix import build_missing_job_error, find_by_prefix
from studio.commands.base.simulation_request import SimulationRequest, with_system_file
from studio.commands.base.systems import label_system
from studio.commands.base.terminal import escape_controls
from studio.comparing import RECORDED
from studio.errors import ConfigError, StudioError
from studio.et import Progress, read
from studio.et.format import UNSAID, JobSize
from studio.sim import astra, simulate
from studio.sim.config import Congestion
from studio.sim.doubt import Doubt
from studio.sim.doubts import doubts_of
from studio.sim.parts import NO_CUSTOM, CustomAlgorithms, Parts
from studio.sim.remote_memory import with_memory_for
from studio.store.workspace import Workspace
from studio.trace import Finding, Trace
from studio.units import format_count, format_counted, format_ns

_ROOFLINE = "roofline-enabled"
_AWARE = "  --set congestion=aware exports it for a network in which messages wait for ports"
_ONE_CHUNK = "  --set active-chunks-per-dimension=1 exports it with one chunk at a time in a dimension, as its ports carry them"


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `export`.

    Attributes:
        target: A key of `TARGETS`.
        name: A path of traces, or a job or run of the workspace.
        folder: Where to write.
        preset: A system by name or a system file.
        system, network, comm_groups, remote_memory: ASTRA-sim's files.
        congestion: Which network; None is that of the run, else unaware.
        settings: KEY=VALUE each.
        backend: The backend whose program is to run it; None is the analytical one of that network.
        workspace: Its folder; None is the user's.
        ranks: Rank numbers by file name, for files that do not tell theirs.
        size: NPUs and passes, where a workload leaves them open.
    """

    target: str
    name: str
    folder: Path
    preset: str | None = None
    system: Path | None = None
    network: Path | None = None
    comm_groups: Path | None = None
    remote_memory: Path | None = None
    congestion: Congestion | None = None
    settings: tuple[str, ...] = ()
    backend: str | None = None
    workspace: Path | None = None
    ranks: Mapping[str, int] = field(default_factory=dict)
    size: JobSize = UNSAID

    @property
    def names_system(self) -> bool:
        """Whether it names a system, or a part of one."""
        return any((self.preset, self.system, self.network, self.remote_memory))


@dataclass(frozen=True, slots=True)
class Exported:
    """A folder that was written.

    Attributes:
        folder: Where it is.
        files: How many files it has.
        backend: Whose program is to run it.
        command: The program's arguments, relative to the folder.
        prepared: The job and the system in it.
        finish_ns: When it finishes, simulated here.
        run_finish_ns: When the run finished that was exported; None where a job was.
        given: What the reader of the job noticed.
        doubts: Why its finish is not to be believed as it stands.
    """

    folder: Path
    files: int
    backend: Backend
    command: tuple[str, ...]
    prepared: Prepared
    finish_ns: int
    run_finish_ns: int | None
    given: tuple[Finding, ...]
    doubts: tuple[Doubt, ...] = ()


@dataclass(frozen=True, slots=True)
class _Source:
    trace: Trace
    title: str
    parts: Parts | None = None
    custom: CustomAlgorithms = NO_CUSTOM
    finish_ns: int | None = None


def run(request: Request, *, progress: Progress | None = None) -> Exported | Tables:
    """Write the folder.

    Raises:
        ConfigError: Nothing is called so, no system is named, or ASTRA-sim has no such system.
        TraceError: ASTRA-sim would stop at the job.
        StudioError: The folder holds something else.
    """
    return TARGETS[request.target](request, progress)


def _export_astra_sim(request: Request, progress: Progress | None) -> Exported:
    refuse_taken(request.folder)
    files = _list_files(request)
    refuse_own_input(files, request.folder)
    refuse_own_input(files, (request.folder / WORKLOAD).parent)
    source = _from_files(request, files, progress) if files else _from_workspace(request)
    parts, custom, keeps = (
        (source.parts, source.custom, False) if source.parts else _choose_system(request, source.trace)
    )
    backend = find_backend(request.backend) if request.backend else None
    congestion = request.congestion or (backend.congestion if backend else None)
    prepared = prepare(source.trace, parts, custom, congestion=congestion, keep_durations=keeps)
    backend = backend or get_analytical_backend(prepared.config.congestion)
    _refuse_other_network(backend, prepared)
    result = simulate(prepared.trace, prepared.config)
    written = write_folder(prepared, request.folder, backend, title=source.title, progress=progress)
    return Exported(
        request.folder,
        len(written.files),
        backend,
        written.command,
        prepared,
        result.makespan_ns,
        source.finish_ns,
        source.trace.findings,
        doubts_of(result, prepared.parts),
    )


def _export_parquet(request: Request, progress: Progress | None) -> Tables:
    given = (request.names_system, request.comm_groups, request.congestion, request.settings, request.backend)
    if any(given):
        raise ConfigError(
            "parquet writes a job or run as it is, and a system is given as well; allowed: none",
            hint="Simulate the job on that system, keep the run by --out, and export the run.",
        )
    return write_tables(
        (request.name,), request.folder, (), request.workspace, request.ranks, progress, request.size
    )


TARGETS: Mapping[str, Callable[[Request, Progress | None], Exported | Tables]] = {
    "astra-sim": _export_astra_sim,
    "parquet": _export_parquet,
}
"""What a folder can be made for."""


def _refuse_other_network(backend: Backend, prepared: Prepared) -> None:
    if backend.congestion not in (None, prepared.config.congestion):
        raise ConfigError(
            f"--backend {backend.name}: has another network than --congestion {prepared.config.congestion} asks for; "
            "allowed: the same",
            hint="Leave one of the two out.",
        )


def _list_files(request: Request) -> list[Path]:
    path = Path(request.name)
    return [path] if path.exists() else list(find_by_prefix(request.name))


def _from_files(request: Request, files: list[Path], progress: Progress | None) -> _Source:
    size = request.size
    trace = read(list(files), ranks=request.ranks, progress=progress, npus=size.npus, passes=size.passes)
    return _Source(trace, Path(request.name).name)


def _from_workspace(request: Request) -> _Source:
    root = request.workspace or Workspace.default_root()
    if not root.is_dir():
        raise build_missing_job_error(request.name, "jobs")
    store = Workspace(root)
    job, name = find_stored_run(store, request.name)
    trace = store.load(job)
    title = store.info(job).name
    # A job that is named by itself, with a system, is exported on that system.
    if name == RECORDED or (request.names_system and request.name in (job, title)):
        return _Source(trace, title)
    if request.names_system:
        raise StudioError(
            f"{request.name!r} is a run, which has a system, and another one is named; allowed: one of both",
            hint=f"Name the job {job} to export it on another system.",
        )
    stored = store.load_run(job, name, trace)
    result = stored.result
    custom = CustomAlgorithms(result.config.custom, result.config.custom_nodes)
    return _Source(trace, f"{title}, {stored.name}", stored.parts, custom, result.makespan_ns)


def _choose_system(request: Request, trace: Trace) -> tuple[Parts, CustomAlgorithms, bool]:
    """Return the system that a job is exported on, and whether compute keeps its durations there as `simulate --preset` has it.

    That is not so of a roofline that ASTRA-sim's files or the user ask for.
    """
    asked = with_system_file(
        SimulationRequest(
            (request.name,),
            preset=request.preset,
            system=request.system,
            network=request.network,
            comm_groups=request.comm_groups,
            remote_memory=request.remote_memory,
            settings=request.settings,
            size=request.size,
            model="astra-sim",
        )
    )
    parts = combine_parts(asked, ranks=infer_completeness(trace).world)
    if asked.preset:
        parts = with_memory_for(parts, trace)
    is_asked = any(setting.partition("=")[0].strip() == _ROOFLINE for setting in request.settings)
    keeps = asked.preset is not None and not is_asked
    return parts, astra.read_custom_algorithms(parts.system, asked.system), keeps


def report(exported: Exported | Tables) -> dict[str, Any]:
    """Return what was written as plain data."""
    if isinstance(exported, Tables):
        return parquet_folder.report(exported)
    prepared = exported.prepared
    return {
        "folder": str(exported.folder),
        "files": exported.files,
        "backend": exported.backend.name,
        "program": exported.backend.program,
        "command": list(exported.command),
        "needs": exported.backend.needs,
        "ranks": len(prepared.trace.ranks),
        "nodes": prepared.trace.node_count,
        "npus": prepared.config.topology.npus,
        "congestion": prepared.config.congestion,
        "finish_ns": exported.finish_ns,
        "run_finish_ns": exported.run_finish_ns,
        "doubts": [doubt_report(doubt) for doubt in exported.doubts],
        "findings": msgspec.to_builtins(prepared.findings),
    }


def text(exported: Exported | Tables) -> str:
    """Format what was written, how to run it, and how it differs from the job."""
    if isinstance(exported, Tables):
        return parquet_folder.text(exported)
    prepared = exported.prepared
    finish = f"{format_ns(exported.finish_ns)}  ({format_count(exported.finish_ns)} ns), simulated here"
    if exported.run_finish_ns is not None:
        finish += _format_difference(exported.finish_ns, exported.run_finish_ns)
    ranks = format_counted(len(prepared.trace.ranks), "rank")
    nodes = format_counted(prepared.trace.node_count, "node")
    lines = [
        *(f"{doubt.mark}: {doubt.message}" for doubt in exported.doubts),
        *_list_cures(exported),
        f"{exported.folder}: {format_counted(exported.files, 'file')}, {ranks}, {nodes}",
        f"  system  {label_system(prepared.config)}",
        f"  finish  {finish}",
        f"  run it  {exported.folder}/run.sh /path/to/{exported.backend.program}",
    ]
    if exported.backend.needs:
        lines.append(f"  needs   {exported.backend.needs}")
    for finding in prepared.findings:
        lines.append(f"  {finding.level:7} {finding.message}")
        if finding.hint:
            lines.append(f"          {finding.hint}")
    return "\n".join(escape_controls(line) for line in lines)


def _list_cures(exported: Exported) -> Iterator[str]:
    """Yield what may cure a finish that is impossible for want of congestion.

    A network in which messages wait for ports, as ASTRA-sim has it of one dimension; or no more than one chunk of
    collectives in a dimension, where several pass its ports at once.
    """
    is_unaware = exported.backend.congestion == "unaware"
    if not is_unaware or not any(doubt.impossible for doubt in exported.doubts):
        return
    config = exported.prepared.config
    if len(config.topology.dims) == 1:
        yield _AWARE
    if config.splits > 1 and config.active_chunks > 1:
        yield _ONE_CHUNK


def _format_difference(finish_ns: int, run_ns: int) -> str:
    if finish_ns == run_ns:
        return ", as the run"
    return f"; the run took {format_ns(run_ns)} ({100 * (finish_ns - run_ns) / max(run_ns, 1):+.1f} %)"


@click.command(
    help=__doc__, epilog="Example: chakra-studio export astra-sim traces/ -o for-astra-sim/ --preset hgx-h100"
)
@click.argument("target", type=click.Choice(list(TARGETS)))
@click.argument("name", metavar="JOB|RUN", type=NameOrPath())
@click.option(
    "-o",
    "--output",
    "folder",
    required=True,
    metavar="DIR",
    type=PathOption(file_okay=False),
    help="The folder to write.",
)
@click.option(
    "--preset", metavar="NAME", help="A system by name, or a system file (.yml); with as many NPUs as ranks."
)
@click.option(
    "--system",
    type=EXISTING_FILE,
    metavar="S.json",
    help="ASTRA-sim's system file, or a system file (.yml).",
)
@click.option("--network", type=EXISTING_FILE, metavar="N.yml", help="ASTRA-sim's network file.")
@click.option(
    "--comm-groups", type=PathOption(dir_okay=False), metavar="G.json", help="Comm groups of the job."
)
@click.option("--remote-memory", type=EXISTING_FILE, metavar="M.json", help="Remote memory.")
@click.option(
    "--congestion",
    type=click.Choice(["aware", "unaware"]),
    help="Which of ASTRA-sim's two analytical networks.  [default: that of the run; unaware]",
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a key of the files; may be repeated."
)
@click.option(
    "--backend",
    type=click.Choice(BACKEND_NAMES),
    help="The network backend of the program that is to run it.  [default: analytical]",
)
@json_option
@quiet_option
@workspace_option
@allow_damaged
@rank_option
@add_system_size_options
@click.pass_context
def command(ctx: click.Context, /, as_json: bool, quiet: bool, allow_damaged: bool, **given: Any) -> None:
    """Carry out `export`."""
    size = JobSize(given.pop("npus"), given.pop("passes"))
    exported = run(Request(**given, size=size), progress=build_progress_line())
    if as_json or not quiet:
        show(exported, as_json, report, text)
    end_with_losses(ctx, exported.given, allow_damaged, warned=False)
