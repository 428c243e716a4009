"""What the form of Explain begins with."""

from __future__ import annotations

from typing import Any

from studio.analysis.collectives.heaviest import find_heaviest_collective
from studio.analysis.job.completeness import group_ranges, infer_completeness
from studio.errors import StudioError
from studio.pages.base.state import RECORDED, get_session
from studio.sim.costs.model import KINDS
from studio.sim.systems import SYSTEMS
from studio.sim.systems.proposals import find_recorded_system

RUN, DEFAULT_SYSTEM, DEFAULT_NPUS = "run", "hgx-h100", "8"


def choose_first_system(view: dict[str, Any]) -> str:
    """Return the system to begin with: of the shown run, else of the devices that the job was recorded on, else a common one."""
    if view.get("run") not in (None, "", RECORDED):
        return RUN
    try:
        system_match = (
            find_recorded_system(get_session().trace(str(view["job"]))) if view.get("job") else None
        )
    except StudioError:
        return DEFAULT_SYSTEM  # The page needs no job.
    # Without costs there is nothing to explain.
    return (
        system_match[0].name
        if system_match is not None and system_match[0].costs is not None
        else DEFAULT_SYSTEM
    )


def choose_first_collective(view: dict[str, Any], system: str) -> tuple[str, str, str, str]:
    """Return the collective, its size, the NPUs and the group to begin with, as typed.

    They are of what moves most in the job of the view, on as many NPUs as it has ranks. Without one, or where the system does not come
    in that size, a common collective is explained.
    """
    common = "all_reduce", "64 MiB", "" if system == RUN else DEFAULT_NPUS, ""
    job = view.get("job")
    try:
        if not job:
            return common
        trace = get_session().trace(str(job))
        heaviest = get_session().keep_of_job(
            "heaviest collective", str(job), lambda: find_heaviest_collective(trace, KINDS)
        )
    except StudioError:
        return common
    world = infer_completeness(trace).world
    fits = system == RUN or (system in SYSTEMS and SYSTEMS[system].fits(world))
    if heaviest is None or not fits or max(heaviest.ranks) >= world:
        return common
    ranks = "" if len(heaviest.ranks) == world else _format_ranks(heaviest.ranks)
    return heaviest.kind, _format_size(heaviest.bytes), "" if system == RUN else str(world), ranks


def _format_size(size: int) -> str:
    """Return a size as it is typed, exactly.

    Example:
        >>> _format_size(48 << 20), _format_size(1536), _format_size(1001)
        ('48 MiB', '1536 B', '1001 B')
    """
    units = ((1 << 20, "MiB"), (1 << 10, "KiB"))
    return next((f"{size // unit} {name}" for unit, name in units if size % unit == 0), f"{size} B")


def _format_ranks(ranks: tuple[int, ...]) -> str:
    """Return ranks as they are typed.

    Example:
        >>> _format_ranks((0, 1, 2, 8))
        '0-2,8'
    """
    return ",".join(
        str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in group_ranges(sorted(ranks))
    )
