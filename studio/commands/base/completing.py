"""Complete what is typed before Tab: files, the names of presets, and jobs and runs of the workspace."""

from __future__ import annotations

import re
from copy import copy
from typing import Any

import click
from click.shell_completion import CompletionItem

from studio.commands.base.param_type import ParamType
from studio.errors import StudioError

_FILES = re.compile(
    r"FILE|FOLDER|DIR|PATH|JOB|RUN|WORKLOAD|TABLES|TRACES|REQUESTS|\bIN\b|OUT|LIST|\bA\b|\bB\b"
)
"""What arguments and options are called that take files, by their metavar."""
_STORED = re.compile(r"JOB|RUN|\bA\b|\bB\b|WORKLOAD")
"""Those that take jobs or runs of the workspace as well."""
_PRESETS = ("--preset", "--system")


def with_completions(command: click.Command) -> click.Command:
    """Return a command, or a group of commands, that completes its arguments and the values of its options.

    The command itself stays as it is: in one process it may be run afterwards.
    """
    completed = copy(command)
    if isinstance(completed, click.Group):
        completed.commands = {name: with_completions(part) for name, part in completed.commands.items()}
        return completed
    completed.params = [_add_completion(param) for param in command.params]
    return completed


def _add_completion(param: click.Parameter) -> click.Parameter:
    if not isinstance(param.type, click.types.StringParamType | click.Path):
        return param
    completed = copy(param)
    completed.type = _Typed(isinstance(param.type, click.Path))
    return completed


class _Typed(ParamType[str]):
    """A text or a path that is typed; nothing but its completions is asked for."""

    name = "text"

    def __init__(self, is_path: bool) -> None:
        self.is_path = is_path

    def shell_complete(
        self, _ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[Any]]:
        """Return what the value of a parameter may be, as click asks for it."""
        return _complete(param, incomplete, is_path=self.is_path)


def _complete(param: click.Parameter, typed: str, *, is_path: bool) -> list[CompletionItem[Any]]:
    metavar = (param.metavar or param.name or "").upper()
    items: list[CompletionItem[Any]] = []
    if any(option in _PRESETS for option in param.opts):
        from studio.sim.presets import PRESETS

        items += [CompletionItem(name) for name in PRESETS if name.startswith(typed)]
    elif _STORED.search(metavar):
        items += [CompletionItem(name) for name in _list_stored() if name.startswith(typed)]
    # A shell that is told of files puts them in place of names.
    if not items and (is_path or _FILES.search(metavar)):
        items.append(CompletionItem(typed, type="file"))
    return items


def _list_stored() -> list[str]:
    """Return the names of the jobs and runs of the user's workspace."""
    from studio.store.workspace import Workspace

    try:
        workspace = Workspace(Workspace.default_root())
        jobs = workspace.jobs() if workspace.root.is_dir() else []
        return sorted({job.id for job in jobs} | {run.name for job in jobs for run in workspace.runs(job.id)})
    except (OSError, StudioError):  # Pressing Tab is no place to say what is wrong there.
        return []
