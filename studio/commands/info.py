"""Summarize a job: ranks, nodes, collectives, comm groups, findings.

JSON is an object for one job and a list for several. The exit code is 4 if a file was damaged, so that something
is missing from the output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import msgspec

from studio.analysis.collectives.groups import sum_group_use
from studio.analysis.job.completeness import describe_assumed, infer_completeness
from studio.analysis.job.files import LEFT_OUT, list_job_files
from studio.analysis.job.memory import HOST_MEMORY, compute_memory_use, label_origin
from studio.analysis.job.renumbered import share_graphs
from studio.analysis.job.summary import Share, summarise
from studio.commands.base.options import (
    add_size_options,
    allow_damaged,
    json_option,
    paths_argument,
    rank_option,
)
from studio.commands.base.output import build_progress_line, end_with_losses, show
from studio.commands.base.terminal import escape_controls
from studio.decoding import convert_value
from studio.et import JobFiles, Progress, discover, read_job
from studio.et.each_job import read_each
from studio.et.format import UNSAID, JobSize
from studio.et.ranks import index_ranks_by_file
from studio.et.source import open_sources
from studio.timeline import read_recorded_times
from studio.trace import Trace, get_assumed_source
from studio.units import format_bytes, format_count, format_ns, format_si

_FILES_NAMED = 16
"""Used files that are named one by one in the text; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `info`.

    Attributes:
        paths: Files, folders or archives.
        ranks: Rank numbers by file name, for files that do not tell theirs.
        size: NPUs and passes, where a workload leaves them open.
    """

    paths: tuple[Path, ...]
    ranks: Mapping[str, int] = field(default_factory=dict)
    size: JobSize = UNSAID


@dataclass(frozen=True, slots=True)
class Job:
    """A job and its name."""

    name: str
    trace: Trace


def run(request: Request, *, progress: Progress | None = None) -> list[Job]:
    """Read every job at the paths.

    Raises:
        StudioError: A file cannot be read.
    """
    with open_sources(request.paths, progress) as files:
        numbers = index_ranks_by_file(files, request.ranks)

        def read(job: JobFiles) -> Job:
            return Job(job.name, read_job(job, ranks=numbers, progress=progress, size=request.size))

        return read_each(discover(files, progress), read)


def report(jobs: Sequence[Job]) -> dict[str, Any] | list[dict[str, Any]]:
    """Return the report as plain data: a dictionary for one job, a list for several."""
    reports = [build_job_report(job.name, job.trace) for job in jobs]
    return reports if len(reports) > 1 else reports[0]


def text(jobs: Sequence[Job]) -> str:
    """Format the result for a terminal."""
    return "\n\n".join(format_job_report(build_job_report(job.name, job.trace)) for job in jobs)


def build_job_report(name: str, trace: Trace) -> dict[str, Any]:
    """Return a job's report as plain data: summary, ranks, comm groups, findings."""
    use = sum_group_use(trace)
    members = {group.name: group for group in trace.groups}
    groups = []
    for index, group in enumerate(use.groups):
        cells = use.group == index
        known = members.get(group)
        groups.append(
            {
                "name": group,
                "ranks": list(known.ranks) if known else [use.ranks[r] for r in use.rank[cells].tolist()],
                "inferred": known is None or known.inferred,
                "nodes": int(use.count[cells].sum()),
                "bytes": int(use.bytes[cells].sum()),
            }
        )
    job, files = infer_completeness(trace), list_job_files(trace)
    return {
        "name": name,
        "world_size": None if job.is_open else job.world,
        "missing": job.sentence(),
        "files": {
            "used": [{"file": file.name, "rank": file.rank} for file in files.used],
            "left_out": [{"file": file.name, "why": file.why} for file in files.left_out],
        },
        "summary": msgspec.to_builtins(summarise(trace)),
        "programs": len(share_graphs(trace).graphs),
        "assumed": describe_assumed(trace),
        "ranks": [
            {
                "rank": rank.number,
                "file": rank.file,
                "nodes": len(trace.graph_of(rank)),
                "graph": rank.graph,
                "assumed_from": get_assumed_source(rank),
            }
            for rank in trace.ranks
        ],
        "groups": groups,
        "memory": [
            {"rank": use.rank, "device": use.device, "peak_bytes": use.peak_bytes, "known": label_origin(use)}
            for use in compute_memory_use(trace, read_recorded_times(trace))
        ],
        "findings": [msgspec.to_builtins(finding) for finding in trace.findings],
    }


def format_job_report(report: dict[str, Any]) -> str:
    """Format a report for a terminal; control characters in names are escaped."""
    summary = report["summary"]
    lines = [
        report["name"],
        f"  ranks         {_format_rank_count(report)} ({_format_graph_counts(summary['graphs'], report['programs'])})",
        *([f"  assumed       {report['assumed']}"] if report["assumed"] else []),
        f"  nodes         {format_count(summary['nodes'])}",
        f"  dependencies  {_format_dependency_counts(summary)}",
        f"  recorded      {_format_span(summary)}",
        f"  operations    {format_si(summary['operations'], 'FLOP') if summary['operations'] else 'not in the files'}",
        f"  schema        {', '.join(summary['schema']) or 'not named'}",
    ]
    lines += _format_table(
        "node types", [convert_value(share, Share) for share in summary["types"]], sizes=False
    )
    lines += _format_table("communication", [convert_value(share, Share) for share in summary["collectives"]])
    lines.append(f"  comm groups   {format_count(len(report['groups']))}")
    lines += _describe_peak(report["memory"])
    lines += _format_files(report["files"])
    others = [finding for finding in report["findings"] if finding["code"] not in LEFT_OUT]
    for finding in others:
        rank = "" if finding["rank"] is None else f" rank {finding['rank']}:"
        lines.append(f"  {finding['level']:7} {finding['code']}:{rank} {finding['message']}")
        if finding["hint"]:
            lines.append(f"          {finding['hint']}")
    if not others:
        lines.append("  findings      none")
    return "\n".join(escape_controls(line) for line in lines)


def _format_rank_count(report: dict[str, Any]) -> str:
    known = format_count(report["summary"]["ranks"])
    if not report["missing"]:
        return known
    world = report["world_size"]
    return f"{known} of {format_count(world) if world else 'an unknown number'}"


def _format_files(files: dict[str, Any]) -> list[str]:
    """List the files that were used, the first of them by name, and every file that was left out, with the reason."""
    used, left_out = files["used"], files["left_out"]
    if not used and not left_out:
        return []
    # A file may hold several ranks.
    counts = f"{format_count(len({file['file'] for file in used}))} used"
    counts += f", {format_count(len(left_out))} left out" if left_out else ""
    lines = [f"  files         {counts}"]
    lines += [f"    {file['file']}: rank {file['rank']}" for file in used[:_FILES_NAMED]]
    if len(used) > _FILES_NAMED:
        lines.append(
            f"    and {format_count(len(used) - _FILES_NAMED)} more that are used; --json names them all"
        )
    lines += [f"    {file['file'] or 'more'}: left out: {file['why']}" for file in left_out]
    return lines


def _describe_peak(peaks: list[dict[str, Any]]) -> list[str]:
    """Say which rank holds most at its peak, of devices where their memory is known."""
    devices = [peak for peak in peaks if peak["device"] != HOST_MEMORY]
    most = max(devices or peaks, key=lambda peak: peak["peak_bytes"], default=None)
    if most is None:
        return []
    place = "the processor" if most["device"] == HOST_MEMORY else f"device {most['device']}"
    size = f"{format_bytes(most['peak_bytes'])} on {place} of rank {most['rank']}, {most['known']}"
    least = min(peak["peak_bytes"] for peak in devices or peaks)
    lowest = format_bytes(least)
    others = f"; least {lowest}" if lowest != format_bytes(most["peak_bytes"]) else ""
    return [f"  memory peak   {size}{others}"]


def _format_graph_counts(graphs: int, programs: int) -> str:
    counted = f"{format_count(graphs)} distinct {'graph' if graphs == 1 else 'graphs'}"
    return counted if programs == graphs else f"{counted}, {format_count(programs)} but for ids"


def _format_dependency_counts(summary: dict[str, Any]) -> str:
    control, data = summary["control_dependencies"], summary["data_dependencies"]
    return f"{format_count(control)} control, {format_count(data)} data"


def _format_span(summary: dict[str, Any]) -> str:
    if summary["start_ns"] < 0:
        return "no start times"
    return format_ns(summary["end_ns"] - summary["start_ns"])


def _format_table(title: str, shares: list[Share], *, sizes: bool = True) -> list[str]:
    if not shares:
        return []
    lines = [f"  {title}"]
    for share in shares:
        size = f"{format_bytes(share.bytes):>12}" if sizes and share.bytes else ""
        lines.append(f"    {share.name:22} {format_count(share.nodes):>12}{size}")
    return lines


@click.command(help=__doc__, epilog="Example: chakra-studio info traces/ --json")
@paths_argument
@json_option
@allow_damaged
@rank_option
@add_size_options
@click.pass_context
def command(
    ctx: click.Context,
    paths: tuple[Path, ...],
    as_json: bool,
    allow_damaged: bool,
    ranks: dict[str, int],
    npus: int | None,
    passes: int | None,
) -> None:
    """Carry out `info`."""
    jobs = run(Request(paths, ranks, JobSize(npus, passes)), progress=build_progress_line())
    show(jobs, as_json, report, text)
    end_with_losses(ctx, (finding for job in jobs for finding in job.trace.findings), allow_damaged)
