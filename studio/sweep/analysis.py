"""What results of a sweep say: the best points, the front of cost against finish, and how much each setting matters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from studio.analysis.job.completeness import format_ranges, group_ranges
from studio.sweep.running import Row
from studio.sweep.space import Space
from studio.units import format_count, format_distinct, format_ns

IMPORTANCE = (
    "Share of the variance of the finish that a setting explains by itself: the variance of the means of its values, each "
    "weighted by its points, over the variance of all points (the correlation ratio η²; on a full grid the first-order Sobol "
    "index). What the shares leave of 100 % is explained by settings together only. Where the finish is the same at all points, every share is 0. Impossible points are left out, and so are those whose finish no such "
    "network could have, while there are others."
)
"""How importance is computed."""
NOTHING_MATTERS = "nothing that was varied changes the finish"
"""What is said in place of shares where the finish is the same at all points."""
LITTLE = 0.01
"""So little of the least finish is hardly a difference."""


@dataclass(frozen=True, slots=True)
class Importance:
    """How much of the finish a setting explains.

    Attributes:
        key: The setting.
        share: 0 to 1; see `IMPORTANCE`.
        best: Its value with the least mean finish.
    """

    key: str
    share: float
    best: str


def select_possible(rows: Sequence[Row]) -> list[Row]:
    """Return the points that have a finish."""
    return [row for row in rows if row.finish_ns is not None]


def select_doubted(rows: Sequence[Row]) -> list[Row]:
    """Return the points whose finish no such network could have."""
    return [row for row in select_possible(rows) if row.doubt]


@dataclass(frozen=True, slots=True)
class Doubtful:
    """A doubt about points of a sweep, whose finish is not to be believed as it stands.

    Attributes:
        code: The row of `studio.sim.doubts.CHECKS`.
        message: What it says of the first of them.
        points: Their numbers.
        is_same: Whether it says the same of all of them.
    """

    code: str
    message: str
    points: tuple[int, ...]
    is_same: bool = True

    def words(self, every: int) -> str:
        """Say which of so many points that have a finish it concerns, and what it says.

        Example:
            >>> Doubtful("extrapolated", "2 of 2 collectives are extrapolated.", (0, 1, 2, 7)).words(9)
            '4 of 9 points (0–2, 7): 2 of 2 collectives are extrapolated.'
        """
        whose = format_ranges(group_ranges(self.points)).removeprefix("ranks ").removeprefix("rank ")
        which = (
            ("the only point" if every == 1 else f"all {format_count(every)} points")
            if len(self.points) == every
            else f"{format_count(len(self.points))} of {format_count(every)} points ({whose})"
        )
        first = "" if self.is_same else f"of point {self.points[0]}: "
        return f"{which}: {first}{self.message}"


def list_doubtful(rows: Sequence[Row]) -> list[Doubtful]:
    """Return what is doubtful of points that a network could have, each doubt once with all points that it concerns, most first.

    What such points say counts all the same in ranks, the front and shares.

    Example:
        >>> found = list_doubtful([Row(0, 9, doubtful={"long-ring": "Long."}), Row(1, 5, doubtful={"long-ring": "Longer."}), Row(2, 7)])
        >>> [(one.code, one.points, one.message) for one in found]
        [('long-ring', (0, 1), 'Long.')]
    """
    points: dict[str, list[int]] = {}
    messages: dict[str, list[str]] = {}
    for row in select_possible(rows):
        for code, message in row.doubtful.items():
            points.setdefault(code, []).append(row.index)
            messages.setdefault(code, []).append(message)
    return sorted(
        (
            Doubtful(code, messages[code][0], tuple(numbers), is_same=len(set(messages[code])) == 1)
            for code, numbers in points.items()
        ),
        key=lambda each: -len(each.points),
    )


def mark_point(row: Row, rows: Sequence[Row]) -> str:
    """Return what stands beside the finish of a point: whether it is impossible, or doubtful where others are not; else ""."""
    if row.doubt:
        return "impossible"
    some = any(not each.doubtful for each in select_possible(rows))
    return "doubtful" if row.doubtful and some else ""


def select_believed(rows: Sequence[Row]) -> list[Row]:
    """Return the points that may be ranked: those without a doubt, or all that have a finish where each has one.

    Example:
        >>> [row.index for row in select_believed([Row(0, 9), Row(1, 5, doubt="beyond its ports"), Row(2, error="no")])]
        [0]
    """
    return [row for row in select_possible(rows) if not row.doubt] or select_possible(rows)


def select_best(rows: Sequence[Row], count: int) -> list[Row]:
    """Return the points with the least finish; of equal ones the cheaper, then the first; doubted ones last."""
    return sorted(
        select_possible(rows), key=lambda row: (bool(row.doubt), row.finish_ns, row.cost or 0.0, row.index)
    )[:count]


def select_front(rows: Sequence[Row]) -> list[Row]:
    """Return the points that no other beats in both cost and finish, from the cheapest on; empty without costs.

    Points that no such network could have are on it only where there are no others.

    Example:
        >>> points = [Row(0, 9, cost=1.0), Row(1, 5, cost=2.0), Row(2, 6, cost=3.0), Row(3, 1, cost=9.0)]
        >>> [row.index for row in select_front(points)]
        [0, 1, 3]
    """
    priced = [row for row in select_believed(rows) if row.cost is not None]
    front: list[Row] = []
    for row in sorted(priced, key=lambda row: (row.cost, row.finish_ns, row.index)):
        if not front or (row.finish_ns or 0) < (front[-1].finish_ns or 0):
            front.append(row)
    return front


def choose_cheap_enough(rows: Sequence[Row]) -> Row | None:
    """Return the cheapest point that finishes within a hundredth of the quickest one; None without costs.

    Example:
        >>> choose_cheap_enough([Row(0, 1000, cost=9.0), Row(1, 1009, cost=5.0), Row(2, 1100, cost=1.0)]).index
        1
    """
    priced = [row for row in select_believed(rows) if row.cost is not None]
    least = min((row.finish_ns or 0 for row in priced), default=0)
    near = [row for row in priced if (row.finish_ns or 0) <= least * (1 + LITTLE)]
    return min(near, key=lambda row: (row.cost or 0.0, row.finish_ns, row.index), default=None)


def find_slower_with_more(space: Space, rows: Sequence[Row]) -> tuple[str, Row] | None:
    """Return a bandwidth of which the quickest point has less than another one, all else equal, with that one; None where more never takes longer.

    Differences below a thousandth do not count; of several the least bandwidth above.
    """
    first = select_best(rows, 1)[0]
    chosen = space.point(first.index)
    for key in space.keys:
        if not key.startswith("bandwidth"):
            continue
        slower = []
        for row in select_believed(rows):
            point = space.point(row.index)
            alike = all(point[other] == value for other, value in chosen.items() if other != key)
            more = _parse_number(point[key]) - _parse_number(chosen[key])
            if alike and more > 0 and (row.finish_ns or 0) > (first.finish_ns or 0) * 1.001:
                slower.append((more, row.index, row))
        if slower:
            return key, min(slower)[2]
    return None


def _parse_number(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return float("nan")


def count_reasons(rows: Sequence[Row]) -> list[tuple[str, int]]:
    """Return why points are impossible, and how many for each reason, most first."""
    return Counter(row.error for row in rows if row.error).most_common()


def finish_varies(rows: Sequence[Row]) -> bool:
    """Return whether any two points have different finishes."""
    return len({row.finish_ns for row in select_believed(rows)}) > 1


def describe_finishes(rows: Sequence[Row]) -> str:
    """Describe the range of finishes of points that can be simulated, of which there is one at least.

    Example:
        >>> describe_finishes([Row(0, 198_938_000), Row(1, 198_612_000)]), describe_finishes([Row(0, 40_000_000), Row(1, 70_000_000)])
        ('finish 199 ms, all within 0.16 %', 'finish 40.0 ms to 70.0 ms, 75 % apart')
        >>> describe_finishes([Row(0, 5_000)])
        'finish 5.00 µs'
    """
    least, most = _compute_range_ns(rows)
    if least == most:
        return f"finish {format_ns(least)}"
    if not differs(least, most):
        return f"finish {format_ns(most)}, all within {_format_percent(least, most)} %"
    return f"finish {' to '.join(format_distinct([least, most]))}, {_format_percent(least, most)} % apart"


def describe_little(rows: Sequence[Row]) -> str:
    """Say that what was varied hardly matters where all finishes are within a hundredth; empty where they are not.

    Shares of a variance tell which setting matters most, not whether any does.

    Example:
        >>> describe_little([Row(0, 198_938_000), Row(1, 198_612_000)])
        'all points finish within 0.16 % of each other: what was varied hardly matters to this job'
    """
    if not finish_varies(rows):
        return ""
    least, most = _compute_range_ns(rows)
    if differs(least, most):
        return ""
    return f"all points finish within {_format_percent(least, most)} % of each other: what was varied hardly matters to this job"


def differs(least_ns: float, most_ns: float) -> bool:
    """Return whether two finishes are further apart than a hundredth."""
    return most_ns - least_ns > LITTLE * least_ns


def _compute_range_ns(rows: Sequence[Row]) -> tuple[int, int]:
    finishes = [row.finish_ns or 0 for row in select_believed(rows)]
    return min(finishes), max(finishes)


def _format_percent(least: int, most: int) -> str:
    """Return how much longer the longest finish is than the least, in per cent."""
    share = 100 * (most - least) / max(least, 1)
    return f"{share:,.0f}" if share >= 10 else f"{share:.2g}"


def list_models(rows: Sequence[Row]) -> list[str]:
    """Return the models that answered, in the order of their first points."""
    return list(dict.fromkeys(row.model for row in select_possible(rows)))


def compute_importance(space: Space, rows: Sequence[Row]) -> list[Importance]:
    """Return how much of the finish each setting explains, most first.

    Example:
        >>> from studio.sweep.space import Axis
        >>> space = Space((Axis("a", ("1", "2")), Axis("b", ("1", "2"))))
        >>> [(one.key, one.share, one.best) for one in compute_importance(space, [Row(i, t) for i, t in enumerate((4, 4, 2, 2))])]
        [('a', 1.0, '2'), ('b', 0.0, '1')]
    """
    believed_rows = select_believed(rows)
    if len(believed_rows) < 2:
        return []
    finish = np.array([row.finish_ns for row in believed_rows], np.float64)
    # Of equal numbers the variance may come out above 0, by rounding.
    total = float(finish.var()) if finish.min() < finish.max() else 0.0
    shares = []
    for axis in space.axes:
        if len(axis.values) < 2:
            continue
        of = np.array(
            [axis.values.index(space.point(row.index)[axis.key]) for row in believed_rows], np.int64
        )
        count = np.bincount(of, minlength=len(axis.values))
        used = np.flatnonzero(count)
        means = np.bincount(of, finish, minlength=len(axis.values))[used] / count[used]
        between = float(((means - finish.mean()) ** 2 * count[used]).sum() / len(believed_rows))
        share = min(1.0, between / total) if total else 0.0
        shares.append(Importance(axis.key, share, axis.values[int(used[means.argmin()])]))
    return sorted(shares, key=lambda item: -item.share)
