"""What a system attains: recorded times of collectives held against the costs of a preset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from studio.analysis.collectives.size_classes import SizeClass
from studio.analysis.job.completeness import infer_completeness
from studio.errors import ConfigError
from studio.sim.config import SystemConfig
from studio.sim.explaining import explain
from studio.sim.kinds import COLLECTIVE_KINDS
from studio.sim.presets import preset
from studio.sim.systems.proposals import find_recorded_system
from studio.trace import Trace

FASTER = 1.5
"""From this multiple of the recorded time on a system is too slow for the recording: costs of presets are off by less."""
FASTER_WORDS = "was recorded faster than the costs of this system know: on other hardware, or in another way, such as over symmetric memory"
"""What a share from `FASTER` on tells."""


@dataclass(frozen=True, slots=True)
class Attained:
    """What a system attains of classes of collectives.

    Attributes:
        system: Its name.
        ns: Time of a collective of each class alone on the system; None where its costs do not tell.
    """

    system: str
    ns: tuple[int | None, ...]

    def share(self, index: int, took_ns: float) -> float | None:
        """Return the attained time over a recorded one: 1 is as fast as the system attains; None where nothing tells."""
        attained = self.ns[index]
        return attained / took_ns if attained and took_ns > 0 else None

    def is_faster(self, index: int, took_ns: float) -> bool:
        """Return whether a recorded time is so short that the costs of the system do not hold for it."""
        return (self.share(index, took_ns) or 0.0) > FASTER


def find_attained(trace: Trace, classes: Sequence[SizeClass], named: str | None = None) -> Attained | None:
    """Return what a preset attains of each class, None where none is named and the recorded devices are not known.

    Args:
        trace: The job.
        classes: Its collectives.
        named: The preset; None is the family of the devices that the job was recorded on.

    Raises:
        ConfigError: There is no such preset, or not in the job's size.
    """
    if named is None:
        recorded = find_recorded_system(trace)
        if recorded is None:
            return None
        named = recorded[0].name
    chosen = preset(named, npus=max(infer_completeness(trace).world, 1))
    return Attained(chosen.name, estimate_attained(chosen.config, trace, classes))


def estimate_attained(
    config: SystemConfig, trace: Trace, classes: Sequence[SizeClass]
) -> tuple[int | None, ...]:
    """Return the time in ns of a collective of each class alone on a system; None where its costs do not tell.

    Args:
        config: The system, in the job's size.
        trace: The job.
        classes: Its collectives.
    """
    listed = {group.name: group.ranks for group in trace.groups}
    return tuple(_estimate_attained_ns(config, each, listed, trace) for each in classes)


def _estimate_attained_ns(
    config: SystemConfig, each: SizeClass, listed: dict[str, tuple[int, ...]], trace: Trace
) -> int | None:
    kind, group = each.type.lower(), each.groups[0]
    ranks = listed.get(group) or tuple(range(infer_completeness(trace).world))
    if kind not in COLLECTIVE_KINDS or not each.most_bytes or len(ranks) != each.members:
        return None
    try:
        return round(explain(config, kind, (each.least_bytes + each.most_bytes) // 2, ranks).total_ns)
    except ConfigError:  # ranks that the system does not have, or a group of one
        return None
