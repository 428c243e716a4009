"""What a change is before it was simulated."""

from __future__ import annotations

from dataclasses import dataclass

from studio.advice.terms import Change, Kind
from studio.analysis.job.completeness import range_words, ranges_of
from studio.trace import NONE, CollectiveType, collective_name


@dataclass(frozen=True, slots=True)
class Candidate:
    """A change that may save something.

    Attributes:
        kind: What sort of change it is.
        action: What to do, in one sentence.
        change: How to make it.
        levers: What it changes, in words of its own; changes that share one are not combined.
        collective, group, ranks, nodes: As in `Advice`.
    """

    kind: Kind
    action: str
    change: Change
    levers: frozenset[str]
    collective: str | None = None
    group: str | None = None
    ranks: tuple[int, ...] = ()
    nodes: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """A kind of change that cannot be simulated for this job, or brings nothing, and why.

    Attributes:
        kind: What sort of change it is.
        reason: Why not, in a sentence without a full stop.
    """

    kind: Kind
    reason: str


Found = Candidate | Refusal
WHOLE_JOB = "the whole job"
"""The lever of a change that makes the job anew, so that no other change of the job can be made beside it."""

_PLURALS = {
    CollectiveType.ALL_REDUCE: "all-reduces",
    CollectiveType.REDUCE: "reduces",
    CollectiveType.ALL_GATHER: "all-gathers",
    CollectiveType.GATHER: "gathers",
    CollectiveType.SCATTER: "scatters",
    CollectiveType.BROADCAST: "broadcasts",
    CollectiveType.ALL_TO_ALL: "all-to-alls",
    CollectiveType.REDUCE_SCATTER: "reduce-scatters",
    CollectiveType.REDUCE_SCATTER_BLOCK: "reduce-scatters",
    CollectiveType.BARRIER: "barriers",
}


def plural(kind: int) -> str:
    """Return what several collectives of a type are called.

    Example:
        >>> plural(CollectiveType.ALL_TO_ALL)
        'all-to-alls'
    """
    return _PLURALS[CollectiveType(kind)] if kind in _PLURALS else f"collectives {collective_name(kind)}"


def schema_name(kind: int) -> str | None:
    """Return the schema's name of a collective; None where nodes name none."""
    return None if kind == NONE else collective_name(kind)


def group_words(name: str) -> str:
    """Return how a sentence names a comm group.

    Example:
        >>> group_words("ep0"), group_words("20"), group_words("")
        ('ep0', 'group 20', 'all ranks')
    """
    if name in ("", "0"):
        return "all ranks"
    return f"group {name[:40]}" if name.isdecimal() else name[:40]


def rank_words(ranks: tuple[int, ...]) -> str:
    """Return how a sentence names ranks.

    Example:
        >>> rank_words((3,)), rank_words((0, 1, 2, 7)), rank_words(tuple(range(0, 20, 2)))
        ('rank 3', 'ranks 0–2, 7', '10 ranks (0, 2, 4, …)')
    """
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    runs = ranges_of(ranks)
    if len(runs) > _RUNS_NAMED:
        return f"{len(ranks):,} ranks ({', '.join(str(run.start) for run in runs[:3])}, …)"
    return range_words(runs)


_RUNS_NAMED = 4
