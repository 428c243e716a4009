"""List what the operators of a recorded job compute, and how fast they were.

FLOP and bytes follow from the shapes and types of inputs, by a formula per operator; device operations are joined to the
operators that launched them. What has no formula is listed by its time.

PATHS are files, folders or archives of one job, the prefix of its files, or the id or name of a job in the workspace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

from studio.analysis.job.function_names import shorten_distinctly
from studio.commands.base.one_job import read_one_job
from studio.commands.base.options import (
    allow_damaged,
    json_option,
    paths_argument,
    rank_option,
    workspace_option,
)
from studio.commands.base.output import build_progress_line, end_with_losses, show
from studio.commands.base.terminal import escape_controls
from studio.errors import ConfigError
from studio.et import Progress
from studio.operators import OperatorReport, list_operators
from studio.operators.roofline import Gpu, describe_memory_excess
from studio.sim.systems.gpus import find_recorded_gpu
from studio.trace import Trace
from studio.units import format_count, format_ns, format_percent, format_si

_SHOWN = 24
_LONGEST = 56
_ALONE = "  and kernels without a recorded call"
_ALONE_WORDS = (
    "kernels without a recorded call: kernels that ran though the recording does not hold the call that launched them; each is taken to do "
    "what a kernel of its name and nearest time does whose call is known. Operators are in the order of the time of both together."
)


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `operators`.

    Attributes:
        paths: Files, folders or archives of one job, or the name of a stored one.
        numbers: Rank numbers by file name, for files that do not tell theirs.
        workspace: Folder of imported jobs; None is the user's.
    """

    paths: tuple[Path, ...]
    numbers: Mapping[str, int] = field(default_factory=dict)
    workspace: Path | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """A job and what its operators did."""

    name: str
    trace: Trace
    operators: OperatorReport

    @property
    def gpu(self) -> Gpu | None:
        """The GPU that times are of; None where its peaks are not known."""
        if not self.operators.on_device:
            return None
        try:
            return find_recorded_gpu(self.trace)
        except ConfigError:
            return None


def run(request: Request, *, progress: Progress | None = None) -> Listed:
    """Read a job and work out what its operators did.

    Raises:
        ConfigError: Nothing is called so.
        TraceError: The paths hold several jobs, or cannot be read.
    """
    name, trace = read_one_job(
        request.paths, request.numbers, progress, verb="List", workspace=request.workspace
    )
    return Listed(name, trace, list_operators(trace))


def report(listed: Listed) -> dict[str, Any]:
    """Return what `--json` prints."""
    operators = listed.operators
    return {
        "name": listed.name,
        "device": operators.device,
        "on_device": operators.on_device,
        "time_ns": operators.time_ns,
        "coverage": operators.coverage,
        "covered_by_name_ns": operators.by_name_ns,
        "communication_ns": operators.communication_ns,
        "host_link_ns": operators.host_link_ns,
        "peer_link_ns": operators.peer_link_ns,
        "rows": [
            {
                **asdict(row),
                "flop_per_s": row.flop_per_s,
                "bytes_per_s": row.bytes_per_s,
                "intensity": row.intensity,
                "doubt": describe_memory_excess(listed.gpu, row.bytes_per_s)
                if listed.gpu is not None
                else "",
            }
            for row in operators.rows
        ],
        "uncovered": [asdict(row) for row in operators.uncovered],
    }


def _format_peer_copies(operators: OperatorReport) -> str:
    return f", copies between GPUs {format_ns(operators.peer_link_ns)}" if operators.peer_link_ns else ""


def text(listed: Listed) -> str:
    """Format the result for a terminal."""
    operators = listed.operators
    where = f"on {operators.device}" if operators.device else "on a device that the trace does not name"
    lines = [f"{listed.name}: {where if operators.on_device else 'operators on the processor'}"]
    if operators.coverage is None:
        return "\n".join([*map(escape_controls, lines), "no recorded compute time"])
    lines += [
        (
            f"compute time {format_ns(operators.time_ns)}, {format_percent(operators.coverage)} of it by formula"
            f"{_format_name_share(operators)}; besides communication {format_ns(operators.communication_ns)}, copies from and to "
            f"the host {format_ns(operators.host_link_ns)}{_format_peer_copies(operators)}"
        ),
        "",
        f"  {'operator':<{_LONGEST}} {'calls':>8} {'time':>10} {'type':>5} {'operations':>13} {'achieved':>14} {'bytes':>10} {'achieved':>11}",
    ]
    rows = operators.rows[:_SHOWN]
    for name, row in zip(_shorten_names(row.operator for row in rows), rows, strict=True):
        called = (row.called_ns, row.called_flop, row.called_bytes)
        lines.append(_format_line(name, row.count, row.type, *called, listed.gpu))
        if row.by_name_count:
            alone = (row.by_name_ns, row.by_name_flop, row.by_name_bytes)
            lines.append(_format_line(_ALONE, row.by_name_count, row.type, *alone, listed.gpu))
    if len(operators.rows) > _SHOWN:
        lines.append(f"  and {format_count(len(operators.rows) - _SHOWN)} more; --json lists them all")
    if any(row.by_name_count for row in operators.rows[:_SHOWN]):
        lines += ["", f"  {_ALONE_WORDS}"]
    lines += _compare_counts(operators)
    if operators.uncovered:
        lines += ["", "  without a formula:"]
        lacking = operators.uncovered[:_SHOWN]
        lines += [
            f"  {name:<{_LONGEST}} {format_count(row.count):>8} {format_ns(row.time_ns):>10}  {row.why}"
            for name, row in zip(_shorten_names(row.name for row in lacking), lacking, strict=True)
        ]
    if len(operators.uncovered) > _SHOWN:
        lines.append(f"  and {format_count(len(operators.uncovered) - _SHOWN)} more; --json lists them all")
    return "\n".join(escape_controls(line) for line in lines)


def _format_line(
    name: str, count: int, kind: str, time_ns: int, flop: float, moved: float, gpu: Gpu | None
) -> str:
    """Format what was done in a time, and what is not to be believed of it on a GPU."""
    per_s = 1e9 / time_ns if time_ns else 0.0
    doubt = describe_memory_excess(gpu, moved * per_s) if gpu is not None else ""
    return (
        f"  {name:<{_LONGEST}} {format_count(count):>8} {format_ns(time_ns):>10} {kind:>5} "
        f"{format_si(flop, 'FLOP'):>13} {format_si(flop * per_s, 'FLOP/s'):>14} "
        f"{format_si(moved, 'B'):>10} {format_si(moved * per_s, 'B/s'):>11}{f'  {doubt}' if doubt else ''}"
    )


def _compare_counts(operators: OperatorReport) -> list[str]:
    """Hold the operations by formula against those that the recorder counts, where it counts any."""
    counted_rows = [row for row in operators.rows if row.told_flop]
    if not counted_rows:
        return []
    lines = ["", "  counted by the recorder itself:"]
    names = _shorten_names(row.operator for row in counted_rows[:_SHOWN])
    for name, row in zip(names, counted_rows[:_SHOWN], strict=True):
        counted = row.told_flop or 0.0
        lines.append(
            f"  {name:<{_LONGEST}} {format_si(counted, 'FLOP'):>13}, {row.called_flop / counted:.3g} times as many by formula"
        )
    return lines


def _format_name_share(operators: OperatorReport) -> str:
    if not operators.by_name_ns:
        return ""
    return f" ({format_percent(operators.by_name_ns / operators.time_ns)} known by the kernel's name alone)"


def _shorten_names(names: Iterable[str]) -> list[str]:
    return shorten_distinctly([*names], _LONGEST + 1)


@click.command(help=__doc__, epilog="Example: chakra-studio operators rank0.json.gz --json")
@paths_argument
@json_option
@workspace_option
@allow_damaged
@rank_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    paths: tuple[Path, ...],
    as_json: bool,
    workspace: Path | None,
    allow_damaged: bool,
    ranks: dict[str, int],
) -> None:
    """Carry out `operators`."""
    listed = run(Request(paths, ranks, workspace), progress=build_progress_line())
    show(listed, as_json, report, text)
    end_with_losses(ctx, listed.trace.findings, allow_damaged, warned=False)
