"""Split the finish of each rank: parts, comm groups, and whom it waited for.

JOB or RUN is named as for compare: a folder or files of traces that hold times, or a job or run of the workspace. Parts
add up to each rank's finish to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import click
import numpy as np

from studio.analysis.collectives.apart import describe_apart, list_apart
from studio.analysis.job.blame import Blame, compute_blame
from studio.analysis.job.group_times import COLUMNS, GroupTimes, build_group_filter, sum_group_times
from studio.analysis.job.kinds import lacks_host
from studio.analysis.job.ledger import AFTER_FINISH, PART_CODES, PARTS, Ledger
from studio.analysis.job.part_words import NAMES, NO_HOST
from studio.analysis.job.rank_rows import describe_unrecorded, label_ranks
from studio.analysis.job.together import describe_ready_waits
from studio.analysis.job.windows import build_step_windows, build_whole_windows, build_windows_between
from studio.commands.base.checked import warn_of_check, with_stored_check
from studio.commands.base.node_names import NodeNames
from studio.commands.base.one_run import RunRequest, run_options
from studio.commands.base.options import parse_time, suggest
from studio.commands.base.output import build_progress_line, end_with_losses, list_findings, show
from studio.commands.base.terminal import align_columns, escape_controls, shorten
from studio.comparing import Compared
from studio.errors import ConfigError
from studio.et import Progress
from studio.trace import NONE, WORLD, Int64, label_collective
from studio.units import format_count, format_counted, format_ns

_RANKS, _GROUPS, _WAITS = 16, 8, 8
_WORLD_WORD = "all"
_UNNAMED = {"SEND": "", "RECV": "", label_collective(NONE): "group unknown"}
"""What stands in place of the name of a comm group that is none; else that is the group of all ranks."""


@dataclass(frozen=True, slots=True)
class Request(RunRequest):
    """Options of `breakdown`.

    Attributes:
        step: Number of the training step to look at; None for the whole run.
        from_ns, to_ns: The stretch of time to look at; None for the beginning and the finish.
        group: Name of the comm group to look at, "all" for that of all ranks; None for all groups.
    """

    step: int | None = None
    from_ns: int | None = None
    to_ns: int | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Where the time of the ranks of a run went.

    K ranks.

    Attributes:
        of: The run.
        account: Its ledger.
        windows: (K, 2) what is looked at of each rank, in ns after the beginning of the run.
        ns: (K, parts) time in each part there.
        groups: Exposed communication by comm group.
        waits: Whom each rank waited for.
    """

    of: Compared
    account: Ledger
    windows: Int64
    ns: Int64
    groups: GroupTimes
    waits: Blame

    @property
    def ends_ns(self) -> Int64:
        """(K,) the finish of each rank within its window, from the window's beginning."""
        ends: Int64 = np.clip(self.account.finish_ns, self.windows[:, 0], self.windows[:, 1])
        return ends - self.windows[:, 0]

    @property
    def before_ns(self) -> Int64:
        """(K,) how much of each rank's window lies before its recording began, where it counts as stalled."""
        begun: Int64 = np.minimum(self.account.before_ns, self.windows[:, 1]) - self.windows[:, 0]
        return np.maximum(begun, 0)

    @property
    def after_finish_ns(self) -> Int64:
        """(K,) how long each rank was done before its window ended."""
        after: Int64 = self.windows[:, 1] - self.windows[:, 0] - self.ends_ns
        return after


def run(request: Request, *, progress: Progress | None = None) -> Breakdown:
    """Read the run and split the finish of its ranks.

    Raises:
        ConfigError: Nothing is called so, or it has no such step or group.
        StudioError: What is named cannot be read, or holds no times.
    """
    compared = with_stored_check(request.find(progress), request.workspace)
    side = compared.side
    trace, account = side.trace, side.ledger()
    windows = _choose_windows(request, compared, account)
    groups = sum_group_times(trace, account, windows, side.groups)
    wanted = None
    if request.group is not None:
        name = _group_named(request.group, account, groups)
        wanted = build_group_filter(trace, {name}, side.groups)
        groups = groups.only(name)
    waits = compute_blame(trace, side.times, account, windows, wanted)
    return Breakdown(compared, account, windows, account.within(windows), groups, waits)


def _choose_windows(request: Request, compared: Compared, account: Ledger) -> Int64:
    given = request.from_ns is not None or request.to_ns is not None
    if request.step is not None:
        if given:
            raise ConfigError("--step and --from or --to exclude each other", hint="Give one of them.")
        return build_step_windows(compared.side.trace, compared.side.times, account, request.step)
    if not given:
        return build_whole_windows(account)
    start = request.from_ns or 0
    end = account.makespan_ns if request.to_ns is None else request.to_ns
    if not 0 <= start < end <= account.makespan_ns:
        finish = format_ns(account.makespan_ns)
        raise ConfigError(
            f"--from {format_ns(start)} --to {format_ns(end)}; allowed: a stretch of time between 0 and the finish, {finish}",
            hint="Times count from the beginning of the run.",
        )
    return build_windows_between(account, start, end)


def _group_named(word: str, account: Ledger, groups: GroupTimes) -> str:
    known = dict.fromkeys([*(group.name for group in account.arrivals.groups), *groups.group])
    name = WORLD if word == _WORLD_WORD and word not in known else word
    if name not in known:
        shown = [group_name or _WORLD_WORD for group_name in known]
        listed = ", ".join(shown[:8]) + (", …" if len(shown) > 8 else "")
        raise ConfigError(
            f"no rank communicates in a comm group {word!r}; allowed: {listed or 'none, the job has no communication'}",
            hint=suggest(word, shown) or "The groups are those of the trace.",
        )
    return name


def report(shown: Breakdown) -> dict[str, Any]:
    """Return a breakdown as plain data; times are whole nanoseconds."""
    account, names = shown.account, NodeNames(shown.of.side.trace)
    groups, waits = _index_by_rank(shown.groups.rank), _index_by_rank(shown.waits.waiter)
    dimensions = _index_dimensions(shown)
    whole_run = bool((shown.windows == build_whole_windows(account)).all())
    before_ns, after_finish_ns = shown.before_ns.tolist(), shown.after_finish_ns.tolist()
    return {
        "name": shown.of.name,
        "job": shown.of.job or None,
        "run": shown.of.run,
        "finish_ns": account.makespan_ns,
        "is_recording": account.is_recording,
        "ranks": [
            {
                "rank": number,
                "finish_ns": int(account.finish_ns[index]),
                "window_ns": None if whole_run else shown.windows[index].tolist(),
                "parts": {part: int(shown.ns[index, code]) for code, part in enumerate(PARTS)},
                "before_recording_ns": before_ns[index],
                "after_finish_ns": after_finish_ns[index],
                "groups": [_group_report(shown.groups, at, dimensions) for at in groups.get(index, ())],
                "blame": [_build_blame_report(shown, names, at) for at in waits.get(index, ())],
            }
            for index, number in enumerate(account.numbers)
        ],
        "waited_for": [
            {"rank": account.numbers[index], "ns": ns} for index, ns in _list_culprits(shown) if ns
        ],
        "apart": list_apart(_index_apart(shown).items()),
    }


def _index_by_rank(rank: Int64) -> dict[int, list[int]]:
    places: dict[int, list[int]] = {}
    for place, index in enumerate(rank.tolist()):
        places.setdefault(index, []).append(place)
    return places


def _index_dimensions(shown: Breakdown) -> Mapping[str, tuple[int, ...]]:
    """Return the dimensions of the network that lie between the members of each comm group, where they are known."""
    side = shown.of.side
    if side.dimensions_between is None:
        return {}
    numbers = [rank.number for rank in side.trace.ranks]
    return {
        group.name: side.dimensions_between(
            [numbers[place] for place in group.places.tolist() if place != NONE]
        )
        for group in shown.account.arrivals.groups
    }


def _group_report(groups: GroupTimes, at: int, dimensions: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    is_message = groups.type[at] in ("SEND", "RECV")
    between = None if is_message else dimensions.get(groups.group[at])
    parts = {part: int(groups.ns[at, column]) for column, part in enumerate(COLUMNS) if groups.ns[at, column]}
    return {
        "group": groups.group[at],
        "collective": groups.type[at],
        "dimensions": None if between is None else list(between),
        "ns": int(groups.ns[at].sum()),
        "parts": parts,
    }


def _build_blame_report(shown: Breakdown, names: NodeNames, at: int) -> dict[str, Any]:
    waits, account = shown.waits, shown.account
    culprit, waiter = int(waits.culprit[at]), int(account.places[waits.waiter[at]])
    other = int(account.places[culprit]) if culprit != NONE else NONE
    late, busy = int(waits.late_row[at]), int(waits.busy_row[at])
    return {
        "rank": account.numbers[culprit] if culprit != NONE else None,
        "ns": int(waits.ns[at]),
        "doing": {
            part: int(waits.doing[at, code]) for code, part in enumerate(PARTS) if waits.doing[at, code]
        },
        "assumed_arrival_ns": int(waits.assumed_ns[at]),
        "before_recording_ns": int(waits.before_ns[at]),
        "longest": {
            "ns": int(waits.longest_ns[at]),
            "node": names.id(waiter, int(waits.row[at])),
            "waited_for": names.id(other, late) if other != NONE else None,
            "busy_node": names.id(other, busy) if busy != NONE else None,
            "busy_name": names.name(other, busy) if busy != NONE else None,
        },
    }


def _list_culprits(shown: Breakdown) -> list[tuple[int, int]]:
    """Return the ranks, as indices, and how long others waited for each, the longest first."""
    total = shown.waits.of_culprits(len(shown.account))
    return [(index, int(total[index])) for index in np.argsort(-total, kind="stable").tolist()]


def text(shown: Breakdown) -> str:
    """Format a breakdown for a terminal."""
    lines = [_format_head(shown), "", *_rank_lines(shown), "", *_group_lines(shown), *_wait_lines(shown)]
    if apart := describe_apart(_index_apart(shown).items()):
        lines.append(apart)
    if words := describe_ready_waits(shown.account):
        lines += ["", words]
    if devices := shown.of.side.device_parts(shown.account):
        lines += ["", devices.words()]
    if any(map(lacks_host, shown.of.side.trace.graphs)):
        lines.append(NO_HOST)
    return "\n".join(escape_controls(line) for line in lines).rstrip()


def _index_apart(shown: Breakdown) -> dict[str, Int64]:
    """Return where members of each comm group do different things, so that nothing tells whether one waited for another."""
    return {group.name: group.apart for group in shown.account.arrivals.groups if len(group.apart)}


def _format_head(shown: Breakdown) -> str:
    account = shown.account
    count = f"{format_count(len(account))} {'rank' if len(account) == 1 else 'ranks'}"
    source = "recorded" if account.is_recording else shown.of.side.model
    note = (
        "; of communication a recording tells only how much was waiting for other ranks"
        if account.is_recording and len(account) > 1
        else ""
    )
    return f"{shown.of.name}  ({source}), {count}, finish {format_ns(account.makespan_ns)}{note}"


def _rank_lines(shown: Breakdown) -> Iterator[str]:
    """Yield a line per rank: first the ranks that others waited for longest, then the busiest ones.

    Ranks whose lines read alike share one.
    """
    account, waited = shown.account, shown.waits.of_culprits(len(shown.account))
    used = [code for code in range(len(PARTS)) if shown.ns[:, code].any()]
    late = bool(shown.after_finish_ns.any())
    heads = ["rank", "finish", *(NAMES[PARTS[code]] for code in used)]
    heads += [NAMES[AFTER_FINISH]] * late + ["others waited"] * bool(waited.any())
    lost = (
        shown.ns[:, [PART_CODES["waiting"], PART_CODES["bubble"], PART_CODES["stall"]]].sum(axis=1)
        - shown.before_ns
    )
    order = np.lexsort((lost + shown.after_finish_ns, -waited))
    alike: dict[tuple[str, ...], list[int]] = {}
    for index in order.tolist():
        figures = [int(shown.ends_ns[index]), *shown.ns[index, used].tolist()]
        figures += [int(shown.after_finish_ns[index])] * late + [int(waited[index])] * bool(waited.any())
        cells = tuple(format_ns(ns) if ns else "–" for ns in figures)
        alike.setdefault(cells, []).append(account.numbers[index])
    rows = [tuple(heads)]
    for cells, numbers in list(alike.items())[:_RANKS]:
        rows.append((label_ranks(tuple(sorted(numbers))).removeprefix("rank "), *cells))
    yield from align_columns(rows, (6, *(10,) * (len(heads) - 1)))
    left = sum(map(len, list(alike.values())[_RANKS:]))
    if left:
        yield f"and {format_counted(left, 'more rank')}; --json lists all"
    if before := describe_unrecorded(account, shown.before_ns):
        yield before


def _group_lines(shown: Breakdown) -> Iterator[str]:
    groups = shown.groups
    total: dict[tuple[str, str], list[int]] = {}
    for at, key in enumerate(zip(groups.type, groups.group, strict=True)):
        total.setdefault(key, []).append(at)
    if not total:
        return
    rows = [("not hidden by work, all ranks", "ranks", "time", *(NAMES[part] for part in COLUMNS))]
    used = [0, 1, 2]
    listed = sorted(total.items(), key=lambda item: -int(groups.ns[item[1]].sum()))
    for (kind, name), entries in listed[:_GROUPS]:
        ns = groups.ns[entries].sum(axis=0).tolist()
        words = f"{kind} {name or _UNNAMED.get(kind, 'all ranks')}".rstrip()
        cells = (format_ns(value) if value else "–" for value in ns)
        rows.append((shorten(words, 34), format_count(len(entries)), format_ns(sum(ns)), *cells))
    used += [3 + column for column in range(len(COLUMNS)) if groups.ns[:, column].any()]
    yield from align_columns(
        [tuple(row[cell] for cell in used) for row in rows], (34, *(10,) * (len(used) - 1))
    )
    if len(listed) > _GROUPS:
        yield f"and {format_count(len(listed) - _GROUPS)} more; --json lists all"
    yield ""


def _wait_lines(shown: Breakdown) -> Iterator[str]:
    waits, account, names = shown.waits, shown.account, NodeNames(shown.of.side.trace)
    if not len(waits):
        yield (
            "no rank waited for another"
            if len(shown.account) > 1
            else "waiting for other ranks is not known of one rank alone"
        )
        return
    yield "longest waits"
    for at in range(min(len(waits), _WAITS)):
        culprit, busy = int(waits.culprit[at]), int(waits.busy_row[at])
        whom = f"rank {account.numbers[culprit]}" if culprit != NONE else "a rank that is not known"
        part, share = waits.mostly(np.array([at]))
        words = f"which was at: {100 * share:.0f} % of it {NAMES[part]}" if culprit != NONE else ""
        if part == "before":
            words = f"{100 * share:.0f} % of it before that rank's recording began, of which nothing is known"
        if busy != NONE and part != "assumed":
            words += f", in the longest wait {shorten(names.name(int(account.places[culprit]), busy), 40)}"
        yield (
            f"  rank {account.numbers[int(waits.waiter[at])]} waited {format_ns(int(waits.ns[at]))} for {whom}"
            f"{', ' + words if words else ''}"
        )
    if len(waits) > _WAITS:
        yield f"  and {format_count(len(waits) - _WAITS)} more; --json lists all"


@click.command(help=__doc__, epilog="Example: chakra-studio breakdown traces/ --step 2")
@run_options
@click.option(
    "--step", type=click.IntRange(min=0), metavar="N", help="Look at a training step of each rank alone."
)
@click.option(
    "--from", "from_ns", callback=parse_time, metavar="TIME", help="Look at the run from here on, as 2ms."
)
@click.option(
    "--to", "to_ns", callback=parse_time, metavar="TIME", help="Look at the run up to here, as 5ms."
)
@click.option(
    "--group", metavar="NAME", help="Look at the waits in a comm group alone; all is that of all ranks."
)
@click.pass_context
def command(ctx: click.Context, /, as_json: bool, allow_damaged: bool, **given: Any) -> None:
    """Carry out `breakdown`."""
    shown = run(Request(**given), progress=build_progress_line())
    warn_of_check([shown.of])
    show(shown, as_json, report, text)
    end_with_losses(ctx, list_findings([shown.of]), allow_damaged, warned=False)
