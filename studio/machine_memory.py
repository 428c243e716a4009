"""Ask the system how much memory there is, for this process and others."""

from __future__ import annotations

import os
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_LIMITS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ),
)


def read_machine_bytes() -> int | None:
    """Return how much memory there is for this process and others, None where the system does not tell."""
    sizes = [_parse_number("".join(_read_lines(path)).strip()) for path, _ in _LIMITS]
    sizes += [
        kibibytes << 10
        for line in _read_lines(_MEMINFO)
        if line.startswith("MemTotal:") and (kibibytes := _parse_number(line.split()[1])) is not None
    ]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min((size for size in sizes if size), default=None)


def read_available_bytes() -> int | None:
    """Return how much memory is free for this process, None where the system does not say."""
    sizes = [
        _parse_number(line.split()[1]) for line in _read_lines(_MEMINFO) if line.startswith("MemAvailable:")
    ]
    free = [kibibytes << 10 for kibibytes in sizes if kibibytes is not None]
    if not free and hasattr(os, "sysconf") and "SC_AVPHYS_PAGES" in os.sysconf_names:
        free = [os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for limit, used in _LIMITS:
        most, now = (_parse_number("".join(_read_lines(path)).strip()) for path in (limit, used))
        if most is not None and now is not None:
            free.append(max(most - now, 0))
    return min(free, default=None)


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return []


def _parse_number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
