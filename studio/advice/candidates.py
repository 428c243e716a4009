"""What a change is before it was simulated."""

from __future__ import annotations

from dataclasses import dataclass

from studio.advice.terms import Change, Kind
from studio.analysis.job.completeness import format_ranges, group_ranges
from studio.trace import NONE, CollectiveType, label_collective


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


def label_collectives(kind: int) -> str:
    """Return what several collectives of a type are called.

    Example:
        >>> label_collectives(CollectiveType.ALL_TO_ALL)
        'all-to-alls'
    """
    return _PLURALS[CollectiveType(kind)] if kind in _PLURALS else f"collectives {label_collective(kind)}"


def find_schema_name(kind: int) -> str | None:
    """Return the schema's name of a collective; None where nodes name none."""
    return None if kind == NONE else label_collective(kind)


def describe_group(name: str) -> str:
    """Return how a sentence names a comm group.

    Example:
        >>> describe_group("ep0"), describe_group("20"), describe_group("")
        ('ep0', 'group 20', 'all ranks')
    """
    if name in ("", "0"):
        return "all ranks"
    return f"group {name[:40]}" if name.isdecimal() else name[:40]


def describe_ranks(ranks: tuple[int, ...]) -> str:
    """Return how a sentence names ranks.

    Example:
        >>> describe_ranks((3,)), describe_ranks((0, 1, 2, 7)), describe_ranks(tuple(range(0, 20, 2)))
        ('rank 3', 'ranks 0–2, 7', '10 ranks (0, 2, 4, …)')
    """
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    runs = group_ranges(ranks)
    if len(runs) > _RUNS_NAMED:
        return f"{len(ranks):,} ranks ({', '.join(str(run.start) for run in runs[:3])}, …)"
    return format_ranges(runs)


_RUNS_NAMED = 4
