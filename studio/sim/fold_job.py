"""The facts of a job on a system that decide which of its ranks behave alike, see `studio.sim.folding`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from studio.sim.collectives import Phase
from studio.sim.config import SystemConfig
from studio.sim.kinds import ROOTED_KINDS
from studio.trace import CommGroup, Int64

WORLD_GROUP = -1
"""Stands for the group of all ranks that a collective without a group has."""


class Unfoldable(Exception):  # noqa: N818 (no error: the job is simulated rank by rank)
    """The reason why a job cannot be folded."""


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """The neighbours in a phase.

    Attributes:
        stride, size: Of the dimension, as in `Phase`; both 0 for the list of a comm group.
        crosswise: Whether neighbours at a distance are found by flipping bits (halving-doubling), not along a ring.
    """

    stride: int
    size: int
    crosswise: bool

    @staticmethod
    def of(phase: Phase) -> Neighbourhood:
        """Return the neighbourhood of a phase."""
        return Neighbourhood(phase.stride, phase.size, phase.algorithm.row.reach == "powers_of_two")

    def find(self, far: int, ranks: Int64) -> Int64:
        """Return the neighbours of ranks at a distance in this dimension."""
        place = ranks // self.stride % self.size
        other = place ^ far if self.crosswise else (place + far) % self.size
        peers: Int64 = ranks + (other - place) * self.stride
        return peers


@dataclass(frozen=True, slots=True)
class GraphUse:
    """Groups, peers and phases that the ranks of one graph use.

    R ranks, S slots, literals of the graph included.

    Attributes:
        ranks: (R,) the ranks.
        collective_slots: Slots that name comm groups.
        peer_slots: Slots that name peers.
        values: Per slot the value of every rank.
        streams: Streams that all collectives of the graph make together.
        world: Per slot the phases of collectives that name their group there, if that has all ranks; under
            `WORLD_GROUP` those of collectives that name none.
        grouped: Per slot their phases if the group is smaller.
    """

    ranks: Int64
    collective_slots: tuple[int, ...]
    peer_slots: tuple[int, ...]
    values: Mapping[int, Sequence[int | str]]
    streams: int
    world: Mapping[int, frozenset[Phase]]
    grouped: Mapping[int, frozenset[Phase]]


@dataclass(frozen=True, slots=True)
class Job:
    """The facts of a job on a system that decide which ranks behave alike.

    Attributes:
        config: The system.
        uses: What the ranks of each graph use.
        graph_of: (R,) the graph of each rank.
        groups: Comm groups by name.
        is_world: Whether a name, and the group of this name where there is one, mean all ranks.
        number_of: Tells the number of a group, which its tags count from; None where groups share no tags.
    """

    config: SystemConfig
    uses: Sequence[GraphUse]
    graph_of: Int64
    groups: Mapping[str, CommGroup]
    is_world: Callable[[str, CommGroup | None], bool]
    number_of: Callable[[CommGroup], int] | None


def list_offsets(phases: Iterable[Phase], size: int) -> list[tuple[int, bool]]:
    """Return the distances to the neighbours in phases of at most `size` ranks.

    Returns:
        Distances, down the ring as negative numbers, and whether they are crosswise.

    Raises:
        Unfoldable: The algorithm has other neighbours on every rank.

    Example:
        >>> from studio.sim.config import Algorithm
        >>> list_offsets([Phase("all_reduce", Algorithm("ring"), 0, 8, 1)], 8)
        [(-1, False), (1, False)]
        >>> list_offsets([Phase("all_reduce", Algorithm("halving_doubling"), 0, 8, 1)], 8)
        [(1, True), (2, True), (4, True)]
    """
    distances: set[tuple[int, bool]] = set()
    for phase in phases:
        if phase.kind in ROOTED_KINDS:
            raise Unfoldable(f"in a {phase.kind} every rank has a place of its own")
        row = phase.algorithm.row
        if phase.kind in row.lacks:
            raise Unfoldable(f"{row.label.lower()} of {phase.kind} sends messages of different sizes")
        if row.reach == "powers_of_two":
            distances |= {(1 << bit, True) for bit in range((size - 1).bit_length())}
        elif row.reach == "all":
            distances |= {(far, False) for far in range(1, size)}
        elif row.reach == "next":
            distances |= {(1, False), (-1, False)}
        else:
            raise Unfoldable(f"in a {row.label.lower()} every rank has a place of its own")
    return sorted(distances)


def iterate_world_offsets(phases: Iterable[Phase]) -> Iterator[tuple[Phase, int]]:
    """Yield the distances to neighbours in phases of collectives of all ranks, each once in every dimension.

    Raises:
        Unfoldable: As `list_offsets`; or neighbours that flip bits are not there on every rank.
    """
    seen = set()
    for phase in sorted(phases, key=repr):
        where = Neighbourhood.of(phase)
        if where.crosswise and phase.size & (phase.size - 1):
            raise Unfoldable("halving-doubling on a number of ranks that is no power of two")
        for far, _ in list_offsets([phase], phase.size):
            if (where, far) not in seen:
                seen.add((where, far))
                yield phase, far
