"""Find where a measure of a series changed, and say what of a job's time made it change."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from studio.analysis.job.ledger import AFTER_FINISH, PARTS
from studio.analysis.job.measures import Measures
from studio.analysis.job.part_words import NAMES
from studio.notebook import format_record
from studio.units import format_ns

Key = Literal["step", "exposed", "imbalance"]
KEYS: Final[tuple[Key, ...]] = ("step", "exposed", "imbalance")
LEAST: Final[Mapping[Key, float]] = {"step": 0.03, "exposed": 0.02, "imbalance": 0.03}
"""What counts as a change at least: of the step time as a share of it, of exposed communication in shares of the finish."""
_WINDOW = 5
_NOISES = 3.0
_ENOUGH = 4
"""So many differences at least tell how much jobs differ anyway."""
_PARTS_NAMED = 2
_WORTH_NAMING = 0.15
"""A part is named that made up so much of the change of the step at least."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a measure from one job of a series to the next.

    Attributes:
        key: Which measure.
        at: The place of the job where it is new; the job before it is at `before`.
        before: The place of the last job before it that has the measure.
        old, new: The values there.
        parts: What of the mean rank's time changed most, in words; only of step times.
    """

    key: Key
    at: int
    before: int
    old: float
    new: float
    parts: tuple[str, ...] = ()

    __repr__ = format_record

    @property
    def is_worse(self) -> bool:
        """Whether the later job is the worse one: all measures are better when they are less."""
        return self.new > self.old

    def words(self, was: str, now: str) -> str:
        """Say what changed between two jobs of these names, "" to leave them out.

        Example:
            >>> Change("step", 4, 3, 10e6, 11.2e6, ("waiting 1.00 ms → 2.10 ms",)).words("a", "b")
            'Step time rose 12.0 % from a to b: waiting 1.00 ms → 2.10 ms of a step.'
        """
        verb = "rose" if self.is_worse else "fell"
        between = f" from {was} to {now}" if was and now else ""
        ending = f": {', '.join(self.parts)} of a step." if self.parts else "."
        return f"{_TITLES[self.key]} {verb} {_format_amount(self.key, self.old, self.new)}{between}{ending}"


_TITLES: Final[Mapping[Key, str]] = {
    "step": "Step time",
    "exposed": "Exposed communication",
    "imbalance": "Imbalance",
}


def _format_amount(key: Key, old: float, new: float) -> str:
    if key == "step":
        return f"{100 * abs(new - old) / max(old, 1):.1f} %"
    if key == "exposed":
        return f"{100 * abs(new - old):.1f} points"
    return f"by {abs(new - old):.2f}"


def get_measure(measures: Measures, key: Key) -> float | None:
    """Return one measure of a run; None where it has none."""
    if key == "step":
        return None if measures.pace_ns is None else float(measures.pace_ns)
    return measures.exposed if key == "exposed" else measures.imbalance


def describe_difference(before: Measures, after: Measures) -> str:
    """Say how a job differs from the one before it, in a few words.

    Example:
        >>> describe_difference(Measures(8, 100, 50, 2, {"exposed": 0.2}, 1.0), Measures(8, 110, 55, 2, {"exposed": 0.25}, 1.0))
        'step +10.0 %, exposed +5.0 points, imbalance +0.00'
    """
    parts = [] if before.ranks == after.ranks else [f"ranks {before.ranks:,} → {after.ranks:,}"]
    for key in KEYS:
        old, new = get_measure(before, key), get_measure(after, key)
        if old is None or new is None:
            continue
        if key == "step":
            name = "step" if before.step_ns is not None and after.step_ns is not None else "finish"
            old, new = (
                float((run.step_ns if name == "step" else run.finish_ns) or 0) for run in (before, after)
            )
            parts.append(f"{name} {100 * (new - old) / max(old, 1):+.1f} %")
        elif key == "exposed":
            parts.append(f"exposed {100 * (new - old):+.1f} points")
        else:
            parts.append(f"imbalance {new - old:+.2f}")
    return ", ".join(parts)


def find_changes(series: Sequence[Measures | None]) -> list[Change]:
    """Return where measures of a series changed, in the order of jobs.

    A job differs if it is further from the median of up to five jobs before it (those since the last change) than the least that
    counts, and than three times what a job of the series differs from the next one, in the median; and further from the job just
    before it than the least that counts.

    Args:
        series: The jobs, earliest first; None for a job that has no measures.
    """
    changes: list[Change] = []
    for key in KEYS:
        window: list[float] = []
        last = -1
        noise = _compute_usual_difference(
            [value for entry in series if entry and (value := get_measure(entry, key)) is not None]
        )
        for at, measures in enumerate(series):
            new = None if measures is None else get_measure(measures, key)
            if measures is None or new is None:
                continue
            earlier = series[last] if last >= 0 else None
            if (
                key == "step"
                and earlier is not None
                and (earlier.step_ns is None) != (measures.step_ns is None)
            ):
                # A step and a finish do not compare.
                window = []
            if window and _differs(key, window, new, noise):
                parts = (
                    _list_changed_parts(earlier, measures) if key == "step" and earlier is not None else ()
                )
                changes.append(Change(key, at, last, window[-1], new, parts))
                window = []
            window, last = [*window[1 - _WINDOW :], new], at
    return sorted(changes, key=lambda change: (change.at, KEYS.index(change.key)))


def _compute_usual_difference(values: Sequence[float]) -> float:
    """Return the median difference of neighbouring values; 0 for too few values."""
    differences = [abs(after - before) for before, after in pairwise(values)]
    return statistics.median(differences) if len(differences) >= _ENOUGH else 0.0


def _differs(key: Key, window: Sequence[float], new: float, noise: float) -> bool:
    usual = statistics.median(window)
    least = LEAST[key] * (max(usual, 1.0) if key == "step" else 1.0)
    return abs(new - usual) > max(least, _NOISES * noise) and abs(new - window[-1]) > least


def _list_changed_parts(before: Measures, after: Measures) -> tuple[str, ...]:
    """Return the parts of the mean rank's time that explain most of a change of the step."""
    old_ns, new_ns = before.pace_ns or 0, after.pace_ns or 0
    changed = []
    for part in (*PARTS, AFTER_FINISH):
        old, new = before.shares.get(part, 0.0) * old_ns, after.shares.get(part, 0.0) * new_ns
        if (new - old) * (new_ns - old_ns) > 0 and abs(new - old) >= _WORTH_NAMING * abs(new_ns - old_ns):
            changed.append((abs(new - old), f"{NAMES[part]} {format_ns(old)} → {format_ns(new)}"))
    return tuple(words for _, words in sorted(changed, reverse=True)[:_PARTS_NAMED])
