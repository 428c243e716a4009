"""Write the timeline IN in another form: issue and callback lines, a log, a Chrome trace, Perfetto's format.

IN is a file of issue and callback lines, the log of a simulator with such lines in it, a Chrome trace or Perfetto
trace that the studio wrote, or any job with recorded times; - is the standard input. It may also be a run (RUN or
JOB/RUN) or a job of the workspace. The name of OUT says the form:
.csv, .log (as ASTRA-sim logs), .json (a Chrome trace) or .pftrace; - is the standard output, and --to says the form.

Cycles of issue and callback lines are nanoseconds unless --npu-frequency tells the clock; between two forms that
count cycles they stay as they are. Nodes that never ended, and lines that could not be read, are counted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np

from studio.commands.base.cycles import Frequency, to_cycles, to_ns
from studio.commands.base.names import find_stored_run
from studio.commands.base.one_job import read_one_job
from studio.commands.base.options import (
    PathOption,
    allow_damaged,
    json_option,
    quiet_option,
    rank_option,
    workspace_option,
)
from studio.commands.base.output import build_progress_line, end_with_losses, show, warn
from studio.commands.base.streams import DASH, open_path_or_stdin
from studio.commands.base.terminal import escape_controls
from studio.commands.base.timelines import (
    FORMS,
    TimelineForm,
    find_timeline_form,
    is_timeline,
    iterate_timeline,
    refuse_unwritable,
    write_timeline,
)
from studio.comparing import RECORDED
from studio.errors import StudioError, TraceError
from studio.et import Progress
from studio.et.events import LOST_LINES, UNFINISHED, count_of
from studio.sim.timed import build_timed_trace
from studio.store.workspace import Workspace
from studio.trace import Finding, Int64, Trace, compute_recorded_ends, read_dense_column
from studio.units import format_count, format_counted, format_ns

_CYCLES = "timeline-only"
"""The finding of a job that was read from issue and callback lines, whose times are cycles."""
_TOLD = 8


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `timeline`.

    Attributes:
        source: A file, folder or archive with one job; `-` is the standard input.
        target: The file to write; `-` is the standard output.
        to: Name of a form in `FORMS`; None is the one that the target's suffix asks for.
        frequency_hz: Clock of the NPUs; None where a cycle is a nanosecond.
        ranks: Rank numbers by file name, for files that do not tell theirs.
        workspace: Folder of the workspace; None is the user's.
    """

    source: Path
    target: Path
    to: str | None = None
    frequency_hz: Fraction | None = None
    ranks: Mapping[str, int] = field(default_factory=dict)
    workspace: Path | None = None


_CLOCK_NS = 365 * 86_400 * 10**9
"""A year: times beyond it do not count from the beginning of a run."""


@dataclass(frozen=True, slots=True)
class Written:
    """A timeline that was written.

    Attributes:
        source, target: As they were given.
        form: In which form.
        frequency_hz: The clock that was given; None where a cycle is a nanosecond.
        nodes: Nodes with a start, by rank.
        unfinished: Nodes that began and never ended, by rank; ranks without any are left out.
        without_issue: Ends of nodes whose beginning is not there.
        untimed: Nodes without any time, which are not written.
        lines_skipped: Lines that begin like events and could not be read.
        rounded: Times that are no whole number of what is written.
        finish_ns: The last end, from the first start on where times are those of a clock.
        findings: What the reader noticed.
    """

    source: str
    target: str
    form: TimelineForm
    frequency_hz: Fraction | None
    nodes: Mapping[int, int]
    unfinished: Mapping[int, int]
    without_issue: int
    untimed: int
    lines_skipped: int
    rounded: int
    finish_ns: int
    findings: tuple[Finding, ...]


def run(
    request: Request,
    *,
    progress: Progress | None = None,
    notice: Callable[[Finding], None] | None = None,
    put: Callable[[Iterable[bytes]], object] | None = None,
) -> Written:
    """Read a timeline and write it in another form.

    Args:
        request: What to write.
        progress: Told how far reading is.
        notice: Told each finding of the reader before anything is written.
        put: Takes the pieces where the target is `-`; writes to the standard output by default.

    Raises:
        StudioError: No form is named, or the form cannot be written.
        TraceError: The input is no timeline, or nothing in it has a time.
    """
    form = _choose_form(request)
    refuse_unwritable(Path(f"{request.target}{form.suffix}") if request.target == DASH else request.target)
    _refuse_other_file(request, form)
    trace = _read(request, progress)
    for finding in trace.findings if notice else ():
        notice(finding)  # type: ignore[misc]
    counted = any(finding.code == _CYCLES for finding in trace.findings)
    converted, rounded = _convert_unit(trace, request, form, counted=counted)
    if request.target == DASH:
        (put or sys.stdout.buffer.writelines)(iterate_timeline(converted, form.suffix, str(request.source)))
    else:
        write_timeline(converted, request.target)
    return _build_written(request, form, trace, rounded, counted=counted)


def _read(request: Request, progress: Progress | None) -> Trace:
    root = request.workspace or Workspace.default_root()
    if request.source != DASH and not request.source.exists() and root.is_dir():
        store = Workspace(root)
        job, name = find_stored_run(store, str(request.source))
        return store.load(job) if name == RECORDED else build_timed_trace(store.load_run(job, name).result)
    with open_path_or_stdin(request.source) as path:
        return read_one_job([path], request.ranks, progress, verb="Write")[1]


def _choose_form(request: Request) -> TimelineForm:
    named = next((form for form in FORMS if form.name == request.to), None)
    by_suffix = None if request.target == DASH else find_timeline_form(request.target)
    if named and by_suffix and named != by_suffix:
        raise StudioError(
            f"--to is {named.name!r} and the output {request.target} ends in {by_suffix.suffix}, which is "
            f"{by_suffix.title}; allowed: the same form",
            hint="Leave --to out.",
        )
    if named is not None and request.target != DASH:
        if by_suffix is None:
            raise StudioError(
                f"{request.target}: the name of the output does not end in {named.suffix}, as {named.title} does",
                hint=f"Name it {request.target}{named.suffix}.",
            )
        return named
    form = named or by_suffix
    if form is None:
        choices = ", ".join(f"{form.suffix} ({form.title})" for form in FORMS)
        what = "the standard output" if request.target == DASH else str(request.target)
        raise StudioError(
            f"{what}: nothing says which form is to be written; allowed: {choices}",
            hint="Give --to." if request.target == DASH else "Name the output with one of these endings.",
        )
    return form


def _refuse_other_file(request: Request, form: TimelineForm) -> None:
    """Raise an error where another kind of file, or the input, is in the way."""
    target = request.target
    if target == DASH or not target.exists():
        return
    if target.is_dir():
        raise TraceError(
            f"{target}: is a folder; allowed: a file", hint=f"Name a file ending in {form.suffix}."
        )
    if request.source != DASH and request.source.exists() and target.samefile(request.source):
        raise TraceError(f"{target}: is read, so nothing is written into it.", hint="Name another file.")
    if not is_timeline(target):
        raise TraceError(
            f"{target}: there is a file of this name that is no timeline of this form.",
            hint="Name another file, or remove it.",
        )


def _convert_unit(trace: Trace, request: Request, form: TimelineForm, *, counted: bool) -> tuple[Trace, int]:
    """Return the trace with times in the unit of the form, and how many times were rounded."""
    if request.frequency_hz is None or (counted and form.in_cycles):
        return trace, 0
    if counted:
        return to_ns(trace, request.frequency_hz)
    if form.in_cycles:
        return to_cycles(trace, request.frequency_hz)
    raise StudioError(
        f"--npu-frequency is given, and neither {request.source} nor {form.title} counts cycles",
        hint="Leave it out: their times are in microseconds and nanoseconds.",
    )


def _build_written(
    request: Request, form: TimelineForm, trace: Trace, rounded: int, *, counted: bool
) -> Written:
    nodes: dict[int, int] = {}
    unfinished: dict[int, int] = {}
    without_issue = untimed = finish = 0
    of_graph = [
        _count_nodes(graph.start_ns, compute_recorded_ends(graph), read_dense_column(graph, UNFINISHED, 0))
        for graph in trace.graphs
    ]
    lone = [len(graph.rows_with("callback_ns")[0]) for graph in trace.graphs]
    for rank in trace.ranks:
        timed, never, last, rest = of_graph[rank.graph]
        nodes[rank.number] = timed
        if never:
            unfinished[rank.number] = never
        without_issue += lone[rank.graph]
        untimed += rest - lone[rank.graph]
        finish = max(finish, last)
    begin = min(
        (int(graph.start_ns[graph.start_ns >= 0].min(initial=finish)) for graph in trace.graphs), default=0
    )
    if begin >= _CLOCK_NS:
        finish -= begin
    return Written(
        str(request.source),
        str(request.target),
        form,
        request.frequency_hz,
        nodes,
        unfinished,
        without_issue,
        untimed,
        sum(count_of(finding) for finding in trace.findings if finding.code in LOST_LINES),
        rounded,
        round(finish * 10**9 / request.frequency_hz) if counted and request.frequency_hz else finish,
        trace.findings,
    )


def _count_nodes(start: Int64, over: Int64, never: Int64) -> tuple[int, int, int, int]:
    """Return of a graph: nodes with a start, those that never ended, the last end, nodes without a start."""
    timed = start >= 0
    last = int(over[timed].max(initial=0))
    return int(timed.sum()), int(np.count_nonzero(never[timed])), last, int((~timed).sum())


def report(written: Written) -> dict[str, Any]:
    """Return what was written as plain data."""
    frequency = written.frequency_hz
    return {
        "source": written.source,
        "file": written.target,
        "form": written.form.name,
        "npu_frequency_mhz": None if frequency is None else float(frequency / 10**6),
        "ranks": len(written.nodes),
        "nodes": sum(written.nodes.values()),
        "unfinished": sum(written.unfinished.values()),
        "unfinished_by_rank": {str(rank): count for rank, count in written.unfinished.items()},
        "without_issue": written.without_issue,
        "untimed": written.untimed,
        "lines_skipped": written.lines_skipped,
        "rounded": written.rounded,
        "finish_ns": written.finish_ns,
        "findings": msgspec.to_builtins(written.findings),
    }


def text(written: Written) -> str:
    """Format which file was written, and which parts of it are incomplete."""
    nodes, ranks = sum(written.nodes.values()), len(written.nodes)
    where = "the standard output" if written.target == str(DASH) else written.target
    head = (
        f"{where}: {written.form.title} of {format_counted(nodes, 'node')} on {format_counted(ranks, 'rank')}"
    )
    lines = [f"{head}, finish {format_ns(written.finish_ns)}"]
    if written.unfinished:
        some = ", ".join(
            f"rank {rank}: {format_count(count)}" for rank, count in list(written.unfinished.items())[:_TOLD]
        )
        more = ", …" if len(written.unfinished) > _TOLD else ""
        total = sum(written.unfinished.values())
        lines.append(f"  unfinished     {format_count(total)} began and never ended ({some}{more})")
    for name, count, words in (
        ("without issue", written.without_issue, "ended without a beginning; only in lines, not drawn"),
        ("without time", written.untimed, "nodes have no time and are not in it"),
        ("lines skipped", written.lines_skipped, "begin like an event and could not be read"),
        ("rounded", written.rounded, "starts and ends to whole nanoseconds or cycles"),
    ):
        if count:
            lines.append(f"  {name:14} {format_count(count)} {words}")
    return "\n".join(escape_controls(line) for line in lines)


@click.command(
    help=__doc__, epilog="Example: chakra-studio timeline log/log.log -o run.pftrace --npu-frequency 1.5GHz"
)
@click.argument("source", metavar="IN|RUN", type=PathOption(allow_dash=True))
@click.option(
    "-o",
    "--output",
    "target",
    required=True,
    metavar="OUT",
    type=PathOption(allow_dash=True),
    help="The file to write; - is the standard output.",
)
@click.option("--to", type=click.Choice([form.name for form in FORMS]), help="The form, where OUT is -.")
@click.option(
    "--npu-frequency",
    "frequency",
    type=Frequency(),
    metavar="F",
    help="Clock of the NPUs whose cycles are counted: 1500 (MHz), 1500MHz or 1.5GHz.  [default: 1GHz]",
)
@json_option
@quiet_option
@workspace_option
@allow_damaged
@rank_option
@click.pass_context
def command(
    ctx: click.Context,
    source: Path,
    target: Path,
    to: str | None,
    frequency: Fraction | None,
    as_json: bool,
    quiet: bool,
    workspace: Path | None,
    allow_damaged: bool,
    ranks: dict[str, int],
) -> None:
    """Carry out `timeline`."""
    written = run(
        Request(source, target, to, frequency, ranks, workspace),
        progress=build_progress_line(),
        notice=warn,
    )
    if as_json or not quiet:
        show(written, as_json, report, text, err=target == DASH)
    end_with_losses(ctx, written.findings, allow_damaged)
