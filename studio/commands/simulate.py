"""Simulate a job on a system and print how long it takes.

WORKLOAD is a folder, files, the prefix of files <prefix>.<rank>.et, or the id of a job in the workspace.
The system is a preset, or ASTRA-sim's files; --set changes keys of either.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from studio.analysis.job.completeness import infer_completeness
from studio.analysis.job.memory import compute_memory_use
from studio.commands.base.backends import BACKEND_NAMES, DEFAULT_TIMEOUT_S
from studio.commands.base.given_job import import_job, is_soon_read, open_workspace, read_job
from studio.commands.base.given_system import (
    assume_model,
    assume_system,
    combine_parts,
    explain_sizes,
    read_parts,
    refuse_conflict,
    with_recorded_system,
)
from studio.commands.base.losses import STATUS
from studio.commands.base.options import (
    EXISTING_FILE,
    NameOrPath,
    PathOption,
    Seconds,
    add_gpu_options,
    add_system_size_options,
    allow_damaged,
    rank_option,
    workspace_option,
)
from studio.commands.base.outcome import Outcome, report, text
from studio.commands.base.output import build_progress_line, end_with_losses, say_wait, show
from studio.commands.base.simulation_request import SimulationRequest, is_size_open, with_system_file
from studio.commands.base.time_limit import SIMULATING, TimeLimit
from studio.errors import ConfigError, TraceError
from studio.et.format import JobSize
from studio.sim import astra, remote_memory, simulate
from studio.sim.check import check
from studio.sim.choices import SLOWER_WAY, find_slower_ways
from studio.sim.config import SystemConfig
from studio.sim.doubt import Cured
from studio.sim.doubt_facts import Facts
from studio.sim.doubted_memory import describe_unfit
from studio.sim.doubts import FORESEEN, apply_cures, format_cure_options, list_doubts
from studio.sim.idle_settings import find_idle_settings
from studio.sim.models import MODELS
from studio.sim.parts import Parts
from studio.sim.presets import preset
from studio.sim.remote_memory import with_memory_for
from studio.sim.result import SimResult
from studio.sim.retargeting import check_kept_durations
from studio.sim.unrecorded import check_missing_facts
from studio.trace import Finding, Trace, compute_trace_digest

if TYPE_CHECKING:
    from studio.commands.base.astra_job import Prepared
    from studio.commands.base.engine import Engine
    from studio.commands.base.engine_run import EngineRun

Progress = Callable[[str, int, int], None]
Notice = Callable[[str], None]
Request = SimulationRequest
_TOLD = 8
_ACROSS_RANKS = ("collectives-disagree", "receive-unmatched")
"""What may be for want of a fact that was not recorded."""


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
        request = _set_engine_model(request)
    outcome, parts = _simulate_job(request, progress, notice)
    if outcome.job is not None and request.out is not None:
        from studio.store.runs import Run

        slower_way = next((finding.message for finding in outcome.findings if finding.code == SLOWER_WAY), "")
        kept = Run(
            request.out,
            outcome.result,
            parts,
            outcome.spent_s,
            outcome.doubts,
            outcome.cures,
            slower_way=slower_way,
        )
        outcome = replace(outcome, run=open_workspace(request.workspace).save_run(outcome.job, kept))
        if outcome.engine is not None and outcome.engine.result is not None:
            outcome = replace(outcome, engine=_keep_engine_run(request, outcome, parts))
    if request.events is not None:
        from studio.commands.base.timelines import write_events

        write_events(outcome.result, request.events)
    return outcome


def _simulate_job(
    request: Request, progress: Progress | None, notice: Notice | None
) -> tuple[Outcome, Parts]:
    """Simulate a job and return the outcome with the system's tables; with `--out`, import the job first."""
    refuse_conflict(request)
    limit = TimeLimit(time.monotonic(), request.time_limit_s)
    reading = limit.watch(progress)
    request = with_system_file(request)
    given = _read_given_system(request)
    job = None if request.out is None else import_job(request, reading)
    trace = read_job(request, reading) if job is None else open_workspace(request.workspace).load(job)
    setup = _choose_system(request, trace, given)
    request, parts, chosen = setup.request, setup.parts, setup.chosen
    config = setup.config
    prepared = None
    if request.engine is not None:
        prepared, job = _prepare_for_astra(request, trace, parts, job)
        trace, parts = prepared.trace, prepared.parts
        config = astra.Imported(prepared.config)
        told_before = {finding.message for finding in check(trace, prepared.config)}
        rest = (finding for finding in prepared.findings if finding.message not in told_before)
        chosen = (*chosen, *rest)
    # The order of events across ranks needs every rank simulated.
    every_rank = request.events is not None and _needs_event_order(request.events)

    def simulate_on(parts: Parts, system: astra.Imported) -> Outcome:
        findings = (*system.findings, *check(trace, system.config))
        _refuse(findings, explain_sizes(request.preset, len(trace.ranks)) if request.preset else "", trace)
        begun = time.monotonic()
        result = _simulate(trace, system.config, limit, progress, notice, fold=not every_rank)
        spent_s = time.monotonic() - begun
        facts = Facts(result, parts)
        doubts = list_doubts(facts)
        rest = (finding for finding in findings if finding.code not in FORESEEN)
        all_findings = (
            *chosen,
            *rest,
            *(doubt.finding for doubt in doubts),
            *_warn_of_gpu(request, result),
            *_warn_of_idle_settings(request, result),
            *find_slower_ways(result, facts),
        )
        return Outcome(
            ", ".join(request.workload), result, all_findings, spent_s, every_rank, job, doubts=doubts
        )

    outcome = simulate_on(parts, config)
    if prepared is not None and request.engine is not None:
        from studio.commands.base.engine import run_engine

        return replace(outcome, engine=run_engine(request.engine, prepared, outcome.result, progress)), parts
    options = format_cure_options(outcome.doubts)
    if not (request.cure and options):
        return outcome, parts
    parts = apply_cures(parts, outcome.doubts)
    again = simulate_on(parts, read_parts(parts, request))
    cures = Cured(options, outcome.result.makespan_ns)
    return replace(again, cures=cures, cured_doubts=outcome.doubts), parts


@dataclass(frozen=True, slots=True)
class _Setup:
    """The system that a job is simulated on.

    Attributes:
        request: What was asked for, with the system that was chosen.
        parts: The system's tables.
        config: What they say.
        chosen: What there is to say of the choice.
    """

    request: Request
    parts: Parts
    config: astra.Imported
    chosen: tuple[Finding, ...]


def _lacks_system(request: Request) -> bool:
    return not (request.preset or request.system or request.network)


def _read_given_system(request: Request) -> tuple[Parts, astra.Imported] | None:
    """Return the system that a request names, before any file of the job is read; None where the job has a say in it."""
    # Without a system, a job that needs no network gets one of its size.
    is_open = _lacks_system(request) and (request.replay or is_soon_read(request))
    if is_open or is_size_open(request):
        return None
    parts = combine_parts(request)
    return parts, read_parts(parts, request)


def _choose_system(request: Request, trace: Trace, given: tuple[Parts, astra.Imported] | None) -> _Setup:
    """Return the system for a job: the one that is given, else what was recorded on, else one of the job's size."""
    chosen: tuple[Finding, ...] = ()
    if _lacks_system(request) and not request.replay:
        request, chosen = with_recorded_system(request, trace)
    if given is None:
        parts = combine_parts(
            request,
            assume_model(assume_system(request, trace), request),
            ranks=infer_completeness(trace).world,
        )
        given = parts, read_parts(parts, request)
    parts, config = given
    if request.preset and (known := with_memory_for(parts, trace)) is not parts:
        # Presets are machines, and say nothing of what a job keeps elsewhere.
        parts, config = known, read_parts(known, request)
        chosen = (*chosen, remote_memory.FINDING)
    return _Setup(request, parts, config, chosen)


def _set_engine_model(request: Request) -> Request:
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


def _prepare_for_astra(
    request: Request, trace: Trace, parts: Parts, job: str | None
) -> tuple[Prepared, str | None]:
    """Return job and system as ASTRA-sim takes them, and the stored job that runs of them belong to."""
    from studio.commands.base.astra_job import prepare

    prepared = prepare(trace, parts, astra.read_custom_algorithms(parts.system, request.system))
    if job is None or not prepared.changed:
        return prepared, job
    store = open_workspace(request.workspace)
    known = store.info(job)
    mark = f"for-astra-sim {compute_trace_digest(prepared.trace)}"
    stored = store.find(mark)
    words = f"{known.name}, as ASTRA-sim takes it"
    stored_id = (
        stored.id if stored else store.save(prepared.trace, words, source=known.source, fingerprint=mark)
    )
    return prepared, stored_id


def _keep_engine_run(request: Request, outcome: Outcome, parts: Parts) -> EngineRun:
    """Keep what an engine found as a run of its own, beside ours; where its log is not whole there is none."""
    from studio.store.runs import Run

    engine_run = outcome.engine
    if engine_run is None or engine_run.result is None or outcome.job is None:
        raise AssertionError("there is no run of an engine to keep")
    name = f"{request.out} by {Path(engine_run.program).name}"
    run_id = open_workspace(request.workspace).save_run(
        outcome.job, Run(name, engine_run.result, parts, engine_run.spent_s, ())
    )
    return replace(engine_run, run=run_id)


def _warn_of_gpu(request: Request, result: SimResult) -> Iterator[Finding]:
    """Warn where the job held more memory than a GPU of the preset has, or keeps the durations of another GPU.

    With `--gpu` a doubt tells of that GPU.
    """
    gpu = preset(request.preset).system.gpu if request.preset and not request.gpu else None
    if gpu is None:
        return
    words = describe_unfit(compute_memory_use(result.trace, result.node_times(), estimated=False), gpu)
    if words:
        yield Finding("warning", "does-not-fit", words)
    kept = check_kept_durations(result.trace, result.config, gpu)
    if kept is not None:
        yield kept


def _warn_of_idle_settings(request: Request, result: SimResult) -> Iterator[Finding]:
    """Warn of settings on the command line that change nothing."""
    finding = find_idle_settings(
        [setting.partition("=")[0].strip() for setting in request.settings], result.config
    )
    if finding is not None:
        yield finding


def _refuse(findings: Sequence[Finding], size_hint: str, trace: Trace) -> None:
    """Raise the errors of a check before the run, with its warnings as context.

    Args:
        findings: What reading and checking brought to light.
        size_hint: How to get a preset of as many NPUs as the job has ranks, where a preset was asked for.
        trace: The job, which may lack what would settle it.
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
    if errors[0].code in _ACROSS_RANKS and (fact := check_missing_facts(trace)) is not None:
        rest, hint = f". {fact.message}{rest}", fact.hint
    raise TraceError(f"The job cannot be simulated: {errors[0].message}{rest}", hint=hint)


def _with_hint(finding: Finding) -> str:
    return f"{finding.message} {finding.hint}".rstrip()


def _simulate(
    trace: Trace,
    config: SystemConfig,
    limit: TimeLimit,
    progress: Progress | None,
    notice: Notice | None,
    *,
    fold: bool,
) -> SimResult:
    from studio.sim.engine import Cancelled

    def tell(done: int, total: int) -> None:
        limit.done, limit.total = done, total
        if progress:
            progress(SIMULATING, min(done, total), total)

    limit.phase, limit.done, limit.total = SIMULATING, 0, 0
    if limit.is_over():
        raise limit.error()
    try:
        return simulate(trace, config, progress=tell, cancel=limit.is_over, notice=notice, fold=fold)
    except Cancelled:
        raise limit.error() from None


def _needs_event_order(path: Path) -> bool:
    from studio.commands.base.timelines import holds_order

    return holds_order(path)


# ---------------------------------------------------------------------------------------------------
# Reports


@click.command(
    help=__doc__,
    epilog="Example: chakra-studio simulate traces/ --preset hgx-h100-8 --set 'bandwidth[0]=900'",
)
@click.argument("workload", nargs=-1, required=True, type=NameOrPath())
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
@add_gpu_options
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
@add_system_size_options
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
    engine = _build_engine(*(given.pop(f"{word}") for word in _ENGINE_WORDS))
    request = Request(
        workload,
        options={key: value for key, value in options.items() if value is not None},
        settings=settings,
        time_limit_s=time_limit,
        size=JobSize(given.pop("npus"), given.pop("passes")),
        engine=engine,
        **given,
    )
    outcome = run(request, progress=build_progress_line(), notice=say_wait)
    show(outcome, as_json, report, text)
    end_with_losses(ctx, outcome.result.trace.findings, allow_damaged, warned=False)
    if outcome.engine is not None and outcome.engine.unfinished:
        # It did what it was asked for, with less than there should be.
        ctx.exit(STATUS)


_ENGINE_WORDS = ("program", "engine_backend", "engine_timeout", "engine_arguments")


def _build_engine(
    program: str | None, backend: str | None, timeout_s: float, arguments: tuple[str, ...]
) -> Engine | None:
    if program is None:
        for option, given in (("--engine-backend", backend), ("--engine-arg", arguments)):
            if given:
                raise click.UsageError(f"{option} is given without --engine.")
        return None
    from studio.commands.base.engine import Engine

    return Engine(program, backend, timeout_s, arguments)
