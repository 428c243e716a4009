"""Follow the critical path through all ranks: what the finish consists of.

JOB or RUN is named as for compare: a folder or files of traces that hold times, or a job or run of the workspace. The
segments fill the time from the beginning of the run to the latest finish, one where the other ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click
import numpy as np

from studio.analysis.job.kinds import lacks_host
from studio.analysis.job.ledger import Ledger
from studio.analysis.job.part_words import NO_HOST
from studio.analysis.path.critical import find_critical_path
from studio.analysis.path.segments import CAUSES, CriticalPath
from studio.analysis.path.slack import NEAR, compute_slack
from studio.analysis.path.words import Share, compute_path_shares, describe_path
from studio.commands.base.checked import warn_of_check, with_stored_check
from studio.commands.base.node_names import NodeNames
from studio.commands.base.one_run import RunRequest, run_options
from studio.commands.base.output import build_progress_line, end_with_losses, list_findings, show
from studio.commands.base.terminal import align_columns, escape_controls, shorten
from studio.comparing import Compared
from studio.distinct import find_distinct
from studio.et import Progress
from studio.trace import NONE, Int64
from studio.units import format_count, format_counted, format_ns

_LISTED = 12


@dataclass(frozen=True, slots=True)
class Request(RunRequest):
    """Options of `critical-path`.

    Attributes:
        slack: Whether to work out the slack of every node.
    """

    slack: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """The critical path of a run.

    Attributes:
        of: The run.
        account: Its ledger.
        path: The path.
        shares: What it consists of, in words.
        slack_ns: The slack of each node, by the entries of the run's times; None where it was not asked for.
    """

    of: Compared
    account: Ledger
    path: CriticalPath
    shares: list[Share]
    slack_ns: Int64 | None


def run(request: Request, *, progress: Progress | None = None) -> Found:
    """Read the run and follow its critical path.

    Raises:
        ConfigError: Nothing is called so.
        StudioError: What is named cannot be read, or holds no times.
    """
    compared = with_stored_check(request.find(progress), request.workspace)
    side = compared.side
    account = side.ledger()
    path = find_critical_path(side.trace, side.times, account)
    shares = compute_path_shares(side.trace, side.times, account, path, side.groups)
    spare = compute_slack(side.trace, side.times, account) if request.slack else None
    return Found(compared, account, path, shares, spare)


def report(result: Found) -> dict[str, Any]:
    """Return the path as plain data; times are whole nanoseconds after the beginning of the run."""
    path, trace = result.path, result.of.side.trace
    names, numbers = NodeNames(trace), [rank.number for rank in trace.ranks]
    columns = (path.rank, path.row, path.start_ns, path.end_ns, path.cause)
    segments = [
        {
            "rank": numbers[place],
            "node": names.id(place, row) if row != NONE else None,
            "name": names.name(place, row) if row != NONE else None,
            "start_ns": start,
            "end_ns": end,
            "cause": CAUSES[cause],
        }
        for place, row, start, end, cause in zip(*(column.tolist() for column in columns), strict=True)
    ]
    data: dict[str, Any] = {
        "name": result.of.name,
        "job": result.of.job or None,
        "run": result.of.run,
        "length_ns": path.length_ns,
        "summary": describe_path(result.shares),
        "shares": [
            {
                "cause": share.cause,
                "what": share.what,
                "ns": share.ns,
                "share": share.share,
                "ranks": list(share.ranks),
            }
            for share in result.shares
        ],
        "segments": segments,
    }
    if result.slack_ns is not None:
        data |= _build_slack_report(result, names, segments)
    return data


def _build_slack_report(result: Found, names: NodeNames, segments: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the slack of every node, by rank; put that of the path's into its segments."""
    assert result.slack_ns is not None
    trace, first = result.of.side.trace, result.of.side.times.first
    limit = NEAR * result.path.length_ns
    for segment, place, row in zip(
        segments, result.path.rank.tolist(), result.path.row.tolist(), strict=True
    ):
        segment["slack_ns"] = int(result.slack_ns[first[place] + row]) if row != NONE else None
    ranks, near = [], 0
    for place in result.account.places.tolist():
        begin = int(first[place])
        spare = result.slack_ns[begin : begin + len(trace.graph_of(trace.ranks[place]))]
        rows = np.flatnonzero(spare >= 0)
        near += int((spare[rows] <= limit).sum())
        nodes = [names.id(place, row) for row in rows.tolist()]
        ranks.append({"rank": trace.ranks[place].number, "nodes": nodes, "slack_ns": spare[rows].tolist()})
    return {"near_critical": {"slack_ns": int(limit), "nodes": near}, "slack": ranks}


def text(result: Found) -> str:
    """Format the path for a terminal: in a sentence, by share, and its longest segments."""
    path = result.path
    source = "recorded" if result.account.is_recording else result.of.side.model
    segments = format_counted(len(path), "segment")
    ranks = format_counted(len(find_distinct(path.rank)), "rank")
    lines = [
        describe_path(result.shares),
        "",
        f"{result.of.name}  ({source}), critical path of {format_ns(path.length_ns)}: {segments} on {ranks}",
        "",
        *_share_lines(result.shares),
        "",
        *_format_segments(result),
        *_format_near_critical(result),
    ]
    if any(map(lacks_host, result.of.side.trace.graphs)):
        lines += ["", NO_HOST]
    return "\n".join(escape_controls(line) for line in lines).rstrip()


def _share_lines(shares: list[Share]) -> Iterator[str]:
    rows = [("on the path", "time", "share", "ranks")]
    rows += [
        (
            shorten(share.what, 44),
            format_ns(share.ns),
            f"{100 * share.share:.1f} %",
            format_count(len(share.ranks)),
        )
        for share in shares[:_LISTED]
    ]
    yield from align_columns(rows, (44, 12, 10, 8))
    if len(shares) > _LISTED:
        yield f"and {format_count(len(shares) - _LISTED)} more; --json lists all"


def _format_segments(result: Found) -> Iterator[str]:
    """Yield the longest segments, by time."""
    path, trace = result.path, result.of.side.trace
    names = NodeNames(trace)
    chosen = np.sort(np.argsort(-path.ns, kind="stable")[:_LISTED]).tolist()
    rows = [("longest segments", "rank", "from", "time", "cause")]
    for at in chosen:
        place, row = int(path.rank[at]), int(path.row[at])
        name = names.name(place, row) if row != NONE else "until the first node"
        cells = (
            str(trace.ranks[place].number),
            format_ns(int(path.start_ns[at])),
            format_ns(int(path.ns[at])),
        )
        rows.append((shorten(name, 44), *cells, CAUSES[int(path.cause[at])]))
    yield from align_columns(rows, (44, 8, 12, 12, 12))


def _format_near_critical(result: Found) -> Iterator[str]:
    if result.slack_ns is None:
        return
    spare = result.slack_ns[result.slack_ns >= 0]
    near = int((spare <= NEAR * result.path.length_ns).sum())
    yield ""
    yield (
        f"{format_count(near)} of {format_counted(len(spare), 'node')} have a slack of at most 1 % of the finish "
        f"({format_ns(NEAR * result.path.length_ns)}): they are near-critical"
    )


@click.command(help=__doc__, epilog="Example: chakra-studio critical-path traces/ --slack")
@run_options
@click.option("--slack", is_flag=True, help="Work out how much later each node could have ended, too.")
@click.pass_context
def command(ctx: click.Context, /, as_json: bool, allow_damaged: bool, **given: Any) -> None:
    """Carry out `critical-path`."""
    result = run(Request(**given), progress=build_progress_line())
    warn_of_check([result.of])
    show(result, as_json, report, text)
    end_with_losses(ctx, list_findings([result.of]), allow_damaged, warned=False)
