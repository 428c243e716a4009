"""Tell every rank of a scatter its size, where only the root's recording does.

A Kineto trace alone has no sizes in lists of tensors; gloo's own operation names the tensors that a rank gives, which in a
scatter is the root alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from studio.et.link.communication import Facts
from studio.et.link.draft import RankDraft
from studio.trace import CollectiveType


def share_sizes(drafts: Sequence[RankDraft]) -> None:
    """Set what ranks receive of scatters to their part of what the root gives; found by comm group and number."""
    given: dict[tuple[str, int], int] = {}
    members: dict[tuple[str, int], int] = {}
    for _, _, facts in _scatters(drafts):
        key = facts.group or "", facts.seq
        members[key] = members.get(key, 0) + 1
        if facts.bytes_in > 0:
            given[key] = facts.bytes_in
    for facts_of, place, facts in list(_scatters(drafts)):
        key = facts.group or "", facts.seq
        if facts.bytes <= 0 and key in given:
            ranks = max(facts.members, members[key])
            inferred = tuple(dict.fromkeys((*facts.inferred, "size")))
            facts_of[place] = replace(facts, bytes_out=given[key] // ranks, members=ranks, inferred=inferred)


def _scatters(drafts: Sequence[RankDraft]) -> Iterator[tuple[dict[int, Facts], int, Facts]]:
    for rank_draft in drafts:
        for facts_of in (rank_draft.communication.operators, rank_draft.communication.devices):
            for place, facts in facts_of.items():
                if facts.kind == CollectiveType.SCATTER and facts.seq >= 0:
                    yield facts_of, place, facts
