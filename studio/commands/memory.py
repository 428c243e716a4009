"""List how much memory each rank held at its peak, when, and the operators that had allocated it.

JOB is a folder, files or the prefix of files of traces that hold times, or, in the workspace, a run (RUN or JOB/RUN) or a
job: its recording (JOB/recorded), else its newest run. Recordings made with profile_memory=True tell it exactly; of others
it is estimated from the storages of their tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from studio.analysis.job.memory import HOST_MEMORY, Holder, MemoryUse, compute_memory_use, describe_holder
from studio.analysis.job.rank_rows import label_ranks
from studio.commands.base.names import find_runs
from studio.commands.base.options import NameOrPath, allow_damaged, json_option, rank_option, workspace_option
from studio.commands.base.output import build_progress_line, end_with_losses, list_findings, show
from studio.commands.base.terminal import escape_controls, shorten
from studio.comparing import Compared
from studio.et import Progress
from studio.sim.doubted_memory import describe_unfit
from studio.sim.systems.gpus import SYSTEM_OF, find_gpu
from studio.units import format_bytes, format_count, format_counted, format_ns

_SHOWN, _NAME_WIDTH = 5, 60
_RANKS = 16
"""So many peaks are shown, of more the highest."""
NOTHING = (
    "Nothing tells of memory: no allocations were noted (profile_memory=True), and no tensors name storages."
)
ESTIMATE = (
    "Estimated from the storages that operators name, from first to last use; it may be too low or too high."
)


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `memory`.

    Attributes:
        side: Name of the run, as `names.find_runs` takes it.
        gpu: The GPU whose memory is asked about, by its short name.
        workspace: Its folder; None is the user's.
        ranks: Rank numbers by file name, for files that do not tell theirs.
    """

    side: str
    gpu: str | None = None
    workspace: Path | None = None
    ranks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Listed:
    """The memory of a run, and what does not fit, in words."""

    side: Compared
    uses: list[MemoryUse]
    unfit: str


def run(request: Request, *, progress: Progress | None = None) -> Listed:
    """Read the run and follow its memory.

    Raises:
        ConfigError: Nothing is called so, or no GPU is.
        StudioError: What is named cannot be read, or holds no times.
    """
    gpu = find_gpu(request.gpu) if request.gpu is not None else None
    [side] = find_runs((request.side,), request.workspace, ranks=request.ranks, progress=progress, least=1)
    uses = compute_memory_use(side.side.trace, side.side.times)
    return Listed(side, uses, "" if gpu is None else describe_unfit(uses, gpu))


def report(listed: Listed) -> dict[str, Any]:
    """Return what `--json` prints."""
    return {
        "name": listed.side.name,
        "unfit": listed.unfit,
        "memory": [
            {
                "rank": use.rank,
                "device": use.device,
                "noted": use.noted,
                "counted": use.counted,
                "before_bytes": use.before_bytes,
                "peak_bytes": use.peak_bytes,
                "peak_ns": use.peak_ns,
                "reserved_bytes": use.reserved_bytes,
                "holders": [
                    {"operator": holder.name, "bytes": holder.bytes, "count": holder.count}
                    for holder in use.holders
                ],
            }
            for use in listed.uses
        ],
    }


def text(listed: Listed) -> str:
    """Format the list for a terminal."""
    blocks: dict[tuple[Any, ...], list[MemoryUse]] = {}
    for index, use in enumerate(listed.uses):
        # Of few ranks each is shown, of many those together that read the same.
        key = (use.rank, index) if len(listed.uses) <= _RANKS else ()
        blocks.setdefault((use.device, _describe_peak(use), *_format_holders(use), *key), []).append(use)
    by_peak = sorted(blocks.values(), key=lambda uses: -uses[0].peak_bytes)
    lines = [f"{listed.side.name}: memory at the peak"]
    for uses in blocks.values() if len(listed.uses) <= _RANKS else by_peak[:_RANKS]:
        place = "processor" if uses[0].device == HOST_MEMORY else f"device {uses[0].device}"
        lines.append(f"{label_ranks(tuple(use.rank for use in uses))}, {place}: {_describe_peak(uses[0])}")
        lines += _format_holders(uses[0])
    if left := [use for uses in by_peak[_RANKS:] for use in uses]:
        peaks = {format_bytes(left[-1].peak_bytes): None, format_bytes(left[0].peak_bytes): None}
        lines.append(
            f"and {format_counted(len(left), 'more peak')} of {' to '.join(peaks)}; --json lists all"
        )
    if not listed.uses:
        lines.append(NOTHING)
    elif not all(use.noted or use.counted for use in listed.uses):
        lines.append(ESTIMATE)
    lines += [f"warning: {listed.unfit}"] if listed.unfit else []
    return "\n".join(escape_controls(line) for line in lines)


def _describe_peak(use: MemoryUse) -> str:
    """Return in words how high a peak is, when it was, and how that is known."""
    reserved = f", {format_bytes(use.reserved_bytes)} reserved" if use.reserved_bytes >= 0 else ""
    how = "" if use.noted else ", counted by formulas" if use.counted else ", estimated"
    return f"{format_bytes(use.peak_bytes)} at {format_ns(use.peak_ns)}{reserved}{how}"


def _format_holders(use: MemoryUse) -> list[str]:
    """Return the lines of who held most at the peak."""
    lines, rest = [_format_holder(use, holder) for holder in use.holders[:_SHOWN]], use.holders[_SHOWN:]
    if rest:
        more, held = (
            f"and {format_count(len(rest))} more; --json lists them all",
            sum(holder.bytes for holder in rest),
        )
        lines.append(f"  {more:{_NAME_WIDTH}}{format_bytes(held):>12}")
    return lines


def _format_holder(use: MemoryUse, holder: Holder) -> str:
    if holder.was_there:
        name = describe_holder(use, holder) if use.counted else f"allocated {describe_holder(use, holder)}"
        return f"  {name:{_NAME_WIDTH}}{format_bytes(holder.bytes):>12}"
    return f"  {shorten(holder.name, _NAME_WIDTH - 1):{_NAME_WIDTH}}{format_bytes(holder.bytes):>12}{format_count(holder.count):>9}"


@click.command(help=__doc__, epilog="Example: chakra-studio memory rank0.json.gz --gpu a100 --json")
@click.argument("side", metavar="JOB", type=NameOrPath())
@click.option(
    "--gpu",
    type=click.Choice(list(SYSTEM_OF), case_sensitive=False),
    metavar="GPU",
    help="Say whether the highest peak fits this GPU's memory, such as h100.",
)
@json_option
@allow_damaged
@workspace_option
@rank_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    side: str,
    gpu: str | None,
    as_json: bool,
    allow_damaged: bool,
    workspace: Path | None,
    ranks: dict[str, int],
) -> None:
    """Carry out `memory`."""
    listed = run(Request(side, gpu, workspace, ranks), progress=build_progress_line())
    show(listed, as_json, report, text)
    end_with_losses(ctx, list_findings([listed.side]), allow_damaged)
