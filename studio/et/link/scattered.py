"""Tell every rank the size of what is scattered, where its own recording does not.

A Kineto trace alone has no sizes in lists of tensors; gloo's own operation names the tensors that a rank gives, which in a
scatter is the root alone, and of a reduce-scatter one of as many equal parts as the group has members.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from studio.et.link.draft import RankDraft
from studio.et.link.facts import Facts
from studio.trace import CollectiveType


def share_sizes(drafts: Sequence[RankDraft]) -> None:
    """Set what ranks receive of scatters to their part of what the root gives; found by comm group and number."""
    _add_parts(drafts)
    given: dict[tuple[str, int], int] = {}
    members: dict[tuple[str, int], int] = {}
    for _, _, facts in _iterate_scatters(drafts):
        key = facts.group or "", facts.seq
        members[key] = members.get(key, 0) + 1
        if facts.bytes_in > 0:
            given[key] = facts.bytes_in
    for facts_of, place, facts in list(_iterate_scatters(drafts)):
        key = facts.group or "", facts.seq
        if facts.bytes <= 0 and key in given:
            ranks = max(facts.members, members[key])
            inferred = tuple(dict.fromkeys((*facts.inferred, "size")))
            facts_of[place] = replace(facts, bytes_out=given[key] // ranks, members=ranks, inferred=inferred)


def _add_parts(drafts: Sequence[RankDraft]) -> None:
    """Set what ranks give to reduce-scatters of which one part is known."""
    for rank_draft in drafts:
        facts_of = rank_draft.communication.operators
        for row, facts in list(facts_of.items()):
            group = rank_draft.communication.groups.get(facts.group or "")
            world_size = (
                group.size if group else (rank_draft.device and rank_draft.device.head.world_size) or 0
            )
            parts = facts.members or world_size
            if facts.kind == CollectiveType.REDUCE_SCATTER and facts.bytes_in < 0 < facts.bytes_out and parts:
                facts_of[row] = replace(facts, bytes_in=facts.bytes_out * parts)


def _iterate_scatters(drafts: Sequence[RankDraft]) -> Iterator[tuple[dict[int, Facts], int, Facts]]:
    """Yield the scatters of which the group and number are known."""
    for rank_draft in drafts:
        for facts_of in (rank_draft.communication.operators, rank_draft.communication.devices):
            for place, facts in facts_of.items():
                if facts.kind == CollectiveType.SCATTER and facts.seq >= 0:
                    yield facts_of, place, facts
