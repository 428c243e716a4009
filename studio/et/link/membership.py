"""Find the process groups of a job, and the group of each communication."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from studio.et.link.draft import RankDraft
from studio.et.link.facts import Facts
from studio.et.link.infer import infer_groups, list_candidates
from studio.et.link.names import RECEIVE, SEND
from studio.trace import CommGroup, Finding
from studio.units import format_counted

_MOST_LISTED = 8

WORLD = "0"
"""PyTorch's name for the group of all ranks; simulators take it for that, too."""


def resolve(drafts: Sequence[RankDraft]) -> tuple[tuple[CommGroup, ...], list[Finding]]:
    """Return the groups of a job; set group and peer rank of every communication in the drafts."""
    members, findings = _collect_members(drafts)
    inferred = infer_groups(drafts, members)
    count: Counter[str] = Counter()
    for index, rank_draft in enumerate(drafts):
        renamed = _rename_groups(rank_draft, members)
        choice = list_candidates(rank_draft, members)
        for on_device, facts_of in enumerate(
            (rank_draft.communication.operators, rank_draft.communication.devices)
        ):
            default = _choose_default_groups(rank_draft, members, facts_of)
            # By identity: what every step repeats is one object, kept here as long as its number stands for it.
            done: dict[tuple[int, str | None], tuple[Facts, Facts]] = {}
            for key, facts in facts_of.items():
                inferred_group = inferred[index].get((bool(on_device), key))
                before, resolved = done.get((id(facts), inferred_group), (None, facts))
                if before is None:
                    resolved = _resolve_facts(facts, inferred_group, default, renamed, members)
                    if choice == [resolved.group] and "group" in resolved.inferred:
                        resolved = replace(
                            resolved, inferred=tuple(what for what in resolved.inferred if what != "group")
                        )
                    done[id(facts), inferred_group] = facts, resolved
                facts_of[key] = resolved
                if "group" in resolved.inferred and resolved.group:
                    count[resolved.group] += 1
    if count:
        findings.append(_build_inferred_finding(count))
    return tuple(CommGroup(name, ranks) for name, ranks in members.items()), findings


def _build_inferred_finding(count: Counter[str]) -> Finding:
    names = ", ".join(f"{name!r}: {number:,}" for name, number in count.most_common(_MOST_LISTED))
    more = f", and {len(count) - _MOST_LISTED:,} more" if len(count) > _MOST_LISTED else ""
    message = (
        f"{format_counted(count.total(), 'collective or message', 'collectives and messages')} of all ranks "
        f"{'names' if count.total() == 1 else 'name'} no comm group: the group was inferred by matching kinds, sizes, order and "
        f"times across ranks ({names}{more})."
    )
    hint = "Record with studio.collect, which writes the group and number of every collective."
    return Finding("info", "comm-group-inferred", message, hint)


def _collect_members(drafts: Sequence[RankDraft]) -> tuple[dict[str, tuple[int, ...]], list[Finding]]:
    """Return the ranks of each group; groups with the same name but other ranks get longer names."""
    members: dict[str, tuple[int, ...]] = {}
    findings = []
    for rank_draft in drafts:
        listed = [(group.name, group.ranks) for group in rank_draft.communication.groups.values()]
        listed += [
            (facts.group, facts.group_ranks)
            for facts in (
                *rank_draft.communication.operators.values(),
                *rank_draft.communication.devices.values(),
            )
            if facts.group is not None
        ]
        for name, ranks in listed:
            if not ranks or not name:
                continue
            known = members.setdefault(name, ranks)
            if known != ranks and _lengthen_name(name, ranks) not in members:
                members[_lengthen_name(name, ranks)] = ranks
                message = f"{rank_draft.files}: group {name!r} has ranks {list(ranks)} here and {list(known)} on other ranks."
                findings.append(Finding("warning", "comm-group-differs", message, rank=rank_draft.number))
    return members, findings


def _lengthen_name(name: str, ranks: tuple[int, ...]) -> str:
    return f"{name}:{'-'.join(map(str, ranks[:8]))}"


def _rename_groups(rank_draft: RankDraft, members: dict[str, tuple[int, ...]]) -> dict[str, str]:
    """Return the job-wide names of the rank's groups where they differ."""
    return {
        group.name: _lengthen_name(group.name, group.ranks)
        for group in rank_draft.communication.groups.values()
        if group.ranks and members.get(group.name) != group.ranks
    }


def _choose_default_groups(
    rank_draft: RankDraft, members: dict[str, tuple[int, ...]], facts_of: dict[int, Facts]
) -> tuple[str, str]:
    """Return the group of a rank's collectives that name none, and that of its messages.

    With one group it is that. With several, the one besides the world that no other collective names; else the world.
    """
    number = 0 if rank_draft.number is None else rank_draft.number
    own = [name for name, ranks in members.items() if number in ranks]
    if len(own) == 1:
        return own[0], own[0]
    world = max(own, key=lambda name: len(members[name]), default="")
    named = {facts.group for facts in facts_of.values()}
    # A rank's group of its own, as of a mesh of one rank along a dimension, carries out what others do not see.
    left = [name for name in own if name not in named and name != world and len(members[name]) > 1]
    return (left[0] if len(left) == 1 else world), world


def _resolve_facts(
    facts: Facts,
    inferred_group: str | None,
    default: tuple[str, str],
    renamed: dict[str, str],
    members: dict[str, tuple[int, ...]],
) -> Facts:
    group, inferred = facts.group, facts.inferred
    is_message = facts.kind in (SEND, RECEIVE)
    if group is None:
        group = inferred_group or default[1 if is_message else 0]
        inferred = (*(what for what in inferred if what != "group"), "group")
    group = renamed.get(group, group)
    peer, root = facts.peer, facts.root
    ranks = members.get(group, ())
    if is_message and not facts.peer_is_global and 0 <= peer < len(ranks):
        peer = ranks[peer]
    # Calls name the root by its place in the group, as they do peers.
    if 0 <= root < len(ranks):
        root = ranks[root]
    return replace(facts, group=group, peer=peer, root=root, members=len(ranks), inferred=inferred)
