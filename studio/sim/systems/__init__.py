"""Machines people have: built-in families of systems, and system files of the user's own.

A preset is a file here: its rates, their sources, its costs; `family.py` says how sizes follow, `gpus.py` what GPUs are called.
Fitted costs are written by `python -m benchmarks.fit_families`, never by hand.

A system file says what a machine is, where each number comes from, and how far simulated times are from measured ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from studio.errors import ConfigError
from studio.sim.fields import find_nearest
from studio.sim.systems.errors import describe_measured_errors
from studio.sim.systems.family import Family
from studio.sim.systems.files import (
    System,
    build_system,
    is_system_file,
    read_own_system,
    read_system,
    write_system,
)
from studio.sim.systems.gpu import Gpu

__all__ = [
    "SYSTEMS",
    "Family",
    "Gpu",
    "System",
    "build_system",
    "describe_measured_errors",
    "find_system",
    "is_built_in",
    "is_system_file",
    "read_system",
    "write_system",
]

FOLDER = Path(__file__).parent


class _Systems(Mapping[str, System]):
    """The built-in systems by name; a file is read when it is first asked for."""

    def __getitem__(self, name: str) -> System:
        if name not in _list_names():
            raise KeyError(name)
        return _read_built_in(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_list_names())

    def __len__(self) -> int:
        return len(_list_names())

    def __contains__(self, name: object) -> bool:
        return name in _list_names()


@cache
def _list_names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yml")))


@cache
def _read_built_in(name: str) -> System:
    return read_own_system(FOLDER / f"{name}.yml", f"preset {name}")


SYSTEMS = _Systems()
"""The built-in systems by name."""


def is_built_in(name: str) -> bool:
    """Whether a name is that of a built-in system, by itself, with a size or as an alias."""
    try:
        return not is_system_file(name) and find_system(name) is not None
    except ConfigError:
        return False


def find_system(name: str) -> tuple[System, int | None]:
    """Return a system by name or file, and how many NPUs the name says.

    A name is that of a built-in system, `<family>-<NPUs>` such as hgx-h100-64, or a path to a system file.

    Raises:
        ConfigError: There is none of this name; names the nearest. Or the file cannot be read.

    Example:
        >>> system, npus = find_system("hgx-h100-16")
        >>> system.name, npus
        ('hgx-h100', 16)
    """
    if name in SYSTEMS:
        return SYSTEMS[name], None
    if is_system_file(name):
        return read_system(name), None
    sized = re.fullmatch(r"(?P<family>.+)-(?P<npus>[1-9]\d{0,8})", name)
    if sized and sized["family"] in SYSTEMS and SYSTEMS[sized["family"]].family is not None:
        return SYSTEMS[sized["family"]], int(sized["npus"])
    for system in SYSTEMS.values():
        if name in system.aliases:
            return system, system.aliases[name]
    near = find_nearest(name, SYSTEMS)
    hint = f"The nearest is {near!r}." if near else "`chakra-studio presets` says what each of them is."
    raise ConfigError(
        f"preset is {name!r}; allowed: {', '.join(SYSTEMS)}, one of these with a size such as hgx-h100-64, or a system file (.yml)",
        hint=hint,
    )
