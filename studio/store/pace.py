"""How long a task will take: from how its count has risen over time, not from its mean alone.

A count rarely rises evenly: a simulation completes many nodes at once after a long collective, an import reads large
files after small ones. So the time left is worked out several times, from all of the time so far and from its last half,
quarter and tenth, and told as the range between them; where they contradict each other, nothing is told.
"""

from __future__ import annotations

from collections.abc import Sequence

Pace = tuple[tuple[float, int], ...]
"""Moments in seconds, rising, and how much was done at each."""

_KEPT = 48
_SHORTEST_S = 2.0
_WINDOWS = (1.0, 0.5, 0.25, 0.1)
_CONTRADICTION = 3.0
"""How many times the shortest answer the longest may be."""
_BURSTS = 3
_FARTHEST = 8.0
"""How many times the time so far can be foreseen."""
_SCALES = ((60.0, 10.0, "s", 1.0), (3600.0, 60.0, "min", 60.0), (float("inf"), 600.0, "h", 3600.0))
"""Up to how many seconds each unit serves, what is rounded to, the unit, and the seconds in it."""


def with_progress(pace: Pace, now: float, done: int) -> Pace:
    """Add what is done by now; of long tasks every second moment is forgotten again and again.

    Example:
        >>> with_progress(((0.0, 0),), 1.0, 5), len(with_progress(tuple((float(at), at) for at in range(48)), 48.0, 48))
        (((0.0, 0), (1.0, 5)), 25)
    """
    if pace and (now <= pace[-1][0] or done < pace[-1][1]):
        return pace if done >= pace[-1][1] else ((now, done),)
    longer = (*pace, (now, done))
    return longer if len(longer) <= _KEPT else longer[::2]


def estimate_remaining_s(pace: Pace, now: float, total: int) -> tuple[float, float] | None:
    """Return the least and most seconds that a task still needs; None where it cannot be estimated.

    Example:
        >>> even = tuple((float(at), 10 * at) for at in range(11))
        >>> estimate_remaining_s(even, 10.0, 400), estimate_remaining_s(even[:2], 1.0, 400)
        ((30.0, 30.0), None)
    """
    if not pace or total <= 0:
        return None
    (began, _), (_, done) = pace[0], pace[-1]
    spent = now - began
    if spent < _SHORTEST_S:
        return None
    # No look back is shorter than the last steps forward: between two bursts nothing stands still.
    steps = [at for (at, now_done), (_, before) in zip(pace[1:], pace, strict=False) if now_done > before]
    if not steps or now - steps[-1] > spent / 2:
        return None
    latest = steps[-_BURSTS] if len(steps) >= _BURSTS else began
    lefts = []
    for window in _WINDOWS:
        since = min(now - window * spent, latest)
        risen = done - _interpolate_done(pace, since)
        if risen <= 0:
            return None
        lefts.append((total - done) * (now - since) / risen)
    least, most = min(lefts), max(lefts)
    if most > _CONTRADICTION * least or least > _FARTHEST * spent:
        return None
    return least, most


def _interpolate_done(pace: Sequence[tuple[float, int]], moment: float) -> float:
    """Return how much was done at a moment, evenly between those that are known."""
    later = next((index for index, (at, _) in enumerate(pace) if at >= moment), None)
    if later is None:
        return pace[-1][1]
    if later == 0:
        return pace[0][1]
    (before, low), (after, high) = pace[later - 1], pace[later]
    return low + (high - low) * (moment - before) / (after - before)


def describe_remaining(left: tuple[float, float] | None) -> str:
    """Say how long a task will take, no more exactly than is known; "" where it is not.

    Example:
        >>> describe_remaining((3.0, 8.0)), describe_remaining((33.0, 37.0)), describe_remaining((95.0, 290.0)), describe_remaining(None)
        ('a few seconds left', 'about 40 s left', '2 to 5 min left', '')
        >>> describe_remaining((3000.0, 4500.0)), describe_remaining((8700.0, 8900.0))
        ('50 min to 1.3 h left', 'about 2.5 h left')
    """
    if left is None:
        return ""
    low, high = left
    if high < _SCALES[0][1]:
        return "a few seconds left"
    (least, least_unit), (most, most_unit) = _round_up(low), _round_up(high)
    if (least, least_unit) == (most, most_unit):
        return f"about {most} {most_unit} left"
    first = least if least_unit == most_unit else f"{least} {least_unit}"
    return f"{first} to {most} {most_unit} left"


def _round_up(seconds: float) -> tuple[str, str]:
    for most, step, unit, scale in _SCALES:
        rounded = -(-seconds // step) * step
        if rounded < most:
            return f"{rounded / scale:.2g}", unit
    raise AssertionError("the last scale has no end")
