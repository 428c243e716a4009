"""The time left of tasks, on made-up progress: no test looks at a clock."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from studio.store.pace import describe_remaining, estimate_remaining_s, with_progress

TOTAL = 100_000


def estimates(done_at: Callable[[float], float], end_s: float) -> list[tuple[float, float, float]]:
    """Return (seconds really left, least and most told) at each moment of a task at which something is told."""
    pace, told = (), []
    for tick in range(int(end_s * 5)):
        now = tick / 5
        pace = with_progress(pace, now, int(done_at(now)))
        if left := estimate_remaining_s(pace, now, TOTAL):
            told.append((end_s - now, *left))
    return told


@pytest.mark.parametrize(
    "done_at",
    [
        lambda now: TOTAL * now / 300,  # even
        lambda now: TOTAL * min(1, (now / 300) ** 1.5),  # ever faster
        lambda now: TOTAL * (now // 7 * 7) / 300,  # in bursts
        lambda now: TOTAL * (0.82 + 0.18 * now / 300),  # computing nodes are done at once, collectives follow
    ],
    ids=["even", "faster", "bursts", "late"],
)
def test_what_is_told_holds_within_a_factor_of_two(done_at):
    told = estimates(done_at, 300)
    assert len(told) > 800
    for really, least, most in told:
        if really > 20:
            assert least < 2 * really
            assert most > really / 2


def test_shortly_before_the_end_nobody_is_told_hours():
    """A percent in the first minutes, the rest in seconds: one long collective holds all nodes back."""
    told = estimates(lambda now: TOTAL / 100 * now / 300 if now < 300 else TOTAL * (now - 299) / 11, 310)
    assert max((most for really, _, most in told if really < 60), default=0) < 600
    # What began slowly and then goes on evenly is told again once it has.
    told = estimates(lambda now: TOTAL * (0.01 * min(now, 60) / 60 + 0.99 * max(0, now - 60) / 600), 660)
    near = [(really, least, most) for really, least, most in told if really < 200]
    assert len(near) > 500
    assert all(least <= 1.1 * really and most < 2 * really + 1 for really, least, most in near)


def test_a_standstill_and_a_fresh_phase_are_no_pace():
    pace = tuple((float(at), 10 * at) for at in range(6))
    assert estimate_remaining_s(pace, 5, 100) == pytest.approx((5, 5))
    assert describe_remaining(estimate_remaining_s(pace, 5.5, 100)) == "a few seconds left"
    assert estimate_remaining_s(pace, 500, 100) is None
    assert with_progress(pace, 6, 10) == ((6, 10),)
