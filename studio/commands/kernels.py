"""List what runs by name: kernels or operators, how often, how long, and how fast copies are.

JOB|RUN is a folder, files or the prefix of files of traces that hold times, or, in the workspace, a run (RUN or JOB/RUN) or a
job: its recording (JOB/recorded), else its newest run. Numbers of steps, layers and the like are shown as *.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from studio.analysis.job.kernels import Kernel, kernels
from studio.commands.base.one_run import RunRequest, run_options
from studio.commands.base.output import end_with_losses, findings_of, progress_line, show
from studio.commands.base.terminal import cut_middle, printable
from studio.comparing import Compared
from studio.et import Progress
from studio.units import format_count, format_ns, format_rate

_NAME_WIDTH = 60


@dataclass(frozen=True, slots=True)
class Request(RunRequest):
    """Options of `kernels`: those of every command that looks at one run."""


@dataclass(frozen=True, slots=True)
class Listed:
    """What ran by name in a run."""

    side: Compared
    kernels: list[Kernel]


def run(request: Request, *, progress: Progress | None = None) -> Listed:
    """Read the run and add up what ran by name.

    Raises:
        ConfigError: Nothing is called so.
        StudioError: What is named cannot be read, or holds no times.
    """
    side = request.find(progress)
    return Listed(side, kernels(side.side.trace, side.side.times))


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
            }
            for kernel in listed.kernels
        ],
    }


def text(listed: Listed) -> str:
    """Format the list for a terminal."""
    head = f"{'':{_NAME_WIDTH}}{'kind':>14}{'count':>12}{'total':>12}{'share':>8}{'median':>12}{'longest':>12}{'rate':>14}"
    lines = [f"{listed.side.name}: {len(listed.kernels):,} names", head]
    for kernel in listed.kernels:
        rate = kernel.bytes_per_ns
        lines.append(
            f"{cut_middle(kernel.name, _NAME_WIDTH - 1):{_NAME_WIDTH}}{kernel.kind:>14}{format_count(kernel.count):>12}"
            f"{format_ns(kernel.total_ns):>12}{100 * kernel.share:>6.1f} %{format_ns(kernel.median_ns):>12}"
            f"{format_ns(kernel.most_ns):>12}{format_rate(rate) if rate else '-':>14}"
        )
    return "\n".join(printable(line) for line in lines)


@click.command(help=__doc__, epilog="Example: chakra-studio kernels rank0.json.gz --json")
@run_options
@click.pass_context
def command(ctx: click.Context, /, as_json: bool, allow_damaged: bool, **given: Any) -> None:
    """Carry out `kernels`."""
    listed = run(Request(**given), progress=progress_line())
    show(listed, as_json, report, text)
    end_with_losses(ctx, findings_of([listed.side]), allow_damaged, warned=False)
