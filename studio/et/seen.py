"""What is known of a job while its ranks are still read: a first picture, gathered from each rank as it comes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol, runtime_checkable

import numpy as np

from studio.et.format import DevicePart, HostPart
from studio.et.recording import DEVICE_KINDS, DeviceTrace, EventKind
from studio.trace import COPY_KINDS, IDLE_GAPS, NONE, Graph, Int64, NodeType, are_copies, read_int_column

Work = Literal["compute", "copy", "collective", "message", "memory", "host"]
WORK: Final[tuple[Work, ...]] = ("compute", "copy", "collective", "message", "memory", "host")
"""Kinds of operations, in the order in which they are told."""

_BARS = 128
_REFUSED_NAMED = 4


@dataclass(frozen=True, slots=True)
class RankSeen:
    """What a rank that was read tells at once.

    Attributes:
        number: The rank, None where nothing tells it yet.
        operations: How many there are, by kind of work.
        start_ns, end_ns: First recorded start and last recorded end, -1 where no operation has a start.
        sent_bytes: What its collectives and messages send, -1 where that is known only once the rank is linked.
    """

    number: int | None
    operations: Mapping[Work, int]
    start_ns: int = NONE
    end_ns: int = NONE
    sent_bytes: int = NONE


@dataclass(frozen=True, slots=True)
class Bar:
    """Bytes that a rank sends, or the mean of a few neighbours.

    Attributes:
        place: Its place among the bars of all ranks.
        first, last: The ranks it stands for.
        sent_bytes: What each of those that were read sends on average.
    """

    place: int
    first: int
    last: int
    sent_bytes: int


@dataclass(frozen=True, slots=True)
class Picture:
    """A job as far as it is read.

    Attributes:
        ranks: Ranks that were read.
        of_ranks: Ranks there are; 0 where that is not known yet.
        operations: Operations of these ranks, by kind of work; those that there are none of are left out.
        span_ns: From the first recorded start to the last recorded end of a rank, the longest of all; -1 where nothing has a time.
        bars: Bytes sent by rank, as far as they are known.
        of_bars: Places for bars.
        sent_bytes: Bytes sent by all ranks of the bars.
        refused: Files that cannot be read and are left out, the first of them, each with the reason.
        more_refused: How many more there are.
    """

    ranks: int
    of_ranks: int
    operations: dict[Work, int]
    span_ns: int
    bars: tuple[Bar, ...]
    of_bars: int
    sent_bytes: int
    refused: tuple[tuple[str, str], ...] = ()
    more_refused: int = 0


class JobSeen:
    """Gathers what ranks tell as they are read; cheap enough to be told of each of many thousands."""

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, of_ranks: int) -> None:
        """Forget what was seen, of another job perhaps.

        Args:
            of_ranks: Ranks there are; 0 where that is not known.
        """
        self._of_ranks = of_ranks
        self._ranks: dict[object, RankSeen] = {}
        self._refused: list[tuple[str, str]] = []

    def rank(self, key: object, rank: RankSeen) -> None:
        """Learn of a rank.

        Args:
            key: Names it, such as its file: what is learnt of it again, with more in it, takes the place of what was known.
            rank: What it tells.
        """
        self._ranks[key] = rank

    def note_linked(self, of_ranks: int) -> None:
        """Forget what single files told of ranks, which are now told of as a whole."""
        self._of_ranks, self._ranks = of_ranks, {}

    def note_refused(self, name: str, why: str) -> None:
        """Learn of a file that is left out."""
        self._refused.append((name, why))

    def picture(self) -> Picture | None:
        """Return what is known so far; None where nothing is."""
        ranks, refused = list(self._ranks.values()), list(self._refused)
        if not (ranks or refused):
            return None
        sums = {kind: sum(rank.operations.get(kind, 0) for rank in ranks) for kind in WORK}
        spans = [rank.end_ns - rank.start_ns for rank in ranks if rank.start_ns != NONE]
        bars, of_bars = _list_bars(ranks, self._of_ranks)
        return Picture(
            ranks=len(ranks),
            of_ranks=max(self._of_ranks, len(ranks)) if self._of_ranks else 0,
            operations={kind: count for kind, count in sums.items() if count},
            span_ns=max(spans, default=NONE),
            bars=bars,
            of_bars=of_bars,
            sent_bytes=sum(max(rank.sent_bytes, 0) for rank in ranks),
            refused=tuple(refused[:_REFUSED_NAMED]),
            more_refused=max(len(refused) - _REFUSED_NAMED, 0),
        )


@runtime_checkable
class _Onlooker(Protocol):
    """A progress callback that is told of ranks as they are read, too."""

    seen: JobSeen


def get_seen(progress: object) -> JobSeen | None:
    """Return what a progress callback has to be told of ranks as they are read, its attribute `seen`; None where it has none."""
    return progress.seen if isinstance(progress, _Onlooker) else None


def _list_bars(ranks: Sequence[RankSeen], of_ranks: int) -> tuple[tuple[Bar, ...], int]:
    """Return the bars of the ranks whose bytes are known, and how many there will be."""
    known = [(rank.number, rank.sent_bytes) for rank in ranks if rank.sent_bytes != NONE]
    numbers = [number for number, _ in known if number is not None]
    # Ranks have the place of their number where all have one within the job, else that of their order.
    total = max(of_ranks, len(ranks))
    by_number = len(numbers) == len(set(numbers)) == len(known) and max(numbers, default=0) < total
    if len(numbers) == len(known):
        known.sort(key=lambda rank: rank[0] or 0)
    of_each = -(-total // _BARS) or 1
    together: dict[int, list[tuple[int, int]]] = {}
    for order, (number, sent_bytes) in enumerate(known):
        shown = order if number is None else number
        together.setdefault((shown if by_number else order) // of_each, []).append((shown, sent_bytes))
    bars = tuple(
        Bar(place, some[0][0], some[-1][0], sum(sent for _, sent in some) // len(some))
        for place, some in sorted(together.items())
    )
    return bars, -(-total // of_each)


# ---------------------------------------------------------------------------------------------------
# What a rank tells


def summarise_graph(graph: Graph, number: int | None) -> RankSeen:
    """Return what a graph tells of a rank.

    Attributes are counted where they stand: to find the node of each takes a tenth of the time of reading a file.
    """
    counts = np.bincount(np.clip(graph.type, 0, len(NodeType)), minlength=len(NodeType) + 1).tolist()
    rest = np.flatnonzero(graph.type != NodeType.COMP)
    on_host = _count_noted(graph, "is_cpu_op") - int(
        np.count_nonzero(read_int_column(graph, "is_cpu_op", among=rest)[1])
    )
    copied = (
        _count_noted(graph, "device_kind", COPY_KINDS) if graph.strings.find("device_kind") != NONE else None
    )
    copied = int(np.count_nonzero(are_copies(graph))) if copied is None else copied
    rows, sizes = read_int_column(graph, "comm_size", among=rest)
    sends = (graph.type[rows] == NodeType.COMM_COLL) | (graph.type[rows] == NodeType.COMM_SEND)
    operations: dict[Work, int] = {
        "compute": max(counts[NodeType.COMP] - on_host - copied - _count_noted(graph, "gap", IDLE_GAPS), 0),
        "copy": copied,
        "collective": counts[NodeType.COMM_COLL],
        "message": counts[NodeType.COMM_SEND] + counts[NodeType.COMM_RECV],
        "memory": counts[NodeType.MEM_LOAD] + counts[NodeType.MEM_STORE],
        "host": on_host,
    }
    timed = graph.start_ns >= 0
    start_ns, end_ns = _compute_span(graph.start_ns[timed], graph.duration_ns[timed])
    return RankSeen(number, operations, start_ns, end_ns, int(np.maximum(sizes[sends], 0).sum()))


def _count_noted(graph: Graph, key: str, words: Sequence[str] = ()) -> int:
    """Return how many nodes carry an attribute that is one of some words, or true where none are given."""
    code = graph.strings.find(key)
    if code == NONE:
        return 0
    chosen = graph.attrs.key == code
    if not words:
        return int(np.count_nonzero(chosen & (graph.attrs.value != 0)))
    values = graph.attrs.value[chosen]
    return sum(int(np.count_nonzero(values == graph.strings.find(word))) for word in words)


def summarise_half(part: HostPart | DevicePart, number: int | None) -> RankSeen:
    """Return what one side of a rank tells before it is linked with the other: what communicates is known afterwards."""
    if isinstance(part, HostPart):
        return RankSeen(number, {"host": len(part.trace)})
    return summarise_device(part.trace, number)


def summarise_device(device: DeviceTrace, number: int | None) -> RankSeen:
    """Return what a Kineto trace tells before it is linked; kernels that communicate are known afterwards."""
    counts = np.bincount(device.kind, minlength=len(EventKind)).tolist()
    chosen = np.isin(device.kind, (*DEVICE_KINDS, EventKind.OPERATOR))
    start_ns, end_ns = _compute_span(device.start_ns[chosen], device.duration_ns[chosen])
    operations: dict[Work, int] = {
        "compute": counts[EventKind.KERNEL],
        "copy": counts[EventKind.COPY] + counts[EventKind.FILL],
        "host": counts[EventKind.OPERATOR],
    }
    return RankSeen(number, operations, start_ns, end_ns)


def with_communication(rank: RankSeen, calls: Sequence[tuple[Work, int]], on_device: bool) -> RankSeen:
    """Return what a rank tells with its communication, which was counted as compute or as operators of the host before.

    Args:
        rank: What it told.
        calls: Whether each communication is a collective or a message, and the bytes it sends.
        on_device: Whether kernels carry it out.
    """
    operations = dict(rank.operations)
    before: Work = "compute" if on_device else "host"
    for kind, _ in calls:
        operations[kind] = operations.get(kind, 0) + 1
    operations[before] = max(operations.get(before, 0) - len(calls), 0)
    sent_bytes = max(rank.sent_bytes, 0) + sum(sent for _, sent in calls)
    return replace(rank, operations=operations, sent_bytes=sent_bytes)


def _compute_span(start_ns: Int64, duration_ns: Int64) -> tuple[int, int]:
    """Return the first start and the last end, -1 each where there is none."""
    if not len(start_ns):
        return NONE, NONE
    return int(start_ns.min()), int((start_ns + duration_ns).max())
