"""Find the process groups of a job, and the group of each communication."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from studio.et.link.draft import RankDraft
from studio.et.link.facts import Facts
from studio.et.link.infer import infer_groups, list_candidates
from studio.et.link.names import RECEIVE, SEND
from studio.et.link.same_ranks import tell_apart
from studio.et.link.sequence import Place
from studio.et.link.stated_sizes import infer_stated_groups
from studio.et.link.unlisted import infer_unlisted_groups, list_noted_groups
from studio.et.xla import name_group
from studio.trace import CommGroup, Finding
from studio.units import format_counted

_MOST_LISTED = 8

WORLD = "0"
"""PyTorch's name for the group of all ranks; simulators take it for that, too."""


def resolve(drafts: Sequence[RankDraft]) -> tuple[tuple[CommGroup, ...], list[Finding]]:
    """Return the groups of a job; set group and peer rank of every communication in the drafts."""
    members, findings = _collect_members(drafts)
    _name_by_ranks(drafts, members)
    named, stated = _name_stated_groups(drafts, members)
    inferred, chosen = infer_groups(drafts, members)
    undecided = {index: stated.get(index, set()) | chosen.get(index, set()) for index in inferred}
    world = max([len(drafts), *(len(ranks) for ranks in members.values()), *list_world_sizes(drafts)])
    count: Counter[str] = Counter()
    unproved: Counter[str] = Counter()
    unfit: Counter[tuple[int, int]] = Counter()
    for index, rank_draft in enumerate(drafts):
        renamed = _rename_groups(rank_draft, members)
        choice = list_candidates(rank_draft, members)
        for on_device, facts_of in enumerate(_list_facts(rank_draft)):
            default = _choose_default_groups(rank_draft, members, facts_of)
            # By identity: what every step repeats is one object, kept here as long as its number stands for it.
            done: dict[tuple[int, str | None], tuple[Facts, Facts]] = {}
            for key, facts in facts_of.items():
                inferred_group = inferred[index].get((bool(on_device), key))
                before, resolved = done.get((id(facts), inferred_group), (None, facts))
                if before is None:
                    fitting = _choose_by_size(facts, inferred_group, default, choice, members)
                    resolved = _resolve_facts(facts, fitting, default, renamed, members)
                    if (
                        choice == [resolved.group]
                        and resolved.group not in named
                        and _fits_size(facts, resolved.members or world)
                    ):
                        resolved = replace(
                            resolved, inferred=tuple(what for what in resolved.inferred if what != "group")
                        )
                    done[id(facts), inferred_group] = facts, resolved
                facts_of[key] = resolved
                if not _fits_size(facts, resolved.members or world):
                    unfit[facts.members, resolved.members or world] += 1
                elif "group" in resolved.inferred and resolved.group:
                    count[resolved.group] += 1
                    unproved[resolved.group] += (bool(on_device), key) in undecided[index]
    for index, (on_device, key), before_name, name in tell_apart(drafts, members, count):
        facts_of = _list_facts(drafts[index])[on_device]
        facts_of[key] = replace(facts_of[key], group=name)
        count[before_name] -= 1
        count[name] += 1
    if count:
        findings.append(_build_inferred_finding(+count, +unproved))
    findings += [_build_unfit_finding(*sizes, number) for sizes, number in sorted(unfit.items())]
    return tuple(CommGroup(name, ranks) for name, ranks in members.items()), findings


def _list_facts(rank_draft: RankDraft) -> tuple[dict[int, Facts], dict[int, Facts]]:
    """Return the facts of a rank's operations and those of its device operations."""
    return rank_draft.communication.operators, rank_draft.communication.devices


def list_world_sizes(drafts: Sequence[RankDraft]) -> list[int]:
    """Return how many ranks the job has by each rank's Kineto trace, 0 where it does not tell."""
    return [rank_draft.device.head.world_size or 0 for rank_draft in drafts if rank_draft.device is not None]


def _fits_size(facts: Facts, size: int) -> bool:
    """Whether a collective that names no group does not say that its group has another number of ranks."""
    return facts.group is not None or facts.kind in (SEND, RECEIVE) or facts.members in (0, size)


def _choose_by_size(
    facts: Facts,
    inferred_group: str | None,
    default: tuple[str, str],
    choice: Sequence[str],
    members: dict[str, tuple[int, ...]],
) -> str | None:
    """Return the inferred group; another of the rank where a collective says that its group has as many ranks as that one."""
    if _fits_size(facts, len(members.get(inferred_group or default[0], ()))):
        return inferred_group
    return next((name for name in choice if len(members[name]) == facts.members), inferred_group)


def _build_unfit_finding(stated: int, size: int, number: int) -> Finding:
    """Return the finding that collectives of groups that nothing lists count as those of a group of another size."""
    message = (
        f"{format_counted(number, 'collective')} of all ranks {'says' if number == 1 else 'say'} that the comm group has "
        f"{format_counted(stated, 'rank')}, but not which: {'it counts' if number == 1 else 'they count'} as of a group of {size:,}, "
        "for nothing lists one of that size."
    )
    hint = (
        "Their bus bandwidth and times in a simulation are off. Record with a newer PyTorch, which writes the ranks of each group, or with "
        "studio.collect."
    )
    return Finding("warning", "comm-group-size", message, hint)


def _format_counts(count: Counter[str]) -> str:
    names = ", ".join(f"{name!r}: {number:,}" for name, number in count.most_common(_MOST_LISTED))
    return names + (f", and {len(count) - _MOST_LISTED:,} more" if len(count) > _MOST_LISTED else "")


def _build_inferred_finding(count: Counter[str], unproved: Counter[str]) -> Finding:
    """Return the finding about what was inferred, by group, and what of it fits other groups as well."""
    message = (
        f"{format_counted(count.total(), 'collective or message', 'collectives and messages')} of all ranks "
        f"{'names' if count.total() == 1 else 'name'} no comm group: the group was inferred by matching kinds, sizes, order and "
        f"times across ranks ({_format_counts(count)})."
    )
    if unproved:
        message += (
            f" Of {unproved.total():,} of them nothing tells which it is: they fit groups of other ranks as well, as rows and columns of "
            f"a mesh without a common clock may ({_format_counts(unproved)})."
        )
    hint = "Record with studio.collect, which writes the group and number of every collective."
    return Finding("info", "comm-group-inferred", message, hint)


def _collect_members(drafts: Sequence[RankDraft]) -> tuple[dict[str, tuple[int, ...]], list[Finding]]:
    """Return the ranks of each group; groups with the same name but other ranks get longer names."""
    members: dict[str, tuple[int, ...]] = {}
    findings = []
    for rank_draft in drafts:
        for name, ranks in _list_groups(rank_draft):
            known = members.setdefault(name, ranks)
            if known != ranks and _lengthen_name(name, ranks) not in members:
                members[_lengthen_name(name, ranks)] = ranks
                message = f"{rank_draft.files}: group {name!r} has ranks {list(ranks)} here and {list(known)} on other ranks."
                findings.append(Finding("warning", "comm-group-differs", message, rank=rank_draft.number))
    for name, ranks in list_noted_groups(drafts, max([len(drafts), *list_world_sizes(drafts)])):
        members.setdefault(name, ranks)
    return members, findings


def _list_groups(rank_draft: RankDraft) -> list[tuple[str, tuple[int, ...]]]:
    """Return name and ranks of each group that a rank's files list, and of those that its operations name and tell the ranks of."""
    groups = dict.fromkeys((group.name, group.ranks) for group in rank_draft.communication.groups.values())
    # By identity, which there is one of for what every step repeats: a thousand ranks take long to tell from others.
    stated = {
        (facts.group, id(facts.group_ranks)): facts.group_ranks
        for facts_of in _list_facts(rank_draft)
        for facts in facts_of.values()
        if facts.group and facts.group_ranks
    }
    groups |= dict.fromkeys((name, ranks) for (name, _), ranks in stated.items() if name)
    return [(name, ranks) for name, ranks in groups if name and ranks]


def _name_by_ranks(drafts: Sequence[RankDraft], members: dict[str, tuple[int, ...]]) -> None:
    """Give what tells its group's ranks but no name that of the first group of these ranks; a group that nothing lists is added."""
    names: dict[tuple[int, ...], list[str]] = {}
    for name, ranks in members.items():
        names.setdefault(tuple(sorted(ranks)), []).append(name)
    # By identity, as every step repeats facts; kept here as long as their number stands for them.
    done: dict[int, tuple[Facts, Facts]] = {}
    for rank_draft in drafts:
        for facts_of in _list_facts(rank_draft):
            for key, facts in facts_of.items():
                if facts.group is not None or not facts.group_ranks:
                    continue
                if id(facts) not in done:
                    alike = names.setdefault(
                        tuple(sorted(facts.group_ranks)), [name_group(facts.group_ranks)]
                    )
                    members.setdefault(alike[0], facts.group_ranks)
                    inferred = tuple(what for what in facts.inferred if what != "group")
                    # Which of several groups of the same ranks it is changes nothing but which of their collectives follow each other.
                    inferred = (*inferred, "group") if len(alike) > 1 else inferred
                    done[id(facts)] = facts, replace(facts, group=alike[0], inferred=inferred)
                facts_of[key] = done[id(facts)][1]


def _name_stated_groups(
    drafts: Sequence[RankDraft], members: dict[str, tuple[int, ...]]
) -> tuple[set[str], dict[int, set[Place]]]:
    """Put collectives whose group nothing lists into one that their match across ranks tells.

    Returns:
        The names of these groups, and what fits others as well, by place of the draft.
    """
    world = max([len(drafts), *list_world_sizes(drafts)])
    named: set[str] = set()
    undecided: dict[int, set[Place]] = {}
    for group in [
        *infer_stated_groups(drafts, members, world),
        *infer_unlisted_groups(drafts, members, world),
    ]:
        name = name_group(group.ranks)
        members.setdefault(name, group.ranks)
        named.add(name)
        for index, fitting in group.undecided.items():
            undecided.setdefault(index, set()).update(fitting)
        for index, own in group.places.items():
            for on_device, key in own:
                facts_of = _list_facts(drafts[index])[on_device]
                facts_of[key] = replace(
                    facts_of[key], group=name, inferred=(*facts_of[key].inferred, "group")
                )
    if named and not any(len(ranks) == world for ranks in members.values()):
        # Beside them there is one of all ranks, which none had to be told from before.
        everyone = name_group(range(world))
        members[everyone] = tuple(range(world))
        for facts_of in (facts_of for rank_draft in drafts for facts_of in _list_facts(rank_draft)):
            for key, facts in facts_of.items():
                if facts.group is None and facts.members == world:
                    facts_of[key] = replace(facts, group=everyone)
    return named, undecided


def _lengthen_name(name: str, ranks: tuple[int, ...]) -> str:
    return f"{name}:{'-'.join(map(str, ranks[:8]))}"


def _rename_groups(rank_draft: RankDraft, members: dict[str, tuple[int, ...]]) -> dict[str, str]:
    """Return the job-wide names of the rank's groups where they differ."""
    own: dict[str, tuple[int, ...]] = {}
    for name, ranks in _list_groups(rank_draft):
        # What the files list comes first, and counts where an operation tells other ranks.
        own.setdefault(name, ranks)
    return {name: _lengthen_name(name, ranks) for name, ranks in own.items() if members[name] != ranks}


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
