"""Find messages that cross several dimensions and are timed in one, as in the reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from studio.analysis.collectives.matching import GroupMatching
from studio.analysis.collectives.messages import Channels
from studio.distinct import find_distinct
from studio.sim.agreement import format_ranks
from studio.sim.collectives import EXTENDED_KIND_OF, list_configured
from studio.sim.config import SystemConfig
from studio.trace import Bool, Finding, Int64


def check_crossings(
    config: SystemConfig, groups: Sequence[GroupMatching], channels: Channels
) -> Iterator[Finding]:
    """Warn of messages that cross several dimensions but are timed in one.

    The unaware network takes the lowest dimension in which the two ends differ. Collectives that run dimension by
    dimension have no such messages; those in one ring over a group have them where neighbours differ in several.
    """
    if config.congestion == "aware" or config.links is not None or len(config.topology.dims) == 1:
        return
    rings = [group for group in groups if _is_one_ring(config, group)]
    sizes = np.array([len(group.members) for group in rings], np.int64)
    members = np.array([rank for group in rings for rank in group.members], np.int64)
    following = [rank for group in rings for rank in (*group.members[1:], *group.members[:1])]
    crossing = _differ_in_several(config, members, np.array(following, np.int64))
    if crossing.any():
        of = np.repeat(np.arange(len(rings)), sizes)[crossing]
        first, count = int(np.flatnonzero(crossing)[0]), len(find_distinct(of))
        group = rings[int(of[0])]
        who = (
            f"group {group.name} ({format_ranks(group.members)})" if group.name else "the group of all ranks"
        )
        more = f" (and those of {count - 1:,} more groups)" if count > 1 else ""
        what = f"Messages of {who} between ranks {members[first]} and {following[first]}{more}"
        yield _build_skipped_finding(config, "group-dimensions", what, int(members[first]), following[first])
    crossing = _differ_in_several(config, channels.source, channels.target)
    if crossing.any():
        first, count = int(np.flatnonzero(crossing)[0]), int(channels.messages[crossing].sum())
        source, target = int(channels.source[first]), int(channels.target[first])
        more = f" (and {count - 1:,} more like it)" if count > 1 else ""
        what = f"Messages from rank {source} to rank {target}{more}"
        yield _build_skipped_finding(config, "message-dimensions", what, source, target)


def _is_one_ring(config: SystemConfig, group: GroupMatching) -> bool:
    """Whether collectives of the group run over all its ranks at once, not dimension by dimension."""
    if len(group.members) < config.topology.npus:
        return len(group.members) > 1
    numbers = {number for sequence in group.sequences for number in find_distinct(sequence.type).tolist()}
    kinds = [EXTENDED_KIND_OF[number] for number in numbers if number in EXTENDED_KIND_OF]
    return any(algorithm.single for kind in kinds for algorithm in list_configured(config, kind)[:1])


def _compute_coordinates(config: SystemConfig, ranks: Int64) -> Int64:
    """Return (D, R) the place of each rank in each dimension; the first varies fastest."""
    dims = np.array([dim.size for dim in config.topology.dims], np.int64)
    below = np.concatenate([[1], np.cumprod(dims)[:-1]])
    places: Int64 = ranks // below[:, None] % dims[:, None]
    return places


def _differ_in_several(config: SystemConfig, source: Int64, target: Int64) -> Bool:
    """Return (M,) whether the two ends differ in more than one dimension; False where one is no NPU of the system."""
    npus = config.topology.npus
    differ = _compute_coordinates(config, source) != _compute_coordinates(config, target)
    are_npus = (source >= 0) & (source < npus) & (target >= 0) & (target < npus)
    crossing: Bool = (differ.sum(axis=0) > 1) & are_npus
    return crossing


def _build_skipped_finding(config: SystemConfig, code: str, what: str, source: int, target: int) -> Finding:
    ends = _compute_coordinates(config, np.array([source, target], np.int64))
    crossed = np.flatnonzero(ends[:, 0] != ends[:, 1]).tolist()
    named = ", ".join(map(str, crossed[:-1])) + f" and {crossed[-1]}"
    message = (
        f"{what} cross dimensions {named} and are timed in dimension {crossed[0]} alone, "
        "as in the reference: the time is too short."
    )
    return Finding(
        "warning",
        code,
        message,
        "The model full times all of them (--model full).",
    )
