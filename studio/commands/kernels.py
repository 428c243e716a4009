"""List what runs by name: kernels or operators, how often, how long, how fast copies are, and how late after their launch.

JOB|RUN is a folder, files or the prefix of files of traces that hold times, or, in the workspace, a run (RUN or JOB/RUN) or a
job: its recording (JOB/recorded), else its newest run. Numbers of steps, layers and the like are shown as *.

The delay of a launch is the time from the end of the call to the begin of its work. The queue of a stream is what was
launched and has not ended. Recordings of PyTorch's profiler tell both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from studio.analysis.job.function_names import shorten_distinctly
from studio.analysis.job.kernels import Kernel, describe_receives, list_kernels
from studio.analysis.job.launch_words import describe_launches, describe_queue
from studio.analysis.job.launches import Delays, Launches, Queue, find_launches
from studio.commands.base.one_run import RunRequest, run_options
from studio.commands.base.output import build_progress_line, end_with_losses, list_findings, show
from studio.commands.base.terminal import escape_controls
from studio.comparing import Compared
from studio.et import Progress
from studio.units import format_count, format_counted, format_ns, format_rate

_NAME_WIDTH = 60
_QUEUES = 8


@dataclass(frozen=True, slots=True)
class Request(RunRequest):
    """Options of `kernels`: those of every command that looks at one run."""


@dataclass(frozen=True, slots=True)
class Listed:
    """What ran by name in a run, and, of a recording, its launches."""

    side: Compared
    kernels: list[Kernel]
    launches: Launches | None


def run(request: Request, *, progress: Progress | None = None) -> Listed:
    """Read the run and add up what ran by name.

    Raises:
        ConfigError: Nothing is called so.
        StudioError: What is named cannot be read, or holds no times.
    """
    side = request.find(progress)
    all_launches = find_launches(side.side.trace) if side.side.is_recording else None
    return Listed(side, list_kernels(side.side.trace, side.side.times), all_launches)


def report(listed: Listed) -> dict[str, Any]:
    """Return what `--json` prints."""
    return {
        "name": listed.side.name,
        "finish_ns": listed.side.side.makespan_ns,
        "kernels": [
            {
                "name": kernel.name,
                "kind": kernel.kind,
                "count": kernel.count,
                "total_ns": kernel.total_ns,
                "share_percent": 100 * kernel.share,
                "least_ns": kernel.least_ns,
                "median_ns": kernel.median_ns,
                "mean_ns": kernel.mean_ns,
                "most_ns": kernel.most_ns,
                "bytes": kernel.bytes,
                "bytes_per_ns": kernel.bytes_per_ns,
                "longest_rank": kernel.longest[0],
                "launches": _report_delays(
                    listed.launches.by_name.get(kernel.name) if listed.launches else None
                ),
            }
            for kernel in listed.kernels
        ],
        "left_out": describe_receives(listed.side.side.trace),
        "launches": _report_launches(listed.launches),
    }


def _report_delays(delays: Delays | None) -> dict[str, Any] | None:
    if delays is None:
        return None
    return {
        "count": delays.count,
        "operations": delays.operations,
        "delay_least_ns": delays.least_ns,
        "delay_median_ns": delays.median_ns,
        "delay_p99_ns": delays.p99_ns,
        "delay_most_ns": delays.most_ns,
        "late": delays.late,
        "short": delays.short,
    }


def _report_launches(launched: Launches | None) -> dict[str, Any] | None:
    if launched is None:
        return None
    figures = {"call_median_ns": launched.call_ns, "unknown": launched.unknown}
    return {
        **(_report_delays(launched.all) or {}),
        **figures,
        "queues": [_report_queue(queue) for queue in launched.queues],
    }


def _report_queue(queue: Queue) -> dict[str, Any]:
    return {
        "rank": queue.rank,
        "device": queue.device,
        "stream": queue.stream,
        "count": queue.count,
        "mean": queue.mean,
        "most": queue.most,
        "waiting_mean": queue.waiting_mean,
        "waiting_most": queue.waiting_most,
        "empty_percent": 100 * queue.empty,
        "edges_ns": queue.edges_ns.tolist(),
        "length": queue.length.tolist(),
    }


def text(listed: Listed) -> str:
    """Format the list for a terminal."""
    has = listed.launches is not None
    head = f"{'':{_NAME_WIDTH}}{'kind':>14}{'count':>12}{'total':>12}{'share':>8}{'median':>12}{'longest':>12}{'rate':>14}"
    head += f"{'delay':>12}" if has else ""
    lines = [f"{listed.side.name}: {format_counted(len(listed.kernels), 'name')}", head]
    if words := describe_receives(listed.side.side.trace):
        lines.insert(1, f"  {words}")
    names = shorten_distinctly([kernel.name for kernel in listed.kernels], _NAME_WIDTH - 1)
    for name, kernel in zip(names, listed.kernels, strict=True):
        rate = kernel.bytes_per_ns
        lines.append(
            f"{name:{_NAME_WIDTH}}{kernel.kind:>14}{format_count(kernel.count):>12}"
            f"{format_ns(kernel.total_ns):>12}{100 * kernel.share:>6.1f} %{format_ns(kernel.median_ns):>12}"
            f"{format_ns(kernel.most_ns):>12}{format_rate(rate) if rate else '-':>14}"
            f"{_format_median(listed.launches, kernel.name) if listed.launches else '':>{12 * has}}"
        )
    if listed.launches:
        lines += ["", *describe_launches(listed.launches)]
        lines += [describe_queue(queue, listed.launches.queues) for queue in listed.launches.queues[:_QUEUES]]
        more = len(listed.launches.queues) - _QUEUES
        lines += [f"… and {more:,} more queues" if more > 1 else "… and 1 more queue"] if more > 0 else []
    return "\n".join(escape_controls(line) for line in lines)


def _format_median(launched: Launches, name: str) -> str:
    delays = launched.by_name.get(name)
    return "-" if delays is None else format_ns(delays.median_ns)


@click.command(help=__doc__, epilog="Example: chakra-studio kernels rank0.json.gz --json")
@run_options
@click.pass_context
def command(ctx: click.Context, /, as_json: bool, allow_damaged: bool, **given: Any) -> None:
    """Carry out `kernels`."""
    listed = run(Request(**given), progress=build_progress_line())
    show(listed, as_json, report, text)
    end_with_losses(ctx, list_findings([listed.side]), allow_damaged, warned=False)
