"""Rank numbers that the user gives for files that have none."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from studio.errors import ConfigError
from studio.et.source import SourceFile


def ranks_by_file(files: Sequence[SourceFile], given: Mapping[str, int]) -> dict[str, int]:
    """Return rank numbers by the full names of their files.

    Args:
        files: The files there are.
        given: Rank numbers by name or path, as typed; the last part of a name will do where it is the only file called so.

    Raises:
        ConfigError: A name is no file's, or several files'.

    Example:
        >>> from pathlib import Path
        >>> ranks_by_file([SourceFile("run/a.et", Path("run/a.et"))], {"a.et": 3})
        {'run/a.et': 3}
    """
    if not given:
        return {}
    by_name = {file.name: [file.name] for file in files}
    by_path = {_whole_path(file.path): [file.name] for file in files}
    by_base: dict[str, list[str]] = {}
    for file in files:
        by_base.setdefault(file.name.rpartition("/")[2], []).append(file.name)
    numbers = {}
    for name, number in given.items():
        meant = (
            by_name.get(name) or by_path.get(_whole_path(name)) or by_base.get(name.rpartition("/")[2]) or []
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


def _whole_path(path: str | Path) -> str:
    # Not resolve(): a link is called what the user calls it.
    return os.path.abspath(path)  # noqa: PTH100
