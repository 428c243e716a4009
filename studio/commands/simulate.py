"""`chakra-studio simulate`: simulate a job on a system."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from studio.analysis.collectives.times import CollectiveTimes, as_rows, collective_times
from studio.commands import replay as replaying
from studio.commands.names import find_by_prefix
from studio.commands.presets import system_label
from studio.commands.terminal import printable, shorten
from studio.commands.timelines import in_order, refuse_unwritable, write_events
from studio.errors import ConfigError, StudioError, TraceError
from studio.et import read
from studio.et.format import UNSAID, JobSize
from studio.jobs.importing import open_paths
from studio.sim import astra, simulate
from studio.sim.agreement import rank_list
from studio.sim.check import check
from studio.sim.config import Congestion, SystemConfig
from studio.sim.network import TOPOLOGY_NAMES
from studio.sim.parts import Mode, Parts, interpret, with_mode, with_settings
from studio.sim.presets import PRESETS, preset
from studio.sim.result import SimResult, breakdown_of, exposed_ns, statistics
from studio.sim.traffic import LinkTraffic
from studio.store.runs import Run
from studio.store.workspace import Workspace
from studio.trace import Finding, Int64, Trace, collective_name
from studio.units import format_bytes, format_count, format_distinct, format_ns, format_rate

Progress = Callable[[str, int, int], None]
Notice = Callable[[str], None]
_SLOWEST = 3
_TOLD = 8
_BUSIEST = 5
_SYSTEM_WIDTH = 48


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `simulate`.

    Attributes:
        workload: Folders or files, the common prefix of files, or the id of a job in the workspace.
        preset: A system by name; files given beside it take the place of its own.
        system, network, comm_groups, remote_memory: ASTRA-sim's files.
        congestion: Which network model; None is the preset's, or else the unaware one.
        options: Options of ASTRA-sim's command line, without dashes.
        settings: KEY=VALUE each, the last word on any key of the files.
        time_limit_s: Stop after this long; None never.
        events: File to write the events into, as its suffix asks for; None for none.
        workspace: Its folder; None is the user's.
        ranks: Rank numbers by file name, for files that do not tell theirs.
        size: NPUs and passes, where a workload leaves them open.
        mode: Which mode; None is what the system file asks for, without a word the compatible one.
        out: Name of the run to keep in the workspace; None keeps none.
        replay: Whether recorded times count, of communication too; then the system may be left out.
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
    mode: Mode | None = None
    out: str | None = None
    replay: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """A simulation with its findings and how long it took to compute.

    Attributes:
        workload: What was simulated, in words.
        result: Finish times and events.
        findings: What reading and checking brought to light.
        spent_s: How long the simulation took, reading left out.
        every_rank: Whether every rank was simulated because the order of events across ranks was asked for.
        job, run: Ids of the run that was kept and of its job; None where none was.
    """

    workload: str
    result: SimResult
    findings: tuple[Finding, ...]
    spent_s: float
    every_rank: bool = False
    job: str | None = None
    run: str | None = None


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
        refuse_unwritable(request.events)
    outcome, parts = _outcome(request, progress, notice)
    if outcome.job is not None and request.out is not None:
        kept = Run(request.out, outcome.result, parts, outcome.spent_s)
        outcome = replace(outcome, run=Workspace(_root(request)).save_run(outcome.job, kept))
    if request.events is not None:
        write_events(outcome.result, request.events)
    return outcome


def _outcome(request: Request, progress: Progress | None, notice: Notice | None) -> tuple[Outcome, Parts]:
    """Simulate a job and return the outcome with the system's tables; with `--out`, import the job first."""
    started = time.monotonic()
    # A replay without a system gets one as large as the job; otherwise report mistakes before reading files.
    left_out = request.replay and not (request.preset or request.system or request.network)
    parts = None if left_out else parts_for(request)
    read_config = None if parts is None else _read_parts(parts, request)
    job = None if request.out is None else kept_job(request, progress)
    trace = workload(request, progress) if job is None else Workspace(_root(request)).load(job)
    if parts is None or read_config is None:
        parts = parts_for(request, replaying.idle_system(len(trace.ranks)))
        read_config = _read_parts(parts, request)
    findings = (*read_config.findings, *check(trace, read_config.config))
    _refuse(findings, _presets_of(len(trace.ranks)) if request.preset else ())
    # The order of events across ranks needs every rank simulated.
    every_rank = request.events is not None and in_order(request.events)
    begun = time.monotonic()
    limit = Limit(started, request.time_limit_s)
    result = _simulate(trace, read_config.config, limit, progress, notice, fold=not every_rank)
    spent_s = time.monotonic() - begun
    warnings = (*findings, *_beyond_capacity(result))
    return Outcome(", ".join(request.workload), result, warnings, spent_s, every_rank, job), parts


def _refuse(findings: Sequence[Finding], fitting: Sequence[str]) -> None:
    """Raise the errors of a check before the run, with its warnings as context.

    Args:
        findings: What reading and checking brought to light.
        fitting: Presets for as many NPUs as the job has ranks, where a preset was asked for.
    """
    errors = [finding for finding in findings if finding.level == "error"]
    if not errors:
        return
    more = f"\nAnd {len(errors) - _TOLD:,} more." if len(errors) > _TOLD else ""
    rest = "".join(f"\nAlso: {finding.message}" for finding in errors[1:_TOLD]) + more
    warnings = [finding for finding in findings if finding.level == "warning"]
    rest += "".join(f"\nWarning: {_with_hint(finding)}" for finding in warnings[:_TOLD])
    hint = errors[0].hint
    if fitting and errors[0].code in ("ranks-missing", "ranks-beyond"):
        hint = f"{hint} Presets of this size: {', '.join(fitting)}."
    raise TraceError(f"The job cannot be simulated: {errors[0].message}{rest}", hint=hint)


def _with_hint(finding: Finding) -> str:
    return f"{finding.message} {finding.hint}".rstrip()


def _presets_of(npus: int) -> list[str]:
    return [name for name, preset in PRESETS.items() if preset.config.topology.npus == npus]


def _beyond_capacity(result: SimResult) -> Iterator[Finding]:
    """Warn of dimensions that carried more than their ports can send."""
    shares = [carried.offered_load(result.makespan_ns) for carried in result.dimensions]
    full = [index for index, share in enumerate(shares) if share > 1]
    if not full:
        return
    loads = ", ".join(f"dimension {index} {100 * shares[index]:.0f} %" for index in full)
    aware = "--mode extended --congestion aware" if len(shares) > 1 else "--congestion aware"
    yield Finding(
        "warning",
        "beyond-capacity",
        f"More was sent than the ports can carry ({loads}): the congestion-unaware network, as in ASTRA-sim, lets messages "
        "pass a port at the same time, so times are too short and bandwidths too high.",
        f"Try {aware}, or --set preferred-dataset-splits=1.",
    )


@dataclass(slots=True)
class Limit:
    """A time limit that stops a simulation and records its progress.

    Attributes:
        started: When the clock began, by `time.monotonic`.
        seconds: How long it may take; None for ever.
        done, total: Nodes completed, and nodes in all.
    """

    started: float
    seconds: float | None
    done: int = 0
    total: int = 0

    def is_over(self) -> bool:
        """Whether the time is up."""
        return self.seconds is not None and time.monotonic() - self.started > self.seconds

    def error(self) -> TraceError:
        """Return the error for a simulation that ran out of time."""
        share = (
            f"{100 * self.done // self.total} % of its nodes were complete"
            if self.total
            else "it had not begun"
        )
        return TraceError(
            f"The simulation was stopped after the time limit of {self.seconds:g} s; {share}.",
            hint="Raise --time-limit, or leave it out.",
        )


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
            progress("simulating", min(done, total), total)

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
        size = request.size
        return read(files, ranks=request.ranks, progress=progress, npus=size.npus, passes=size.passes)
    return Workspace(_root(request)).load(_job(request))


def kept_job(request: Request, progress: Progress | None = None) -> str:
    """Return the stored job; files not yet in the workspace are imported.

    Raises:
        StudioError: There is nothing of this name, or it cannot be read or stored.
    """
    files = _files(request)
    if not files:
        return _job(request)
    jobs = open_paths(
        Workspace(_root(request)), files, ranks=request.ranks, progress=progress, size=request.size
    )
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
    return request.workspace or Workspace.default_root()


def _job(request: Request) -> str:
    """Find the stored job that the workload names."""
    [name] = request.workload
    nothing = f"WORKLOAD {name!r}: no file or folder, no files {name}.<rank>.et"
    root = _root(request)
    if not root.is_dir():
        raise ConfigError(f"{nothing}, and no workspace with jobs", hint="Name a folder of traces.")
    try:
        return Workspace(root).info(name).id
    except StudioError as error:
        raise ConfigError(
            f"{nothing}, no job of the workspace {root}",
            hint=error.hint if "nearest" in error.hint else "Name a folder of traces.",
        ) from error


def parts_for(request: Request, instead: Parts | None = None) -> Parts:
    """Combine the configuration: preset, then files, then `--set`.

    Args:
        request: What is asked for.
        instead: What counts in place of a preset where none is named.

    Raises:
        ConfigError: Neither preset nor files, an unknown preset or setting, or a file that cannot be read.
    """
    base = preset(request.preset).parts if request.preset else instead
    if base is None and not (request.system and request.network):
        lacking = [
            name for name, path in (("--system", request.system), ("--network", request.network)) if not path
        ]
        raise ConfigError(
            f"No system to simulate on: {' and '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} missing",
            hint=f"Give --system and --network, or --preset with one of: {', '.join(PRESETS)}.",
        )
    parts = _with_files(base or Parts({}, {}), request)
    congestion = request.congestion or parts.congestion
    parts = replace(parts, congestion=congestion, options={**parts.options, **request.options})
    parts = replaying.as_replay(parts) if request.replay else parts
    parts = with_settings(parts, request.settings)
    return with_mode(parts, request.mode) if request.mode else parts


def _read_parts(parts: Parts, request: Request) -> astra.Imported:
    return interpret(parts, astra.custom_algorithms(parts.system, request.system))


def _with_files(parts: Parts, request: Request) -> Parts:
    """Replace tables by those of the given files."""
    given = astra.load_given(request.system, request.network, request.comm_groups, request.remote_memory)
    return replace(parts, **{**given, "names": {**parts.names, **given["names"]}})


# ---------------------------------------------------------------------------------------------------
# Reports


def report(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as plain data; times are whole nanoseconds."""
    result = outcome.result
    parts = astra.parts_of(result.config)
    times = dataclasses.asdict(breakdown_of(result))
    numbers = [rank.number for rank in result.trace.ranks]
    exposed = exposed_ns(result).astype(np.uint64).tolist()
    stats = statistics(result)
    ranks = [
        {
            "rank": number,
            "finish_ns": int(result.finish_ns[index]),
            **{key: int(column[index]) for key, column in times.items()},
            "reference": {
                "cycles": int(result.finish_ns[index]),
                "exposed communication": exposed[index],
                **(stats[index] if stats else {}),
            },
        }
        for index, number in enumerate(numbers)
    ]
    return {
        "workload": outcome.workload,
        "job": outcome.job,
        "run": outcome.run,
        "mode": "compatible" if result.config.extensions is None else "extended",
        "finish_ns": result.makespan_ns,
        "npus": result.config.topology.npus,
        "events": int(np.bincount(result.event_rank, minlength=len(numbers))[result.representative].sum()),
        "classes": result.classes,
        "unfolded": result.unfolded,
        "spent_s": round(outcome.spent_s, 6),
        "config": {
            "network": parts.network,
            "system": parts.system,
            "memory": parts.memory,
            "options": parts.options,
            "congestion": parts.congestion,
        },
        "ranks": ranks,
        "links": _links_report(result.links),
        "dimensions": _dimensions_report(result),
        "collectives": _collectives_report(result),
        "steps": replaying.report(result) if replaying.is_replay(result) else None,
        "findings": msgspec.to_builtins(outcome.findings),
    }


def _links_report(links: LinkTraffic) -> list[dict[str, Any]]:
    columns = (links.source, links.target, links.bytes, links.messages, links.busy_ns, links.peak_queue)
    return [
        {
            "link": links.name(index),
            "source": source,
            "target": target,
            "bytes": size,
            "messages": messages,
            "busy_ns": busy,
            "peak_queue": peak,
        }
        for index, (source, target, size, messages, busy, peak) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        )
    ]


def _dimensions_report(result: SimResult) -> list[dict[str, Any]]:
    """Return what all ranks together sent into each dimension."""
    return [
        {
            "dimension": index,
            "bytes": int(carried.bytes.sum()),
            "messages": int(carried.messages.sum()),
            "busy_ns": round(float(carried.busy_ns.sum())),
            "npu_bytes_per_ns": carried.capacity_bytes_per_ns,
            "offered_load": carried.offered_load(result.makespan_ns),
        }
        for index, carried in enumerate(result.dimensions)
    ]


def _collectives(result: SimResult) -> CollectiveTimes:
    return collective_times(result.trace, result.node_times(), result.config.groups)


def _collectives_report(result: SimResult) -> list[dict[str, Any]]:
    """Return every collective, in the order they began."""
    times = _collectives(result)
    graph_of = {rank.number: result.trace.graph_of(rank) for rank in result.trace.ranks}
    rows = as_rows(times, np.arange(len(times)))
    for row in rows:
        row["type"] = collective_name(row["type"])
        row["last_node"] = int(graph_of[row["last_rank"]].id[row.pop("last_row")])
    return rows


def text(outcome: Outcome) -> str:
    """Format an outcome for a terminal."""
    result = outcome.result
    finish = result.finish_ns
    times = breakdown_of(result)
    lines = [
        _header(outcome),
        f"  finish  {format_ns(result.makespan_ns)}  ({format_count(result.makespan_ns)} ns)",
        f"  simulated in {format_ns(outcome.spent_s * 1e9)}{_classes(outcome)}",
        "",
        f"  {'per rank':24}{'least':>12}{'mean':>12}{'most':>12}   of finish",
    ]
    rows: list[tuple[str, Int64]] = [
        ("finish", finish),
        ("compute", times.compute_ns),
        ("communication", times.communication_ns),
        ("exposed communication", times.exposed_communication_ns),
        ("memory", times.memory_ns),
        ("CPU", times.cpu_ns),
        ("idle", times.idle_ns),
    ]
    for name, column in rows:
        if column.any() or name in ("finish", "compute", "communication", "exposed communication"):
            share = 100 * float(column.mean()) / max(result.makespan_ns, 1)
            cells = "".join(
                f"{format_ns(float(value)):>12}" for value in (column.min(), column.mean(), column.max())
            )
            lines.append(f"  {name:24}{cells}   {share:5.1f} %")
    lines += ["", *_slowest(result), *_links(result), *_slowest_collectives(result)]
    if replaying.is_replay(result):
        lines += ["", *replaying.lines(result)]
    if outcome.run:
        lines += ["", f"  kept as run {outcome.run} of job {outcome.job}"]
    lines += _finding_lines(outcome.findings)
    return "\n".join(lines).rstrip()


def _header(outcome: Outcome) -> str:
    """Format workload and system; a replay shows no network, because communication takes its recorded time."""
    result = outcome.result
    if replaying.is_replay(result):
        npus = len(result.trace.ranks)
        return f"{outcome.workload}: {npus:,} {'rank' if npus == 1 else 'ranks'}, {replaying.NO_NETWORK}"
    return f"{outcome.workload} on {system_label(result.config)}"


def _slowest(result: SimResult) -> Iterator[str]:
    finish = result.finish_ns
    numbers = [rank.number for rank in result.trace.ranks]
    if int(finish.min()) == int(finish.max()):
        yield f"  all {len(numbers):,} ranks finish at the same time" if len(numbers) > 1 else "  one rank"
        return
    at_ns: dict[int, list[int]] = {}
    for number, end in zip(numbers, finish.tolist(), strict=True):
        at_ns.setdefault(end, []).append(number)
    last, first = sorted(at_ns, reverse=True)[:_SLOWEST], min(at_ns)
    finishes = format_distinct(last)
    named = ", ".join(f"{rank_list(at_ns[end])} {text}" for end, text in zip(last, finishes, strict=True))
    spread = 100 * (int(finish.max()) - int(finish.min())) / int(finish.max())
    yield f"  last to finish   {named}"
    yield f"  first to finish  {rank_list(at_ns[first])} {format_ns(first)} ({spread:.1f} % earlier)"


def _links(result: SimResult) -> Iterator[str]:
    whole = max(result.makespan_ns, 1)
    # Single links carry messages across dimensions; a table by dimension would contradict theirs.
    if result.config.links is None and any(carried.messages.any() for carried in result.dimensions):
        yield ""
        yield f"  {'dimensions':24}{'sent':>12}{'messages':>12}{'rate':>14}{'offered load':>14}"
        for index, (dim, carried) in enumerate(
            zip(result.config.topology.dims, result.dimensions, strict=True)
        ):
            size, name = int(carried.bytes.sum()), f"{index}: {TOPOLOGY_NAMES[dim.kind]} {dim.size}"
            share = f"{100 * carried.offered_load(whole):.1f} %" if carried.capacity_bytes_per_ns else "-"
            messages = format_count(int(carried.messages.sum()))
            yield f"  {name:24}{format_bytes(size):>12}{messages:>12}{format_rate(size / whole):>14}{share:>14}"
    links = result.links
    busiest = links.busiest(_BUSIEST)
    if not busiest:
        return
    yield ""
    yield f"  {'busiest links':24}{'carried':>12}{'busy':>12}{'rate':>14}{'most waiting':>14}"
    for index in busiest:
        size, busy = int(links.bytes[index]), int(links.busy_ns[index])
        yield (
            f"  {links.name(index):24}{format_bytes(size):>12}{100 * busy / whole:>10.1f} %{format_rate(size / whole):>14}"
            f"{format_count(int(links.peak_queue[index])):>14}"
        )


def _slowest_collectives(result: SimResult) -> Iterator[str]:
    times = _collectives(result)
    took = times.end_ns - times.arrived_ns
    slowest = np.argsort(-took, kind="stable")[:_BUSIEST].tolist()
    if not slowest:
        return
    yield ""
    yield f"  {'slowest collectives':30}{'size':>12}{'took':>12}{'skew':>12}{'algbw':>14}{'busbw':>14}"
    for index in slowest:
        group = times.groups[int(times.group[index])]
        name = f"{collective_name(int(times.type[index]))} #{times.position[index]}"
        name += f", group {group}" if group else ""
        rates = (float(column[index]) for column in (times.algorithm_bytes_per_ns, times.bus_bytes_per_ns))
        cells = (
            format_bytes(int(times.whole_bytes[index])),
            format_ns(int(took[index])),
            format_ns(int(times.skew_ns[index])),
        )
        yield (
            f"  {shorten(printable(name), 30):30}"
            + "".join(f"{cell:>12}" for cell in cells)
            + "".join(f"{format_rate(rate) if rate == rate else '-':>14}" for rate in rates)
        )


def _classes(outcome: Outcome) -> str:
    result = outcome.result
    if outcome.every_rank:
        return ", every rank simulated, for the order of events across ranks"
    if result.unfolded:
        return f", rank by rank: {result.unfolded}"
    return f", {format_count(result.classes)} of {format_count(len(result.finish_ns))} ranks standing for all"


def _finding_lines(findings: Sequence[Finding]) -> Iterator[str]:
    for finding in findings:
        yield f"  {finding.level:7} {finding.message}"
        if finding.hint:
            yield f"          {finding.hint}"
