"""Choose the points of a sweep and simulate those that are not known yet: all, some at random, or by bisection.

Bisection looks, for each combination of the other settings, for the cheapest value of one of them that meets a target. It
takes the finish to fall or rise steadily with that value; what it simulated is in the results, so that one can see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from studio.errors import ConfigError
from studio.sweep.journal import Journal
from studio.sweep.running import Row, Runner
from studio.sweep.space import Space, refuse_many

Progress = Callable[[str, int, int], None]
_PHASE = "sweeping"


@dataclass(frozen=True, slots=True)
class Target:
    """What a bisection looks for.

    Attributes:
        key: The setting that is bisected; its values are numbers.
        under_ns: The finish that is asked for, at most.
    """

    key: str
    under_ns: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Which points of a space are simulated.

    Attributes:
        draw: So many at random; None all of the grid.
        seed: Of the random choice.
        target: What is bisected for; None nothing.
    """

    draw: int | None = None
    seed: int = 0
    target: Target | None = None


@dataclass(slots=True)
class Progressing:
    """Progress of a sweep: points done, and whom to tell.

    Attributes:
        progress: Told the phase, points done and points in all; may raise to stop.
        total: Points in all.
        done: Points done.
    """

    progress: Progress | None = None
    total: int = 0
    done: int = 0

    def tell(self) -> None:
        """Report how far it is."""
        if self.progress is not None:
            self.progress(_PHASE, self.done, self.total)


@dataclass(frozen=True, slots=True)
class Sweeping:
    """A sweep under way: its points, what is known of them, and who simulates them."""

    space: Space
    journal: Journal
    runner: Runner
    shown: Progressing = field(default_factory=Progressing)

    def simulate(self, indices: Sequence[int]) -> None:
        """Simulate the points that are not known yet, in order."""
        missing = [(index, self.space.point(index)) for index in indices if index not in self.journal.rows]
        self.shown.done += len(indices) - len(missing)
        self.shown.tell()
        if not missing:
            return
        for rows in self.runner.run(missing, self.shown.tell):
            self.journal.add(rows)
            self.shown.done += len(rows)
            self.shown.tell()


def list_points(space: Space, plan: Plan) -> list[int]:
    """Return the numbers of the points to simulate, in order; of a bisection none, since results decide.

    Raises:
        ConfigError: There are too many, or a bisected setting is not varied, or not over rising numbers.
    """
    if plan.target is not None:
        find_searched_axis(space, plan.target)
        return []
    count = space.size if plan.draw is None else min(plan.draw, space.size)
    refuse_many(count)
    return list(range(space.size)) if plan.draw is None else space.sample(count, plan.seed)


def carry_out(sweeping: Sweeping, plan: Plan) -> list[Row]:
    """Simulate the points of a plan; returns their results in the order of points.

    Raises:
        ConfigError: There are too many points, or the bisected setting is none of numbers.
    """
    if plan.target is not None:
        return _bisect(sweeping, plan.target)
    indices = list_points(sweeping.space, plan)
    sweeping.shown.total = len(indices)
    sweeping.simulate(indices)
    return [sweeping.journal.rows[index] for index in indices]


@dataclass(slots=True)
class _Search:
    """A bisection at one combination of the other settings.

    Attributes:
        places: Places of the axes; that of the bisected one is filled in.
        low, high: Places between which the border lies: at `met` of both the target is met.
        met: Which of both ends meets the target; None before that is known.
    """

    places: tuple[int, ...]
    low: int
    high: int
    met: int | None = None


def find_searched_axis(space: Space, target: Target) -> int:
    """Return the place of the setting that is bisected.

    Raises:
        ConfigError: It is not varied, its values are no rising numbers, or there are too many points.
    """
    if target.key not in space.keys:
        raise ConfigError(
            f"--bisect {target.key!r} is not varied; allowed: {', '.join(space.keys) or 'a key given by --set'}"
        )
    at = space.keys.index(target.key)
    numbers = space.axes[at].numbers
    if numbers is None or list(numbers) != sorted(numbers):
        raise ConfigError(
            f"--bisect {target.key}: its values are {', '.join(space.axes[at].values[:4])}, …; allowed: numbers in rising order",
            hint=f"Give a range: --set {target.key}=1..64*2.",
        )
    refuse_many(space.size // len(numbers) * 2)
    return at


def _bisect(sweeping: Sweeping, target: Target) -> list[Row]:
    space, rows = sweeping.space, sweeping.journal.rows
    at = find_searched_axis(space, target)
    last = len(space.axes[at].values) - 1
    others = space.size // (last + 1)
    searches = [_Search(places, 0, last) for places in _list_other_places(space, at, others)]
    used: dict[int, None] = {}
    sweeping.shown.total = others * (min(2, last + 1) + max(last - 1, 0).bit_length())

    def get_row(search: _Search, place: int) -> Row:
        return rows[_compute_index(space, at, search, place)]

    def simulate(asked: Sequence[tuple[_Search, int]]) -> None:
        indices = sorted({_compute_index(space, at, search, place) for search, place in asked})
        sweeping.simulate([index for index in indices if index not in used])
        used.update(dict.fromkeys(indices))

    simulate([(search, place) for search in searches for place in (0, last)])
    for search in searches:
        ends = [meets(get_row(search, place), target) for place in (0, last)]
        search.met = None if ends[0] == ends[1] else int(ends[1])
    open_ = [search for search in searches if search.met is not None and search.high - search.low > 1]
    while open_:
        simulate([(search, (search.low + search.high) // 2) for search in open_])
        for search in open_:
            middle = (search.low + search.high) // 2
            if meets(get_row(search, middle), target) == bool(search.met):
                search.high = middle
            else:
                search.low = middle
        open_ = [search for search in open_ if search.high - search.low > 1]
    sweeping.shown.done = sweeping.shown.total
    sweeping.shown.tell()
    return [rows[index] for index in sorted(used)]


def meets(row: Row, target: Target) -> bool:
    """Whether a point finishes in time."""
    return row.finish_ns is not None and row.finish_ns <= target.under_ns


def _list_other_places(space: Space, at: int, count: int) -> list[tuple[int, ...]]:
    """Return the places of all axes but one, whose place is 0, for each combination."""
    sizes = [len(axis.values) if place != at else 1 for place, axis in enumerate(space.axes)]
    combinations = []
    for number in range(count):
        places, rest = [], number
        for size in reversed(sizes):
            rest, place = divmod(rest, size)
            places.append(place)
        combinations.append(tuple(reversed(places)))
    return combinations


def _compute_index(space: Space, at: int, search: _Search, place: int) -> int:
    return space.index((*search.places[:at], place, *search.places[at + 1 :]))


def choose_cheapest(rows: Sequence[Row], values: Mapping[int, float], target: Target) -> Row | None:
    """Return the cheapest point in time: of the lowest cost, where there are no costs of the lowest value of the key.

    One whose finish no such network could have is returned where there is no other.

    Args:
        rows: Results.
        values: The value of the target's key by point.
        target: What is asked for.
    """
    good = [row for row in rows if meets(row, target)]
    return min(
        good, key=lambda row: (bool(row.doubt), row.cost or 0.0, values[row.index], row.index), default=None
    )
