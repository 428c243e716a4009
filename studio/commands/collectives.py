"""List collectives by type, group size and size: how many, how long, how fast, whom others wait for and what took longer there.

JOB|RUN is a folder, files or the prefix of files of traces that hold times, or, in the workspace, a run (RUN or JOB/RUN) or a
job: its recording (JOB/recorded), else its newest run. Times are from the arrival of the last member to the end. With
--preset, or for a recording on devices that are known, they are held against what that system attains.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import click
import numpy as np

from studio.analysis.collectives.apart import describe_apart, list_apart
from studio.analysis.collectives.group_sizes import explain_open, read_job_size
from studio.analysis.collectives.nccl_tests import compute_whole_bytes
from studio.analysis.collectives.size_classes import SizeClass, describe_partial, list_size_classes
from studio.analysis.collectives.times import CollectiveTimes, compute_collective_times
from studio.analysis.job.blame import compute_collective_waits
from studio.analysis.job.late_ranks import (
    Late,
    Lateness,
    count_awaited,
    count_last_ranks,
    describe_late_rank,
    find_late_ranks,
)
from studio.analysis.job.node_refs import format_node_ref
from studio.analysis.job.summary import describe_unknown_kernels, summarise
from studio.analysis.job.together import describe_ready_waits
from studio.commands.base.checked import warn_of_check, with_stored_check
from studio.commands.base.one_run import RunRequest, run_options
from studio.commands.base.outcome import WHOLE, WHOLE_WORDS
from studio.commands.base.output import build_progress_line, end_with_losses, list_findings, show
from studio.commands.base.terminal import escape_controls
from studio.comparing import Compared
from studio.et import Progress
from studio.sim.attained import FASTER, FASTER_WORDS, Attained, find_attained
from studio.trace import NONE, CollectiveType
from studio.units import format_bytes, format_count, format_counted, format_ns, format_rate

_LATE, _LATE_SHOWN = 16, 4
"""Ranks of which is looked at what they did before they came last, and those that the terminal shows."""


@dataclass(frozen=True, slots=True)
class Request(RunRequest):
    """Options of `collectives`.

    Attributes:
        system: The preset to hold times against; None is that of the recorded devices.
    """

    system: str | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """The collectives of a run.

    Attributes:
        side: The run.
        times: Its collectives.
        classes: What was found.
        attained: What the system attains of each class; None where no system is known.
        late: Ranks that came last, those waited for longest first, and what lasted longer there.
        late_count: How many ranks came last to some.
        note: Why starts tell no skew, or what is known of communication of which nothing is listed; "" where there is neither.
    """

    side: Compared
    times: CollectiveTimes
    classes: list[SizeClass]
    attained: Attained | None
    late: list[Late]
    late_count: int
    note: str = ""


def run(request: Request, *, progress: Progress | None = None) -> Listed:
    """Read the run and add up its collectives.

    Raises:
        ConfigError: Nothing is called so, or the preset does not fit the job.
        StudioError: What is named cannot be read, or holds no times.
    """
    compared = with_stored_check(request.find(progress), request.workspace)
    side = compared.side
    times = compute_collective_times(side.trace, side.times, side.groups)
    # The ledger is made only where ranks may have waited; members recorded to begin together may have, too.
    begin_together = side.is_recording and bool(((times.skew_ns == 0) & (times.present > 1)).any())
    late_count = count_last_ranks(times)
    account = side.ledger() if begin_together or late_count else None
    waits = None if account is None else compute_collective_waits(side.trace, account, times)
    classes = list_size_classes(side.trace, times, waits, side.groups)
    note = describe_ready_waits(account) if account is not None and begin_together else ""
    note = note or ("" if classes else describe_unknown_kernels(summarise(side.trace)))
    late: list[Late] = []
    if account is not None and late_count:
        late = find_late_ranks(Lateness(side.trace, side.times, account), times, waits, most=_LATE)
    attained = find_attained(side.trace, classes, request.system)
    return Listed(compared, times, classes, attained, late, late_count, note)


def report(listed: Listed) -> dict[str, Any]:
    """Return what `--json` prints."""
    rows = []
    for index, each in enumerate(listed.classes):
        row: dict[str, Any] = {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in asdict(each).items()
        }
        if listed.attained is not None:
            row["attained_ns"] = listed.attained.ns[index]
        rows.append(row)
    return {
        "name": listed.side.name,
        "system": listed.attained.system if listed.attained else None,
        "note": listed.note or None,
        "collectives": rows,
        "late": [_build_late_report(listed, late) for late in listed.late],
        "apart": list_apart(listed.times.apart_by_group()),
    }


def _build_late_report(listed: Listed, late: Late) -> dict[str, Any]:
    row = asdict(late)
    return {
        "rank": row.pop("rank"),
        "node": _find_node(listed, late),
        **{k: row[k] for k in row if k != "row"},
    }


def _find_node(listed: Listed, late: Late) -> str:
    """Return the id of the node of a rank in the collective of its longest skew."""
    return format_node_ref(listed.side.side.trace.graph_of(late.rank), late.row)


def _format_late_ranks(listed: Listed) -> Iterator[str]:
    """Yield a line for each of the ranks waited for longest, with the node to look at."""
    total = count_awaited(listed.times)
    for late in listed.late[:_LATE_SHOWN]:
        yield f"{describe_late_rank(late, total)}; longest at its node {_find_node(listed, late)}"
    more = listed.late_count - _LATE_SHOWN
    if more > 0:
        known = len(listed.late)
        rest = "--json lists all" if known == listed.late_count else f"--json lists {known}"
        yield f"{format_counted(more, 'more rank')} came last to some; {rest}"


def text(listed: Listed) -> str:
    """Format the list for a terminal."""
    attained = listed.attained
    sizes = [_format_span(each.least_bytes, each.most_bytes) for each in listed.classes]
    whole = [_format_span(*_compute_whole_sizes(each)) for each in listed.classes]
    ranks = [f"{each.members:,}{'+' if each.is_open else ''}" for each in listed.classes]
    if whole == sizes:
        whole = [""] * len(sizes)
    wide, wider = (max(least, *map(len, cells), 0) for least, cells in ((10, sizes), (len(WHOLE), whole)))
    whole = [f"{cell:>{wider + 2}}" if cell else "" for cell in (WHOLE if any(whole) else "", *whole)]
    head = f"{'type':<16}{'ranks':>7}{'size':>{wide + 2}}{whole[0]}{'count':>8}{'median':>11}{'p99':>11}{'busbw':>12}{'of attained':>13}{'skew':>11}  waited for"
    lines = [f"{listed.side.name}: {len(listed.classes):,} classes of collectives", head]
    if attained:
        lines.insert(
            1,
            f"of attained: the time on {attained.system} by the simulator's costs, over the recorded time; 100 % is as fast",
        )
    if whole[0]:
        lines.insert(1, WHOLE_WORDS.replace("algbw and busbw are", "busbw is"))
    # Of one member alone nothing tells when the others came.
    alone = len(listed.side.side.trace.ranks) == 1
    for index, each in enumerate(listed.classes):
        share = attained.share(index, each.median_ns) if attained else None
        rate = each.bus_bytes_per_ns
        lines.append(
            f"{each.type:<16}{ranks[index]:>7}{sizes[index]:>{wide + 2}}{whole[index + 1]}"
            f"{format_count(each.count) + '*' * bool(each.partial_count):>8}{format_ns(each.median_ns):>11}{format_ns(each.p99_ns):>11}"
            f"{'-' if math.isnan(rate) else format_rate(rate):>12}{'-' if share is None else f'{100 * share:.0f} %':>13}"
            f"{'-' if alone else format_ns(each.skew_ns):>11}  {_format_last(each)}"
        )
    if attained and any(attained.is_faster(at, each.median_ns) for at, each in enumerate(listed.classes)):
        lines.append(f"over {100 * FASTER:.0f} % of attained: {FASTER_WORDS}")
    if known := sorted({each.members for each in listed.classes if each.is_open}):
        lines.append(explain_open(known[0], read_job_size(listed.side.side.trace)))
    notes = describe_partial(listed.classes, "*"), describe_apart(listed.times.apart_by_group())
    lines += filter(None, notes)
    if listed.late:
        lines += ["", "Who came last, and what took longer there:", *_format_late_ranks(listed)]
    if listed.note:
        lines.append(listed.note)
    return "\n".join(escape_controls(line) for line in lines)


def _format_span(least_bytes: int, most_bytes: int) -> str:
    """Return sizes from the least to the most; one where they are equal."""
    if not most_bytes:
        return "-"
    most = format_bytes(most_bytes)
    return most if least_bytes == most_bytes else f"{format_bytes(least_bytes)} to {most}"


def _compute_whole_sizes(each: SizeClass) -> tuple[int, int]:
    """Return the sizes of the whole array, which bandwidths are of; 0 where they depend on members that are not known."""
    kind = np.full(2, CollectiveType.__members__.get(each.type, NONE))
    least, most = compute_whole_bytes(
        kind,
        np.array([each.least_bytes, each.most_bytes]),
        np.full(2, each.members),
        np.full(2, each.is_open),
    ).tolist()
    return least, most


def _format_last(each: SizeClass) -> str:
    return "-" if each.last_rank == NONE else f"rank {each.last_rank} {100 * each.last_share:.0f} %"


@click.command(help=__doc__, epilog="Example: chakra-studio collectives traces/ --preset hgx-h100 --json")
@run_options
@click.option("--preset", "system", metavar="NAME|FILE", help="The system to hold times against.")
@click.pass_context
def command(ctx: click.Context, /, as_json: bool, allow_damaged: bool, **given: Any) -> None:
    """Carry out `collectives`."""
    listed = run(Request(**given), progress=build_progress_line())
    warn_of_check([listed.side])
    show(listed, as_json, report, text)
    end_with_losses(ctx, list_findings([listed.side]), allow_damaged, warned=False)
