"""Make a job of a part of another: nodes that are asked for, with whole collectives and messages, and ranks from 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from studio.analysis.collectives.matching import match_collectives
from studio.analysis.collectives.messages import match_messages
from studio.cutting.bridges import Closed, keep_nodes
from studio.cutting.ordering import Together, with_one_order
from studio.cutting.selection import Choice, select_nodes
from studio.errors import TraceError
from studio.timeline import NodeTimes
from studio.trace import (
    ASSUMED,
    NONE,
    PEER_KEYS,
    Attribute,
    Bool,
    CommGroup,
    Graph,
    NodeType,
    Rank,
    Trace,
    ValueKind,
    copy_metadata,
)

OF_RANK = "cut_of_rank"
"""Metadata of a rank that was cut out of a job: its number there."""
WHAT = "cut"
"""Metadata of such a rank: what was cut out, in words."""
_GROUP = "group "
"""How names of what runs together begin, of collectives."""
_NUMBERS_OF_WORLD = ("world_size",)


@dataclass(frozen=True, slots=True)
class Cut:
    """A part of a job.

    Attributes:
        trace: It, as a job by itself.
        ranks: Number of each of its ranks in the job it was cut out of.
        words: What was asked for.
        nodes_before: Nodes of the job.
        emptied: Ranks that were asked for and of which no node is left.
        collectives: Collectives left out, since not every member has them in the part.
        messages: Sends and receives left out, since their other side is not in the part.
        joined: Nodes added, since they are the other side of a collective or message.
        satisfied: Dependencies on nodes outside, which have run by then.
        bridged: Dependencies that lead over nodes outside.
        dangling: Dependencies on nodes that the job never had.
        ordered: Dependencies added, so that all ranks communicate in one order where the nodes outside had seen to that.
        groups_before: Comm groups of the job.
        shrunk: Comm groups that communicate in the part and have members outside.
        shrunk_collectives: Their collectives: what was waited there for ranks outside counts as communication now.
    """

    trace: Trace
    ranks: tuple[int, ...]
    words: str
    nodes_before: int
    emptied: tuple[int, ...]
    collectives: int
    messages: int
    joined: int
    satisfied: int
    bridged: int
    dangling: int
    ordered: int
    groups_before: int
    shrunk: int
    shrunk_collectives: int


def cut(trace: Trace, choice: Choice, times: NodeTimes | None = None) -> Cut:
    """Return a part of a job that can be checked and simulated by itself.

    Collectives are of the members that are left, and messages have both of their sides; what is not whole in the part is left
    out. Where nodes are named one by one, or by their distance from one, the other sides of what they communicate are added
    instead. Nodes that waited for one that is left out wait for what it waited for, and for nothing where none of that is left:
    it has run by then. Ranks are numbered anew from 0.

    Args:
        trace: The job.
        choice: What to cut out.
        times: Times of a simulation of it, which a window is of; without them it is of the recording.

    Raises:
        ConfigError: Nothing is asked for, or nothing is so.
        TraceError: No node is left.

    Example:
        >>> import studio
        >>> part = cut(studio.read(studio.sample_path("transformer_8r")), Choice(ranks=frozenset({4, 5})))
        >>> [rank.number for rank in part.trace.ranks], part.ranks
        ([0, 1], (4, 5))
    """
    masks = select_nodes(trace, choice, times)
    asked = tuple(trace.ranks[place].number for place in masks)
    before = sum(int(mask.sum()) for mask in masks.values())
    collectives, gone, left_out = _complete_collectives(trace, masks, join=choice.is_subgraph)
    messages, left_out_messages = _complete_messages(trace, masks, join=choice.is_subgraph)
    after = sum(int(mask.sum()) for mask in masks.values())
    masks = {place: mask for place, mask in masks.items() if mask.any()}
    if not masks:
        raise TraceError(
            f"Nothing is left of the job: {choice.words}.",
            hint="Of what was asked for only communication is there, and not all of its sides; ask for more."
            if before
            else "No node of the job is so.",
        )
    left = tuple(trace.ranks[place].number for place in masks)
    number = {old: new for new, old in enumerate(left)}
    shrunk = [
        collective
        for collective in collectives
        if _count_members_before(trace, collective) > len(collective.members)
    ]
    built, closed = _build_ranks(trace, masks, number, choice.words)
    groups = _restrict_groups(trace.groups, number)
    graphs, ranks = built
    count = sum(part.satisfied for part in closed), sum(part.bridged for part in closed)
    whole = Trace(graphs, ranks, groups, tuple(f for f in trace.findings if f.level == "error"))
    whole, ordered = with_one_order(whole, _move_nodes(masks, [*collectives, *messages]))
    return Cut(
        trace=whole,
        ranks=left,
        words=choice.words,
        nodes_before=trace.node_count,
        emptied=tuple(sorted(set(asked) - set(left))),
        collectives=gone,
        messages=left_out_messages,
        joined=after - before + left_out + left_out_messages,
        satisfied=count[0],
        bridged=count[1],
        dangling=sum(part.dangling for part in closed),
        ordered=ordered,
        groups_before=len(trace.groups),
        shrunk=len({collective.group for collective in shrunk}),
        shrunk_collectives=len(shrunk),
    )


def _count_members_before(trace: Trace, together: Together) -> int:
    """Return how many ranks of the job have a collective; without a listed group all of them."""
    listed = trace.group(together.group.removeprefix(_GROUP))
    return len(listed.ranks) if listed is not None and listed.ranks else len(trace.ranks)


def _select_ranks(trace: Trace, masks: Mapping[int, Bool]) -> Trace:
    """Return the job without the ranks that are not asked for, their numbers as they are."""
    ranks = tuple(trace.ranks[place] for place in masks)
    numbers = {rank.number: rank.number for rank in ranks}
    return replace(trace, ranks=ranks, groups=_restrict_groups(trace.groups, numbers))


def _restrict_groups(groups: tuple[CommGroup, ...], number: Mapping[int, int]) -> tuple[CommGroup, ...]:
    """Return comm groups of the ranks that are left, by their new numbers; those of none are left out."""
    restricted = [
        replace(group, ranks=tuple(number[rank] for rank in group.ranks if rank in number))
        for group in groups
    ]
    return tuple(group for group in restricted if group.ranks)


def _move_nodes(masks: Mapping[int, Bool], together: list[Together]) -> list[Together]:
    """Return nodes that run together by the places and rows that they have in the part."""
    place = {old: new for new, old in enumerate(masks)}
    row = {old: np.cumsum(mask) - 1 for old, mask in masks.items()}
    return [
        replace(item, members=tuple((place[old], int(row[old][at])) for old, at in item.members))
        for item in together
    ]


def _complete_collectives(
    trace: Trace, masks: dict[int, Bool], *, join: bool
) -> tuple[list[Together], int, int]:
    """Keep collectives that all members have, or add what is missing; returns them, and collectives and nodes left out."""
    part = _select_ranks(trace, masks)
    place_of = {trace.ranks[place].number: place for place in masks}
    kind = {place: trace.graph_of(trace.ranks[place]).type for place in masks}
    loose = {place: (kind[place] == NodeType.COMM_COLL) & masks[place] for place in masks}
    collectives = nodes = 0
    together: list[Together] = []
    for group in match_collectives(part, part.groups):
        table = group.rows()
        places = [place_of[member] for member in group.members]
        is_present = table != NONE
        kept = np.array(
            [masks[place][rows] & has for place, rows, has in zip(places, table, is_present, strict=True)],
            np.bool_,
        ).reshape(table.shape)
        wanted = (kept.any(axis=0) if join else kept.all(axis=0)) & is_present.all(axis=0)
        gone = kept.any(axis=0) & ~wanted
        collectives += int(gone.sum())
        nodes += int(kept[:, gone].sum())
        for place, rows, has in zip(places, table, is_present, strict=True):
            masks[place][rows[has]] = wanted[has]
            loose[place][rows[has]] = False
        name = f"{_GROUP}{group.name}"
        columns = table[:, np.flatnonzero(wanted)].T.tolist()
        together += [Together(name, tuple(zip(places, rows, strict=True))) for rows in columns]
    # Of groups that their rank is not in: nobody else takes part.
    for place, rows in loose.items():
        masks[place] &= ~rows
        collectives += int(rows.sum())
        nodes += int(rows.sum())
    return together, collectives, nodes


def _complete_messages(trace: Trace, masks: dict[int, Bool], *, join: bool) -> tuple[list[Together], int]:
    """Keep messages of which both sides are there, or add the other side; returns them, and sends and receives left out."""
    part = _select_ranks(trace, masks)
    places = list(masks)
    matched = match_messages(part)
    left_out = 0
    sides = ((matched.send_rank, matched.send_row), (matched.receive_rank, matched.receive_row))
    whole = (matched.send_row != NONE) & (matched.receive_row != NONE)
    kept = [
        np.array(
            [
                row != NONE and bool(masks[places[rank]][row])
                for rank, row in zip(*map(np.ndarray.tolist, side), strict=True)
            ],
            np.bool_,
        )
        for side in sides
    ]
    wanted = whole & ((kept[0] | kept[1]) if join else (kept[0] & kept[1]))
    for (ranks, rows), had in zip(sides, kept, strict=True):
        left_out += int((had & ~wanted).sum())
        for rank, row, stays in zip(ranks.tolist(), rows.tolist(), wanted.tolist(), strict=True):
            if row != NONE:
                masks[places[rank]][row] = stays
    columns = [matched.send_rank, matched.send_row, matched.receive_rank, matched.receive_row]
    pairs = zip(*(column[wanted].tolist() for column in columns), strict=True)
    return [Together("", ((places[a], b), (places[c], d))) for a, b, c, d in pairs], left_out


def _build_ranks(
    trace: Trace, masks: Mapping[int, Bool], number: Mapping[int, int], words: str
) -> tuple[tuple[tuple[Graph, ...], tuple[Rank, ...]], list[Closed]]:
    """Return the graphs and ranks of the part, and what became of dependencies, a line for each rank."""
    index: dict[tuple[int, bytes], int] = {}
    parts: list[Closed] = []
    ranks, closed = [], []
    for place, mask in masks.items():
        rank = trace.ranks[place]
        key = rank.graph, np.packbits(mask).tobytes()
        if key not in index:
            index[key] = len(parts)
            parts.append(keep_nodes(trace.graphs[rank.graph], mask))
        closed.append(parts[index[key]])
        ranks.append(_renumber_rank(trace, rank, number, index[key], words))
    return (tuple(part.graph for part in parts), tuple(ranks)), closed


def _renumber_rank(trace: Trace, rank: Rank, number: Mapping[int, int], graph: int, words: str) -> Rank:
    """Return a rank with its new number, and the new numbers of its peers."""
    old = trace.graph_of(rank)
    keys = [old.strings[code] for code in old.slot_key.tolist()]
    slots = tuple(
        number.get(value, value) if key in PEER_KEYS and isinstance(value, int) else value
        for key, value in zip(keys, rank.slots, strict=True)
    )
    new = number[rank.number]
    kept = []
    for item in copy_metadata(rank, new, None):
        if item.name in (OF_RANK, WHAT):
            continue
        kept.append(replace(item, value=len(number)) if item.name in _NUMBERS_OF_WORLD else item)
    # What it repeats is named by its number in the job it was cut out of, as the rank itself is.
    kept += [item for item in rank.metadata if item.name == ASSUMED]
    kept.append(Attribute(OF_RANK, ValueKind.INT64, rank.number))
    kept.append(Attribute(WHAT, ValueKind.STRING, words))
    return replace(rank, number=new, graph=graph, slots=slots, metadata=tuple(kept))
