"""Simulate a job on many systems and write what each setting does to its finish.

JOB is a folder, files, the prefix of files <prefix>.<rank>.et, or the id of a job in the workspace. Each --set varies a
key: of the system's files, as in `simulate`, or preset, npus, model, or dp (replicas, as in `scale`). A text workload is read
for each npus. VALUES are separated
by commas; a..b, a..b:step and a..b*factor are ranges; a list in brackets, such as [450,50], is one value.

All combinations are simulated, or --random of them, or with --bisect only those that lead to the cheapest one under a time.
Killed and run again, a sweep continues where it was, and writes the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from studio.commands.base.given_job import read_job
from studio.commands.base.given_system import combine_parts
from studio.commands.base.options import (
    EXISTING_FILE,
    NameOrPath,
    PathOption,
    add_system_size_options,
    allow_damaged,
    json_option,
    rank_option,
    scheduler_option,
    workspace_option,
)
from studio.commands.base.output import build_progress_line, end_with_losses, show, warn
from studio.commands.base.simulation_request import SimulationRequest, with_system_file
from studio.commands.base.terminal import escape_controls, shorten
from studio.errors import ConfigError, StudioError
from studio.et.format import UNSAID, JobSize, NpusNeededError
from studio.sim import remote_memory
from studio.sim.idle_settings import WITHOUT_EFFECT
from studio.sim.models import MODELS, Model
from studio.sim.retargeting import OTHER_GPU
from studio.sweep.analysis import (
    IMPORTANCE,
    NOTHING_MATTERS,
    compute_importance,
    count_reasons,
    describe_little,
    finish_varies,
    list_doubtful,
    list_models,
    mark_point,
    select_best,
    select_doubted,
    select_front,
    select_possible,
)
from studio.sweep.costs import load_costs
from studio.sweep.durations import check_preset_durations
from studio.sweep.idle import check_idle_settings
from studio.sweep.running import Row
from studio.sweep.search import Plan, Progress, Target, choose_cheapest
from studio.sweep.space import NPUS, PRESET, Space, parse_space
from studio.sweep.sweep import Sweep, Swept, index_values, run_sweep
from studio.sweep.systems import Base, list_npu_counts
from studio.trace import Finding, Trace
from studio.units import format_count, format_counted, format_ns, format_si, parse_ns

_SUFFIX = ".parquet"
_BEST = 5
_REASONS = 5
_WIDE = 100


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `sweep`.

    Attributes:
        job: Folders or files, the common prefix of files, or the id of a job in the workspace.
        varied: KEY=VALUES each.
        output: The Parquet file.
        preset, system, network, comm_groups, remote_memory, model, size: The system that is varied, as in `simulate`.
        costs: File of prices; None for none.
        random: So many points at random; None for all.
        seed: Of that choice.
        bisect: Key to bisect; None for none.
        under_ns: Finish that the bisection looks for.
        scheduler: Address of a Dask scheduler; None simulates here.
        workspace: Its folder; None is the user's.
        ranks: Rank numbers by file name, for files that do not tell theirs.
    """

    job: tuple[str, ...]
    varied: tuple[str, ...]
    output: Path
    preset: str | None = None
    system: Path | None = None
    network: Path | None = None
    comm_groups: Path | None = None
    remote_memory: Path | None = None
    model: Model | None = None
    size: JobSize = UNSAID
    costs: Path | None = None
    random: int | None = None
    seed: int = 0
    bisect: str | None = None
    under_ns: int | None = None
    scheduler: str | None = None
    workspace: Path | None = None
    ranks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What `sweep` prints.

    Attributes:
        job: What was simulated.
        swept: The results.
        output: Where they are.
        findings: What readers noticed, what is doubtful of every point, and what is doubtful of some, with their numbers.
    """

    job: str
    swept: Swept
    output: Path
    findings: tuple[Finding, ...] = ()


def run(request: Request, *, progress: Progress | None = None) -> Outcome:
    """Simulate a job at every point asked for and write the results.

    Raises:
        ConfigError: A setting, a range or the system is wrong, or there are too many points.
        StudioError: The job cannot be read, or the results cannot be written.
    """
    if request.output.suffix != _SUFFIX:
        raise ConfigError(
            f"-o {request.output}: the results are a Parquet file; allowed: a name that ends in {_SUFFIX}",
            hint=f"Name it {request.output.with_suffix(_SUFFIX)}; --json prints the results too.",
        )
    space = parse_space(request.varied)
    if (request.bisect is None) != (request.under_ns is None):
        raise ConfigError("one of --bisect and --under is given; allowed: both or none")
    target = None if request.bisect is None else Target(request.bisect, request.under_ns or 0)
    costs = None if request.costs is None else load_costs(request.costs)
    simulated = with_system_file(
        SimulationRequest(
            request.job,
            preset=request.preset,
            system=request.system,
            network=request.network,
            comm_groups=request.comm_groups,
            remote_memory=request.remote_memory,
            model=request.model,
            size=request.size,
            workspace=request.workspace,
            ranks=request.ranks,
        )
    )
    files = [simulated.system, simulated.network, simulated.comm_groups, simulated.remote_memory]
    given = any(path is not None for path in files)
    if given and PRESET in space.keys:
        raise ConfigError(
            "preset is varied beside files of a system; allowed: one of both", hint="Leave the files out."
        )
    if simulated.preset is None and PRESET not in space.keys:
        # Says what is missing before a large job is read.
        combine_parts(simulated)
    trace, read = _read_job(simulated, space, progress)
    tables = combine_parts(simulated, ranks=len(trace.ranks)) if given else None
    base = Base(None if given else simulated.preset, tables, request.size.npus, request.model)
    findings = trace.findings
    if not given and "memory-type" not in space.keys and remote_memory.needs_memory(trace):
        # Presets are machines, and say nothing of what a job keeps elsewhere.
        base = replace(base, settings=tuple(f"{key}={value}" for key, value in remote_memory.ASSUMED.items()))
        findings = (*findings, remote_memory.FINDING)
    sweep = Sweep(space, base, Plan(request.random, request.seed, target), costs, read)
    kept = check_preset_durations(trace, sweep)
    if kept is not None:
        findings = (*findings, kept)
    idle = check_idle_settings(sweep, len(trace.ranks))
    if idle is not None:
        findings = (*findings, idle)
    swept = run_sweep(trace, sweep, request.output, scheduler=request.scheduler, progress=progress)
    return Outcome(", ".join(request.job), swept, request.output, (*findings, *swept.findings))


def _read_job(
    request: SimulationRequest, space: Space, progress: Progress | None
) -> tuple[Trace, dict[int, Trace | str]]:
    """Return the job; where `npus` is varied and its workload leaves that open, also as it is for each number of NPUs.

    Raises:
        ConfigError: The number of NPUs of such a workload is varied and given.
        StudioError: The job cannot be read.
    """
    counts = list_npu_counts(next((axis.values for axis in space.axes if axis.key == NPUS), ()))
    try:
        trace = read_job(request, progress)
    except NpusNeededError:
        if not counts:
            raise
    else:
        if (
            counts
            and request.size.npus is not None
            and trace.ranks[0].metadata_value("parallelism") is not None
        ):
            raise ConfigError(
                f"{NPUS} is varied, and --npus {request.size.npus} given, of a text workload; allowed: one of both",
                hint="Leave --npus out: the workload is read for each number of NPUs.",
            )
        return trace, {}
    read: dict[int, Trace | str] = {}
    for count in counts:
        sized = replace(request, preset=None, size=replace(request.size, npus=count))
        try:
            read[count] = read_job(sized, progress)
        except StudioError as error:
            read[count] = error.message
    jobs = [job for job in read.values() if isinstance(job, Trace)]
    if not jobs:
        raise ConfigError(
            f"the job can be read for none of the numbers of NPUs: {next(iter(read.values()))}",
            hint=f"Vary {NPUS} over numbers that the workload can run on.",
        )
    return jobs[0], read


def report(outcome: Outcome) -> dict[str, Any]:
    """Return a sweep as plain data: counts, the best points, the front and the importance of keys."""
    swept, space = outcome.swept, outcome.swept.sweep.space
    rows = swept.rows
    return {
        "output": str(outcome.output),
        "keys": {axis.key: list(axis.values) for axis in space.axes},
        "grid": space.size,
        "points": len(rows),
        "impossible": len(rows) - len(select_possible(rows)),
        "reasons": [{"error": error, "points": count} for error, count in count_reasons(rows)],
        "doubted": len(select_doubted(rows)),
        "doubtful": [
            {"code": each.code, "message": each.message, "points": list(each.points)}
            for each in list_doubtful(rows)
        ],
        "models": list_models(rows),
        "best": [_report_point(swept, row) for row in select_best(rows, _BEST)],
        "pareto": [_report_point(swept, row) for row in select_front(rows)],
        "importance": [asdict(importance) for importance in compute_importance(space, rows)],
        "importance_method": IMPORTANCE,
        "target": None
        if swept.sweep.plan.target is None
        else {
            "key": swept.sweep.plan.target.key,
            "under_ns": swept.sweep.plan.target.under_ns,
            "cheapest": _report_cheapest(swept),
        },
    }


def _report_cheapest(swept: Swept) -> dict[str, Any] | None:
    target = swept.sweep.plan.target
    if target is None:
        return None
    row = choose_cheapest(swept.rows, index_values(swept.sweep.space, target.key, swept.rows), target)
    return None if row is None else _report_point(swept, row)


def _report_point(swept: Swept, row: Row) -> dict[str, Any]:
    return {
        "index": row.index,
        "settings": swept.sweep.space.point(row.index),
        "finish_ns": row.finish_ns,
        "cost": row.cost,
        "doubt": row.doubt or None,
        "doubtful": list(row.doubtful),
    }


def text(outcome: Outcome) -> str:
    """Format a sweep for a terminal."""
    return "\n".join(escape_controls(line) for line in _format_lines(outcome))


def _format_lines(outcome: Outcome) -> Iterator[str]:
    swept, space = outcome.swept, outcome.swept.sweep.space
    rows, bad = swept.rows, len(swept.rows) - len(select_possible(swept.rows))
    resumed = f", {format_count(swept.resumed)} of them from an interrupted run" if swept.resumed else ""
    yield f"{outcome.job}: {format_counted(len(rows), 'point')} of a grid of {format_count(space.size)}{resumed}"
    if bad:
        yield f"  {format_counted(bad, 'point')} cannot be simulated:"
        listed = count_reasons(rows)
        for error, count in listed[:_REASONS]:
            yield f"    {format_count(count)} × {shorten(error.splitlines()[0], _WIDE)}"
        if len(listed) > _REASONS:
            yield f"    and {format_counted(len(listed) - _REASONS, 'other reason')}"
    if len(list_models(rows)) > 1:
        yield f"  of several models ({', '.join(list_models(rows))}), whose times do not compare"
    yield from _format_doubts(rows)
    for finding in swept.findings:
        yield f"  DOUBTFUL: {finding.message}"
    yield from _format_search(swept)
    top = select_best(rows, _BEST)
    if top:
        yield "  least finish"
    for row in top:
        yield f"    {_format_point(swept, row)}"
    front = select_front(rows)
    if front:
        yield f"  {format_counted(len(front), 'point')} on the front of cost and finish, from {_format_point(swept, front[0])}"
    yield from _format_importance(outcome)
    yield f"written: {outcome.output}"


def _format_doubts(rows: Sequence[Row]) -> Iterator[str]:
    """Say how many points no such network could have, and what becomes of them."""
    marked = select_doubted(rows)
    if not marked:
        return
    some = len(marked) < len(select_possible(rows))
    which = (
        "every point is"
        if not some
        else f"{format_counted(len(marked), 'point')} {'is' if len(marked) == 1 else 'are'}"
    )
    yield f"  {which} IMPOSSIBLE, such as point {marked[0].index}: {marked[0].doubt}"
    if some:
        yield "    ranked last, and left out of the front and of what a key explains"
    if marked[0].model == "astra-sim":
        yield "    with --model full messages wait for ports"


def _format_importance(outcome: Outcome) -> Iterator[str]:
    rows = outcome.swept.rows
    shares = compute_importance(outcome.swept.sweep.space, rows)
    if shares and not finish_varies(rows):
        yield f"  {NOTHING_MATTERS}"
    elif shares:
        if little := describe_little(rows):
            yield f"  {little}"
        yield "  variance of the finish that a key explains by itself"
        for importance in shares:
            yield f"    {100 * importance.share:5.1f} %  {importance.key}, least at {importance.best}"


def refuse_nothing(outcome: Outcome) -> None:
    """Raise a ConfigError that names the commonest reason where no point at all could be simulated."""
    rows = outcome.swept.rows
    if not rows or select_possible(rows):
        return
    (error, count), *others = count_reasons(rows)
    none = "the only point cannot" if len(rows) == 1 else f"none of the {format_count(len(rows))} points can"
    most = f", of {format_count(count)} of them" if others else ""
    raise ConfigError(
        f"{none} be simulated; the reason{most}: {error.splitlines()[0]}",
        hint=f"{outcome.output} says it of each point.",
    )


def _format_search(swept: Swept) -> Iterator[str]:
    target = swept.sweep.plan.target
    if target is None:
        return
    row = choose_cheapest(swept.rows, index_values(swept.sweep.space, target.key, swept.rows), target)
    under = format_ns(target.under_ns)
    if row is None:
        yield f"  no value of {target.key} comes under {under}"
    else:
        by = "of the least cost" if row.cost is not None else f"of the least {target.key}"
        yield f"  under {under}, {by}: {_format_point(swept, row)}"


def _format_point(swept: Swept, row: Row) -> str:
    settings = ", ".join(f"{key}={value}" for key, value in swept.sweep.space.point(row.index).items())
    currency = swept.sweep.costs.currency if swept.sweep.costs else ""
    cost = "" if row.cost is None else f"  cost {format_si(row.cost)} {currency}".rstrip()
    mark = mark_point(row, swept.rows)
    mark = f"  {mark.upper()}" if mark else ""
    return f"{format_ns(row.finish_ns or 0):>9}{cost}{mark}  {shorten(settings, _WIDE)}"


def _parse_under(_ctx: click.Context, _param: click.Parameter, given: str | None) -> int | None:
    """Parse `--under`."""
    return None if given is None else parse_ns(given)


@click.command(
    help=__doc__,
    epilog="Example: chakra-studio sweep traces/ --preset hgx-h100 --set 'bandwidth[0]=225..900:225' -o sweep.parquet",
)
@click.argument("job", nargs=-1, required=True, type=NameOrPath())
@click.option(
    "--set",
    "varied",
    multiple=True,
    required=True,
    metavar="KEY=VALUES",
    help="Vary a key over values, separated by commas, or ranges; may be repeated.",
)
@click.option(
    "-o", "--out", "output", required=True, metavar="FILE", type=PathOption(dir_okay=False),
    help="Parquet file for the results.",
)  # fmt: skip
@click.option("--preset", metavar="NAME", help="The system that is varied, by name, or a system file (.yml).")
@click.option(
    "--system", type=EXISTING_FILE, metavar="S.json", help="ASTRA-sim's system file, or a system file (.yml)."
)
@click.option("--network", type=EXISTING_FILE, metavar="N.yml", help="ASTRA-sim's network file.")
@click.option("--comm-groups", type=EXISTING_FILE, metavar="G.json", help="Comm groups.")
@click.option("--remote-memory", type=EXISTING_FILE, metavar="M.json", help="Remote memory.")
@click.option(
    "--model", type=click.Choice(MODELS), help="Everything that is modelled, or the answers of ASTRA-sim."
)
@click.option(
    "--cost", "costs", type=EXISTING_FILE, metavar="COSTS.yml", help="Prices per GPU, and per GB/s and port."
)
@click.option("--random", type=click.IntRange(min=1), metavar="N", help="Simulate N points drawn at random.")
@click.option("--seed", type=int, default=0, metavar="N", help="Seed of the random draw.  [default: 0]")
@click.option(
    "--bisect", metavar="KEY", help="Look for the cheapest value of a key that comes under --under."
)
@click.option(
    "--under", "under_ns", callback=_parse_under, metavar="TIME", help="Finish to come under, such as 20ms."
)
@scheduler_option
@workspace_option
@json_option
@allow_damaged
@rank_option
@add_system_size_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    as_json: bool,
    allow_damaged: bool,
    npus: int | None,
    passes: int | None,
    **given: Any,
) -> None:
    """Carry out `sweep`."""
    outcome = run(Request(size=JobSize(npus, passes), **given), progress=build_progress_line())
    for finding in outcome.findings:
        if finding.code in (remote_memory.FINDING.code, OTHER_GPU, WITHOUT_EFFECT):
            warn(replace(finding, message=f"{finding.message} {finding.hint}".rstrip()))
    show(outcome, as_json, report, text)
    refuse_nothing(outcome)
    end_with_losses(ctx, outcome.findings, allow_damaged)
