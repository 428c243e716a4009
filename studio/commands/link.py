"""Link PyTorch execution traces with Kineto traces and write Chakra files.

PATHS are the files of all ranks of one job, or the folder they are in. Prints per rank: operators, how many of them
are in the Kineto trace, device operations, how many of them belong to an operator, and the collectives. What can
be read of damaged files is linked; the exit code is then 4.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from studio.commands.base.for_astra_sim import Reader, adapt_for_reader
from studio.commands.base.options import (
    PathOption,
    allow_damaged,
    for_option,
    json_option,
    paths_argument,
    rank_option,
    refuse_own_input,
    scheduler_option,
)
from studio.commands.base.output import build_progress_line, end_with_losses, show
from studio.commands.base.terminal import describe_written, escape_controls
from studio.et import LinkOptions, link, write
from studio.et.executors import open_executor
from studio.et.reading_meter import Progress
from studio.trace import Graph, NodeType, Rank, Trace, label_collective, read_int_column
from studio.units import format_bytes, format_count, format_counted, format_ns

FIGURES = ("host_operations", "linked", "host_events", "device_operations", "attributed")


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `link`.

    Attributes:
        paths: The files of all ranks of one job, or folders of them.
        target: Folder for the Chakra files.
        options: Which dependencies to draw.
        compress: Whether the files become `.et.gz`.
        reader: The simulator that is to read the files, where it stops at something; None for any.
        ranks: Rank numbers by file name, for files that do not tell theirs.
        scheduler: Address of a Dask scheduler whose workers read and link; None for this machine.
    """

    paths: tuple[Path, ...]
    target: Path
    options: LinkOptions
    compress: bool = False
    reader: Reader | None = None
    ranks: Mapping[str, int] = field(default_factory=dict)
    scheduler: str | None = None


@dataclass(frozen=True, slots=True)
class Linked:
    """A linked job and the files written of it."""

    trace: Trace
    files: tuple[Path, ...]


def run(request: Request, *, progress: Progress | None = None) -> Linked:
    """Link traces and write them as Chakra files into a folder.

    Raises:
        TraceError: There is nothing to link, or files do not belong together.
        TraceFormatError: A file cannot be read.
    """
    paths = request.paths
    refuse_own_input(paths, request.target)
    with open_executor(request.scheduler) as executor:
        linked = link(
            paths, options=request.options, ranks=request.ranks, progress=progress, executor=executor
        )
    trace = adapt_for_reader(linked, request.reader)
    name = paths[0].resolve().name.split(".")[0] or "job"
    files = write(trace, request.target, name, compress=request.compress, progress=progress)
    return Linked(trace, tuple(files))


def report_rank(trace: Trace, rank: Rank) -> dict[str, Any]:
    """Return the linking figures and the communication of a rank as plain data."""
    metadata = {attr.name: attr.value for attr in rank.metadata}
    figures: dict[str, Any] = {"rank": rank.number}
    figures |= {key: metadata.get(f"link_{key}", 0) for key in FIGURES}
    figures["collectives"] = count_communication(trace, rank)
    if "clock_residual_ns" in metadata:
        figures["clock"] = {
            key: metadata.get(f"clock_{key}") for key in ("offset_ns", "drift_ppb", "residual_ns", "matched")
        }
    return figures


def count_communication(trace: Trace, rank: Rank) -> dict[str, dict[str, int]]:
    """Return count and bytes of a rank's communication by kind of collective, send and receive."""
    graph = trace.graph_of(rank)
    kinds, sizes = (_index_numbers(graph, key) for key in _KEYS)
    totals: dict[str, dict[str, int]] = {}
    for row, kind in enumerate(graph.type.tolist()):
        if kind in (NodeType.COMM_SEND, NodeType.COMM_RECV):
            name = "SEND" if kind == NodeType.COMM_SEND else "RECV"
        elif kind == NodeType.COMM_COLL:
            name = label_collective(kinds.get(row, -1))
        else:
            continue
        share = totals.setdefault(name, {"count": 0, "bytes": 0})
        share["count"] += 1
        share["bytes"] += sizes.get(row, 0)
    return totals


_KEYS = ("comm_type", "comm_size")


def _index_numbers(graph: Graph, key: str) -> dict[int, int]:
    """Return an attribute of the nodes that have it, by row."""
    rows, numbers = read_int_column(graph, key)
    return dict(zip(rows.tolist(), numbers.tolist(), strict=True))


def report(linked: Linked) -> dict[str, Any]:
    """Return what `--json` prints."""
    import msgspec

    trace = linked.trace
    return {
        "files": [str(path) for path in linked.files],
        "ranks": [report_rank(trace, rank) for rank in trace.ranks],
        "groups": [
            {"name": group.name, "ranks": list(group.ranks), "inferred": group.inferred}
            for group in trace.groups
        ],
        "findings": [msgspec.to_builtins(finding) for finding in trace.findings],
    }


def text(linked: Linked) -> str:
    """Format the result for a terminal."""
    lines = ["rank  host operations  linked  host events  device operations  attributed  communication"]
    for rank in linked.trace.ranks:
        figures = report_rank(linked.trace, rank)
        shares = ", ".join(
            f"{name} {format_count(share['count'])} ({format_bytes(share['bytes'])})"
            for name, share in figures["collectives"].items()
        )
        host, joined, events, device, given = (format_count(figures[key]) for key in FIGURES)
        lines.append(
            f"{rank.number:>4}  {host:>15}  {joined:>6}  {events:>11}  {device:>17}  {given:>10}  {shares or 'none'}"
        )
    lines += _format_clocks(linked.trace)
    for finding in linked.trace.findings:
        where = "" if finding.rank is None else f" rank {finding.rank}:"
        lines.append(f"{finding.level} {finding.code}:{where} {finding.message}")
        if finding.hint and finding.level != "info":
            lines.append(f"  {finding.hint}")
    lines.append(describe_written(linked.files))
    return "\n".join(escape_controls(line) for line in lines)


_CLOCKS_TOLD = 32


def _format_clocks(trace: Trace) -> list[str]:
    """Format clock offset, drift and residual of every rank whose clock was compared."""
    clocks = [(rank.number, report_rank(trace, rank).get("clock")) for rank in trace.ranks]
    compared = [(number, clock) for number, clock in clocks if clock and clock["matched"]]
    if not compared:
        return []
    lines = ["rank  clock moved by       drift        residual after the correction  collectives"]
    for number, clock in compared[:_CLOCKS_TOLD]:
        moved, drift, stays = clock["offset_ns"], clock["drift_ppb"] / 1000, format_ns(clock["residual_ns"])
        lines.append(
            f"{number:>4}  {moved:>+12,} ns  {drift:>+6.2f} ppm  {stays:>35}  {clock['matched']:>11,}"
        )
    if len(compared) > _CLOCKS_TOLD:
        lines.append(f"and {format_counted(len(compared) - _CLOCKS_TOLD, 'more rank')}; --json lists all")
    return lines


def disable_kinds(kinds: Sequence[str], error: Callable[[str], Exception]) -> LinkOptions:
    """Return link options with these kinds of dependencies, or host gaps, switched off.

    Args:
        kinds: Names of switches, with dashes.
        error: Makes the exception to raise of a message.
    """
    known = {name.replace("_", "-"): name for name in SWITCHES}
    unknown = next((kind for kind in kinds if kind not in known), None)
    if unknown is not None:
        near = difflib.get_close_matches(unknown, known, n=1)
        meant = f" Did you mean {near[0]!r}?" if near else ""
        raise error(f"{unknown!r} is none of {', '.join(known)}.{meant}")
    return LinkOptions(**{known[kind]: False for kind in kinds})


SWITCHES = (
    "host_order", "call_parent", "launch", "stream_order", "events", "sync", "threads", "data", "sequence",
    "host_gaps", "idle", "align_clocks", "metadata_nodes",
)  # fmt: skip
"""What `--without` switches off."""


@click.command(help=__doc__, epilog="Example: chakra-studio link run1/ -o linked/ --json")
@paths_argument
@click.option(
    "-o", "--out", "target", required=True, metavar="DIR", type=PathOption(file_okay=False),
    help="Folder for the Chakra files.",
)  # fmt: skip
@click.option(
    "--without", multiple=True, metavar="KIND",
    help="Leave out a kind of dependency (host-order, call-parent, launch, stream-order, events, sync, threads, data, "
    "sequence), host-gaps, idle, align-clocks or metadata-nodes; may be repeated.",
)  # fmt: skip
@click.option("--gzip", "compress", is_flag=True, help="Compress the files.")
@scheduler_option
@for_option
@json_option
@allow_damaged
@rank_option
@click.pass_context
def command(
    ctx: click.Context,
    paths: tuple[Path, ...],
    target: Path,
    without: tuple[str, ...],
    compress: bool,
    reader: Reader | None,
    as_json: bool,
    allow_damaged: bool,
    ranks: dict[str, int],
    scheduler: str | None,
) -> None:
    """Carry out `link`."""
    options = disable_kinds(without, lambda message: click.BadParameter(message, param_hint="--without"))
    request = Request(paths, target, options, compress, reader, ranks, scheduler)
    linked = run(request, progress=build_progress_line())
    show(linked, as_json, report, text)
    end_with_losses(ctx, linked.trace.findings, allow_damaged)
