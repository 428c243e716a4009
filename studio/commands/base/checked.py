"""Warn on stderr of recordings that `check` finds errors in, before their times are shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import click

from studio.commands.base.terminal import printable
from studio.comparing import Compared
from studio.doctor.believed import doubt_of_times
from studio.doctor.stored import stored_examination
from studio.store.workspace import Workspace


def with_check(side: Compared, workspace: Path | None) -> Compared:
    """Return a recording with what its check says of its times; a simulation tells its doubts itself.

    What is stored with a job of the workspace is taken; else the job is examined as far as that is cheap.
    """
    if not side.side.is_recording or side.check is not None:
        return side
    known = None
    if side.job:
        known = stored_examination(
            Workspace(workspace or Workspace.default_root()).load_examination(side.job)
        )
    return replace(side, check=doubt_of_times(side.side.trace, known))


def warn_of_check(sides: Iterable[Compared]) -> None:
    """Print a line for each side of which the check has something to say."""
    for side in sides:
        if side.check:
            click.secho(printable(f"Warning: {side.name}: {side.check}"), fg="yellow", err=True)
