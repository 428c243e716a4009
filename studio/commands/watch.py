"""Import what arrives in a folder, and say of each job how it compares with the one before it.

FOLDER is a folder, or an address that fsspec reads, such as s3://bucket/traces. Each folder or archive in it is looked at
by itself, and the files that lie in it directly together; what is one job, the files say themselves. A job has arrived when its
files have not changed for --settle. It is imported once, over restarts too; files that change are a new version of it.
Jobs of one series have the same name, but for dates, times and a number at its end.

--once looks once, waiting for files that are still being written for no longer than --settle, and exits with 4 if any
could not be read, or not in full. Without it the folder is watched until Ctrl+C.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from studio.analysis.job.function_names import cut_middle
from studio.analysis.trends.changes import describe_difference
from studio.commands.base.losses import STATUS
from studio.commands.base.options import (
    NameOrPath,
    PathOption,
    add_size_options,
    allow_damaged,
    json_option,
    quiet_option,
)
from studio.commands.base.output import build_progress_line
from studio.commands.base.terminal import escape_controls
from studio.errors import ConfigError, StudioError
from studio.et import Progress
from studio.et.format import UNSAID, JobSize
from studio.jobs.places import open_place
from studio.jobs.watching import Arrived, Refused, Watch, watch_folder
from studio.session import Session
from studio.store.workspace import Workspace
from studio.units import format_count, format_counted, format_ns, parse_ns
from studio.views.trends import (
    Point,
    choose_measured_run,
    describe_verdict,
    group_by_series,
    list_points,
    list_previous_points,
    point_before,
    point_of,
)

_SHOWN = 20
_NAME = 36
_LONGEST_HINT = 200
_HEAD = f"{'written':18}{'job':{_NAME}}{'ranks':>7}{'step time':>12}{'exposed':>10}{'imbalance':>11}  {'verdict':22}against the one before"


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `watch`.

    Attributes:
        folder: A folder or an address.
        workspace: Where to import; None is the user's.
        once: Whether to look once only.
        interval_s: How long to wait between two looks.
        settle_s: How long the files of a job must not have changed.
        size: NPUs and passes, where a workload leaves them open.
    """

    folder: str
    workspace: Path | None = None
    once: bool = False
    interval_s: float = 5.0
    settle_s: float = 10.0
    size: JobSize = UNSAID


@dataclass(frozen=True, slots=True)
class Line:
    """A job of the folder.

    Attributes:
        point: The job with its measures.
        before: The one before it in its series; None for the first.
        version: 1, or which version of the same files.
        is_new: Whether it came just now; others came in an earlier watch.
    """

    point: Point
    before: Point | None
    version: int = 1
    is_new: bool = True


@dataclass(frozen=True, slots=True)
class Waiting:
    """Files that were still being written when a single look at the folder ended.

    Attributes:
        files: How many files.
        first: One of them.
    """

    files: int
    first: str


def run(
    request: Request,
    *,
    progress: Progress | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> Iterator[Line | Refused | Waiting]:
    """Watch a folder; yields the jobs that came earlier, then each that comes, and what cannot be read.

    Raises:
        StudioError: The folder cannot be listed, or the workspace cannot be written.
    """
    root = request.workspace or Workspace.default_root()
    place = open_place(request.folder, root)
    # Before the workspace is made: a folder that is not there leaves nothing behind.
    place.stamps()
    workspace = Workspace(root)
    session = Session(workspace)
    with watch_folder(workspace, place, request.settle_s, request.size) as watch:
        yield from _find_known(session, watch)
        yield from _look(session, watch, progress)
        if request.once:
            if watch.pending:
                wait(request.settle_s)
                yield from _look(session, watch, progress)
            if watch.pending:
                yield Waiting(len(watch.pending), watch.pending[0])
            return
        unreachable = ""
        while True:
            wait(request.interval_s)
            try:
                yield from _look(session, watch, progress)
                unreachable = ""
            except StudioError as error:
                # A share that is gone for a while comes back; it is said once.
                if error.message != unreachable:
                    unreachable = error.message
                    yield Refused(request.folder, error.message, error.hint)


def _find_known(session: Session, watch: Watch) -> Iterator[Line]:
    """Yield the jobs of the folder that came in earlier watches and are still there, the earliest first."""
    own, lines = set(watch.jobs), list[Line]()
    for series in group_by_series(list_points(session)).values():
        pairs = zip(series, list_previous_points(series), strict=True)
        lines += [Line(point, before, is_new=False) for point, before in pairs if point.job in own]
    yield from sorted(lines, key=lambda line: (line.point.when, line.point.job))


def _look(session: Session, watch: Watch, progress: Progress | None) -> Iterator[Line | Refused]:
    for event in watch.look(progress):
        if isinstance(event, Arrived):
            yield from _measure_job(session, event)
        else:
            yield event


def _measure_job(session: Session, event: Arrived) -> Iterator[Line | Refused]:
    """Examine and measure a job that came; what fails there leaves its place in the line empty."""
    info = session.workspace.info(event.job)
    try:
        session.examination(event.job)
        run = choose_measured_run(session, info)
        if run is not None:
            session.measures(event.job, run)
    except (StudioError, MemoryError) as error:
        reason = error.message if isinstance(error, StudioError) else "not enough memory to measure it."
        yield Refused(info.name, f"{info.name}: {reason}", is_lost=False)
    point = point_of(session, info)
    yield Line(point, point_before(session, point), event.version)


def report(event: Line | Refused | Waiting) -> dict[str, Any]:
    """Return what happened as plain data; times in nanoseconds, shares as parts of the finish."""
    if isinstance(event, Refused):
        return {"event": "refused", "name": event.name, "message": event.message, "hint": event.hint}
    if isinstance(event, Waiting):
        return {"event": "waiting", "files": event.files, "first": event.first}
    point, measures = event.point, event.point.measures
    return {
        "event": "arrived" if event.is_new else "known",
        "job": point.job,
        "name": point.name,
        "series": point.series,
        "version": event.version,
        "when": point.when,
        "ranks": point.ranks,
        "run": point.run,
        "step_ns": None if measures is None else measures.step_ns,
        "finish_ns": None if measures is None else measures.finish_ns,
        "exposed": None if measures is None else measures.exposed,
        "idle": None if measures is None else measures.idle,
        "imbalance": None if measures is None else measures.imbalance,
        "verdict": None if point.levels is None else dict(point.levels),
        "damaged": point.damaged,
        "before": None if event.before is None else event.before.job,
        "difference": _describe_difference(event) or None,
    }


def _describe_difference(event: Line) -> str:
    measures, before = event.point.measures, event.before
    if measures is None or measures.finish_ns is None or before is None or before.measures is None:
        return ""
    return describe_difference(before.measures, measures)


def text(event: Line) -> str:
    """Format a job as a line of the table."""
    point, measures = event.point, event.point.measures
    name = point.name + (f" (version {event.version})" if event.version > 1 else "")
    written = time.strftime("%Y-%m-%d %H:%M", time.localtime(point.when))
    cells = ["–", "–", "–"]
    if measures is not None and measures.finish_ns is not None:
        pace = format_ns(measures.pace_ns or 0) + ("" if measures.step_ns is not None else "*")
        cells = [
            pace,
            f"{100 * (measures.exposed or 0):.1f} %",
            f"{measures.imbalance:.2f}" if measures.imbalance else "–",
        ]
    against = _describe_difference(event) or (
        "first of its series" if event.before is None else "holds no times"
    )
    if measures is None or measures.finish_ns is None:
        against = "holds no times"
    damaged = (
        f"damaged, {describe_verdict(point.levels)}" if point.damaged else describe_verdict(point.levels)
    )
    return escape_controls(
        f"{written:18}{cut_middle(name, _NAME):{_NAME}}{format_count(point.ranks):>7}"
        f"{cells[0]:>12}{cells[1]:>10}{cells[2]:>11}  {damaged:22}{against}"
    )


def _parse_seconds(_ctx: click.Context, param: click.Parameter, given: str) -> float:
    """Parse a time, such as 5s or 500ms."""
    try:
        ns = parse_ns(given)
    except ConfigError as error:
        raise click.BadParameter(error.message, param=param) from error
    if ns < 0:
        raise click.BadParameter("a time below 0; allowed: 0 or more, such as 5s.", param=param)
    return ns / 1e9


@click.command(help=__doc__, epilog="Example: chakra-studio watch /mnt/traces --settle 30s")
@click.argument("folder", type=NameOrPath())
@click.option("--workspace", type=PathOption(file_okay=False), help="Folder of imported jobs.")
@click.option("--once", is_flag=True, help="Look once, and end.")
@click.option(
    "--interval", "interval_s", callback=_parse_seconds, default="5s", show_default=True, metavar="TIME",
    help="Time between two looks.",
)  # fmt: skip
@click.option(
    "--settle", "settle_s", callback=_parse_seconds, default="10s", show_default=True, metavar="TIME",
    help="Time for which the files of a job must not have changed.",
)  # fmt: skip
@quiet_option
@json_option
@allow_damaged
@add_size_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    folder: str,
    quiet: bool,
    as_json: bool,
    allow_damaged: bool,
    npus: int | None,
    passes: int | None,
    **given: Any,
) -> None:
    """Carry out `watch`."""
    if not folder:
        raise click.BadParameter("it is empty; allowed: a folder, or an address such as s3://bucket/traces.")
    request = Request(folder, size=JobSize(npus, passes), **given)
    events = run(request, progress=build_progress_line())
    shown = _Shown(as_json=as_json)
    if not (request.once or quiet):
        click.echo(
            escape_controls(f"Watching {folder} every {request.interval_s:g} s. Press Ctrl+C to end."),
            err=True,
        )
    try:
        for event in events:
            shown.show(event)
    except KeyboardInterrupt:
        shown.end("Ended")
        return
    shown.end("Looked once" if request.once else "Ended")
    if shown.lost and not allow_damaged:
        ctx.exit(STATUS)


class _Shown:
    """Prints what happens: a table on stdout, or a line of JSON each, and what cannot be read on stderr."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json, self._headed = as_json, False
        self._earlier: list[Line] = []
        self._new = 0
        self.lost = 0

    def show(self, event: Line | Refused | Waiting) -> None:
        """Print one event."""
        if isinstance(event, Line) and event.is_new:
            self._new += 1
            self.lost += event.point.damaged > 0
        if isinstance(event, Refused):
            self.lost += event.is_lost
        if self._as_json:
            click.echo(json.dumps(report(event)))
            return
        if isinstance(event, Line) and not event.is_new:
            self._earlier.append(event)
            return
        self._flush()
        if isinstance(event, Line):
            self._print_row(event)
        elif isinstance(event, Waiting):
            count = format_counted(event.files, "file")
            click.secho(
                escape_controls(
                    f"{count} still being written, such as {event.first}: left for the next look."
                ),
                fg="yellow",
                err=True,
            )
        else:
            word = "Warning" if event.is_lost else "Note"
            # The list of all formats is longer than everything else that is said; --json has it.
            hint = event.hint if len(event.hint) <= _LONGEST_HINT else ""
            click.secho(escape_controls(f"{word}: {event.message} {hint}".rstrip()), fg="yellow", err=True)

    def end(self, how: str) -> None:
        """Print what is left, and how many jobs came."""
        if not self._as_json:
            self._flush()
            lost = f", {format_counted(self.lost, 'problem')}" if self.lost else ""
            click.echo(f"{how}: {format_counted(self._new, 'new job')}{lost}.", err=True)

    def _flush(self) -> None:
        hidden = len(self._earlier) - _SHOWN
        if hidden > 0:
            click.echo(
                f"{format_counted(hidden, 'earlier job')} not shown; --json has all of them, and so has Trends.",
                err=True,
            )
        for line in self._earlier[-_SHOWN:]:
            self._print_row(line)
        self._earlier = []

    def _print_row(self, line: Line) -> None:
        if not self._headed:
            click.echo(_HEAD)
            self._headed = True
        click.echo(text(line))
