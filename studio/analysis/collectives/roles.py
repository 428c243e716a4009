"""Guess the role of a comm group from its ranks and use: tensor, data, pipeline or expert parallelism.

Nothing in a trace says it. Frameworks number ranks so that those of a tensor parallel group are neighbours, pipeline
stages lie farthest apart, and data parallel replicas between; so the distance of a group's ranks tells. Some generators
number replicas first: there the number of collectives tells, as activations are exchanged in every layer and gradients
once a step. It is a guess and is to be shown as one, with its rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from studio.analysis.collectives.matching import GroupMatching, match_collectives
from studio.analysis.collectives.messages import match_messages
from studio.distinct import find_distinct
from studio.trace import CollectiveType, CommGroup, Int64, Trace

Kind = Literal["tensor", "data", "pipeline", "expert", "all ranks", "single", "unknown"]
_BUSIER = 2
"""How many times the collectives of neighbours others must have to be the tensor parallel groups."""
_WHY = "activations are exchanged in every layer, gradients once a step"


@dataclass(frozen=True, slots=True)
class Role:
    """The role of a comm group.

    Attributes:
        kind: The role; "all ranks" and "single" are plain facts, "unknown" is none.
        rule: Why, in words.
        stride: Distance of its ranks, 0 where they are not evenly apart.
    """

    kind: Kind
    rule: str
    stride: int

    @property
    def inferred(self) -> bool:
        """Whether the role is a guess."""
        return self.kind in ("tensor", "data", "pipeline", "expert")


def infer_group_roles(trace: Trace, groups: Sequence[CommGroup] | None = None) -> dict[str, Role]:
    """Return the role of every comm group by its name.

    Args:
        trace: The trace.
        groups: Comm groups in place of the trace's.
    """
    matchings = {matching.name: matching for matching in match_collectives(trace, groups)}
    members = {group.name: group.ranks for group in (trace.groups if groups is None else groups)}
    members.update({name: matching.members for name, matching in matchings.items()})
    exchanging = {
        name
        for name, matching in matchings.items()
        if any(bool((part.type == CollectiveType.ALL_TO_ALL).any()) for part in matching.sequences)
    }
    count = len(trace.ranks)
    strides = {name: _compute_stride(ranks) for name, ranks in members.items()}
    nested: dict[int, int] = {}
    for name, ranks in sorted(members.items(), key=lambda item: strides[item[0]]):
        if strides[name] and 1 < len(ranks) < count:
            # What exchanges tokens says nothing of the others.
            calls = 0 if name in exchanging or name not in matchings else _count_collectives(matchings[name])
            nested[strides[name]] = max(nested.get(strides[name], 0), calls)
    messages = match_messages(trace)
    pairs = np.unique(np.stack([messages.source, messages.target]), axis=1)
    roles = {}
    for name, ranks in members.items():
        roles[name] = _infer_role(
            ranks, strides[name], count, nested, exchanges=name in exchanging, chained=_is_chain(ranks, pairs)
        )
    return roles


def _count_collectives(group: GroupMatching) -> int:
    """Return the largest number of collectives of a member."""
    return max((sequence.count for sequence in group.sequences), default=0)


def _find_busiest(nested: Mapping[int, int]) -> int:
    """Return the rank distance of tensor parallelism, by how many collectives groups of each distance have."""
    most = max(nested, key=lambda stride: nested[stride], default=1)
    return most if nested.get(1) and nested[most] >= _BUSIER * nested[1] else 1


def _compute_stride(ranks: Sequence[int]) -> int:
    steps = find_distinct(np.diff(np.sort(np.array(ranks, np.int64))))
    return int(steps[0]) if len(steps) == 1 else 0


def _is_chain(ranks: Sequence[int], pairs: Int64) -> bool:
    """Whether each member exchanges messages with the next one."""
    wanted = {(low, high) for low, high in zip(sorted(ranks)[:-1], sorted(ranks)[1:], strict=True)}
    if not wanted or not pairs.shape[1]:
        return False
    low, high = pairs.min(axis=0), pairs.max(axis=0)
    near = np.isin(low, list(ranks)) & np.isin(high, list(ranks))
    return wanted <= set(zip(low[near].tolist(), high[near].tolist(), strict=True))


def _infer_role(
    ranks: Sequence[int],
    stride: int,
    count: int,
    nested: Mapping[int, int],
    *,
    exchanges: bool,
    chained: bool,
) -> Role:
    size = len(ranks)
    if size == 1:
        return Role("single", "It has one rank.", 0)
    if exchanges:
        return Role("expert", "Its ranks exchange data by ALL_TO_ALL, as tokens are sent to experts.", stride)
    if chained and size < count:
        return Role(
            "pipeline",
            "Each of its ranks exchanges messages with the next one, as pipeline stages do.",
            stride,
        )
    if size == count:
        return Role("all ranks", "It holds every rank of the job.", stride)
    if not stride:
        return Role("unknown", "Its ranks are not evenly apart.", 0)
    return _infer_by_distance(stride, nested)


def _infer_by_distance(stride: int, nested: Mapping[int, int]) -> Role:
    tensor = _find_busiest(nested)
    if stride == tensor == 1:
        return Role("tensor", "Its ranks are neighbours (stride 1), the closest groups there are.", stride)
    if stride == tensor:
        rule = f"Groups of ranks {stride} apart have {nested[stride]:,} collectives, those of neighbours {nested[1]:,}: {_WHY}."
        return Role("tensor", rule, stride)
    if stride == 1:
        rule = f"Groups of neighbours have {nested[1]:,} collectives, those of ranks {tensor} apart {nested[tensor]:,}: {_WHY}."
        return Role("data", rule, stride)
    if len(nested) > 2 and stride == max(nested):
        return Role(
            "pipeline",
            f"Its ranks are {stride} apart, the farthest of {len(nested)} nested groupings.",
            stride,
        )
    return Role(
        "data", f"Its ranks are {stride} apart: the same place in groups of {stride} neighbours.", stride
    )
