"""Find collectives that a system cannot carry out: by no algorithm that is set, or without a root that is one of their members."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from studio.analysis.collectives.matching import GroupMatching
from studio.distinct import find_distinct
from studio.sim.agreement import label_group
from studio.sim.collectives import (
    EXTENDED_KIND_OF,
    KIND_OF,
    allows_all_collectives,
    lacks_form,
    list_configured,
    supports_any_size,
)
from studio.sim.config import Algorithm, SystemConfig
from studio.sim.extensions import EXTENDED_MODE
from studio.sim.kinds import CollectiveKind
from studio.trace import (
    NONE,
    ROOT_KEYS,
    ROOTED_TYPES,
    CollectiveType,
    Finding,
    Trace,
    label_collective,
    read_roots,
)

_FIXED_TIME = (CollectiveType.BROADCAST,)


def check_algorithms(config: SystemConfig, groups: Sequence[GroupMatching]) -> Iterator[Finding]:
    """Find collectives that the configured algorithms cannot run, once per type and kind of group."""
    reported: set[tuple[str, int, int]] = set()
    for group in groups:
        for sequence in group.sequences:
            for kind in find_distinct(sequence.type).tolist():
                if kind == NONE:
                    continue
                for size, code, message, hint in _find_unable(config, group, kind):
                    if (code, kind, size) not in reported:
                        reported.add((code, kind, size))
                        where = f"{label_group(group)}: {label_collective(kind)} {message}"
                        yield Finding("error", code, where, hint)


def _find_unable(
    config: SystemConfig, group: GroupMatching, number: int
) -> Iterator[tuple[int, str, str, str]]:
    kind = (EXTENDED_KIND_OF if allows_all_collectives(config) else KIND_OF).get(number)
    if kind is None:
        if number not in _FIXED_TIME:
            allowed = ", ".join(label_collective(known) for known in KIND_OF)
            hint = f"The {EXTENDED_MODE} carries out all collectives." if number in EXTENDED_KIND_OF else ""
            yield 0, "collective-unsupported", f"cannot be simulated; allowed: {allowed}, BROADCAST", hint
        return
    if kind in config.custom:
        return
    listed = list_configured(config, kind)
    if not listed:
        key = f"{kind.replace('_', '-')}-implementation"
        yield (
            0,
            "algorithm-missing",
            f"is used, and {key} is not set",
            f"Set {key} to one algorithm per dimension.",
        )
        return
    within = len(group.members) < config.topology.npus and len(listed) == 1
    if within and not listed[0].row.in_groups and not supports_any_size(config):
        reason = f"by {listed[0].name}, which is built over whole dimensions only"
        yield len(group.members), "algorithm-unfit", reason, f"Choose ring or direct, or the {EXTENDED_MODE}."
        return
    for algorithm, size in _iterate_algorithms(config, group, listed):
        reason = "" if supports_any_size(config) else _explain_refusal(algorithm, kind, size)
        if reason:
            hint = f"Choose ring or direct there, another number of NPUs, or the {EXTENDED_MODE}."
            yield size, "algorithm-unfit", reason, hint


def _iterate_algorithms(
    config: SystemConfig, group: GroupMatching, listed: tuple[Algorithm, ...]
) -> Iterator[tuple[Algorithm, int]]:
    """Yield each algorithm with the number of ranks it runs over; a smaller group is one ring unless one algorithm is listed."""
    npus = config.topology.npus
    if len(group.members) < npus:
        if len(listed) == 1:
            yield listed[0], len(group.members)
        return
    for algorithm, dim in zip(listed, config.topology.dims, strict=False):
        yield algorithm, npus if algorithm.single else dim.size
        if algorithm.single:
            return


def _explain_refusal(algorithm: Algorithm, kind: CollectiveKind, size: int) -> str:
    if lacks_form(algorithm, kind):
        return f"has no {algorithm.name} form"
    if algorithm.row.powers_of_two and size & (size - 1):
        return f"by {algorithm.name} over {size} ranks; allowed: a power of two"
    return ""


def check_roots(trace: Trace, config: SystemConfig, groups: Sequence[GroupMatching]) -> Iterator[Finding]:
    """Find rooted collectives without a root, or with one outside their group."""
    roots = [read_roots(graph) for graph in trace.graphs]
    graph_of = {rank.number: rank.graph for rank in trace.ranks}
    npus = config.topology.npus
    for group in groups:
        members = frozenset(group.members if group.name else range(npus))
        first = min(group.members) if not group.name else group.members[0]
        assumed: set[int] = set()
        outside: set[int] = set()
        for member, position in zip(group.members, group.sequence_of.tolist(), strict=True):
            if position == NONE:
                continue
            sequence = group.sequences[position]
            rooted = np.isin(sequence.type, ROOTED_TYPES)
            named = roots[graph_of[member]][sequence.rows[rooted]]
            assumed.update(sequence.type[rooted][named < 0].tolist())
            outside.update(
                root for root in find_distinct(named).tolist() if root >= 0 and root not in members
            )
        if assumed:
            what = ", ".join(label_collective(number) for number in sorted(assumed))
            message = f"{label_group(group)}: {what} without a root; rank {first} was taken, the first of the group."
            yield Finding("info", "root-assumed", message, f"Name it: {', '.join(ROOT_KEYS)}.")
        for root in sorted(outside)[:1]:
            message = f"{label_group(group)}: rank {root} is named for a root, and is none of its ranks."
            yield Finding("error", "root-outsider", message, f"Ranks of the job, in {', '.join(ROOT_KEYS)}.")
