"""The critical path summed up: how much of it each kind of work has, on which ranks, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from studio.analysis.collectives.arrivals import Arrivals
from studio.analysis.job.ledger import Ledger
from studio.analysis.path.segments import CAUSES, Cause, CriticalPath
from studio.columns import group_places
from studio.distinct import find_distinct
from studio.notebook import format_record
from studio.timeline import NodeTimes
from studio.trace import (
    NONE,
    WORLD,
    CommGroup,
    Int64,
    NodeType,
    Rank,
    Trace,
    group_slots,
    label_collective,
    list_world_names,
    read_dense_column,
)
from studio.units import format_percent

_FEW = 4
"""Ranks that are named one by one; of more those are that have much of the path."""
_MUCH = 0.05
_TOLD = 3
_LEAST_TOLD = 0.005
"""Smaller shares would be told as 0 %."""
_WORDS: dict[Cause, str] = {
    "compute": "compute",
    "copy": "copies",
    "host": "host",
    "launch": "launch gaps",
    "stall": "stalls",
    "queueing": "queueing behind other work",
    "sync": "waiting for the device",
    "before": "before the recording",
    "assumed": "assumed arrivals",
}


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the critical path.

    Attributes:
        cause: What its segments are.
        what: In words, with the comm group, stage or ranks; group names are untrusted text.
        ns: How long it is.
        share: Of the whole path.
        ranks: Numbers of the ranks it runs through, rising.
    """

    cause: Cause
    what: str
    ns: int
    share: float
    ranks: tuple[int, ...]

    __repr__ = format_record


def compute_path_shares(
    trace: Trace,
    times: NodeTimes,
    account: Ledger,
    path: CriticalPath,
    groups: Sequence[CommGroup] | None = None,
) -> list[Share]:
    """Return what the critical path consists of, the largest first; the shares add up to it.

    Collectives are told by type and comm group, waiting by the rank waited for, messages as one, all else by pipeline stage
    where messages tell stages, else by rank.

    Args:
        trace: The job.
        times: When its nodes ran.
        account: Where the time of its ranks went.
        path: Its critical path.
        groups: Comm groups in place of the trace's.
    """
    stage = infer_pipeline_stages(times, account.arrivals, len(trace.ranks))
    world = list_world_names(
        trace.groups if groups is None else groups, [rank.number for rank in trace.ranks]
    )
    by_words: dict[tuple[Cause, str], list[Int64]] = {}
    alone: dict[Cause, dict[int, list[Int64]]] = {}
    for place, own_segments in group_places(path.rank):
        names = _describe_communication(trace, account, path, own_segments, world)
        for code in find_distinct(path.cause[own_segments]).tolist():
            cause, of = CAUSES[code], own_segments[path.cause[own_segments] == code]
            if cause in ("collective", "message", "waiting"):
                distinct, which = np.unique(path.row[of], return_inverse=True)
                texts = [names.get(row, cause) for row in distinct.tolist()]
                number = {word: index for index, word in enumerate(dict.fromkeys(texts))}
                word_of = np.array([number[word] for word in texts])[which]
                for word, index in number.items():
                    by_words.setdefault((cause, word), []).append(of[word_of == index])
            elif stage[place] != NONE:
                by_words.setdefault((cause, f"{_WORDS[cause]} of stage {stage[place]}"), []).append(of)
            else:
                alone.setdefault(cause, {}).setdefault(place, []).append(of)
    for cause, of_ranks in alone.items():
        by_words |= _group_by_rank(trace, path, cause, of_ranks)
    shares = []
    for (cause, words), parts in by_words.items():
        segments = np.concatenate(parts)
        ns = int(path.ns[segments].sum())
        numbers = {trace.ranks[place].number for place in find_distinct(path.rank[segments]).tolist()}
        shares.append(Share(cause, words, ns, ns / max(path.length_ns, 1), tuple(sorted(numbers))))
    return sorted(shares, key=lambda share: (-share.ns, share.what))


def _group_by_rank(
    trace: Trace, path: CriticalPath, cause: Cause, of_ranks: Mapping[int, list[Int64]]
) -> dict[tuple[Cause, str], list[Int64]]:
    """Return segments of a cause by rank; of many ranks those that have much of the path, and the others together."""
    much = _MUCH * path.length_ns
    parts = {
        place: segments
        for place, segments in of_ranks.items()
        if len(of_ranks) <= _FEW or path.ns[np.concatenate(segments)].sum() >= much
    }
    by_words: dict[tuple[Cause, str], list[Int64]] = {
        (cause, f"{_WORDS[cause]} of rank {trace.ranks[place].number}"): segments
        for place, segments in parts.items()
    }
    rest = [segments for place, segments in of_ranks.items() if place not in parts]
    if rest:
        words = f"of {len(rest):,} {'other ' if parts else ''}rank{'s' if len(rest) > 1 else ''}"
        by_words[cause, f"{_WORDS[cause]} {words}"] = [at for segments in rest for at in segments]
    return by_words


def describe_path(shares: Sequence[Share]) -> str:
    """Return the largest shares in a sentence: `61 % compute of stage 2, 22 % ALL_REDUCE tp0, 9 % waiting for rank 5`.

    Time before a rank's recording began is told last, as it is no cause of which anything is known.
    """
    before = [share for share in shares if share.cause == "before"]
    known = [share for share in shares if share.cause != "before"]
    named = [share for share in known[:_TOLD] if share.share >= _LEAST_TOLD] or known[:1]
    sentence = ", ".join(f"{format_percent(share.share, 0)} {share.what}" for share in named)
    rest = sum(share.share for share in known[len(named) :])
    if rest >= _LEAST_TOLD:
        sentence += f", {format_percent(rest, 0)} the rest"
    unknown = [share for share in before if share.share >= _LEAST_TOLD]
    if unknown:
        last = ", ".join(f"{format_percent(share.share, 0)} {share.what}" for share in unknown)
        sentence += f"{'; ' if sentence else ''}{last}, of which nothing is known"
    return sentence


def _find_first_sends(times: NodeTimes, arrivals: Arrivals) -> tuple[Int64, Int64, Int64]:
    """Return who sent to whom, as places of ranks, and when the first message between them began."""
    nothing = np.zeros(0, np.int64)
    ran = arrivals.ran
    if ran is None or not len(ran.messages):
        return nothing, nothing, nothing
    start = times.start_ns[times.first[ran.messages.send_rank] + ran.messages.send_row]
    order = np.lexsort((start, ran.channel))
    begins, first = np.unique(ran.channel[order], return_index=True)
    first = order[first]
    # The first message of a channel shown is at the same place in the exchange of each that ran alike.
    channels = ran.channels
    counts = channels.messages[ran.shown]
    position = np.full(len(ran.shown), NONE, np.int64)
    position[begins] = np.flatnonzero(ran.ran)[first] - (np.cumsum(counts) - counts)[begins]
    begun = np.zeros(len(ran.shown), np.int64)
    begun[begins] = start[first]
    timed_channels = np.flatnonzero(position[ran.which] != NONE)
    at = channels.offsets[channels.exchange[timed_channels]] + position[ran.which[timed_channels]]
    parties = channels.party_offsets[timed_channels]
    source, target = (channels.parties[parties + party[at]] for party in (channels.sender, channels.receiver))
    return source, target, begun[ran.which[timed_channels]]


def infer_pipeline_stages(times: NodeTimes, arrivals: Arrivals, ranks: int) -> Int64:
    """Return (R,) the pipeline stage of each rank, from 0; -1 where messages tell none.

    The first message between two ranks goes from a stage to the next.
    """
    stage = np.full(ranks, NONE, np.int64)
    source, target, start = _find_first_sends(times, arrivals)
    if not len(source):
        return stage
    pair = np.minimum(source, target) * ranks + np.maximum(source, target)
    order = np.lexsort((start, pair))
    first = order[np.append(True, pair[order][1:] != pair[order][:-1])]
    source, target = source[first], target[first]
    stage[find_distinct(np.concatenate([source, target]))] = 0
    for _ in range(ranks):
        deeper = stage.copy()
        np.maximum.at(deeper, target, stage[source] + 1)
        if (deeper == stage).all():
            return stage if stage.max() > 0 else np.full(ranks, NONE, np.int64)
        stage = deeper
    # Messages go round in a circle, so that nothing is a stage.
    return np.full(ranks, NONE, np.int64)


def _describe_communication(
    trace: Trace, account: Ledger, path: CriticalPath, segments: Int64, world: frozenset[str]
) -> dict[int, str]:
    """Return words for the communication of a rank on the path, by node; its segments are given."""
    place = int(path.rank[segments[0]])
    rank = trace.ranks[place]
    graph = trace.graph_of(rank)
    waits = path.cause[segments] == CAUSES.index("waiting")
    talks = waits | np.isin(path.cause[segments], [CAUSES.index("collective"), CAUSES.index("message")])
    rows = find_distinct(path.row[segments[talks]])
    rows = rows[rows != NONE]
    if not len(rows):
        return {}
    partner, _ = account.arrivals.partners(place, len(graph))
    kinds, slots = read_dense_column(graph, "comm_type", NONE)[rows], group_slots(graph)[rows]
    messages = np.isin(graph.type[rows], (NodeType.COMM_SEND, NodeType.COMM_RECV))
    late = np.isin(rows, path.row[segments[waits]])
    words = dict.fromkeys(rows[messages].tolist(), "messages")
    for row, other in zip(rows[late].tolist(), partner[rows[late]].tolist(), strict=True):
        words[row] = f"waiting for rank {trace.ranks[other].number}" if other != NONE else "waiting"
    # A million nodes have a handful of names: each is made once.
    named: dict[tuple[int, int], str] = {}
    rest = ~(messages | late)
    for row, kind, slot in zip(*(column[rest].tolist() for column in (rows, kinds, slots)), strict=True):
        key = (kind, slot)
        if key not in named:
            named[key] = _describe_collective(rank, *key, world)
        words[row] = named[key]
    return words


def _describe_collective(rank: Rank, kind: int, slot: int, world: frozenset[str]) -> str:
    if kind == NONE and slot == NONE:
        return label_collective(kind)
    name = WORLD if slot == NONE else str(rank.slots[slot])
    return f"{label_collective(kind)} {'of all ranks' if name in world else name}".rstrip()
