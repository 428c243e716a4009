"""Print what commands say: results as text or JSON, warnings, lost data, progress."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from studio.commands.base.losses import STATUS, format_losses, select_losses
from studio.commands.base.terminal import QUIET, escape_controls
from studio.trace import Finding
from studio.units import format_count, format_counted, format_si

if TYPE_CHECKING:
    from studio.comparing import Compared
    from studio.et.seen import JobSeen

_T = TypeVar("_T")
_BAR = 30
_SHOW_EVERY_S = 0.1
_READING = ("reading", "linking")
"""Phases that are about ranks which are read."""


def say(text: str) -> None:
    """Print a text; control characters are escaped."""
    click.echo(escape_controls(text))


def show(
    result: _T, as_json: bool, report: Callable[[_T], Any], text: Callable[[_T], str], *, err: bool = False
) -> None:
    """Print a command's result as JSON or text; on stderr where the standard output is what it wrote."""
    click.echo(_format_json(report(result)) if as_json else text(result), err=err)


def _format_json(report: Any) -> str:
    """Return a report as indented JSON.

    In ASCII: names may hold what a terminal would obey, and not every terminal knows every letter. The standard library writes it
    compactly ten times as fast as indented, which counts where a run has a million collectives.
    """
    try:
        return msgspec.json.format(json.dumps(report), indent=2)
    except msgspec.DecodeError:
        # It holds a number that is none, which JSON does not know.
        return json.dumps(report, indent=2)


def warn(finding: Finding) -> None:
    """Print a warning or error of a reader."""
    if finding.level != "info":
        click.secho(
            escape_controls(f"{finding.level.capitalize()}: {finding.message}"), fg="yellow", err=True
        )


def end_with_losses(
    ctx: click.Context, findings: Iterable[Finding], allowed: bool, *, warned: bool = True
) -> None:
    """Report lost data on stderr and exit with status 4, unless `--allow-damaged` is given.

    Args:
        ctx: The command.
        findings: What the readers noticed.
        allowed: Whether the user said that input may be damaged.
        warned: Whether the findings themselves were shown already.
    """
    lost = select_losses(findings)
    if not lost:
        return
    for finding in () if warned else lost:
        warn(finding)
    click.secho(format_losses(lost, allowed=allowed), fg="yellow", err=True)
    if not allowed:
        ctx.exit(STATUS)


def list_findings(sides: Iterable[Compared]) -> Iterator[Finding]:
    """Yield what the readers of all sides noticed."""
    return (finding for side in sides for finding in side.side.trace.findings)


def say_wait(what: str) -> None:
    """Say what the command waits for when it cannot show progress."""
    click.echo(f"{what[0].upper()}{what[1:]} ...", err=True)


def build_progress_line() -> Callable[[str, int, int], None] | None:
    """Return a progress callback that updates one terminal line; None without a terminal, or with `--quiet`."""
    context = click.get_current_context(silent=True)
    if not sys.stderr.isatty() or (context is not None and context.meta.get(QUIET)):
        return None
    from studio.et.seen import JobSeen

    return _Line(JobSeen())


class _Line:
    """Shows progress in one line of the terminal, with what is known of the job that is read.

    Attributes:
        seen: Told of ranks as they are read.
    """

    def __init__(self, seen: JobSeen) -> None:
        self.seen = seen
        # Reading reports from two threads.
        self._lock, self._shown, self._shown_s = threading.Lock(), "", 0.0

    def __call__(self, phase: str, done: int, total: int) -> None:
        with self._lock:
            now_s, ends = time.monotonic(), done >= total
            if phase == self._shown and not ends and now_s - self._shown_s < _SHOW_EVERY_S:
                return
            self._shown, self._shown_s = phase, now_s
            filled = _BAR * done // max(total, 1)
            bar = "#" * filled + "." * (_BAR - filled)
            # Cleared at the end: what follows, an error above all, starts on a line of its own.
            end = "\r\033[K" if ends else "\033[K"
            line = f"{phase:10} [{bar}] {100 * done // max(total, 1):3}%"
            # A line that is longer than the terminal is wide cannot be written over.
            left = get_terminal_size().columns - len(line)
            for words in _describe_seen(self.seen) if phase in _READING else ():
                left -= len(words)
                line += words if left > 0 else ""
            click.echo(f"\r{line}{end}", nl=False, err=True, color=True)


def _describe_seen(seen: JobSeen) -> list[str]:
    """Return what is known of a job that is read, to follow how far it is; most important first."""
    picture = seen.picture()
    if picture is None:
        return []
    ranks = f"{format_count(picture.ranks)} of {format_counted(picture.of_ranks, 'rank')}"
    parts = [ranks if picture.of_ranks else format_counted(picture.ranks, "rank")]
    parts.append(f"{format_si(sum(picture.operations.values()))} operations")
    if picture.refused:
        refused = len(picture.refused) + picture.more_refused
        parts.append(f"{format_counted(refused, 'file')} left out")
    return [f"  {parts[0]}", *(f", {part}" for part in parts[1:])]
