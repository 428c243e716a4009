"""Find the steps that annotations name, and count by them with which collective of a group each recording begins.

Whatever starts a recorder, a step of one number is the same on all ranks: PyTorch's `ProfilerStep#7`, an annotation such as `iteration 7`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from studio.distinct import find_distinct
from studio.et.link.operations import Operations
from studio.trace import NONE, STEP, Int64, step_of_name

_RECORDED = re.compile(STEP + r" ?#(\d{1,9})")
_DIGITS = re.compile(r"\d+")
_PART = re.compile(
    r"(?:micro|mini|sub|inner|local|accum\w*)[^A-Za-z]*(?:batch)?[^A-Za-z]*(?:step|iter)", re.IGNORECASE
)
"""Parts of steps, whose numbers begin again in each."""
_MOST_SERIES = 8


@dataclass(frozen=True, slots=True)
class NamedSteps:
    """Steps that annotations of one name tell, but for the number.

    S steps, by when they began.

    Attributes:
        number: (S,) their numbers, rising.
        begin, finish: (S,) when each began and ended, by the times that operations are ordered by.
        follow: Whether each begins where the one before ends.
    """

    number: Int64
    begin: Int64
    finish: Int64
    follow: bool


def find_named_steps(operations: Operations) -> dict[str, NamedSteps]:
    """Return the steps of a rank by the name of their annotations without numbers: those of the fewest parts first."""
    numbers = {
        code: number
        for code in find_distinct(operations.name).tolist()
        if code >= 0 and (number := _parse_number(operations.names[code])) != NONE
    }
    series: dict[str, list[int]] = {}
    for code in numbers:
        series.setdefault(_DIGITS.sub("#", operations.names[code]), []).append(code)
    collected = {name: _collect_steps(operations, codes, numbers) for name, codes in series.items()}
    known = {name: steps for name, steps in collected.items() if steps is not None}
    # What a program names counts before what a recorder does, which may count from when it was made.
    ranked = sorted(
        known,
        key=lambda name: (
            len(known[name].number),
            known[name].follow,
            -int((known[name].finish - known[name].begin).sum()),
        ),
    )
    return {name: known[name] for name in ranked[:_MOST_SERIES]}


def _parse_number(name: str) -> int:
    """Return the number of the step that a name tells, -1 where it tells none."""
    recorded = _RECORDED.fullmatch(name)
    if recorded:
        return int(recorded[1])
    return NONE if _PART.search(name) else step_of_name(name)


def _collect_steps(
    operations: Operations, codes: Sequence[int], numbers: Mapping[int, int]
) -> NamedSteps | None:
    """Return the steps of names that differ in numbers alone; None where these do not rise in time."""
    spans: dict[int, tuple[int, int]] = {}
    rows = np.flatnonzero(np.isin(operations.name, codes))
    for row in rows.tolist():
        number = numbers[int(operations.name[row])]
        begin, finish = int(operations.begin[row]), int(operations.finish[row])
        known = spans.get(number, (begin, finish))
        spans[number] = min(begin, known[0]), max(finish, known[1])
    steps = np.array(sorted(spans), np.int64)
    begins, finishes = np.array([spans[number] for number in steps.tolist()], np.int64).T
    if (begins[1:] < finishes[:-1]).any():
        return None
    return NamedSteps(steps, begins, finishes, operations.names[codes[0]].startswith(STEP))


def begin_apart(steps: Sequence[Mapping[str, NamedSteps]]) -> bool:
    """Whether two ranks begin with different steps of one name."""
    first: dict[str, int] = {}
    return any(
        first.setdefault(name, int(series.number[0])) != int(series.number[0])
        for own in steps
        for name, series in own.items()
    )


def find_common_begin(
    steps: Mapping[str, NamedSteps], others: Mapping[str, NamedSteps]
) -> tuple[int, int] | None:
    """Return when the first step that both ranks recorded began on each, by what orders its operations; None where none is named."""
    for name in steps.keys() & others.keys():
        own, theirs = steps[name], others[name]
        common = np.intersect1d(own.number, theirs.number)
        if len(common) and own.number[0] != theirs.number[0]:
            first = common[0]
            return int(own.begin[own.number == first][0]), int(theirs.begin[theirs.number == first][0])
    return None


def count_by_steps(steps: Sequence[Mapping[str, NamedSteps]], issued: Sequence[Int64]) -> list[int | None]:
    """Return with which collective each rank begins, counted from a common one; None where its steps do not tell.

    Args:
        steps: The named steps of each rank.
        issued: When each of its collectives was issued, rising.
    """
    shared = [
        name
        for name in dict.fromkeys(name for own in steps for name in own)
        if sum(name in own for own in steps) > 1
    ]
    if not shared:
        return [None] * len(steps)
    # The series of most ranks; of those the first.
    name = max(shared, key=lambda name: sum(name in own for own in steps))
    bounds = [
        _count_before(own[name], times) if name in own else {}
        for own, times in zip(steps, issued, strict=True)
    ]
    first: list[int | None] = [None] * len(steps)
    known: dict[int, int] = {}
    end = 0
    for rank in sorted((rank for rank, own in enumerate(bounds) if own), key=lambda rank: min(bounds[rank])):
        common = next((number for number in bounds[rank] if number in known), None)
        # What shares no step with another has none of its collectives.
        begins = end if common is None else known[common] - bounds[rank][common]
        for number, count in bounds[rank].items():
            known.setdefault(number, begins + count)
        first[rank] = begins
        end = max(end, begins + len(issued[rank]))
    return first


def _count_before(steps: NamedSteps, issued: Int64) -> dict[int, int]:
    """Return how many collectives a rank issued before each step, by number, and before the one after the last where that follows."""
    counts = dict(zip(steps.number.tolist(), np.searchsorted(issued, steps.begin).tolist(), strict=True))
    if steps.follow:
        counts.setdefault(int(steps.number[-1]) + 1, int(np.searchsorted(issued, steps.finish[-1])))
    return counts
