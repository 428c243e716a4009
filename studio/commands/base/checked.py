"""Warn on stderr of recordings that `check` finds errors in, before their times are shown."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from studio.commands.base.terminal import escape_controls
from studio.comparing import Compared, with_check
from studio.doctor.stored import read_stored_examination
from studio.store.workspace import Workspace


def with_stored_check(side: Compared, workspace: Path | None) -> Compared:
    """Return a recording with what its check says of its times: what is stored with a job of the workspace, or found now."""
    known = None
    if side.job:
        known = read_stored_examination(
            Workspace(workspace or Workspace.default_root()).load_examination(side.job)
        )
    return with_check(side, known)


def warn_of_check(sides: Iterable[Compared]) -> None:
    """Print a line for each side of which the check has something to say."""
    for side in sides:
        if side.check:
            click.secho(escape_controls(f"Warning: {side.name}: {side.check}"), fg="yellow", err=True)
