"""Lay out the slots of ranks: peers of messages, and places in comm groups.

What can be known to fail is refused here: peers and groups that are not there, and groups that cannot do what their
collectives ask of them.
"""

from __future__ import annotations

import numpy as np

from studio.errors import ConfigError, TraceError
from studio.sim.collectives import build_group_phases, check_group
from studio.sim.extensions import EXTENDED_MODE
from studio.sim.kernel import records as k
from studio.sim.kinds import ROOTED_KINDS
from studio.sim.phase_lists import count_turn_words, put_phase_list
from studio.sim.planning import GraphPlan, Planning, Variety
from studio.sim.unrecorded import explain_incomplete_group, format_first_ranks
from studio.trace import WORLD_NAMES, CommGroup, Int64, Rank

_TAGS_PER_GROUP = 2 * k.Channel.CONTROL_TAG


def put_slots(planning: Planning, rank: Rank, plan: GraphPlan) -> int:
    """Lay out the values of a rank's slots, those of its graph first, then literals; returns the offset."""
    graph = plan.graph
    keys = [graph.strings[i] for i in graph.slot_key.tolist()]
    pairs = [*zip(keys, rank.slots, strict=True), *plan.literals]
    values = np.zeros(max(len(pairs), 1), np.int64)
    for index, (key, value) in enumerate(pairs):
        if index in plan.collective_slots:
            values[index] = _put_membership(planning, rank, value, index, plan.collective_slots[index])
        elif index in plan.peer_slots:
            values[index] = _check_peer(planning, rank, key, value)
    names = planning.folding.pairs.get(rank.number) if planning.folding is not None else None
    if names is None:
        return planning.arena.put(values)
    # The names of messages to and from the peers stand before the slots, the first slot's last.
    before = np.zeros((len(values), 2), np.int64)
    for index, name in names.items():
        before[-1 - index] = name
    return planning.arena.put(np.concatenate([before.reshape(-1), values])) + 2 * len(values)


def _check_peer(planning: Planning, rank: Rank, key: str, value: int | str) -> int:
    if isinstance(value, str) or not 0 <= value < planning.npus:
        raise TraceError(
            f"rank {rank.number}: {key} is {value!r}; allowed: a rank from 0 to {planning.npus - 1}",
            hint="The peer of a send or a receive must be a rank of the job.",
        )
    return value


def _put_membership(planning: Planning, rank: Rank, value: int | str, slot: int, varieties: set[int]) -> int:
    """Return the offset of the rank's membership record in a group; 0 for the world."""
    name = str(value)
    group = planning.groups.get(name)
    if is_world(planning, name, group):
        return 0
    if group is None:
        known = ", ".join(list(planning.groups)[:8]) or "none"
        raise TraceError(
            f"rank {rank.number}: a collective names comm group {name!r}; groups known: {known}",
            hint="Give the list of its ranks in the comm group file.",
        )
    if rank.number not in group.ranks:
        raise TraceError(
            f"rank {rank.number}: a collective names comm group {name!r}, which has the ranks "
            f"{format_first_ranks(group.ranks)} and not this one",
            hint="Correct pg_name in the trace, or the comm group file.",
        )
    _use_group(planning, group, varieties)
    key = (group.name, rank.number)
    if key not in planning.lists:
        planning.lists[key] = planning.arena.put(_build_member(planning, group, rank, slot))
    return planning.lists[key]


def is_world(planning: Planning, name: str, group: CommGroup | None) -> bool:
    """Whether a name means all ranks; in the extended mode 0 does not where a list says otherwise."""
    if name not in WORLD_NAMES or planning.extensions is None or group is None or group.inferred:
        return name in WORLD_NAMES
    return name == "" or set(group.ranks) == set(range(planning.npus))


def _build_member(planning: Planning, group: CommGroup, rank: Rank, slot: int) -> Int64:
    record = np.zeros(16, np.int64)
    record[k.Member.GROUP], record[k.Member.SLOT] = _put_group(planning, group), 1 + slot
    record[k.Member.PLACE] = group.ranks.index(rank.number)
    record[k.Member.SORTED] = sorted(group.ranks).index(rank.number)
    if planning.extensions is None:
        # The streams of equivalent groups have the same numbers.
        record[k.Member.NUMBER] = 1_000_000 * (1 if planning.folding is not None else group_number(group))
        return record
    # Streams count from 0 in each group; tags of different groups, and of all ranks, are apart.
    number = list(planning.group_at).index(group.name) if planning.folding is None else 0
    record[k.Member.TAGS] = (1 + number) * _TAGS_PER_GROUP
    if planning.own_queues:
        dims = 1 if len(group.ranks) < planning.npus else len(planning.config.topology.dims)
        columns = (k.Member.QUEUES, k.Member.POINTERS, k.Member.TREES)
        for column, words in zip(columns, count_turn_words(planning, dims), strict=True):
            record[column] = planning.arena.room(words)
    return record


def _use_group(planning: Planning, group: CommGroup, varieties: set[int]) -> None:
    """Lay out the phases that a group's collectives need, and check its algorithms."""
    if len(group.ranks) == planning.npus:
        return
    every = list(planning.varieties)
    for number in varieties:
        variety = every[number]
        if (group.name, variety) in planning.group_checked:
            continue
        planning.group_checked.add((group.name, variety))
        if variety.custom is None:
            for phase in build_group_phases(planning.config, variety.kind):
                check_group(planning.config, variety.kind, phase.algorithm, len(group.ranks), group.name)
        if planning.extensions is not None:
            table = planning.group_phases.setdefault(group.name, np.zeros(len(every), np.int64))
            table[number] = start = _group_list(planning, group, variety)
            # Nodes name the variety where in the compatible mode they name the list.
            planning.messages[number] = max(planning.messages.get(number, 1), planning.messages.get(start, 1))


def _group_list(planning: Planning, group: CommGroup, variety: Variety) -> int:
    """Return the phases of a comm group, which in the extended mode depend on its size and root."""
    if variety.custom is not None:
        # It was laid out for the first node that needed it.
        return planning.lists[("custom", id(variety.custom)), "group"]
    place = None
    if variety.kind in ROOTED_KINDS:
        root = group.ranks[0] if variety.root is None else variety.root
        if root not in group.ranks:
            raise TraceError(
                f"a {variety.kind} of comm group {group.name!r} has rank {root} for its root; "
                f"allowed: its ranks, {format_first_ranks(group.ranks)}",
                hint="The root is a rank of the job, and one of the group.",
            )
        place = group.ranks.index(root)
    return put_phase_list(
        planning, build_group_phases(planning.config, variety.kind, place), len(group.ranks)
    )


def group_number(group: CommGroup) -> int:
    """Return the number of a comm group, which in the compatible mode is its name."""
    if not group.name.isdecimal() or int(group.name) == 0:
        raise TraceError(
            f"comm group {group.name!r}: the compatible mode knows groups by numbers; allowed: 1 and above",
            hint=f"Rename the group to a number in trace and comm group file, or use the {EXTENDED_MODE}.",
        )
    return int(group.name)


def _put_group(planning: Planning, group: CommGroup) -> int:
    if group.name not in planning.group_at:
        ranks = group.ranks
        if len(set(ranks)) != len(ranks) or not all(0 <= r < planning.npus for r in ranks):
            raise ConfigError(
                f"comm group {group.name!r} has the ranks {format_first_ranks(ranks)}; "
                f"allowed: each rank from 0 to {planning.npus - 1} once",
                hint=explain_incomplete_group(ranks, planning.npus),
            )
        members = planning.arena.put(np.array(ranks, np.int64))
        record = np.array([len(ranks), members, 0, 0], np.int64)
        if planning.folding is not None:
            record[k.Group.CODES] = planning.arena.put(planning.folding.names[group.name])
        if group.name in planning.group_phases:
            record[k.Group.PHASES] = planning.arena.put(planning.group_phases[group.name])
        planning.group_at[group.name] = planning.arena.put(record)
    return planning.group_at[group.name]
