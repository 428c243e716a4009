"""Refuse completed jobs whose ranks do not agree about what they exchange, so that they would wait for each other for ever."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from studio.analysis.collectives.matching import (
    Collectives,
    GroupMatching,
    find_disagreement,
    match_collectives,
)
from studio.analysis.collectives.messages import match_messages
from studio.errors import TraceError
from studio.trace import NONE, UNEVEN_TYPES, Trace, get_assumed_source, label_collective
from studio.units import format_count, format_counted


def refuse_unmatched(trace: Trace) -> None:
    """Raise an error if the completed ranks do not agree about what they exchange.

    Raises:
        TraceError: A message has no other side, or members of a group issue different collectives; names ranks, groups and
            numbers.
    """
    messages = match_messages(trace)
    alone = np.flatnonzero((messages.send_rank == NONE) | (messages.receive_rank == NONE))
    if len(alone):
        first = int(alone[0])
        raise TraceError(
            f"{format_counted(len(alone), 'message')} would have no other side, the first from rank {int(messages.source[first])} to rank "
            f"{int(messages.target[first])} with tag {int(messages.tag[first])}.",
            hint="The known ranks do not send what their copies receive: record one rank of every pipeline stage.",
        )
    for matching in match_collectives(trace):
        _refuse_disagreement(trace, matching)


def _refuse_disagreement(trace: Trace, matching: GroupMatching) -> None:
    """Raise an error if members of a group issue different collectives; another order of the same ones may be no harm."""
    counts = {len(sequence) for sequence in matching.sequences}
    absent = [
        member
        for member, at in zip(matching.members, matching.sequence_of.tolist(), strict=True)
        if at == NONE
    ]
    label = f"Comm group {matching.name!r} of {len(matching.members):,} ranks would wait for ever"
    if absent:
        raise TraceError(
            f"{label}: {len(absent)} of its members take part in none, the first of them {_describe_rank(trace, absent[0])}.",
            hint=_HINT,
        )
    disputed = find_disagreement(
        replace(matching, sequences=tuple(map(_drop_uneven_sizes, matching.sequences)))
    )
    if disputed is None:
        return
    first, second = (matching.find_sequence(rank) for rank in (disputed.rank, disputed.other_rank))
    if _count_content(first) == _count_content(second):
        return
    issue = f"its members issue {min(counts):,} to {max(counts):,}; " if len(counts) > 1 else ""
    at = disputed.position
    raise TraceError(
        f"{label}: {issue}{_describe_rank(trace, disputed.rank)} has {_describe_collective(first, at)} as collective {at} of the group, where "
        f"{_describe_rank(trace, disputed.other_rank)} has {_describe_collective(second, at)}.",
        hint=_HINT,
    )


_HINT = "Another layout may fit; leave --layout out to see which do. Ranks that ran different programs cannot be completed together."


def _drop_uneven_sizes(sequence: Collectives) -> Collectives:
    """Return collectives without the sizes that members may bring different ones of."""
    return replace(sequence, bytes=np.where(np.isin(sequence.type, UNEVEN_TYPES), 0, sequence.bytes))


def _count_content(sequence: Collectives) -> Counter[tuple[int, int]]:
    comparable = _drop_uneven_sizes(sequence)
    return Counter(zip(comparable.type.tolist(), comparable.bytes.tolist(), strict=True))


def _describe_rank(trace: Trace, number: int) -> str:
    """Name a rank, and the one that it copies."""
    rank = trace.rank(number)
    source = get_assumed_source(rank) if rank else None
    return f"rank {number}" + (f" (like rank {source})" if source not in (None, number) else "")


def _describe_collective(sequence: Collectives, at: int) -> str:
    """Name a collective with its bytes."""
    if at >= len(sequence) or sequence.rows[at] == NONE:
        return "none"
    name = label_collective(int(sequence.type[at])).replace("_", "-").lower()
    return f"{name} of {format_count(int(sequence.bytes[at]))} bytes"
