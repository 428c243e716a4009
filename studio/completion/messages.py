"""What messages tell about the mesh: stages of a pipeline pass on what they make, ranks of a ring pass it round."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from studio.completion.mesh import PIPELINE, Clue

_RING = "cp"
"""What passes round a ring is mostly keys and values of attention."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """The messages of a known rank to or from one peer.

    Attributes:
        rank: The rank.
        peer: The other end.
        is_sent: Whether the rank sends them.
        group: The comm group that they name, empty where they name none.
        count, bytes: How many they are, and their sizes together.
    """

    rank: int
    peer: int
    is_sent: bool
    group: str
    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Told:
    """The dimension of the mesh that a comm group lies along, as messages tell it.

    Attributes:
        name: The dimension.
        why: The evidence, in words.
        words: The group, in words.
        spans: (stride, size) of the dimensions it covers.
    """

    name: str
    why: str
    words: str
    spans: tuple[tuple[int, int], ...]


def find_message_clues(exchanges: Iterable[Exchange], described: Mapping[str, Told]) -> Iterator[Clue]:
    """Yield what messages tell: of groups that say which dimension they are, of a ring, else of a pipeline.

    Args:
        exchanges: Messages of the known ranks with others.
        described: What the groups say that say something, by name; of the pipeline only messages tell the order of stages.
    """
    rest = []
    named: dict[str, None] = {}
    for exchange in exchanges:
        if exchange.peer == exchange.rank:
            continue
        about = described.get(exchange.group)
        if about is None or about.name == PIPELINE:
            rest.append(exchange)
        else:
            named.setdefault(exchange.group)
    for group in named:
        about = described[group]
        yield Clue(f"messages in {about.words} ({about.why})", about.spans, about.name, 5.0)
    ring = _find_ring(rest)
    if ring is not None:
        yield ring
    elif rest:
        near = min(
            rest, key=lambda exchange: (abs(exchange.peer - exchange.rank), exchange.rank, exchange.peer)
        )
        words = f"messages between rank {near.rank} and rank {near.peer}"
        yield Clue(words, ((abs(near.peer - near.rank), 0),), PIPELINE, 5.0)


def _find_ring(exchanges: Sequence[Exchange]) -> Clue | None:
    """Return the ring round which messages go, None where they go to and fro, or end somewhere.

    Each rank sends to the one behind it as much as it receives from the one before, and the last one to the first: a pipeline has
    a first stage that receives nothing but answers.
    """
    each: dict[int, list[Exchange]] = defaultdict(list)
    for exchange in exchanges:
        each[exchange.rank].append(exchange)
    strides, sizes = set[int](), set[int]()
    for rank, own in each.items():
        ways = [[exchange for exchange in own if exchange.is_sent is sent] for sent in (True, False)]
        amounts = [
            (sum(exchange.count for exchange in way), sum(exchange.bytes for exchange in way)) for way in ways
        ]
        targets, sources = ({exchange.peer for exchange in way} for way in ways)
        if len(targets) != 1 or len(sources) != 1 or targets == sources or amounts[0] != amounts[1]:
            return None
        least, most = sorted(abs(peer - rank) for peer in targets | sources)
        strides.add(least)
        if least < most:
            sizes.add(most // least + 1 if most % least == 0 else 0)
    if len(strides) != 1 or len(sizes) != 1 or 0 in sizes:
        return None
    (stride,), (size,) = strides, sizes
    first = min(each)
    words = ", ".join(
        str(first - first // stride % size * stride + place * stride) for place in range(min(size, 4))
    )
    return Clue(
        f"messages round a ring of {size} ranks ({words}{', …' if size > 4 else ''}), of which each sends on as much as it receives",
        ((stride, size),),
        _RING,
        3.0,
    )
