"""What commands that look at one run share: its name and options, and how it is found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from studio.commands.base.names import find_runs
from studio.commands.base.options import NameOrPath, allow_damaged, json_option, rank_option, workspace_option
from studio.comparing import Compared
from studio.et import Progress


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The run that a command looks at.

    Attributes:
        name: The job or run, as `names.find_runs` takes it.
        workspace: Its folder; None is the user's.
        ranks: Rank numbers by file name, for files that do not tell theirs.
    """

    name: str
    workspace: Path | None = None
    ranks: Mapping[str, int] = field(default_factory=dict)

    def find(self, progress: Progress | None = None) -> Compared:
        """Read the run.

        Raises:
            ConfigError: Nothing is called so.
            StudioError: What is named cannot be read, or holds no times.
        """
        names = (self.name,)
        [run] = find_runs(names, self.workspace, ranks=self.ranks, progress=progress, least=1)
        return run


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument and the options of such a command: `name`, `as_json`, `workspace`, `allow_damaged` and `ranks`."""
    named = click.argument("name", metavar="JOB|RUN", type=NameOrPath())
    return named(json_option(workspace_option(allow_damaged(rank_option(command)))))
