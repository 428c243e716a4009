"""Rank numbers that the user gives to files: they win over what files say of themselves, which is told."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from studio.errors import ConfigError
from studio.et.source import SourceFile
from studio.trace import Finding


def index_ranks_by_file(files: Sequence[SourceFile], given: Mapping[str, int]) -> dict[str, int]:
    """Return rank numbers by the full names of their files.

    Args:
        files: The files there are.
        given: Rank numbers by name or path, as typed; the last part of a name will do where it is the only file called so.

    Raises:
        ConfigError: A name is no file's, or several files'.

    Example:
        >>> from pathlib import Path
        >>> index_ranks_by_file([SourceFile("run/a.et", Path("run/a.et"))], {"a.et": 3})
        {'run/a.et': 3}
    """
    if not given:
        return {}
    files = [file for file in files if not file.problem]
    by_name = {file.name: [file.name] for file in files}
    by_path = {_make_absolute(file.path): [file.name] for file in files}
    by_base: dict[str, list[str]] = {}
    for file in files:
        by_base.setdefault(file.name.rpartition("/")[2], []).append(file.name)
    numbers = {}
    for name, number in given.items():
        meant = (
            by_name.get(name)
            or by_path.get(_make_absolute(name))
            or by_base.get(name.rpartition("/")[2])
            or []
        )
        meant = [full for full in meant if full.endswith(f"/{name.removeprefix('./')}")] or meant
        if len(meant) > 1:
            raise ConfigError(
                f"--rank {name}={number}: {len(meant)} files have this name: {', '.join(meant[:4])}.",
                hint="Use their full names, as given here.",
            )
        if not meant:
            near = difflib.get_close_matches(name, [*by_name, *by_base], n=1, cutoff=0)
            hint = f"The nearest is {near[0]}." if near else ""
            raise ConfigError(f"--rank {name}={number}: no such file among those opened.", hint=hint)
        numbers[meant[0]] = number
    return numbers


def check_rank_override(file: str, own: int | None, given: int | None) -> tuple[Finding, ...]:
    """Return the finding that a file says to be another rank than the user gave to it, none where it does not.

    Args:
        file: Its name.
        own: The rank that its content names, None where it names none.
        given: The rank that the user gave to it, None where none was given.

    Example:
        >>> [finding.message for finding in check_rank_override("a.json", 0, 7)]
        ['a.json: says that it is rank 0; taken as rank 7, as was asked for.']
    """
    if given is None or own in (None, given):
        return ()
    message = f"{file}: says that it is rank {own}; taken as rank {given}, as was asked for."
    hint = "Comm groups and peers are those of the file: check that they name this rank."
    return (Finding("warning", "rank-overridden", message, hint, rank=given, file=file),)


def _make_absolute(path: str | Path) -> str:
    # Not resolve(): a link is called what the user calls it.
    return os.path.abspath(path)  # noqa: PTH100
