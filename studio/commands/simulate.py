"""Simulate a job on a system and print how long it takes.

WORKLOAD is a folder, files, the prefix of files <prefix>.<rank>.et, or the id of a job in the workspace.
The system is a preset, or ASTRA-sim's files; --set changes keys of either.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from studio.analysis.job.completeness import completeness, is_recording
from studio.analysis.job.memory import memory_use
from studio.commands.base.backends import BACKEND_NAMES, DEFAULT_TIMEOUT_S
from studio.commands.base.losses import STATUS
from studio.commands.base.options import (
    EXISTING_FILE,
    PathOption,
    Seconds,
    allow_damaged,
    gpu_options,
    rank_option,
    system_size_options,
    workspace_option,
)
from studio.commands.base.outcome import Outcome, report, text
from studio.commands.base.output import end_with_losses, progress_line, say_wait, show
from studio.commands.base.prefix import find_by_prefix
from studio.errors import ConfigError, StudioError, TraceError
from studio.et import read
from studio.et.format import UNSAID, JobSize
from studio.sim import astra, remote_memory, simulate
from studio.sim.check import REPLAY_KNOWN, check
from studio.sim.config import Congestion, SystemConfig
from studio.sim.doubt import Cured
from studio.sim.doubted_memory import unfit_words
from studio.sim.doubts import FORESEEN, cured, doubts_of, options_of
from studio.sim.extensions import ComputeTimes
from studio.sim.models import MODELS, Model, model_of, with_model
from studio.sim.parts import Mode, Parts, interpret, with_mode, with_settings
from studio.sim.presets import PRESETS, preset, said_npus
from studio.sim.remote_memory import with_memory_for
from studio.sim.replays import as_replay, idle_system
from studio.sim.result import SimResult
from studio.sim.systems import SYSTEMS, is_system_file
from studio.trace import Finding, Trace, recorded_devices, trace_digest

if TYPE_CHECKING:
    from studio.commands.base.astra_folder import Prepared
    from studio.commands.base.engine import Engine, EngineRun
    from studio.store.workspace import Workspace

Progress = Callable[[str, int, int], None]
Notice = Callable[[str], None]
_TOLD = 8
_SIMULATING = "simulating"


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `simulate`.

    Attributes:
        workload: Folders or files, the common prefix of files, or the id of a job in the workspace.
        preset: A system by name or a system file; files given beside it take the place of its own.
        system, network, comm_groups, remote_memory: ASTRA-sim's files.
        congestion: Whether messages wait for each other; None is that of the model.
        options: Options of ASTRA-sim's command line, without dashes.
        settings: KEY=VALUE each, the last word on any key of the files.
        time_limit_s: Stop after this long; None never.
        events: File to write the events into, as its suffix asks for; None for none.
        workspace: Its folder; None is the user's.
        ranks: Rank numbers by file name, for files that do not tell theirs.
        size: NPUs and passes, where a workload leaves them open; a preset has as many NPUs.
        model: `full` or `astra-sim`; None is full for a preset, and what the files ask for where ASTRA-sim's are given.
        mode: Which mode; None is that of the model.
        compute_times: Whether nodes keep recorded durations, or all are computed by the roofline; None is the system's.
        gpu: The GPU that operations of a recorded device are recomputed for; None keeps what was recorded.
        recorded_gpu: The GPU they were recorded on; None is the one that the trace names.
        out: Name of the run to keep in the workspace; None keeps none.
        cure: Whether to simulate again with the cures of what makes the answer doubtful.
        replay: Whether recorded times count, of communication too; then the system may be left out.
        engine: ASTRA-sim's own program, to run on the same and compare with; None runs none.
    """

    workload: tuple[str, ...]
    preset: str | None = None
    system: Path | None = None
    network: Path | None = None
    comm_groups: Path | None = None
    remote_memory: Path | None = None
    congestion: Congestion | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    settings: tuple[str, ...] = ()
    time_limit_s: float | None = None
    events: Path | None = None
    workspace: Path | None = None
    ranks: Mapping[str, int] = field(default_factory=dict)
    size: JobSize = UNSAID
    model: Model | None = None
    mode: Mode | None = None
    compute_times: ComputeTimes | None = None
    gpu: str | None = None
    recorded_gpu: str | None = None
    out: str | None = None
    cure: bool = False
    replay: bool = False
    engine: Engine | None = None


def run(request: Request, *, progress: Progress | None = None, notice: Notice | None = None) -> Outcome:
    """Simulate a job; with the options, store the run and write its events.

    Args:
        request: What to simulate.
        progress: Told how far it is.
        notice: Told what is waited for, where that takes long.

    Raises:
        ConfigError: The system cannot be simulated.
        TraceError: The job cannot, some ranks wait for ever, or the time limit has passed.
    """
    if request.events is not None:
        from studio.commands.base.timelines import refuse_unwritable

        refuse_unwritable(request.events)
    if request.engine is not None:
        request = _for_engine(request)
    outcome, parts = _outcome(request, progress, notice)
    if outcome.job is not None and request.out is not None:
        from studio.store.runs import Run

        kept = Run(request.out, outcome.result, parts, outcome.spent_s, outcome.doubts, outcome.cures)
        outcome = replace(outcome, run=_workspace(request).save_run(outcome.job, kept))
        if outcome.engine is not None and outcome.engine.result is not None:
            outcome = replace(outcome, engine=_kept_engine(request, outcome, parts))
    if request.events is not None:
        from studio.commands.base.timelines import write_events

        write_events(outcome.result, request.events)
    return outcome


def _outcome(request: Request, progress: Progress | None, notice: Notice | None) -> tuple[Outcome, Parts]:
    """Simulate a job and return the outcome with the system's tables; with `--out`, import the job first."""
    _refuse_conflict(request)
    limit = Limit(time.monotonic(), request.time_limit_s)
    reading = limit.watch(progress)
    # Without a system, a job that needs no network gets one of its size; otherwise report mistakes before reading files.
    request = with_system_file(request)
    left_out = not (request.preset or request.system or request.network)
    is_open = (left_out and (request.replay or _is_soon_read(request))) or is_size_open(request)
    parts = None if is_open else parts_for(request)
    read_config = None if parts is None else _read_parts(parts, request)
    job = None if request.out is None else kept_job(request, reading)
    trace = workload(request, reading) if job is None else _workspace(request).load(job)
    chosen: tuple[Finding, ...] = ()
    if left_out and not request.replay:
        request, chosen = _with_recorded_system(request, trace)
    if parts is None or read_config is None:
        parts = parts_for(
            request, _under_model(_system_for(request, trace), request), ranks=completeness(trace).world
        )
        read_config = _read_parts(parts, request)
    if request.preset and (known := with_memory_for(parts, trace)) is not parts:
        # Presets are machines, and say nothing of what a job keeps elsewhere.
        parts, read_config = known, _read_parts(known, request)
        chosen = (*chosen, remote_memory.FINDING)
    prepared = None
    if request.engine is not None:
        prepared, job = _prepared(request, trace, parts, job)
        trace, parts = prepared.trace, prepared.parts
        read_config = astra.Imported(prepared.config)
        told_before = {finding.message for finding in check(trace, prepared.config)}
        rest = (finding for finding in prepared.findings if finding.message not in told_before)
        chosen = (*chosen, *rest)
    # The order of events across ranks needs every rank simulated.
    every_rank = request.events is not None and _in_order(request.events)

    def simulated(system: astra.Imported) -> Outcome:
        findings = (*system.findings, *check(trace, system.config))
        _refuse(findings, _size_hint(request.preset, len(trace.ranks)) if request.preset else "")
        begun = time.monotonic()
        result = _simulate(trace, system.config, limit, progress, notice, fold=not every_rank)
        spent_s = time.monotonic() - begun
        doubts = doubts_of(result)
        rest = (finding for finding in findings if finding.code not in FORESEEN)
        told = (*chosen, *rest, *(doubt.finding for doubt in doubts), *_unfit(request, result))
        return Outcome(", ".join(request.workload), result, told, spent_s, every_rank, job, doubts=doubts)

    outcome = simulated(read_config)
    if prepared is not None and request.engine is not None:
        from studio.commands.base.engine import run_engine

        return replace(outcome, engine=run_engine(request.engine, prepared, outcome.result, progress)), parts
    options = options_of(outcome.doubts)
    if not (request.cure and options):
        return outcome, parts
    parts = cured(parts, outcome.doubts)
    again = simulated(_read_parts(parts, request))
    cures = Cured(options, outcome.result.makespan_ns)
    return replace(again, cures=cures, cured_doubts=outcome.doubts), parts


def _for_engine(request: Request) -> Request:
    """Return a request for ASTRA-sim's model, which is that of its program.

    Raises:
        ConfigError: Options ask for what ASTRA-sim has not, or the program cannot be run.
    """
    from studio.commands.base.engine import find_program

    asked = {"--model full": request.model == "full", "--mode extended": request.mode == "extended"}
    asked |= {"--replay": request.replay, "--cure": request.cure}
    for option, given in asked.items():
        if given:
            raise ConfigError(
                f"{option} is given beside --engine; allowed: the model astra-sim, which is that of the program",
                hint="Leave one of the two out.",
            )
    if request.engine is not None:
        find_program(request.engine.program)
    return replace(request, model="astra-sim")


def _prepared(request: Request, trace: Trace, parts: Parts, job: str | None) -> tuple[Prepared, str | None]:
    """Return job and system as ASTRA-sim takes them, and the stored job that runs of them belong to."""
    from studio.commands.base.astra_folder import prepare

    prepared = prepare(trace, parts, astra.custom_algorithms(parts.system, request.system))
    if job is None or not prepared.changed:
        return prepared, job
    store = _workspace(request)
    known = store.info(job)
    mark = f"for-astra-sim {trace_digest(prepared.trace)}"
    found = store.find(mark)
    words = f"{known.name}, as ASTRA-sim takes it"
    made = found.id if found else store.save(prepared.trace, words, source=known.source, fingerprint=mark)
    return prepared, made


def _kept_engine(request: Request, outcome: Outcome, parts: Parts) -> EngineRun:
    """Keep what an engine found as a run of its own, beside ours; where its log is not whole there is none."""
    from studio.store.runs import Run

    found = outcome.engine
    if found is None or found.result is None or outcome.job is None:
        raise AssertionError("there is no run of an engine to keep")
    name = f"{request.out} by {Path(found.program).name}"
    run_id = _workspace(request).save_run(outcome.job, Run(name, found.result, parts, found.spent_s, ()))
    return replace(found, run=run_id)


def _unfit(request: Request, result: SimResult) -> tuple[Finding, ...]:
    """Warn where the job held more memory than a GPU of the preset has; with `--gpu` a doubt tells of that GPU."""
    gpu = preset(request.preset).system.gpu if request.preset and not request.gpu else None
    if gpu is None:
        return ()
    words = unfit_words(memory_use(result.trace, result.node_times(), estimated=False), gpu)
    return (Finding("warning", "does-not-fit", words),) if words else ()


_FEW_FILES = 4
"""So many files are read before a missing system is reported: the job may be of one rank, which needs none."""


def _is_soon_read(request: Request) -> bool:
    """Whether the workload is stored, or few files."""
    given = map(Path, _files(request))
    each = (path.rglob("*") if path.is_dir() else (path,) for path in given)
    return len(list(islice(chain.from_iterable(each), _FEW_FILES + 1))) <= _FEW_FILES


def _system_for(request: Request, trace: Trace) -> Parts | None:
    """Return the system of a job where none was given and no message needs one; None where one is given, or has to be.

    Raises:
        TraceError: Ranks are missing, so that the job cannot be simulated on any.
    """
    if request.preset:
        return None
    job = completeness(trace)
    if request.replay:
        return idle_system(job.world)
    if not job.is_whole and is_recording(trace):
        raise TraceError(job.sentence(), hint=REPLAY_KNOWN)
    return idle_system(1) if job.world == 1 else None


def _with_recorded_system(request: Request, trace: Trace) -> tuple[Request, tuple[Finding, ...]]:
    """Return a request for the built-in system that has the device a job was recorded on, and what to say of it.

    The request stays as it is where the job needs no network, ranks are missing, or no system or several have the devices.
    """
    job = completeness(trace)
    if job.world < 2 or not job.is_whole:
        return request, ()
    from studio.calibration.machines import system_for

    devices = recorded_devices(trace)
    systems = {system.name for device in devices if (system := system_for(device)) is not None}
    if len(systems) != 1:
        return request, ()
    [name] = systems
    message = f"Simulated on {name}, which has the recorded device ({', '.join(sorted(devices))}); the network is that of the preset."
    finding = Finding("info", "system-chosen", message, "Give --preset for another system.")
    return replace(request, preset=name), (finding,)


def _under_model(parts: Parts | None, request: Request) -> Parts | None:
    """Return a system that no file describes under the model that counts without one, the full one."""
    if parts is None or request.replay or request.mode or request.congestion:
        return parts
    return with_model(parts, request.model or "full")


def _refuse(findings: Sequence[Finding], size_hint: str) -> None:
    """Raise the errors of a check before the run, with its warnings as context.

    Args:
        findings: What reading and checking brought to light.
        size_hint: How to get a preset of as many NPUs as the job has ranks, where a preset was asked for.
    """
    errors = [finding for finding in findings if finding.level == "error"]
    if not errors:
        return
    more = f"\nAnd {len(errors) - _TOLD:,} more." if len(errors) > _TOLD else ""
    rest = "".join(f"\nAlso: {finding.message}" for finding in errors[1:_TOLD]) + more
    warnings = [finding for finding in findings if finding.level == "warning"]
    rest += "".join(f"\nWarning: {_with_hint(finding)}" for finding in warnings[:_TOLD])
    hint = errors[0].hint
    if errors[0].code in ("ranks-missing", "ranks-beyond"):
        hint = f"{hint} {size_hint}".rstrip()
    raise TraceError(f"The job cannot be simulated: {errors[0].message}{rest}", hint=hint)


def _with_hint(finding: Finding) -> str:
    return f"{finding.message} {finding.hint}".rstrip()


def _size_hint(name: str, npus: int) -> str:
    """Say how to get a preset of this size; empty where there is none."""
    system = preset(name).system
    if system.fits(npus):
        return f"Without a size, --preset {system.name} has as many NPUs as the job has ranks."
    fitting = [name for name, one in SYSTEMS.items() if one.fits(npus)]
    return f"Presets of this size: {', '.join(fitting)}."


@dataclass(slots=True)
class Limit:
    """A time limit that stops reading or a simulation and records its progress.

    Attributes:
        started: When the clock began, by `time.monotonic`.
        seconds: How long it may take; None for ever.
        phase: What is being done; "" before anything was.
        done, total: How far it is: bytes read, or nodes completed, and of how many.
    """

    started: float
    seconds: float | None
    phase: str = ""
    done: int = 0
    total: int = 0

    def is_over(self) -> bool:
        """Whether the time is up."""
        return self.seconds is not None and time.monotonic() - self.started > self.seconds

    def error(self) -> TraceError:
        """Return the error for a simulation that ran out of time."""
        share = 100 * self.done // max(self.total, 1)
        how_far = "it had not begun"
        if self.phase == _SIMULATING and self.total:
            how_far = f"{share} % of its nodes were complete"
        elif self.phase and self.phase != _SIMULATING:
            how_far = f"{self.phase} its files had come to {share} %"
        return TraceError(
            f"The simulation was stopped after the time limit of {self.seconds:g} s; {how_far}.",
            hint="Raise --time-limit, or leave it out.",
        )

    def watch(self, progress: Progress | None) -> Progress | None:
        """Return a progress callback that passes on what it is told, and raises once the time is up."""
        if self.seconds is None:
            return progress

        def tell(phase: str, done: int, total: int) -> None:
            self.phase, self.done, self.total = phase, done, total
            if self.is_over():
                raise self.error()
            if progress:
                progress(phase, done, total)

        return tell


def _simulate(
    trace: Trace,
    config: SystemConfig,
    limit: Limit,
    progress: Progress | None,
    notice: Notice | None,
    *,
    fold: bool,
) -> SimResult:
    from studio.sim.engine import Cancelled

    def tell(done: int, total: int) -> None:
        limit.done, limit.total = done, total
        if progress:
            progress(_SIMULATING, min(done, total), total)

    limit.phase, limit.done, limit.total = _SIMULATING, 0, 0
    if limit.is_over():
        raise limit.error()
    try:
        return simulate(trace, config, progress=tell, cancel=limit.is_over, notice=notice, fold=fold)
    except Cancelled:
        raise limit.error() from None


# ---------------------------------------------------------------------------------------------------
# The job and the system


def workload(request: Request, progress: Progress | None = None) -> Trace:
    """Read the job named on the command line.

    Raises:
        StudioError: There is nothing of this name, or it cannot be read.
    """
    files = _files(request)
    if files:
        size = _job_size(request)
        return read(files, ranks=request.ranks, progress=progress, npus=size.npus, passes=size.passes)
    return _workspace(request).load(_job(request))


def kept_job(request: Request, progress: Progress | None = None) -> str:
    """Return the stored job; files not yet in the workspace are imported.

    Raises:
        StudioError: There is nothing of this name, or it cannot be read or stored.
    """
    files = _files(request)
    if not files:
        return _job(request)
    from studio.jobs.importing import open_paths

    size = _job_size(request)
    jobs = open_paths(_workspace(request), files, ranks=request.ranks, progress=progress, size=size)
    if len(jobs) > 1:
        raise ConfigError(
            f"WORKLOAD holds {len(jobs)} jobs: {', '.join(jobs)}; allowed: one",
            hint="Name the files of one of them.",
        )
    return jobs[0]


def _files(request: Request) -> list[Path | str]:
    """Return the files or folders that the workload names; empty if it may name a stored job."""
    names = list(request.workload)
    absent = [name for name in names if not Path(name).exists()]
    if not absent:
        return list(names)
    if len(names) > 1:
        raise ConfigError(f"WORKLOAD {absent[0]!r}: there is no such file or folder")
    return list(find_by_prefix(absent[0]))


def _root(request: Request) -> Path:
    # Most simulations need no workspace; what it imports takes longer than they do.
    from studio.store.workspace import Workspace

    return request.workspace or Workspace.default_root()


def _workspace(request: Request) -> Workspace:
    from studio.store.workspace import Workspace

    return Workspace(_root(request))


def _in_order(path: Path) -> bool:
    from studio.commands.base.timelines import in_order

    return in_order(path)


def _job(request: Request) -> str:
    """Find the stored job that the workload names."""
    [name] = request.workload
    nothing = f"WORKLOAD {name!r}: no file or folder, no files {name}.<rank>.et"
    root = _root(request)
    if not root.is_dir():
        raise ConfigError(f"{nothing}, and no workspace with jobs", hint="Name a folder of traces.")
    try:
        return _workspace(request).info(name).id
    except StudioError as error:
        raise ConfigError(
            f"{nothing}, no job of the workspace {root}",
            hint=error.hint if "nearest" in error.hint else "Name a folder of traces.",
        ) from error


def with_system_file(request: Request) -> Request:
    """Return a request in which a system file given as --system is the preset.

    Raises:
        ConfigError: A preset is named too.
    """
    if request.system is None or not is_system_file(request.system):
        return request
    if request.preset is not None:
        raise ConfigError(
            f"--system is the system file {request.system}, and --preset {request.preset!r}; allowed: one of both",
            hint="A system file holds a whole system, as a preset does; ASTRA-sim's system files end in .json.",
        )
    return replace(request, preset=str(request.system), system=None)


def is_size_open(request: Request) -> bool:
    """Whether the job says how many NPUs the preset has.

    Raises:
        ConfigError: There is no such preset, or its name and --npus disagree.
    """
    return request.preset is not None and _npus(request) is None


def _npus(request: Request) -> int | None:
    """Return how many NPUs are asked for: by --npus, or by the name of the preset; None where neither says it."""
    asked = request.size.npus
    said = said_npus(request.preset) if request.preset is not None else None
    if asked is not None and said is not None and asked != said:
        raise ConfigError(
            f"--npus is {asked:,}, and the preset {request.preset} has {said:,} NPUs; allowed: the same number",
            hint="Leave one of the two out.",
        )
    return asked if said is None else said


def _job_size(request: Request) -> JobSize:
    """Return the size of a text workload: as many NPUs as are asked of the system."""
    return replace(request.size, npus=_npus(request))


def parts_for(request: Request, instead: Parts | None = None, *, ranks: int | None = None) -> Parts:
    """Combine the configuration: preset, then files, then `--set`.

    Args:
        request: What is asked for.
        instead: What counts in place of a preset where none is named.
        ranks: Ranks of the job: the size of a preset where nothing else says it.

    Raises:
        ConfigError: Neither preset nor files, an unknown preset or setting, or a file that cannot be read.
    """
    base = _preset(request, ranks) if request.preset else instead
    if base is None and not (request.system and request.network):
        lacking = [
            name for name, path in (("--system", request.system), ("--network", request.network)) if not path
        ]
        raise ConfigError(
            f"No system to simulate on: {' and '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} missing",
            hint=f"Give --system and --network, or --preset with one of: {', '.join(PRESETS)}.",
        )
    parts = _with_files(base or Parts({}, {}), request)
    parts = with_model(parts, request.model) if request.model else parts
    congestion = request.congestion or parts.congestion
    parts = replace(parts, congestion=congestion, options={**parts.options, **request.options})
    parts = as_replay(parts) if request.replay else parts
    parts = with_settings(parts, [*_compute_setting(request), *_gpu_settings(request), *request.settings])
    parts = with_mode(parts, request.mode) if request.mode else parts
    _refuse_other_model(parts, request)
    return parts


def _preset(request: Request, ranks: int | None) -> Parts:
    """Return the system of a preset: under the full model, or where files, mode or congestion are given that of ASTRA-sim."""
    one = preset(request.preset or "", _npus(request) or ranks)
    # A congestion that is set by key counts as one that is given.
    given = any(setting.partition("=")[0].strip() == "congestion" for setting in request.settings)
    if (
        request.system
        or request.network
        or ((request.mode or request.congestion or given) and not request.model)
    ):
        return one.under("astra-sim")
    return one.under(request.model or "full")


def _compute_setting(request: Request) -> list[str]:
    """Return the setting that says how long compute takes, where an option asks for one; the roofline is then on."""
    if request.compute_times is None:
        return []
    if request.model == "astra-sim" or request.mode == "compatible":
        raise ConfigError(
            "--compute-times is given beside ASTRA-sim's model; allowed: with the model full",
            hint="There a system with a roofline replaces every recorded time: --set roofline-enabled=0 keeps them.",
        )
    setting = f"extended.compute-times={request.compute_times}"
    return [setting, "roofline-enabled=1"] if request.compute_times == "roofline" else [setting]


def _gpu_settings(request: Request) -> list[str]:
    """Return the settings that recompute durations for another GPU, where an option asks for one."""
    given = {"recompute-for": request.gpu, "recorded-gpu": request.recorded_gpu}
    asked = {key: value for key, value in given.items() if value is not None}
    if asked and (request.model == "astra-sim" or request.mode == "compatible"):
        option = "--gpu" if request.gpu else "--recorded-gpu"
        raise ConfigError(
            f"{option} is given beside ASTRA-sim's model; allowed: with the model full",
            hint="ASTRA-sim does not recompute recorded durations; leave out --model, --mode and --congestion.",
        )
    if request.recorded_gpu and not request.gpu:
        raise ConfigError(
            "--recorded-gpu is given without --gpu; allowed: both",
            hint="--gpu names the GPU to recompute for.",
        )
    return [f"extended.{key}={value}" for key, value in asked.items()]


_OF_MODEL: Mapping[Model, tuple[Mode, Congestion | None]] = {
    "full": ("extended", "aware"),
    "astra-sim": ("compatible", None),
}
"""The mode and the congestion that a model has; None is either."""


def _refuse_conflict(request: Request) -> None:
    """Raise a ConfigError for a mode or a congestion that the model asked for does not have."""
    if request.model is None:
        return
    mode, congestion = _OF_MODEL[request.model]
    for option, given, has in (
        ("--mode", request.mode, mode),
        ("--congestion", request.congestion, congestion),
    ):
        if given and has and given != has:
            raise ConfigError(
                f"{option} is {given!r} beside --model {request.model}; allowed there: {has}",
                hint=f"Leave one of the two out: --model {request.model} says {option} {has}.",
            )


def _refuse_other_model(parts: Parts, request: Request) -> None:
    """Raise a ConfigError where settings made another model than the one asked for."""
    made = model_of(parts)
    if request.model and made != request.model and not request.replay:
        raise ConfigError(
            f"--set makes it the model {made}; allowed with --model {request.model}: settings of that model",
            hint="Leave --model out, or the settings extended.… and congestion.",
        )


def _read_parts(parts: Parts, request: Request) -> astra.Imported:
    return interpret(parts, astra.custom_algorithms(parts.system, request.system))


def _with_files(parts: Parts, request: Request) -> Parts:
    """Replace tables by those of the given files."""
    given = astra.load_given(request.system, request.network, request.comm_groups, request.remote_memory)
    return replace(parts, **{**given, "names": {**parts.names, **given["names"]}})


# ---------------------------------------------------------------------------------------------------
# Reports


@click.command(
    help=__doc__,
    epilog="Example: chakra-studio simulate traces/ --preset hgx-h100-8 --set preferred-dataset-splits=8",
)
@click.argument("workload", nargs=-1, required=True)
@click.option(
    "--system",
    "--system-configuration",
    type=EXISTING_FILE,
    metavar="S.json",
    help="ASTRA-sim's system file, or a system file (.yml), which holds a whole system.",
)
@click.option(
    "--network",
    "--network-configuration",
    type=EXISTING_FILE,
    metavar="N.yml",
    help="ASTRA-sim's network file.",
)
@click.option(
    "--comm-groups",
    "--comm-group-configuration",
    type=PathOption(dir_okay=False),
    metavar="G.json",
    help="Comm groups, instead of those beside the traces.",
)
@click.option(
    "--remote-memory",
    "--remote-memory-configuration",
    type=EXISTING_FILE,
    metavar="M.json",
    help="Remote memory.",
)
@click.option(
    "--preset",
    metavar="NAME",
    help="A system by name, or a system file (.yml); `chakra-studio presets` lists them. It has --npus NPUs, or as many as the job has ranks.",
)
@click.option(
    "--model",
    type=click.Choice(MODELS),
    help="Everything that is modelled, or the answers of ASTRA-sim.  [default: full; what the files say, with --system or --network]",
)
@click.option(
    "--mode",
    type=click.Choice(["compatible", "extended"]),
    help="ASTRA-sim's answers, or also what ASTRA-sim lacks; a part of the model.",
)
@click.option(
    "--congestion",
    type=click.Choice(["aware", "unaware"]),
    help="Whether messages wait for each other on links; a part of the model.",
)
@click.option(
    "--compute-times",
    type=click.Choice(["recorded", "roofline"]),
    help="Whether compute keeps its recorded times, or all is computed for this GPU.  [default: recorded]",
)
@gpu_options
@click.option("--num-queues-per-dim", metavar="N", help="Queues per dimension  [default: 1]")
@click.option("--injection-scale", metavar="X", help="Factor on the endpoint delay  [default: 1]")
@click.option(
    "--rendezvous-protocol", metavar="BOOLEAN", help="Whether senders wait for receivers  [default: false]"
)
@click.option("--comm-scale", metavar="X", hidden=True, help="Accepted and without effect, as in ASTRA-sim.")
@click.option(
    "--compute-scale", metavar="X", hidden=True, help="Accepted and without effect, as in ASTRA-sim."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a key of the files; may be repeated.",
)
@click.option(
    "--replay",
    is_flag=True,
    help="Use recorded times, for communication too, and compare the steps with the recording. Needs no system.",
)
@click.option(
    "--cure",
    is_flag=True,
    help="Where the answer is doubtful, simulate again with what cures it, and print both times.",
)
@click.option("--out", metavar="RUN", help="Keep the simulation in the workspace under this name.")
@click.option(
    "--events",
    type=PathOption(dir_okay=False),
    metavar="FILE",
    help="Write issue and callback lines; a Chrome trace if FILE ends in .json, Perfetto's format if in .pftrace.",
)
@click.option(
    "--engine",
    "program",
    metavar="PROGRAM",
    help="Run ASTRA-sim's own program on the same as well, and compare what it finds with ours.",
)
@click.option(
    "--engine-backend",
    type=click.Choice(BACKEND_NAMES),
    help="The network backend it was built with.  [default: what its name tells]",
)
@click.option(
    "--engine-timeout",
    type=Seconds(),
    default=DEFAULT_TIMEOUT_S,
    metavar="SECONDS",
    help="End it after this time.  [default: 600]",
)
@click.option(
    "--engine-arg",
    "engine_arguments",
    multiple=True,
    metavar="WORD",
    help="A further argument of it, such as --network-configuration=FILE of ns-3; may be repeated.",
)
@click.option(
    "--time-limit",
    type=Seconds(),
    metavar="SECONDS",
    help="Stop after this time.",
)
@workspace_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON: everything, per rank and per link.")
@allow_damaged
@rank_option
@system_size_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    workload: tuple[str, ...],
    settings: tuple[str, ...],
    time_limit: float | None,
    as_json: bool,
    allow_damaged: bool,
    **given: Any,
) -> None:
    """Carry out `simulate`."""
    words = ("num_queues_per_dim", "injection_scale", "rendezvous_protocol", "comm_scale", "compute_scale")
    options = {word.replace("_", "-"): given.pop(word) for word in words}
    engine = _engine(*(given.pop(f"{word}") for word in _ENGINE_WORDS))
    request = Request(
        workload,
        options={key: value for key, value in options.items() if value is not None},
        settings=settings,
        time_limit_s=time_limit,
        size=JobSize(given.pop("npus"), given.pop("passes")),
        engine=engine,
        **given,
    )
    outcome = run(request, progress=progress_line(), notice=say_wait)
    show(outcome, as_json, report, text)
    end_with_losses(ctx, outcome.result.trace.findings, allow_damaged, warned=False)
    if outcome.engine is not None and outcome.engine.unfinished:
        # It did what it was asked for, with less than there should be.
        ctx.exit(STATUS)


_ENGINE_WORDS = ("program", "engine_backend", "engine_timeout", "engine_arguments")


def _engine(
    program: str | None, backend: str | None, timeout_s: float, arguments: tuple[str, ...]
) -> Engine | None:
    if program is None:
        for option, given in (("--engine-backend", backend), ("--engine-arg", arguments)):
            if given:
                raise click.UsageError(f"{option} is given without --engine.")
        return None
    from studio.commands.base.engine import Engine

    return Engine(program, backend, timeout_s, arguments)
