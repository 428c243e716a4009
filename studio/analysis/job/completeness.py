"""Say which ranks of a job are known, and which are missing because their files are not there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from studio.analysis.job.spans import find_spans
from studio.trace import (
    GROUP_KEYS,
    NONE,
    PEER_KEYS,
    CommGroup,
    Rank,
    Trace,
    describe_assumed_stage,
    get_assumed_source,
)
from studio.units import format_count

MOST_RANKS = 1 << 20
"""Ranks a job may have: as many as a simulated system has NPUs."""
_RUNS_NAMED = 8


@dataclass(frozen=True, slots=True)
class Completeness:
    """Which ranks of a job are known.

    Attributes:
        known: Numbers of the known ranks, rising.
        world: Ranks of the job: what the files and comm groups say, at least what the known numbers ask for.
        file_world: World size in the files, -1 where they tell none that can be true.
        is_open: Whether there are more ranks, and nothing says how many.
    """

    known: tuple[int, ...]
    world: int
    file_world: int
    is_open: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether every rank is known."""
        return not self.missing_count and not self.is_open

    @property
    def missing_count(self) -> int:
        """How many ranks are missing, as far as the size of the job is known."""
        return self.world - len(self.known)

    def missing(self) -> Iterator[range]:
        """Yield the missing ranks as ranges, without ever counting them one by one."""
        for before, after in pairwise((-1, *self.known, self.world)):
            if after - before > 1:
                yield range(before + 1, after)

    def missing_words(self) -> str:
        """Name the missing ranks.

        Example:
            >>> Completeness((0, 3), 8, 8).missing_words()
            'ranks 1–2, 4–7'
        """
        return format_ranges(list(self.missing()))

    def known_words(self) -> str:
        """Name the known ranks.

        Example:
            >>> Completeness((0, 1, 3), 8, 8).known_words()
            'ranks 0–1, 3'
        """
        return format_ranges(group_ranges(self.known))

    def sentence(self) -> str:
        """Say what is missing in one sentence; empty where every rank is known."""
        if self.is_open:
            is_one = len(self.known) == 1
            return (
                f"The files do not say how many ranks the job has: {self.known_words()}, all that {'is' if is_one else 'are'} "
                f"known, {'communicates' if is_one else 'communicate'} with others."
            )
        if not self.missing_count:
            return ""
        are = "is" if self.missing_count == 1 else "are"
        return (
            f"The job has {format_count(self.world)} ranks, of which {len(self.known):,} "
            f"{'is' if len(self.known) == 1 else 'are'} known ({self.known_words()}): {self.missing_words()} {are} missing."
        )


def group_ranges(numbers: Sequence[int]) -> list[range]:
    """Return runs of consecutive numbers.

    Example:
        >>> group_ranges([0, 1, 2, 7])
        [range(0, 3), range(7, 8)]
    """
    runs: list[range] = []
    for number in sorted(numbers):
        if runs and runs[-1].stop == number:
            runs[-1] = range(runs[-1].start, number + 1)
        else:
            runs.append(range(number, number + 1))
    return runs


def format_ranges(runs: Sequence[range]) -> str:
    """Format ranges of ranks, the first few one by one.

    Example:
        >>> format_ranges([range(3, 4)]), format_ranges([range(0, 2), range(5, 1 << 40)])
        ('rank 3', 'ranks 0–1, 5–1099511627775')
    """
    texts = [str(run.start) if len(run) == 1 else f"{run.start}–{run.stop - 1}" for run in runs[:_RUNS_NAMED]]
    more = ", …" if len(runs) > _RUNS_NAMED else ""
    return f"rank{'s' if sum(map(len, runs)) > 1 else ''} {', '.join(texts)}{more}"


def infer_completeness(trace: Trace) -> Completeness:
    """Return which ranks of a job are known, and how many there are as far as files, comm groups and messages tell."""
    known = tuple(sorted({rank.number for rank in trace.ranks}))
    largest = max(known, default=-1)
    declared = max((read_world_size(rank) for rank in trace.ranks), default=NONE)
    if not largest < declared <= max(MOST_RANKS, 2 * len(known)):
        declared = NONE
    world = _extend_by_groups(trace, max(declared, largest + 1, len(known)))
    is_open = lacks_world_size(trace)
    others = declared <= 0 and bool(_collect_named(trace) - set(known))
    if declared <= 0 and (others or len(known) < world):
        size = infer_size_by_groups((group for group in trace.groups if not group.inferred), known)
        world, is_open = max(world, size), is_open or (others and size < world)
    return Completeness(known, world, declared, is_open)


def lacks_world_size(trace: Trace) -> bool:
    """Whether reading the files found that there are more ranks, and nothing that says how many."""
    return any(item.name == "world_size_unknown" for rank in trace.ranks for item in rank.metadata)


def infer_size_by_groups(groups: Iterable[CommGroup], known: Sequence[int]) -> int:
    """Return how many ranks a job has by its listed groups: as many as they and its known ranks number without a gap, else 0.

    Groups of one rank may number some of the others only, by chance without a gap: ranks 0 and 1, and 0 and 2, are no job of 3.
    """
    members = [group.ranks for group in groups]
    every = {rank for ranks in members for rank in ranks} | set(known)
    count = len(every)
    if not any(members) or count != max(every) + 1 or count > MOST_RANKS:
        return 0
    whole = any(len(ranks) == count for ranks in members)
    return count if whole or all(_divides(ranks, count) for ranks in members) else 0


def _divides(members: Sequence[int], world: int) -> bool:
    """Whether a mesh of a number of ranks can have the dimensions along which the members of a group differ."""
    return all(world % (stride * size) == 0 for stride, size in find_spans(members) or ())


def _collect_named(trace: Trace) -> set[int]:
    """Return the ranks that the known ones communicate with: members of groups that fit a mesh, and peers of messages."""
    listed = {group.name: group for group in trace.groups if not group.inferred}
    filled = [rank for rank in trace.ranks if rank.slots]
    keys = {
        index: [trace.graphs[index].strings[code] for code in trace.graphs[index].slot_key.tolist()]
        for index in {rank.graph for rank in filled}
    }
    used, named = set[str](), set[int]()
    for rank in filled:
        for key, value in zip(keys[rank.graph], rank.slots, strict=False):
            if key in GROUP_KEYS:
                used.add(str(value))
            elif key in PEER_KEYS and isinstance(value, int) and 0 <= value < MOST_RANKS:
                named.add(value)
    for name in used & listed.keys():
        if find_spans(listed[name].ranks) is not None:
            named.update(listed[name].ranks)
    return named


def _extend_by_groups(trace: Trace, world: int) -> int:
    """Return the world size, larger where comm groups that are used name every rank up to another one.

    A group that names a rank far beyond all others tells nothing of those between.
    """
    listed = {group.name: group for group in trace.groups if not group.inferred}
    if not any(max(group.ranks, default=NONE) >= world for group in listed.values()):
        return world
    used = {str(value) for rank in trace.ranks for value in rank.slots} & listed.keys()
    named = {rank for name in used for rank in listed[name].ranks} | {rank.number for rank in trace.ranks}
    every = len(named) == max(named) + 1
    return len(named) if every and world < len(named) <= MOST_RANKS else world


def describe_assumed(trace: Trace) -> str:
    """Say how many ranks are assumed, and from which: "7 of 8 ranks assumed equal to rank 0"; "" where none is."""
    sources = Counter(source for rank in trace.ranks if (source := get_assumed_source(rank)) is not None)
    if not sources:
        return ""
    named = Completeness(tuple(sorted(sources)), 0, 0).known_words()
    built = sum(bool(describe_assumed_stage(rank)) for rank in trace.ranks)
    stages = f", {built:,} of them in pipeline stages that were never recorded" if built else ""
    return f"{sources.total():,} of {len(trace.ranks):,} ranks assumed equal to {named}{stages}"


def read_world_size(rank: Rank) -> int:
    """Return the world size that a rank's files give, -1 where they give none."""
    return rank.metadata_number("world_size")


def is_recording(trace: Trace) -> bool:
    """Whether the job ran and was recorded, so that every known rank is whole by itself: some node has a start time."""
    return any(bool((graph.start_ns >= 0).any()) for graph in trace.graphs)
