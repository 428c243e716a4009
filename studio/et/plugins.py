"""Formats of other packages: those that name a `Format` in the entry point group `chakra_studio.formats`.

They are looked for only where no format of the studio knows a file, so that having none costs nothing. One that cannot be
used is left out, and named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from studio.errors import StudioError, TraceFormatError
from studio.et.format import CopiesPart, DevicePart, Format, GroupsPart, HostPart, Part, RankPart, Reading
from studio.trace import Finding

GROUP = "chakra_studio.formats"
_HINT = "Update or uninstall the package; everything else can be read without it."


@dataclass(frozen=True, slots=True)
class Plugins:
    """The formats of other packages.

    Attributes:
        formats: Those that can be used.
        problems: Why others cannot: a sentence each, which names the plug-in and its package.
    """

    formats: tuple[Format, ...]
    problems: tuple[str, ...]

    def findings(self) -> tuple[Finding, ...]:
        """Return the problems as findings."""
        return tuple(Finding("warning", "broken-plugin", problem, _HINT) for problem in self.problems)


@lru_cache(maxsize=4)
def load_installed(taken: frozenset[str]) -> Plugins:
    """Return the formats of the packages that are installed, loaded once.

    Args:
        taken: Names of the studio's own formats.
    """
    return load(entry_points(group=GROUP), taken)


def load(points: Iterable[EntryPoint], taken: frozenset[str]) -> Plugins:
    """Load the formats that entry points name.

    Args:
        points: The entry points.
        taken: Names that formats have already.
    """
    formats: dict[str, Format] = {}
    problems = []
    for point in sorted(points, key=lambda point: (point.name, point.value)):
        label = _label_point(point)
        try:
            loaded = point.load()
        # Whatever a package does while it is imported, ending the process included, must not stop the studio.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            problems.append(f"{label} cannot be loaded: {_format_error(error)}.")
            continue
        for fmt in loaded if isinstance(loaded, list | tuple) else (loaded,):
            if not isinstance(fmt, Format):
                problems.append(f"{label} is a {type(fmt).__name__}, not a studio.formats.Format.")
            elif fmt.name in taken or fmt.name in formats:
                problems.append(f"{label}: there is a format {fmt.name!r} already.")
            else:
                formats[fmt.name] = _guard_format(fmt, label)
    return Plugins(tuple(formats.values()), tuple(problems))


def _label_point(point: EntryPoint) -> str:
    package = f" of the package {point.dist.name}" if point.dist else ""
    return f"The format plug-in {point.name!r}{package} ({point.value})"


def _format_error(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _guard_format(fmt: Format, label: str) -> Format:
    """Return a format whose functions raise nothing but errors of the studio."""
    return replace(fmt, sniff=_guard_sniff(fmt.sniff), read=_guard_read(fmt.read, label))


def _guard_sniff(sniff: Callable[[bytes], bool]) -> Callable[[bytes], bool]:
    def sniff_guarded(head: bytes) -> bool:
        try:
            return bool(sniff(head))
        except Exception:  # noqa: BLE001 - a file that it fails on is none of its own
            return False

    return sniff_guarded


def _guard_read(read: Callable[[Reading], list[Part]], label: str) -> Callable[[Reading], list[Part]]:
    def read_guarded(reading: Reading) -> list[Part]:
        try:
            parts: list[Any] = list(read(reading))
        except StudioError:
            raise
        except Exception as error:
            raise TraceFormatError(
                f"{reading.name}: {label} failed: {_format_error(error)}.", hint=_HINT
            ) from error
        wrong = [
            part
            for part in parts
            if not isinstance(part, RankPart | GroupsPart | CopiesPart | HostPart | DevicePart)
        ]
        if wrong or not parts:
            what = f"a {type(wrong[0]).__name__}" if wrong else "nothing"
            raise TraceFormatError(
                f"{reading.name}: {label} returned {what}, not parts of a job.", hint=_HINT
            )
        return parts

    return read_guarded
